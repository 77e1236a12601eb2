"""Results that are wrong on purpose, made from the baseline's own: what an oracle must refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.judgement import ControlName, Policy
from cudaops.domain.workload import FLOATING, Allocation, Element
from cudaops.executors.arrays import (
    UNIT_ROUNDOFF,
    Array,
    Values,
    filled,
    in_memory,
    sample,
    stored,
    stored_widened,
)
from cudaops.gates.accuracy import (
    BufferAccuracy,
    compare_sides,
    compare_sides_exactly,
)
from cudaops.gates.tolerance import Sides
from cudaops.sandbox.inputs import EXACT_CASES, before_path
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.precision import FORMATS, as_fp16, rounded

NARROW_BITS: dict[str, int] = {"f32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "e4m3": 4}
"""Significant bits of the types to which results and operands are rounded, most exact first.
Sources: those of `precision.FORMATS`; e4m3 has 3 bits of mantissa (PTX ISA, same section)."""

ELEMENT_BITS: dict[Element, int] = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Significant bits of what a buffer holds. Source: IEEE 754-2019 table 3.5."""

OPERAND_ROUNDOFFS = 0.6
"""Relative L2 error of a product whose two operands were rounded, in unit roundoffs of the type.
Source: the table in docs/verification.md."""

VISIBLE = 0.01
"""How far one element is off in `one_off`, of its own size plus the buffer's root mean square."""

VISIBLE_ROUNDOFFS = 32.0
"""The least of that, in roundoffs: twice what one element may be off by the default policy."""

CONTROL_SEED = 20240607
"""Of shuffles and noise: the same program must always be qualified alike."""

SAMPLED_ELEMENTS = 1 << 21
"""Elements of one output that are held in memory at once, all references together."""

SAMPLE_RANGE = (1 << 14, 1 << 18)
"""Least and most elements taken of one output on one reference."""


class Samples(NamedTuple):
    """One output buffer on one input set; all arrays are samples of the same places."""

    element: Element
    right: Array
    """What the baseline wrote."""
    before: Array
    """What stood there when the launch began: poison, or contents the kernel reads."""
    stale: Array
    """What stood there before the captured launch."""
    replayed: Array
    """What the captured launch left."""
    inputs: Mapping[str, Array]
    """Contents of every other buffer of this size and type, by kernel parameter."""


Maker = Callable[[Samples, Policy], "Array | str"]
"""The wrong result, or why there is none of this kind."""

NOT_FLOATING = "integers have no lower precision"
ONE_ELEMENT = "a buffer of one element"


