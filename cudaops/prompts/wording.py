"""Records in the lines a prompt shows: one fact a line, with unit and source; and anti-context:
what was tried, and why it was not enough. Nothing is ever left out of that."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import LD_SECTORS_PER_REQUEST, ST_SECTORS_PER_REQUEST, Fact, facts
from cudaops.cuda.devices import Device
from cudaops.domain.execution import UNMEASURED_WORDS, TimeSource
from cudaops.domain.judge import mean_us
from cudaops.domain.judgement import TIE, Attempt, Policy, TunedSetting, fine_us
from cudaops.domain.options import ProgramRun
from cudaops.domain.profile import Evidence, Profile, Roofline, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import LESSON, MOST_ACCESSES, AccessSummary, ResearchFindings, ValueSummary
from cudaops.domain.search import Branch
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    Allocation,
    Argument,
    PointerArgument,
    PointerField,
    Role,
    Workload,
)
from cudaops.prompts.text import line

_MAIN = (
    ncu.DURATION, ncu.SM_THROUGHPUT, ncu.MEMORY_THROUGHPUT, ncu.L1_THROUGHPUT,
    ncu.L2_THROUGHPUT, ncu.DRAM_THROUGHPUT, ncu.L1_HIT_RATE, ncu.L2_HIT_RATE,
    ncu.ISSUE_SLOTS_BUSY, ncu.ELIGIBLE_WARPS, ncu.ACHIEVED_OCCUPANCY,
    ncu.THEORETICAL_OCCUPANCY, ncu.REGISTERS, ncu.SHARED_STATIC,
    ncu.SHARED_DYNAMIC, ncu.WAVES, LD_SECTORS_PER_REQUEST, ST_SECTORS_PER_REQUEST,
)  # fmt: skip
"""What a profile is summed up by: times, limits, occupancy and what a warp's accesses cost."""

_STALLS = 3
"""Reasons of waiting that are shown, the longest first."""
_STALL_FROM_PCT = 5.0
_FINDINGS = 8
_SETTINGS = 12
_FIELDS = 16
_RULES = 3
_CITATIONS = 3
_CITATION_CHARACTERS = 480
"""Bounds that keep the evidence under 1,500 tokens. Judgement."""
NEWEST = 4
"""Attempts shown with everything known of them; older ones take a short line each. Judgement: what
a model would repeat is what it has just been told to improve."""

_CLOCK: dict[TimeSource, str] = {
    "modelled": "modelled from counted work; the same every time, and smaller is faster",
    "standin": "that of a stand-in on this machine's processor, which says nothing of a GPU",
}
_MEASURED = "the kernels' own duration on the GPU, beside the author's in turns, cold and warm L2"
_ROLES = {"both": "judged and timed", "judged": "judged", "timed": "timed"}
_HOW: dict[TimeSource, str] = {"modelled": " modelled", "standin": " of a stand-in"}


def number(value: float) -> str:
    """Three digits, whole with separators from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def quantity(value: float, unit: str) -> str:
    """A number with its unit, if it has one."""
    return f"{number(value)} {unit}".strip()


def device_lines(device: Device, elements: Collection[str] = ()) -> tuple[str, ...]:
    """What a rewrite's sizes are chosen by. `elements`: types that the kernel is given."""
    fp64 = f", FP64 {number(device.peak_fp64_gflops)}" if "f64" in elements else ""
    a_block = (
        f"a block: at most {device.max_threads_per_block} threads, "
        f"{device.shared_bytes_per_block:,} bytes of static shared memory, "
        f"{device.shared_bytes_per_block_optin:,} with dynamic (`smem=`)"
    )
    an_sm = (
        f"an SM: {device.max_warps_per_sm} warps of {device.warp_size}, "
        f"{device.max_blocks_per_sm} blocks, {device.registers_per_sm:,} registers "
        f"(at most {device.max_registers_per_thread} a thread), "
        f"{device.shared_bytes_per_sm:,} bytes of shared memory, "
        f"of which the driver takes {device.shared_reserved_per_block:,} a block"
    )
    peaks = (
        f"peaks: L2 of {device.l2_bytes / 2**20:g} MiB, DRAM "
        f"{number(device.dram_bandwidth_gb_s)} GB/s, FP32 {number(device.peak_fp32_gflops)}{fp64} "
        f"GFLOP/s at {number(device.sm_clock_mhz)} MHz"
    )
    head = f"{device.full_name}, compute capability {device.capability}, {device.sm_count} SMs"
    return head, a_block, an_sm, peaks


