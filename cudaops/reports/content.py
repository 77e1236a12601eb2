"""What a report says, in words and in order; the terminal, Markdown and HTML only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from statistics import median
from typing import Literal, NamedTuple

from cudaops.domain.judgement import Attempt, Gate, Judgement, WorkloadTime
from cudaops.domain.performance_limit import Library, PerformanceLimitKind
from cudaops.domain.run import AccessSummary, RunRecord
from cudaops.reports.costs import cost_sentence
from cudaops.reports.quantities import (
    Clock,
    microseconds,
    microseconds_alone,
    milliseconds,
    one_line,
    significant,
    times_faster,
)

TIMED_GATES = ("physical_floor", "speedup")
"""Gates whose numbers rest on a time, and so on its source."""


RESULT_GATES = (
    "correctness_captured",
    "correctness_exact",
    "correctness_perturbed",
    "repeat",
    "correctness_domain",
)
"""Gates that compare results with the baseline's. One that compared has numbers."""

_ENDS: dict[PerformanceLimitKind, str] = {
    "roofline": "the kernel is at the device's roofline",
    "launch_bound": "the kernel takes no longer than an empty launch",
    "atomic_order": "the results depend on the order of the atomics that limit it",
}


class AttemptRow(NamedTuple):
    """One candidate that was tried."""

    number: str
    what: str
    outcome: str
    time: str
    speedup: str
    why: str


class GateRow(NamedTuple):
    """One gate, its sentence and its numbers."""

    word: Literal["pass", "HELD", "FAIL"]
    """`HELD`: quarantined, which a person may release."""
    name: str
    summary: str
    numbers: str


def clock_of(record: RunRecord) -> Clock:
    """Source of every time in this record."""
    return Clock(record.time_source, record.device)


def kernel_of(record: RunRecord) -> str:
    """The kernel's name, the file's where the run ended before one was chosen."""
    if record.program is not None:
        return record.program.kernel
    options = record.options
    return options.kernel or PurePath(options.kernel_source or options.source).name


def headline(record: RunRecord) -> str:
    """The outcome in one sentence."""
    kernel = kernel_of(record)
    if record.outcome in ("accepted", "provisional"):
        speedup = f"{kernel}: speedup {times_faster(record.verify.speedup, clock_of(record))}"
        judgement = record.judgement
        if record.time_source == "modelled" and judgement and judgement.speedup_low is not None:
            speedup += f", {sampled_ends(judgement)}"
        several = len(_times_shown(record))
        return f"{speedup} over {several} launch configurations" if several > 1 else speedup
    if is_rejected(record):
        return f"{kernel}: {_why_rejected(record)}"
    return f"{kernel}: {one_line(record.reason)}"


def sampled_ends(judgement: Judgement) -> str:
    """Of a modelled speedup: `3.10× to 4.90× by the sampled blocks`."""
    low, high = judgement.speedup_low, judgement.speedup_high
    to = "not bounded above" if high is None else f"to {high:.2f}×"
    return f"{low:.2f}× {to} by the sampled blocks"


def outcome_word(record: RunRecord) -> str:
    """The outcome as reports head it: a rewrite that the user handed in is `rejected`, where a
    search has `nothing found`. One that was compared and not timed is neither."""
    if is_only_compared(record):
        return "results match"
    return "rejected" if is_rejected(record) else record.outcome.replace("_", " ")


def is_rejected(record: RunRecord) -> bool:
    """Whether the record is of `verify`, and its rewrite was refused."""
    return _is_handed_in(record) and not is_only_compared(record)


def is_only_compared(record: RunRecord) -> bool:
    """Whether the record is of `verify`, and its rewrite passed every gate where nothing could be
    timed."""
    verify, passed = record.verify, all(gate.passed for gate in record.verify.gates)
    matches = verify.correctness == "match" and passed
    return _is_handed_in(record) and matches and verify.speedup is None


def _is_handed_in(record: RunRecord) -> bool:
    handed_in = [attempt.proposer for attempt in record.attempts] == ["user"]
    return handed_in and record.outcome == "nothing_found"


def _why_rejected(record: RunRecord) -> str:
    """The gate that failed; of results that differ, that they do, and the first place."""
    failed = next((gate for gate in gates_of(record) if not gate.passed), None)
    compared = failed is not None and failed.name in RESULT_GATES and failed.numbers
    if failed is None or not compared or failed.numbers.get("misbehaved"):
        return one_line(record.attempts[0].judgement.reason)
    return f"results differ: {one_line(failed.summary)}"


