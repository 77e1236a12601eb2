"""Verdict: what limits a launch, with the evidence, from whatever metrics there are.

Order in which a verdict is chosen (`Rule.priority`). Those from 15 to 50, idle SMs, busy units
and causes behind them, are ranked by what removing each gains at most (`cudaops.cuda.gains`), the
priority only deciding among equals:

1. the kernel is as short as its launch, or at the arithmetic peak (0, 10), or most SMs have no
   block and nothing that all SMs share is busy (15);
2. a pipe or the issue slots at 80 % of peak: the work itself (20);
3. a cause behind a busy memory path: spills, uncoalesced accesses, bank conflicts, contended
   atomics, divergence (30); without one, that the bytes moved already fill DRAM (39);
4. a memory path at 80 % of peak, DRAM before L2 before shared memory before L1 loads (40);
5. any of these units at 60 to 80 %, the busiest first (50);
6. too little in flight by construction: grid, last wave, occupancy (60, 65);
7. what warps wait for, the longest wait first (70), and that nothing is busy (80);
8. remarks that never decide while anything above fires (90).

Nsight Compute's own rules are beside ours: which of theirs say what one of our findings says.
Their identifiers and texts are those of ncu 2025.3 (captures in tests/data/ncu); for rules that no
capture fired, those of published reports of ncu 2022 to 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from cudaops.cuda.derived import DERIVED, SPECIAL, Fact, facts
from cudaops.cuda.devices import Device
from cudaops.cuda.metrics import METRICS, metric_def
from cudaops.cuda.roofline import roofline
from cudaops.cuda.rule import Fired, Rule, fire
from cudaops.cuda.rules import FEW_SMS_PRIORITY, RULES, STRAINED_PRIORITY
from cudaops.cuda.subtypes import SUBTYPES, Subtype
from cudaops.domain.profile import Finding, MetricSource, NvidiaRule, Profile, Roofline, Verdict
from cudaops.plugins import plugins, unusable, wrong_type


@cache
def all_rules() -> tuple[Rule, ...]:
    """RULES and those of installed packages. Raises InputError where one cannot be used."""
    found = plugins("rules")
    for one in found:
        rule = one.value
        if not isinstance(rule, Rule):
            raise wrong_type(one, "a cudaops.cuda.rule.Rule")
        if rule.subtype not in SUBTYPES:
            raise unusable(one, f"there is no verdict subtype {rule.subtype!r}")
        if rule.id in {known.id for known in RULES}:
            raise unusable(one, f"{rule.id} is a rule of cudaops' own; name it otherwise")
        one.called(rule.text.format, *("0" for _ in rule.conditions))
    return (*RULES, *(one.value for one in found))


def rules_reading(fact: str) -> tuple[Rule, ...]:
    """Rules with a condition on this metric or derived number."""
    return tuple(rule for rule in all_rules() if any(c.fact == fact for c in rule.conditions))


def diagnose(profile: Profile, device: Device) -> Verdict:
    """What limits this launch on this device.

    A rule fires only where every metric it reads was collected, so fewer metrics give fewer
    findings and, in the end, the subtype `unknown`, never a guess.
    """
    line = roofline(profile, device)
    fired = fired_rules(facts(profile, line))
    if not fired:
        return _unknown(profile, line)
    findings = tuple(each.finding for each in fired)
    first = findings[0]
    return Verdict(
        bottleneck_class=first.bottleneck_class,
        subtype=first.subtype,
        summary=limited_by(fired[0].rule.subtype, first.text),
        evidence=first.evidence,
        relief=first.relief,
        findings=findings,
        roofline=line,
        hot_lines=profile.hot_lines,
        nvidia_rules=marked(profile.nvidia_rules, findings),
        source=profile.source,
        drawn_from=drawn_from(profile),
    )


def by_gain(priority: int) -> bool:
    """Whether rules of this priority are ranked by what removing their cause gains: busy units, and
    causes behind them."""
    return FEW_SMS_PRIORITY <= priority <= STRAINED_PRIORITY


def fired_rules(facts: Mapping[str, Fact]) -> tuple[Fired, ...]:
    """Rules that fire, the one that decides first (`_rank`)."""
    fired = [found for rule in all_rules() if (found := fire(rule, facts)) is not None]
    return tuple(sorted(fired, key=_rank))


def _rank(found: Fired) -> tuple[float, ...]:
    """Tier; in one that goes by gain, that and how busy the cause keeps a unit; priority,
    strength."""
    priority, gain = found.rule.priority, found.gain
    if not by_gain(priority):
        return (priority, 0.0, 0.0, priority, -found.strength)
    saves, busy = (100.0, 0.0) if gain is None else (gain.weight_pct, gain.busy_pct)
    return (FEW_SMS_PRIORITY, -round(saves), -round(busy), priority, -found.strength)


_ORIGINS: dict[MetricSource, str] = {
    "ncu": "by ncu", "cupti": "by CUPTI", "cuda_event": "by CUDA events", "ptxas": "from ptxas",
    "launch": "of the launch", "modelled": "modelled",
}  # fmt: skip


def limited_by(subtype: Subtype, text: str) -> str:
    """The sentence of a verdict; `text` is what the rule that decided says."""
    return _sentence(f"Limited by {SUBTYPES[subtype].title}: {text}")


def drawn_from(profile: Profile) -> str:
    """How many metrics came from where: `11 of the launch, 8 from ptxas, 96 modelled`."""
    counts = Counter(metric.source for metric in profile.metrics.values())
    return ", ".join(f"{counts[s]} {words}" for s, words in _ORIGINS.items() if counts[s])


def explain(metric_name: str) -> str:
    """What a metric means, its unit, and which rules read it, in a few lines.

    Raises:
        InputError: unknown name; names the nearest.
    """
    if metric_name in DERIVED:
        row = DERIVED[metric_name]
        heading = f"{row.name} ({row.unit}): {row.label}. {row.meaning}"
        origin = f"Derived from {', '.join(row.inputs)}."
    elif metric_name in SPECIAL:
        label, unit, meaning = SPECIAL[metric_name]
        heading, origin = f"{metric_name} ({unit}): {label}. {meaning}", "Derived by cudaops."
    else:
        known = metric_def(metric_name)
        heading = f"{known.name} ({known.unit or 'count'}): {known.label}. {known.meaning}"
        where = "details page" if known.on_details_page else "raw page"
        origin = f"ncu's {where}, {known.section}."
        if known.not_on:
            origin += f" Not in {known.not_on}."
        metric_name = known.name
    return "\n".join([heading, origin, *_readers(metric_name)])


def _readers(fact: str) -> list[str]:
    through = [row.name for row in DERIVED.values() if fact in row.inputs]
    lines = []
    for rule in rules_reading(fact):
        condition = next(c for c in rule.conditions if c.fact == fact)
        lines.append(
            f"Rule {rule.id} ({rule.subtype}): {condition.comparison} {condition.threshold:g}, "
            f"{condition.source}"
        )
    if through:
        lines.append(f"Enters {', '.join(through)}.")
    return lines


def _unknown(profile: Profile, line: Roofline | None) -> Verdict:
    info = SUBTYPES["unknown"]
    read = {condition.fact for rule in all_rules() for condition in rule.conditions}
    known = sum(1 for name in profile.metrics if name in METRICS and _is_read(name, read))
    return Verdict(
        bottleneck_class="unknown",
        subtype="unknown",
        summary=(
            f"Limit unknown: no rule fired on {known} of the metrics that rules read "
            f"({len(profile.metrics)} collected)."
        ),
        evidence=(),
        relief=info.relief,
        roofline=line,
        hot_lines=profile.hot_lines,
        nvidia_rules=profile.nvidia_rules,
        source=profile.source,
        drawn_from=drawn_from(profile),
    )


def _is_read(name: str, read: set[str]) -> bool:
    return name in read or any(name in row.inputs for row in DERIVED.values() if row.name in read)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


class NvidiaMeaning(NamedTuple):
    """What a rule of NVIDIA's means in our words."""

    rule: str
    phrase: str
    """In its text, in lower case; empty where the rule has one meaning only."""
    subtypes: tuple[Subtype, ...]
    """Any of these as a finding of ours says the same."""