def judging_lines(
    time_source: TimeSource,
    runs: Sequence[ProgramRun],
    baseline_us: Sequence[tuple[str, float, float]],
    policy: Policy,
    device: Device,
) -> Iterator[str]:
    """How a rewrite is timed and judged: the clock and its floor, what is run, gates, tolerances.

    `baseline_us`: workload, the author's time, its share of the author's time.
    """
    yield f"time: {_CLOCK.get(time_source, _MEASURED)}, all launches of a plan together"
    yield (
        f"a launch takes {number(device.launch_us)} us before it does anything, so a plan of n "
        f"launches never takes less than n times that"
    )
    told = ", ".join(f"{name} {fine_us(us)}" for name, us, _ in baseline_us)
    if told:
        yield f"the author's kernel by that clock, a launch: {told}"
    lines = [f"`{' '.join(('./program', *run.argv))}` ({_ROLES[run.role]})" for run in runs]
    yield f"the program is run as {'; '.join(lines)}"
    yield (
        "gates, in this order, the first that fails ends it: text; compile and launch plan on "
        "every workload; what the compilers made of it; time against the bar; memory checker "
        "(bounds, races, divergent barriers); outputs on the captured inputs, on small integers, "
        "on secret inputs of other distributions; ten launches in a row; no faster than the "
        "hardware can; what the whole program prints"
    )
    yield (
        f"integers are equal; floats: relative L2 error against a wider run of the author's kernel "
        f"at most {policy.max_error_factor:g} times the author's own, and on small integers, where "
        f"sums are exact, equal; NaN and infinity in the same places; printed numbers within "
        f"{policy.rtol_program:g}"
    )


def bar_line(
    baseline_us: Sequence[tuple[str, float, float]], bar: float, *, elsewhere: bool = False
) -> str:
    """The bar as a speedup and as a time of the clock that decides.

    Args:
        baseline_us: As in `judging_lines`, at least one.
        elsewhere: Other instances are timed too.
    """
    author_us = mean_us([(us, share) for _, us, share in baseline_us])
    over = (
        ""
        if len(baseline_us) == 1
        else (
            f" These are means of a launch over the {len(baseline_us)} timed workloads; the "
            "speedup is the author's time over the rewrite's of all these launches together."
        )
    )
    line = (
        f"{bar:.2f}x the author's speed or more: at most {fine_us(author_us / bar)} where the "
        f"author's kernel takes {fine_us(author_us)}.{over}"
    )
    if elsewhere:
        line += (
            " These times are of this instance; the speedup of a rewrite that serves others too is "
            "over theirs as well, and it is the speedup that counts."
        )
    return line


def workload_lines(
    workload: Workload,
    values: Sequence[ValueSummary] = (),
    share: float | None = None,
    accesses: Sequence[AccessSummary] = (),
) -> tuple[str, ...]:
    """One captured launch: geometry, then its arguments in order, with their contents.

    Args:
        workload: The launch.
        values: Contents of its buffers.
        share: Of the author's time over all timed launches, 0-1; None: not known.
        accesses: Of the author's kernel, all of them: a role that they rule out is not shown.
    """
    seen: dict[int, str] = {}
    for v in values:
        if v.workload == workload.id:
            told = f"afterwards {value_line(v)}" if v.is_result else value_line(v)
            seen[v.allocation] = "; ".join(filter(None, (seen.get(v.allocation), told)))
    return (
        _head(workload, share),
        *(f"  {_argument(workload, each, seen, accesses)}" for each in workload.arguments),
    )


