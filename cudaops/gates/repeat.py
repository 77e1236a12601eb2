"""Gate `repeat`: which launches of one candidate it makes, by inputs, order, fill and addresses.

All is drawn from the oracle's secret seed and the candidate's name, so no candidate can know it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cudaops.domain.judgement import Gate
from cudaops.domain.workload import Workload
from cudaops.executors.base import InputSet
from cudaops.gates.accuracy import NOTHING_COMPARED, BufferComparison
from cudaops.sandbox.inputs import EXACT_CASES
from cudaops.sandbox.oracle import Oracle, Reference

REPEATS = 10
"""Launches in one process."""

POISONS = (0x00, 0xFF, 0x5A, 0xC3, 0xE7)
"""Fill of outputs and scratch memory: zeros, not-a-number, and as f32 1.5e16, -390 and -2.2e24.
Each is used for two of the ten launches: the first of a pair, whose scratch memory it fills as
well, and the second of one."""

PAGE = 4096
SLOT = 256
"""Buffers lie at a multiple of this, and two places differ modulo `PAGE`: whatever addresses an
allocation gets, which are a multiple of a page apart, its buffer is at another one."""

MOST_PAGES = 16

SERIES_BYTES = 8 * 1024**3
"""Most that the results of one process may take on disk; more launches make another process."""


class Launch(NamedTuple):
    """One launch of a series and what it is compared with."""

    number: int
    """From 1, over the whole series."""
    reference: Reference
    inputs: InputSet


def schedule(oracle: Oracle, candidate: str) -> tuple[Launch, ...]:
    """`REPEATS` launches over every reference of the oracle.

    Two that follow each other stand at the same addresses, with other inputs where there are any;
    every such pair stands elsewhere, so inputs that come again meet other addresses. The small
    integers and the same with a few of them changed are one pair: a result that is kept by the
    address and some of the inputs is handed out wrongly there. The second of a pair finds scratch
    memory as the first left it, as it may in the author's program, whose scratch comes from a pool:
    a mark that says "done" is found there, while the outputs are filled anew.
    """
    draw = random.Random(f"{oracle.seed} {candidate}")
    pairs = _pairs(list(oracle.references), draw)
    shifts = [slot * SLOT + draw.randrange(MOST_PAGES) * PAGE for slot in _slots(draw)]
    poisons = zip(_shuffled(POISONS, draw), _shuffled(POISONS, draw), strict=True)
    launches: list[Launch] = []
    for pair, shift, fills in zip(pairs, shifts, poisons, strict=True):
        for second, (reference, fill) in enumerate(zip(pair, fills, strict=True)):
            inputs = refilled(reference, fill, shift, keep_scratch=bool(second))
            launches.append(Launch(len(launches) + 1, reference, inputs))
    return tuple(launches)


def refilled(
    reference: Reference, poison: int, shift_bytes: int = 0, *, keep_scratch: bool = False
) -> InputSet:
    """The inputs of a reference over another background and at another place.

    Where the baseline left places of an output unwritten, only scratch memory is filled otherwise.
    With `keep_scratch` that is not filled at all (`InputSet.keep_scratch`).
    """
    inputs = reference.inputs
    filled = inputs.poison if reference.unwritten else dict.fromkeys(inputs.poison, poison)
    return inputs.model_copy(
        update={
            "poison": filled,
            "scratch_poison": poison,
            "shift_bytes": shift_bytes,
            "keep_scratch": keep_scratch,
        }
    )


def fresh_process_launch(oracle: Oracle, candidate: str) -> Launch:
    """A launch for a fresh process, drawn like the others."""
    draw = random.Random(f"{oracle.seed} {candidate} once more")
    reference = draw.choice(oracle.references)
    return Launch(REPEATS + 1, reference, refilled(reference, draw.choice(POISONS)))


def split_by_process(launches: Sequence[Launch], workload: Workload) -> Iterator[Sequence[Launch]]:
    """All of them; fewer a process, two at least, where their results would not fit on disk."""
    each = workload.size_bytes
    most = max(2, SERIES_BYTES // max(1, each) // 2 * 2)
    for start in range(0, len(launches), most):
        yield launches[start : start + most]


def repeat_gate(
    found: Sequence[BufferComparison], oracles: Sequence[Oracle], launches: int, processes: int
) -> Gate:
    """One gate over all launches; the first wrong one ends it and is named."""
    if not found:
        return Gate(name="repeat", passed=False, summary=NOTHING_COMPARED)
    numbers = {
        "launches": float(launches),
        "processes": float(processes),
        "input_sets": float(min(len(oracle.references) for oracle in oracles)),
    }
    wrong = next((one for one in found if not one.accuracy.passed), None)
    if wrong is None:
        kinds = ", ".join(dict.fromkeys(r.kind for oracle in oracles for r in oracle.references))
        summary = (
            f"deterministic: {REPEATS} launches of one module in random order on {kinds} inputs, "
            f"at {REPEATS // 2} buffer addresses over {len(POISONS)} fill patterns, and 1 launch "
            "in a new process"
        )
        return Gate(name="repeat", passed=True, summary=summary, numbers=numbers)
    number = wrong.launch or 0
    where = f"launch {number} of {REPEATS} in one process"
    if number > REPEATS:
        where = f"a launch in a new process, after {REPEATS} correct ones"
    summary = f"{where} ({wrong.kind} inputs): {wrong.accuracy.summary}"
    numbers |= {"wrong_launch": float(number), **wrong.accuracy.numbers}
    return Gate(name="repeat", passed=False, summary=summary, numbers=numbers)


def _shuffled(poisons: Sequence[int], draw: random.Random) -> list[int]:
    return draw.sample(poisons, len(poisons))


def _slots(draw: random.Random) -> list[int]:
    return draw.sample(range(PAGE // SLOT), REPEATS // 2)


def _pairs(references: list[Reference], draw: random.Random) -> list[list[Reference]]:
    """Every reference at least once, as evenly as it goes, and never twice in a pair if there are
    two of them."""
    draw.shuffle(references)
    references.sort(key=lambda one: one.kind not in EXACT_CASES)
    every = [references[n % len(references)] for n in range(REPEATS)]
    pairs = [every[n : n + 2] for n in range(0, REPEATS, 2)]
    for pair in pairs:
        draw.shuffle(pair)
    draw.shuffle(pairs)
    return pairs
