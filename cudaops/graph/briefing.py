"""What prompts are made of in one run: its facts gathered once, its state at every call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudaops.agents.developer import RunView
from cudaops.cuda.devices import device
from cudaops.domain.run import RunOptions
from cudaops.graph.folder import write_whole
from cudaops.memory.run_memory import Snapshot
from cudaops.program.hygiene import ALLOWED_INCLUDES, NOT_ON_CPU
from cudaops.prompts.briefing import Briefing
from cudaops.prompts.exemplars import exemplar_for
from cudaops.prompts.expert_notes import catalogue, fired
from cudaops.prompts.sizes import count_tokens
from cudaops.recipes.registry import propose
from cudaops.sandbox.workbench import Workbench

EXEMPLAR_TOKENS = 1500
"""Longest recipe shown as the example of a rewrite. Chosen: a fifth of the 8,000 tokens that a
whole prompt may have; a longer one gives way to the short example for the verdict."""


def brief_with(
    options: RunOptions, bench: Workbench, snapshot: Snapshot
) -> Callable[[RunView], Briefing]:
    """A function from the run's state to a Briefing whose stable parts never change in a run."""
    kept = Path(options.out) / "state" / "exemplar.cu"
    memory_text = snapshot.memory_text(count=count_tokens)
    patterns_text = snapshot.patterns_text(count=count_tokens)
    includes = ALLOWED_INCLUDES
    if bench.executor.name == "cpu":
        includes -= NOT_ON_CPU

    def brief(view: RunView) -> Briefing:
        notes = fired(view.verdict, view.profile)
        return Briefing(
            program=view.program,
            kernel=view.kernel,
            workloads=view.workloads,
            device=device(bench.executor.device),
            notes_catalogue=catalogue(),
            exemplar=_exemplar(view, kept),
            memory_text=memory_text,
            patterns_text=patterns_text,
            allow_libraries=options.policy.allow_libraries,
            allow_precision=options.policy.allow_precision,
            includes=includes,
            profile=view.profile,
            verdict=view.verdict,
            research=view.research,
            notes=tuple((note.id, note.text) for note in notes),
            incumbent=view.incumbent,
            attempts=view.attempts,
            explored=view.explored,
        )

    return brief


def _exemplar(view: RunView, kept: Path) -> str:
    """The example of the run, chosen at its first prompt and found again after a kill."""
    if kept.exists():
        return kept.read_text("utf-8")
    text = _nearest(view)
    write_whole(kept, text)
    return text


def _nearest(view: RunView) -> str:
    """What the recipe that leads against the verdict writes for this very kernel, where that is
    short; else the example for the verdict."""
    written = propose(view.program, view.kernel, view.workloads, view.verdict, relieving_only=True)
    if written and count_tokens(written[0].source) <= EXEMPLAR_TOKENS:
        return written[0].source
    return exemplar_for(view.verdict).text
