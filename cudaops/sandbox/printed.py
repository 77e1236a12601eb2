"""What a program prints, compared number by number: the last check of a whole program."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)

TIME_LINE = re.compile(
    r"\b(time[ds]?|timing|elapsed|took|duration|speed|speedup|throughput|bandwidth|"
    r"[gt]?flops?|gflop/s|[kmgt]i?b/s(?:ec)?|gbps|fps|[mun]s|µs|[mun]secs?|"
    r"(?:milli|micro|nano)?seconds?|secs?)\b|\d\s*(?:\(s\)|\[s\]|s(?=\s*(?:$|[,;.)|\]])))",
    re.IGNORECASE,
)
"""A line that mentions a time or a rate; its numbers may say how fast, not what was computed."""
ERROR_LINE = re.compile(
    r"\b(err(?:or)?s?|diff(?:erence)?s?|deviations?|residuals?|rmse)\b", re.IGNORECASE
)
"""A line that says how far a result is from another one."""

OWN_FACTOR = 4.0
"""How many times as far as the author's own program without fused multiply-adds a number may be
off. Chosen: as many as the accuracy gate allows of the baseline's own error (`gates.accuracy`)."""
LONGEST_LINE = 120
"""Characters of a line that a refusal shows whole; of a longer one so many about the number."""
MOST_LINES = 2000
"""With other words than the author's: of more none is found again. Chosen: some seconds' work."""


class PrintedComparison(NamedTuple):
    """Two outputs to compare."""

    matches: bool
    summary: str
    numbers_compared: int
    worst_relative_difference: float


class AuthorsOutput(NamedTuple):
    """What is known of what the author's program prints, beside the output of one run."""

    others: tuple[str, ...] = ()
    """Printed by other runs: a number that is another in one of them is not compared, a line with
    other words in one of them may have others, and lines that one of them has not come and go."""
    clocked: bool = False
    """Whether the clocks of one of these went at another rate: then a number on a line of a time is
    compared as well where it does not move."""
    unfused: str = ""
    """Printed without fused multiply-adds: a number may differ by `OWN_FACTOR` times what it
    differs by there."""
    rounding: float = 0.0
    """How far from each other results are that differ by rounding alone: an error that the program
    prints of itself may be so large."""


ALONE = AuthorsOutput()


def compare_printed(
    expected: str,
    actual: str,
    rtol: float,
    author: AuthorsOutput = ALONE,
    *,
    times_itself: bool = False,
) -> PrintedComparison:
    """Same words in the same order, and every number within `rtol` of the expected one.

    Lines that mention a time or a rate are left out where nothing tells their times from results
    (`AuthorsOutput.clocked`). Lines that some run of the author's program has and another has not
    (progress) may be there or not. Two numbers that differ by one unit of the last printed digit
    count as equal, since rounding for print alone can do that.

    `times_itself`: the host code is another one, whose lines of times may be others.
    """
    lines, actual_lines = _lines(expected), _lines(actual)
    others = [_of_another_run(lines, text) for text in author.others]
    found = _found(lines, actual_lines, others, times_itself=times_itself)
    if isinstance(found, PrintedComparison):
        return found
    own_lines = _of_another_run(lines, author.unfused)
    compared, unsteady, other, worst = 0, 0, 0, 0.0
    for n, got in found.items():
        want = lines[n]
        if TIME_LINE.search(want) and not author.clocked:
            continue
        again = [NUMBER.findall(x) for o in others if (x := o.same(n, want)) is not None]
        own = own_lines.same(n, want) or want
        allowed = author.rounding if ERROR_LINE.search(want) else 0.0
        for at, (a, b, c) in enumerate(zip(*map(NUMBER.findall, (want, got, own)), strict=True)):
            if any(_relative_difference(a, numbers[at]) > rtol for numbers in again):
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
                text = f"prints {b} where the author's program prints {a} ({_placed(want, at)})"
                return PrintedComparison(False, text, compared, worst)
    if compared == 0:
        text = "the program prints no number to compare"
        return PrintedComparison(True, text + _others(other), 0, 0.0)
    steadily = compared - unsteady
    text = f"{steadily} printed numbers match" if steadily != 1 else "1 printed number matches"
    text += f", largest relative difference {worst:.1e} (tolerance {rtol:.0e})"
    if unsteady:
        text += f"; {unsteady} differ by rounding alone"
    return PrintedComparison(True, text + _others(other), compared, worst)


