"""Products as people spell them, from captured programs: the rewrite leaves what they leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Compiled, Ran, Unit
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.program.plans import resolve
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.sandbox.inputs import before_path
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.draft import Draft, Subject
from tests.recipes.test_matmul_recognition import FLAT, SAMPLE, SUBMATRICES

HOST = """
int main() {
    const int n = SIZE;
    T *a, *b, *c;
    cudaMallocManaged(&a, n * n * sizeof(T));
    cudaMallocManaged(&b, n * n * sizeof(T));
    cudaMallocManaged(&c, n * n * sizeof(T));
    for (int i = 0; i < n * n; ++i) { a[i] = T(i % 13) - 6; b[i] = T(i % 7) - 3; c[i] = T(i % 5); }
    dim3 block(16, 8), grid((n + 15) / 16, (n + 7) / 8), square(16, 16), tiles(n / 16, n / 16);
    LAUNCH;
    cudaDeviceSynchronize();
}
"""
PLACE = """
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
"""
STRUCTURES = """
typedef struct { int width; int height; T* elements; } Matrix;
__device__ T element(const Matrix m, int row, int col) { return m.elements[row * m.width + col]; }
__global__ void mm(Matrix A, Matrix B, Matrix C) {
    T value = 0;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= C.height || col >= C.width) return;
    for (int e = 0; e < A.width; ++e) value += element(A, row, e) * B.elements[e * B.width + col];
    C.elements[row * C.width + col] = value;
}
"""
POINTERS = f"""
__global__ void mm(const T* a, const T* b, T* c, int n) {{{PLACE}
    const T *left = a + i * n, *right = b + j;
    T sum = 0;
    int k = 0;
    while (k < n) {{ sum += *left * *right; ++left; right += n; k++; }}
    c[i * n + j] = sum;
}}
"""
IN_MEMORY = f"""
__global__ void mm(const T* a, const T* b, T* c, size_t n) {{{PLACE}
    for (size_t k = 0; k < n; k++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}}
"""
BY_COLUMNS = """
__global__ void mm(const T* a, const T* b, T* c, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n) return;
    for (int i = 0; i < n; i++) {
        c[i * n + j] = 0;
        for (int k = 0; k < n; k++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
"""
MATRICES = "Matrix A{n, n, a}, B{n, n, b}, C{n, n, c}; mm<<<grid, block>>>(A, B, C)"
PLAIN = "mm<<<grid, block>>>(a, b, c, n)"
PARTS = "Matrix A{n, n, n, a}, B{n, n, n, b}, C{n, n, n, c}; mm<<<tiles, square>>>(A, B, C)"


def captured(
    executor: CpuExecutor, folder: Path, kernel: str, launch: str, number: str, size: int = 37
) -> Subject:
    source = folder / "mm.cu"
    host = HOST.replace("LAUNCH", launch).replace("SIZE", str(size))
    typed = f"typedef {number} T;\n"
    # T may be a macro of the kernel's, the side of a tile.
    kernel = f"{kernel}\n#undef T\n{typed}" if "define T " in kernel else f"{typed}{kernel}"
    source.write_text(f"#include <cuda_runtime.h>\n{kernel}{host}", "utf-8")
    program = load_program(source)
    found = executor.capture(program, "mm", (), folder / "captured", 60.0)
    assert isinstance(found, Captured)
    return Subject(program, program.kernel("mm"), found.workloads)


@pytest.mark.parametrize(
    ("kernel", "launch", "number", "size"),
    [
        (STRUCTURES, MATRICES, "float", 37),
        (STRUCTURES, MATRICES, "long long", 37),
        (POINTERS, PLAIN, "int", 37),
        (IN_MEMORY, PLAIN, "double", 37),
        (BY_COLUMNS, "mm<<<3, 16>>>(a, b, c, n)", "float", 37),
        (SAMPLE, "mm<16><<<tiles, square>>>(c, a, b, n, n)", "float", 48),
        (FLAT, "mm<<<dim3(n / 8, n / 8), 64>>>(a, b, c, n)", "float", 40),
        (SUBMATRICES, PARTS, "float", 48),
    ],
)
def test_the_rewrite_leaves_what_the_program_left(
    cpu_executor: CpuExecutor, tmp_path: Path, kernel: str, launch: str, number: str, size: int
) -> None:
    """Of small whole numbers, so that no order of additions rounds."""
    program, author, workloads = vars(
        captured(cpu_executor, tmp_path, kernel, launch, number, size)
    ).values()
    (rewrite,) = MatmulRecipe().propose(program, author, workloads, None)
    (workload,) = workloads
    unit = Unit(program=program, kernel="mm", callee=workload.callee, rewrite=rewrite)
    compiled = cpu_executor.compile(unit)
    assert isinstance(compiled, Compiled), compiled
    contents = {a.index: str(before_path(workload, a)) for a in workload.allocations}
    ran = cpu_executor.run(
        compiled, workload, resolve(rewrite, author, workload), InputSet(contents=contents),
        tmp_path / "run", check="full",
    )  # fmt: skip
    assert isinstance(ran, Ran), ran
    for allocation in workload.allocations:
        after = Path(workload.folder, allocation.after).read_bytes()
        assert Path(ran.outputs[allocation.index]).read_bytes() == after
        assert np.frombuffer(after, np.uint8).any()


def test_structures_of_the_same_bytes_keep_their_own_buffers(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    subject = captured(cpu_executor, tmp_path, STRUCTURES, MATRICES, "float")
    found = Allocations(Draft.of(subject))
    assert found.apart("A.elements", "C.elements")
    assert found.apart("A.elements", "B.elements")
