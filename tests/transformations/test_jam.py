"""Unroll and jam: outer iterations side by side, where none sees what another leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.jam import Jam
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]
RANDOM = np.random.default_rng(13)

NEAREST = """
__global__ void nearest(const float* points, const float* centres, int* best, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float least = 1e30f;
    int at = -1;
    // Every centre.
    for (int c = 0; c < n; c++) {
        float apart = 0;
        for (int f = 0; f < d; f++) {
            float by = points[f * 32 + i] - centres[c * d + f];
            apart += by * by;  // squared
        }
        if (apart < least) {
            least = apart;
            at = c;
        }
    }
    best[i] = at;
}"""
CHANNELS = """
__global__ void channels(const float* points, const float* centres, int* best, int n, int d) {
    int i = threadIdx.x, row, column;
    for (int c = n - 1; c >= 0; c--) {
        float sum = c, scale = 0.5f * c;
        for (row = 0; row < 3; row++)
            for (column = 0; column < d; column++) {
                if (points[column] > 0) sum += scale * points[(row * d + column) % 32 + i];
                sum -= centres[c * d + column];
            }
        atomicAdd(&best[(c + i) % 32], (int)sum);
        best[64 + i] += row + column;
    }
}"""
WRITTEN = """
__global__ void written(const float* points, const float* centres, int* best, int n, int d) {
    int c = threadIdx.x;
    while (c < n) {
        float total = 0;
        for (int f = 0; f < d; f++) total += points[f] * centres[c * d + f];
        best[c] = (int)(total * 100);
        c += 32;
    }
    for (int c = 0; c < 8; c++) {
        double total = 0;
        for (int f = d; f > 0; f--) total += points[f - 1] * centres[f + c - 1];
        best[96 + c] = (int)(total * 100);
    }
}"""


def clusters(case: MAKE, source: str, n: int, d: int) -> Case:
    points = RANDOM.standard_normal(32 * max(d, 3)).astype(np.float32)
    centres = RANDOM.standard_normal(max(n * d, d + 8, 1)).astype(np.float32)
    best = np.zeros(128, np.int32)
    arguments = {"points": points, "centres": centres, "best": best, "n": n, "d": d}
    return case(source, arguments, grid=(1,), block=(32,))


@pytest.mark.parametrize("source", [NEAREST, CHANNELS], ids=["nearest", "channels"])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 4), (4, 0), (7, 5), (12, 1)])
def test_to_the_bit(source: str, n: int, d: int, case: MAKE) -> None:
    made = clusters(case, source, n, d)
    drafts = every_setting(Jam(), made)
    assert drafts
    for draft in drafts.values():
        made.same(draft)


@pytest.mark.parametrize("n", [0, 33, 96])
def test_what_is_written_by_every_iteration(n: int, case: MAKE) -> None:
    made = clusters(case, WRITTEN, n, 3)
    drafts = every_setting(Jam(), made)
    assert {x["loop"] for d in drafts.values() for x in [d.steps[0].setting]} == {0, 2}
    for draft in drafts.values():
        made.same(draft)


def test_it_reads_as_written_by_hand(case: MAKE) -> None:
    text = clusters(case, NEAREST, 7, 5).applied(Jam(), {"loop": 0, "factor": 2}).text
    assert "    for (; c + 1 < n; c += 2) {\n        float apart = 0;\n" in text
    assert "            apart += by * by;  // squared\n" in text
    assert "            apart1 += by1 * by1;\n" in text
    assert "        if (apart1 < least) {\n            least = apart1;\n" in text
    assert text.count("// Every centre.") == 1


NESTS = {
    "carried over": "for (c = 0; c < n; c++) { for (k = 0; k < n; k++) s += a[k] * b[c]; }",
    "left for the next": "for (c = 0; c < n; c++) { float t = s; "
                         "for (k = 0; k < n; k++) t += a[k]; s = t; }",
    "a bound that grows": "for (c = 0; c < n; c++) { float t = 0; "
                          "for (k = 0; k < c; k++) t += a[k]; y[c] = t; }",
    "a bound of its own": "for (c = 0; c < n; c++) { float t = 0; int m = b[c] > 0; "
                          "for (k = 0; k < m; k++) t += a[k]; y[c] = t; }",
    "a bound in memory": "for (c = 0; c < n; c++) { float t = 0; "
                         "for (k = 0; k < b[0]; k++) t += a[k]; y[c] = t; }",
    "reads what was written": "for (c = 0; c < n; c++) { float t = 0; "
                              "for (k = 0; k < n; k++) t += y[k]; y[c] = t; }",
    "writes in the inner one": "for (c = 0; c < n; c++) { float t = 0; "
                               "for (k = 0; k < n; k++) { t += a[k]; y[k] = t; } }",
    "writes before it": "for (c = 0; c < n; c++) { float t = 0; y[c] = 1; "
                        "for (k = 0; k < n; k++) t += a[k]; y[c] = t; }",
    "an array of its own": "for (c = 0; c < n; c++) { float t[2] = {}; "
                           "for (k = 0; k < n; k++) t[k % 2] += a[k]; y[c] = t[1]; }",
    "its address": "for (c = 0; c < n; c++) { float t = 0; float* p = &t; "
                   "for (k = 0; k < n; k++) *p += a[k]; y[c] = t; }",
    "left early": "for (c = 0; c < n; c++) { float t = 0; "
                  "for (k = 0; k < n; k++) { t += a[k]; if (t > 3) break; } y[c] = t; }",
    "threads meet": "for (c = 0; c < n; c++) { float t = 0; "
                    "for (k = 0; k < n; k++) t += a[k]; __syncthreads(); y[c] = t; }",
    "two inner loops": "for (c = 0; c < n; c++) { float t = 0; for (k = 0; k < n; k++) t += a[k]; "
                       "for (k = 0; k < n; k++) t += b[k]; y[c] = t; }",
    "nothing shared": "for (c = 0; c < n; c++) { float t = 0; "
                      "for (k = 0; k < n; k++) t += a[c + k]; y[c] = t; }",
    "volatile": "volatile float* v = y; for (c = 0; c < n; c++) { float t = 0; "
                "for (k = 0; k < n; k++) t += a[k]; v[c] = t; }",
    "prints": 'for (c = 0; c < n; c++) { float t = 0; for (k = 0; k < n; k++) t += a[k]; '
              'printf("%f", t); }',
    "an atomic it reads": "for (c = 0; c < n; c++) { float t = 0; "
                          "for (k = 0; k < n; k++) t += y[0]; atomicAdd(y, t); }",
}  # fmt: skip


@pytest.mark.parametrize("what", NESTS)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    source = f"""#include <cstdio>
    __global__ void k(const float* a, const float* b, float* y, int n) {{
        int c, k;
        float s = 0;
        {NESTS[what]}
        y[7] = s;
    }}"""
    ones = np.ones(8, np.float32)
    made = case(source, {"a": ones, "b": ones, "y": ones, "n": 4}, grid=(1,), block=(1,))
    assert Jam().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Jam().apply(made.draft, {"loop": 0, "factor": 2})


def test_buffers_that_may_be_one(case: MAKE) -> None:
    made = clusters(case, WRITTEN, 33, 3)
    points, centres, *rest = made.workload.arguments
    one = points.model_copy(update={"allocation": 2})
    update = {"arguments": (one, centres, *rest)}
    other = made.workload.model_copy(update=update)
    subject = type(made.subject)(made.program, made.kernel, (made.workload, other))
    with pytest.raises(NotUnderstood):
        Jam().apply(type(made.draft).of(subject), {"loop": 0, "factor": 2})