def times_sentence(record: RunRecord) -> str | None:
    """Baseline and candidate time; None where no candidate was timed."""
    clock, verify = clock_of(record), record.verify
    if verify.candidate_kernel_ms is None:
        return None
    over = "mean of all launches" if len(_times_shown(record)) > 1 else "one launch"
    return (
        f"{over}: baseline {milliseconds(verify.baseline_kernel_ms, clock)}, "
        f"{'best' if record.best is not None else 'last'} candidate "
        f"{milliseconds(verify.candidate_kernel_ms, clock)}"
    )


class ConfigurationRow(NamedTuple):
    """One launch configuration, with what it brings."""

    workload: str
    launch: str
    """Grid and block, and the scalar arguments in which it differs from the others."""
    launches: str
    share: str
    """Of the kernel's time."""
    baseline: str
    candidate: str
    speedup: str


def configurations_sentence(record: RunRecord) -> str:
    """How the speedup follows from `configuration_rows`, and whose times those are."""
    return (
        "The speedup is the baseline's time over the candidate's, of all these launches together: "
        "the harmonic mean of the ratios, weighted by share of the baseline's time (launches times "
        f"the time of one). Times {clock_of(record)}."
    )


def configuration_rows(record: RunRecord) -> list[ConfigurationRow]:
    """Every launch configuration that was timed, the most expensive first; empty where there is
    one alone, whose times are the sentence's."""
    times = _times_shown(record)
    if len(times) < 2 or record.program is None:
        return []
    known = {one.workload: one for one in record.program.timed}
    rows = []
    for time in times:
        one = known.get(time.workload)
        launch = "" if one is None else f"{one.grid} x {one.block}"
        if one is not None and one.scalars:
            launch += f" {one_line(one.scalars, 120)}"
        rows.append(
            ConfigurationRow(
                time.workload,
                launch,
                "" if one is None else f"{one.launches:,}",
                f"{significant(100 * time.share, 3)} %",
                microseconds_alone(time.baseline_us),
                microseconds_alone(time.candidate_us),
                f"{time.baseline_us / time.candidate_us:.2f}×",
            )
        )
    return rows


def _times_shown(record: RunRecord) -> tuple[WorkloadTime, ...]:
    """Of the attempt whose times the record tells: the one that was kept, else the last."""
    kept = record.verify.iteration_accepted
    shown = [a for a in record.attempts if kept is None or a.iteration == kept][-1:]
    return shown[0].times if shown else ()


def meaning(record: RunRecord) -> str:
    """What the outcome's word promises."""
    policy = record.options.policy
    bar = f"threshold {policy.min_speedup:g}×"
    if record.outcome == "nothing_found" and record.end is not None:
        return f"{_ENDS[record.end.kind]} ({bar})"
    gates = gates_of(record)
    passed = f"all {len(gates)} gates passed" if gates else "all gates passed"
    if is_only_compared(record):
        return f"{passed}; no time was taken, so the speedup is not known ({bar})"
    missed = "the rewrite has not" if is_rejected(record) else "no candidate"
    return {
        "accepted": f"{passed}; {bar} exceeded at {policy.confidence:.0%} confidence",
        "provisional": f"{passed}; {bar}; provisional because the time is modelled",
        "nothing_found": f"{missed} passed all gates ({bar})",
        "failed": "the run ended before it could judge a candidate",
    }[record.outcome]


def gates_of(record: RunRecord) -> tuple[Gate, ...]:
    """Those of the kept candidate, else of the last."""
    return record.judgement.gates if record.judgement is not None else record.verify.gates


def outcome_sentences(record: RunRecord) -> list[str]:
    """On what inputs the rewrite matches the baseline, who brought which part of the speedup, why
    the search stopped, which library offers the kernel, and what the run cost."""
    return [*correctness_sentences(record), *background_sentences(record)]


def background_sentences(record: RunRecord) -> list[str]:
    """Who brought which part of the speedup, why the search stopped, which library offers the
    kernel, and what the run cost."""
    said = [split] if (split := gain_sentence(record)) else []
    if record.end is not None and record.best is not None:
        said.append(f"The search stopped: {record.end.says}.")
    if record.library is not None:
        said.append(library_sentence(record, record.library))
    if guessed := prediction_sentence(record):
        said.append(guessed)
    if cost := cost_sentence(record):
        said.append(cost)
    return said


