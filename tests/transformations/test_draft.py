"""Drafts: what they begin with, device functions of their own, and rewrites taken up again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.domain.program import SourceFile
from cudaops.program.hygiene import check_source
from cudaops.program.parse import parse_files
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.spaces import with_spaces
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case, expressions

HELPED = """
template <typename T>
__device__ T twice(T x) { return x + x; }  // the author's
static __device__ float half(float x) { return 0.5f * x; }
__device__ float half_again(float x) { return half(x) * 0.5f; }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(half_again(x[i])) + half(x[i]);
}"""


def made(case: Callable[..., Case]) -> Case:
    x = np.arange(50, dtype=np.float32)
    return case(HELPED, {"x": x, "y": x * 0, "n": 50}, grid=(2,), block=(32,), callee="k")


@pytest.mark.parametrize("name", ["twice", "half", "half_again"])
def test_a_function_of_the_author_is_copied_once(name: str, case: Callable[..., Case]) -> None:
    one = made(case)
    draft = one.draft.with_own_copy_of(name)
    assert f"{name}_fast(" in draft.text
    function = draft.form.function(f"{name}_fast")
    assert function is not None
    assert draft.with_own_copy_of(f"{name}_fast") is draft
    one.same(draft)
    again = draft.edited(function, draft.printer(function).printed(function.body))
    one.same(again)


OPERATORS = """
__device__ float3 operator-(float3 a, float3 b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
__device__ float length(float3 a, float3 b) { float3 d = a - b; return fabsf(d.x) + fabsf(d.y); }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = length(float3{x[i], 1, 0}, float3{1, x[i], 0});
}"""


def test_an_operator_stays_the_authors(case: Callable[..., Case]) -> None:
    x = np.arange(50, dtype=np.float32)
    one = case(OPERATORS, {"x": x, "y": x * 0, "n": 50}, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood, match="ambiguous"):
        one.draft.with_own_copy_of("operator-")
    one.same(one.draft.with_own_copy_of("length"))


def test_a_function_that_is_not_there(case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        made(case).draft.with_own_copy_of("third")


def test_conditions_that_every_launch_meets_are_left_out(case: Callable[..., Case]) -> None:
    always = ("8732 >= 1", "ceil_div(8732, 32) <= 65535", "1 == 1")
    needed = ("n >= 1", "1 == 2", "aligned(x, 16)", "5 % 0 == 0")
    conditions = expressions(*always, *needed, *needed)
    assert made(case).draft.requiring(*conditions).requires == expressions(*needed)


def test_a_rewrite_is_taken_up_again(case: Callable[..., Case]) -> None:
    one = made(case)
    first = one.applied(Specialise())
    again = Draft.from_rewrite(one.subject, first.rewrite())
    assert again.requires == first.requires
    assert again.launches == first.launches
    assert again.form.kernel.body == first.form.kernel.body
    one.same(again)


SPACES_BY_MACRO = """
#if defined(__CUDACC__)
#define BOTH __host__ __device__
#else
#define BOTH
#endif
#define KERNEL extern "C" __global__
#define INLINED __device__ __forceinline__
BOTH
static inline float twice(float x) { return x + x; }  // the author's
template <typename T>
BOTH T half(T x) { return x / 2; }
INLINED float third(float x) { return twice(x) + x; }
KERNEL void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]) + half(x[i]) * third(x[i]);
}"""


@pytest.mark.parametrize("name", ["twice", "half", "third"])
def test_execution_spaces_behind_a_macro_are_written_out(
    name: str, case: Callable[..., Case]
) -> None:
    x = np.arange(50, dtype=np.float32)
    one = case(SPACES_BY_MACRO, {"x": x, "y": x * 0, "n": 50}, grid=(2,), block=(32,))
    draft = one.draft.with_own_copy_of(name)
    assert "__device__" in draft.text.partition(f"{name}_fast(")[0]
    assert {"BOTH", "KERNEL", "INLINED"}.isdisjoint(draft.text.split())
    assert check_source(draft.rewrite().source) == ()
    one.same(draft)


def test_a_space_that_no_macro_of_the_program_stands_for_is_put_in_front() -> None:
    main = SourceFile(path="main.cu", text="int main() { return 0; }\n")
    parsed = parse_files("main", (main,))
    for text, found in (
        ("OURS inline float f(float x) { return x; }", "__device__ OURS inline float f"),
        ("template <typename T>\nOURS T f(T x) { return x; }", ">\n__device__ OURS T f"),
        ("__device__ float f(float x) { return x; }", "__device__ float f"),
        ("constexpr float f(float x) { return x; }", "constexpr float f"),
    ):
        spelled = with_spaces(parsed, text, "__device__")
        assert found in spelled
        assert spelled.count("__device__") == found.count("__device__")


CONDITIONS = """
#define WIDE 1
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef WIDE
    if (i < n) {
#  if WIDE > 1
        y[i] = 0;
#  else
        y[i] = x[i];  // this one
#  endif
    }
