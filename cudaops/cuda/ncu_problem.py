"""Why ncu could not profile, from its output; the remedy; and the profile that is left.

Texts are those ncu 2022 to 2026 print, as their users have reported them; what ncu only warns of
(metrics a chip does not have, `ctc__*` on an H200) is no failure.

Where ncu cannot read a launch's counters, each number says whose it is: the time is measured,
registers and spills are the compiler's, occupancy follows from them, and the counts are a model's.
Utilisations stay the model's own: they belong to its time, not to ours.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import Device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.occupancy import occupancy, waves
from cudaops.cuda.roofline import dram_bytes
from cudaops.domain.execution import KernelResources
from cudaops.domain.profile import Metric, MetricSource, Profile

NcuCause = Literal[
    "missing", "permission", "busy", "wsl", "vgpu", "mig", "driver_too_old", "chip_unknown",
    "library", "lock", "disk", "memory", "metric", "target", "no_kernel", "no_values", "timeout",
    "too_long", "unknown",
]  # fmt: skip
"""`missing`: no ncu here. `target`: what ncu was to look at ended with an error of its own.
`no_values`: a report whose counters are all n/a. `too_long`: it was not run, since
all passes over so long a launch would keep others from the GPU."""


class NcuProblem(NamedTuple):
    """Why there is no profile by ncu."""

    cause: NcuCause
    text: str
    """What ncu said, in one line."""
    remedy: str


REMEDIES: dict[NcuCause, str] = {
    "missing": "install Nsight Compute (it comes with the CUDA toolkit) and put ncu on PATH",
    "permission": "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
    "/etc/modprobe.d/ncu.conf, then reboot; or run as root; in a container also start it with "
    "--cap-add=SYS_ADMIN",
    "busy": "stop the other profiler; where it is DCGM: dcgmi profile --pause, and --resume after",
    "wsl": "Windows 11 with a driver of 525 or newer, and in the NVIDIA Control Panel (Developer) "
    "allow access to the GPU performance counters to all users",
    "vgpu": "have the hypervisor's administrator set the vGPU plugin parameter "
    "enable_profiling=1 for this virtual machine, or use a whole GPU",
    "mig": "profile on a MIG instance that owns its compute slices alone, or disable MIG on a GPU "
    "nobody else uses",
    "driver_too_old": "install an ncu no newer than the CUDA version nvidia-smi shows, or update "
    "the driver",
    "chip_unknown": "install an ncu that knows this GPU (ncu --list-chips): one as new as the "
    "driver for a new GPU, ncu 2024.3 or older for Volta and older",
    "library": "reinstall Nsight Compute, and check whether libcuda.so.1 can be loaded: "
    "ldconfig -p | grep libcuda",
    "lock": "another account's lock file is in the way: remove nsight-compute-lock from the "
    "temporary folder, or point TMPDIR at a folder of your own",
    "disk": "free some disk space, or point TMPDIR at a larger disk",
    "memory": "free memory: ncu keeps a copy of everything the kernel writes, in device memory, "
    "then in host memory",
    "metric": "update ncu, or ask for metrics this chip has: ncu --query-metrics",
    "target": "run the same without ncu to see the error",
    "no_kernel": "nothing was launched where ncu looked; run the same without ncu to see whether "
    "the kernel is launched at all",
    "no_values": "the counters cannot be read here: as for missing permission, or another tool "
    "holds them (dcgmi profile --pause)",
    "timeout": "give it more time with --timeout, or profile a smaller input",
    "too_long": "profile a smaller input",
    "unknown": "run ncu on the program by hand and read what it says",
}
"""What helps, by cause. Sources: NVIDIA's page on ERR_NVGPUCTRPERM; Nsight Compute documentation,
system requirements and FAQ; NVIDIA virtual GPU software user guide, enabling profiling."""

_SIGNS: tuple[tuple[NcuCause, str], ...] = (
    ("wsl", r"windows subsystem for linux|\bwsl2?\b"),
    ("vgpu", r"\bvgpu\b|virtual gpu"),
    ("mig", r"multi-instance gpu|\bmig\b"),
    ("permission", r"err_nvgpuctrperm"),
    ("permission", r"does not have permission to access .*performance counters"),
    ("busy", r"driver resource was unavailable|hardware_busy|already under profiling"),
    ("busy", r"concurrently collecting profiling data|another (?:tool|profiler|client)"),
    ("driver_too_old", r"driver is not compatible with (?:nvidia )?nsight compute"),
    ("driver_too_old", r"driver version is (?:insufficient|not supported)"),
    ("chip_unknown", r"profiling is not supported on (?:this )?device|--list-chips"),
    ("lock", r"nsight-compute-lock|interprocess ?lock|lock file"),
    ("disk", r"no space left on device"),
    ("memory", r"out ?of ?memory"),
    ("library", r"librarynotloaded|library not loaded|cannot open shared object file"),
    ("library", r"failed to load .*(?:library|modules)|failed to initialize the profiler"),
    ("metric", r"failed to find metric|no metrics to collect|failed to access the following"),
    ("target", r"application returned an error code"),
    ("target", r"terminated before first instrumented api call"),
    ("target", r"failed to launch (?:the )?(?:target )?application"),
)
"""Cause to its signs, in lower case; the more telling first."""

_MOST_CHARS = 300


def classify_ncu_failure(text: str) -> NcuProblem | None:
    """The failure in what ncu printed (both streams); None where it names none.

    Lines that ncu marks as errors count before anything else; that no kernel was profiled is said
    of last, because it follows from most other failures.
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    errors = [line.removeprefix("==ERROR== ") for line in lines if line.startswith("==ERROR==")]
    # Without an error mark: the loader's, or those of a version that prints them plainly.
    plain = [line for line in lines if line and not line.startswith("==")]
    for group in (errors, plain):
        for cause, sign in _SIGNS:
            said = next((line for line in group if re.search(sign, line.lower())), None)
            if said is not None and (group is errors or cause in _TELLING_WITHOUT_MARK):
                return problem(cause, said)
    if any("no kernels were profiled" in line.lower() for line in lines):
        return problem("no_kernel", errors[0] if errors else "no kernels were profiled")
    return problem("unknown", errors[0]) if errors else None


