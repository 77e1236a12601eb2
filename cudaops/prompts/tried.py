"""Anti-context: what was tried, and why it was not enough. Nothing is ever left out of it."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.domain.execution import TimeSource
from cudaops.domain.judgement import Attempt
from cudaops.domain.search import Branch
from cudaops.prompts.text import line

NEWEST = 4
"""Attempts shown with everything known of them; older ones take a short line each. Judgement: what
a model would repeat is what it has just been told to improve."""

_HOW: dict[TimeSource, str] = {"modelled": " modelled", "standin": " of a stand-in"}


def stopped_by(attempt: Attempt) -> str:
    """Name of the gate that ended an attempt; `no time` where none did."""
    return next((g.name for g in attempt.judgement.gates if not g.passed), "no time")


def tried_text(attempts: Sequence[Attempt], branches: Sequence[Branch]) -> str:
    """All of it under headings, what is newest last; empty where nothing was tried."""
    sections = [("kept, to build on", kept_lines(attempts))]
    sections += [(f"rejected by {gate}", lines) for gate, lines in failed_groups(attempts)]
    sections.append(("branches of the search under way", explored_lines(branches)))
    return "\n".join(f"{head}:\n" + "\n".join(lines) for head, lines in sections if lines)


def attempt_text(attempt: Attempt) -> str:
    """One attempt with everything known of it."""
    return f"{attempt.judgement.outcome}, {stopped_by(attempt)}\n{_full(attempt)}"


def kept_lines(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Attempts that were kept, oldest first."""
    return tuple(_full(a) for a in attempts if a.judgement.outcome != "rejected")


def failed_groups(attempts: Sequence[Attempt]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every rejected attempt, under the gate that rejected it.

    The group with the newest attempt is last, and within a group the newest.
    """
    failed = [a for a in attempts if a.judgement.outcome == "rejected"]
    newest = {id(a) for a in failed[-NEWEST:]}
    groups: dict[str, list[str]] = {}
    for attempt in failed:
        gate = stopped_by(attempt)
        lines = groups.pop(gate, [])  # put in again: groups are in order of their newest
        lines.append(_full(attempt) if id(attempt) in newest else _short(attempt))
        groups[gate] = lines
    return tuple((gate, tuple(lines)) for gate, lines in groups.items())


def explored_lines(branches: Sequence[Branch]) -> tuple[str, ...]:
    """Every branch of the search under way, with its draft time or why it has none."""
    return tuple(
        f"b{branch.id} [{branch.family}] {line(branch.title, 80)}: "
        + (
            f"{branch.time_us:,.1f} us (draft)"
            if branch.time_us is not None
            else line(branch.failure or "no time", 160)
        )
        for branch in branches
    )


def _full(attempt: Attempt) -> str:
    reason = _reason(attempt)
    tuned = ", ".join(f"{name}={value}" for name, value in attempt.tuned.items())
    family = f" [{attempt.family}]" if attempt.family else ""
    shown = (
        f"#{attempt.iteration}{family} {line(attempt.title, 100)}"
        f"{f' ({tuned})' if tuned else ''}: {_ratio(attempt)}{line(reason, 320)}"
    )
    # The lesson that stands where no model wrote one only repeats the reason.
    return shown if reason in attempt.lesson else f"{shown}; learnt: {line(attempt.lesson, 200)}"


def _short(attempt: Attempt) -> str:
    return (
        f"#{attempt.iteration} {line(attempt.title, 60)}: {_ratio(attempt)}"
        f"{line(_reason(attempt), 70)}"
    )


def _reason(attempt: Attempt) -> str:
    """Without the gate's name, which stands above it."""
    return attempt.judgement.reason.removeprefix(f"{stopped_by(attempt)}: ")


def _ratio(attempt: Attempt) -> str:
    """How much faster than the author's kernel, where a time was taken; ends with a separator."""
    speedup = attempt.judgement.speedup
    if speedup is None and attempt.baseline_us and attempt.candidate_us:
        speedup = attempt.baseline_us / attempt.candidate_us
    if speedup is None:
        return ""
    source = attempt.judgement.time_source
    how = "" if source is None else _HOW.get(source, " measured")
    return f"{speedup:.2f}x{how}; "
