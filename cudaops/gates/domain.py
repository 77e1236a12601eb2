"""Gate `correctness_domain`: the candidate on inputs of the author's kernel's own domain.

Every drawn input on which the author's kernel is right (`sandbox/drawn.py`), twice: once with each
access looked at, once with the last thread first.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import (
    Captured,
    Compiled,
    CompileFailed,
    LaunchNumbers,
    Misbehaved,
    Ran,
)
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.domain.workload import FLOATING, ScalarArgument, Workload
from cudaops.errors import PlanError
from cudaops.executors.arrays import LARGEST
from cudaops.executors.base import Branches, Check, Executor, Trial, Tried
from cudaops.executors.compare import same_contents
from cudaops.executors.untrusted_files import remove
from cudaops.gates.accuracy import BufferAccuracy, buffer_accuracy, exact_accuracy
from cudaops.gates.correctness import fairly, in_any_order
from cudaops.gates.posed import baseline_where_free
from cudaops.gates.told_grids import on_told_grids, told_grid
from cudaops.program.analysis.compensation import computes_rounding_errors, rounds_on_integers
from cudaops.program.analysis.summary import facts_of_launch
from cudaops.program.candidate import FILE as CANDIDATE
from cudaops.program.plans import resolve
from cudaops.sandbox.draw import Draw, DrawnInput, DrawTarget
from cudaops.sandbox.drawn import Domain, DomainBuilder, is_exact
from cudaops.sandbox.oracle import Baseline
from cudaops.sandbox.portions import Telling, in_portions
from cudaops.sandbox.served import draws_of, served_shape
from cudaops.sandbox.shared_variables import with_variables
from cudaops.sandbox.variations import Way
from cudaops.sandbox.workbench import Workbench

LIMIT_FACTOR = 8
LEAST_ACCESSES = 8_000_000
"""A candidate may make so many times the author's accesses, and these in any case."""
LIMIT_S = 10.0
LONG_LIMIT_S = 60.0
ALL_S = 240.0
"""Of one launch, in seconds of the processor, of one with a large size, and of all of them. A warp
for each of 70,001 rows, with shuffles, did not end in 10 s (two cores, 2026-12-01)."""
ROUNDING = 1e-4
FEWEST_ROUNDED = 3
"""Of some hundred comparisons one exceeds by chance what rounding mostly does. A result that is off
by less than ROUNDING of its size, or of its buffer's, is refused where so many inputs show it: a
kernel that computes less exactly shows it on many."""
AT_THE_END: frozenset[Way] = frozenset({"widest", "huge", "few_huge", "denormals"})
"""Values next to the largest of their type, or divisors next to zero: another order of the same
operations overflows where the author's does not. What overflows far from there shows on `large`,
`magnitudes` and `zeros`."""
FEWEST_AT_THE_END = 2
"""One such input alone refuses no floating result: of its elements most overflow, cancel or are
NaN, and what is left of them turns on the order of operations."""
MOST_ON_GPU = 24
"""Inputs that are run on the GPU as well, whose arithmetic and order of threads are others."""
MOST_LINES = 6
"""Lines with a branch that nothing reached, as one summary names them."""


class Refusal(NamedTuple):
    """An input on which the candidate is not right."""

    on: DrawnInput
    why: str
    misbehaved: Misbehaved | None = None
    is_rounding: bool = False
    """Off by little more than rounding explains."""
    is_at_the_end: bool = False
    """A floating result on numbers next to the largest of their type."""


class Judged(NamedTuple):
    """The gate, and what the candidate did where it failed for that."""

    gate: Gate
    misbehaved: Misbehaved | None = None
    refused: tuple[DrawnInput, ...] = ()
    """Inputs on which it is wrong."""


class Run(NamedTuple):
    """How a candidate is run on an input."""

    how: str
    """Before what a refusal says."""
    check: Check = "none"
    last_first: bool = False


ON_PROCESSOR = (Run("", "full"), Run("in reversed thread order: ", last_first=True))
ON_GPU = (Run("on the GPU: "),)


