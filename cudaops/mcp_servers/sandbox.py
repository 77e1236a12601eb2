"""MCP server `sandbox`: compile, tune and judge rewrites of the open program's kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, NamedTuple

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.base import Record, SourceLocation
from cudaops.domain.execution import Compiled, CompileFailed, Measurement, Misbehaved
from cudaops.domain.judgement import Judgement
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import PlanError
from cudaops.mcp_servers.failures import tool_errors
from cudaops.mcp_servers.programs import add_stripping
from cudaops.mcp_servers.progress import progress
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, read_rewrite
from cudaops.mcp_servers.screening import add_screening
from cudaops.mcp_servers.session import Session
from cudaops.program.hygiene import check_source
from cudaops.recipes.registry import refusal, seeds
from cudaops.recipes.tuner import Trial, tune
from cudaops.sandbox.evaluate import Say, evaluate
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.workbench import Workbench

FINALISTS = 3
"""Drafts that are built and timed again by the compiler that has the last word."""
TUNER_WORKERS = 2
"""Compiles of two configurations overlap; more would only queue on a two-core machine."""


_FOLDERS = re.compile(r"(?<![\w./<-])/(?:[\w.+@~-]+/)+(?=[\w.+-])")


class OpenedProgram(Record):
    """What was captured of a program."""

    kernel: str
    source: str
    """The kernel as its author wrote it."""
    workloads: tuple[Workload, ...]
    limits: tuple[str, ...]


class CompileReport(Record):
    """Whether a rewrite compiles."""

    ok: bool
    message: str
    """The compiler's name, or its first error."""
    location: SourceLocation | None = None
    """Of the error; `candidate.cu` is the rewrite's own text."""
    log: str = ""
    """What the compiler printed, bounded to 16 KiB."""


class TrialResult(Record):
    """One configuration the tuner tried."""

    values: dict[str, int]
    time_us: float | None
    failure: str | None


class Tuned(Record):
    """The tuner's result."""

    best: dict[str, int] | None
    """None where no configuration compiled and ran."""
    time_us: float | None
    stopped: str
    """Why it ended: `no neighbour is better`, `trials`, `seconds`, `far behind`."""
    trials: tuple[TrialResult, ...]


class Judged(Record):
    """Evaluation and the judgement drawn from it."""

    evaluation: Evaluation
    judgement: Judgement


def build_server(session: Session) -> FastMCP:
    """The server over one session; run it with `.run()` or talk to it in memory."""
    server: FastMCP = FastMCP(
        "cudaops-sandbox",
        instructions="Compiles, tunes and judges rewrites of one CUDA kernel. Open a program, "
        "propose device source with @launch directives, and let judge_rewrite decide: claims do "
        "not count.",
    )
    _add_program_tools(server, session)
    _add_rewrite_tools(server, session)
    add_screening(server, session)
    add_stripping(server, session)
    return server


def _add_program_tools(server: FastMCP, session: Session) -> None:
    @server.tool
    def open_program(
        path: Annotated[str, Field(description="Path of a .cu file with a main()")],
        kernel: str | None = None,
        arguments: tuple[str, ...] = (),
    ) -> OpenedProgram:
        """Run a CUDA program once and capture the launches of its most expensive kernel."""
        return _opened(session.open(Path(path), kernel, arguments))

    @server.tool
    def describe_program() -> OpenedProgram:
        """The kernel and the captured workloads of the open program."""
        return _opened(session.bench)


def _add_rewrite_tools(server: FastMCP, session: Session) -> None:
    @server.tool
    def compile_rewrite(source: SourceText, tuned: TunedValues = {}) -> CompileReport:  # noqa: B006
        """Compile a rewrite; a compiler error comes back with its line."""
        rewrite = read_rewrite(source, tuned=tuned)
        allow_libraries = session.bench.policy.allow_libraries
        if problems := check_source(source, allow_libraries=allow_libraries):
            # An include or an assembler directive would read files of this machine.
            return CompileReport(ok=False, message=problems[0])
        with tool_errors():
            return _compile_report(session.bench.compile(rewrite))

    @server.tool
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
        rewrite = read_rewrite(source, tuned={}, proposer=proposer)
        with tool_errors():
            limits = _Limits(max_trials, max_seconds, must_beat_us)
            return _tune(session.bench, rewrite, limits, progress(context))

    @server.tool
    def judge_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        min_speedup: Annotated[
            float | None, Field(gt=0, description="Bar; None keeps the run's")
        ] = None,
        proposer: str = "mcp:client",
        title: str = "rewrite",
        why: str = "",
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Judged:
        """Compile, verify and time a rewrite through every gate, and decide."""
        rewrite = read_rewrite(source, tuned=tuned, proposer=proposer, title=title, why=why)
        with tool_errors():
            return _judge(session.bench, rewrite, min_speedup, progress(context))


