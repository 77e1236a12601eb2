"""A `.ncu-rep` gives what ncu's own export of it gives; a broken one is said so in one line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cudaops.cuda.ncu_pages import counted, parse_details, parse_raw
from cudaops.errors import InputError
from cudaops.executors.cuda import ncu_reader
from cudaops.executors.cuda.ncu_rep import ReportLaunch, profile_of, read_report

CAPTURES = Path(__file__).parents[2] / "data" / "ncu"
REPORT = CAPTURES / "h200_naive_matmul_1024.ncu-rep"
ONCE = read_report(REPORT)


def page(name: str) -> str:
    return (CAPTURES / f"h200_naive_matmul_1024.{name}.csv").read_text("utf-8")


@pytest.fixture
def read() -> ReportLaunch:
    (only,) = ONCE
    return only


def test_a_report_holds_what_its_raw_page_holds(read: ReportLaunch) -> None:
    profile = read.launch.profile
    (exported,) = parse_raw(page("raw"))
    assert (profile.kernel, profile.device) == ("naive_matmul", "H200")
    assert profile.texts == exported.profile.texts
    assert counted(profile) == counted(exported.profile)
    assert set(profile.metrics) == set(exported.profile.metrics)
    for name, metric in exported.profile.metrics.items():
        # The export prints two to six decimals.
        assert profile.metrics[name].value == pytest.approx(metric.value, rel=5e-3, abs=1e-6), name
        if name != "idc__requests.sum":  # a request, which the page prints without its unit
            assert profile.metrics[name].unit == metric.unit


def test_a_ratio_of_which_only_the_course_is_known_is_missing_and_not_zero(
    read: ReportLaunch,
) -> None:
    course = "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed"
    assert f'"{course}"' in page("raw")
    assert course not in read.launch.profile.metrics


def test_nvidias_rules_are_those_of_the_details_page(read: ReportLaunch) -> None:
    (exported,) = parse_details(page("details"))
    shown = {(r.section, r.name, r.type, r.text) for r in exported.profile.nvidia_rules}
    assert {(r.section, r.name, r.type, r.text) for r in read.launch.profile.nvidia_rules} == shown
    for rule in exported.profile.nvidia_rules:
        same = next(r for r in read.launch.profile.nvidia_rules if r.text == rule.text)
        assert same.speedup_scope == rule.speedup_scope
        assert (same.estimated_speedup_pct is None) == (rule.estimated_speedup_pct is None)
        if same.estimated_speedup_pct is not None:
            assert rule.estimated_speedup_pct == pytest.approx(same.estimated_speedup_pct, rel=1e-3)


def test_what_was_counted_at_each_instruction(read: ReportLaunch) -> None:
    metrics = read.launch.profile.metrics
    instructions = read.instructions
    assert [i.offset for i in instructions] == [16 * n for n in range(len(instructions))]
    assert sum(i.executed for i in instructions) == metrics["inst_executed"].value
    assert sum(i.samples for i in instructions) == metrics["smsp__pcsamp_sample_count"].value
    assert all(sum(i.stalls.values()) == i.samples for i in instructions)
    sectors = sum(i.global_sectors for i in instructions)
    assert sectors == metrics["memory_l2_theoretical_sectors_global"].value
    load = next(i for i in instructions if i.offset == 0x250)
    assert load.sass.startswith("LDG.E ")
    assert load.global_sectors == 2 * load.executed


def test_without_line_information_the_dearest_instructions_are_shown(read: ReportLaunch) -> None:
    profile = profile_of(read)
    hot = profile.hot_lines
    assert [str(line.location) for line in hot] == [
        "naive_matmul.sass:38", "naive_matmul.sass:75", "naive_matmul.sass:103",
    ]  # fmt: skip
    assert hot[0].note == "global load, 2.0 sectors/request, 85 % of its stalls lg throttle"
    assert any("-lineinfo" in note for note in profile.notes)


def test_lines_of_the_report_itself_go_first(read: ReportLaunch) -> None:
    told = [i._replace(line=("/src/k.cu", 2 if "LDG" in i.sass else 3)) for i in read.instructions]
    profile = profile_of(
        read._replace(instructions=tuple(told), sources={"/src/k.cu": "a\n  acc += b;\nc"})
    )
    assert [str(line.location) for line in profile.hot_lines] == ["k.cu:2", "k.cu:3"]
    assert profile.hot_lines[0].text == "acc += b;"
    assert profile.hot_lines[0].note.startswith("global load, 2.0 sectors/request")
    assert profile.notes == ()


@pytest.mark.parametrize("kept", [0, 100, 10_000, 700_000])
def test_a_report_that_was_cut_short_is_no_profile(tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(REPORT.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"cut\.ncu-rep"):
        read_report(cut)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_report(tmp_path / "none.ncu-rep")


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_report_is_refused_or_read_never_a_crash(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    damaged = bytearray(REPORT.read_bytes())
    for _ in range(20):
        damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(damaged)
    refused = ""
    try:
        read_report(path)
    except InputError as error:
        refused = str(error)
    assert "\n" not in refused


def test_a_reader_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what ncu exports is read instead."""
    monkeypatch.delattr("ncu_report.IAction.rule_results")
    said = ncu_reader.main(REPORT)["input"]
    assert "too old" in said
    assert "rule_results" in said
