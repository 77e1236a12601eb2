"""Is a candidate's result as good as the baseline's? One answer a buffer, with its numbers.

Results are compared as numbers: the sign of a zero and the payload of a NaN are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Ran
from cudaops.domain.judgement import Policy
from cudaops.domain.workload import FLOATING, Allocation, Element, Workload
from cudaops.executors.arrays import (
    EXACT_LIMIT,
    LARGEST,
    Array,
    Values,
    contents_digest,
    in_memory,
    in_step,
)
from cudaops.executors.bands import error_counts, excess
from cudaops.executors.compare import (
    Differing,
    Distance,
    Misplaced,
    beyond_one_rounding,
    differing,
    distance,
    is_small_integers,
    misplaced,
    same_contents,
    share_beyond,
)
from cudaops.executors.fields import View, tail, views
from cudaops.gates.tolerance import (
    OUTLIERS,
    Bounds,
    Sides,
    Yardstick,
    bounds_of,
    by_own_size,
    outlier_shares,
    own_counts,
    yardstick,
)
from cudaops.sandbox.inputs import CaseKind
from cudaops.sandbox.oracle import Reference
from cudaops.sandbox.precision import FORMATS

DIGESTED_BYTES = 16 << 20
"""From this size on a result is first looked for among those that were compared, by its digest.
Chosen: a comparison reads three such files and computes several norms; a digest reads one."""
SHOWN_DIGITS: dict[Element, int] = {"f16": 5, "bf16": 4, "f32": 9, "f64": 17}
"""Significant digits in which two numbers of the type are never the same."""
EXACT = "exact_mismatches"
"""What differs where bit for bit is asked, behind the buffer's name."""
NOTHING_COMPARED = "the kernel changes no buffer, so nothing was compared"


class BufferAccuracy(NamedTuple):
    """One output buffer of one case."""

    passed: bool
    summary: str
    """Begins with the buffer's name: `C: ...`."""
    numbers: dict[str, float]

    @property
    def buffer(self) -> str:
        """Its name, as the author has it."""
        return self.summary.partition(": ")[0]

    @property
    def is_exact(self) -> bool:
        """Whether nothing but the baseline's own numbers would do."""
        return any(key.endswith(f"_{EXACT}") for key in self.numbers)


class BufferComparison(NamedTuple):
    """One output buffer after one launch."""

    kind: CaseKind
    accuracy: BufferAccuracy
    launch: int | None = None
    """Of the repeat gate, from 1."""


def buffer_accuracy(
    allocation: Allocation, name: str, ran: Ran, reference: Reference, policy: Policy
) -> BufferAccuracy:
    """Hold one buffer of a candidate's run against the reference: see `compare_sides`."""
    return _compared(compare_sides, allocation, name, ran, reference, policy)


def exact_accuracy(
    allocation: Allocation, name: str, ran: Ran, reference: Reference, policy: Policy
) -> BufferAccuracy:
    """The same on small integers as inputs: see `compare_sides_exactly`."""
    return _compared(compare_sides_exactly, allocation, name, ran, reference, policy)


def _compared(
    compare: Callable[[Sides, Element, str, Policy], BufferAccuracy],
    allocation: Allocation,
    name: str,
    ran: Ran,
    reference: Reference,
    policy: Policy,
) -> BufferAccuracy:
    """What `compare` says, which is the same of the same bytes: of a large buffer, whose launches
    most often give the same, it is asked once."""
    known = reference.known_of(allocation)
    if known is None or allocation.size_bytes < DIGESTED_BYTES:
        return _by_view(compare, allocation, name, ran, reference, policy)
    digest = contents_digest(ran.outputs[allocation.index])
    key = digest, f"{compare.__name__} {name} {policy.model_dump_json()}"
    found = known.compared.get(key)
    if not isinstance(found, BufferAccuracy):
        found = _by_view(compare, allocation, name, ran, reference, policy)
        known.compared[key] = found
    return found


