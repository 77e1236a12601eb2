"""Is a candidate's result as good as the baseline's? One answer a buffer, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Ran
from cudaops.domain.judgement import Policy
from cudaops.domain.workload import FLOATING, Allocation, Element, Workload
from cudaops.executors.arrays import (
    EXACT_LIMIT,
    UNIT_ROUNDOFF,
    Values,
    contents_digest,
)
from cudaops.executors.compare import (
    Distance,
    beyond_one_rounding,
    distance,
    first_special_mismatch,
    integer_mismatches,
    is_small_integers,
    misplaced_specials,
    same_contents,
    share_beyond,
    special_mismatches,
)
from cudaops.executors.fields import View, tail, views
from cudaops.sandbox.inputs import CaseKind
from cudaops.sandbox.oracle import MAX_OWN_ERROR, Known, Reference
from cudaops.sandbox.precision import FORMATS, allowed_roundoffs

FALLBACK_ROUNDOFFS = 64.0
"""Bound in unit roundoffs on the distance from the baseline where there is no widened yardstick.
A float32 sum of products in another order differs by about 5 roundoffs (relative L2), one with
TF32 operands by about 5000. Source: the table in docs/verification.md."""

FLOOR_ROUNDOFFS: dict[Element, float] = {"f16": 0.5, "bf16": 0.5, "f32": 1.0, "f64": 2.0}
"""A baseline is never counted as more exact than so many unit roundoffs. One rounding makes a
relative L2 error of 0.4: what is computed in f32 and only stored in 16 bits has no more than that,
and a result rounded to bf16 is 3.4 roundoffs of f16 away. Sums in f32 and f64 scatter more.
2 for f64 is chosen, not measured: a result is rounded to double once more than its yardstick."""

MAX_ERROR_FACTOR_EXTRA = 4.0
"""The largest error of one element is an extreme value and scatters more than a norm: its bound is
this much wider than that of the relative L2 error."""

MOST = 0.5
"""No more than this share of the elements may be off by more than one element may be of its own
size, unless it is so of the baseline. A norm alone lets a few large elements hide all others; of a
product of signed numbers some 5 % are as near to 0 as that. Chosen: far from both."""

SMALLEST: dict[Element, float] = {
    "f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074,
}  # fmt: skip
"""Smallest subnormal: numbers near it are rounded to its multiples, which no unit roundoff
describes. Source: IEEE 754-2019 table 3.5; bfloat16 has the exponent range of f32."""

FEW_ELEMENTS = 16
FEW_ROUNDOFFS = FALLBACK_ROUNDOFFS / 4
"""The error of a few elements is one draw and no yardstick: the baseline's own may be near 0 by
luck, as that of a dot product on an H200 was (2.0e-8, another order 2.4e-7, 2026-11-20). Of fewer
than FEW_ELEMENTS it counts as at least this; with the default factor that is the bound without any
yardstick, which TF32 still exceeds a hundredfold."""

DIGESTED_BYTES = 16 << 20
"""From this size on a result is first looked for among those that were compared, by its digest.
Chosen: a comparison reads three such files and computes several norms; a digest reads one."""
NOTHING_COMPARED = "the kernel changes no buffer, so nothing was compared"


class BufferAccuracy(NamedTuple):
    """One output buffer of one case."""

    passed: bool
    summary: str
    numbers: dict[str, float]


class Finding(NamedTuple):
    """One output buffer after one launch."""

    kind: CaseKind
    accuracy: BufferAccuracy
    launch: int | None = None
    """Of the repeat gate, from 1."""


class Sides(NamedTuple):
    """What is held against what in one buffer."""

    result: Values
    baseline: Values
    wide: Values | None
    """The widened baseline's doubles; None where there are none, and `wide_problem` says why."""
    wide_problem: str | None
    in_places: bool = False
    """The inputs are such that the baseline is not finite in places (`Reference.non_finite`)."""
    before: Values | None = None
    """What stood there before the launch; None: not known, or filled with poison."""
    equal: bool = False
    """Somebody saw that result and baseline are the same bytes: then what is said of the two is
    what is said of the baseline."""
    known: Known | None = None
    """What was found of the baseline before; None: find it anew."""


class _Bounds(NamedTuple):
    relative_l2: float
    max_scaled: float
    strict_l2: float
    """What `relative_l2` would be had the user allowed no other precision."""


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
        compare(_sides(view, ran, reference, equal), view.element, view.named(name), policy)
        for view in views(allocation)
    ]
    if allocation.fields and not np.array_equal(tail(result, allocation), tail(right, allocation)):
        text = f"{name}: bytes behind the last whole structure differ"
        found.append(BufferAccuracy(False, text, {}))
    failed = (one for one in found if not one.passed)
    return next(failed, None) or max(found, key=_nearness)


def _nearness(accuracy: BufferAccuracy) -> float:
    """Error over its bound, the largest of one kind; 0 of what is compared exactly."""
    numbers = accuracy.numbers
    bounds = {key: numbers.get(f"{key}_bound", 0.0) for key in numbers}
    return max((numbers[key] / bound for key, bound in bounds.items() if bound), default=0.0)


