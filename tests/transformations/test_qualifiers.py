"""References, `volatile` and `__restrict__` as types say them: behind an alias, a macro or a
template, and not where a comment has the word."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulators import Accumulators
from cudaops.transformations.barriers import Barriers
from cudaops.transformations.base import Transformation
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.grid_stride import GridStride
from cudaops.transformations.inline import Inline
from cudaops.transformations.jam import Jam
from cudaops.transformations.registry import TRANSFORMATIONS
from cudaops.transformations.scalar_replace import ScalarReplace
from tests.transformations.bench import Case, drafts

REFERENCES = {
    "an alias": "using Ref = int&;\n__device__ void bump(Ref x) { x += 100; }",
    "a typedef": "typedef int& Ref;\n__device__ void bump(Ref x) { x += 100; }",
    "a macro": "#define REF(T) T &\n__device__ void bump(REF(int) x) { x += 100; }",
    "a template": "template <typename T> __device__ void change(T x) { x += 100; }\n"
    "__device__ void bump(int& x) { change<int&>(x); }",
    "a value": "__device__ void bump(int x /* a & b */) { x += 100; }",
}
KERNEL = """
__global__ void k(const float* a, float* y, int n) {
    int i = threadIdx.x;
    int j = i % n;
    bump(j);
    y[i] = a[(j + 1) % n];
}"""
METHODS = {
    "a method": "struct C { int at; __device__ void bump() { at += 100; } };",
    "a method of a value": "struct C { int at; __device__ int bump() { return at + 100; } };",
}
OBJECT = """
__global__ void k(const float* a, float* y, int n) {
    int i = threadIdx.x;
    C c;
    c.at = i % n;
    c.bump();
    y[i] = a[(c.at + 1) % n];
}"""
IN_AN_EXPRESSION = """
__global__ void k(const float* a, float* y, int n) {
    int i = threadIdx.x; int j = i % n;
    y[i] = first(j) * a[(j + 1) % n];
}"""
FIRST = {
    "a macro": "#define REF(T) T &\n__device__ float first(REF(int) x) { x += 100; return 2.0f; }",
    "a value": "__device__ float first(int x /* a & b */) { return x + 2.0f; }",
}


def every(made: Case) -> int:
    """How many of all transformations' drafts there are; each computes what the author's does."""
    count = 0
    for one in TRANSFORMATIONS:
        for draft in drafts(one, made):
            made.same(draft, tolerance=1e-6)
            count += 1
    return count


SOURCES = {
    **{f"{name} by reference": head + KERNEL for name, head in REFERENCES.items()},
    **{f"{name} of an object": head + OBJECT for name, head in METHODS.items()},
    **{f"{name} that gives": head + IN_AN_EXPRESSION for name, head in FIRST.items()},
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_change_is_seen_whatever_the_type_is_called(name: str, case: Callable[..., Case]) -> None:
    a = np.random.default_rng(7).standard_normal(256).astype(np.float32)
    arguments = {"a": a, "y": np.zeros(64, np.float32), "n": 7}
    every(case(SOURCES[name], arguments, grid=(1,), block=(64,), callee="k"))


VOLATILE = {
    "a typedef": ("typedef volatile float vfloat;", "vfloat* a"),
    "an alias": ("using vfloat = volatile float;", "vfloat* a"),
    "a macro": ("#define SEEN volatile", "SEEN float* a"),
    "a macro of all": ("#define POINTER(T) volatile T*", "POINTER(float) a"),
    "the word": ("", "volatile float* a"),
}
UPDATES = """
__global__ void k({parameter}, float* y, int n) {{
    for (int i = 0; i < n; ++i) {{ a[0] = a[0] + 1.0f; }}
    y[0] = a[0];
}}"""


@pytest.mark.parametrize("one", [ScalarReplace(), Accumulators(), Jam()], ids=lambda x: x.name)
@pytest.mark.parametrize("name", VOLATILE)
def test_volatile_stores_stay_whatever_the_type_is_called(
    name: str, one: Transformation, case: Callable[..., Case]
) -> None:
    head, parameter = VOLATILE[name]
    source = head + UPDATES.format(parameter=parameter)
    arguments = {"a": np.zeros(8, np.float32), "y": np.zeros(1, np.float32), "n": 7}
    assert not list(drafts(one, case(source, arguments, grid=(1,), block=(1,))))


def test_volatile_is_seen_in_a_conversion_and_in_what_a_loop_calls(
    case: Callable[..., Case],
) -> None:
    arguments = {"a": np.zeros(8, np.float32), "y": np.zeros(1, np.float32), "n": 7}
    for head, store in (
        ("typedef volatile float vfloat;", "vfloat* p = a; p[0] = p[0] + 1.0f; y[0] += 1.0f;"),
        ("typedef volatile float vfloat;", "*(vfloat*)a += 1.0f; y[0] += 1.0f;"),
        ("struct S { volatile float x; };", "S* p = (S*)a; p->x += 1.0f; y[0] += 1.0f;"),
        ("typedef volatile float vfloat; __device__ void add(vfloat& x) { x = x + 1.0f; }",
         "add(a[0]); y[0] += 1.0f;"),
    ):  # fmt: skip
        source = (
            f"{head}\n__global__ void k(float* a, float* y, int n) {{\n"
            f"    for (int i = 0; i < n; ++i) {{ {store} }}\n}}"
        )
        made = case(source, arguments, grid=(1,), block=(1,), callee="k")
        assert not list(drafts(ScalarReplace(), made)), source


def test_a_comment_makes_nothing_volatile(case: Callable[..., Case]) -> None:
    source = """
