"""Ablation of a model's stated techniques: each is switched off alone and timed."""

from __future__ import annotations

import asyncio

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Technique
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.errors import InputError, PlanError
from cudaops.gates.evaluate import Screened
from cudaops.gates.object import same_device_code
from cudaops.graph.context import Context
from cudaops.program.plans import make_rewrite
from cudaops.program.techniques import StatedTechnique, stated_in

LEAST_GAIN = 1.02
"""Factor below which a technique counts as ineffective. Chosen: what two measurements of the same
kernel may differ by (`cudaops.domain.certificate`: 2 % on either side)."""


async def attributed(evaluation: Evaluation, context: Context) -> tuple[Technique, ...]:
    """Every technique that a rewrite states, with what it brings. Empty where it states none, or
    the run's time is over."""
    rewrite = evaluation.rewrite
    stated = stated_in(rewrite.source)
    if not stated or context.out_of_time() is not None:
        return ()
    say = context.events.announcing("verify", "verify", title=rewrite.title)
    say(f"disabling {len(stated)} stated technique{'s' if len(stated) > 1 else ''}, each alone")
    timed = evaluation.timed
    if context.bench.models_time and timed is not None:
        whole_us: float | None = timed.candidate.median_us
    else:  # beside the others by the same clock
        whole_us = (await _screened(rewrite, context, say)).time_us
    found = []
    for one in stated:
        if context.out_of_time() is not None:
            break
        technique = await _attributed(rewrite, one, whole_us, context, say)
        say(f"technique {technique.line}")
        found.append(technique)
    return tuple(found)


async def _attributed(
    rewrite: Rewrite, one: StatedTechnique, whole_us: float | None, context: Context, say: Say
) -> Technique:
    def found(**told: object) -> Technique:
        return Technique.model_validate({"name": one.name, "says": one.says, **told})

    title = f"{rewrite.title} without {one.name}"
    try:
        without = make_rewrite(one.without, rewrite.proposer, title, rewrite.why)
        without = without.tuned_with(rewrite.values())
        same = await asyncio.to_thread(same_device_code, context.bench, rewrite, without)
        if same:
            return found(verdict="absent")
        screened = await _screened(without, context, say)
    except (InputError, PlanError) as refused:
        return found(verdict="not_separable", detail=str(refused))
    if screened.time_us is None or whole_us is None:
        return found(verdict="not_separable", detail=screened.failure or "the rewrite has no time")
    factor = screened.time_us / whole_us
    return found(verdict="effective" if factor >= LEAST_GAIN else "ineffective", factor=factor)


async def _screened(rewrite: Rewrite, context: Context, say: Say) -> Screened:
    """Compiled, right on the captured inputs, timed once."""
    arguments = {
        "source": rewrite.source,
        "tuned": rewrite.values(),
        "proposer": rewrite.proposer,
        "title": rewrite.title,
    }
    return await context.toolbox.call("sandbox", "screen_rewrite", Screened, arguments, say)
