"""Tools of the MCP server `sandbox` that transform the open program's kernel by themselves."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext
from pydantic import Field

from cudaops.domain.execution import (
    MEASURED,
    Compiled,
    CompileFailed,
    Measurement,
    Misbehaved,
    Ran,
)
from cudaops.domain.judge import median_interval
from cudaops.domain.rewrite import ResolvedPlan, Rewrite
from cudaops.domain.run import Say
from cudaops.domain.search import SearchCost, StepShare, TransformationSearch, Transformed
from cudaops.domain.workload import FLOATING, Workload
from cudaops.errors import InputError, PlanError
from cudaops.executors.arrays import UNIT_ROUNDOFF, share_interpreter, stored
from cudaops.executors.compare import distance, same_contents
from cudaops.executors.cpu.unit import captured_inputs
from cudaops.executors.ledger import Ledger, noting_waits, union_seconds
from cudaops.executors.stopping import raise_if_stopped
from cudaops.mcp_servers.calls import in_this_context, in_thread, progress, works
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, check_rewrite, read_rewrite
from cudaops.mcp_servers.sessions import SessionProvider
from cudaops.program.syntax import NotUnderstood
from cudaops.sandbox.workbench import Workbench
from cudaops.transformations.base import REROUNDING, Transformation
from cudaops.transformations.draft import PROPOSER, Draft, Subject
from cudaops.transformations.inline import Inline
from cudaops.transformations.lambdas import without_lambdas
from cudaops.transformations.registry import TRANSFORMATIONS
from cudaops.transformations.search import Found, Limits, Node, Search, Share, Timed

ROUNDING_FACTOR = 4.0
"""Results may differ by this many times the root of the unit roundoff (1e-3 for floats). Chosen: a
look must not refuse another order of a long sum, and what is wrong is off by more."""
PARTS = ("writing drafts", "building", "waiting for the GPU", "measuring", "checking")
"""Of a search, as `SearchCost.parts` names them."""
BUILDERS = 4
"""Drafts built beside each other where times are measured; two where they are modelled, which takes
a core each."""
TIMED_A_TURN = 2
"""How many times as many are timed together: those that wait have the GPU in one turn
(`executors.cuda.session.TURN_S`)."""
TRIAL_S = 10.0
"""How long a draft may be measured at least, from when it has the GPU. Chosen: to start a process
on a GPU that others use takes some seconds, to measure some tenths."""
TRIAL_TIMES = 10.0
"""How many times as long it may take as the longest measurement of the search before it."""
IDLE_S = 20.0
"""A measured search that has gained goes on for so long without gain (`search.LATE`). Chosen: all
100 trials of a search take 13 s where a GPU is used by nobody else."""


def builders(bench: Workbench) -> int:
    """How many drafts are built beside each other."""
    return 2 if bench.models_time else BUILDERS


class Planned(NamedTuple):
    """What a rewrite is timed on."""

    workload: Workload
    plan: ResolvedPlan
    launches: float
    """That it stands for, relative to the others."""


def alike(planned: Sequence[Planned]) -> list[Planned]:
    """The most expensive of each shape (and state of L2, and whether the plan applies), for the
    launches of all of it: those that differ in their data alone rank drafts in the same way."""
    shapes: dict[tuple[object, ...], list[Planned]] = {}
    for one in planned:
        w = one.workload
        shape = (*w.shape, w.l2_regime, one.plan.applicable)
        shapes.setdefault(shape, []).append(one)
    return [
        each[0]._replace(launches=sum(one.launches for one in each)) for each in shapes.values()
    ]


def add_transforming(server: FastMCP, sessions: SessionProvider) -> None:
    """Register the search over transformations."""

    @server.tool(annotations=works("Search transformations"))
    @in_thread
    def search_transformations(
        source: SourceText | None = None,
        tuned: TunedValues = {},  # noqa: B006
        subtype: Annotated[str, Field(description="Verdict subtype of the kernel.")] = "",
        max_trials: Annotated[int, Field(ge=1, le=5000)] = 80,
        max_seconds: Annotated[float, Field(gt=0, le=7200)] = 120.0,
        most: Annotated[int, Field(ge=1, le=5, description="Sequences wanted.")] = 1,
        only: Annotated[
            list[str] | None,
            Field(description="Transformations to search; default: all."),
        ] = None,
        context: Context = CurrentContext(),  # noqa: B008
    ) -> TransformationSearch:
        """Sequences of transformations that make the author's kernel, or a rewrite, faster: each
        proved right from the kernel's form, sought by time. Not judged yet."""
        bench = sessions.current().bench
        rewrite = None
        if source is not None:
            rewrite = check_rewrite(read_rewrite(bench, source, tuned=tuned), bench)
        idle_s = math.inf if bench.models_time else IDLE_S
        limits = Limits(max_trials, time.monotonic() + max_seconds, idle_s=idle_s)
        say = progress(context, max_trials)
        found = search(bench, rewrite, limits, subtype, say, _named(only or []))
        return found.model_copy(update={"found": found.found[:most]})


