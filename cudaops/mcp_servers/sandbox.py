"""MCP server `sandbox`: compile, tune and judge rewrites of the open program's kernel."""

from __future__ import annotations

import re
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.base import Record, SourceLocation
from cudaops.domain.execution import Compiled, CompileFailed
from cudaops.mcp_servers.accepting import WriteRun, add_accepting
from cudaops.mcp_servers.annotations import works
from cudaops.mcp_servers.dialogues import add_reviewing
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.judging import Everything, Judged, MinSpeedup, judged
from cudaops.mcp_servers.opening import OpenedProgram, add_opening
from cudaops.mcp_servers.programs import add_stripping
from cudaops.mcp_servers.progress import log, progress
from cudaops.mcp_servers.proposing import add_proposing
from cudaops.mcp_servers.rewrites import (
    SourceText,
    TunedValues,
    check_rewrite,
    problem_of,
    read_rewrite,
)
from cudaops.mcp_servers.runs import add_runs
from cudaops.mcp_servers.screening import add_screening
from cudaops.mcp_servers.session import Seat
from cudaops.mcp_servers.tuning import Limits, TrialResult, Tuned, tune_values
from cudaops.mcp_servers.work import in_thread

__all__ = [
    "CompileReport",
    "Judged",
    "OpenedProgram",
    "TrialResult",
    "Tuned",
    "build_server",
]

_FOLDERS = re.compile(r"(?<![\w./<-])/(?:[\w.+@~-]+/)+(?=[\w.+-])")


class CompileReport(Record):
    """Whether a rewrite compiles."""

    ok: bool
    message: str
    """The compiler's name, or its first error."""
    location: SourceLocation | None = None
    """Of the error; `candidate.cu` is the rewrite's own text."""
    log: str = ""
    """What the compiler printed, bounded to 16 KiB."""


def build_server(seat: Seat, write_run: WriteRun | None = None) -> FastMCP:
    """The server over one session; run it with `.run()` or talk to it in memory.

    `write_run` keeps an accepted rewrite as a run with a certificate; None: it is handed back only.
    """
    server: FastMCP = FastMCP(
        "cudaops-sandbox",
        instructions="Compiles, tunes and judges rewrites of one CUDA kernel. Open a program, "
        "propose device source with @launch directives, and let judge_rewrite decide: claims do "
        "not count.",
        middleware=[Guide(seat)],
    )
    add_opening(server, seat)
    _add_rewrite_tools(server, seat)
    add_screening(server, seat)
    add_stripping(server, seat)
    add_proposing(server, seat)
    add_accepting(server, seat, write_run)
    add_reviewing(server)
    add_runs(server, seat)
    return server


def _add_rewrite_tools(server: FastMCP, seat: Seat) -> None:
    @server.tool(annotations=works("Compile a rewrite"))
    @in_thread
    def compile_rewrite(source: SourceText, tuned: TunedValues = {}) -> CompileReport:  # noqa: B006
        """Compile a rewrite; a compiler error comes back with its line."""
        bench = seat.current().bench
        rewrite = read_rewrite(source, tuned=tuned)
        if problem := problem_of(rewrite, bench):
            return CompileReport(ok=False, message=problem)
        return _compile_report(bench.compile(rewrite))

    @server.tool(annotations=works("Tune a rewrite"))
    @in_thread
    def tune_rewrite(
        source: SourceText,
        max_trials: Annotated[int, Field(ge=1, le=200)] = 16,
        max_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0,
        must_beat_us: Annotated[
            float | None, Field(gt=0, description="Time to beat; a search far behind it gives up")
        ] = None,
        proposer: str = "mcp:client",
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Tuned:
        """Search the @tune values of a rewrite by time on the most expensive workload."""
        bench = seat.current().bench
        rewrite = check_rewrite(read_rewrite(source, tuned={}, proposer=proposer), bench)
        limits = Limits(max_trials, max_seconds, must_beat_us)
        return tune_values(bench, rewrite, limits, progress(context, max_trials))

    @server.tool(annotations=works("Judge a rewrite"))
    @in_thread
    def judge_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        min_speedup: MinSpeedup = None,
        proposer: str = "mcp:client",
        title: str = "rewrite",
        why: str = "",
        everything: Everything = False,
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Judged:
        """Compile, verify and time a rewrite through every gate, and decide."""
        opened = seat.current().opened
        rewrite = read_rewrite(source, tuned=tuned, proposer=proposer, title=title, why=why)
        say, note = progress(context), log(context)
        return judged(opened, rewrite, min_speedup, say, note, everything=everything)


def _compile_report(outcome: Compiled | CompileFailed) -> CompileReport:
    printed = _without_folders(outcome.log)
    if isinstance(outcome, Compiled):
        return CompileReport(ok=True, message=outcome.compiler, log=printed)
    message = _without_folders(outcome.message)
    return CompileReport(ok=False, message=message, location=outcome.location, log=printed)


def _without_folders(printed: str) -> str:
    """Absolute paths as file names alone: they tell of this machine, and clients are anywhere."""
    return _FOLDERS.sub("", printed)
