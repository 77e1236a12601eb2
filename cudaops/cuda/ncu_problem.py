"""Why ncu could not profile, told from what it printed, and what helps.

Texts are those ncu 2022 to 2026 print, as their users have reported them; what ncu only warns of
(metrics a chip does not have, `ctc__*` on an H200) is no failure.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

NcuCause = Literal[
    "missing", "permission", "busy", "wsl", "vgpu", "mig", "driver_too_old", "chip_unknown",
    "library", "lock", "disk", "memory", "metric", "target", "no_kernel", "no_values", "timeout",
    "unknown",
]  # fmt: skip
"""`missing`: no ncu here. `target`: what ncu was to look at ended with an error of its own.
`no_values`: a report whose counters are all n/a."""


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
    "library": "reinstall Nsight Compute whole, and look whether libcuda.so.1 can be loaded: "
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