def _by_view(
    compare: Callable[[Sides, Element, str, Policy], BufferAccuracy],
    allocation: Allocation,
    name: str,
    ran: Ran,
    reference: Reference,
    policy: Policy,
) -> BufferAccuracy:
    """What `compare` says of the numbers in a buffer; of structures, of the first field that does
    not pass, or of the one nearest to its bound. Padding may hold anything; what stands behind the
    last whole structure is compared byte by byte."""
    result, right = ran.outputs[allocation.index], reference.outputs[allocation.index]
    equal = same_contents(result, right)
    found = [
        compare(sides_of(view, ran, reference, equal), view.element, view.named(name), policy)
        for view in views(allocation)
    ]
    if allocation.fields and not np.array_equal(tail(result, allocation), tail(right, allocation)):
        text = f"{name}: bytes after the last whole structure differ"
        found.append(BufferAccuracy(False, text, {}))
    failed = (one for one in found if not one.passed)
    return next(failed, None) or max(found, key=_nearness)


def _nearness(accuracy: BufferAccuracy) -> float:
    """Error over its bound, the largest of one kind; 0 of what is compared exactly."""
    numbers = accuracy.numbers
    bounds = {key: numbers.get(f"{key}_bound", 0.0) for key in numbers}
    return max((numbers[key] / bound for key, bound in bounds.items() if bound), default=0.0)


def sides_of(view: View, ran: Ran, reference: Reference, equal: bool = False) -> Sides:
    """What is compared in a buffer, or in a field of the structures in one."""
    wide = (reference.wide_outputs or {}).get(view.index)
    moved = (reference.sensitivity or {}).get(view.index)
    return Sides(
        view.stored(ran.outputs[view.index]),
        view.stored(reference.outputs[view.index]),
        None if wide is None else view.stored_widened(wide),
        reference.wide_problem,
        reference.non_finite,
        equal,
        reference.known_of_view(view),
        None if moved is None else view.stored(moved),
        reference.compensated,
    )


def compare_sides(sides: Sides, element: Element, name: str, policy: Policy) -> BufferAccuracy:
    """Whether a result is as good as the baseline's.

    Integers: equal everywhere. Floating with a yardstick: the candidate's relative L2 error against
    the widened baseline is at most `policy.max_error_factor` times the baseline's own (which counts
    as FLOOR_ROUNDOFFS at least; OUTLIERS may be farther off), and in each band of sizes no more
    elements are off by their own size than the baseline's errors explain (`bands.excess`). Without
    a yardstick, or with one that the baseline itself is nowhere near, within FALLBACK_ROUNDOFFS of
    the baseline. Where `Sides.moved` says what one roundoff of the inputs changes, that counts as
    an error of the baseline too. `policy.allow_precision` raises the bound to what that precision
    does when used well (`precision.WELL_USED_ROUNDOFFS`). Zero everywhere must stay zero
    everywhere. What is not finite must be the very same; on inputs that make it so in places, what
    is finite must be the same (`compare.misplaced`), and a candidate that does not overflow where
    the baseline does is compared with the widened result there.
    """
    if element not in FLOATING:
        return _equality(name, sides, element, "mismatches")
    held = yardstick(sides)
    if sides.equal and held.own is not None:
        gap = held.own
    else:
        scale = 0.0 if held.own is None else held.own.scale
        gap = distance(sides.result, held.reference, scale)
    special = _specials(sides, held, gap, element)
    bounds = bounds_of(gap, held, element, policy)
    numbers = {
        f"{name}_relative_l2": gap.relative_l2,
        f"{name}_relative_l2_bound": bounds.relative_l2,
        f"{name}_max_abs": gap.max_abs,
        f"{name}_max_scaled": gap.max_scaled,
        f"{name}_max_scaled_bound": bounds.max_scaled,
        f"{name}_non_finite_mismatches": float(special.elements),
    }
    if held.own is not None:
        numbers[f"{name}_baseline_relative_l2"] = held.own.relative_l2
    if held.moved is not None:
        numbers[f"{name}_moved_relative_l2"] = held.moved.relative_l2
    if policy.allow_precision is not None:
        numbers[f"{name}_relative_l2_bound_strict"] = bounds.strict_l2
    summary = _describe(gap, held, bounds, policy)
    wrong = _refusal(sides, held, gap, special, bounds, element, policy)
    if wrong is None:
        return BufferAccuracy(True, f"{name}: {summary}", numbers)
    text = f"{_told(name, wrong.found, sides, element)}: {wrong.why or summary}"
    return BufferAccuracy(False, text, {**numbers, **wrong.numbers(name)})


