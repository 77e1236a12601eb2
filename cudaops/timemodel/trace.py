"""Which blocks are sampled, what their trace says about each place that touches memory, and what
a whole launch then moves between DRAM, L2 and L1."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.base import Dim3, SourceLocation
from cudaops.program.clusters import blocks_of, cluster_grid, cluster_number
from cudaops.timemodel.gimple import Place
from cudaops.timemodel.instructions import FindSite, SiteKey
from cudaops.timemodel.work import MemorySite, Traffic

MOST_TRACE_BYTES = 64 << 20
"""A site takes some 300 bytes, an overlap 20; a launch is sampled in eight blocks."""
Locate = Callable[[Sequence[int]], Mapping[int, SourceLocation]]
_MOST_SITES = 20_000

_COUNTERS = (
    "accesses", "kept", "requests", "instructions", "sectors", "lines", "wavefronts",
    "ideal_wavefronts", "joined_wavefronts", "joined_ideal", "distinct_addresses",
    "worst_multiplicity",
)  # fmt: skip


class BadTrace(Exception):
    """A report that the tracer does not write: the traced code runs in its process."""


class AtomicLine(NamedTuple):
    """Atomics that meet in a line of global memory, as L2 takes them."""

    serial: float
    """Operations one after another: the sectors of a request, and in a sector its lanes that name
    one address."""
    hottest: float
    """Those of them on the line's most used address."""


class BlockFootprint(NamedTuple):
    """Distinct sectors a sampled block touched, by allocation index (-1: none known)."""

    block: int
    read: dict[int, int]
    written: dict[int, int]
    atomics: dict[int, AtomicLine]
    """By line of 128 bytes of global memory, the busiest ones."""
    accesses: int
    """By threads."""
    counted: bool
    """False: a neighbour, of which only the sectors are known."""


class Overlap(NamedTuple):
    """Sectors of one allocation that two sampled blocks both touch."""

    first: int
    second: int
    allocation: int
    read: int
    written: int


@dataclass(frozen=True)
class TraceRow:
    """The traced accesses of one source line, size, direction and space."""

    file: str
    line: int
    space: str
    size: int
    write: bool
    atomic: bool
    counters: dict[str, float]
    hits: tuple[float, ...]
    """Load sectors found, one for each size in `Trace.cache_bytes`."""


