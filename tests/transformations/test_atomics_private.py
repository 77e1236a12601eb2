"""Atomics collected by blocks: the same results, and what must go to memory one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.atomics_private import AtomicsPrivate
from tests.transformations.bench import Case, expression, expressions

HISTOGRAM = """
__global__ void histogram(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;  // the last block
    atomicAdd(&bins[x[i] % 10], 1);
}"""
BYTES = """
__device__ void count(unsigned long long* to, unsigned long long by) { atomicAdd(to, by); }
__global__ void bytes(const unsigned char* x, unsigned long long* bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (x[i] != 7) count(bins + x[i], 3);
}"""
PIXELS = """
__global__ void pixels(const float* x, float* mass, int* low, unsigned* seen, int w, int h) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column < w && row < h) {
        const float v = x[row * w + column];
        atomicAdd(&mass[(int)v & 15], v);
        atomicMin(&low[row % 3], (int)v);
        atomicOr(&seen[(row + (int)v) % 4], 1u << (column % 32));
    }
}"""
SUM = """
__global__ void total(const float* x, float* sum, int* most, int* many, const int* from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x += 1;
    if (i >= n - 1 || from[i] < 0) return;
    for (int k = 0; k < 3; ++k) {
        atomicAdd(sum, x[i] * k);
        if (from[i] > 4) atomicAdd(&many[1], 2 * k - 1);
    }
    atomicMax(most, from[i]);
}"""
OWN_PART = """
__global__ void parts(const int* x, unsigned* out, int n) {
    unsigned* mine = out + blockIdx.x * 8;
    if (threadIdx.x < 8) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[x[i] & 7], 1u);
}"""


def drawn(n: int, most: int = 60, kind: type = np.int32) -> Any:
    return np.random.default_rng(n).integers(0, most, n).astype(kind)


@pytest.mark.parametrize("blocks", ["all", 3, 100])
@pytest.mark.parametrize("threads", [32, 50])
def test_a_histogram(blocks: int | str, threads: int, case: Callable[..., Case]) -> None:
    made = case(
        HISTOGRAM, {"x": drawn(333), "bins": np.arange(10, dtype=np.int32), "n": 333},
        grid=(11,), block=(threads,),
    )  # fmt: skip
    draft = AtomicsPrivate().apply(made.draft, {"blocks": blocks})
    assert "if (i < n)" in draft.text
    made.same(draft)


def test_elements_beyond_the_copy_go_where_they_went(case: Callable[..., Case]) -> None:
    bins = np.zeros(10, np.int32)
    made = case(HISTOGRAM, {"x": drawn(64), "bins": bins, "n": 64}, grid=(2,), block=(32,))
    draft = AtomicsPrivate().apply(made.draft, {"blocks": "all"})
    small = draft.text.replace("bins_of_block[10]", "bins_of_block[4]").replace("< 10", "< 4")
    assert small.count("< 4") == 3
    made.same(draft._with(text=small))


def test_a_wrapper_and_a_proved_range(case: Callable[..., Case]) -> None:
    x, bins = drawn(700, 256, np.uint8), np.zeros(512, np.int32)
    made = case(BYTES, {"x": x, "bins": bins, "n": 700}, grid=(5,), block=(32,))
    draft = made.applied(AtomicsPrivate())
    assert "bins_of_block[256]" in draft.text
    assert "else" not in draft.text
    made.same(draft)


@pytest.mark.parametrize("blocks", ["all", 2])
def test_several_kinds_in_two_dimensions(blocks: int | str, case: Callable[..., Case]) -> None:
    x = drawn(21 * 13).astype(np.float32)
    arguments = {
        "x": x, "mass": np.ones(16, np.float32), "low": np.full(3, 30, np.int32),
        "seen": np.zeros(4, np.uint32), "w": 21, "h": 13,
    }  # fmt: skip
    made = case(PIXELS, arguments, grid=(3, 4), block=(8, 4))
    draft = AtomicsPrivate().apply(made.draft, {"blocks": blocks})
    assert all(f"{name}_of_block" in draft.text for name in ("mass", "low", "seen"))
    made.same(draft, tolerance=1e-5)


@pytest.mark.parametrize("blocks", ["all", 2])
def test_one_address_in_registers(blocks: int | str, case: Callable[..., Case]) -> None:
    arguments = {
        "x": drawn(301).astype(np.float32), "sum": np.ones(1, np.float32),
        "most": np.zeros(1, np.int32), "many": np.zeros(2, np.int32), "from": drawn(300, 9) - 2,
        "n": 300,
    }  # fmt: skip
    made = case(SUM, arguments, grid=(5,), block=(64,))
    draft = AtomicsPrivate().apply(made.draft, {"blocks": blocks})
    assert "sum_total" in draft.text
    assert "_of_block" not in draft.text
    assert expression("blockDim.x % 32 == 0") in draft.requires
    made.same(draft, tolerance=1e-5)


def test_partial_warps_collect_in_shared_memory(case: Callable[..., Case]) -> None:
    x = np.ones(100, np.float32)
    arguments = {"x": x, "sum": x[:1] * 0, "most": np.zeros(1, np.int32),
                 "many": np.zeros(2, np.int32), "from": drawn(100, 9) - 2, "n": 100}  # fmt: skip
    made = case(SUM, arguments, grid=(3,), block=(40,))
    draft = made.applied(AtomicsPrivate())
    assert "__shfl" not in draft.text
    made.same(draft, tolerance=1e-5)


def test_a_part_for_each_block(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(200), "out": np.ones(40, np.uint32), "n": 200}
    made = case(OWN_PART, arguments, grid=(5,), block=(32,))
    assert AtomicsPrivate().settings(made.draft) == ({"blocks": "all"},)
    made.same(made.applied(AtomicsPrivate()))


LEFT = {
    "the result is used": "x[i] = atomicAdd(&bins[x[i] % 10], 1);",
    "it reads what it adds to": "atomicAdd(&bins[x[i] % 10], 1); x[i] = bins[0];",
    "it writes it after": "atomicAdd(&bins[x[i] % 10], 1); bins[10] = 1;",
    "two kinds": "atomicAdd(&bins[x[i] % 10], 1); atomicMax(&bins[0], 4);",
    "an exchange": "atomicExch(&bins[x[i] % 10], 1);",
    "a fence": "atomicAdd(&bins[x[i] % 10], 1); __threadfence();",
    "leaves before a barrier": "if (i > n) return; atomicAdd(&bins[i % 10], 1); __syncthreads();",
    "returns in a loop": "for (;;) { atomicAdd(&bins[x[i] % 10], 1); if (i > 3) return; ++i; }",
    "each its own place": "atomicAdd(&bins[threadIdx.x], 1);",
    "a moving pointer": "bins += x[i] % 2; atomicAdd(&bins[x[i] % 9], 1);",
    "a function of no one's": "atomicAdd(&bins[x[i] % 10], 1); printf(\"%d\", i);",
    "inside of a function": "deep(bins, x[i] % 10);",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    source = f"""#include <cstdio>
    __device__ void deep(int* to, int at) {{ if (at) atomicAdd(to + at, 1); }}
    __global__ void k(int* x, int* bins, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        {LEFT[name]}
    }}"""
    arguments = {"x": drawn(64), "bins": np.zeros(64, np.int32), "n": 64}
    made = case(source, arguments, grid=(2,), block=(32,), callee="k")
    with pytest.raises(NotUnderstood):
        AtomicsPrivate().apply(made.draft, {"blocks": "all"})


def test_too_many_bins(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(64), "bins": np.zeros(20000, np.int32), "n": 64}
    made = case(HISTOGRAM.replace("% 10", ""), arguments, grid=(2,), block=(32,))
    with pytest.raises(NotUnderstood, match="do not fit"):
        AtomicsPrivate().settings(made.draft)


def test_pointers_into_one_allocation(case: Callable[..., Case]) -> None:
    arguments = {"x": drawn(64), "bins": np.zeros(10, np.int32), "n": 64}
    made = case(HISTOGRAM, arguments, grid=(2,), block=(32,))
    first, second, n = made.workload.arguments
    same = second.model_copy(update={"allocation": 0})
    workload = made.workload.model_copy(update={"arguments": (first, same, n)})
    subject = type(made.subject)(made.program, made.kernel, (workload,))
    with pytest.raises(NotUnderstood, match="may alias"):
        AtomicsPrivate().settings(type(made.draft).of(subject))


LENGTHS = """
__global__ void histogram(const int* x, int* bins, int n, int wide, int length, int one) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY if (i < n) atomicAdd(&bins[x[i] WIDE], one);
}"""


def of_lengths(
    case: Callable[..., Case], lengths: tuple[int, ...], body: str = "", wide: str = "% length"
) -> Case:
    """Seen at launches with arrays of these lengths, and run with the first."""

    def at(length: int) -> Case:
        bins = np.zeros(length, np.int32)
        given = {"x": drawn(640), "bins": bins, "n": 640, "wide": 9, "length": length, "one": 1}
        text = LENGTHS.replace("BODY", body).replace("WIDE", wide)
        return case(text, given, grid=(20,), block=(32,))

    *others, made = [at(length) for length in reversed(lengths)]  # files are those of the last
    workloads = (made.workload, *(x.workload for x in others))
    made.draft = type(made.draft).of(replace(made.subject, workloads=workloads))
    return made


def test_a_copy_is_used_as_far_as_the_launchs_array_is_long(case: Callable[..., Case]) -> None:
    made = of_lengths(case, (40, 700, 90))
    draft = made.applied(AtomicsPrivate())
    assert "__shared__ int bins_of_block[700];" in draft.text
    assert "bins_used = min((unsigned)length, 700u)" in draft.text
    assert "< bins_used; bin +=" in draft.text
    made.same(draft)


@pytest.mark.parametrize(
    ("lengths", "body", "wide"),
    [
        ((40, 40), "", "% length"),
        ((40, 90), "length = 40;", "% 40"),
        ((40, 90), "", "& 7"),
    ],
    ids=["of one length", "a parameter that changes", "places that are known"],
)
def test_a_copy_is_used_whole(
    lengths: tuple[int, ...], body: str, wide: str, case: Callable[..., Case]
) -> None:
    made = of_lengths(case, lengths, body, wide)
    draft = made.applied(AtomicsPrivate())
    assert "bins_used" not in draft.text
    made.same(draft)


def test_loops_in_strides_of_the_grid_take_more_turns(case: Callable[..., Case]) -> None:
    x, bins = drawn(700, 256, np.uint8), np.zeros(512, np.uint64)
    made = case(BYTES, {"x": x, "bins": bins, "n": 700}, grid=(8,), block=(32,))
    draft = AtomicsPrivate().apply(made.draft, {"blocks": 3})
    assert draft.launch.grid == expressions("3", "1", "1")
    assert "block2" not in draft.text
    assert "i += gridDim.x * blockDim.x" in draft.text
    made.same(draft)
