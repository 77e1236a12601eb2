"""The oracle: the author's kernel, and its twin in double, run on every set of inputs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.domain.execution import Compiled, Misbehaved
from cudaops.domain.judgement import Policy
from cudaops.domain.workload import (
    FLOATING,
    Allocation,
    PointerArgument,
    Workload,
)
from cudaops.executors.arrays import (
    EXACT_LIMIT,
    contents_digest,
    round_wide_doubles,
    stored,
)
from cudaops.executors.bands import ErrorCounts, Tolerance
from cudaops.executors.base import Check, Executor, InputSet
from cudaops.executors.compare import (
    Distance,
    distance,
    is_small_integers,
    is_zero,
    misplaced_specials,
    non_finite_share,
)
from cudaops.executors.fields import View, floating_views, views
from cudaops.executors.untrusted_files import remove
from cudaops.program.analysis.facts import KernelFacts
from cudaops.program.analysis.summary import facts_of_launch
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import (
    DOMAIN_KINDS,
    EXACT_KINDS,
    FLOATING_KINDS,
    INTEGER_KINDS,
    RELAUNCHED,
    CaseDraw,
    CaseKind,
    as_left,
    build_case,
    can_widen,
    has_floating_input,
    searched_tables,
    widen,
    widened_arguments,
)
from cudaops.sandbox.precision import unfit_inputs
from cudaops.sandbox.shared_variables import changed_variables, with_variables

MAX_OWN_ERROR = 0.1
"""A baseline that is farther than this (relative L2) from its widened run is not measured by it:
that run computes something else, as where floats are read as the bits of integers. Chosen: far
above the error of any sum that means something, far below that of unrelated numbers (about 1)."""

ReferenceBudget = Literal["full", "reduced", "minimal"]
"""Of a workload among those of its instance: `minimal`: it has the shape of an earlier one."""
ENOUGH_CASES: dict[ReferenceBudget, int] = {"full": 5, "reduced": 3, "minimal": 2}
"""Cases of a workload, the captured one among them, that are made whatever they cost. Further
launches differ in sizes, not in what they compute, and the rewrite passes all of them; those of one
shape are sets of inputs by themselves."""

MOST_ASKED = 12
"""Floating inputs that are tried one by one for those that say places."""

EXTRA_CASES_S = 10.0
"""Further ones are made until the references of the workload have taken this long."""

EXACT_POISON = 0x3D
PERTURBED_POISON = 0x3C
"""Fill of the outputs. As f32 and bf16 0.046 and 0.011, as f16 1.3 and 1.1: where the baseline
leaves a place alone, a norm over the buffer still is one of the results."""

LEAST_LIMIT_S = 5.0
SLACK = 10.0
"""Limit of a run that may never end: these seconds, and so many times the longest other run."""

SAME = "the same as another set"
UNSETTLED = "which thread comes last decides what the author's kernel leaves"
NOT_WIDER = "nothing here is wider than double"
NO_YARDSTICK_WANTED = "results are integers and compared bit for bit"


@dataclass
class KeptFacts:
    """What was found of one buffer of a reference, for all candidates. None: not asked yet."""

    own: Distance | None = None
    """How far the baseline is from its widened run."""
    exact: bool | None = None
    """Whether all that the baseline wrote are integers that its type holds exactly."""
    moved: Distance | None = None
    """How far `Reference.sensitivity` is from the baseline."""
    counts: dict[tuple[Tolerance, bool], ErrorCounts] = field(default_factory=dict)
    """The baseline's own errors by size, without and with `Reference.sensitivity`."""
    compared: dict[tuple[bytes, str], object] = field(default_factory=dict)
    """What was found of results, by their digest and how they were compared."""
    fields: dict[str, KeptFacts] = field(default_factory=dict)
    """Of structures: the same of each field, by its path."""


