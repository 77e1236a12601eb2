"""The profile of a launch whose counters ncu cannot read: what is left, each number by its name.

The time is measured, registers and spills are the compiler's, occupancy follows from them, and the
counts are a model's. Utilisations stay the model's own: they belong to its time, not to ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from cudaops.cuda import metric_counters as counters
from cudaops.cuda import metric_details as details
from cudaops.cuda.devices import Device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.occupancy import occupancy, waves
from cudaops.cuda.roofline import dram_bytes
from cudaops.domain.execution import KernelResources
from cudaops.domain.profile import Metric, MetricSource, Profile

FAR_APART = 1.5
"""Judgement: where the model's time is off by half, its utilisations describe another kernel."""

_ESTIMATED = "registers a thread are an estimate"
"""In the model's note on what the compiler has now said."""


def fallback_profile(
    modelled: Profile,
    resources: Sequence[KernelResources],
    device: Device,
    *,
    times_us: Sequence[float] = (),
    cupti_us: Sequence[float] = (),
    why: str,
) -> Profile:
    """What is known without ncu: `modelled` with everything replaced that was measured or compiled.

    Args:
        modelled: The model's profile of the same launch.
        resources: What ptxas says of the plan's kernels; the launch's own is found by its name.
        device: Whose occupancy limits hold.
        times_us: Times of this launch alone by CUDA events, in us.
        cupti_us: The same by CUPTI, which leaves the launch's own cost out and so goes first.
        why: Why ncu could not, in one line.

    Without any time the profile stays `modelled`; with one it is `mixed`.
    """
    metrics, kept = dict(modelled.metrics), modelled.notes
    found = next((r for r in resources if _bare(r.kernel) == _bare(modelled.kernel)), None)
    if found is not None:
        metrics |= _compiled(found, metrics, device)
        kept = tuple(note for note in kept if _ESTIMATED not in note)
    notes = [f"ncu could not read the counters: {why}"]
    duration_us, source = modelled.duration_us, modelled.source
    samples, clock = (cupti_us, "cupti") if cupti_us else (times_us, "cuda_event")
    if samples:
        duration_us, source = statistics.median(samples), "mixed"
        metrics |= _timed(modelled, duration_us, "cupti" if clock == "cupti" else "cuda_event")
        if modelled.duration_us > 0:
            notes.append(_apart(modelled.duration_us, duration_us))
    return modelled.model_copy(
        update={
            "metrics": metrics,
            "duration_us": duration_us,
            "source": source,
            "notes": (*notes, *kept),
        }
    )


def _compiled(
    found: KernelResources, known: Mapping[str, Metric], device: Device
) -> dict[str, Metric]:
    values = {
        details.REGISTERS: float(found.registers),
        details.SHARED_STATIC: float(found.static_smem_bytes),
        counters.STACK_BYTES: float(found.stack_bytes),
        counters.SPILL_STORE_BYTES: float(found.spill_store_bytes),
        counters.SPILL_LOAD_BYTES: float(found.spill_load_bytes),
    }
    block, dynamic = known.get(details.BLOCK_SIZE), known.get(details.SHARED_DYNAMIC)
    if block is not None and dynamic is not None:
        shared = found.static_smem_bytes + int(dynamic.value)
        values[counters.SHARED_PER_BLOCK] = float(shared + device.shared_reserved_per_block)
        held = occupancy(device, int(block.value), found.registers, shared)
        values |= {
            details.LIMIT_REGISTERS: held.limit_registers,
            details.LIMIT_SHARED: held.limit_shared_memory,
            details.LIMIT_WARPS: held.limit_warps,
            details.LIMIT_BLOCKS: held.limit_blocks,
            details.THEORETICAL_WARPS: held.warps_per_sm,
            details.THEORETICAL_OCCUPANCY: held.theoretical_pct,
        }
        grid = known.get(details.GRID_SIZE)
        if grid is not None and held.blocks_per_sm > 0:
            values[details.WAVES] = waves(device, int(grid.value), held.blocks_per_sm).waves
    return {name: _metric(name, value, "ptxas") for name, value in values.items()}


def _timed(modelled: Profile, duration_us: float, clock: MetricSource) -> dict[str, Metric]:
    timed = {details.DURATION: _metric(details.DURATION, duration_us, clock)}
    moved = dram_bytes(modelled)
    if moved is not None and duration_us > 0:
        rate = moved / duration_us * 1e6
        timed[details.DRAM_BYTES_PER_SECOND] = _metric(
            details.DRAM_BYTES_PER_SECOND, rate, "modelled"
        )
    return timed


def _apart(modelled_us: float, measured_us: float) -> str:
    ratio = max(modelled_us, measured_us) / max(min(modelled_us, measured_us), 1e-9)
    said = f"the model takes {modelled_us:.4g} us for what was measured as {measured_us:.4g} us"
    if ratio < FAR_APART:
        return said
    return f"{said}: too far apart to trust its utilisations, trust counts and occupancy only"


def _metric(name: str, value: float, source: MetricSource) -> Metric:
    return Metric(name=name, value=float(value), unit=METRICS[name].unit, source=source)


def _bare(kernel: str) -> str:
    return kernel.split("<", 1)[0].split("(", 1)[0].split("::")[-1].strip()
