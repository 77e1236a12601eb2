"""Which kernels may be launched in other blocks, and which are left alone."""

# ruff: noqa: E501 - a table of kernels, one a line

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.program.hygiene import check_source
from cudaops.program.plans import resolve
from cudaops.recipes.geometry import GeometryRecipe

MakeProgram = Callable[..., Program]
MakeLaunch = Callable[..., Workload]

_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def _kernel(body: str, head: str = "float* A, const float* B, int n") -> str:
    return f"__global__ void ew({head}) {{ {body} }}"


ACCEPTED: dict[str, tuple[str, str]] = {
    "saxpy": ("ceil_div(n, CUDAOPS_BX)", _kernel(_I + "if (i < n) A[i] += 2 * B[i];")),
    "early return": ("ceil_div(n, CUDAOPS_BX)", _kernel(_I + "if (i >= n) return; A[i] = B[i];")),
    "other order": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        "const unsigned i = threadIdx.x + blockDim.x * blockIdx.x; if (i < n) A[i] = B[i];")),
    "through names": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        "int t = threadIdx.x; int b = blockIdx.x; int i = b * blockDim.x + t; if (i < n) A[i] = B[i];")),
    "sum with more terms": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "if (i < n) A[7 + blockIdx.x * blockDim.x + threadIdx.x] = B[i];")),
    "size_t cast": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        "size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) A[i] = B[i];")),
    "linked as C": ("ceil_div(n, CUDAOPS_BX)", 'extern "C" ' + _kernel(_I + "if (i < n) A[i] = B[i];")),
    "no guard": ("gridDim.x * blockDim.x / CUDAOPS_BX", _kernel(_I + "A[i] = B[i];")),
    "guard around a part": ("gridDim.x * blockDim.x / CUDAOPS_BX", _kernel(
        _I + "A[i] = 0; if (i < n) A[i] = B[i];")),
    "guard that is more": ("ceil_div(n, CUDAOPS_BX)", _kernel(_I + "if (i < n && B[0] > 0) A[i] = B[i];")
        .replace("&& B[0] > 0", "&& i >= 1")),
    "grid-stride": ("gridDim.x * blockDim.x / CUDAOPS_BX", _kernel(
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) A[i] = B[i];")),
    "histogram": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "if (i < n) atomicAdd(&A[B[i]], 1);", "int* A, const int* B, int n")),
    "device function": ("ceil_div(n, CUDAOPS_BX)",
        "__device__ float f(float x) { return expf(x) * 2; }\n" + _kernel(_I + "if (i < n) A[i] = f(B[i]);")),
    "stencil": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "if (i < n) { float s = 0; for (int k = -3; k <= 3; ++k) { int j = i + k; "
        "if (j >= 0 && j < n) s += B[j]; } A[i] = s; }")),
    "two dimensions": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "int j = blockIdx.y * blockDim.y + threadIdx.y; if (i < n && j < n) A[j * n + i] = B[i];")),
    "unguarded second dimension": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "int j = blockIdx.y * blockDim.y + threadIdx.y; if (i < n) A[j * n + i] = B[i];")),
    "naive product": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "int j = blockIdx.y * blockDim.y + threadIdx.y; if (i < n && j < n) { float s = 0;"
        "for (int k = 0; k < n; ++k) s += B[j*n+k] * B[k*n+i]; A[j*n+i] = s; }")),
    "while loop": ("ceil_div(n, CUDAOPS_BX)", _kernel(
        _I + "if (i < n) { float v = B[i]; while (v > 1) v *= 0.5f; A[i] = v; }")),
}  # fmt: skip

