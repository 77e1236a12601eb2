"""`--review` on a command line: asking, answering later, and saying how."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from cudaops.domain.run import ReviewAnswer, ReviewRequest
from cudaops.errors import InputError
from cudaops.reports.terminal import Progress, review_text

OnReview = Callable[[ReviewRequest], ReviewAnswer | None]


def asking(progress: Progress) -> OnReview:
    """Asks on the terminal; without one, nobody is there."""

    def ask(request: ReviewRequest) -> ReviewAnswer | None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        with progress.paused():
            typer.echo(review_text(request), err=True)
            return _answer(typer.confirm("accept it?", err=True), "")

    return ask


def answering(accept: bool | None, note: str, progress: Progress) -> OnReview:
    """Gives the answer of the command line to the first question; asks for any further one.

    Raises InputError: a note without an answer.
    """
    if accept is None:
        if note:
            raise InputError("--note goes with --yes or --no")
        return asking(progress)
    given = [_answer(accept, note)]
    later = asking(progress)
    return lambda request: given.pop() if given else later(request)


def how_to_answer(request: ReviewRequest, folder: Path) -> str:
    """What stands on stderr where a run stops for a person."""
    return (
        f"{review_text(request)}\n\ncudaops: waits for a person: python -m cudaops resume {folder} "
        "--yes (or --no, with --note WHY)"
    )


def _answer(accept: bool, note: str) -> ReviewAnswer:
    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        by = "somebody without an account name"
    return ReviewAnswer(accept=accept, by=by, note=note)
