"""How many blocks of a grid do anything: where a grid is larger than its data, the others end at
once.

Some blocks are looked at. Where they fall into a few runs of such that work and such that do not,
blocks between two runs are looked at as well, until it is known where one ends; where they do not,
those of the sample say how many work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

FEW_RUNS = 3
"""Ends of runs that are looked for at once."""
BETWEEN = 7
"""Blocks looked at between two runs in one go."""
CLOSE = 0.05
"""Of the blocks that work, so many may be uncertain. Chosen: what the time model does not see."""

Looked = Mapping[int, bool]
"""Whether a block does anything, by its place in the grid; the first and the last are there."""


def to_look_at(looked: Looked) -> tuple[int, ...]:
    """The blocks that say next where runs end; none where that is known well enough, or where
    there are too many runs."""
    ends = tuple(_ends(looked))
    uncertain = sum(last - first - 1 for first, last in ends)
    if len(ends) > FEW_RUNS or uncertain <= CLOSE * _working(looked):
        return ()
    found = []
    for first, last in ends:
        parts = min(BETWEEN + 1, last - first)
        found += [first + n * (last - first) // parts for n in range(1, parts)]
    return tuple(found)


def working_share(looked: Looked, sample: Sequence[int]) -> float:
    """Of the grid's blocks. `sample`: those that were chosen at random."""
    if len(tuple(_ends(looked))) > FEW_RUNS:
        return sum(looked[block] for block in sample) / len(sample)
    return _working(looked) / (max(looked) + 1)


def _ends(looked: Looked) -> Iterator[tuple[int, int]]:
    """Neighbours among those looked at of which one works."""
    for first, last in itertools.pairwise(sorted(looked)):
        if looked[first] != looked[last]:
            yield first, last


def _working(looked: Looked) -> float:
    """Blocks that work, where what lies between two of a kind is of that kind, and a run ends in
    the middle between two others."""
    between = sum(
        (last - first - 1) * (looked[first] + looked[last]) / 2
        for first, last in itertools.pairwise(sorted(looked))
    )
    return between + sum(looked.values())