_TELLING_WITHOUT_MARK: tuple[NcuCause, ...] = ("permission", "busy", "driver_too_old", "library")
"""What the program under test would not print of its own accord."""


def problem(cause: NcuCause, text: str) -> NcuProblem:
    """A problem of this cause with its remedy; `text` is made one printable, bounded line."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    said = " ".join(printable.split())
    if len(said) > _MOST_CHARS:
        said = said[: _MOST_CHARS - 1] + "…"
    return NcuProblem(cause, said or cause.replace("_", " "), REMEDIES[cause])


FAR_APART = 1.5
"""Judgement: where the model's time is off by half, its utilisations describe another kernel."""

_ESTIMATED = "registers/thread, estimated"
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
        metrics |= compiled_metrics(found, metrics, device)
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


def compiled_metrics(
    found: KernelResources, known: Mapping[str, Metric], device: Device
) -> dict[str, Metric]:
    """What ptxas says of a kernel, and the occupancy that follows for the launch in `known`."""
    values = {
        ncu.REGISTERS: float(found.registers),
        ncu.SHARED_STATIC: float(found.static_smem_bytes),
        ncu.STACK_BYTES: float(found.stack_bytes),
        ncu.SPILL_STORE_BYTES: float(found.spill_store_bytes),
        ncu.SPILL_LOAD_BYTES: float(found.spill_load_bytes),
    }
    block, dynamic = known.get(ncu.BLOCK_SIZE), known.get(ncu.SHARED_DYNAMIC)
    if block is not None and dynamic is not None:
        shared = found.static_smem_bytes + int(dynamic.value)
        values[ncu.SHARED_PER_BLOCK] = float(shared + device.shared_reserved_per_block)
        held = occupancy(device, int(block.value), found.registers, shared)
        values |= {
            ncu.LIMIT_REGISTERS: held.limit_registers,
            ncu.LIMIT_SHARED: held.limit_shared_memory,
            ncu.LIMIT_WARPS: held.limit_warps,
            ncu.LIMIT_BLOCKS: held.limit_blocks,
            ncu.THEORETICAL_WARPS: held.warps_per_sm,
            ncu.THEORETICAL_OCCUPANCY: held.theoretical_pct,
        }
        grid = known.get(ncu.GRID_SIZE)
        if grid is not None and held.blocks_per_sm > 0:
            values[ncu.WAVES] = waves(device, int(grid.value), held.blocks_per_sm)
    return {name: _metric(name, value, "ptxas") for name, value in values.items()}


def _timed(modelled: Profile, duration_us: float, clock: MetricSource) -> dict[str, Metric]:
    timed = {ncu.DURATION: _metric(ncu.DURATION, duration_us, clock)}
    moved = dram_bytes(modelled)
    if moved is not None and duration_us > 0:
        rate = moved / duration_us * 1e6
        timed[ncu.DRAM_BYTES_PER_SECOND] = _metric(ncu.DRAM_BYTES_PER_SECOND, rate, "modelled")
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
