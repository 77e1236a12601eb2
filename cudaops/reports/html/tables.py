"""The sections without a chart: the outcome, what limits the kernel, the gates of every candidate,
the certificate, and how the run was made; and what lies beside a record in its run folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from cudaops.domain.certificate import Certificate
from cudaops.domain.judgement import Attempt, Gate
from cudaops.domain.profile import Finding, Profile, Verdict
from cudaops.domain.run import ProfileSummary, RunRecord
from cudaops.reports import content, profiles
from cudaops.reports.content import GateRow, clock_of, gate_rows
from cudaops.reports.html.diff import DiffSpan, pieces
from cudaops.reports.next_steps import next_steps
from cudaops.reports.quantities import (
    Clock,
    microseconds,
    milliseconds,
    one_line,
    quantity,
    significant,
    times_faster,
)
from cudaops.reports.recording import RecordedTrial, RunRecording


class CertificateView(NamedTuple):
    """certificate.json as whoever could check its signature found it."""

    certificate: Certificate | None
    """None where the file cannot be read as one; `signature` says why."""
    signature: str
    """`signed`, `altered: REASON`, `unsigned: REASON`, or why it cannot be read."""
    signer: str | None = None
    """Fingerprint of the key; None where no signature holds."""
    sha256: str | None = None
    """Of the file's bytes."""


class Beside(NamedTuple):
    """Files of the run folder, as far as they are at hand."""

    trials: Mapping[int, tuple[RecordedTrial, ...]] = {}
    """What the tuner tried, by iteration; where an iteration is missing its events are asked."""
    patch: str | None = None
    """`best.patch`."""
    evidence: CertificateView | None = None
    """None where there is no certificate."""
    damage: tuple[str, ...] = ()
    """Files that are there and cannot be read, one line each."""


NOTHING = Beside()
"""Where the record and its events are all there is."""


def beside_of(recording: RunRecording, evidence: CertificateView | None = None) -> Beside:
    """What a recording holds beside its record and its events."""
    return Beside(
        trials={one.number: one.trials for one in recording.iterations if one.trials},
        patch=recording.patch,
        evidence=evidence,
        damage=tuple(damage.text for damage in recording.damage),
    )


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
    configurations: list[content.ConfigurationRow]
    configurations_note: str
    said: list[str]


def outcome_view(record: RunRecord) -> OutcomeView:
    """The outcome, with the source behind every number."""
    verify = record.verify
    program = content.program_sentence(record)
    return OutcomeView(
        content.kernel_of(record),
        record.outcome,
        content.outcome_word(record),
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
        content.configuration_rows(record),
        content.configurations_sentence(record),
        [
            *([program] if program else []),
            *content.outcome_sentences(record),
            *content.timing_sentences(record),
        ],
    )


def _apart(text: str) -> tuple[str, str]:
    """`1.185 ms (modelled for A10)` as the number and what is behind it."""
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
    if record.time_source == "modelled":
        return f"{clock}; {content.sampled_ends(judgement)}"
    high = judgement.speedup_high
    to = "not bounded above" if high is None else f"to {high:.2f}×"
    level = significant(100 * record.options.policy.confidence, 4)
    return f"{clock}; {level} % interval {judgement.speedup_low:.2f}× {to}"


def _gates(record: RunRecord) -> Figure:
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    if not gates:
        return Figure("Gates", "none", "no candidate reached a verdict on time")
    whose = "of the kept candidate" if record.best is not None else "of the last candidate"
    return Figure("Gates", f"{sum(g.passed for g in gates)} of {len(gates)}", f"passed, {whose}")


class Hot(NamedTuple):
    """A line of source and its share of the cost."""

    share: str
    where: str
    code: list[DiffSpan]
    note: str


class Also(NamedTuple):
    """A rule that fired after the one that decided."""

    severity: str
    subtype: str
    text: str
    relief: str
    evidence: str


class LimitsView(NamedTuple):
    """One kernel's verdict."""

    kernel: str
    bottleneck: str
    subtype: str
    sentence: str
    clock: str
    """Behind its numbers: `modelled for A10`."""
    relief: str
    evidence: list[profiles.EvidenceRow]
    thresholds: list[str]
    """Where each threshold comes from."""
    time: str
    roofline: str
    drawn_from: str
    also: list[Also]
    hot: list[Hot]
    rules: list[profiles.RuleRow]
    notes: list[str]


