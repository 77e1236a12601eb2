"""Arithmetic less exact than the baseline's: what each type holds, and what allowing it allows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cudaops.domain.judgement import Policy
from cudaops.domain.options import Precision
from cudaops.domain.workload import FLOATING, Workload
from cudaops.executors.arrays import Array, Values, stored
from cudaops.executors.base import InputSet


class Format(NamedTuple):
    """A floating type of matrix instructions."""

    significant_bits: int
    """The leading one included."""
    largest: float
    smallest_normal: float

    @property
    def roundoff(self) -> float:
        """Largest relative error of one rounding to nearest."""
        return 2.0**-self.significant_bits

    @property
    def exact_limit(self) -> float:
        """Largest magnitude up to which every integer is representable."""
        return 2.0**self.significant_bits


FORMATS: dict[Precision, Format] = {
    "tf32": Format(11, 2.0**128 * (1 - 2.0**-11), 2.0**-126),
    "fp16": Format(11, 65504.0, 2.0**-14),
    "bf16": Format(8, 2.0**128 * (1 - 2.0**-8), 2.0**-126),
}
"""Sources: fp16 is binary16 of IEEE 754-2019, table 3.5; tf32 has the exponent of float32 and at
least 10 bits of mantissa, bf16 the exponent of float32 and 7 bits: PTX ISA, section "Alternate
floating-point data formats"."""

WELL_USED_ROUNDOFFS = 0.5
"""Relative L2 error, in unit roundoffs, of a result whose operands were rounded to the type once
and summed in float32: 0.4 for one operand, 0.6 for both, with signed inputs at any scale and any
K from 256 to 4096; less where all terms have one sign. Times the factor of 4 that any candidate
has this is 2: operands truncated instead of rounded (1.6) stay within it, one operand rounded to
the next narrower type (3.4) does not. Source: the table in docs/verification.md, made by
`tests/gates/precision_table.py`."""


def rounded(values: Array, significant_bits: int) -> Array:
    """Doubles rounded to nearest even at this many significant bits, exponents unlimited."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    unit = 2.0**significant_bits
    result: Array = np.ldexp(np.rint(mantissa * unit) / unit, exponent)
    return result


def as_fp16(values: Array) -> Array:
    """Doubles after a round trip through fp16, overflow included."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)


def allowed_roundoffs(policy: Policy) -> float:
    """Relative L2 error that the user's choice of precision allows; 0 where none was allowed."""
    if policy.allow_precision is None:
        return 0.0
    return policy.max_error_factor * WELL_USED_ROUNDOFFS * FORMATS[policy.allow_precision].roundoff


def unfit_inputs(workload: Workload, inputs: InputSet, policy: Policy) -> str | None:
    """Why an input set says nothing about a candidate in the allowed precision; None where it does.

    A set made by us whose values lie outside the range of the type (fp16: above 65504, or on the
    whole below 6.1e-5) shows that range, which the user accepted. The program's own captured
    inputs are never left out for it: a candidate that overflows on those is wrong.
    """
    if policy.allow_precision is None:
        return None
    kind = FORMATS[policy.allow_precision]
    for allocation in workload.allocations:
        if allocation.element not in FLOATING or allocation.role == "out":
            continue
        extent = _extent(stored(inputs.contents[allocation.index], allocation.element))
        if extent.largest > kind.largest:
            return f"values up to {extent.largest:.1e} overflow {policy.allow_precision}"
        if 0.0 < extent.typical < kind.smallest_normal:
            return f"values around {extent.typical:.1e} vanish in {policy.allow_precision}"
    return None


class _Extent(NamedTuple):
    largest: float
    typical: float
    """Root mean square of what is neither 0 nor infinite; 0 where there is nothing such."""


def _extent(values: Values) -> _Extent:
    largest, norm, counted = 0.0, 0.0, 0
    for start, count in values.chunks():
        part = np.abs(values.read(start, count).astype(np.float64))
        part = part[np.isfinite(part) & (part > 0.0)]
        if part.size:
            top = float(part.max())
            largest = max(largest, top)
            norm = math.hypot(norm, top * float(np.linalg.norm(part / top)))
            counted += part.size
    return _Extent(largest, norm / math.sqrt(counted) if counted else 0.0)
