"""Arrays out of local memory: into shared memory or one register, and what must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.private_arrays import PrivateArrays
from tests.transformations.bench import Case, every_setting, expressions

COUNTED = """
__global__ void tally(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    TYPE count[8] = {};  // how often each came
    for (int k = 0; k < 11; ++k) count[x[(i + k) % n] & 7]++;
    int most = 0;
    for (int b = 0; b < 8; ++b) most = most * 12 + count[b];
    y[i] = most;
}"""
SMALL = COUNTED.replace("count[8]", "count[8 / 2]").replace("& 7", "& 3").replace("b < 8", "b < 4")
RESET = COUNTED.replace(
    "TYPE count[8] = {};", "unsigned count[8];\n    for (int b = 0; b < 8; b++) count[b] = 0;"
).replace("++k) count", "++k) if (k != 3) count")
ROWS = """
__global__ void rows(const int* x, float* y, int n) {
    int i = threadIdx.y * 8 + threadIdx.x;
    float table[3][4];
    for (int a = 0; a < 3; ++a) for (int b = 0; b < 4; ++b) table[a][b] = a * b + i;
    for (int round = 0; round < 2; ++round) {
        double last[5] = {1.5, 2.5};
        last[x[i] % 5] += round;
        table[x[i] % 3][x[i + 1] % 4] *= 2.0f;
        y[i] = table[x[i + 2] % 3][1] + last[x[i + 3] % 5];
    }
}"""


@pytest.mark.parametrize(
    ("kind", "block"),
    [("char", 160), ("unsigned short", 96), ("int", 33), ("unsigned long long", 32)],
)
def test_counters_in_shared_memory(kind: str, block: int, case: Callable[..., Case]) -> None:
    x = np.random.default_rng(1).integers(0, 99, 333).astype(np.int32)
    made = case(
        COUNTED.replace("TYPE", kind), {"x": x, "y": x * 0, "n": 333}, grid=(11,), block=(block,)
    )  # fmt: skip
    for setting, draft in every_setting(PrivateArrays(), made).items():
        made.same(draft)
        assert "// how often each came" in draft.text
        assert ("__shared__" in draft.text) == ("shared" in setting)
        needed = [] if "word" in setting else [f"blockDim.x == {block}"]
        assert draft.requires == expressions(*needed)


@pytest.mark.parametrize("source", [SMALL.replace("TYPE", "int"), RESET])
def test_counters_in_one_register(source: str, case: Callable[..., Case]) -> None:
    x = np.random.default_rng(2).integers(0, 99, 77).astype(np.int32)
    made = case(source, {"x": x, "y": x * 0, "n": 77}, grid=(3,), block=(33,))
    draft = made.applied(PrivateArrays(), {"into": "word"})
    assert "[b]" not in draft.text
    made.same(draft)


def test_rows_and_values_of_a_block_in_two_dimensions(case: Callable[..., Case]) -> None:
    x = np.random.default_rng(3).integers(0, 99, 60).astype(np.int32)
    made = case(ROWS, {"x": x, "y": np.zeros(40, np.float32), "n": 40}, grid=(1,), block=(8, 5))
    draft = made.applied(PrivateArrays())
    assert "float table[3][4][40]" in draft.text
    assert "double last[5][40]" in draft.text
    made.same(draft)


LEFT = {
    "its address is taken": ("int a[8]; int* p = &a[x[i] & 7]; *p = 1; y[i] = a[x[i] & 7];"),
    "a row is handed on": (
        "int a[8][2]; int* p = a[x[i] & 7]; p[0] = 1; a[x[i] & 7][1] = 2; y[i] = a[0][x[i] & 1];"
    ),
    "a function gets it": "int a[8]; a[x[i] & 7] = 1; y[i] = sum(a);",
    "its size is asked": "int a[8] = {}; a[x[i] & 7] = 1; y[i] = sizeof(a) / 4;",
    "only constants": (
        "int a[8]; for (int k = 0; k < 8; ++k) a[k] = x[k]; y[i] = a[3] + a[5];"
    ),
    "only read": "const int a[4] = {3, 1, 4, 1}; y[i] = a[x[i] & 3];",
    "too large": "int a[999]; a[x[i]] = 1; y[i] = a[x[i + 1]];",
    "what is not modelled names it": (
        'int a[8] = {}; a[x[i] & 7] = 1; asm("" : "+r"(a[3])); y[i] = a[x[i] & 7];'
    ),
    "shared already": "__shared__ int a[8][32]; a[x[i] & 7][i] = 1; y[i] = a[x[i] & 7][i];",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    source = f"""__device__ int sum(int* a) {{ return a[0] + a[1]; }}
    __global__ void k(const int* x, int* y) {{ int i = threadIdx.x; {LEFT[name]} }}"""
    x = np.arange(40, dtype=np.int32)
    made = case(source, {"x": x, "y": x * 0}, grid=(1,), block=(32,), callee="k")
    assert PrivateArrays().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        PrivateArrays().apply(made.draft, {"into": "shared"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k < 11", "k < n"),  # how often is not known
        ("k < 11", "k < 256"),  # eight bits for eight counters
        ("& 7]++", "& 7] += n"),
        ("& 7]++", "& 7]--"),
        ("most = most", "count[b] = 3; most = most"),
        ("count[8] = {}", "count[8]"),
        ("int y", "float y"),
    ],
)
def test_counters_that_may_not_fit(before: str, after: str, case: Callable[..., Case]) -> None:
    source = COUNTED.replace("TYPE", "float" if "float" in after else "int").replace(before, after)
    x = np.arange(64, dtype=np.int32)
    made = case(source, {"x": x, "y": x * 0, "n": 11}, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood):
        PrivateArrays().apply(made.draft, {"into": "word"})


def test_launches_with_different_blocks(case: Callable[..., Case]) -> None:
    x: Any = np.arange(64, dtype=np.int32)
    made = case(
        COUNTED.replace("TYPE", "int"), {"x": x, "y": x * 0, "n": 64}, grid=(2,), block=(32,)
    )  # fmt: skip
    other = made.workload.model_copy(
        update={"block": made.workload.block.model_copy(update={"x": 64})}
    )
    subject = type(made.subject)(made.program, made.kernel, (made.workload, other))
    draft = type(made.draft).of(subject)
    with pytest.raises(NotUnderstood, match="different blocks"):
        PrivateArrays().apply(draft, {"into": "shared"})
