"""How unequal the threads of a launch are, by lines of its code: a warp goes on until its longest
lane is done, a block until its longest warp is.

Read from three dumps of the unit's IL: with what all sampled threads did, with what one lane of
each warp did, and one of each block, the longest ones (`executors/cpu/src/lanes.cpp`). g++ lays its
blocks out by their counts, so that the three may differ in that; lines of the source do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cudaops.timemodel.gimple import GimpleFunction, GimpleStatement, Place

UNEVEN_WARPS = 1.1
"""Turns of a block's longest warp over the mean of all from which it is played by itself: what the
counting build does not tell below (`lanes.cpp`)."""


class Turns(NamedTuple):
    """How often the statements of a line ran, all its copies and all sampled blocks together."""

    threads: float
    lanes: float
    """By the longest lane of each warp."""
    longest: float
    """By the longest lane of each block."""


class Divergence(NamedTuple):
    """What is known of one launch; of lines nothing where the threads of each block do alike."""

    turns: Mapping[Place, Turns] = {}
    heaviest_block: float = 1.0
    """Steps of the block that makes most, over the mean of the sampled ones."""
    longest_warp: float = 1.0
    """Steps of the warp that makes most of all, over the mean of the blocks' longest."""
    steps: tuple[float, ...] = ()
    """Of each sampled block, of its warps' longest lanes together; empty where nobody counted."""
    is_known: bool = False
    """Whether anybody counted."""

    @property
    def is_even(self) -> bool:
        """Whether all lanes did alike, and all sampled blocks as much: lengths that the contents
        of memory say would differ somewhere."""
        return self.is_known and not self.turns and len(set(self.steps)) == 1

    def of(self, statements: Iterable[GimpleStatement]) -> Turns | None:
        """Of the lines of these; None where the longest lanes came to none of them."""
        found = [
            self.turns[s.place] for s in statements if s.place is not None and s.place in self.turns
        ]
        return max(found, key=lambda turns: turns.lanes, default=None)


ALIKE = Divergence()
"""Nothing is known."""


def divergence(
    threads: Sequence[GimpleFunction], lanes: Sequence[GimpleFunction],
    longest: Sequence[GimpleFunction], steps: Sequence[Sequence[float]],
) -> Divergence:  # fmt: skip
    """`steps`: of each sampled block, of its warps' longest lanes together and of the longest of
    these. The dumps as in the module's text; the latter two are empty where threads do alike."""
    heaviest, warp = (_over_mean([block[n] for block in steps]) for n in (0, 1))
    everywhere, some, one = _by_place(threads), _by_place(lanes), _by_place(longest)
    turns = {
        place: Turns(n, some[place], one.get(place, 0.0))
        for place, n in everywhere.items()
        if some.get(place)
    }
    together = tuple(block[0] for block in steps)
    return Divergence(turns, heaviest, warp, together, bool(steps))


def _over_mean(amounts: Sequence[float]) -> float:
    return max(amounts) * len(amounts) / sum(amounts) if sum(amounts) else 1.0


def _by_place(functions: Sequence[GimpleFunction]) -> dict[Place, float]:
    found: dict[Place, float] = {}
    for function in functions:
        if function.is_guessed or not function.ran:
            continue
        for block in function.blocks.values():
            for place in {s.place for s in block.statements if block.count and s.place}:
                found[place] = found.get(place, 0.0) + block.count
    return found
