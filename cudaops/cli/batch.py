"""`cudaops batch`: which programs a folder or a list names, with which options."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from cudaops.cli.boundary import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, print_out
from cudaops.cli.options import SourceArgument, argument_lines, with_options
from cudaops.domain.options import BatchedOptions, BatchOptions, checked
from cudaops.errors import InputError
from cudaops.graph.resolve_options import REMOTE_NOTE, place
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.domain.program import Program
    from cudaops.service.batch import Wanted, Where

ARGUMENTS = "ARGS"
"""File beside a program with the lines of its arguments."""
RESULTS = ("run.json", "state/options.json", REMOTE_NOTE, "state/batch.json")
"""Files by which a folder is known as one of ours: what lies in it is no program to start from."""


class Named(NamedTuple):
    """A program as a folder or a list names it."""

    program: str
    source: Path
    options: BatchedOptions


@with_options
def batch(
    programs: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|LIST",
            help="All .cu files with a main below it; or a file of programs, one per line.",
        ),
    ],
    *,
    options: BatchOptions,
    kernels: Annotated[
        Literal["one", "all"],
        typer.Option(help="Of each program: the kernel with most time, or every one it launches."),
    ] = "one",
    server: Annotated[
        str | None,
        typer.Option(
            help="Address of a running service; its token in CUDAOPS_TOKEN [default: one of its"
            " own for as long as it takes]."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Workers of the temporary service [default: one per GPU, at least one].",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results [default: batches/NAME]; an existing batch is continued."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only the batch as JSON.")] = False,
) -> None:
    """Optimise a folder of programs, or a list, through a service's queue; resumable."""
    settings = load_settings()
    where = _where(server, jobs, options, settings)
    shared = _of_a_service(options, where.server is None, settings)
    if not programs.exists():
        raise InputError(f"{programs}: no such folder or list")
    whole = programs.resolve()
    folder = (out or Path("batches") / (whole.name if whole.is_dir() else whole.stem)).resolve()
    if programs.is_dir():
        named = _in_folder(programs, shared, {folder, settings.runs.resolve()})
    else:
        named = list(_in_list(programs, shared))
    wanted = _wanted(named, every_kernel=kernels == "all")
    _say(f"{len(wanted)} to do, results in {folder}")
    from cudaops.reports import batch_table as reports
    from cudaops.service.batch import PAGE, run_batch

    try:
        done = run_batch(folder, wanted, where, _say)
    except KeyboardInterrupt:
        there = "; the service continues" if where.server else ""
        _say(f"interrupted; the same command continues{there}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print_out(done.model_dump_json(indent=2) if as_json else reports.table(done))
    if not as_json:
        typer.echo(f"written: {folder / PAGE}")
    if done.broken:
        raise typer.Exit(EXIT_ENVIRONMENT)


def _say(line: str) -> None:
    typer.echo(f"cudaops: {line}", err=True)


def _where(
    server: str | None, jobs: int | None, options: BatchOptions, settings: Settings
) -> Where:
    """At which service. Raises InputError where it is not said in one way."""
    from cudaops.service.api_client import address_of_service
    from cudaops.service.batch import Where

    named = "--server"
    if server is None and (options.executor or settings.executor) == "remote":
        server, named = settings.server, "CUDAOPS_SERVER"
        if server is None:
            raise InputError("--executor remote needs a service: name it with --server")
    if server is not None and jobs is not None:
        raise InputError("--jobs is for the temporary service; omit it or --server")
    token = settings.token.get_secret_value() if settings.token else None
    address = None if server is None else address_of_service(server, named)
    return Where(address, token, jobs)


def _of_a_service(options: BatchOptions, is_here: bool, settings: Settings) -> BatchedOptions:
    """The options as a service is asked for them. Raises InputError for what it does not take."""
    from cudaops.service.records import BatchDefaults

    executor = options.executor or settings.executor
    if is_here and (notice := place(executor, options.device, options.arch).notice) is not None:
        _say(f"{notice}; continuing on the CPU")
    asked = {**options.model_dump(), "executor": "auto" if executor == "remote" else executor}
    checked(BatchDefaults, asked)
    return BatchedOptions(**asked)


# A folder: every `.cu` with a `main`.


def _in_folder(folder: Path, shared: BatchedOptions, skipped: set[Path]) -> list[Named]:
    """Its programs, by path. Raises InputError where there is none."""
    from cudaops.program.parse import is_program

    found, left_out = [], []
    for path in _sources(folder, skipped):
        try:
            runs = is_program(path)
        except InputError:
            runs = False
        if not runs:
            left_out.append(path.relative_to(folder).as_posix())
            continue
        options, arguments = shared, path.with_name(ARGUMENTS)
        if arguments.is_file():
            lines = tuple(argument_lines([f"@{arguments}"]))
            options = checked(
                BatchedOptions, {**shared.model_dump(), "argument_lines": lines}, f"{arguments}: "
            )
        found.append(Named(path.relative_to(folder).as_posix(), path, options))
    if left_out:
        _say(f"skipped, no `main`: {', '.join(left_out)}")
    if not found:
        raise InputError(f"{folder}: there is no .cu file with a `main` below it")
    return found


def _sources(folder: Path, skipped: set[Path]) -> Iterator[Path]:
    """Its `.cu` files, hidden folders and results of earlier runs left out."""
    for here, inner, names in os.walk(folder):
        inner[:] = sorted(
            name
            for name in inner
            if not name.startswith(".")
            and (Path(here) / name).resolve() not in skipped
            and not any((Path(here) / name / result).exists() for result in RESULTS)
        )
        yield from (Path(here) / name for name in sorted(names) if name.endswith(".cu"))


# A list: a program and its options a line, as on the command line of `run`, or as JSON.

_line = typer.Typer(add_completion=False, rich_markup_mode=None)


@_line.command()
@with_options
def _program(source: SourceArgument, *, options: BatchedOptions) -> tuple[Path, BatchedOptions]:
    """A line's program with its options."""
    return source, options


def _in_list(path: Path, shared: BatchedOptions) -> Iterator[Named]:
    """Its programs, in order; their paths are relative to the list's own folder.

    Raises InputError, naming the line: it cannot be read, or names no file.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a list of programs: {error}") from error
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        count += 1
        try:
            program, options = _read(line, shared)
            source = path.parent / program
            if not source.is_file():
                raise InputError(f"{source}: no such file")
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from error
        yield Named(str(program), source, options)
    if not count:
        raise InputError(f"{path} names no program; write one per line")


def _read(line: str, shared: BatchedOptions) -> tuple[Path, BatchedOptions]:
    """A line's program, and its options over those of all. Raises InputError."""
    if line.lstrip().startswith("{"):
        return _read_json(line, shared)
    defaults = {name: value for name, value in shared if value not in (None, ())}
    try:
        read: tuple[Path, BatchedOptions] = _line(
            args=shlex.split(line), prog_name="line", standalone_mode=False, default_map=defaults
        )
    except (typer.TyperException, ValueError) as error:
        said = error.format_message() if isinstance(error, typer.TyperException) else error
        raise InputError(str(said)) from error
    return read


def _read_json(line: str, shared: BatchedOptions) -> tuple[Path, BatchedOptions]:
    try:
        given: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise InputError(f"it is not JSON: {error}") from error
    program = given.pop("program", None)
    if not isinstance(program, str):
        raise InputError('`program` is missing, the path of a .cu file: {"program": "k.cu"}')
    return Path(program), checked(BatchedOptions, {**shared.model_dump(), **given})


# From names to what a service is asked for.


def _wanted(named: Sequence[Named], *, every_kernel: bool) -> list[Wanted]:
    """What is asked for each, under names of their own."""
    from cudaops.service.batch import RESERVED, Wanted

    wanted: list[Wanted] = []
    taken = set(RESERVED)
    for each in named:
        for kernel, request, wrong in _requests(each, every_kernel):
            name = _free_name(each.program, kernel, taken)
            wanted.append(Wanted(name, each.program, each.source.resolve(), request, wrong))
    return wanted


def _requests(named: Named, every_kernel: bool) -> Iterator[tuple[str | None, Any, str]]:
    """Kernel, request, and why there is none, of each job of a program."""
    from cudaops.program.parse import load_program
    from cudaops.service.client import request_of

    options = named.options
    try:
        program = load_program(named.source)
        asked = options.kernel is None and every_kernel
        for kernel in _launched(program) if asked else [options.kernel]:
            fields = {**options.model_dump(), "kernel": kernel}
            yield kernel, request_of("optimize", fields, program), ""
    except InputError as error:
        yield options.kernel, None, str(error)


def _launched(program: Program) -> list[str]:
    """Kernels that are defined and launched in a program, in the order of their launches."""
    launched = [k for site in program.launches for k in program.kernels_named(site.kernel)]
    return list(dict.fromkeys(k.name for k in launched))


def _free_name(program: str, kernel: str | None, taken: set[str]) -> str:
    """A folder's name for a program's results, which nothing else in the batch has."""
    parts = [program.removesuffix(".cu"), *([kernel] if kernel else [])]
    base = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(parts))[:100].strip("._-") or "program"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
