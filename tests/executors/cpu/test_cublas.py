"""The stand-in for cuBLAS on the `cpu` executor: programs that call it, against numpy.

Elements are small integers, so that every sum is exact in single precision whatever its order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.domain.execution import ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import captured_case, compiled, program

Array = np.ndarray[Any, np.dtype[Any]]

HEAD = """
#include <cublas_v2.h>
#include <cmath>
#include <vector>
__global__ void negate(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = -x[i];
}
template <class T> T* filled(int count, int salt) {
  std::vector<T> h(count);
  for (int i = 0; i < count; ++i) h[i] = T((float)((i * 37 + salt) % 23 - 11));
  T* d;
  cudaMalloc(&d, count * sizeof(T));
  cublasSetVector(count, sizeof(T), h.data(), 1, d, 1);
  return d;
}
template <class T> T* of_nan(int count) {
  T* d;
  cudaMalloc(&d, count * sizeof(T));
  cudaMemset(d, 0xff, count * sizeof(T));
  return d;
}
template <class T> void show(const T* d, int count) {
  std::vector<T> h(count);
  cublasGetVector(count, sizeof(T), d, 1, h.data(), 1);
  for (T v : h) printf("%.17g ", (double)(float)v);
  printf("\\n");
}
const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T};
"""
MAIN = """
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  float *first = filled<float>(32, 0);
  negate<<<1, 32>>>(first, 32);
  BODY
  return cublasDestroy(handle) != CUBLAS_STATUS_SUCCESS;
"""


def lines_of(executor: CpuExecutor, folder: Path, body: str) -> Iterator[Array]:
    """What the program prints, a line at a time."""
    parsed = program(folder, HEAD, MAIN.replace("BODY", body))
    ran = executor.run_program(parsed, (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    return (np.array([float(word) for word in line.split()]) for line in ran.stdout.splitlines())


def filled(count: int, salt: int) -> Array:
    return (np.arange(count) * 37 + salt) % 23 - 11.0


def matrix(rows: int, columns: int, salt: int, ld: int) -> Array:
    """As `filled` has it, column by column."""
    return stored(filled(ld * columns, salt), rows, columns, ld)


def stored(values: Array, rows: int, columns: int, ld: int) -> Array:
    return values.reshape(columns, ld).T[:rows]


PRODUCTS = """
  const int m = 70, n = 5, k = 133, ld = 139;
  float one = 1, zero = 0, *a = filled<float>(ld * ld, 1), *b = filled<float>(ld * ld, 2);
  double scales[] = {2, -3}, *in_device;
  cudaMalloc(&in_device, sizeof scales);
  cudaMemcpy(in_device, scales, sizeof scales, cudaMemcpyHostToDevice);
  double *da = filled<double>(ld * ld, 1), *db = filled<double>(ld * ld, 2);
  for (auto opa : ops)
    for (auto opb : ops) {
      float* c = of_nan<float>(ld * n);
      cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
      cublasSgemm(handle, opa, opb, m, n, k, &one, a, ld, b, ld, &zero, c, ld);
      show(c, ld * n);
      double* dc = filled<double>(ld * n, 3);
      cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
      cublasDgemm_v2(handle, opa, opb, m, n, k, in_device, da, ld, db, ld, in_device + 1, dc, ld);
      show(dc, ld * n);
    }
  float* wide = of_nan<float>(3 * 301);
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 3, 301, 2, &one, a, 3, b, 2, &zero, wide, 3);
  show(wide, 3 * 301);