class _Refusal(NamedTuple):
    """What is wrong with a result."""

    found: Differing
    why: str = ""
    share: float | None = None
    """Of the elements of one size that are off."""

    def numbers(self, name: str) -> dict[str, float]:
        return {} if self.share is None else {f"{name}_share_off": self.share}


def _refusal(
    sides: Sides,
    held: Yardstick,
    gap: Distance,
    special: Misplaced,
    bounds: Bounds,
    element: Element,
    policy: Policy,
) -> _Refusal | None:
    """Why a result is not as good as the baseline's; None where it is."""
    if special.elements and special.first is not None:
        at = special.first
        found = Differing(special.elements, at, *_values_at(at, sides.result, sides.baseline))
        return _Refusal(found, "finite elements differ from the baseline's")
    near = gap.relative_l2 <= bounds.relative_l2 and gap.max_scaled <= bounds.max_scaled
    if not near and not _few_outliers(sides, held, gap, bounds):
        relative, scale = bounds.relative_l2 / 2, gap.scale
        if gap.max_scaled > bounds.max_scaled:
            relative = bounds.max_scaled
        return _Refusal(_differing(sides.result, held.reference, relative, scale))
    if sides.equal or not gap.compared:
        return None
    return _unmeasured(sides, held, element) or _hidden(sides, held, gap, element, policy)


def _few_outliers(sides: Sides, held: Yardstick, gap: Distance, bounds: Bounds) -> bool:
    """Whether it is but OUTLIERS that keep a result from its bound."""
    if gap.relative_l2 > bounds.outlier_l2 or gap.max_scaled > bounds.outlier_scaled:
        return False
    absolute = bounds.relative_l2 * gap.scale
    return share_beyond(sides.result, held.reference, 0.0, absolute) <= OUTLIERS


def _unmeasured(sides: Sides, held: Yardstick, element: Element) -> _Refusal | None:
    """What is wrong where the widened run is not finite and the baseline is: compared with the
    baseline itself there."""
    if held.unmeasured is None:
        return None
    gap = distance(sides.result, held.unmeasured)
    bounds = bounds_of(gap, Yardstick(sides.baseline, None, held.moved), element, Policy())
    if gap.relative_l2 <= bounds.relative_l2 and gap.max_scaled <= bounds.max_scaled:
        return None
    found = _differing(sides.result, held.unmeasured, bounds.relative_l2 / 2, gap.scale)
    why = f"relative L2 distance {gap.relative_l2:.1e} from the baseline (tolerance "
    why += f"{bounds.relative_l2:.1e}) where the higher-precision reference is not finite"
    return _Refusal(found, why)


def _hidden(
    sides: Sides, held: Yardstick, gap: Distance, element: Element, policy: Policy
) -> _Refusal | None:
    """Elements that are wrong by their own size behind a few large ones: see `bands.excess`."""
    if held.own is None:
        return None
    allowed, floor = by_own_size(gap, held, element, policy)
    found = error_counts(sides.result, held.reference, allowed)
    if not found.off.any():
        return None
    own = own_counts(sides, held, floor, policy)
    over = excess(found, own, allowed.relative, outlier_shares(held, element, policy), gap.scale)
    if over is None:
        return None
    share = over.off / over.elements
    why = f"{share:.0%} of the elements of sizes {over.smallest:.1e} to {over.largest:.1e} are off "
    why += f"by more than {over.beyond:.1e} of their own size, and the baseline's are not"

    def in_band(x: Array, y: Array) -> Array:
        size = np.abs(y)
        return np.where((size >= over.smallest) & (size < over.largest), x, np.nan)

    result = in_step(in_band, sides.result, held.reference)
    first = _differing(result, held.reference, over.beyond, 0.0)
    return _Refusal(first, why, share)