def _found(
    lines: list[str], actual: list[str], others: Sequence[_Aligned], *, times_itself: bool
) -> dict[int, str] | PrintedComparison:
    """What stands for each of the lines that no run lacks, where it has the same words; the refusal
    where one is not there, or one more is."""
    coming = {n for other in others for n in other.gaps}
    templates = {_words(lines[n]) for n in coming} | {_words(x) for o in others for x in o.more}
    moving, drawn = _moving(lines, others)
    if moving and len(actual) == len(lines):
        same = {n for n, line in enumerate(lines) if _words(actual[n]) == _words(line)}
        other = set(range(len(lines))) - same - moving - coming
        if all(TIME_LINE.search(lines[n]) for n in other):
            return {n: actual[n] for n in same - coming}
    steady = [n for n in range(len(lines)) if n not in coming | moving]
    found = _aligned([lines[n] for n in steady], actual)
    lost = [lines[steady[n]] for n in found.gaps]
    more = [x for x in found.more if _words(x) not in templates]
    more = [x for x in more if not _is_drawn(x, drawn)]
    if times_itself:
        lost, more = ([x for x in xs if not TIME_LINE.search(x)] for xs in (lost, more))
    if lost or more:
        return _other_lines(lines, actual, lost, more)
    pairs = zip(steady, found.lines, strict=True)
    return {n: x for n, x in pairs if x is not None and _words(x) == _words(lines[n])}


def _moving(lines: Sequence[str], others: Sequence[_Aligned]) -> tuple[set[int], set[str]]:
    """Lines that have other words in another run of the author's program, as where it draws what
    comes of random numbers, and their characters. Rows of pictures that are the same by chance
    (`_is_drawn`) are of them."""
    moving = {
        n
        for n, line in enumerate(lines)
        if any(o.lines[n] is not None and o.same(n, line) is None for o in others)
        and not TIME_LINE.search(line)
    }
    drawn = {c for n in moving for c in lines[n]}
    return moving | {n for n, line in enumerate(lines) if _is_drawn(line, drawn)}, drawn


def _is_drawn(line: str, drawn: set[str]) -> bool:
    """Whether a line is a row of a picture: no letter, no digit, and of these characters."""
    return drawn.issuperset(line) and not any(c.isalnum() for c in line)


class _Aligned(NamedTuple):
    """Another output beside some lines."""

    lines: Sequence[str | None]
    """One for each; None where it has none."""
    gaps: tuple[int, ...] = ()
    """Lines that it lacks."""
    more: tuple[str, ...] = ()
    """Its lines that stand for none."""

    def same(self, number: int, line: str) -> str | None:
        """What is there, where it has the same words as `line`."""
        found = self.lines[number]
        return found if found is not None and _words(found) == _words(line) else None


def _others(count: int) -> str:
    """What is said of numbers that are not compared."""
    return f"; {count} that the author's program prints otherwise each time" if count else ""


def _aligned(lines: Sequence[str], other: Sequence[str]) -> _Aligned:
    """Line by line where the words around the numbers are the same, but on lines of times; else by
    these words, in their order."""
    ours, theirs = [_words(x) for x in lines], [_words(x) for x in other]
    if len(ours) == len(theirs) and all(
        a == b or TIME_LINE.search(line) for a, b, line in zip(ours, theirs, lines, strict=True)
    ):
        return _Aligned(other)
    first = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    found: list[str | None] = [*other[:first], *[None] * (len(ours) - first)]
    more = dict(enumerate(other[first:], start=first))
    blocks = SequenceMatcher(None, ours[first:], theirs[first:], autojunk=False)
    if max(len(ours), len(theirs)) - first <= MOST_LINES:
        for block in blocks.get_matching_blocks():
            for n in range(block.size):
                found[first + block.a + n] = more.pop(first + block.b + n)
    gaps = tuple(n for n, x in enumerate(found) if x is None)
    return _Aligned(found, gaps, tuple(more.values()))


def _of_another_run(lines: Sequence[str], text: str) -> _Aligned:
    """What the author's program prints in another run, beside `lines`; the same lines where it
    prints nothing."""
    other = _lines(text) or lines
    return _Aligned(other) if len(other) == len(lines) else _aligned(lines, other)


def _other_lines(
    expected: list[str], actual: list[str], lost: Sequence[str], more: Sequence[str]
) -> PrintedComparison:
    """The refusal, with a line of it: often a complaint of the program's own check."""
    if lost and more and len(expected) == len(actual):
        text = f"prints {more[0]!r} where it should print {lost[0]!r}"
    else:
        found, wanted = len(actual), len(expected)
        text = f"prints {found} lines where the author's program prints {wanted}, "
        shows = more and (found > wanted or not lost)
        text += f"first {more[0].strip()!r}" if shows else f"without {lost[0].strip()!r}"
    return PrintedComparison(False, text, 0, math.inf)


def _placed(line: str, at: int) -> str:
    """What is shown of the line that one of its numbers is in."""
    line = line.strip()
    if len(line) <= LONGEST_LINE:
        return f"line {line!r}"
    numbers = list(NUMBER.finditer(line))
    first = max(0, numbers[at].start() - LONGEST_LINE // 2)
    shown = line[first : first + LONGEST_LINE]
    return f"number {at + 1} of {len(numbers)} in the line, in {shown!r}"


def _is_small(text: str, allowed: float) -> bool:
    """Whether a number with a fraction or an exponent is one that rounding makes."""
    return not text.lstrip("+-").isdigit() and abs(float(text)) <= allowed


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
