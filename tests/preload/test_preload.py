"""Programs with a library preloaded, on a double of libcuda.so.1 that says what was launched."""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.domain.workload import Field, OpaqueArgument
from cudaops.executors.cuda.toolchain import require_nvcc
from tests.executors.cuda.gpu_builds import program_of
from tests.preload.builds import (
    Made,
    Reach,
    authors_image,
    f32,
    i32,
    launch,
    made,
    u64,
    workload,
)

pytestmark = [pytest.mark.nvcc]

Y, X = u64(0x10000), u64(0x20000)
REACHES = ("dlsym", "address", "address1", "address_ptsz", "linked")


def of_scale(scale: Made, n: int = 4096, x: str = X, **shape: object) -> str:
    return launch(scale.symbol, Y, x, i32(n), f32(0.5), **shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("reach", REACHES)
def test_the_rewrite_is_launched_however_the_driver_is_reached(
    reached: Reach, scale: Made, reach: str
) -> None:
    done = reached.run(scale.image, of_scale(scale), library=scale.library, reach=reach)
    (one,) = done.launches
    assert done.printed[0] == "0"
    assert done.kernels == ["faster"]
    assert (one["grid"], one["block"], one["smem"]) == ([16, 1, 1], [64, 1, 1], 0)
    assert one["parameters"] == [Y, X, u64(1024), struct.pack("<d", 0.5).hex()]
    assert one["stream"] == (2 if reach == "address_ptsz" else 0)
    assert done.counts == [{"kernel": "scale", "rewrite": 1, "author": 0, "reason": None}]
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["extra", "config", "kernel"])
def test_however_a_launch_is_spelled(reached: Reach, scale: Made, how: str) -> None:
    """Arguments in one buffer, a configuration with attributes that ask for nothing, a CUkernel."""
    done = reached.run(scale.image, of_scale(scale, how=how), library=scale.library)
    assert done.kernels == ["faster"]
    assert done.launches[0]["parameters"][2:] == [u64(1024), struct.pack("<d", 0.5).hex()]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"n": 4094}, "@requires n % 4 == 0 && blockDim.x <= 256 && aligned(x, 16) does not hold"),
        ({"block": 512}, "@requires n % 4 == 0 && blockDim.x <= 256 && aligned(x, 16) does not"),
        ({"x": u64(0x20004)}, "@requires n % 4 == 0 && blockDim.x <= 256 && aligned(x, 16) does"),
        ({"n": 0}, "the rewrite's grid, block or shared memory fits no device"),
        ({"how": "cluster"}, "it is launched with attributes"),
        ({"how": "captured"}, "the stream is captured into a graph"),
    ],
)
def test_outside_of_the_guard_the_authors_kernel_runs(
    reached: Reach, scale: Made, other: dict[str, object], reason: str
) -> None:
    command = of_scale(scale, **other)  # type: ignore[arg-type]
    plain = reached.run(scale.image, command)
    done = reached.run(scale.image, command, of_scale(scale), library=scale.library)
    assert done.kernels == ["author", "faster"]
    for key in ("by", "grid", "block", "smem", "parameters"):
        assert done.launches[0][key] == plain.launches[0][key]
    (count,) = done.counts
    assert (count["rewrite"], count["author"]) == (1, 1)
    assert count["reason"].startswith(reason)


def test_switched_off_nothing_is_replaced_or_counted(reached: Reach, scale: Made) -> None:
    for reach in REACHES:
        done = reached.run(
            scale.image, of_scale(scale), library=scale.library, reach=reach,
            environment={"CUDAOPS_PRELOAD": "0"},
        )  # fmt: skip
        assert done.kernels == ["author"]
        assert done.counts[0]["rewrite"] == done.counts[0]["author"] == 0


