"""Cubins from real nvcc and NVRTC, what is said of them and what goes wrong; none needs a GPU."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PrerequisiteError
from cudaops.program.parse import load_program, parse_files
from cudaops.program.plans import make_rewrite
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe
from cudaops.sandbox.executors.cpu_source import BASELINE_ENTRY
from cudaops.sandbox.gpu.build import GpuBuilder, recorder_object
from cudaops.sandbox.gpu.nvrtc import MAX_DEATHS, Nvrtc
from cudaops.sandbox.gpu.platform import Executable, Module
from cudaops.sandbox.gpu.source import target_arch
from cudaops.sandbox.gpu.symbols import function_parameters, split_call

TESTS = Path(__file__).parents[1]
PROGRAMS = TESTS / "data" / "programs"
EXAMPLE = TESTS.parent / "examples" / "naive_matmul.cu"
INSTANCES = {"signal::energy": "signal::energy<float>", "stride<32>": "stride<32, int>"}
"""What capture spells out where the author let the compiler deduce."""

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuBuilder]:
    made = GpuBuilder(tmp_path_factory.mktemp("gpu"), "sm_86")
    yield made
    made.close()


@pytest.fixture(scope="module")
def nvrtc() -> str:
    """Version of NVRTC; skips where there is none."""
    asked = Nvrtc()
    version = asked.version()
    asked.close()
    if version is None:
        pytest.skip(f"no NVRTC here: {asked.missing}")
    return version


def program_of(text: str) -> Program:
    body = f"#include <cstdio>\n{text}\nint main() {{ return 0; }}\n"
    return parse_files("k", (SourceFile(path="k.cu", text=body),))


def unit_of(text: str, callee: str, rewrite: str | None = None, *, widened: bool = False) -> Unit:
    """A kernel that stands on line 2 of `k.cu`."""
    program = program_of(text)
    kernel = re.split(r"<|::", callee.replace("::", "\0"))[0].split("\0")[-1]
    made = None if rewrite is None else make_rewrite(rewrite, "user", "t", "w")
    return Unit(program=program, kernel=kernel, callee=callee, rewrite=made, widened=widened)


def built(outcome: Module | CompileFailed) -> Module:
    assert isinstance(outcome, Module), f"{outcome.placed}\n{outcome.log}"
    return outcome


def refused(outcome: Module | CompileFailed | Executable) -> CompileFailed:
    assert isinstance(outcome, CompileFailed), outcome
    return outcome


COPY = "__global__ void copy(const float* a, float* b, int n) { b[threadIdx.x] = a[n]; }"


def cubin_says(module: Module) -> dict[str, KernelResources]:
    """The module's resources as `cuobjdump -res-usage` gives them, by symbol."""
    wheels = [str(p) for s in sys.path for p in Path(s).glob("nvidia/cu*/bin/cuobjdump")]
    tool = next((t for t in (shutil.which("cuobjdump"), *wheels) if t), None)
    if tool is None:
        pytest.skip("no cuobjdump here (extra `toolkit`)")
    done = subprocess.run(
        [tool, "-res-usage", str(module.image)], capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) .*?CONSTANT\[0\]:(\d+)"
    return {
        symbol: KernelResources(
            kernel="", sm_arch="", registers=int(registers), stack_bytes=int(stack),
            static_smem_bytes=int(shared), constant_bytes=int(constant),
            spill_store_bytes=0, spill_load_bytes=0,
        )
        for symbol, registers, stack, shared, constant in re.findall(pattern, done.stdout)
    }  # fmt: skip


def check_resources(module: Module, reserved: int = 0) -> None:
    said = cubin_says(module)
    assert len(module.resources) == len(module.launchables)
    for one, known in zip(module.launchables, module.resources, strict=True):
        other = said[one.symbol]
        assert known.kernel == one.shown
        assert known.registers == other.registers
        assert known.stack_bytes == other.stack_bytes
        assert known.constant_bytes == other.constant_bytes
        assert known.static_smem_bytes == max(0, other.static_smem_bytes - reserved)


