"""Device functions' bodies in place of their calls: what they may stand for, and what stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cudaops.domain.rewrite import Rewrite
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.geometry import Geometry
from cudaops.transformations.inline import Inline
from cudaops.transformations.search import Limits, Search, Timed
from cudaops.transformations.unroll import Unroll
from tests.transformations.bench import Case

ROWS, COLUMNS = 70, 24
HEAD = """
__global__ void k(const float* a, const float* w, float* y, int* z, int rows, int columns, float c)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
"""
SUM = """
__device__ float sum_of(const float* p, int n)
{
    float sum = 0.0f;  // theirs
    for (int k = 0; k < n; ++k) sum += p[k];
    return sum;
}
"""
ADD = """
__device__ void add(const float* p, int n, float& total, int& count)
{
    for (int k = 0; k < n; ++k) {
        total += p[k];
        if (p[k] > 1) ++count;
    }
}
"""

TAKEN = {
    "an assigned value": """
SUM
=> y[row] = sum_of(a + row * columns, columns);""",
    "a declared value": """
SUM
=> float v = sum_of(a + row * columns, columns); y[row] = v;""",
    "one of several declared": """
SUM
=> float u = c, v = sum_of(&a[row * columns], columns), x = u + v; y[row] = x;""",
    "added to": """
SUM
=> y[row] += sum_of(a, row % columns);""",
    "within an expression": """
SUM
=> y[row] = c * w[row % columns] + (float)sum_of(a + row * columns, columns) / 4;""",
    "two in one expression": """
SUM
=> y[row] = sum_of(a, 3) - sum_of(a + row, columns) * c;""",
    "a condition": """
SUM
=> if (sum_of(a + row * columns, columns) > c) y[row] = 3; else y[row] = 4;""",
    "an else-if": """
SUM
=> if (row < 9) y[row] = 1; else if (sum_of(a + row, 5) > c) y[row] = 2;""",
    "in a loop": """
SUM
=> for (int k = 0; k < 3; k++) y[row] += sum_of(a + (row + k) * 4, columns - k);""",
    "names of the kernel": """
SUM
=> float sum = c; int n = 3, k = 2; sum += sum_of(a + k, n + k); y[row] = sum * n;""",
    "a value that nobody takes": """
ADD
SUM
=> sum_of(a, columns); y[row] = c;""",
    "references": """
ADD
=> float s = c; int m = 0; add(a + row * columns, columns, s, m); y[row] = s; z[row] = m;""",
    "references to elements": """
ADD
=> float s[2] = {c, 1}; int m = 0; for (int j = 0; j < 2;
    ++j) add(a + row, columns, s[j], z[row * 2 + j]); y[row] = s[0] * s[1]; z[row] += m;""",
    "a parameter that changes": """
__device__ int halves(int n, int by) { int t = 0; while (n > 0) { n /= by; t++; } return t;
    }
=> int n = row; z[row] = halves(n, 2) * 100 + n; z[row] += halves(row * 2.9, 3);""",
    "a pointer that moves": """
__device__ float sum_to(const float* p, const float* end) { float s = 0;
    while (p < end) s += *p++; return s; }
=> y[row] = sum_to(a + row, a + row + columns);""",
    "a value that changes behind the parameter": """
__device__ void grow(float by, float& s, int n) { for (int i = 0; i < n; ++i) s += by * s; }
=> float s = c; grow(s, s, 3); y[row] = s;""",
    "conversions": """
__device__ int whole(float x, short n, unsigned char m) { int t = 0; for (int i = 0; i < n;
    ++i) t += (int)x + m; return t / 2.5; }
=> z[row] = whole(row, row + 65530 * (row / 69), 250 + row % 9);""",
    "early returns": """
__device__ float first(const float* p, int n, float c) {
    if (n < 2) return 1;
    float s = 0;
    for (int k = 0; k < n; ++k) s += p[k];
    if (s > c) { s -= c; return s; } else { s *= 2; }
    s += 1;  // theirs
    return s;
}
=> y[row] = first(a + row * columns, row % columns, c);""",
    "early ends": """
