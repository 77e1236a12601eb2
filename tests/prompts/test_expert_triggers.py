"""What fires an expert note, what does not, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.derived import DERIVED, SPECIAL
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.ncu_pages import parse_csv
from cudaops.cuda.rule import Condition
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import diagnose
from cudaops.domain.base import Dim3
from cudaops.domain.profile import Finding, Metric, Profile, Verdict
from cudaops.prompts.expert_notes import (
    MOST_FIRED,
    STALLED_MATH,
    TRIGGERS,
    Cue,
    ExpertNote,
    fired,
    read_note,
)
from cudaops.timemodel.sm_simulation import Costs
from cudaops.timemodel.timing import Modelled, estimate, modelled_metrics
from cudaops.timemodel.work import (
    KernelWork,
    MemorySite,
    Mix,
    Phase,
    Stretch,
    ThreadCounts,
    Traffic,
    Use,
    WorkStep,
)

ROOT = Path(__file__).parents[2]
H200, A10 = DEVICES["H200"], DEVICES["A10"]

METRIC_CUES = [(note, cue) for note, cues in TRIGGERS.items() for cue in cues if not cue.subtypes]
every_metric_cue = pytest.mark.parametrize(
    ("note", "cue"), METRIC_CUES, ids=[f"{note}-{i}" for i, (note, _) in enumerate(METRIC_CUES)]
)


def profile(metrics: dict[str, float], duration_us: float = 100.0) -> Profile:
    """Of any numbers, derived ones among them."""
    return Profile(
        kernel="k", device="A10", source="modelled", duration_us=duration_us,
        metrics={
            name: Metric(name=name, value=value, unit="", source="modelled")
            for name, value in metrics.items()
        },
    )  # fmt: skip


def verdict(*subtypes: str) -> Verdict:
    """One that found these, the first first; `unknown` without any."""
    return Verdict(
        bottleneck_class="unknown", subtype=(*subtypes, "unknown")[0], summary="", evidence=(),
        relief="", source="modelled",
        findings=tuple(
            Finding(rule=name, severity="info", subtype=name, bottleneck_class="unknown", text="",
                    relief="", evidence=())
            for name in subtypes
        ),
    )  # fmt: skip


def ids(notes: tuple[ExpertNote, ...]) -> list[str]:
    return [note.id for note in notes]


def diagnosed(metrics: dict[str, float], duration_us: float = 100.0) -> list[str]:
    """Notes that these metrics fire by way of a real verdict on an A10."""
    found = profile(metrics, duration_us)
    return ids(fired(diagnose(found, A10), found))


def conditions() -> Iterator[Condition]:
    for cues in TRIGGERS.values():
        for cue in cues:
            yield from cue.conditions


def test_triggers_speak_of_facts_that_exist_and_source_every_threshold() -> None:
    for condition in conditions():
        known = {*METRICS, *DERIVED, *SPECIAL, STALLED_MATH.name}
        assert condition.fact in known
        assert len(condition.source) > 10
    assert all(cue.subtypes or cue.conditions for cues in TRIGGERS.values() for cue in cues)


def inside(cue: Cue) -> dict[str, float]:
    step = {">=": 0.0, "<=": 0.0, ">": 0.1, "<": -0.1, "==": 0.0}
    return {each.fact: each.threshold + step[each.comparison] for each in cue.conditions}


@every_metric_cue
def test_metrics_alone_fire_it_at_the_threshold_and_not_beyond(note: str, cue: Cue) -> None:
    assert note in ids(fired(verdict(), profile(inside(cue))))
    for condition in cue.conditions:
        sign = -1.0 if condition.comparison in (">", ">=") else 1.0
        beyond = {**inside(cue), condition.fact: condition.threshold + sign * 0.2}
        assert note not in ids(fired(verdict(), profile(beyond))), condition


@every_metric_cue
def test_a_missing_metric_fires_nothing(note: str, cue: Cue) -> None:
    for condition in cue.conditions:
        rest = {name: value for name, value in inside(cue).items() if name != condition.fact}
        assert note not in ids(fired(verdict(), profile(rest))), condition


def test_no_metrics_no_notes() -> None:
    assert fired(verdict(), profile({})) == ()
    assert fired(verdict("divergence"), profile({})) == ()


IDLE = {ncu.NO_ELIGIBLE: 70.0, ncu.ELIGIBLE_WARPS: 0.4}
QUIET = {ncu.SM_THROUGHPUT: 30.0, ncu.MEMORY_THROUGHPUT: 35.0, ncu.DRAM_THROUGHPUT: 20.0}
LIMITS = {
    **IDLE, ncu.LIMIT_REGISTERS: 8, ncu.LIMIT_SHARED: 8, ncu.LIMIT_WARPS: 8, ncu.LIMIT_BLOCKS: 16,
    ncu.THEORETICAL_OCCUPANCY: 25, ncu.WAVES: 5,
}  # fmt: skip
STALL = {**QUIET, ncu.CYCLES_PER_ISSUE: 10.0}
LOADS = {ncu.GLOBAL_LD_REQUESTS: 1e6, ncu.GLOBAL_LD_SECTORS: 8e6, ncu.BYTES_PER_SECTOR_LD: 20}

PROFILES: dict[str, dict[str, float]] = {
    "severe_memory_bound": {ncu.L1_THROUGHPUT: 96, ncu.DRAM_THROUGHPUT: 1},
    "near_peak_compute": {ncu.PIPE_FMA: 90},
    "huge_dram_traffic": {ncu.DRAM_THROUGHPUT: 55},
    "low_occupancy": {
        **LIMITS,
        ncu.LIMIT_SHARED: 2,
        ncu.SHARED_STATIC: 49152,
        ncu.SHARED_DYNAMIC: 0,
    },
    "register_limited": {**LIMITS, ncu.LIMIT_REGISTERS: 2},
    "low_waves_per_sm": {ncu.WAVES: 0.3},
    "high_waves_per_sm": {ncu.WAVES: 200},
    "poor_coalescing": {**LOADS, ncu.MEMORY_THROUGHPUT: 50},
    "low_l1_hit": {ncu.L2_THROUGHPUT: 85, ncu.DRAM_THROUGHPUT: 20, ncu.L1_HIT_RATE: 12},
    "low_l2_hit": {ncu.DRAM_THROUGHPUT: 45, ncu.L2_HIT_RATE: 30},
    "smem_bank_conflicts": {ncu.BANK_CONFLICTS_LD: 16e6, ncu.SHARED_LD_WAVEFRONTS: 32e6},
    "stall_long_scoreboard": {**STALL, ncu.STALL_LONG: 7},
    "stall_short_scoreboard": {**STALL, ncu.STALL_SHORT: 6},
    "stall_mio_throttle": {**STALL, ncu.STALL_MIO: 5},
    "stall_math_pipe": {**STALL, ncu.STALL_MATH: 4},
    "stall_barrier": {**STALL, ncu.STALL_BARRIER: 6},
    "stall_wait": {**STALL, ncu.STALL_WAIT: 4},
    "stall_membar": {**STALL, ncu.STALL_MEMBAR: 3},
    "low_ipc": {ncu.EXECUTED_IPC_ACTIVE: 0.2, ncu.MEMORY_THROUGHPUT: 20},
}
"""What a profiler would show, by raw names: a launch for each note."""


@pytest.mark.parametrize("note", TRIGGERS)
def test_every_note_can_fire(note: str) -> None:
    assert note in diagnosed(PROFILES[note])


@pytest.mark.parametrize(
    ("metrics", "silent"),
    [
        # Full use of every sector by 16-byte accesses; a shift by one word; broadcasts.
        ({**LOADS, ncu.GLOBAL_LD_SECTORS: 16e6, ncu.BYTES_PER_SECTOR_LD: 32}, "poor_coalescing"),
        ({**LOADS, ncu.GLOBAL_LD_SECTORS: 5e6, ncu.BYTES_PER_SECTOR_LD: 25.6}, "poor_coalescing"),
        ({**LOADS, ncu.GLOBAL_LD_SECTORS: 2e6, ncu.BYTES_PER_SECTOR_LD: 18}, "poor_coalescing"),
        ({ncu.WAVES: 1.0, ncu.SM_THROUGHPUT: 30.0}, "low_waves_per_sm"),
        ({ncu.WAVES: 200, ncu.DURATION: 1e5}, "high_waves_per_sm"),
        ({ncu.L1_HIT_RATE: 3}, "low_l1_hit"),
        ({ncu.L2_HIT_RATE: 3, ncu.DRAM_THROUGHPUT: 10}, "low_l2_hit"),
        ({ncu.BANK_CONFLICTS: 1e6, ncu.SHARED_WAVEFRONTS: 32e6}, "smem_bank_conflicts"),
        ({ncu.EXECUTED_IPC_ACTIVE: 0.3, ncu.MEMORY_THROUGHPUT: 90}, "low_ipc"),
        ({ncu.SM_THROUGHPUT: 88, ncu.DRAM_THROUGHPUT: 10}, "near_peak_compute"),
        ({ncu.PIPE_FMA: 70}, "near_peak_compute"),
        ({**LIMITS, ncu.ACHIEVED_OCCUPANCY: 24, ncu.WAVES: 0.5}, "low_occupancy"),
    ],
)
def test_what_looks_alike_does_not_fire_it(metrics: dict[str, float], silent: str) -> None:
    """Most are where the given list's trigger would have fired."""
    assert silent not in diagnosed(
        {ncu.MEMORY_THROUGHPUT: 50, **metrics}, metrics.get(ncu.DURATION, 1e4)
    )


