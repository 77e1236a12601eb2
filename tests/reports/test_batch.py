"""A batch as a table and as a page: numbers with their source, nothing of a program as markup."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from rich.console import Console

from cudaops.domain.batch import Batch, BatchRow, batch_of, figures_of
from cudaops.domain.run import RunRecord
from cudaops.reports import batch_table as reports
from cudaops.reports import html
from tests.reports import records
from tests.reports.test_html import Page

MODELLED = BatchRow(
    program="a.cu", kernel="k", status="ended", outcome="provisional", reason="8.68x", speedup=8.68,
    time_source="modelled", device="A10", report="a/report.html",
)  # fmt: skip
MEASURED = MODELLED.model_copy(
    update={
        "outcome": "accepted", "time_source": "cuda_event", "device": "H200",
        "speedup_low": 8.5, "speedup_high": 8.9,
    }
)  # fmt: skip
EVIL = "<script>alert(1)</script>\u202e"


def batch(*rows: BatchRow) -> Batch:
    return batch_of(UUID(int=1), datetime(2026, 11, 24, tzinfo=UTC), rows)


def printed(found: Batch) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(reports.table(found))
    return capture.get()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (MODELLED, "8.68× (modelled for A10)"),
        (MEASURED, "8.68× (measured on H200, CUDA events), 8.50× to 8.90×"),
        (
            MEASURED.model_copy(update={"speedup_high": None}),
            "8.68× (measured on H200, CUDA events), 8.50× not bounded above",
        ),
        (BatchRow(program="a.cu"), ""),
    ],
)
def test_a_speedup_has_its_source_and_its_interval(row: BatchRow, says: str) -> None:
    assert reports.speedup_of(row) == says
    assert says in printed(batch(row))
    assert says in html.batch_document(batch(row))


def test_rows_are_counted_by_what_came_of_them() -> None:
    found = batch(MODELLED, MEASURED, MODELLED, BatchRow(program="b.cu", status="running"))
    assert found.counts == {"provisional": 2, "accepted": 1, "running": 1}
    assert not found.ended
    assert "4 programs: 2 provisional, 1 accepted, 1 running" in printed(found)
    assert "Some programs are still running" in html.batch_document(found)
    failed = BatchRow(program="c.cu", status="ended", outcome="failed", reason="no space")
    assert (batch(failed, MODELLED).broken, batch(failed).ended) == (1, True)


@pytest.mark.parametrize("record", [records.provisional(), records.nothing_found()])
def test_figures_are_those_of_the_record(record: RunRecord) -> None:
    row = BatchRow(program="k.cu", status="ended", **figures_of(record))
    assert (row.outcome, row.reason) == (record.outcome, record.reason)
    kept = record.outcome in ("accepted", "provisional")
    assert row.speedup == (record.verify.speedup if kept else None)


def test_nothing_of_a_program_becomes_markup() -> None:
    row = MODELLED.model_copy(update=dict.fromkeys(("program", "kernel", "reason"), EVIL))
    text = html.batch_document(batch(row, BatchRow(program=EVIL)))
    assert "<script" not in text
    assert "\u202e" not in text + printed(batch(row))
    page = Page(text)
    assert "alert(1)" in page.text
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["#r-programs", "a/report.html"]