__device__ void put(const float* p, float* out, int n, int at) {
    if (at % 3 == 0) return;
    if (at % 5 == 0) { out[at] = 5; return; }
    float s = 0;
    for (int k = 0; k < n; ++k) s += p[k];
    out[at] = s;
}
=> put(a + row * columns, y, columns, row); z[row] = 7;""",
    "a template's only instance": """
template <typename T, int N> __device__ T every(const T* p, int n) { T s = 0;
    for (int k = 0; k < n; k += N) { const T v = p[k] * T(N); s += v; } return s; }
=> y[row] = every<float, 2>(a + row * columns, columns);""",
    "a namespace": """
namespace theirs { __device__ float twice(float x) { return 2 * x; }
__device__ float sum(const float* p, int n) { float s = 0; for (int k = 0; k < n;
    ++k) s += twice(p[k]); return s; } }
=> y[row] = theirs::sum(a + row * columns, columns);""",
    "functions in functions": """
SUM
__device__ float both(const float* p, const float* q, int n) {
    return sum_of(p, n) - sum_of(q, n) + 1; }
=> y[row] = both(a + row * columns, w, columns);""",
    "a shared array": """
__device__ void fill(float* t, const float* p, int i) { t[i] = p[i]; __syncthreads(); }
__device__ float dot(const float* t, const float* p, int n) { float s = 0; for (int j = 0;
    j < n; ++j) s += t[j] * p[j]; return s; }
=> __shared__ float t[32]; fill(t, w, threadIdx.x); y[row] = dot(t, &t[2], 8);""",
    "a function's shared memory": """
__device__ float turned(const float* p, int n)
{
    __shared__ float t[32];
    t[threadIdx.x] = p[threadIdx.x % n];
    float v = t[threadIdx.x];
    for (int k = 0; k < n; ++k) v += p[k];
    return v;
}
=> for (int j = 0; j < 2; ++j) y[row] += turned(a + j, columns);""",
    "loads in a loop": """
__device__ float at(const float* p, int i) { return p[i] * 2; }
=> float s = 0; for (int k = 0; k < columns; ++k) s += at(a, row + k) * at(w, k);
    y[row] = s;""",
    "what the compiler chooses": """
template <int N> __device__ float part(const float* p, int n) { float s = 0;
    constexpr int K = N * sizeof(float);
    if constexpr (K == 4) { for (int i = 0; i < n; ++i) s += p[i]; }
    else if constexpr (K == 8) { for (int i = 0; i < n; ++i) s += 2 * p[i]; }
    else { return -1.0f; }
    return s; }
=> y[row] = part<2>(a + row, columns);""",
    "macros": """
#define EACH(i, n) for (int i = 0; i < n; ++i)
#define GAIN(v) s += (v)
__device__ float all(const float* p, int n) { float s = 0; const int m = sizeof(s) / 2;
    EACH(i, n) GAIN(p[i] * m); return s; }
=> float s = 1, i = 2; int m = 1; y[row] = all(a, columns) + s + i + m;""",
}

LEFT = {
    "shared memory of two calls": """
__device__ void put(float v, int n)
{
    __shared__ float t[32];
    for (int k = 0; k < n; ++k) t[threadIdx.x] = v;
}
=> put(1.0f, columns); put(2.0f, rows); y[row] = c;""",
    "itself called": """
__device__ int f(int n) { int t = 0; for (int i = 0; i < n; ++i) t += f(n / 2); return t; }
=> z[row] = f(3);""",
    "never to be inlined": """
__noinline__ SUM
=> y[row] = sum_of(a, columns);""",
    "a variable for good": """
__device__ int f(int n) { static const int by[2] = {1, 2}; int t = 0;
    for (int i = 0; i < n; ++i) t += by[i % 2]; return t; }
=> z[row] = f(3);""",
    "assembly": """
