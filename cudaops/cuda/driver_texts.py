"""What the NVIDIA driver says, as facts: through nvidia-smi, in its own files, in the kernel's log.
Pure functions of text, nothing is started here.

Of nvidia-smi, a cell that says it has no value stays missing, a row that does not have exactly the
shape that was asked for is refused: an absent fact may be shown, a wrong one may not. Exit codes
are not relied upon: nvidia-smi ends with 0 although one of several GPUs did not answer. The ways in
which it says that there is no GPU to talk to each have their cause and their remedy.

Sources: `nvidia-smi --help-query-gpu` and `--help-query-compute-apps` (names and units of fields),
NVML API reference, `nvmlReturn_t` (nvidia-smi's exit codes) and `nvmlClocksEventReasons`. Wordings:
messages of nvidia-smi as quoted in NVIDIA's developer forums, the GPU Operator's and the Container
Toolkit's troubleshooting pages.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from cudaops.errors import EnvironmentFailure

FailureKind = Literal[
    "driver_not_loaded", "version_mismatch", "no_devices", "gpu_lost", "access_lost", "blocked",
    "no_library", "no_permission", "power_cables", "reset_required", "unreadable",
]  # fmt: skip


class NvidiaSmiFailure(EnvironmentFailure):
    """nvidia-smi gave no facts about a GPU, or not about all of them."""

    def __init__(self, kind: FailureKind, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.kind: FailureKind = kind

    @classmethod
    def unreadable(cls, text: str, exit_code: int) -> NvidiaSmiFailure:
        """Output that is neither a row nor a known message."""
        said = " ".join(text.split())[:200] or "nothing"
        return cls(
            "unreadable",
            f"nvidia-smi (exit code {exit_code}) printed what cannot be read: {said}",
            "run nvidia-smi by hand: if it works there, report this text as a bug of cudaops",
        )


class _KnownFailure(NamedTuple):
    kind: FailureKind
    said: str
    """Pattern in the output."""
    exit_code: int | None
    problem: str
    remedy: str


_KNOWN_FAILURES: tuple[_KnownFailure, ...] = (
    _KnownFailure(
        "version_mismatch", r"Driver/library version mismatch", 18,
        "the loaded kernel module and the driver's libraries are of different versions",
        "reboot: the driver was updated while its old module stayed loaded (in a container: restart"
        " the container, its libraries come from the host)",
    ),
    _KnownFailure(
        "driver_not_loaded", r"couldn't communicate with the NVIDIA driver|Driver Not Loaded", 9,
        "the NVIDIA kernel driver is not loaded",
        "sudo modprobe nvidia; where that fails, install the headers of the running kernel"
        " (sudo apt-get install linux-headers-$(uname -r)) and reinstall the driver; with Secure"
        " Boot its module must be signed",
    ),
    _KnownFailure(
        "blocked", r"GPU access blocked by the operating system", 17,
        "the operating system keeps this process from the GPU",
        "in WSL: `wsl --shutdown` in PowerShell and open it again; in a container: start it with"
        " --gpus all",
    ),
    _KnownFailure(
        "no_library", r"couldn't find libnvidia-ml\.so", 12,
        "nvidia-smi finds no libnvidia-ml.so, the driver's own library",
        "in a container: start it with --gpus all (Container Toolkit); else put the folder that"
        " holds it into /etc/ld.so.conf.d and run sudo ldconfig (on Colab: /usr/lib64-nvidia)",
    ),
    _KnownFailure(
        "reset_required", r"GPU requires reset", 16,
        "a GPU says that it must be reset before anything runs on it",
        "reboot, or have the administrator run sudo nvidia-smi -r while the GPU is idle;"
        " `sudo dmesg | grep -i xid` says what happened",
    ),
    _KnownFailure(
        "gpu_lost", r"GPU is lost|Unable to determine the device handle|fallen off the bus", 15,
        "a GPU does not answer any more",
        "reboot, with the power off for half a minute where a warm one does not help;"
        " `sudo dmesg | grep -i xid` says why (79: fallen off the bus: slot, cable, power, heat)",
    ),
    _KnownFailure(
        "access_lost", r"Failed to initialize NVML: Unknown Error", None,
        "this container has lost its access to the GPU",
        "restart the container; it happens when systemd reloads its units on the host, unless the"
        " device nodes are given by name: docker run --gpus all --device /dev/nvidia0 --device"
        " /dev/nvidiactl --device /dev/nvidia-uvm",
    ),
    _KnownFailure(
        "no_permission", r"Failed to initialize NVML: (Insufficient Permissions|No Permission)", 4,
        "this account may not open the GPU",
        "`ls -l /dev/nvidia*` names the group that may: sudo usermod -aG THAT_GROUP $USER, then log"
        " in again",
    ),
    _KnownFailure(
        "power_cables", r"external power", 8,
        "a GPU's power cables are not attached",
        "switch the machine off and attach them",
    ),
    _KnownFailure(
        "no_devices", r"No devices were found", None,
        "the driver is loaded and has taken no GPU",
        "`lspci | grep -i nvidia` says whether one is on the bus, `sudo dmesg | grep -i nvrm` why"
        " the driver refused it: too old for this GPU, or needs the open kernel modules",
    ),
)  # fmt: skip


def failure_in(text: str, exit_code: int = 0) -> NvidiaSmiFailure | None:
    """The failure that this output tells, by its words first and by the exit code else.

    `exit_code` 0 leaves the words alone to decide.
    """
    for known in _KNOWN_FAILURES:
        if re.search(known.said, text, flags=re.IGNORECASE):
            return NvidiaSmiFailure(known.kind, _detailed(known, text), known.remedy)
    for known in _KNOWN_FAILURES:
        if exit_code and exit_code == known.exit_code:
            return NvidiaSmiFailure(known.kind, _detailed(known, text), known.remedy)
    return None


def _detailed(known: _KnownFailure, text: str) -> str:
    """The problem with the version or the GPU that the message names."""
    version = re.search(r"NVML library version: (\d[\d.]*)", text)
    handle = re.search(r"device handle for (GPU\s?[\w:.]*(?: [\w:.]+\.\d)?)", text)
    if version and known.kind == "version_mismatch":
        return f"{known.problem} (libraries: {version[1]})"
    if handle and known.kind == "gpu_lost":
        return f"{known.problem} ({handle[1].strip(' :')})"
    return known.problem


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One row of `--query-gpu`. None: nvidia-smi gave no value for it."""

    index: int
    """In the order of the PCI bus, which need not be CUDA's."""
    name: str
    uuid: str | None
    bus_id: str | None
    driver_version: str | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    temperature_c: int | None
    utilization_pct: int | None
    persistence: bool | None
    compute_mode: str | None
    """`Default`, `Exclusive_Process`, `Prohibited`."""
    mig: bool | None
    uncorrected_errors: int | None
    """Uncorrected ECC errors since the driver was loaded."""
    remap_pending: bool | None
    remap_failed: bool | None
    clock_reasons: int | None
    """Bits of `CLOCK_REASONS`; 0: nothing holds the clocks down."""


