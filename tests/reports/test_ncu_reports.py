"""What a report says of ncu's own rules, of how much is known, and of numbers of mixed origin."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, Group

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import value_of
from cudaops.cuda.ncu_pages import metrics_parsed, parse_csv
from cudaops.cuda.ncu_problem import fallback_profile
from cudaops.cuda.verdict import diagnose
from cudaops.domain.profile import Profile
from cudaops.domain.run import ProfileSummary
from cudaops.reports import profiles, terminal

DATA = Path(__file__).parents[1] / "data" / "ncu"
H200 = DEVICES["H200"]


def summary(profile: Profile) -> ProfileSummary:
    verdict = diagnose(profile, H200)
    return ProfileSummary(
        verdict=verdict.summary, subtype=verdict.subtype, metrics_parsed=metrics_parsed(profile),
        baseline=profile, verdict_detail=verdict,
    )  # fmt: skip


def measured(kernel: str, page: str) -> ProfileSummary:
    text = (DATA / f"h200_{kernel}_matmul_1024.{page}.csv").read_text("utf-8")
    return summary(parse_csv(text)[0].profile.model_copy(update={"device": "H200"}))


def shown(what: ProfileSummary) -> str:
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(Group(*terminal.profile_parts(what)))
    return " ".join(capture.get().split())


def test_rules_that_agree_come_first_then_what_promises_most() -> None:
    rows = profiles.rule_rows(measured("regtiled", "details").verdict_detail)
    assert len(rows) == 12
    agreeing = [bool(row.agrees) for row in rows]
    assert agreeing == sorted(agreeing, reverse=True)
    assert rows[0].agrees == "agrees with occupancy_grid"
    assert rows[0].estimate == "local 56.1 %"
    promised = [row.name for row in rows if not row.agrees]
    assert promised[0] == "TheoreticalOccupancy"


def test_the_terminal_leaves_out_what_only_informs() -> None:
    text = shown(measured("naive", "details"))
    assert "87 metrics of ncu's details page; those not listed are unknown." in text
    assert "MemoryCacheAccessPattern estimated speedup 40.6 %" in text
    assert "SOLBottleneck agrees with l1_load_throughput" in text
    assert "SOLFPRoofline" not in text


def test_a_raw_page_says_how_much_more_it_has() -> None:
    assert "87 metrics of ncu's details page, and 2,126 more" in shown(measured("naive", "raw"))


def test_a_time_that_was_measured_beside_counts_that_were_not() -> None:
    metrics = {ncu.L1_THROUGHPUT: 92.0, ncu.DRAM_THROUGHPUT: 1.0, ncu.DURATION: 100.0}
    modelled = Profile(
        kernel="k", device="H200", source="modelled", duration_us=100.0,
        metrics={name: value_of(name, value, "modelled") for name, value in metrics.items()},
    )  # fmt: skip
    found = fallback_profile(modelled, [], H200, times_us=(130.0,), why="ERR_NVGPUCTRPERM")
    text = shown(summary(found))
    assert "DRAM at 1.0 % (time measured on H200, counts modelled)" in text
    assert "One launch: 130 µs (measured on H200, CUDA events)." in text
    assert "92 % >= 80 % modelled for H200" in text
    assert "Note: ncu could not read the counters: ERR_NVGPUCTRPERM" in text
