"""Distance to the device's limits: the roofline, and the shortest time each resource allows."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import Device
from cudaops.domain.profile import Profile, Roofline

_TENSOR_IN_USE_PCT = 1.0
"""Above this the tensor pipe does work that the scalar counters do not see. Source: our captures,
where kernels without matrix instructions show 0.02 %."""


_HALF_IN_USE = 0.1
"""Share of half-precision operations from which the limit of single precision says nothing; the
device table has no peak for them."""
_HALF_OF_MOVES = 64
"""Half-precision operations a thread that are no arithmetic: nvcc 13.0 makes constants with HFMA2,
four operations each. Seen on an H200 (2026-11-20): a transpose and a product in single precision
had more than 1 % of them. Judgement, as is the share above."""


class Floor(NamedTuple):
    """Shortest time one resource allows for a launch."""

    resource: str
    us: float


def flops(profile: Profile, precision: str) -> float | None:
    """Floating-point operations by threads, an FMA counting two; None where not all three counters
    (multiply-add, add, multiply) are known. `precision`: `f`, `d` or `h`."""
    total = 0.0
    for operation, each in (("fma", 2.0), ("add", 1.0), ("mul", 1.0)):
        count = _thread_count(profile, f"{precision}{operation}")
        if count is None:
            return None
        total += each * count
    return total


def dram_bytes(profile: Profile) -> float | None:
    """Bytes between L2 and device memory, both ways; None where not known."""
    read = profile.get(ncu.DRAM_READ_BYTES)
    written = profile.get(ncu.DRAM_WRITE_BYTES)
    if read is not None and written is not None:
        return read + written
    rate = profile.get(ncu.DRAM_BYTES_PER_SECOND)
    return None if rate is None else rate * profile.duration_us * 1e-6


def roofline(profile: Profile, device: Device) -> Roofline | None:
    """Where the launch is under the device's roofline.

    None where single-precision operations or DRAM bytes are unknown, or where the tensor pipe or
    half-precision instructions did work that the peaks of the device table do not cover. Double
    precision counts where its counters are there. Peaks are the device's at its table clock. A
    launch without DRAM traffic counts as one sector, so that its intensity stays a number.
    """
    single, moved = flops(profile, "f"), dram_bytes(profile)
    tensor = profile.get(ncu.PIPE_TENSOR)
    if single is None or moved is None or profile.duration_us <= 0.0:
        return None
    if tensor is not None and tensor >= _TENSOR_IN_USE_PCT:
        return None
    double = flops(profile, "d") or 0.0
    half = flops(profile, "h") or 0.0
    moves = _HALF_OF_MOVES * (profile.get(ncu.THREADS) or 0.0)
    if half > max(moves, _HALF_IN_USE * (single + double)):
        return None
    single_us = single / device.peak_fp32_gflops * 1e-3
    double_us = double / device.peak_fp64_gflops * 1e-3
    compute_us = max(single_us, double_us)
    memory_us = moved / device.dram_bandwidth_gb_s * 1e-3
    floor_us = max(compute_us, memory_us)
    return Roofline(
        flops=single + double,
        dram_bytes=moved,
        arithmetic_intensity_flop_per_byte=(single + double) / max(moved, device.sector_bytes),
        attained_gflops=(single + double) / profile.duration_us * 1e-3,
        peak_gflops=device.peak_fp64_gflops if double_us > single_us else device.peak_fp32_gflops,
        peak_bandwidth_gb_s=device.dram_bandwidth_gb_s,
        bound="compute" if compute_us >= memory_us else "memory",
        floor_us=floor_us,
        attained_pct=100.0 * floor_us / profile.duration_us,
    )


def floors(profile: Profile, device: Device) -> tuple[Floor, ...]:
    """Shortest time each resource allows, longest first; those with unknown use are left out."""
    found: list[Floor] = []

    def add(resource: str, amount: float | None, per_us: float | None) -> None:
        if amount is not None and per_us:
            found.append(Floor(resource, amount / per_us))

    sm_cycles_per_us = device.sm_count * device.sm_clock_mhz
    add("fp32", flops(profile, "f"), device.peak_fp32_gflops * 1e3)
    add("fp64", flops(profile, "d"), device.peak_fp64_gflops * 1e3)
    add("dram", dram_bytes(profile), device.dram_bandwidth_gb_s * 1e3)
    sectors = _sum(profile, ncu.L2_READ_SECTORS, ncu.L2_WRITE_SECTORS)
    l2_bytes = None if sectors is None else sectors * device.sector_bytes
    l2_rate = device.l2_bandwidth_gb_s
    add("l2", l2_bytes, None if l2_rate is None else l2_rate * 1e3)
    accesses = _sum(
        profile, ncu.GLOBAL_LD_INST, ncu.GLOBAL_ST_INST,
        ncu.SHARED_LD_INST, ncu.SHARED_ST_INST,
    )  # fmt: skip
    lsu = device.lsu_lanes_per_sm
    lsu_rate = None if lsu is None else lsu / device.warp_size * sm_cycles_per_us
    add("lsu", accesses, lsu_rate)
    add("shared", profile.get(ncu.SHARED_WAVEFRONTS), sm_cycles_per_us)
    issue_rate = device.schedulers_per_sm * sm_cycles_per_us
    add("issue", profile.get(ncu.INST_EXECUTED), issue_rate)
    return tuple(sorted(found, key=lambda floor: -floor.us))


def least_us(
    profile: Profile, device: Device, dram_bytes_least: float, boost: float = 1.0
) -> float | None:
    """Shortest time for the arithmetic that was counted and for this many bytes.

    What has no peak in the table (half precision, tensor cores) can only add to it. `boost`: SM
    clock over the table's. None where neither single nor double precision was counted.
    """
    arithmetic = ("fp32", "fp64")
    known = [f.us / boost for f in floors(profile, device) if f.resource in arithmetic]
    if not known:
        return None
    return max(*known, dram_bytes_least / device.dram_bandwidth_gb_s * 1e-3)


def _thread_count(profile: Profile, operation: str) -> float | None:
    stem = f"smsp__sass_thread_inst_executed_op_{operation}_pred_on.sum"
    total = profile.get(stem)
    if total is not None:
        return total
    rate, cycles = profile.get(stem + ".per_cycle_elapsed"), profile.get(ncu.SMSP_CYCLES_ELAPSED)
    return None if rate is None or cycles is None else rate * cycles


def _sum(profile: Profile, *names: str) -> float | None:
    values = [profile.get(name) for name in names]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
