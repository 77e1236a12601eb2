"""What a launch reads from DRAM, of what its blocks touch."""

from __future__ import annotations

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.domain.base import Dim3
from cudaops.timemodel.trace import BlockFootprint, Trace, traffic
from cudaops.timemodel.work import MemorySite

SECTORS = 8192
"""That each block reads, 256 KB: a wave of 792 blocks reads five times what L2 keeps."""
BYTES = 792 * SECTORS * 32
"""Of the array: as much as a wave reads, and all of it by each of four waves."""


@pytest.mark.parametrize("grid", [Dim3(x=3168), Dim3(x=16, z=198), Dim3(x=4, y=4, z=198)], ids=str)
def test_layers_of_one_wave_are_read_again_by_the_next(grid: Dim3) -> None:
    block = BlockFootprint(0, {0: SECTORS}, {}, {}, SECTORS, counted=True)
    loads = MemorySite(
        "global", False, False, "k.cu", 1, 4, SECTORS, SECTORS, SECTORS, 1.0, 1.0, sectors=1.0
    )
    trace = Trace((1 << 20,), (), (block,), ())
    found = traffic(trace, (loads,), grid, {0: BYTES}, DEVICES["H200"], blocks_per_sm=6)
    assert found.dram_read_bytes == pytest.approx(4 * BYTES, rel=0.01)
