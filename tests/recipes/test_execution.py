"""Rewrites of recipes run on the cpu executor under its full checker and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Misbehaved, Ran
from cudaops.domain.program import Program
from cudaops.domain.workload import (
    PointerArgument,
)
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.recipes.matmul import NAMES, MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe
from tests.lanes import mostly_deep
from tests.recipes.bench import Arguments, Array, Bench, workload_of

MakeProgram = Callable[..., Program]


@pytest.fixture(scope="module")
def executor(kernels: Path) -> CpuExecutor:
    return CpuExecutor("A10", kernels, workers=2)


@pytest.fixture
def bench_of(
    executor: CpuExecutor, tmp_path: Path, program_of: MakeProgram
) -> Callable[[str, str], Bench]:
    return lambda text, name: Bench(executor, tmp_path, program_of(text), name)


MakeBench = Callable[[str, str], Bench]

_MATMUL = """
__global__ void mm(const {t}* A, const {t}* B, {t}* C, int M, int N, int K{more}) {{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {{
        {t} acc = 0;
        for (int k = 0; k < K; ++k) acc += A[{a}] * B[{b}];
        {store}
    }}
}}"""
_A = {"N": "row * K + k", "T": "k * M + row"}
_B = {"N": "k * N + col", "T": "col * K + k"}
_CASES = [
    *(pytest.param(layout, (37, 53, 29), id=layout) for layout in ("NN", "NT", "TN", "TT")),
    pytest.param("NN", (64, 128, 32), id="NN-whole"),
    *(
        pytest.param(layout, size, id=f"{layout}-{size}", marks=pytest.mark.deep)
        for layout in ("NN", "NT", "TN", "TT")
        for size in ((64, 64, 32), (128, 68, 20), (1, 5, 100), (65, 4, 3))
    ),
]


_GROUPED = (
    "64 64 16 8 4 2", "64 32 32 8 4 4", "64 64 16 4 4 1", "32 64 32 4 4 2", "64 32 32 4 4 2",
)  # fmt: skip
"""BM, BN, BK, TM, TN and GROUPS."""


def _matmul(
    layout: str, kind: str = "float", store: str = "C[row * N + col] = acc;", more: str = ""
) -> str:
    return _MATMUL.format(t=kind, a=_A[layout[0]], b=_B[layout[1]], store=store, more=more)


def _operands(M: int, N: int, K: int, layout: str, dtype: str) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(M * 1000 + N)
    scale = 9 if dtype == "int32" else 1
    a = (rng.uniform(-1, 1, (M, K)) * scale).astype(dtype)
    b = (rng.uniform(-1, 1, (K, N)) * scale).astype(dtype)
    c = (rng.uniform(-1, 1, (M, N)) * scale).astype(dtype)
    stored_a = a if layout[0] == "N" else np.ascontiguousarray(a.T)
    stored_b = b if layout[1] == "N" else np.ascontiguousarray(b.T)
    return stored_a, stored_b, c


def _product(a: Array, b: Array, layout: str) -> Array:
    wide = [x.astype(np.int64 if x.dtype == np.int32 else np.float64) for x in (a, b)]
    left = wide[0] if layout[0] == "N" else wide[0].T
    right = wide[1] if layout[1] == "N" else wide[1].T
    product: Array = left @ right
    return product


def _grid(M: int, N: int) -> tuple[int, int]:
    return (-(-N // 16), -(-M // 16))


@pytest.mark.parametrize(("layout", "size"), _CASES)
def test_matmul_of_every_layout_and_edge(
    bench_of: MakeBench, layout: str, size: tuple[int, int, int]
) -> None:
    M, N, K = size
    a, b, c = _operands(M, N, K, layout, "float32")
    bench = bench_of(_matmul(layout), "mm")
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": M, "N": N, "K": K}
    found = bench.outputs(MatmulRecipe(), _grid(M, N), (16, 16), arguments)
    np.testing.assert_allclose(found["C"], _product(a, b, layout), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found["A"], a)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("double", "float64"), ("int", "int32")], ids=["double", "int"]
)
def test_matmul_of_other_types(bench_of: MakeBench, kind: str, dtype: str) -> None:
    M, N, K = 70, 66, 33
    a, b, c = _operands(M, N, K, "NT", dtype)
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": M, "N": N, "K": K}
    bench = bench_of(_matmul("NT", kind), "mm")
    found = bench.outputs(MatmulRecipe(), _grid(M, N), (16, 16), arguments)
    np.testing.assert_allclose(found["C"], _product(a, b, "NT"), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_matmul_with_alpha_and_beta(bench_of: MakeBench, beta: float) -> None:
    store = "C[row*N+col] = alpha * acc + (beta == 0.0f ? 0.0f : beta * C[row*N+col]);"
    M, N, K = 37, 53, 29
    a, b, c = _operands(M, N, K, "NN", "float32")
    if beta == 0:
        c[:] = np.nan
    arguments: Arguments = {
        "A": a,
        "B": b,
        "C": c,
        "M": M,
        "N": N,
        "K": K,
        "alpha": 1.5,
        "beta": beta,
    }
    bench = bench_of(_matmul("NN", store=store, more=", float alpha, float beta"), "mm")
    found = bench.outputs(MatmulRecipe(), _grid(M, N), (16, 16), arguments)
    expected = 1.5 * _product(a, b, "NN") + (beta * c if beta else 0)
    np.testing.assert_allclose(found["C"], expected, rtol=0, atol=1e-5)


def test_matmul_with_bias_and_activation(bench_of: MakeBench) -> None:
    store = "C[row*N+col] = fmaxf(acc + bias[col], 0.0f);"
    M, N, K = 40, 64, 16
    a, b, c = _operands(M, N, K, "NN", "float32")
    bias = np.linspace(-1, 1, N, dtype=np.float32)
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": M, "N": N, "K": K, "bias": bias}
    bench = bench_of(_matmul("NN", store=store, more=", const float* bias"), "mm")
    found = bench.outputs(MatmulRecipe(), _grid(M, N), (16, 16), arguments)
    expected = np.maximum(_product(a, b, "NN") + bias, 0)
    np.testing.assert_allclose(found["C"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", mostly_deep(range(8), 3))
def test_every_seed_computes_the_same(bench_of: MakeBench, seed: int) -> None:
    M, N, K = 130, 100, 36
    a, b, c = _operands(M, N, K, "NN", "float32")
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": M, "N": N, "K": K}
    bench = bench_of(_matmul("NN"), "mm")
    recipe = MatmulRecipe()
    (rewrite,) = recipe.propose(bench.program, bench.kernel, (), None)
    tuned = recipe.seeds(rewrite)[seed]
    found = bench.outputs(recipe, _grid(M, N), (16, 16), arguments, tuned)
    np.testing.assert_allclose(found["C"], _product(a, b, "NN"), rtol=0, atol=1e-5)


@pytest.mark.parametrize("values", mostly_deep(_GROUPED, 2))
@pytest.mark.parametrize("kind", ["float", "double"])
def test_groups_add_up_what_each_has(bench_of: MakeBench, values: str, kind: str) -> None:
    """Also sums wider than the elements, which need more of the shared memory."""
    M, N, K = 140, 72, 68
    a, b, c = _operands(M, N, K, "NT", "float32")
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": M, "N": N, "K": K}
    text = _matmul("NT").replace("float acc", f"{kind} acc")
    tuned = dict(zip(NAMES, map(int, values.split()), strict=True))
    found = bench_of(text, "mm").outputs(MatmulRecipe(), _grid(M, N), (16, 16), arguments, tuned)
    np.testing.assert_allclose(found["C"], _product(a, b, "NT"), rtol=0, atol=1e-5)


def test_batched_and_unguarded(bench_of: MakeBench) -> None:
    text = """
