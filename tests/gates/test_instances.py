"""One rewrite for several instances of a template kernel: judged, timed and spliced for each."""

from __future__ import annotations

import pytest

from cudaops.domain.rewrite import Rewrite
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.gates.precheck import precheck
from cudaops.sandbox.workbench import Workbench
from tests.gates.gate_bench import bench_of, rewrite_of

PROGRAM = """
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

template <typename T, int BLOCK>
__global__ void scale(const T* x, T* y, T factor, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;
}

template <typename T, int BLOCK>
double scaled(int n) {
    T *x, *y, *host = new T[n];
    for (int i = 0; i < n; ++i) host[i] = T(i % 97) / T(8);
    cudaMalloc(&x, n * sizeof(T));
    cudaMalloc(&y, n * sizeof(T));
    cudaMemcpy(x, host, n * sizeof(T), cudaMemcpyHostToDevice);
    scale<T, BLOCK><<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(x, y, T(3), n);
    cudaMemcpy(host, y, n * sizeof(T), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += double(host[i]);
    delete[] host;
    return sum;
}

int main(int argc, char** argv) {
    printf("%.3f\\n", scaled<float, 128>(60000));
    printf("%.3f\\n", scaled<double, 64>(30000));
    if (argc > 1) printf("%.3f\\n", scaled<int, 32>(100));
}
"""
KERNEL = """
template <typename U, int N>
__global__ void fast(const U* x, U* y, U factor, int n) {
    int i = blockIdx.x * N + threadIdx.x;
    if (i < n) y[i] = x[i] * FACTOR;
}
"""
DIRECTIVES = """// @requires sizeof(T) <= 8 && BLOCK % 32 == 0
// @launch fast<T, 2 * BLOCK> grid=(ceil_div(n, 2*BLOCK)) block=(2*BLOCK) args=(x, y, factor, n)
"""


@pytest.fixture(scope="module")
def bench(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """With both instances captured: on a busy machine one may seem to take nearly all the time."""
    folder = tmp_path_factory.mktemp("instances")
    (folder / "scale.cu").write_text(PROGRAM)
    for number in range(8):
        bench = bench_of(cpu_executor, folder / "scale.cu", folder / f"bench{number}")
        if len({w.callee for w in bench.captured.workloads}) == 2:
            return bench
    pytest.fail("one of the instances took nearly all the time, eight times")


def written(directives: str = DIRECTIVES, factor: str = "factor") -> Rewrite:
    return rewrite_of(directives + KERNEL.replace("FACTOR", factor))


def test_a_rewrite_that_names_the_parameters_serves_every_instance(bench: Workbench) -> None:
    rewrite = written()
    assert {w.callee for w in bench.workloads_of(rewrite)} == {
        "scale<float, 128>", "scale<double, 64>",
    }  # fmt: skip
    evaluation = evaluate(bench, rewrite, 0.001)
    judgement = evaluation.judged(bench.policy)
    assert judgement.outcome == "provisional", judgement.reason
    assert len(evaluation.comparisons) == 2
    plans = {w.callee: bench.plan(w, rewrite) for w in bench.workloads_of(rewrite)}
    assert plans["scale<float, 128>"].launches[0].block.x == 256
    assert plans["scale<double, 64>"].launches[0].block.x == 128
    text = bench.spliced(rewrite).main.text
    for kind, block in (("float", 128), ("double", 64)):
        served = f"(cudaops_scale::cudaops_same<T, {kind}>::value_ && BLOCK == ({block}))"
        assert served in text
    assert "same<T, int>" not in text


def test_one_instance_that_is_wrong_is_refused(bench: Workbench) -> None:
    wrong = written(factor="(sizeof(U) == 8 ? U(3.5) : factor)")
    failed = next(g for g in evaluate(bench, wrong, 0.001).gates if not g.passed)
    assert failed.name == "correctness_captured"
    told = precheck(bench, wrong)
    assert not told.ok


def test_what_one_instance_does_beside_computing_is_seen(bench: Workbench) -> None:
    sneaky = written(factor="(sizeof(U) == 8 && clock64() == 42 ? U(0) : factor)")
    failed = next(g for g in evaluate(bench, sneaky, 0.001).gates if not g.passed)
    assert failed.name in ("preprocessed", "object")


def test_one_that_names_some_is_for_those_that_differ_in_these(bench: Workbench) -> None:
    one = written(
        "// @launch fast<T, 64> grid=(ceil_div(n, 64)) block=(64) args=(x, y, factor, n)\n"
    )
    assert {w.callee for w in bench.workloads_of(one)} == {bench.callee}
    kind = bench.callee.removeprefix("scale<").partition(",")[0]
    none = written(
        f"// @launch fast<{kind}, 64> grid=(ceil_div(n, 64)) block=(64) args=(x, y, factor, n)\n"
    )
    assert {w.callee for w in bench.workloads_of(none)} == {bench.callee}
    evaluation = evaluate(bench, none, 0.001)
    assert len(evaluation.comparisons) == 1
    assert evaluation.judged(bench.policy).outcome == "provisional"
