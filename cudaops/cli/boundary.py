"""The edge between cudaops and a shell: exit codes, error lines, what is printed; no traceback
reaches a user."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cudaops.cli import app
from cudaops.errors import EnvironmentFailure, InputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from cudaops.domain.run import Outcome

EXIT_FOUND = 0
"""Accepted or provisional; for commands that judge nothing: done."""
EXIT_NOTHING_FOUND = 1
"""Finished, and nothing beat the bar; the record says why where there is nothing to gain."""
EXIT_INPUT = 2
"""The input is wrong."""
EXIT_ENVIRONMENT = 3
"""This machine cannot do it, or cudaops itself failed."""
EXIT_WAITING = 4
"""Stopped for a person's yes or no (`--review`)."""
EXIT_INTERRUPTED = 130
"""Ctrl-C, and a run that SIGTERM or SIGHUP ends. Source: the shells' convention, 128 + SIGINT."""

EXIT_BY_OUTCOME: dict[Outcome, int] = {
    "accepted": EXIT_FOUND,
    "provisional": EXIT_FOUND,
    "nothing_found": EXIT_NOTHING_FOUND,
    "failed": EXIT_ENVIRONMENT,
}


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; whatever goes wrong becomes one message."""
    try:
        code = app(args=list(arguments), prog_name="cudaops", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_FOUND
    except typer.TyperException as error:
        return _say(f"{_lowered(error.format_message())} (see: cudaops --help)", EXIT_INPUT)
    except InputError as error:
        return _say(str(error), EXIT_INPUT)
    except EnvironmentFailure as error:
        return _say(f"{error.problem}\n         {error.remedy}", EXIT_ENVIRONMENT)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone: nothing is left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FOUND
    except Exception as error:  # noqa: BLE001  the outermost edge
        return _say(_unexpected(error), EXIT_ENVIRONMENT)


def print_out(what: RenderableType) -> None:
    """Text as it is; the rest set for the terminal, or 100 columns wide without one."""
    console = console_on(stderr=False)
    if isinstance(what, str):
        typer.echo(what.rstrip("\n"))
    elif console.is_terminal:
        console.print(what, crop=False)
    else:
        with console.capture() as capture:
            console.print(what, crop=False)
        typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def console_on(*, stderr: bool) -> Console:
    """One of the two outputs, as wide as its terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 100)


def _say(message: str, code: int) -> int:
    print(f"cudaops: {message}", file=sys.stderr)  # noqa: T201
    return code


def _lowered(message: str) -> str:
    first = message.strip().rstrip(".")
    return first[:1].lower() + first[1:]


def _unexpected(error: Exception) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"cudaops-crash-{stamp}-{os.getpid()}.txt"
    saved = Path(tempfile.gettempdir()) / name
    try:
        saved.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        where = f"the traceback is in {saved}"
    except OSError as unwritable:
        where = f"the traceback could not be saved ({unwritable.strerror})"
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"this is a bug of cudaops: {type(error).__name__}: {first_line}\n"
        f"         {where}; please report it"
    )
