"""`cudaops report --html`: one file to open, to print, to attach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudaops.errors import InputError, PrerequisiteError

HtmlOption = Annotated[
    bool, typer.Option("--html", help="Write one self-contained HTML file in its place.")
]
HtmlOutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where to [default: report.html in the run folder]."),
]


def write_html(folder: Path, out: Path | None, *, as_json: bool) -> Path:
    """Write the report of the run in `folder`; gives the file.

    Raises:
        InputError: no finished run, or JSON was asked for as well.
        PrerequisiteError: the file cannot be written.
    """
    if as_json:
        raise InputError("--html and --json do not go together: --json alone prints the record")
    from cudaops.graph.html_report import REPORT_NAME, html_report

    path = out or folder / REPORT_NAME
    text = html_report(folder)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror}"
        raise PrerequisiteError(problem, "name another file with --out") from error
    return path
