"""Inputs from the domain of the author's kernel: every input on which it runs cleanly.

The author's kernel is the judge of what is valid. It runs under the checker on every draw, in
bounds, to its end and without a race; once more with the last thread first and over another
background; and what it leaves must be the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.run import Say
from cudaops.domain.workload import FLOATING, Allocation, Element, Field
from cudaops.executors.arrays import (
    EXACT_LIMIT,
    Array,
    read_array,
    round_wide_doubles,
    write_array,
)
from cudaops.executors.base import (
    OVERFLOW,
    Branches,
    Check,
    Executor,
    InputSet,
    Rounding,
    Trial,
    Tried,
)
from cudaops.executors.compare import (
    distance,
    is_small_integers,
    non_finite_share,
    same_contents,
)
from cudaops.executors.fields import draw_fields, floating_views, views
from cudaops.executors.untrusted_files import remove
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.draw import Broken, Draw, DrawnInput, DrawTarget, reads_small_integers
from cudaops.sandbox.draws import Drawing
from cudaops.sandbox.inputs import as_left, can_widen, pad_tail, widen, widened_arguments
from cudaops.sandbox.launch_numbers import number_of
from cudaops.sandbox.oracle import MAX_OWN_ERROR, Baseline, Reference
from cudaops.sandbox.portions import Telling, in_portions
from cudaops.sandbox.settled import BACKGROUNDS, settled
from cudaops.sandbox.shapes import (
    MOST_WHOLE_BYTES,
    Shape,
    ShapeFinder,
    axes_of,
    smallest,
    with_a_block_more,
)
from cudaops.sandbox.shared_variables import same_variables, shared_variables, with_variables
from cudaops.sandbox.text_asks import numbers_in, only_divides
from cudaops.sandbox.variations import INFINITE
from cudaops.sandbox.zero_times import zero_times_infinity

LEAST_ACCESSES = 400_000
GROWTH = 4
"""A draw on which the author's kernel makes more accesses than this, and than so many times those
on captured contents, is left out: loops whose ends are in memory may go through all of it."""
LIMIT_S = 4.0
"""Of one launch, in seconds of the processor. Draws on which the author's kernel does not end are
none of its domain."""
ALL_S = 120.0
"""Of all launches of a batch: a batch takes some seconds."""
MOVES_UNITS = (1, 8, 8)
"""Units in the last place by which inputs are moved, one run of the author's kernel each: how well
the problem is posed. The first is what `Reference.sensitivity` asks for; a correct rewrite's own
rounding may be that of the others."""
ROUNDS = 2
"""Further rounds of draws while a branch of the author's kernel is not reached."""
UNRELATED = "on captured contents the widened kernel computes something else"
DIRECTED: tuple[Rounding, ...] = ("up", "down")
UNSETTLED = "another order of threads, or another background, gives another result"


class Domain(NamedTuple):
    """The drawn inputs of one workload."""

    inputs: tuple[DrawnInput, ...]
    assumed: tuple[str, ...] = ()
    """What could not be varied, and why: `col as captured (out of bounds on others)`."""
    shapes: tuple[str, ...] = ()
    drawn: int = 0
    """Inputs that were tried, valid or not."""
    branches: Branches | None = None
    """Of the author's kernel; None where nobody could count them."""
    problem: str | None = None
    """Why there are none."""


class _Borne(NamedTuple):
    """A draw that the author's kernel accepts."""

    draw: Draw
    trial: Trial
    ran: Ran
    broken: Broken
    tried: Tried
    variables: tuple[Allocation, ...]