# Real and modelled profiles.


def captured(kernel: str, page: str) -> list[str]:
    path = ROOT / "tests" / "data" / "ncu" / f"h200_{kernel}_matmul_1024.{page}.csv"
    found = parse_csv(path.read_text("utf-8"))[0].profile
    return ids(fired(diagnose(found, H200), found))


def test_the_captured_naive_product() -> None:
    assert captured("naive", "raw") == [
        "severe_memory_bound", "stall_mio_throttle", "stall_long_scoreboard",
    ]  # fmt: skip
    assert captured("naive", "details") == ["severe_memory_bound"]


def test_the_captured_tiled_product() -> None:
    assert captured("regtiled", "raw") == [
        "low_waves_per_sm", "stall_barrier", "low_ipc", "smem_bank_conflicts",
    ]  # fmt: skip
    assert captured("regtiled", "details") == ["low_waves_per_sm", "low_ipc"]


def test_a_modelled_stream() -> None:
    """c[i] = a[i] + b[i] on the time model: DRAM is full and nothing is read twice."""
    moved = 65536 * 1024.0
    load = MemorySite(
        "global", False, False, "k.cu", 1, 4, 16, 16, 256, 1.0, 1.0, 4.0, useful_bytes=128
    )
    store = MemorySite(
        "global", True, False, "k.cu", 1, 4, 8, 8, 256, 1.0, 1.0, 4.0, useful_bytes=128
    )
    step = WorkStep((Use(0, 2.0),), Mix(3, fp32=1, alu=2), (Use(1, 1.0),), needs=(1,))
    work = KernelWork(
        65536, 256, 32, 0, 0, (Phase((Stretch((step,), 1.0),), 1.0, False),), (load, store),
        ThreadCounts(fadd=1.0), Traffic(3 * moved, 2 * moved, moved, False),
    )  # fmt: skip
    timed = estimate(work, H200)
    costs = Costs.of(work, H200, microarchitecture(H200.compute_capability))
    made = Modelled(work, timed, costs, H200, Dim3(x=65536), Dim3(x=256))
    found = Profile(
        kernel="k", device="H200", source="modelled", duration_us=timed.duration_us,
        metrics=modelled_metrics(made),
    )  # fmt: skip
    notes = ids(fired(diagnose(found, H200), found))
    assert notes[:3] == ["severe_memory_bound", "huge_dram_traffic", "low_l2_hit"]
    assert not {"poor_coalescing", "low_ipc", "near_peak_compute", "low_waves_per_sm"} & set(notes)


