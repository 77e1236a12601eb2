"""Whether a captured launch says again what it said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.errors import InputError
from cudaops.executors.arrays import read_array, write_array
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.sandbox.roles import confirm_reproduces, refine_roles
from tests.gates.verification_bench import EACH, TIMEOUT_S, opened, opened_program, oracle, verified


def test_another_order_of_the_same_elements_is_the_same_result(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """As an atomic counter gives places on a GPU, each time to other threads."""
    bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] + i"))
    workload = bench.workloads[0]
    written = next(a for a in workload.allocations if a.role != "in")
    after = Path(workload.folder) / written.after
    values = read_array(after, written.element)
    baseline = bench.compiled_baseline(workload)

    def confirm(folder: str) -> None:
        confirm_reproduces(cpu_executor, baseline, workload, tmp_path / folder, TIMEOUT_S)

    write_array(after, np.roll(values, 17), written.element)
    confirm("rolled")
    write_array(after, np.where(np.arange(values.size) == 40, 0, values), written.element)
    with pytest.raises(InputError, match="gives another result when run again"):
        confirm("changed")


def test_a_kernel_that_differs_from_run_to_run_is_called_that(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    body = "a[i] + (float)(clock64() % 1000003)"
    bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", body))
    workload = bench.workloads[0]
    baseline = bench.compiled_baseline(workload)
    with pytest.raises(InputError, match="gives another result each time it runs: `b` differs"):
        confirm_reproduces(cpu_executor, baseline, workload, tmp_path / "confirm", TIMEOUT_S)


KMEANS = """
#include <cstdio>
#include <vector>
__global__ void assign(const float *x, int *member, int *changed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int index = x[i] > 2.0f;
    changed[i] = member[i] != index;
    member[i] = index;
}
int main() {
    const int n = 100;
    std::vector<float> h(n);
    std::vector<int> none(n, -1), got(n);
    for (int i = 0; i < n; ++i) h[i] = i % 5;
    float *x; int *member, *changed;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&member, n * sizeof(int));
    cudaMalloc(&changed, n * sizeof(int));
    cudaMemcpy(x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(member, none.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    assign<<<4, 32>>>(x, member, changed, n);
    cudaMemcpy(got.data(), changed, n * sizeof(int), cudaMemcpyDeviceToHost);
    int sum = 0;
    for (int v : got) sum += v;
    printf("changed %d\\n", sum);
}
"""


def test_what_is_compared_with_small_numbers_is_read(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """Every poison but zero says what the captured contents say: another cluster than before."""
    (tmp_path / "kmeans.cu").write_text(KMEANS)
    bench = opened_program(cpu_executor, tmp_path / "kmeans.cu", tmp_path / "run")
    captured = bench.workloads[0]
    baseline = bench.compiled_baseline(captured)
    workload = refine_roles(cpu_executor, baseline, captured, tmp_path / "roles", TIMEOUT_S)
    roles = {workload.name_of(a): a.role for a in workload.allocations}
    assert roles == {"x": "in", "member": "inout", "changed": "out"}


FLUX = """
#include <cstdio>
#include <vector>
__device__ void add(float *to, int i, float flux) { to[i] += flux; }
__global__ void residual(float *u, float *w, float *moving, float *sum, float *still, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    add(sum, i, w[i] * u[i]);
    moving[i] += u[i] + still[i];
}
int main() {
    const int n = 64;
    std::vector<float> h(n, 0.5f), zero(n, 0.0f);
    float *on[5];
    for (int i = 0; i < 5; ++i) {
        cudaMalloc(&on[i], n * sizeof(float));
        cudaMemcpy(on[i], (i % 4 ? zero : h).data(), n * sizeof(float), cudaMemcpyHostToDevice);
    }
    residual<<<2, 32>>>(on[0], on[1], on[2], on[3], on[4], n);
    cudaMemcpy(h.data(), on[2], n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\\n", h[3]);
}
"""


def test_what_the_text_writes_is_no_input_where_it_stayed_as_it_was(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """`w` is zero as captured: nothing is added to `sum`, whatever stands there."""
    (tmp_path / "flux.cu").write_text(FLUX)
    bench = opened_program(cpu_executor, tmp_path / "flux.cu", tmp_path / "run")
    workload = oracle(bench).workload
    roles = {workload.name_of(a): a.role for a in workload.allocations}
    assert roles == {"u": "in", "w": "in", "moving": "inout", "sum": "inout", "still": "in"}
    same = FLUX[FLUX.index("__device__") : FLUX.index("int main")].replace("add", "plus")
    renamed = same.replace("void residual", "void residual_fast")
    plan = (
        "// @launch residual_fast grid=(gridDim.x) block=(blockDim.x) "
        "args=(u, w, moving, sum, still, n)\n"
    )
    assert all(gate.passed for gate in verified(bench, plan + renamed))
