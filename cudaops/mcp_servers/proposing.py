"""Tools for a host that drives the loop itself: ideas for a verdict, and a time beside the
author's that decides nothing."""

from __future__ import annotations

from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, Misbehaved
from cudaops.domain.judge import weighted_speedup
from cudaops.domain.judgement import Comparison
from cudaops.domain.profile import Profile
from cudaops.domain.progress import Say
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.mcp_servers.annotations import works
from cudaops.mcp_servers.progress import progress
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, read_rewrite
from cudaops.mcp_servers.session import Seat
from cudaops.mcp_servers.work import in_thread
from cudaops.prompts.expert_notes import fired
from cudaops.recipes.registry import family_of, propose
from cudaops.sandbox.evaluate import Evaluating
from cudaops.sandbox.workbench import Workbench


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
    """What must stand behind any of these numbers: ` (modelled for A10)`; empty where measured."""
    comparisons: tuple[Comparison, ...] = ()
    failure: str | None = None
    """Why there is no time."""


def add_proposing(server: FastMCP, seat: Seat) -> None:
    """Register the tools."""

    @server.tool(annotations=works("Propose rewrites"))
    @in_thread
    def propose_rewrites(
        limit: Annotated[int, Field(ge=1, le=10, description="Most rewrites wanted.")] = 3,
        relieving_only: Annotated[
            bool, Field(description="Leave out what is no remedy for the verdict.")
        ] = False,
    ) -> Proposals:
        """Rewrites of the open program's kernel that cudaops knows against what limits it, ready
        to be tuned and judged, and the notes to read before writing another."""
        return _proposals(seat.current().bench, limit, relieving_only)

    @server.tool(annotations=works("Time a rewrite"))
    @in_thread
    def benchmark_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        context: Context = CurrentContext(),  # noqa: B008
    ) -> Benchmarked:
        """Time a rewrite beside the author's kernel on every workload. Its results are not looked
        at, so a wrong rewrite may seem fast: only judge_rewrite decides."""
        bench = seat.current().bench
        rewrite = read_rewrite(source, tuned=tuned)
        return _benchmarked(bench, rewrite, progress(context))


def _proposals(bench: Workbench, limit: int, relieving_only: bool) -> Proposals:
    profile = bench.profile(None)
    if not isinstance(profile, Profile):
        raise InputError(profile.placed)
    verdict = diagnose(profile, device(profile.device))
    found = propose(
        bench.program, bench.kernel, bench.workloads, verdict, relieving_only=relieving_only
    )
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


def _benchmarked(bench: Workbench, rewrite: Rewrite, say: Say) -> Benchmarked:
    looking = Evaluating(bench, rewrite, say)
    if looking.built() is None:
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
