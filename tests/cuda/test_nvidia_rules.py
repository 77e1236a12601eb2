"""Nsight Compute's own rules beside the findings of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.cuda.ncu_pages import merged, parse_details, parse_raw
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import NVIDIA_MEANINGS, diagnose, marked, meaning_of
from cudaops.domain.profile import Finding, NvidiaRule, Verdict

DATA = Path(__file__).parents[1] / "data" / "ncu"


def verdict(kernel: str) -> Verdict:
    pages = [
        (DATA / f"h200_{kernel}_matmul_1024.{page}.csv").read_text("utf-8")
        for page in ("details", "raw")
    ]
    (launch,) = merged(parse_details(pages[0]), parse_raw(pages[1]))
    return diagnose(launch.profile, DEVICES["H200"])


def agreed(found: Verdict) -> list[tuple[str, str]]:
    return [(rule.name, rule.agrees_with) for rule in found.nvidia_rules if rule.agrees_with]


def test_on_the_naive_product() -> None:
    """NVIDIA's rules on coalescing (broadcasts), the tail (3.88 waves) and compression find what
    ours find not to matter: they stay, unmarked, with their estimates."""
    found = verdict("naive")
    assert len(found.nvidia_rules) == 10
    assert agreed(found) == [
        ("SOLBottleneck", "l1_load_throughput"), ("IssueSlotUtilization", "stall_lg_throttle"),
        ("CPIStall", "stall_lg_throttle"), ("CPIStall", "stall_long_scoreboard"),
    ]  # fmt: skip
    alone = {r.name: r.estimated_speedup_pct for r in found.nvidia_rules if r.agrees_with is None}
    assert alone["MemoryCacheAccessPattern"] == 40.6
    assert alone["LaunchConfiguration"] == 25


def test_on_the_register_tiled_product() -> None:
    found = verdict("regtiled")
    assert agreed(found) == [
        ("SOLBottleneck", "occupancy_grid"), ("SharedMemoryConflicts", "shared_bank_conflicts"),
        ("IssueSlotUtilization", "occupancy_grid"), ("CPIStall", "stall_barrier"),
        ("LaunchConfiguration", "occupancy_grid"), ("AchievedOccupancy", "occupancy_grid"),
        ("UncoalescedSharedAccess", "shared_bank_conflicts"),
    ]  # fmt: skip
    registers = next(r for r in found.nvidia_rules if r.name == "TheoreticalOccupancy")
    assert registers.agrees_with is None  # the grid ends before registers limit anything


SAYS: list[tuple[str, str, str]] = [
    ("CPIStall", ("stalled waiting for a scoreboard dependency on a MIO (memory input/output) "
     "operation."), "stall_short_scoreboard"),
    ("CPIStall", ("stalled waiting for the MIO (memory input/output) instruction queue to be not "
     "full."), "stall_mio_throttle"),
    ("CPIStall", "stalled waiting on a fixed latency execution dependency.", "stall_wait"),
    ("CPIStall", "stalled waiting on a memory barrier.", "stall_membar"),
    ("CPIStall", "stalled waiting for a branch target to be computed.", "stall_branch"),
    ("CPIStall", "stalled waiting for the execution pipe to be available.", "fma_pipe"),
    ("SOLBottleneck", "Start by analyzing DRAM in the Memory Workload Analysis section.",
     "dram_bandwidth"),
    ("SOLBottleneck", "Start by analyzing L2 in the Memory Workload Analysis section.",
     "l2_bandwidth"),
    ("SOLBottleneck", "below 60.0% of peak typically indicate latency issues.", "tail_effect"),
    ("HighPipeUtilization", ("FMA is the highest-utilized pipeline (91%). The pipeline is "
     "over-utilized and likely a performance bottleneck."), "fma_pipe"),
    ("HighPipeUtilization", "All compute pipelines are under-utilized.", "low_parallelism"),
    ("LaunchConfiguration", ("The grid for this launch is configured to execute only 64 blocks, "
     "which is less than the GPU's 84 multiprocessors."), "occupancy_grid"),
    ("LaunchConfiguration", "results in 1 full waves and a partial wave of 9 thread blocks.",
     "tail_effect"),
    ("TheoreticalOccupancy", "limited by the required amount of shared memory.",
     "occupancy_shared"),
    ("TheoreticalOccupancy", "limited by the number of warps within each block.",
     "occupancy_block_size"),
    ("ThreadDivergence", "Instructions are executed in warps.", "divergence"),
    ("UncoalescedGlobalAccess", "This kernel has uncoalesced global accesses.",
     "uncoalesced_access"),
]  # fmt: skip


def finding(subtype: str) -> Finding:
    return Finding(
        rule=subtype, severity="info", subtype=subtype, bottleneck_class="unknown", text="",
        relief="", evidence=(),
    )  # fmt: skip


@pytest.mark.parametrize(("name", "text", "subtype"), SAYS)
def test_what_their_texts_mean(name: str, text: str, subtype: str) -> None:
    rule = NvidiaRule(section="", name=name, type="OPT", text=text)
    (agreeing,) = marked([rule], [finding("near_peak"), finding(subtype)])
    assert agreeing.agrees_with in (subtype, "near_peak")
    other = "register_spills" if subtype != "register_spills" else "divergence"
    (alone,) = marked([rule], [finding(other)])
    assert alone.agrees_with is None


def test_rules_that_say_nothing_of_a_limit_agree_with_nothing() -> None:
    every = [finding(subtype) for subtype in SUBTYPES]
    for name in ("SOLFPRoofline", "MemoryL2Compression", "NUMAAffinity", "Something new"):
        rule = NvidiaRule(section="", name=name, type="INF", text="launch-bound latency issues")
        assert meaning_of(rule) is None
        assert marked([rule], every)[0].agrees_with is None


def test_the_map_names_known_subtypes_and_is_written_in_lower_case() -> None:
    for meaning in NVIDIA_MEANINGS:
        assert set(meaning.subtypes) <= set(SUBTYPES)
        assert meaning.subtypes
        assert meaning.phrase == meaning.phrase.lower()
