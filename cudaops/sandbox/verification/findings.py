"""From what was found in every buffer of every launch to a gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cudaops.domain.judgement import Gate, GateName
from cudaops.sandbox.verification.accuracy import BufferAccuracy
from cudaops.sandbox.verification.inputs import CaseKind
from cudaops.sandbox.verification.oracle import ENOUGH_CASES
from cudaops.sandbox.verification.reference import Oracle
from cudaops.sandbox.verification.schedule import POISONS, REPEATS

NOTHING = "the kernel changes no buffer, so nothing was compared"


class Finding(NamedTuple):
    """One output buffer after one launch."""

    kind: CaseKind
    accuracy: BufferAccuracy
    launch: int | None = None
    """Of the repeat gate, from 1."""


class Sets(NamedTuple):
    """How many sets of inputs the gates compared."""

    summary: str
    numbers: dict[str, float]


def accuracy_gate(name: GateName, found: Sequence[Finding]) -> Gate:
    """One gate over all buffers of all workloads; no buffer at all is a failure."""
    if not found:
        return Gate(name=name, passed=False, summary=NOTHING)
    kinds = list(dict.fromkeys(one.kind for one in found))
    worst = next((one for one in found if not one.accuracy.passed), None)
    label = "/".join(kinds) if worst is None else worst.kind
    shown = (worst or found[0]).accuracy.summary
    return Gate(
        name=name,
        passed=worst is None,
        summary=f"{label} inputs: {shown}",
        numbers=_numbers(found, prefixed=len(kinds) > 1),
    )


def repeat_gate(
    found: Sequence[Finding], oracles: Sequence[Oracle], launches: int, processes: int
) -> Gate:
    """One gate over all launches; the first wrong one ends it and is named."""
    if not found:
        return Gate(name="repeat", passed=False, summary=NOTHING)
    numbers = {
        "launches": float(launches),
        "processes": float(processes),
        "input_sets": float(min(len(oracle.references) for oracle in oracles)),
    }
    wrong = next((one for one in found if not one.accuracy.passed), None)
    if wrong is None:
        kinds = ", ".join(dict.fromkeys(r.kind for oracle in oracles for r in oracle.references))
        summary = (
            f"{REPEATS} launches of one loaded module in drawn order on {kinds} inputs, at "
            f"{REPEATS // 2} places over {len(POISONS)} backgrounds, then one in a fresh process"
        )
        return Gate(name="repeat", passed=True, summary=summary, numbers=numbers)
    number = wrong.launch or 0
    where = f"launch {number} of {REPEATS} in one process"
    if number > REPEATS:
        where = f"a launch in a fresh process, after {REPEATS} that were right"
    summary = f"{where} ({wrong.kind} inputs): {wrong.accuracy.summary}"
    numbers |= {"wrong_launch": float(number), **wrong.accuracy.numbers}
    return Gate(name="repeat", passed=False, summary=summary, numbers=numbers)


def sets_said(oracles: Sequence[Oracle]) -> Sets:
    """How many sets there are of the workload that has fewest, and what was left out and why."""
    fewest = min(oracles, key=lambda oracle: len(oracle.references))
    count = len(fewest.references)
    text = f"{count} sets of inputs in all"
    if count < ENOUGH_CASES:
        text = f"only {text}, fewer than {ENOUGH_CASES}: the oracle is weaker for it"
    reasons: dict[str, list[str]] = {}
    for one in fewest.left_out:
        reasons.setdefault(one.why, []).append(one.kind)
    if reasons:
        text += "; left out: "
        text += "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in reasons.items())
    numbers = {"input_sets": float(count), "input_sets_left_out": float(len(fewest.left_out))}
    return Sets(text, numbers)


def _numbers(found: Sequence[Finding], *, prefixed: bool) -> dict[str, float]:
    """The largest of each number; of several kinds of inputs each its own."""
    numbers: dict[str, float] = {}
    for one in found:
        for key, value in one.accuracy.numbers.items():
            name = f"{one.kind}_{key}" if prefixed else key
            numbers[name] = max(value, numbers.get(name, value))
    return numbers