def limits_view(record: RunRecord) -> list[LimitsView]:
    """Of the author's kernel, then of the best rewrite where that was profiled."""
    summary = record.profile
    if summary is None:
        return []
    found = [_limits_of(summary.verdict_detail, summary.baseline, summary, content.AUTHORS)]
    if summary.best is not None and summary.best_verdict is not None:
        best = summary.model_copy(update={"baseline": summary.best})
        found.append(_limits_of(summary.best_verdict, summary.best, best, content.REWRITE))
    return found


def _limits_of(
    verdict: Verdict, profile: Profile, summary: ProfileSummary, whose: str
) -> LimitsView:
    clock = Clock(verdict.source, profile.device)
    return LimitsView(
        one_line(profile.kernel),
        verdict.bottleneck_class.replace("_", " "),
        one_line(verdict.subtype),
        profiles.verdict_sentence(verdict, clock),
        str(clock),
        profiles.relief_sentence(verdict),
        profiles.evidence_rows(verdict, summary),
        [one_line(item.source) for item in verdict.evidence],
        microseconds(profile.duration_us, profiles.time_clock(profile)),
        profiles.roofline_sentence(verdict.roofline, clock, whose),
        verdict.drawn_from,
        [_also(finding) for finding in verdict.findings[1:]],
        [
            Hot(f"{h.share_pct:.0f} %", str(h.location), pieces(h.text), one_line(h.note))
            for h in profile.hot_lines
        ],
        profiles.rule_rows(verdict),
        [one_line(note) for note in profile.notes],
    )


def _also(finding: Finding) -> Also:
    compared = (
        f"{one_line(e.label)} {quantity(e.value, e.unit)} {e.comparison} "
        f"{quantity(e.threshold, e.unit)}"
        for e in finding.evidence
    )
    return Also(
        finding.severity,
        one_line(finding.subtype),
        one_line(finding.text, 600),
        one_line(finding.relief, 600),
        "; ".join(compared),
    )


class TimedGate(NamedTuple):
    """One gate."""

    gate: GateRow
    seconds: str


class CandidateRow(NamedTuple):
    """One candidate's way through the gates."""

    iteration: int
    title: str
    proposer: str
    outcome: str
    speedup: str
    reason: str
    lesson: str
    isolation: str
    passed: str
    """`15 of 15 gates passed`."""
    rows: list[TimedGate]
    failure: str
    """What the compiler or the checker printed; empty where neither complained."""
    kept: bool


class GatesView(NamedTuple):
    """Candidates in order, and the gates of a judgement that stands for none of them."""

    candidates: list[CandidateRow]
    alone: list[TimedGate]
    """Of `cudaops verify`, which keeps no attempts."""


def gates_view(record: RunRecord) -> GatesView:
    """Every gate of every candidate with its numbers."""
    candidates = [_candidate(attempt, record) for attempt in record.attempts]
    gates = record.judgement.gates if record.judgement is not None else record.verify.gates
    alone = [] if candidates else _timed_gates(gates, clock_of(record))
    return GatesView(candidates, alone)


def _candidate(attempt: Attempt, record: RunRecord) -> CandidateRow:
    judgement = attempt.judgement
    clock = Clock(judgement.time_source or record.time_source, record.device)
    passed = sum(gate.passed for gate in judgement.gates)
    failure = attempt.failure
    log = getattr(failure, "log", "") or (failure.placed if failure is not None else "")
    return CandidateRow(
        attempt.iteration,
        one_line(attempt.title, 120),
        one_line(attempt.proposer, 120),
        judgement.outcome,
        times_faster(judgement.speedup, clock),
        one_line(judgement.reason),
        one_line(attempt.lesson),
        judgement.isolation or "it never ran",
        f"{passed} of {len(judgement.gates)} gates passed",
        _timed_gates(judgement.gates, clock),
        log,
        judgement.outcome != "rejected",
    )