def library_sentence(record: RunRecord, library: Library) -> str:
    """What a library takes for the kernel's job, beside the rewrite or else the author's kernel."""
    function, _, of = library.name.rpartition(" of ")
    if library.time_ms is None:
        why = f": {one_line(library.not_timed)}" if library.not_timed else ""
        return f"{of} offers this kernel, {library.job}, as {function}; it was not timed{why}."
    clock, timing = clock_of(record), record.verify.timing
    named = f"{function} of {of}: {milliseconds(library.time_ms, clock)}"
    regime = None if timing is None else getattr(timing, library.l2_regime or timing.regime)
    if regime is not None:
        rewritten = record.best is not None
        beside = regime.candidate_ms if rewritten else regime.baseline_ms
        named += f"; {'the rewrite' if rewritten else 'the kernel'}: {milliseconds(beside, clock)}"
    return (
        f"{named} ({library.job}, one launch, {library.l2_regime} L2; its result differs by "
        f"{library.difference:.1e}, relative L2 error)."
    )


def correctness_sentences(record: RunRecord) -> list[str]:
    """On how many inputs the rewrite matches the baseline, how exactly, which branches they reach
    and what was assumed, one fact a sentence. Empty if no rewrite was kept, unless it is a user's
    own that passed every gate but those on time."""
    gates = {gate.name: gate for gate in gates_of(record)}
    slow = is_rejected(record) and all(g.passed or g.name in TIMED_GATES for g in gates.values())
    if record.outcome not in ("accepted", "provisional") and not slow:
        return []
    facts: list[str] = []
    drawn = gates.get("correctness_domain")
    if drawn is not None and drawn.numbers.get("inputs"):
        facts = one_line(drawn.summary, 600).split("; ")
    sets = gates["correctness_perturbed"].numbers if "correctness_perturbed" in gates else {}
    if sets.get("input_sets"):
        on = f"{sets['input_sets']:.0f} input sets of the captured sizes"
        facts[:1] = [f"{facts[0]} and on {on}" if facts else f"matches the baseline on {on}"]
    if "correctness_captured" in gates:
        facts[1:1] = [one_line(gates["correctness_captured"].summary, 200)]
    return [f"{fact[0].upper()}{fact[1:].rstrip('.')}." for fact in facts]


AUTHORS, REWRITE = "the author's kernel", "the rewrite"

_ORIGINS = {"llm": "the model", "engine": "transformations", "recipe": "recipes"}


def gain_sentence(record: RunRecord) -> str:
    """How the speedup is split between those who brought it, each over what it began with; empty
    where one alone did."""
    shares: dict[str, float] = {}
    before = 1.0
    for attempt in record.attempts:
        speedup = attempt.judgement.speedup
        if attempt.judgement.outcome == "rejected" or not speedup:
            continue
        origin = attempt.proposer.partition(":")[0]
        shares[origin] = shares.get(origin, 1.0) * speedup / before
        before = speedup
    if len(shares) < 2 or record.time_source is None:
        return ""
    clock = Clock(record.time_source, record.device)
    told = [f"{_ORIGINS.get(who, who)} {times_faster(x, clock)}" for who, x in shares.items()]
    return f"Of {times_faster(before, clock)}: {', '.join(told)}."


def prediction_sentence(record: RunRecord) -> str:
    """How far a planner's expected speedups are from those of its candidates that were timed."""
    ratios = sorted(
        one.expected_speedup / one.judgement.speedup
        for one in record.attempts
        if one.expected_speedup and one.judgement.speedup
    )
    if not ratios or record.time_source is None:
        return ""
    over = f"{len(ratios)} candidate{'s' * (len(ratios) != 1)}"
    off = median(max(ratio, 1 / ratio) for ratio in ratios)
    return (
        f"The model's predictions: median off by a factor of {significant(off)} over {over}; "
        f"expected over found {significant(ratios[0])} to {significant(ratios[-1])} "
        f"({clock_of(record)})."
    )


def attempt_rows(record: RunRecord) -> list[AttemptRow]:
    """What was tried, in order."""
    return [attempt_row(attempt, record.device) for attempt in record.attempts]


