"""Lambdas as functions: which become one with what they captured, and which stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.transformations.lambdas import without_lambdas
from tests.transformations.bench import Case

COUNT = 85
X = np.random.default_rng(1).integers(-1000, 1000, COUNT + 9, dtype=np.int32)
BEFORE = """
#define STEP v += 2
struct Pair { int first, second; };
__device__ int twice(int a) { return 2 * a; }
__device__ void bump(int& a) { a += 3; }
template <typename F> __device__ int applied(F f, int a) { return f(a); }
__global__ void k(const int* __restrict__ x, int* y, long width, int n, float scale) {
    __shared__ int tile[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i;
    __syncthreads();
    if (i >= n) return;
    int s = 0;
    int own[3] = {i, 2, 3};
"""
END = "\n    y[i] = s + own[0] + tile[threadIdx.x];\n}"
TAKEN = {
    "by value": "auto at = [=](int a) { return x[i + a] * (int)width; }; s = at(1) - at(n % 3);",
    "by reference": "auto add = [&](int a) { s += a; }; add(4); add(x[i]); s *= 2; add(i);",
    "named": "auto f = [i, &s, x](int a) { s += x[i + a]; }; f(2); f(1);",
    "without a capture": "auto f = [](int a, int b) { return a * b; }; s = f(i, 7);",
    "without parameters": "auto f = [=] { return x[i] + i; }; s = f();",
    "a type behind it": "auto f = [=](int a) -> long { if (a > 0) return a; return width; }; "
    "s = f(x[i]);",
    "one in another": "auto at = [=](int a) { return x[i + a]; }; "
    "auto sum = [=](int m) { int t = 0; for (int j = 0; j < m; ++j) t += at(j); return t; }; "
    "s = sum(3) + at(1);",
    "in a loop": "for (int j = 0; j < 4; ++j) { auto f = [=](int a) { return a + j; }; "
    "s += f(i); }",
    "changed before it": "int v = 1; v += x[i]; auto f = [=](int a) { return a * v; }; s = f(3);",
    "changed elsewhere": "int v = 1; { auto f = [=](int a) { return a * v; }; s = f(3); } v = s;",
    "a pointer that it writes through": "int* to = y; auto put = [=](int a) { to[i] = a; }; put(5);"
    " s = y[i];",
    "several returns": "auto f = [=](int a) { switch (a & 1) { case 0: return width; default: "
    "return (long)n; } }; s = f(x[i]);",
    "for the device": "const auto f = [=] __device__ (int a) { return a + n; }; s = f(i);",
    "a structure": "Pair p = {i, n}; auto f = [&](int a) { p.first += a; }; f(2); s = p.first;",
    "an outer name of its own": "int j = 5; auto f = [=](int m) { int t = 0; "
    "for (int q = 0; q < m; ++q) t += q * i; return t; }; s = f(j);",
    "a member of that name": "Pair p = {1, 2}; auto f = [=](int first) { return p.first + first; };"
    " s = f(i);",
}
HELD = {
    "changed later": "int v = 1; auto f = [=](int a) { return a * v; }; v = 7; s = f(3);",
    "counted on": "int v = 1; auto f = [=](int a) { return a * v; }; v++; s = f(3);",
    "counted on in front": "int v = 1; auto f = [=](int a) { return a * v; }; --v; s = f(3);",
    "shifted": "int v = 1; auto f = [=](int a) { return a * v; }; v <<= 2; s = f(3);",
    "changed by a function": "int v = 1; auto f = [=](int a) { return a * v; }; bump(v); s = f(3);",
    "changed by an address": "int v = 1; int* p = &v; auto f = [=](int a) { return a * v; }; "
    "*p = 4; s = f(3);",
    "a member changed": "Pair p = {1, 2}; auto f = [=](int a) { return a * p.first; }; "
    "p.first = 9; s = f(3);",
    "changed by another lambda": "int v = 1; auto f = [=](int a) { return a * v; }; "
    "auto g = [&] { bump(v); }; g(); s = f(3);",
    "a function in it changes": "int v = 1; auto g = [&] { bump(v); }; g(); s = v;",
    "a reference in it": "int v = 1; auto g = [&](int a) { int& r = v; r += a; }; g(4); s = v;",
    "another of its name where it is called": "int v = 1; "
    "auto f = [=](int a) { return a * v; }; { int v = i; s = f(3) + v; }",
    "a parameter of its name": "int v = 3; auto f = [=](int a) { return a * v; }; "
    "auto g = [=](int v) { return f(1) + v; }; s = g(i);",
    "a pointer of its name": "int v = 3; auto f = [=](int a) { return a * v; }; "
    "{ Pair* v = nullptr; s = f(2) + (v != nullptr); }",
    "one of a list of its name": "int v = 3; auto f = [=](int a) { return a * v; }; "
    "{ int b = 2, v = b; s = f(2) + v; }",
    "a macro changes it": "int v = 1; auto f = [=](int a) { return a * v; }; STEP; s = f(3);",
    "a reference that changes it": "int v = 1; auto f = [&](int a) { return a * v; }; v = 5; "
    "s = f(3);",
}
LEFT = {
    "a state": "int v = 1; auto f = [=](int a) mutable { v += a; return v; }; s = f(1) + f(2);",
    "a value of its own": "auto f = [v = i * 2](int a) { return a + v; }; s = f(3);",
    "for any type": "auto f = [=](auto a) { return a + i; }; s = f(3);",
    "handed on": "auto f = [=](int a) { return a + i; }; s = applied(f, 3);",
    "copied": "auto f = [=](int a) { return a + i; }; auto g = f; s = g(3);",
    "an array of its own": "auto f = [=](int a) { return own[a]; }; s = f(1);",
    "the block's array": "auto f = [&](int a) { return tile[a]; }; s = f(1);",
    "called at once": "s = [=](int a) { return a + i; }(3);",
    "a variable of its name": "int v = 1; { int v = i; auto f = [=](int a) { return a * v; }; "
    "s = f(3); } s += v;",
    "a lambda of its name": "{ auto f = [=](int a) { return a + i; }; s = f(1); "
    "{ auto f = [=](int a) { return a - i; }; s += f(2); } }",
}


def made(case: Callable[..., Case], body: str) -> Case:
    given = {"x": X, "y": X[:COUNT] * 0, "width": 12, "n": COUNT, "scale": 0.5}
    return case(BEFORE + body + END, given, grid=(3,), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_the_result_is_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    draft = without_lambdas(one.draft)
    assert "](" not in draft.text
    assert "[=]" not in draft.text
    assert "_fast(" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", HELD)
def test_what_a_closure_held_is_kept(name: str, case: Callable[..., Case]) -> None:
    one = made(case, HELD[name])
    draft = without_lambdas(one.draft)
    assert "](" not in draft.text
    assert "_of_" in draft.text
    one.same(draft)


def test_a_function_of_its_name_behind_its_block(case: Callable[..., Case]) -> None:
    body = "{ auto twice = [=](int a) { return a + i; }; s = twice(1); } s += twice(i);"
    one = made(case, body)
    draft = without_lambdas(one.draft)
    assert "s += twice(i);" in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    assert without_lambdas(one.draft) is one.draft


def test_a_kernel_without_any(case: Callable[..., Case]) -> None:
    one = made(case, "s = twice(x[i]);")
    assert without_lambdas(one.draft) is one.draft


def test_types_are_the_authors(case: Callable[..., Case]) -> None:
    text = without_lambdas(made(case, TAKEN["by value"]).draft).text
    assert "(int a, const int* __restrict__ x, int i, long width)" in text
    assert "at_fast(1, x, i, width)" in text