def _timed_gates(gates: tuple[Gate, ...], clock: Clock) -> list[TimedGate]:
    seconds = [f"{g.seconds:.2f} s" if g.seconds >= 0.01 else "< 0.01 s" for g in gates]
    return [
        TimedGate(row, taken) for row, taken in zip(gate_rows(gates, clock), seconds, strict=True)
    ]


class EvidenceView(NamedTuple):
    """Fields of the certificate and commands."""

    state: str
    """`signed`, `altered`, `unsigned`, `unreadable` or `none`."""
    said: str
    fields: list[tuple[str, str]]
    files: list[tuple[str, str]]
    builds: list[tuple[str, str, str, str]]
    """What, compiler, SHA-256 of what ran, command."""
    workloads: list[tuple[str, str, str, str, str]]
    anchors: list[tuple[str, str, str, str]]
    steps: list[tuple[str, list[str]]]
    """What to do, and the commands for it."""


def evidence_view(record: RunRecord, beside: Beside) -> EvidenceView:
    """From the file where it is at hand; the commands from the record alone."""
    steps = _steps(record)
    evidence = beside.evidence
    if evidence is None:
        why = "The certificate file is missing."
        if record.outcome not in ("accepted", "provisional"):
            why = "There is no certificate: nothing was accepted."
        return EvidenceView("none", why, [], [], [], [], [], steps)
    state = evidence.signature.partition(":")[0]
    if evidence.certificate is None:
        said = f"certificate.json cannot be read: {one_line(evidence.signature)}"
        return EvidenceView("unreadable", said, [], [], [], [], [], steps)
    said = {
        "signed": f"Signed by the key {evidence.signer}. This page cannot tell whose key that is.",
    }.get(state, f"The signature is invalid. {one_line(evidence.signature)}.")
    certificate = evidence.certificate
    fields = _fields(certificate)
    if evidence.sha256 is not None:
        fields.append(("SHA-256 of certificate.json", evidence.sha256))
    return EvidenceView(
        state,
        said,
        fields,
        [(one_line(file.path), one_line(file.sha256)) for file in certificate.files],
        [
            (b.what, one_line(b.compiler), one_line(b.image_sha256 or "not kept"),
             one_line(b.command, 2000))
            for b in certificate.builds
        ],
        [
            (one_line(w.id), one_line(w.callee), f"{w.grid} × {w.block}", f"{w.launches:,}",
             f"{100 * w.time_share:.0f} %")
            for w in certificate.workloads
        ],
        [
            (one_line(a.workload), a.probe, str(output.index), one_line(output.sha256 or
             "two runs differ"))
            for a in certificate.anchors
            for output in a.outputs
        ],
        steps,
    )  # fmt: skip


def _fields(certificate: Certificate) -> list[tuple[str, str]]:
    clocks = certificate.sm_clock_mhz
    tuned = " ".join(f"{name}={value}" for name, value in certificate.candidate.tuned.items())
    rows = [
        ("outcome", certificate.outcome),
        ("time source", certificate.time_source),
        ("executor", certificate.executor),
        ("device", f"{certificate.device}, {certificate.sm_arch}"),
        ("driver", certificate.driver or "none: no GPU took part"),
        ("SM clock", f"{clocks[0]:.0f} to {clocks[1]:.0f} MHz" if clocks else "not available"),
        ("author's kernel", f"{certificate.program.callee} in {certificate.program.main}"),
        ("candidate", f"{certificate.candidate.id}, {certificate.candidate.title}"),
        ("proposer", certificate.candidate.proposer),
        ("tuned", tuned or "nothing to tune"),
        ("SHA-256 of its source", certificate.candidate.source_sha256),
        ("bar", f"{certificate.bar:g}×"),
        ("seed of the secret inputs", str(certificate.seed)),
        ("judged before it", str(certificate.judged_before)),
        ("isolation", certificate.judgement.isolation or "none"),
        ("released in review", certificate.review.summary if certificate.review else "none"),
    ]  # fmt: skip
    return [(name, one_line(value)) for name, value in rows]


def _steps(record: RunRecord) -> list[tuple[str, list[str]]]:
    """The report's next steps, commands under the sentence that they belong to."""
    found: list[tuple[str, list[str]]] = []
    for line in next_steps(record):
        if line.startswith("$ ") and found:
            found[-1][1].append(line[2:])
        else:
            found.append((line, []))
    return found