"""


def test_products_with_every_pair_of_transpositions(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    lines = lines_of(cpu_executor, tmp_path, PRODUCTS)
    m, n, k, ld = 70, 5, 133, 139
    for opa, opb in product("NT", repeat=2):
        a = matrix(m, k, 1, ld) if opa == "N" else matrix(k, m, 1, ld).T
        b = matrix(k, n, 2, ld) if opb == "N" else matrix(n, k, 2, ld).T
        c = next(lines)
        np.testing.assert_array_equal(stored(c, m, n, ld), a @ b)
        assert np.isnan(stored(c, ld, n, ld)[m:]).all()
        expected = filled(ld * n, 3)
        stored(expected, m, n, ld)[:] = 2 * (a @ b) - 3 * stored(expected, m, n, ld)
        np.testing.assert_array_equal(next(lines), expected)
    a, b = matrix(3, 2, 1, 3), matrix(2, 301, 2, 2)
    np.testing.assert_array_equal(stored(next(lines), 3, 301, 3), a @ b)


VECTORS = """
  const int n = 50;
  float two = 2, minus = -1, sum = 0, c = 3, s = -2, *x = filled<float>(3 * n, 1);
  int index = 0;
  cublasSdot(handle, n, x, 3, x, -2, &sum); printf("%g ", sum);
  cublasSasum(handle, n, x, 2, &sum); printf("%g ", sum);
  cublasSnrm2(handle, n, x, 2, &sum); printf("%.9g ", sum);
  cublasIsamax(handle, n, x, 2, &index); printf("%d ", index);
  cublasIsamin(handle, n, x, 2, &index); printf("%d ", index);
  double huge[] = {3e300, 0, -4e300}, far = 0;
  cublasDnrm2(handle, 3, huge, 1, &far); printf("%.17g\\n", far);
  float* y = filled<float>(2 * n, 2);
  cublasSaxpy(handle, n, &two, x, 3, y, -2); show(y, 2 * n);
  cublasScopy(handle, n, x, -3, y, 1); show(y, n);
  cublasSswap(handle, n, x, 1, y, 2); show(y, 2 * n);
  cublasSscal(handle, n, &minus, y, 2); show(y, 2 * n);
  cublasSrot(handle, n, x, 1, y, 2, &c, &s); show(x, n); show(y, 2 * n);
  double one = 1, half = 0.5, *a = filled<double>(9 * 7, 3), *p = filled<double>(40, 4);
  for (auto op : ops)
    for (int by : {2, -3}) {
      double *q = filled<double>(40, 5);
      cublasDgemv(handle, op, 8, 7, &half, a, 9, p, by, &one, q, -by); show(q, 40);
    }
  cublasDger(handle, 8, 7, &half, p, -2, p, 3, a, 9); show(a, 9 * 7);
"""


def strided(values: Array, count: int, by: int) -> Array:
    """The elements of a vector with an increment."""
    found = values[: (count - 1) * abs(by) + 1 : abs(by)]
    return found if by > 0 else found[::-1]


def test_vectors(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    lines = lines_of(cpu_executor, tmp_path, VECTORS)
    n = 50
    x, y = filled(3 * n, 1), filled(2 * n, 2)
    every = x[: 2 * n : 2]
    numbers = next(lines)
    assert numbers[0] == strided(x, n, 3) @ strided(x, n, -2)
    assert numbers[1] == np.abs(every).sum()
    np.testing.assert_allclose(numbers[2], np.linalg.norm(every), rtol=1e-7)
    assert list(numbers[3:5]) == [np.abs(every).argmax() + 1, np.abs(every).argmin() + 1]
    np.testing.assert_allclose(numbers[5], 5e300)
    strided(y, n, -2)[:] += 2 * strided(x, n, 3)
    np.testing.assert_array_equal(next(lines), y)
    y[:n] = strided(x, n, -3)
    np.testing.assert_array_equal(next(lines), y[:n])
    x[:n], y[::2] = y[::2].copy(), x[:n].copy()
    np.testing.assert_array_equal(next(lines), y)
    y[::2] *= -1
    np.testing.assert_array_equal(next(lines), y)
    x[:n], y[::2] = 3 * x[:n] - 2 * y[::2], 3 * y[::2] + 2 * x[:n]
    np.testing.assert_array_equal(next(lines), x[:n])
    np.testing.assert_array_equal(next(lines), y)

    a, p = matrix(8, 7, 3, 9), filled(40, 4)
    for op, by in product((a, a.T), (2, -3)):
        q = filled(40, 5)
        strided(q, op.shape[0], -by)[:] += 0.5 * op @ strided(p, op.shape[1], by)
        np.testing.assert_array_equal(next(lines), q)
    expected = filled(9 * 7, 3)
    stored(expected, 8, 7, 9)[:] += 0.5 * np.outer(strided(p, 8, -2), strided(p, 7, 3))
    np.testing.assert_array_equal(next(lines), expected)


TRIANGLES = """
  const int m = 6, n = 4, ld = 7;
  double two = 2, minus = -1, *a = filled<double>(ld * ld, 1);
  for (int i = 0; i < ld; ++i) a[i * (ld + 1)] = 16 + i;  // so that it can be solved
  for (auto side : {CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT})
    for (auto uplo : {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER}) {
      for (auto op : ops)
        for (auto diag : {CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT}) {
          double* b = filled<double>(ld * n, 2);
          cublasDtrsm(handle, side, uplo, op, diag, m, n, &two, a, ld, b, ld);
          for (int i = 0; i < ld * n; ++i) printf("%.17g ", b[i]);
          printf("\\n");
        }
      double *b = filled<double>(ld * n, 2), *c = filled<double>(ld * n, 3);
      cublasDsymm(handle, side, uplo, m, n, &two, a, ld, b, ld, &minus, c, ld); show(c, ld * n);
    }
  for (auto uplo : {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER})
    for (auto op : ops) {
      double* x = filled<double>(2 * m, 2);
      cublasDtrsv(handle, uplo, op, CUBLAS_DIAG_NON_UNIT, m, a, ld, x, -2);
      for (int i = 0; i < 2 * m; ++i) printf("%.17g ", x[i]);
      printf("\\n");
      double* c = filled<double>(ld * n, 3);
      cublasDsyrk(handle, uplo, op, n, 6, &two, a, ld, &minus, c, ld); show(c, ld * n);
      double* y = filled<double>(m, 3);
      cublasDsymv(handle, uplo, m, &two, a, ld, c, 1, &minus, y, 1); show(y, m);
    }
