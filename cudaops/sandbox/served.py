"""Further inputs for a rewrite that serves few of the drawn ones.

A plan may hold a rewrite to some sizes (`@requires n == 200`); a program that is handed in with a
grid of its own always does. Most draws are of other, smaller sizes, on which the author's kernel
runs instead of the rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cudaops.domain.workload import Workload
from cudaops.sandbox.draw import Draw, DrawnInput
from cudaops.sandbox.draws import Drawing
from cudaops.sandbox.launch_numbers import with_numbers
from cudaops.sandbox.shapes import EXPENSIVE, Shape, smallest
from cudaops.sandbox.zero_times import zero_times_infinity


def served_shape(inputs: Sequence[DrawnInput], serves: Callable[[Workload], bool]) -> Shape | None:
    """The smallest launch on captured sizes or others that the rewrite serves; None where it serves
    none, or the one on which most was drawn, or where it is too expensive to draw more of it."""
    shapes = {id(one.draw.shape): one.draw.shape for one in inputs}.values()
    if not shapes or serves(smallest(shapes).workload):
        return None
    served = [s for s in shapes if not s.is_long and serves(s.workload)]
    shape = smallest(served) if served else None
    return shape if shape is not None and shape.accesses <= EXPENSIVE else None


def draws_of(drawing: Drawing, shape: Shape, serves: Callable[[Workload], bool]) -> Iterator[Draw]:
    """All that is drawn of the smallest launch, of this one: as far as the rewrite serves it."""
    drawn = (
        *drawing.probes(shape)[: drawing.affordable(shape)],
        *drawing.combined(shape), *drawing.uniform(shape), *drawing.modes(shape),
        *drawing.far(shape), *drawing.edges(shape), *zero_times_infinity(drawing, shape),
    )  # fmt: skip
    for draw in drawn:
        if not draw.values or serves(with_numbers(shape.workload, draw.values)):
            yield draw