__global__ void mm(const float* A, const float* B, float* C, int N) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    const float* a = A + blockIdx.z * N * N;
    float s = 0;
    for (int k = 0; k < N; ++k) s += a[row * N + k] * B[k * N + col];
    C[blockIdx.z * N * N + row * N + col] = s;
}"""
    rng = np.random.default_rng(1)
    a = rng.uniform(-1, 1, (3, 24, 24)).astype(np.float32)
    b = rng.uniform(-1, 1, (24, 24)).astype(np.float32)
    arguments: Arguments = {"A": a, "B": b, "C": np.zeros_like(a), "N": 24}
    found = bench_of(text, "mm").outputs(MatmulRecipe(), (3, 3, 3), (8, 8), arguments)
    np.testing.assert_allclose(found["C"], a @ b, rtol=0, atol=1e-5)


_TRANSPOSE = """
__global__ void tr(const {t}* in, {t}* out, int w, int h) {{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[x * h + y] = in[y * w + x]{f};
}}"""


@pytest.mark.parametrize(
    ("kind", "dtype", "words"),
    [("float", "float32", 1), ("double", "float64", 1), ("short", "int16", 1),
     ("unsigned char", "uint8", 1), ("float4", "float32", 4)],
    ids=["float", "double", "short", "byte", "float4"],
)  # fmt: skip
@pytest.mark.parametrize("rows", mostly_deep((8, 4, 16, 32), 1))
def test_transpose(bench_of: MakeBench, kind: str, dtype: str, words: int, rows: int) -> None:
    h, w = 45, 71
    rng = np.random.default_rng(2)
    source = rng.integers(0, 200, (h, w, words)).astype(dtype)
    arguments: Arguments = {"in": source, "out": np.zeros((w, h, words), dtype), "w": w, "h": h}
    bench = bench_of(_TRANSPOSE.format(t=kind, f=""), "tr")
    tuned = {"CUDAOPS_ROWS": rows}
    found = bench.outputs(TransposeRecipe(), (5, 3), (16, 16), arguments, tuned)
    np.testing.assert_array_equal(found["out"], source.transpose(1, 0, 2))


def test_transpose_with_a_function_of_the_element(bench_of: MakeBench) -> None:
    h, w = 33, 31
    source = np.arange(h * w, dtype=np.float32).reshape(h, w)
    arguments: Arguments = {"in": source, "out": np.zeros((w, h), np.float32), "w": w, "h": h}
    bench = bench_of(_TRANSPOSE.format(t="float", f=" * 2.0f + 1.0f"), "tr")
    found = bench.outputs(TransposeRecipe(), (2, 3), (16, 16), arguments)
    np.testing.assert_array_equal(found["out"], source.T * 2 + 1)


def test_the_checker_would_see_a_missing_barrier(bench_of: MakeBench, tmp_path: Path) -> None:
    a, b, c = _operands(40, 40, 40, "NN", "float32")
    arguments: Arguments = {"A": a, "B": b, "C": c, "M": 40, "N": 40, "K": 40}
    bench = bench_of(_matmul("NN"), "mm")
    workload = workload_of(tmp_path / "workload", "mm", _grid(40, 40), (16, 16), arguments)
    (rewrite,) = MatmulRecipe().propose(bench.program, bench.kernel, (workload,), None)
    broken = rewrite.model_copy(update={"source": rewrite.source.replace("__syncthreads();", "")})
    outcome = bench.run(broken, workload)
    found = (outcome,) if isinstance(outcome, Misbehaved) else outcome.warnings
    assert {"shared_race", "uninitialised_read"} & {fault.what for fault in found}


_HEADER = """
template <typename Real, int EDGE>
__global__ void contract(const Real* __restrict__ lhs, const Real* __restrict__ rhs,
                         Real* __restrict__ dst, unsigned m, unsigned n, unsigned p) {
    const unsigned i = blockIdx.y * EDGE + threadIdx.x / EDGE;
    const unsigned j = blockIdx.x * EDGE + threadIdx.x % EDGE;
    if (i >= m || j >= n) return;
    Real dot = Real(0);
    for (unsigned q = 0; q < p; ++q) dot += lhs[i * p + q] * rhs[q * n + j];
    dst[i * n + j] = dot;
}
"""
_MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include "contract.cuh"
int main(int argc, char** argv) {
    unsigned m = atoi(argv[1]), n = atoi(argv[2]), p = atoi(argv[3]);
    std::vector<float> l(m * p), r(p * n);
    for (unsigned i = 0; i < m * p; ++i) l[i] = float(i % 11) - 5;
    for (unsigned i = 0; i < p * n; ++i) r[i] = float(i % 7) / 7;
    float *dl, *dr, *dd;
    cudaMalloc(&dl, l.size() * 4); cudaMalloc(&dr, r.size() * 4); cudaMalloc(&dd, m * n * 4);
    cudaMemcpy(dl, l.data(), l.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dr, r.data(), r.size() * 4, cudaMemcpyHostToDevice);
    dim3 grid((n + 15) / 16, (m + 15) / 16);
    contract<float, 16><<<grid, 256>>>(dl, dr, dd, m, n, p);
    return cudaDeviceSynchronize() != cudaSuccess;
}
"""


def test_a_captured_program_of_another_shape(executor: CpuExecutor, tmp_path: Path) -> None:
    """1-D block, template arguments, kernel in a local header, sizes from argv."""
    (tmp_path / "contract.cuh").write_text(_HEADER)
    (tmp_path / "main.cu").write_text(_MAIN)
    program = load_program(tmp_path / "main.cu")
    captured = executor.capture(program, None, ("35", "50", "21"), tmp_path / "captured", 60)
    assert isinstance(captured, Captured), captured
    (workload,) = captured.workloads
    bench = Bench(executor, tmp_path, program, "contract")
    (rewrite,) = MatmulRecipe().propose(program, bench.kernel, (workload,), None)
    outcome = bench.run(rewrite, workload)
    assert isinstance(outcome, Ran), outcome
    assert outcome.warnings == ()
    out = workload.argument("dst")
    assert isinstance(out, PointerArgument)
    allocation = workload.allocations[out.allocation]
    expected = np.fromfile(Path(workload.folder) / allocation.after, dtype=np.float32)
    found = np.fromfile(outcome.outputs[out.allocation], dtype=np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
