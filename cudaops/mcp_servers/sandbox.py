"""MCP server `sandbox`: rewrites of the open program's kernel proposed, compiled, tuned, screened
and timed; `judging` decides on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, ParamSpec, TypeVar

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say, TriedConfiguration
from cudaops.errors import InputError, PlanError
from cudaops.executors.stopping import raise_if_stopped
from cudaops.gates.evaluate import Evaluating, Screened, screen
from cudaops.gates.precheck import Precheck, precheck
from cudaops.mcp_servers.calls import in_this_context, in_thread, progress, works
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.judging import WriteRun, add_judging
from cudaops.mcp_servers.opening import add_opening
from cudaops.mcp_servers.prompts import add_reviewing
from cudaops.mcp_servers.rewrites import (
    SourceText,
    TunedValues,
    check_rewrite,
    problem_of,
    read_rewrite,
)
from cudaops.mcp_servers.runs import add_runs
from cudaops.mcp_servers.sessions import SessionProvider
from cudaops.mcp_servers.transforming import add_transforming, builders
from cudaops.prompts.expert_notes import fired
from cudaops.recipes.registry import family_of, propose, refusal, seeds
from cudaops.recipes.tuner import TunerTrial, tune
from cudaops.sandbox.stripping import program_of, strip
from cudaops.sandbox.workbench import Workbench

FINALISTS = 3
"""Drafts that are built and timed again by the compiler that decides."""
_FOLDERS = re.compile(r"(?<![\w./<-])/(?:[\w.+@~-]+/)+(?=[\w.+-])")

ProgramText = Annotated[
    str,
    Field(
        description="A whole CUDA program in one file: kernels, `main`, launches.",
        max_length=400_000,
    ),
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class StrippedProgram(Record):
    """A program's device code as a rewrite of the open program's kernel."""

    source: str
    """Device source with a `@launch` as the program launched it, for the sizes that it ran with."""
    notices: tuple[str, ...]
    """Host code that was dropped and may matter, one line each."""


class TrialResult(Record):
    """One configuration that the tuner tried, or one sequence of transformations."""

    title: str = ""
    """What it was, where that is no tune values."""
    values: dict[str, int]
    time_us: float | None
    failure: str | None


class Tuned(Record):
    """The tuner's result."""

    best: dict[str, int] | None
    """The fastest; of those within 1 % of it the one with the smallest values. None where no
    configuration compiled and ran."""
    time_us: float | None
    stopped: str
    """Why it ended: `no neighbour is better`, `trials`, `seconds`, `far behind`."""
    trials: tuple[TrialResult, ...]


class Proposal(Record):
    """A rewrite that a recipe of cudaops would try next."""

    title: str
    why: str
    family: str | None
    """Kind of optimisation: `tiling`, `launch_geometry`."""
    source: str
    """Device source with directives, for tune_rewrite, screen_rewrite or judge_rewrite."""
    tune_names: tuple[str, ...]
    """What tune_rewrite may set."""


class ExpertNoteTitle(Record):
    """A brief to read before writing: `read_expert_note`, or the resource `expert://ID`."""

    id: str
    title: str


class Proposals(Record):
    """What may relieve the open program's kernel."""

    verdict: str
    subtype: str
    relief: str
    """What usually helps, in a line."""
    proposals: tuple[Proposal, ...]
    """Most promising first; empty where no recipe knows the kernel. One is no better than its
    judgement."""
    notes: tuple[ExpertNoteTitle, ...]
    """What the profile calls for, most urgent first."""


class Benchmarked(Record):
    """Times of a rewrite beside the author's kernel. Not a judgement: nothing was verified."""

    speedup: float | None = None
    """Author's time over the rewrite's, weighted over workloads; null where it was not timed."""
    provenance: str = ""
    """Suffix for these numbers: ` (modelled for A10)`; empty where measured."""
    comparisons: tuple[Comparison, ...] = ()
    failure: str | None = None
    """Why there is no time."""


def build_server(sessions: SessionProvider, write_run: WriteRun | None = None) -> FastMCP:
    """The server over one session; run it with `.run()` or talk to it in memory.

    `write_run` keeps an accepted rewrite as a run with a certificate; None: it is handed back only.
    """
    server: FastMCP = FastMCP(
        "cudaops-sandbox",
        instructions="Compiles, tunes and judges rewrites of one CUDA kernel. Open a program, "
        "propose device source with @launch directives, and let judge_rewrite decide: claims do "
        "not count.",
        middleware=[Guide(sessions)],
    )
    add_opening(server, sessions)
    _add_text_tools(server, sessions)
    _add_timing_tools(server, sessions)
    add_transforming(server, sessions)
    add_judging(server, sessions, write_run)
    add_reviewing(server)
    add_runs(server, sessions)
    return server