__device__ int f(int n) { int t = 0; for (int i = 0; i < n; ++i) asm volatile("" : "+r"(t));
    return t; }
=> z[row] = f(3);""",
    "two instances": """
template <typename T> __device__ T f(T n) { T t = 0; for (int i = 0; i < n; ++i) t += i;
    return t; }
=> z[row] = f(3) + (int)f(2.5f);""",
    "overloads": """
__device__ int f(int n) { int t = 0; for (int i = 0; i < n; ++i) t += i; return t; }
__device__ float f(float n) { return n; }
=> z[row] = f(3);""",
    "a return in a loop": """
__device__ int f(const float* p, int n) { for (int i = 0; i < n;
    ++i) if (p[i] > 2) return i; return -1; }
=> z[row] = f(a + row, columns);""",
    "a return on some ways": """
__device__ int f(int n, int m) { if (n > 2) { if (m > 3) return 1; n = 2; } else { n = 9;
    } for (int i = 0; i < m; ++i) n += i; return n; }
=> z[row] = f(row, 4);""",
    "a loop's condition": """
SUM
=> int j = 0; while (sum_of(a, j) < c && j < 9) ++j; z[row] = j;""",
    "a loop's beginning": """
SUM
=> for (float v = sum_of(a, 3); v < c; v += 1) y[row] += v;""",
    "a choice": """
SUM
=> y[row] = row > 3 ? sum_of(a, columns) : 1;""",
    "a second condition": """
SUM
=> if (row > 3 && sum_of(a, columns) > c) y[row] = 1;""",
    "between cases": """
SUM
=> switch (row) { case 0: y[row] = sum_of(a, columns); break; }""",
    "beside an effect": """
SUM
=> int i = 0; y[row] = (i += 2) + sum_of(a + row, columns) + i * 0;""",
    "beside what it changes": """
__device__ int next(int& n) { for (int i = 0; i < 2; ++i) n += i; return n; }
=> int n = row; z[row] = n * 2 + next(n);""",
    "arguments that depend on each other": """
__device__ int f(int n, int m) { int t = 0; for (int i = 0; i < n; ++i) t += m; return t; }
=> int i = 3; z[row] = f(i, i++ * 0 + 2);""",
    "a name that means another thing": """
__constant__ float scale = 2;
__device__ float f(int n) { float s = 0; for (int i = 0; i < n; ++i) s += scale; return s; }
=> float scale = 3; y[row] = f(3) * scale;""",
    "a type of its own": """
__device__ int f(int n) { struct P { int x; } p = {0}; for (int i = 0; i < n;
    ++i) p.x += i; return p.x; }
=> z[row] = f(3);""",
    "a volatile pointer": """
__device__ float f(volatile float* p, int n) { float s = 0; for (int i = 0; i < n; ++i) s += p[i];
    return s; }
=> z[row] = f(y, 3);""",
    "a default argument": """
__device__ int f(int n, int m = 2) { int t = 0; for (int i = 0; i < n; ++i) t += m;
    return t; }
=> z[row] = f(3);""",
    "nothing to gain by it": """
__device__ float f(float x) { return x * 2; }
=> y[row] = f(c);""",
    "nothing to gain by a load": """
__device__ float f(const float* p) { return *p * 2; }
=> y[row] = f(a + row);""",
    "a pointer to arrays": """
__device__ float f(float (*p)[4], int n) { float s = 0; for (int i = 0; i < n;
    ++i) s += p[i][1]; return s; }
=> float t[3][2][4] = {}; y[row] = f(t[1], 2);""",
    "preprocessor conditions": """