class ComputeApp(NamedTuple):
    """A process that holds a CUDA context, as far as this machine's namespace lets it be seen."""

    gpu_uuid: str
    pid: int
    used_mib: int | None
    name: str
    """Path of the program; `[Not Found]` where the process belongs to another container."""


class DriverAnswer(NamedTuple):
    """The GPUs that answered, and the failure of those that did not."""

    gpus: tuple[Gpu, ...]
    failure: NvidiaSmiFailure | None = None
    """Of a GPU that did not answer, beside others that did."""


CLOCK_REASONS: Mapping[int, str] = MappingProxyType({
    0x001: "idle", 0x002: "clocks set by the user", 0x004: "power cap", 0x008: "hardware slowdown",
    0x010: "sync boost", 0x020: "thermal slowdown by software", 0x040: "thermal slowdown",
    0x080: "power brake", 0x100: "clocks set for a display",
})  # fmt: skip
"""Source: nvml.h, `nvmlClocksEventReason*`."""
SLOWING_REASONS = 0x008 | 0x020 | 0x040 | 0x080
"""Reasons that mean a fault of cooling or power supply and not an idle or a capped GPU."""


def _word(text: str) -> str | None:
    return text or None


def _matching(pattern: str) -> Callable[[str], str | None]:
    exact = re.compile(pattern)
    return lambda text: text if exact.fullmatch(text) else None


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"0x[0-9A-Fa-f]{16}", text) else None


def _switch(text: str) -> bool | None:
    words = {"enabled": True, "disabled": False, "yes": True, "no": False, "1": True, "0": False}
    return words.get(text.lower())


class _Field(NamedTuple):
    attribute: str
    read: Callable[[str], object]


