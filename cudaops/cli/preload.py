"""`cudaops preload`: the winner of a run in the author's unchanged executable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudaops.cli.options import RunArgument
from cudaops.cli.runs import find_folder, load_record
from cudaops.settings import load_settings


def preload(
    run: RunArgument = "latest",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The library to write.")] = Path(
        "libwinner.so"
    ),
    arch: Annotated[
        str | None,
        typer.Option(help="For which GPU, as nvcc spells it: sm_90 [default: that of the run]."),
    ] = None,
) -> None:
    """Build an LD_PRELOAD library that launches a run's rewrite in the unchanged program."""
    from cudaops.preload.run import preload_run

    settings = load_settings()
    folder = find_folder(run, settings.runs)
    made = preload_run(folder, load_record(folder), out, arch, settings.builds_folder)
    for notice in made.notices:
        typer.echo(f"cudaops: {notice}", err=True)
    for callee in made.callees:
        typer.echo(f"{callee}: {made.title}, for {made.sm_arch}")
    typer.echo(f"written: {out} ({out.stat().st_size / 1000:.0f} kB)")
    shown = out if out.is_absolute() else f"./{out}"
    typer.echo(
        f"use it: LD_PRELOAD={shown} PROGRAM, with CUDAOPS_PRELOAD=report to see what it did"
    )
