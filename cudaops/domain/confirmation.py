"""Confirmation: what judging a certified rewrite again, with new secret inputs, came to."""

from __future__ import annotations

from typing import Literal

from cudaops.domain.base import Record
from cudaops.domain.certificate import Anchor, Certificate, ExecutorName, ProbeKind
from cudaops.domain.execution import TimeSource
from cudaops.domain.judge import MEASURABLE_SPEEDUP
from cudaops.domain.judgement import Comparison, Judgement

CONFIRMATION_FORMAT = "cudaops-confirmation/1"


class AnchorCheck(Record):
    """One anchor of the certificate beside the same probe run now."""

    workload: str
    probe: ProbeKind
    result: Literal["equal", "differs", "not_compared"]
    detail: str
    """Which allocation differs, under which compilers, or why nothing was compared."""


class SpeedupCheck(Record):
    """The certificate's speedup beside the new one."""

    result: Literal["covered", "differs", "not_compared"]
    detail: str


class Confirmation(Record):
    """A rewrite judged again."""

    run_id: str
    date: str
    """UTC, ISO 8601."""
    cudaops_version: str
    certificate_sha256: str
    """Of the certificate's file."""
    certificate_signer: str | None
    """Fingerprint of the key that signed it; None: it is not signed."""
    result: Literal["holds", "drifted", "fails"]
    reason: str
    """One line: the gate that failed, or what drifted with its numbers."""
    executor: ExecutorName
    time_source: TimeSource
    device: str
    sm_arch: str
    tools: dict[str, str]
    seed: int
    """Of this time's secret inputs."""
    judgement: Judgement
    comparisons: tuple[Comparison, ...]
    fresh: tuple[Comparison, ...]
    anchors: tuple[AnchorCheck, ...]
    speedup: SpeedupCheck
    notices: tuple[str, ...] = ()


def compare_anchors(then: tuple[Anchor, ...], now: tuple[Anchor, ...]) -> tuple[AnchorCheck, ...]:
    """Each anchor of the certificate beside today's of the same workload and probe."""
    today = {(a.workload, a.probe): a for a in now}
    return tuple(_compare_anchor(a, today.get((a.workload, a.probe))) for a in then)


def _compare_anchor(then: Anchor, now: Anchor | None) -> AnchorCheck:
    def said(result: Literal["equal", "differs", "not_compared"], detail: str) -> AnchorCheck:
        return AnchorCheck(workload=then.workload, probe=then.probe, result=result, detail=detail)

    if not then.outputs:
        return said("not_compared", f"none was recorded: {then.problem}")
    if now is None or not now.outputs:
        problem = "this probe was not run" if now is None else now.problem
        return said("differs", f"recorded by {then.compiler}, and now: {problem}")
    if now.inputs_sha256 != then.inputs_sha256 or now.seed != then.seed:
        return said("differs", "the probe's inputs are not those of the certificate")
    today = {o.index: o for o in now.outputs}
    same_place = then.executor == now.executor
    compared = 0
    for output in then.outputs:
        other = today.get(output.index)
        if output.sha256 is None or not (same_place or output.exact):
            continue
        if other is None or other.sha256 is None:
            return said("differs", f"allocation {output.index} is not the same in two runs now")
        if other.sha256 != output.sha256:
            return said(
                "differs",
                f"allocation {output.index} is {output.sha256[:12]} by {_where(then)} "
                f"and {other.sha256[:12]} by {_where(now)}",
            )
        compared += 1
    if compared:
        return said("equal", f"{compared} of {len(then.outputs)} allocations compared")
    why = (
        "two runs of the baseline differ from each other"
        if same_place
        else f"recorded by {_where(then)}, whose rounding need not be that of {_where(now)}"
    )
    return said("not_compared", why)


def _where(anchor: Anchor) -> str:
    return " ".join(word for word in (anchor.compiler, anchor.sm_arch) if word)


def compare_speedups(certificate: Certificate, device: str, judgement: Judgement) -> SpeedupCheck:
    """Whether the intervals of the two speedups overlap, 2 % of either side allowed.

    Two builds of one kernel differ by as much (`MEASURABLE_SPEEDUP`). A modelled time has no
    interval; its value stands for both ends.
    """
    then = _interval(certificate.judgement)
    now = _interval(judgement)
    if then is None or now is None:
        return SpeedupCheck(result="not_compared", detail="no time was taken")
    if (certificate.time_source, certificate.device) != (judgement.time_source, device):
        detail = (
            f"{_shown(then)} {certificate.time_source} for {certificate.device}, "
            f"{_shown(now)} {judgement.time_source} on {device}: not the same thing"
        )
        return SpeedupCheck(result="not_compared", detail=detail)
    apart = now[1] * MEASURABLE_SPEEDUP < then[0] or now[0] > then[1] * MEASURABLE_SPEEDUP
    return SpeedupCheck(
        result="differs" if apart else "covered",
        detail=f"{_shown(then)} in the certificate, {_shown(now)} now",
    )


def _interval(judgement: Judgement) -> tuple[float, float] | None:
    if judgement.speedup is None:
        return None
    if judgement.speedup_low is None or judgement.speedup_high is None:
        return judgement.speedup, judgement.speedup
    return judgement.speedup_low, judgement.speedup_high


def _shown(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.3f}x" if low == high else f"{low:.3f}-{high:.3f}x"
