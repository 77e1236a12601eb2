"""The outcome in one sentence, and the numbers that it rests on."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.run import RunRecord
from cudaops.reports import content
from cudaops.reports.quantities import milliseconds, one_line, significant, times_faster

_CALLOUTS = {
    "modelled": "Every time and speedup here is modelled for {device}, not measured: no GPU took "
    "part. Correctness was checked by running the kernels.",
    "standin": "The GPU was a stand-in on this machine's processor: its times say nothing of any "
    "GPU. Correctness was checked by running the kernels.",
}


class Figure(NamedTuple):
    """One number in large print."""

    name: str
    value: str
    note: str
    """Its source, its interval."""


class OutcomeView(NamedTuple):
    """What a reader sees first."""

    kernel: str
    outcome: str
    """`nothing_found` as it is written in the record."""
    word: str
    headline: str
    meaning: str
    reason: str
    callout: str
    figures: list[Figure]
    said: list[str]


def view(record: RunRecord) -> OutcomeView:
    """The outcome, with the source behind every number."""
    verify = record.verify
    program = content.program_sentence(record)
    return OutcomeView(
        content.kernel_of(record),
        record.outcome,
        record.outcome.replace("_", " "),
        content.headline(record),
        content.meaning(record),
        one_line(record.reason),
        _CALLOUTS.get(record.time_source, "").format(device=record.device),
        [
            Figure(
                "Speedup", *_apart(times_faster(verify.speedup, content.clock_of(record)))
            )._replace(note=_interval(record)),
            _time("Author's kernel", verify.baseline_kernel_ms, record),
            _time(
                "Best rewrite" if record.best is not None else "Last candidate",
                verify.candidate_kernel_ms,
                record,
            ),
            _gates(record),
        ],
        [*([program] if program else []), *content.timing_sentences(record)],
    )


def _apart(text: str) -> tuple[str, str]:
    """`1.185 ms (modelled for A10)` as the number and what stands behind it."""
    number, _, source = text.partition(" (")
    return number, source.rstrip(")")


def _time(name: str, value_ms: float | None, record: RunRecord) -> Figure:
    return Figure(name, *_apart(milliseconds(value_ms, content.clock_of(record))))


def _interval(record: RunRecord) -> str:
    """The speedup's source and how far it may be from what was found."""
    judgement, clock = record.judgement, content.clock_of(record)
    if record.verify.speedup is None:
        return ""
    if judgement is None or judgement.speedup_low is None:
        missing = "no interval" if record.time_source == "modelled" else "no interval recorded"
        return f"{clock}; {missing}"
    high = judgement.speedup_high
    to = "not bounded above" if high is None else f"to {high:.2f}×"
    level = significant(100 * record.options.policy.confidence, 4)
    return f"{clock}; {level} % interval {judgement.speedup_low:.2f}× {to}"


def _gates(record: RunRecord) -> Figure:
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    if not gates:
        return Figure("Gates", "none", "no candidate got as far as that")
    whose = "of the kept candidate" if record.best is not None else "of the last candidate"
    return Figure("Gates", f"{sum(g.passed for g in gates)} of {len(gates)}", f"passed, {whose}")
