"""A first look at one branch of a search: right on the program's own inputs, and how fast.

A wrong kernel is often a fast one; without this it would lead the search and breed. What passes
here has proven nothing: only what `evaluate` finds is ever judged.
"""

from __future__ import annotations

from cudaops.domain.base import Record
from cudaops.domain.execution import Measurement
from cudaops.domain.judgement import Gate
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.sandbox.evaluate import Evaluating
from cudaops.sandbox.workbench import Workbench


class Screened(Record):
    """What the first look at a rewrite found."""

    time_us: float | None
    """On the most expensive workload, taken by itself; None where a gate refused the rewrite or it
    could not be timed. Ranks branches; nothing is accepted on it."""
    baseline_us: float
    """The author's kernel on the same workload by the same clock."""
    failure: str | None = None
    """Why there is no time: the gate that refused it, or what it did when it was timed."""
    gates: tuple[Gate, ...]
    """Those that were reached of hygiene, preprocessed, compile, object, checker and
    correctness_captured, in this order."""


def screen(bench: Workbench, rewrite: Rewrite, say: Say = lambda line: None) -> Screened:
    """The first gates of `evaluate` by the same code, then a time.

    What is only quarantined goes on where a person reviews, as in `evaluate`. Builds and references
    are kept: a rewrite that is judged later does not pay for them again.

    Raises InputError where the author's own kernel cannot be timed.
    """
    looking = Evaluating(bench, rewrite, say)
    compiled = looking.built()
    right = compiled is not None and looking.right_on_captured(compiled)
    time_us, failure = _timed(bench, rewrite, say) if right else (None, looking.gates[-1].line)
    return Screened(
        time_us=time_us,
        baseline_us=bench.baseline_time(bench.workloads[0]).median_us,
        failure=failure,
        gates=tuple(looking.gates),
    )


def _timed(bench: Workbench, rewrite: Rewrite, say: Say) -> tuple[float | None, str | None]:
    measured = bench.measure(rewrite, bench.workloads[0])
    if not isinstance(measured, Measurement):
        return None, measured.placed
    say(f"{rewrite.title}: {measured.median_us:.1f} us{measured.provenance}")
    return measured.median_us, None