# Order and number.


def everything() -> dict[str, float]:
    """Numbers that fire every metric cue, the uncoalesced loads included."""
    return {name: value for _, cue in METRIC_CUES for name, value in inside(cue).items()} | {
        ncu.MEMORY_THROUGHPUT: 55.0, ncu.DRAM_THROUGHPUT: 55.0,
    }  # fmt: skip


def test_never_more_than_five_and_the_verdicts_first() -> None:
    metrics = everything()
    cues = [cue for cues in TRIGGERS.values() for cue in cues if not cue.conditions]
    about = {subtype for cue in cues for subtype in cue.subtypes}
    for subtype in SUBTYPES:
        rest = [other for other in SUBTYPES if other != subtype]
        found = ids(fired(verdict(subtype, *rest), profile(metrics)))
        assert len(found) == len(set(found)) == MOST_FIRED
        first = next((n for n in (subtype, *rest) if n in about), None)
        assert first in read_note(found[0]).subtypes


def test_findings_keep_their_order_and_come_before_metrics_alone() -> None:
    found = ids(fired(verdict("stall_wait", "stall_barrier", "tail_effect"), profile(everything())))
    assert found == [
        "stall_wait", "stall_barrier", "low_waves_per_sm", "huge_dram_traffic", "low_occupancy",
    ]  # fmt: skip


