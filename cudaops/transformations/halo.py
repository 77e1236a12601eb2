"""What neighbouring threads of a block read around their own places: a tile in shared memory.

A stencil or a filter reads each element once for every neighbour. The block reads its part of the
array together, with as many elements around it as the reads reach out, and every thread then finds
its neighbourhood in the tile. Threads meet at the begin of the kernel, before any of them leaves.

Legal where nothing in the launch writes the array (`aliasing`), and where it is told exactly which
elements the launch's threads read: boxes of the grid (`neighbourhood`). Only elements of the boxes
are loaded, each of which some thread of the launch reads in any case, or lies between two of a row
that are read; where the sizes make a box empty, or the grid ends in one, the author's kernel runs.
Edges that are mirrored or wrap around, and reads under other conditions, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, is_volatile
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.polynomials import Polynomial, number
from cudaops.program.launch_expression import ONE, LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.boxes import Box, at_least, merged, pruned
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.neighbourhood import AXES, Near, Neighbourhoods, place_of
from cudaops.transformations.path_conditions import PathConditions
from cudaops.transformations.shared_memory import block_guards, block_of, room_for, thread_in_block
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed

_MOST_SETTINGS = 2
_MOST_BOXES = 4
_MOST_BYTES = 16
_LEAST_READS = 2
"""Of an element of the tile, on average: with fewer the tile costs more than it saves."""
_WORDS = {"x": "column", "y": "row", "z": "layer"}


class Halo:
    """A block's part of an array with the elements around it, loaded together."""

    name = "halo"
    title = "tile with halo in shared memory"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "dram_bandwidth", "stall_lg_throttle",
        "stall_long_scoreboard", "uncoalesced_access",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Arrays, the most read first."""
        found = _tiles(draft)
        return tuple({"array": x.array} for x in found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One array."""
        tile = next((x for x in _tiles(draft) if x.array == setting["array"]), None)
        if tile is None:
            raise NotUnderstood("no stencil accesses to this array")
        lines, body = _written(draft, tile)
        requires = [*block_guards(draft, block_of(draft)), *_requires(draft, tile)]
        extents = " x ".join(str(n) for _, n in reversed(tile.extents))
        says = f"A block reads its {extents} elements of `{tile.array}` into shared memory at once."
        made = draft.requiring(*requires).with_body((*lines, *body))
        if not any(made.resolved):
            raise NotUnderstood("a box that is empty, or that the grid does not cover")
        return made.stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Tile:
    """What a block loads of one array."""

    places: Neighbourhoods
    reads: tuple[Near, ...]
    boxes: tuple[Box, ...]

    @property
    def array(self) -> str:
        return self.reads[0].array

    def reach(self, axis: str) -> tuple[int, int]:
        """How far from a thread's own place."""
        found = [dict(x.coordinates)[axis].reach for x in self.reads]
        return min(low for low, _ in found), max(high for _, high in found)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(a for a, _ in self.reads[0].factors)

    @property
    def extents(self) -> tuple[tuple[str, int], ...]:
        """Elements by axis."""
        return tuple(
            (a, self.places.block[a] + self.reach(a)[1] - self.reach(a)[0]) for a in self.axes
        )

    @property
    def elements(self) -> int:
        return math.prod(n for _, n in self.extents)

    @property
    def saved(self) -> float:
        """Loads for each that is left."""
        threads = math.prod(self.places.block.values())
        return threads * sum(x.trips for x in self.reads) / self.elements


# Reading


def _tiles(draft: Draft) -> tuple[_Tile, ...]:
    """One an array at the most, those that save most first. Raises NotUnderstood."""
    facts = draft.facts
    if facts.unmodelled or facts.calls or is_volatile(draft.form.kernel, draft.form):
        raise NotUnderstood("volatile memory, assembly, or unknown functions")
    memory, places = Memory(draft), Neighbourhoods(draft)
    pointers = {p.name for p in draft.form.kernel.parameters if p.is_pointer}
    pointers -= changed_variables(draft.form.kernel.body, draft.form)
    arrays = {n for n in pointers if memory.is_read_only(n)}
    if not memory.is_followed or not arrays:
        raise NotUnderstood("no read-only array")
    groups: dict[Any, list[Near]] = {}
    why = "no stencil loads"
    inside: set[int] = set()
    for reached in PathConditions(draft.form).expressions():
        if isinstance(reached.node, s.Unary) and reached.node.operator == "&":
            inside.update(id(x) for x in s.below(reached.node))  # its address is taken
        place = place_of(reached.node)
        if place is None or place.base.text not in arrays or id(reached.node) in inside:
            continue
        inside.update(id(x) for x in s.below(reached.node))
        try:
            near = places.read(reached)
        except NotUnderstood as error:
            why = str(error)
            continue
        groups.setdefault(near.group, []).append(near)
    found: dict[str, _Tile] = {}
    for reads in groups.values():
        try:
            tile = _tile(draft, places, reads)
        except NotUnderstood as error:
            why = str(error)
            continue
        if tile.array not in found or tile.saved > found[tile.array].saved:
            found[tile.array] = tile
    if not found:
        raise NotUnderstood(why)
    return tuple(sorted(found.values(), key=lambda t: -t.saved))


