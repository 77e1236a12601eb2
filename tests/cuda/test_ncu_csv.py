"""Nsight Compute's CSV pages, as captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.ncu_pages import (
    NcuLaunch,
    counted,
    has_decimal_comma,
    kernel_name,
    merged,
    metrics_parsed,
    number,
    parse_csv,
    parse_details,
    parse_raw,
    scale,
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
    for name, metric in shown.metrics.items():
        value = exact.get(name)
        assert value is not None, name
        assert metric.unit == exact.metrics[name].unit == METRICS[name].unit
        # Two decimals of a scaled unit: 0.005 absolute, or 0.005 of the leading thousand.
        assert metric.value == pytest.approx(value, abs=0.0051, rel=0.006), name


@pytest.mark.parametrize("kernel", ["naive", "regtiled"])
def test_every_metric_of_either_page_is_in_the_one_table(kernel: str) -> None:
    """87 rows on the details page: 83 numbers, 3 words, and one of the numbers a second time. 2,238
    columns on the raw page: 11 that are no metrics, 2,207 numbers, 5 words, and 15 without value
    (empty, nan, no data)."""
    details_page, raw_page = launch(kernel, "details").profile, launch(kernel, "raw").profile
    assert (len(details_page.metrics), len(details_page.texts)) == (83, 3)
    assert (len(raw_page.metrics), len(raw_page.texts)) == (2207, 5)
    assert counted(details_page) == (87, 0)
    assert counted(raw_page) == (87, 2212 - 86)
    assert metrics_parsed(details_page) == metrics_parsed(raw_page) == 87


def test_a_metric_the_table_does_not_know_keeps_ncus_name_and_its_unit() -> None:
    metrics = launch("naive", "raw").profile.metrics
    rate = metrics["lts__t_sectors.sum.per_second"]
    assert rate.name not in METRICS
    assert rate.unit == "sector/s"
    sectors = metrics["lts__t_sectors.sum"].value
    assert rate.value == pytest.approx(sectors / 415.3e-6, rel=1e-3)
    assert metrics["device__attribute_multiprocessor_count"].value == 132
    assert all(metric.unit[:1] not in "KMGT" for metric in metrics.values() if metric.unit)


def test_what_the_naive_product_says() -> None:
    profile = launch("naive", "details").profile
    assert profile.kernel == "naive_matmul"
    assert profile.source == "measured"
    assert profile.duration_us == 415.30
    assert profile.get(ncu.DRAM_FREQUENCY) == 3.20e9
    assert profile.get(ncu.DRAM_BYTES_PER_SECOND) == 20.21e9
    assert profile.get(ncu.INST_EXECUTED) == 154632192
    assert profile.get(ncu.SHARED_CONFIG) == 32770
    assert profile.get("dram__throughput.avg.pct_of_peak_sustained_elapsed") is None


def test_the_raw_page_knows_the_device_and_bytes_in_either_scale() -> None:
    profile = launch("regtiled", "raw").profile
    assert profile.device == "H200"
    assert profile.kernel == "reg_matmul"
    assert profile.get(ncu.SHARED_STATIC) == 4096
    assert launch("naive", "raw").profile.get(ncu.SHARED_STATIC) == 0
    assert profile.get(ncu.DRAM_READ_BYTES) == 8400384


def test_words_are_kept_apart_from_numbers() -> None:
    found = launch("naive", "details")
    assert found.profile.texts[ncu.CACHE_CONFIG] == "CachePreferNone"
    assert ncu.CACHE_CONFIG not in found.profile.metrics
    assert found.unknown_labels == ()


def test_nvidias_own_rules_are_kept_with_their_estimates() -> None:
    rules = launch("regtiled", "details").profile.nvidia_rules
    assert len(rules) == 12
    conflicts = next(rule for rule in rules if rule.name == "SharedMemoryConflicts")
    assert (conflicts.type, conflicts.speedup_scope) == ("OPT", "global")
    assert conflicts.estimated_speedup_pct == 15.97
    small = next(rule for rule in rules if rule.name == "SOLBottleneck")
    assert small.estimated_speedup_pct is None
    assert "too small" in small.text
    assert launch("naive", "raw").profile.nvidia_rules == ()


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
    assert ncu.L2_HIT_RATE not in found.profile.metrics
    (label,) = found.unknown_labels
    assert label == "Memory Workload Analysis / L1 Surprise Rate"
    assert found.profile.get(label) == launch("naive", "details").profile.get(ncu.L1_HIT_RATE)
    assert counted(found.profile).details == 86  # one is missing, one has another name
    (raw,) = parse_raw(text("naive", "raw").replace('"97.911368"', '"no data"'))
    assert ncu.L2_HIT_RATE not in raw.profile.metrics


def test_pages_of_one_report_join() -> None:
    (joined,) = merged([launch("naive", "details")], [launch("naive", "raw")])
    assert len(joined.profile.nvidia_rules) == 10
    assert joined.profile.get(ncu.L1_THROUGHPUT) == 96.501384
    (alone,) = merged([], [launch("naive", "raw")])
    assert alone.profile.nvidia_rules == ()


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "result"),
    [
        (415.3, "us", "us", 415.3), (1.2, "ms", "us", 1200), (7, "nsecond", "us", 0.007),
        (2, "s", "us", 2e6), (3.2, "Ghz", "hz", 3.2e9), (1.5, "cycle/nsecond", "hz", 1.5e9),
        (20.21, "Gbyte/s", "byte/s", 20.21e9), (20, "Gbyte/second", "byte/s", 20e9),
        (4.1, "Kbyte/block", "byte/block", 4100), (31, "Mbyte", "byte", 31e6),
        (5, "inst", "", 5), (9, "request", "sector", 9), (4, "sectors", "sector", 4),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, wanted: str, result: float) -> None:
    assert to_canonical(value, unit, wanted) == pytest.approx(result)


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [("furlong", "us"), ("%", "byte"), ("us", "%"), ("", "byte"), ("", "us"), ("Gbyte", "sector")],
)
def test_a_unit_that_cannot_be_read_is_refused(unit: str, wanted: str) -> None:
    with pytest.raises(InputError, match="cannot read unit"):
        to_canonical(1.0, unit, wanted)


@pytest.mark.parametrize(
    ("printed", "unscaled"),
    [
        ("Tbyte", ("byte", 1e12)), ("Kbyte/cycle", ("byte/cycle", 1e3)), ("Mhz", ("hz", 1e6)),
        ("sector/ns", ("sector/s", 1e9)), ("sector/us", ("sector/s", 1e6)), ("ns", ("us", 1e-3)),
        ("%/Kbyte", ("%/byte", 1e3)), ("register/thread", ("register/thread", 1)), ("", ("", 1)),
        ("furlong", ("furlong", 1)), ("mbyte", ("mbyte", 1)),
    ],
)  # fmt: skip
def test_printed_units_stand_for_unscaled_ones(printed: str, unscaled: tuple[str, float]) -> None:
    found = scale(printed)
    assert found.unit == unscaled[0]
    assert found.factor == pytest.approx(unscaled[1])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("821,629", 821629), ("1,234,567.25", 1234567.25), ("-3", -3), ("1e-05", 1e-5),
        ("96,50", None), ("1,2345", None), ("1e999", None), ("nan", None), ("inf", None),
        ("", None), ("0x10", None), ("12 34", None), ("٣", None),
    ],
)  # fmt: skip
def test_numbers_as_ncu_prints_them(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [("96,50", True), ("821.629,12", True), ("0,4200", True), ("821,629", False), ("96.50", False)],
)
def test_a_decimal_comma_is_told_where_it_can_be(text: str, told: bool) -> None:
    assert has_decimal_comma(text) is told


def test_a_page_with_decimal_commas_is_refused() -> None:
    german = text("naive", "details").replace('"96.50"', '"96,50"')
    with pytest.raises(InputError, match="LC_ALL=C"):
        parse_details(german)


def test_a_value_printed_twice_and_differently_is_not_believed() -> None:
    page = text("naive", "details")
    line = next(row for row in page.splitlines() if '"L2 Hit Rate"' in row)
    (same,) = parse_details(page + line + "\n")
    assert same.profile.get(ncu.L2_HIT_RATE) == 97.91
    (other,) = parse_details(page + line.replace("97.91", "12.34") + "\n")
    assert other.profile.get(ncu.L2_HIT_RATE) is None


def test_a_unit_that_cannot_be_read_leaves_the_metric_out_and_says_so() -> None:
    page = text("naive", "details").replace('"DRAM Frequency","Ghz"', '"DRAM Frequency","furlong"')
    profile = parse_details(page)[0].profile
    assert profile.get(ncu.DRAM_FREQUENCY) is None
    assert ncu.DRAM_FREQUENCY in profile.notes[0]
    assert len(profile.metrics) == 82


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
