"""Is a candidate's result as good as the baseline's? One answer a buffer, with its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Ran
from cudaops.domain.workload import FLOATING, Allocation, Workload
from cudaops.sandbox.verification.arrays import UNIT_ROUNDOFF, Array, read_array, read_widened
from cudaops.sandbox.verification.compare import (
    Distance,
    distance,
    integer_mismatches,
    is_small_integers,
)
from cudaops.sandbox.verification.reference import Reference

FALLBACK_ROUNDOFFS = 64.0
"""Bound in unit roundoffs on the distance from the baseline where there is no widened yardstick.
A float32 sum of products in another order differs by about 5 roundoffs (relative L2), one with
TF32 operands by about 5000. Source: the table in docs/verification.md."""

MAX_ERROR_FACTOR_EXTRA = 4.0
"""The largest error of one element is an extreme value and scatters more than a norm: its bound is
this much wider than that of the relative L2 error."""

MAX_OWN_ERROR = 0.1
"""A baseline that is farther than this (relative L2) from its widened run is not measured by it:
that run computes something else, as where floats are read as the bits of integers. Chosen: far
above the error of any sum that means something, far below that of unrelated numbers (about 1)."""

EXACT_LIMIT = {"f16": 2.0**11, "bf16": 2.0**8, "f32": 2.0**24, "f64": 2.0**53}
"""Largest magnitude below which every integer is representable. Source: IEEE 754-2019."""


class BufferAccuracy(NamedTuple):
    """One output buffer of one case."""

    passed: bool
    summary: str
    numbers: dict[str, float]


def buffer_accuracy(
    allocation: Allocation, name: str, ran: Ran, reference: Reference, max_error_factor: float
) -> BufferAccuracy:
    """Hold one buffer of a candidate's run against the reference.

    Integers: equal everywhere. Floating with a yardstick: the candidate's relative L2 error against
    the widened baseline is at most `max_error_factor` times the baseline's own (never less than one
    unit roundoff of the type). Without a yardstick, or with one that the baseline itself is nowhere
    near, within FALLBACK_ROUNDOFFS of the baseline.
    """
    result = read_array(ran.outputs[allocation.index], allocation.element)
    baseline = read_array(reference.outputs[allocation.index], allocation.element)
    if allocation.element not in FLOATING:
        return _equality(name, result, baseline, "mismatches")
    roundoff = UNIT_ROUNDOFF[allocation.element]
    own, problem = None, reference.wide_problem
    if reference.wide_outputs is not None:
        wide = read_widened(reference.wide_outputs[allocation.index], allocation.element)
        own = distance(baseline, wide)
        if not own.relative_l2 <= MAX_OWN_ERROR:
            problem = f"the baseline is {own.relative_l2:.1e} away from it"
            own = None
    if own is None:
        gap = distance(result, baseline)
        bound_l2, own_max = FALLBACK_ROUNDOFFS * roundoff, 0.0
    else:
        gap = distance(result, wide)
        bound_l2, own_max = max_error_factor * max(own.relative_l2, roundoff), own.max_abs
    bound_max = MAX_ERROR_FACTOR_EXTRA * max(
        max_error_factor * own_max, bound_l2 * max(gap.scale, own_max)
    )
    special = distance(result, baseline).non_finite_mismatches
    passed = gap.relative_l2 <= bound_l2 and gap.max_abs <= bound_max and special == 0
    numbers = {
        f"{name}_relative_l2": gap.relative_l2,
        f"{name}_relative_l2_bound": bound_l2,
        f"{name}_max_abs": gap.max_abs,
        f"{name}_max_abs_bound": bound_max,
        f"{name}_non_finite_mismatches": float(special),
    }
    if own is not None:
        numbers[f"{name}_baseline_relative_l2"] = own.relative_l2
    summary = _describe(name, gap, own, bound_l2, problem)
    if special:
        summary += f", {special} elements not finite where the baseline is or the reverse"
    return BufferAccuracy(passed, summary, numbers)


def _describe(
    name: str, gap: Distance, own: Distance | None, bound: float, wide_problem: str | None
) -> str:
    if own is None:
        text = f"{name}: relative L2 distance {gap.relative_l2:.1e} from the baseline"
        return f"{text} (allowed {bound:.1e}; no run in double as yardstick: {wide_problem})"
    text = f"{name}: relative L2 error {gap.relative_l2:.1e}"
    return f"{text} (baseline's own {own.relative_l2:.1e}, allowed {bound:.1e})"


def _equality(name: str, result: Array, baseline: Array, key: str) -> BufferAccuracy:
    wrong = integer_mismatches(result, baseline)
    text = f"{name}: {wrong} of {baseline.size} elements differ" if wrong else f"{name}: equal"
    return BufferAccuracy(wrong == 0, text, {f"{name}_{key}": float(wrong)})


def exact_accuracy(
    allocation: Allocation, name: str, ran: Ran, reference: Reference, max_error_factor: float
) -> BufferAccuracy:
    """Equal bit for bit where the baseline's own arithmetic on small integers was exact."""
    baseline = read_array(reference.outputs[allocation.index], allocation.element)
    limit = EXACT_LIMIT.get(allocation.element)
    if limit is not None and not is_small_integers(baseline, limit):
        return buffer_accuracy(allocation, name, ran, reference, max_error_factor)
    result = read_array(ran.outputs[allocation.index], allocation.element)
    return _equality(name, result, baseline, "exact_mismatches")


def parameter_name(workload: Workload, allocation: Allocation) -> str:
    """The kernel parameter that points into this allocation, for messages."""
    for argument in workload.arguments:
        if argument.kind == "pointer" and argument.allocation == allocation.index:
            return argument.name
    return f"buffer{allocation.index}"


def changed_inputs(workload: Workload, ran: Ran, reference: Reference) -> tuple[str, ...]:
    """Names of `in` buffers that no longer hold what they held before the run."""
    changed = []
    for allocation in workload.allocations:
        if allocation.role != "in":
            continue
        before = Path(reference.inputs.contents[allocation.index]).read_bytes()
        if Path(ran.outputs[allocation.index]).read_bytes() != before:
            changed.append(parameter_name(workload, allocation))
    return tuple(changed)