def _tile(draft: Draft, places: Neighbourhoods, reads: Sequence[Near]) -> _Tile:
    boxes = merged([x.box for x in reads])
    tile = _Tile(places, tuple(reads), boxes)
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    width = sizes.get(reads[0].type, 0)
    if not 0 < width <= _MOST_BYTES or len({x.type for x in reads}) > 1:
        raise NotUnderstood("elements too wide for a tile")
    if not tile.axes or all(low == high for low, high in map(tile.reach, tile.axes)):
        raise NotUnderstood("no stencil loads")
    if tile.elements * width > room_for(draft):
        raise NotUnderstood("no room for the tile in shared memory")
    if tile.saved < _LEAST_READS:
        raise NotUnderstood("too little reuse of the elements")
    if len(boxes) > _MOST_BOXES:
        raise NotUnderstood("loads under too many different conditions")
    return tile


# Writing


def _requires(draft: Draft, tile: _Tile) -> list[LaunchExpression]:
    """Conditions of plans."""
    of, found = draft.launch_expression, []
    for axis in tile.places.flat:
        if draft.launch.grid[AXES.index(axis)] != ONE:
            found.append(of(f"gridDim.{axis}").equals(1))
    wanted = dict.fromkeys(r for x in tile.reads for r in x.requires)
    hardest = pruned(wanted, -1)
    for value in (x for x in wanted if x in hardest):
        more = Polynomial(tuple(t for t in value.terms if t[1] > 0))
        less = Polynomial(tuple((m, -c) for m, c in value.terms if c < 0))
        found.append(more.launch_expression(of) >= less.launch_expression(of))
    unsigned = {p.name for p in draft.form.kernel.parameters if p.type == "unsigned"}
    polynomials = [f for x in tile.reads for _, f in x.factors] + [x.base for x in tile.reads]
    polynomials += [b for box in tile.boxes for _, x in box for b in (*x.lows, *x.ends)]
    names = {getattr(a, "name", "") for p in polynomials for a in p.atoms()}
    found += [of(n) <= 2**31 - 1 for n in sorted(names & unsigned)]
    return found


def _written(draft: Draft, tile: _Tile) -> tuple[tuple[Raw, ...], Any]:
    """What comes first, and the author's body."""
    name = draft.fresh_name(f"{tile.array}_tile")
    slot = draft.fresh_name("slot")
    words = {a: draft.fresh_name(_WORDS[a]) for a in tile.axes}
    spell = _Spelling(draft)
    sizes = "".join(f"[{n}]" for _, n in reversed(tile.extents))
    threads = math.prod(tile.places.block.values())
    lines = [f"__shared__ {tile.reads[0].type} {name}{sizes};"]
    lines.append(
        f"for (int {slot} = {_thread(tile)}; {slot} < {tile.elements}; {slot} += {threads}) {{"
    )
    kind = "long long" if any(x.is_wide for x in tile.reads) else "int"
    inner, at = 1, {}
    for axis, count in tile.extents:
        at[axis] = slot if inner == 1 else f"{slot} / {inner}"
        if inner * count < tile.elements:
            at[axis] += f" % {count}"
        inner *= count
        lines.append(f"    const {kind} {words[axis]} = {_first(tile, axis)}{at[axis]}"
                     f"{_signed(tile.reach(axis)[0])};")  # fmt: skip
    index = _sum([_times(words[a], f, spell) for a, f in reversed(tile.reads[0].factors)]
                 + ([spell(tile.reads[0].base)] if tile.reads[0].base.terms else []))  # fmt: skip
    place = "".join(f"[{at[a]}]" for a in reversed(tile.axes))
    load = f"{name}{place} = {tile.array}[{index}];"
    condition = _condition(tile, words, spell)
    lines += (
        [f"    if ({condition}) {{", f"        {load}", "    }"] if condition else [f"    {load}"]
    )
    lines += ["}", "__syncthreads();"]
    origins = {}
    for axis in tile.axes:
        if any(dict(x.coordinates)[axis].clamp is not None for x in tile.reads):
            origins[axis] = draft.fresh_name(f"{name}_{axis}")
            text = f"{_first(tile, axis)}{tile.reach(axis)[0]}".replace(" + -", " - ")
            lines.append(f"const int {origins[axis]} = {text};")
    elements = {id(x.node): _element(tile, x, name, origins) for x in tile.reads}
    body = changed(draft.form.kernel.body, lambda x: elements.get(id(x), x))
    return (Raw("\n".join(lines)),), body