def _constant(samples: Samples, policy: Policy) -> Array | str:
    if samples.right.size < 2:
        return ONE_ELEMENT
    if samples.element not in FLOATING:
        return np.full_like(samples.right, np.sort(samples.right)[samples.right.size // 2])
    finite = samples.right[np.isfinite(samples.right)].astype(np.float64)
    return np.full(samples.right.size, finite.mean() if finite.size else 0.0)


def _not_a_number(samples: Samples, policy: Policy) -> Array | str:
    if samples.element not in FLOATING:
        return "integers have no NaN"
    return np.full(samples.right.size, np.nan)


def _half_written(samples: Samples, policy: Policy) -> Array | str:
    half = samples.right.size // 2
    return np.concatenate([samples.right[:half], samples.before[half:]]) if half else ONE_ELEMENT


def _shuffled(samples: Samples, policy: Policy) -> Array | str:
    if samples.right.size < 2:
        return ONE_ELEMENT
    return np.random.default_rng(CONTROL_SEED).permutation(samples.right)


def _one_off(samples: Samples, policy: Policy) -> Array | str:
    result = samples.right.copy()
    if samples.element not in FLOATING:
        result[result.size // 2] ^= 1
        return result
    finite = np.flatnonzero(np.isfinite(result))
    if not finite.size:
        return "no element is finite"
    place = int(finite[finite.size // 2])
    wide = result.astype(np.float64)
    size = float(np.sqrt(np.mean(wide[finite] ** 2))) + abs(float(wide[place]))
    wide[place] += _visible(samples.element, policy) * size if size else 1.0
    return wide


def _visible(element: Element, policy: Policy) -> float:
    roundoff = UNIT_ROUNDOFF[element]
    if policy.allow_precision is not None:
        roundoff = max(roundoff, FORMATS[policy.allow_precision].roundoff)
    return max(VISIBLE, VISIBLE_ROUNDOFFS * roundoff)


def copy_of(parameter: str) -> Maker:
    """A control that gives back the contents of another buffer."""
    return lambda samples, policy: samples.inputs.get(
        parameter, f"{parameter} has another size or type"
    )


def no_less_exact(kind: str, element: Element, policy: Policy) -> str | None:
    """Why a type is no control: the buffer is no more exact, or the user allowed it."""
    if element not in FLOATING:
        return NOT_FLOATING
    bits = NARROW_BITS[kind]
    if bits >= ELEMENT_BITS[element]:
        return f"{kind} is no lower precision than {element}"
    allowed = policy.allow_precision
    if allowed is not None and bits >= FORMATS[allowed].significant_bits:
        return f"no lower precision than {allowed}, which the user allowed"
    return None


def rounded_to(kind: str) -> Maker:
    """A control that rounds the right result to a type."""

    def make(samples: Samples, policy: Policy) -> Array | str:
        problem = no_less_exact(kind, samples.element, policy)
        if problem is not None:
            return problem
        wide = samples.right.astype(np.float64)
        return as_fp16(wide) if kind == "fp16" else rounded(wide, NARROW_BITS[kind])

    return make


def noise_of(kind: str) -> Maker:
    """A control with errors of the size that operands rounded to a type give."""

    def make(samples: Samples, policy: Policy) -> Array | str:
        problem = no_less_exact(kind, samples.element, policy)
        if problem is not None:
            return problem
        noise = np.random.default_rng(CONTROL_SEED).standard_normal(samples.right.size)
        error = OPERAND_ROUNDOFFS * 2.0 ** -NARROW_BITS[kind]
        return samples.right.astype(np.float64) * (1.0 + error * noise)

    return make


MAKERS: dict[ControlName, Maker] = {
    "zeros": lambda samples, policy: np.zeros_like(samples.right),
    "constant": _constant,
    "not_a_number": _not_a_number,
    "unwritten": lambda samples, policy: samples.before,
    "stale": lambda samples, policy: samples.stale,
    "replayed": lambda samples, policy: samples.replayed,
    "half_written": _half_written,
    "shuffled": _shuffled,
    "one_off": _one_off,
    "rounded_f32": rounded_to("f32"),
    "rounded_tf32": rounded_to("tf32"),
    "rounded_fp16": rounded_to("fp16"),
    "rounded_bf16": rounded_to("bf16"),
    "rounded_e4m3": rounded_to("e4m3"),
}
"""Every control that needs no run but copies of inputs and `operands_*`."""

OPERANDS: dict[str, ControlName] = {
    "f32": "operands_f32",
    "tf32": "operands_tf32",
    "fp16": "operands_fp16",
    "bf16": "operands_bf16",
    "e4m3": "operands_e4m3",
}

_WORDS: dict[str, str] = {
    "zeros": "zeros everywhere",
    "constant": "one constant everywhere",
    "not_a_number": "NaN everywhere",
    "input_copied": "a copy of an input",
    "unwritten": "the previous contents, never written",
    "stale": "the contents before the captured launch",
    "replayed": "the captured launch's result whatever the inputs",
    "half_written": "a result whose second half was never written",
    "shuffled": "the right elements in another order",
    "one_off": "a result with one element visibly off",
}


def described(name: ControlName) -> str:
    """A control as a person reads it."""
    if name in _WORDS:
        return _WORDS[name]
    what, _, kind = name.partition("_")
    return f"the result rounded to {kind}" if what == "rounded" else f"operands in {kind}"


def as_stored(values: Array, element: Element) -> Array:
    """Numbers as a buffer of this type gives them back (bf16 as float32)."""
    if element == "bf16":
        return rounded(values, ELEMENT_BITS["bf16"]).astype(np.float32)
    kinds = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    with np.errstate(over="ignore"):
        return values.astype(kinds[element]) if element in kinds else values


class Case(NamedTuple):
    """One reference of one workload."""

    oracle: Oracle
    reference: Reference

    @property
    def exact(self) -> bool:
        """Whether a candidate is compared with it bit for bit where that makes sense."""
        return self.reference is self.oracle.exact or self.reference.kind in EXACT_CASES

    @property
    def label(self) -> str:
        """`w0 signed`."""
        return f"{self.oracle.workload.id} {self.reference.kind}"


def cases_of(oracles: Sequence[Oracle]) -> tuple[Case, ...]:
    """Every reference of every workload."""
    return tuple(Case(oracle, one) for oracle in oracles for one in oracle.references)


class SampledOutput(NamedTuple):
    """One output buffer on one reference, ready for wrong results."""

    case: Case
    allocation: Allocation
    samples: Samples
    wide: Array | None
    limit: int

    def accuracy(self, result: Array, policy: Policy) -> BufferAccuracy:
        """What the gate would say of this (sampled) result."""
        made = in_memory(as_stored(result, self.allocation.element))
        wide = None if self.wide is None else in_memory(self.wide)
        problem = self.case.reference.wide_problem
        in_places = self.case.reference.non_finite
        sides = Sides(made, in_memory(self.samples.right), wide, problem, in_places)
        name = self.case.oracle.workload.name_of(self.allocation)
        held = compare_sides_exactly if self.case.exact else compare_sides
        return held(sides, self.allocation.element, name, policy)


def sampled_outputs(cases: Sequence[Case], buffer: str) -> tuple[SampledOutput, ...]:
    """The named output on every reference of every workload that has it."""
    found = [
        (case, allocation)
        for case in cases
        for allocation in case.oracle.results
        if case.oracle.workload.name_of(allocation) == buffer
    ]
    least, most = SAMPLE_RANGE
    limit = min(most, max(least, SAMPLED_ELEMENTS // max(1, len(found))))
    return tuple(_sampled_output(case, allocation, limit) for case, allocation in found)


def _sampled_output(case: Case, allocation: Allocation, limit: int) -> SampledOutput:
    workload, reference = case.oracle.workload, case.reference
    folder, index, element = Path(workload.folder), allocation.index, allocation.element
    right = stored(reference.outputs[index], element)
    samples = Samples(
        element=element,
        right=sample(right, limit),
        before=sample(_before(case, allocation, right.size), limit),
        stale=sample(stored(before_path(workload, allocation), element), limit),
        replayed=sample(stored(folder / allocation.after, element), limit),
        inputs=_inputs(case, allocation, limit),
    )
    path = (reference.wide_outputs or {}).get(index)
    wide = None if path is None else sample(stored_widened(path, element), limit)
    return SampledOutput(case, allocation, samples, wide, limit)


def _before(case: Case, allocation: Allocation, size: int) -> Values:
    poison = case.reference.inputs.poison.get(allocation.index)
    if poison is not None:
        return filled(poison, size, allocation.element)
    known = case.reference.inputs.contents.get(allocation.index)
    path = before_path(case.oracle.workload, allocation) if known is None else known  # a variable
    return stored(path, allocation.element)


def _inputs(case: Case, output: Allocation, limit: int) -> dict[str, Array]:
    workload, contents = case.oracle.workload, case.reference.inputs.contents
    return {
        workload.name_of(other): sample(stored(contents[other.index], other.element), limit)
        for other in workload.allocations
        if other.index != output.index
        and other.role != "out"
        and (other.element, other.size_bytes) == (output.element, output.size_bytes)
    }


def same(a: Array, b: Array) -> bool:
    """Whether two samples are equal everywhere, NaN to NaN."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))
