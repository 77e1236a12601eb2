"""One branch of a search: its rewrite, tuned and looked at. Several at once."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from cudaops.agents import optimizer
from cudaops.agents.developer import RunView
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import Branch
from cudaops.errors import InputError, ModelUnavailable
from cudaops.graph.branches import (
    Explored,
    Task,
    explored_of,
    incumbent_us,
    known_texts,
    microseconds,
    search_of,
)
from cudaops.graph.by_model import scope_of
from cudaops.graph.context import Context
from cudaops.graph.state import State
from cudaops.graph.view import incumbent_of, view_of
from cudaops.mcp_servers.sandbox import TrialResult
from cudaops.recipes.registry import family_of
from cudaops.sandbox.screen import Screened


class _Written(NamedTuple):
    """A branch before anything was run."""

    rewrite: Rewrite | None
    family: str
    title: str
    problem: str | None = None
    unavailable: tuple[str, str] | None = None


class _Found(NamedTuple):
    """What the sandbox said of a branch."""

    rewrite: Rewrite
    time_us: float | None = None
    baseline_us: float | None = None
    failure: str | None = None
    trials: tuple[TrialResult, ...] = ()


async def explore(state: State, context: Context, sandbox: asyncio.Lock) -> State:
    """Carry out `state["task"]`. Developers answer at once, one branch at a time is run: the tuner
    has a limit in seconds, which is worth the same to each.

    A branch that comes to nothing is a value; only broken infrastructure is raised.
    """
    task = Task.model_validate(state["task"])
    written = await _written(task, state, context)
    found = None
    rewrite = written.rewrite
    if rewrite is not None and written.problem is None:
        async with sandbox:
            late = context.out_of_time()
            if late is not None:
                written = written._replace(problem=late)
            else:
                found = await _tried(task.order.id, rewrite, state, context)
    branch = Branch(
        order=task.order,
        family=written.family,
        title=written.title,
        rewrite=found.rewrite if found else written.rewrite,
        time_us=found.time_us if found else None,
        failure=found.failure if found else written.problem,
        configurations_tried=max(1, len(found.trials)) if found else 0,
    )
    explored = Explored(
        search=search_of(state).number,
        branch=branch,
        hypothesis=task.hypothesis,
        trials=found.trials if found else (),
        baseline_us=found.baseline_us if found else None,
        unavailable=written.unavailable,
    )
    _announce(context, explored)
    return {"explored": [explored.model_dump(mode="json")]}


async def _written(task: Task, state: State, context: Context) -> _Written:
    order, developer = task.order, context.developer
    family = order.family or "other"
    if order.rewrite is not None:
        return _Written(order.rewrite, family_of(order.rewrite) or family, order.rewrite.title)
    if task.hypothesis is None or developer is None:
        return _Written(None, family, "no idea", "the planner had no further hypothesis for it")
    title = task.hypothesis.title
    by_id = {e.branch.id: e.branch for e in explored_of(state, search_of(state).number)}
    parents = [by_id[i].rewrite for i in order.parents]
    try:
        written = await developer.write(
            task_view(task, state, context),
            task.hypothesis,
            f"{scope_of(state)}/b{order.id}",
            tuple(p for p in parents if p is not None),
        )
    except ModelUnavailable as error:
        why = (error.problem, error.remedy)
        return _Written(None, task.hypothesis.family, title, str(error), why)
    problem, rewrite = written.problem, written.rewrite
    if rewrite is not None and rewrite.source_id in (known := known_texts(state)):
        problem = f"the same text as {known[rewrite.source_id]}"
    return _Written(rewrite, written.family, rewrite.title if rewrite else title, problem)


def task_view(task: Task, state: State, context: Context) -> RunView:
    """What the developer sees: the run, with the branch that is to be improved as its incumbent."""
    number = search_of(state).number
    branches = [e.branch for e in explored_of(state, number)]
    view = view_of(state, context, branches)
    earlier = tuple(
        (f"branch {e.branch.id} of search {e.search}", e.branch.rewrite.source)
        for e in explored_of(state)
        if e.search != number and e.branch.rewrite is not None
    )
    view = view._replace(sources=(*view.sources, *earlier))
    if task.profile is None or task.verdict is None:
        return view
    parent = next(b.rewrite for b in branches if b.id == task.order.parents[0])
    return view._replace(profile=task.profile, verdict=task.verdict, incumbent=parent)


async def _tried(number: int, rewrite: Rewrite, state: State, context: Context) -> _Found:
    """Tune values found and a first look taken; a refusal of the sandbox is the branch's end."""
    try:
        return await _tuned_and_screened(number, rewrite, state, context)
    except InputError as refusal:
        return _Found(rewrite, failure=str(refusal))


async def _tuned_and_screened(
    number: int, rewrite: Rewrite, state: State, context: Context
) -> _Found:
    say = context.events.announcing(
        "explore", "optimizer", f"branch {number}: ", title=rewrite.title
    )
    trials: tuple[TrialResult, ...] = ()
    if rewrite.plan.tune:
        must_beat = incumbent_us(state) if incumbent_of(state) is not None else None
        most, seconds = context.options.max_trials, context.max_tune_seconds
        tuned = await optimizer.tune_rewrite(
            context.toolbox, rewrite, most, seconds, say, must_beat
        )
        trials = tuned.trials
        if tuned.best is None:
            failure = next((t.failure for t in trials if t.failure), "no configuration is feasible")
            return _Found(rewrite, failure=f"no configuration ran: {failure}", trials=trials)
        rewrite = rewrite.tuned_with(tuned.best)
        if tuned.stopped == "far behind":
            best = microseconds(tuned.time_us, context.bench)
            failure = f"{best} at best, far behind the incumbent"
            return _Found(rewrite, failure=failure, trials=trials)
    screened = await context.toolbox.call(
        "sandbox", "screen_rewrite", Screened, _arguments(rewrite), say
    )
    return _Found(rewrite, screened.time_us, screened.baseline_us, screened.failure, trials)


def _arguments(rewrite: Rewrite) -> dict[str, Any]:
    return {
        "source": rewrite.source,
        "tuned": rewrite.values(),
        "proposer": rewrite.proposer,
        "title": rewrite.title,
    }


def _announce(context: Context, explored: Explored) -> None:
    branch = explored.branch
    timed = microseconds(branch.time_us, context.bench)
    outcome = branch.failure if branch.time_us is None else timed
    line = f"branch {branch.id} ({branch.family}), {branch.title}: {outcome}"
    data = {
        "search": explored.search,
        "round": branch.order.round,
        "branch": branch.id,
        "kind": branch.order.kind,
        "parents": list(branch.order.parents),
        "family": branch.family,
        "title": branch.title,
        "failure": branch.failure,
        "time_us": branch.time_us,
        "time_source": context.bench.executor.time_source,
    }
    context.events.emit("explore", "optimizer", "progress", line, data)
