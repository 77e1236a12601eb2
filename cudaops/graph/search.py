"""The optimizer as a search: rounds of branches, the best of which is put to the judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from cudaops.agents import profiler
from cudaops.agents.optimizer import search_transformations
from cudaops.domain.hypothesis import FAMILIES, Hypothesis
from cudaops.domain.profile import Verdict
from cudaops.domain.search import Branch, Order
from cudaops.errors import InputError, ModelUnavailable
from cudaops.graph.branches import (
    BranchSearch,
    BranchTask,
    Explored,
    explored_of,
    incumbent_us,
    known_texts,
    microseconds,
    search_of,
    task_view,
)
from cudaops.graph.context import Context, bar_of, incumbent_of
from cudaops.graph.folder import write_json, write_whole
from cudaops.graph.model_optimizer import announce_plan, model_out, scope_of
from cudaops.graph.nodes import kept_search, may_transform
from cudaops.graph.state import State
from cudaops.recipes.registry import propose
from cudaops.sandbox.workbench import Workbench
from cudaops.search.beam import Round, plan_round
from cudaops.search.selection import champion, ranking


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
        allow_reassociation=bench.policy.allow_reassociation,
    )
    incumbent = incumbent_of(state)
    kept: State = {}
    if may_transform(incumbent) and not recipes:
        say = context.events.announcing("seed", "optimizer", title="transformations")
        searched = await search_transformations(
            context.toolbox, incumbent, verdict.subtype, context.search_limits, say
        )
        kept = kept_search(state, searched)
        known = known_texts(state)
        recipes = tuple(x.rewrite for x in searched.found if x.rewrite.source_id not in known)
    begun = BranchSearch(number=search_of(state).number + 1, recipes=recipes)
    step = SearchStep(state, context, begun)
    await step.plan(context.options.search.width, step.scope)
    nothing = "no untried proposal" if state.get("attempts") else "no proposal"
    if await step.next_round():
        update, told = step.update()
    else:
        update, told = step.update(context.out_of_time() or nothing)
    return {**kept, **update}, told


async def gather(state: State, context: Context) -> tuple[State, str]:
    """What the branches came to: another round, or the best one to the judge, the next best after
    a rejection."""
    step = SearchStep(state, context, search_of(state))
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


class SearchStep:
    """One node's work on a search, and its state update."""

    def __init__(self, state: State, context: Context, search: BranchSearch) -> None:
        self.state = state
        self.context = context
        self.search = search
        self.explored = explored_of(state, search.number)
        self.branches = tuple(e.branch for e in self.explored)
        self.scope = scope_of(state)
        self.can_write = context.developer is not None and not state.get("model_out")
        self._lost: State = {}
        self._found = ""

    def update(self, reason: str | None = None) -> tuple[State, str]:
        """The state with nothing to judge. `reason`: why not; None where a round follows."""
        update: State = {
            **self._lost,
            "search": self.search.model_dump(mode="json"),
            "proposal": None,
        }
        return (update, self._found) if reason is None else ({**update, "reason": reason}, reason)

    def lose_model(self, error: ModelUnavailable) -> None:
        """Recipes go on alone, for the rest of the run."""
        self.can_write = False
        self._lost = model_out(self.context, error)

    def over(self, why: str) -> None:
        """No further round; what there is is written to `search/NN.json`."""
        self.search = self.search.model_copy(update={"stop": why, "tasks": ()})
        if self.branches:
            target = self.context.bench.folder / "search" / f"{self.search.number:02d}.json"
            write_json(target, [b.model_dump(mode="json") for b in self.branches])

    async def plan(self, wanted: int, scope: str) -> None:
        """Ask the developer for hypotheses of this search."""
        developer = self.context.developer
        if developer is None or not self.can_write:
            return
        view = task_view(_NO_TASK, self._seen(), self.context)
        try:
            planned = await developer.plan(view, wanted, scope)
        except ModelUnavailable as error:
            self.lose_model(error)
            return
        announce_plan(self.context, "seed", planned.hypotheses)
        hypotheses = (*self.search.hypotheses, *planned.hypotheses)
        self.search = self.search.model_copy(update={"hypotheses": hypotheses})

    async def next_round(self) -> bool:
        """Whether there is one; its tasks are in the search then."""
        planned = self._planned(can_plan=bool(self.branches))
        if planned.wanted:
            await self.plan(planned.wanted, self.scope)
            planned = self._planned(can_plan=False)
        late = self.context.out_of_time()
        if late is not None:
            self.over(late)
            return False
        tasks: tuple[BranchTask, ...] | None = None
        while planned.stop is None and tasks is None:
            try:
                tasks = await self._tasks(planned.orders)
            except ModelUnavailable as error:
                self.lose_model(error)
                planned = self._planned(can_plan=False)
        if planned.stop is not None:
            self.over(planned.stop)
            return False
        self.search = self.search.model_copy(update={"tasks": tasks})
        self._found = f"{len(planned.orders)} branches to explore"
        best = champion(self.branches, self.context.options.search.seed)
        data = {
            "search": self.search.number,
            "round": planned.orders[0].round,
            "orders": len(planned.orders),
            "best_us": best.time_us if best else None,
            "time_source": self.context.bench.executor.time_source,
        }
        self.context.events.emit("gather", "optimizer", "progress", planned.note, data)
        return True

    def _planned(self, *, can_plan: bool) -> Round:
        supply = self.search.supply(can_write=self.can_write, can_plan=can_plan)
        return plan_round(
            self.context.options.search, self.branches, incumbent_us(self.state), supply
        )

    async def _tasks(self, orders: Sequence[Order]) -> tuple[BranchTask, ...]:
        """The orders with what each is to write. Raises ModelUnavailable."""
        wanted = Counter(o.parents[0] for o in orders if o.kind == "expand")
        parents = {b.id: b for b in self.branches}
        # One after the other on the device, then all at once to the developer.
        looked = {i: await self._diagnosed(parents[i]) for i in wanted}
        asked = (self._ideas(looked[i], count) for i, count in wanted.items())
        ideas: dict[int, list[Hypothesis]] = {}
        for number, answer in zip(
            wanted, await asyncio.gather(*asked, return_exceptions=True), strict=True
        ):
            if isinstance(answer, BaseException):
                raise answer  # after every other question was answered
            ideas[number] = answer
        tasks: list[BranchTask] = []
        for order in orders:
            if order.kind == "expand":
                waiting = ideas[order.parents[0]]
                idea = waiting.pop(0) if waiting else None
                about = looked[order.parents[0]]
                tasks.append(about.model_copy(update={"order": order, "hypothesis": idea}))
            else:
                tasks.append(BranchTask(order=order, hypothesis=self._hypothesis(order)))
        return tuple(tasks)

    async def _diagnosed(self, parent: Branch) -> BranchTask:
        """What limits the branch now; as the run's where that cannot be found out."""
        order = Order(id=parent.id, round=parent.order.round, kind="expand", parents=(parent.id,))
        name = f"{self.search.number:02d}-b{parent.id}.json"
        kept = self.context.bench.folder / "state" / "diagnosed" / name
        if kept.exists():  # measured again it would differ, and so would the question to the model
            return BranchTask.model_validate_json(kept.read_text("utf-8"))
        try:
            found = await profiler.profile(self.context.toolbox, parent.rewrite)
        except InputError:
            return BranchTask(order=order)
        task = BranchTask(order=order, profile=found.profile, verdict=found.verdict)
        write_whole(kept, task.model_dump_json() + "\n")
        return task

    async def _ideas(self, about: BranchTask, wanted: int) -> list[Hypothesis]:
        developer = self.context.developer
        assert developer is not None, "only a search with a model improves branches"
        view = task_view(about, self._seen(), self.context)
        planned = await developer.plan(view, wanted, f"{self.scope}/b{about.order.id}")
        return list(planned.hypotheses)

    def _hypothesis(self, order: Order) -> Hypothesis | None:
        if order.kind == "seed" and order.hypothesis is not None:
            return self.search.hypotheses[order.hypothesis]
        if order.kind == "crossover":
            first, second = (b for i in order.parents for b in self.branches if b.id == i)
            return joined(first, second, self.context.bench)
        return None

    def _seen(self) -> State:
        """The state as this search has it, for views."""
        return {**self.state, "search": self.search.model_dump(mode="json")}

    def put_forward(self) -> tuple[State, str]:
        """The best branch that was not judged yet; after the first only one that beats the bar by
        the clock of the search."""
        known = {a["rewrite_id"] for a in self.state.get("attempts", [])}
        options = self.context.options.search
        by_id = {e.branch.id: e for e in self.explored}
        for branch in ranking(self.branches, options.seed):
            one = by_id[branch.id]
            if branch.rewrite is None or branch.rewrite.id in known:
                continue
            if self.search.judged and not self._beats_bar(one):
                continue
            return self._proposed(one)
        if self.search.judged:
            return self.update("no other branch of this search reaches the threshold")
        failure = next((b.failure for b in self.branches if b.failure), "nothing was explored")
        count = len(self.branches)
        return self.update(f"none of {count} branches can be judged: {failure}")

    def _beats_bar(self, one: Explored) -> bool:
        time_us, baseline_us = one.branch.time_us, one.baseline_us
        if time_us is None or baseline_us is None:
            return False
        return baseline_us / time_us >= bar_of(self.state, self.context)

    def _proposed(self, one: Explored) -> tuple[State, str]:
        branch = one.branch
        self.search = self.search.model_copy(update={"judged": self.search.judged + 1})
        assert branch.rewrite is not None
        update: State = {
            **self._lost,
            "search": self.search.model_dump(mode="json"),
            "proposal": self.context.bench.served_alone(branch.rewrite).model_dump(mode="json"),
            "trials": [t.model_dump(mode="json") for t in one.trials],
            "hypothesis": one.hypothesis.model_dump(mode="json") if one.hypothesis else None,
        }
        place = "leads" if self.search.judged == 1 else "is the next of"
        timed = microseconds(branch.time_us, self.context.bench)
        found = f"{branch.title} {place} {len(self.branches)} branches with {timed}"
        return update, f"{found}; {self.search.stop}"


_NO_TASK = BranchTask(order=Order(id=0, round=0, kind="seed"))


def joined(first: Branch, second: Branch, bench: Workbench) -> Hypothesis:
    """What a crossover asks for."""
    times = [microseconds(b.time_us, bench) for b in (first, second)]
    return Hypothesis.model_validate(
        {
            "family": first.family if first.family in FAMILIES else "other",
            "title": f"{first.title} with {second.title}",
            "why": f"{first.title} takes {times[0]} and {second.title} {times[1]}; they are of "
            "different families, so each may remove a limit that the other leaves",
            "steps": (
                "begin with the first parent",
                "combine it with what makes the second one fast, if compatible",
                "leave out what only one of them can have, and say so",
            ),
        }
    )