def elsewhere_line(workload: Workload) -> str:
    """One timed launch of another instance."""
    return f"{_head(workload)}; only a rewrite that serves this instance is timed on it"


def _head(workload: Workload, share: float | None = None) -> str:
    return (
        f"{workload.id}: {workload.callee}, grid {workload.grid}, block {workload.block}, "
        f"{workload.dynamic_smem_bytes} bytes of dynamic shared memory, launched "
        f"{workload.launches}x, {_part(workload, share)}L2 {workload.l2_regime}"
    )


def value_line(seen: ValueSummary) -> str:
    """`values 0 to 63, 12 % zeros, 64 different, ascending`."""
    if seen.least is None or seen.greatest is None:
        return "no finite value"
    told = [f"values {_exact(seen.least)} to {_exact(seen.greatest)}"]
    if seen.zero_share:
        told.append(f"{100 * seen.zero_share:.3g} % zeros")
    if seen.distinct is not None:
        told.append(f"{seen.distinct} different")
    if seen.non_finite_share:
        told.append(f"{100 * seen.non_finite_share:.3g} % not finite")
    if seen.order is not None and seen.order != "constant":
        told.append(seen.order)
    if seen.looked_at < seen.elements:
        told.append(f"of {seen.looked_at:,} looked at")
    return ", ".join(told)


def _exact(value: float) -> str:
    """A value of an input: nine digits tell floats apart."""
    return f"{value:.9g}"


def _part(workload: Workload, share: float | None) -> str:
    """What its times count for; ends with a separator."""
    if not workload.is_timed:
        return "for correctness alone, not timed, "
    alone = "" if workload.is_judged else "timed only, "
    return alone if share is None else f"{share:.0%} of the kernel's time, {alone}"


def _argument(
    workload: Workload,
    argument: Argument,
    seen: Mapping[int, str],
    accesses: Sequence[AccessSummary],
) -> str:
    match argument.kind:
        case "scalar":
            return f"{argument.name} = {argument.value:.9g} ({argument.element})"
        case "null":
            return f"{argument.name} = nullptr"
        case "opaque":
            size = f"{argument.name}: a structure of {len(argument.raw_hex) // 2} bytes"
            named = [
                f"{p.path}: {_pointed(workload, p, seen, accesses)}" for p in argument.pointers
            ]
            more = [f"and {len(named) - _FIELDS} more pointers"] if len(named) > _FIELDS else []
            return "\n    ".join([size, *named[:_FIELDS], *more])
    return f"{argument.name}: {_pointed(workload, argument, seen, accesses)}"


def role_of(workload: Workload, allocation: Allocation, accesses: Sequence[AccessSummary]) -> Role:
    """What a launch does with an allocation: as its runs showed, but `in` where no access writes it
    and `out` where none reads it. Runs cannot tell a byte that is written with what stood there
    from one that is not.

    `accesses`: of the kernel. Where one of them may lead anywhere, or some are not known, they rule
    out nothing.
    """
    known = 0 < len(accesses) < MOST_ACCESSES and all(
        a.array != "?" and a.space != "unknown" for a in accesses
    )
    if not known or allocation.name:
        return allocation.role
    names = {p.name for p in workload.pointers() if p.allocation == allocation.index}
    reaching = {
        a.kind for a in accesses if any(a.array == n or a.array.startswith(f"{n}.") for n in names)
    }
    if reaching == {"read"}:
        return "in"
    return "out" if reaching == {"write"} else allocation.role


