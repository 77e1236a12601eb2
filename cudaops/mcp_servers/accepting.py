"""Tools that end a loop: take over what was judged, or judge one whole program against another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.mcp_servers.annotations import replaces, works
from cudaops.mcp_servers.judging import Everything, Judged, MinSpeedup, judged
from cudaops.mcp_servers.opening import KernelName, ProgramArguments
from cudaops.mcp_servers.progress import log, progress
from cudaops.mcp_servers.rewrites import read_rewrite
from cudaops.mcp_servers.session import Decision, Seat
from cudaops.mcp_servers.sources import MAX_TEXT_CHARS, HeaderTexts, ProgramTexts
from cudaops.mcp_servers.work import in_thread
from cudaops.program.patch import unified_patch
from cudaops.sandbox.stripping import program_of, strip
from cudaops.sandbox.workbench import Workbench

WholeText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]


WriteRun = Callable[[Workbench, Decision], RunRecord]
"""Keeps an accepted rewrite of a bench as a finished run."""


class Accepted(Record):
    """The author's program with the rewrite in it. Nothing of the user's was changed."""

    rewrite_id: str
    outcome: Literal["accepted", "provisional"]
    """`provisional`: the time is modelled; `cudaops confirm RUN` decides on a GPU."""
    title: str
    speedup: float | None
    provenance: str
    """What must stand behind the speedup: ` (modelled for A10)`; empty where measured."""
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


def add_accepting(server: FastMCP, seat: Seat, write_run: WriteRun | None) -> None:
    """Register the tools."""

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
        opened = seat.current().opened
        decision = _accepted(opened.decided, rewrite_id)
        kept = None if write_run is None else write_run(opened.bench, decision)
        return _handed_back(opened.bench, decision, kept)

    @server.tool(annotations=replaces("Verify a program against another"))
    @in_thread
    def verify_programs(
        baseline: Annotated[
            WholeText, Field(description="The program to match: its whole text, with a main().")
        ],
        candidate: Annotated[
            WholeText,
            Field(description="The same with another kernel, or device source with @launch lines."),
        ],
        kernel: KernelName = None,
        arguments: ProgramArguments = (),
        files: HeaderTexts = {},  # noqa: B006
        min_speedup: MinSpeedup = None,
        everything: Everything = False,
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Judged:
        """Judge one program's kernel against another's: same function, same precision, faster.
        The baseline becomes the open program."""
        session = seat.current()
        texts = ProgramTexts(baseline, "baseline.cu", files)
        opened = session.open_text(texts, kernel, arguments)
        rewrite = _candidate(opened.bench, candidate)
        say, note = progress(context), log(context)
        return judged(opened, rewrite, min_speedup, say, note, everything=everything)


def _accepted(decided: Mapping[str, Decision], rewrite_id: str) -> Decision:
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


def _candidate(bench: Workbench, text: str) -> Rewrite:
    if "@launch" in text:
        return read_rewrite(text, tuned={}, title="candidate", why="given by the host")
    return strip(bench, program_of(text), strangers=True).rewrite


def _handed_back(bench: Workbench, decision: Decision, kept: RunRecord | None) -> Accepted:
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
