"""From a finished record to HTML: the whole document, or the part that a page of ours shows; and
the page of a batch."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cudaops.domain.batch import Batch
from cudaops.domain.run import Event, RunRecord
from cudaops.reports import batch_table, content, costs
from cudaops.reports.html import attribution, candidates, diff, drift, roofline, tables
from cudaops.reports.html.diff import pieces, prose
from cudaops.reports.html.tables import NOTHING, Beside
from cudaops.reports.quantities import one_line, significant

STYLE_FILE = Path(__file__).with_name("style.css")
"""Everything in it is below a class that begins with `r-`, so that another page can load it."""

_BEGIN, _END = "<!-- r-report begins -->", "<!-- r-report ends -->"
"""Around the fragment. Nothing that is filled in can contain them: `<` is escaped there."""


def document(record: RunRecord, events: Sequence[Event], beside: Beside = NOTHING) -> str:
    """A whole HTML file that needs nothing else: no script, no font, no image, no network.

    Its own Content-Security-Policy forbids all of these and any style but the one in it, by hash.
    """
    found = tables.outcome_view(record)
    return _page(
        "document.html.j2",
        title=f"{found.kernel}: {found.word}",
        outcome=found,
        begin=_BEGIN,
        end=_END,
        version=one_line(record.cudaops_version, 40),
        **_views(record, events, beside),
    )


def batch_document(found: Batch) -> str:
    """The same of a batch: one table, each program with a link to its report."""
    title = batch_table.counted(found)
    return _page("batch.html.j2", title=title, batch=found, rows=batch_table.lines_of(found))


def _page(template: str, **views: Any) -> str:
    """A file of its own, with the style in it and the hash that lets it in."""
    style = STYLE_FILE.read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _environment().get_template(template).render(style=style, style_hash=digest, **views)


def sections(record: RunRecord, events: Sequence[Event], beside: Beside = NOTHING) -> str:
    """The report's sections, headings from `h2` on, in one `<div class="r-report">`."""
    views = _views(record, events, beside)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(outcome=tables.outcome_view(record), **views)
    )


def fragment_of(text: str) -> str:
    """What `sections` gave, cut out of a document; empty where there is none in it."""
    _, begun, rest = text.partition(_BEGIN)
    inside, ended, _ = rest.partition(_END)
    return inside.strip() if begun and ended else ""


def _views(record: RunRecord, events: Sequence[Event], beside: Beside) -> dict[str, Any]:
    here = _from_the_folder(record)
    found: dict[str, Any] = {
        "record": here,
        "limits": tables.limits_view(here),
        "roofline": roofline.view(here),
        "candidates": candidates.view(here, events, beside.trials),
        "searches": content.search_sentences(here),
        "shares": content.share_rows(here),
        "shares_note": content.SHARES,
        "instructions": content.instruction_rows(here),
        "instructions_note": content.INSTRUCTIONS,
        "instructions_missing": content.instructions_missing(here),
        "drift": drift.view(here, events),
        "attribution": attribution.view(here),
        "gates": tables.gates_view(here),
        "oracle": content.oracle_sentences(here),
        "diff": diff.read_patch(beside.patch) if beside.patch is not None else None,
        "rewrite": diff.read_text(here.best.source) if here.best is not None else None,
        "evidence": tables.evidence_view(here, beside),
        "how": tables.how_view(here, beside),
    }
    said = costs.model_sentences(here.model) if here.model is not None else []
    roles = costs.role_rows(here.model) if here.model is not None else []
    return {**found, "model_said": said, "model_roles": roles}


def _from_the_folder(record: RunRecord) -> RunRecord:
    """Paths as seen from the run folder, where the file lies and where its commands are typed; no
    folder of the machine that ran it is in the file."""
    options = record.options
    shown = options.model_copy(
        update={
            "out": ".",
            "working_folder": ".",
            "source": PurePath(options.source).name,
            "kernel_source": options.kernel_source and PurePath(options.kernel_source).name,
            "python": options.python and PurePath(options.python).name,
        }
    )
    return record.model_copy(update={"options": shown})


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cudaops.reports", "html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=prose,
    )
    environment.filters["one_line"] = one_line
    environment.filters["pieces"] = pieces
    environment.filters["significant"] = significant
    environment.globals["shapes"] = candidates.SHAPES
    environment.filters["lines"] = diff.read_text
    return environment
