"""Cooperative groups: which methods become intrinsics, which stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.inline import Inline
from cudaops.transformations.registry import transformation
from cudaops.transformations.thread_communication import thread_communication
from tests.transformations.bench import Case

HEAD = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
template <class T> struct mine { __device__ T operator()(T a, T b) const { return a - b; } };
__device__ float total(cg::thread_block_tile<32> lanes, float x) {
    for (int d = lanes.size() / 2; d > 0; d /= 2) x += lanes.shfl_xor(x, d);
    return x;
}
__global__ void k(const float* x, float* y, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    BODY
}"""
TAKEN = {
    "y[block.thread_rank()] = block.size() + block.num_threads();": "y[threadIdx.x] = blockDim.x",
    "y[block.thread_index().x] = block.group_index().x + block.group_dim().x;": "y[threadIdx.x]",
    "__shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; block.sync();"
    " y[threadIdx.x] = s[63 - threadIdx.x];": "__syncthreads();",
    "__shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; cg::sync(block);"
    " y[threadIdx.x] = s[63 - threadIdx.x];": "__syncthreads();",
    "__shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; cg::this_thread_block().sync();"
    " y[threadIdx.x] = s[63 - threadIdx.x];": "__syncthreads();",
    "y[threadIdx.x] = warp.thread_rank() * 10 + warp.meta_group_rank();": "threadIdx.x % 32",
    "y[threadIdx.x] = warp.meta_group_size() + warp.size();": "(blockDim.x + 31) / 32",
    "const unsigned lanes = warp.size(); y[threadIdx.x] = lanes;": "lanes = 32u",
    "y[threadIdx.x] = warp.shfl_down(x[threadIdx.x], 3);": "__shfl_down_sync(0xffffffff, x[",
    "y[threadIdx.x] = warp.shfl_up(x[threadIdx.x], n % 40);": "__shfl_up_sync(0xffffffff, x[",
    "y[threadIdx.x] = warp.shfl(x[threadIdx.x], 7);": "__shfl_sync(0xffffffff, x[",
    "if (warp.any(x[threadIdx.x] > 3)) y[threadIdx.x] = warp.ballot(x[threadIdx.x] < 3);":
    "__any_sync(0xffffffff, x[",
    "y[threadIdx.x] = warp.all(threadIdx.x < 32); warp.sync();": "__syncwarp();",
    "float s = cg::reduce(warp, x[threadIdx.x], cg::plus<float>()); y[threadIdx.x] = s;":
    "s += __shfl_xor_sync(0xffffffff, s, apart);",
    "float s = x[threadIdx.x]; s = cg::reduce(warp, s, cg::less<float>()); y[threadIdx.x] = s;":
    "s = other < s ? other : s;",
    "float s = x[threadIdx.x]; s = cg::reduce(warp, s, cg::plus<float>{}); y[threadIdx.x] = s;":
    "s += __shfl_xor_sync(0xffffffff, s, apart);",
    "float s = cg::reduce(warp, x[threadIdx.x], cg::greater<float>{}); y[threadIdx.x] = s;":
    "s = other > s ? other : s;",
    "const int s = cg::reduce(warp, (int)x[threadIdx.x], cg::greater<int>()); y[threadIdx.x] = s;":
    "s = other > s ? other : s;",
    "float s = total(warp, x[threadIdx.x]); y[threadIdx.x] = s;": "__shfl_xor_sync(0xffffffff",
}  # fmt: skip


def made(case: Callable[..., Case], body: str, block: tuple[int, ...] = (64,)) -> Case:
    count = int(np.prod(block))
    x = np.arange(count, dtype=np.float32) % 11 - 4
    arguments = {"x": x, "y": np.zeros_like(x), "n": count}
    return case(HEAD.replace("BODY", body), arguments, grid=(1,), block=block, callee="k")


@pytest.mark.parametrize("body", TAKEN)
def test_a_method_is_an_intrinsic(body: str, case: Callable[..., Case]) -> None:
    one = made(case, body)
    draft = Inline().apply(one.draft, {})
    assert TAKEN[body] in draft.text
    assert "cg::" not in draft.text
    assert "block." not in draft.text
    assert not thread_communication(draft).calls_other
    one.same(draft, tolerance=1e-6)


def test_ranks_of_blocks_with_several_axes(case: Callable[..., Case]) -> None:
    body = "y[block.thread_rank()] = warp.thread_rank() + block.size();"
    one = made(case, body, (16, 2, 3))
    draft = Inline().apply(one.draft, {})
    assert "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x" in draft.text
    one.same(draft)


def test_others_apply_then(case: Callable[..., Case]) -> None:
    body = (
        "__shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; block.sync();"
        " for (int d = 32; d > 0; d /= 2) { if (block.thread_rank() < d)"
        " s[threadIdx.x] += s[threadIdx.x + d]; block.sync(); }"
        " if (block.thread_rank() == 0) y[0] = s[0];"
    )
    one, other = made(case, body), transformation("shuffle_tree")
    draft = Inline().apply(one.draft, {})
    draft = other.apply(draft, other.settings(draft)[0])
    one.same(draft, tolerance=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "auto half = cg::tiled_partition<16>(block); y[threadIdx.x] = half.shfl_down(x[0], 1);",
        "auto four = cg::tiled_partition<4>(block); four.sync(); y[threadIdx.x] = 1;",
        "auto some = cg::coalesced_threads(); y[threadIdx.x] = some.thread_rank();",
        "auto some = cg::coalesced_threads(); some.sync(); y[threadIdx.x] = some.size();",
        "y[threadIdx.x] = 1.f + cg::reduce(warp, x[threadIdx.x], cg::plus<float>());",
        "double s = cg::reduce(warp, x[threadIdx.x], cg::plus<float>()); y[threadIdx.x] = s;",
        "float s = cg::reduce(warp, x[threadIdx.x], cg::plus<double>{}); y[threadIdx.x] = s;",
        "float s = cg::reduce(warp, x[threadIdx.x], mine<float>{}); y[threadIdx.x] = s;",
        "auto h = cg::tiled_partition<8>(block); float s = cg::reduce(h, x[0], cg::plus<float>{});",
        "y[threadIdx.x] = cg::reduce(warp, x[threadIdx.x], cg::plus<float>());",
        "y[threadIdx.x] = threadIdx.x;",
    ],
)
def test_what_stays(body: str, case: Callable[..., Case]) -> None:
    with pytest.raises(NotUnderstood):
        Inline().apply(made(case, body).draft, {})