def _pointed(
    workload: Workload,
    pointer: PointerArgument | PointerField,
    seen: Mapping[int, str],
    accesses: Sequence[AccessSummary],
) -> str:
    held = next(a for a in workload.allocations if a.index == pointer.allocation)
    role = role_of(workload, held, accesses)
    count = (held.size_bytes - pointer.offset_bytes) // ELEMENT_BYTES[pointer.element]
    shared = sum(p.allocation == held.index for p in workload.pointers()) > 1
    offset = f", from byte {pointer.offset_bytes:,} on" if pointer.offset_bytes else ""
    also = f", in allocation {held.index}" if shared else ""
    values = f"; {seen[held.index]}" if held.index in seen else ""
    if pointer.element == "opaque":
        return f"{count:,} bytes of structures, {role}{offset}{also}{values}"
    return f"{count:,} x {pointer.element}, {role}{offset}{also}{values}"


def access_lines(accesses: Sequence[AccessSummary]) -> Iterator[str]:
    """`line 27: read B float [N * k + at.x], next thread adjacent; k: 1024x, 4096 B`. Places that
    differ in line and index alone are one line, with the first one's index."""
    if len(accesses) >= MOST_ACCESSES:
        yield f"(only {MOST_ACCESSES} places: those that write, and of those that read the first)"
    alike: dict[AccessSummary, list[AccessSummary]] = {}
    for each in accesses:
        same = each.model_copy(update={"line": None, "index": ""})
        alike.setdefault(same, []).append(each)
    for first, *others in alike.values():
        space = "" if first.space == "global" else f"{first.space} "
        line = "" if first.line is None else f"line {first.line}: "
        loops = "".join(f"; {loop}" for loop in first.loops)
        more = ""
        if others:
            lines = list(dict.fromkeys(str(o.line) for o in others if o.line is not None))
            at = f", lines {', '.join(lines)}" if lines else ""
            more = f"; {len(others)} more at other indices{at}"
        yield (
            f"{line}{first.kind} {space}{first.array} {first.element} [{first.index}], next thread "
            f"{first.step}{loops}{' (conditional)' if first.is_conditional else ''}{more}"
        )


def evidence_line(evidence: Evidence, verdict: Verdict, profile: Profile | None) -> str:
    """A comparison, and whether its value was measured or modelled."""
    metric = profile.metrics.get(evidence.metric) if profile is not None else None
    source = metric.source if metric is not None else verdict.source
    return (
        f"{evidence.label}: {quantity(evidence.value, evidence.unit)} "
        f"{evidence.comparison} {quantity(evidence.threshold, evidence.unit)} ({source})"
    )


def finding_lines(verdict: Verdict) -> tuple[str, ...]:
    """Every other rule that fired, one line each, the most serious first."""
    return tuple(
        f"{f.subtype}: {line(f.text, 200)}{f'; {f.gain}' if f.gain else ''}"
        for f in verdict.findings[1 : 1 + _FINDINGS]
    )


def rule_lines(verdict: Verdict) -> tuple[str, ...]:
    """NVIDIA's own rules that say the same as a finding."""
    agreeing = [rule for rule in verdict.nvidia_rules if rule.agrees_with]
    return tuple(
        f"{rule.name} (agrees with {rule.agrees_with}): {line(rule.text, 160)}"
        for rule in agreeing[:_RULES]
    )


def hot_line_texts(verdict: Verdict) -> tuple[str, ...]:
    """The hottest source lines with their share of the limiting resource's use."""
    return tuple(
        f"line {hot.location.line}, {hot.share_pct:.0f} %, {hot.note}: {line(hot.text, 160)}"
        for hot in verdict.hot_lines[:3]
    )


def roofline_line(roofline: Roofline | None, duration_us: float) -> str:
    """How far the kernel is from what the device allows for the work."""
    if roofline is None:
        return "unknown: operations or bytes were not counted"
    limit = "arithmetic" if roofline.bound == "compute" else "DRAM bandwidth"
    return (
        f"{number(roofline.attained_pct)} % of the {limit} limit: this kernel's own "
        f"{number(roofline.flops / 1e9)} GFLOP and {number(roofline.dram_bytes / 1e6)} MB of DRAM "
        f"traffic need at least {number(roofline.floor_us)} us, and take {number(duration_us)} us"
    )