def test_a_report_at_the_end_where_it_is_asked_for(reached: Reach, scale: Made) -> None:
    commands = [of_scale(scale), of_scale(scale), of_scale(scale, n=5), of_scale(scale, block=512)]
    done = reached.run(
        scale.image, *commands, library=scale.library, environment={"CUDAOPS_PRELOAD": "report"}
    )
    assert done.stderr == (
        "cudaops: scale: 2 launches by the rewrite, 2 by the author's kernel (first: @requires "
        "n % 4 == 0 && blockDim.x <= 256 && aligned(x, 16) does not hold)\n"
    )
    # A program that never loads the driver, such as the shell that starts it, says nothing.
    shell = subprocess.run(
        ["/bin/sh", "-c", "echo"], capture_output=True, text=True, check=True, timeout=20,
        env={"LD_PRELOAD": str(scale.library), "CUDAOPS_PRELOAD": "report"},
    )  # fmt: skip
    assert (shell.stdout, shell.stderr) == ("\n", "")


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [("90", "faster"), ("91", "faster"), ("86", "author"), ("100", "author")],
)
def test_only_on_a_device_that_the_cubin_runs_on(
    reached: Reach, scale: Made, capability: str, kernel: str
) -> None:
    done = reached.run(
        scale.image, of_scale(scale), library=scale.library,
        environment={"CUDA_DOUBLE_CAPABILITY": capability},
    )  # fmt: skip
    assert done.kernels == [kernel]
    if kernel == "author":
        assert done.counts[0]["reason"] == "the device is not what the cubin was built for"


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("cuKernelGetFunction", "the rewrite's kernel cannot be launched like this"),
        (
            "cuLaunchKernel:_ZN17cudaops_candidate6fasterEP6float4PKS0_xd",
            "the driver refused the rewrite's launch",
        ),
    ],
)
def test_where_the_rewrite_cannot_be_launched_the_authors_kernel_is(
    reached: Reach, scale: Made, failing: str, reason: str
) -> None:
    done = reached.run(
        scale.image, of_scale(scale), of_scale(scale), library=scale.library,
        environment={"FAKE_CUDA_FAIL": failing},
    )  # fmt: skip
    assert done.printed[:2] == ["0", "0"]
    assert done.kernels == ["author", "author"]
    assert done.counts[0] == {"kernel": "scale", "rewrite": 0, "author": 2, "reason": reason}


def test_a_driver_that_tells_no_names_replaces_nothing(reached: Reach, scale: Made) -> None:
    done = reached.old.run(
        scale.image, of_scale(scale), library=scale.library,
        environment={"CUDAOPS_PRELOAD": "report"},
    )  # fmt: skip
    assert done.kernels == ["author"]
    assert done.stderr.startswith(
        "cudaops: the driver has no cuFuncGetName: nothing was replaced\n"
    )


def test_a_cubin_that_cannot_be_loaded_is_tried_once(reached: Reach, scale: Made) -> None:
    done = reached.run(
        scale.image, of_scale(scale), of_scale(scale), library=scale.library,
        environment={"FAKE_CUDA_FAIL": "cuLibraryLoadData"},
    )  # fmt: skip
    assert done.kernels == ["author", "author"]
    assert done.counts[0]["reason"] == "the rewrite's cubin could not be loaded"


def test_two_contexts_and_eight_threads_share_one_loaded_cubin(reached: Reach, scale: Made) -> None:
    each = of_scale(scale)
    done = reached.run(
        scale.image, each, "context", each, f"threads 8 100 {each}", library=scale.library
    )
    assert set(done.kernels) == {"faster"}
    assert len(done.kernels) == done.counts[0]["rewrite"] == 802
    assert len({one["context"] for one in done.launches}) == 2
    # The program loads its own image too.
    assert sum("loaded" in one for one in done.log) == 2


