"""`cudaops replay`: a recorded run again, step by step, from its folder alone."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cudaops.cli_boundary import EXIT_FOUND
from cudaops.cli_runs import find_folder
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.reports.quantities import one_line
from cudaops.reports.recording import Recording, portable, read_recording
from cudaops.reports.replay import json_line, of_iteration, paced, show, steps_of
from cudaops.settings import Settings, load_settings

WIDTH = 100
"""Columns where there is no terminal."""


def replay(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, run id, or latest.")
    ] = "latest",
    speed: Annotated[
        float | None,
        typer.Option(help="Wait as the run did, this many times faster [default: no waiting]."),
    ] = None,
    iteration: Annotated[
        int | None, typer.Option(min=1, help="Only the way to this candidate.")
    ] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Every word the model was asked and answered.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="Write a copy to give away into this new folder, and show nothing."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a step on stdout.")
    ] = False,
) -> None:
    """Show a recorded run again. Needs no GPU, no key, no compiler and no network."""
    if speed is not None and not 0 < speed < float("inf"):
        raise InputError("--speed must be above 0: 2 is twice as fast as it was recorded")
    settings = load_settings()
    recording = read_recording(find_folder(run, settings.runs))
    if export is not None:
        _export(recording, export, prompts, settings)
        return
    found = steps_of(recording)
    steps = paced(of_iteration(found, iteration) if iteration else found, speed, time.sleep)
    console = _Stdout(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    if not as_json:
        show(recording, steps, console, prompts=prompts)
        return
    for step in steps:
        console.out(json_line(step, prompts=prompts))


class _Stdout(Console):
    """Standard output, of which a reader may have seen enough."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise typer.Exit(EXIT_FOUND)


def _export(recording: Recording, folder: Path, prompts: bool, settings: Settings) -> None:
    """Write the portable copy and say what is in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--export {folder} is not empty; name a new folder")
    keys = (
        settings.nvidia_api_key,
        settings.openai_api_key,
        settings.anthropic_api_key,
        settings.google_api_key,
    )
    made = portable(
        recording,
        prompts=prompts,
        home=str(Path.home()),
        secrets=[key.get_secret_value() for key in keys if key is not None],
    )
    try:
        for name, text in made.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise SandboxUnavailable(
            f"{folder} cannot be written: {error.strerror}", "name another folder with --export"
        ) from error
    size = sum(len(text.encode()) for text in made.files.values())
    typer.echo(f"{folder}: {len(made.files)} files, {size / 1000:.0f} kB")
    for damage in recording.damage:
        typer.echo(f"cudaops: left out, not readable: {one_line(damage.text)}", err=True)
    if made.keys_removed:
        typer.echo(f"cudaops: {made.keys_removed} keys were in it and are removed", err=True)
    for left in made.paths_left[:10]:
        typer.echo(f"cudaops: still names {one_line(left)}: look before you pass it on", err=True)
