"""Gate `correctness_domain`: what one run of a program shows is not what its kernel takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate, Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.domain import domain_gate, domain_of
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
__constant__ float weight[2];
__global__ void f(const int* start, const unsigned char* live, const float* x, float* y, int rows,
                  int mode) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int k = start[r]; k < start[r + 1]; ++k)
        if (live[k]) sum += x[k];
    y[r] = (mode == 2 ? weight[1] : weight[0]) * sum;
}
int main() {
    const int rows = 500, all = 4 * rows;
    static int s[rows + 1];
    static unsigned char l[all];
    static float h[all];
    float w[2] = {0.5f, 2.0f};
    for (int i = 0; i <= rows; ++i) s[i] = 4 * i;
    for (int i = 0; i < all; ++i) l[i] = 1, h[i] = 1 + i % 7;
    int* ds; unsigned char* dl; float *dx, *dy;
    cudaMalloc(&ds, sizeof s); cudaMalloc(&dl, sizeof l);
    cudaMalloc(&dx, sizeof h); cudaMalloc(&dy, rows * 4);
    cudaMemcpy(ds, s, sizeof s, cudaMemcpyHostToDevice);
    cudaMemcpy(dl, l, sizeof l, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(weight, w, sizeof w);
    f<<<(rows + 127) / 128, 128>>>(ds, dl, dx, dy, rows, 1);
    cudaMemcpy(h, dy, rows * 4, cudaMemcpyDeviceToHost);
    printf("%f\\n", h[3]);
}
"""
HEAD = """// @launch g grid=(ceil_div(rows, 64)) block=(64) args=(start, live, x, y, rows, mode)
__global__ void g(const int* start, const unsigned char* live, const float* x, float* y, int rows,
                  int mode) {
    int r = blockIdx.x * 64 + threadIdx.x;
    if (r >= rows) return;
    int first = start[r], last = start[r + 1];
    float sum = 0.0f;
"""
SUM = "    for (int k = last - 1; k >= first; --k) sum += live[k] ? x[k] : 0.0f;\n"
END = "    y[r] = weight[mode == 2] * sum;\n}\n"


SOFTMAX = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const float* q, const float* k, float* sums, int rows, int first, int keys) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float most = -INFINITY, sum = 0.0f;
    for (int i = first; i < first + keys; ++i) most = fmaxf(most, q[r] * k[i] * 0.3f);
    for (int i = first; i < first + keys; ++i) sum += expf(q[r] * k[i] * 0.3f - most);
    sums[r] = sum;
}
int main() {
    const int rows = 300, keys = 40;
    float q[rows], k[keys], *dq, *dk, *ds;
    for (int i = 0; i < rows; ++i) q[i] = (i * 7 % 11 - 5) * 0.3f;
    for (int i = 0; i < keys; ++i) k[i] = (i * 5 % 13 - 6) * 0.25f;
    cudaMalloc(&dq, sizeof q); cudaMalloc(&dk, sizeof k); cudaMalloc(&ds, sizeof q);
    cudaMemcpy(dq, q, sizeof q, cudaMemcpyHostToDevice);
    cudaMemcpy(dk, k, sizeof k, cudaMemcpyHostToDevice);
    for (int i = 0; i < keys; i += 20) f<<<(rows + 63) / 64, 64>>>(dq, dk, ds, rows, i, 20);
    cudaMemcpy(q, ds, sizeof q, cudaMemcpyDeviceToHost);
    printf("%f\\n", q[3]);
}
"""
ONLINE = """// @launch g grid=(ceil_div(rows, 64)) block=(64) args=(q, k, sums, rows, first, keys)
__global__ void g(const float* q, const float* k, float* sums, int rows, int first, int keys) {
    int r = blockIdx.x * 64 + threadIdx.x;
    if (r >= rows) return;
    float most = -INFINITY, sum = 0.0f;
    for (int i = 0; i < keys; ++i) {
        float s = q[r] * k[first + i] * 0.3f, top = fmaxf(most, s);
        if (top == -INFINITY) continue;
        if (top > most) { sum *= expf(most - top); most = top; }
        sum += expf(s - most);
    }
    sums[r] = sum;
}
"""

LUMA = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const unsigned char* rgb, unsigned char* luma, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    luma[i] = (unsigned char)(0.299f * r + 0.587f * g + 0.114f * b + 0.5f);
}
int main() {
    const int n = 5000;
    static unsigned char h[3 * n];
    for (int i = 0; i < 3 * n; ++i) h[i] = (unsigned char)(i * 37 % 251);
    unsigned char *d, *l;
    cudaMalloc(&d, sizeof h); cudaMalloc(&l, n);
    cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
    f<<<(n + 127) / 128, 128>>>(d, l, n);
    cudaMemcpy(h, l, n, cudaMemcpyDeviceToHost);
    printf("%d\\n", h[3]);
}
"""
BACKWARDS = """// @launch g grid=(ceil_div(n, 64)) block=(64) args=(rgb, luma, n)
__global__ void g(const unsigned char* rgb, unsigned char* luma, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    float r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    luma[i] = (unsigned char)(0.114f * b + (0.587f * g + (0.299f * r + 0.5f)));
}
"""

