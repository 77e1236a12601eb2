"""Which blocks are sampled, and what the trace of them says about each place that touches
memory."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cudaops.cuda.work import Site
from cudaops.domain.base import Dim3
from cudaops.executors.cpu.symbols import locate
from cudaops.executors.untrusted_files import read_left
from cudaops.timemodel.instructions import FindSite, SiteKey

_MOST_TRACE_BYTES = 64 << 20
"""A site takes some 300 bytes, an overlap 20; a launch is sampled in five blocks."""
_MOST_SITES = 20_000

_COUNTERS = (
    "accesses", "kept", "requests", "instructions", "sectors", "lines", "wavefronts",
    "ideal_wavefronts", "joined_wavefronts", "joined_ideal", "distinct_addresses",
    "worst_multiplicity",
)  # fmt: skip


class BadTrace(Exception):
    """A report that the tracer does not write: the traced code runs in its process."""


class BlockFootprint(NamedTuple):
    """Distinct sectors a sampled block touched, by allocation index (-1: none known)."""

    block: int
    read: dict[int, int]
    written: dict[int, int]
    hottest_atomic: int


class Overlap(NamedTuple):
    """Sectors of one allocation that two sampled blocks both touch."""

    first: int
    second: int
    allocation: int
    read: int
    written: int


@dataclass(frozen=True)
class Row:
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
    rows: tuple[Row, ...]
    blocks: tuple[BlockFootprint, ...]
    overlaps: tuple[Overlap, ...]


def sampled_blocks(grid: Dim3, seed: int, random_blocks: int = 2) -> tuple[int, ...]:
    """Linear indices: one in the middle, its neighbours in x and in y, and some at random.

    The neighbours tell what adjacent blocks share. The first and the last block are left to chance:
    in a large grid the edge is too rare to count as much as the middle.
    """
    middle = (grid.z // 2 * grid.y + grid.y // 2) * grid.x + grid.x // 2
    wanted = [middle, middle + 1, middle + grid.x]
    wanted += random.Random(seed).sample(range(grid.volume), min(random_blocks, grid.volume))
    return tuple(dict.fromkeys(b for b in wanted if b < grid.volume))


def read_trace(report: Path, library: Path, author_files: Sequence[str]) -> Trace:
    """Read a report.

    Args:
        report: What `cudaops/trace_report.h` wrote.
        library: The instrumented executable its addresses lie in.
        author_files: Paths of the program's files, as lines are wanted in them.

    Raises BadTrace and NotLeft.
    """
    try:
        data = _checked(json.loads(read_left(report.parent, report.name, _MOST_TRACE_BYTES)))
        return _trace(data, library, author_files)
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


def _trace(data: dict[str, Any], library: Path, author_files: Sequence[str]) -> Trace:
    lines = _source_lines(library, sorted({int(s["pc"]) for s in data["sites"]}), author_files)
    grouped: dict[tuple[str, int, str, int, bool, bool], list[dict[str, Any]]] = {}
    for site in data["sites"]:
        file, line = lines[int(site["pc"])]
        kind = (str(site["space"]), int(site["size"]), bool(site["write"]), bool(site["atomic"]))
        grouped.setdefault((file, line, *kind), []).append(site)
    rows = tuple(
        Row(*key, {c: float(sum(s[c] for s in members)) for c in _COUNTERS},
            tuple(float(sum(h)) for h in zip(*(s["hits"] for s in members), strict=True)))
        for key, members in grouped.items()
    )  # fmt: skip
    blocks = tuple(
        BlockFootprint(
            int(b["block"]),
            {int(k): int(v[0]) for k, v in b["regions"].items()},
            {int(k): int(v[1]) for k, v in b["regions"].items()},
            int(b["hottest_atomic"]),
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


def _source_lines(
    library: Path, addresses: Sequence[int], author_files: Sequence[str]
) -> dict[int, tuple[str, int]]:
    """The author's line of each return address; ("", 0) where there is none."""
    places = locate(library, list(addresses), author_files)
    return {
        a: (PurePosixPath(place.file).name, place.line) if (place := places.get(a)) else ("", 0)
        for a in addresses
    }


def sites_of(trace: Trace, l1_bytes: float) -> tuple[Site, ...]:
    """The rows as the model's sites, a block's average each.

    Args:
        trace: What was traced.
        l1_bytes: L1 that a block has to itself: the cache over the blocks that share an SM.
    """
    blocks = max(len(trace.blocks), 1)
    return tuple(_site(row, trace, blocks, l1_bytes) for row in trace.rows)


def _site(row: Row, trace: Trace, blocks: int, l1_bytes: float) -> Site:
    c = row.counters
    shared = row.space == "shared"
    scale = c["accesses"] / max(c["kept"], 1.0) / blocks
    requests = c["requests"]
    instructions = c["instructions"] if shared else requests
    per_request = 1.0 / max(requests, 1.0)
    per_instruction = 1.0 / max(instructions, 1e-9)
    loads = not row.write and not row.atomic and c["sectors"] > 0
    return Site(
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
        l1_hit=_hit_rate(row, trace.cache_bytes, l1_bytes) if loads else 0.0,
        useful_bytes=0.0 if shared else c["distinct_addresses"] * per_request * row.size,
        same_address=max(c["worst_multiplicity"] * per_request, 1.0),
    )


def _hit_rate(row: Row, sizes: Sequence[int], l1_bytes: float) -> float:
    """Share of sectors found, interpolated between the traced sizes on a logarithmic scale."""
    rates = [h / row.counters["sectors"] for h in row.hits]
    if l1_bytes <= sizes[0]:
        return rates[0]
    for i in range(1, len(sizes)):
        if l1_bytes <= sizes[i]:
            part = math.log(l1_bytes / sizes[i - 1]) / math.log(sizes[i] / sizes[i - 1])
            return rates[i - 1] + part * (rates[i] - rates[i - 1])
    return rates[-1]


def finder(sites: Sequence[Site]) -> FindSite:
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
        elif len({sites[i].space for i in pool}) > 1:
            pool = [i for i in pool if sites[i].space == "global"]
        return max(pool, key=lambda i: sites[i].accesses_per_block, default=None)

    return find
