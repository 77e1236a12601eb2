"""Which inputs are drawn: one thing at a time, then several at once by ways that were borne."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from cudaops.domain.execution import LaunchNumbers
from cudaops.domain.workload import (
    FLOATING,
    Allocation,
    DeviceMemory,
    GlobalState,
    OpaqueArgument,
    ScalarArgument,
    Workload,
)
from cudaops.executors.arrays import Array, read_array, write_array
from cudaops.executors.base import Trial
from cudaops.executors.fields import field_values, views, write_fields
from cudaops.program.lexing import without_comments
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.draw import Broken, Draw, DrawTarget, Item
from cudaops.sandbox.inputs import ascends, before_path, pad_tail, searched_tables
from cudaops.sandbox.launch_numbers import (
    are_steps,
    as_launched,
    number_of,
    remembering,
    with_numbers,
)
from cudaops.sandbox.shapes import (
    EXPENSIVE,
    LEAST_SIZE,
    Shape,
    blocks_for,
    smallest,
    standing,
)
from cudaops.sandbox.text_asks import asks_for_nan, numbers_in, tells_apart
from cudaops.sandbox.variations import (
    COMPENSATED_WAYS,
    LIMITS,
    LONG_WAYS,
    UNIFORM_WAYS,
    Way,
    varied,
    ways_of,
)

BUDGET = 30_000_000
"""Accesses of global memory by the author's kernel on the draws of one shape together: about 3 s of
the checked build (two cores of an EPYC, 2026-11-28). The number of draws follows from it, so from
the program alone and not from how busy the machine is."""
MOST_DRAWS = 40
LEAST_DRAWS = 6
FEW_DRAWS = 3
"""Of one shape, whatever they cost; of one that is expensive."""
COMPENSATED_DRAWS = 6
"""In addition of one shape, of each of COMPENSATED_WAYS: twice as many as it takes to tell rounding
from chance (`gates/domain.py`), since in some a size is another too."""
MOST_PROBES = 240
MOST_RECORDED = 256
"""Other launches of the program that are looked at: what it does late, or seldom. A sort of 2^20
numbers has 210 steps."""
KEPT = 0.2
"""Chance of one thing to stay as captured in a draw."""
NUMBER_MOVES = 0.3
MOST_MOVE = 0.8
"""Chance of a number that is passed to be another one in a draw, and in every fourth: some branches
take two numbers that nobody passes together."""
MOST_PAIRS = 120
MOST_BESIDE = 8
MOST_FEWER = 3
"""Values of a number that is not borne alone, and of each one beside it."""
LARGEST_MODE = 16
"""Of a number that says what is to be done, and of its pairs with values of the other numbers."""
UNIFORM_DRAWS = 64
"""Of the cheapest shape, by which all threads of a block do the same: counts of them run over."""
TOGETHER: tuple[Way, ...] = (
    "magnitudes", "integers", "extremes", "few_huge", "one_large", "signed", "few_huge", "offset",
    "ties", "extremes", "zeros", "one_large",
)  # fmt: skip
"""Ways that all buffers take at once in some draws, of those that bear them."""

MAGNITUDES = (20, 70, 300, 1_200, 5_000, 40_000, 1_000_000, -40, -1_200, -50_000)
"""Integer arguments of every size: products of them overflow 16 bits before they overflow 32, and
a distance exceeds what it is measured in by far."""
MOST_VALUES = 36
"""Of one argument that are probed."""
_MULTIPLES = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 377, 2_584, 17_711)
"""Of an argument that integers in memory are near to: bins, rows or steps."""
FAR = 2**30
MOST_FAR = 16
"""An integer argument from there on is near an end of its type; so many draws have one."""
MOST_EDGES = 40
FEW_MOVE: tuple[Way, ...] = ("sparse", "touched")


class Drawing:
    """Chooses draws for one launch and writes their contents."""

    def __init__(self, subject: DrawTarget, seed: int) -> None:
        """`seed` is secret: no rewrite can know what it will be compared with."""
        self.subject = subject
        self.random = np.random.default_rng((seed, 35))
        self.passed = frozenset(
            a.name
            for a in subject.workload.arguments
            if isinstance(a, ScalarArgument)
            and a.element not in FLOATING
            and are_steps(self._passed_values(a.name))
        )
        """Integer arguments that step through powers of two from launch to launch: the program's
        own values are taken, and no others, since they stand for a place in an algorithm."""
        self.changing = frozenset(
            a.name
            for a in subject.workload.arguments
            if isinstance(a, ScalarArgument) and len(self._passed_values(a.name)) > 1
        )
        """Arguments that the program changes at all: none of them is a size."""
        around = [f.text for f in subject.program.files if f.path == subject.kernel.file]
        self.text = "\n".join([subject.kernel.text, *around])
        self.numbers = numbers_in(self.text)
        self.tables = searched_tables(subject.workload, subject.facts)
        self._asks_nan = asks_for_nan(subject.kernel.text) or subject.leaves_integers
        self.ways: dict[str, list[Way]] = {}
        """Of contents that the author's kernel accepts, by item."""
        self.values: dict[str, list[int | float]] = {}
        """Likewise of arguments."""
        self.beside_others: set[str] = set()
        """Arguments that were others beside another one's other value."""

    def items(self, workload: Workload) -> list[Item]:
        """Everything that can be another."""
        items = [
            Item(view.named(workload.name_of(a)), "buffer", view.element, a.index, field=view.field)
            for a in workload.allocations
            if a.role != "out" and a.size_bytes
            for view in views(a)
            if view.element != "opaque"
        ]  # fmt: skip
        for a in workload.arguments:
            if isinstance(a, ScalarArgument) and a.name not in self.passed:
                items.append(Item(a.name, "argument", a.element))
            elif isinstance(a, OpaqueArgument):
                items += [
                    Item(f"{a.name}.{f.path}", "argument", f.element, field=f) for f in a.fields
                ]
        for state in workload.globals:
            if state.fields:
                items += [
                    Item(f"{state.name}.{f.path}", "variable", f.element, state=state, field=f)
                    for f in state.fields
                ]
            elif state.element != "opaque":
                items.append(Item(state.name, "variable", state.element, state=state))
        return items

    def probes(self, shape: Shape, *, again: bool = False) -> list[Draw]:
        """One thing at a time; `again`: what another shape has not told, arguments, and integers
        that are as captured but for a few, as far as `BUDGET` goes."""
        of_each = [self._probes_of(item, shape, again) for item in self.items(shape.workload)]
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*of_each))
        most = min(MOST_PROBES, self.affordable(shape)) if again else MOST_PROBES
        return [probe for probe in in_turn if probe is not None][:most]

    def _probes_of(self, item: Item, shape: Shape, again: bool) -> list[Draw]:
        if item.kind == "argument":
            values = self._other_values(shape, item)
            return [self.draw(shape, values={item.name: value}) for value in values]
        ways: Sequence[Way] = ways_of(
            item.element,
            contents_of(shape.workload, item),
            asks_nan=self._asks_nan,
            compensated=self.subject.compensated,
        )
        if again and (known := self.ways.get(item.name)):
            ways = [way for way in FEW_MOVE if way in known for _ in range(2)]
        return [self.draw(shape, {item.name: way}) for way in ways]

    def beside(self, shape: Shape) -> list[Draw]:
        """Integers that are not borne alone, as a row's stride, beside fewer of what they belong
        to."""
        integers = [
            i
            for i in self.items(shape.workload)
            if i.kind == "argument" and i.element not in FLOATING and i.element != "bool"
        ]
        fewer = [
            (i.name, sorted(value for value in known if 0 < value < whole)[::-1][:MOST_FEWER])
            for i in integers
            for known, whole in [(self.values.get(i.name, []), number_of(shape.workload, i.name))]
        ]
        draws = [
            self.draw(shape, values={name: fewer_of, item.name: value})
            for item in integers
            if not self.values.get(item.name)
            for value in self._other_values(shape, item)[:MOST_BESIDE]
            for name, values in fewer
            for fewer_of in values
        ]
        return [draws[n] for n in sorted(self.random.permutation(len(draws))[:MOST_PROBES])]

    def learn(self, borne: Sequence[Draw]) -> None:
        """What single things may be."""
        for draw in borne:
            for name, way in draw.ways.items():
                self.ways.setdefault(name, []).append(way)
            for name, value in draw.values.items():
                self.values.setdefault(name, []).append(value)

    def pairs(self, shape: Shape, borne: Sequence[Draw]) -> list[Draw]:
        """Values that are borne beside one another, on drawn contents. None of them is assumed."""
        self.beside_others |= {name for one in borne for name in one.values}
        items = [i for i in self.items(shape.workload) if self.ways.get(i.name)]
        return [self.draw(shape, self._any_ways(items), one.values) for one in borne]

    def _any_ways(self, items: Sequence[Item]) -> dict[str, Way]:
        return {
            i.name: self.ways[i.name][self.random.integers(len(self.ways[i.name]))] for i in items
        }

    def combined(self, shape: Shape, count: int | None = None) -> Iterator[Draw]:
        """Several things at once, by ways that the author's kernel accepts one by one."""
        if count is None:
            count = min(MOST_DRAWS, self.affordable(shape))
            count = FEW_DRAWS if shape.accesses > EXPENSIVE else count
        items = self.items(shape.workload)
        also = COMPENSATED_WAYS * (COMPENSATED_DRAWS if self.subject.compensated else 0)
        all_at_once = itertools.chain(also, TOGETHER, itertools.repeat(None))
        for number, together in zip(range(count + len(also)), all_at_once, strict=False):
            ways: dict[str, Way] = {}
            values: dict[str, int | float] = {}
            moves = MOST_MOVE if number % 4 == 3 else NUMBER_MOVES
            for item in items:
                if item.kind == "argument":
                    known = self.values.get(item.name, [])
                    if known and self.random.random() < moves:
                        values[item.name] = known[self.random.integers(len(known))]
                    continue
                possible = self.ways.get(item.name, [])
                if together in possible:
                    ways[item.name] = together
                elif possible and self.random.random() >= KEPT:
                    ways[item.name] = possible[self.random.integers(len(possible))]
            yield self.draw(shape, ways, values)

    def uniform(self, shape: Shape) -> list[Draw]:
        """Every integer buffer the same all over, or rising evenly, by the ways that are borne."""
        possible = {
            i.name: [w for w in UNIFORM_WAYS if w == "captured" or w in self.ways.get(i.name, [])]
            for i in self.items(shape.workload)
            if i.kind == "buffer" and i.element not in FLOATING and self.ways.get(i.name)
        }
        if len(possible) < 2:
            return []
        draws = []
        for _ in range(min(UNIFORM_DRAWS, self.affordable(shape))):
            chosen = {n: ways[self.random.integers(len(ways))] for n, ways in possible.items()}
            changed = {name: way for name, way in chosen.items() if way != "captured"}
            draws.append(self.draw(shape, changed))
        return draws

    def long(self, shape: Shape) -> list[Draw]:
        """For a launch with one large size: all buffers by each of LONG_WAYS that they bear."""
        items = [i for i in self.items(shape.workload) if i.kind == "buffer"]
        ways = [
            {i.name: way for i in items if way in self.ways.get(i.name, [])} for way in LONG_WAYS
        ]
        return [self.draw(shape, one) for one in ways if one][: self.affordable(shape)]

    def modes(self, shape: Shape) -> list[Draw]:
        """Each value of an argument that the text tells one from another by (`switch (border)`,
        `kind == 2`) beside other values of every other one."""
        text = without_comments(self.text)
        pairs: list[dict[str, int | float]] = []
        for name, values in self.values.items():
            if not tells_apart(text, name.rpartition(".")[2]):
                continue
            few = [v for v in values if isinstance(v, int) and abs(v) <= LARGEST_MODE]
            pairs += [
                {name: mode, other: value}
                for mode in few
                for other, others in self.values.items()
                if other != name
                for value in others
            ]
        most = min(len(pairs), MOST_PAIRS, self.affordable(shape))
        order = self.random.permutation(len(pairs))[:most]
        return [self.draw(shape, values=pairs[n]) for n in order]

    def affordable(self, shape: Shape) -> int:
        """How many draws of a launch `BUDGET` allows."""
        return max(LEAST_DRAWS, BUDGET // max(1, shape.accesses))

    def far(self, shape: Shape) -> list[Draw]:
        """One integer argument near an end of its type, beside buffers whose integers are anything:
        where differences and products run over."""
        anything: Way = "any"
        contents = [
            i.name for i in self.items(shape.workload) if anything in self.ways.get(i.name, [])
        ]
        return [
            self.draw(shape, dict.fromkeys(contents, anything), {name: value})
            for name, values in self.values.items()
            for value in dict.fromkeys(values)
            if contents and isinstance(value, int) and abs(value) >= FAR
        ][:MOST_FAR]

    def edges(self, shape: Shape) -> list[Draw]:
        """One integer argument, and all integers in memory next to multiples of it, counted from 0
        or from another argument: where a quotient is rounded to the next integer."""
        near: Way = "near"
        contents = [
            i.name
            for i in self.items(shape.workload)
            if i.kind == "buffer"
            and i.element not in FLOATING
            and near in self.ways.get(i.name, [])
        ]
        captured = {
            a.name: int(a.value)
            for a in shape.workload.arguments
            if isinstance(a, ScalarArgument) and a.element not in (*FLOATING, "bool")
        }
        steps = [
            (name, value)
            for name, own in captured.items()
            for value in dict.fromkeys([own, *self.values.get(name, [])])
            if contents and isinstance(value, int) and abs(value) > 1
        ]
        chance = self.random.permutation(len(steps))
        most = min(MOST_EDGES, self.affordable(shape))
        largest = sorted(range(len(steps)), key=lambda n: -abs(steps[n][1]))[: most // 2]
        order = list(dict.fromkeys([*largest, *chance]))[:most]
        draws = []
        for name, value in (steps[n] for n in order):
            begins = {0, *(other for called, other in captured.items() if called != name)}
            numbers = tuple(float(b + n * value) for b in begins for n in _MULTIPLES)
            values = {} if value == captured[name] else {name: value}
            draws.append(self.draw(shape, dict.fromkeys(contents, near), values, numbers=numbers))
        return draws

    def launches(self, shapes: Sequence[Shape]) -> list[Draw]:
        """The program's other launches of this kernel, on captured and on drawn contents: as they
        were where that is cheap, else their numbers alone in a smaller launch."""
        whole = next((s for s in shapes if s.is_captured and s.accesses <= EXPENSIVE), None)
        shape = whole or smallest(shapes)
        sizes = [a.size_bytes for a in self.subject.workload.allocations]
        alike = [n for n, one in enumerate(self.subject.launches) if list(one.sizes_bytes) == sizes]
        if len(alike) < 2:
            return []
        most = max(8, min(MOST_RECORDED, 2 * BUDGET // max(1, shape.accesses)))
        if len(alike) > most:
            chosen = self.random.choice(len(alike), most, replace=False)
            alike = [alike[n] for n in sorted(chosen)]
        items = [i for i in self.items(shape.workload) if self.ways.get(i.name)]
        draws = []
        for number in alike:
            values = {} if whole else self._passed_by(self.subject.launches[number])
            ways = self._any_ways(items)
            at = number if whole else None
            draws.append(self.draw(shape, values=values, recorded=at))
            draws.append(self.draw(shape, ways, values, recorded=at))
        return draws

    def _passed_by(self, launch: LaunchNumbers) -> dict[str, int | float]:
        return {name: value for name, value in launch.numbers.items() if name in self.changing}

    def about(self, shape: Shape, numbers: tuple[float, ...]) -> list[Draw]:
        """Values about these numbers, in one thing at a time and in all of them."""
        near: Way = "near"
        items = self.items(shape.workload)
        contents = [i for i in items if i.kind != "argument" and near in self.ways.get(i.name, [])]
        draws = [self.draw(shape, {i.name: near}, numbers=numbers) for i in contents]
        draws += [
            self.draw(shape, {i.name: near for i in contents}, numbers=numbers) for _ in range(4)
        ]
        draws += [
            self.draw(shape, values={i.name: value})
            for i in items
            if i.kind == "argument"
            for value in _near(i, numbers)
        ]
        return draws[:MOST_DRAWS]

    def draw(
        self,
        shape: Shape,
        ways: Mapping[str, Way] | None = None,
        values: Mapping[str, int | float] | None = None,
        *,
        recorded: int | None = None,
        numbers: tuple[float, ...] | None = None,
    ) -> Draw:
        """With a seed of its own."""
        seed = int(self.random.integers(2**62))
        numbers = self.numbers if numbers is None else numbers
        return Draw(shape, dict(ways or {}), dict(values or {}), recorded, seed, numbers)

    def written(
        self, draw: Draw, folder: Path, background: int, *, remembers: bool = False
    ) -> tuple[Trial, Broken]:
        """The launch with its contents under `folder`, and what of the captured contents' order it
        does not keep. `remembers`: the result may depend on what stood where it is written, which
        is drawn then."""
        workload = draw.shape.workload
        if remembers:
            workload = remembering(workload)
        if draw.recorded is not None:
            workload = as_launched(workload, self.subject.launches[draw.recorded])
        workload = self._with_fewer_blocks(draw, with_numbers(workload, draw.values))
        workload = workload.model_copy(update={"grid": draw.grid or workload.grid})
        inputs = standing(workload, background)
        contents, states = dict(inputs.contents), {g.name: g for g in workload.globals}
        generator = np.random.default_rng(draw.seed)
        broken: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        written = {a.index for a in draw.shape.workload.allocations if a.role == "out"}
        for number, item in enumerate(self.items(workload)):
            way = draw.ways.get(item.name)
            if way is None and item.index in written:
                way = "signed" if item.element in FLOATING else "small"
            if way is None:
                continue
            old = contents_of(workload, item)
            new = varied(way, item.element, old, generator, draw.numbers)
            path = folder / f"{item.kind}_{number}.bin"
            memory: Allocation | GlobalState
            if item.state is not None:
                memory = states[item.state.name]
                given = captured = Path(workload.folder) / memory.before
            else:
                memory = next(a for a in workload.allocations if a.index == item.index)
                given = Path(contents[item.index])
                captured = before_path(workload, memory)
            if item.field is not None:
                write_fields(path, given, memory, {item.field.path: new})
            else:
                write_array(path, new, item.element)
                pad_tail(path, captured, memory.size_bytes)
            if isinstance(memory, GlobalState):
                states[memory.name] = memory.model_copy(update={"before": str(path)})
                continue
            contents[item.index] = str(path)
            if item.field is None and item.index in self.tables and not ascends(new):
                broken.add(f"{item.name} ascends, as captured")
        workload = workload.model_copy(update={"globals": tuple(states.values())})
        inputs = inputs.model_copy(update={"contents": contents})
        return Trial(workload, baseline_plan(workload), inputs), frozenset(broken)

    def assumed(self, why: Mapping[str, str]) -> tuple[str, ...]:
        """What keeps its captured value on every input; `why`: what the author's kernel did on
        others, by item."""
        told = []
        for item in self.items(self.subject.workload):
            if item.name in self.beside_others:
                continue
            if not (self.ways if item.kind != "argument" else self.values).get(item.name):
                reason = why.get(item.name)
                told.append(
                    f"{item.name} as captured" + (f" ({reason} on others)" if reason else "")
                )
        told += [f"{name} as the program passes it" for name in sorted(self.passed)]
        names = {p.allocation: p.name for p in self.subject.workload.pointers()}
        told += [
            f"{names.get(a.index, 'a buffer')} as captured (structures)"
            for a in self.subject.workload.allocations
            if a.element == "opaque" and a.role != "out" and not a.fields
        ]
        told += [
            f"{g.name} as captured (its type)"
            for g in self.subject.workload.globals
            if g.element == "opaque" and g.is_used and not g.fields
        ]
        return tuple(told)

    def _passed_values(self, name: str) -> set[int | float]:
        return {one.numbers[name] for one in self.subject.launches if name in one.numbers}

    def _other_values(self, shape: Shape, item: Item) -> list[int | float]:
        """For one argument."""
        value = number_of(shape.workload, item.name)
        known: list[int | float]
        if item.element in FLOATING:
            known = [value * 0.5, -value, value * 1.7, 0.0, 1.0, -1.0, 0.37, 3.5]
        elif item.element == "bool":
            known = [1 - int(bool(value))]
        else:
            v = int(value)
            known = [v - 1, v + 1, v // 2, 1, 0, 2, 3, 7, -1, v - v // 3, 2 * v]
            known += [2**31 - 1, 2**33 + 5, 2**30, -(2**31), 2**32 - 2]
            known += MAGNITUDES
        known = [*known, *_near(item, self.numbers)][:MOST_VALUES]
        least, most = item.limits
        if item.element not in FLOATING and value >= 0:
            least = max(least, self._least(item.name))
        return [v for v in dict.fromkeys(known) if v != value and least <= v <= most]

    def _least(self, name: str) -> float:
        """What an integer argument is at least: nobody launches blocks for nothing, nor a loop up
        to less than nothing."""
        if self._axes_alone(self.subject.workload, name):
            return 1
        if not self.is_size(name) and not self._is_bound(name):
            return -np.inf
        return 1 if _axes_of_count(self.subject.workload, name, LEAST_SIZE) else 0

    def _axes_alone(self, workload: Workload, name: str) -> list[str]:
        """Axes whose blocks are as many as an integer argument says, in the captured launch too,
        where the kernel asks nothing of it, nor of another argument that says as much: the grid
        alone is its bound, and no author passes another number than he launches."""
        if name in self._asked:
            return []
        captured = self.subject.workload
        taken = {axis for other in self._asked for axis in _axes_of_count(captured, other)}
        alone = set(_axes_of_count(captured, name)) - taken
        return [axis for axis in _axes_of_count(workload, name) if axis in alone]

    @cached_property
    def _asked(self) -> frozenset[str]:
        """Integer arguments that the kernel compares, or branches on."""
        text = without_comments(self.subject.kernel.text)
        numbers = (a for a in self.subject.workload.arguments if isinstance(a, ScalarArgument))
        names = [a.name for a in numbers if a.element not in FLOATING]
        asked = r"[\w\])]\s*[<>=!%]=?\s*{0}\b|\b{0}\s*(?:[<>=!]=?|\?)|switch\s*\(\s*{0}\b"
        return frozenset(name for name in names if re.search(asked.format(name), text))

    def _with_fewer_blocks(self, draw: Draw, workload: Workload) -> Workload:
        """The launch with the grid that belongs to a smaller number of what the grid alone says."""
        grid = workload.grid
        for argument in draw.shape.workload.arguments:
            if isinstance(argument, ScalarArgument) and argument.name in draw.values:
                value, name = int(draw.values[argument.name]), argument.name
                if argument.element in FLOATING or not 1 <= value < argument.value:
                    continue
                for axis in self._axes_alone(draw.shape.workload, name):
                    blocks, threads = getattr(grid, axis), getattr(workload.block, axis)
                    alone = argument.value == blocks
                    fewer = value if alone else math.ceil(value / threads)
                    grid = grid.model_copy(update={axis: min(blocks, fewer)})
        return workload.model_copy(update={"grid": grid})

    def _is_bound(self, name: str) -> bool:
        """Whether the kernel compares an argument with anything but a number."""
        text = without_comments(self.subject.kernel.text)
        left, right = rf"[\w\])]\s*[<>]=?\s*{name}\b", rf"\b{name}\s*[<>]=?\s*[^\d\s<>=-]"
        return bool(re.search(left, text) or re.search(right, text))

    def is_size(self, name: str) -> bool:
        """Whether an integer argument may say how much there is."""
        return number_of(self.subject.workload, name) >= LEAST_SIZE and name not in self.changing


def _axes_of_count(workload: Workload, name: str, least: int | None = None) -> list[str]:
    """Axes with as many blocks as an integer argument asks for; one block counts where the argument
    is at least so large."""
    value = int(number_of(workload, name))
    return [
        axis
        for axis in ("x", "y", "z")
        for blocks in [getattr(workload.grid, axis)]
        if blocks in blocks_for(value, getattr(workload.block, axis))
        and (blocks > 1 or (least is not None and value >= least))
    ]


def contents_of(workload: Workload, item: Item) -> Array:
    """Contents of a buffer or variable before the launch."""
    memory: DeviceMemory
    if item.state is not None:
        memory = next(g for g in workload.globals if g.name == item.state.name)
        path = Path(workload.folder) / memory.before
    else:
        memory = next(a for a in workload.allocations if a.index == item.index)
        path = before_path(workload, memory)
    if item.field is not None:
        return field_values(path, memory, item.field)
    return read_array(path, item.element)


def _near(item: Item, numbers: Sequence[float]) -> list[int | float]:
    """Values of an argument about these numbers."""
    if item.element in FLOATING:
        return [n * share for n in numbers for share in (1.0, 0.99, 1.01, -1.0)][:24]
    if item.element == "bool":
        return []
    least, most = LIMITS[item.element]
    close: list[int | float] = []
    close += [int(n) + d for n in numbers if n == int(n) for d in (0, 1, -1)]
    return [n for n in close if least <= n <= most][:24]