def test_other_kernels_pass_untouched(reached: Reach, tmp_path: Path) -> None:
    source = (
        "__global__ void other(float* y) { y[0] = 1; }\n"
        """
    __global__ void mine(float* y, int n) { y[n] = 1; }
    """
    )
    rewrite = """
    // @launch swift grid=(1) block=(1) args=(y, n)
    __global__ void swift(float* y, int n) { y[n] = 1; }
    """
    mine = made(tmp_path, source, rewrite, [workload("mine", y="f32", n=("i32", 1))])
    commands = [launch("_Z5otherPf", Y), launch(mine.symbol, Y, i32(3)), launch("_Z5otherPf", Y)]
    done = reached.run(mine.image, *commands, library=mine.library)
    assert [one["launch"] for one in done.launches] == [
        "_Z5otherPf", "_ZN17cudaops_candidate5swiftEPfi", "_Z5otherPf",
    ]  # fmt: skip
    assert (done.counts[0]["rewrite"], done.counts[0]["author"]) == (1, 0)


SUMS = """
__constant__ float weights[4];
__device__ float weight(int i) { return weights[i % 4]; }
__global__ void sums(const float* x, float* y, int n) { y[threadIdx.x] = x[n] * weight(n); }
"""
IN_TWO = """
// @tune WIDTH = 128, 256
// @scratch partial bytes=4*ceil_div(n, WIDTH)
// @scratch flags bytes=n
// @launch first grid=(ceil_div(n, WIDTH)) block=(WIDTH) smem=65536 args=(x, partial, flags + 1, n)
// @launch last grid=(1) block=(32) args=(partial, y + n, n)
__global__ void first(const float* x, float* partial, char* flags, int n) {
    extern __shared__ float s[];
    s[0] = x[n];
    partial[0] = s[0];
    flags[0] = 1;
}
__global__ void last(const float* partial, float* y, int n) { y[0] = partial[0] * weight(n); }
"""


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Made:
    captured = workload("sums", x="f32", y="f32", n=("i32", 1000))
    return made(tmp_path_factory.mktemp("sums"), SUMS, IN_TWO, [captured], tuned={"WIDTH": 256})


def test_scratch_memory_shared_memory_constants_and_several_launches(
    reached: Reach, sums: Made
) -> None:
    weights = "00000000000080400000a0400000c040"
    done = reached.run(
        sums.image, f"set weights {weights}", launch(sums.symbol, X, Y, i32(1000)),
        library=sums.library,
    )  # fmt: skip
    assert done.kernels == ["first", "last"]
    first, last = done.launches
    assert (first["grid"], first["block"], first["smem"]) == ([4, 1, 1], [256, 1, 1], 65536)
    partial, flags = (one for one in done.log if "allocated" in one)
    assert (partial["bytes"], flags["bytes"]) == (16, 1000)
    assert first["parameters"] == [
        X, u64(partial["allocated"]), u64(flags["allocated"] + 1), i32(1000),
    ]  # fmt: skip
    assert last["parameters"] == [u64(partial["allocated"]), u64(0x10000 + 4000), i32(1000)]
    assert [one["copied"] for one in done.log if "copied" in one] == [weights]
    freed = [one["freed"] for one in done.log if "freed" in one]
    assert freed == [partial["allocated"], flags["allocated"]]


def test_while_another_stream_is_captured_a_thread_may_load_and_allocate(
    reached: Reach, sums: Made
) -> None:
    """The captured launch keeps the author's kernel; one beside it is replaced as ever."""
    first = launch(sums.symbol, X, Y, i32(1000), how="captured")
    done = reached.run(
        sums.image, first, launch(sums.symbol, X, Y, i32(1000)), library=sums.library
    )
    assert done.kernels == ["author", "first", "last"]
    assert len([one for one in done.log if "freed" in one]) == 2


def test_without_scratch_memory_the_authors_kernel_runs(reached: Reach, sums: Made) -> None:
    done = reached.run(
        sums.image, launch(sums.symbol, X, Y, i32(1000)), launch(sums.symbol, X, Y, i32(0)),
        library=sums.library, environment={"FAKE_CUDA_FAIL": "cuMemAllocAsync"},
    )  # fmt: skip
    assert done.kernels == ["author", "author"]
    assert done.counts[0]["reason"] == "there was no scratch memory"


