"""ncu's printed numbers and units made comparable: one unit a quantity, whatever the scale.

ncu scales what it prints by itself (`20.21 Gbyte/s`, `415.30 us`, `0.77 %/Kbyte`); a report file
holds the same numbers unscaled. Both end in the same number here.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from cudaops.errors import InputError

_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,(\d{1,2}|\d{4,})|[+-]?\d{1,3}(\.\d{3})+,\d+", re.ASCII)
"""What no page with decimal points holds: `96,50`, `1,234567`, `821.629,12`."""

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MICROSECONDS = {"s": 1e6, "second": 1e6, "ms": 1e3, "msecond": 1e3, "us": 1.0, "usecond": 1.0,
                 "ns": 1e-3, "nsecond": 1e-3}  # fmt: skip
_HERTZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "cycle/second": 1.0, "cycle/s": 1.0,
          "cycle/usecond": 1e6, "cycle/us": 1e6, "cycle/nsecond": 1e9, "cycle/ns": 1e9}  # fmt: skip
_BYTES = re.compile(r"([KMGT]?)bytes?")
_SCALED = {"%", "us", "hz", "byte", "byte/s", "byte/block", "byte/sector", "byte/cycle"}


class Scale(NamedTuple):
    """What a printed unit stands for."""

    unit: str
    factor: float
    """Of the printed number."""


def number(text: str) -> float | None:
    """The number in a cell, thousands separated or not; None for words, `n/a`, `nan`, `inf` and
    what no float can hold."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def has_decimal_comma(text: str) -> bool:
    """Whether this cell can only be a number with a decimal comma."""
    return _DECIMAL_COMMA.fullmatch(text) is not None


def scale(unit: str) -> Scale:
    """The unscaled unit a printed one stands for: times in us, clocks in hz, data in byte, rates a
    second. A unit that is not known stands for itself."""
    if unit in _MICROSECONDS:
        return Scale("us", _MICROSECONDS[unit])
    if unit.lower() in _HERTZ:
        return Scale("hz", _HERTZ[unit.lower()])
    above, _, below = unit.partition("/")
    if found := _BYTES.fullmatch(above):
        above, factor = "byte", _PREFIX[found[1]]
    else:
        factor = 1.0
    if below in _MICROSECONDS:
        below, factor = "s", factor * 1e6 / _MICROSECONDS[below]
    elif found := _BYTES.fullmatch(below):
        # As ncu means it: `2.614 %/Kbyte` stands for 2614 %/byte (raw page against report file).
        below, factor = "byte", factor * _PREFIX[found[1]]
    return Scale(f"{above}/{below}" if below else above, factor)


def to_canonical(value: float, unit: str, wanted: str) -> float:
    """A printed value in the table's unit: `415.3 us`, `20.21 Gbyte/s`, `3.20 Ghz`, `4.10 Kbyte`.

    Raises:
        InputError: the unit cannot be turned into the wanted one.
    """
    if not wanted or unit == wanted:
        return value
    known = scale(unit)
    if known.unit == wanted:
        return value * known.factor
    # ncu's versions differ in what a mere count is called; only a scaled unit changes the number.
    if wanted not in _SCALED and known.unit not in _SCALED and known.factor == 1.0:
        return value
    raise InputError(
        f"cannot read unit {unit!r} as {wanted!r}: export the page again with the ncu that made it"
    )