__device__ int f(int n) {
    int t = 0;
#ifdef __CUDA_ARCH__
    t = 0;
#endif
    for (int i = 0; i < n; ++i) t += i;
    return t;
}
=> z[row] = f(3);""",
}


def made(case: Callable[..., Case], text: str) -> Case:
    """Functions, and after `=>` what the kernel does with them."""
    functions, _, body = text.partition("=> ")
    functions = functions.replace("SUM", SUM.strip()).replace("ADD", ADD.strip())
    random = np.random.default_rng(7)
    a = random.integers(-3, 4, ROWS * COLUMNS + 400).astype(np.float32)
    arguments = {
        "a": a, "w": a[200:300].copy(), "y": np.ones(ROWS, np.float32),
        "z": np.zeros(2 * ROWS, np.int32), "rows": ROWS, "columns": COLUMNS, "c": 0.5,
    }  # fmt: skip
    rows = ROWS if "__sync" not in functions else 64  # a barrier is for all of a block
    source = f"{functions}{HEAD}    {body}\n}}"
    return case(source, arguments | {"rows": rows}, grid=(-(-rows // 32),), block=(32,), callee="k")


@pytest.mark.parametrize("name", TAKEN)
def test_the_kernel_computes_the_same(name: str, case: Callable[..., Case]) -> None:
    one = made(case, TAKEN[name])
    draft = one.applied(Inline())
    assert not {f.name for f in draft.form.functions} - {"twice"}  # all of it, and no copies
    assert "_fast(" not in draft.text.replace("k_fast(", "")
    assert Inline().settings(draft) == ()
    one.same(draft)


def test_no_copy_is_left_of_what_the_comments_name(case: Callable[..., Case]) -> None:
    text = "SUM\n=> /* sum_of a row */ y[row] = sum_of(a + row * columns, columns);  // by sum_of"
    one = made(case, text)
    own = one.draft.with_own_copy_of("sum_of")
    assert own.text.count("sum_of_fast(") == 2
    assert "/* sum_of a row */" in own.text
    draft = Inline().apply(own, {})
    assert "float sum_of" not in draft.text
    assert "sum_of_fast" not in draft.text
    one.same(draft)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_a_call(name: str, case: Callable[..., Case]) -> None:
    one = made(case, LEFT[name])
    with pytest.raises(NotUnderstood):
        Inline().apply(one.draft, {})


def test_comments_and_pragmas_come_along(case: Callable[..., Case]) -> None:
    function = SUM.replace("    for", "    // all of them\n    #pragma unroll 2\n    for")
    text = made(case, f"{function}=> y[row] = sum_of(a, columns);").applied(Inline()).text
    assert "float sum = 0.0f;  // theirs" in text
    assert text.index("// all of them") < text.index("#pragma unroll 2") < text.index("for (")


def test_one_that_cannot_stay_does_not_keep_the_others(case: Callable[..., Case]) -> None:
    one = made(case, SUM + LEFT["a return in a loop"] + " y[row] = sum_of(a, columns);")
    draft = one.applied(Inline())
    assert [f.name for f in draft.form.functions] == ["f"]
    one.same(draft)


# What a search makes of it


def searched(case: Callable[..., Case], *, gains: str) -> tuple[list[str], list[str]]:
    """Steps of the best, and everything that was timed. What has `gains` in it is twice as fast."""
    one = made(case, TAKEN["an assigned value"])

    def timed(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
        return [Timed(50.0 if gains in x.source else 100.0) for x in rewrites]

    offered = (Inline(), Cooperate(), Unroll(), Geometry())
    limits = Limits(100, time.monotonic() + 60)
    found = Search(timed, limits, offered=offered).run(one.draft, 100.0)
    return [x.name for x in found.best[0].draft.steps], [x.title for x in found.tried]


def test_a_search_goes_through_it_after_one_trial(case: Callable[..., Case]) -> None:
    best, tried = searched(case, gains="__shfl_xor_sync")
    assert best == ["inline", "cooperate"]
    assert tried[0] == "inline"
    assert not [title for title in tried[1:] if not title.startswith("inline > ")]


def test_it_goes_where_a_step_can_do_without(case: Callable[..., Case]) -> None:
    best, _ = searched(case, gains="block=(256)")
    assert best == ["geometry"]
