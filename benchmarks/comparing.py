"""What it costs to hold two buffers against each other beside a thread that computes in Python.

    python benchmarks/comparing.py --mib 256

The search writes rewrites, in Python, in the process in which the judge compares results. Prints
seconds with and without such a thread, with Python's own turns and with ours, and their ratios.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cudaops.executors import arrays
from cudaops.executors.compare import distance

PYTHONS_S = 0.005
"""Source: sys.getswitchinterval, CPython 3.11."""


@contextmanager
def busy() -> Iterator[None]:
    """A thread that never waits."""
    ended = False

    def spin() -> None:
        count = 0
        while not ended:
            count += 1

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        ended = True
        thread.join()


def seconds(one: Path, other: Path, turn_s: float) -> float:
    arrays.TURN_S = turn_s
    sys.setswitchinterval(turn_s)
    began = time.perf_counter()
    distance(arrays.stored(one, "f32"), arrays.stored(other, "f32"))
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="size of each buffer")
    options = parser.parse_args()
    ours = arrays.TURN_S
    with tempfile.TemporaryDirectory() as name:
        one, other = Path(name, "one"), Path(name, "other")
        values = np.random.default_rng(0).standard_normal(options.mib << 18).astype(np.float32)
        values.tofile(one)
        values[len(values) // 2] += 1e-3
        values.tofile(other)
        alone = min(seconds(one, other, ours) for _ in range(3))
        with busy():
            beside = {turn_s: seconds(one, other, turn_s) for turn_s in (PYTHONS_S, ours)}
    sys.stdout.write(f"alone: {alone:.2f} s ({os.cpu_count()} cores, {options.mib} MiB each)\n")
    for turn_s, taken in beside.items():
        sys.stdout.write(
            f"beside a busy thread, turns of {turn_s * 1e3:g} ms: {taken:.2f} s, "
            f"{taken / alone:.0f} times as long\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