def _judge(bench: Workbench, rewrite: Rewrite, min_speedup: float | None, say: Say) -> Judged:
    """The bar can be raised by a client, never lowered."""
    policy = bench.policy
    if min_speedup is not None:
        policy = policy.model_copy(update={"min_speedup": max(min_speedup, policy.min_speedup)})
    evaluation = evaluate(bench, rewrite, policy.min_speedup, say)
    # Where a person is to decide, that comes after this.
    unreviewed = policy.model_copy(update={"review": False})
    return Judged(evaluation=evaluation, judgement=evaluation.judged(unreviewed))


def _opened(bench: Workbench) -> OpenedProgram:
    return OpenedProgram(
        kernel=bench.kernel.qualified_name,
        source=bench.kernel.text,
        workloads=bench.workloads,
        limits=bench.program.limits,
    )


def _compile_report(outcome: Compiled | CompileFailed) -> CompileReport:
    log = _without_folders(outcome.log)
    if isinstance(outcome, Compiled):
        return CompileReport(ok=True, message=outcome.compiler, log=log)
    message = _without_folders(outcome.message)
    return CompileReport(ok=False, message=message, location=outcome.location, log=log)


def _without_folders(printed: str) -> str:
    """Absolute paths as file names alone: they tell of this machine, and clients are anywhere."""
    return _FOLDERS.sub("", printed)


class _Limits(NamedTuple):
    max_trials: int
    max_seconds: float
    must_beat_us: float | None


def _tune(bench: Workbench, rewrite: Rewrite, limits: _Limits, say: Say) -> Tuned:
    workload = bench.workloads[0]

    def trial(candidate: Rewrite) -> Trial:
        try:
            measured = bench.measure(candidate, workload, draft=True)
        except PlanError as error:
            return Trial(candidate.values(), None, f"launch plan: {error}")
        if isinstance(measured, Measurement):
            values = ", ".join(f"{name}={value}" for name, value in candidate.values().items())
            say(f"tried {values}: {measured.median_us:.1f} us{measured.provenance}")
            return Trial(candidate.values(), measured.median_us, None)
        assert isinstance(measured, Misbehaved | CompileFailed)
        return Trial(candidate.values(), None, measured.message)

    found = tune(
        rewrite,
        trial,
        feasible=lambda candidate: refusal(candidate, bench.kernel, bench.workloads),
        max_trials=limits.max_trials,
        workers=TUNER_WORKERS,
        max_seconds=limits.max_seconds,
        must_beat_us=limits.must_beat_us,
        seeds=seeds(rewrite),
    )
    best, best_us = found.best, found.best_us
    if bench.executor.name != "cpu" and found.stopped != "far behind":
        best, best_us = _by_final_compiler(bench, rewrite, found.trials, say)
    return Tuned(
        best=None if best is None else best.values(),
        time_us=best_us,
        stopped=found.stopped,
        trials=tuple(
            TrialResult(values=dict(t.values), time_us=t.time_us, failure=t.failure)
            for t in found.trials
        ),
    )


def _by_final_compiler(
    bench: Workbench, rewrite: Rewrite, trials: Sequence[Trial], say: Say
) -> tuple[Rewrite | None, float | None]:
    """The best of the best drafts by what will be judged: NVRTC and nvcc allocate registers
    differently, so the order of a search may not survive."""
    timed = [(t.time_us, t.values) for t in trials if t.time_us is not None]
    ranked = sorted(timed, key=lambda pair: pair[0])[:FINALISTS]
    finalists = [rewrite.tuned_with(dict(values)) for _, values in ranked]
    best: tuple[Rewrite | None, float | None] = (None, None)
    with ThreadPoolExecutor(max_workers=FINALISTS) as pool:
        list(pool.map(bench.compile, finalists))
    for candidate in finalists:
        measured = bench.measure(candidate, bench.workloads[0])
        if isinstance(measured, Measurement) and (best[1] is None or measured.median_us < best[1]):
            best = (candidate, measured.median_us)
            say(f"built by nvcc, {measured.median_us:.1f} us{measured.provenance}")
    return best