def _specials(sides: Sides, held: Yardstick, gap: Distance, element: Element) -> Misplaced:
    """Elements that are not finite where the baseline is, or the reverse: `compare_sides`."""
    finite = gap.compared == sides.result.size
    if sides.equal or (finite and (held.own is None or held.own.compared == gap.compared)):
        return Misplaced()
    wide = None if held.own is None else sides.wide
    return misplaced(sides.result, sides.baseline, wide, LARGEST[element], as_good=sides.in_places)


def _is_exact(sides: Sides, limit: float) -> bool:
    """Whether the baseline's own arithmetic was exact, found once a reference."""
    if sides.known is None:
        return is_small_integers(sides.baseline, limit)
    if sides.known.exact is None:
        sides.known.exact = is_small_integers(sides.baseline, limit)
    return sides.known.exact


def _describe(gap: Distance, held: Yardstick, bounds: Bounds, policy: Policy) -> str:
    own, moved = held.own, held.moved
    allowed = f"tolerance {bounds.relative_l2:.1e}"
    if not gap.compared:
        return "no finite element, as in the baseline"
    if gap.scale == 0.0:
        allowed = "tolerance 0: the reference is zero everywhere"
    elif policy.allow_precision is not None:
        allowed += f", with {policy.allow_precision} allowed by the user"
    if moved is not None and (own is None or moved.relative_l2 > own.relative_l2):
        allowed += f"; sensitivity to 1-ulp input changes {moved.relative_l2:.1e}"
    if own is None:
        text = f"relative L2 distance {gap.relative_l2:.1e} from the baseline"
        text += f" ({allowed}; no higher-precision reference: {held.problem})"
    else:
        text = f"relative L2 error {gap.relative_l2:.1e}"
        text += f" (baseline {own.relative_l2:.1e}, {allowed})"
    if gap.max_scaled > bounds.max_scaled:
        text += f", largest error of an element {gap.max_scaled:.1e} of its size"
        text += f" (tolerance {bounds.max_scaled:.1e})"
    return text


def _differing(result: Values, reference: Values, relative: float, scale: float) -> Differing:
    """The elements to name: where a norm is beyond its bound, some are beyond half of it."""
    slightly_less = relative * (1.0 - 1e-6)
    found = differing(result, reference, slightly_less, scale, finite_only=True)
    found = found or differing(result, reference, 0.0, finite_only=True)
    return found or Differing(0, 0, *_values_at(0, result, reference))


def _values_at(place: int, *sides: Values) -> tuple[int | float, int | float]:
    one, other = (side.read(place, 1)[0].item() for side in sides)
    return one, other


def _told(name: str, found: Differing, sides: Sides, element: Element) -> str:
    """How many elements differ and the first of them, for whoever must mend it."""
    what, first = "elements", f"{name}[{found.first}]"
    if element == "opaque":
        what, first = "bytes", f"byte {found.first}"
    result, baseline = (
        _shown(value, element) for value in _values_at(found.first, sides.result, sides.baseline)
    )
    text = f"{name}: {found.elements} of {sides.baseline.size} {what} differ; first {first} is "
    return f"{text}{result}, the author's {baseline}"


def _shown(value: int | float, element: Element) -> str:
    return f"{value:.{SHOWN_DIGITS[element]}g}" if element in FLOATING else str(value)


