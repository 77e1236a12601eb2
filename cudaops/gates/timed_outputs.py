"""Were the launches whose time counts right? Their results against the references, by numbers.

The runner kept every distinct result (`executors.cuda.runner.watching`); this process, which ran
nothing, compares. Atomics give other bits each time and pass, as they do in every other gate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cudaops.domain.execution import MEASURED, Measurement, Ran, TimedOutput, Timing
from cudaops.domain.judgement import Comparison, Gate, Policy
from cudaops.domain.workload import Allocation
from cudaops.executors.compare import same_contents, same_rows
from cudaops.gates.accuracy import BufferAccuracy, buffer_accuracy
from cudaops.gates.clocks import LAUNCH_GAP_US
from cudaops.gates.correctness import in_any_order
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.timed_references import timed_references

LEAST_SEEN = 2
"""Samples on the captured inputs of a side that must have been looked at, both regimes together:
one a regime is what the shortest measurement of the largest results has. Others have 80, or 10
where a launch writes more than 64 MiB."""
REPLAY_FACTOR = 2.0
"""A candidate may lose at most this factor on other inputs beyond what the baseline loses there.
Chosen: floating values alone move a kernel's time by the power they take, up to tens of percent;
what was computed for the captured inputs alone saves nearly all of it."""
NOBODY_LOOKED = "the results of its timed launches were not checked"


Closer = Callable[[Oracle, Allocation, Ran, Reference], BufferAccuracy]
"""A buffer compared with what the author's kernel does in further runs of its own."""


def timed_outputs_gate(
    oracles: Sequence[Oracle],
    comparisons: Sequence[Comparison],
    policy: Policy,
    closer: Closer | None = None,
) -> Gate:
    """Hold every kept result of timed launches, of baseline and candidate, against its reference.

    Failed: a result is wrong, too few were looked at, or none at all. Quarantined: all are right,
    but the candidate is as fast as it is on the captured inputs alone. `closer` has the last word
    on a result that is too far off: atomics leave another one each time. A baseline whose timed
    results are wrong fails it too: no time taken beside it means anything, and who disturbed it
    cannot be told.
    """
    started = time.monotonic()
    numbers: dict[str, float] = {}
    problems = [] if comparisons else ["nothing was timed"]
    replayed: list[str] = []
    by_workload = {oracle.workload.id: oracle for oracle in oracles}
    for comparison in comparisons:
        oracle = by_workload.get(comparison.workload)
        if oracle is None:
            problems.append(f"{comparison.workload}: there is no reference for it")
            continue
        for one in _sides(comparison, oracle, policy, closer):
            problems += _problems(one, numbers)
        text = _replay(comparison, numbers)
        replayed += [text] if text else []
    summary = (problems or replayed or [_passed(numbers)])[0]
    return Gate(
        name="timed_outputs",
        passed=not problems and not replayed,
        quarantined=bool(replayed) and not problems,
        summary=summary,
        numbers=numbers,
        seconds=time.monotonic() - started,
    )


class _Side(NamedTuple):
    """Baseline or candidate on one workload."""

    shown: str
    key: str
    timing: Timing | None
    oracle: Oracle
    policy: Policy
    closer: Closer | None
    free_order: set[int]
    """Buffers whose elements the author's timed launches left in different orders. Found on his
    side, which is looked at first."""

    @property
    def is_author(self) -> bool:
        """Whether this is the baseline."""
        return self.key.startswith("baseline")


def _sides(
    comparison: Comparison, oracle: Oracle, policy: Policy, closer: Closer | None
) -> Iterator[_Side]:
    pairs: tuple[tuple[str, str, Measurement], ...] = (
        ("baseline", "the author's own kernel", comparison.baseline),
        ("candidate", "the candidate", comparison.candidate),
    )
    free_order: set[int] = set()
    for name, shown, side in pairs:
        where, key = f"{shown} on {comparison.workload}", f"{name}_{comparison.workload}"
        yield _Side(where, key, side.timing, oracle, policy, closer, free_order)


