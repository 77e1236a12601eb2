"""How long large buffers take to compare: the whole of this machine against one processor of it.

`python benchmarks/comparison.py [GIB]` writes a result in float32 of that size (1 by default), the
doubles it approximates and a copy, then times what the gates ask of them. The files go to TMPDIR.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cudaops.executors.arrays import stored
from cudaops.executors.compare import distance, integer_mismatches, same_contents

ROUNDS = 3


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 2**28)
    processors = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        narrow, wide, copy = (Path(folder) / name for name in ("f32.bin", "f64.bin", "copy.bin"))
        _write(size, narrow, wide, copy)
        f32, f64, again = stored(narrow, "f32"), stored(wide, "f64"), stored(copy, "f32")
        asked: dict[str, Callable[[], object]] = {
            "distance of float32 from its doubles": lambda: distance(f32, f64),
            "distance of float32 from its copy": lambda: distance(f32, again),
            "elements that differ": lambda: integer_mismatches(f32, again),
            "same bytes": lambda: same_contents(narrow, copy),
        }
        for name, ask in asked.items():
            one, whole = [], []
            for _ in range(ROUNDS):  # in turn, so that a busy machine slows both
                os.sched_setaffinity(0, {min(processors)})
                one.append(_seconds(ask))
                os.sched_setaffinity(0, processors)
                whole.append(_seconds(ask))
            best = min(one), min(whole)
            text = (
                f"{best[0][0]:6.2f} s on one, {best[1][0]:6.2f} s on {len(processors)} processors"
            )
            text += f" ({best[1][1]:.2f} s of them used), {best[0][0] / best[1][0]:.2f}x"
            print(f"{name:38} {text}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"most memory of this process: {peak:.0f} MiB")


def _write(size: int, narrow: Path, wide: Path, copy: Path) -> None:
    numbers = np.random.default_rng(1)
    with narrow.open("wb") as f32, wide.open("wb") as f64, copy.open("wb") as again:
        for start in range(0, size, 1 << 22):
            values = numbers.standard_normal(min(1 << 22, size - start))
            rounded = values.astype(np.float32)
            values.tofile(f64)
            rounded.tofile(f32)
            rounded.tofile(again)


def _seconds(ask: Callable[[], object]) -> tuple[float, float]:
    """By the wall, and of all processors together."""
    begun, used = time.perf_counter(), time.process_time()
    ask()
    return time.perf_counter() - begun, time.process_time() - used


if __name__ == "__main__":
    main()
