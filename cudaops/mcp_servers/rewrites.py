"""Rewrites as MCP clients hand them over: a text with directives, and values of its tune names."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cudaops.cuda.devices import device
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError, PlanError
from cudaops.program.hygiene import check_source
from cudaops.program.plans import make_rewrite
from cudaops.program.whole_program import standing_beside
from cudaops.sandbox.workbench import Workbench

SourceText = Annotated[
    str,
    Field(
        description="CUDA device source, no host code. One comment for each launch: "
        "`// @launch kernel grid=(..) block=(..) args=(..)`; also `// @scratch`, `// @tune`, "
        "`// @requires`.",
        max_length=400_000,
    ),
]

TunedValues = Annotated[
    dict[str, int], Field(description="Values of the @tune names; others keep their first.")
]


def problem_of(rewrite: Rewrite, bench: Workbench) -> str | None:
    """Why no gate would let its text through: an include or an assembler directive would have the
    compiler read files of this machine."""
    policy = bench.policy
    problems = check_source(
        rewrite.source,
        allow_libraries=policy.allow_libraries,
        allow_ptx=policy.allow_ptx,
        authors=bench.authors_ptx,
        device=device(bench.executor.device),
    )
    return problems[0] if problems else None


def check_rewrite(rewrite: Rewrite, bench: Workbench) -> Rewrite:
    """Itself. Raises InputError where it has such a problem."""
    if problem := problem_of(rewrite, bench):
        raise InputError(problem)
    return rewrite


def read_rewrite(
    bench: Workbench,
    source: str,
    *,
    tuned: dict[str, int],
    proposer: str = "mcp:client",
    title: str = "rewrite",
    why: str = "",
) -> Rewrite:
    """Parse the directives of a text that is beside the author's program. Raises InputError
    with line and column where one is wrong."""
    try:
        text = standing_beside(bench.program, source)
        rewrite = make_rewrite(text, proposer=proposer, title=title, why=why)
    except PlanError as error:
        raise InputError(f"launch directive at {error}") from error
    unknown = sorted(set(tuned) - {t.name for t in rewrite.plan.tune})
    if unknown:
        raise InputError(f"{unknown[0]!r} is not a @tune name of this rewrite")
    return rewrite.tuned_with(tuned)
