"""A run's report as HTML: what reports/ makes of a record, for the record of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cudaops.domain.run import Event, RunRecord
from cudaops.service.records import JobEvent


class Renderer(Protocol):
    """Makes HTML of a run record; whatever came from outside is escaped."""

    def document(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """One self-contained page."""
        ...

    def sections(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """Its sections alone."""
        ...


class HtmlReports:
    """The renderer of `cudaops.reports.html`."""

    def document(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """One self-contained page."""
        from cudaops.reports import html

        return html.document(record, run_events(events))

    def sections(self, record: RunRecord, events: Sequence[JobEvent]) -> str:
        """Its sections alone."""
        from cudaops.reports import html

        return html.sections(record, run_events(events))


REPORT = "report.html"
"""Artefact in which a worker leaves the report of a run."""


def fragment_of(document: str) -> str:
    """The sections of a report that was written as a page."""
    from cudaops.reports import html

    return html.fragment_of(document)


def style_sheet() -> Path:
    """The report's style sheet, which the service's page uses too."""
    from cudaops.reports import html

    return Path(html.__file__).with_name("style.css")


def run_events(events: Sequence[JobEvent]) -> tuple[Event, ...]:
    """The last attempt's events as a run's own; the job's status changes are no part of a run."""
    last = max((event.attempt for event in events), default=0)
    kept = [event for event in events if event.attempt == last and event.kind != "status"]
    return tuple(
        Event.model_validate({**event.model_dump(exclude={"attempt"}), "seq": seq})
        for seq, event in enumerate(kept)
    )