def compare_sides_exactly(
    sides: Sides, element: Element, name: str, policy: Policy
) -> BufferAccuracy:
    """Whether a result on small integers is the baseline's.

    Equal bit for bit where the baseline's own arithmetic was exact; as `compare_sides` where it was
    not. A precision that the user allowed changes nothing as long as sums are kept in float32,
    because every type holds the inputs exactly. Only a result beyond the type's own exact range
    (2^11 for tf32 and fp16, 2^8 for bf16) may have been rounded to it once.
    """
    limit = EXACT_LIMIT.get(element)
    if limit is None:
        return _equality(name, sides, element, EXACT)
    if not _is_exact(sides, limit):
        return compare_sides(sides, element, name, policy)
    found = _equality(name, sides, element, EXACT)
    if found.passed or policy.allow_precision is None:
        return found
    kind = FORMATS[policy.allow_precision]
    wrong = beyond_one_rounding(sides.result, sides.baseline, kind.exact_limit, kind.roundoff)
    text = f"{found.summary}, {wrong} of them by more than the one rounding to "
    text += f"{policy.allow_precision} that the user allowed beyond {kind.exact_limit:.0f}"
    numbers = {**found.numbers, f"{name}_beyond_one_rounding": float(wrong)}
    return BufferAccuracy(wrong == 0, text, numbers)


def _equality(name: str, sides: Sides, element: Element, key: str) -> BufferAccuracy:
    found = None if sides.equal else differing(sides.result, sides.baseline, 0.0)
    numbers = {f"{name}_{key}": float(0 if found is None else found.elements)}
    if found is None:
        return BufferAccuracy(True, f"{name}: equal", numbers)
    return BufferAccuracy(False, _told(name, found, sides, element), numbers)


def same_as_sets(sides: Sides, element: Element, name: str, policy: Policy) -> BufferAccuracy:
    """Whether a result holds the baseline's elements in any order: for results whose order the
    author's kernel does not settle either, as what threads append by an atomic counter. Both are
    sorted (in memory, at once) and then compared as ever."""

    def in_order(values: Values) -> Values:
        return in_memory(np.sort(values.read(0, values.size)))

    result, baseline = in_order(sides.result), in_order(sides.baseline)
    wide, moved = (None if x is None else in_order(x) for x in (sides.wide, sides.moved))
    whole = Sides(
        result, baseline, wide, sides.wide_problem, sides.in_places, sides.equal, None, moved,
        sides.compensated,
    )  # fmt: skip
    return _in_another_order(compare_sides(whole, element, name, policy), name)


def same_as_rows(
    columns: Sequence[tuple[Sides, Element, str]], policy: Policy
) -> tuple[BufferAccuracy, ...]:
    """The same of equally long buffers whose elements belong together: rows may come in any order,
    and each must be there as often as in the baseline.

    Rows are sorted by what is no floating number first: rows that differ in floating numbers alone,
    by a rounding of the first that differs, may be taken for different ones. There is no yardstick:
    the widened run has an order of its own. Raises ValueError where the lengths differ.
    """
    if len({sides.baseline.size for sides, _, _ in columns}) > 1:
        raise ValueError("buffers of different lengths have no rows in common")
    keys = sorted(range(len(columns)), key=lambda at: columns[at][1] in FLOATING)

    def in_order(values: Sequence[Values]) -> list[Values]:
        whole = [one.read(0, one.size) for one in values]
        order = np.lexsort([whole[at] for at in reversed(keys)])
        return [in_memory(one[order]) for one in whole]

    results = in_order([sides.result for sides, _, _ in columns])
    baselines = in_order([sides.baseline for sides, _, _ in columns])
    found = []
    for (sides, element, name), result, baseline in zip(columns, results, baselines, strict=True):
        problem = "the order of rows is not fixed"
        whole = Sides(result, baseline, None, problem, sides.in_places, sides.equal)
        found.append(_in_another_order(compare_sides(whole, element, name, policy), name))
    return tuple(found)


def _in_another_order(found: BufferAccuracy, name: str) -> BufferAccuracy:
    if found.passed:
        said = f"{name}: equal in another order (the author's own order is not fixed)"
    else:
        said = f"{found.summary} (both sorted: the author's own order is not fixed)"
    return found._replace(summary=said)


def changed_inputs(workload: Workload, ran: Ran, reference: Reference) -> tuple[str, ...]:
    """Names of `in` buffers that no longer hold what they held before the run."""
    changed = []
    for allocation in workload.allocations:
        if allocation.role != "in":
            continue
        before = reference.inputs.contents[allocation.index]
        if not same_contents(ran.outputs[allocation.index], before):
            changed.append(workload.name_of(allocation))
    return tuple(changed)
