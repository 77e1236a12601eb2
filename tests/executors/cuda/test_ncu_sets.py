"""Which set of metrics a launch is profiled with, by what that takes; what a small set tells."""

from __future__ import annotations

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.ncu_pages import parse_raw
from cudaops.cuda.verdict import diagnose
from cudaops.executors.cuda.ncu_sets import (
    BRIEF,
    BRIEF_COUNTERS,
    COUNTERS,
    DECIDING,
    LEAST,
    LEAST_COUNTERS,
    LEFT_OUT,
    MOST_S,
    LaunchCost,
    Sections,
    affordable,
    collected,
    profile_s,
)
from tests.executors.cuda.ncu_double import KERNEL, RECORDED

GB = 10**9
H100 = 80 * GB


@pytest.mark.parametrize(
    ("seconds", "size_bytes", "found"),
    [
        (2e-6, 786_432, "deciding"),
        (8.0e-3, 3_200_160_000, "deciding"),
        (32.4e-3, 18_432_000_000, "brief"),
        (0.3, GB // 10, "brief"),
        (0.95, GB // 10, "least"),
        (2.0, GB // 10, None),
        (0.1e-3, 45 * GB, None),
    ],
    ids=["short", "page-rank", "lrn", "long", "depixel", "too long", "too large to copy"],
)
def test_a_set_that_ends_in_time(seconds: float, size_bytes: int, found: Sections | None) -> None:
    launch = LaunchCost(seconds, size_bytes, H100)
    assert affordable("deciding", launch) == found
    assert found is None or profile_s(found, launch) <= MOST_S


@pytest.mark.parametrize(
    ("seconds", "size_bytes", "took_s", "loading_s"),
    [
        (8.02e-3, 3_200_160_000, 9.7, 1.6),
        (32.4e-3, 18_432_000_000, 34.65, 9.2),
        (20.07e-3, 3_929_785_244, 21.64, 2.0),
    ],
    ids=["page-rank", "lrn", "epistasis"],
)
def test_costs_are_those_that_were_seen(
    seconds: float, size_bytes: int, took_s: float, loading_s: float
) -> None:
    """An H200, 2026-11-23 and 24: benchmarks/results, capture-costs; 5.4 s for a short kernel."""
    seen = took_s - 5.4 - loading_s
    expected = profile_s("deciding", LaunchCost(seconds, size_bytes, 141 * GB))
    assert 0.8 * seen < expected < 2 * seen


def test_no_more_is_collected_than_was_wanted() -> None:
    assert affordable("full", LaunchCost(1e-3, GB, H100)) == "full"
    assert affordable("full", LaunchCost(24.5e-3, 0, H100)) == "deciding"
    assert affordable("brief", LaunchCost(1e-3, GB, H100)) == "brief"


def test_sets_hold_each_other() -> None:
    assert set(LEAST) < set(BRIEF) < set(DECIDING)
    assert set(LEAST_COUNTERS) < set(BRIEF_COUNTERS) < set(COUNTERS)
    for sections in ("least", "brief"):
        assert "smsp__sass" not in " ".join(collected(sections))
        assert LEFT_OUT[sections]


def test_a_small_set_tells_the_same_of_a_kernel_that_waits_for_l1() -> None:
    """The recorded product with what the brief set has of it alone."""
    page = (RECORDED / f"{KERNEL}.raw.csv").read_text("utf-8")
    (launch,) = parse_raw(page)
    sections = {
        "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Scheduler Statistics",
        "Warp State Statistics", "LaunchCost Statistics", "Occupancy",
    }  # fmt: skip
    kept = {row.name for row in ncu.DETAILS_ROWS if row.section in sections}
    kept |= {row.name for row in ncu.COUNTER_ROWS if row.section == "Warp stalls"}
    kept |= set(BRIEF_COUNTERS)
    few = {n: m for n, m in launch.profile.metrics.items() if n in kept and "__sass_" not in n}
    assert len(few) < 150
    verdict = diagnose(launch.profile.model_copy(update={"metrics": few}), DEVICES["H200"])
    assert (verdict.bottleneck_class, verdict.subtype) == ("memory_bound", "l1_load_throughput")
