"""Smaller launches of the author's kernel: other sizes, few blocks, buffers as large as needed.

A size is an integer argument that the program never changes. Which grid belongs to other sizes is
read off the captured launch (`grid.x` is `ceil(n / 256)`), and compared with a larger grid: where
further blocks change the result, or where the kernel leaves its buffers, the sizes are none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    FLOATING,
    Allocation,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.executors.arrays import read_array, write_array
from cudaops.executors.base import Executor, InputSet, Trial, Tried
from cudaops.executors.compare import same_contents
from cudaops.executors.untrusted_files import remove
from cudaops.program.analysis.facts import KernelFacts
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import ascends, before_path

LEAST_SIZE = 48
"""Integer arguments below this are no sizes that are made smaller: radii, channels, modes."""
PRIMES = ((1009, 1013, 1019, 1021), (61, 53, 67, 59), (37, 29, 31, 41))
"""Sizes to try, the largest first: what one, two and three of them make some thousand elements of.
Each occurs once, so that what is right for equal sizes alone shows."""
ROUND = (1024, 64, 32)
"""The same for rewrites that want sizes which a power of two divides."""
LONG = (70_001, 10_007, 5_003, 2_503)
"""Sizes to try for one size beside small others, the largest first: more than 16 bits count, and
more than the threads of a block hold in a few registers each. A rewrite that keeps a row at hand is
right up to some size that no captured launch tells."""
BESIDE = (7, 5, 3)
"""The other sizes then."""
STRETCHES = (1024, 128, 16)
"""How many times as far apart offsets in memory are tried to be."""
STRIDE = 2
"""A size that is less than so many times as large may be a row's stride, and grows along."""
MOST_LONG = 3
LONG_ACCESSES = 600_000
"""Accesses of global memory that such a launch may make."""
SMALL = 1_500_000
"""Accesses of global memory that a smaller launch may make: sizes that make more are too large."""
MOST_THREADS = 1 << 20
"""Of a launch whose grid stays as it was, or grows as far as any of its sizes might ask."""
MOST_NATURAL_THREADS = 1 << 25
"""Of one with a thread for each of a size: a block for each of 70,001 rows. A thread that does
nothing takes 0.2 us under the checker (two cores of an EPYC, 2026-12-01)."""
MOST_PREFIX_BYTES = 1 << 24
"""Of a buffer that is tried: what a smaller launch reaches lies at the beginning, or not at all."""
MOST_WHOLE_BYTES = 1 << 25
"""Of all buffers of a launch that is tried as it was captured: each draw writes them anew."""
MOST_KEPT_BYTES = 1 << 20
"""Of a buffer in which the contents of memory say what is read: what of it a rewrite may read is
not known, so more stays than the author's kernel reached."""
EXPENSIVE = 20_000_000
"""Accesses of a captured launch that is tried as well; a larger one is where nothing smaller is
known, and on few inputs."""
MOST_AT_ALL = 200_000_000
LIMIT_S = 30.0
"""Of one such launch, in seconds of the processor."""


class Shape(NamedTuple):
    """A launch that the author's kernel accepts."""

    workload: Workload
    """Its contents before are the beginning of the captured ones."""
    accesses: int
    """Of global memory by the author's kernel on these."""
    what: str
    """`rows = 61, cols = 53`, or `as captured`."""
    is_captured: bool = False
    is_long: bool = False
    """One size is larger than captured, and the buffers with it."""


def smallest(shapes: Iterable[Shape]) -> Shape:
    """Of those without a large size, where there are any."""
    return min(shapes, key=lambda s: (s.is_long, s.accesses))


