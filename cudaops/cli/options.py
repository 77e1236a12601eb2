"""Options of the command line: those of a run from their one declaration, and those of
the commands' own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from cudaops.domain.options import (
    Flag,
    Positional,
    bounds_of,
    described,
    flattened,
    plain_type,
)
from cudaops.errors import InputError

R = TypeVar("R")

SourceArgument = Annotated[
    Path, typer.Argument(metavar="FILE.cu", help="The program, as its author wrote it.")
]
OutOption = Annotated[Path | None, typer.Option(help="Run folder (default: runs/KERNEL/TIME).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Only the record as JSON on stdout.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Print all of the evidence, as `cudaops report` does.")
]
RUN_ARGUMENT_HELP = "Run folder, run id, or latest."
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=RUN_ARGUMENT_HELP)]
HtmlOption = Annotated[
    bool, typer.Option("--html", help="Write one self-contained HTML file in its place.")
]
HtmlOutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Output file (default: report.html in the run folder)."),
]


def with_options(command: Callable[..., R]) -> Callable[..., R]:
    """A command whose keyword `options` takes a model of options, with a flag for each of them."""
    flat = flattened(command, flag_of)

    @functools.wraps(flat)
    def given(*args: Any, **values: Any) -> R:
        asked = {name: value for name, value in values.items() if value is not None}
        if asked.get("argument_lines"):
            asked["argument_lines"] = list(argument_lines(asked["argument_lines"]))
        return flat(*args, **asked)

    return given


def argument_lines(given: Iterable[str]) -> Iterator[str]:
    """The lines, those of a file instead of `@FILE`; there, empty ones and those that begin
    with # say nothing. Raises InputError where it cannot be read."""
    for one in given:
        if not one.startswith("@"):
            yield one
            continue
        try:
            text = Path(one[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"args {one}: the file cannot be read: {error}") from error
        yield from (line for line in text.splitlines() if line.strip() and line[0] != "#")


def flag_of(name: str, field: FieldInfo) -> inspect.Parameter:
    """An option as Typer's parameter: flag, bounds and help. One of several values is repeated."""
    names = [note.name for note in field.metadata if isinstance(note, Flag)]
    metavars = [note.metavar for note in field.metadata if isinstance(note, Positional)]
    kind, default = plain_type(field.annotation), field.get_default()
    if get_origin(kind) is tuple:
        kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
    if metavars:
        argument = typer.Argument(metavar=metavars[0], help=described(field))
        return _keyword(name, kind, argument, default)
    bounds = bounds_of(field.rebuild_annotation())
    least, most = bounds.get("ge"), bounds.get("le")
    option = typer.Option(*names, min=least, max=most, help=described(field))
    return _keyword(name, kind, option, default)


def _keyword(name: str, kind: Any, words: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, words]
    )