def _sides(view: View, ran: Ran, reference: Reference, equal: bool) -> Sides:
    wide = (reference.wide_outputs or {}).get(view.index)
    return Sides(
        view.stored(ran.outputs[view.index]),
        view.stored(reference.outputs[view.index]),
        None if wide is None else view.stored_widened(wide),
        reference.wide_problem,
        reference.non_finite,
        _before(view, reference),
        equal,
        reference.known_of_view(view),
    )


def _before(view: View, reference: Reference) -> Values | None:
    inputs, index = reference.inputs, view.index
    if index in inputs.poison or index not in inputs.contents or view.element == "opaque":
        return None
    return view.stored(inputs.contents[index])


def compare_sides(sides: Sides, element: Element, name: str, policy: Policy) -> BufferAccuracy:
    """Whether a result is as good as the baseline's.

    Integers: equal everywhere. Floating with a yardstick: the candidate's relative L2 error against
    the widened baseline is at most `policy.max_error_factor` times the baseline's own (which counts
    as FLOOR_ROUNDOFFS at least), and most elements are right by their own size too (MOST). Without
    a yardstick, or with one that the baseline itself is nowhere near, within FALLBACK_ROUNDOFFS of
    the baseline. `policy.allow_precision` raises the bound to what that precision does when used
    well (`precision.WELL_USED_ROUNDOFFS`). Zero everywhere must stay zero everywhere. What is not
    finite must be the very same; on inputs that make it so in places, what is finite must be the
    same (`misplaced_specials`), and a candidate that does not overflow where the baseline does is
    held against the widened result there.
    """
    if element not in FLOATING:
        return _equality(name, sides, "mismatches")
    own, problem = _yardstick(sides)
    measured_by = sides.wide if own is not None and sides.wide is not None else sides.baseline
    if sides.equal and own is not None:
        gap = own
    else:
        gap = distance(sides.result, measured_by, 0.0 if own is None else own.scale)
    special = _specials(sides, gap, own)
    bounds = _bounds(gap, own, element, policy)
    near = gap.relative_l2 <= bounds.relative_l2 and gap.max_scaled <= bounds.max_scaled
    numbers = {
        f"{name}_relative_l2": gap.relative_l2,
        f"{name}_relative_l2_bound": bounds.relative_l2,
        f"{name}_max_abs": gap.max_abs,
        f"{name}_max_scaled": gap.max_scaled,
        f"{name}_max_scaled_bound": bounds.max_scaled,
        f"{name}_non_finite_mismatches": float(special),
    }
    if own is not None:
        numbers[f"{name}_baseline_relative_l2"] = own.relative_l2
    if policy.allow_precision is not None:
        numbers[f"{name}_relative_l2_bound_strict"] = bounds.strict_l2
    summary = _describe(name, gap, own, bounds, problem, policy)
    if special:
        summary += f", {special} elements not finite where the baseline is or the reverse"
        first = None if sides.in_places else first_special_mismatch(sides.result, sides.baseline)
        if first is not None:
            summary += f" (first: element {first.element} is {first.result:.3g}, "
            summary += f"the baseline's {first.reference:.3g})"
    hidden = _hidden(sides, bounds) if near and own is not None and gap.compared else 0.0
    if hidden:
        summary += f", {hidden:.0%} of the elements are off by more than "
        summary += f"{bounds.max_scaled:.1e} of their own size"
        numbers[f"{name}_share_off"] = hidden
    return BufferAccuracy(near and special == 0 and not hidden, summary, numbers)


def _specials(sides: Sides, gap: Distance, own: Distance | None) -> int:
    """Elements that are not finite where the baseline is, or the reverse: `compare_sides`."""
    if sides.equal:
        return 0
    if sides.in_places:
        wide = sides.wide if own is not None else None
        return misplaced_specials(sides.result, sides.baseline, wide)
    if own is None:  # the gap is that to the baseline
        return gap.non_finite_mismatches
    if gap.compared == own.compared == sides.result.size:  # all are finite
        return 0
    return special_mismatches(sides.result, sides.baseline)


def _hidden(sides: Sides, bounds: _Bounds) -> float:
    """Share of elements that are wrong by their own size behind a few large ones; 0 where few
    are, or as many of the baseline's. What nobody changed is not counted: a buffer that the kernel
    writes in part may hold there what no norm of results is held against."""
    if sides.wide is None or sides.equal:
        return 0.0
    idle = () if sides.before is None else (sides.baseline, sides.before)
    share = share_beyond(sides.result, sides.wide, bounds.max_scaled, idle)
    if share <= MOST:
        return 0.0
    own = share_beyond(sides.baseline, sides.wide, bounds.max_scaled, idle)
    return share if share > 2.0 * own else 0.0


