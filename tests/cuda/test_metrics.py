"""The metric table against the captures: every name exists, every label shows its value."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.metrics import BY_LABEL, METRICS, metric_def, nearest_names, value_of
from cudaops.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "ncu"
KERNELS = ("naive", "regtiled")


def raw_header(kernel: str) -> set[str]:
    with (DATA / f"h200_{kernel}_matmul_1024.raw.csv").open(newline="") as file:
        return set(next(csv.reader(file)))


def details_labels(kernel: str) -> list[tuple[str, str]]:
    with (DATA / f"h200_{kernel}_matmul_1024.details.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["Section Name"], row["Metric Name"]) for row in rows if row["Metric Name"]]


def test_every_name_is_in_a_capture_or_says_where_it_is_missing() -> None:
    captured = raw_header("naive") | raw_header("regtiled")
    wrong = [m.name for m in METRICS.values() if (m.name in captured) == bool(m.not_on)]
    assert wrong == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_87_metrics_of_the_details_page_are_in_the_table(kernel: str) -> None:
    labels = details_labels(kernel)
    assert len(labels) == 87
    assert set(labels) == set(BY_LABEL)


def test_dram_throughput_of_older_chips_is_known_and_known_to_be_missing() -> None:
    old = METRICS["dram__throughput.avg.pct_of_peak_sustained_elapsed"]
    assert old.not_on
    assert old.name not in raw_header("naive")
    assert ncu.DRAM_THROUGHPUT in raw_header("naive")


def test_no_name_or_alias_is_given_twice() -> None:
    rows = [*ncu.DETAILS_ROWS, *ncu.COUNTER_ROWS]
    names = [name for row in rows for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert len(rows) == len(METRICS)


def test_every_row_says_something() -> None:
    for row in METRICS.values():
        assert row.meaning.endswith("."), row.name
        assert row.label
        assert row.section


def test_a_name_of_another_version_leads_to_the_same_row() -> None:
    older = "sm__instruction_throughput.avg.pct_of_peak_sustained_active"
    assert metric_def(older).name == ncu.SM_BUSY


def test_an_unknown_name_gets_its_nearest() -> None:
    with pytest.raises(InputError, match="l1tex__throughput"):
        metric_def("l1tex__throughput.avg.pct_of_peak_sustained")
    assert ncu.L2_HIT_RATE in nearest_names("L2 hit rate")
    assert nearest_names("zzzzzzzz") == ()


def test_a_metric_gets_the_unit_of_its_row() -> None:
    metric = value_of(ncu.DURATION, 12.5, "modelled")
    assert (metric.unit, metric.source, metric.value) == ("us", "modelled", 12.5)
    with pytest.raises(InputError):
        value_of("made__up.sum", 1.0, "modelled")
