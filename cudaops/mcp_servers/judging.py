"""Tools that decide: judge a rewrite, accept what was judged, judge one program against another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import CompileFailed, Misbehaved
from cudaops.domain.judge import mean_times_us
from cudaops.domain.judgement import Judgement
from cudaops.domain.options import KernelOptions
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunRecord, Say
from cudaops.errors import InputError
from cudaops.gates.handed_in import HandedIn, evaluated
from cudaops.mcp_servers.calls import Level, in_thread, log, progress, replaces, with_options, works
from cudaops.mcp_servers.opening import RaisedBarOptions
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, read_rewrite
from cudaops.mcp_servers.sessions import (
    MAX_TEXT_CHARS,
    HeaderTexts,
    JudgedRewrite,
    OpenBench,
    ProgramTexts,
    SessionProvider,
)
from cudaops.program.patch import unified_patch
from cudaops.sandbox.stripping import program_of, strip
from cudaops.sandbox.workbench import Workbench


class ToolVerifyOptions(KernelOptions, RaisedBarOptions):
    """What a host may ask of a verification."""


MinSpeedup = Annotated[
    float | None, Field(gt=0, description="Threshold; null keeps the run's. It can only be raised.")
]
Everything = Annotated[
    bool,
    Field(
        description="Also every sample, the candidate's profile and all the gates saw: up to some "
        "hundred thousand characters, more than a host shows its model."
    ),
]
WholeText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]

WriteRun = Callable[[Workbench, JudgedRewrite], RunRecord]
"""Keeps an accepted rewrite of a bench as a finished run."""


class RewriteDecision(Record):
    """The decision about a rewrite, with its evidence."""

    rewrite_id: str
    """What `accept_rewrite` knows the rewrite by, with these tune values."""
    judgement: Judgement
    baseline_us: float | None = None
    """Time of a launch of the author's kernel, mean over all timed launches; None: none was
    taken."""
    candidate_us: float | None = None
    """The rewrite's over the same: their ratio is the speedup."""
    provenance: str = ""
    """The qualifier of each time: ` (modelled for A10)`."""
    oracle: str = ""
    """How many mutants of the results the comparison rejects, and what it cannot detect;
    empty where no results were compared."""
    failure: CompileFailed | Misbehaved | None = None
    """What the rewrite did wrong, where a gate failed because of it."""
    notices: tuple[str, ...] = ()
    """Of a whole program: what of it was judged and what was not."""
    evaluation: Evaluation | None = None
    """All of it, where `everything` was asked for."""


class Accepted(Record):
    """The author's program with the rewrite in it. Nothing of the user's was changed."""

    rewrite_id: str
    outcome: Literal["accepted", "provisional"]
    """`provisional`: the time is modelled; `cudaops confirm RUN` decides on a GPU."""
    title: str
    speedup: float | None
    provenance: str
    """The qualifier of the speedup: ` (modelled for A10)`; empty where measured."""
    filename: str
    best: str
    """The main file, whole, to take the place of the author's."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Local headers that changed: path to text."""
    patch: str
    """The same as a unified diff."""
    run_id: str | None = None
    """Of the run kept with it: `read_run(run_id, part="certificate")`; null where none is kept."""
    notices: tuple[str, ...] = ()


def add_judging(server: FastMCP, sessions: SessionProvider, write_run: WriteRun | None) -> None:
    """Register the tools."""

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
    ) -> RewriteDecision:
        """Compile, verify and time a rewrite through every gate, and decide."""
        program, say, note = sessions.current().open_bench, progress(context), log(context)
        bench = program.bench
        rewrite = read_rewrite(bench, source, tuned=tuned, proposer=proposer, title=title, why=why)
        return _judge(program, rewrite, min_speedup, say, note, everything=everything)

    @server.tool(annotations=works("Accept a judged rewrite"))
    @in_thread
    def accept_rewrite(
        rewrite_id: Annotated[
            str, Field(min_length=1, description="`rewrite_id` of judge_rewrite's answer.")
        ],
    ) -> Accepted:
        """Put a rewrite that judge_rewrite found accepted or provisional into the author's
        program: the whole new file, a patch, a run with its certificate. Writes nothing of the
        user's."""
        program = sessions.current().open_bench
        decision = _acceptable(program.decided, rewrite_id)
        kept = None if write_run is None else write_run(program.bench, decision)
        return _accepted_program(program.bench, decision, kept)

    @server.tool(annotations=replaces("Verify a program against another"))
    @in_thread
    @with_options
    def verify_programs(
        baseline: Annotated[
            WholeText, Field(description="The program to match: its whole text, with a main().")
        ],
        candidate: Annotated[
            WholeText,
            Field(description="The rewritten program, or device source with @launch lines."),
        ],
        *,
        options: ToolVerifyOptions,
        files: HeaderTexts = {},  # noqa: B006
        everything: Everything = False,
        context: Context = CurrentContext(),  # noqa: B008
    ) -> RewriteDecision:
        """Judge one program's kernel against another's: same function, same precision, faster.
        The baseline becomes the open program."""
        session = sessions.current()
        texts = ProgramTexts(baseline, "baseline.cu", files)
        program = session.open_text(texts, options)
        rewrite, given = _candidate(program.bench, candidate)
        bar, say, note = options.min_speedup, progress(context), log(context)
        return _judge(program, rewrite, bar, say, note, given=given, everything=everything)


