"""Numbers as a person reads them. No time or speedup is ever written without its source."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from cudaops.domain.execution import UNMEASURED_WORDS

_SOURCE_WORDS: dict[str, str] = {
    "cuda_event": "measured on {device}, CUDA events",
    "cupti": "measured on {device}, CUPTI",
    "ncu": "measured on {device}, ncu",
    "host": "measured on {device}, host clock",
    "ptxas": "from ptxas",
    "launch": "of the launch",
    "measured": "measured on {device}",
    **UNMEASURED_WORDS,
    "mixed": "time measured on {device}, counts modelled",
    "unrecorded": "source not recorded",
}


class Clock(NamedTuple):
    """Where a time comes from."""

    source: str
    """A `Measurement.source`, `Metric.source` or `Profile.source`."""
    device: str

    def __str__(self) -> str:
        return _SOURCE_WORDS[self.source].format(device=self.device)


def milliseconds(value_ms: float | None, clock: Clock) -> str:
    """`1.185 ms (modelled for A10)`; `not timed` where there is no time."""
    return "not timed" if value_ms is None else f"{significant(value_ms)} ms ({clock})"


def microseconds(value_us: float | None, clock: Clock) -> str:
    """A time given in microseconds, written in the unit that keeps it short."""
    if value_us is None:
        return "not timed"
    if value_us >= 1000:
        return milliseconds(value_us / 1000, clock)
    return f"{significant(value_us)} µs ({clock})"


def microseconds_alone(value_us: float) -> str:
    """The same in a table that says its source once."""
    if value_us >= 1000:
        return f"{significant(value_us / 1000)} ms"
    return f"{significant(value_us)} µs"


def times_faster(ratio: float | None, clock: Clock) -> str:
    """`5.56× (modelled for A10)`; `not timed` where there is no ratio."""
    return "not timed" if ratio is None else f"{ratio:.2f}× ({clock})"


def significant(value: float, digits: int = 4) -> str:
    """The value with so many significant digits, thousands separated, never in scientific form
    between 0.0001 and a million."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    magnitude = abs(value)
    if magnitude and not 1e-4 <= magnitude < 1e6:
        return f"{value:.{digits - 1}e}"
    if value == int(value):
        return f"{int(value):,}"
    if magnitude < 1:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - len(str(int(magnitude))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def quantity(value: float, unit: str) -> str:
    """A number with its unit: `97.2 %`, `3 sectors`."""
    return f"{significant(value, 3)} {unit}".rstrip()


def one_line(text: str, limit: int = 400) -> str:
    """Text of unknown origin as one printable line: no control character reaches a terminal."""
    printable = "".join(
        " " if character.isspace() else character
        for character in text
        if character.isspace() or not unicodedata.category(character).startswith("C")
    )
    flat = " ".join(printable.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def plain_lines(text: str) -> list[str]:
    """Text of unknown origin as printable lines, indentation kept: for patches, prompts, answers.
    A tab is spaces up to the next column that four divides."""
    unified = text.replace("\r\n", "\n").expandtabs(4)
    return without_control(unified).split("\n")


def without_control(text: str) -> str:
    """The text without what acts on a terminal or a reader's eye: control characters, escapes,
    marks that turn the direction of writing. Ends of lines stay."""
    return "".join(c for c in text if c == "\n" or not unicodedata.category(c).startswith("C"))


def dollars(amount: float | None) -> str:
    """`$0.0412`; `no price known` where there is none."""
    if amount is None:
        return "no price known"
    if 0 < amount < 0.0001:
        return "less than $0.0001"
    text = f"{amount:,.4f}"
    return f"${text[:-2]}{text[-2:].rstrip('0')}" if amount < 1 else f"${amount:,.2f}"