struct volatile_counter { float value; };
__global__ void k(const float* a, float* y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += a[i];  // plain, nothing volatile here
    y[0] = sum;
}"""
    arguments = {"a": np.ones(64, np.float32), "y": np.zeros(1, np.float32), "n": 61}
    made = case(source, arguments, grid=(1,), block=(1,))
    found = list(drafts(Accumulators(), made))
    assert found
    for draft in found:
        made.same(draft, tolerance=1e-6)


def test_volatile_shared_memory_behind_an_alias_keeps_its_barriers(
    case: Callable[..., Case],
) -> None:
    source = """
using Slot = {type};
__global__ void k(const float* a, float* y, int n) {{
    __shared__ Slot sm[64];
    sm[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = sm[threadIdx.x];  // its own, not volatile
}}"""
    arguments = {"a": np.ones(64, np.float32), "y": np.zeros(64, np.float32), "n": 64}
    for kind, is_offered in (("volatile float", False), ("float", True)):
        made = case(source.format(type=kind), arguments, grid=(1,), block=(64,))
        found = list(drafts(Barriers(), made))
        assert bool(found) == is_offered
        for draft in found:
            made.same(draft)


def test_threads_that_wait_behind_an_alias_are_not_merged(case: Callable[..., Case]) -> None:
    source = """
typedef volatile float vfloat;
__global__ void k(vfloat* a, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i];
}"""
    arguments = {"a": np.ones(256, np.float32), "y": np.zeros(256, np.float32), "n": 256}
    made = case(source, arguments, grid=(4,), block=(64,))
    for one in (Coarsen(), GridStride()):
        assert not list(drafts(one, made))


def test_a_function_with_a_volatile_type_is_not_inlined(case: Callable[..., Case]) -> None:
    source = """
typedef volatile float vfloat;
__device__ float twice(float x) { vfloat kept = x; return kept * 2.0f; }
__global__ void k(const float* a, float* y, int n) {
    int i = threadIdx.x;
    y[i] = twice(a[i]);
}"""
    arguments = {"a": np.ones(64, np.float32), "y": np.zeros(64, np.float32), "n": 64}
    made = case(source, arguments, grid=(1,), block=(64,), callee="k")
    with pytest.raises(NotUnderstood):
        Inline().apply(made.draft, {})


def test_parameters_tell_their_qualifiers(case: Callable[..., Case]) -> None:
    source = """
#define KEEP __restrict__
typedef volatile int vint;
using Row = const float* KEEP;
struct Flags { vint seen; };
__device__ int f(vint& x, int&& r, Flags* z, int w /* & volatile */) { return x + r + w; }
__global__ void k(Row a, float* y, int n) { vint v = 0; y[0] = a[0] + f(v, 1, nullptr, n); }
"""
    arguments = {"a": np.ones(1, np.float32), "y": np.zeros(1, np.float32), "n": 1}
    form = case(source, arguments, grid=(1,), block=(1,), callee="k").draft.form
    told = {
        p.name: (p.is_reference, p.is_volatile, p.is_restrict)
        for f in (*form.functions, form.kernel) for p in f.parameters if p.name != "n"
    }  # fmt: skip
    assert told == {
        "x": (True, True, False), "r": (True, False, False), "z": (False, True, False),
        "w": (False, False, False), "a": (False, False, True), "y": (False, False, False),
    }  # fmt: skip