_BAR = 160.0
"""Length of the bar of the longest time."""


class Spent(NamedTuple):
    """Where seconds went."""

    name: str
    seconds: str
    bar: float
    """Length in the drawing, of `_BAR` for the longest."""


class HowView(NamedTuple):
    """Tables of the last section."""

    run: list[tuple[str, str]]
    options: list[tuple[str, str]]
    tools: list[tuple[str, str]]
    stages: list[Spent]
    by_tool: list[Spent]
    files: list[tuple[str, str]]
    notices: list[str]


def how_view(record: RunRecord, beside: Beside) -> HowView:
    """Options as they were in force, defaults included."""
    judgement, program = record.judgement, record.program
    run = [
        ("run", record.run_id),
        ("date", record.date),
        ("cudaops", record.cudaops_version),
        ("executor", f"{record.executor}, times {content.clock_of(record)}"),
        ("target", f"{record.device}, {record.sm_arch}"),
        ("isolation", (judgement and judgement.isolation) or "not judged"),
        ("took", f"{significant(record.loop_time_seconds)} s"),
    ]
    if program is not None:
        run += [
            ("program", f"SHA-256 {program.source_sha256}"),
            ("captured", (f"{program.launches:,} launches of {program.callee}, of which "
                          f"{program.workloads} stand for the rest")),
            *(("not captured", limit) for limit in program.limits),
        ]  # fmt: skip
    notices = [*record.notices, *(f"Cannot be read: {one}" for one in beside.damage)]
    return HowView(
        _lines(run),
        _lines(_options(record)),
        _lines(sorted(record.tools.items())),
        _spent(record.seconds_by_stage),
        _spent(record.seconds_by_tool),
        content.files(record),
        [one_line(notice, 1000) for notice in notices],
    )


def _options(record: RunRecord) -> list[tuple[str, str]]:
    options, policy, search = record.options, record.options.policy, record.options.search
    no_limit = "no limit"
    rows: list[tuple[str, object]] = [
        ("program", " for ".join(filter(None, (options.kernel_source, options.source)))),
        ("its arguments", "; ".join(options.argument_lines) or " ".join(options.argv) or "none"),
        ("kernel", options.kernel or "the one with most time"),
        ("optimizer", options.optimizer),
        ("model", options.model or options.no_model or "none"),
        ("search", f"{search.strategy}, width {search.width}, rounds {search.rounds}"),
        ("candidates at most", options.max_iterations),
        ("trials of the tuner", f"{options.max_trials} a rewrite"),
        ("bar", f"{policy.min_speedup:g}×"),
        ("confidence", f"{significant(100 * policy.confidence)} % of a whole run"),
        ("error allowed", f"{policy.max_error_factor:g} times the baseline's own"),
        ("precision allowed", policy.allow_precision or "the baseline's only"),
        ("device libraries", "allowed" if policy.allow_libraries else "not allowed"),
        ("inline PTX", "allowed" if policy.allow_ptx else "not allowed"),
        ("other formulas", "allowed" if policy.allow_reassociation else "not allowed"),
        ("review by a person", "yes" if policy.review else "no"),
        ("seed of the inputs", "drawn, secret" if policy.seed is None else policy.seed),
        ("limit of one run", f"{options.timeout_seconds:g} s"),
        ("most cost", no_limit if options.max_cost_usd is None else f"${options.max_cost_usd:g}"),
        ("most tokens", no_limit if options.max_tokens is None else f"{options.max_tokens:,}"),
        ("most minutes", no_limit if options.budget_minutes is None else options.budget_minutes),
        ("memory of earlier runs", "used" if options.use_memory else "not used"),
        ("confinement", "lifted: trusted source" if options.trust_source else "in force"),
    ]
    return [(name, str(value)) for name, value in rows]


def _lines(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(one_line(name), one_line(value)) for name, value in rows]


def _spent(seconds: Mapping[str, float]) -> list[Spent]:
    longest = max((s for s in seconds.values() if s < math.inf), default=0.0)
    return [
        Spent(one_line(name), f"{significant(value)} s",
              round(_BAR * value / longest, 1) if 0 < value <= longest else 0.0)
        for name, value in seconds.items()
    ]  # fmt: skip