#else
    y[0] = 1;
#endif
#ifdef NOISY
    printf("no");
#endif
}"""


def test_of_conditions_the_compiled_branch_stays(case: Callable[..., Case]) -> None:
    x = np.arange(50, dtype=np.float32)
    one = case(CONDITIONS, {"x": x, "y": x * 0, "n": 50}, grid=(2,), block=(32,))
    text = one.draft.text
    assert "#" not in text
    assert "// this one" in text
    assert "printf" not in text
    assert "y[0]" not in text
    one.same(one.applied(Specialise()))


def test_conditions_on_the_compiler_stay(case: Callable[..., Case]) -> None:
    x = np.arange(50, dtype=np.float32)
    source = CONDITIONS.replace("#ifdef NOISY", "#if __CUDA_ARCH__ > 700")
    one = case(source, {"x": x, "y": x * 0, "n": 50}, grid=(2,), block=(32,))
    assert "#if __CUDA_ARCH__ > 700" in one.draft.text
    with pytest.raises(NotUnderstood):
        one.applied(Specialise())


KINDS = """
#define CHECKED 0
enum class Kind { PLAIN, SHARED };
template <typename T, Kind KIND, int WIDTH>
__global__ void k(const T* x, T* y, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T v = 0;
    if (KIND == Kind::SHARED) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        v = tile[threadIdx.x ^ 1];
    } else {
        T w = x[i];  // the thread's own
        v = w;
    }
    if (CHECKED && i >= n) printf("beyond");
    if (atomicAdd(&y[i], 1) > 7 && CHECKED) v = 0;
    if constexpr (WIDTH * 2 > 7) { T w = 2 * v; v = w + 1; }
    if (WIDTH - 3 < 0) v = 0;
    if (i < n) y[i] = v;
}
template __global__ void k<float, Kind::PLAIN, 4>(const float*, float*, int);
template __global__ void k<float, Kind::SHARED, 1>(const float*, float*, int);
"""


def of_kind(case: Callable[..., Case], arguments: str) -> Case:
    x = np.arange(64, dtype=np.float32)
    callee = f"k<float, {arguments}>"
    given = {"x": x, "y": x * 0, "n": 60}
    return case(KINDS, given, grid=(2,), block=(32,), callee=callee, smem=128)


def test_of_branches_the_one_that_constants_decide_on_stays(case: Callable[..., Case]) -> None:
    one = of_kind(case, "Kind::PLAIN, 4")
    text = one.draft.text
    for gone in ("SHARED)", "tile", "__syncthreads", "printf", "- 3"):
        assert gone not in text
    assert "// the thread's own" in text
    assert "v = w + 1;" in text
    assert "if (atomicAdd(&y[i], 1) > 7 && CHECKED)" in text
    one.same(one.draft)


def test_values_that_types_may_change_decide_nothing(case: Callable[..., Case]) -> None:
    one = of_kind(case, "Kind::SHARED, 1")
    text = one.draft.text
    assert "__syncthreads" in text
    assert "// the thread's own" not in text
    assert "if (WIDTH - 3 < 0)" in text
    one.same(one.draft)


def test_without_such_branches_the_text_is_the_authors(case: Callable[..., Case]) -> None:
    x = np.arange(50, dtype=np.float32)
    source = "__global__ void k(float* y,int n){if(n>0)y[threadIdx.x]=n ;}"
    one = case(source, {"y": x, "n": 50}, grid=(1,), block=(50,))
    assert one.draft.text.strip() == source.replace("k(", "k_fast(")
