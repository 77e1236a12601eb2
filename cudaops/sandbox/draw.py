"""What an input is drawn for and made of.

Everything that the author's result may depend on is an `Item`: the contents of each buffer, each
number that is passed, each variable of the module. A `Draw` says how each of them is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import LaunchNumbers
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import (
    FLOATING,
    Allocation,
    Element,
    Field,
    GlobalState,
    Workload,
)
from cudaops.executors.arrays import EXACT_LIMIT
from cudaops.executors.base import Trial
from cudaops.executors.compare import is_small_integers
from cudaops.executors.fields import views
from cudaops.program.analysis.facts import KernelFacts
from cudaops.sandbox.oracle import Reference
from cudaops.sandbox.shapes import Shape
from cudaops.sandbox.variations import EXACT_WAYS, LIMITS, Way

Broken = frozenset[str]


@dataclass(frozen=True)
class Item:
    """Something that the author's result may depend on."""

    name: str
    kind: Literal["buffer", "argument", "variable"]
    element: Element
    index: int = -1
    """Of the allocation."""
    state: GlobalState | None = None
    field: Field | None = None
    """Of the structures in a buffer, or of the one that is passed."""

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number that it can hold."""
        if self.field is None or self.field.bits is None:
            return LIMITS.get(self.element, (-math.inf, math.inf))
        width = self.field.bits[1]
        is_signed = self.element.startswith("i")
        return (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)


@dataclass(frozen=True)
class Draw:
    """What one input is made of: ways of contents and values of arguments by the item's name."""

    shape: Shape
    ways: Mapping[str, Way] = field(default_factory=dict)
    values: Mapping[str, int | float] = field(default_factory=dict)
    recorded: int | None = None
    """Position of another launch of the program, whose arguments and geometry these are."""
    seed: int = 0
    numbers: tuple[float, ...] = ()
    """What contents that are drawn near numbers are drawn near to."""
    grid: Dim3 | None = None
    """In place of the one that belongs to the shape."""

    @property
    def what(self) -> str:
        """In words: `sizes rows = 61; row_ptr steps, x signed, drawn k = 3`."""
        told = [f"{n} {w.replace('_', ' ')}" for n, w in self.ways.items()]
        told += [f"drawn {n} = {v:.9g}" for n, v in self.values.items()]
        sizes = f"{'' if self.shape.is_captured else 'sizes '}{self.shape.what}"
        if self.recorded is not None:
            sizes = f"launch {self.recorded + 1}"
        if self.grid is not None:
            told.append(f"grid {self.grid.x} x {self.grid.y} x {self.grid.z}")
        return "; ".join(one for one in (sizes, ", ".join(told)) if one)

    @property
    def changes(self) -> int:
        """How many things are not as captured."""
        return len(self.ways) + len(self.values)

    @property
    def exact(self) -> bool:
        """Whether every floating value that is drawn is a small integer."""
        return bool(self.ways) and all(w in EXACT_WAYS for w in self.ways.values())


def reads_small_integers(trial: Trial) -> bool:
    """Whether every floating buffer that the kernel is given holds small integers, one as captured
    too: of `softmax(q k) v` with equal v alone the arithmetic is not exact."""
    given = (a for a in trial.workload.allocations if a.index not in trial.inputs.poison)
    return all(
        is_small_integers(view.stored(trial.inputs.contents[a.index]), EXACT_LIMIT[view.element])
        for a in given
        for view in views(a)
        if view.element in FLOATING
    )


class DrawnInput(NamedTuple):
    """One input of the domain, and what the author's kernel makes of it."""

    draw: Draw
    trial: Trial
    reference: Reference
    broken: Broken
    """Properties of the captured inputs that it does not have."""
    habits: frozenset[str]
    """What the author's kernel does wrong on it (`Misbehaved.habit`)."""
    moved: tuple[dict[int, str], ...] = ()
    """Results on inputs moved by one roundoff, by allocation."""
    rounded: tuple[dict[int, str], ...] = ()
    """Results with everything rounded up, and down, where integers come of floating point."""
    order_free: frozenset[int] = frozenset()
    """Buffers whose elements the author's own threads leave in no fixed order."""
    variables: tuple[Allocation, ...] = ()
    """What else is a result: see `shared_variables`."""
    exact: bool = False
    """Floating numbers are small integers and the kernel only adds and multiplies: where results
    are small integers too, nothing was rounded."""
    asks_nan: bool = False
    """NaN is among the results that count: it is drawn, or comes of infinities that are only added
    and multiplied. In an exponential or a quotient infinities meet by the order of operations."""


class DrawTarget(NamedTuple):
    """What is drawn for."""

    workload: Workload
    """With its roles refined."""
    program: Program
    kernel: Kernel
    facts: KernelFacts | None
    launches: tuple[LaunchNumbers, ...]
    """The program's, of this kernel, each configuration once."""
    compensated: bool = False
    """The author's kernel computes its own rounding errors (`analysis/compensation.py`)."""
    divides: bool = False
    """It divides, or rounds otherwise on integers too (`rounds_on_integers`)."""

    @property
    def rounds_to_integers(self) -> bool:
        """Whether integers that the kernel writes may come of floating point."""
        return rounds_to_integers(self.workload, self.kernel, self.program)

    @property
    def leaves_integers(self) -> bool:
        """Whether all that the kernel writes are integers: comparisons alone decide then what
        becomes of NaN, and two correct maxima are no two results."""
        written = [view for a in self.workload.allocations if a.role != "in" for view in views(a)]
        return bool(written) and all(view.element not in FLOATING for view in written)


_FLOATING_WORD = re.compile(r"float|double|half|bfloat|\b\d+\.\d*f?")
_ROUNDS_ITSELF = re.compile(r"\b(?:l?l?rint|nearbyint)f?\b|\b__\w+_r[nzud]\b|\b__(?:half|float)2")


def rounds_to_integers(workload: Workload, kernel: Kernel, program: Program) -> bool:
    """Whether integers that a kernel writes may come of floating point: which products its compiler
    fuses with a sum decides them where the number lies next to an integer. Not where the program
    rounds to whole numbers by the processor's mode: all of them would turn on it."""
    if any(_ROUNDS_ITSELF.search(f.text) for f in program.files):
        return False
    written = [view for a in workload.allocations if a.role != "in" for view in views(a)]
    integers = any(view.element not in FLOATING for view in written)
    return integers and bool(_FLOATING_WORD.search(kernel.text))
