"""What a program prints, compared number by number: the last check of a whole program."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)

TIME_LINE = re.compile(
    r"\b(time[ds]?|timing|elapsed|took|duration|speed|speedup|throughput|bandwidth|"
    r"[gt]?flops?|gflop/s|[kmgt]i?b/s(?:ec)?|gbps|fps|[mun]s|µs|[mun]secs?|"
    r"(?:milli|micro|nano)?seconds?|secs?)\b|\d\s*(?:\(s\)|\[s\]|s(?=\s*(?:$|[,;.)|\]])))",
    re.IGNORECASE,
)
"""A line that mentions a time or a rate; its numbers say how fast, not what was computed."""
ERROR_LINE = re.compile(
    r"\b(err(?:or)?s?|diff(?:erence)?s?|deviations?|residuals?|rmse)\b", re.IGNORECASE
)
"""A line that says how far a result is from another one."""

OWN_FACTOR = 4.0
"""How many times as far as the author's own program without fused multiply-adds a number may be
off. Chosen: as many as the accuracy gate allows of the baseline's own error (`gates.accuracy`)."""


class PrintedComparison(NamedTuple):
    """Two outputs held against each other."""

    matches: bool
    summary: str
    numbers_compared: int
    worst_relative_difference: float


class AuthorsOutput(NamedTuple):
    """What is known of what the author's program prints, beside the output of one run."""

    again: str = ""
    """Printed by another run: a number that is another there is not compared."""
    unfused: str = ""
    """Printed without fused multiply-adds: a number may differ by `OWN_FACTOR` times what it
    differs by there."""
    rounding: float = 0.0
    """How far from each other results are that differ by rounding alone: an error that the program
    prints of itself may be so large."""


ALONE = AuthorsOutput()


def compare_printed(
    expected: str, actual: str, rtol: float, author: AuthorsOutput = ALONE
) -> PrintedComparison:
    """Same words in the same order, and every number within `rtol` of the expected one.

    Lines that mention a time or a rate are left out. Two numbers that differ by one unit of the
    last printed digit count as equal, since rounding for print alone can do that.
    """
    expected_lines, actual_lines = _lines(expected), _lines(actual)
    if len(expected_lines) != len(actual_lines):
        found, wanted = len(actual_lines), len(expected_lines)
        text = f"prints {found} lines where the author's program prints {wanted}"
        text += f", {_first_other(expected_lines, actual_lines)}"
        return PrintedComparison(False, text, 0, math.inf)
    own_lines = _beside(author.unfused, expected_lines)
    again_lines = _beside(author.again, expected_lines)
    compared, unsteady, other, worst = 0, 0, 0, 0.0
    for want, got, own, again in zip(
        expected_lines, actual_lines, own_lines, again_lines, strict=True
    ):
        if TIME_LINE.search(want):
            continue
        if _words(want) != _words(got):
            return PrintedComparison(
                False, f"prints {got!r} where it should print {want!r}", compared, math.inf
            )
        own, again = (x if _words(x) == _words(want) else want for x in (own, again))
        allowed = author.rounding if ERROR_LINE.search(want) else 0.0
        for a, b, c, d in zip(*map(NUMBER.findall, (want, got, own, again)), strict=True):
            if _relative_difference(a, d) > rtol:
                other += 1
                continue
            compared += 1
            difference = _relative_difference(a, b)
            own_difference = _relative_difference(a, c)
            is_rounding = abs(float(a)) <= allowed and _is_small(b, allowed)
            if difference > rtol and (
                difference <= OWN_FACTOR * own_difference < math.inf or is_rounding
            ):
                unsteady += 1
                continue
            worst = max(worst, difference)
            if difference > rtol:
                text = f"prints {b} where the author's program prints {a} (line {want.strip()!r})"
                return PrintedComparison(False, text, compared, worst)
    if compared == 0:
        text = "the program prints no number to compare"
        return PrintedComparison(True, text + _others(other), 0, 0.0)
    steady = compared - unsteady
    text = f"{steady} printed numbers agree, largest relative difference {worst:.1e}"
    text += f" (allowed {rtol:.0e})"
    if unsteady:
        text += f"; {unsteady} within what rounding alone makes of the author's"
    return PrintedComparison(True, text + _others(other), compared, worst)


def _others(count: int) -> str:
    """What is said of numbers that are not compared."""
    return f"; {count} that the author's program prints otherwise each time" if count else ""


def _beside(text: str, lines: list[str]) -> list[str]:
    """Another output line by line; the same lines where it has not as many."""
    other = _lines(text)
    return other if len(other) == len(lines) else lines


def _is_small(text: str, allowed: float) -> bool:
    """Whether a number with a fraction or an exponent is one that rounding makes."""
    return not text.lstrip("+-").isdigit() and abs(float(text)) <= allowed


def _first_other(expected: list[str], actual: list[str]) -> str:
    """Where one of them has a line more: often a complaint of the program's own check."""
    more, less = (actual, expected) if len(actual) > len(expected) else (expected, actual)
    same = (_words(a) == _words(b) for a, b in zip(more, less, strict=False))
    line = more[next((n for n, equal in enumerate(same) if not equal), len(less))]
    return f"{'first' if more is actual else 'without'} {line.strip()!r}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _words(line: str) -> str:
    """What stands around a line's numbers; where they end in columns, their length is theirs."""
    return " ".join(NUMBER.sub("#", line).split())


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
