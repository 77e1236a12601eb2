"""Results of timed launches: read after a sample, outside of its events, each distinct one once.

Two results are the same only where every byte is: they are compared with what was kept, not with a
hash of it, so nothing can be made to look alike. The runner holds no reference; whether a result is
right is said by the parent (`gates.timed_outputs`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cudaops.executors.cuda.protocol import OutputWatch, Regime, SideOutputs, TimedResult
from cudaops.executors.cuda.runner.driver import Driver
from cudaops.executors.cuda.runner.memory import Region, TaskMemory

LARGE_BYTES = 4 * 1024**2
"""A side that writes more than this a sample is looked at in some samples only. Chosen: to read and
compare it takes a millisecond; 560 looks at 32 MB took 14 s of an H100 that others waited for."""
LARGE_LOOKS = 1
"""Pairs of each block that are looked at then: ten of eighty samples a side, beside those apart.
A result that is wrong in half of all samples is missed with a probability of 2^-10."""
KEPT_BYTES = 256 * 1024**2
"""Of results on disk, both sides and all inputs together; at least `LEAST_KEPT` of each."""
LEAST_KEPT = 4
PIECE_BYTES = 256 * 1024
"""Compared at a time: results that differ mostly do so in the first."""
APART_SHARE = 1 / 6
"""Chance that a pair of samples has a pair apart before it: about seven of forty."""
LEAST_APART = 4
"""Pairs apart in a regime; those that chance did not give are taken at its end."""
FEW_BEFORE, MANY_BEFORE = range(1, 3), range(3, 9)
"""How many launches are before one apart with nothing put back but inputs. Of four pairs apart
one has few, one has many and two have none, in an order of their own."""


class DistinctResult:
    """A distinct result: where it is kept, and which samples ended with it."""

    def __init__(self, files: Mapping[int, Path]) -> None:
        self.files = files
        self.sightings = 1
        self.kept = True
        self.at: dict[Regime, list[int]] = {"cold": [], "warm": []}

    def has(self, index: int, offset: int, data: memoryview) -> bool:
        """Whether these bytes are there."""
        with self.files[index].open("rb") as file:
            file.seek(offset)
            pieces = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
            # A bytearray is compared as a whole, a view an element at a time.
            return all(bytearray(file.read(len(piece))) == piece for piece in pieces)

    def reply(self, inputs: int) -> TimedResult:
        """As the parent gets it."""
        cold, warm = tuple(self.at["cold"]), tuple(self.at["warm"])
        return TimedResult(
            inputs=inputs,
            files={index: str(path) for index, path in self.files.items()},
            cold=cold,
            warm=warm,
            apart=self.sightings - len(cold) - len(warm),
        )


class Watcher:
    """Draws what is looked at, looks, and keeps the results. Raises OSError where it cannot write,
    DriverError as the driver does: a kernel's error may show here first."""

    def __init__(
        self,
        driver: Driver,
        memory: TaskMemory,
        watch: OutputWatch,
        written: Mapping[int, Region],
        sides: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds = 0.0
        """Spent in looking so far."""
        self._memory = memory
        self._written = written
        self._clock = clock
        self._folder = Path(watch.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.draw = random.Random(watch.seed)
        """Whatever is drawn while this is timed: the seed is a secret, and says it all again."""
        self._sets = range(1 + len(watch.alternatives))
        self._bytes = sum(region.size_bytes for region in written.values())
        room = KEPT_BYTES // (max(1, self._bytes) * len(self._sets) * max(1, sides))
        self._most = max(LEAST_KEPT, min(watch.most_kept, room))
        self._results: dict[tuple[int, int], list[DistinctResult]] = {
            (side, inputs): [] for side in range(sides) for inputs in self._sets
        }
        self._unmatched = dict.fromkeys(self._results, 0)
        self._looked = [0] * sides
        self._taken = [0] * sides
        self._not_kept = [0] * sides
        self._inputs_left: list[int] = []
        self._before_left: list[int] = []

    def looks(self, pairs: int) -> frozenset[int]:
        """Which pairs of the next block, counted from 0, are looked at."""
        if self._bytes <= LARGE_BYTES:
            return frozenset(range(pairs))
        return frozenset(self.draw.sample(range(pairs), min(pairs, LARGE_LOOKS)))

    def apart_is_due(self, samples: int, *, rare: bool = False) -> bool:
        """Whether a pair apart is before the next pair, one of about so many. `rare`: as where
        much is written."""
        rare = rare or self._bytes > LARGE_BYTES
        share = LEAST_APART / max(1, samples) if rare else APART_SHARE
        return self.draw.random() < share

    def inputs_apart(self, *, captured_too: bool) -> int:
        """Set of inputs of the next pair apart; all come in turn, in an order of their own.

        `captured_too`: the task's own inputs are among them, as they must be where the other
        samples cannot be looked at.
        """
        if not self._inputs_left:
            alone = len(self._sets) == 1
            self._inputs_left = [n for n in self._sets if n or captured_too or alone]
            self.draw.shuffle(self._inputs_left)
        return self._inputs_left.pop()

    def launches_before(self) -> int:
        """How many launches are before the next one apart. 0: its memory is put back as it is
        before any other sample, which leaves nothing to tell it from one but its inputs."""
        if not self._before_left:
            draw = self.draw.choice
            self._before_left = [0, 0, draw(FEW_BEFORE), draw(MANY_BEFORE)]
            self.draw.shuffle(self._before_left)
        return self._before_left.pop()

    def count(self, side: int) -> None:
        """A sample was taken."""
        self._taken[side] += 1

    def look(self, side: int, inputs: int) -> DistinctResult | None:
        """Read what the side's last launch left; the result it is, None where it is not kept."""
        started = self._clock()
        try:
            return self._looked_at(side, inputs)
        finally:
            self.seconds += self._clock() - started

    def outputs(self) -> tuple[SideOutputs, ...]:
        """What was seen, one a side."""
        return tuple(
            SideOutputs(
                results=tuple(
                    one.reply(inputs)
                    for inputs in self._sets
                    for one in self._results[side, inputs]
                ),
                looked_at=self._looked[side],
                taken=self._taken[side],
                not_kept=self._not_kept[side],
            )
            for side in range(len(self._taken))
        )

    def _looked_at(self, side: int, inputs: int) -> DistinctResult | None:
        self._looked[side] += 1
        known = self._results[side, inputs]
        same = self._same(known)
        if same is not None:
            same.sightings += 1
            return same
        self._unmatched[side, inputs] += 1
        if len(known) < self._most:
            place = len(known)
        elif (drawn := self._replaced(known, self._unmatched[side, inputs])) is None:
            self._not_kept[side] += 1
            return None
        else:
            self._not_kept[side] += 1
            known[place := drawn].kept = False
        result = self._saved(f"timed_{side}_{inputs}_{place}")
        known[place : place + 1] = [result]
        return result

    def _same(self, known: Sequence[DistinctResult]) -> DistinctResult | None:
        alive = list(known)
        for index, region in self._written.items():
            if not alive:
                return None
            for offset, data in self._memory.read(region.address, region.size_bytes):
                alive = [one for one in alive if one.has(index, offset, data)]
                if not alive:
                    return None
        return alive[0] if alive else None

    def _replaced(self, known: Sequence[DistinctResult], unmatched: int) -> int | None:
        """Place of one that makes room: any that was seen once, so that each has the same chance
        to be kept however many come. What was seen again is not given up for it."""
        once = [place for place, one in enumerate(known) if one.sightings == 1]
        if not once or self.draw.random() >= len(once) / unmatched:
            return None
        return self.draw.choice(once)

    def _saved(self, name: str) -> DistinctResult:
        files = {index: self._folder / f"{name}_{index}.bin" for index in self._written}
        for index, region in self._written.items():
            self._memory.save(region.address, region.size_bytes, files[index])
        return DistinctResult(files)


def keep_positions(regime: Regime, first: int, found: Sequence[DistinctResult | None]) -> None:
    """The samples of a block that counts stand from `first` on among those of its regime."""
    for position, result in enumerate(found, start=first):
        if result is not None and result.kept:
            result.at[regime].append(position)
