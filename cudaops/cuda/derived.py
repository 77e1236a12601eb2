"""Numbers rules compare: the profile's metrics, and what follows from them.

A derived number exists only where everything it is derived from was collected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.metrics import METRICS
from cudaops.domain.profile import Profile, Roofline


class Fact(NamedTuple):
    """A number with its unit and label."""

    value: float
    unit: str
    label: str


class DerivedDef(NamedTuple):
    """One derived number."""

    name: str
    label: str
    unit: str
    meaning: str
    inputs: tuple[str, ...]
    """All must be known."""
    compute: Callable[..., float | None]
    """Of the inputs' values in order; None where the ratio has no meaning (nothing divided by
    nothing)."""


def _share(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole > 0 else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


DERIVED: dict[str, DerivedDef] = {}


def _derived(
    name: str,
    label: str,
    unit: str,
    meaning: str,
    inputs: tuple[str, ...],
    compute: Callable[..., float | None],
) -> str:
    key = f"cudaops__{name}"
    DERIVED[key] = DerivedDef(key, label, unit, meaning, inputs, compute)
    return key


LD_SECTORS_PER_REQUEST = _derived(
    "sectors_per_global_load", "Sectors per global load", "sector",
    "Sectors a warp's load touches; 4 when 32 threads read neighbouring 4-byte words.",
    (ncu.GLOBAL_LD_SECTORS, ncu.GLOBAL_LD_REQUESTS), _ratio,
)  # fmt: skip
ST_SECTORS_PER_REQUEST = _derived(
    "sectors_per_global_store", "Sectors per global store", "sector",
    "Sectors a warp's store touches; 4 when 32 threads write neighbouring 4-byte words.",
    (ncu.GLOBAL_ST_SECTORS, ncu.GLOBAL_ST_REQUESTS), _ratio,
)  # fmt: skip
BANK_CONFLICT_SHARE = _derived(
    "bank_conflict_share_pct", "Bank conflicts among shared wavefronts", "%",
    "Share of shared-memory wavefronts that exist only because of bank conflicts.",
    (ncu.BANK_CONFLICTS, ncu.SHARED_WAVEFRONTS), _share,
)  # fmt: skip
BANK_CONFLICT_LD_SHARE = _derived(
    "bank_conflict_load_share_pct", "Bank conflicts among shared load wavefronts", "%",
    "The same, loads only.",
    (ncu.BANK_CONFLICTS_LD, ncu.SHARED_LD_WAVEFRONTS), _share,
)  # fmt: skip
BANK_CONFLICT_ST_SHARE = _derived(
    "bank_conflict_store_share_pct", "Bank conflicts among shared store wavefronts", "%",
    "The same, stores only.",
    (ncu.BANK_CONFLICTS_ST, ncu.SHARED_ST_WAVEFRONTS), _share,
)  # fmt: skip
ATOMIC_SHARE = _derived(
    "atomic_request_share_pct", "Atomics among global requests", "%",
    "Share of global memory requests that are atomics, with or without a result.",
    (
        ncu.GLOBAL_RED_REQUESTS, ncu.GLOBAL_ATOM_REQUESTS,
        ncu.GLOBAL_LD_REQUESTS, ncu.GLOBAL_ST_REQUESTS,
    ),
    lambda red, atom, ld, st: _share(red + atom, red + atom + ld + st),
)  # fmt: skip
ATOMICS_AN_INSTRUCTION = _derived(
    "atomic_instruction_share_pct", "Global atomics among instructions", "%",
    "Share of executed warp instructions that are global atomics.",
    (ncu.GLOBAL_RED_REQUESTS, ncu.GLOBAL_ATOM_REQUESTS, ncu.INST_EXECUTED),
    lambda red, atom, executed: _share(red + atom, executed),
)  # fmt: skip
SHARED_ATOMIC_SHARE = _derived(
    "shared_atomic_share_pct", "Atomics among shared accesses", "%",
    "Share of shared-memory instructions that are atomics.",
    (ncu.SHARED_ATOMICS, ncu.SHARED_LD_INST, ncu.SHARED_ST_INST),
    lambda atom, ld, st: _share(atom, atom + ld + st),
)  # fmt: skip
LOCAL_AN_INSTRUCTION = _derived(
    "local_instruction_share_pct", "Local memory accesses among instructions", "%",
    "Accesses to local memory, of four sectors each as a word a thread takes, in executed warp "
    "instructions.",
    (ncu.LOCAL_LD_SECTORS, ncu.LOCAL_ST_SECTORS, ncu.INST_EXECUTED),
    lambda lld, lst, executed: _share((lld + lst) / 4.0, executed),
)  # fmt: skip
LOCAL_SECTOR_SHARE = _derived(
    "local_sector_share_pct", "Local memory among L1 sectors", "%",
    "Share of local-memory sectors in global and local sectors.",
    (
        ncu.LOCAL_LD_SECTORS, ncu.LOCAL_ST_SECTORS,
        ncu.GLOBAL_LD_SECTORS, ncu.GLOBAL_ST_SECTORS,
    ),
    lambda lld, lst, gld, gst: _share(lld + lst, lld + lst + gld + gst),
)  # fmt: skip
LD_WASTE, ST_WASTE = (
    _derived(
        f"global_{kind}_waste_pct", f"Bytes that global {kind}s move and do not use", "%",
        "Of all bytes that global accesses move between L1 and the SM.",
        (sectors, used, other),
        lambda sectors, used, other: _share(sectors * (1.0 - used / 32.0), sectors + other),
    )
    for kind, sectors, used, other in (
        ("load", ncu.GLOBAL_LD_SECTORS, ncu.BYTES_PER_SECTOR_LD, ncu.GLOBAL_ST_SECTORS),
        ("store", ncu.GLOBAL_ST_SECTORS, ncu.BYTES_PER_SECTOR_ST, ncu.GLOBAL_LD_SECTORS),
    )
)  # fmt: skip
IDLE_WAVE_SLOTS = _derived(
    "idle_wave_slots_pct", "Block slots idle over all waves", "%",
    "Share of the device's block slots that stay empty because the last wave is partial.",
    (ncu.WAVES,),
    lambda waves: 100.0 * (1.0 - waves / math.ceil(waves)) if waves > 0 else None,
)  # fmt: skip
IDLE_SMS = _derived(
    "idle_sms_pct", "SMs without a block", "%",
    "Share of the SMs that no block of the grid is left for.",
    (ncu.GRID_SIZE, ncu.SM_COUNT),
    lambda blocks, sms: 100.0 * max(0.0, 1.0 - blocks / sms) if sms > 0 else None,
)  # fmt: skip
US_PER_WAVE = _derived(
    "us_per_wave", "Time a wave of blocks", "us",
    "Duration over waves: about how long one block lives.",
    (ncu.DURATION, ncu.WAVES), _ratio,
)  # fmt: skip

_LIMITS = (
    ncu.LIMIT_REGISTERS, ncu.LIMIT_SHARED, ncu.LIMIT_WARPS, ncu.LIMIT_BLOCKS,
)  # fmt: skip
SLACK_REGISTERS = _derived(
    "slack_registers", "Blocks an SM beyond the tightest limit, registers", "block",
    "0: registers are what limits the blocks an SM holds.",
    _LIMITS, lambda regs, smem, warps, blocks: regs - min(regs, smem, warps, blocks),
)  # fmt: skip
SLACK_SHARED = _derived(
    "slack_shared", "Blocks an SM beyond the tightest limit, shared memory", "block",
    "0: shared memory is what limits the blocks an SM holds.",
    _LIMITS, lambda regs, smem, warps, blocks: smem - min(regs, smem, warps, blocks),
)  # fmt: skip
OWN_SHARED = _derived(
    "own_shared_bytes", "Shared memory of its own a block", "byte",
    "Static and dynamic, without what the driver reserves.",
    (ncu.SHARED_STATIC, ncu.SHARED_DYNAMIC), lambda static, dynamic: static + dynamic,
)  # fmt: skip
SLACK_BLOCK_SIZE = _derived(
    "slack_block_size", "Blocks an SM beyond the tightest limit, block size", "block",
    "0: warp or block slots are what limits the blocks an SM holds.",
    _LIMITS, lambda regs, smem, warps, blocks: min(warps, blocks) - min(regs, smem, warps, blocks),
)  # fmt: skip


def _stall_share(constant: str, reason: str) -> str:
    return _derived(
        f"stall_{reason}_pct", f"Stalled: {reason.replace('_', ' ')}", "%",
        "Share of a warp's time between two of its instructions.",
        (constant, ncu.CYCLES_PER_ISSUE), _share,
    )  # fmt: skip


STALLED_LONG = _stall_share(ncu.STALL_LONG, "long_scoreboard")
STALLED_SHORT = _stall_share(ncu.STALL_SHORT, "short_scoreboard")
STALLED_MIO = _stall_share(ncu.STALL_MIO, "mio_throttle")
STALLED_LG = _stall_share(ncu.STALL_LG, "lg_throttle")
STALLED_BARRIER = _stall_share(ncu.STALL_BARRIER, "barrier")
STALLED_MEMBAR = _stall_share(ncu.STALL_MEMBAR, "membar")
STALLED_BRANCH = _stall_share(ncu.STALL_BRANCH, "branch_resolving")
STALLED_WAIT = _stall_share(ncu.STALL_WAIT, "wait")

IDLE_ISSUE = "cudaops__idle_issue_pct"
COMPUTE_ATTAINED = "cudaops__compute_attained_pct"
MEMORY_ATTAINED = "cudaops__memory_attained_pct"

SPECIAL: Mapping[str, tuple[str, str, str]] = {
    IDLE_ISSUE: (
        "Issue slots idle", "%",
        "Cycles in which a scheduler issued nothing: No Eligible, else 100 less Issue Slots Busy.",
    ),
    COMPUTE_ATTAINED: (
        "Of the arithmetic peak", "%",
        "Shortest time for the operations over the time taken; where the operations take longest.",
    ),
    MEMORY_ATTAINED: (
        "Of the DRAM peak", "%",
        "Shortest time for the DRAM bytes over the time taken; where the bytes take longest.",
    ),
}  # fmt: skip
"""Label, unit and meaning of derived numbers that a plain function of inputs cannot say."""


def facts(profile: Profile, roofline: Roofline | None) -> dict[str, Fact]:
    """Everything rules may compare for this launch; what is not in it is unknown."""
    found = {
        name: Fact(metric.value, metric.unit, METRICS[name].label if name in METRICS else name)
        for name, metric in profile.metrics.items()
    }
    if profile.duration_us > 0:
        found.setdefault(ncu.DURATION, Fact(profile.duration_us, "us", "Duration"))
    for row in DERIVED.values():
        values = [found[name].value for name in row.inputs if name in found]
        if len(values) == len(row.inputs):
            result = row.compute(*values)
            if result is not None:
                found[row.name] = Fact(result, row.unit, row.label)
    idle = _idle_issue(found)
    if idle is not None:
        found[IDLE_ISSUE] = Fact(idle, "%", SPECIAL[IDLE_ISSUE][0])
    if roofline is not None:
        name = COMPUTE_ATTAINED if roofline.bound == "compute" else MEMORY_ATTAINED
        found[name] = Fact(roofline.attained_pct, "%", SPECIAL[name][0])
    return found


def _idle_issue(found: Mapping[str, Fact]) -> float | None:
    if ncu.NO_ELIGIBLE in found:
        return found[ncu.NO_ELIGIBLE].value
    if ncu.ISSUE_SLOTS_BUSY in found:
        return 100.0 - found[ncu.ISSUE_SLOTS_BUSY].value
    return None


def label_and_unit(name: str) -> tuple[str, str]:
    """How a fact is called and measured, known for a launch or not. Raises KeyError."""
    if name in METRICS:
        return METRICS[name].label, METRICS[name].unit
    if name in DERIVED:
        return DERIVED[name].label, DERIVED[name].unit
    label, unit, _ = SPECIAL[name]
    return label, unit
