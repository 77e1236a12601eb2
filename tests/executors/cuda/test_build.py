"""Cubins from real nvcc and NVRTC, what is said of them and what goes wrong; none needs a GPU."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cudaops.domain.execution import Unit
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.nvrtc import MAX_DEATHS, Nvrtc, NvrtcResult
from cudaops.executors.cuda.platform import Executable, Module
from cudaops.executors.cuda.source import target_arch
from cudaops.executors.cuda.symbols import (
    function_parameters,
    is_local,
    kernel_parameters,
    split_call,
)
from cudaops.storage import NOTE
from tests.executors.cuda.gpu_builds import (
    COPY,
    built,
    check_resources,
    program_of,
    refused,
    unit_of,
)

pytestmark = [pytest.mark.nvcc]


def test_a_rewrite_and_its_baseline_are_told_apart(tmp_path: Path) -> None:
    builder = GpuBuilder(tmp_path, "sm_86")
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


@pytest.mark.parametrize("header", ["cub/cub.cuh", "cub/block/block_reduce.cuh"])
def test_a_draft_of_a_program_with_cub(builder: GpuBuilder, nvrtc: str, header: str) -> None:
    source = f"""
    #include <{header}>
    #include <cooperative_groups.h>
    __global__ void total(const float* a, float* b) {{
        typedef cub::BlockReduce<float, 128> Reduce;
        __shared__ typename Reduce::TempStorage storage;
        float sum = Reduce(storage).Sum(a[threadIdx.x]);
        if (cooperative_groups::this_thread_block().thread_rank() == 0) b[0] = sum;
    }}
    """
    module = built(builder.unit(unit_of(source, "total"), draft=True))
    assert module.compiler == f"NVRTC {nvrtc}", module.log


def test_what_nvrtc_cannot_take_goes_to_nvcc(builder: GpuBuilder, nvrtc: str) -> None:
    host = "#include <vector>\nstatic std::vector<float> table = {1.0f};\n"
    unit = unit_of(f"{host}__device__ std::vector<float>* never;\n{COPY}", "copy")
    for _ in range(2):
        module = built(builder.unit(unit, draft=True))
        assert module.compiler.startswith("nvcc")
    assert module.cached


def test_a_worker_that_dies_is_replaced(builder: GpuBuilder, nvrtc: str) -> None:
    built(builder.unit(unit_of(COPY.replace("a[n]", "a[n] + 3"), "copy"), draft=True))
    process = builder._nvrtc._idle[-1]._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
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


def test_a_worker_that_always_dies_is_given_up(nvrtc: str, tmp_path: Path) -> None:
    compiler = Nvrtc()
    for _ in range(MAX_DEATHS):
        assert not compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "late", 0.01).ok
    assert compiler.version() is None
    assert f"{MAX_DEATHS} times in a row" in compiler.missing
    assert not compiler.compile(COPY, ("-arch=sm_86",), tmp_path / "late").ok


def test_threads_compile_beside_each_other(nvrtc: str, tmp_path: Path) -> None:
    """Each in a worker of its own as far as there are some, and with what it asked for."""
    compiler = Nvrtc(2)
    names = [f"kernel_{number}" for number in range(6)]

    def compiled(name: str) -> bytes:
        made = compiler.compile(COPY.replace("copy", name), ("-arch=sm_86",), tmp_path / name)
        assert made.ok, made.log
        return (tmp_path / name).read_bytes()

    with ThreadPoolExecutor(len(names)) as pool:
        for name, image in zip(names, pool.map(compiled, names), strict=True):
            assert name.encode() in image
    assert len(compiler._idle) == 2
    processes = [one._process for one in compiler._idle]
    compiler.close()
    assert all(one is not None and one.poll() is not None for one in processes)
    assert compiled(names[0])
    compiler.close()


def test_a_worker_that_dies_leaves_the_others_alone(nvrtc: str, tmp_path: Path) -> None:
    compiler = Nvrtc(2)

    def compiled(seconds: float) -> NvrtcResult:
        return compiler.compile(COPY, ("-arch=sm_86",), tmp_path / str(seconds), seconds)

    for _ in range(MAX_DEATHS):
        with ThreadPoolExecutor(2) as pool:
            late, made = pool.map(compiled, (0.01, 60.0))
            assert not late.ok
            assert made.ok, made.log
    assert compiler.version() == nvrtc
    compiler.close()


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


def test_a_build_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    unit = unit_of(COPY, "copy")
    first = built(GpuBuilder(tmp_path, "sm_86").unit(unit, draft=False))
    (first.folder / NOTE).unlink()
    first.image.write_bytes(b"half of it")
    second = built(GpuBuilder(tmp_path, "sm_86").unit(unit, draft=False))
    assert not second.cached
    assert second.launchables == first.launchables
    assert sorted(p.name for p in first.folder.iterdir() if p.is_dir()) == []


def test_where_parameters_stand_and_whose_a_kernel_is(tmp_path: Path) -> None:
    """As C++ lays out a structure of them. Source: CUDA C++ Programming Guide, kernel functions."""
    source = """
    struct Rows { char kind; double scale; float* data; };
    static __global__ void own(float* a, short n, Rows rows, char c) { a[n] = rows.scale + c; }
    __global__ void bare() {}
    void* used() { return (void*)own; }
    """
    builder = GpuBuilder(tmp_path, "sm_90")
    own = built(builder.unit(unit_of(source, "own"), draft=False))
    symbol = own.launchable(BASELINE_ENTRY).symbol
    found = kernel_parameters(own.image, symbol)
    assert found == ((0, 8), (8, 2), (16, 24), (40, 1))
    assert kernel_parameters(own.image, "_Z4barev") == ()
    assert is_local(own.image, symbol)
    assert not is_local(own.image, "_Z4barev")
    with pytest.raises(SandboxUnavailable, match="does not say what parameters none has"):
        kernel_parameters(own.image, "none")


@pytest.mark.parametrize("beside", ["float *copy(const float *a, int n);", "void copy(float);"])
def test_a_kernel_is_built_whose_name_functions_of_the_host_have(
    tmp_path: Path, beside: str
) -> None:
    text = f"{beside}\n__global__ void copy();\n{COPY}"
    module = built(GpuBuilder(tmp_path, "sm_86").unit(unit_of(text, "copy"), draft=False))
    assert [one.entry for one in module.launchables] == [BASELINE_ENTRY]


def test_names_of_a_header_that_others_brought_along(tmp_path: Path) -> None:
    builder = GpuBuilder(tmp_path, "sm_86")
    text = "struct Head { uint16_t magic; };\n__global__ void k(Head* h) { h->magic = 1; }"
    built(builder.unit(unit_of(text, "k"), draft=False))
    for recorded in (True, False):
        made = builder.program(program_of(text), recorded=recorded)
        assert isinstance(made, Executable)
