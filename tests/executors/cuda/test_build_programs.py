"""Every program, rewrite and recipe there is, built by real nvcc and NVRTC; none needs a GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cudaops.domain.execution import Compiled, Unit
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.build import GpuBuilder, recorder_object
from cudaops.executors.cuda.platform import Executable
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe
from tests.executors.cuda.gpu_builds import (
    COPY,
    EXAMPLE,
    INSTANCES,
    PROGRAMS,
    TESTS,
    built,
    check_resources,
    program_of,
    refused,
    unit_of,
)
from tests.exploits.cases import DEVICE, load_case

pytestmark = pytest.mark.nvcc


def baselines(path: Path) -> list[Unit]:
    program = load_program(path)
    callees = {}
    for launch in program.launches:
        kernels = [k for k in program.kernels if k.name == launch.kernel]
        if len(kernels) == 1:
            _, bracket, template = launch.callee.partition("<")
            callees[launch.kernel] = kernels[0].qualified_name + bracket + template
    return [
        Unit(program=program, kernel=name, callee=INSTANCES.get(callee, callee))
        for name, callee in callees.items()
    ]


ALL = sorted(p for p in PROGRAMS.glob("*.cu") if p.stem not in ("no_kernel", "no_main"))


@pytest.mark.parametrize("path", [*ALL, EXAMPLE], ids=lambda p: p.stem)
def test_every_program_compiles(path: Path, builder: GpuBuilder) -> None:
    for unit in baselines(path):
        if path.stem == "syntax_error":
            assert str(refused(builder.unit(unit, draft=False)).location) == "syntax_error.cu:8"
            continue
        final = built(builder.unit(unit, draft=False))
        check_resources(final)
        draft = built(builder.unit(unit, draft=True))
        assert draft.launchables == final.launchables
        wide = built(builder.unit(unit.model_copy(update={"widened": True}), draft=False))
        types = wide.launchables[0].parameter_types
        assert types == tuple(
            t.replace("float", "double") for t in final.launchables[0].parameter_types
        )


@pytest.mark.parametrize(
    "path", sorted((TESTS / "data" / "calibration").glob("*.cu")), ids=lambda p: p.stem
)
def test_on_sm_90_nothing_is_missing(path: Path, tmp_path: Path) -> None:
    """ptxas names no constant bank there; the cubin has it. 1 KiB of shared memory is reserved."""
    (unit,) = baselines(path)
    module = built(GpuBuilder(tmp_path, "sm_90").unit(unit, draft=False))
    check_resources(module, reserved=1024)
    assert module.resources[0].constant_bytes > 500


@pytest.mark.parametrize(
    "form",
    ["reference_to_device_structure", "array_reference_template", "reference_to_managed_functor",
     "destructor_beside_packed_launches"],
)  # fmt: skip
def test_launches_that_are_recorded_hand_on_what_they_are_given(
    form: str, builder: GpuBuilder
) -> None:
    """References to what only the device may read, and structures with destructors."""
    program = load_program(EXAMPLE.parents[1] / "tests" / "door" / "forms" / f"{form}.cu")
    assert isinstance(builder.program(program, recorded=True), Executable)


def test_whole_programs(builder: GpuBuilder) -> None:
    program = load_program(PROGRAMS / "gemm_header.cu")
    for recorded in (False, True):
        made = builder.program(program, recorded=recorded)
        assert isinstance(made, Executable), made
        assert os.access(made.path, os.X_OK)
        again = builder.program(program, recorded=recorded)
        assert isinstance(again, Executable)
        assert again.cached
        assert again.path == made.path
    broken = program_of("void f(int);\n" + COPY + "\nstruct S { S() { f(1); } } s;")
    failed = refused(builder.program(broken, recorded=False))
    assert "undefined reference to `f(int)'" in failed.message


HALF = """
#include <algorithm>
#include <cfloat>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define LARGEST(x) fmaxf(x, 0.0f)
__device__ float widen(__half h) { return __half2float(h); }
__device__ float widen(float f) { return f; }
__global__ void half_sum(const half* a, half2* b, __nv_bfloat16* c, float4* d, int n) {
    __shared__ half tile[32];
    tile[threadIdx.x] = __ldg(a + n);
    __syncthreads();
    half x = __hfma(tile[0], __float2half(2.0f), tile[1]);
    half2 pair = __hmul2(b[n], __floats2half2_rn(1.0f, widen(x)));
    pair = pair + __half2half2(x);
    float2 both = __half22float2(pair);
    x += __hmax(x, __shfl_xor_sync(0xffffffffu, x, 1));
    c[n] = __float2bfloat16(expf(both.x) + widen(both.y) + __low2float(pair) + rsqrtf(widen(x)));
    float4 v = __ldg(d + n);
    v.x += __fmaf_rn(v.y, __sinf(v.z), float(c[n]));
    d[n] = make_float4(v.x, LARGEST(v.y), v.z, __float2int_rn(v.w));
    b[n] = pair;
    if (v.w > fmaxf(-INFINITY, FLT_MAX)) d[n].x = powf(v.x, 2) + fminf(v.y, FLT_EPSILON);
}"""


def test_the_recorder_is_compiled_once(tmp_path: Path) -> None:
    made = recorder_object(tmp_path)
    assert made is not None
    compiled = made.stat().st_mtime_ns
    builder = GpuBuilder(tmp_path, "sm_90")
    found = builder.program(load_program(EXAMPLE), recorded=True)
    builder.close()
    assert isinstance(found, Executable), found
    assert str(made) in found.command
    assert recorder_object(tmp_path) == made
    assert made.stat().st_mtime_ns == compiled


def test_half_and_its_intrinsics_widened(builder: GpuBuilder) -> None:
    unit = unit_of(HALF, "half_sum", widened=True)
    module = built(builder.unit(unit, draft=False))
    assert module.launchables[0].parameter_types[3:] == ("double4*", "int")
    assert module.resources[0].static_smem_bytes == 32 * 8
    built(builder.unit(unit.model_copy(update={"widened": False}), draft=False))


@pytest.mark.parametrize("statement", ['asm("");', "__pipeline_memcpy_async(b, a, 16);"])
def test_what_copies_by_bytes_is_not_widened(builder: GpuBuilder, statement: str) -> None:
    """It would copy half of what is meant, and the yardstick would be wrong."""
    text = f"#include <cuda_pipeline.h>\n{COPY.replace('{', '{ ' + statement, 1)}"
    built(builder.unit(unit_of(text, "copy"), draft=False))
    failed = refused(builder.unit(unit_of(text, "copy", widened=True), draft=False))
    assert str(failed.location) == "k.cu:3"
    assert "where_float_is_double" in failed.message


TIMED = """struct Timer {
    cudaEvent_t a, b;
    Timer() { cudaEventCreate(&a); cudaEventCreate(&b); }
    float stop() { float ms = 0.0f; cudaEventElapsedTime(&ms, a, b); return ms; }
};
"""


def test_a_timer_beside_the_kernel_is_widened_too(builder: GpuBuilder, tmp_path: Path) -> None:
    """CUDA's own functions take no `double*`."""
    unit = unit_of(TIMED + COPY, "copy", widened=True)
    module = built(builder.unit(unit, draft=False))
    assert all("float" not in one for one in module.launchables[0].parameter_types)
    compiled = CpuExecutor("A10", tmp_path).compile(unit)
    assert isinstance(compiled, Compiled), compiled