class DomainBuilder:
    """Draws inputs and keeps those on which the author's kernel is right."""

    def __init__(
        self, executor: Executor, baseline: Baseline, subject: DrawTarget, folder: Path, seed: int,
        say: Say = lambda line: None,
    ) -> None:  # fmt: skip
        """`executor`: runs on a processor (`Executor.processor`). `say` hears how far it is."""
        self._executor = executor
        self._baseline = baseline
        self._subject = subject
        self._variables = shared_variables(subject.program, subject.kernel, subject.workload)
        self._folder = folder
        self.drawing = Drawing(subject, seed)
        self._batches = itertools.count()
        self._why: dict[str, str] = {}
        self._tried = self._held = self._launches = 0
        self._telling = Telling(say)
        facts = subject.facts
        self._says_what_is_read = facts is not None and facts.touches_the_same
        self._order_free: set[int] = set()
        """Buffers that came out in another order on some input: on the others chance may have kept
        it."""
        self._own_habits: frozenset[str] | None = None
        """What the author's kernel does wrong on captured contents already; None: not seen yet."""

    def build(self) -> Domain:
        """All of it. What the author's kernel does not bear is left out."""
        finder = ShapeFinder(
            self._executor, self._baseline.plain, self._subject.facts, self._folder,
            self.drawing.changing,
        )  # fmt: skip
        shapes = finder.shapes(self._subject.workload)
        if not shapes:
            problem = "the author's kernel does not run under the checker"
            if (size := self._subject.workload.size_bytes) > MOST_WHOLE_BYTES:
                problem = (
                    f"its buffers take {size >> 20} MiB, and no argument makes a launch smaller"
                )
            return Domain((), problem=problem)
        found = self._borne([self.drawing.draw(s) for s in shapes])
        if not found:
            why = next(iter(self._why.values()), UNSETTLED)
            return Domain((), problem=f"on captured contents the author's kernel: {why}")
        left_out: list[Shape] = []
        for unfit in (_new_races, _read_beyond):
            left_out += unfit(found)
            found = [one for one in found if one.draw.shape not in left_out]
        self._own_habits = frozenset(habit for one in found for habit in one.tried.habits)
        shapes = tuple(s for s in shapes if s not in left_out)
        small = smallest(shapes)
        found += self._borne(self.drawing.probes(small))
        self.drawing.learn([one.draw for one in found])
        found += self._beside(small)
        for shape in shapes:
            if shape is not small and not shape.is_long:
                more = self._borne(self.drawing.probes(shape, again=True))
                self.drawing.learn([one.draw for one in more])
                found += more
        drawing = self.drawing
        draws = [
            draw
            for shape in shapes
            for draw in (drawing.long(shape) if shape.is_long else drawing.combined(shape))
        ]
        draws += [*drawing.uniform(small), *drawing.modes(small), *drawing.far(small)]
        draws += [*drawing.edges(small), *zero_times_infinity(drawing, small)]
        found += self._borne([*draws, *self.drawing.launches(shapes)])
        branches = self._branches(found)
        for _ in range(ROUNDS):
            if branches is None or branches.taken == branches.total:
                break
            more = self._borne(list(self.drawing.combined(small, 24)))
            found, before = found + more, branches.taken
            branches = self._branches(found)
            if branches is not None and branches.taken == before:
                break
        return Domain(
            tuple(self._with_references(found)), self.drawing.assumed(self._why),
            tuple(s.what for s in shapes), self._tried, branches,
        )  # fmt: skip

    def _beside(self, shape: Shape) -> list[_Borne]:
        """What is borne of `Drawing.beside`, each once more on drawn contents."""
        found = self._borne(self.drawing.beside(shape))
        return found + self._borne(self.drawing.pairs(shape, [one.draw for one in found]))

    def about(self, domain: Domain, text: str) -> tuple[DrawnInput, ...]:
        """Further inputs, with values about the numbers that are in a rewrite's text and not in
        the author's: where it may have put a threshold, a size or a count."""
        numbers = tuple(n for n in numbers_in(text) if n not in self.drawing.numbers)
        if not numbers or not domain.inputs:
            return ()
        small = smallest(one.draw.shape for one in domain.inputs)
        return self.valid(self.drawing.about(small, numbers))

    def valid(self, draws: Sequence[Draw]) -> tuple[DrawnInput, ...]:
        """Those on which the author's kernel is right, with what it leaves."""
        return tuple(self._with_references(self._borne(draws)))

    def _branches(self, found: Sequence[_Borne]) -> Branches | None:
        kernel = self._subject.kernel
        return self._executor.branches(
            self._baseline.plain,
            [one.trial for one in found],
            lambda file, line: (
                file == kernel.file and kernel.first_line <= line <= kernel.last_line
            ),
            self._folder / f"branches-{next(self._batches)}",
        )

    def _borne(self, draws: Sequence[Draw], *, remembers: bool = False) -> list[_Borne]:
        """Those on which the author's kernel is right, and settled. Where another background gives
        another result, what is where it writes counts as an input (`remembers`)."""
        by_shape: dict[int, list[Draw]] = {}
        for draw in draws:
            by_shape.setdefault(id(draw.shape), []).append(draw)
        return [
            one
            for alike in by_shape.values()
            for one in self._borne_of_one_shape(alike, remembers=remembers)
        ]

    def _borne_of_one_shape(self, draws: Sequence[Draw], *, remembers: bool) -> list[_Borne]:
        batch = self._folder / f"batch-{next(self._batches)}"
        most = max(LEAST_ACCESSES, GROWTH * draws[0].shape.accesses)
        made = [
            self.drawing.written(d, batch / f"in_{n:03d}", BACKGROUNDS[0], remembers=remembers)
            for n, d in enumerate(draws)
        ]
        self._tried += len(made)
        first = self._ran([trial for trial, _ in made], batch / "first", check="full", most=most)
        good: list[tuple[int, Ran]] = []
        for n, tried in enumerate(first):
            nan = "not_a_number" in draws[n].ways.values()
            what = _fault(tried, self._own_habits, not_a_number=nan)
            if what is None and isinstance(tried.outcome, Ran):
                good.append((n, tried.outcome))
            elif what is not None:
                self._why.setdefault(_only(draws[n]), what)
        again = [_refilled(made[n][0]) for n, _ in good]
        second = self._ran(again, batch / "second", last_first=True)
        found, unsettled = [], []
        for (n, ran), other in zip(good, second, strict=True):
            trial, broken = made[n]
            reran = other.outcome
            if (
                isinstance(reran, Misbehaved)
                or (free := settled(trial.workload, ran, reran)) is None
            ):
                unsettled.append(draws[n])
            else:
                held = same_variables(self._variables, ran, reran)
                found.append(_Borne(draws[n], trial, ran, broken, first[n], held))
                self._order_free |= free
        self._held += len(found)
        short = self._too_short(found, batch / "wider")
        kept = [one for one in found if id(one) not in short]
        if unsettled and not remembers:
            kept += self._borne([d for d in unsettled if not self._is_cut(d)], remembers=True)
        for draw in unsettled if remembers else ():
            self._why.setdefault(_only(draw), UNSETTLED)
        return kept

    def _is_cut(self, draw: Draw) -> bool:
        """Whether a size is smaller than in memory: what is read then of a buffer that is only
        written is what an index in memory reaches beyond that size, and nobody's input."""
        return any(
            self.drawing.is_size(name) and value < number_of(draw.shape.workload, name)
            for name, value in draw.values.items()
        )

    def _too_short(self, found: Sequence[_Borne], folder: Path) -> set[int]:
        """`id` of those whose grid or buffers may be too small for an integer argument that has
        grown: more blocks leave something else, so that its author would launch more. Of buffers in
        which memory says what is read nobody knows how large they would be."""
        short: set[int] = set()
        trials: list[Trial] = []
        whose: list[int] = []
        for one in found:
            grown = _grown(one.draw)
            more = (n for n in grown if not only_divides(self._subject.kernel.text, n))
            if not self._says_what_is_read and any(map(self.drawing.is_size, more)):
                short.add(id(one))
            elif grown:
                axes = axes_of(one.trial.workload)
                wider = [with_a_block_more(one.trial.workload, axis) for axis in axes]
                trials += [Trial(w, baseline_plan(w), one.trial.inputs) for w in wider]
                whose += [id(one)] * len(wider)
        left = {id(one): one.ran.outputs for one in found}
        for which, tried in zip(whose, self._ran(trials, folder, check="memory"), strict=True):
            outcome = tried.outcome
            if not isinstance(outcome, Ran) or any(
                not same_contents(path, outcome.outputs[i]) for i, path in left[which].items()
            ):
                short.add(which)
        remove(folder)
        return short

    def _ran(
        self,
        trials: Sequence[Trial],
        folder: Path,
        *,
        check: Check = "none",
        last_first: bool = False,
        rounding: Rounding = "nearest",
        most: int | None = None,
    ) -> tuple[Tried, ...]:
        ran = self._in_portions(
            self._baseline.plain, trials, folder, check=check, last_first=last_first,
            rounding=rounding, most_accesses=most,
        )  # fmt: skip
        return tuple(
            one._replace(outcome=with_variables(one.outcome, self._variables))
            if isinstance(one.outcome, Ran)
            else one
            for one in ran
        )

    def _in_portions(
        self, compiled: Compiled, trials: Sequence[Trial], folder: Path, **how: Any
    ) -> tuple[Tried, ...]:
        def run(portion: Sequence[Trial], place: Path, left_s: float) -> tuple[Tried, ...]:
            return self._executor.run_trials(
                compiled, portion, place, limit_s=LIMIT_S, timeout_s=left_s, **how
            )

        return in_portions(trials, folder, ALL_S, run, self._ran_of)

    def _ran_of(self, launches: int) -> None:
        self._launches += launches
        self._telling(
            f"generating inputs: {self._tried} tried, {self._held} valid, {self._launches} launches"
        )

    def _with_references(self, found: Sequence[_Borne]) -> Iterator[DrawnInput]:
        """With what the widened kernel gives, and the author's own on inputs a roundoff away."""
        if not found:
            return
        batch = self._folder / f"batch-{next(self._batches)}"
        wide = self._widened(found, batch)
        pairs = list(zip(found, wide, strict=True))
        if any(self._is_unrelated(one, outputs) for one, (outputs, _) in pairs):
            self._baseline = self._baseline._replace(widened=None, wide_problem=UNRELATED)
            wide = [(None, UNRELATED)] * len(found)
        moved = [
            self._moved(found, batch / f"moved_{n}", units) for n, units in enumerate(MOVES_UNITS)
        ]
        rounded = self._rounded(found, batch)
        for n, one in enumerate(found):
            outputs, problem = wide[n]
            special = any(
                non_finite_share(view.stored(one.ran.outputs[view.index])) > 0
                for view in floating_views(one.trial.workload)
                if view.allocation.role != "in"
            )
            reference = Reference(
                "drawn", one.trial.inputs, one.ran.outputs, outputs, problem,
                unwritten=True, non_finite=special, known={}, sensitivity=moved[0][n] or None,
                compensated=self._subject.compensated,
            )  # fmt: skip
            yield DrawnInput(
                one.draw, one.trial, reference, one.broken, one.tried.habits,
                tuple(m[n] for m in moved if m[n]), tuple(r[n] for r in rounded if r[n]),
                frozenset(self._order_free), one.variables, self._is_exact(one),
                self._asks_nan(one.draw),
            )  # fmt: skip

    def _is_exact(self, one: _Borne) -> bool:
        drawn = one.draw.exact and not self._subject.divides
        return drawn and reads_small_integers(one.trial)

    def _asks_nan(self, draw: Draw) -> bool:
        ways = set(draw.ways.values())
        return "not_a_number" in ways or not (INFINITE.isdisjoint(ways) or self._subject.divides)

    def _is_unrelated(self, one: _Borne, wide: dict[int, str] | None) -> bool:
        """Whether the widened kernel computes something else on captured contents already, as where
        floats are read as bits."""
        if wide is None or one.draw.changes:
            return False
        for view in floating_views(one.trial.workload):
            if view.index in wide:
                own = distance(
                    view.stored(one.ran.outputs[view.index]), view.stored_widened(wide[view.index])
                )
                if not own.relative_l2 <= MAX_OWN_ERROR:
                    return True
        return False

    def _widened(
        self, found: Sequence[_Borne], folder: Path
    ) -> list[tuple[dict[int, str] | None, str | None]]:
        """Results of the widened kernel; without them, why there are none."""
        widened, problem = self._baseline.widened, self._baseline.wide_problem
        doubles = widened is not None and widened.unit.wide_doubles
        written = [a for a in self._subject.workload.allocations if a.role != "in"]
        wider = any(
            view.element in FLOATING and (doubles or view.element != "f64")
            for a in self._subject.workload.allocations
            for view in views(a)
        )
        kept = [a.index for a in written] if wider else []
        can = can_widen(self._subject.workload, wide_doubles=doubles)
        if not can:
            problem = "a buffer or argument is a structure, whose widened layout is unknown"
        elif not kept:
            problem = problem or "nothing here is wider than double"
        if widened is None or not kept or not can:
            return [(None, problem)] * len(found)
        trials = []
        for n, one in enumerate(found):
            where = folder / f"wide_{n:03d}"
            inputs = widen(one.trial.workload, one.trial.inputs, where, wide_doubles=doubles)
            plan = baseline_plan(widened_arguments(one.trial.workload))
            trials.append(one.trial._replace(inputs=inputs, plan=plan))
        ran = self._in_portions(widened, trials, folder / "wide")
        results: list[tuple[dict[int, str] | None, str | None]] = []
        for n, (one, tried) in enumerate(zip(found, ran, strict=True)):
            remove(folder / f"wide_{n:03d}")
            if isinstance(tried.outcome, Misbehaved):
                results.append((None, f"the widened kernel failed: {tried.outcome.message}"))
                continue
            outputs = {i: tried.outcome.outputs[i] for i in kept}
            for a in written:
                if a.element == "f64" and doubles:
                    round_wide_doubles(Path(outputs[a.index]))
            settled = {a.index: outputs[a.index] for a in written if doubles or a.element != "f64"}
            as_left(one.trial.workload, one.trial.inputs, one.ran.outputs, settled)
            results.append((outputs, problem))
        return results

    def _rounded(self, found: Sequence[_Borne], folder: Path) -> list[list[dict[int, str]]]:
        if not self._subject.rounds_to_integers:
            return []
        trials = [one.trial for one in found]
        return [
            [t.outcome.outputs if isinstance(t.outcome, Ran) else {} for t in ran]
            for rounding in DIRECTED
            for ran in [self._ran(trials, folder / rounding, rounding=rounding)]
        ]

    def _moved(self, found: Sequence[_Borne], folder: Path, units: int) -> list[dict[int, str]]:
        """Results on the same inputs with every floating value a little up or down; nothing for
        those on which all arithmetic was exact, and where the author computes what is rounded off:
        his results are then worth more than inputs that were themselves rounded."""
        trials, places = [], []
        if self._subject.compensated:
            return [{} for _ in found]
        for n, one in enumerate(found):
            where = folder / f"in_{n:03d}"
            written = (a for a in one.trial.workload.allocations if a.role != "in")
            if self._is_exact(one) and all(is_exact(a, one.ran.outputs) for a in written):
                continue
            inputs = moved_inputs(one.trial, where, self.drawing.random, units)
            if inputs is not None:
                trials.append(one.trial._replace(inputs=inputs))
                places.append(n)
        results: list[dict[int, str]] = [{} for _ in found]
        for n, tried in zip(places, self._ran(trials, folder / "out"), strict=True):
            remove(folder / f"in_{n:03d}")
            if isinstance(tried.outcome, Ran):
                results[n] = tried.outcome.outputs
        return results


