"""Independent partial sums: what a loop only adds up, and nothing that looks at it on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulators import Accumulators
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]
TOLERANCE = 1e-5
RANDOM = np.random.default_rng(5)

DOT = """
__global__ void dots(const float* a, const float* b, float* y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    // Along the row.
    for (int k = 0; k < n; k++)
        sum += a[row * n + k] * b[k];  // one product
    y[row] = sum;
}"""
STRIDED = """
__global__ void means(const double* a, double* y, int n) {
    double total = 1.0, square = 0.0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double value = a[blockIdx.x * n + i];
        total = total + value;
        square = fma(value, value, square);
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = total - square;
}"""
BACKWARDS = """
__global__ void extremes(const float* a, float* y, int n) {
    int row = threadIdx.x;
    float most = a[row], least = a[row], product = 1.0f;
    int seen = 0;
    for (int k = n - 1; k >= 1; k--) {
        float value = a[k * 32 + row];
        most = fmaxf(most, value);
        if (value < least) least = value;
        if (value > 0.5f) product *= value;
        seen++;
    }
    y[row] = most; y[32 + row] = least; y[64 + row] = product; y[96 + row] = seen;
}"""
VECTOR = """
__global__ void forces(const float4* bodies, float4* y, unsigned n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = bodies[i], force = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (unsigned j = 0; j < n; ++j) {
        float4 other = bodies[j];
        float dx = other.x - me.x, dy = other.y - me.y;
        force.x += other.w * dx;
        force.y -= other.w * dy;
    }
    y[i] = force;
}"""
WHILE = """
__global__ void walk(const float* a, float* y, int n) {
    float k = 0, sum = 0;
    int i = threadIdx.x;
    while (i < n) {
        sum += a[i];
        i += 32;
    }
    for (int k = 0; k < 6; k++) sum += a[k];
    y[threadIdx.x] = sum + i + k;
}"""


def dots(case: MAKE, n: int) -> Case:
    a = RANDOM.standard_normal((32, n)).astype(np.float32)
    b = RANDOM.standard_normal(max(n, 1)).astype(np.float32)
    a = a if n else np.zeros(1, np.float32)
    y = np.zeros(32, np.float32)
    return case(DOT, {"a": a, "b": b, "y": y, "n": n}, grid=(2,), block=(16,))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 37])
def test_sums_of_any_length(n: int, case: MAKE) -> None:
    made = dots(case, n)
    for draft in every_setting(Accumulators(), made).values():
        made.same(draft, tolerance=TOLERANCE)


def test_it_reads_as_written_by_hand(case: MAKE) -> None:
    draft = dots(case, 37).applied(Accumulators(), {"loop": 0, "factor": 4})
    assert "    float sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;\n    int k = 0;\n" in draft.text
    assert "for (; k + 3 < n; k += 4) {\n        sum += a[row * n + k] * b[k];" in draft.text
    assert "    sum = sum + sum1 + (sum2 + sum3);\n" in draft.text
    assert draft.text.count("// Along the row.") == draft.text.count("// one product") == 1


def test_sizes_that_count_past_the_type_get_the_authors_kernel(case: MAKE) -> None:
    made = dots(case, 7)
    rewrite = made.applied(Accumulators()).rewrite()
    huge = [
        a.model_copy(update={"value": 2**31 - 2}) if a.name == "n" else a
        for a in made.workload.arguments
    ]
    other = made.workload.model_copy(update={"arguments": tuple(huge)})
    assert not resolve(rewrite, made.kernel, other).applicable


@pytest.mark.parametrize("n", [1, 16, 61, 200])
def test_strides_of_a_block(n: int, case: MAKE) -> None:
    a = RANDOM.standard_normal((3, n))
    made = case(STRIDED, {"a": a, "y": np.zeros(48), "n": n}, grid=(3,), block=(16,))
    for draft in every_setting(Accumulators(), made).values():
        assert "(int)blockDim.x" in draft.text
        made.same(draft, tolerance=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_extremes_products_and_counts_backwards(n: int, case: MAKE) -> None:
    a = RANDOM.standard_normal((n, 32)).astype(np.float32)
    a[n // 2, 3], a[0, 4], a[n - 1, 5] = np.nan, np.nan, np.inf
    made = case(BACKWARDS, {"a": a, "y": np.zeros(128, np.float32), "n": n}, grid=(1,), block=(32,))
    expected = made.outputs(None)["y"]
    for draft in every_setting(Accumulators(), made).values():
        np.testing.assert_allclose(made.outputs(draft.rewrite())["y"], expected, rtol=TOLERANCE)
        assert "seen1" not in draft.text, "an integer's order costs nothing"


@pytest.mark.parametrize("n", [0, 3, 40])
def test_fields_of_a_vector(n: int, case: MAKE) -> None:
    bodies = RANDOM.standard_normal((64, 4)).astype(np.float32)
    made = case(VECTOR, {"bodies": bodies, "y": bodies * 0, "n": n}, grid=(2,), block=(32,))
    for draft in every_setting(Accumulators(), made).values():
        assert "float force_x1 = 0.0f" in draft.text
        made.same(draft, tolerance=TOLERANCE)


@pytest.mark.parametrize("n", [0, 31, 32, 300])
def test_while_loops_and_names_used_twice(n: int, case: MAKE) -> None:
    a = RANDOM.standard_normal(max(n, 32)).astype(np.float32)
    made = case(WHILE, {"a": a, "y": np.zeros(32, np.float32), "n": n}, grid=(1,), block=(32,))
    drafts = every_setting(Accumulators(), made)
    assert len(drafts) >= 3
    for draft in drafts.values():
        made.same(draft, tolerance=TOLERANCE)


def test_a_whole_number_of_strides_needs_no_rest(case: MAKE) -> None:
    text = DOT.replace("k < n", "k < 24")
    a = RANDOM.standard_normal((32, 24)).astype(np.float32)
    arguments = {"a": a, "b": a[0].copy(), "y": np.zeros(32, np.float32), "n": 24}
    made = case(text, arguments, grid=(2,), block=(16,))
    draft = made.applied(Accumulators(), {"loop": 0, "factor": 8})
    assert draft.text.count("for (") == 1
    assert draft.requires == ()
    made.same(draft, tolerance=TOLERANCE)


LOOPS = {
    "read on the way": "for (int k = 0; k < n; k++) { s += a[k]; y[k] = s; }",
    "left by its value": "for (int k = 0; k < n; k++) { s += a[k]; if (s > 3) break; }",
    "an iteration cut short": "for (int k = 0; k < n; k++) { if (a[k] < 0) continue; s += a[k]; }",
    "two operations": "for (int k = 0; k < n; k++) { s += a[k]; s *= a[k + 1]; }",
    "a recurrence": "for (int k = 0; k < n; k++) s = s * 0.5f + a[k];",
    "taken off, not added": "for (int k = 0; k < n; k++) s = a[k] - s;",
    "division": "for (int k = 0; k < n; k++) s /= a[k];",
    "the variable moved": "for (int k = 0; k < n; k++) { s += a[k]; k += a[k] > 0; }",
    "the bound moved": "for (int k = 0; k < n; k++) { s += a[k]; if (a[k] > 0) n--; }",
    "the bound in written memory": "for (int k = 0; k < y[1]; k++) { s += a[k]; y[k] = 1; }",
    "a bound that is missed": "for (int k = 0; k != n; k += 2) s += a[k];",
    "the other way": "for (int k = n; k < 9; k--) s += a[k];",
    "threads that meet": "for (int k = 0; k < n; k++) { s += a[k]; __syncthreads(); }",
    "other lanes": "for (int k = 0; k < n; k++) s += __shfl_xor_sync(~0u, a[k], 1);",
    "its address": "float* p = &s; for (int k = 0; k < n; k++) { s += a[k]; *p = 1; }",
    "another name": "float& p = s; for (int k = 0; k < n; k++) { s += a[k]; p = 1; }",
    "volatile": "volatile const float* v = a; for (int k = 0; k < n; k++) s += v[k];",
    "integers": "int t = 0; for (int k = 0; k < n; k++) t += (int)a[k]; s = t;",
    "each its own": "for (int k = 0; k < n; k++) { float t = 0; t += a[k]; y[k] = t; }",
    "sums in memory": "for (int k = 0; k < n; k++) y[0] += a[k];",
    "unsigned and down": "for (unsigned k = n; k > 0; k--) s += a[k];",
    "signs that differ": "unsigned m = n; for (int k = -n; k < m; k++) s += a[k + n];",
    "a step of any sign": "for (int k = 0; k < 9; k += (int)a[0]) s += a[k];",
    "an outer loop": "for (int k = 0; k < n; k++) for (int j = 0; j < 3; j++) y[j] += s += a[k];",
    "a NaN wins or not": "for (int k = 0; k < n; k++) s = s > a[k] ? s : a[k];",
}


@pytest.mark.parametrize("what", LOOPS)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    source = f"""
    __global__ void k(const float* a, float* y, int n) {{
        float s = 0; {LOOPS[what]}
        y[threadIdx.x] = s;
    }}"""
    a = np.ones(64, np.float32)
    made = case(source, {"a": a, "y": a * 0, "n": 5}, grid=(1,), block=(1,))
    assert Accumulators().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Accumulators().apply(made.draft, {"loop": 0, "factor": 4})
