"""The stand-in for cuFFT on the `cpu` executor: programs that call it, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cudaops.domain.execution import ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import program

Array = np.ndarray[Any, np.dtype[Any]]

HEAD = """
#include <cufft.h>
#include <cstdio>
__global__ void filled(double* v, int count) {
  int i = threadIdx.x;
  if (i < count) v[i] = i * 37 % 23 - 11;
}
template <class T> T* numbers(int count) {
  T* v;
  double* h;
  cudaMallocManaged(&v, count * sizeof(T));
  cudaMallocManaged(&h, count * sizeof(T));
  int words = count * sizeof(T) / sizeof(double);
  filled<<<1, words>>>(h, words);
  cudaDeviceSynchronize();
  for (int i = 0; i < words; ++i) ((double*)v)[i] = h[i];
  return v;
}
void show(const void* v, int words) {
  for (int i = 0; i < words; ++i) printf("%.17g ", ((const double*)v)[i]);
  printf("\\n");
}
"""


def lines_of(executor: CpuExecutor, folder: Path, main: str) -> list[Array]:
    """What the program prints, a line at a time."""
    ran = executor.run_program(program(folder, HEAD, main), (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    return [np.array([float(word) for word in line.split()]) for line in ran.stdout.splitlines()]


def filled(count: int) -> Array:
    return np.arange(count) * 37 % 23 - 11.0


def complexes(words: Array) -> Array:
    return words[0::2] + 1j * words[1::2]


COMPLEX = """
  auto *in = numbers<cufftDoubleComplex>(180), *out = numbers<cufftDoubleComplex>(180);
  cufftHandle cube, columns;
  if (cufftPlan3d(&cube, 5, 4, 9, CUFFT_Z2Z)) return 5;
  if (cufftExecZ2Z(cube, in, out, CUFFT_FORWARD)) return 1;
  show(out, 360);
  if (cufftExecZ2Z(cube, out, out, CUFFT_INVERSE)) return 2;
  show(out, 360);
  int n[] = {18};
  if (cufftPlanMany(&columns, 1, n, n, 10, 1, n, 1, 18, CUFFT_Z2Z, 10)) return 3;
  if (cufftExecZ2Z(columns, in, out, CUFFT_INVERSE)) return 4;
  show(out, 360);
"""


def test_complex_transforms_of_three_dimensions_and_of_columns(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    cube, again, columns = lines_of(cpu_executor, tmp_path, COMPLEX)
    given = complexes(filled(360))
    assert np.allclose(complexes(cube), np.fft.fftn(given.reshape(5, 4, 9)).ravel())
    assert np.allclose(complexes(again), given * 180)
    by_column = np.fft.ifft(given.reshape(18, 10).T, axis=1) * 18
    assert np.allclose(complexes(columns), by_column.ravel())


REAL = """
  double *rows = numbers<double>(6 * 14);
  cufftDoubleComplex* half = numbers<cufftDoubleComplex>(6 * 8);
  cufftHandle there, back;
  if (cufftPlan2d(&there, 6, 14, CUFFT_D2Z) || cufftPlan2d(&back, 6, 14, CUFFT_Z2D)) return 1;
  if (cufftExecD2Z(there, rows, half)) return 2;
  show(half, 6 * 16);
  if (cufftExecZ2D(back, half, rows)) return 3;
  show(rows, 6 * 14);
  double* padded = numbers<double>(6 * 16);
  if (cufftExecD2Z(there, padded, (cufftDoubleComplex*)padded)) return 4;
  show(padded, 6 * 16);
"""


def test_real_transforms_are_padded_where_they_are_in_place(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    half, again, padded = lines_of(cpu_executor, tmp_path, REAL)
    rows = filled(6 * 14).reshape(6, 14)
    assert np.allclose(complexes(half), np.fft.rfft2(rows).ravel())
    assert np.allclose(again, rows.ravel() * 84)
    inside = filled(6 * 16).reshape(6, 16)[:, :14]
    assert np.allclose(complexes(padded), np.fft.rfft2(inside).ravel())


REFUSED = """
  cufftDoubleComplex* v = numbers<cufftDoubleComplex>(8);
  cufftHandle plan;
  int codes[] = {
      cufftPlan1d(&plan, 0, CUFFT_Z2Z, 1), cufftPlan1d(&plan, 8, (cufftType)1, 1),
      cufftPlan1d(&plan, 8, CUFFT_Z2Z, 1), cufftExecZ2Z(plan, v, v, 0),
      cufftExecD2Z(plan, (double*)v, v), cufftDestroy(plan),
      cufftExecZ2Z(plan, v, v, CUFFT_FORWARD)};
  double said[7];
  for (int i = 0; i < 7; ++i) said[i] = codes[i];
  show(said, 7);
"""


def test_what_cannot_be_done_is_said_by_the_code(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    (said,) = lines_of(cpu_executor, tmp_path, REFUSED)
    size, kind, made, value, other, destroyed, plan = said
    assert (size, kind, made, value, other, destroyed, plan) == (8, 3, 0, 4, 3, 0, 1)
