"""Makes the steps' memory instructions add up to what the trace saw, site by site.
 The steps come from one build's IL, the counts from another's run. Where a statement found no site,
or shares one with another, the trace is right and the steps are corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cudaops.cuda.work import Phase, Site, Step, Stretch, Use

LOADS_A_STEP = 8.0
"""How instructions whose place in the code is not known are bundled."""


def balanced(phases: Sequence[Phase], sites: Sequence[Site], warps: int) -> list[Phase]:
    """The same phases with every site's instructions scaled to the traced number; what no step has
    is added to the phase with the most work."""
    used = [0.0] * len(sites)
    for phase in phases:
        for stretch in phase.stretches:
            times = phase.times * stretch.repeats * stretch.warps * warps
            for step in stretch.steps:
                for use in (*step.loads, *step.stores):
                    used[use.site] += times * use.instructions
    factors = [
        site.instructions_per_block / done if done > 0 else 1.0
        for site, done in zip(sites, used, strict=True)
    ]
    scaled = [_scaled(phase, lambda use: use.instructions * factors[use.site]) for phase in phases]
    missing = [
        i for i, done in enumerate(used) if done == 0 and sites[i].instructions_per_block > 0
    ]
    return _with_missing(scaled, sites, missing, warps)


def _scaled(phase: Phase, value: Callable[[Use], float]) -> Phase:
    def step(s: Step) -> Step:
        return replace(
            s,
            loads=tuple(Use(u.site, value(u)) for u in s.loads),
            stores=tuple(Use(u.site, value(u)) for u in s.stores),
        )

    stretches = tuple(replace(s, steps=tuple(step(x) for x in s.steps)) for s in phase.stretches)
    return replace(phase, stretches=stretches)


def _with_missing(
    phases: list[Phase], sites: Sequence[Site], missing: Sequence[int], warps: int
) -> list[Phase]:
    if not missing:
        return phases
    if not phases:
        phases = [Phase((), 1.0, False)]
    heaviest = max(range(len(phases)), key=lambda i: phases[i].times * len(phases[i].stretches))
    phase = phases[heaviest]
    added = []
    for index in missing:
        each = sites[index].instructions_per_block / warps / phase.times
        bundle = min(each, LOADS_A_STEP)
        use = (Use(index, bundle),)
        step = (
            Step(stores=use)
            if sites[index].write
            else Step(loads=use, needs=(int(sites[index].space == "global"),))
        )
        added.append(Stretch((step,), each / bundle))
    phases[heaviest] = replace(phase, stretches=(*phase.stretches, *added))
    return phases
