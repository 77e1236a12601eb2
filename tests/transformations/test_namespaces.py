"""Kernels of namespaces: copied out of them, every name means what it meant inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.draft import FILE
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case

BODY = """{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = VALUE;  // theirs
}"""
PLAIN = "__global__ void k(const float* x, float* y, int n) " + BODY
WEIGHT = "__device__ float weight(float v) { return v * 0.5f; }\n"
FAR = "__device__ float weight(float v) { return v * 100.0f; }\n"

TAKEN = {
    "nothing but itself": ("namespace a { KERNEL }", "a::k", "x[i]"),
    "a function that hides another": (
        FAR + "namespace a { " + WEIGHT + "KERNEL }", "a::k", "weight(x[i])"),
    "the innermost of three": (
        FAR + "namespace a { __device__ float weight(float v) { return -v; }\nnamespace b { "
        + WEIGHT + "KERNEL } }", "a::b::k", "weight(x[i]) + ::weight(1.0f) + a::weight(2.0f)"),
    "a qualified name from within": (
        "namespace a { namespace b { " + WEIGHT + "}\nnamespace c { KERNEL } }", "a::c::k",
        "b::weight(x[i])"),
    "its own namespace, named": (
        "namespace a { namespace b { " + WEIGHT + "KERNEL } }", "a::b::k", "b::weight(x[i])"),
    "overloads": (
        "__device__ float weight(int v) { return v + 0.25f; }\nnamespace a { " + WEIGHT
        + "__device__ float weight(double v) { return (float)v; }\nKERNEL }", "a::k",
        "weight(x[i]) + weight(2.0)"),
    "constants and values of an enumeration": (
        ("constexpr int two = 3;\nnamespace a { constexpr int two = 2;\n"
         "enum Mode { one = 1, four = 4 };\nKERNEL }"), "a::k", "x[i] * two + four"),
    "a structure, an alias and a typedef": (
        ("namespace a { struct Pair { float a, b; }; using Real = float; typedef int Whole;\n"
         "KERNEL }"), "a::k", "Pair{x[i], 2.0f}.b + (Real)(Whole)x[i]"),
    "a macro's words": (
        FAR + "#define HALF(v) weight(v)\nnamespace a { " + WEIGHT + "KERNEL }", "a::k",
        "HALF(x[i])"),
    "a local variable of a function's name": (
        "namespace a { " + WEIGHT + "__global__ void k(const float* x, float* y, int n) "
        + BODY.replace("if", "float weight = 3.0f; if") + " }", "a::k", "x[i] * weight"),
    "no name": ("namespace { " + WEIGHT + "KERNEL }", "k", "weight(x[i])"),
    "no name within one": (
        FAR + "namespace a { namespace { " + WEIGHT + "} namespace { KERNEL } }", "a::k",
        "weight(x[i])"),
    "a template's instance": (
        "namespace a { template <typename T> __device__ T half(T v) { return v * T(0.5); }\n"
        "template <typename T, int N> " + PLAIN.replace("float", "T") + " }", "a::k<float, 3>",
        "half<T>(x[i]) * N"),
}  # fmt: skip


def made(case: Callable[..., Case], source: str, callee: str, value: str) -> Case:
    x = np.random.default_rng(3).standard_normal(77).astype(np.float32)
    text = source.replace("KERNEL", PLAIN).replace("VALUE", value)
    arguments = {"x": x, "y": np.zeros_like(x), "n": 75}
    return case(text, arguments, grid=(3,), block=(32,), callee=callee)


@pytest.mark.parametrize("name", TAKEN)
def test_a_copy_computes_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, *TAKEN[name])
    assert "// theirs" in one.draft.text
    one.same(one.draft)
    one.same(one.applied(Specialise()))


REFUSED = {
    "an overload that comes later": (
        "namespace a { __device__ float weight(double v) { return (float)v; }\nKERNEL\n"
        + WEIGHT + "}", "a::k", "weight(x[i])"),
    "what another namespace lends": (
        FAR + "namespace b { " + WEIGHT.replace("weight", "lent") + "}\n"
        "namespace a { using namespace b; KERNEL }", "a::k", "lent(x[i])"),
    "a function that a macro makes": (
        FAR + "#define MAKE(name) __device__ float name(float v) { return v; }\n"
        "namespace a { MAKE(weight)\nKERNEL }", "a::k", "weight(x[i])"),
    "a variable that a macro makes": (
        ("#define MAKE(name, v) __device__ float name = v\nMAKE(level, 2.0f);\n"
         "namespace a { MAKE(level, 1.0f);\nKERNEL }"), "a::k", "x[i] + level"),
    "a relative name in a macro": (
        "namespace b { " + FAR + "}\n#define HALF(v) b::weight(v)\nnamespace a { namespace b { "
        + WEIGHT + "}\nKERNEL }", "a::k", "HALF(x[i])"),
    "shared memory of the namespace": (
        "namespace a { extern __shared__ float tile[]; KERNEL }", "a::k", "x[i] + tile[0] * 0"),
    "a second declarator": (
        "__device__ float more = 3;\nnamespace a { __device__ float less, more;\nKERNEL }",
        "a::k", "x[i] + more"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_would_mean_something_else(name: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        made(case, *REFUSED[name])


HELPED = (
    FAR
    + "namespace a { struct Pair { float a, b; };\n"
    + WEIGHT.replace("weight", "half")
    + "namespace b {\n"
    "__device__ float inner(float v) { Pair p = {half(v), 1.0f}; return p.a + p.b; }\n"
    "__device__ float outer(float v) { return inner(v) + b::inner(half(v)); }\nKERNEL } }"
)


@pytest.mark.parametrize("name", ["half", "inner", "outer"])
def test_a_function_of_a_namespace_is_copied(name: str, case: Callable[..., Case]) -> None:
    one = made(case, HELPED, "a::b::k", "outer(x[i]) + b::inner(x[i]) + a::half(half(x[i]))")
    draft = one.draft.with_own_copy_of(name)
    assert f"{name}_fast(" in draft.text
    function = draft.form.function(f"{name}_fast")
    assert function is not None
    one.same(draft)
    one.same(draft.edited(function, draft.printer(function).printed(function.body)))


def test_functions_of_a_namespace_are_copied_one_after_the_other(
    case: Callable[..., Case],
) -> None:
    one = made(case, HELPED, "a::b::k", "outer(x[i]) + b::inner(x[i])")
    draft = one.draft.with_own_copy_of("outer").with_own_copy_of("inner").with_own_copy_of("half")
    assert draft.form.functions
    assert all(f.where is not None and f.where.file == FILE for f in draft.form.functions)
    one.same(draft)


def test_one_of_two_functions_of_a_name_is_not_copied(case: Callable[..., Case]) -> None:
    one = made(case, FAR + "namespace a { " + WEIGHT + "KERNEL }", "a::k", "weight(x[i])")
    with pytest.raises(NotUnderstood):
        one.draft.with_own_copy_of("weight")


COLUMNS = """
namespace ops {
__device__ float weight(float v) { return v * 0.5f; }
template <typename T>
__global__ void columns(const T* in, T* out, int rows, int columns) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns) return;
    T sum = 0;
    for (int r = 0; r < rows; ++r) sum += weight(in[c * rows + r]);
    out[c] = sum;
}
}"""


def test_a_loop_in_a_namespace_is_shared(case: Callable[..., Case]) -> None:
    values = np.random.default_rng(4).standard_normal(37 * 70).astype(np.float32)
    arguments = {"in": values, "out": np.zeros(70, np.float32), "rows": 37, "columns": 70}
    one = case(COLUMNS, arguments, grid=(3,), block=(32,), callee="ops::columns<float>")
    draft = one.applied(Cooperate())
    assert "weight(in[" in draft.text
    one.same(draft, tolerance=1e-5)
