"""Tools that open a program and say what was captured of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.cuda.devices import device
from cudaops.domain.base import Record
from cudaops.domain.options import Bar, ExecutorChoice, KernelOptions, PlaceOptions
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.mcp_servers.calls import in_thread, log, reads, replaces, with_options
from cudaops.mcp_servers.guidance import call_text
from cudaops.mcp_servers.sessions import (
    FileName,
    HeaderTexts,
    ProgramTexts,
    Session,
    SessionProvider,
    SourceProgram,
)
from cudaops.prompts.surroundings import surroundings
from cudaops.prompts.wording import bar_line, judging_lines, workload_lines
from cudaops.sandbox.workbench import Workbench

MOST_LAUNCHES = 8
"""Launches that are told of: more are in the records. Chosen: an answer below 6,000 characters."""

Details = Annotated[bool, Field(description="Include every launch as a record.")]

ProgramPath = Annotated[
    str | None,
    Field(description="Path of a .cu file with a main() (local servers only)."),
]


class RaisedBarOptions(Record):
    """What must be reached, by the word of a host."""

    min_speedup: Bar | None = None
    """Baseline time over candidate time that a rewrite must reach (default: the server's, which can
    only be raised)."""


class OpenOptions(KernelOptions, PlaceOptions):
    """How a program is opened."""

    executor: ExecutorChoice | None = None
    """Where kernels run (default: as the server was started)."""


class OpenedProgram(Record):
    """What was captured of a program, and how rewrites of its kernel will be timed and judged."""

    kernel: str
    source: str
    """The kernel as its author wrote it."""
    declarations: str
    """Device functions, types, constants and macros of the program that it uses. A rewrite sees
    them under the same names and does not declare them again."""
    kernels: tuple[str, ...]
    """Kernels that the program launched, hottest first, with their share of the time: any of them
    can be asked for as `kernel`."""
    executor: str
    device: str
    """Whose time is taken or modelled."""
    launches: tuple[str, ...]
    """Captured launches, hottest first, and below each its arguments with their contents."""
    judging: tuple[str, ...]
    """The clock and its floor, the author's time by it, how the program was run, gates in order,
    tolerances."""
    bar: str
    """What a rewrite must reach, as a speedup and as a time of that clock."""
    limits: tuple[str, ...]
    """What is not seen of the program."""
    workloads: tuple[Workload, ...] = ()
    """The launches as records, where `details` were asked for."""


def add_opening(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the tools."""

    @server.tool(annotations=replaces("Open a CUDA program"))
    @in_thread
    @with_options
    def open_program(
        *,
        path: ProgramPath = None,
        options: OpenOptions,
        source: SourceProgram = None,
        filename: FileName = "program.cu",
        files: HeaderTexts = {},  # noqa: B006
        details: Details = False,
        context: Context = CurrentContext(),  # noqa: B008
    ) -> OpenedProgram:
        """Run a CUDA program once and capture the launches of its most expensive kernel. What is
        judged later runs on what was captured. Give `path`, or the text in `source`."""
        session = sessions.current()
        if source is not None:
            require_one("open_program", path, source)
            texts = ProgramTexts(source, filename, files)
            bench = session.open_text(texts, options).bench
        else:
            file = required_path("open_program", session, path)
            bench = session.open(file, options).bench
        note = log(context)
        for limit in bench.limits:
            note("warning", limit)
        return _described(bench, details)

    @server.tool(annotations=reads("Describe the open program"))
    @in_thread
    def describe_program(details: Details = False) -> OpenedProgram:
        """The kernel and the captured launches of the open program, and how it is judged."""
        return _described(sessions.current().bench, details)


def _described(bench: Workbench, details: bool) -> OpenedProgram:
    """What a client is told of a bench. Raises InputError where its kernel cannot be timed."""
    times = [(b.workload.id, b.time.median_us, b.share) for b in bench.baseline_times()]
    shares = {name: share for name, _, share in times}
    runs = tuple(one.run for one in bench.captured.runs)
    on = device(bench.executor.device)
    return OpenedProgram(
        kernel=bench.kernel.qualified_name,
        source=_plain(bench.kernel.text),
        declarations=_plain(surroundings(bench.program, bench.kernel)),
        kernels=tuple(_launched(bench)),
        executor=bench.executor.name,
        device=bench.executor.device,
        launches=tuple(
            line
            for w in bench.workloads[:MOST_LAUNCHES]
            for line in workload_lines(w, bench.values, shares.get(w.id), bench.accesses)
        ),
        judging=tuple(judging_lines(bench.executor.time_source, runs, times, bench.policy, on)),
        bar=bar_line(times, bench.policy.min_speedup),
        workloads=bench.workloads if details else (),
        limits=bench.limits,
    )


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _launched(bench: Workbench) -> Iterator[str]:
    """`mm: launched 3x, 97 % of the time`, by the clock of the executor that captured."""
    counts = sorted(bench.captured.timed.captured.counts, key=lambda one: -one.seconds)
    whole = sum(one.seconds for one in counts)
    for one in counts:
        share = f", {one.seconds / whole:.0%} of the time" if whole else ""
        yield f"{one.kernel}: launched {one.launches}x{share}"


def required_path(tool: str, session: Session, path: str | None) -> Path:
    """The path that was given. Raises InputError where there is none."""
    if path is None or not path.strip():
        how = "`path` or `source`" if session.paths else "`source`, the program's text"
        raise InputError(f"{tool} needs {how}. Example: {call_text(tool)}")
    return Path(path)


def require_one(tool: str, path: str | None, source: str) -> None:
    """Raises InputError where a text and a path were given, or the text is empty."""
    if path is not None:
        raise InputError(f"{tool} takes `path` or `source`, not both: leave one out")
    if not source.strip():
        raise InputError(f"`source` is empty. Example: {call_text(tool)}")