def is_exact(a: Allocation, outputs: Mapping[int, str]) -> bool:
    """Whether all that a result holds are integers, small ones where they are floating: on small
    integers as inputs the arithmetic was exact then. A number that is passed need be none."""
    return all(
        is_small_integers(view.stored(outputs[a.index]), EXACT_LIMIT[view.element])
        for view in views(a)
        if view.element in FLOATING
    )


def moved_inputs(
    trial: Trial, folder: Path, generator: np.random.Generator, units: int = 1
) -> InputSet | None:
    """The same inputs with every floating value up to so many units in the last place up or down,
    written under `folder`; None where there are none."""
    contents = dict(trial.inputs.contents)
    for a in trial.workload.allocations:
        floating = any(view.element in FLOATING for view in views(a))
        if not floating or a.index in trial.inputs.poison:
            continue
        path = folder / f"a{a.index}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_moved(path, Path(contents[a.index]), a, generator, units)
        contents[a.index] = str(path)
    if contents == trial.inputs.contents:
        return None
    return trial.inputs.model_copy(update={"contents": contents})


def _write_moved(
    path: Path, source: Path, a: Allocation, generator: np.random.Generator, units: int
) -> None:
    def moved(field: Field, values: Array) -> Array | None:
        if field.element not in FLOATING:
            return None
        return nudged(values, field.element, generator, units)

    if a.fields:
        draw_fields(path, source, a, moved)
        return
    values = nudged(read_array(source, a.element), a.element, generator, units)
    write_array(path, values, a.element)
    pad_tail(path, source, a.size_bytes)