"""


def test_triangles_and_symmetric_matrices(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    lines = lines_of(cpu_executor, tmp_path, TRIANGLES)
    m, n, ld = 6, 4, 7
    whole = matrix(ld, ld, 1, ld)
    whole[np.diag_indices(ld)] = 16 + np.arange(ld)
    part = {"lower": np.tril, "upper": np.triu}

    def mirrored(size: int, uplo: str) -> Array:
        kept = part[uplo](whole[:size, :size])
        return kept + kept.T - np.diag(np.diag(kept))

    b, c = matrix(m, n, 2, ld), matrix(m, n, 3, ld)
    for side, uplo in product(("left", "right"), part):
        size = m if side == "left" else n
        for op, unit in product("NT", (False, True)):
            a = part[uplo](whole[:size, :size])
            a = a - np.diag(np.diag(a)) + np.eye(size) if unit else a
            a = a.T if op == "T" else a
            expected = np.linalg.solve(a, b) if side == "left" else np.linalg.solve(a.T, b.T).T
            got = next(lines)
            np.testing.assert_allclose(stored(got, m, n, ld), 2 * expected, rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(got[m::ld], filled(ld * n, 2)[m::ld])
        symmetric = mirrored(size, uplo)
        expected = symmetric @ b if side == "left" else b @ symmetric
        np.testing.assert_array_equal(stored(next(lines), m, n, ld), 2 * expected - c)

    for uplo, op in product(part, "NT"):
        a = part[uplo](whole[:m, :m])
        x = filled(2 * m, 2)
        strided(x, m, -2)[:] = np.linalg.solve(a.T if op == "T" else a, strided(x, m, -2))
        np.testing.assert_allclose(next(lines), x, rtol=1e-9)
        a = whole[:n, :6] if op == "N" else whole[:6, :n].T
        c = filled(ld * n, 3)
        square = stored(c, n, n, ld)
        kept = part[uplo](np.ones((n, n))) == 1
        square[kept] = (2 * a @ a.T - square)[kept]
        np.testing.assert_array_equal(next(lines), c)
        y = 2 * mirrored(m, uplo) @ c[:m] - filled(m, 3)
        np.testing.assert_array_equal(next(lines), y)


BATCHES = """
  const int m = 3, n = 4, k = 5, count = 3;
  float one = 1, zero = 0, two = 2, *a = filled<float>(64, 1), *b = filled<float>(64, 2);
  float* c = of_nan<float>(count * 13);
  cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &one, a, m, 15, b, n, 0,
                            &zero, c, m, 13, count);
  show(c, count * 13);
  float *as[count], *bs[count], *cs[count];
  for (int i = 0; i < count; ++i) as[i] = a + 15 * i, bs[i] = b, cs[i] = c + 13 * (count - 1 - i);
  cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &two, as, m, bs, n, &one, cs, m,
                     count);
  show(c, count * 13);
  __half h1(1.0f), h0(0.0f), *ha = filled<__half>(64, 1), *hb = filled<__half>(64, 2);
  __half* hc = of_nan<__half>(m * n);
  cublasHgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &h1, ha, m, hb, n, &h0, hc, m);
  show(hc, m * n);
  float* fc = of_nan<float>(m * n);
  cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &one, ha, CUDA_R_16F, m, hb, CUDA_R_16F,
               n, &zero, fc, CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  show(fc, m * n);
  cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &two, a, CUDA_R_32F, m, b, CUDA_R_32F,
               n, &zero, fc, CUDA_R_32F, m, CUDA_R_32F, CUBLAS_GEMM_DFALT);
  show(fc, m * n);
  float* turned = of_nan<float>(m * n);
  cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, &two, fc, m, &zero, nullptr, n, turned, n);
  show(turned, m * n);
  cublasSgeam(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, &one, fc, m, &two, turned, n, fc, m);
  show(fc, m * n);
