"""Two versions of a nest: without checks inside, as written at the border."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.interior import Interior
from tests.transformations.bench import Case, every_setting

MAKE = Callable[..., Case]
RANDOM = np.random.default_rng(11)

BLUR = """
#define R 2
__global__ void blur(const float* in, const float* mask, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = 0;
    // The window.
    for (int dy = -R; dy <= R; dy++) {
        for (int dx = -R; dx <= R; dx++) {
            int xx = x + dx, yy = y + dy;
            if (xx >= 0 && xx < w && yy >= 0 && yy < h && mask[dx + R] > 0.2f) {
                float tap = in[yy * w + xx];  // inside
                sum += tap * mask[(dy + R) * (2 * R + 1) + dx + R];
            }
        }
    }
    out[y * w + x] = sum;
}"""
MIRROR = """
__global__ void mirrored(const float* in, const float* mask, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int r = h % 3 + 1;
    float sum = 0;
    for (int j = 0; j < 2 * r + 1; j++) {
        int k = x + j - r;
        if (k < 0) k = -k;
        if (k > w - 1) k = 2 * (w - 1) - k;
        if (j % 2 == 0) { sum -= in[y * w + k]; } else sum += in[y * w + k];
        int c = min(max(x - j, 0), w - 1);
        sum += 0.5f * in[y * w + c] + (y + j < h ? in[(y + j) * w + x] : 0.0f);
    }
    out[y * w + x] = sum + mask[0];
}"""
SKIP = """
__global__ void skipped(const float* in, const float* mask, float* out, int w, int h) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    for (int k = 0; k < 5; k += 2) {
        if (x - k < 0 || !(x + 2 * k < w)) continue;
        if (k > 0 && y < h) out[y * w + x] += in[y * w + x - k] * in[y * w + x + 2 * k];
        if (k < 9 && y < h) out[y * w + x] += mask[k];
    }
}"""


def image(case: MAKE, source: str, w: int, h: int) -> Case:
    values = RANDOM.random((h, w)).astype(np.float32)
    mask = RANDOM.random(25).astype(np.float32)
    arguments = {"in": values, "mask": mask, "out": values * 0, "w": w, "h": h}
    return case(source, arguments, grid=(-(-w // 8), -(-h // 4)), block=(8, 4))


@pytest.mark.parametrize("source", [BLUR, MIRROR, SKIP], ids=["blur", "mirror", "skip"])
@pytest.mark.parametrize(("w", "h"), [(24, 16), (37, 11), (9, 5)])
def test_inside_and_border(source: str, w: int, h: int, case: MAKE) -> None:
    made = image(case, source, w, h)
    drafts = every_setting(Interior(), made)
    assert drafts
    for draft in drafts.values():
        made.same(draft)


def test_it_reads_as_written_by_hand(case: MAKE) -> None:
    draft = image(case, BLUR, 24, 16).applied(Interior(), {"loop": 0})
    assert "    if (x - 2 >= 0 && x + 2 < w && y - 2 >= 0 && y + 2 < h) {\n" in draft.text
    assert "if (mask[dx + R] > 0.2f) {\n" in draft.text
    assert "if (xx >= 0 && xx < w && yy >= 0 && yy < h && mask[dx + R] > 0.2f) {" in draft.text
    assert draft.text.count("// inside") == 2


def test_what_the_loop_decides_by_itself(case: MAKE) -> None:
    draft = image(case, SKIP, 24, 16).applied(Interior(), {"loop": 0})
    inside, _, border = draft.text.partition("} else {")
    assert "if (k > 0" in inside, "the first iteration differs from the others"
    assert "k < 9" not in inside, "it always holds"
    assert "k < 9" in border


def test_mirrors_clamps_and_choices_go(case: MAKE) -> None:
    inside, _, _ = image(case, MIRROR, 24, 16).applied(Interior()).text.partition("} else {\n    ")
    assert "k = -k" not in inside
    assert "min(" not in inside
    assert "?" not in inside


LOOPS = {
    "unsigned": "unsigned u = i; for (int k = -2; k < 3; k++) if (u + k < n) s += a[i];",
    "not linear": "for (int k = 0; k < 3; k++) if (i + k * k < n) s += a[i];",
    "by a value": "for (int k = 0; k < 3; k++) if (k * n < i) s += a[i];",
    "equality": "for (int k = 0; k < 3; k++) if (i + k == n) s += a[i];",
    "floats": "for (int k = 0; k < 3; k++) if (a[0] + k < n) s += a[i];",
    "from memory": "for (int k = 0; k < 3; k++) if (b[i] + k < n) s += a[i];",
    "the bound moves": "for (int k = 0; k < 3; k++) { if (i + k < n) s += a[i]; n--; }",
    "the index moves": "for (int k = 0; k < 3; k++) { if (i + k < n) s += a[i]; i = b[k] % 8; }",
    "another loop's end": "for (int k = 0; k < 3; k++) for (int j = 0; j < b[k]; j++) "
                          "if (i + j < n) s += a[i];",
    "counts down": "for (int k = 3; k > 0; k--) if (i + k < n) s += a[i];",
    "a step of any sign": "for (int k = 0; k < 3; k += n) if (i + k < n) s += a[i];",
    "threads meet": "for (int k = 0; k < 3; k++) { __syncthreads(); if (i + k < n) s += a[i]; }",
    "other lanes": "for (int k = 0; k < 3; k++) if (i + k < n) s += __shfl_sync(1u, s, 0);",
    "an address": "int* p = &n; for (int k = 0; k < 3; k++) { if (i + k < n) s += a[i]; *p = k; }",
    "volatile": "volatile int v = n; for (int k = 0; k < 3; k++) if (i + k < v) s += a[i];",
    "either": "for (int k = 0; k < 3; k++) if (i + k < n || a[0] > 0) s += a[i];",
    "two sides": "for (int k = 0; k < 3; k++) if (i + k < n) s += a[i]; else s -= 1;",
    "never": "for (int k = 0; k < 3; k++) if (k > 1) s += a[i];",
    "no loop's": "for (int k = 0; k < 3; k++) if (i < n) s += a[i];",
    "an index that was fixed": "for (int k = 0; k < 3; k++) { int j = i + k; j = b[j % 8]; "
                                "if (j < n) s += a[j % 8]; }",
    "a side effect": "for (int k = 0; k < 3; k++) if (i + k < n++) s += a[i];",
}  # fmt: skip


@pytest.mark.parametrize("what", LOOPS)
def test_what_it_leaves(what: str, case: MAKE) -> None:
    source = f"""
    __global__ void k(const float* a, const int* b, float* y, int n) {{
        int i = threadIdx.x;
        float s = 0;
        {LOOPS[what]}
        y[i] = s;
    }}"""
    arguments = {"a": np.ones(8, np.float32), "b": np.ones(8, np.int32),
                 "y": np.ones(8, np.float32), "n": 4}  # fmt: skip
    made = case(source, arguments, grid=(1,), block=(1,))
    assert Interior().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Interior().apply(made.draft, {"loop": 0})
