"""Gates `checker`, `correctness_captured`, `correctness_exact`, `correctness_perturbed` and
`unchanged_inputs`, and the runs of `repeat`: a candidate on every set of inputs, cheapest first.

What is exact enough stands in `accuracy.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.judgement import Gate, GateName, Policy
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import FLOATING, Allocation
from cudaops.executors.arrays import stored
from cudaops.executors.base import Check, Executor, InputSet, Trial
from cudaops.executors.compare import (
    Distance,
    distance,
    misplaced_specials,
    same_contents,
    same_rows,
)
from cudaops.executors.fields import views
from cudaops.executors.untrusted_files import remove
from cudaops.gates.accuracy import (
    NOTHING_COMPARED,
    BufferAccuracy,
    BufferComparison,
    buffer_accuracy,
    changed_inputs,
    exact_accuracy,
    same_as_rows,
    same_as_sets,
    sides_of,
)
from cudaops.gates.posed import as_rounded
from cudaops.gates.repeat import (
    Launch,
    fresh_process_launch,
    repeat_gate,
    schedule,
    split_by_process,
)
from cudaops.sandbox.drawn import moved_inputs
from cudaops.sandbox.inputs import EXACT_CASES
from cudaops.sandbox.oracle import ENOUGH_CASES, Oracle, Reference
from cudaops.sandbox.shared_variables import with_variables

OWN_RERUNS, MOST_OWN_RERUNS = 3, 16
"""Further runs of the author's kernel on the same inputs, where a candidate is not as near to the
first as it must be; and where these show that it differs from itself and leave it open. Chosen: of
sums in no fixed order the largest of three distances is half of the next one about once in twenty
times, of sixteen less than once in a thousand."""
OWN_FACTOR = 2.0
"""A candidate may be this many times as far from one result of the author's kernel as that is from
itself."""
LEFT_OPEN = 4.0
"""A result that is so many times farther off than a few runs allow is not looked at further."""
OWN_WIDEST = 1e-3
"""Relative L2 distance beyond which results of the author's kernel differ by more than the order of
a sum can explain: then they say nothing of a candidate."""
MOST_POSED_BYTES = 256 << 20
"""Of a workload's memory, where the author's kernel is run again for how well the problem is posed.
Results of many elements have norms that no luck moves."""
SLACK = 4.0
"""A launch of a series may take this many times the longest run of the gates before it."""

Author = Callable[[InputSet, Path], Ran | Misbehaved]
Accuracy = Callable[[Allocation, str, Ran, Reference, Policy], BufferAccuracy]


class _Spread(NamedTuple):
    """How far results of one kernel on the same inputs are from each other."""

    relative_l2: float = 0.0
    max_scaled: float = 0.0
    """Of one element: see `compare.Distance`."""

    @property
    def itself(self) -> str:
        """How it is said."""
        itself = f"the author's kernel differs from itself by {self.relative_l2:.1e}"
        return f"{itself} (atomics or a race)"

    def holds(self, gap: Distance, factor: float) -> bool:
        """Whether a result is that many times as far off at most."""
        return (
            gap.relative_l2 <= factor * self.relative_l2
            and gap.max_scaled <= factor * self.max_scaled
        )

    def beside(self, gap: Distance) -> _Spread:
        """The larger ones."""
        return _Spread(max(gap.relative_l2, self.relative_l2), max(gap.max_scaled, self.max_scaled))


class Subject(NamedTuple):
    """One candidate compiled and resolved for one workload."""

    compiled: Compiled
    plan: ResolvedPlan
    oracle: Oracle
    author: Author | None = None
    """Runs the author's kernel again; None: nobody asks how far it is from itself."""
    checked_author: Author | None = None
    """The same, looked at as the candidate is; None: nobody asks what it does wrong itself."""
    rounded: Callable[[InputSet, Path], tuple[dict[int, str], ...]] | None = None
    """The author's results on a processor with everything rounded up, and down; None: no integer of
    them comes of floating point."""
    another: Author | None = None
    """The same with the last thread first, where there is such an order; None: nobody asks what the
    order of threads and the last bit of the inputs decide."""