def test_metrics_alone_come_by_severity_then_in_the_catalogues_order() -> None:
    rank = {"critical": 0, "warning": 1, "info": 2}
    severity = {note: rank[cue.severity] for note, cue in METRIC_CUES}
    found = ids(fired(verdict(), profile(everything())))
    assert len(found) == MOST_FIRED
    places = [(severity[note], list(TRIGGERS).index(note)) for note in found]
    assert all(before < after for before, after in pairwise(places))


def test_the_note_most_about_a_finding_leads() -> None:
    assert ids(fired(verdict("occupancy_registers"), profile({}))) == [
        "register_limited", "low_occupancy",
    ]  # fmt: skip


def test_order_of_metrics_does_not_matter() -> None:
    metrics = everything()
    turned = dict(reversed(metrics.items()))
    of = verdict("near_peak", "dram_bandwidth", "stall_wait")
    assert fired(of, profile(metrics)) == fired(of, profile(turned)) == fired(of, profile(metrics))


def test_a_peak_of_arithmetic_and_a_peak_of_memory_fire_different_notes() -> None:
    most = 100.0 * 1e3
    flop = {
        ncu.FFMA: 0.45 * A10.peak_fp32_gflops * most,
        ncu.FADD: 0,
        ncu.FMUL: 0,
        ncu.PIPE_FMA: 92,
    }
    by_flops = {**flop, ncu.DRAM_READ_BYTES: 1e3, ncu.DRAM_WRITE_BYTES: 0}
    assert diagnosed(by_flops)[0] == "near_peak_compute"
    by_bytes = {
        ncu.FFMA: 0, ncu.FADD: 0, ncu.FMUL: 0, ncu.DRAM_THROUGHPUT: 91, ncu.L2_HIT_RATE: 80,
        ncu.DRAM_READ_BYTES: 0.9 * A10.dram_bandwidth_gb_s * most, ncu.DRAM_WRITE_BYTES: 0,
    }  # fmt: skip
    assert diagnosed(by_bytes) == ["severe_memory_bound", "huge_dram_traffic"]
