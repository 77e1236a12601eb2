"""Registers for elements that a loop re-reads: loaded and stored only where the author does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.scalar_replace import ScalarReplace
from cudaops.transformations.unroll import Unroll
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]
RANDOM = np.random.default_rng(7)

PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
    int row = blockIdx.x, column = threadIdx.x;
    // Nothing yet.
    c[row * blockDim.x + column] = 0;
    for (int k = 0; k < n; k++) {
        // Along the row.
        c[row * blockDim.x + column] += a[row * n + k] * b[k * blockDim.x + column];
    }
}"""
ADDED = """
__global__ void added(const float* a, float* c, float* d, int n) {
    float* mine = c + threadIdx.x;
    int k;
    for (k = threadIdx.x; k < n; k += 32) {
        *mine = *mine * 0.5f + a[k];
        d[k] = *mine;
    }
    d[n + threadIdx.x] = k;
}"""
PEAKS = """
__global__ void peaks(const int* a, int* most, int* where, int n) {
    int i = threadIdx.x;
    for (int k = i; k < n; k += 32) {
        if (a[k] > most[i]) {
            most[i] = a[k];
            where[i]++;
        }
    }
}"""
FIXED = """
struct Sums { float total; float square; };
__global__ void fixed(const float* a, const float* scale, Sums* sums, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = a[i];
    __syncthreads();
    for (int k = 0; k < 8; k++) {
        y[k * 32 + i] = a[k * 32 + i] * scale[0] + tile[n];
        sums[i].total += y[k * 32 + i];
        sums[i].square += y[k * 32 + i] * y[k * 32 + i];
    }
}"""


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_a_sum_in_memory(n: int, case: MAKE) -> None:
    made = case(
        PRODUCT,
        {"a": floats(3, max(n, 1)), "b": floats(max(n, 1), 16), "c": floats(3, 16), "n": n},
        grid=(3,), block=(16,),
    )  # fmt: skip
    draft = made.applied(ScalarReplace())
    made.same(draft)
    assert "    // Nothing yet.\n    float c_value = 0;\n    for (" in draft.text
    assert "        // Along the row.\n        c_value += a[row * n + k]" in draft.text
    assert "    c[row * blockDim.x + column] = c_value;\n}" in draft.text
    assert draft.text.count("c[row") == 1


@pytest.mark.parametrize("n", [0, 5, 31, 32, 100])
def test_a_loop_that_may_not_run(n: int, case: MAKE) -> None:
    made = case(
        ADDED, {"a": floats(max(n, 1)), "c": floats(32), "d": floats(n + 32), "n": n},
        grid=(1,), block=(32,),
    )  # fmt: skip
    draft = made.applied(ScalarReplace())
    made.same(draft)
    assert "    k = threadIdx.x;\n    if (k < n) {\n        float mine_value = *mine;" in draft.text


@pytest.mark.parametrize("n", [0, 1, 33, 500])
def test_what_is_written_under_a_condition_is_written_through(n: int, case: MAKE) -> None:
    a = RANDOM.integers(0, 99, max(n, 1)).astype(np.int32)
    zeros = np.zeros(32, np.int32)
    made = case(
        PEAKS, {"a": a, "most": zeros, "where": zeros.copy(), "n": n}, grid=(1,), block=(32,)
    )  # fmt: skip
    draft = made.applied(ScalarReplace())
    made.same(draft)
    assert "if ((int)threadIdx.x < n)" in draft.text or "if (i < n) {" in draft.text
    assert "most[i] = most_value = a[k];" in draft.text
    assert "where_value" not in draft.text, "it is touched under a condition alone"


def test_fields_shared_memory_and_what_never_changes(case: MAKE) -> None:
    made = case(
        FIXED, {"a": floats(256), "scale": floats(1), "sums": floats(64), "y": floats(256), "n": 5},
        grid=(1,), block=(32,),
    )  # fmt: skip
    draft = made.applied(ScalarReplace())
    made.same(draft)
    for name in ("scale_value", "tile_value", "sums_total", "sums_square"):
        assert f"float {name} = " in draft.text
    assert "if (" not in draft.text, "eight iterations run in any case"