def nudged(
    values: Array, element: Element, generator: np.random.Generator, units: int = 1
) -> Array:
    """Each value up to so many units in the last place up or down, or as it is. Zeros and what is
    not finite stay."""
    step = generator.integers(-units, units + 1, values.size)
    kind = {2: np.int16, 4: np.int32, 8: np.int64}[values.itemsize]
    unit = 1 << 16 if element == "bf16" else 1  # which comes as float32
    bits = np.ascontiguousarray(values).view(kind) + (step * unit).astype(kind)
    moved = bits.view(values.dtype)
    fine = np.isfinite(values) & np.isfinite(moved) & (values != 0.0)
    result: Array = np.where(fine, moved, values)
    return result


def _grown(draw: Draw) -> list[str]:
    """Integer arguments that are larger than they were: each may be a size."""
    before = {name: number_of(draw.shape.workload, name) for name in draw.values}
    return [n for n, v in before.items() if isinstance(v, int) and draw.values[n] > v]


def _new_races(found: Sequence[_Borne]) -> list[Shape]:
    """Of launches on captured contents the sizes that race where the captured ones do not (a row's
    stride below its length); where those were not run, where not all others do."""
    captured = [one for one in found if one.draw.shape.is_captured] or found
    own = frozenset.intersection(*(one.tried.races for one in captured))
    racy = [one.draw.shape for one in found if not one.tried.races <= own]
    return racy if len(racy) < len(found) else []