def _judge(
    program: OpenBench,
    rewrite: Rewrite,
    min_speedup: float | None,
    say: Say,
    note: Callable[[Level, str], None],
    *,
    given: HandedIn | None = None,
    everything: bool,
) -> RewriteDecision:
    """Evaluate and decide, and keep the decision. The bar can be raised by a client, never
    lowered. `given`: the program that the rewrite was taken from."""
    bench, decided = program
    policy = bench.policy
    if min_speedup is not None:
        policy = policy.model_copy(update={"min_speedup": max(min_speedup, policy.min_speedup)})
    # Where a person is to decide, that comes after this.
    unreviewed = policy.model_copy(update={"review": False})
    evaluation, notices = evaluated(bench, rewrite, given, unreviewed, say)
    judgement = evaluation.judged(unreviewed)
    rewrite = evaluation.rewrite
    decided[rewrite.id] = JudgedRewrite(evaluation, judgement)
    note("info", f"{rewrite.title}: {judgement.outcome}, {judgement.reason}")
    timed = evaluation.timed
    baseline_us, candidate_us = mean_times_us(evaluation.decisive) if timed else (None, None)
    return RewriteDecision(
        rewrite_id=rewrite.id,
        judgement=judgement,
        baseline_us=baseline_us,
        candidate_us=candidate_us,
        provenance=timed.candidate.provenance if timed else "",
        oracle=evaluation.qualification.line if evaluation.qualification else "",
        failure=evaluation.failure,
        notices=tuple(notices),
        evaluation=evaluation if everything else None,
    )


def _acceptable(decided: Mapping[str, JudgedRewrite], rewrite_id: str) -> JudgedRewrite:
    decision = decided.get(rewrite_id)
    if decision is None:
        known = ", ".join(decided) or "none yet"
        raise InputError(
            f"no rewrite {rewrite_id[:40]!r} of the open program was judged in this session "
            f"(judged: {known}); call judge_rewrite with its source first and give the "
            "`rewrite_id` that it answers with"
        )
    if decision.judgement.outcome == "rejected":
        raise InputError(
            f"{rewrite_id} was rejected: {decision.judgement.reason}; change the rewrite and have "
            "it judged again, only what is accepted or provisional can be taken over"
        )
    return decision


def _candidate(bench: Workbench, text: str) -> tuple[Rewrite, HandedIn | None]:
    """The rewrite, and the program whose kernels it has."""
    if "@launch" in text:
        return read_rewrite(bench, text, tuned={}, title="candidate", why="given by the host"), None
    program = program_of(text)
    stripped = strip(bench, program, strangers=True)
    return stripped.rewrite, HandedIn("the candidate", program, stripped)


def _accepted_program(
    bench: Workbench, decision: JudgedRewrite, kept: RunRecord | None
) -> Accepted:
    rewrite, judgement = decision.evaluation.rewrite, decision.judgement
    assert judgement.outcome != "rejected"
    spliced = bench.spliced(rewrite)
    before = {file.path: file.text for file in bench.program.files}
    changed = {f.path: f.text for f in spliced.files if before.get(f.path) != f.text}
    best = changed.pop(spliced.main_path, spliced.main.text)
    timed = decision.evaluation.timed
    return Accepted(
        rewrite_id=rewrite.id,
        outcome=judgement.outcome,
        title=rewrite.title,
        speedup=judgement.speedup,
        provenance=timed.candidate.provenance if timed else "",
        filename=spliced.main_path,
        best=best,
        headers=changed,
        patch=unified_patch(bench.program, spliced),
        run_id=None if kept is None else kept.run_id,
        notices=() if kept is None else kept.notices,
    )
