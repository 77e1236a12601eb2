"""Prompts that a host may offer its user: drive the loop, explain a verdict, review a rewrite."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

from fastmcp import FastMCP
from pydantic import Field

LOOP = """Make the CUDA kernel in {program} faster, using the cudaops tools only for what you claim.

1. open_program({argument}{kernel}). It runs the program once and captures the kernel's launches.
2. profile_kernel(). Read `verdict`: subtype, evidence, relief. A time that is marked as modelled
   was computed, not measured: say so whenever you quote it.
3. search_knowledge(query=<the relief in your words>, subtype=<the subtype>) and read_expert_note.
4. propose_rewrites() and search_transformations(subtype=<the subtype>) for what cudaops itself
   finds; or write device source with `// @launch`.
5. compile_rewrite, then tune_rewrite where there are `// @tune` names, then screen_rewrite.
6. judge_rewrite(source, tuned, title, why). It alone decides: a gate that fails says what is wrong.
   Rejected: learn from the gate's line, do not repeat the attempt, go to 4.
7. accept_rewrite(rewrite_id) for the best of those accepted or provisional. Show the patch, the
   speedup with its provenance, and what `provisional` means, and let the user apply it.

Stop after {iterations} judged rewrites, or when nothing is left that the verdict calls for."""

EXPLAIN = """Explain to {reader} what limits the open CUDA kernel.

Call profile_kernel() first{note}. Then: one sentence that says what limits it; the evidence as
metric, value and threshold (explain_metric where a name is unclear; the rules are in
cudaops://verdict-rules); which source lines cost most; and what would relieve it, most promising
first. Say for every number whether it is measured or modelled. Claim nothing the metrics do not
show."""

REVIEW = """Review this rewrite of the open CUDA kernel before a person lets it into a program.

Call judge_rewrite with it and read every gate. Then say: what it changes and why that relieves the
verdict; for which sizes it holds (`@requires`, edges of tiles); where precision or determinism may
differ; and what a maintainer must know. End with: take it, take it with changes, or leave it, and
the gate or number that decides.

```cuda
{source}
```"""


def skill_text() -> str:
    """The skill document, for hosts that read one."""
    return files("cudaops.mcp_servers").joinpath("skill", "SKILL.md").read_text("utf-8")


def add_loop(server: FastMCP) -> None:
    """Register the prompt that needs the tools of every server, and the skill document."""

    @server.resource("cudaops://skill", mime_type="text/markdown", title="How to use cudaops")
    def skill() -> str:
        """How an agent uses these tools, on one page."""
        return skill_text()

    @server.prompt(title="Make a CUDA kernel faster")
    def optimize(
        program: Annotated[str, Field(description="Path or name of the .cu file.")],
        kernel: Annotated[str, Field(description="Kernel; empty: the one with most time.")] = "",
        iterations: Annotated[str, Field(description="Maximum number of judged rewrites.")] = "4",
    ) -> str:
        """Drive the whole loop by tools: profile, search, propose, verify, accept."""
        return LOOP.format(
            program=program,
            argument=f'path="{program}"' if program.endswith(".cu") else "source=<its text>",
            kernel=f', kernel="{kernel}"' if kernel else "",
            iterations=iterations,
        )


def add_explaining(server: FastMCP) -> None:
    """Register the prompt for a profile."""

    @server.prompt(title="Explain what limits the kernel")
    def explain_verdict(
        reader: Annotated[str, Field(description="Audience.")] = "the kernel's author",
        subtype: Annotated[str, Field(description="The verdict's subtype, if known.")] = "",
    ) -> str:
        """Say what limits the open kernel, with the evidence."""
        note = f", and search_knowledge with subtype={subtype!r}" if subtype else ""
        return EXPLAIN.format(reader=reader, note=note)


def add_reviewing(server: FastMCP) -> None:
    """Register the prompt for a rewrite."""

    @server.prompt(title="Review a rewrite")
    def review_rewrite(
        source: Annotated[str, Field(description="Device source with @launch directives.")],
    ) -> str:
        """Judge a rewrite and say whether a maintainer should take it."""
        return REVIEW.format(source=source)