def test_what_has_begun_is_told_to_the_program_where_it_fails(reached: Reach, sums: Made) -> None:
    """The author's kernel would find memory that the rewrite has changed."""
    done = reached.run(
        sums.image, launch(sums.symbol, X, Y, i32(1000)), library=sums.library,
        environment={"FAKE_CUDA_FAIL": "cuLaunchKernel:_ZN17cudaops_candidate4lastEPKfPfi"},
    )  # fmt: skip
    assert done.printed[0] == "1"
    assert done.kernels == ["first"]
    assert len([one for one in done.log if "freed" in one]) == 2


def test_limits_of_every_kernel_are_looked_at_before_the_first_is_launched(
    reached: Reach, sums: Made
) -> None:
    done = reached.run(
        sums.image, launch(sums.symbol, X, Y, i32(1000)), library=sums.library,
        environment={"FAKE_CUDA_THREADS": "128"},
    )  # fmt: skip
    assert done.kernels == ["author"]
    assert done.counts[0]["reason"] == "the rewrite's kernel cannot be launched like this"
    assert not [one for one in done.log if "allocated" in one]


def test_a_constant_of_another_size_is_another_variable(
    reached: Reach, sums: Made, tmp_path: Path
) -> None:
    program = program_of(SUMS.replace("weights[4]", "weights[8]"))
    image = tmp_path / "author.cubin"
    image.write_bytes(authors_image(program, sums.winner.instances[0].workloads).read_bytes())
    done = reached.run(image, launch(sums.symbol, X, Y, i32(1000)), library=sums.library)
    assert done.kernels == ["author"]
    assert done.counts[0]["reason"].startswith("a __constant__ variable of the program could not")


def test_an_argument_without_a_value_leaves_nothing_behind(reached: Reach, tmp_path: Path) -> None:
    source = "__global__ void step(float* y, long long n) { y[n] = 1; }"
    rewrite = """
    // @scratch room bytes=64
    // @launch swift grid=(1) block=(1) args=(y, room, n * 4)
    __global__ void swift(float* y, char* room, long long n) { y[n / 4] = 1; }
    """
    step = made(tmp_path, source, rewrite, [workload("step", y="f32", n=("i64", 1))])
    commands = [launch(step.symbol, Y, u64(n)) for n in (2**62, 5)]
    done = reached.run(step.image, *commands, library=step.library)
    assert done.kernels == ["author", "swift"]
    assert done.counts[0]["reason"] == "an argument of the rewrite has no value"
    memory = [key for one in done.log for key in one if key in ("allocated", "freed")]
    assert memory == ["allocated", "freed"] * 2


def test_a_structure_is_handed_on_whole(reached: Reach, tmp_path: Path) -> None:
    source = """
    struct Rows { float* data; short width; char kind; };
    __global__ void fill(Rows rows, int n) { rows.data[n] = rows.width; }
    """
    rewrite = """
    // @requires rows.kind == 7 && rows.width > 0
    // @launch whole grid=(rows.width) block=(blockDim.x) args=(n * 2, rows)
    __global__ void whole(int n, Rows rows) { rows.data[n / 2] = rows.width; }
    """
    structure = bytes.fromhex(u64(0x1000) + "0300" + "07" + "0000000000")
    width = Field(path="width", element="i16", at_bytes=8)
    kind = Field(path="kind", element="i8", at_bytes=10)
    rows = OpaqueArgument(name="rows", raw_hex=structure.hex(), fields=(width, kind))
    captured = workload("fill", rows=rows, n=("i32", 8))
    fill = made(tmp_path, source, rewrite, [captured])
    given = structure.hex()
    for how in ("parameters", "extra"):
        done = reached.run(
            fill.image, launch(fill.symbol, given, i32(8), how=how), library=fill.library
        )
        assert done.kernels == ["whole"]
        assert done.launches[0]["parameters"] == [i32(16), given]
        assert done.launches[0]["grid"][0] == 3
    other = given.replace("030007", "030008")
    done = reached.run(fill.image, launch(fill.symbol, other, i32(8)), library=fill.library)
    assert done.kernels == ["author"]
    assert done.counts[0]["reason"].startswith("@requires rows.kind == 7")


