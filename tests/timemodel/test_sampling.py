"""Which blocks of a grid run for the model: of launches with clusters whole ones."""

from __future__ import annotations

import pytest

from cudaops.domain.base import Dim3
from cudaops.program.clusters import closed
from cudaops.timemodel.trace import STRATA, sampled_blocks, working_blocks

GRIDS = [Dim3(x=64, y=64), Dim3(x=8, y=8), Dim3(x=4096), Dim3(x=8, y=4, z=16)]
CLUSTERS = [Dim3(x=2), Dim3(x=2, y=2), Dim3(x=8), Dim3(x=1, y=4), Dim3(x=2, y=2, z=2)]


def fits(grid: Dim3, cluster: Dim3) -> bool:
    return not (grid.x % cluster.x or grid.y % cluster.y or grid.z % cluster.z)


PAIRS = [(grid, cluster) for grid in GRIDS for cluster in CLUSTERS if fits(grid, cluster)]


@pytest.mark.parametrize(("grid", "cluster"), PAIRS, ids=str)
def test_clusters_are_sampled_whole(grid: Dim3, cluster: Dim3) -> None:
    for strata in (STRATA, 40):
        found = sampled_blocks(grid, 7, strata, cluster)
        assert found == sampled_blocks(grid, 7, strata, cluster)
        for blocks in found:
            assert sorted(closed(blocks, grid, cluster)) == sorted(blocks)
            assert all(0 <= block < grid.volume for block in blocks)
        assert not set(found.counted) & set(found.neighbours)
        plain = len(sampled_blocks(grid, 7, strata).counted)
        assert cluster.volume <= len(found.counted) < plain + 2 * cluster.volume


def test_neighbours_are_next_to_a_cluster() -> None:
    grid, pair = Dim3(x=64, y=64), Dim3(x=2)
    found = sampled_blocks(grid, 7, cluster=pair)
    assert len(found.neighbours) == 4
    for distance in (1, grid.x):
        beside = {block + distance for block in found.counted}
        beside |= {block - distance for block in found.counted}
        assert beside & set(found.neighbours)


def test_of_the_blocks_that_work_whole_clusters_are_taken() -> None:
    grid = Dim3(x=16, y=4)
    found = working_blocks(grid, (1, 2, 3, 17, 40), Dim3(x=2, y=2))
    assert found.counted == (0, 1, 16, 17)
    assert working_blocks(grid, (1, 2, 3, 17, 40, 41)).counted == (1, 2, 3, 17, 40)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_cluster_of_one_block_is_none(grid: Dim3) -> None:
    assert sampled_blocks(grid, 3, cluster=Dim3()) == sampled_blocks(grid, 3)