def _told(one: BufferAccuracy, name: str, own: _Spread) -> dict[str, float]:
    return {**one.numbers, f"own_spread_{name}": own.relative_l2}


def _habits(warnings: Sequence[Misbehaved]) -> set[str]:
    """See `Misbehaved.habit`."""
    return {one.habit for one in warnings} - {""}


class Verifier:
    """Runs a candidate on every case and compares."""

    def __init__(self, executor: Executor, policy: Policy, folder: Path, timeout_s: float) -> None:
        """`timeout_s` is for one run."""
        self._executor = executor
        self._policy = policy
        self._folder = folder
        self._timeout_s = timeout_s
        self._misbehaved: Misbehaved | None = None
        self._changed: list[str] = []
        self._own: dict[tuple[str, str], dict[int, _Spread]] = {}
        """How far the author's kernel is from itself, by workload and inputs, then allocation."""
        self._reruns: dict[tuple[str, str], int] = {}
        """In so many further runs, likewise."""
        self._moved: dict[tuple[str, str], dict[int, str] | None] = {}
        """The author's results on inputs moved by one roundoff, by workload and inputs."""
        self._rounded: dict[tuple[str, str], tuple[dict[int, str], ...]] = {}
        """With everything rounded up, and down, likewise."""
        self._free: dict[tuple[str, str], frozenset[int]] = {}
        """Buffers in no fixed order, likewise."""
        self._input_checks = 0
        self._longest_s = 0.0

    @property
    def misbehaved(self) -> Misbehaved | None:
        """What the candidate did, where a gate failed because of it."""
        return self._misbehaved

    def gates(self, subjects: Sequence[Subject]) -> Iterator[Gate]:
        """Every correctness gate as it is decided, up to the first that fails."""
        steps: tuple[Callable[[Sequence[Subject]], Gate], ...] = (
            self._checker,
            lambda s: self._case("correctness_captured", s, lambda o: (o.captured,)),
            lambda s: self._case("correctness_exact", s, lambda o: (o.exact,), exact_accuracy),
            self._perturbed,
            self._repeat,
            self._unchanged_inputs,
        )
        for step in steps:
            started = time.monotonic()
            gate = step(subjects)
            yield gate.model_copy(update={"seconds": time.monotonic() - started})
            if not gate.passed:
                return

    def _checker(self, subjects: Sequence[Subject]) -> Gate:
        """Bounds, races and divergent barriers, found by construction on the smallest workload."""
        subject = min(
            subjects, key=lambda s: s.oracle.workload.grid.volume * s.oracle.workload.block.volume
        )
        ran = self._run(subject, subject.oracle.captured.inputs, "checker", check="full")
        if isinstance(ran, Misbehaved):
            return self._failed("checker", ran)
        author = self._warnings_of_author(subject) if ran.warnings else ()
        shared = _habits(ran.warnings) & _habits(author)
        counted = [one for one in ran.warnings if one.habit not in shared]
        if counted:
            gate = self._failed("checker", counted[0])
            own = next((x for x in author if (x.what, x.habit) == (counted[0].what, "")), None)
            if own is None:
                return gate
            said = f"{gate.summary}; the author's kernel is not right either: {own.placed}"
            return gate.model_copy(update={"summary": said})
        if ran.unchecked:
            reasons = "; ".join(one.line for one in ran.unchecked)
            return Gate(name="checker", passed=False, summary=reasons)
        summary = "memcheck, racecheck, synccheck: no finding"
        if shared:
            summary += f" except {' and '.join(sorted(shared))}, as in the baseline"
        if ran.checked:
            summary += f" ({ran.checked})"
        return Gate(name="checker", passed=True, summary=summary)

    def _warnings_of_author(self, subject: Subject) -> tuple[Misbehaved, ...]:
        """What the author's kernel does wrong. What of it is a habit (`Misbehaved.habit`) it may
        go on with: what nobody wrote may be read and not used, and which of several
        threads writes one value last makes no difference. Else it would show in results, which
        other memory stands around, and other inputs go into, in each run."""
        if subject.checked_author is None:
            return ()
        folder = self._folder / subject.oracle.workload.id / "author_checked"
        ran = subject.checked_author(subject.oracle.captured.inputs, folder)
        remove(folder)
        return ran.warnings if isinstance(ran, Ran) else ()

    def _case(
        self,
        name: GateName,
        subjects: Sequence[Subject],
        choose: Callable[[Oracle], Sequence[Reference]],
        accuracy: Accuracy | None = None,
    ) -> Gate:
        """Every chosen reference in a process of its own; `accuracy` None: as the case demands."""
        found: list[BufferComparison] = []
        for subject in subjects:
            references = choose(subject.oracle)
            if not references:
                text = (
                    "the baseline itself is not finite on any such inputs, so nothing was compared"
                )
                return Gate(name=name, passed=False, summary=text)
            for reference in references:
                ran = self._run(subject, reference.inputs, name)
                if isinstance(ran, Misbehaved):
                    return self._failed(name, ran)
                found += self._compare(subject, ran, reference, accuracy)
                if not all(one.accuracy.passed for one in found):
                    return accuracy_gate(name, found)
        return accuracy_gate(name, found)

    def _perturbed(self, subjects: Sequence[Subject]) -> Gate:
        """All other inputs, and how many sets there are in all."""
        gate = self._case("correctness_perturbed", subjects, lambda o: o.perturbed)
        if not gate.passed and all(s.oracle.perturbed for s in subjects):
            return gate
        sets = input_set_summary([subject.oracle for subject in subjects])
        return gate.model_copy(
            update={
                "summary": f"{gate.summary}; {sets.summary}",
                "numbers": {**gate.numbers, **sets.numbers},
            }
        )

    def _repeat(self, subjects: Sequence[Subject]) -> Gate:
        """Many launches in one process, on all inputs, at other addresses, over other backgrounds;
        then one in a fresh process. Every output of every launch is compared; bits may differ."""
        found: list[BufferComparison] = []
        launches = processes = 0
        for subject in subjects:
            planned = schedule(subject.oracle, _name(subject))
            for portion in split_by_process(planned, subject.oracle.workload):
                launches, processes = launches + len(portion), processes + 1
                misbehaved = self._series(subject, portion, found)
                if misbehaved is not None:
                    return self._failed("repeat", misbehaved)
                if not all(one.accuracy.passed for one in found):
                    return repeat_gate(found, [subject.oracle], launches, processes)
        for subject in subjects:
            launch = fresh_process_launch(subject.oracle, _name(subject))
            ran = self._run(subject, launch.inputs, "fresh")
            if isinstance(ran, Misbehaved):
                return self._failed("repeat", ran)
            found += self._compare(subject, ran, launch.reference, None, launch.number)
        more = len(subjects)
        oracles = [subject.oracle for subject in subjects]
        return repeat_gate(found, oracles, launches + more, processes + more)

    def _series(
        self, subject: Subject, launches: Sequence[Launch], found: list[BufferComparison]
    ) -> Misbehaved | None:
        """Launch them in one process and compare the results."""
        workload = subject.oracle.workload
        folder = self._folder / workload.id / f"series_{launches[0].number}"
        outcome = self._executor.run_series(
            subject.compiled,
            workload,
            subject.plan,
            [one.inputs for one in launches],
            folder,
            timeout_s=self._timeout_s + SLACK * self._longest_s * len(launches),
        )
        if isinstance(outcome, Misbehaved):
            return outcome
        for launch, ran in zip(launches, outcome, strict=True):
            left = with_variables(ran, subject.oracle.variables)
            found += self._compare(subject, left, launch.reference, None, launch.number)
        remove(folder)
        return None

    def _unchanged_inputs(self, subjects: Sequence[Subject]) -> Gate:
        if self._changed:
            names = ", ".join(sorted(set(self._changed)))
            return Gate(
                name="unchanged_inputs", passed=False, summary=f"wrote to its input {names}"
            )
        summary = "no input buffer was modified"
        numbers = {"runs_checked": float(self._input_checks)}
        return Gate(
            name="unchanged_inputs", passed=self._input_checks > 0, summary=summary, numbers=numbers
        )

    def _compare(
        self,
        subject: Subject,
        ran: Ran,
        reference: Reference,
        accuracy: Accuracy | None,
        launch: int | None = None,
    ) -> list[BufferComparison]:
        workload = subject.oracle.workload
        self._changed += changed_inputs(workload, ran, reference)
        self._input_checks += 1
        if accuracy is None:
            accuracy = exact_accuracy if reference.kind in EXACT_CASES else buffer_accuracy
        found = []
        for a in subject.oracle.results:
            one = self.accuracy_of(subject, a, ran, reference, accuracy)
            found.append(BufferComparison(reference.kind, one, launch))
        return found

    def accuracy_of(
        self,
        subject: Subject,
        a: Allocation,
        ran: Ran,
        reference: Reference,
        accuracy: Accuracy = buffer_accuracy,
    ) -> BufferAccuracy:
        """One buffer as `accuracy` has it. What that refuses is compared with what the author's
        kernel does when its inputs, its order or its rounding are others."""
        name = subject.oracle.workload.name_of(a)
        one = fairly(accuracy, a, name, ran, reference, self._policy)
        if not one.passed and not one.is_exact:
            one = self._as_posed(subject, a, name, ran, reference) or one
        if not one.passed and subject.rounded is not None:
            one = self._as_rounded(subject, accuracy, a, name, ran, reference)
        if not one.passed and a.element in FLOATING and subject.author is not None:
            one = self._by_own_spread(subject, a, ran, reference, one)
        if not one.passed and a.index in self._free_order(subject, reference):
            one = in_any_order(a, name, ran, reference, self._policy)
        return one

    def _as_posed(
        self, subject: Subject, a: Allocation, name: str, ran: Ran, reference: Reference
    ) -> BufferAccuracy | None:
        """The comparison where it is known what one roundoff of the inputs does to the author's own
        result; None where that cannot be found out. Large workloads are not run for it."""
        workload = subject.oracle.workload
        if subject.another is None or workload.size_bytes > MOST_POSED_BYTES:
            return None
        key = workload.id, reference.kind
        if key not in self._moved:
            folder = self._folder / workload.id / f"moved_{reference.kind}"
            generator = np.random.default_rng((subject.oracle.seed, len(self._moved)))
            trial = Trial(workload, subject.plan, reference.inputs)
            inputs = moved_inputs(trial, folder / "in", generator)
            moved = None if inputs is None else subject.another(inputs, folder / "out")
            self._moved[key] = moved.outputs if isinstance(moved, Ran) else None
        outputs = self._moved[key]
        if outputs is None:
            return None
        posed = reference._replace(sensitivity=outputs, known={})
        return fairly(buffer_accuracy, a, name, ran, posed, self._policy)

    def _as_rounded(
        self,
        subject: Subject,
        accuracy: Accuracy,
        a: Allocation,
        name: str,
        ran: Ran,
        reference: Reference,
    ) -> BufferAccuracy:
        """The comparison where integers that the author's rounding decides may be either of his."""
        assert subject.rounded is not None
        key = subject.oracle.workload.id, reference.kind
        if key not in self._rounded:
            folder = self._folder / key[0] / f"rounded_{reference.kind}"
            self._rounded[key] = subject.rounded(reference.inputs, folder)
        held = as_rounded(a, ran, reference, self._rounded[key])
        return fairly(accuracy, a, name, held, reference, self._policy)

    def _free_order(self, subject: Subject, reference: Reference) -> frozenset[int]:
        """Buffers whose elements the author's threads leave in another order when they run in
        another one."""
        workload = subject.oracle.workload
        key = workload.id, reference.kind
        if key not in self._free:
            again: Ran | Misbehaved | None = None
            if subject.another is not None and workload.size_bytes <= MOST_POSED_BYTES:
                folder = self._folder / workload.id / f"order_{reference.kind}"
                again = subject.another(reference.inputs, folder)
            free = set()
            written = [a for a in workload.allocations if a.role != "in"]
            for a in written if isinstance(again, Ran) else ():
                assert isinstance(again, Ran)
                one, two = reference.outputs[a.index], again.outputs[a.index]
                if not same_contents(one, two) and same_rows(a, one, two):
                    free.add(a.index)
            self._free[key] = frozenset(free)
        return self._free[key]

    def _by_own_spread(
        self, subject: Subject, a: Allocation, ran: Ran, reference: Reference, one: BufferAccuracy
    ) -> BufferAccuracy:
        """The same, unless the author's kernel is as far from itself: atomics in floating point and
        races give it another result each time, and no candidate can be held to one of them."""
        result = stored(ran.outputs[a.index], a.element)
        right = stored(reference.outputs[a.index], a.element)
        gap = distance(result, right)
        special = gap.non_finite_mismatches
        if reference.non_finite:
            special = misplaced_specials(result, right, None)
        name = subject.oracle.workload.name_of(a)
        for reruns in (OWN_RERUNS, MOST_OWN_RERUNS):
            own = self._own_spread(subject, reference, reruns).get(a.index, _Spread())
            if own.relative_l2 == 0.0:
                return one
            if own.relative_l2 <= OWN_WIDEST and not special and own.holds(gap, OWN_FACTOR):
                text = f"{name}: relative L2 distance {gap.relative_l2:.1e}, where {own.itself}"
                return BufferAccuracy(True, text, _told(one, name, own))
            if special or not own.holds(gap, LEFT_OPEN * OWN_FACTOR):
                break
        return BufferAccuracy(False, f"{one.summary}; {own.itself}", _told(one, name, own))

    def _own_spread(
        self, subject: Subject, reference: Reference, reruns: int
    ) -> dict[int, _Spread]:
        """Largest distances of the author's kernel in so many runs from the reference, which is
        one of it, by allocation."""
        workload = subject.oracle.workload
        key = workload.id, reference.kind
        known = self._own.setdefault(key, {})
        first = self._reruns.get(key, 0)
        if subject.author is None:
            return known
        self._reruns[key] = max(first, reruns)
        for number in range(first, reruns):
            folder = self._folder / workload.id / f"author_{reference.kind}_{number}"
            again = subject.author(reference.inputs, folder)
            if isinstance(again, Misbehaved):
                continue  # what it does wrong is no distance
            again = with_variables(again, subject.oracle.variables)
            for a in subject.oracle.results:
                if a.element not in FLOATING or a.index not in again.outputs:
                    continue
                gap = distance(
                    stored(again.outputs[a.index], a.element),
                    stored(reference.outputs[a.index], a.element),
                )
                known[a.index] = known.get(a.index, _Spread()).beside(gap)
            remove(folder)
        return known

    def _run(
        self, subject: Subject, inputs: InputSet, name: str, check: Check = "none"
    ) -> Ran | Misbehaved:
        workload = subject.oracle.workload
        started = time.monotonic()
        ran = self._executor.run(
            subject.compiled,
            workload,
            subject.plan,
            inputs,
            self._folder / workload.id / name,
            check=check,
            timeout_s=self._timeout_s,
        )
        if check == "none":
            self._longest_s = max(self._longest_s, time.monotonic() - started)
        return with_variables(ran, subject.oracle.variables) if isinstance(ran, Ran) else ran

    def _failed(self, name: GateName, misbehaved: Misbehaved) -> Gate:
        self._misbehaved = misbehaved
        return Gate(name=name, passed=False, summary=misbehaved.placed)


