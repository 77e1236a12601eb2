"""A team of lanes for one thread's work: what it shares, and what it must leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.options import program_run
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.sandbox.workbench import open_workbench
from cudaops.transformations.cooperate import Cooperate
from cudaops.transformations.draft import Draft, Subject
from tests.transformations.bench import Case, every_setting, expression

ROWS = """
__global__ void rows(const float* x, const float* w, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // the row
    if (i >= n) return;
    float sum = 0.0f;
    // along the row
    for (int j = 0; j < m; ++j) {
        sum += x[i * m + j] * w[j];
    }
    y[i] = sum;
}"""

SOFTMAX = """
__global__ void softmax(float* x, int n, int m) {
    const int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) {
        float top = x[i * m];
        for (int j = 1; j < m; j++) top = fmaxf(top, x[i * m + j]);
        float sum = 0.f;
        for (int j = 0; j < m; j++) {
            x[i * m + j] = expf(x[i * m + j] - top);
            sum += x[i * m + j];
        }
        for (int j = 0; j < m; j++) x[i * m + j] /= sum;
    }
}"""

NEAREST = """
__global__ void nearest(const float* p, const float* c, int* at, float* how, int* many,
                        int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float best = 1e30f, d;
        int which = -1, near = 3;
        for (int j = 0; j < k; j++) {
            d = p[i] - c[j];
            d = d * d;
            if (d < best) {
                best = d;
                which = j;
            }
            if (d < 4.0f) near++;
        }
        at[i] = which;
        how[i] = best;
        many[i] = near;
    }
}"""

FLAGS = """
__global__ void flags(const int* x, int* any, unsigned* bits, int* product, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool found = false;
    unsigned all = 0xffffffffu, some = 0, odd = 5;
    int times = 2;
    const int* row = x + i * m;
    int left = m;
    while (left > 0) {
        int v = *row;
        if (v == 7) found = true;
        all &= v;
        some |= v;
        odd ^= v;
        times *= v | 1;
        row++;
        left--;
    }
    any[i] = found;
    bits[3 * i] = all;
    bits[3 * i + 1] = some;
    bits[3 * i + 2] = odd;
    product[i] = times;
}"""

SPARSE = """
__global__ void sparse(const int* begin, const int* column, const double* value, const double* x,
                       double* y, int n) {
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < n; row += blockDim.x * gridDim.x) {
        double dot = 0;
        for (int k = begin[row]; k < begin[row + 1]; k++) dot += value[k] * x[column[k]];
        y[row] += dot;
    }
}"""

BODIES = """
struct Body { float x, y, m; };
__device__ float weight(float m, float d) { return m / (d * sqrtf(d)); }
__global__ void pull(const Body* all, float2* force, float* tally, int n) {
    __shared__ float total[8];
    float parts[3] = {0};
    float2 f = make_float2(0.f, 0.f);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = all[i].x, y = all[i].y;
    for (int j = n - 1; j >= 0; j--) {
        float dx = all[j].x - x, dy = all[j].y - y;
        float w = weight(all[j].m, dx * dx + dy * dy + 0.1f);
        f.x += w * dx;
        f.y += w * dy;
        for (int k = 0; k < 3; k++) parts[k] += w * k;
    }
    force[i] = f;
    total[threadIdx.x] = parts[1] + parts[2] - parts[0];
    __syncthreads();
    float sum = 0.f;
    for (int k = 0; k < blockDim.x; k++) sum += total[k];
    tally[i] = sum;
}"""


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def _rows(case: Callable[..., Case]) -> Case:
    x = _floats(100, 77)
    return case(
        ROWS, {"x": x, "w": x[0].copy(), "y": x[:, 0] * 0, "n": 100, "m": 77},
        grid=(2,), block=(64,),
    )  # fmt: skip


def test_rows(case: Callable[..., Case]) -> None:
    made = _rows(case)
    drafts = every_setting(Cooperate(), made)
    assert set(drafts) == {str({"lanes": n}) for n in (32, 8, 256, 4)}
    for draft in drafts.values():
        made.same(draft, tolerance=1e-5)
    text = drafts[str({"lanes": 32})].text
    assert "for (int j = lane; j < m; j += 32) {" in text
    assert "// along the row" in text
    assert "// the row" in text


def test_blocks_that_lanes_do_not_divide_get_the_authors_kernel(case: Callable[..., Case]) -> None:
    made = _rows(case)
    rewrite = made.applied(Cooperate()).rewrite()
    other = made.workload.model_copy(
        update={"block": made.workload.block.model_copy(update={"x": 50})}
    )
    assert not resolve(rewrite, made.kernel, other).applicable


def test_blocks_of_a_size_that_lanes_do_not_divide(case: Callable[..., Case]) -> None:
    x = _floats(100, 77)
    made = case(
        ROWS, {"x": x, "w": x[0].copy(), "y": x[:, 0] * 0, "n": 99, "m": 77},
        grid=(2,), block=(52,),
    )  # fmt: skip
    draft = made.applied(Cooperate(), {"lanes": 32})
    assert draft.launch.block[0] == expression("256")
    made.same(draft, tolerance=1e-5)


def test_several_passes_in_place(case: Callable[..., Case]) -> None:
    x = _floats(50, 41)
    made = case(SOFTMAX, {"x": x, "n": 50, "m": 41}, grid=(1,), block=(64,))
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) >= 3
    for draft in drafts.values():
        made.same(draft, tolerance=1e-5)
        assert "__sync" in draft.text  # before the next pass reads what this one stored


def test_the_first_of_equal_ones(case: Callable[..., Case]) -> None:
    p, c = np.round(_floats(70) * 3), np.round(_floats(90) * 3)
    p[5] = np.nan
    whole = np.zeros(70, np.int32)
    made = case(
        NEAREST, {"p": p, "c": c, "at": whole, "how": p * 0, "many": whole, "n": 70, "k": 90},
        grid=(3,), block=(32,),
    )  # fmt: skip
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) >= 3
    for name, draft in drafts.items():
        made.same(draft)
        assert "other_best" in draft.text or "block_least(best, which)" in draft.text, name
        assert "if (lane != 0) {\n            near = 0;" in draft.text


def test_bits_flags_and_pointers_that_step(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(1).integers(0, 60, (33, 45)).astype(np.int32)
    whole = np.zeros(33, np.int32)
    made = case(
        FLAGS,
        {"x": x, "any": whole, "bits": np.zeros(99, np.uint32), "product": whole, "n": 33, "m": 45},
        grid=(1,), block=(64,),
    )  # fmt: skip
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) >= 3
    for draft in drafts.values():
        made.same(draft)


def test_rows_of_different_lengths(case: Callable[..., Case]) -> None:
    rng = np.random.default_rng(5)
    begin = np.concatenate([[0], np.cumsum(rng.integers(0, 50, 75))]).astype(np.int32)
    column = rng.integers(0, 75, begin[-1]).astype(np.int32)
    made = case(
        SPARSE,
        {"begin": begin, "column": column, "value": rng.normal(size=begin[-1]),
         "x": rng.normal(size=75), "y": rng.normal(size=75), "n": 75},
        grid=(1,), block=(32,),
    )  # fmt: skip
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) >= 3
    for draft in drafts.values():
        made.same(draft, tolerance=1e-12)


def test_fields_arrays_and_shared_memory(case: Callable[..., Case]) -> None:
    all_ = _floats(24, 3)
    made = case(
        BODIES,
        {"all": all_, "force": all_[:, :2].copy(), "tally": all_[:, 0].copy(), "n": 24},
        grid=(3,), block=(8,),
    )  # fmt: skip
    drafts = every_setting(Cooperate(), made)
    assert drafts
    for draft in drafts.values():
        made.same(draft, tolerance=1e-4)
        assert "block=(blockDim.x * " in draft.launch.directive


REFUSED = {
    "a running sum": "for (int j = 0; j < m; j++) { s += x[i * m + j]; y[i * m + j] = s; }",
    "one place for all": "for (int j = 0; j < m; j++) y[i] = x[i * m + j];",
    "stores that meet": "for (int j = 0; j < m; j++) y[i * m + j / 2] = x[i * m + j];",
    "stores in place of what is read": "for (int j = 1; j < m; j++) y[i*m+j] = y[i*m+j-1] + 1;",
    "an early end": "for (int j = 0; j < m; j++) { if (x[i*m+j] > 3) break; s += x[i*m+j]; }",
    "a bound that moves": "for (int j = 0; j < m; j++) { s += x[i * m]; if (s > 9) m--; }",
    "a difference of two kinds": "for (int j = 0; j < m; j++) { s += x[i*m+j]; s *= 0.5f; }",
    "an accumulator that is read": "for (int j = 0; j < m; j++) s += x[i * m + j] * s;",
    "an alias": "float* a = &s; for (int j = 0; j < m; j++) { s += x[i*m+j]; *a += 1; }",
    "a reference": "float& a = s; for (int j = 0; j < m; j++) { s += x[i*m+j]; a += 1; }",
    "a counter that is needed": "int j = 0; for (; j < m; j++) s += x[i*m+j]; s += j;",
    "a truncated sum": "int c = 0; for (int j = 0; j < m; j++) c += x[i*m+j] * 9; s = c;",
    "the last of equal ones": "int b = 0; for (int j = 0; j < m; j++) "
    "if (x[i*m+j] >= s) { s = x[i*m+j]; b = j; } s = b;",
    "an atomic's order": "for (int j = 0; j < m; j++) s += atomicAdd(y, 1.0f);",
    "a neighbour's": "float t = y[i ? i - 1 : 0]; "
    "for (int j = 0; j < m; j++) s += x[i*m+j]; s += t;",
    "a step that doubles": "for (int j = 1; j < m; j *= 2) s += x[i * m + j];",
    "volatile": "volatile float v = 0; for (int j = 0; j < m; j++) s += x[i*m+j]; v = s;",
    "lanes at work": "for (int j = 0; j < m; j++) s += x[i*m+j]; s = __shfl_xor_sync(~0u, s, 1);",
    "a value kept": "float t = 0; for (int j = 0; j < m; j++) { s += t; t = x[i * m + j]; }",
    "a value kept at times": "float t = 0; for (int j = 0; j < m; j++) "
    "{ if (x[i * m + j] > 0) t = x[i * m + j]; s += t; }",
    "a value kept by one way": "float t = 0; for (int j = 0; j < m; j++) "
    "{ if (x[i * m + j] > 0) t = 1; else s += t; s += t; }",
    "a value kept by a loop": "float t = 0; for (int j = 0; j < m; j++) "
    "{ for (int k = j; k < 9; k++) t = x[i * m + k]; s += t; }",
    "a value kept past continue": "float t = 0; for (int j = 0; j < m; j++) "
    "{ if (x[i * m + j] > 0) t = 1; else continue; if (j > 3) t += 1; s += t; } s += t;",
    "a value kept by a case": "float t = 0; for (int j = 0; j < m; j++) "
    "{ switch (j % 3) { case 0: t = 1; break; case 1: t = x[i]; } s += t; }",
    "a value kept by another name": "float t = 0; float& u = t; for (int j = 0; j < m; j++) "
    "{ if (j % 2) t = 1; else t = x[i * m + j]; u += 1; s += t; }",
}
PER_TURN = {
    "by both ways": "if (x[i * m + j] > r) t = x[i * m + j]; else t = 0; s += t * r;",
    "by three": "if (j % 3 < 1) t = 1; else if (j % 3 < 2) { t = 2; t *= r; } else t = 3; s += t;",
    "unless it goes on": "if (x[i * m + j] < r) continue; else t = x[i * m + j]; s += t; t = 4;",
    "by an inner loop's head": "for (t = 1; t < 4; t++) s += t * x[i * m + j];",
    "in a block": "{ t = x[i * m + j]; } if (t > r) s += t; else { t = 2; s -= t; }",
    "by what never looks": "if (j > 3) t = x[i * m + j]; s += r;",
}


@pytest.mark.parametrize("body", PER_TURN.values(), ids=PER_TURN)
def test_variables_of_one_iteration_that_stand_outside(
    body: str, case: Callable[..., Case]
) -> None:
    """As in C: all variables at the top."""
    x = _floats(19, 45)
    made = case(
        "__global__ void k(const float* x, float* y, int n, int m, float r) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x, j;\n    float s, t;\n    s = 0;\n"
        f"    if (i >= n) return;\n    for (j = 0; j < m; j++) {{ {body} }}\n    y[i] = s;\n}}",
        {"x": x, "y": x[:, 0] * 0, "n": 19, "m": 45, "r": 0.3}, grid=(1,), block=(32,),
    )  # fmt: skip
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) > 1
    for draft in drafts.values():
        made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    x = _floats(32, 40)
    made = case(
        "__global__ void k(const float* x, float* y, int n, int m) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    float s = 0;\n"
        f"    if (i < n) {{\n        {body}\n        y[i] = s;\n    }}\n}}",
        {"x": x, "y": x * 0, "n": 32, "m": 40}, grid=(1,), block=(32,),
    )  # fmt: skip
    for setting in ({"lanes": 32}, {"lanes": 8}, {"lanes": 256}):
        with pytest.raises(NotUnderstood):
            Cooperate().apply(made.draft, setting)


def test_a_wide_block_with_barriers_is_left(case: Callable[..., Case]) -> None:
    x = _floats(24, 3)
    made = case(
        BODIES.replace("total[8]", "total[64]"),
        {"all": x, "force": x[:, :2].copy(), "tally": x[:, 0].copy(), "n": 24},
        grid=(1,), block=(24,),
    )  # fmt: skip
    assert {"lanes": 8} in Cooperate().settings(made.draft)
    wide = case(
        BODIES.replace("total[8]", "total[64]"),
        {"all": _floats(64, 3), "force": _floats(64, 2), "tally": _floats(64), "n": 64},
        grid=(1,), block=(64,),
    )  # fmt: skip
    assert {"lanes": 8} in Cooperate().settings(wide.draft)
    assert {"lanes": 32} not in Cooperate().settings(wide.draft)


COLUMNS = """
__global__ void digits(const int* a, int* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __shared__ int count[8][64];
    for (int k = 0; k < 8; ++k) count[k][threadIdx.x] = 1;
    for (int k = 0; k < m; ++k) count[a[i * m + k] & 7][threadIdx.x]++;
    int s = 0;
    for (int k = 0; k < 8; ++k) s = s * 3 + count[k][threadIdx.x];
    y[i] = s;
}"""


def test_the_first_lane_waits_for_what_others_stored(case: Callable[..., Case]) -> None:
    a = np.arange(50 * 9, dtype=np.int32) * 7
    made = case(
        COLUMNS, {"a": a, "y": a[:50] * 0, "n": 50, "m": 9}, grid=(1,), block=(64,)
    )  # fmt: skip
    for draft in every_setting(Cooperate(), made).values():
        made.same(draft)
        assert "__syncwarp" in draft.text or "__syncthreads" in draft.text


POINTERS = """
#include <cstdio>
struct State { float* level; int* rest; };
__global__ void fire(State state, const float* x, int n, int m) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float sum = 0;
        for (int k = 0; k < m; ++k) sum += x[i * m + k];
        if (state.rest[i] > 0) { state.rest[i]--; state.level[i] = -1; continue; }
        if (state.level[i] > 3) state.rest[i] = 3;  // not by the sum: its rounding would decide
        state.level[i] += sum;
    }
}
int main() {
    int n = 90, m = 33;
    State state;
    float* x;
    cudaMallocManaged(&x, n * m * sizeof(float));
    cudaMallocManaged(&state.level, n * sizeof(float));
    cudaMallocManaged(&state.rest, n * sizeof(int));
    for (int i = 0; i < n * m; ++i) x[i] = i % 7 * 0.25f - 0.5f;
    for (int i = 0; i < n; ++i) { state.level[i] = i % 5; state.rest[i] = i % 3; }
    fire<<<2, 32>>>(state, x, n, m);
    cudaDeviceSynchronize();
    for (int i = 0; i < n; i += 10) printf("%f %d\\n", state.level[i], state.rest[i]);
    return 0;
}
"""


def test_what_pointers_of_a_structure_lead_to_is_memory(tmp_path: Path, kernels: Path) -> None:
    """The structure is the thread's own; what its pointers lead to, one lane stores."""
    (tmp_path / "fire.cu").write_text(POINTERS)
    policy = Policy(min_speedup=0.001)
    bench = open_workbench(
        load_program(tmp_path / "fire.cu"), None, (program_run(""),),
        CpuExecutor("H200", kernels), policy, tmp_path / "run", sm_arch="sm_90", timeout_s=60.0,
    )  # fmt: skip
    draft = Draft.of(Subject(bench.program, bench.kernel, bench.workloads))
    warp = Cooperate().apply(draft, {"lanes": 32})
    assert evaluate(bench, warp.rewrite(), 0.001).judged(policy).outcome == "provisional"