_BUS_ID = re.compile(r"[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]", re.IGNORECASE)

GPU_FIELDS: Mapping[str, _Field] = MappingProxyType({
    "index": _Field("index", _integer),
    "name": _Field("name", _word),
    "uuid": _Field("uuid", _matching(r"(GPU|MIG)-[0-9A-Fa-f/-]{8,80}")),
    "driver_version": _Field("driver_version", _matching(r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}")),
    "clocks.current.sm": _Field("sm_clock_mhz", _integer),
    "clocks.max.sm": _Field("max_sm_clock_mhz", _integer),
    "temperature.gpu": _Field("temperature_c", _integer),
    "utilization.gpu": _Field("utilization_pct", _integer),
    "persistence_mode": _Field("persistence", _switch),
    "compute_mode": _Field("compute_mode", _matching(r"[A-Z][A-Za-z_]+")),
    "mig.mode.current": _Field("mig", _switch),
    "ecc.errors.uncorrected.volatile.total": _Field("uncorrected_errors", _integer),
    "remapped_rows.pending": _Field("remap_pending", _switch),
    "remapped_rows.failure": _Field("remap_failed", _switch),
    "clocks_event_reasons.active": _Field("clock_reasons", _hexadecimal),
    "clocks_throttle_reasons.active": _Field("clock_reasons", _hexadecimal),
    "pci.bus_id": _Field("bus_id", _matching(_BUS_ID.pattern)),
})  # fmt: skip
RENAMED_FIELDS = MappingProxyType({"clocks_event_reasons.active": "clocks_throttle_reasons.active"})
"""What drivers before R535 call a field."""

GPU_QUERY: tuple[str, ...] = tuple(
    name for name in GPU_FIELDS if name not in RENAMED_FIELDS.values()
)
"""Index first and bus id last: both have a shape of their own, so that a row which lost its head or
its tail is recognised."""
APPS_QUERY: tuple[str, ...] = ("gpu_uuid", "pid", "used_memory", "process_name")
"""The name last: it may hold commas."""

_ABSENT = re.compile(r"\[[^\]]*\]|N/A|ERR!|Unknown Error|Not Supported", re.IGNORECASE)
_INVALID_FIELD = re.compile(r'Field "([\w.]+)" is not a valid field to query')


def gpu_command(program: str, fields: Sequence[str] = GPU_QUERY) -> list[str]:
    """`nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""
    return [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def apps_command(program: str) -> list[str]:
    """The same for the processes that hold a CUDA context."""
    return [
        program,
        f"--query-compute-apps={','.join(APPS_QUERY)}",
        "--format=csv,noheader,nounits",
    ]


def without_invalid_field(text: str, fields: Sequence[str]) -> tuple[str, ...] | None:
    """The fields to ask for next where this driver does not know one of them; None: it knew all.

    nvidia-smi names one such field and prints no row.
    """
    found = _INVALID_FIELD.search(text)
    if found is None or found[1] not in fields:
        return None
    older = RENAMED_FIELDS.get(found[1])
    renamed = (older if name == found[1] else name for name in fields)
    return tuple(name for name in renamed if name is not None)


def parse_gpus(
    stdout: str, fields: Sequence[str] = GPU_QUERY, *, stderr: str = "", exit_code: int = 0
) -> DriverAnswer:
    """The rows of `gpu_command(fields)`.

    Raises NvidiaSmiFailure where there is no row to read.
    """
    gpus: list[Gpu] = []
    for line in stdout.splitlines(keepends=True):
        gpu = _gpu_row(line, fields)
        if gpu is not None and all(gpu.index != other.index for other in gpus):
            gpus.append(gpu)
    failure = failure_in(f"{stdout}\n{stderr}", 0 if gpus else exit_code)
    if not gpus:
        raise failure or NvidiaSmiFailure.unreadable(stdout + stderr, exit_code)
    return DriverAnswer(tuple(gpus), failure)


def parse_apps(text: str) -> tuple[ComputeApp, ...]:
    """The rows of `apps_command`; a line that is none is left out, so the list may be short."""
    found = []
    for line in text.splitlines(keepends=True):
        cells = [cell.strip() for cell in line.split(",", len(APPS_QUERY) - 1)]
        if not line.endswith("\n") or len(cells) != len(APPS_QUERY):
            continue
        pid = _integer(cells[1])
        if GPU_FIELDS["uuid"].read(cells[0]) and pid is not None and cells[3]:
            found.append(ComputeApp(cells[0], pid, _integer(cells[2]), cells[3]))
    return tuple(found)


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Names of the reasons that hold the clocks, lowest bit first; unknown ones as numbers."""
    known = [name for bit, name in CLOCK_REASONS.items() if bits & bit]
    rest = bits & ~sum(CLOCK_REASONS)
    return (*known, f"{rest:#x}") if rest else tuple(known)


def _gpu_row(line: str, fields: Sequence[str]) -> Gpu | None:
    """The GPU of one line; None where the line is not exactly one whole row."""
    cells = [cell.strip() for cell in line.split(",")]
    if not line.endswith("\n") or len(cells) != len(fields):
        return None
    values: dict[str, object] = dict.fromkeys(f.name for f in dataclasses.fields(Gpu))
    for name, cell in zip(fields, cells, strict=True):
        value = None if _ABSENT.fullmatch(cell) else GPU_FIELDS[name].read(cell)
        values[GPU_FIELDS[name].attribute] = value
    if values["index"] is None or values["name"] is None:
        return None
    if fields[-1] == "pci.bus_id" and values["bus_id"] is None:
        return None
    return Gpu(**values)  # type: ignore[arg-type]


class Xid(NamedTuple):
    """An error that the driver wrote into the kernel's log."""

    bus_id: str
    code: int
    message: str

    @property
    def hardware(self) -> bool:
        """Whether it is about the GPU itself; others (13, 31, 43, 45) are a program's doing."""
        return self.code in HARDWARE_XIDS

    def is_of(self, bus_id: str) -> bool:
        """Whether it is about the GPU at this place, however the domain is padded."""
        mine, other = (re.findall(r"[0-9a-f]+", text.lower()) for text in (self.bus_id, bus_id))
        return len(other) >= 3 and [int(p, 16) for p in mine[:3]] == [int(p, 16) for p in other[:3]]


HARDWARE_XIDS: frozenset[int] = frozenset(
    {46, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 154}
)
"""Source: NVIDIA, Analyzing Xid Errors with the Xid Catalog, and its Health Validation page on Xid
checks: codes whose first action is a reset, a drain or a replacement, not a look at the program."""

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): ([0-9]{1,3})(?:, pid='?[^,]*'?)?,\s*(.*)"
)