FILTERS = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const float* x, const float* bias, float* y, int width, int filters) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width) y[blockIdx.y * width + i] = x[i] + bias[blockIdx.y];
}
int main() {
    const int width = 41, filters = 6;
    float x[width], bias[filters], y[width * filters], *dx, *db, *dy;
    for (int i = 0; i < width; ++i) x[i] = i % 7 - 3.0f;
    for (int i = 0; i < filters; ++i) bias[i] = 0.5f * i;
    cudaMalloc(&dx, sizeof x); cudaMalloc(&db, sizeof bias); cudaMalloc(&dy, sizeof y);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    cudaMemcpy(db, bias, sizeof bias, cudaMemcpyHostToDevice);
    f<<<dim3((width + 15) / 16, filters), 16>>>(dx, db, dy, width, filters);
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    printf("%f\\n", y[3]);
}
"""
FOUR_FILTERS = """
// @launch g grid=(gridDim.x, ceil_div(filters, 4)) block=(16) args=(x, bias, y, width, filters)
__global__ void g(const float* x, const float* bias, float* y, int width, int filters) {
    int i = blockIdx.x * 16 + threadIdx.x;
    if (i >= width) return;
    for (int k = 4 * blockIdx.y; k < 4 * blockIdx.y + 4; ++k)
        if (k < filters) y[k * width + i] = x[i] + bias[k];
}
"""


def opened(folder: Path, text: str) -> Workbench:
    (folder / "f.cu").write_text(text)
    executor = CpuExecutor("A10", folder / "cache", program_folder=folder)
    return open_workbench(
        load_program(folder / "f.cu"), None, (), executor, Policy(seed=7), folder / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return opened(tmp_path_factory.mktemp("domain"), PROGRAM)


def judged(bench: Workbench, body: str) -> Gate:
    return domain_gate(bench, make_rewrite(HEAD + body, "test", "test", "test")).gate


def test_an_honest_rewrite_passes_and_the_claim_says_how_far_it_goes(bench: Workbench) -> None:
    gate = judged(bench, SUM + END)
    assert gate.passed, gate.summary
    assert gate.numbers["inputs"] > 50
    assert gate.numbers["author_branches_reached"] == gate.numbers["author_branches"] > 0
    assert "assumptions: none" in gate.summary


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("    for (int k = 4 * r; k < 4 * r + 4; ++k) sum += live[k] ? x[k] : 0.0f;\n" + END, ""),
        ("    for (int k = first; k < last; ++k) sum += x[k];\n" + END, "live"),
        (SUM + "    y[r] = 0.5f * sum;\n}\n", ""),
        (SUM + "    y[r] = weight[0] * sum;\n}\n", "drawn mode = 2"),
    ],
    ids=["rows of one length", "mask", "constant memory", "scalar"],
)
def test_what_the_captured_run_hides(bench: Workbench, body: str, named: str) -> None:
    gate = judged(bench, body)
    assert not gate.passed
    assert named in gate.summary
    kept = Path(gate.summary.rpartition(" is kept in ")[2].removesuffix(")"))
    told = json.loads((kept / "input.json").read_text("utf-8"))
    assert told["arguments"].keys() == {"rows", "mode"}
    assert (kept / "y.right.bin").stat().st_size > 0


def test_the_small_launches_have_sizes_that_nothing_divides(bench: Workbench) -> None:
    judged(bench, SUM + END)
    assert len({workload.callee for workload in bench.judged}) == 1
    known = domain_of(bench, bench.workloads[0])
    assert len(known.domain.shapes) > 1
    assert known.domain.drawn >= len(known.domain.inputs)


def test_nothing_is_asked_where_the_author_runs_over_or_subtracts_large_roundings(
    tmp_path: Path,
) -> None:
    """The author's loops compare with `first + keys`, which runs over where `first` is the largest
    number, and its `exp(s - most)` is anything where scores are so large that they are contracted
    with the difference in one place and rounded in the other."""
    bench = opened(tmp_path, SOFTMAX)
    gate = domain_gate(bench, make_rewrite(ONLINE, "test", "test", "test")).gate
    assert gate.passed, gate.summary
    late = ONLINE.replace("sum *= expf(most - top); most = top;", "most = top;")
    gate = domain_gate(bench, make_rewrite(late, "test", "test", "test")).gate
    assert not gate.passed


def test_integers_that_rounding_decides_may_be_either_of_the_two(tmp_path: Path) -> None:
    """0.299 r + 0.587 g + 0.114 b + 0.5 of bytes is an integer often, but for its last bit."""
    bench = opened(tmp_path, LUMA)
    gate = domain_gate(bench, make_rewrite(BACKWARDS, "test", "test", "test")).gate
    assert gate.passed, gate.summary
    for wrong in (BACKWARDS.replace("+ 0.5f", "+ 0.505f"), BACKWARDS.replace("0.587f", "0.588f")):
        gate = domain_gate(bench, make_rewrite(wrong, "test", "test", "test")).gate
        assert not gate.passed


def test_an_argument_that_says_what_the_grid_says_is_made_smaller_with_it(tmp_path: Path) -> None:
    """The author reads his number of filters off the grid, the rewrite off the argument."""
    bench = opened(tmp_path, FILTERS)
    gate = domain_gate(bench, make_rewrite(FOUR_FILTERS, "test", "test", "test")).gate
    assert gate.passed, gate.summary
    wrong = FOUR_FILTERS.replace("k < filters", "k < 6")
    gate = domain_gate(bench, make_rewrite(wrong, "test", "test", "test")).gate
    assert not gate.passed


def test_what_rounds_by_the_processors_mode_is_not_excused(tmp_path: Path) -> None:
    bench = opened(tmp_path, LUMA.replace("(0.299f", "rintf(0.299f"))
    gate = domain_gate(bench, make_rewrite(BACKWARDS, "test", "test", "test")).gate
    assert not gate.passed
