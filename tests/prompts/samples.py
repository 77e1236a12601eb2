"""A briefing about examples/naive_matmul.cu from the H200 capture, and attempts made up for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cudaops.agents.llm_developer import TOOL_CALLS
from cudaops.cuda.devices import device
from cudaops.cuda.ncu_pages import merged, parse_details, parse_raw
from cudaops.cuda.verdict import diagnose
from cudaops.domain.base import Dim3
from cudaops.domain.execution import TimeSource
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.judgement import Attempt, Gate, GateName, Judgement, Policy
from cudaops.domain.options import ProgramRun
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Citation, ResearchFindings, ValueSummary
from cudaops.domain.workload import Allocation, Element, PointerArgument, ScalarArgument, Workload
from cudaops.program.analysis.summary import summarise
from cudaops.program.parse import load_program
from cudaops.prompts.exemplars import exemplar_for, read_exemplar
from cudaops.prompts.expert_notes import bearing, catalogue
from cudaops.prompts.roles import Briefing, Judging
from cudaops.rag.notes import builtin_notes
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.transformations.registry import TRANSFORMATIONS

ROOT = Path(__file__).parents[2]
NCU = ROOT / "tests" / "data" / "ncu"
F32: Element = "f32"


@cache
def program() -> Program:
    return load_program(ROOT / "examples" / "naive_matmul.cu")


def kernel() -> Kernel:
    return program().kernel("naive_matmul")


def workload() -> Workload:
    """The one launch of the example, as a capture describes it."""
    size = 4 * 1024 * 1024
    return Workload(
        id="w0", kernel="naive_matmul", callee="naive_matmul", site=0,
        grid=Dim3(x=64, y=64), block=Dim3(x=16, y=16),
        arguments=(
            *(PointerArgument(name=n, element=F32, allocation=i) for i, n in enumerate("ABC")),
            ScalarArgument(name="N", element="i32", value=1024),
        ),
        allocations=tuple(
            Allocation(index=i, size_bytes=size, element=F32, role="out" if i == 2 else "in",
                       before=f"{i}.before", after=f"{i}.after")
            for i in range(3)
        ),
        launches=23, l2_regime="warm", folder="",
    )  # fmt: skip


@cache
def captured(name: str = "naive") -> tuple[Profile, Verdict]:
    """Profile and verdict of a capture in tests/data/ncu: `naive` or `regtiled`."""
    pages = [
        (NCU / f"h200_{name}_matmul_1024.{page}.csv").read_text("utf-8")
        for page in ("details", "raw")
    ]
    (launch,) = merged(parse_details(pages[0]), parse_raw(pages[1]))
    return launch.profile, diagnose(launch.profile, device(launch.profile.device))


@cache
def findings() -> ResearchFindings:
    """Passages of two notes of the corpus, as a search would give them."""
    notes = {note.id: note for note in builtin_notes()}
    citations = [
        Citation(note=i, title=notes[i].title, heading=chunk.heading, text=chunk.body,
                 source=notes[i].sources[0], score=0.5)
        for i in ("l1-load-throughput", "technique-register-tiling")
        for chunk in notes[i].chunks()[:2]
    ]  # fmt: skip
    return ResearchFindings(query="l1 load throughput", summary="", citations=tuple(citations))


@cache
def first() -> Briefing:
    """Before anything was tried."""
    profile, verdict = captured()
    accesses = summarise(program(), kernel(), (workload(),))
    nearest = exemplar_for(verdict, accesses)
    assert nearest is not None
    return Briefing(
        program=program(), kernel=kernel(), workloads=(workload(),), device=device("H200"),
        accesses=accesses, tool_calls=TOOL_CALLS,
        notes_catalogue=catalogue(), exemplar=nearest.text,
        profile=profile, verdict=verdict, research=findings(),
        notes=tuple((note.id, note.text) for note in bearing(verdict, profile)),
        transformations=tuple(one.name for one in TRANSFORMATIONS),
        judging=Judging("cuda_event", (ProgramRun(),), (("w0", 415.3, 1.0),), Policy()),
        values=tuple(
            ValueSummary(workload="w0", allocation=i, elements=1 << 20, looked_at=1 << 20,
                         least=0.0, greatest=1.0, zero_share=0.0)
            for i in range(2)
        ),
        bar=Policy().min_speedup,
    )  # fmt: skip


def after_failures() -> Briefing:
    """When three attempts have failed, each at another gate."""
    return first()._replace(attempts=FAILED)


def with_incumbent() -> Briefing:
    """When a recipe's rewrite was kept after them: its source, another profile and verdict."""
    profile, verdict = captured("regtiled")
    kept = attempt(
        4, "shared-memory and register tiling", "speedup", "4.34x measured, at least 4.2x",
        outcome="accepted", times=(415.3, 95.7), rewrite=incumbent(),
    )  # fmt: skip
    return first()._replace(
        attempts=(*FAILED, kept), incumbent=incumbent(), profile=profile, verdict=verdict,
        notes=tuple((note.id, note.text) for note in bearing(verdict, profile)),
        bar=4.34 * 1.02, author=captured()[0],
    )  # fmt: skip