def _named(names: Sequence[str]) -> tuple[Transformation, ...]:
    """Those of these names, in the registry's order. Raises InputError where there is none."""
    known = {one.name: one for one in TRANSFORMATIONS}
    if missing := [name for name in names if name not in known]:
        raise InputError(f"there is no transformation {missing[0]!r}; there are {', '.join(known)}")
    if not names:
        return TRANSFORMATIONS
    # `inline` costs no trial, and those asked for may need it.
    return tuple(one for one in TRANSFORMATIONS if one.name in (*names, Inline.name))


def search(
    bench: Workbench,
    rewrite: Rewrite | None,
    limits: Limits,
    subtype: str,
    say: Say,
    offered: tuple[Transformation, ...] = TRANSFORMATIONS,
) -> TransformationSearch:
    """One search; the same again is not made twice. Raises InputError where the author's kernel
    cannot be timed."""
    key = ("" if rewrite is None else rewrite.id, *(one.name for one in offered))
    if key not in bench.searched:
        with Trying(bench, say) as trying:
            bench.searched[key] = _searched(trying, rewrite, limits, subtype, offered)
    return bench.searched[key]


def _searched(
    trying: Trying,
    rewrite: Rewrite | None,
    limits: Limits,
    subtype: str,
    offered: tuple[Transformation, ...],
) -> TransformationSearch:
    bench, say, started = trying.bench, trying.say, time.monotonic()
    share_interpreter()  # drafts are written while others are built, asked for and timed
    subject = Subject(bench.program, bench.kernel, bench.workloads)
    try:
        draft = Draft.of(subject) if rewrite is None else Draft.from_rewrite(subject, rewrite)
        root = without_lambdas(draft)
        begun = trying.time_beside(rewrite, root)
    except NotUnderstood as problem:
        return TransformationSearch(
            found=(), baseline_us=0.0, tried=(), stopped=f"not begun: {problem}",
            cost=trying.cost(0, started), in_the_way=str(problem),
        )  # fmt: skip
    if begun.time_us is None:
        raise InputError(
            f"{'the author' if rewrite is None else 'it'} has no time: {begun.failure}"
        )
    with ThreadPoolExecutor(max_workers=trying.batch) as pool:
        found = Search(
            lambda rewrites: trying.times(rewrites, pool),
            limits,
            trying.problem,
            relieves={one.name for one in TRANSFORMATIONS if subtype in one.relieves},
            offered=offered,
            apart=trying.apart,
            say=say,
            batch=trying.batch,
            writing=lambda: trying.parts.working("writing drafts"),
            ahead=trying.build_ahead,
        ).run(root, begun.time_us)
    times = trying.ranked(found.best)
    cost = trying.cost(found.trials, started)
    say(cost.line)
    return _record(found, times, cost)


_Build = Future[Compiled | CompileFailed]