INSTANCES = """
template <typename T, int W> __global__ void copy(T* y, const T* x, int n) { y[n] = x[n] * W; }
template __global__ void copy<float, 32>(float*, const float*, int);
template __global__ void copy<double, 32>(double*, const double*, int);
template __global__ void copy<float, 64>(float*, const float*, int);
"""
FOR_ANY_TYPE = """
// @requires n % W == 0
// @launch wide<T, W / 2> grid=(n / W) block=(sizeof(T)) args=(y, x, n)
template <typename U, int V> __global__ void wide(U* y, const U* x, int n) { y[n] = x[n] * V * 2; }
"""


def test_each_instance_that_the_rewrite_serves_and_no_other(reached: Reach, tmp_path: Path) -> None:
    captured = [
        workload("copy<float, 32>", y="f32", x="f32", n=("i32", 64)),
        workload("copy<double, 32>", y="f64", x="f64", n=("i32", 64)),
    ]
    copy = made(tmp_path, INSTANCES, FOR_ANY_TYPE, captured)
    float32, double32 = (one.symbol for one in copy.winner.instances)
    float64 = float32.replace("Li32E", "Li64E")
    commands = [launch(s, Y, X, i32(64)) for s in (float32, double32, float64)]
    done = reached.run(copy.image, *commands, library=copy.library)
    assert [one["block"][0] for one in done.launches] == [4, 8, 64]
    assert done.launches[2]["launch"] == float64
    assert [(c["kernel"], c["rewrite"]) for c in done.counts] == [
        ("copy<float, 32>", 1), ("copy<double, 32>", 1),
    ]  # fmt: skip


