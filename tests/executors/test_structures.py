"""Structures that hold device pointers: captured, run again, judged, on every executor there is
here; and what the types do not tell is refused with a line that says which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured
from cudaops.domain.judgement import Judgement, Policy
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.workload import OpaqueArgument, Workload
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program, parse_files
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.executors.cases import program
from tests.executors.cuda.gpu_programs import StandInPrograms, on_gpu

DATA = Path(__file__).parents[1] / "data"
ANY_SPEED = Policy(min_speedup=0.001, seed=11)


def fields(workload: Workload) -> dict[str, tuple[str, int, int]]:
    """Path to element, bytes in the structure and bytes in the allocation."""
    (structure,) = (a for a in workload.arguments if isinstance(a, OpaqueArgument))
    return {p.path: (p.element, p.at_bytes, p.offset_bytes) for p in structure.pointers}


FORWARD = {
    "layer.input.data": ("f32", 0, 0),
    "layer.weights": ("f32", 16, 0),
    "layer.partial[0]": ("f32", 24, 0),
    "layer.partial[1]": ("f32", 32, 2048),
}


def test_pointers_are_found_by_type(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    parsed = load_program(DATA / "programs" / "struct_pointers.cu")
    outcome = cpu_executor.capture(parsed, None, (), tmp_path, 60.0)
    assert isinstance(outcome, Captured)
    (workload,) = outcome.workloads
    assert workload.launches == 3
    assert fields(workload) == FORWARD
    assert [(a.element, a.role) for a in workload.allocations] == [
        ("f32", "in"), ("f32", "in"), ("f32", "inout"), ("i32", "inout"),
    ]  # fmt: skip
    (structure,) = (a for a in workload.arguments if isinstance(a, OpaqueArgument))
    words = np.frombuffer(bytes.fromhex(structure.raw_hex), np.uint64)
    assert words[[0, 2, 3, 4, 5]].tolist() == [0] * 5  # pointers, and the bias that is null
    assert words[6] == 0x10  # points nowhere, and is not null


def test_the_gpu_recorder_sees_the_same(platform: StandInPrograms, tmp_path: Path) -> None:
    parsed = load_program(DATA / "programs" / "struct_pointers.cu")
    outcome = on_gpu(platform, parsed).capture(None, tmp_path / "c")
    assert isinstance(outcome, Captured)
    (workload,) = outcome.workloads
    assert fields(workload) == FORWARD


@pytest.fixture
def platform(cpu_executor: CpuExecutor) -> StandInPrograms:
    return StandInPrograms(cpu_executor.cache)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    return open_workbench(
        load_program(DATA / "programs" / "struct_pointers.cu"), None, (),
        CpuExecutor("A10", kernels), ANY_SPEED, tmp_path_factory.mktemp("bench"),
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


def judged(bench: Workbench, old: str = "", new: str = "") -> Judgement:
    source = (DATA / "rewrites" / "struct_pointers.cu").read_text()
    assert old in source
    rewrite = make_rewrite(source.replace(old, new) if old else source, "test", "test", "test")
    return evaluate(bench, rewrite, ANY_SPEED.min_speedup).judged(ANY_SPEED)


def test_a_rewrite_of_such_a_kernel_is_judged(bench: Workbench) -> None:
    assert judged(bench).outcome in ("accepted", "provisional")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layer.scale * layer", "1.001f * layer.scale * layer"),
        ("layer.partial[part][row] =", "layer.partial[0][row] ="),
        ("(layer.bias ? layer.bias[row] : 0.0f)", "(layer.unused ? 1e-3f : 0.0f)"),
    ],
)
def test_a_wrong_one_is_refused(bench: Workbench, old: str, new: str) -> None:
    judgement = judged(bench, old, new)
    assert judgement.outcome == "rejected"
    assert "layer.partial" in judgement.reason


WRITE = "{ if (threadIdx.x < v.n) v.data[threadIdx.x] = 1; }"


@pytest.mark.parametrize(
    ("view", "set_up", "reason"),
    [
        (
            "union Any { float* data; long n; }; struct View { Any any; int n; float* data; };",
            "v.any.data = x; v.data = x; v.n = 8;",
            r"parameter v\.any is a union that holds a pointer",
        ),
        (
            "struct View { float* data; int n; unsigned long address; };",
            "v.data = x; v.n = 8; v.address = (unsigned long)x;",
            "parameter v holds a device address at byte 16, where its type has no pointer",
        ),
        (
            "struct View { float* data; int n; float** rows; };",
            "v.data = x; v.n = 8; cudaMalloc(&v.rows, 8);",
            r"parameter v\.rows is a table of pointers",
        ),
    ],
)
def test_what_the_type_does_not_tell_is_refused(
    cpu_executor: CpuExecutor, tmp_path: Path, view: str, set_up: str, reason: str
) -> None:
    kernels = f"{view}\n__global__ void fill(View v) {WRITE}\n"
    main = f"View v{{}}; float* x; cudaMalloc(&x, 128); {set_up} fill<<<1, 32>>>(v);"
    parsed = program(tmp_path, kernels, main)
    with pytest.raises(InputError, match=reason):
        cpu_executor.capture(parsed, None, (), tmp_path / "c", 30.0)


def test_pointers_in_the_base_of_a_template(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    kernels = """
    template <class T> struct Base { T* data; long pitch; };
    template <class T> struct View : Base<T> { T scale; };
    __global__ void fill(View<float> v) { v.data[threadIdx.x * v.pitch] = v.scale; }
    """
    main = "View<float> v; cudaMalloc(&v.data, 256); v.pitch = 2; v.scale = 3; fill<<<1, 32>>>(v);"
    outcome = cpu_executor.capture(program(tmp_path, kernels, main), None, (), tmp_path, 30.0)
    assert isinstance(outcome, Captured)
    (workload,) = outcome.workloads
    assert fields(workload) == {"v+0": ("opaque", 0, 0)}
    (structure,) = workload.arguments
    assert isinstance(structure, OpaqueArgument)
    assert structure.raw_hex[16:18] == "02"  # what is no address stays


def test_an_instance_in_a_template_is_told_by_what_it_is_given(
    cpu_executor: CpuExecutor, platform: StandInPrograms, tmp_path: Path
) -> None:
    kernels = """
    struct Up { float by; __device__ float of(float x) const { return x + by; } };
    struct Down { float by; __device__ float of(float x) const { return x - by; } };
    template <int N, class Step> __global__ void move(Step step, float* x) {
      if (threadIdx.x < N) x[threadIdx.x] = step.of(x[threadIdx.x]);
    }
    template <int N, class Step> void run(Step step, float* x) { move<N><<<1, 32>>>(step, x); }
    """
    main = """float* x; cudaMalloc(&x, 128); run<16>(Down{2}, x);
      if (argc > 9) run<16>(Up{1}, x), run<8>(Down{3}, x);"""
    parsed = program(tmp_path, kernels, main)
    for outcome in (
        cpu_executor.capture(parsed, None, (), tmp_path / "cpu", 30.0),
        on_gpu(platform, parsed).capture(None, tmp_path / "gpu"),
    ):
        assert isinstance(outcome, Captured)
        assert [w.callee for w in outcome.workloads] == ["move<16, Down>"]


def test_a_void_pointer_is_of_what_is_read_through_it_wherever_that_is(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    kernels = """
    struct Raw { void* to; const void* from; void* both; };
    __device__ int get(const void* p, int i) { return reinterpret_cast<const int*>(p)[i]; }
    __global__ void move(Raw r) {
      int i = threadIdx.x;
      ((float*)r.to)[i] = get(r.from, i) + get(r.both, i);
      ((short*)r.both)[i] = 1;
    }
    """
    main = """Raw r; cudaMalloc(&r.to, 128); void* x; cudaMalloc(&x, 128); cudaMemset(x, 0, 128);
      r.from = x; cudaMalloc(&r.both, 128); cudaMemset(r.both, 0, 128); move<<<1, 32>>>(r);"""
    outcome = cpu_executor.capture(program(tmp_path, kernels, main), None, (), tmp_path, 30.0)
    assert isinstance(outcome, Captured)
    elements = {path: element for path, (element, *_) in fields(outcome.workloads[0]).items()}
    assert elements == {"r.to": "f32", "r.from": "i32", "r.both": "opaque"}


BODIES = """
#include <cstdio>
#include <vector_types.h>
STRUCTURE
__global__ void move(const Body* from, Body* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += from[j].x;
    to[i] = from[i];
    to[i].x = from[i].x + sum;
}
int main() {
    const int n = 100;
    static Body host[n];
    for (int i = 0; i < n; ++i) host[i].x = 0.5f * i;
    Body *from, *to;
    cudaMalloc(&from, sizeof(host));
    cudaMalloc(&to, sizeof(host));
    cudaMemcpy(from, host, sizeof(host), cudaMemcpyHostToDevice);
    move<<<2, 64>>>(from, to, n);
    cudaMemcpy(host, to, sizeof(host), cudaMemcpyDeviceToHost);
    printf("%f\\n", host[1].x);
}
"""
HALVES = """
// @launch other grid=(gridDim.x) block=(blockDim.x) args=(from, to, n)
__global__ void other(const Body* from, Body* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f, second = 0.0f;
    for (int j = 0; j < n; j += 2) sum += from[j].x, second += j + 1 < n ? from[j + 1].x : 0.0f;
    sum += second;
    to[i] = from[i];
    to[i].x = from[i].x + sum;
}
"""
MOVED = """
// @launch other grid=(gridDim.x) block=(blockDim.x) args=(from, to, n)
// @launch last grid=(1) block=(1) args=(from + n - 1, to + n - 1, n)
__global__ void last(const Body* from, Body* to, int n) {
    float sum = 0.0f, second = 0.0f;
    for (int j = 0; j < n; j += 2) sum += from[-j].x, second += j + 1 < n ? from[-j - 1].x : 0.0f;
    sum += second;
    to[0] = from[0];
    to[0].x = from[0].x + sum;
}
""" + HALVES.partition("args=(from, to, n)")[2].replace("if (i >= n)", "if (i >= n - 1)")


def of_bodies(structure: str) -> Program:
    return parse_files(
        "bodies", (SourceFile(path="bodies.cu", text=BODIES.replace("STRUCTURE", structure)),)
    )


@pytest.mark.parametrize(
    ("structure", "element"),
    [
        ("struct Body { float x, y, z; };", "f32"),
        ("struct Body { float x; float3 y; float z[2][3]; };", "f32"),
        ("struct V { float x, y; }; struct W { V v; }; struct Body { float x; W w[2]; float z; };",
         "f32"),
        ("struct Body { float x, z; int id; };", "opaque"),
        ("struct Body { float x, z; char pad; };", "opaque"),
        ("struct alignas(16) Body { float x, y, z; };", "opaque"),
        ("struct Body { union { float x; float y; }; float z; };", "opaque"),
        ("struct Base { int id; }; struct Body : Base { float x, z; };", "opaque"),
    ],
)  # fmt: skip
def test_what_a_structure_consists_of(
    structure: str, element: str, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """One kind of number alone is what a buffer of them is compared as and filled with."""
    parsed = of_bodies(structure)
    outcome = cpu_executor.capture(parsed, None, (), tmp_path, 60.0)
    assert isinstance(outcome, Captured)
    (workload,) = outcome.workloads
    assert [a.element for a in workload.allocations] == [element] * 2
    (pointer, *_) = (a for a in workload.arguments if a.kind == "pointer")
    assert pointer.structure_bytes == workload.allocations[0].size_bytes // 100


@pytest.mark.parametrize("text", [HALVES, MOVED], ids=["another order", "pointers moved"])
def test_sums_in_another_order_are_right_in_structures_too(
    text: str, kernels: Path, tmp_path: Path
) -> None:
    """`from + n - 1` moves by whole structures, in the plan as in C++."""
    bench = open_workbench(
        of_bodies("struct Body { float x, y, z; };"), None, (),
        CpuExecutor("A10", kernels), ANY_SPEED, tmp_path, sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    made = [text, text.replace("[i].x + sum", "[i].y + sum")]
    right, wrong = (
        evaluate(bench, make_rewrite(one, "test", "test", "test"), 0.001).judged(ANY_SPEED)
        for one in made
    )
    assert right.outcome in ("accepted", "provisional"), right.reason
    assert wrong.outcome == "rejected"