class Trying:
    """Drafts put to the executor."""

    def __init__(self, bench: Workbench, say: Say) -> None:
        self.bench, self.say = bench, say
        self._authors: dict[str, Ran | Misbehaved] = {}
        self.parts = Ledger()
        """Which part of the search was at work when."""
        self.builders = builders(bench)
        self.batch = self.builders * (1 if bench.models_time else TIMED_A_TURN)
        self._longest_s: dict[str, float] = {}
        """By workload: what a measurement took that came to its end."""
        self._pool = ThreadPoolExecutor(max_workers=self.builders)
        self._begun: dict[tuple[str, str], _Build] = {}
        """What was built ahead, or is being built, by rewrite and instance of the kernel."""

    def __enter__(self) -> Trying:
        return self

    def __exit__(self, *raised: object) -> None:
        """Drop what is built for nobody, and remove what was written."""
        self._pool.shutdown(cancel_futures=True)
        for workload in self._authors:
            self.bench.discard(f"search-{workload}")

    def build_ahead(self, rewrite: Rewrite) -> None:
        """Begin to build it while others are timed. Not where times are modelled: that takes every
        core by itself."""
        for workload in () if self.bench.models_time else self.bench.timed:
            if (key := (rewrite.source_id, workload.callee)) not in self._begun:
                build = in_this_context(self._built)
                self._begun[key] = self._pool.submit(build, rewrite, workload, True)

    def times(self, rewrites: Sequence[Rewrite], pool: ThreadPoolExecutor) -> Sequence[Timed]:
        """Of several, built beside each other."""
        return list(pool.map(in_this_context(self.time), rewrites))

    def time_beside(self, rewrite: Rewrite | None, root: Draft) -> Timed:
        """Of what the search begins with, while `root`, its draft, is analysed: every
        transformation asks for that first. All gains are counted from it, so that it is timed
        again where others may have made it longer: they make none shorter."""
        timed = self._pool.submit(in_this_context(self.time), rewrite)
        with self.parts.working("writing drafts"), suppress(NotUnderstood):
            _ = root.facts
        first = timed.result()
        if first.time_us is None or self.bench.models_time:
            return first
        again = self.time(rewrite)
        return first if again.time_us is None or again.time_us > first.time_us else again

    def time(self, rewrite: Rewrite | None, *, draft: bool = True) -> Timed:
        """Of a launch, mean over all that are timed; of a draft over one of each shape, though it
        must have a plan for all."""
        total = launches = low = high = 0.0
        try:
            planned = self._planned(rewrite)
        except PlanError as error:
            return Timed(None, f"launch plan: {error}")
        for one in alike(planned) if draft else planned:
            raise_if_stopped()
            measured = self._measured(rewrite, one, draft=draft)
            if not isinstance(measured, Measurement):
                return Timed(None, measured.message)
            total += measured.median_us * one.launches
            ends_us = _ends_us(measured)
            low, high = low + ends_us[0] * one.launches, high + ends_us[1] * one.launches
            launches += one.launches
        if not launches:
            return Timed(None)
        interval_us = (low / launches, high / launches) if low < high else None
        return Timed(total / launches, ends_us=interval_us)

    def _planned(self, rewrite: Rewrite | None) -> list[Planned]:
        """All timed workloads. Raises PlanError where it has no plan for one of them."""
        return [
            Planned(w, self.bench.plan(w, rewrite), launches)
            for w, launches in self.bench.timed_launches
        ]

    def _measured(
        self, rewrite: Rewrite | None, on: Planned, *, draft: bool
    ) -> Measurement | Misbehaved | CompileFailed:
        """`Workbench.measure`, its parts noted."""
        workload, begun = on.workload, None
        if rewrite is not None and draft:
            begun = self._begun.get((rewrite.source_id, workload.callee))
        compiled = begun.result() if begun is not None else self._built(rewrite, workload, draft)
        if isinstance(compiled, CompileFailed):
            return compiled
        return self._taken(compiled, workload, on.plan)

    def _built(
        self, rewrite: Rewrite | None, workload: Workload, draft: bool
    ) -> Compiled | CompileFailed:
        with self.parts.working("building"):
            return self.bench.executor.compile(self.bench.unit(workload, rewrite), draft=draft)

    def _taken(
        self, compiled: Compiled, workload: Workload, plan: ResolvedPlan
    ) -> Measurement | Misbehaved:
        """The executor's time, what it waited for the GPU noted apart."""
        begun = time.monotonic()
        with noting_waits() as waits:
            measured = self.bench.executor.measure(
                compiled, workload, plan, timeout_s=self._timeout_s(workload)
            )
        for wait in waits:
            self.parts.add(*wait)
            begun = wait.end
        ended = time.monotonic()
        self.parts.add("measuring", begun, ended)
        if isinstance(measured, Measurement):
            self._longest_s[workload.id] = max(ended - begun, self._longest_s.get(workload.id, 0.0))
        return measured

    def _timeout_s(self, workload: Workload) -> float:
        """Of one measurement: a rewrite that does not end keeps the GPU from everybody else. Of
        the first, and where times are modelled, the run's."""
        longest_s = self._longest_s.get(workload.id)
        if longest_s is None or self.bench.models_time:
            return self.bench.timeout_s
        return min(self.bench.timeout_s, max(TRIAL_S, TRIAL_TIMES * longest_s))

    def cost(self, trials: int, started: float) -> SearchCost:
        """Of the search so far."""
        noted = self.parts.since(started)
        spent = {
            part: round(union_seconds([i for i in noted if i.tool == part]), 3) for part in PARTS
        }
        return SearchCost(trials=trials, seconds=round(time.monotonic() - started, 3), parts=spent)

    def apart(self, rewrite: Rewrite) -> tuple[float, ...]:
        """Of each launch, weighted over one timed workload of each shape that it applies to: what
        the plan takes longer with it than with those before it alone. Empty where that cannot be
        told."""
        totals = [0.0] * len(rewrite.plan.launches)
        for workload, plan, launches in alike(self._planned(rewrite)):
            raise_if_stopped()
            with self.parts.working("building"):
                unit = self.bench.unit(workload, rewrite)
                compiled = self.bench.executor.compile(unit, draft=True)
            if isinstance(compiled, CompileFailed):
                return ()
            before_us = 0.0
            for count in range(1, len(plan.launches) + 1) if plan.applicable else ():
                part = plan.model_copy(update={"launches": plan.launches[:count]})
                taken = self._taken(compiled, workload, part)
                if isinstance(taken, Misbehaved):
                    return ()
                more_us = max(taken.median_us - before_us, 0.0)
                totals[count - 1] += more_us * launches
                before_us = taken.median_us
        return tuple(totals)

    def problem(self, rewrite: Rewrite) -> str | None:
        """Why it is wrong on the captured inputs of the smallest judged workload that it applies
        to; None where it is not. A look, to keep what is wrong from being built on: the judge finds
        out whether it is right."""
        for workload in sorted(self.bench.judged, key=lambda w: w.size_bytes):
            try:
                plan = self.bench.plan(workload, rewrite)
            except PlanError as error:
                return f"launch plan: {error}"
            if plan.applicable:
                with self.parts.working("checking"):
                    return self._difference(rewrite, workload, plan)
        return None

    def _difference(self, rewrite: Rewrite, workload: Workload, plan: ResolvedPlan) -> str | None:
        bench, name = self.bench, f"search-{rewrite.id}"
        compiled = bench.executor.compile(bench.unit(workload, rewrite), draft=True)
        if isinstance(compiled, CompileFailed):
            return compiled.message
        expected = self._author(workload)
        if isinstance(expected, Misbehaved):
            return None  # there is nothing to hold it against
        ran = bench.executor.run(
            compiled, workload, plan, captured_inputs(workload), bench.folder / "work" / name,
            timeout_s=bench.timeout_s,
        )  # fmt: skip
        try:
            return ran.message if isinstance(ran, Misbehaved) else _apart(workload, ran, expected)
        finally:
            bench.discard(name)

    def _author(self, workload: Workload) -> Ran | Misbehaved:
        """What the author's kernel gives, run once."""
        if workload.id not in self._authors:
            folder = self.bench.folder / "work" / f"search-{workload.id}"
            self._authors[workload.id] = self.bench.run_author(
                workload, captured_inputs(workload), folder
            )
        return self._authors[workload.id]

    def ranked(self, nodes: Sequence[Node]) -> dict[int, float]:
        """Times by the compiler that decides: NVRTC and nvcc allocate registers
        differently, so the order of a search may not survive."""
        if self.bench.models_time:
            return {node.number: node.time_us for node in nodes}
        with self.parts.working("building"), ThreadPoolExecutor(self.builders) as pool:
            list(pool.map(in_this_context(self.bench.compile), [node.rewrite for node in nodes]))
        author = self.time(None, draft=False).time_us
        timed = {node.number: self.time(node.rewrite, draft=False).time_us for node in nodes}
        return {n: us for n, us in timed.items() if us is not None and author and us < author}


