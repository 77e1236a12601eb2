"""The `cuda` executor's gates over the stand-in GPU: what must be stopped is, and alone.

The same exploits as test_evaluate.py; what they meet here is the runner, its guard bands and the
checker of the GPU path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.execution import Measurement
from cudaops.domain.judgement import Judgement, Policy
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.exploits.cases import GATES, load_case
from tests.lanes import mostly_deep
from tests.standin.platform import STANDIN

EXPLOITS = Path(__file__).parents[1] / "exploits"
STOPPED = [
    EXPLOITS / f"{name}.cu"
    for name in (
        "asks_for_too_much_shared_memory", "barrier_in_half_of_a_block", "cache_keyed_by_pointer",
        "half_precision", "host_code", "knows_the_captured_inputs", "never_ends",
        "one_wrong_element", "races_on_shared_memory", "reads_out_of_bounds",
        "reads_scratch_it_never_wrote", "scribbles_on_an_input", "writes_half_of_it",
        "writes_nothing", "writes_out_of_bounds",
    )
]  # fmt: skip
"""What the runner, its guard bands and the checker of the GPU path have a part in; all others are
judged on the `cpu` executor."""
HONEST = EXPLOITS / "honest"
ANY_SPEED = Policy(min_speedup=0.001, seed=11)

pytestmark = [pytest.mark.nvcc]


@pytest.fixture(scope="module")
def executor(kernels: Path) -> Iterator[CudaExecutor]:
    executor = CudaExecutor(None, kernels, driver=STANDIN)
    yield executor
    executor.close()


def opened(executor: CudaExecutor, folder: Path, timeout_s: float) -> Workbench:
    return open_workbench(
        load_program(EXPLOITS / "mm.cu"),
        None,
        (),
        executor,
        ANY_SPEED,
        folder,
        sm_arch=executor.sm_arch,
        timeout_s=timeout_s,
    )


@pytest.fixture(scope="module")
def bench(executor: CudaExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return opened(executor, tmp_path_factory.mktemp("bench"), timeout_s=60.0)


@pytest.fixture(scope="module")
def impatient(executor: CudaExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """For what never ends only: under load, an honest candidate may need longer than this."""
    return opened(executor, tmp_path_factory.mktemp("impatient"), timeout_s=6.0)


def judged(bench: Workbench, source: str) -> Judgement:
    rewrite = make_rewrite(source, proposer="test", title="test", why="test")
    evaluation = evaluate(bench, rewrite, ANY_SPEED.min_speedup)
    return evaluation.judged(ANY_SPEED)


def test_an_honest_candidate_passes_and_the_stand_ins_time_accepts_nothing(
    bench: Workbench,
) -> None:
    judgement = judged(bench, (HONEST / "the_same_kernel.cu").read_text())
    failed = {g.name for g in judgement.gates if not g.passed}
    # The stand-in's kernels take longer by the host's clock than by its own: that gate may fail.
    assert failed <= {"clocks"}, [g.line for g in judgement.gates if not g.passed]
    assert judgement.outcome != "accepted"


@pytest.mark.parametrize("path", mostly_deep(STOPPED, 5), ids=lambda p: p.stem)
def test_candidates_that_are_stopped(bench: Workbench, impatient: Workbench, path: Path) -> None:
    source = path.read_text()
    judgement = judged(impatient if path.stem == "never_ends" else bench, source)
    assert judgement.outcome == "rejected"
    expected = load_case(path).gate
    assert expected is not None
    failed = next(g.name for g in judgement.gates if not g.passed)
    # An earlier gate may see it too: nvcc refuses more, and a race may show in the first result.
    assert GATES.index(failed) <= GATES.index(expected), [g.line for g in judgement.gates]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("never_ends", "timeout"),
        ("a crash", "crash"),
        ("too much shared memory", "launch_refused"),
    ],
)
def test_the_next_candidate_is_unaffected(
    bench: Workbench, impatient: Workbench, name: str, what: str
) -> None:
    """A hang, a crash and a refused launch are reported; whoever comes next meets a GPU that was
    looked at and works."""
    good = (HONEST / "the_same_kernel.cu").read_text()
    bad = {
        "never_ends": (EXPLOITS / "never_ends.cu").read_text(),
        "a crash": good.replace("    ", "    if (threadIdx.x == 5) __trap();\n    ", 1),
        "too much shared memory": re.sub(r"(block=\(.*?\)) args", r"\1 smem=200000 args", good),
    }[name]
    assert bad != good
    rewrite = make_rewrite(bad, proposer="test", title="test", why="test")
    met_by = impatient if name == "never_ends" else bench
    evaluation = evaluate(met_by, rewrite, ANY_SPEED.min_speedup)
    assert evaluation.failure is not None
    assert getattr(evaluation.failure, "what", None) == what, evaluation.failure
    assert evaluation.judged(ANY_SPEED).outcome == "rejected"
    again = make_rewrite(good, proposer="test", title="test", why="test")
    assert isinstance(bench.measure(again, bench.workloads[0]), Measurement)