def profile_lines(
    profile: Profile, roofline: Roofline | None, others: Sequence[Profile] = ()
) -> tuple[str, ...]:
    """The main numbers of a profile, behind each those of other profiles; what was not collected is
    left out."""
    known = facts(profile, roofline)
    beside = [facts(other, None) for other in others]
    shown = [
        f"{known[n].label}: {' / '.join([quantity(*known[n][:2]), *_of_others(n, beside)])}"
        for n in _MAIN
        if n in known
    ]
    stalls = sorted(
        (f for name, f in known.items() if name.startswith("cudaops__stall_")),
        key=lambda fact: -fact.value,
    )
    shown += [
        f"{f.label}: {quantity(f.value, f.unit)} of a warp's time"
        for f in stalls[:_STALLS]
        if f.value >= _STALL_FROM_PCT
    ]
    return tuple(shown)


def _of_others(name: str, beside: Sequence[Mapping[str, Fact]]) -> list[str]:
    return [number(known[name].value) if name in known else "unknown" for known in beside]


def provenance(profile: Profile) -> str:
    """Whether a profile's numbers were measured, and on what."""
    words = {
        "measured": "measured by ncu on {device}",
        "mixed": "time measured on {device}, counts modelled",
        "modelled": UNMEASURED_WORDS["modelled"],
    }
    return words[profile.source].format(device=profile.device)


def citation_lines(research: ResearchFindings) -> tuple[str, ...]:
    """What the knowledge base and memory say: a model's digest, a passage a line."""
    digest = (research.digest,) if research.digest else ()
    lessons = tuple(c for c in research.citations[_CITATIONS:] if c.note.startswith(LESSON))
    return digest + tuple(
        f"[{c.note}] {line(c.heading, 80)}: {line(c.text, _CITATION_CHARACTERS)}"
        for c in (*research.citations[:_CITATIONS], *lessons)
    )


def tuned_text(rewrite: Rewrite) -> str:
    """Values of the tune names; empty where there are none."""
    return ", ".join(f"{name}={value}" for name, value in rewrite.values().items())


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
    rejected = attempt.judgement.outcome == "rejected"
    ended = stopped_by(attempt) if rejected else "every gate passed"
    return f"{attempt.judgement.outcome}, {ended}\n{_full(attempt)}"


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
    captured = attempt.judgement.gate("correctness_captured")
    if stopped_by(attempt) == "speedup" and captured is not None and captured.passed:
        shown += "; its outputs on the captured inputs are right"
    if attempt.settings:
        author_us = next((t.baseline_us for t in attempt.times), attempt.baseline_us)
        settings = [_setting(t, author_us) for t in attempt.settings[:_SETTINGS]]
        same = f" (within {TIE:.0%} the smaller values win)" if len(settings) > 1 else ""
        shown += f"; tried: {', '.join(settings)}{same}"
    if attempt.limited_by and attempt.judgement.outcome == "rejected":
        shown += f"; its own profile: {line(attempt.limited_by, 200)}"
    # The lesson that stands where no model wrote one only repeats the reason.
    return shown if reason in attempt.lesson else f"{shown}; learnt: {line(attempt.lesson, 200)}"


def _setting(tried: TunedSetting, author_us: float | None) -> str:
    """`BLOCK=128 8.1 us`. The author's time to the last bit is a time of the author's kernel, which
    runs where `@requires` does not hold."""
    values = " ".join(f"{name}={value}" for name, value in tried.values.items())
    if tried.time_us is None:
        return f"{values} {line(tried.failure or 'no time', 60)}"
    kept = " (the author's kernel: `@requires` does not hold)" if tried.time_us == author_us else ""
    return f"{values} {number(tried.time_us)} us{kept}"


def _short(attempt: Attempt) -> str:
    return (
        f"#{attempt.iteration} {line(attempt.title, 60)}: {_ratio(attempt)}"
        f"{line(_reason(attempt), 70)}"
    )


def _reason(attempt: Attempt) -> str:
    """Without the gate's name, which is above it."""
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
