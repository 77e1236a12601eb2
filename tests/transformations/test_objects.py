"""Objects of the program's own classes: their constructors are functions like others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Transformation
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.fold import Fold
from cudaops.transformations.geometry import Geometry
from cudaops.transformations.grid_stride import GridStride
from cudaops.transformations.strength_reduce import StrengthReduce
from cudaops.transformations.unroll import Unroll
from tests.transformations.bench import Case

DICE = """
class Dice {
    unsigned state;
    const unsigned low = 0xffff;  // the bits that are looked at
public:
    __device__ Dice(unsigned seed) : state(seed * 2654435761u) { if (state == 0) state = 1; }
    __device__ unsigned next() { state ^= state << 13; state ^= state >> 17; return state & low; }
    __device__ unsigned operator()(unsigned sides) { return next() % sides; }
};
struct Pair {
    float a, b;
    __device__ Pair() : a(1.0f), b(2.0f) {}
    __device__ Pair(float one) { a = b = one; }
    __device__ Pair plus(const Pair& other) const { Pair r; r.a = a + other.a; r.b = b + other.b;
                                                    return r; }
};
"""
THROWS = (
    DICE
    + """
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Dice dice(i + 7);
    float sum = x[i];
    for (int t = 0; t < 5; ++t) {
        Pair step;
        if (dice(6) > 2) step = step.plus(Pair(0.5f));
        sum += step.a * step.b;
    }
    y[i] = sum;
}"""
)
SUMS = (
    DICE
    + """
__global__ void k(const float* x, float* y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n / 40) return;
    float sum = 0.0f;
    for (int c = 0; c < 40; ++c) { const Pair p(x[row * 40 + c]); sum += p.a * 0.5f + p.b; }
    y[row] = sum;
}"""
)
DERIVED = """
struct Base { const float* p; __device__ Base(const float* p) : p(p) {} };
struct Row : public Base {
    int n;
    __device__ Row(const float* p, int n) : Base(p), n(n) {}
    __device__ float operator[](int i) const { return i < n ? p[i] : 0.0f; }
};
__device__ Row row_of(const float* x, int n) { return Row(x, n); }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * row_of(x, n)[i + 1];
}"""


def made(case: Callable[..., Case], source: str) -> Case:
    rng = np.random.default_rng(2)
    x = rng.random(640, dtype=np.float32)
    return case(source, {"x": x, "y": np.zeros(640, np.float32), "n": 610}, grid=(10,), block=(64,))


@pytest.mark.parametrize("source", [THROWS, SUMS, DERIVED], ids=["throws", "sums", "derived"])
@pytest.mark.parametrize("one", [Coarsen(), Geometry()], ids=lambda x: x.name)
def test_threads_with_objects_are_threads_like_others(
    one: Transformation, source: str, case: Callable[..., Case]
) -> None:
    subject = made(case, source)
    drafts = []
    for setting in one.settings(subject.draft):
        with suppress(NotUnderstood):  # another block size, or neighbours: not of every place
            drafts.append(one.apply(subject.draft, setting))
    assert drafts
    for draft in drafts[:3]:
        subject.same(draft)


def test_an_object_of_one_iteration_is_no_hindrance(case: Callable[..., Case]) -> None:
    subject = made(case, SUMS)
    for one in (Cooperate(), Unroll()):
        subject.same(subject.applied(one), tolerance=1e-6)


def test_an_object_that_iterations_change_is_left(case: Callable[..., Case]) -> None:
    subject = made(case, THROWS)
    assert Cooperate().settings(subject.draft) == ()
    with pytest.raises(NotUnderstood):
        Cooperate().apply(subject.draft, {"lanes": 32})


HIDDEN = {
    "a destructor": "struct V { float x; __device__ V(float x) : x(x) {} __device__ ~V() { } };",
    "a copy": "struct V { float x; __device__ V(float x) : x(x) {}"
    " __device__ V(const V& o) : x(o.x + 1) {} };",
    "an assignment": "struct V { float x; __device__ V(float x) : x(x) {}"
    " __device__ V& operator=(const V& o) { x = o.x + threadIdx.x; return *this; } };",
    "a member's constructor": "struct W { float y; __device__ W() { y = threadIdx.x; } };"
    "struct V { float x; W w; __device__ V(float x) : x(x) {} };",
    "a base's constructor": "struct W { float y; __device__ W() { y = threadIdx.x; } };"
    "struct V : W { float x; __device__ V(float x) : x(x) {} };",
    "a base's destructor": "struct W { float y; __device__ W(float y) : y(y) {}"
    " __device__ ~W() { } }; struct V : W { float x; __device__ V(float x) : W(x), x(x) {} };",
    "a virtual method": "struct V { float x; __device__ V(float x) : x(x) {}"
    " __device__ virtual float get() { return x; } };",
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("one", [Coarsen(), Geometry(), GridStride()], ids=lambda x: x.name)
def test_what_runs_unseen_is_left(
    one: Transformation, name: str, case: Callable[..., Case]
) -> None:
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x; V v(x[i]); y[i] = v.x;"
    source = f"{HIDDEN[name]}\n__global__ void k(const float* x, float* y, int n) {{ {body} }}"
    subject = made(case, source)
    with pytest.raises(NotUnderstood):
        one.settings(subject.draft)


WRITES = """
struct Row {
    float* p;
    __device__ Row(float* q, float v) : p(q) { p[0] = v; }
    __device__ float* at(int i) { return p + i; }
};
"""


@pytest.mark.parametrize(
    "body",
    [
        "Row row(y + i, x[i]); float seen = y[i]; y[i] = seen + row.p[0];",
        "Row row(y + i, 1.0f); row.p[0] += x[i]; float seen = y[i]; y[i] = 2 * seen;",
        "Row row(y + i, 1.0f); *row.p = x[i]; float seen = y[i] * 3; *row.at(0) = seen;",
    ],
)
@pytest.mark.parametrize("one", [Coarsen(), Fold(), Geometry()], ids=lambda x: x.name)
def test_what_an_object_points_to_is_memory(
    one: Transformation, body: str, case: Callable[..., Case]
) -> None:
    body = f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (threadIdx.x < n) {{ {body} }}"
    source = f"{WRITES}\n__global__ void k(const float* x, float* y, int n) {{ {body} }}"
    subject = made(case, source)
    with suppress(NotUnderstood):
        for setting in one.settings(subject.draft)[:2]:
            subject.same(one.apply(subject.draft, setting))


def test_an_author_s_function_of_a_known_name_is_looked_into(case: Callable[..., Case]) -> None:
    source = """