def test_a_rewrite_and_its_baseline_are_told_apart(builder: GpuBuilder) -> None:
    rewrite = """
    // @launch ops::copy<W> grid=(1) block=(n) args=(a, b, n)
    // @launch finish grid=(1) block=(1) args=(b)
    // @tune W = 4, 8
    struct Pair { float x, y; };
    namespace ops {
    template <int V> __global__ void copy(const float* __restrict__ a, float* b, int n) {
        __shared__ float s[V * 32];
        s[threadIdx.x] = a[n];
        __syncthreads();
        b[threadIdx.x] = s[0];
    }
    }
    __global__ void finish(float* b) { Pair p = {b[0], b[1]}; b[0] = p.x + p.y; }
    """
    unit = unit_of(COPY, "copy", rewrite)
    module = built(builder.unit(unit, draft=False))
    first, second, baseline = module.launchables
    assert [one.entry for one in module.launchables] == [0, 1, BASELINE_ENTRY]
    assert first.symbol == "_ZN17cudaops_candidate3ops4copyILi4EEEvPKfPfi"
    assert (first.shown, second.shown, baseline.shown) == ("ops::copy<4>", "finish", "copy")
    assert first.parameter_types == ("float const*", "float*", "int")
    assert second.parameter_types == ("float*",)
    assert baseline.symbol == "_Z4copyPKfPfi"
    assert module.launchable(1) == second
    assert [r.static_smem_bytes for r in module.resources] == [512, 0, 0]
    assert {r.sm_arch for r in module.resources} == {"sm_86"}
    assert "nvcc" in module.compiler
    check_resources(module)

    again = built(builder.unit(unit, draft=False))
    assert again.cached
    assert not module.cached
    assert again._replace(cached=False, seconds=module.seconds) == module
    tuned = unit.model_copy(update={"rewrite": _rewrite(unit).tuned_with({"W": 8})})
    other = built(builder.unit(tuned, draft=False))
    assert other.key != module.key
    assert other.resources[0].static_smem_bytes == 1024


def _rewrite(unit: Unit) -> Rewrite:
    assert unit.rewrite is not None
    return unit.rewrite


HARD = """
struct Affine { float a, b; };
namespace { struct Hidden { int x; }; __device__ int unseen[3]; }
namespace deep { namespace er { static __device__ float state[4]; __constant__ int table[5]; } }
static __constant__ float weights[8];
typedef void (*Callback)(int, float*);
namespace deep { namespace er {
template <typename T, int N, bool B>
static __global__ void work(T* p, const T* const* q, Affine f, Hidden h, Callback c,
                            unsigned long n, const T (*rows)[N]) {
    extern __shared__ T t[];
    t[threadIdx.x] = q[0][n] + f.a + h.x + unseen[n] + state[n] + table[n] + weights[n];
    t[threadIdx.x] += rows[1][2];
    __syncthreads();
    p[threadIdx.x] = t[0];
    if (c && B) c(N, (float*)p);
}
} }
extern "C" __global__ void plain_c(double* p, dim3 d, float4 v) { p[0] = d.x + v.x; }
namespace { __global__ void nobody(int* p) { p[0] = 1; } }
namespace deep { __global__ void nobody(int* p, int n) { p[n] = 2; } }
"""