class Reference(NamedTuple):
    """The right answer for one case."""

    kind: CaseKind
    inputs: InputSet
    outputs: dict[int, str]
    """Baseline results: allocation index to file."""
    wide_outputs: dict[int, str] | None
    """Results of the widened baseline, as doubles: allocation index to file, for those that hold
    floating values. Without those whose type could not be widened, None where it could not run at
    all; `wide_problem` says why."""
    wide_problem: str | None = None
    unwritten: bool = False
    """Some of an `out` buffer may not have been written: it holds what filled it before. Such a
    case is the same under another fill only where the candidate leaves the same places."""
    is_zero: bool = False
    """Every result is zero, where the captured ones are not: a candidate is compared on it, but it
    shows little, and is not counted among the sets."""
    non_finite: bool = False
    """The baseline gives NaN or infinity in places, and not in so many on the captured inputs."""
    known: dict[int, KeptFacts] | None = None
    """By allocation, of these very results; None: nothing is kept."""
    sensitivity: dict[int, str] | None = None
    """Results of the baseline on inputs of which each floating one was moved by one unit roundoff
    up or down at random: allocation index to file. None: nobody asked."""
    compensated: bool = False
    """The author's kernel computes its own rounding errors (`analysis/compensation.py`)."""

    def known_of(self, allocation: Allocation) -> KeptFacts | None:
        """Of one buffer."""
        return None if self.known is None else self.known.setdefault(allocation.index, KeptFacts())

    def known_of_view(self, view: View) -> KeptFacts | None:
        """Of one buffer, or of one field of the structures in it."""
        known = self.known_of(view.allocation)
        if known is None or view.field is None:
            return known
        return known.fields.setdefault(view.field.path, KeptFacts())


class SkippedInputs(NamedTuple):
    """A case that was not made, or not used."""

    kind: CaseKind
    why: str