def _apart(workload: Workload, ran: Ran, expected: Ran) -> str | None:
    """The first buffer that is not what the author's kernel left, rounding aside."""
    for allocation in workload.allocations:
        index, element = allocation.index, allocation.element
        if element == "opaque" or index not in ran.outputs or index not in expected.outputs:
            continue
        paths = Path(ran.outputs[index]), Path(expected.outputs[index])
        if same_contents(*paths):
            continue
        gap = distance(stored(paths[0], element), stored(paths[1], element))
        allowed = ROUNDING_FACTOR * math.sqrt(UNIT_ROUNDOFF[element]) if element in FLOATING else 0
        if gap.non_finite_mismatches or gap.relative_l2 > allowed:
            name = next((p.name for p in workload.pointers() if p.allocation == index), "a buffer")
            return f"{name} differs: relative L2 error {gap.relative_l2:.1e} on the captured inputs"
    return None


def _record(found: Found, times: dict[int, float], cost: SearchCost) -> TransformationSearch:
    kept = sorted((n for n in found.best if n.number in times), key=lambda n: times[n.number])
    first = found.best[0].number if found.best else -1
    return TransformationSearch(
        found=tuple(
            _transformed(n, times[n.number], found.shares if n.number == first else ())
            for n in kept
        ),
        baseline_us=found.baseline_us,
        tried=found.tried,
        stopped=found.stopped,
        cost=cost,
        in_the_way=found.in_the_way,
    )