@pytest.mark.parametrize(
    ("callee", "symbol", "types"),
    [
        (
            "deep::er::work<float, 4, true>", "deep2er4workIfLi4ELb1EEE",
            ("float*", "float const* const*", "Affine", "(anonymous namespace)::Hidden",
             "void (*)(int, float*)", "unsigned long", "float const (*) [4]"),
        ),
        ("plain_c", "plain_c", ("double*", "dim3", "float4")),
        ("::nobody", "6nobodyEPi", ("int*",)),
        ("deep::nobody", "_ZN4deep6nobodyEPii", ("int*", "int")),
    ],
)  # fmt: skip
def test_names_and_types(
    builder: GpuBuilder, callee: str, symbol: str, types: tuple[str, ...]
) -> None:
    program = program_of(HARD)
    unit = Unit(program=program, kernel=callee.split("::")[-1].split("<")[0], callee=callee)
    module = built(builder.unit(unit, draft=False))
    (one,) = module.launchables
    assert symbol in one.symbol
    assert one.parameter_types == types


def test_device_variables_are_found_whatever_their_linkage(builder: GpuBuilder) -> None:
    callee = "deep::er::work<float, 4, true>"
    unit = Unit(program=program_of(HARD), kernel="work", callee=callee)
    module = built(builder.unit(unit, draft=False))
    names = {"unseen", "deep::er::state", "deep::er::table", "weights"}
    assert set(module.variables) == names
    assert module.variables["weights"] == "weights"
    assert module.variables["deep::er::table"] == "_ZN4deep2er5tableE"
    assert "_INTERNAL_" in module.variables["deep::er::state"]
    listed = subprocess.run(
        ["readelf", "-sW", str(module.image)], capture_output=True, text=True, check=True
    ).stdout
    assert all(re.search(rf"OBJECT .* {s}$", listed, re.M) for s in module.variables.values())


