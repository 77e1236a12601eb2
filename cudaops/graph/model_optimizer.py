"""The optimizer where a model writes: which hypothesis is next, and what of it can be tested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cudaops.agents.developer import RunView, Written
from cudaops.agents.llm_developer import ModelDeveloper
from cudaops.agents.optimizer import search_transformations
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.judgement import Attempt, GateName
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import ModelUnavailable
from cudaops.graph.context import Context, view_of
from cudaops.graph.state import Json, State

PLANNED = 3
"""Hypotheses asked for at once: one to write, and others where nothing usable comes of it."""
GATE_REPAIRS = 1
"""How often a rewrite that a gate refused goes back to the model before the next hypothesis."""

REPAIRABLE: frozenset[GateName] = frozenset(
    {
        "hygiene", "preprocessed", "object", "checker", "correctness_captured",
        "correctness_exact", "correctness_perturbed", "repeat", "unchanged_inputs",
        "correctness_domain",
    }
)  # fmt: skip
"""Gates that say what is wrong with a text. One that is only too slow needs another hypothesis."""


class Next(NamedTuple):
    """What the model gives to be tested, and what the state keeps of it."""

    rewrite: Rewrite | None
    update: State
    problem: str | None = None
    """Why there is no rewrite."""
    nothing: str = ""
    """Why the planner says, after something was judged, that nothing more is worth trying."""


async def next_rewrite(state: State, context: Context, developer: ModelDeveloper) -> Next:
    """The refused rewrite fixed, or the next hypothesis written; plans where none is left.

    Raises ModelUnavailable where the model is out of reach or its money is spent.
    """
    view, scope = view_of(state, context), scope_of(state)
    refused = _to_repair(state)
    if refused is not None:
        hypothesis = Hypothesis.model_validate(state["hypothesis"])
        rewrite = Rewrite.model_validate(state["evaluation"]["rewrite"])
        written = await developer.mend(view, hypothesis, rewrite, refused, scope)
        if written.rewrite is not None:
            waiting = state.get("hypotheses", [])
            return _to_test(written.rewrite, hypothesis, waiting, state.get("mends", 0) + 1)
        context.events.emit("optimizer", "optimizer", "notice", str(written.problem))
    return await _next_hypothesis(state, context, developer, view, scope)


def scope_of(state: State) -> str:
    """Name of the present iteration in the journal of calls."""
    return f"{len(state.get('attempts', [])) + 1:02d}"


async def _next_hypothesis(
    state: State, context: Context, developer: ModelDeveloper, view: RunView, scope: str
) -> Next:
    """The first hypothesis of which anything usable was written; planned anew after every
    judgement, which may have disproved what was planned before."""
    waiting = [Hypothesis.model_validate(h) for h in state.get("hypotheses", [])]
    problem, judged = "the planner has no usable hypothesis", len(state.get("attempts", []))
    if not waiting or state.get("planned_at", 0) != judged:
        plan = await developer.plan(view._replace(waiting=tuple(waiting)), PLANNED, scope)
        announce_plan(context, "optimizer", plan.hypotheses)
        if plan.nothing:
            nothing = plan.nothing if judged else ""
            update: State = {"hypotheses": [], "hypothesis": None}
            return Next(None, update, f"no hypothesis: {plan.nothing}", nothing)
        waiting = list(plan.hypotheses) or waiting
    while waiting:
        hypothesis = waiting.pop(0)
        written = await _written(view, context, developer, hypothesis, scope)
        if written.rewrite is not None:
            left = [h.model_dump(mode="json") for h in waiting]
            given = _to_test(written.rewrite, hypothesis, left, 0)
            return given._replace(update={**given.update, "planned_at": judged})
        problem = f"{hypothesis.title}: {written.problem}"
        context.events.emit("optimizer", "optimizer", "notice", problem)
    return Next(None, {"hypotheses": [], "hypothesis": None}, problem)


async def _written(
    view: RunView, context: Context, developer: ModelDeveloper, hypothesis: Hypothesis, scope: str
) -> Written:
    """The hypothesis as a rewrite: by a coder, or by the transformation that it names."""
    if not hypothesis.transformation:
        return await developer.write(view, hypothesis, scope)
    say = context.events.announcing("optimizer", "optimizer", title=hypothesis.title)
    searched = await search_transformations(
        context.toolbox,
        view.incumbent,
        view.verdict.subtype,
        context.search_limits,
        say,
        (hypothesis.transformation,),
    )
    tried = {attempt.source_id for attempt in view.attempts}
    found = next((x for x in searched.found if x.rewrite.source_id not in tried), None)
    if found is not None:
        return Written(found.rewrite, hypothesis.family)
    why = f"{hypothesis.transformation} makes it no faster ({searched.stopped})"
    return Written(None, hypothesis.family, why)


def _to_test(rewrite: Rewrite, hypothesis: Hypothesis, waiting: list[Json], mends: int) -> Next:
    update: State = {
        "hypotheses": waiting,
        "hypothesis": hypothesis.model_dump(mode="json"),
        "mends": mends,
    }
    return Next(rewrite, update)


def _to_repair(state: State) -> str | None:
    """The gate's complaint where the last candidate is the model's and can be fixed."""
    attempts = state.get("attempts", [])
    if not attempts or not state.get("hypothesis") or state.get("mends", 0) >= GATE_REPAIRS:
        return None
    last = Attempt.model_validate(attempts[-1])
    failed = next((g for g in last.judgement.gates if not g.passed), None)
    if last.judgement.outcome != "rejected" or failed is None or failed.name not in REPAIRABLE:
        return None
    return failed.line


def announce_plan(context: Context, stage: str, planned: Iterable[Hypothesis]) -> None:
    """A line of progress for each hypothesis."""
    for hypothesis in planned:
        line = f"hypothesis ({hypothesis.family}): {hypothesis.title}, {hypothesis.why}"
        context.events.emit(stage, "optimizer", "progress", line)


async def lesson(state: State, context: Context, attempt: Attempt) -> tuple[Attempt, State]:
    """The attempt with the model's own line on what it taught; as it was where there is none."""
    developer = context.developer
    if not isinstance(developer, ModelDeveloper) or state.get("model_out"):
        return attempt, {}
    if not attempt.proposer.startswith("llm:"):
        return attempt, {}
    try:
        learnt = await developer.reflect(view_of(state, context), attempt, scope_of(state))
    except ModelUnavailable as error:
        return attempt, model_out(context, error)
    if not learnt:
        return attempt, {}
    context.events.emit("verify", "verify", "progress", f"learnt: {learnt}")
    return attempt.model_copy(update={"lesson": learnt}), {}


async def digested(state: State, context: Context) -> State:
    """The findings with what a model makes of their passages; nothing where none can be asked."""
    developer = context.developer
    if not isinstance(developer, ModelDeveloper) or state.get("model_out"):
        return {}
    view = view_of(state, context)
    assert view.research is not None
    key = " ".join([view.verdict.subtype, *(each.note for each in view.research.citations)])
    known = state.get("digests", {})
    try:
        said = known[key] if key in known else await developer.digest(view, scope_of(state))
    except ModelUnavailable as error:
        return model_out(context, error)
    research = view.research.model_copy(update={"digest": said})
    return {"research": research.model_dump(mode="json"), "digests": {**known, key: said}}


def model_out(context: Context, error: ModelUnavailable) -> State:
    """Say why recipes go on in the model's place, and keep it."""
    reason = f"{error.problem} ({error.remedy}); recipes continue"
    context.events.emit("optimizer", "optimizer", "notice", reason)
    return {"model_out": reason, "notices": [reason]}