@dataclass(frozen=True)
class Trace:
    """A report of `cudaops/trace_report.h` with its addresses turned into source lines."""

    cache_bytes: tuple[int, ...]
    rows: tuple[TraceRow, ...]
    blocks: tuple[BlockFootprint, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def counted(self) -> tuple[BlockFootprint, ...]:
        """The blocks that the rows are made of."""
        return tuple(b for b in self.blocks if b.counted)

    @property
    def working(self) -> tuple[int, ...]:
        """Those of them that access memory."""
        return tuple(b.block for b in self.counted if b.accesses)

    @property
    def has_idle(self) -> bool:
        """Whether some of them do not."""
        return len(self.working) < len(self.counted)

    @property
    def is_uneven(self) -> bool:
        """Whether they do so much more or less that others may do yet another amount."""
        each = [b.accesses for b in self.counted]
        return min(each, default=0) < UNEVEN * max(each, default=0)


SMALL_GRID = 256
"""Blocks up to which the first one is sampled: where a grid is larger than the data, only its first
blocks work. In a larger grid the edge is too rare to count as much as the middle."""

STRATA = 5
MANY_STRATA = 40
"""Where some of the sampled blocks access no memory: a grid larger than the data, whose idle blocks
cost next to nothing to run."""
UNEVEN_STRATA, UNEVEN = 20, 0.7
"""Where one of the sampled blocks accesses memory less than this often, over the one that does most
often: five of them say little of the mean then. Chosen: four times the sampling at most."""


class SampledBlocks(NamedTuple):
    """Linear indices of the blocks of a grid that run for the model."""

    counted: tuple[int, ...]
    neighbours: tuple[int, ...]
    """Of one of the others in x and in y: only what they touch is kept, to tell what adjacent
    blocks share. Were they counted, that one place of the grid would weigh three times."""


def sampled_blocks(
    grid: Dim3, seed: int, strata: int = STRATA, cluster: Dim3 | None = None
) -> SampledBlocks:
    """One block at random out of each of so many parts of the grid; the first block of a small
    grid. Where a launch has clusters, whole ones, and about as many blocks: those of one wait for
    each other."""
    if cluster is not None and cluster.volume > 1:
        many, parts = cluster_grid(grid, cluster), max(round(strata / cluster.volume), 1)
        return _whole(grid, cluster, sampled_blocks(many, seed, parts))
    choose = random.Random(seed)
    parts = min(strata, grid.volume)
    bounds = [n * grid.volume // parts for n in range(parts + 1)]
    chosen = [choose.randrange(low, high) for low, high in itertools.pairwise(bounds)]
    middle = chosen[parts // 2]
    if grid.volume <= SMALL_GRID:
        chosen.insert(0, 0)
    return among(grid, tuple(dict.fromkeys(chosen)), middle)


def working_blocks(
    grid: Dim3, working: Sequence[int], cluster: Dim3 | None = None, most: int = STRATA
) -> SampledBlocks:
    """As many of these blocks, from all over them; whole clusters of a launch that has some."""
    if cluster is None or cluster.volume == 1:
        return among(grid, _spread(working, most))
    many = cluster_grid(grid, cluster)
    numbers = tuple(dict.fromkeys(cluster_number(block, grid, cluster) for block in working))
    kept = _spread(numbers, max(round(most / cluster.volume), 1))
    return _whole(grid, cluster, among(many, kept))


def _spread(items: Sequence[int], most: int) -> tuple[int, ...]:
    """The middle one of each of so many parts."""
    parts = min(most, len(items))
    return tuple(items[(2 * n + 1) * len(items) // (2 * parts)] for n in range(parts))


def _whole(grid: Dim3, cluster: Dim3, found: SampledBlocks) -> SampledBlocks:
    """Clusters, by their numbers among the clusters of the grid, as their blocks."""
    counted, neighbours = (
        tuple(block for number in numbers for block in blocks_of(number, grid, cluster))
        for numbers in found
    )
    return SampledBlocks(counted, neighbours)


def among(grid: Dim3, counted: tuple[int, ...], middle: int | None = None) -> SampledBlocks:
    """These blocks, and the neighbours of one of them: `middle`, else the one in the middle."""
    if middle is None:
        middle = counted[len(counted) // 2]
    beside = [
        middle + step if middle + step < grid.volume else middle - step for step in (1, grid.x)
    ]
    return SampledBlocks(
        counted, tuple(dict.fromkeys(b for b in beside if b >= 0 and b not in counted))
    )


def read_trace(report: bytes, locate: Locate) -> Trace:
    """Read a report.

    Args:
        report: What `cudaops/trace_report.h` wrote: JSON.
        locate: The author's place of each return address in the instrumented executable; an
            address without one is absent.

    Raises BadTrace.
    """
    try:
        return _trace(_checked(json.loads(report)), locate)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise BadTrace("is not what the tracer writes") from None


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    """Only numbers that can be computed with. Raises ValueError."""
    left: list[Any] = [data]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            left += one.values() if isinstance(one, dict) else one
        elif isinstance(one, int | float) and not -(2**63) <= one < 2**64:
            raise ValueError("a number out of bounds")
    if len(data["sites"]) > _MOST_SITES:
        raise ValueError("too many sites")
    return data


def _trace(data: dict[str, Any], locate: Locate) -> Trace:
    lines = _source_lines(sorted({int(s["pc"]) for s in data["sites"]}), locate)
    grouped: dict[tuple[str, int, str, int, bool, bool], list[dict[str, Any]]] = {}
    for site in data["sites"]:
        file, line = lines[int(site["pc"])]
        kind = (str(site["space"]), int(site["size"]), bool(site["write"]), bool(site["atomic"]))
        grouped.setdefault((file, line, *kind), []).append(site)
    rows = tuple(
        TraceRow(*key, {c: float(sum(s[c] for s in members)) for c in _COUNTERS},
            tuple(float(sum(h)) for h in zip(*(s["hits"] for s in members), strict=True)))
        for key, members in grouped.items()
    )  # fmt: skip
    blocks = tuple(
        BlockFootprint(
            int(b["block"]),
            {int(k): int(v[0]) for k, v in b["regions"].items()},
            {int(k): int(v[1]) for k, v in b["regions"].items()},
            {int(line): AtomicLine(int(n), int(top)) for line, n, top in b["atomics"]},
            int(b["accesses"]),
            bool(b["counted"]),
        )
        for b in data["blocks"]
    )
    sizes = tuple(int(size) for size in data["cache_bytes"])
    if not sizes or sizes[0] <= 0 or list(sizes) != sorted(set(sizes)):
        raise ValueError("caches of no ascending sizes")
    if any(len(r.hits) != len(sizes) or min((*r.counters.values(), *r.hits)) < 0 for r in rows):
        raise ValueError("counters that do not count")
    overlaps = tuple(Overlap(*(int(n) for n in o)) for o in data["overlaps"])
    return Trace(sizes, rows, blocks, overlaps)


def _source_lines(addresses: Sequence[int], locate: Locate) -> dict[int, tuple[str, int]]:
    """The author's line of each return address; ("", 0) where there is none."""
    places = locate(addresses)
    return {
        a: (PurePosixPath(place.file).name, place.line) if (place := places.get(a)) else ("", 0)
        for a in addresses
    }


def busiest_line(trace: Trace, grid_blocks: int) -> AtomicLine:
    """What the line of global memory with most atomics takes in a launch, over the launch's blocks.

    A line that several of the sampled blocks use is taken to be every block's, one that a single
    block uses is its own.
    """
    counted = trace.counted
    lines: dict[int, list[AtomicLine]] = {}
    for block in counted:
        for line, met in block.atomics.items():
            lines.setdefault(line, []).append(met)
    busiest = AtomicLine(0.0, 0.0)
    for found in lines.values():
        over = len(counted) if len(found) > 1 else grid_blocks
        taken = AtomicLine(
            sum(m.serial for m in found) / over, sum(m.hottest for m in found) / over
        )
        busiest = max(busiest, taken)
    rows = [r.counters for r in trace.rows if r.atomic and r.space == "global"]
    kept = sum(c["kept"] for c in rows)
    seen = sum(c["accesses"] for c in rows) / kept if kept else 1.0
    return AtomicLine(busiest.serial * seen, busiest.hottest * seen)


def sites_of(
    trace: Trace, l1_bytes: float, members: frozenset[Place] = frozenset()
) -> tuple[MemorySite, ...]:
    """The rows as the model's sites, a block's average each.

    Args:
        trace: What was traced.
        l1_bytes: L1 that a block has to itself: the cache over the blocks that share an SM.
        members: Lines that access members of CUDA's vector types in memory: `vector_members`. Their
            alignment is known, so nvcc joins neighbours there as it does in shared memory.
    """
    blocks = max(len(trace.counted), 1)
    rows = [(row, _is_joined(row, members)) for row in trace.rows]
    loads = [row for row, is_joined in rows if is_joined and _loads(row)]
    missed = _missed_together(loads, trace, l1_bytes)
    return tuple(
        _site(row, trace, blocks, l1_bytes, missed if is_joined else None)
        for row, is_joined in rows
    )


def _is_joined(row: TraceRow, members: frozenset[Place]) -> bool:
    known = row.space == "global" and not row.atomic and (row.file, row.line) in members
    return known and row.counters["instructions"] < row.counters["requests"]


def _loads(row: TraceRow) -> bool:
    return not row.write and not row.atomic and row.counters["sectors"] > 0


def _missed_together(rows: Sequence[TraceRow], trace: Trace, l1_bytes: float) -> float:
    """Share of sectors that loads do not find in L1 once they are joined: as written, the first
    member misses for all of its word."""
    missed = found = 0.0
    for row in rows:
        sectors = row.counters["sectors"]
        missed += sectors * (1.0 - _hit_rate(row, trace.cache_bytes, l1_bytes))
        found += sectors * row.counters["instructions"] / row.counters["requests"]
    return min(missed / found, 1.0) if found else 0.0


def _site(
    row: TraceRow, trace: Trace, blocks: int, l1_bytes: float, missed: float | None
) -> MemorySite:
    """`missed`: of accesses that are joined in global memory, `_missed_together`."""
    c = row.counters
    if row.space == "constant":
        return _constant(row, blocks)
    shared = row.space == "shared"
    scale = c["accesses"] / max(c["kept"], 1.0) / blocks
    requests = c["requests"]
    instructions = c["instructions"] if shared or missed is not None else requests
    per_request = 1.0 / max(requests, 1.0)
    per_instruction = 1.0 / max(instructions, 1e-9)
    hit = _hit_rate(row, trace.cache_bytes, l1_bytes) if missed is None and _loads(row) else 0.0
    return MemorySite(
        space="shared" if shared else "global",
        write=row.write,
        atomic=row.atomic,
        file=row.file,
        line=row.line,
        bytes_per_thread=row.size,
        instructions_per_block=instructions * scale,
        requests_per_block=requests * scale,
        accesses_per_block=c["accesses"] / blocks,
        wavefronts=(c["joined_wavefronts"] * per_instruction)
        if shared
        else c["lines"] * per_request,
        ideal_wavefronts=(c["joined_ideal"] * per_instruction)
        if shared
        else c["lines"] * per_request,
        sectors=0.0 if shared else c["sectors"] * per_request,
        l1_hit=hit if missed is None or row.write else 1.0 - missed,
        useful_bytes=0.0 if shared else c["distinct_addresses"] * per_instruction * row.size,
        same_address=max(c["worst_multiplicity"] * per_request, 1.0),
    )


def _constant(row: TraceRow, blocks: int) -> MemorySite:
    """Where all lanes ask for one word it is an operand of what reads it, and no load."""
    c = row.counters
    scale = c["accesses"] / max(c["kept"], 1.0) / blocks
    words = c["wavefronts"] / max(c["requests"], 1.0)
    loads = c["instructions"] * scale if words > ONE_WORD else 0.0
    return MemorySite(
        "constant", write=False, atomic=False, file=row.file, line=row.line,
        bytes_per_thread=row.size, instructions_per_block=loads,
        requests_per_block=c["requests"] * scale, accesses_per_block=c["accesses"] / blocks,
        wavefronts=words, ideal_wavefronts=words,
    )  # fmt: skip


ONE_WORD = 1.05
"""Words of constant memory a request, up to which lanes are taken to ask for the same."""


def _hit_rate(row: TraceRow, sizes: Sequence[int], l1_bytes: float) -> float:
    """Share of sectors found, interpolated between the traced sizes on a logarithmic scale."""
    rates = [h / row.counters["sectors"] for h in row.hits]
    if l1_bytes <= sizes[0]:
        return rates[0]
    for i in range(1, len(sizes)):
        if l1_bytes <= sizes[i]:
            part = math.log(l1_bytes / sizes[i - 1]) / math.log(sizes[i] / sizes[i - 1])
            return rates[i - 1] + part * (rates[i] - rates[i - 1])
    return rates[-1]


def finder(sites: Sequence[MemorySite]) -> FindSite:
    """Joins a statement of the IL to the traced site of the same place.

    The size decides between several on a line; where the IL does not tell it, the busiest wins.
    Atomics stand in our header in the IL and in the author's line in the trace: they are pooled.
    """
    by_line: dict[tuple[str, int, bool, bool], list[int]] = {}
    for i, s in enumerate(sites):
        by_line.setdefault((s.file, s.line, s.write, s.atomic), []).append(i)
    atomics = [i for i, s in enumerate(sites) if s.atomic]

    def find(key: SiteKey) -> int | None:
        near = by_line.get((key.file, key.line, key.write, key.atomic), [])
        if key.atomic and not near:
            near = atomics
        exact = [i for i in near if sites[i].bytes_per_thread == key.size]
        pool = exact or (near if key.size == 0 or key.atomic else [])
        if key.space == "shared":
            pool = [i for i in pool if sites[i].space == "shared"]
        elif key.space == "variable":
            by_space = ([i for i in pool if sites[i].space == space] for space in VARIABLES)
            pool = next(filter(None, by_space), [])
        elif len({sites[i].space for i in pool}) > 1:
            pool = [i for i in pool if sites[i].space == "global"]
        found = max(pool, key=lambda i: sites[i].accesses_per_block, default=None)
        is_operand = found is not None and sites[found].space == "constant"
        return None if is_operand and not sites[found or 0].instructions_per_block else found

    return find


VARIABLES = ("constant", "shared", "global")
"""Where a variable that is no array of the function may be: of two on one line the first."""


SECTOR = 32
L2_SHARE = 0.8
"""Part of L2 that data keeps in practice: the rest goes to conflicts and other traffic. Assumed."""


class AllocationUse(NamedTuple):
    """One allocation's use by blocks, in sectors."""

    a_block: float
    growth_x: float
    """New sectors the next block in x adds, as a share of its own, 0-1."""
    growth_y: float
    most: float
    """Sectors the allocation has."""

    def union(self, x: int, y: int, z: float = 1) -> float:
        """Distinct sectors of x by y by z adjacent blocks; planes in z are taken to share
        nothing."""
        grown = self.a_block * (1 + (x - 1) * self.growth_x) * (1 + (y - 1) * self.growth_y) * z
        return min(grown, self.most)


def traffic(
    trace: Trace, sites: Sequence[MemorySite], grid: Dim3, sizes: Mapping[int, int], device: Device,
    blocks_per_sm: int,
) -> Traffic:  # fmt: skip
    """What the launch reads from and writes to DRAM.

    Everything is read once. It is read again by every wave of blocks where what one wave touches
    does not fit in L2; never more than misses L1.

    `sizes` has the bytes of each allocation by index.
    """
    reads = _spreads(trace, grid, sizes, written=False)
    writes = _spreads(trace, grid, sizes, written=True)
    whole_read = [s.union(grid.x, grid.y, grid.z) for s in reads]
    whole_written = [s.union(grid.x, grid.y, grid.z) for s in writes]
    footprint = SECTOR * _distinct(trace, whole_read, whole_written)
    room = L2_SHARE * device.l2_bytes
    wave = max(min(blocks_per_sm * device.sm_count, grid.volume), 1)
    x, y = min(wave, grid.x), min(math.ceil(wave / grid.x), grid.y)
    z = max(min(wave / (x * y), grid.z), 1)
    in_wave = [s.union(x, y, z) for s in (*reads, *writes)]
    read = SECTOR * sum(whole_read)
    again = SECTOR * sum(in_wave[: len(reads)]) * grid.volume / wave
    missed = grid.volume * sum(s.missed_bytes_per_block for s in sites)
    first = SECTOR * grid.volume * sum(s.a_block for s in reads)
    waiting = first / max(first, missed, 1.0) * min(read / max(again, 1.0), 1.0)
    if footprint > room and SECTOR * sum(in_wave) > room:
        read = max(read, min(again, missed))
    resident = footprint <= room
    return Traffic(
        footprint_bytes=footprint,
        dram_read_bytes=read,
        dram_write_bytes=0.0 if resident else SECTOR * sum(whole_written),
        resident=resident,
        l2_room_bytes=room,
        waiting_share=waiting,
    )


def _spreads(
    trace: Trace, grid: Dim3, sizes: Mapping[int, int], *, written: bool
) -> list[AllocationUse]:
    """One entry an allocation touched, in the order of the indices."""
    touched = {b.block: (b.written if written else b.read) for b in trace.blocks}
    indices = sorted({i for b in touched.values() for i, n in b.items() if n})
    shared = {
        (o.first, o.second, o.allocation): (o.written if written else o.read)
        for o in trace.overlaps
    }
    result = []
    for index in indices:
        counts = [b.get(index, 0) for b in touched.values()]
        growth_x = _growth(touched, shared, index, 1)
        growth_y = _growth(touched, shared, index, grid.x)
        most = sizes.get(index, 0) / SECTOR + 1 if index in sizes else math.inf
        result.append(AllocationUse(sum(counts) / len(counts), growth_x, growth_y, most))
    return result


def _growth(
    touched: Mapping[int, Mapping[int, int]], shared: Mapping[tuple[int, int, int], int],
    index: int, distance: int,
) -> float:  # fmt: skip
    """Mean share of a block's sectors that the block `distance` before it does not touch."""
    shares = []
    for block in touched:
        other = block + distance
        if other not in touched or not touched[other].get(index):
            continue
        common = shared.get((block, other, index), shared.get((other, block, index), 0))
        shares.append(1 - common / touched[other][index])
    return sum(shares) / len(shares) if shares else 1.0


def _distinct(trace: Trace, read: Sequence[float], written: Sequence[float]) -> float:
    """Sectors read or written; an allocation that is both counts once, with the larger of the
    two."""
    indices = [
        sorted({i for counts in parts for i, n in counts.items() if n})
        for parts in ([b.read for b in trace.blocks], [b.written for b in trace.blocks])
    ]
    largest: dict[int, float] = {}
    for order, amounts in zip(indices, (read, written), strict=True):
        for index, amount in zip(order, amounts, strict=True):
            largest[index] = max(largest.get(index, 0.0), amount)
    return sum(largest.values())