@cache
def incumbent() -> Rewrite:
    (proposed,) = MatmulRecipe().propose(program(), kernel(), (workload(),), None)
    return proposed


def attempt(
    iteration: int,
    title: str,
    gate: GateName,
    reason: str,
    *,
    outcome: str = "rejected",
    times: tuple[float, float] | None = None,
    tuned: dict[str, int] | None = None,
    family: str | None = "tiling",
    lesson: str | None = None,
    rewrite: Rewrite | None = None,
) -> Attempt:
    """One attempt that ended at `gate`; `times`: the author's and its own, microseconds."""
    source: TimeSource | None = "cuda_event" if times else None
    judgement = Judgement.model_validate({
        "outcome": outcome, "reason": reason, "time_source": source,
        "gates": (Gate(name=gate, passed=outcome != "rejected", summary=reason),),
        "speedup": times[0] / times[1] if times else None,
    })  # fmt: skip
    return Attempt(
        iteration=iteration,
        rewrite_id=rewrite.id if rewrite else f"{iteration:012x}",
        source_id=rewrite.source_id if rewrite else f"{iteration:012x}",
        title=title, proposer="llm:sample", family=family, tuned=tuned or {}, judgement=judgement,
        baseline_us=times[0] if times else None, candidate_us=times[1] if times else None,
        lesson=lesson or f"do not repeat {title}: {reason}",
    )  # fmt: skip


FAILED = (
    attempt(1, "shared-memory tiles with vector loads", "compile",
            "compile: candidate.cu:14: error: identifier \"float5\" is undefined",
            tuned={"TILE": 32}),
    attempt(2, "tiles without edge guards", "correctness_captured",
            "correctness_captured: w0 C: relative L2 error 3.1e-01, at most 1.2e-06 allowed",
            tuned={"TILE": 32}, lesson="the barrier before the next tile's loads was missing"),
    attempt(3, "one output a thread, four loads ahead", "speedup", "0.93x is below the bar of 1.2x",
            times=(415.3, 446.6), tuned={"BLOCK": 256}, family="unrolling"),
)  # fmt: skip

HYPOTHESIS = Hypothesis(
    family="tiling",
    title="register tiling over shared tiles",
    why="L1/TEX is at 97 % while DRAM idles: the same values are loaded again and again",
    steps=(
        "64x64 outputs a block from 64x16 and 16x64 tiles in shared memory",
        "4x4 outputs a thread in registers",
        "fill edges with zeros",
    ),
    expected_speedup=4.0,
)
WORKING = (
    read_exemplar("tiled_product")
    .text.replace(", for mm(const float* A, const float* B, float* C, int M, int N, int K)", "")
    .replace("ceil_div(M, BM)", "ceil_div(N, BM)")
    .replace("args=(A, B, C, M, N, K)", "args=(A, B, C, N, N, N)")
)
"""A candidate for this kernel."""
BROKEN = WORKING.replace("float left[TM]", "float5 left[TM]")
"""One that does not compile, for the fixer."""
PROBLEM = 'candidate.cu:32:13: identifier "float5" is undefined'
LOG = (
    'candidate.cu(32): error: identifier "float5" is undefined\n'
    "              float5 left[TM], right[TN];\n"
    "              ^\n\n"
    '1 error detected in the compilation of "candidate.cu".\n'
)
