"""Which blocks of a grid run for the model: of launches with clusters whole ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.base import Dim3
from cudaops.program.clusters import closed
from cudaops.timemodel.idle_blocks import to_look_at, working_share
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
    assert found.counted == (2, 3, 18, 19)
    assert working_blocks(grid, (1, 2, 3, 17, 40, 41)).counted == (1, 2, 17, 40, 41)
    assert working_blocks(grid, range(60)).counted == (6, 18, 30, 42, 54)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_cluster_of_one_block_is_none(grid: Dim3) -> None:
    assert sampled_blocks(grid, 3, cluster=Dim3()) == sampled_blocks(grid, 3)


def looked_for(volume: int, works: Callable[[int], bool]) -> tuple[float, int]:
    """How many blocks are said to work, and how many were looked at."""
    sample = sampled_blocks(Dim3(x=volume), 7, 40).counted
    looked: dict[int, bool] = {}
    left: tuple[int, ...] = (0, *sample, volume - 1)
    while left:
        looked |= {block: works(block) for block in left}
        left = to_look_at(looked)
    return working_share(looked, sample) * volume, len(looked)


@pytest.mark.parametrize("volume", [300, 2112, 100_000])
@pytest.mark.parametrize("first", [1, 7, 40, 250, 299])
def test_where_the_blocks_that_work_end(volume: int, first: int) -> None:
    for works in (lambda b: b < first, lambda b: b >= volume - first):
        found, many = looked_for(volume, works)
        assert found == pytest.approx(first, rel=0.05, abs=0.5)
        assert many < 80


def test_more_ends_than_are_looked_for() -> None:
    found, many = looked_for(10_000, lambda block: block % 3 == 0)
    assert found == pytest.approx(10_000 / 3, rel=0.4)
    assert many <= 42
    assert looked_for(10_000, lambda block: 4000 <= block < 7000)[0] == pytest.approx(
        3000, rel=0.05
    )
    assert looked_for(10_000, lambda block: True) == (10_000, many)
    assert looked_for(10_000, lambda block: False) == (0, many)