REWRITES = sorted((TESTS / "data" / "rewrites").glob("*.cu"))


@pytest.mark.parametrize("path", REWRITES, ids=lambda p: p.stem)
def test_every_recorded_rewrite_compiles(path: Path, builder: GpuBuilder) -> None:
    rewrite = make_rewrite(path.read_text(), "user", "t", "w")
    source = PROGRAMS / path.name
    source = source if source.is_file() else TESTS / "data" / "calibration" / path.name
    named = re.search(r"rewrite of `(?:\w+::)*(\w+)`", rewrite.source)
    units = [u for u in baselines(source) if named is None or u.kernel == named[1]]
    unit = units[0].model_copy(update={"rewrite": rewrite})
    final, draft = built(builder.unit(unit, draft=False)), built(builder.unit(unit, draft=True))
    assert [one.entry for one in final.launchables] == [
        *range(len(rewrite.plan.launches)), BASELINE_ENTRY,
    ]  # fmt: skip
    assert draft.launchables == final.launchables
    check_resources(final)


REFUSED = [
    TESTS / "exploits" / f"{name}.cu"
    for name in ("asks_for_too_much_shared_memory", "does_not_compile")
]
HONEST = [
    path
    for path in sorted((TESTS / "exploits" / "honest").glob("*.cu"))
    if load_case(path).device == DEVICE
]
"""Of mm.cu. What becomes of every other file there, `make exploits` says (nvcc_compile, object)."""


@pytest.mark.parametrize("path", [*HONEST, *REFUSED], ids=lambda p: p.stem)
def test_rewrites_compile_or_are_refused_with_a_place(path: Path, builder: GpuBuilder) -> None:
    case = load_case(path)
    (unit,) = baselines(case.baseline)
    unit = unit.model_copy(update={"rewrite": make_rewrite(case.source, "user", "t", "w")})
    made = builder.unit(unit, draft=False)
    if path in REFUSED:
        location = refused(made).location
        assert location is not None
        assert location.file == "candidate.cu"
    else:
        built(made)


def test_every_seed_of_the_recipes_compiles(builder: GpuBuilder) -> None:
    matmul = """
    __global__ void mm(const float* A, const float* B, float* C, int M, int N, int K) {
        int row = blockIdx.y * blockDim.y + threadIdx.y;
        int col = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= M || col >= N) return;
        float acc = 0;
        for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
        C[row * N + col] = acc;
    }"""
    transpose = """
    __global__ void tr(const float* in, float* out, int w, int h) {
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        if (x < w && y < h) out[x * h + y] = in[y * w + x];
    }"""
    for recipe, text, name in (
        (MatmulRecipe(), matmul, "mm"),
        (TransposeRecipe(), transpose, "tr"),
    ):
        unit = unit_of(text, name)
        (rewrite,) = recipe.propose(unit.program, unit.program.kernel(name), (), None)
        for values in recipe.seeds(rewrite)[:3]:
            tuned = unit.model_copy(update={"rewrite": rewrite.tuned_with(dict(values))})
            final, draft = (built(builder.unit(tuned, draft=d)) for d in (False, True))
            assert draft.launchables == final.launchables
            assert final.resources[0].spill_store_bytes == 0