def attempt_row(attempt: Attempt, device: str) -> AttemptRow:
    """One candidate; `device` is whose time was taken."""
    judgement = attempt.judgement
    tuned = " ".join(f"{name}={value}" for name, value in sorted(attempt.tuned.items()))
    tried = f"{attempt.configurations_tried} configurations"
    family = f"family {one_line(attempt.family, 40)}" if attempt.family else ""
    parts = [one_line(attempt.title), one_line(attempt.proposer, 120), family, tuned]
    if attempt.expected_speedup is not None:
        parts.append(f"expected by its planner {attempt.expected_speedup:.2f}×")
    if attempt.configurations_tried > 1:
        parts.append(f"best of {tried}")
    time, speedup = "not timed", "not timed"
    if judgement.time_source is not None:
        clock = Clock(judgement.time_source, device)
        time = microseconds(attempt.candidate_us, clock)
        speedup = times_faster(judgement.speedup, clock)
    why = one_line(judgement.reason if judgement.outcome == "rejected" else attempt.lesson)
    if attempt.techniques:
        told = "; ".join(technique.line for technique in attempt.techniques)
        why = one_line(f"{why}; disabled one at a time: {told}", 600)
    return AttemptRow(
        str(attempt.iteration),
        ", ".join(p for p in parts if p),
        judgement.outcome,
        time,
        speedup,
        why,
    )


def search_sentences(record: RunRecord) -> list[str]:
    """What each search over transformations took."""
    return [one_line(one.cost.line, 300) for one in record.transformations]


def share_rows(record: RunRecord) -> list[tuple[str, str, str]]:
    """Step, setting and what it brings, of the sequence of transformations that was kept, in the
    order in which they were applied; empty where what was kept is none."""
    best = record.best
    found = [s.found[best.source_id] for s in record.transformations
             if best is not None and best.source_id in s.found]  # fmt: skip
    return [
        (
            step.name,
            ", ".join(f"{name} {value}" for name, value in step.setting.items()),
            "unknown: other steps depend on it"
            if step.factor is None
            else times_faster(step.factor, clock_of(record)),
        )
        for step in (found[-1].steps if found else ())
    ]


def instruction_rows(record: RunRecord) -> list[tuple[str, str, str]]:
    """Class of instruction, how many the author's kernel has and how many the best."""
    return record.instructions.rows() if record.instructions is not None else []


def instructions_missing(record: RunRecord) -> str:
    """Why nothing is known of instructions, where something should be; else empty."""
    return record.instructions.missing if record.instructions is not None else ""


INSTRUCTIONS = "Static instruction counts of the kernels in SASS."
SHARES = "Speedup of each step: time without it over time with it, as the search timed them."


def notes_read(record: RunRecord) -> dict[str, list[str]]:
    """Titles of the notes that were cited, each with its sections, nearest first."""
    read: dict[str, list[str]] = {}
    for citation in record.research.citations if record.research is not None else ():
        read.setdefault(one_line(citation.title), []).append(one_line(citation.heading))
    return read


def gate_rows(gates: tuple[Gate, ...], clock: Clock) -> list[GateRow]:
    """Gates in the order they ran, every number with its name."""
    return [_gate_row(gate, clock) for gate in gates]


def _gate_row(gate: Gate, clock: Clock) -> GateRow:
    summary = one_line(gate.summary)
    numbers = ", ".join(f"{name} {significant(value)}" for name, value in gate.numbers.items())
    if gate.name in TIMED_GATES:
        summary = summary if str(clock) in summary else f"{summary} ({clock})"
        numbers = f"{numbers} ({clock})" if numbers else ""
    word: Literal["pass", "HELD", "FAIL"] = "FAIL"
    if gate.passed or gate.quarantined:
        word = "pass" if gate.passed else "HELD"
    return GateRow(word, gate.name, summary, numbers)


def files(record: RunRecord) -> list[tuple[str, str]]:
    """Name and purpose of what the run left in its folder."""
    kept = [("report.md", "this report"), ("run.json", "the run record, machine-readable")]
    if record.best is not None and record.options.is_triton:
        replaces = "drop-in replacement for the author's file"
        kept = [("best.py", replaces), ("best.patch", "the same as a patch"), *kept]
    elif record.best is not None:
        replaces = "drop-in replacement for the author's file"
        if record.options.run_command is not None and record.options.build_command is None:
            replaces = "the author's file with the rewrite beside the kernel"
        best = "best.cu"
        if record.options.compiles_itself:
            best, replaces = "best.py, best.cu or best/", "your program with the rewrite"
        kept = [
            (best, replaces),
            ("best.patch", "the same as a patch"),
            ("certificate.json", "signed evidence, for `cudaops certify check` and `confirm`"),
            *kept,
        ]
    if record.program is not None and record.program.reference == "kernelbench":
        whose = "the author's kernels" if record.best is None else "the same"
        kept.append(("model_new.py", f"{whose} as KernelBench's ModelNew"))
    kept.append(("iterations/", "every candidate and its gates"))
    if record.options.search.strategy != "greedy":
        kept.append(("search/", "every branch of the search"))
    if record.model is not None:
        kept.append(("state/calls/", "prompts and answers of the model"))
    return kept


