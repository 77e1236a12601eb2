"""Tool `optimize_kernel`: the whole loop in one call, with the host's own model, asked by MCP
sampling, where it lends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio.from_thread
import mcp.types as mt
from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from mcp.shared.exceptions import McpError

from cudaops.domain.base import Record
from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.options import (
    BeamOptions,
    ExecutorChoice,
    KernelOptions,
    LimitOptions,
    PlaceOptions,
    StrategyOptions,
    TimeoutSeconds,
)
from cudaops.domain.run import Event, Outcome, RunRecord
from cudaops.errors import InputError, ModelUnavailable
from cudaops.mcp_servers.calls import in_thread, log, progress, with_options, works
from cudaops.mcp_servers.opening import (
    ProgramPath,
    RaisedBarOptions,
    require_one,
    required_path,
)
from cudaops.mcp_servers.runs import FILES
from cudaops.mcp_servers.sessions import (
    NO_PATHS,
    FileName,
    HeaderTexts,
    ProgramTexts,
    Session,
    SessionProvider,
    SourceProgram,
)

if TYPE_CHECKING:
    from cudaops.models.mcp_sampling import HostAnswer, HostModel, HostQuestion


MAX_BEST_CHARS = 100_000
"""A longer program is left to the resource: a host's context is dear."""


class ToolOptions(
    KernelOptions, PlaceOptions, StrategyOptions, BeamOptions, LimitOptions, RaisedBarOptions
):
    """What a host may ask of a run. What its server was started with it can only tighten."""

    executor: ExecutorChoice | None = None
    """Where kernels run (default: as the server was started)."""
    optimizer: Literal["auto", "recipes", "llm", "host"] = "auto"
    """Source of rewrites: `auto` is the server's model where one can be reached, recipes
    otherwise; `host` is your own model, asked by MCP sampling."""
    timeout_seconds: TimeoutSeconds | None = None
    """Seconds for one run of the program or a candidate (default: the server's)."""


class OptimizeCall(NamedTuple):
    """What to optimise and how."""

    path: Path
    runs: Path
    """Folder under which the run is kept."""
    options: ToolOptions
    no_model: str | None = None
    """Why recipes alone propose although the host's model was asked for."""


OptimizeKernel = Callable[[OptimizeCall, Callable[[Event], None], "HostModel | None"], RunRecord]
"""Runs the loop to its end; a model that is given proposes, whatever `optimizer` says."""


class AttemptSummary(Record):
    """One candidate that was judged."""

    iteration: int
    title: str
    proposer: str
    outcome: Literal["accepted", "provisional", "rejected"]
    reason: str


class Optimized(Record):
    """Result of a run; the whole record is the resource `run://RUN_ID/record`."""

    run_id: str
    outcome: Outcome
    """`provisional`: better by a modelled time; only a GPU can accept it."""
    reason: str
    kernel: str | None
    verdict: str | None
    """What limited the author's kernel."""
    subtype: str | None
    title: str | None = None
    """Of the best rewrite; null where none was better."""
    speedup: float | None = None
    baseline_ms: float | None = None
    candidate_ms: float | None = None
    provenance: str
    """Suffix for these times: ` (modelled for A10)`; empty where measured."""
    best: str | None = None
    """The author's program with the best rewrite in it, to take its place; null where there is
    none or it is longer than 100,000 characters: read the resource then."""
    attempts: tuple[AttemptSummary, ...]
    model: str | None = None
    """Model that proposed besides the recipes: `host:NAME` is your own model."""
    tokens: int | None = None
    """Taken of that model; estimated where it did not say."""
    notices: tuple[str, ...]
    seconds: float
    resources: tuple[str, ...]
    """What else can be read of the run, also by `read_run`."""