__device__ int make_room(int* at, float* y) { y[*at] = 1.0f; return ++*at; }
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int at = i;
    if (make_room(&at, y) < n) y[i] += x[i];
}"""
    subject = made(case, source)
    for setting in Coarsen().settings(subject.draft)[:1]:
        subject.same(Coarsen().apply(subject.draft, setting))


CALLED = """
struct Pair {
    float a, b;
    __device__ Pair(float a, float b) : a(a), b(b) {}
    __device__ Pair scaled(float by) const { return Pair(a * by, b * by); }
    __device__ float operator[](int i) const { return i ? b : a; }
    __device__ float operator()(float t) const { return a + t * b; }
};
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float w = n * 0.5f;
    Pair kept(1.0f, 2.0f);
    y[i] = BODY;
}"""


@pytest.mark.parametrize(
    "body",
    [
        "Pair(x[i] / w, 3.0f / w).scaled(2.0f).b",
        "kept.scaled(x[i] / w).scaled(1.0f / w).a",
        "Pair(x[i] / w, 3.0f / w)[i % 2]",
        "kept(x[i] / w) + kept(1.0f / w)",
    ],
)
def test_a_method_is_printed_as_one(body: str, case: Callable[..., Case]) -> None:
    """Where what it is given changes: never as a function of its object's name."""
    subject = made(case, CALLED.replace("BODY", body))
    try:
        draft = StrengthReduce().apply(subject.draft, {"what": "reciprocals"})
    except NotUnderstood:
        assert "scaled" not in body
    else:
        subject.same(draft, tolerance=1e-6)