_LATENCY_SUBTYPES: tuple[Subtype, ...] = tuple(
    subtype for subtype, info in SUBTYPES.items() if info.bottleneck_class == "latency_bound"
)
_PIPE_SUBTYPES: tuple[Subtype, ...] = (
    "fma_pipe", "fp64_pipe", "tensor_pipe", "sfu_pipe", "integer_pipe", "issue_slots",
)  # fmt: skip

NVIDIA_MEANINGS: tuple[NvidiaMeaning, ...] = (
    NvidiaMeaning("SOLBottleneck", "grid is too small", ("occupancy_grid",)),
    NvidiaMeaning("SOLBottleneck", "analyzing l1 in", (
        "l1_load_throughput", "shared_throughput", "uncoalesced_access", "shared_bank_conflicts",
        "register_spills")),
    NvidiaMeaning("SOLBottleneck", "analyzing l2 in", ("l2_bandwidth", "uncoalesced_access")),
    NvidiaMeaning("SOLBottleneck", "analyzing dram in", (
        "dram_bandwidth", "uncoalesced_access", "near_peak")),
    NvidiaMeaning("SOLBottleneck", "compute workload analysis", (*_PIPE_SUBTYPES, "near_peak")),
    NvidiaMeaning("SOLBottleneck", "latency issues", _LATENCY_SUBTYPES),
    NvidiaMeaning("HighPipeUtilization", "is over-utilized", _PIPE_SUBTYPES),
    NvidiaMeaning("HighPipeUtilization", "pipelines are under-utilized", _LATENCY_SUBTYPES),
    NvidiaMeaning("SlowPipeLimiter", "", ("fp64_pipe", "sfu_pipe")),
    NvidiaMeaning("MemoryCacheAccessPattern", "", ("uncoalesced_access",)),
    NvidiaMeaning("UncoalescedGlobalAccess", "", ("uncoalesced_access",)),
    NvidiaMeaning("SharedMemoryConflicts", "", ("shared_bank_conflicts",)),
    NvidiaMeaning("UncoalescedSharedAccess", "", ("shared_bank_conflicts",)),
    NvidiaMeaning("ThreadDivergence", "", ("divergence",)),
    NvidiaMeaning("IssueSlotUtilization", "", ("low_parallelism", *_LATENCY_SUBTYPES)),
    NvidiaMeaning("LaunchConfiguration", "full waves and a partial wave", ("tail_effect",)),
    NvidiaMeaning("LaunchConfiguration", "which is less than the gpu's", ("occupancy_grid",)),
    NvidiaMeaning("LaunchConfiguration", "two blocks per multiprocessor", (
        "stall_barrier", "occupancy_grid")),
    NvidiaMeaning("LaunchConfiguration", "multiple of 32", ("occupancy_block_size",)),
    NvidiaMeaning("TheoreticalOccupancy", "number of required registers", ("occupancy_registers",)),
    NvidiaMeaning("TheoreticalOccupancy", "required amount of shared memory",
                  ("occupancy_shared",)),
    NvidiaMeaning("TheoreticalOccupancy", "number of warps", ("occupancy_block_size",)),
    NvidiaMeaning("TheoreticalOccupancy", "number of blocks", ("occupancy_block_size",)),
    NvidiaMeaning("AchievedOccupancy", "", ("occupancy_grid", "tail_effect")),
    NvidiaMeaning("CPIStall", "instruction queue for local and global", ("stall_lg_throttle",)),
    NvidiaMeaning("CPIStall", "dependency on a l1tex", ("stall_long_scoreboard",)),
    NvidiaMeaning("CPIStall", "dependency on a mio", ("stall_short_scoreboard",)),
    NvidiaMeaning("CPIStall", "waiting for the mio", ("stall_mio_throttle",)),
    NvidiaMeaning("CPIStall", "at a cta barrier", ("stall_barrier",)),
    NvidiaMeaning("CPIStall", "memory barrier", ("stall_membar",)),
    NvidiaMeaning("CPIStall", "branch target", ("stall_branch",)),
    NvidiaMeaning("CPIStall", "fixed latency execution dependency", ("stall_wait",)),
    NvidiaMeaning("CPIStall", "execution pipe to be available", _PIPE_SUBTYPES),
)  # fmt: skip
"""First match wins. Rules not listed (roofline chart, L2 compression, NUMA, PCIe) say nothing that
a verdict of ours could say."""


def marked(rules: Iterable[NvidiaRule], findings: Sequence[Finding]) -> tuple[NvidiaRule, ...]:
    """The rules, each with the first of our findings (in the order that decides) that agrees."""
    return tuple(
        rule.model_copy(update={"agrees_with": _agreement(rule, findings)}) for rule in rules
    )


def meaning_of(rule: NvidiaRule) -> NvidiaMeaning | None:
    """What a rule means in our words; None where it says nothing that a verdict of ours could."""
    text = rule.text.lower()
    return next((m for m in NVIDIA_MEANINGS if m.rule == rule.name and m.phrase in text), None)


def _agreement(rule: NvidiaRule, findings: Sequence[Finding]) -> str | None:
    meaning = meaning_of(rule)
    if meaning is None:
        return None
    return next((f.subtype for f in findings if f.subtype in meaning.subtypes), None)