class Virtualisation(NamedTuple):
    """One GPU of `nvidia-smi -q`."""

    bus_id: str
    product: str
    mode: str | None
    """`None`, `Pass-Through`, `VGPU`, `Host VGPU`, `Host VSGA`; None: not said."""
    license: str | None
    """Of the vGPU software: `Licensed (Expiry: ...)`, `Unlicensed (Restricted)`."""

    @property
    def is_vgpu(self) -> bool:
        """Whether this is a slice that a hypervisor made: by its mode, else by its name."""
        return (self.mode or "").upper() == "VGPU" or is_vgpu_name(self.product)


def is_vgpu_name(product: str) -> bool:
    """`NVIDIA A16-4Q`, `GRID A100-4C`: a board, a frame buffer in GB and the series of its licence.

    Source: NVIDIA Virtual GPU Software User Guide, naming of vGPU types (series A, B, C, Q).
    """
    return (
        re.search(r"[A-Z]{1,3}[0-9]{1,4}\w*-([0-9]{1,2}-)?[0-9]{1,3}[ABCQ]\b", product) is not None
    )


def parse_virtualisation(text: str) -> tuple[Virtualisation, ...]:
    """How the GPUs of `nvidia-smi -q` are virtualised; empty where it is no such page."""
    found = []
    for part in re.split(r"(?m)^GPU (?=[0-9A-Fa-f]{4,8}:)", text)[1:]:
        found.append(
            Virtualisation(
                bus_id=part.split(maxsplit=1)[0],
                product=_after("Product Name", part) or "",
                mode=_after("Virtualization Mode", part),
                license=_after("License Status", part),
            )
        )
    return tuple(found)


class Faults(NamedTuple):
    """What one GPU of `nvidia-smi -q` counts of its memory's errors. None: it gives no number."""

    bus_id: str
    uuid: str | None
    corrected: int | None
    """By ECC since the driver was loaded, SRAM and DRAM together."""
    uncorrected: int | None
    uncorrected_lifetime: int | None
    """Over the GPU's life."""
    remap_pending: bool | None
    """A memory row waits for its repair, which a reset makes."""
    remap_failed: bool | None


