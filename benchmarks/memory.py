"""What memory costs a run: a snapshot over 200 kernels, and one more result.

python benchmarks/memory.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudaops.domain.memory import KernelKey, MemoryEntry
from cudaops.memory.run_memory import RunMemory
from cudaops.memory.store import MemoryStore

KERNELS, RESULTS, REPEATS = 200, 12, 9


def _key(number: int) -> KernelKey:
    return KernelKey(structure=f"{number:016x}", device_class="sm_86", name=f"kernel_{number}")


def _entry(number: int) -> MemoryEntry:
    lesson = "do not repeat launch geometry (BX=32, BY=8): 1.04x against a bar of 1.20x"
    return MemoryEntry(
        date="2026-11-20T08:00:00Z", run_id=f"run {number}", subtype="dram_bandwidth",
        family="launch_geometry", title="launch geometry", proposer="recipe:geometry",
        outcome="rejected", speedup=1.04, time_source="modelled", source_id=f"{number:012x}",
        gate="speedup", lesson=lesson,
    )  # fmt: skip


def _median_ms(work: Callable[[int], object]) -> float:
    seconds = []
    for repeat in range(REPEATS):
        started = time.perf_counter()
        work(repeat)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e3


def main() -> None:
    """Print both times."""
    with tempfile.TemporaryDirectory() as folder:
        memory = MemoryStore(Path(folder))
        for kernel in range(KERNELS):
            for result in range(RESULTS):
                memory.record(_key(kernel), _entry(result))
        snapshot = _median_ms(lambda _: RunMemory(Path(folder), _key(0)))
        write = _median_ms(lambda repeat: memory.record(_key(KERNELS - 1), _entry(1000 + repeat)))
        print(f"snapshot over {KERNELS} kernels with {RESULTS} results each: {snapshot:.0f} ms")
        print(f"one result more: {write:.0f} ms")


if __name__ == "__main__":
    main()
