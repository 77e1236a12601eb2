"""The branches of a search: what the graph keeps of them, and how each is written and tried."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from cudaops.agents import optimizer
from cudaops.agents.developer import RunView
from cudaops.domain.base import Record
from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.search import Branch, Order
from cudaops.errors import InputError, ModelUnavailable
from cudaops.gates.evaluate import Screened
from cudaops.graph.context import Context, attempts_of, incumbent_of, kept_us, view_of
from cudaops.graph.model_optimizer import scope_of
from cudaops.graph.state import State
from cudaops.mcp_servers.sandbox import TrialResult
from cudaops.recipes.registry import family_of
from cudaops.sandbox.workbench import Workbench
from cudaops.search.beam import Seed, Supply


class BranchTask(Record):
    """One order with all that is needed to carry it out."""

    order: Order
    hypothesis: Hypothesis | None = None
    """What is to be written; None for a recipe's, and where the planner had none left."""
    profile: Profile | None = None
    """Of the branch that is to be improved; None: as the run's."""
    verdict: Verdict | None = None
    """On `profile`."""


class Explored(Record):
    """One branch with what the judge and later rounds need beside it."""

    search: int
    """Which search of the run, from 1."""
    branch: Branch
    hypothesis: Hypothesis | None = None
    trials: tuple[TrialResult, ...] = ()
    """What the tuner tried."""
    baseline_us: float | None = None
    """The author's kernel by the clock of the branch's time; None where none was taken."""
    unavailable: tuple[str, str] | None = None
    """Problem and remedy where the model could not be reached."""


class BranchSearch(Record):
    """One search: its sources and its progress."""

    number: int = 1
    """Position among the searches of the run, from 1."""
    recipes: tuple[Rewrite, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """All that were planned in it."""
    tasks: tuple[BranchTask, ...] = ()
    """The round under way."""
    stop: str | None = None
    """Why no further round follows; None while it goes on."""
    judged: int = 0
    """How many of its branches were put to the judge."""

    def supply(self, *, can_write: bool, can_plan: bool) -> Supply:
        """Recipes and hypotheses in turn, so that neither takes every place."""
        recipes = [Seed(family_of(r) or "other", rewrite=r) for r in self.recipes]
        planned = [Seed(h.family, hypothesis=i) for i, h in enumerate(self.hypotheses)]
        turns = max(len(recipes), len(planned))
        mixed = [
            seed
            for turn in range(turns)
            for seed in (*recipes[turn : turn + 1], *planned[turn : turn + 1])
            if can_write or seed.rewrite is not None
        ]
        return Supply(tuple(mixed), can_write, can_plan and can_write)


def search_of(state: State) -> BranchSearch:
    """The search under way; an empty one before the first."""
    raw = state.get("search")
    return BranchSearch.model_validate(raw) if raw else BranchSearch(number=0)


def explored_of(state: State, search: int | None = None) -> tuple[Explored, ...]:
    """Every branch of one search, or of all, in order."""
    explored = [Explored.model_validate(e) for e in state.get("explored", [])]
    wanted = [e for e in explored if search is None or e.search == search]
    return tuple(sorted(wanted, key=lambda e: (e.search, e.branch.id)))


def incumbent_us(state: State) -> float | None:
    """Time that a new branch has to beat: of the best rewrite so far, else of the author's kernel;
    None where neither was timed."""
    best = kept_us(state)
    if best is not None:
        return best
    return next((e.baseline_us for e in explored_of(state) if e.baseline_us is not None), None)


def known_texts(state: State) -> dict[str, str]:
    """`Rewrite.source_id` of all that was judged or explored, with where that was."""
    known = {a.source_id: f"attempt {a.iteration}" for a in attempts_of(state)}
    for one in explored_of(state):
        if one.branch.rewrite is not None:
            label = f"branch {one.branch.id} of search {one.search}"
            known.setdefault(one.branch.rewrite.source_id, label)
    return known


def microseconds(time_us: float | None, bench: Workbench) -> str:
    """A branch's time for people, with where it comes from."""
    words = UNMEASURED_WORDS.get(bench.executor.time_source)
    source = "" if words is None else f" ({words.format(device=bench.executor.device)})"
    return "no time" if time_us is None else f"{time_us:.1f} us{source}"


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
    task = BranchTask.model_validate(state["task"])
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


async def _written(task: BranchTask, state: State, context: Context) -> _Written:
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


def task_view(task: BranchTask, state: State, context: Context) -> RunView:
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
