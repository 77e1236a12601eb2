"""Ablation of a model's stated techniques: each is switched off alone and timed, and looked for in
the machine code."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Technique, TechniqueSignature
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.errors import InputError, PlanError
from cudaops.executors.cuda.signatures import signature_of, signatures_in
from cudaops.gates.evaluate import Screened
from cudaops.gates.object import same_device_code
from cudaops.graph.context import Context
from cudaops.program.plans import make_rewrite
from cudaops.program.techniques import StatedTechnique, stated_in

LEAST_GAIN = 1.02
"""Factor below which a technique counts as ineffective. Chosen: what two measurements of the same
kernel may differ by (`cudaops.domain.certificate`: 2 % on either side)."""


class Attribution(NamedTuple):
    """What is known of a rewrite's techniques."""

    techniques: tuple[Technique, ...] = ()
    """Those that it states; empty where it states none, or the run's time is over."""
    unseen: str = ""
    """Why they were not looked for in SASS; empty where they were."""


class _Whole(NamedTuple):
    """The author's kernel and the whole rewrite, with which each ablation is compared."""

    rewrite: Rewrite
    time_us: float | None
    author: Counter[str] | str
    own: Counter[str] | str
    """Instructions by signature, or why they are not known."""


async def attributed(evaluation: Evaluation, context: Context) -> Attribution:
    """Every technique that a rewrite states, with what it brings."""
    rewrite = evaluation.rewrite
    stated = stated_in(rewrite.source)
    if not stated or context.out_of_time() is not None:
        return Attribution()
    say = context.events.announcing("verify", "verify", title=rewrite.title)
    say(f"disabling {len(stated)} stated technique{'s' if len(stated) > 1 else ''}, each alone")
    timed = evaluation.timed
    if context.bench.models_time and timed is not None:
        whole_us: float | None = timed.candidate.median_us
    else:  # beside the others by the same clock
        whole_us = (await _screened(rewrite, context, say)).time_us
    author, own = await _instructions(None, context), await _instructions(rewrite, context)
    whole = _Whole(rewrite, whole_us, author, own)
    missing = next((known for known in (author, own) if isinstance(known, str)), "")
    unseen = f"no technique was looked for in SASS: {missing}" if missing else ""
    if unseen:
        say(unseen)
    found = []
    for one in stated:
        if context.out_of_time() is not None:
            break
        technique = await _attributed(whole, one, context, say)
        say(f"technique {technique.line}")
        found.append(technique)
    return Attribution(tuple(found), unseen)


async def _attributed(whole: _Whole, one: StatedTechnique, context: Context, say: Say) -> Technique:
    signature = _seen(whole, one, None)

    def found(**told: object) -> Technique:
        known = {"name": one.name, "says": one.says, "signature": signature, **told}
        return Technique.model_validate(known)

    rewrite = whole.rewrite
    title = f"{rewrite.title} without {one.name}"
    try:
        without = make_rewrite(one.without, rewrite.proposer, title, rewrite.why)
        without = without.tuned_with(rewrite.values())
        same = await asyncio.to_thread(same_device_code, context.bench, rewrite, without)
        if signature is not None:
            left = whole.own if same else await _instructions(without, context)
            signature = _seen(whole, one, left)
        if same:
            return found(verdict="absent")
        screened = await _screened(without, context, say)
    except (InputError, PlanError) as refused:
        return found(verdict="not_separable", detail=str(refused))
    if screened.time_us is None or whole.time_us is None:
        return found(verdict="not_separable", detail=screened.failure or "the rewrite has no time")
    factor = screened.time_us / whole.time_us
    if signature is not None and not signature.rewrite:
        return found(verdict="absent", factor=factor)
    return found(verdict="effective" if factor >= LEAST_GAIN else "ineffective", factor=factor)


async def _instructions(rewrite: Rewrite | None, context: Context) -> Counter[str] | str:
    """Of the author's kernel or a rewrite, by signature; or why they are not known."""
    bench = context.bench
    unit = bench.unit(bench.workloads[0], rewrite)
    return await asyncio.to_thread(signatures_in, bench.executor.cache, bench.sm_arch, unit)


def _seen(
    whole: _Whole, one: StatedTechnique, without: Counter[str] | str | None
) -> TechniqueSignature | None:
    """The technique's signature in the three; None where it has none, or there is no SASS."""
    known = signature_of(one.name, one.says)
    if known is None or isinstance(whole.author, str) or isinstance(whole.own, str):
        return None
    return TechniqueSignature(
        name=known.name,
        author=whole.author[known.name],
        rewrite=whole.own[known.name],
        without=without[known.name] if isinstance(without, Counter) else None,
    )


async def _screened(rewrite: Rewrite, context: Context, say: Say) -> Screened:
    """Compiled, right on the captured inputs, timed once."""
    arguments = {
        "source": rewrite.source,
        "tuned": rewrite.values(),
        "proposer": rewrite.proposer,
        "title": rewrite.title,
    }
    return await context.toolbox.call("sandbox", "screen_rewrite", Screened, arguments, say)
