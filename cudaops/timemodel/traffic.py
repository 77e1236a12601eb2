"""From the footprints of a few blocks to what a whole launch moves between DRAM, L2 and L1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.cuda.work import Site, Traffic
from cudaops.domain.base import Dim3
from cudaops.timemodel.sampling import Trace

SECTOR = 32
L2_SHARE = 0.8
"""Part of L2 that data keeps in practice: the rest goes to conflicts and other traffic. Assumed."""


class Spread(NamedTuple):
    """One allocation's use by blocks, in sectors."""

    a_block: float
    growth_x: float
    """New sectors the next block in x adds, as a share of its own, 0-1."""
    growth_y: float
    most: float
    """Sectors the allocation has."""

    def union(self, x: int, y: int, z: int = 1) -> float:
        """Distinct sectors of x by y by z adjacent blocks; planes in z are taken to share
        nothing."""
        grown = self.a_block * (1 + (x - 1) * self.growth_x) * (1 + (y - 1) * self.growth_y) * z
        return min(grown, self.most)


def traffic(
    trace: Trace, sites: Sequence[Site], grid: Dim3, sizes: Mapping[int, int], device: Device,
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
    in_wave = [s.union(x, y) for s in (*reads, *writes)]
    read = SECTOR * sum(whole_read)
    if footprint > room and SECTOR * sum(in_wave) > room:
        again = SECTOR * sum(in_wave[: len(reads)]) * grid.volume / wave
        missed = grid.volume * sum(
            s.requests_per_block * s.sectors * SECTOR * (1 - s.l1_hit)
            for s in sites
            if s.space == "global" and not s.write
        )
        read = max(read, min(again, missed))
    resident = footprint <= room
    return Traffic(
        footprint_bytes=footprint,
        dram_read_bytes=read,
        dram_write_bytes=0.0 if resident else SECTOR * sum(whole_written),
        resident=resident,
    )


def _spreads(trace: Trace, grid: Dim3, sizes: Mapping[int, int], *, written: bool) -> list[Spread]:
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
        result.append(Spread(sum(counts) / len(counts), growth_x, growth_y, most))
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
