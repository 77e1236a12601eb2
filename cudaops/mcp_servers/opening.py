"""Tools that open a program and say what was captured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.options import Bar, KernelOptions
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
from cudaops.sandbox.workbench import Workbench

ProgramPath = Annotated[
    str | None,
    Field(description="Path of a .cu file with a main(), where the server runs for you alone."),
]


class RaisedBarOptions(Record):
    """What must be reached, by the word of a host."""

    min_speedup: Bar | None = None
    """Baseline time over candidate time that a rewrite must reach (default: the server's, which can
    only be raised)."""


class OpenedProgram(Record):
    """What was captured of a program."""

    kernel: str
    source: str
    """The kernel as its author wrote it."""
    workloads: tuple[Workload, ...]
    limits: tuple[str, ...]


def add_opening(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the tools."""

    @server.tool(annotations=replaces("Open a CUDA program"))
    @in_thread
    @with_options
    def open_program(
        *,
        path: ProgramPath = None,
        options: KernelOptions,
        source: SourceProgram = None,
        filename: FileName = "program.cu",
        files: HeaderTexts = {},  # noqa: B006
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
        return _described(bench)

    @server.tool(annotations=reads("Describe the open program"))
    def describe_program() -> OpenedProgram:
        """The kernel and the captured workloads of the open program."""
        return _described(sessions.current().bench)


def _described(bench: Workbench) -> OpenedProgram:
    """What a client is told of a bench."""
    return OpenedProgram(
        kernel=bench.kernel.qualified_name,
        source=bench.kernel.text,
        workloads=bench.workloads,
        limits=bench.limits,
    )


def required_path(tool: str, session: Session, path: str | None) -> Path:
    """The path that was given. Raises InputError where there is none."""
    if path is None or not path.strip():
        how = "`path` or `source`" if session.paths else "`source`, the program's text"
        raise InputError(f"{tool} needs {how}. A call that works: {call_text(tool)}")
    return Path(path)


def require_one(tool: str, path: str | None, source: str) -> None:
    """Raises InputError where a text and a path were given, or the text is empty."""
    if path is not None:
        raise InputError(f"{tool} takes `path` or `source`, not both: leave one out")
    if not source.strip():
        raise InputError(f"`source` is empty. A call that works: {call_text(tool)}")