def fairly(
    accuracy: Accuracy, a: Allocation, name: str, ran: Ran, reference: Reference, policy: Policy
) -> BufferAccuracy:
    """What `accuracy` says. Where it would refuse the author's own result as well, the fault is the
    yardstick's: the two are then compared."""
    one = accuracy(a, name, ran, reference, policy)
    if one.passed or reference.wide_outputs is None:
        return one
    author = Ran(outputs=reference.outputs, seconds=0.0)
    if accuracy(a, name, author, reference, policy).passed:
        return one
    problem = "the original kernel's own result is outside of the tolerance"
    plain = reference._replace(wide_outputs=None, wide_problem=problem, known={})
    return accuracy(a, name, ran, plain, policy)


def in_any_order(
    a: Allocation, name: str, ran: Ran, reference: Reference, policy: Policy
) -> BufferAccuracy:
    """Whether a buffer holds the author's elements, or structures, in some order."""
    columns = [
        (sides_of(view, ran, reference), view.element, view.named(name)) for view in views(a)
    ]
    if len(columns) > 1:
        rows = same_as_rows(columns, policy)
        return next((one for one in rows if not one.passed), rows[0])
    return same_as_sets(*columns[0], policy)


def _name(subject: Subject) -> str:
    rewrite = subject.compiled.unit.rewrite
    return "author" if rewrite is None else rewrite.id


