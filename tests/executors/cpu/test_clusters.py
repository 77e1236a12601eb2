"""Clusters on `cpu`: blocks that read each other's shared memory, and what the checker says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Misbehaved
from cudaops.executors.base import Check
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import Case, array, ran, run, vector_case, went_wrong
from tests.executors.conformance import SCALE, SCALE_LAUNCH, rewrite

TEXT = """
// @launch scaled grid=(8) block=(128) smem=(512) args=(a, b, n, by)
#include <cooperative_groups.h>
__global__ void __cluster_dims__(4) scaled(const float* a, float* b, int n, float by) {
  __shared__ float tile[128];
  extern __shared__ float more[];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, i = blockIdx.x * 128 + t, next = (cluster.block_rank() + 1) % 4;
  int j = (blockIdx.x / 4 * 4 + next) * 128 + t;
  BODY
}
"""
FILL = "tile[t] = more[t] = i < n ? a[i] : 0.f;"
READ = "if (j < n) b[j] = by * *cluster.map_shared_rank(&tile[t], next);"
SYNC = "cluster.sync();"
RIGHT = {
    "a barrier on both sides": f"{FILL} {SYNC} {READ} {SYNC}",
    "arrives, and waits later": (
        f"{FILL} auto token = cluster.barrier_arrive(); float mine = tile[t]; "
        f"cluster.barrier_wait(static_cast<decltype(token)&&>(token)); {READ} {SYNC} b[n] = mine;"
    ).replace("b[n] = mine;", "if (mine < 0) b[0] = mine;"),
    "dynamic shared memory": (
        f"{FILL} {SYNC} if (j < n) b[j] = by * cluster.map_shared_rank(more, next)[t]; {SYNC}"
    ),
    "writes into another block": (
        f"{SYNC} cluster.map_shared_rank(tile, (cluster.block_rank() + 3) % 4)[t] = "
        f"i < n ? a[i] : 0.f; {SYNC} if (j < n) b[j] = by * tile[t];"
    ),
    "adds up in one block": (
        "__shared__ int count; if (t == 0) count = 0; "
        f"{FILL} {SYNC} atomicAdd(cluster.map_shared_rank(&count, 0), 1); {SYNC} "
        f"if (*cluster.map_shared_rank(&count, 0) != 512) return; {READ} {SYNC}"
    ),
    "the blocks of a cluster": (
        f"if (cluster.num_blocks() != 4 || cluster.dim_blocks().x != 4 || cluster.num_threads() != "
        f"512 || cluster.block_index().x != blockIdx.x % 4 || cluster.thread_rank() != i % 512 || "
        f"cluster.query_shared_rank(cluster.map_shared_rank(tile, next)) != next) return; "
        f"{FILL} {SYNC} {READ} {SYNC}"
    ),
    "some threads end early": f"{FILL} {SYNC} {READ} if (t > 90) return; {SYNC}",
}
RACES = {
    "no barrier before": (f"{FILL} __syncthreads(); {READ} {SYNC}", "before the first barrier"),
    "no barrier behind": (f"{FILL} {SYNC} {READ}", "stands behind the last access"),
    "written again at once": (
        f"{FILL} {SYNC} {READ} __syncthreads(); tile[t] = 0; {SYNC}",
        "with no barrier of the cluster between them",
    ),
    "two blocks write": (
        f"{FILL} {SYNC} cluster.map_shared_rank(more, 0)[t] = 1; {SYNC} {READ} {SYNC}",
        "with no barrier of the cluster between them",
    ),
    "only one side waits": (
        f"{FILL} {SYNC} {READ} if (t >= 64) {{ {SYNC} return; }} tile[127 - t] = 0; {SYNC}",
        "with no barrier of the cluster between them",
    ),
}  # fmt: skip
WRONG = {
    "past the end": (
        f"{FILL} {SYNC} cluster.map_shared_rank(tile, next)[t + 200] = 1; {SYNC}",
        "out_of_bounds", "past the end of static shared memory of block",
    ),
    "past the end of dynamic shared memory": (
        f"{FILL} {SYNC} cluster.map_shared_rank(more, next)[t + 100] = 1; {SYNC}",
        "out_of_bounds", "past the end of dynamic shared memory of block",
    ),
    "no such block": (
        f"{FILL} {SYNC} b[i % 9] = *cluster.map_shared_rank(tile, 4); {SYNC}",
        "crash", "there is no block 4 in a cluster of 4",
    ),
    "not shared memory": (
        f"{FILL} {SYNC} b[i % 9] = *cluster.map_shared_rank(&a[0], next); {SYNC}",
        "crash", "not in the block's own shared memory",
    ),
    "half a block waits": (
        f"{FILL} if (t < 64) {{ {SYNC} }} else __syncthreads(); {READ} {SYNC}",
        "deadlock", "and of its cluster can go on",
    ),
    "arrives twice": (
        f"{FILL} cluster.barrier_arrive(); cluster.barrier_arrive(); {READ} {SYNC}",
        "crash", "again before it has waited",
    ),
    "waits for nothing": (
        f"{FILL} cluster.barrier_wait(); {READ} {SYNC}", "crash", "has not arrived at it",
    ),
}  # fmt: skip


@pytest.fixture
def scale(cpu_executor: CpuExecutor, tmp_path: Path) -> Case:
    return vector_case(cpu_executor, tmp_path, SCALE, SCALE_LAUNCH)


@pytest.mark.parametrize("check", ["none", "full"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right(name: str, check: Check, cpu_executor: CpuExecutor, scale: Case) -> None:
    done = ran(run(cpu_executor, scale, rewrite(RIGHT[name], TEXT), check=check))
    assert done.warnings == ()
    a, b = scale.workload.allocations
    wanted = 3.0 * array(scale.workload.folder + "/" + a.before)
    np.testing.assert_array_equal(array(done.outputs[b.index]), wanted)


@pytest.mark.parametrize("name", RACES)
def test_races_across_blocks(name: str, cpu_executor: CpuExecutor, scale: Case) -> None:
    body, words = RACES[name]
    done = ran(run(cpu_executor, scale, rewrite(body, TEXT), check="full"))
    said = [w.message for w in done.warnings if w.what == "shared_race"]
    assert any(words in one for one in said), said


@pytest.mark.parametrize("name", WRONG)
def test_what_ends_a_launch(name: str, cpu_executor: CpuExecutor, scale: Case) -> None:
    body, what, words = WRONG[name]
    found = went_wrong(run(cpu_executor, scale, rewrite(body, TEXT), check="full"))
    assert isinstance(found, Misbehaved)
    assert found.what == what
    assert words in found.message, found.message