"""


def test_batches_types_and_transposed_copies(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    lines = lines_of(cpu_executor, tmp_path, BATCHES)
    m, n, k = 3, 4, 5
    b = matrix(n, k, 2, n).T
    products = [
        stored(filled(64, 1)[15 * i : 15 * i + m * k], m, k, m) @ b for i in range(3)
    ]  # fmt: skip
    batched = next(lines).reshape(3, 13)
    assert np.isnan(batched[:, 12]).all()
    again = next(lines).reshape(3, 13)
    for i, each in enumerate(products):
        np.testing.assert_array_equal(stored(batched[i, :12], m, n, m), each)
        np.testing.assert_array_equal(stored(again[i, :12], m, n, m), each + 2 * products[2 - i])
    for scale in (1, 1, 2):
        np.testing.assert_array_equal(stored(next(lines), m, n, m), scale * products[0])
    np.testing.assert_array_equal(stored(next(lines), n, m, n), 4 * products[0].T)
    np.testing.assert_array_equal(stored(next(lines), m, n, m), 10 * products[0])


STATUSES = """
  float one = 1, *a = filled<float>(64, 1);
  int version = 0;
  cudaStream_t stream, found;
  cudaStreamCreate(&stream);
  cublasSetStream(handle, stream);
  cublasGetStream(handle, &found);
  cublasGetVersion(handle, &version);
  auto gemm = [&](cublasHandle_t h, int m, int lda) {
    return cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 2, &one, a, lda, a, 8, &one, a, 8);
  };
  printf("%d %d %d ", found == stream, version == CUBLAS_VERSION, cublasCreate(nullptr));
  printf("%d %d ", gemm(handle, 0, 8), gemm(nullptr, 2, 8));
  printf("%d %d ", gemm(handle, -1, 8), gemm(handle, 3, 2));
  cudaGraph_t graph;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  printf("%d ", gemm(handle, 2, 8));
  cudaStreamEndCapture(stream, &graph);
  printf("%d %d ", cublasDestroy(nullptr), cublasSscal(nullptr, 4, &one, a, 1));
  printf("%d ", cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_8I, 2, a,
                             CUDA_R_8I, 2, &one, a, CUDA_R_32I, 2, CUBLAS_COMPUTE_32I,
                             CUBLAS_GEMM_DEFAULT));
  float h[12];
  printf("%d ", cublasGetMatrix(2, 3, sizeof(float), a, 8, h, 4));
  printf("%d\\n", cublasSetMatrix(2, 3, sizeof(float), h, 1, a, 8));
  for (int i : {0, 1, 4, 5, 8, 9}) printf("%g ", h[i]);
  const char* name = cublasGetStatusName(CUBLAS_STATUS_MAPPING_ERROR);
  printf("%d\\n", strcmp(name, "CUBLAS_STATUS_MAPPING_ERROR") == 0);
"""


def test_statuses(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    success, no_handle, invalid, unsupported = 0, 1, 7, 15
    codes, numbers = lines_of(cpu_executor, tmp_path, STATUSES)
    assert list(codes) == [
        1, 1, invalid, success, no_handle, invalid, invalid, unsupported, no_handle, no_handle,
        unsupported, success, invalid,
    ]  # fmt: skip
    assert list(numbers) == [*matrix(2, 3, 1, 8).T.ravel(), 1]


REPEATED = """
  float one = 1, *x = filled<float>(8, 1), *step = filled<float>(8, 2);
  for (int i = 0; i < 40; ++i) {
    if (i % 8 == 7) cublasSaxpy(handle, 8, &one, step, 1, x, 1);
    slow<<<1, 32>>>(x, first);
  }
  show(first, 8);
"""
SLOW = """
__global__ void slow(const float* x, float* y) {
  float sum = 0;
  for (int i = 0; i < 20000; ++i) sum += x[i % 8];
  if (threadIdx.x < 8) y[threadIdx.x] = sum < 1e30f ? x[threadIdx.x] : 0;
}
"""


def test_a_repeated_kernel_sees_what_was_written(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    parsed = program(tmp_path, HEAD + SLOW, MAIN.replace("BODY", REPEATED))
    ran = cpu_executor.run_program(parsed, (), 60.0)
    assert isinstance(ran, ProgramRan)
    expected = filled(8, 1) + 5 * filled(8, 2)
    assert [float(word) for word in ran.stdout.split()] == list(expected)


ALONE = """
#include <cublas_v2.h>
__global__ void fill(float* x, cublasHandle_t) { x[threadIdx.x] = 1; }
"""
ALONE_MAIN = """
  float* x;
  cublasHandle_t handle;
  cublasCreate_v2(&handle);
  cudaMalloc(&x, 128);
  fill<<<1, 32>>>(x, nullptr);
"""


@pytest.mark.parametrize("widened", [False, True])
def test_a_kernel_beside_it_is_compiled_alone(
    cpu_executor: CpuExecutor, tmp_path: Path, widened: bool
) -> None:
    case = captured_case(cpu_executor, program(tmp_path, ALONE, ALONE_MAIN), tmp_path)
    assert compiled(cpu_executor, case, widened=widened).compiler