class ShapeFinder:
    """Runs the author's kernel, checked, on other sizes."""

    def __init__(
        self,
        executor: Executor,
        compiled: Compiled,
        facts: KernelFacts | None,
        folder: Path,
        varied: frozenset[str],
    ) -> None:
        """`varied`: integer arguments that the program changes from launch to launch: none of them
        is a size."""
        self.executor = executor
        self.compiled = compiled
        self.facts = facts
        self.folder = folder
        self.varied = varied
        self._made = itertools.count()

    def shapes(self, workload: Workload) -> tuple[Shape, ...]:
        """Small launches with sizes that nothing divides and with round ones, the captured one
        where it is cheap, and after them those with one large size; at least one of the former,
        empty where the kernel cannot be run at all."""
        found: list[Shape] = []
        for style in ("odd", "round"):
            made = next(
                (
                    s
                    for w, what in self._smaller(workload, style)
                    if (s := self._tried(workload, w, what, SMALL))
                ),
                None,
            )
            if made is not None and style == "odd":
                made = self._with_fewer_blocks(workload, made)
            if made is not None and all(made.workload.shape != s.workload.shape for s in found):
                found.append(made)
        whole = self._tried(workload, workload, "as captured", EXPENSIVE, whole=True)
        if whole is None and not found:
            whole = self._tried(workload, workload, "as captured", MOST_AT_ALL, whole=True)
        if whole is not None and not found:
            fewer = self._with_fewer_blocks(workload, whole)
            found += [fewer] if fewer is not whole else []
        if whole is not None:
            launch = whole.workload
            found = [
                s for s in found
                if (s.workload.shape, s.workload.arguments) != (launch.shape, launch.arguments)
            ] + [whole]  # fmt: skip
        return (*found, *self._long(workload)) if found else ()

    def _long(self, workload: Workload) -> list[Shape]:
        """Launches with one size that is larger than captured, each the largest that is borne."""
        sizes = self._sizes(workload)
        if any(a.holds_pointers for a in workload.allocations):
            return []
        largest_first = sorted(sizes, key=lambda name: -sizes[name])[:MOST_LONG]
        leaving = self._leaving(workload, axes_of(workload), SMALL) if sizes else []
        found = [self._longest(workload, sizes, name, leaving) for name in largest_first]
        found.append(self._stretched(workload, sizes))
        return [shape for shape in found if shape is not None]

    def _stretched(self, workload: Workload, sizes: Mapping[str, int]) -> Shape | None:
        """A launch with little of each size and offsets in memory many times as far apart: the
        length of a row of a sparse matrix is no argument."""
        offsets = {
            a.index: a for a in workload.allocations if a.role == "in" and _are_offsets(a, workload)
        }
        if not offsets:
            return None
        chosen = {n: min(v, few) for (n, v), few in zip(sizes.items(), itertools.cycle(BESIDE))}
        launch = with_scalars(workload, chosen)
        names = ", ".join(f"{workload.name_of(a)} x {{0}}" for a in offsets.values())
        told = ", ".join([*(f"{n} = {v}" for n, v in chosen.items()), names])
        for times in STRETCHES:
            longer = self._enlarged(launch, times)
            for a in (a for a in longer.allocations if a.index in offsets):
                path = before_path(longer, a)
                values = read_array(path, a.element)
                if float(values.max()) * times <= np.iinfo(values.dtype).max:
                    write_array(path, values * values.dtype.type(times), a.element)
            shape = self._tried(
                workload, longer, told.format(times), LONG_ACCESSES, more=axes_of(workload)
            )
            if shape is not None:
                return shape
        return None

    def _longest(
        self, workload: Workload, sizes: Mapping[str, int], name: str, leaving: Sequence[str]
    ) -> Shape | None:
        for long in (n for n in LONG if n > sizes[name]):
            longer = self._enlarged(workload, math.ceil(long / sizes[name]) + 1)
            for w, what, axes in _longer(longer, sizes, name, long, leaving):
                shape = self._tried(workload, w, what, LONG_ACCESSES, more=axes)
                if shape is not None:
                    has_a_thread_each = sizes[name] == workload.block.x
                    return None if has_a_thread_each and self._asks_more_threads(w) else shape
        return None

    def _asks_more_threads(self, launch: Workload) -> bool:
        """Whether twice as many threads a block leave something else: the block says how much there
        is, and an author who passes more launches more."""
        threads = min(2 * launch.block.x, 1024 // (launch.block.y * launch.block.z))
        wider = launch.model_copy(update={"block": launch.block.model_copy(update={"x": threads})})
        one, other = (r.outcome for r in self._run([launch, wider], "threads", 2 * LONG_ACCESSES))
        return (
            isinstance(one, Ran)
            and isinstance(other, Ran)
            and any(not same_contents(path, other.outputs[i]) for i, path in one.outputs.items())
        )

    def _sizes(self, workload: Workload) -> dict[str, int]:
        integers = _integers_of(workload, LEAST_SIZE)
        return {name: value for name, value in integers.items() if name not in self.varied}

    def _with_fewer_blocks(self, captured: Workload, shape: Shape) -> Shape:
        """The same with a part of the captured grid, along the axes where a block more leaves the
        buffers: there it is the grid that says how much there is, and no argument."""
        w, g = shape.workload, shape.workload.grid
        if g != captured.grid:
            return shape
        axes = [axis for axis in axes_of(w) if _fewer(getattr(g, axis)) < getattr(g, axis)]
        free = self._leaving(w, axes, 2 * shape.accesses)
        if not free:
            return shape
        fewer = g.model_copy(update={axis: _fewer(getattr(g, axis)) for axis in free})
        if (values := self._values_of_fewer(w, fewer)) is None:
            return shape
        smaller = with_scalars(w, values).model_copy(update={"grid": fewer})
        ran = self._run([smaller], "fewer blocks", SMALL)
        if not isinstance(ran[0].outcome, Ran) or ran[0].accesses is None:
            return shape
        told = [f"grid {fewer.x} x {fewer.y} x {fewer.z}"]
        told += [f"{name} = {value}" for name, value in values.items()]
        what = ", ".join(told if shape.is_captured else [shape.what, *told])
        return Shape(self._cut(smaller, ran[0].reached_bytes), ran[0].accesses, what)

    def _leaving(self, w: Workload, axes: Sequence[str], most_accesses: int) -> list[str]:
        """Axes along which a block more leaves the buffers: the grid says there how much there
        is."""
        ran = self._run([with_a_block_more(w, axis) for axis in axes], "more blocks", most_accesses)
        return [
            axis
            for axis, one in zip(axes, ran, strict=True)
            if isinstance(one.outcome, Misbehaved) and one.outcome.what == "out_of_bounds"
        ]

    def _values_of_fewer(self, w: Workload, fewer: Dim3) -> dict[str, int] | None:
        """Arguments that say the same as the grid, as they belong to a smaller one: an author who
        launches fewer blocks passes less. None where only a product of arguments says it."""
        numbers = _integers_of(w, 2)
        values: dict[str, int] = {}
        for axis in ("x", "y", "z"):
            blocks, threads = getattr(w.grid, axis), getattr(w.block, axis)
            left = getattr(fewer, axis)
            if left == blocks:
                continue
            same = [name for name, v in numbers.items() if blocks in blocks_for(v, threads)]
            for name in same:
                v, gone = numbers[name], blocks - left
                less = left if v == blocks else v - threads * gone
                values[name] = min(less, values.get(name, less))
            if not same and any(
                blocks in blocks_for(_product(names, numbers), threads)
                for names in _products(numbers)
                if len(names) > 1
            ):
                return None
        return values

    def _smaller(self, workload: Workload, style: str) -> Iterator[tuple[Workload, str]]:
        """Launches to try, the most different first."""
        sizes = self._sizes(workload)
        seen = {tuple(sizes.values())}
        for chosen in _assignments(sizes, style):
            values = {**sizes, **chosen}
            if tuple(values.values()) in seen:
                continue
            seen.add(tuple(values.values()))
            what = ", ".join(f"{name} = {value}" for name, value in chosen.items())
            smaller = with_scalars(workload, chosen)
            for grid in _grids(workload, sizes, values):
                yield smaller.model_copy(update={"grid": grid}), what
            if workload.grid.volume * workload.block.volume <= MOST_THREADS:
                yield smaller, what

    def _tried(
        self,
        captured: Workload,
        workload: Workload,
        what: str,
        most_accesses: int,
        *,
        whole: bool = False,
        more: Sequence[str] | None = None,
    ) -> Shape | None:
        """The launch with buffers as large as it needs; None where the kernel does not bear it, or
        where more blocks would do more. A grid that stays as captured covers fewer elements too,
        and more of them only where more blocks along the axes `more` would do nothing."""
        if whole and workload.size_bytes > MOST_WHOLE_BYTES:
            return None
        prefix = self._cut(workload, {} if whole else None)
        ran = self._run([prefix], "try", most_accesses)[0]
        if not isinstance(ran.outcome, Ran) or ran.outcome.warnings or ran.accesses is None:
            return None
        reach = {} if whole else ran.reached_bytes
        axes = axes_of(captured) if more is None else more
        changed = more is not None or workload.grid != captured.grid
        if changed and not self._is_complete(prefix, axes, most_accesses, reaches=more is not None):
            return None
        kept = self._cut(prefix, reach or {})
        return Shape(kept, ran.accesses, what, whole, more is not None)

    def _is_complete(
        self, launch: Workload, axes: Sequence[str], most_accesses: int, *, reaches: bool
    ) -> bool:
        """Whether more blocks would change nothing: an argument says how much there is. The buffers
        are larger than the launch needs. `reaches`: nor reach farther, which shows where results
        are as large as they get."""
        wider = [with_a_block_more(launch, axis) for axis in axes]
        first, *others = self._run([launch, *wider], "complete", 2 * most_accesses)
        return isinstance(first.outcome, Ran) and all(
            isinstance(one.outcome, Ran)
            and (not reaches or one.reached_bytes == first.reached_bytes)
            and all(
                same_contents(path, one.outcome.outputs[i])
                for i, path in first.outcome.outputs.items()
            )
            for one in others
        )

    def _run(
        self, launches: Sequence[Workload], name: str, most_accesses: int
    ) -> tuple[Tried, ...]:
        trials = [Trial(w, baseline_plan(w), standing(w)) for w in launches]
        folder = self.folder / name
        remove(folder)
        return self.executor.run_trials(
            self.compiled, trials, folder,
            check="memory", most_accesses=most_accesses, limit_s=LIMIT_S, timeout_s=2 * LIMIT_S,
        )  # fmt: skip

    def _enlarged(self, workload: Workload, times: int) -> Workload:
        """With so many times as large buffers, which hold again and again what they held."""
        sizes = {
            a.index: a.size_bytes * max(1, min(times, MOST_PREFIX_BYTES // max(1, a.size_bytes)))
            for a in workload.allocations
        }
        return self._with_sizes(workload, sizes)

    def _cut(self, workload: Workload, reach: Mapping[int, int] | None) -> Workload:
        """With shorter buffers: as far as was reached, or a prefix where that is not known (None);
        empty: all of them."""
        sizes = {a.index: self._size(a, workload, reach) for a in workload.allocations}
        if all(sizes[a.index] == a.size_bytes for a in workload.allocations):
            return workload
        return self._with_sizes(workload, sizes)

    def _with_sizes(self, workload: Workload, sizes: Mapping[int, int]) -> Workload:
        """With buffers of other sizes in bytes, by allocation: the beginning of what they held, or
        that several times."""
        folder = self.folder / f"shape-{next(self._made)}"
        folder.mkdir(parents=True, exist_ok=True)
        cut = []
        for a in workload.allocations:
            path, size = folder / f"a{a.index}.bin", sizes[a.index]
            with before_path(workload, a).open("rb") as source:
                held = source.read(min(size, a.size_bytes))
            path.write_bytes(held * (size // max(1, len(held))) + held[: size % max(1, len(held))])
            update = {"size_bytes": size, "before": path.name, "after": path.name}
            cut.append(a.model_copy(update=update))
        variables = tuple(
            g.model_copy(update={"before": str(Path(workload.folder) / g.before)})
            for g in workload.globals
        )
        update = {"allocations": tuple(cut), "globals": variables, "folder": str(folder.absolute())}
        return workload.model_copy(update=update)

    def _size(self, a: Allocation, workload: Workload, reach: Mapping[int, int] | None) -> int:
        if reach is None:
            return min(a.size_bytes, MOST_PREFIX_BYTES)
        if not reach:
            return a.size_bytes
        least = max(
            (p.offset_bytes for p in workload.arguments
             if isinstance(p, PointerArgument) and p.allocation == a.index), default=0,
        )  # fmt: skip
        needed = max(reach.get(a.index, 0), least + ELEMENT_BYTES[a.element], 1)
        whole = a.structure_bytes or max(
            (p.structure_bytes or 1 for p in workload.arguments
             if isinstance(p, PointerArgument) and p.allocation == a.index), default=1,
        )  # fmt: skip
        needed = -(-needed // whole) * whole
        if not self._says_what_is_read(a, workload):
            needed = max(needed, min(a.size_bytes, MOST_KEPT_BYTES))
        return min(needed, a.size_bytes)

    def _says_what_is_read(self, a: Allocation, workload: Workload) -> bool:
        """Whether the text alone, and no contents of memory, says which of it is touched."""
        if self.facts is None or self.facts.calls or self.facts.unmodelled:
            return False
        names = {p.name for p in workload.pointers() if p.allocation == a.index}
        touching = [x for name in names for x in self.facts.touching(name)]
        return bool(touching) and all(
            x.offset_bytes is not None
            and "memory" not in x.depends
            and all("memory" not in g.depends for g in x.guards)
            and all("memory" not in loop.depends and not loop.ends_early for loop in x.loops)
            for x in touching
        )


def _are_offsets(a: Allocation, workload: Workload) -> bool:
    """Whether they are integers that rise from zero, as where each row of several begins."""
    if a.element not in ("i32", "u32", "i64", "u64") or a.size_bytes > MOST_PREFIX_BYTES:
        return False
    values = read_array(before_path(workload, a), a.element)
    return values.size > 2 and values[0] == 0 and values[-1] >= values.size and ascends(values)


def _integers_of(workload: Workload, least: int) -> dict[str, int]:
    """Integer arguments from so much on, by name."""
    return {
        a.name: int(a.value)
        for a in workload.arguments
        if isinstance(a, ScalarArgument)
        and a.element not in FLOATING
        and a.element != "bool"
        and a.value >= least
    }


def with_scalars(workload: Workload, values: Mapping[str, int | float]) -> Workload:
    """The launch with other numbers in the place of these arguments."""
    arguments = tuple(
        a.model_copy(update={"value": values[a.name]})
        if isinstance(a, ScalarArgument) and a.name in values else a
        for a in workload.arguments
    )  # fmt: skip
    return workload.model_copy(update={"arguments": arguments})


def standing(workload: Workload, poison: int = 0x3C) -> InputSet:
    """What stood in memory before, with what is only written filled anew."""
    return InputSet(
        contents={a.index: str(before_path(workload, a)) for a in workload.allocations},
        poison={a.index: poison for a in workload.allocations if a.role == "out"},
        scratch_poison=poison,
    )


def _assignments(sizes: Mapping[str, int], style: str) -> Iterator[dict[str, int]]:
    """Other values for all sizes, for those that are equal by one, in one proportion, and one size
    at a time; first those that leave most."""
    if not sizes:
        return
    first = min(len(PRIMES), len(set(sizes.values()))) - 1
    if style == "round":
        for most in ROUND[first:]:
            yield {n: min(v, most) for n, v in sizes.items()}
        for most in ROUND[first:]:
            yield _proportional(sizes, most, 32)
        return
    for primes in PRIMES[first:]:
        yield {n: min(v, p) for (n, v), p in zip(sizes.items(), itertools.cycle(primes))}
        equal = dict(zip(dict.fromkeys(sizes.values()), itertools.cycle(primes)))
        yield {n: min(v, equal[v]) for n, v in sizes.items()}
        yield _proportional(sizes, primes[0], 1)
    if len(sizes) > 1:
        for primes in PRIMES:
            for name, value in sizes.items():
                yield {name: min(value, primes[0])}


def _longer(
    workload: Workload, sizes: Mapping[str, int], name: str, long: int, leaving: Sequence[str]
) -> Iterator[tuple[Workload, str, Sequence[str]]]:
    """Launches with so much of one size, and the axes along which more blocks must do nothing.

    First beside small others, with those that may be its stride and without, on the captured grid
    (threads that loop have most to do there) and on the one that belongs to the sizes; then beside
    others as captured, which need as many blocks along the axes that have one for each of them or
    alone say how much there is (`leaving`).
    """
    others = [n for n in sizes if n != name]
    alone = {name: long, **{n: min(sizes[n], b) for n, b in zip(others, itertools.cycle(BESIDE))}}
    own = sizes[name]
    strides = {n: long + sizes[n] - own for n in others if own <= sizes[n] < STRIDE * own}
    for chosen in ({**alone, **strides}, alone) if strides else (alone,):
        told = ", ".join(f"{n} = {chosen[n]}" for n in sizes)
        launch = with_scalars(workload, chosen)
        yield launch, told, axes_of(workload)
        for grid in _grids(workload, sizes, chosen, grows=True):
            yield launch.model_copy(update={"grid": grid}), told, axes_of(workload)
    numbers = {n: v for n, v in _integers_of(workload, 2).items() if n != name}
    counts = {_product(names, numbers) for names in _products(numbers)}
    grid, block = workload.grid, workload.block
    alone_told = [a for a in leaving if getattr(grid, a) not in blocks_for(own, getattr(block, a))]
    told_by_grid = {a for a in ("x", "y", "z") if a in alone_told or getattr(grid, a) in counts}
    axes = [axis for axis in ("x", "y", "z") if axis not in told_by_grid]
    if len(axes) < 3:
        yield with_scalars(workload, {name: long}), f"{name} = {long}", axes


def _proportional(sizes: Mapping[str, int], most: int, unit: int) -> dict[str, int]:
    """The largest becomes `most`; each a multiple of `unit`, but for what is smaller."""
    ratio = min(1.0, most / max(sizes.values()))
    return {n: max(min(v, unit), int(v * ratio) // unit * unit) for n, v in sizes.items()}


def _grids(
    workload: Workload,
    sizes: Mapping[str, int],
    values: Mapping[str, int],
    *,
    grows: bool = False,
) -> Iterator[Dim3]:
    """The grid that belongs to other sizes: where several of them explain an extent, the largest
    of what they give, but no more than there was. `grows`: as much as they give, where that is not
    too many threads, and what a thread for each of one size gives."""
    for natural in (False, True) if grows else (False,):
        extents = {}
        for axis in ("x", "y", "z"):
            extent, threads = getattr(workload.grid, axis), getattr(workload.block, axis)
            if extent == 1 and (not grows or (axis != "x" and threads == 1)):
                extents[axis] = 1
                continue
            pers = [threads] if natural else takes_of(threads, workload.block.volume)
            possible = [
                math.ceil(_product(names, values) / per)
                for names in _products(sizes)
                for per in pers
                if math.ceil(_product(names, sizes) / per) == extent
            ]
            if not possible and extent > 1:
                return
            most = max(possible, default=1)
            extents[axis] = max(1, most if grows else min(extent, most))
        grid = Dim3(**extents)
        threads = grid.volume * workload.block.volume
        if not grows or threads <= (MOST_NATURAL_THREADS if natural else MOST_THREADS):
            yield grid


def _products(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    for count in (1, 2, 3):
        yield from itertools.combinations(sizes, count)


def _product(names: Sequence[str], values: Mapping[str, int]) -> int:
    return math.prod(values[n] for n in names)


def takes_of(threads: int, volume: int) -> list[int]:
    """Elements that a block along one axis may take."""
    powers = [2**k for k in range(6)]
    found = {threads * p for p in powers} | {volume * p for p in powers} | set(powers)
    return sorted(found | {max(1, threads // 32)})


def blocks_for(value: int, threads: int) -> tuple[int, int]:
    """How many blocks of so many threads one launches for a count: one each, or as many as cover
    it with a thread each."""
    return value, math.ceil(value / threads)


def axes_of(workload: Workload) -> list[str]:
    """Those along which there are blocks, x in any case."""
    return [a for a in ("x", "y", "z") if a == "x" or getattr(workload.grid, a) > 1]


def with_a_block_more(workload: Workload, axis: str) -> Workload:
    """The launch with a block more along an axis."""
    grid = workload.grid.model_copy(update={axis: getattr(workload.grid, axis) + 1})
    return workload.model_copy(update={"grid": grid})


def _fewer(extent: int) -> int:
    """A part of an extent that keeps what a power of two is to its author."""
    if extent < 4:
        return extent
    return min(extent // 2, 64) if extent & (extent - 1) == 0 else max(3, min(extent - 1, 61) | 1)