def add_optimizing(server: FastMCP, sessions: SessionProvider, optimize: OptimizeKernel) -> None:
    """Register the tool."""

    @server.tool(annotations=works("Optimise a CUDA kernel", idempotent=False))
    @in_thread
    @with_options
    def optimize_kernel(
        *,
        source: SourceProgram = None,
        path: ProgramPath = None,
        options: ToolOptions,
        filename: FileName = "program.cu",
        files: HeaderTexts = {},  # noqa: B006
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Optimized:
        """Profile, diagnose, rewrite and verify the most expensive kernel of a CUDA program, and
        hand back the program with the best rewrite. Takes minutes and says what it does."""
        session = sessions.current()
        program = _program(session, path, source, ProgramTexts(source or "", filename, files))
        sampling_model = host_model(context) if options.optimizer == "host" else None
        no_model = None
        if isinstance(sampling_model, str):
            sampling_model, no_model = None, sampling_model
        request = OptimizeCall(program, _runs(session), options, no_model)
        record = optimize(request, _telling(context), sampling_model)
        return _summary(record, no_model)


def _runs(session: Session) -> Path:
    if session.runs is None:
        raise InputError("this server keeps no runs; use open_program and judge_rewrite")
    return session.runs


def _program(session: Session, path: str | None, source: str | None, texts: ProgramTexts) -> Path:
    if source is not None:
        require_one("optimize_kernel", path, source)
        return session.written(texts)
    if path is not None and not session.paths:
        raise InputError(NO_PATHS.replace("open_program", "optimize_kernel"))
    return required_path("optimize_kernel", session, path)


def _telling(context: Context) -> Callable[[Event], None]:
    """Every event as progress; what ended and what was degraded as log messages too."""
    say, note = progress(context), log(context)

    def tell(event: Event) -> None:
        say(event.message)
        if event.kind in ("notice", "failed"):
            note("warning", event.message)
        elif event.kind == "finished":
            note("info", f"{event.stage}: {event.message}")

    return tell


def _summary(record: RunRecord, no_model: str | None) -> Optimized:
    words = UNMEASURED_WORDS.get(record.time_source)
    folder, shown = Path(record.options.out), record.verify
    best_path = folder / FILES["best"]
    best = best_path.read_text("utf-8") if record.best and best_path.is_file() else None
    there = [part for part, file in FILES.items() if (folder / file).is_file()]
    return Optimized(
        run_id=record.run_id,
        outcome=record.outcome,
        reason=record.reason,
        kernel=record.program.kernel if record.program else None,
        verdict=record.profile.verdict if record.profile else None,
        subtype=record.profile.subtype if record.profile else None,
        title=record.best.title if record.best else None,
        speedup=shown.speedup,
        baseline_ms=shown.baseline_kernel_ms,
        candidate_ms=shown.candidate_kernel_ms,
        provenance="" if words is None else f" ({words.format(device=record.device)})",
        best=best if best is not None and len(best) <= MAX_BEST_CHARS else None,
        attempts=tuple(
            AttemptSummary(
                iteration=attempt.iteration,
                title=attempt.title,
                proposer=attempt.proposer,
                outcome=attempt.judgement.outcome,
                reason=attempt.judgement.reason,
            )
            for attempt in record.attempts
        ),
        model=record.model.model if record.model else None,
        tokens=record.model.tokens.total if record.model else None,
        notices=record.notices if no_model is None else (no_model, *record.notices),
        seconds=record.loop_time_seconds,
        resources=tuple(f"run://{record.run_id}/{part}" for part in there),
    )


CANNOT_SAMPLE = (
    "the host's model is not used: {client} does not offer MCP sampling; recipes propose"
)
ALLOW = "allow sampling for this server in the host, or ask for optimizer=recipes"


def host_model(context: Context) -> HostModel | str:
    """The host's model, or why it cannot be asked, in one line. Call it in a tool's thread."""
    from cudaops.models.mcp_sampling import HostModel

    session = context.session
    parameters = session.client_params
    client = parameters.clientInfo.name if parameters else "this host"
    wanted = mt.ClientCapabilities(sampling=mt.SamplingCapability())
    if not session.check_client_capability(wanted):
        return CANNOT_SAMPLE.format(client=client)
    loop = anyio.from_thread.run_sync(asyncio.get_running_loop)
    request = context.request_id

    async def sampled(question: HostQuestion) -> HostAnswer:
        return await _sampled(context, question, request)

    def ask(question: HostQuestion) -> Future[HostAnswer]:
        return asyncio.run_coroutine_threadsafe(sampled(question), loop)

    return HostModel(ask=ask, client=client)


async def _sampled(context: Context, question: HostQuestion, request: str) -> HostAnswer:
    """One request. Raises ModelUnavailable where the host refuses or gives no text."""
    from cudaops.models.mcp_sampling import HostAnswer

    messages = [
        mt.SamplingMessage(role=turn.role, content=mt.TextContent(type="text", text=turn.text))
        for turn in question.turns
    ]
    try:
        answer = await context.session.create_message(
            messages,
            max_tokens=question.max_tokens,
            system_prompt=question.system or None,
            include_context="none",
            related_request_id=request,
        )
    except McpError as error:
        said = error.error.message.splitlines()[0][:200] if error.error.message else "no reason"
        raise ModelUnavailable(f"the host refused to call its model: {said}", ALLOW) from error
    if not isinstance(answer.content, mt.TextContent):
        raise ModelUnavailable(
            f"the host's model answered with {answer.content.type}, not with text", ALLOW
        )
    return HostAnswer(answer.content.text, answer.model, answer.stopReason == "maxTokens")
