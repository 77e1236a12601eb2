"""The optimizer as a search: rounds of branches, the best of which is put to the judge."""

from __future__ import annotations

from cudaops.domain.profile import Verdict
from cudaops.errors import ModelUnavailable
from cudaops.graph.branches import Search, known_texts, search_of
from cudaops.graph.context import Context
from cudaops.graph.search_step import Step
from cudaops.graph.state import State
from cudaops.recipes.registry import propose


async def seed(state: State, context: Context) -> tuple[State, str]:
    """Begin a search: recipes' proposals, and hypotheses where there is a developer."""
    late = context.out_of_time()
    if late is not None:
        return {"proposal": None, "reason": late}, late
    bench, verdict = context.bench, Verdict.model_validate(state["verdict"])
    favour = context.memory.snapshot.ranking(verdict.subtype) if context.memory else None
    recipes = propose(
        bench.program,
        bench.kernel,
        bench.workloads,
        verdict,
        known_texts(state),
        relieving_only=state.get("incumbent") is not None,
        favour=favour,
    )
    begun = Search(number=search_of(state).number + 1, recipes=recipes)
    step = Step(state, context, begun)
    await step.plan(context.options.search.width, step.scope)
    if await step.next_round():
        return step.update()
    nothing = "nothing new to try" if state.get("attempts") else "nobody has a proposal"
    return step.update(context.out_of_time() or nothing)


async def gather(state: State, context: Context) -> tuple[State, str]:
    """What the branches came to: another round, or the best one to the judge, the next best after
    a rejection."""
    step = Step(state, context, search_of(state))
    late = context.out_of_time()
    gone = next((e.unavailable for e in step.explored if e.unavailable is not None), None)
    if gone is not None and step.can_write:
        step.lose_model(ModelUnavailable(*gone))
    if late is not None and step.search.stop is None:
        step.over(late)
    if step.search.stop is None and await step.next_round():
        return step.update()
    if late is not None and step.search.judged:
        return step.update(late)
    return step.put_forward()