class InputSetSummary(NamedTuple):
    """How many sets of inputs the gates compared."""

    summary: str
    numbers: dict[str, float]


def accuracy_gate(name: GateName, found: Sequence[BufferComparison]) -> Gate:
    """One gate over all buffers of all workloads; no buffer at all is a failure."""
    if not found:
        return Gate(name=name, passed=False, summary=NOTHING_COMPARED)
    kinds = list(dict.fromkeys(one.kind for one in found))
    worst = next((one for one in found if not one.accuracy.passed), None)
    label = "/".join(kinds) if worst is None else worst.kind
    shown = (worst or found[0]).accuracy.summary
    others = {one.accuracy.buffer: None for one in found} if worst is None else {}
    others.pop(found[0].accuracy.buffer, None)
    if others:
        shown += f"; compared as well: {', '.join(others)}"
    return Gate(
        name=name,
        passed=worst is None,
        summary=f"{label} inputs: {shown}",
        numbers=_numbers(found, prefixed=len(kinds) > 1),
    )


def input_set_summary(oracles: Sequence[Oracle]) -> InputSetSummary:
    """How many sets there are of the workload that has fewest, and what was left out and why."""
    own = [one for one in oracles if one.budget != "minimal"] or oracles
    fewest = min(own, key=lambda oracle: len(oracle.references))
    count, enough = len(fewest.references), ENOUGH_CASES["full"]
    text = f"{count} sets of inputs in all"
    if count < enough:
        text = f"only {text}, fewer than {enough}: weak oracle"
    if fewest.kept:
        text += f"; {', '.join(fewest.kept)} as captured in all of them, for places"
    reasons: dict[str, list[str]] = {}
    for one in fewest.skipped:
        reasons.setdefault(one.why, []).append(one.kind)
    if reasons:
        text += "; skipped: "
        text += "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in reasons.items())
    numbers = {"input_sets": float(count), "input_sets_left_out": float(len(fewest.skipped))}
    return InputSetSummary(text, numbers)


def _numbers(found: Sequence[BufferComparison], *, prefixed: bool) -> dict[str, float]:
    """The largest of each number; of several kinds of inputs each its own."""
    numbers: dict[str, float] = {}
    for one in found:
        for key, value in one.accuracy.numbers.items():
            name = f"{one.kind}_{key}" if prefixed else key
            numbers[name] = max(value, numbers.get(name, value))
    return numbers