class DomainJudge:
    """Runs one candidate on a domain."""

    def __init__(
        self,
        executor: Executor,
        compiled: Compiled,
        rewrite: Rewrite,
        kernel: Kernel,
        policy: Policy,
        folder: Path,
        refused: Path,
        ways: Sequence[Run] = ON_PROCESSOR,
        say: Say = lambda line: None,
    ) -> None:
        """`executor`: where the references of the domain were made. `compiled`: the candidate,
        built there. `refused`: the folder that keeps an input on which it is wrong. `say` hears
        how far it is."""
        self._telling = Telling(say)
        self._refused_folder = refused
        self._ways = ways
        self._executor = executor
        self._compiled = compiled
        self._rewrite = rewrite
        self._kernel = kernel
        self._policy = policy
        self._folder = folder

    def judge(self, domain: Domain, further: Sequence[DrawnInput] = ()) -> Judged:
        """Every input that the plan applies to."""
        given = [*domain.inputs, *further]
        trials, refusals = self._planned(given)
        refusals += self._run(trials)
        broken = {name for one in refusals for name in one.on.broken}
        counted = [one for one in refusals if not one.on.broken]
        if _is_chance(counted):
            refusals = [one for one in refusals if one.on.broken]
            counted = []
        if counted:
            return self._refused(counted, len(trials))
        assumed = [*domain.assumed, *(f"{name} (it differs on others)" for name in sorted(broken))]
        failed = {id(one.on) for one in refusals}
        right = [trial for one, trial in trials if id(one) not in failed]
        own = None
        if right and self._ways is ON_PROCESSOR:
            own = self._executor.branches(
                self._compiled, right, lambda file, _: file == CANDIDATE, self._folder / "branches"
            )
        return Judged(_passed(domain, len(right), len(given) - len(trials), assumed, own))

    def _planned(
        self, given: Sequence[DrawnInput]
    ) -> tuple[list[tuple[DrawnInput, Trial]], list[Refusal]]:
        """The candidate's launches where its plan applies. Sizes that no author launches are not
        compared with a plan that cannot be resolved for them."""
        trials, refusals = [], []
        for one in given:
            workload = one.trial.workload
            try:
                plan = resolve(self._rewrite, self._kernel, workload)
            except PlanError as problem:
                if not _is_degenerate(one):
                    refusals.append(Refusal(one, f"the plan cannot be resolved: {problem}"))
                continue
            if plan.applicable:
                trials.append((one, one.trial._replace(plan=plan)))
        return trials, refusals

    def _run(self, trials: Sequence[tuple[DrawnInput, Trial]]) -> list[Refusal]:
        """Every trial in each of the ways to run it, up to the first that refuses it."""
        refusals: dict[int, Refusal] = {}
        largest = max((one.draw.shape.accesses for one, _ in trials), default=0)
        for number, way in enumerate(self._ways):
            for is_long, limit_s in ((False, LIMIT_S), (True, LONG_LIMIT_S)):
                left = [
                    n
                    for n, (one, _) in enumerate(trials)
                    if n not in refusals and one.draw.shape.is_long == is_long
                ]
                if not left:
                    continue
                ran = self._ran(
                    way, [trials[n][1] for n in left], self._folder / f"way_{number}_{is_long}",
                    max(LEAST_ACCESSES, LIMIT_FACTOR * largest), limit_s,
                )  # fmt: skip
                for n, tried in zip(left, ran, strict=True):
                    if (found := self._seen(trials[n][0], tried)) is not None:
                        refusals[n] = found._replace(why=way.how + found.why)
        return list(refusals.values())

    def _ran(
        self,
        way: Run,
        trials: Sequence[Trial],
        folder: Path,
        most_accesses: int,
        limit_s: float,
    ) -> Sequence[Tried]:
        def run(portion: Sequence[Trial], place: Path, left_s: float) -> Sequence[Tried]:
            return self._executor.run_trials(
                self._compiled,
                portion,
                place,
                check=way.check,
                last_first=way.last_first,
                most_accesses=most_accesses,
                limit_s=limit_s,
                timeout_s=left_s,
            )

        if self._ways is not ON_PROCESSOR:  # some inputs, and a process there takes long to begin
            return run(trials, folder, ALL_S)
        launched = 0

        def ran(launches: int) -> None:
            nonlocal launched
            launched += launches
            self._telling(f"{way.how}rewrite run on {launched} of {len(trials)} generated inputs")

        return in_portions(trials, folder, ALL_S, run, ran)

    def _seen(self, one: DrawnInput, tried: Tried) -> Refusal | None:
        outcome = tried.outcome
        if isinstance(outcome, Misbehaved):
            return Refusal(one, outcome.placed, outcome)
        if tried.leaves_state:
            return Refusal(
                one,
                "persistent device state: a __device__ variable of the rewrite changes",
            )
        counted = [w for w in outcome.warnings if w.habit not in one.habits or not w.habit]
        if counted:
            return Refusal(one, counted[0].placed, counted[0])
        left = with_variables(outcome, one.variables)
        wrong = next((x for x in self._compared(one, left) if not x.passed), None)
        if wrong is None:
            return None
        near, overflows = _off_by(wrong)
        at_the_end = _is_at_the_end(one.draw)
        if near and overflows and (at_the_end or _is_large_beside_more(one.draw)):
            return None
        floating = any(key.endswith("_max_scaled") for key in wrong.numbers)
        return Refusal(one, wrong.summary, None, near and not overflows, at_the_end and floating)

    def _compared(self, one: DrawnInput, ran: Ran) -> Iterator[BufferAccuracy]:
        workload = one.trial.workload
        variables = [v for v in one.variables if v.index in ran.outputs]
        for a in (*workload.allocations, *variables):
            name = workload.name_of(a)
            if a.role == "in":
                if not same_contents(ran.outputs[a.index], one.reference.outputs[a.index]):
                    yield BufferAccuracy(False, f"wrote to its input {name}", {})
                continue
            accuracy = exact_accuracy if one.exact else buffer_accuracy
            moved = () if one.exact and is_exact(a, one.reference.outputs) else one.moved
            held = baseline_where_free(
                a, ran, one.reference, moved, one.rounded, not_a_number=one.asks_nan
            )
            found = fairly(accuracy, a, name, held, one.reference, self._policy)
            if not found.passed and a.index in one.order_free:
                found = in_any_order(a, name, ran, one.reference, self._policy)
            yield found

    def _refused(self, refusals: Sequence[Refusal], applied: int) -> Judged:
        """By the smallest input of them, which is kept."""
        least = min(refusals, key=lambda r: (r.on.draw.changes, r.on.draw.shape.accesses))
        kept = self._kept(least)
        summary = f"{least.on.draw.what}: {least.why}"
        summary += f" ({len(refusals)} of {applied} generated inputs; this one is kept in {kept})"
        sizing = _sizing(self._rewrite)
        as_launched = [
            one
            for one in refusals
            if _is_as_launched(one.on) and sizing.isdisjoint(one.on.draw.values)
        ]
        # Sizes that are wrong by themselves are so on captured contents, too.
        draws = [one.on.draw for one in refusals]
        wrong = {id(draw.shape) for draw in draws if not draw.changes}
        by_contents = [d for d in draws if d.ways and not d.values and id(d.shape) not in wrong]
        numbers = {
            "inputs_refused": float(len(refusals)), "inputs": float(applied),
            "inputs_refused_as_launched": float(len(as_launched)),
            "inputs_refused_for_contents": float(len(by_contents)),
            "misbehaved": float(least.misbehaved is not None),
        }  # fmt: skip
        gate = Gate(name="correctness_domain", passed=False, summary=summary, numbers=numbers)
        return Judged(gate, least.misbehaved, tuple(one.on for one in refusals))

    def _kept(self, refusal: Refusal) -> Path:
        """A folder with the contents of this input, its arguments, and the right result."""
        one = refusal.on
        folder = self._refused_folder
        remove(folder)
        folder.mkdir(parents=True)
        workload = one.trial.workload
        for a in workload.allocations:
            name = workload.name_of(a)
            if a.index not in one.trial.inputs.poison:
                shutil.copyfile(one.trial.inputs.contents[a.index], folder / f"{name}.before.bin")
            if a.role != "in":
                shutil.copyfile(one.reference.outputs[a.index], folder / f"{name}.right.bin")
        told = {
            "why": refusal.why,
            "input": one.draw.what,
            "grid": workload.grid.model_dump(),
            "block": workload.block.model_dump(),
            "arguments": {
                a.name: a.value for a in workload.arguments if isinstance(a, ScalarArgument)
            },
            "buffers": {workload.name_of(a): a.element for a in workload.allocations},
        }
        (folder / "input.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        return folder


class Known(NamedTuple):
    """The domain of one workload, with what draws more of it."""

    builder: DomainBuilder | None
    """None where there are none."""
    domain: Domain
    launches: tuple[LaunchNumbers, ...] = ()
    """The program's, of this kernel."""


def draw_inputs(bench: Workbench) -> None:
    """Draw what `domain_gate` holds every rewrite against, before there is one. Raises InputError
    where the author's kernel does not run."""
    first = {w.callee: w for w in reversed(bench.judged)}
    for workload in first.values():
        _by_the_author(bench, workload, domain_of(bench, workload).domain)


def domain_of(bench: Workbench, workload: Workload, say: Say = lambda line: None) -> Known:
    """The drawn inputs of one workload, made once. Raises InputError: see `draw_inputs`."""

    def make() -> Known:
        say("generating inputs; reference runs under memcheck, racecheck and synccheck")
        return _known(bench, workload, say)

    return bench.once.get(("domain", workload.id), make)


def domain_gate(bench: Workbench, rewrite: Rewrite, say: Say = lambda line: None) -> Judged:
    """The candidate on the domain of each instance that it serves."""
    started = time.monotonic()
    first: dict[str, Workload] = {}
    for workload in bench.judged_of(rewrite):
        first.setdefault(workload.callee, workload)
    judged = [_judged(bench, rewrite, workload, say) for workload in first.values()]
    worst = next((one for one in judged if not one.gate.passed), judged[0])
    seconds = time.monotonic() - started
    return worst._replace(gate=worst.gate.model_copy(update={"seconds": seconds}))


def _judged(bench: Workbench, rewrite: Rewrite, workload: Workload, say: Say) -> Judged:
    known = domain_of(bench, workload, say)
    processor = bench.executor.processor
    compiled = processor.compile(bench.unit(workload, rewrite))
    if isinstance(compiled, CompileFailed):
        return Judged(_without(f"the rewrite cannot run on the CPU: {compiled.message}"))
    if known.builder is None or known.domain.problem is not None:
        return Judged(_without(known.domain.problem or ""))
    folder = bench.folder / "work" / f"domain-{rewrite.id}"
    refused = bench.folder / "refused" / rewrite.id
    judge = DomainJudge(
        processor, compiled, rewrite, bench.kernel, bench.policy, folder, refused, say=say
    )
    domain, builder = known.domain, known.builder
    more = (*builder.about(domain, rewrite.source), *_where_served(bench, rewrite, known, say))
    judged = judge.judge(domain, more)
    told = told_grid(rewrite, bench.kernel, workload, known.launches)
    if told is not None and judged.refused and all(map(told.is_another, judged.refused)):
        again = on_told_grids(told, builder, (*domain.inputs, *more))
        if again is not None:
            domain = domain._replace(inputs=again, assumed=(*domain.assumed, str(told)))
            judged = judge.judge(domain)
    if judged.gate.passed:
        # Not before it is asked for: while ncu has the GPU the processor goes on.
        inputs = _by_the_author(bench, workload, known.domain)
        if domain is not known.domain and told is not None:
            inputs = tuple(one for one in inputs if not told.is_another(one))
        if inputs:
            domain = domain._replace(inputs=inputs)
            judged = _on_gpu(bench, rewrite, workload, domain, judged)
    bench.discard(folder.name)
    return judged


def _where_served(
    bench: Workbench, rewrite: Rewrite, known: Known, say: Say
) -> tuple[DrawnInput, ...]:
    """Further inputs where the plan applies to few of the domain's."""

    def serves(workload: Workload) -> bool:
        try:
            return resolve(rewrite, bench.kernel, workload).applicable
        except PlanError:
            return False

    shape = served_shape(known.domain.inputs, serves)
    if shape is None or known.builder is None:
        return ()
    say("generating more inputs of the sizes that the rewrite serves")
    return known.builder.valid(list(draws_of(known.builder.drawing, shape, serves)))


def _on_gpu(
    bench: Workbench, rewrite: Rewrite, workload: Workload, domain: Domain, judged: Judged
) -> Judged:
    """The same where kernels run for real; what the processor said where that agrees."""
    compiled = bench.executor.compile(bench.unit(workload, rewrite))
    if isinstance(compiled, CompileFailed):
        return judged  # which `compile` has refused
    folder = bench.folder / "work" / f"domain-{rewrite.id}" / "gpu"
    judge = DomainJudge(
        bench.executor, compiled, rewrite, bench.kernel, bench.policy, folder,
        bench.folder / "refused" / rewrite.id, ON_GPU,
    )  # fmt: skip
    there = judge.judge(domain)
    if not there.gate.passed:
        return there
    gate = judged.gate
    summary = f"{gate.summary}; {len(domain.inputs)} of the inputs on the GPU too"
    numbers = {**gate.numbers, "inputs_on_gpu": float(len(domain.inputs))}
    return Judged(gate.model_copy(update={"summary": summary, "numbers": numbers}))


def _by_the_author(bench: Workbench, workload: Workload, domain: Domain) -> tuple[DrawnInput, ...]:
    """Some inputs with what the author's kernel gives on the GPU, made once; none where that is the
    processor on which they were drawn."""
    if bench.executor is bench.executor.processor or not domain.inputs:
        return ()
    chosen = domain.inputs[:: max(1, -(-len(domain.inputs) // MOST_ON_GPU))]

    def make() -> tuple[DrawnInput, ...]:
        folder = bench.folder / "work" / "domain" / workload.id / "gpu"
        ran = bench.executor.run_trials(
            bench.compiled_baseline(workload),
            [one.trial for one in chosen],
            folder,
            timeout_s=ALL_S,
        )
        return tuple(
            one._replace(reference=one.reference._replace(outputs=left.outputs, known={}))
            for one, tried in zip(chosen, ran, strict=True)
            if isinstance(tried.outcome, Ran)
            for left in [with_variables(tried.outcome, one.variables)]
        )

    return bench.once.get(("domain on the GPU", workload.id), make)


def _known(bench: Workbench, workload: Workload, say: Say) -> Known:
    processor = bench.executor.processor
    roles = bench.oracle(workload).workload
    launches = tuple(
        launch for run in bench.captured.runs for launch in _launches(run.captured, workload)
    )
    facts = facts_of_launch(bench.program, bench.kernel, workload)
    instance = (bench.program, bench.kernel, workload.callee)
    errors, divides = computes_rounding_errors(*instance), rounds_on_integers(*instance)
    subject = DrawTarget(roles, bench.program, bench.kernel, facts, launches, errors, divides)
    folder = bench.folder / "work" / "domain" / workload.id
    remove(folder)  # of a run that is resumed
    plain = processor.compile(bench.unit(workload, None))
    widened = processor.compile(bench.unit(workload, None, widened=True))
    if isinstance(plain, CompileFailed):
        return Known(None, Domain((), problem=plain.message))
    baseline = Baseline(plain, None, None)
    if isinstance(widened, Compiled):
        baseline = baseline._replace(widened=widened)
    else:
        problem = f"the higher-precision kernel does not compile: {widened.message}"
        baseline = baseline._replace(wide_problem=problem)
    builder = DomainBuilder(processor, baseline, subject, folder, bench.seed, say)
    domain = builder.build()
    return Known(builder, domain, launches)


def _launches(captured: Captured, workload: Workload) -> Iterator[LaunchNumbers]:
    """All of this instance in one run of the program."""
    for one in captured.recorded:
        if one.kernel == workload.kernel and one.callee == workload.callee and not one.problem:
            numbers = {a.name: a.value for a in one.arguments if isinstance(a, ScalarArgument)}
            sizes = tuple(m.size_bytes for m in one.memory)
            yield LaunchNumbers(
                grid=one.grid,
                block=one.block,
                dynamic_smem_bytes=one.dynamic_smem_bytes,
                sizes_bytes=sizes,
                numbers=numbers,
            )
    yield from captured.others


def _without(problem: str) -> Gate:
    """Nothing could be drawn: the inputs of the other gates are all there are."""
    summary = f"no inputs generated ({problem}); assumption: the captured inputs are representative"
    return Gate(name="correctness_domain", passed=True, summary=summary, numbers={"inputs": 0.0})


def _passed(
    domain: Domain, right: int, left: int, assumed: Sequence[str], own: Branches | None
) -> Gate:
    """`right`: inputs on which the rewrite matches; `left`: those on which a `@requires` of it
    fails, so that the baseline runs."""
    summary = (
        f"matches the baseline on {right} generated inputs (sizes {' / '.join(domain.shapes)})"
    )
    if left:
        summary += f"; on {left} further inputs a @requires fails and the baseline runs"
    reached = [_reached(domain.branches, "baseline"), _reached(own, "rewrite")]
    if any(reached):
        summary += f"; branch coverage: {', '.join(one for one in reached if one)}"
    summary += f"; assumptions: {', '.join(assumed) if assumed else 'none'}"
    numbers = {
        "inputs": float(right), "inputs_drawn": float(domain.drawn),
        "assumptions": float(len(assumed)),
    }  # fmt: skip
    for side, branches in (("author", domain.branches), ("rewrite", own)):
        if branches is not None:
            numbers[f"{side}_branches"] = float(branches.total)
            numbers[f"{side}_branches_reached"] = float(branches.taken)
    return Gate(name="correctness_domain", passed=True, summary=summary, numbers=numbers)


def _reached(branches: Branches | None, whose: str) -> str:
    if branches is None:
        return ""
    text = f"{whose} {branches.taken} of {branches.total}"
    if branches.missed_lines:
        shown = ", ".join(str(line) for line in branches.missed_lines[:MOST_LINES])
        text += f" (not all of line{'s' * (len(branches.missed_lines) > 1)} {shown})"
    return text


def _is_as_launched(one: DrawnInput) -> bool:
    """Whether it is of the captured sizes, or of another launch that was recorded."""
    return one.draw.shape.is_captured or one.draw.recorded is not None


def _sizing(rewrite: Rewrite) -> frozenset[str]:
    """Names that a plan computes a grid, a size or an argument with: other values of them are other
    launches."""
    plan = rewrite.plan
    grids = [extent for step in plan.launches for extent in step.grid]
    computed = [x for step in plan.launches for x in step.args if not x.strip().isidentifier()]
    texts = (*grids, *computed, *(s.size_bytes for s in plan.scratch))
    return frozenset(name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text))


def _off_by(found: BufferAccuracy) -> tuple[bool, bool]:
    """Whether every element that is finite on both sides is near the right one, and whether others
    are not finite on one side."""
    numbers = found.numbers
    scaled = [v for key, v in numbers.items() if key.endswith("_max_scaled")]
    special = sum(v for key, v in numbers.items() if key.endswith("_non_finite_mismatches"))
    return bool(scaled) and max(scaled) <= ROUNDING, special > 0


def _is_chance(refusals: Sequence[Refusal]) -> bool:
    """Whether so few inputs, of the kinds that a few of some hundred are, show nothing."""
    rounded = all(one.is_rounding for one in refusals) and len(refusals) < FEWEST_ROUNDED
    ends = all(one.is_at_the_end for one in refusals) and len(refusals) < FEWEST_AT_THE_END
    return rounded or ends


def _is_at_the_end(draw: Draw) -> bool:
    """Whether numbers are next to the largest of their type: contents, or a floating argument."""
    if any(way in AT_THE_END for way in draw.ways.values()):
        return True
    return any(
        abs(draw.values[a.name]) >= LARGEST[a.element] / 16
        for a in draw.shape.workload.arguments
        if isinstance(a, ScalarArgument) and a.element in FLOATING and a.name in draw.values
    )


def _is_large_beside_more(draw: Draw) -> bool:
    """Whether products may overflow where sums do not: which, and to which side, order decides."""
    ways = [way for way in draw.ways.values() if way != "captured"]
    return "large" in ways and len(ways) > 1


def _is_degenerate(one: DrawnInput) -> bool:
    """Whether an integer is zero or less, of which no grid can be made."""
    arguments = one.trial.workload.arguments
    return any(isinstance(a, ScalarArgument) and a.value <= 0 for a in arguments)