def _thread(tile: _Tile) -> str:
    block = tile.places.block
    return thread_in_block((block["x"], block["y"], block["z"]))


def _first(tile: _Tile, axis: str) -> str:
    """The block's first place, as a summand."""
    if axis in tile.places.flat:
        return ""
    count = tile.places.block[axis]
    return f"int(blockIdx.{axis}) * {count} + " if count > 1 else f"int(blockIdx.{axis}) + "


def _signed(by: int) -> str:
    return "" if not by else f" + {by}" if by > 0 else f" - {-by}"


class _Spelling:
    """Sums of products over a launch's numbers, as C that computes with a sign."""

    def __init__(self, draft: Draft) -> None:
        self._types = {p.name: p.type for p in draft.form.kernel.parameters}

    def __call__(self, value: Polynomial) -> str:
        return value.text(self._name)

    def _name(self, name: str) -> str:
        kind = self._types.get(name, "unsigned" if "." in name else "int")
        signed = {"unsigned": "int", "unsigned long long": "long long"}.get(kind)
        return f"({signed}){name}" if signed else name


def _times(name: str, factor: Polynomial, spell: _Spelling) -> str:
    if factor == number(1):
        return name
    text = spell(factor)
    return (
        f"{name} * ({text})"
        if " + " in text or " - " in text or "-" in text
        else f"{name} * {text}"
    )


def _sum(parts: Sequence[str]) -> str:
    return " + ".join(parts).replace("+ -", "- ")


def _condition(tile: _Tile, words: dict[str, str], spell: _Spelling) -> str:
    """Under which an element is one of the boxes'; empty where all are."""
    texts = []
    for box in tile.boxes:
        bounds = []
        for axis, span in box:
            low, high = tile.reach(axis)
            least = number(low)
            most = tile.places.grid_end(axis) + number(high)
            bounds += [f"{words[axis]} >= {spell(x)}" for x in sorted(span.lows, key=repr)
                       if not at_least(least, x)]  # fmt: skip
            bounds += [f"{words[axis]} < {spell(x)}" for x in sorted(span.ends, key=repr)
                       if not at_least(x, most)]  # fmt: skip
        texts.append(" && ".join(bounds))
    if not all(texts):
        return ""
    return texts[0] if len(texts) == 1 else " || ".join(f"({x})" for x in texts)


def _element(tile: _Tile, near: Near, name: str, origins: dict[str, str]) -> Any:
    """Where a read finds its element."""
    found: Any = s.Name(name)
    coordinates = dict(near.coordinates)
    for axis in reversed(tile.axes):
        one = coordinates[axis]
        if one.clamp is not None:
            index: Any = s.Binary("-", one.clamp, s.Name(origins[axis]))
        else:
            index = _relative(tile, axis, one)
        found = s.Index(found, index, type=near.type)
    return found


def _relative(tile: _Tile, axis: str, one: Any) -> Any:
    parts: list[tuple[str, Any]] = []
    if tile.places.block[axis] > 1:
        parts.append(("+", s.Member(s.Name("threadIdx"), axis)))
    parts += [("+" if by > 0 else "-", s.Name(v)) for v, by in one.loops]
    away = one.shift - tile.reach(axis)[0]
    if away or not parts:
        parts.append(("+" if away >= 0 else "-", s.Number(str(abs(away)))))
    parts.sort(key=lambda p: p[0] == "-")
    sign, index = parts[0]
    if sign == "-":
        index = s.Unary("-", index)
    for sign, part in parts[1:]:
        index = s.Binary(sign, index, part)
    return index
