"""Programs with nothing to gain, through the real graph: which end it is, and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.program import SourceFile
from cudaops.domain.run import RunRecord
from cudaops.graph.performance_limit import writes_by_order
from cudaops.program.front_end import kernel_form
from cudaops.program.parse import parse_files
from cudaops.reports.terminal import run_summary
from tests.graph.test_main_job import run
from tests.graph.test_transformations_job import ROW_SUMS

PROGRAM = """
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
KERNEL
int main() {
    const int n = COUNT;
    std::vector<int> h(2 * n);
    for (int i = 0; i < 2 * n; ++i) h[i] = (i * 7919) & 1023;
    int *x, *y, *c;
    cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4); cudaMalloc(&c, 64);
    cudaMemset(c, 0, 64);
    cudaMemcpy(x, h.data(), n * 4, cudaMemcpyHostToDevice);
    for (int again = 0; again < TIMES; ++again) k<<<n / 256 + 1, 256>>>(x, y, c, n);
    cudaMemcpy(h.data(), c, 64, cudaMemcpyDeviceToHost);
    cudaMemcpy(h.data() + 16, y, n * 4, cudaMemcpyDeviceToHost);
    printf("%d %d\\n", h[0], h[20]);
}
"""
HEAD = (
    "__global__ void k(const int* x, int* y, int* c, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x;"
)
COPY = HEAD + " if (i < n / 4) ((int4*)y)[i] = ((const int4*)x)[i]; }"
TINY = HEAD + " if (i < n) y[i] = x[i] + 1; }"
KEEP = HEAD + " if (i < n && x[i] > 3) { int at = atomicAdd(c, 1); y[at] = x[i]; } }"


def ran(folder: Path, kernel: str, count: int, times: int = 1, **options: int) -> RunRecord:
    source = folder / "program.cu"
    text = PROGRAM.replace("KERNEL", kernel).replace("COUNT", str(count))
    source.write_text(text.replace("TIMES", str(times)))
    return run(source, folder / "run", max_iterations=2, **options)


def test_as_short_as_a_launch(tmp_path: Path) -> None:
    record = ran(tmp_path, TINY, 64, 40)
    assert record.outcome == "nothing_found"
    assert record.end is not None
    assert record.end.kind == "launch_bound"
    assert record.end.numbers["launches"] == 40
    assert record.reason.startswith("nothing to gain: k takes ")
    assert "39 x 1.75 us = 68.2 us (modelled for A10)" in record.reason
    report = (tmp_path / "run" / "report.md").read_text()
    assert "nothing to gain: k takes" in report
    assert "the kernel takes no longer than an empty launch" in report
    again = RunRecord.model_validate_json((tmp_path / "run" / "run.json").read_text())
    assert again.end == record.end
    assert run_summary(record)


def test_at_the_roofline(tmp_path: Path) -> None:
    record = ran(tmp_path, COPY, 1 << 23)
    assert record.end is not None, record.reason
    assert record.end.kind == "roofline"
    assert record.end.numbers["near_pct"] >= 90
    assert record.outcome == "nothing_found", record.reason
    assert "% of the memory bandwidth roofline" in record.reason
    assert record.attempts == ()


def test_an_order_of_atomics_to_keep(tmp_path: Path) -> None:
    record = ran(tmp_path, KEEP, 1 << 18)
    assert record.outcome == "nothing_found"
    assert record.end is not None, record.reason
    assert record.end.kind == "atomic_order"
    assert "the order in which its atomics were made" in record.reason


@pytest.mark.parametrize(
    ("body", "by_order"),
    [
        ("y[atomicAdd(c, 1)] = x[i];", True),
        ("int at = atomicAdd(c, 1); int b = at + 2; y[b] = x[i];", True),
        ("int at; at = atomicExch(c, i); y[i] = at;", True),
        ("atomicAdd(c, x[i]); y[i] = 2;", False),
        ("if (atomicAdd(c, 1) == n - 1) c[1] = 1;", False),
        ("int mine = atomicCAS(c, 0, 1); while (mine) mine = atomicCAS(c, 0, 1); y[0] = i;", False),
        ("int at = x[i]; y[at] = i;", False),
    ],
)
def test_results_of_atomics_that_reach_memory(body: str, by_order: bool) -> None:
    text = f"{HEAD} {body} }}\nint main() {{ return 0; }}\n"
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    form = kernel_form(program, program.kernels[0])
    assert writes_by_order(form.kernel.body) == by_order


def test_what_can_be_made_faster_has_no_end(tmp_path: Path) -> None:
    source = tmp_path / "sums.cu"
    source.write_text(ROW_SUMS)
    record = run(source, tmp_path / "run", max_iterations=1, max_trials=2)
    assert record.outcome == "provisional"
    assert record.end is None
    assert record.library is not None
    assert "cub::DeviceSegmentedReduce::Sum of CUB" in (tmp_path / "run" / "report.md").read_text()
