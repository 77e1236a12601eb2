"""What the `cpu` executor's checker allows and what it refuses, beside the common suite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Misbehaved
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import Case, array, ran, run, vector_case, went_wrong
from tests.executors.conformance import SCALE, SCALE_LAUNCH, rewrite

HALF = "#include <cuda_fp16.h>\n"
TYPES = """
struct Pair { double x, y; };
struct Four { float x, y, z, w; };
struct __attribute__((packed)) Packed { char tag; float x; };
"""


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return cpu_executor


@pytest.fixture
def scale(executor: CpuExecutor, tmp_path: Path) -> Case:
    return vector_case(executor, tmp_path, HALF + TYPES + SCALE, SCALE_LAUNCH)


def checked(executor: CpuExecutor, case: Case, body: str) -> tuple[Misbehaved, ...]:
    return ran(run(executor, case, rewrite(body), check="full")).warnings


@pytest.mark.parametrize("type_name", ["__half", "__half2", "__nv_bfloat16", "float"])
def test_written_shared_memory_of_any_element_may_be_read(
    executor: CpuExecutor, tmp_path: Path, type_name: str
) -> None:
    head = "#include <cuda_bf16.h>\n" + HALF
    case = vector_case(executor, tmp_path, head + SCALE, SCALE_LAUNCH)
    body = (
        f"__shared__ {type_name} s[128], t[3][128];\n"
        f"  s[threadIdx.x] = {type_name}(); t[1][threadIdx.x] = s[threadIdx.x];\n"
        f"  __syncthreads();\n"
        f"  {type_name} v = t[1][127 - threadIdx.x];\n"
        "  if (i < n) b[i] = *(const char*)&v;"
    )
    assert checked(executor, case, body) == ()


def test_unwritten_shared_halves_are_named(executor: CpuExecutor, scale: Case) -> None:
    body = (
        "__shared__ __half s[128];\n  if (threadIdx.x < 127) s[threadIdx.x] = __half(1.0f);\n"
        "  __syncthreads();\n"
        "  if (i < n) b[i] = s[threadIdx.x];"
    )
    found = checked(executor, scale, body)
    assert [(w.what, str(w.location)) for w in found] == [("uninitialised_read", "candidate.cu:8")]


@pytest.mark.parametrize("index", [0, 15])
def test_unwritten_bytes_beside_halves_are_named(
    executor: CpuExecutor, scale: Case, index: int
) -> None:
    """The bytes that are passed over are g++'s own, not an array's ends."""
    body = (
        "__shared__ __half s[16];\n  __shared__ char t[16];\n"
        "  if (threadIdx.x < 16) s[threadIdx.x] = __half(1.0f);\n"
        "  if (n < 0) t[threadIdx.x % 16] = 1;\n  __syncthreads();\n"
        f"  if (i < n) b[i] = t[{index}] + (float)s[threadIdx.x % 16];"
    )
    found = checked(executor, scale, body)
    assert [(w.what, str(w.location)) for w in found] == [("uninitialised_read", "candidate.cu:10")]


@pytest.mark.parametrize(
    ("access", "bytes_", "where"),
    [
        ("b[0] = (*(const float4*)(a + 4 * i + 1)).y;", 16, "allocation a"),
        ("float4 v = *(const float4*)(a + 2); b[i] = v.x + v.w;", 16, "allocation a"),
        ("b[0] = ((const float2*)(a + 1))[i].y;", 8, "allocation a"),
        ("b[0] = *(const double*)(a + 3);", 8, "allocation a"),
        ("b[0] = *(const float*)((const char*)a + 2);", 4, "allocation a"),
        ("*(float4*)(b + 1) = make_float4(1, 2, 3, 4);", 16, "allocation b"),
        ("__shared__ float s[8]; *(float4*)(s + 2) = float4(); b[0] = s[3];", 16, "shared memory"),
        (
            "__shared__ __half s[8]; *(__half2*)(s + 1) = __half2(); b[0] = s[1];",
            4,
            "shared memory",
        ),
    ],
)
def test_a_misaligned_access_is_named_with_its_line(
    executor: CpuExecutor, scale: Case, access: str, bytes_: int, where: str
) -> None:
    body = f"if (i == 0) {{\n    {access}\n  }}"
    for check in ("memory", "full"):
        found = went_wrong(run(executor, scale, rewrite(body), check=check))
        assert found.what == "out_of_bounds"
        assert f"misaligned access of {bytes_} bytes" in found.message
        assert where in found.message
        assert str(found.location) == "candidate.cu:6"


@pytest.mark.parametrize(
    "access",
    [
        "float4 v = ((const float4*)a)[i]; ((float4*)b)[i] = v;",
        "b[i] = ((const float2*)a)[2 * i + 1].y;",
        "Pair p = *(const Pair*)(a + 2); b[i] = p.x + p.y;",
        "Four f = *(const Four*)(a + 1); *(Four*)(b + 3 + 4 * i) = f;",
        "b[i] = ((const float3*)a)[i].z;",
        "b[i] = ((const Packed*)a)[i].x;",
        "float v[4]; memcpy(v, a + i, 16); b[i] = v[3];",
        "float v[5]; *(float4*)(v + 1) = ((const float4*)a)[i]; b[i] = v[1 + i];",
        "const float4& later = *(const float4*)(a + 1); b[i] = (&later == nullptr);",
    ],
)
def test_what_a_gpu_takes_apart_is_let_through(
    executor: CpuExecutor, scale: Case, access: str
) -> None:
    assert checked(executor, scale, f"if (i < 4) {{\n    {access}\n  }}") == ()


FILE_SCOPE = """
extern __shared__ float tile[];
extern __shared__ __align__(16) unsigned char raw[];
namespace part {
extern __shared__ double wide[];
__device__ double first() { return wide[0]; }
}
#define AT(k) tile[k]
struct View { __device__ float& at(int k) const { return AT(k); } };
// @launch scaled grid=(ceil_div(n, 128)) block=(128) smem=512 args=(a, b, n, by)
__global__ void scaled(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  BODY
}
"""


def test_shared_memory_at_file_scope_has_every_type_it_is_declared_with(
    executor: CpuExecutor, scale: Case
) -> None:
    body = (
        "View view; float4* four = reinterpret_cast<float4*>(raw);\n"
        "  if (threadIdx.x < 32) four[threadIdx.x] = make_float4(by, by, by, by);\n"
        "  __syncthreads();\n"
        "  float mine = view.at(threadIdx.x);\n"
        "  __syncthreads();\n"
        "  if (threadIdx.x == 0) part::wide[0] = mine;\n"
        "  __syncthreads();\n"
        "  if (i < n) b[i] = a[i] * (float)part::first();"
    )
    outcome = ran(run(executor, scale, rewrite(body, FILE_SCOPE), check="full"))
    assert outcome.warnings == ()
    np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))


def test_shared_memory_at_file_scope_is_checked(executor: CpuExecutor, scale: Case) -> None:
    race = "AT(threadIdx.x) = by;\n  if (i < n) b[i] = tile[127 - threadIdx.x];"
    found = ran(run(executor, scale, rewrite(race, FILE_SCOPE), check="full")).warnings
    assert found
    assert "shared_race" in {w.what for w in found}
    for far in (1, 150, 500):
        beyond = f"tile[threadIdx.x + {far}] = by; __syncthreads(); if (i < n) b[i] = tile[0];"
        outcome = went_wrong(run(executor, scale, rewrite(beyond, FILE_SCOPE), check="full"))
        assert outcome.what == "out_of_bounds"
        assert str(outcome.location) == "candidate.cu:13"


SET_BY_ALL = "__shared__ int found; if (threadIdx.x == 0) found = 0; __syncthreads();\n  "


@pytest.mark.parametrize(
    ("body", "habit"),
    [
        ("if (a[i] > 3) found = 7;", True),
        ("if (a[i] > 3) found = (int)threadIdx.x / 128 + 7;", True),
        ("if (a[i] > 3) found = threadIdx.x;", False),
        ("if (a[i] > 3) found = 7; if (threadIdx.x == 5) found = 8;", False),
        ("if (threadIdx.x < 2) found = 7; if (threadIdx.x == 2) found = 8;", False),
        ("if (a[i] > 3) found = 7; if (found == 1) b[0] = 1;", False),
        ("if (a[i] > 3) found = 7; if (threadIdx.x == 9) atomicAdd(&found, 0);", False),
    ],
)  # fmt: skip
def test_threads_that_write_one_value_are_told_from_a_race(
    executor: CpuExecutor, scale: Case, body: str, habit: bool
) -> None:
    after = "\n  __syncthreads(); if (i < n) b[i] = found;"
    said = checked(executor, scale, SET_BY_ALL + body.replace("a[i]", "a[i % n]") + after)
    assert said
    assert {one.what for one in said} == {"shared_race"}
    same = "threads that write one value to one address of shared memory"
    assert ({one.habit for one in said} == {same}) == habit


def test_one_value_of_several_bytes_and_none_over_a_barrier(
    executor: CpuExecutor, scale: Case
) -> None:
    body = (
        "__shared__ float4 s; s = make_float4(1, 2, 3, by); __syncthreads();\n"
        "  if (threadIdx.x < 64) s.w = by; __syncthreads(); if (threadIdx.x == 5) s.w = 3;\n"
        "  __syncthreads(); if (i < n) b[i] = s.w;"
    )
    said = checked(executor, scale, body)
    assert said
    assert all("one value" in one.habit for one in said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("b[i] = (unsigned)n >> (i % 40);", "shifts 32 bits by 32"),
        ("b[i] = (long long)n << (i % 70);", "shifts 64 bits by 64"),
        ("b[i] = n >> (-1 - i % 1);", "shifts 32 bits by -1"),
        ("b[i] = (int)(a[i] * 1e9f);", "converts 2.5e+09 to 'int'"),
        ("b[i] = (unsigned)(a[i] - 1.0f);", "converts -1 to 'unsigned int'"),
        ("b[i] = ((unsigned)n >> (i & 31)) + ((1u << 31) >> 5) + (int)a[i];", ""),
        ("b[i] = __float2int_rz(a[i] * 1e9f) + __funnelshift_l(n, n, i);", ""),
    ],
)
def test_arithmetic_in_which_a_gpu_differs_is_named(
    executor: CpuExecutor, scale: Case, body: str, said: str
) -> None:
    found = checked(executor, scale, f"if (i < n) {{\n    {body}\n  }}")
    if not said:
        assert found == ()
        return
    assert [(w.what, str(w.location)) for w in found] == [
        ("undefined_arithmetic", "candidate.cu:6")
    ]
    assert said in found[0].message
    assert found[0].habit
