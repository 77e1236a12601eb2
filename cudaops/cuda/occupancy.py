"""How many blocks and warps an SM holds, and how a grid falls into waves."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from cudaops.cuda.architectures import Architecture
from cudaops.cuda.devices import Device
from cudaops.errors import InputError

Limiter = Literal["warps", "blocks", "registers", "shared_memory"]


class Occupancy(NamedTuple):
    """What one SM holds of a kernel."""

    warps_per_block: int
    limit_warps: int
    """Blocks an SM by its warp and thread slots."""
    limit_blocks: int
    """Blocks an SM at all."""
    limit_registers: int
    limit_shared_memory: int
    blocks_per_sm: int
    """The smallest of the limits; 0: such a block does not fit and cannot be launched."""
    limiter: Limiter
    """The limit that decides; with equal limits the one named first in this record."""
    warps_per_sm: int
    theoretical_pct: float
    """Resident warps over warp slots, 0-100."""


def occupancy(
    device: Architecture,
    block_threads: int,
    registers_per_thread: int,
    smem_bytes_per_block: int,
    *,
    shared_config_bytes: int | None = None,
) -> Occupancy:
    """Blocks and warps that one SM holds at once.

    Args:
        device: The device, or the architecture alone.
        block_threads: Threads a block.
        registers_per_thread: As the compiler reports; 0 counts as 1.
        smem_bytes_per_block: Static plus dynamic, without what the driver reserves.
        shared_config_bytes: Shared part of L1 as configured for the launch
            (`launch__shared_mem_config_size`); None: the largest the SM allows.

    Source: CUDA occupancy calculator's rules; checked against `launch__occupancy_limit_*` of the
    captures in tests/data/ncu.

    Raises:
        InputError: a count no launch can have.
    """
    _check(device, block_threads, registers_per_thread, smem_bytes_per_block)
    warps = math.ceil(block_threads / device.warp_size)
    warp_slots = min(device.max_warps_per_sm, device.max_threads_per_sm // device.warp_size)
    limits: dict[Limiter, int] = {
        "warps": warp_slots // warps,
        "blocks": device.max_blocks_per_sm,
        "registers": _limit_registers(device, warps, registers_per_thread),
        "shared_memory": _limit_shared(device, smem_bytes_per_block, shared_config_bytes),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(
        warps_per_block=warps,
        limit_warps=limits["warps"],
        limit_blocks=limits["blocks"],
        limit_registers=limits["registers"],
        limit_shared_memory=limits["shared_memory"],
        blocks_per_sm=blocks,
        limiter=limiter,
        warps_per_sm=blocks * warps,
        theoretical_pct=100.0 * blocks * warps / device.max_warps_per_sm,
    )


def waves(device: Device, grid_blocks: int, blocks_per_sm: int) -> float:
    """Blocks of the grid over the blocks that the device holds at once, as ncu's Waves Per SM.

    Raises:
        InputError: no blocks, or a block that does not fit on an SM.
    """
    if grid_blocks < 1 or blocks_per_sm < 1:
        raise InputError(
            f"a grid of {grid_blocks} blocks with {blocks_per_sm} a SM cannot run: both must be "
            "at least 1"
        )
    return grid_blocks / (device.sm_count * blocks_per_sm)


def _check(device: Architecture, threads: int, registers: int, smem: int) -> None:
    if not 1 <= threads <= device.max_threads_per_block:
        raise InputError(
            f"a block of {threads} threads: must be 1 to {device.max_threads_per_block}"
        )
    if not 0 <= registers <= device.max_registers_per_thread:
        raise InputError(
            f"{registers} registers a thread: must be 0 to {device.max_registers_per_thread}"
        )
    if smem < 0:
        raise InputError(f"{smem} bytes of shared memory: must not be negative")


def _limit_registers(device: Architecture, warps: int, registers_per_thread: int) -> int:
    unit = device.register_allocation_unit
    per_warp = math.ceil(max(1, registers_per_thread) * device.warp_size / unit) * unit
    granularity = device.warp_allocation_granularity
    warps_that_fit = device.registers_per_sm // per_warp // granularity * granularity
    return warps_that_fit // warps


def _limit_shared(device: Architecture, smem_bytes: int, config_bytes: int | None) -> int:
    if smem_bytes > device.shared_bytes_per_block_optin:
        return 0
    unit = device.shared_allocation_unit
    per_block = math.ceil((smem_bytes + device.shared_reserved_per_block) / unit) * unit
    if per_block == 0:  # compute capability 7.5 reserves nothing
        return device.max_blocks_per_sm
    return (config_bytes or device.shared_bytes_per_sm) // per_block
