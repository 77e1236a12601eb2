"""`cudaops replay`: a recorded run again, step by step, from its folder alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cudaops.cli_runs import find_folder
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.reports.portable import portable
from cudaops.reports.quantities import one_line
from cudaops.reports.recording import Recording, read_recording
from cudaops.reports.replay import Step, iterations_in, of_iteration, paced, steps_of
from cudaops.reports.replay_json import json_line
from cudaops.reports.replay_terminal import Shown
from cudaops.settings import Settings, load_settings

WIDTH = 100
"""Columns where there is no terminal."""
UNBROKEN = ("event", "patch")
"""Kinds of steps whose lines are left to the terminal to break, as `cudaops run` does."""


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
    steps = _chosen(steps_of(recording), iteration)
    try:
        _show(paced(steps, speed, time.sleep), Shown(recording, prompts=prompts), prompts, as_json)
    except BrokenPipeError:
        # Whoever read it has seen enough. Typer would make that exit code 1.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(steps: Iterable[Step], shown: Shown, prompts: bool, as_json: bool) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for step in steps:
        if as_json:
            typer.echo(json_line(step, prompts=prompts))
        elif console.is_terminal:
            console.print(shown(step), crop=False, soft_wrap=step.kind in UNBROKEN)
        else:
            typer.echo(_plain(console, shown, step))


def _chosen(steps: list[Step], iteration: int | None) -> Sequence[Step]:
    if iteration is None:
        return steps
    known = iterations_in(steps)
    if iteration not in known:
        there = ", ".join(map(str, known)) or "none"
        raise InputError(f"--iteration {iteration}: not in this recording, which has {there}")
    return of_iteration(steps, iteration)


def _plain(console: Console, shown: Shown, step: Step) -> str:
    broken = step.kind not in UNBROKEN
    with console.capture() as capture:
        console.print(shown(step), crop=False, soft_wrap=not broken)
    text = capture.get().removesuffix("\n")
    # Tables pad their last column; a patch is kept to the letter.
    return "\n".join(line.rstrip() for line in text.split("\n")) if broken else text


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
