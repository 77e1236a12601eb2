"""`python evaluate.py PROBLEM.py MODEL_NEW.py`: one line, as KernelBench judges a `model_new.py`.

Follows `eval_kernel_against_ref` (src/kernelbench/eval.py of KernelBench, read at 0d12226): both
files are executed in one namespace, models and inputs come from the same seeds, both models run on
the GPU, `torch.allclose` compares, and CUDA events time. Where they differ and torch lets cuDNN
round the reference's operands to TF32, a reference without it is compared as well.

`python evaluate.py --build MODEL_NEW.py` only builds the extension; that needs no GPU.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SEED = 42
"""`seed_num` of KernelBench."""
DRAWS = 5
"""`num_correct_trials`, as KernelBench's scripts pass it."""
TOLERANCE = 1e-4
"""Absolute and relative: `get_tolerance_for_precision` for float32."""
WARM_UPS = 3
TIMED_RUNS = 100
"""`num_warmup` and `num_perf_trials`, as KernelBench's scripts pass them."""
FLUSHED_BYTES = 256 << 20
"""Overwritten before each timed run, so that inputs come from memory. Chosen: five times an H100's
50 MB of L2."""


def main(arguments: list[str]) -> int:
    """Exit code 0: every draw agrees with the reference, be it the one without TF32."""
    if arguments[0] == "--build":
        _execute(Path(arguments[1]), {})
        return 0
    script, rewritten = map(Path, arguments)
    namespace: dict[str, Any] = {}
    _execute(script, namespace)
    reference_class, draw = namespace["Model"], namespace["get_inputs"]
    given = _seeded(SEED, namespace["get_init_inputs"])
    _execute(rewritten, namespace)
    with torch.no_grad():
        reference = _seeded(SEED, reference_class, *given).cuda()
        model = _seeded(SEED, namespace["ModelNew"], *given).cuda()
        agreeing, worst = _compare(reference, model, draw)
        exact = worst
        told = f"{agreeing} of {DRAWS} draws agree (largest difference {worst:.1e})"
        if agreeing < DRAWS and torch.backends.cudnn.allow_tf32:
            torch.backends.cudnn.allow_tf32 = False
            agreeing, exact = _compare(reference, model, draw)
            torch.backends.cudnn.allow_tf32 = True
            told += f"; without TF32 in the reference {agreeing} ({exact:.1e})"
        inputs = _on_gpu(_seeded(SEED, draw))
        torch_ms, ours_ms = (_milliseconds(lambda m=m: m(*inputs)) for m in (reference, model))
    print(f"{told}; torch {torch_ms:.4f} ms, ModelNew {ours_ms:.4f} ms, {torch_ms / ours_ms:.2f}x")
    return 0 if agreeing == DRAWS else 1


def _execute(path: Path, namespace: dict[str, Any]) -> None:
    exec(compile(path.read_text("utf-8"), str(path), "exec"), namespace)  # noqa: S102


def _seeded(seed: int, make: Callable[..., Any], *given: Any) -> Any:
    torch.manual_seed(seed)
    return make(*given)


def _on_gpu(inputs: list[Any]) -> list[Any]:
    return [value.cuda() if torch.is_tensor(value) else value for value in inputs]


def _compare(reference: Any, model: Any, draw: Callable[[], list[Any]]) -> tuple[int, float]:
    """Draws on which both agree, and the largest difference of any."""
    torch.manual_seed(SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(DRAWS)]
    agreeing, worst = 0, 0.0
    for seed in seeds:
        inputs = _on_gpu(_seeded(seed, draw))
        wanted, found = reference(*inputs), model(*inputs)
        torch.cuda.synchronize()
        agreeing += wanted.shape == found.shape and torch.allclose(
            wanted, found, rtol=TOLERANCE, atol=TOLERANCE
        )
        worst = max(worst, (wanted - found).abs().max().item())
    return agreeing, worst


def _milliseconds(run: Callable[[], Any]) -> float:
    """Median of one run, L2 cold."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(WARM_UPS):
        run()
    times = []
    for _ in range(TIMED_RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flushed.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
