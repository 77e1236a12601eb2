"""Register windows: loads that come again an iteration later, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.window import RegisterWindow
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]
RANDOM = np.random.default_rng(17)

COLUMN = """
__global__ void column(const float* a, const float* b, float* y, int n, int m) {
    int i = threadIdx.x;
    for (int k = 1; k < n - 1; k++) {
        // Up and down.
        y[k * m + i] = a[(k - 1) * m + i] - 2 * a[k * m + i] + a[(k + 1) * m + i] * b[k];
    }
}"""
NAMED = """
__global__ void named(const float* a, const float* b, float* y, int n, int m) {
    const int i = threadIdx.x, sheet = 32;
    for (int k = threadIdx.x % 2 + 1; k < n - 1; k += 1) {
        int at = k * sheet + i;
        float side = b[k + 1] * b[k];
        y[at] = a[at + sheet] + a[at] * side + a[at - sheet];
    }
}"""
STEPS = """
__global__ void steps(const float* a, const float* b, float* y, int n, int m) {
    int i = threadIdx.x;
    for (int k = 0; k < 8; k += 2) {
        float sum = a[i + k + 4] + a[i + k + 2];
        if (b[k] > 0) sum += a[i + k];
        y[i * 8 + k] = sum;
    }
}"""
BACK = """
__global__ void back(const float* a, const float* b, float* y, int n, int m) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = a[i];
    tile[i + 32] = a[i + 32];
    __syncthreads();
    for (int k = n - 1; k >= 0; k--)
        y[k * 32 + i] = tile[i + k] * tile[i + k + 1] + tile[k + 2 + i];
}"""


def grid(case: MAKE, source: str, n: int) -> Case:
    a = RANDOM.standard_normal(32 * max(n + 2, 8)).astype(np.float32)
    arguments = {"a": a, "b": a[: n + 40].copy(), "y": a * 0, "n": n, "m": 32}
    return case(source, arguments, grid=(1,), block=(32,))


@pytest.mark.parametrize("source", [COLUMN, NAMED, STEPS, BACK], ids=["up", "named", "by2", "back"])
@pytest.mark.parametrize("n", [0, 2, 3, 4, 13])
def test_to_the_bit(source: str, n: int, case: MAKE) -> None:
    made = grid(case, source, n)
    drafts = every_setting(RegisterWindow(), made)
    assert len(drafts) == 1
    for draft in drafts.values():
        made.same(draft)


def test_it_reads_as_written_by_hand(case: MAKE) -> None:
    text = grid(case, COLUMN, 13).applied(RegisterWindow()).text
    assert "    if (1 < n - 1) {\n        float a_behind = a[i];\n" in text
    assert "            float a_ahead = a[(k + 1) * m + i];\n            // Up and down.\n" in text
    assert "y[k * m + i] = a_behind - 2 * a_here + a_ahead * b[k];\n" in text
    assert (
        "            a_behind = a_here;\n            a_here = a_ahead;\n        }\n    }\n" in text
    )


def test_two_windows_and_names_of_the_body(case: MAKE) -> None:
    text = grid(case, NAMED, 13).applied(RegisterWindow()).text
    assert "float b_here = b[" in text
    assert "float a_ahead = a[at + sheet];" in text or "float a_ahead = a[at + 32];" in text
    assert text.index("int at = ") < text.index("float a_ahead")


LOOPS = {
    "written": "for (int k = 1; k < n; k++) y[k] = y[k - 1] + a[k];",
    "no neighbours": "for (int k = 1; k < n; k++) y[k] = a[k] + a[2 * k];",
    "half a step": "for (int k = 0; k < n; k += 2) y[k] = a[k] + a[k + 1];",
    "under a condition": "for (int k = 1; k < n; k++) if (b[k] > 3) y[k] = a[k - 1] + a[k];",
    "either": "for (int k = 1; k < n; k++) y[k] = b[k] > 3 ? a[k - 1] : a[k];",
    "threads meet": "for (int k = 1; k < n; k++) { y[k] = a[k - 1] + a[k]; __syncthreads(); }",
    "left early": "for (int k = 1; k < n; k++) { y[k] = a[k - 1] + a[k]; if (a[k] > 3) break; }",
    "skipped": "for (int k = 1; k < n; k++) { if (b[k] > 3) continue; y[k] = a[k - 1] + a[k]; }",
    "another step": "for (int k = 1; k < n; k += m) y[k] = a[k - 1] + a[k];",
    "the index moves": "int j = 1; for (int k = 1; k < n; k++) { y[k] = a[j - 1] + a[j]; j += 2; }",
    "a pointer moves": "for (int k = 1; k < n; k++) { y[k] = a[k - 1] + a[k]; a++; }",
    "looked up": "for (int k = 1; k < n; k++) y[k] = a[(int)b[k]] + a[(int)b[k] + 1];",
    "volatile": "volatile float* v = y; for (int k = 1; k < n; k++) v[k] = a[k - 1] + a[k];",
    "a variable from outside": "int k; for (k = 1; k < n; k++) y[k] = a[k - 1] + a[k]; y[0] = k;",
    "never run": "if (sizeof(int) > 8) for (int k = 1; k < n; k++) y[k] = a[k - 1] + a[k];",
    "atomics": "for (int k = 1; k < n; k++) atomicAdd(&y[k], y[k - 1] + y[k]);",
}


@pytest.mark.parametrize("what", LOOPS)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    source = f"""
    __global__ void k(const float* a, const float* b, float* y, int n, int m) {{
        {LOOPS[what]}
    }}"""
    ones = np.ones(16, np.float32)
    made = case(source, {"a": ones, "b": ones, "y": ones, "n": 4, "m": 1}, grid=(1,), block=(1,))
    assert RegisterWindow().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        RegisterWindow().apply(made.draft, {"loop": 0})


def test_buffers_that_may_be_one(case: MAKE) -> None:
    made = grid(case, COLUMN, 5)
    a, b, *rest = made.workload.arguments
    one = a.model_copy(update={"allocation": 2})
    other = made.workload.model_copy(update={"arguments": (one, b, *rest)})
    subject = type(made.subject)(made.program, made.kernel, (made.workload, other))
    with pytest.raises(NotUnderstood):
        RegisterWindow().apply(type(made.draft).of(subject), {"loop": 0})
