"""PTX of kernels that do one thing each, as nvcc writes it, and what is read from it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudaops.cuda.ptx import (
    Facts,
    PtxError,
    PtxModule,
    Trait,
    facts_of,
    findings,
    names_in,
    read_ptx,
)
from cudaops.domain.options import Precision
from cudaops.executors.cuda.toolchain import find_nvcc

HEAD = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <mma.h>
using namespace nvcuda;
__device__ int count; __device__ float table[4] = {1, 2, 3, 4}; __device__ int hist[64];
__device__ int* where = &count; __constant__ float weights[4] = {1, 2, 3, 4};
__device__ __noinline__ int bump(int* p) { return atomicAdd(p, 1); }
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float slow(float x) { return x + clock64(); }
typedef float (*Function)(float);
__device__ Function chosen[2] = {twice, slow};
template <typename T> __device__ void multiply(const T* a, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, a, 16); wmma::load_matrix_sync(y, a, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
"""
ARGUMENTS = "float* p, __half* h, __nv_bfloat16* b, double* d, int n"
KERNELS = {
    "plain": "p[n] = 2 * p[n] + p[0];",
    "wide": "d[n] = 2 * d[n] + d[0];",
    "counter": "if (atomicAdd(&count, 1) == 7) p[0] = 1;",
    "kept": "static __device__ int seen; p[n] = seen++;",
    "by_pointer": "p[n] = (*where)++;",
    "by_function": "p[n] = bump(&hist[n]);",
    "tables": "p[n] = table[n & 3] + weights[n & 3];",
    "shared": "__shared__ float s[32]; s[n] = p[n]; __syncthreads(); p[0] = s[31 - n];",
    "ticks": "p[n] = clock64();",
    "timer": 'unsigned long long t; asm("mov.u64 %0, %globaltimer;" : "=l"(t)); p[n] = t;',
    "place": 'unsigned s; asm("mov.u32 %0, %smid;" : "=r"(s)); p[n] = s;',
    "lane": 'unsigned s; asm("mov.u32 %0, %lanemask_lt;" : "=r"(s)); p[n] = s;',
    "grid": "cooperative_groups::this_grid().sync(); p[n] = 1;",
    "sleep": "__nanosleep(100); p[n] = 1;",
    "discard": 'asm volatile("discard.global.L2 [%0], 128;" :: "l"(p));',
    "prefetch": 'asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); p[n] = 1;',
    "debugger": "__brkpt();",
    "trap": "if (n == 3) __trap(); p[n] = 1;",
    "asserts": "assert(n > 0); p[n] = 1;",
    "prints": 'printf("%d %s", n, "text");',
    "heap": "int* q = (int*)malloc(n); p[n] = q[0]; free(q);",
    "half_storage": "h[n] = __float2half(2 * __half2float(h[n]) + 1);",
    "half_arithmetic": "h[n] = h[n] * h[0] + h[1];",
    "half_order": "h[n] = __hmax(h[n], __hneg(h[0]));",
    "bf16_storage": "b[n] = __float2bfloat16(2 * __bfloat162float(b[n]));",
    "half_matrix": "multiply<__half>(h, p);",
    "bf16_matrix": "multiply<__nv_bfloat16>(b, p);",
    "tf32_rounding": "p[n] = wmma::__float_to_tf32(p[n]) * p[0];",
    "coarse": "p[n] = __sinf(p[n]) + __logf(p[0]);",
    "library": "p[n] = expf(p[n]) + rsqrtf(p[0]) / sqrtf(p[1]) + sinf(p[2]) + tanhf(p[3]);",
    "calls": "p[n] = twice(p[n]);",
    "indirect": "p[n] = chosen[n & 1](p[n]);",
}

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    folder = tmp_path_factory.mktemp("ptx")
    kernels = (
        f'extern "C" __global__ void {name}({ARGUMENTS}) {{ {body} }}\n'
        for name, body in KERNELS.items()
    )
    (folder / "k.cu").write_text("#include <cassert>\n" + HEAD + "".join(kernels))
    command = [str(find_nvcc()), "-O3", "-std=c++17", "-w", "-arch=sm_86", "-ptx", "k.cu"]
    subprocess.run(command, cwd=folder, check=True, timeout=200)
    module = read_ptx(Path(folder / "k.ptx").read_text())
    assert set(module.entries) == set(KERNELS)
    return {name: facts_of(module, [name]) for name in KERNELS}