def oracle_sentences(record: RunRecord) -> list[str]:
    """Sensitivity of the correctness check on this program, what it cannot see, and which launches'
    contents are inputs."""
    found = record.qualification
    if found is None:
        return []
    applied = [c for c in found.controls if c.outcome != "not_applicable"]
    caught = sum(c.outcome == "caught" for c in applied)
    kinds = len({c.name for c in applied})
    first = (
        f"Sensitivity: {caught} of {len(applied)} mutants of the baseline's results "
        f"({kinds} kinds) rejected on {found.input_sets} sets of inputs"
    )
    if not found.yardstick:
        first += f"; no higher-precision reference run: {found.yardstick_problem}"
    said = [f"{first}.", *(f"Weak: {why}." for why in found.weak), *_captured_launches(record)]
    return [one_line(sentence, 600) for sentence in said]


def _captured_launches(record: RunRecord) -> list[str]:
    """Which launches' contents are inputs, where not each one's are."""
    program = record.program
    if program is None or program.launches <= program.workloads:
        return []
    sets = f"Captured: the inputs of {program.workloads} of {program.launches:,} launches"
    return [f"{sets}, the first with each grid, block and arguments."]


def access_rows(accesses: Sequence[AccessSummary]) -> list[tuple[str, str, str, str, str]]:
    """Line, what is touched, index, step between neighbours, loops."""
    return [
        (
            "" if a.line is None else str(a.line),
            f"{a.kind} {a.array} ({'' if a.space == 'global' else a.space + ' '}{a.element})",
            a.index,
            a.step,
            "; ".join(a.loops),
        )
        for a in accesses
    ]


def program_sentence(record: RunRecord) -> str | None:
    """What the kernel takes of a run of the program; None where that was not measured. The
    program's own seconds, of one run each, are left to the record: their noise is not known."""
    program = record.program
    if program is None or program.kernel_seconds is None:
        return None
    text = (
        f"The program's {program.launches:,} launches of {program.kernel} take "
        f"{significant(1000 * program.kernel_seconds)} ms "
        f"({Clock('cuda_event', record.device)})"
    )
    if program.reported_kernel_ms is not None:
        text += f"; the program itself prints KERNEL_MS {significant(program.reported_kernel_ms)}"
    return text + "."


def timing_sentences(record: RunRecord) -> list[str]:
    """How times were measured, cold and warm, on the most expensive configuration; nothing where
    they are modelled."""
    timing, clock = record.verify.timing, clock_of(record)
    if timing is None:
        return []
    times = _times_shown(record)
    of_one = f"{times[0].workload} alone, " if len(times) > 1 else ""
    own = timing.launched is not None
    events, cupti = Clock("cuda_event", record.device), Clock("cupti", record.device)
    by_events = events if own else clock
    rows = [
        f"{of_one}{name}: {milliseconds(found.baseline_ms, seen)} to "
        f"{milliseconds(found.candidate_ms, seen)}, {found.speedup:.2f}×"
        + (" (this clock decides)" if decides else "")
        for name, found, seen, decides in (
            ("L2 cold", timing.cold, by_events, timing.regime == "cold" and not own),
            ("L2 warm", timing.warm, by_events, timing.regime == "warm" and not own),
            ("the kernels' own time" if own else "CUPTI", timing.cupti, cupti, own),
        )
        if found is not None
    ]
    if timing.launched is not None:
        seen = Clock("host", record.device) if timing.regime == "warm" else events
        rows.append(
            f"{of_one}as the program launches them: "
            f"{milliseconds(timing.launched.baseline_ms, seen)} to "
            f"{milliseconds(timing.launched.candidate_ms, seen)}, {timing.launched.speedup:.2f}×"
        )
    taken = f"{timing.samples} pairs of samples, {timing.blocks_redone} noisy blocks repeated"
    if timing.sm_clock_mhz is not None:
        taken += f", SM clock {timing.sm_clock_mhz[0]:.0f}-{timing.sm_clock_mhz[1]:.0f} MHz"
    if timing.temperature_c is not None:
        taken += f", {timing.temperature_c[0]:.0f}-{timing.temperature_c[1]:.0f} °C"
    return [*rows, taken, *timing.notices]