REFUSED: dict[str, str] = {
    "shared memory": _kernel(_I + "__shared__ float s[256]; s[threadIdx.x] = B[i]; A[i] = s[threadIdx.x];"),
    "barrier": _kernel(_I + "if (i < n) A[i] = B[i]; __syncthreads();"),
    "shuffle": _kernel(_I + "float v = __shfl_down_sync(0xffffffff, B[i], 1); A[i] = v;"),
    "thread index alone": _kernel(_I + "if (i < n) A[i] = B[i] * threadIdx.x;"),
    "block index alone": _kernel(_I + "if (i < n) A[blockIdx.x] = B[i];"),
    "block size": _kernel(_I + "if (i < n) A[i] = B[i] / blockDim.x;"),
    "constant stride": _kernel("int i = blockIdx.x * 256 + threadIdx.x; if (i < n) A[i] = B[i];"),
    "four a thread": _kernel("int i = blockIdx.x * blockDim.x * 4 + threadIdx.x; if (i < n) A[i] = B[i];"),
    "grid size": _kernel(_I + "if (i < gridDim.x) A[i] = B[i];"),
    "hidden thread index": _kernel("int t = threadIdx.x;" + _I + "if (i < n && t > 3) A[i] = B[i];"),
    "hidden and changed": _kernel("int t = threadIdx.x; t += 1; A[blockIdx.x * blockDim.x + t] = 0;"),
    "hidden, then another of its name": _kernel(
        "int t = threadIdx.x; if (n > 3) { int t = 5; A[t] = 1; } A[t] = 2;"),
    "atomic with a result": _kernel(_I + "int p = atomicAdd(&A[0], 1); A[p] = B[i];", "int* A, const int* B, int n"),
    "device function that looks": "__device__ int lane() { return threadIdx.x & 31; }\n"
        + _kernel(_I + "if (i < n) A[i] = lane();"),
    "device function that waits": "__device__ void wait() { __syncthreads(); }\n"
        + _kernel(_I + "if (i < n) { wait(); A[i] = B[i]; }"),
    "unknown function": _kernel(_I + "if (i < n) A[i] = mystery(B[i]);"),
    "one thread": _kernel("if (threadIdx.x == 0 && blockIdx.x == 0) A[0] = B[0];"),
    "no thread": _kernel("A[0] = B[0];"),
    "warp size": _kernel(_I + "if (i < n) A[i / warpSize] = B[i];"),
    "clock": _kernel(_I + "if (i < n) A[i] = clock();"),
    "namespace": "namespace ops { " + _kernel(_I + "if (i < n) A[i] = B[i];") + " }",
    "inline assembly": _kernel(_I + 'asm("nop;"); A[i] = B[i];'),
    "mixed dimensions": _kernel("int i = blockIdx.y * blockDim.x + threadIdx.x; if (i < n) A[i] = B[i];"),
    "dynamic shared memory": _kernel(_I + "extern __shared__ float s[]; A[i] = s[0];"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_proves(name: str, program_of: MakeProgram) -> None:
    grid, text = ACCEPTED[name]
    program = program_of(text)
    (rewrite,) = GeometryRecipe().propose(program, program.kernel("ew"), (), None)
    assert rewrite.plan.launches[0].grid[0] == grid
    assert rewrite.plan.launches[0].kernel == "ew_regrouped"
    assert check_source(rewrite.source) == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, program_of: MakeProgram) -> None:
    program = program_of(REFUSED[name])
    assert GeometryRecipe().propose(program, program.kernel("ew"), (), None) == ()


def test_dimension_without_a_bound_keeps_its_threads(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    program = program_of(ACCEPTED["unguarded second dimension"][1])
    kernel = program.kernel("ew")
    (rewrite,) = GeometryRecipe().propose(program, kernel, (), None)
    assert "gridDim.y * blockDim.y % CUDAOPS_BY == 0" in rewrite.plan.requires
    launch = launch_of("ew", "A B", grid=(4, 3, 1), block=(16, 4, 1), n=60)
    plan = resolve(rewrite.tuned_with({"CUDAOPS_BX": 32, "CUDAOPS_BY": 2}), kernel, launch)
    assert (plan.launches[0].grid.x, plan.launches[0].grid.y) == (2, 6)
    assert not resolve(rewrite.tuned_with({"CUDAOPS_BY": 8}), kernel, launch).applicable


def test_a_launch_that_does_not_reach_the_bound_is_left_alone(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    program = program_of(ACCEPTED["saxpy"][1])
    kernel = program.kernel("ew")
    (rewrite,) = GeometryRecipe().propose(program, kernel, (), None)
    short = launch_of("ew", "A B", grid=(2, 1, 1), block=(32, 1, 1), n=100)
    assert resolve(rewrite, kernel, short).unmet == "gridDim.x * blockDim.x >= n"


def test_launch_bounds_limit_the_block(program_of: MakeProgram, launch_of: MakeLaunch) -> None:
    text = "#define MOST 128\n__global__ void __launch_bounds__(MOST) ew(float* A, int n) {"
    program = program_of(text + _I + " if (i < n) A[i] = 1; }")
    kernel = program.kernel("ew")
    (rewrite,) = GeometryRecipe().propose(program, kernel, (), None)
    assert "CUDAOPS_BX <= 128" in rewrite.plan.requires


def test_template_arguments_are_kept(program_of: MakeProgram, launch_of: MakeLaunch) -> None:
    text = "template <typename T, int S> " + _kernel(
        _I + "if (i < n) A[i] = S * B[i];", "T* A, const T* B, int n"
    )
    program = program_of(text)
    kernel = program.kernel("ew")
    launch = launch_of("ew<float, 3>", "A B", block=(64, 1, 1), n=50)
    (rewrite,) = GeometryRecipe().propose(program, kernel, (launch,), None)
    assert rewrite.plan.launches[0].kernel == "ew_regrouped<float, 3>"
    assert "ew_regrouped(T* A" in rewrite.source