def _read_beyond(found: Sequence[_Borne]) -> list[Shape]:
    """Of launches on captured contents the sizes on which a result depends on what stood in a
    buffer that is only written: indices in memory reach beyond them. Not where all of them do."""
    stale = [
        one.draw.shape
        for one in found
        if one.trial.workload.allocations != one.draw.shape.workload.allocations
    ]
    return stale if len(stale) < len(found) else []


def _only(draw: Draw) -> str:
    """What was varied, where it is one thing."""
    names = [*draw.ways, *draw.values]
    return names[0] if len(names) == 1 else ""


def _fault(tried: Tried, own: frozenset[str] | None, *, not_a_number: bool) -> str | None:
    """What was wrong that is more than a habit; a race and an overflow are one where the author's
    kernel has them on captured contents (`own`; None: these are they), and so is an integer that is
    made of NaN (`not_a_number`), which a GPU makes another one of."""
    if isinstance(tried.outcome, Misbehaved):
        return tried.outcome.what.replace("_", " ")
    new = frozenset[str]() if own is None else tried.habits - own
    faults = {"global_race", "undefined_arithmetic"} if not_a_number else {"global_race"}
    for w in tried.outcome.warnings:
        if not w.habit or (w.what in faults and w.habit in new):
            return w.what.replace("_", " ")
    return OVERFLOW if OVERFLOW in new else None


def _refilled(trial: Trial) -> Trial:
    poison = dict.fromkeys(trial.inputs.poison, BACKGROUNDS[1])
    inputs = trial.inputs.model_copy(update={"poison": poison, "scratch_poison": BACKGROUNDS[1]})
    return trial._replace(inputs=inputs)
