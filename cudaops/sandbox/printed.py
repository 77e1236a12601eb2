"""What a program prints, compared number by number: the last check of a whole program."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)

TIME_LINE = re.compile(
    r"\b(time[ds]?|timing|elapsed|took|duration|speed|speedup|throughput|bandwidth|"
    r"g?flops?|gflop/s|tflops?|gb/s|gbps|mb/s|ms|us|µs|usec|msec|seconds?|secs?)\b",
    re.IGNORECASE,
)
"""A line that mentions a time or a rate; its numbers say how fast, not what was computed."""


class PrintedComparison(NamedTuple):
    """Two outputs held against each other."""

    matches: bool
    summary: str
    numbers_compared: int
    worst_relative_difference: float


def compare_printed(expected: str, actual: str, rtol: float) -> PrintedComparison:
    """Same words in the same order, and every number within `rtol` of the expected one.

    Lines that mention a time or a rate are left out. Two numbers that differ by one unit of the
    last printed digit count as equal, since rounding for print alone can do that.
    """
    expected_lines, actual_lines = _lines(expected), _lines(actual)
    if len(expected_lines) != len(actual_lines):
        found, wanted = len(actual_lines), len(expected_lines)
        text = f"prints {found} lines where the author's program prints {wanted}"
        return PrintedComparison(False, text, 0, math.inf)
    compared, worst = 0, 0.0
    for want, got in zip(expected_lines, actual_lines, strict=True):
        if TIME_LINE.search(want):
            continue
        if NUMBER.sub("#", want) != NUMBER.sub("#", got):
            return PrintedComparison(
                False, f"prints {got!r} where it should print {want!r}", compared, math.inf
            )
        for a, b in zip(NUMBER.findall(want), NUMBER.findall(got), strict=True):
            compared += 1
            difference = _relative_difference(a, b)
            worst = max(worst, difference)
            if difference > rtol:
                text = f"prints {b} where the author's program prints {a} (line {want.strip()!r})"
                return PrintedComparison(False, text, compared, worst)
    if compared == 0:
        return PrintedComparison(True, "the program prints no number to compare", 0, 0.0)
    text = f"{compared} printed numbers agree, largest relative difference {worst:.1e}"
    return PrintedComparison(True, f"{text} (allowed {rtol:.0e})", compared, worst)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _relative_difference(expected: str, actual: str) -> float:
    """Relative difference of two printed numbers; one printed step counts as equal."""
    a, b = float(expected), float(actual)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    difference = abs(a - b)
    if difference <= _printed_step(expected) * 1.01:
        return 0.0
    return difference / abs(a) if a else math.inf


def _printed_step(text: str) -> float:
    """The value of the last printed digit of a floating number; 0 for an integer."""
    mantissa, _, exponent = text.lower().partition("e")
    if "." not in mantissa:
        return 0.0
    digits = len(mantissa.split(".")[1])
    return float(10.0 ** (int(exponent or 0) - digits))
