"""Zero times infinity: a factor that is passed is zero where what it multiplies is not finite.

`y = alpha * s + beta * y` is NaN there, and a rewrite that leaves the product out where `beta` is
zero is not. One draw in thousands has both by chance.
"""

from __future__ import annotations

from cudaops.domain.workload import FLOATING
from cudaops.sandbox.draw import Draw
from cudaops.sandbox.draws import Drawing
from cudaops.sandbox.launch_numbers import number_of
from cudaops.sandbox.shapes import Shape
from cudaops.sandbox.variations import Way

MOST_DRAWS = 24


def zero_times_infinity(drawing: Drawing, shape: Shape) -> list[Draw]:
    """Each floating argument that may be zero, beside infinities in each floating buffer that may
    hold some, and in all of them."""
    infinite: Way = "infinite"
    items = [i for i in drawing.items(shape.workload) if i.element in FLOATING]
    holding = [i.name for i in items if infinite in drawing.ways.get(i.name, [])]
    zeros = [
        i.name
        for i in items
        if i.kind == "argument"
        and 0.0 in (number_of(shape.workload, i.name), *drawing.values.get(i.name, []))
    ]
    groups = [[name] for name in holding] + ([holding] if len(holding) > 1 else [])
    return [
        drawing.draw(shape, dict.fromkeys(group, infinite), {name: 0.0})
        for group in groups
        for name in zeros
    ][: min(MOST_DRAWS, drawing.affordable(shape))]