def kinds(found: Facts) -> set[str]:
    return {t.kind for t in found if t.kind not in ("holds", "arithmetic")}


EXPECTED = {
    "plain": set[Trait](),
    "counter": {Trait("state", "count")},
    "by_pointer": {Trait("state", "count")},
    "by_function": {Trait("state", "hist")},
    "tables": set[Trait](),
    "shared": set[Trait](),
    "ticks": {Trait("clock", "%clock64")},
    "timer": {Trait("clock", "%globaltimer")},
    "place": {Trait("place", "%smid")},
    "lane": set[Trait](),
    "grid": set[Trait](),
    "sleep": {Trait("sleeps", "nanosleep")},
    "discard": {Trait("discards", "discard.global.L2")},
    "prefetch": set[Trait](),
    "debugger": {Trait("breakpoint", "brkpt")},
    "trap": set[Trait](),
    "asserts": set[Trait](),
    "prints": {Trait("prints", "printf")},
    "heap": {Trait("heap", "malloc"), Trait("heap", "free")},
    "half_storage": {Trait("rounding", "fp16")},
    "half_order": set[Trait](),
    "half_matrix": {Trait("matrix", "fp16")},
    "bf16_matrix": {Trait("matrix", "bf16")},
    "tf32_rounding": {Trait("rounding", "tf32")},
    "coarse": {Trait("approximation", "sin.approx.f32"), Trait("approximation", "lg2.approx.f32")},
    "library": set[Trait](),
    "calls": set[Trait](),
    "indirect": {Trait("clock", "%clock64")},
}


@pytest.mark.parametrize("kernel", EXPECTED)
def test_what_a_kernel_does(facts: dict[str, Facts], kernel: str) -> None:
    found = {t for t in facts[kernel] if t.kind not in ("holds", "arithmetic")}
    assert found == EXPECTED[kernel]


def test_a_static_variable_of_a_kernel_is_state(facts: dict[str, Facts]) -> None:
    (kept,) = (t.what for t in facts["kept"] if t.kind == "state")
    assert "seen" in kept


@pytest.mark.parametrize(
    ("kernel", "precisions"),
    [
        ("plain", {"fp32"}), ("wide", {"fp64"}), ("half_storage", {"fp32"}),
        ("half_arithmetic", {"fp16"}), ("half_order", set()), ("bf16_storage", {"fp32"}),
    ],
)  # fmt: skip
def test_what_a_kernel_computes_in(
    facts: dict[str, Facts], kernel: str, precisions: set[str]
) -> None:
    assert {t.what for t in facts[kernel] if t.kind == "arithmetic"} == precisions


def compared(
    facts: dict[str, Facts], candidate: str, baseline: str, allowed: Precision | None = None
) -> tuple[int, int, int]:
    """Numbers of refused, suspicious and allowed findings."""
    found = findings(facts[candidate], facts[baseline], allowed)
    return len(found.refused), len(found.suspicious), len(found.allowed)


@pytest.mark.parametrize(
    ("candidate", "baseline"),
    [
        ("counter", "kept"), ("ticks", "timer"), ("half_matrix", "half_storage"),
        ("plain", "plain"), ("wide", "plain"), ("half_storage", "half_arithmetic"),
        ("bf16_matrix", "bf16_storage"), ("library", "plain"), ("coarse", "coarse"),
        ("debugger", "debugger"), ("tables", "plain"), ("prefetch", "plain"),
    ],
)  # fmt: skip
def test_what_the_baseline_does_too_is_no_finding(
    facts: dict[str, Facts], candidate: str, baseline: str
) -> None:
    assert compared(facts, candidate, baseline) == (0, 0, 0)


@pytest.mark.parametrize(
    ("candidate", "baseline", "suspicious"),
    [
        ("counter", "tables", 1), ("half_arithmetic", "half_storage", 1), ("plain", "wide", 1),
        ("tf32_rounding", "plain", 1), ("coarse", "library", 2), ("discard", "prefetch", 1),
    ],
)  # fmt: skip
def test_what_the_baseline_does_not_is_suspicious(
    facts: dict[str, Facts], candidate: str, baseline: str, suspicious: int
) -> None:
    refused, found, _ = compared(facts, candidate, baseline)
    assert (refused, found > 0) == (0, suspicious > 0)


