"""Intervals of what sampled blocks stand for."""

from __future__ import annotations

import random
import statistics

import pytest

from cudaops.timemodel.sampling_error import sampling_error


def test_blocks_that_do_alike_or_all_of_them_leave_nothing_open() -> None:
    assert sampling_error([7.0] * 5, 4000) == 0.0
    assert sampling_error([1.0, 9.0], 2) == 0.0
    assert sampling_error([3.0], 1) == sampling_error([], 9) == sampling_error([0.0, 0.0], 9) == 0.0


def test_five_blocks_agree_with_the_table_of_students_distribution() -> None:
    # 2.776 for four degrees of freedom; the deviation of these is 1.5811, their mean 3.
    found = sampling_error([1.0, 2.0, 3.0, 4.0, 5.0], 1_000_000)
    assert found == pytest.approx(2.776 * 1.5811 / 5**0.5 / 3.0, rel=0.02)


@pytest.mark.parametrize("count", [5, 20])
def test_the_interval_holds_the_mean_of_all_nineteen_times_of_twenty(count: int) -> None:
    draw = random.Random(count)
    grid = [draw.gauss(100.0, 30.0) for _ in range(2000)]
    mean, held = statistics.mean(grid), 0
    for _ in range(1000):
        sample = draw.sample(grid, count)
        found = statistics.mean(sample)
        held += abs(found - mean) <= sampling_error(sample, len(grid)) * found
    assert 925 <= held <= 975