VOTE = """
__global__ void k(const float* x, float* y, int m) {
    const int t = threadIdx.x, r = blockIdx.x;
    float s = 0;
    for (int j = t; j < m; j += blockDim.x) s += x[r * m + j] > 0 ? 1 : -1;
    int all = VOTE(s > 0);
    if (t == 0) y[r] = all;
}"""


@pytest.mark.parametrize("vote", ["count", "or", "and"])
def test_a_block_that_votes_counts_each_thread_once(vote: str, case: Callable[..., Case]) -> None:
    x = np.random.default_rng(3).normal(size=4 * 500).astype(np.float32)
    arguments = {"x": x, "y": np.zeros(4, np.float32), "m": 500}
    source = VOTE.replace("VOTE", f"__syncthreads_{vote}")
    made = case(source, arguments, grid=(4,), block=(32,))
    for draft in every_setting(Cooperate(), made).values():
        made.same(draft)


LOSS = """
__global__ void loss(const float* x, const int* target, float* p, float* loss, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float* row = p + i * m;
        float sum = 0;
        for (int j = 0; j < m; j++) {
            row[j] = expf(x[i * m + j]);
            sum += row[j];
        }
        for (int j = 0; j < m; j++) row[j] /= sum;
        loss[i] = -logf(row[target[i]]);
    }
}"""


def _loss(source: str, case: Callable[..., Case]) -> Case:
    x = _floats(40, 45)
    target = (np.arange(40) * 7 % 45).astype(np.int32)
    arguments = {"x": x, "target": target, "p": x * 0, "loss": x[:, 0] * 0, "n": 37, "m": 45}
    return case(source, arguments, grid=(2,), block=(32,))


def test_one_lane_alone_looks_anywhere_at_what_its_team_stored(case: Callable[..., Case]) -> None:
    made = _loss(LOSS, case)
    drafts = every_setting(Cooperate(), made)
    assert len(drafts) >= 3
    for draft in drafts.values():
        made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float sum = 0;", "float sum = p[target[i]];"),
        ("loss[i] =", "float t = row[target[i]]; for (int j = 0; j < m; j++) sum += t; loss[i] ="),
    ],
)
def test_all_lanes_do_not(old: str, new: str, case: Callable[..., Case]) -> None:
    assert old in LOSS
    made = _loss(LOSS.replace(old, new), case)
    with pytest.raises(NotUnderstood):
        Cooperate().apply(made.draft, {"lanes": 32})
