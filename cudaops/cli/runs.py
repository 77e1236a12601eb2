"""Recorded runs on a command line: finding one by what a user calls it, a person's answer to its
review, and `cudaops replay`.
"""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from cudaops.cli.boundary import EXIT_FOUND, print_out
from cudaops.cli.options import RunArgument
from cudaops.domain.run import ReviewAnswer, ReviewRequest, RunRecord
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.reports import json as run_json
from cudaops.reports.quantities import one_line
from cudaops.reports.recording import RunRecording, portable, read_recording
from cudaops.reports.replay import (
    json_line,
    of_iteration,
    paced,
    show,
    steps_of,
    where_time_went,
)
from cudaops.reports.terminal import Progress, review_text
from cudaops.settings import Settings, load_settings

RECORD_NAME = "run.json"


def seen_from_here(record: RunRecord) -> RunRecord:
    """The record with paths below the working folder as a user would type them."""

    def short(path: str) -> str:
        here = Path.cwd()
        return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path

    options = record.options
    shown = options.model_copy(
        update={
            "out": short(options.out),
            "source": short(options.source),
            "kernel_source": options.kernel_source and short(options.kernel_source),
        }
    )
    return record.model_copy(update={"options": shown})


def find_folder(run: str, runs: Path) -> Path:
    """The folder of a run named by its path, its run id, its time stamp, or `latest`.

    Raises InputError where no folder answers to it, or several do.
    """
    given = Path(run)
    if given.name == RECORD_NAME and given.is_file():
        return given.parent.resolve()
    if given.is_dir():
        return given.resolve()
    folders = sorted((f for f in runs.glob("*/*") if f.is_dir()), key=lambda f: (f.name, str(f)))
    if run == "latest":
        if not folders:
            raise InputError(f"there is no run under {runs}; start one: cudaops run FILE.cu")
        return folders[-1].resolve()
    found = [
        f for f in folders if run in (f.name, f"{f.parent.name}/{f.name}") or _run_id(f) == run
    ]
    if not found:
        raise InputError(f"no run {run!r} under {runs}; give its folder, its id or `latest`")
    if len(found) > 1:
        names = ", ".join(f"{f.parent.name}/{f.name}" for f in found)
        raise InputError(f"{run!r} names several runs: {names}")
    return found[0].resolve()


def _run_id(folder: Path) -> str | None:
    try:
        return load_record(folder).run_id
    except InputError:
        return None


def load_record(folder: Path) -> RunRecord:
    """The record of a finished run. Raises InputError where there is none."""
    path = folder / RECORD_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {RECORD_NAME}: the run has not finished; cudaops resume {folder}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    record = run_json.loads(text, str(path))
    if record.device_row is not None:
        from cudaops.cuda import devices

        devices.register(devices.from_record(record.device_row))
    return record


OnReview = Callable[[ReviewRequest], ReviewAnswer | None]


def reviewer_on_terminal(progress: Progress) -> OnReview:
    """Asks on the terminal; without one, nobody is there."""

    def ask(request: ReviewRequest) -> ReviewAnswer | None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        with progress.paused():
            typer.echo(review_text(request), err=True)
            return _answer(typer.confirm("accept it?", err=True), "")

    return ask


def reviewer_from_options(accept: bool | None, note: str, progress: Progress) -> OnReview:
    """Gives the answer of the command line to the first question; asks for any further one.

    Raises InputError: a note without an answer.
    """
    if accept is None:
        if note:
            raise InputError("--note goes with --yes or --no")
        return reviewer_on_terminal(progress)
    given = [_answer(accept, note)]
    later = reviewer_on_terminal(progress)
    return lambda request: given.pop() if given else later(request)


def how_to_answer(request: ReviewRequest, folder: Path) -> str:
    """What stands on stderr where a run stops for a person."""
    return (
        f"{review_text(request)}\n\ncudaops: waits for a review: python -m cudaops resume {folder} "
        "--yes (or --no, with --note WHY)"
    )


def _answer(accept: bool, note: str) -> ReviewAnswer:
    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        by = "unknown account"
    return ReviewAnswer(accept=accept, by=by, note=note)


WIDTH = 100
"""Columns where there is no terminal."""


def replay(
    run: RunArgument = "latest",
    speed: Annotated[
        float | None,
        typer.Option(
            help="Replay with the recorded delays, this many times faster [default: no delays]."
        ),
    ] = None,
    iteration: Annotated[
        int | None, typer.Option(min=1, help="Only the steps up to this candidate.")
    ] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Full prompts and answers of the model.")
    ] = False,
    times: Annotated[
        bool, typer.Option("--times", help="Only the time by stage, tool and line.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write a copy without machine paths into this new folder; print nothing."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a step on stdout.")
    ] = False,
) -> None:
    """Print a recorded run step by step. Needs no GPU, key, compiler or network."""
    if speed is not None and not 0 < speed < float("inf"):
        raise InputError("--speed must be above 0: 2 is twice as fast as it was recorded")
    settings = load_settings()
    recording = read_recording(find_folder(run, settings.runs))
    if export is not None:
        _export(recording, export, prompts, settings)
        return
    if times:
        print_out(Group(*where_time_went(recording)))
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


def _export(recording: RunRecording, folder: Path, prompts: bool, settings: Settings) -> None:
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
        typer.echo(f"cudaops: skipped, not readable: {one_line(damage.text)}", err=True)
    if made.keys_removed:
        typer.echo(f"cudaops: {made.keys_removed} keys were in it and are removed", err=True)
    for left in made.paths_left[:10]:
        typer.echo(f"cudaops: still names {one_line(left)}: look before you pass it on", err=True)
