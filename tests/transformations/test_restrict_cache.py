"""What the compiler is told of memory: where it is so, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.domain.workload import PointerArgument
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft, Subject
from cudaops.transformations.restrict_cache import RestrictCache
from tests.transformations.bench import Case, expressions

A = np.arange(64, dtype=np.float32)
SHIFT = """
__global__ void shift(const float* a, float *b, float * const c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) { b[i] = a[i + 1] + c[0]; }  // the next one
}"""


def shifted(case: Callable[..., Case], source: str = SHIFT, **more: object) -> Case:
    given = {"a": A, "b": A * 0, "c": A + 1, "n": 61, **more}
    return case(source, given, grid=(2,), block=(32,))


def sharing(made: Case, one: str, other: str) -> Draft:
    """As if two pointers led into one allocation."""
    at = {a.name: a for a in made.workload.arguments if isinstance(a, PointerArgument)}
    arguments = tuple(
        a.model_copy(update={"allocation": at[other].allocation}) if a.name == one else a
        for a in made.workload.arguments
    )
    workload = made.workload.model_copy(update={"arguments": arguments})
    return Draft.of(Subject(made.program, made.kernel, (workload,)))


def test_pointers_into_different_allocations(case: Callable[..., Case]) -> None:
    made = shifted(case)
    draft = made.applied(RestrictCache(), {"what": "restrict"})
    assert "const float* __restrict__ a, float * __restrict__ b" in draft.text
    assert "float * const __restrict__ c" in draft.text
    assert "// the next one" in draft.text
    assert set(draft.requires) == set(expressions("a != b", "b != c"))
    made.same(draft)


def test_pointers_into_one_allocation(case: Callable[..., Case]) -> None:
    made = shifted(case)
    read_alike = sharing(made, "a", "c")
    text = RestrictCache().apply(read_alike, {"what": "restrict"}).text
    assert text.count("__restrict__") == 3
    written = sharing(made, "a", "b")
    text = RestrictCache().apply(written, {"what": "restrict"}).text
    assert "const float* a, float *b, float * const __restrict__ c" in text


def test_streaming(case: Callable[..., Case]) -> None:
    made = shifted(case)
    draft = made.applied(RestrictCache(), {"what": "streaming"})
    assert "__stcs(&b[i], a[i + 1] + c[0]);" in draft.text
    made.same(draft)


def test_loads_where_pointers_share(case: Callable[..., Case]) -> None:
    both = """
    __global__ void k(const float* a, const float* b, float* c, int n) {
        int i = threadIdx.x;
        if (i < n) c[i] = a[(int)b[i]] + a[i];
    }"""
    made = shifted(case, both, n=30, b=np.flip(A).copy(), c=A * 0)
    # Nothing is left to tell where all can be declared not to alias.
    assert {"what": "read_only"} not in RestrictCache().settings(made.draft)
    # What may be written through `c` stays a plain load.
    assert {"what": "read_only"} not in RestrictCache().settings(sharing(made, "a", "c"))
    # Where one pointer is not followed, none is declared not to alias; what is read is known.
    header = both.replace("const float* a", "const float a[]")
    made = shifted(case, header, n=30, b=np.flip(A).copy(), c=A * 0)
    draft = made.applied(RestrictCache(), {"what": "read_only"})
    assert "a[(int)__ldg(&b[i])] + a[i]" in draft.text
    made.same(draft)


def kernel_of(body: str, a: str = "const float* a") -> str:
    return f"__global__ void k({a}, float* b, float* c, int n) {{ {body} }}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (kernel_of("float* p = *(float**)c; p[threadIdx.x] = a[0];"), "restrict"),
        (kernel_of("b[threadIdx.x] = a[threadIdx.x] + b[n];"), "streaming"),
        (kernel_of("b[2 * threadIdx.x] = a[threadIdx.x];"), "streaming"),
        (kernel_of("b[threadIdx.x] += a[threadIdx.x];"), "streaming"),
        (kernel_of("b[threadIdx.x] = a[threadIdx.x];", "const volatile float* a"), "read_only"),
        (kernel_of("b[0] = a[0];", "const float* __restrict__ a"), "read_only"),
    ],
)
def test_what_it_leaves(source: str, what: str, case: Callable[..., Case]) -> None:
    made = shifted(case, source)
    assert {"what": what} not in RestrictCache().settings(made.draft)
    with pytest.raises(NotUnderstood):
        RestrictCache().apply(made.draft, {"what": what})
