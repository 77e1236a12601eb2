"""Verdict: what limits a launch, with the evidence, from whatever metrics there are.

Order in which a verdict is chosen (`Rule.priority`):

1. the kernel is as short as its launch, or at the arithmetic peak (0, 10);
2. a pipe or the issue slots at 80 % of peak: the work itself (20);
3. a cause behind a busy memory path: spills, uncoalesced accesses, bank conflicts, contended
   atomics, divergence (30); without one, that the bytes moved already fill DRAM (39);
4. a memory path at 80 % of peak, DRAM before L2 before shared memory before L1 loads (40);
5. any of these units at 60 to 80 %, the busiest first (50);
6. too little in flight by construction: grid, last wave, occupancy (60, 65);
7. what warps wait for, the longest wait first (70), and that nothing is busy (80);
8. remarks that never decide while anything above fires (90).
"""

from __future__ import annotations

from collections import Counter

from cudaops.cuda.devices import Device
from cudaops.cuda.facts import DERIVED, SPECIAL, facts
from cudaops.cuda.metrics import METRICS, metric_def
from cudaops.cuda.nvidia_rules import marked
from cudaops.cuda.roofline import roofline
from cudaops.cuda.rules import RULES, fired_rules, rules_reading
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.domain.profile import MetricSource, Profile, Roofline, Verdict


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
        summary=_sentence(f"Limited by {SUBTYPES[fired[0].rule.subtype].title}: {first.text}"),
        evidence=first.evidence,
        relief=first.relief,
        findings=findings,
        roofline=line,
        hot_lines=profile.hot_lines,
        nvidia_rules=marked(profile.nvidia_rules, findings),
        source=profile.source,
        drawn_from=drawn_from(profile),
    )


_ORIGINS: dict[MetricSource, str] = {
    "ncu": "by ncu", "cupti": "by CUPTI", "cuda_event": "by CUDA events", "ptxas": "from ptxas",
    "launch": "of the launch", "modelled": "modelled",
}  # fmt: skip


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
    read = {condition.fact for rule in RULES for condition in rule.conditions}
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
