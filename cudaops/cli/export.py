"""`cudaops export`: what other programs read of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudaops.cli.runs import find_folder, load_record
from cudaops.errors import InputError, PrerequisiteError
from cudaops.settings import load_settings

app = typer.Typer(
    help="Finished runs for other programs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Finished runs for other programs."""


@app.command()
def rewards(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run folders, run ids, or latest.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file (default: stdout).")
    ] = None,
) -> None:
    """Write one JSON line per candidate: staged reward and group advantage."""
    from cudaops.graph.folder import CANDIDATE, iteration_folder
    from cudaops.reports.rewards import reward_rows

    settings = load_settings()
    folders = list(dict.fromkeys(find_folder(run, settings.runs) for run in runs))
    found = []
    for folder in folders:
        record = load_record(folder)
        if record.program is None or not record.attempts:
            typer.echo(f"cudaops: {folder}: no candidate was judged; it has no row", err=True)
        paths = (iteration_folder(folder, one.iteration) / CANDIDATE for one in record.attempts)
        texts = [p.read_text("utf-8", "replace") if p.is_file() else None for p in paths]
        found.append((record, texts))
    ids = [record.run_id for record, _ in found]
    if twice := next((one for one in ids if ids.count(one) > 1), None):
        raise InputError(f"two of the folders hold the same run ({twice}); name it once")
    lines = "".join(f"{row.model_dump_json()}\n" for row in reward_rows(found))
    if out is None:
        typer.echo(lines, nl=False)
        return
    try:
        out.write_text(lines, "utf-8")
    except OSError as error:
        problem = f"{out} cannot be written: {error.strerror}"
        raise PrerequisiteError(problem, "name another file with --out") from error
    typer.echo(f"written: {out} ({lines.count(chr(10))} rows)")