def test_a_breakpoint_is_refused(facts: dict[str, Facts]) -> None:
    assert compared(facts, "debugger", "plain") == (1, 0, 0)


@pytest.mark.parametrize(
    ("candidate", "allowed", "passes"),
    [
        ("tf32_rounding", "tf32", True), ("tf32_rounding", "bf16", True),
        ("half_arithmetic", "tf32", False), ("half_arithmetic", "fp16", True),
        ("half_arithmetic", "bf16", False), ("coarse", "tf32", True), ("counter", "bf16", False),
    ],
)  # fmt: skip
def test_a_precision_that_is_allowed_passes_and_is_named(
    facts: dict[str, Facts], candidate: str, allowed: Precision, passes: bool
) -> None:
    _, suspicious, named = compared(facts, candidate, "plain", allowed)
    assert (suspicious == 0, named > 0) == (passes, passes)


def test_what_no_precision_covers() -> None:
    fp8 = frozenset({Trait("matrix", "fp8")})
    single = frozenset({Trait("arithmetic", "fp32")})
    double = frozenset({Trait("arithmetic", "fp64")})
    for allowed in (None, "tf32", "fp16", "bf16"):
        assert findings(fp8, frozenset(), allowed).suspicious
        assert findings(single, double, allowed).suspicious


PTX = """.version 9.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 func_retval0) cudaLaunchDevice ( .param .b64 a, .param .b64 b ) ;
.extern .func strange ( .param .b64 a ) ;
.global .align 4 .u32 first; // with a } in a comment
.const .align 4 .b8 fixed[4] = {1, 2, 3, 4};
.visible .entry k( .param .u64 p )
{
  .reg .b64 %rd<4>;
$L: @%p1 bra $L;
  BODY
  ret;
}
"""


def only(body: str) -> tuple[PtxModule, Facts]:
    module = read_ptx(PTX.replace("BODY", body))
    return module, facts_of(module, ["k"])


@pytest.mark.parametrize(
    ("body", "trait"),
    [
        ("call.uni (r), cudaLaunchDevice, (a, b);", Trait("launches", "cudaLaunchDevice")),
        ("call.uni strange, (a);", Trait("calls", "strange")),
        ("griddepcontrol.wait;", Trait("dependents", "griddepcontrol.wait")),
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1}, %rd1, %rd2, p, 1, 1;",
            Trait("matrix", "fp8"),
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            Trait("matrix", "tf32"),
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r2}, {%r1};",
            Trait("arithmetic", "fp16"),
        ),
        ("@%p1 st.global.u32 [first], 1;", Trait("state", "first")),
        ("mov.u64 %rd1, first; add.s64 %rd2, %rd1, 4; red.global.add.u32 [%rd2], 1;",
         Trait("state", "first")),
        ("{mov.u64 %rd1, first; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%rd2], 16;}",
         Trait("state", "first")),
        ("mov.u64 %rd1, first; st.shared.u64 [%rd3], %rd1;", Trait("state", "first")),
    ],
)  # fmt: skip
def test_instructions_that_nvcc_seldom_writes(body: str, trait: Trait) -> None:
    assert trait in only(body)[1]


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %rd1, first; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1;",
        "mov.u64 %rd1, fixed; st.global.u32 [%rd2], 1;",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r1}, {%r2}, {%r1};",
        "atom.global.max.u32 %r1, [%rd2], 1;",
        "mov.u32 %r1, %clusterid.x; barrier.cluster.arrive;",
    ],
)
def test_instructions_that_are_no_finding(body: str) -> None:
    assert {t for t in only(body)[1] if t.kind != "holds"} == set()


def test_a_module_is_taken_apart() -> None:
    module, _ = only("")
    assert module.entries == ("k",)
    assert module.external == {"cudaLaunchDevice", "strange"}
    assert {v.name: v.space for v in module.variables.values()} == {
        "first": "global", "fixed": "const",
    }  # fmt: skip
    assert names_in("[first+4], %rd1, {%f1, other}") == {"first", "other"}


@pytest.mark.parametrize("text", ["", "no PTX\n", ".version 9.0\n.func f() {", ".version 9.0\n}"])
def test_what_is_no_ptx_is_an_error(text: str) -> None:
    with pytest.raises(PtxError):
        read_ptx(text)


def test_a_kernel_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        facts_of(only("")[0], ["missing"])
