"""Launches too large for five of them to be judged: which ones differ in what decides nothing."""

from __future__ import annotations

import io
import struct
from pathlib import Path

from cudaops.domain.workload import ScalarArgument
from cudaops.executors.capture.report import recorded
from cudaops.executors.capture.workloads import LARGE_BYTES, CaptureFiles, WorkloadReader
from cudaops.executors.cpu.report import report_of
from tests.executors.cases import program

KERNEL = """
__global__ void k(float* a, int slice, int stages, float weight) {
  a[threadIdx.x + slice * 1024] += weight * stages;
}
"""
MAIN = """
  float* a;
  cudaMalloc(&a, 1 << 20);
  for (int i = 0; i < argc; ++i) k<<<1, 64>>>(a, i, 2, 0.5f);
"""


def captured(
    folder: Path, launches: list[tuple[int, int, float]], size_bytes: int
) -> tuple[list[int], int]:
    """`slice` of the launches that become workloads, and how many were left out: of a program that
    launches once with each of these `(slice, stages, weight)` and buffers of so many bytes."""
    blobs = folder / "blobs"
    blobs.mkdir(parents=True)
    contents = f"{'0' * 32}-{size_bytes}"
    with (blobs / contents).open("wb") as file:
        file.truncate(size_bytes)  # a hole, of which a copy is one
    lines: list[str] = []
    for number, (place, stages, weight) in enumerate(launches):
        lines += [
            f"config\t{number}\tk\t0\t0\t1\t1\t1\t64\t1\t1\t0\t",
            f"arg\t{number}\t0\tpointer\tf32\t0\t0\t0",
            f"arg\t{number}\t1\tscalar\ti32\t{place.to_bytes(4, 'little').hex()}",
            f"arg\t{number}\t2\tscalar\ti32\t{stages.to_bytes(4, 'little').hex()}",
            f"arg\t{number}\t3\tscalar\tf32\t{struct.pack('<f', weight).hex()}",
            f"before\t{number}\t0\t{size_bytes}\t{contents}",
            f"after\t{number}\t0\t{contents}",
            f"usage\t{number}\t1\t{1.0 - 0.01 * number}\t1",
        ]
    report = report_of(io.BytesIO("\n".join([*lines, "end", ""]).encode()))
    parsed = program(folder, KERNEL, MAIN)
    source = CaptureFiles(None, blobs, 4 * size_bytes)
    reader = WorkloadReader(parsed, parsed.kernel("k"), report, source, folder / "kept")
    workloads = reader.read(recorded(report, parsed, "k"), float(len(launches)))
    assert all((Path(w.folder) / "a0.before.bin").stat().st_size == size_bytes for w in workloads)
    scalars = [a for w in workloads for a in w.arguments if isinstance(a, ScalarArgument)]
    return [int(a.value) for a in scalars if a.name == "slice"], reader.alike


SLICES = [(i, 2, 0.5 * i) for i in range(6)]


def test_two_of_those_that_a_counter_tells_apart(tmp_path: Path) -> None:
    assert captured(tmp_path, SLICES, LARGE_BYTES) == ([0, 1], 4)


def test_five_of_those_that_are_not_large(tmp_path: Path) -> None:
    assert captured(tmp_path, SLICES, LARGE_BYTES - 4) == ([0, 1, 2, 3, 4], 0)


def test_an_integer_that_some_share_counts_nothing(tmp_path: Path) -> None:
    stages = [(i, 1 << (i // 3), 0.5) for i in range(6)]
    assert captured(tmp_path, stages, LARGE_BYTES) == ([0, 1, 3, 4], 2)


def test_three_launches_show_no_counter(tmp_path: Path) -> None:
    assert captured(tmp_path, SLICES[:3], LARGE_BYTES) == ([0, 1, 2], 0)
