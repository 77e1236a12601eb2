"""Axes: from a value to a place in the drawing, and the values that are written beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeGuard


class Tick(NamedTuple):
    """One value of an axis."""

    at: float
    """Place in the drawing, in its own units."""
    label: str
    """Empty for a line that carries no number."""


class LogScale(NamedTuple):
    """A logarithmic axis from `low` to `high`, both above 0."""

    low: float
    high: float
    start: float
    """Place of `low`."""
    end: float
    """Place of `high`; below `start` on an axis that goes up."""

    def __call__(self, value: float) -> float:
        """Place of a value above 0, to a tenth of a unit."""
        low, high = math.log(self.low), math.log(self.high)
        share = (math.log(value) - low) / (high - low)
        return round(self.start + (self.end - self.start) * share, 1)

    def ticks(self) -> list[Tick]:
        """Whole decades; between them 2 and 5 where fewer than three decades are shown, and every
        half step where it is less than one."""
        decades = math.log10(self.high) - math.log10(self.low)
        steps: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
        if decades < 1:
            steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
        shown = [v for v in values if self.low * 0.999 <= v <= self.high * 1.001]
        thin = math.ceil(len(shown) / 9)
        return [Tick(self(v), tick_label(v) if i % thin == 0 else "") for i, v in enumerate(shown)]


class LinearScale(NamedTuple):
    """An axis from `low` to `high` in equal steps."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Place of a value, to a tenth of a unit."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + (self.end - self.start) * share, 1)

    def ticks(self, step: float) -> list[Tick]:
        """Every `step` from `low`."""
        count = int((self.high - self.low) / step + 1e-9)
        values = [self.low + i * step for i in range(count + 1)]
        return [Tick(self(v), tick_label(v)) for v in values]


PLACED = (1e-9, 1e15)
"""Values that a logarithmic axis can show: beyond them nothing that is timed or counted here lies,
and a record that somebody sends may hold anything."""


def placeable(value: float | None) -> TypeGuard[float]:
    """Whether a value has a place on a logarithmic axis; NaN has none."""
    return value is not None and PLACED[0] <= value <= PLACED[1]


def log_scale(
    values: Iterable[float], start: float, end: float, *, margin: float = 1.25
) -> LogScale:
    """An axis that shows every value with room around it; at least a factor of 2 is shown.

    `values` are above 0, at least one. `margin`: factor left free at either end.
    """
    given = list(values)
    low, high = min(given) / margin, max(given) * margin
    if high < 2.0 * low:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = middle / math.sqrt(2.0), middle * math.sqrt(2.0)
    return LogScale(low, high, start, end)


def tick_label(value: float) -> str:
    """A round value, short: `0.05`, `1,000`, `2M`."""
    if value >= 1e6:
        return f"{value / 1e6:,.4g}M"
    return f"{value:,.6g}"