def _add_text_tools(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the tools for a rewrite's text: one to begin with, whether it compiles."""

    @server.tool(annotations=works("Propose rewrites"))
    @in_thread
    def propose_rewrites(
        limit: Annotated[int, Field(ge=1, le=10, description="Maximum number of rewrites.")] = 3,
        relieving_only: Annotated[
            bool, Field(description="Only rewrites that address the verdict.")
        ] = False,
    ) -> Proposals:
        """Rewrites of the open program's kernel that cudaops knows against what limits it, ready
        to be tuned and judged, and the notes to read before writing another."""
        return _proposals(sessions.current().bench, limit, relieving_only)

    @server.tool(annotations=works("Compile a rewrite"))
    @in_thread
    def compile_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Precheck:
        """Compile a rewrite with both compilers, resolve its plan and conditions on every workload,
        compare its outputs on the smallest one and take a first time. The first problem comes back
        with its line; registers and spills are ptxas's. Not a judgement."""
        bench = sessions.current().bench
        rewrite = read_rewrite(bench, source, tuned=tuned)
        if problem := problem_of(rewrite, bench):
            return Precheck(ok=False, stage="text", message=problem)
        return _shown_precheck(precheck(bench, rewrite, progress(context)))

    @server.tool(annotations=works("Strip a program of its host code"))
    @in_thread
    def strip_program(text: ProgramText) -> StrippedProgram:
        """Run a whole program once, confined, to see how it launches its kernel, and drop its host
        code. Its times and outputs are not used. A refusal is one line."""
        bench = sessions.current().bench
        stripped = strip(bench, program_of(text), strangers=True)
        return StrippedProgram(source=stripped.rewrite.source, notices=stripped.notices)


def _proposals(bench: Workbench, limit: int, relieving_only: bool) -> Proposals:
    profile = bench.profile(None)
    if not isinstance(profile, Profile):
        raise InputError(profile.placed)
    verdict = diagnose(profile, device(profile.device))
    found = propose(
        bench.program, bench.kernel, bench.workloads, verdict, relieving_only=relieving_only,
        allow_reassociation=bench.policy.allow_reassociation,
    )  # fmt: skip
    return Proposals(
        verdict=verdict.summary,
        subtype=verdict.subtype,
        relief=verdict.relief,
        proposals=tuple(_shown(rewrite) for rewrite in found[:limit]),
        notes=tuple(ExpertNoteTitle(id=n.id, title=n.title) for n in fired(verdict, profile)),
    )


def _shown(rewrite: Rewrite) -> Proposal:
    return Proposal(
        title=rewrite.title,
        why=rewrite.why,
        family=family_of(rewrite),
        source=rewrite.source,
        tune_names=tuple(tune.name for tune in rewrite.plan.tune),
    )


def _shown_precheck(found: Precheck) -> Precheck:
    return found.model_copy(
        update={
            "message": _without_folders(found.message),
            "log": _without_folders(found.log),
            "kernels": tuple(map(_without_folders, found.kernels)),
        }
    )


def _without_folders(printed: str) -> str:
    """Absolute paths as file names alone: they tell of this machine, and clients are anywhere."""
    return _FOLDERS.sub("", printed)


def _add_timing_tools(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the tools that take times and decide nothing."""

    @server.tool(annotations=works("Tune a rewrite"))
    @in_thread
    def tune_rewrite(
        source: SourceText,
        max_trials: Annotated[int, Field(ge=1, le=200)] = 16,
        max_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0,
        must_beat_us: Annotated[
            float | None,
            Field(
                gt=0,
                description="Time to beat, from screen_rewrite (the same clock as this "
                "search); a search far behind it stops",
            ),
        ] = None,
        proposer: str = "mcp:client",
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Tuned:
        """Search the @tune values of a rewrite by time on the most expensive workload. `best` is
        the fastest, or of those within 1 % of it the one with the smallest values."""
        bench = sessions.current().bench
        rewrite = check_rewrite(read_rewrite(bench, source, tuned={}, proposer=proposer), bench)
        limits = _TuneLimits(max_trials, max_seconds, must_beat_us)
        return _tune_values(bench, rewrite, limits, progress(context, max_trials))

    @server.tool(annotations=works("Screen a rewrite"))
    @in_thread
    def screen_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        proposer: str = "mcp:client",
        title: str = "rewrite",
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Screened:
        """Compile a rewrite, check it on the captured inputs and take one time. Not a judgement."""
        bench = sessions.current().bench
        rewrite = read_rewrite(bench, source, tuned=tuned, proposer=proposer, title=title)
        return screen(bench, rewrite, progress(context))

    @server.tool(annotations=works("Time a rewrite"))
    @in_thread
    def benchmark_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Benchmarked:
        """Time a rewrite beside the author's kernel on every workload. Its results are not looked
        at, so a wrong rewrite may seem fast: only judge_rewrite decides."""
        bench = sessions.current().bench
        rewrite = read_rewrite(bench, source, tuned=tuned)
        return _benchmarked(bench, rewrite, progress(context))


class _TuneLimits(NamedTuple):
    """When a search ends."""

    max_trials: int
    max_seconds: float
    must_beat_us: float | None


def _tune_values(bench: Workbench, rewrite: Rewrite, limits: _TuneLimits, say: Say) -> Tuned:
    """Search the @tune values by time on the most expensive workload."""
    workload = bench.workloads[0]

    def trial(candidate: Rewrite) -> TunerTrial:
        raise_if_stopped()
        if bench.models_time:
            say("building " + ", ".join(f"{k}={v}" for k, v in candidate.values().items()))
        try:
            measured = bench.measure(candidate, workload, draft=True)
        except PlanError as error:
            return TunerTrial(candidate.values(), None, f"launch plan: {error}")
        if isinstance(measured, Measurement):
            values, time_us = candidate.values(), measured.median_us
            behind = measured.provenance_of_time
            say(TriedConfiguration(values=values, time_us=time_us, provenance=behind))
            return TunerTrial(values, time_us, None, sampled_us=measured.sampled_us)
        assert isinstance(measured, Misbehaved | CompileFailed)
        return TunerTrial(candidate.values(), None, measured.message)

    found = tune(
        rewrite,
        in_this_context(trial),
        feasible=lambda candidate: refusal(candidate, bench.kernel, bench.workloads),
        max_trials=limits.max_trials,
        workers=builders(bench),
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
    bench: Workbench, rewrite: Rewrite, trials: Sequence[TunerTrial], say: Say
) -> tuple[Rewrite | None, float | None]:
    """The best of the best drafts by what will be judged: NVRTC and nvcc allocate registers
    differently, so the order of a search may not survive."""
    timed = [(t.time_us, t.values) for t in trials if t.time_us is not None]
    ranked = sorted(timed, key=lambda pair: pair[0])[:FINALISTS]
    finalists = [rewrite.tuned_with(dict(values)) for _, values in ranked]
    best: tuple[Rewrite | None, float | None] = (None, None)
    with ThreadPoolExecutor(max_workers=FINALISTS) as pool:
        list(pool.map(in_this_context(bench.compile), finalists))
    for candidate in finalists:
        measured = bench.measure(candidate, bench.workloads[0])
        if isinstance(measured, Measurement) and (best[1] is None or measured.median_us < best[1]):
            best = (candidate, measured.median_us)
            say(f"built by nvcc, {measured.median_us:.1f} us{measured.provenance_of_time}")
    return best


def _benchmarked(bench: Workbench, rewrite: Rewrite, say: Say) -> Benchmarked:
    looking = Evaluating(bench, rewrite, say)
    if looking.build() is None:
        return Benchmarked(failure=looking.gates[-1].line)
    compared = bench.compare(rewrite)
    if isinstance(compared, Misbehaved | CompileFailed):
        return Benchmarked(failure=compared.placed)
    return Benchmarked(
        speedup=weighted_speedup(compared),
        provenance=compared[0].candidate.provenance,
        comparisons=tuple(_without_counts(one) for one in compared),
    )


def _without_counts(comparison: Comparison) -> Comparison:
    """Without the counts behind a modelled time: they fill pages."""
    bare = {"profile": None}
    return comparison.model_copy(
        update={
            "baseline": comparison.baseline.model_copy(update=bare),
            "candidate": comparison.candidate.model_copy(update=bare),
        }
    )