class Oracle(NamedTuple):
    """The references of one workload."""

    workload: Workload
    captured: Reference
    perturbed: tuple[Reference, ...]
    """Those on which the baseline is finite first. Empty if it accepts no other inputs; the
    captured case once more where it reads nothing that could hold something else."""
    exact: Reference
    """The captured case once more where no exact inputs suit."""
    skipped: tuple[SkippedInputs, ...] = ()
    seed: int = 0
    """Secret: draws the order of launches."""
    budget: ReferenceBudget = "full"
    variables: tuple[Allocation, ...] = ()
    """See `changed_variables`."""
    kept: tuple[str, ...] = ()
    """Pointers to floating values that are the captured ones in every set: on others the baseline
    fails, which works places out from them."""

    @property
    def results(self) -> tuple[Allocation, ...]:
        """What a launch leaves: buffers, and variables."""
        return (*(a for a in self.workload.allocations if a.role != "in"), *self.variables)

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every case once, the captured one first."""
        exact = () if self.exact.kind == "captured" else (self.exact,)
        others = (one for one in self.perturbed if one.kind != "captured")
        return (self.captured, *exact, *others)


class Baseline(NamedTuple):
    """The baseline as compiled for one workload."""

    plain: Compiled
    widened: Compiled | None
    wide_problem: str | None
    """Why there is no widened build, or none that widens doubles; None where nothing is missing."""


class OracleBuilder:
    """Runs the baseline on every case of one workload; its launches make the references."""

    def __init__(
        self,
        executor: Executor,
        baseline: Baseline,
        workload: Workload,
        policy: Policy,
        folder: Path,
        timeout_s: float,
    ) -> None:
        self._executor = executor
        self._baseline = baseline
        self._workload = workload
        self._policy = policy
        self._folder = folder
        self._timeout_s = timeout_s
        self._plan = baseline_plan(workload)
        unit, program = baseline.plain.unit, baseline.plain.unit.program
        self._variables = changed_variables(program, program.kernel(unit.kernel), workload)
        self._floating = has_floating_input(workload)
        self._skipped: list[SkippedInputs] = []
        self._seen: dict[str, CaseKind] = {}
        self._digests: dict[str, bytes] = {}
        """Of the files that hold inputs; each is written once."""
        self._measurable = True
        self._longest_s = 0.0
        self._beside_exact: list[Reference] = []
        self._kept: frozenset[int] | None = None
        """Allocations that say places; None: nobody has looked."""

    def build(
        self,
        seed: int,
        say: Callable[[str], None] = lambda line: None,
        budget: ReferenceBudget = "full",
    ) -> Oracle:
        """Every case on which the baseline itself is well-behaved; `seed` is secret, `say` hears
        which inputs it runs on.

        At least `ENOUGH_CASES` where it is on so many, and more as long as they are cheap.
        """
        started = time.monotonic()
        say("reference run: captured and exact inputs")
        captured = self._captured()
        exact = self._exact(seed, captured, EXACT_KINDS if budget != "minimal" else ())
        again = [] if budget == "minimal" else self._relaunched(seed, say)
        perturbed: list[Reference] = list(self._beside_exact)
        for draw in self._draws(seed, exact, perturbed):
            cases = sum(not one.is_zero for one in (captured, *perturbed, *again))
            cases += exact.kind != "captured"
            spent = time.monotonic() - started
            if cases >= ENOUGH_CASES[budget] and spent > EXTRA_CASES_S:
                why = f"time limit: {cases} sets took {spent:.0f} s"
                self._skipped.append(SkippedInputs(draw.kind, why))
                continue
            say(f"reference run: {draw.kind} inputs")
            made = self._perturbed(draw)
            if made is not None:
                perturbed.append(made)
        perturbed += again
        perturbed.sort(key=lambda one: one.non_finite)
        if not perturbed and all(one.why == SAME for one in self._skipped):
            perturbed.append(captured)  # it reads nothing that could hold something else
        skipped, kept = tuple(self._skipped), (self._kept or frozenset()) | self._tables
        names = tuple(
            a.name for a in self._workload.arguments
            if isinstance(a, PointerArgument) and a.allocation in kept
        )  # fmt: skip
        return Oracle(
            self._workload, captured, tuple(perturbed), exact, skipped, seed, budget,
            self._variables, names,
        )  # fmt: skip

    def _relaunched(self, seed: int, say: Callable[[str], None]) -> list[Reference]:
        """The launch on what it left, where that is not what it found."""
        if not any(a.role == "inout" and a.before != a.after for a in self._workload.allocations):
            return []
        say("reference run: the output of its first launch as input")
        made = self._perturbed(CaseDraw(RELAUNCHED, seed))
        return [] if made is None else [made]

    def _draws(self, seed: int, exact: Reference, found: list[Reference]) -> Iterator[CaseDraw]:
        """What to try, in order; `found` grows meanwhile and shows where the baseline is finite."""
        if not self._floating:
            yield from (CaseDraw(kind, seed) for kind in INTEGER_KINDS)
            return
        remaining = list(DOMAIN_KINDS)
        while remaining and all(one.is_zero or one.non_finite for one in found):
            yield CaseDraw(remaining.pop(0), seed)
        signed = any(one.kind == "signed" and not one.non_finite for one in found)
        if exact.kind in EXACT_KINDS:
            yield CaseDraw("exact_touched", seed, exact.kind == "exact", exact.inputs)
        else:
            yield CaseDraw("touched", seed)
        yield from (CaseDraw(kind, seed, signed) for kind in (*FLOATING_KINDS, *remaining))

    def _captured(self) -> Reference:
        """The case the program itself ran; the baseline's result is the captured one."""
        captured = CaseDraw("captured", 0)
        inputs = build_case(self._workload, captured, self._folder / "captured", 0xFF)
        self._is_new("captured", inputs)
        made = self._with_wide("captured", inputs, self._captured_outputs())
        self._measurable = self._own_error(made) <= MAX_OWN_ERROR
        return made

    def _exact(self, seed: int, captured: Reference, kinds: Sequence[CaseKind]) -> Reference:
        """Small integers in every floating buffer; the captured case where no such inputs suit."""
        for kind in kinds if self._floating else ():
            draw = CaseDraw(kind, seed)
            inputs = self._case(draw, EXACT_POISON)
            outputs = self._run_baseline(kind, inputs)
            if isinstance(outputs, str) and self._finds_places(draw):
                inputs = self._case(draw, EXACT_POISON)
                outputs = self._run_baseline(kind, inputs)
            if isinstance(outputs, str):
                self._skipped.append(SkippedInputs(kind, outputs))
                continue
            self._is_new(kind, inputs)
            finite = self._finite(outputs)
            with_wide = self._exactly if finite else self._with_wide
            made = self._fit(with_wide(kind, inputs, outputs))
            if isinstance(made, Reference) and finite:
                return made
            made = self._in_places(made) if isinstance(made, Reference) else made
            if isinstance(made, Reference):
                self._beside_exact.append(made)
            else:
                self._skipped.append(SkippedInputs(kind, made))
        poisoned = dict.fromkeys(captured.inputs.poison, EXACT_POISON)
        update = {"poison": poisoned, "scratch_poison": EXACT_POISON}
        return captured._replace(inputs=captured.inputs.model_copy(update=update))

    def _case(self, draw: CaseDraw, poison: int) -> InputSet:
        draw = draw._replace(kept=(self._kept or frozenset()) | self._tables)
        return build_case(self._workload, draw, self._folder / draw.kind, poison)

    def _finds_places(self, draw: CaseDraw) -> bool:
        """Whether it is some of the floating inputs alone on whose new values the baseline fails
        (reciprocals of extents that indices are divided by): those keep the captured ones."""
        floating = floating_views(self._workload)
        read = [*dict.fromkeys(one.index for one in floating if one.allocation.role != "out")]
        if self._kept is not None or not 2 <= len(read) <= MOST_ASKED:
            return False
        failing = set()
        for index in read:
            one = draw._replace(kept=frozenset(read) - {index})
            inputs = build_case(self._workload, one, self._folder / "places", EXACT_POISON)
            if isinstance(self._run_baseline(draw.kind, inputs, f"places_{index}"), str):
                failing.add(index)
            remove(self._folder / draw.kind / f"places_{index}")
        remove(self._folder / "places")
        self._kept = frozenset(failing if len(failing) < len(read) else ())
        return bool(self._kept)

    def _exactly(self, kind: CaseKind, inputs: InputSet, outputs: dict[int, str]) -> Reference:
        """With a yardstick only where some result is no integer."""
        whole = all(
            is_small_integers(a.stored(outputs[a.index]), EXACT_LIMIT[a.element])
            for a in self._written()
        )
        if not whole:
            return self._with_wide(kind, inputs, outputs)
        unwritten = self._unwritten(inputs, outputs)
        return Reference(kind, inputs, outputs, None, NO_YARDSTICK_WANTED, unwritten, known={})

    def _perturbed(self, draw: CaseDraw) -> Reference | None:
        """The baseline on other inputs; None, with the reason kept, where it does not bear them."""
        made = self._tried(draw)
        if isinstance(made, Reference):
            return made
        self._skipped.append(SkippedInputs(draw.kind, made))
        return None

    def _tried(self, draw: CaseDraw) -> Reference | str:
        inputs = self._case(draw, PERTURBED_POISON)
        if not self._is_new(draw.kind, inputs):
            return SAME
        unfit = unfit_inputs(self._workload, inputs, self._policy)
        if unfit is not None:
            return unfit
        outputs = self._run_baseline(draw.kind, inputs)
        if isinstance(outputs, str):
            return outputs
        if self._moves_indices(draw.kind) and not self._orderless(draw.kind, inputs, outputs):
            return UNSETTLED
        finite = self._finite(outputs)
        if draw.kind == "exact_touched" and finite:
            return self._fit(self._exactly(draw.kind, inputs, outputs))
        made = self._fit(self._with_wide(draw.kind, inputs, outputs))
        if isinstance(made, str):
            return made
        if not finite:
            return self._in_places(made)
        return made._replace(is_zero=self._is_zero(outputs) and not self._captured_zero)

    def _fit(self, made: Reference) -> Reference | str:
        """A case on which rounding decides nothing; else why it is none. Differences of integers
        may be zero that a division is by."""
        own = self._own_error(made)
        if self._measurable and not own <= MAX_OWN_ERROR:
            return f"the baseline is {own:.1e} away from its own run in double"
        return made

    def _in_places(self, made: Reference) -> Reference | str:
        """A case on which the baseline is not finite in places; why it proves nothing where it is
        finite nowhere, or not finite elsewhere when it runs again."""
        kind, outputs = made.kind, made.outputs
        written = list(self._written())
        if not any(non_finite_share(a.stored(outputs[a.index])) < 1.0 for a in written):
            return "the baseline is finite nowhere on it"
        if kind == "large" and made.wide_outputs is None:
            return "the baseline is not finite on it, and no wider run says where it overflowed"
        again = self._run_baseline(kind, made.inputs, "again")
        if isinstance(again, str):
            return again
        for a in written:
            wide = (made.wide_outputs or {}).get(a.index)
            moved = misplaced_specials(
                a.stored(again[a.index]),
                a.stored(outputs[a.index]),
                None if wide is None else a.stored_widened(wide),
            )
            if moved:
                return "the baseline is not finite in other places when it runs again"
        return made._replace(non_finite=True)

    def _is_zero(self, outputs: dict[int, str]) -> bool:
        written = [a for a in self._workload.allocations if a.role != "in"]
        left = (*written, *self._variables)
        return all(is_zero(stored(outputs[a.index], a.element)) for a in left)

    def _is_new(self, kind: CaseKind, inputs: InputSet) -> bool:
        """Whether no earlier case has the same contents."""
        digest = hashlib.blake2b()
        for allocation in self._workload.allocations:
            if allocation.role != "out":
                path = inputs.contents[allocation.index]
                if path not in self._digests:
                    self._digests[path] = contents_digest(path)
                digest.update(self._digests[path])
        return self._seen.setdefault(digest.hexdigest(), kind) == kind

    def _run_baseline(
        self, kind: CaseKind, inputs: InputSet, name: str = "baseline"
    ) -> dict[int, str] | str:
        """Results by allocation; or why the baseline is not well-behaved on these inputs.

        Integers may be indices: with others than the captured ones every access is looked at, where
        the kernel's text does not say that it touches the same places.
        """
        check: Check = "none"
        if self._moves_indices(kind) and not (self._facts and self._facts.touches_the_same):
            check = "memory"
        ran = self._executor.run(
            self._baseline.plain,
            self._workload,
            self._plan,
            inputs,
            self._folder / kind / name,
            check=check,
            wanted=[a.index for a in self._workload.allocations if a.role != "in"],
            timeout_s=self._limit_s(kind),
        )
        if isinstance(ran, Misbehaved):
            return f"the baseline fails on it: {ran.placed}"
        if ran.unchecked:
            return f"the checker could not run on the baseline: {ran.unchecked[0].line}"
        self._longest_s = max(self._longest_s, ran.seconds)
        return with_variables(ran, self._variables).outputs

    def _moves_indices(self, kind: CaseKind) -> bool:
        """Whether integers are others than the captured ones: they may be indices."""
        if kind == RELAUNCHED:
            every = self._workload.allocations
            return any(a.role == "inout" and a.element not in FLOATING for a in every)
        return kind in INTEGER_KINDS and not self._floating

    def _orderless(self, kind: CaseKind, inputs: InputSet, outputs: dict[int, str]) -> bool:
        """Whether the result is the same whichever thread comes last. Indices that the program has
        once each may be there several times."""
        if self._facts is not None and not self._facts.scatters:
            return True
        unit = self._baseline.plain.unit
        return self._executor.is_independent_of_thread_order(
            unit, self._workload, inputs, outputs, self._folder / kind / "order", self._timeout_s
        )

    @cached_property
    def _facts(self) -> KernelFacts | None:
        unit = self._baseline.plain.unit
        return facts_of_launch(unit.program, unit.program.kernel(unit.kernel), self._workload)

    @cached_property
    def _tables(self) -> frozenset[int]:
        """Kept as captured here; `drawn.py` draws them."""
        return searched_tables(self._workload, self._facts)

    def _limit_s(self, kind: CaseKind) -> float:
        """Some loops never end on infinities, and some not on what the launch left."""
        if kind not in ("infinite", RELAUNCHED) or self._longest_s == 0.0:
            return self._timeout_s
        return min(self._timeout_s, LEAST_LIMIT_S + SLACK * self._longest_s)

    def _finite(self, outputs: dict[int, str]) -> bool:
        """Whether the baseline is not finite in no more places than on the captured inputs, where
        infinities may be meant (a mask)."""
        return all(
            non_finite_share(one.stored(outputs[one.index])) <= self._captured_share[one]
            for one in self._written()
        )

    @cached_property
    def _captured_share(self) -> dict[View, float]:
        """Of each floating result on the captured inputs, what is not finite: see `_finite`."""
        captured = self._captured_outputs()
        return {one: non_finite_share(one.stored(captured[one.index])) for one in self._written()}

    @cached_property
    def _captured_zero(self) -> bool:
        return self._is_zero(self._captured_outputs())

    def _captured_outputs(self) -> dict[int, str]:
        left = (*self._workload.allocations, *self._variables)
        return {a.index: str(Path(self._workload.folder, a.after)) for a in left}

    def _written(self) -> Iterator[View]:
        """Floating buffers, and fields of structures, that hold results."""
        return (one for one in floating_views(self._workload) if one.allocation.role != "in")

    def _unwritten(self, inputs: InputSet, outputs: dict[int, str]) -> bool:
        """Whether any element of an `out` buffer still is what filled it."""
        return any(
            one.holds_fill(Path(outputs[a.index]), inputs.poison[a.index])
            for a in self._workload.allocations
            if a.index in inputs.poison
            for one in views(a)
        )

    def _own_error(self, made: Reference) -> float:
        """The largest relative L2 error of the baseline against its wider run; 0 without."""
        if made.wide_outputs is None:
            return 0.0
        largest = 0.0
        for a in self._written():
            if a.index in made.wide_outputs:
                wide = a.stored_widened(made.wide_outputs[a.index])
                own = distance(a.stored(made.outputs[a.index]), wide)
                if (known := made.known_of_view(a)) is not None:
                    known.own = own
                largest = max(largest, own.relative_l2)
        return largest

    def _with_wide(self, kind: CaseKind, inputs: InputSet, outputs: dict[int, str]) -> Reference:
        unwritten = kind != "captured" and self._unwritten(inputs, outputs)
        problem = self._baseline.wide_problem
        made = Reference(kind, inputs, outputs, None, problem, unwritten, known={})
        if self._baseline.widened is None:
            return made
        doubles = self._baseline.widened.unit.wide_doubles
        if not can_widen(self._workload, wide_doubles=doubles):
            problem = "a buffer or argument is a structure, whose widened layout is unknown"
            return made._replace(wide_problem=problem)
        kept = [a for a in self._written() if doubles or a.element != "f64"]
        if not kept:
            return made._replace(wide_problem=self._baseline.wide_problem or NOT_WIDER)
        wide_inputs = widen(self._workload, inputs, self._folder / kind, wide_doubles=doubles)
        ran = self._executor.run(
            self._baseline.widened,
            self._workload,
            baseline_plan(widened_arguments(self._workload)),
            wide_inputs,
            self._folder / kind / "widened",
            wanted=[*dict.fromkeys(a.index for a in kept)],
            timeout_s=self._timeout_s,
        )
        for path in {*wide_inputs.contents.values()} - {*inputs.contents.values()}:
            Path(path).unlink(missing_ok=True)
        if isinstance(ran, Misbehaved):
            problem = f"the widened baseline failed: {ran.message}"
            if ran.what == "timeout":  # nor will it on other inputs
                self._baseline = self._baseline._replace(widened=None, wide_problem=problem)
            return made._replace(wide_problem=problem)
        wide = ran.outputs
        for one in kept:
            if one.element == "f64" and one.field is None:
                round_wide_doubles(Path(wide[one.index]))
        if unwritten:
            as_left(self._workload, inputs, outputs, wide)
        return made._replace(wide_outputs=wide, wide_problem=self._baseline.wide_problem)