def _problems(side: _Side, numbers: dict[str, float]) -> list[str]:
    """What is wrong with the timed results of one side, the first thing first."""
    timing, references = side.timing, timed_references(side.oracle)
    if timing is None or not timing.timed_outputs:
        return [f"{side.shown}: {NOBODY_LOOKED}"]
    numbers |= {
        f"looked_at_{side.key}": float(timing.outputs_looked_at),
        f"taken_{side.key}": float(timing.outputs_taken),
        f"distinct_{side.key}": float(len(timing.timed_outputs)),
        f"not_kept_{side.key}": float(timing.outputs_not_kept),
        "looking_seconds": numbers.get("looking_seconds", 0.0) + timing.looking_seconds / 2,
    }
    seen = [0] * len(references)
    found: list[str] = []
    for output in timing.timed_outputs:
        if not 0 <= output.inputs < len(references):
            found.append(f"{side.shown}: a timed launch ran on inputs that have no reference")
            continue
        seen[output.inputs] += output.samples
        wrong = _wrong(side, output, references[output.inputs], numbers)
        found += [wrong] if wrong else []
    if seen[0] < LEAST_SEEN:
        found.append(f"{side.shown}: only {seen[0]} of its timed results could be checked")
    if min(seen) < 1:
        found.append(f"{side.shown}: no launch on other inputs was mixed into its samples")
    return found


def _wrong(
    side: _Side, output: TimedOutput, reference: Reference, numbers: dict[str, float]
) -> str | None:
    """What is wrong with one result; None where it is right."""
    workload, ran = side.oracle.workload, Ran(outputs=output.files, seconds=0.0)
    written = [a for a in workload.allocations if a.role != "in"]
    if any(a.index not in output.files for a in written) or not written:
        return f"{side.shown}: {NOBODY_LOOKED}"
    try:
        found = [
            _accuracy(side, a, ran, reference)
            for a in written
            # The reference itself, bit for bit, is exactly as right as the reference.
            if not same_contents(output.files[a.index], reference.outputs[a.index])
        ]
    except OSError as problem:
        return f"{side.shown}: a timed result cannot be read: {problem}"
    if not side.is_author:
        for accuracy in found:
            for key, value in accuracy.numbers.items():
                numbers[key] = max(value, numbers.get(key, value))
    bad = next((a for a in found if not a.passed), None)
    if bad is None:
        return None
    inputs = "captured" if output.inputs == 0 else reference.kind
    times = [
        f"{len(positions)} {regime} sample{'s' if len(positions) > 1 else ''}"
        for regime, positions in (("cold", output.cold), ("warm", output.warm))
        if positions
    ]
    times += [f"{output.apart} launches between them"] if output.apart else []
    where = " and ".join(times)
    return f"{side.shown} was wrong while it was timed ({where}, {inputs} inputs): {bad.summary}"


def _accuracy(side: _Side, a: Allocation, ran: Ran, reference: Reference) -> BufferAccuracy:
    """Of one buffer; in any order where the author's own kernel leaves it in several. His further
    runs, which no candidate was near, say how far that is from itself."""
    name = side.oracle.workload.name_of(a)
    found = buffer_accuracy(a, name, ran, reference, side.policy)
    if found.passed:
        return found
    if side.is_author and same_rows(a, ran.outputs[a.index], reference.outputs[a.index]):
        side.free_order.add(a.index)
    if a.index in side.free_order:
        return in_any_order(a, name, ran, reference, side.policy)
    return found if side.closer is None else side.closer(side.oracle, a, ran, reference)


def _replay(comparison: Comparison, numbers: dict[str, float]) -> str | None:
    """Why the candidate's time may hold for the captured inputs only; None where it does not."""
    baseline, candidate = comparison.baseline, comparison.candidate
    if candidate.source not in MEASURED or not (baseline.timing and candidate.timing):
        return None
    if not (baseline.timing.apart_us and candidate.timing.apart_us):
        return None
    there = statistics.median(candidate.timing.apart_us)
    slower = statistics.median(baseline.timing.apart_us) / baseline.events_us
    most = REPLAY_FACTOR * max(1.0, slower) * candidate.events_us + LAUNCH_GAP_US
    most += candidate.timing.event_overhead_us or 0.0  # a launch apart is alone in its sample
    numbers[f"apart_us_candidate_{comparison.workload}"] = there
    numbers[f"apart_us_bound_{comparison.workload}"] = most
    if there <= most:
        return None
    return (
        f"the candidate on {comparison.workload} takes {candidate.events_us:.1f} us on the "
        f"captured inputs and {there:.1f} us on others, where at most {most:.1f} us were expected: "
        "its time may hold for these inputs only"
    )


def _passed(numbers: dict[str, float]) -> str:
    looked = sum(v for k, v in numbers.items() if k.startswith("looked_at_"))
    taken = sum(v for k, v in numbers.items() if k.startswith("taken_"))
    distinct = sum(v for k, v in numbers.items() if k.startswith("distinct_"))
    text = f"{looked:.0f} of {taken:.0f} timed launches checked, {distinct:.0f} distinct results"
    return f"{text}, all right"