FAULTS_ARGUMENTS = ("-q",)
"""Of nvidia-smi, for `parse_faults`. The whole page: not every driver knows each part by name."""


def parse_faults(page: str) -> tuple[Faults, ...]:
    """Counters of errors in `nvidia-smi -q`; empty where it is no such page.

    Drivers name the counters otherwise: `Double Bit` with a `Total` up to Volta, `SRAM
    Uncorrectable`, and since R550 `SRAM Uncorrectable Parity` and `SEC-DED`.
    """
    found = []
    for part in re.split(r"(?m)^GPU (?=[0-9A-Fa-f]{4,8}:)", page)[1:]:
        volatile, aggregate = (_ecc_block(name, part) for name in ("Volatile", "Aggregate"))
        rows = _block("Remapped Rows", part)
        found.append(
            Faults(
                bus_id=part.split(maxsplit=1)[0],
                uuid=_after("GPU UUID", part),
                corrected=_counted(("Correctable", "Single Bit"), volatile),
                uncorrected=_counted(("Uncorrectable", "Double Bit"), volatile),
                uncorrected_lifetime=_counted(("Uncorrectable", "Double Bit"), aggregate),
                remap_pending=_switch(_after("Pending", rows) or ""),
                remap_failed=_switch(_after("Remapping Failure Occurred", rows) or ""),
            )
        )
    return tuple(found)


def _ecc_block(name: str, part: str) -> str:
    return _block(name, _block("ECC Errors", part))


def _block(name: str, text: str) -> str:
    """The lines below the heading of that name that are indented deeper; empty where none are."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.strip() != name:
            continue
        depth, below = _depth(line), []
        for each in lines[at + 1 :]:
            if each.strip() and _depth(each) <= depth:
                break
            below.append(each)
        return "\n".join(below)
    return ""


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _counted(kinds: tuple[str, str], block: str) -> int | None:
    """Sum of a block's counters of one kind; of the older form its `Total` alone."""
    new, old = kinds
    total = re.search(rf"(?ms)^\s*{old}\n.*?^\s*Total\s*:\s*([0-9]{{1,18}})\s*$", block)
    if total:
        return int(total[1])
    counts = re.findall(rf"(?m)^\s*[SD]RAM {new}\b[^:\n]*:\s*([0-9]{{1,18}})\s*$", block)
    return sum(map(int, counts)) if counts else None


def parse_xids(log: str) -> tuple[Xid, ...]:
    """The driver's errors in the kernel's log, oldest first."""
    return tuple(
        Xid(found[1], int(found[2]), " ".join(found[3].split())[:160])
        for found in map(_XID.search, log.splitlines())
        if found
    )


def profiling_for_admins_only(params: str) -> bool | None:
    """What /proc/driver/nvidia/params says is in force; None: it does not say.

    The option is called NVreg_RestrictProfilingToAdminUsers where it is set, RmProfilingAdminOnly
    where it is read.
    """
    found = re.search(r"(?:RmProfilingAdminOnly|RestrictProfilingToAdminUsers): *([01])\b", params)
    return None if found is None else found[1] == "1"


def profiling_freed_by(options: Iterable[tuple[str, str]]) -> str | None:
    """Name of the modprobe file, among (name, text), that frees the counters for everybody."""
    for name, text in options:
        for line in text.splitlines():
            if re.match(r"\s*options\s+nvidia\S*\s.*NVreg_RestrictProfilingToAdminUsers=0\b", line):
                return name
    return None


CAP_SYS_ADMIN = 21
CAP_PERFMON = 38
"""Bits in /proc/self/status. Source: linux/capability.h."""


def capability(status: str, bit: int, kind: str = "CapEff") -> bool | None:
    """Whether a process has this capability, by its /proc/PID/status; None: it is not said.

    `kind`: `CapEff` for now, `CapBnd` for what it could ever get.
    """
    found = re.search(rf"^{kind}:\s*([0-9A-Fa-f]+)$", status, flags=re.MULTILINE)
    return None if found is None else bool(int(found[1], 16) >> bit & 1)


def _after(label: str, text: str) -> str | None:
    """The first value behind `label   :`, or None where there is none."""
    found = re.search(rf"^\s*{label}\s*: (.+)$", text, flags=re.MULTILINE)
    return None if found is None or found[1].strip() == "N/A" else found[1].strip()