@pytest.mark.parametrize(
    ("source", "place", "text"),
    [
        ("__global__ void f(float* b) {\n  b[0] = y;\n}", "candidate.cu:3", '"y" is undefined'),
        ("__global__ void f(float* b) { b[0] = 1 }", "candidate.cu:2", 'expected a ";"'),
        (
            ("template <class T> __device__ T g(T x) {\n  return x.y;\n}\n"
             "__global__ void f(float* b) {\n  b[0] = g(b[1]);\n}"),
            "candidate.cu:3", "must have class type",
        ),
        (
            ("\n__global__ void f(float* b) {\n  __shared__ float s[20000];\n"
             "  s[threadIdx.x] = b[0];\n  __syncthreads();\n  b[0] = s[5];\n}"),
            "candidate.cu:3", "uses too much shared data (80000 bytes, 49152 max)",
        ),
        (
            "__device__ float g(float);\n\n__global__ void f(float* b) { b[0] = g(b[1]); }",
            None, "Unresolved extern function `g(float)`",
        ),
        (
            'template <int N> __global__ void f(float* b) { static_assert(N > 4, "small"); }',
            "candidate.cu:2", "small",
        ),
        ("#include <cuda_fp61.h>\n__global__ void f(float* b) {}", None, "cuda_fp61.h"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(
    builder: GpuBuilder, source: str, place: str | None, text: str
) -> None:
    callee = "f<2>" if "int N" in source else "f"
    directive = f"// @launch {callee} grid=(1) block=(1) args=(b)\n"
    unit = unit_of(COPY, "copy", directive + source)
    failed = refused(builder.unit(unit, draft="static_assert" in source))
    assert text in failed.message
    assert "\n" not in failed.message
    assert (str(failed.location) if failed.location else None) == place
    assert "cudaops_candidate" not in failed.message


def test_an_error_in_the_authors_own_file(builder: GpuBuilder) -> None:
    failed = refused(
        builder.unit(unit_of("\n\n" + COPY.replace("a[n]", "z[n]"), "copy"), draft=False)
    )
    assert failed.placed == 'k.cu:4: identifier "z" is undefined'


def test_a_step_that_fits_no_kernel_is_said_of_its_directive(builder: GpuBuilder) -> None:
    rewrite = "\n// @launch f<int> grid=(1) block=(1) args=(b)\n"
    rewrite += "template <int N> __global__ void f(float* b) {}\n"
    failed = refused(builder.unit(unit_of(COPY, "copy", rewrite), draft=False))
    assert str(failed.location) == "candidate.cu:2"


def test_an_architecture_that_nvcc_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="--arch"):
        GpuBuilder(tmp_path, "sm_20").unit(unit_of(COPY, "copy"), draft=False)


def test_the_arch_with_a_is_asked_for_by_its_instructions() -> None:
    asks = 'asm volatile("wgmma.fence.sync.aligned;");'
    assert target_arch([COPY, asks], "sm_90") == "sm_90a"
    assert target_arch(["// wgmma would be better", "cp.async.bulk"], "sm_90") == "sm_90"
    assert target_arch([asks], "sm_86") == "sm_86"
    assert target_arch([asks], "sm_90a") == "sm_90a"


@pytest.mark.slow
def test_a_program_that_needs_sm_90a_gets_it(tmp_path: Path) -> None:
    asks = COPY.replace("{", '{ asm volatile("setmaxnreg.inc.sync.aligned.u32 64;");', 1)
    on_90 = GpuBuilder(tmp_path, "sm_90")
    module = built(on_90.unit(unit_of(asks, "copy"), draft=False))
    assert module.resources[0].sm_arch == "sm_90a"
    assert built(on_90.unit(unit_of(COPY, "copy"), draft=False)).resources[0].sm_arch == "sm_90"


def test_types_of_a_signature() -> None:
    assert function_parameters("void (*)(int, void (*)(int, A<b, c>), x (*) [3])") == (
        "int", "void (*)(int, A<b, c>)", "x (*) [3]",
    )  # fmt: skip
    assert function_parameters("void (*)()") == ()
    assert split_call("void f<(E)3>(int)") == ("void f<(E)3>", ("int",))
    assert split_call("plain") == ("plain", ())


def test_a_draft_names_the_same_kernels(builder: GpuBuilder, nvrtc: str) -> None:
    callee = "deep::er::work<float, 4, true>"
    unit = Unit(program=program_of(HARD), kernel="work", callee=callee)
    draft = built(builder.unit(unit, draft=True))
    final = built(builder.unit(unit, draft=False))
    assert draft.compiler == f"NVRTC {nvrtc}"
    assert draft.launchables[0].parameter_types == final.launchables[0].parameter_types
    assert draft.variables.keys() == final.variables.keys()
    assert [r.kernel for r in draft.resources] == [r.kernel for r in final.resources]
    check_resources(draft)
    assert built(builder.unit(unit, draft=True)).cached


@pytest.mark.slow
def test_what_nvrtc_cannot_take_goes_to_nvcc(builder: GpuBuilder, nvrtc: str) -> None:
    host = "#include <vector>\nstatic std::vector<float> table = {1.0f};\n"
    unit = unit_of(f"{host}__device__ std::vector<float>* never;\n{COPY}", "copy")
    for _ in range(2):
        module = built(builder.unit(unit, draft=True))
        assert module.compiler.startswith("nvcc")
    assert module.cached


def test_a_worker_that_dies_is_replaced(builder: GpuBuilder, nvrtc: str) -> None:
    built(builder.unit(unit_of(COPY.replace("a[n]", "a[n] + 3"), "copy"), draft=True))
    worker = builder._nvrtc._worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    after = built(builder.unit(unit_of(COPY.replace("a[n]", "a[n] + 4"), "copy"), draft=True))
    assert after.compiler == f"NVRTC {nvrtc}"


def test_a_compile_that_takes_too_long_costs_one_worker(nvrtc: str, tmp_path: Path) -> None:
    compiler = Nvrtc()
    late = compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "late", 0.01)
    assert (late.ok, late.final) == (False, False)
    quick = compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "made")
    assert quick.ok, quick.log
    assert (tmp_path / "made").read_bytes()[:4] == b"\x7fELF"
    compiler.close()