def test_after_another_transformation(case: MAKE) -> None:
    made = case(
        PRODUCT, {"a": floats(3, 9), "b": floats(9, 16), "c": floats(3, 16), "n": 9},
        grid=(3,), block=(16,),
    )  # fmt: skip
    unrolled = made.applied(Unroll(), {"loop": 0, "factor": 4})
    draft = ScalarReplace().apply(unrolled, {"loop": 0})
    made.same(draft)
    assert "#pragma unroll 4\n    for (" in draft.text


LOOPS = {
    "moves": "for (int k = 0; k < n; k++) { y[k] += a[k]; b[k] = y[k]; }",
    "another element": "for (int k = 0; k < n; k++) { y[i] += a[k]; b[k] = y[k]; }",
    "another spelling": "for (int k = 0; k < n; k++) { y[i + n] += a[k]; b[k] = y[n + i]; }",
    "another pointer": "float* z = y + i; for (int k = 0; k < n; k++) { y[i] += a[k]; *z = 1; }",
    "read from memory": "for (int k = 0; k < n; k++) { y[(int)a[k]] += a[k]; b[k] = 1; }",
    "index moves": "for (int k = 0; k < n; k++) { y[i] += a[k]; i = (i + 1) % 4; }",
    "index through a pointer": "int* p = &i; for (int k = 0; k < n; k++) { y[i] += 1; *p = 2; }",
    "threads meet": "for (int k = 0; k < n; k++) { y[i] += a[k]; __syncthreads(); }",
    "atomics": "for (int k = 0; k < n; k++) { y[i] += a[k]; atomicAdd(&y[k], 1.0f); }",
    "atomics elsewhere": "atomicAdd(&y[3], 1.0f); for (int k = 0; k < n; k++) y[i] += a[k];",
    "under a condition": "for (int k = 0; k < n; k++) if (a[k] > 3) y[i] += a[k];",
    "returns": "for (int k = 0; k < n; k++) { y[i] += a[k]; if (a[k] > 3) return; }",
    "volatile": "volatile float* v = y; for (int k = 0; k < n; k++) v[i] += a[k];",
    "own array": "float t[4] = {}; for (int k = 0; k < n; k++) t[n % 4] += a[k]; y[i] = t[0];",
    "its address": "for (int k = 0; k < n; k++) { y[i] += a[k]; float* p = &y[i]; *p += 1; }",
    "nothing written": "float s = 0; for (int k = 0; k < n; k++) s += b[i]; y[i] = s;",
    "behind a break": "for (int k = 0; k < n; k++) { if (a[k] > 3) break; y[i] += a[k]; }",
    "either side": "for (int k = 0; k < n; k++) { b[k] = a[k] > 3 ? y[i] : 0; }",
    "an unknown call": 'for (int k = 0; k < n; k++) { y[i] += a[k]; printf("%d", k); }',
}


def kernel(body: str) -> str:
    return f"""
    __global__ void k(const float* a, float* b, float* y, int n) {{
        int i = threadIdx.x;
        {body}
    }}"""


@pytest.mark.parametrize("what", LOOPS)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    arguments = {"a": floats(8), "b": floats(8), "y": floats(8), "n": 4}
    made = case("#include <cstdio>\n" + kernel(LOOPS[what]), arguments, grid=(1,), block=(1,))
    assert ScalarReplace().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        ScalarReplace().apply(made.draft, {"loop": 0})


def test_buffers_that_may_be_one(case: MAKE) -> None:
    body = "for (int k = 0; k < n; k++) { y[i] += a[k]; b[k] = 1; }"
    arguments = {"a": floats(8), "b": floats(8), "y": floats(8), "n": 4}
    made = case(kernel(body), arguments, grid=(1,), block=(1,))
    assert len(every_setting(ScalarReplace(), made)) == 1
    a, _, y, _ = made.workload.arguments
    shared = tuple(
        x.model_copy(update={"allocation": y.allocation}) if x is a else x  # type: ignore[union-attr]
        for x in made.workload.arguments
    )
    one = made.workload.model_copy(update={"arguments": shared})
    subject = type(made.subject)(made.program, made.kernel, (made.workload, one))
    with pytest.raises(NotUnderstood):
        ScalarReplace().apply(type(made.draft).of(subject), {"loop": 0})