def test_a_kernel_in_an_anonymous_namespace_is_found_whatever_its_file(
    reached: Reach, tmp_path: Path
) -> None:
    source = """
    namespace { __global__ void hidden(float* y, int n) { y[n] = 1; }
                __global__ void hides(float* y, int n) { y[n] = 2; } }
    void* use() { return (char*)(void*)hidden + (long)(void*)hides; }
    """
    rewrite = """
    // @launch swift grid=(1) block=(1) args=(y, n)
    __global__ void swift(float* y, int n) { y[n] = 1; }
    """
    captured = [workload("hidden", y="f32", n=("i32", 1))]
    hidden = made(tmp_path, source, rewrite, captured)
    (tmp_path / "elsewhere.cu").write_text(source)
    image = tmp_path / "elsewhere.cubin"
    command = [str(require_nvcc()), "-w", "-cubin", "-arch=sm_90", "-o", str(image), "elsewhere.cu"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    names = subprocess.run(
        ["nm", image], capture_output=True, text=True, check=True, timeout=20
    ).stdout.split()
    ours = next(n for n in names if "6hiddenEPfi" in n and n.startswith("_Z"))
    other = next(n for n in names if "5hidesEPfi" in n and n.startswith("_Z"))
    assert ours != hidden.symbol
    commands = [launch(ours, Y, i32(1)), launch(other, Y, i32(1))]
    done = reached.run(image, *commands, library=hidden.library)
    assert done.kernels[0] == "swift"
    assert done.launches[1]["launch"] == other


def test_another_kernel_of_the_same_c_name_is_left_alone(reached: Reach, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void add(float* y, int n) { y[n] += 1; }'
    rewrite = """
    // @launch swift grid=(1) block=(1) args=(y, n)
    __global__ void swift(float* y, int n) { y[n] += 1; }
    """
    add = made(tmp_path, source, rewrite, [workload("add", y="f32", n=("i32", 1))])
    mine = reached.run(add.image, launch("add", Y, i32(1)), library=add.library)
    assert mine.kernels == ["swift"]
    for number, (parameters, kinds, values) in enumerate(
        (
            ("float* y, long long n", {"n": ("i64", 1)}, [u64(1)]),
            ("float* y", {}, []),
            ("float* y, int n, int k", {"n": ("i32", 1), "k": ("i32", 1)}, [i32(1), i32(2)]),
        )
    ):
        program = program_of(f'extern "C" __global__ void add({parameters}) {{ *y += 2; }}')
        image = tmp_path / f"other{number}.cubin"
        captured = [workload("add", y="f32", **kinds)]  # type: ignore[arg-type]
        image.write_bytes(authors_image(program, captured).read_bytes())
        done = reached.run(image, launch("add", Y, *values), library=add.library)
        assert done.kernels == ["author"]
        assert done.counts[0]["reason"].startswith("it is another kernel of the same name")


def test_arithmetic_without_a_value_is_left_to_the_author(reached: Reach, tmp_path: Path) -> None:
    source = "__global__ void step(float* y, long long n, int k) { y[n] = k; }"
    rewrite = """
    // @requires n * n >= 0 && n / k >= 0
    // @launch swift grid=(1) block=(1) args=(y, n * 4, k)
    __global__ void swift(float* y, long long n, int k) { y[n / 4] = k; }
    """
    captured = [workload("step", y="f32", n=("i64", 1), k=("i32", 1))]
    step = made(tmp_path, source, rewrite, captured)
    cases = [(5, 1), (2**40, 1), (5, 0), (2**31, 3)]
    commands = [launch(step.symbol, Y, u64(n), i32(k)) for n, k in cases]
    done = reached.run(step.image, *commands, library=step.library)
    assert done.kernels == ["swift", "author", "author", "swift"]


BINDINGS = """
import ctypes, sys
from cuda.bindings import driver

def asked(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

asked(driver.cuInit(0))
asked(driver.cuCtxCreate(None, 0, asked(driver.cuDeviceGet(0))))
with open(sys.argv[1], "rb") as image:
    module = asked(driver.cuModuleLoadData(image.read()))
kernel = asked(driver.cuModuleGetFunction(module, sys.argv[2].encode()))
types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_float)
for n in (4096, 4095):
    values = ((0x10000, 0x20000, n, 0.5), types)
    asked(driver.cuLaunchKernel(kernel, 64, 1, 1, 64, 1, 1, 0, 0, values, 0))
"""


def test_nvidias_own_bindings_for_python(reached: Reach, scale: Made, tmp_path: Path) -> None:
    """And the example of docs/preload.md, in the same program."""
    pytest.importorskip("cuda.bindings", reason="the extra `cuda` is not installed")
    page = (Path(__file__).parents[2] / "docs" / "preload.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", BINDINGS + example, scale.image, scale.symbol],
        env={
            "LD_LIBRARY_PATH": str(reached.driver), "LD_PRELOAD": str(scale.library),
            "FAKE_CUDA_LOG": str(log),
        },
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    launched = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["launch"] for one in launched if "launch" in one] == [
        "_ZN17cudaops_candidate6fasterEP6float4PKS0_xd", scale.symbol,
    ]  # fmt: skip
    assert "'kernel': 'scale', 'rewrite': 1, 'author': 1, 'reason': '@requires n" in done.stdout


RUNTIME = """
#include <cstdio>
__global__ void scale(float* y, const float* x, int n, float a) { y[n] = a * x[n]; }
int main() {
    float* y = nullptr;
    cudaError_t problem = cudaMalloc(&y, 64);
    printf("%s\\n", cudaGetErrorString(problem));
    scale<<<1, 1>>>(y, y, 1, 2.0f);
    fprintf(stderr, "%s\\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return problem == cudaSuccess ? 0 : 3;
}
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of nvcc's with the static runtime."""
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "k.cu").write_text(RUNTIME)
    command = [str(require_nvcc()), "-arch=sm_90", "-cudart", "static", "-o", "k", "k.cu"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "k"


def ended(program: Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    return done.returncode, done.stdout, done.stderr


def test_a_static_program_without_a_gpu_ends_as_it_does_without_the_library(
    runtime: Path, scale: Made
) -> None:
    plain = ended(runtime)
    assert ended(runtime, LD_PRELOAD=str(scale.library)) == plain
    assert plain[0] == 3
    assert plain[1]


def test_nvidias_runtime_asks_for_its_launches_where_the_library_stands(
    runtime: Path, scale: Made, reached: Reach, tmp_path: Path
) -> None:
    """The double is too little of a driver for it, and it says so, with the library or without."""
    log = tmp_path / "log"
    double = {"LD_LIBRARY_PATH": str(reached.driver), "FAKE_CUDA_LOG": str(log)}
    plain = ended(runtime, **double)
    assert ended(runtime, LD_PRELOAD=str(scale.library), **double) == plain
    said = ended(runtime, LD_PRELOAD=str(scale.library), CUDAOPS_PRELOAD="report", **double)[2]
    # It has been through the library to the double.
    assert "cudaops: scale: 0 launches by the rewrite, 0 by the author's kernel\n" in said
    asked = {tuple(json.loads(line).values()) for line in log.read_text().splitlines()}
    launches = ("cuLaunchKernel", "cuLaunchKernelEx")
    assert {(name, flags) for name in launches for flags in (0, 2)} <= asked


NEXT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int puts(const char* text) {
    int (*next)(const char*) = dlsym(RTLD_NEXT, "puts");
    return printf("next: ") + next(text);
}
int cuLaunchKernel(void) { return 7; }
"""
DLSYM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int puts(const char*);
int main(void) {
    void* cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*own)(void) = dlsym(dlopen("libnext.so", RTLD_LAZY), "cuLaunchKernel");
    puts("here");
    printf("%d %d ", own(), dlsym(RTLD_DEFAULT, "no_such_name") == 0);
    printf("%s ", dlerror() == 0 ? "silent" : "said");
    printf("%d %d\\n", dlsym(cuda, "cuInit") != 0, dlsym(cuda, "cuNothing") != 0);
    return 0;
}
"""


def test_all_that_dlsym_is_asked_beside_launches_is_answered_as_ever(
    reached: Reach, scale: Made, tmp_path: Path
) -> None:
    """The real one goes by who calls it, where it is asked for the next library's."""
    for name, text, *flags in (
        ("libnext.so", NEXT, "-shared", "-fPIC"),
        ("main", DLSYM, "-L.", "-Wl,--no-as-needed", "-lnext"),
    ):
        (tmp_path / "text.c").write_text(text)
        subprocess.run(
            ["gcc", "-fno-builtin", "-o", name, "text.c", *flags, "-ldl"],
            cwd=tmp_path, check=True, timeout=60,
        )  # fmt: skip
    folders = {"LD_LIBRARY_PATH": f"{tmp_path}:{reached.driver}"}
    plain = ended(tmp_path / "main", **folders)
    assert plain == (0, "next: here\n7 1 said 1 0\n", "")
    assert ended(tmp_path / "main", **folders, LD_PRELOAD=str(scale.library)) == plain


def test_the_counts_as_far_as_there_is_room(reached: Reach, scale: Made) -> None:
    whole = '[{"kernel": "scale", "rewrite": 0, "author": 0, "reason": null}]'
    assert reached.run(scale.image, library=scale.library).printed == [whole]
    counts = ctypes.CDLL(str(scale.library)).cudaops_preload_counts
    counts.restype = ctypes.c_size_t
    assert counts(None, ctypes.c_size_t(0)) == len(whole)
    text = ctypes.create_string_buffer(b"x" * 20)
    assert counts(text, ctypes.c_size_t(10)) == len(whole)
    assert text.raw == whole[:9].encode() + b"\0" + b"x" * 10 + b"\0"
