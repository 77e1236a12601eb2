"""Nsight Compute's own rules beside ours: which of theirs say what one of our findings says.

Their identifiers and texts are those of ncu 2025.3 (captures in tests/data/ncu); for rules that no
capture fired, those of published reports of ncu 2022 to 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cudaops.cuda.subtypes import SUBTYPES, Subtype
from cudaops.domain.profile import Finding, NvidiaRule


class Meaning(NamedTuple):
    """What a rule of NVIDIA's means in our words."""

    rule: str
    phrase: str
    """In its text, in lower case; empty where the rule has one meaning only."""
    subtypes: tuple[Subtype, ...]
    """Any of these as a finding of ours says the same."""


_LATENCY: tuple[Subtype, ...] = tuple(
    subtype for subtype, info in SUBTYPES.items() if info.bottleneck_class == "latency_bound"
)
_PIPES: tuple[Subtype, ...] = (
    "fma_pipe", "fp64_pipe", "tensor_pipe", "sfu_pipe", "integer_pipe", "issue_slots",
)  # fmt: skip

MEANINGS: tuple[Meaning, ...] = (
    Meaning("SOLBottleneck", "grid is too small", ("occupancy_grid",)),
    Meaning("SOLBottleneck", "analyzing l1 in", (
        "l1_load_throughput", "shared_throughput", "uncoalesced_access", "shared_bank_conflicts",
        "register_spills")),
    Meaning("SOLBottleneck", "analyzing l2 in", ("l2_bandwidth", "uncoalesced_access")),
    Meaning("SOLBottleneck", "analyzing dram in", (
        "dram_bandwidth", "uncoalesced_access", "near_peak")),
    Meaning("SOLBottleneck", "compute workload analysis", (*_PIPES, "near_peak")),
    Meaning("SOLBottleneck", "latency issues", _LATENCY),
    Meaning("HighPipeUtilization", "is over-utilized", _PIPES),
    Meaning("HighPipeUtilization", "pipelines are under-utilized", _LATENCY),
    Meaning("SlowPipeLimiter", "", ("fp64_pipe", "sfu_pipe")),
    Meaning("MemoryCacheAccessPattern", "", ("uncoalesced_access",)),
    Meaning("UncoalescedGlobalAccess", "", ("uncoalesced_access",)),
    Meaning("SharedMemoryConflicts", "", ("shared_bank_conflicts",)),
    Meaning("UncoalescedSharedAccess", "", ("shared_bank_conflicts",)),
    Meaning("ThreadDivergence", "", ("divergence",)),
    Meaning("IssueSlotUtilization", "", ("low_parallelism", *_LATENCY)),
    Meaning("LaunchConfiguration", "full waves and a partial wave", ("tail_effect",)),
    Meaning("LaunchConfiguration", "which is less than the gpu's", ("occupancy_grid",)),
    Meaning("LaunchConfiguration", "two blocks per multiprocessor", (
        "stall_barrier", "occupancy_grid")),
    Meaning("LaunchConfiguration", "multiple of 32", ("occupancy_block_size",)),
    Meaning("TheoreticalOccupancy", "number of required registers", ("occupancy_registers",)),
    Meaning("TheoreticalOccupancy", "required amount of shared memory", ("occupancy_shared",)),
    Meaning("TheoreticalOccupancy", "number of warps", ("occupancy_block_size",)),
    Meaning("TheoreticalOccupancy", "number of blocks", ("occupancy_block_size",)),
    Meaning("AchievedOccupancy", "", ("occupancy_grid", "tail_effect")),
    Meaning("CPIStall", "instruction queue for local and global", ("stall_lg_throttle",)),
    Meaning("CPIStall", "dependency on a l1tex", ("stall_long_scoreboard",)),
    Meaning("CPIStall", "dependency on a mio", ("stall_short_scoreboard",)),
    Meaning("CPIStall", "waiting for the mio", ("stall_mio_throttle",)),
    Meaning("CPIStall", "at a cta barrier", ("stall_barrier",)),
    Meaning("CPIStall", "memory barrier", ("stall_membar",)),
    Meaning("CPIStall", "branch target", ("stall_branch",)),
    Meaning("CPIStall", "fixed latency execution dependency", ("stall_wait",)),
    Meaning("CPIStall", "execution pipe to be available", _PIPES),
)  # fmt: skip
"""First match wins. Rules not listed (roofline chart, L2 compression, NUMA, PCIe) say nothing that
a verdict of ours could say."""


def marked(rules: Iterable[NvidiaRule], findings: Sequence[Finding]) -> tuple[NvidiaRule, ...]:
    """The rules, each with the first of our findings (in the order that decides) that agrees."""
    return tuple(
        rule.model_copy(update={"agrees_with": _agreement(rule, findings)}) for rule in rules
    )


def meaning_of(rule: NvidiaRule) -> Meaning | None:
    """What a rule means in our words; None where it says nothing that a verdict of ours could."""
    text = rule.text.lower()
    return next((m for m in MEANINGS if m.rule == rule.name and m.phrase in text), None)


def _agreement(rule: NvidiaRule, findings: Sequence[Finding]) -> str | None:
    meaning = meaning_of(rule)
    if meaning is None:
        return None
    return next((f.subtype for f in findings if f.subtype in meaning.subtypes), None)