@pytest.mark.slow
def test_a_worker_that_always_dies_is_given_up(nvrtc: str, tmp_path: Path) -> None:
    compiler = Nvrtc()
    for _ in range(MAX_DEATHS):
        assert not compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "late", 0.01).ok
    assert compiler.version() is None
    assert f"{MAX_DEATHS} times in a row" in compiler.missing
    assert not compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "late").ok


@pytest.mark.slow
def test_builders_at_once_build_it_once(tmp_path: Path) -> None:
    builders = [GpuBuilder(tmp_path, "sm_86") for _ in range(4)]
    found: list[Module] = []

    def build(one: GpuBuilder) -> None:
        found.append(built(one.unit(unit_of(COPY, "copy"), draft=False)))

    threads = [threading.Thread(target=build, args=(one,)) for one in builders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({m.key for m in found}) == 1
    assert sum(not m.cached for m in found) == 1


@pytest.mark.slow
def test_a_build_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    unit = unit_of(COPY, "copy")
    first = built(GpuBuilder(tmp_path, "sm_86").unit(unit, draft=False))
    (first.folder / "build.json").unlink()
    first.image.write_bytes(b"half of it")
    second = built(GpuBuilder(tmp_path, "sm_86").unit(unit, draft=False))
    assert not second.cached
    assert second.launchables == first.launchables
    assert sorted(p.name for p in first.folder.iterdir() if p.is_dir()) == []


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((TESTS / "data" / "calibration").glob("*.cu")), ids=lambda p: p.stem
)
def test_on_sm_90_nothing_is_missing(path: Path, tmp_path: Path) -> None:
    """ptxas names no constant bank there; the cubin has it. 1 KiB of shared memory is reserved."""
    (unit,) = baselines(path)
    module = built(GpuBuilder(tmp_path, "sm_90").unit(unit, draft=False))
    check_resources(module, reserved=1024)
    assert module.resources[0].constant_bytes > 500


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_half_and_its_intrinsics_widened(builder: GpuBuilder) -> None:
    unit = unit_of(HALF, "half_sum", widened=True)
    module = built(builder.unit(unit, draft=False))
    assert module.launchables[0].parameter_types[3:] == ("double4*", "int")
    assert module.resources[0].static_smem_bytes == 32 * 8
    built(builder.unit(unit.model_copy(update={"widened": False}), draft=False))


@pytest.mark.slow
@pytest.mark.parametrize("statement", ['asm("");', "__pipeline_memcpy_async(b, a, 16);"])
def test_what_copies_by_bytes_is_not_widened(builder: GpuBuilder, statement: str) -> None:
    """It would copy half of what is meant, and the yardstick would be wrong."""
    text = f"#include <cuda_pipeline.h>\n{COPY.replace('{', '{ ' + statement, 1)}"
    built(builder.unit(unit_of(text, "copy"), draft=False))
    failed = refused(builder.unit(unit_of(text, "copy", widened=True), draft=False))
    assert str(failed.location) == "k.cu:3"
    assert "where_float_is_double" in failed.message


REWRITES = sorted((TESTS / "data" / "rewrites").glob("*.cu"))


@pytest.mark.slow
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


EXPLOITS = sorted(p for p in (TESTS / "exploits").rglob("*.cu") if p.name != "mm.cu")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPLOITS, ids=lambda p: p.stem)
def test_exploits_compile_or_are_refused_with_a_place(path: Path, builder: GpuBuilder) -> None:
    text = path.read_text()
    (unit,) = baselines(TESTS / "exploits" / "mm.cu")
    unit = unit.model_copy(update={"rewrite": make_rewrite(text, "user", "t", "w")})
    made = builder.unit(unit, draft=False)
    if path.stem in ("asks_for_too_much_shared_memory", "does_not_compile"):
        location = refused(made).location
        assert location is not None
        assert location.file == "candidate.cu"
    elif "stopped by: hygiene" not in text:
        built(made)


@pytest.mark.slow
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