def _transformed(node: Node, time_us: float, shares: Sequence[Share]) -> Transformed:
    steps = shares or [Share(x.name, x.setting, None) for x in node.draft.steps]
    most = max(steps, key=lambda x: x.factor or 0.0)
    told = [f"{x.name} {x.factor:.2f}x" for x in steps if x.factor is not None]
    share = f" Contribution of each, by leaving it out: {', '.join(told)}." if len(told) > 1 else ""
    rewrite = node.rewrite.model_copy(
        update={"proposer": f"{PROPOSER}:{most.name}", "why": node.rewrite.why + share}
    )
    return Transformed(
        rewrite=rewrite,
        time_us=time_us,
        steps=tuple(
            StepShare(name=x.name, setting=dict(x.setting), factor=x.factor) for x in steps
        ),
        rerounds=any(x.name in REROUNDING for x in steps),
    )


_TAIL = 0.025
"""Of each end of a draft's interval: those at 95 %, as of modelled times."""


def _ends_us(measured: Measurement) -> tuple[float, float]:
    """Of its median, or by the sampled blocks; the time itself twice where there are too few
    samples."""
    if measured.source not in MEASURED:
        return measured.ends_us
    low, high = median_interval(measured.samples_us, _TAIL)
    return (low, high) if math.isfinite(high) else measured.ends_us