def _yardstick(sides: Sides) -> tuple[Distance | None, str | None]:
    """How far the baseline is from its widened run; None where that is no yardstick, and why."""
    if sides.wide is None:
        return None, sides.wide_problem
    own = _own(sides, sides.wide)
    if own.scale == 0.0 and own.max_abs > 0.0:
        return None, "it is zero everywhere, the baseline is not"
    if not own.relative_l2 <= MAX_OWN_ERROR:
        return None, f"the baseline is {own.relative_l2:.1e} away from it"
    return own, None


def _own(sides: Sides, wide: Values) -> Distance:
    """The baseline's distance from its widened run, found once a reference."""
    if sides.known is None:
        return distance(sides.baseline, wide)
    if sides.known.own is None:
        sides.known.own = distance(sides.baseline, wide)
    return sides.known.own


def _is_exact(sides: Sides, limit: float) -> bool:
    """Whether the baseline's own arithmetic was exact, found once a reference."""
    if sides.known is None:
        return is_small_integers(sides.baseline, limit)
    if sides.known.exact is None:
        sides.known.exact = is_small_integers(sides.baseline, limit)
    return sides.known.exact


def _bounds(gap: Distance, own: Distance | None, element: Element, policy: Policy) -> _Bounds:
    """How far a result may be from the reference; nothing where that is zero everywhere."""
    scale = gap.scale
    if scale == 0.0:
        return _Bounds(0.0, 0.0, 0.0)
    factor = policy.max_error_factor
    step = 0.5 * SMALLEST[element] / scale
    strict = FALLBACK_ROUNDOFFS * max(UNIT_ROUNDOFF[element], step)
    if own is not None:
        roundoffs = FLOOR_ROUNDOFFS[element]
        if gap.compared < FEW_ELEMENTS:
            roundoffs = max(roundoffs, FEW_ROUNDOFFS)
        floor = max(roundoffs * UNIT_ROUNDOFF[element], step)
        strict = factor * max(own.relative_l2, floor)
    allowed = max(strict, allowed_roundoffs(policy))
    widest = max(allowed, 0.0 if own is None else factor * own.max_scaled)
    return _Bounds(allowed, MAX_ERROR_FACTOR_EXTRA * widest, strict)


def _describe(
    name: str,
    gap: Distance,
    own: Distance | None,
    bounds: _Bounds,
    wide_problem: str | None,
    policy: Policy,
) -> str:
    allowed = f"allowed {bounds.relative_l2:.1e}"
    if not gap.compared:
        return f"{name}: no element is finite on both sides"
    if gap.scale == 0.0:
        allowed = "allowed 0: the reference is zero everywhere"
    elif policy.allow_precision is not None:
        allowed += f", with {policy.allow_precision} allowed by the user"
    if own is None:
        text = f"{name}: relative L2 distance {gap.relative_l2:.1e} from the baseline"
        text += f" ({allowed}; no wider run as yardstick: {wide_problem})"
    else:
        text = f"{name}: relative L2 error {gap.relative_l2:.1e}"
        text += f" (baseline's own {own.relative_l2:.1e}, {allowed})"
    if gap.max_scaled > bounds.max_scaled:
        text += f", one element is off by {gap.max_scaled:.1e} of its size"
        text += f" (allowed {bounds.max_scaled:.1e})"
    return text


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
        return _equality(name, sides, "exact_mismatches")
    if not _is_exact(sides, limit):
        return compare_sides(sides, element, name, policy)
    found = _equality(name, sides, "exact_mismatches")
    if found.passed or policy.allow_precision is None:
        return found
    kind = FORMATS[policy.allow_precision]
    wrong = beyond_one_rounding(sides.result, sides.baseline, kind.exact_limit, kind.roundoff)
    text = f"{found.summary}, {wrong} of them by more than the one rounding to "
    text += f"{policy.allow_precision} that the user allowed beyond {kind.exact_limit:.0f}"
    numbers = {**found.numbers, f"{name}_beyond_one_rounding": float(wrong)}
    return BufferAccuracy(wrong == 0, text, numbers)


def _equality(name: str, sides: Sides, key: str) -> BufferAccuracy:
    wrong = 0 if sides.equal else integer_mismatches(sides.result, sides.baseline)
    text = f"{name}: {wrong} of {sides.baseline.size} elements differ"
    numbers = {f"{name}_{key}": float(wrong)}
    return BufferAccuracy(wrong == 0, text if wrong else f"{name}: equal", numbers)


def parameter_name(workload: Workload, allocation: Allocation) -> str:
    """The kernel's parameter, or the field of one, that points into this allocation."""
    names = (p.name for p in workload.pointers() if p.allocation == allocation.index)
    return next(names, f"buffer{allocation.index}")


def changed_inputs(workload: Workload, ran: Ran, reference: Reference) -> tuple[str, ...]:
    """Names of `in` buffers that no longer hold what they held before the run."""
    changed = []
    for allocation in workload.allocations:
        if allocation.role != "in":
            continue
        before = reference.inputs.contents[allocation.index]
        if not same_contents(ran.outputs[allocation.index], before):
            changed.append(parameter_name(workload, allocation))
    return tuple(changed)
