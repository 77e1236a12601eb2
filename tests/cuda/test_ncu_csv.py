"""Nsight Compute's CSV pages, as captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metric_counters as counters
from cudaops.cuda import metric_details as details
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.ncu_csv import (
    NcuLaunch,
    kernel_name,
    merged,
    parse_csv,
    parse_details,
    parse_raw,
    to_canonical,
)
from cudaops.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "ncu"


def text(kernel: str, page: str) -> str:
    return (DATA / f"h200_{kernel}_matmul_1024.{page}.csv").read_text("utf-8")


def launch(kernel: str, page: str) -> NcuLaunch:
    (only,) = parse_csv(text(kernel, page))
    return only


@pytest.mark.parametrize("kernel", ["naive", "regtiled"])
def test_both_pages_agree_to_the_digits_the_details_page_prints(kernel: str) -> None:
    shown, exact = launch(kernel, "details").profile, launch(kernel, "raw").profile
    assert len(shown.metrics) == 83
    assert len(exact.metrics) == 164
    for name, metric in shown.metrics.items():
        value = exact.get(name)
        assert value is not None, name
        assert metric.unit == exact.metrics[name].unit == METRICS[name].unit
        # Two decimals of a scaled unit: 0.005 absolute, or 0.005 of the leading thousand.
        assert metric.value == pytest.approx(value, abs=0.0051, rel=0.006), name


def test_what_the_naive_product_says() -> None:
    profile = launch("naive", "details").profile
    assert profile.kernel == "naive_matmul"
    assert profile.source == "measured"
    assert profile.duration_us == 415.30
    assert profile.get(details.DRAM_FREQUENCY) == 3.20e9
    assert profile.get(details.DRAM_BYTES_PER_SECOND) == 20.21e9
    assert profile.get(details.INST_EXECUTED) == 154632192
    assert profile.get(details.SHARED_CONFIG) == 32770
    assert profile.get("dram__throughput.avg.pct_of_peak_sustained_elapsed") is None


def test_the_raw_page_knows_the_device_and_bytes_in_either_scale() -> None:
    profile = launch("regtiled", "raw").profile
    assert profile.device == "H200"
    assert profile.kernel == "reg_matmul"
    assert profile.get(details.SHARED_STATIC) == 4096
    assert launch("naive", "raw").profile.get(details.SHARED_STATIC) == 0
    assert profile.get(counters.DRAM_READ_BYTES) == 8400384


def test_words_are_kept_apart_from_numbers() -> None:
    found = launch("naive", "details")
    assert found.texts[details.CACHE_CONFIG] == "CachePreferNone"
    assert details.CACHE_CONFIG not in found.profile.metrics
    assert found.unknown_labels == ()


def test_nvidias_own_rules_are_kept_with_their_estimates() -> None:
    rules = launch("regtiled", "details").rules
    assert len(rules) == 12
    conflicts = next(rule for rule in rules if rule.name == "SharedMemoryConflicts")
    assert (conflicts.kind, conflicts.speedup_kind) == ("OPT", "global")
    assert conflicts.estimated_speedup_pct == 15.97
    small = next(rule for rule in rules if rule.name == "SOLBottleneck")
    assert small.estimated_speedup_pct is None
    assert "too small" in small.text
    assert launch("naive", "raw").rules == ()


def test_several_launches_and_chatter_before_the_header() -> None:
    lines = text("naive", "details").splitlines()
    second = [line.replace('"0"', '"1"', 1).replace("415.30", "1,415.30") for line in lines[1:]]
    both = "==PROF== Connected\n" + "\n".join([*lines, *second]) + "\n"
    one, two = parse_details(both)
    assert (one.id, two.id) == (0, 1)
    assert two.profile.duration_us == 1415.30


def test_not_available_stays_missing_and_unknown_labels_are_told() -> None:
    changed = text("naive", "details").replace(
        '"L2 Hit Rate","%","97.91"', '"L2 Hit Rate","%","n/a"'
    )
    changed = changed.replace('"L1/TEX Hit Rate"', '"L1 Surprise Rate"')
    (found,) = parse_details(changed)
    assert details.L2_HIT_RATE not in found.profile.metrics
    assert found.unknown_labels == ("Memory Workload Analysis / L1 Surprise Rate",)
    (raw,) = parse_raw(text("naive", "raw").replace('"97.911368"', '"no data"'))
    assert details.L2_HIT_RATE not in raw.profile.metrics


def test_pages_of_one_report_join() -> None:
    (joined,) = merged([launch("naive", "details")], [launch("naive", "raw")])
    assert len(joined.rules) == 10
    assert joined.profile.get(details.L1_THROUGHPUT) == 96.501384
    (alone,) = merged([], [launch("naive", "raw")])
    assert alone.rules == ()


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "result"),
    [
        (415.3, "us", "us", 415.3), (1.2, "ms", "us", 1200), (7, "nsecond", "us", 0.007),
        (2, "s", "us", 2e6), (3.2, "Ghz", "hz", 3.2e9), (1.5, "cycle/nsecond", "hz", 1.5e9),
        (20.21, "Gbyte/s", "byte/s", 20.21e9), (20, "Gbyte/second", "byte/s", 20e9),
        (4.1, "Kbyte/block", "byte/block", 4100), (31, "Mbyte", "byte", 31e6),
        (5, "inst", "", 5), (1024, "", "byte", 1024), (9, "request", "sector", 9),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, wanted: str, result: float) -> None:
    assert to_canonical(value, unit, wanted) == pytest.approx(result)


@pytest.mark.parametrize(("unit", "wanted"), [("furlong", "us"), ("%", "byte"), ("us", "%")])
def test_a_unit_that_cannot_be_read_is_refused(unit: str, wanted: str) -> None:
    with pytest.raises(InputError, match="cannot read unit"):
        to_canonical(1.0, unit, wanted)


@pytest.mark.parametrize("wrong", ["", "a,b\n1,2\n", '"ID","Kernel Name"\n'])
def test_something_else_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_csv(wrong)
    assert "\n" not in str(raised.value)


def test_a_capture_without_a_duration_is_refused() -> None:
    lines = [line for line in text("naive", "details").splitlines() if '"Duration"' not in line]
    with pytest.raises(InputError, match="no Duration"):
        parse_details("\n".join(lines))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("naive_matmul(const float *, int)", "naive_matmul"),
        ("void reg_matmul<64, 64, 8>(const float *)", "reg_matmul"),
        ("void ns::inner::k<(int)4>(T1 *)", "k"),
        ("(anonymous namespace)::k(int)", "k"),
        ("plain", "plain"),
    ],
)
def test_kernel_names(shown: str, name: str) -> None:
    assert kernel_name(shown) == name
