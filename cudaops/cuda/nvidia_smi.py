"""What nvidia-smi prints, as facts: pure functions of its text, nothing is started here.

A cell that says it has no value stays missing, a row that does not have exactly the shape that was
asked for is refused: an absent fact may be shown, a wrong one may not. Exit codes are not relied
upon: nvidia-smi ends with 0 although one of several GPUs did not answer.

Sources: `nvidia-smi --help-query-gpu` and `--help-query-compute-apps` (names and units of fields),
NVML API reference, `nvmlReturn_t` (nvidia-smi's exit codes) and `nvmlClocksEventReasons`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from cudaops.cuda.nvidia_smi_failures import NvidiaSmiFailure, failure_in


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One row of `--query-gpu`. None: nvidia-smi gave no value for it."""

    index: int
    """In the order of the PCI bus, which need not be CUDA's."""
    name: str
    uuid: str | None
    bus_id: str | None
    count: int | None
    """GPUs in the system, answering or not."""
    driver_version: str | None
    compute_capability: tuple[int, int] | None
    memory_total_mib: int | None
    memory_used_mib: int | None
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
    absent: Mapping[str, str] = field(default_factory=dict)
    """Field to what was printed instead of a value: `[N/A]`, `[GPU requires reset]`."""

    @property
    def needs_reset(self) -> bool:
        """The GPU itself says that nothing runs on it before a reset."""
        return any("requires reset" in text.lower() for text in self.absent.values())


class ComputeApp(NamedTuple):
    """A process that holds a CUDA context, as far as this machine's namespace lets it be seen."""

    gpu_uuid: str
    pid: int
    used_mib: int | None
    name: str
    """Path of the program; `[Not Found]` where the process belongs to another container."""


class Answer(NamedTuple):
    """The GPUs that answered, and what was said about those that did not."""

    gpus: tuple[Gpu, ...]
    failure: NvidiaSmiFailure | None = None
    """Of a GPU that did not answer, beside others that did."""
    unread: tuple[str, ...] = ()
    """Lines that are neither a row nor a known message."""


CLOCK_REASONS: Mapping[int, str] = MappingProxyType({
    0x001: "idle", 0x002: "clocks set by the user", 0x004: "power cap", 0x008: "hardware slowdown",
    0x010: "sync boost", 0x020: "thermal slowdown by software", 0x040: "thermal slowdown",
    0x080: "power brake", 0x100: "clocks set for a display",
})  # fmt: skip
"""Source: nvml.h, `nvmlClocksEventReason*`."""
SLOWING = 0x008 | 0x020 | 0x040 | 0x080
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


def _capability(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    return (int(found[1]), int(found[2])) if found else None


def _switch(text: str) -> bool | None:
    words = {"enabled": True, "disabled": False, "yes": True, "no": False, "1": True, "0": False}
    return words.get(text.lower())


class _Field(NamedTuple):
    attribute: str
    read: Callable[[str], object]


_BUS_ID = re.compile(r"[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]", re.IGNORECASE)

FIELDS: Mapping[str, _Field] = MappingProxyType({
    "index": _Field("index", _integer),
    "name": _Field("name", _word),
    "uuid": _Field("uuid", _matching(r"(GPU|MIG)-[0-9A-Fa-f/-]{8,80}")),
    "count": _Field("count", _integer),
    "driver_version": _Field("driver_version", _matching(r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}")),
    "compute_cap": _Field("compute_capability", _capability),
    "memory.total": _Field("memory_total_mib", _integer),
    "memory.used": _Field("memory_used_mib", _integer),
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
RENAMED = MappingProxyType({"clocks_event_reasons.active": "clocks_throttle_reasons.active"})
"""What drivers before R535 call a field."""

QUERY: tuple[str, ...] = tuple(name for name in FIELDS if name not in RENAMED.values())
"""Index first and bus id last: both have a shape of their own, so that a row which lost its head or
its tail is recognised."""
APPS: tuple[str, ...] = ("gpu_uuid", "pid", "used_memory", "process_name")
"""The name last: it may hold commas."""

_ABSENT = re.compile(r"\[[^\]]*\]|N/A|ERR!|Unknown Error|Not Supported", re.IGNORECASE)
_INVALID = re.compile(r'Field "([\w.]+)" is not a valid field to query')


def gpu_command(program: str, fields: Sequence[str] = QUERY) -> list[str]:
    """`nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""
    return [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def apps_command(program: str) -> list[str]:
    """The same for the processes that hold a CUDA context."""
    return [program, f"--query-compute-apps={','.join(APPS)}", "--format=csv,noheader,nounits"]


def without_invalid_field(text: str, fields: Sequence[str]) -> tuple[str, ...] | None:
    """The fields to ask for next where this driver does not know one of them; None: it knew all.

    nvidia-smi names one such field and prints no row.
    """
    found = _INVALID.search(text)
    if found is None or found[1] not in fields:
        return None
    older = RENAMED.get(found[1])
    renamed = (older if name == found[1] else name for name in fields)
    return tuple(name for name in renamed if name is not None)


def parse_gpus(
    stdout: str, fields: Sequence[str] = QUERY, *, stderr: str = "", exit_code: int = 0
) -> Answer:
    """The rows of `gpu_command(fields)`.

    Raises NvidiaSmiFailure where there is no row to read.
    """
    gpus: list[Gpu] = []
    unread: list[str] = []
    for line in stdout.splitlines(keepends=True):
        gpu = _row(line, fields)
        if gpu is not None and all(gpu.index != other.index for other in gpus):
            gpus.append(gpu)
        elif line.strip() and failure_in(line) is None:
            unread.append(line.strip())
    failure = failure_in(f"{stdout}\n{stderr}", 0 if gpus else exit_code)
    if not gpus:
        raise failure or NvidiaSmiFailure.unreadable(stdout + stderr, exit_code)
    return Answer(tuple(gpus), failure, tuple(unread))


def parse_apps(text: str) -> tuple[ComputeApp, ...]:
    """The rows of `apps_command`; a line that is none is left out, so the list may be short."""
    found = []
    for line in text.splitlines(keepends=True):
        cells = [cell.strip() for cell in line.split(",", len(APPS) - 1)]
        if not line.endswith("\n") or len(cells) != len(APPS):
            continue
        pid = _integer(cells[1])
        if FIELDS["uuid"].read(cells[0]) and pid is not None and cells[3]:
            found.append(ComputeApp(cells[0], pid, _integer(cells[2]), cells[3]))
    return tuple(found)


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Names of the reasons that hold the clocks, lowest bit first; unknown ones as numbers."""
    known = [name for bit, name in CLOCK_REASONS.items() if bits & bit]
    rest = bits & ~sum(CLOCK_REASONS)
    return (*known, f"{rest:#x}") if rest else tuple(known)


def _row(line: str, fields: Sequence[str]) -> Gpu | None:
    """The GPU of one line; None where the line is not exactly one whole row."""
    cells = [cell.strip() for cell in line.split(",")]
    if not line.endswith("\n") or len(cells) != len(fields):
        return None
    values: dict[str, object] = dict.fromkeys(f.name for f in dataclasses.fields(Gpu))
    absent: dict[str, str] = {}
    for name, cell in zip(fields, cells, strict=True):
        value = None if _ABSENT.fullmatch(cell) else FIELDS[name].read(cell)
        values[FIELDS[name].attribute] = value
        if value is None:
            absent[name] = cell
    if values["index"] is None or values["name"] is None:
        return None
    if fields[-1] == "pci.bus_id" and values["bus_id"] is None:
        return None
    values["absent"] = MappingProxyType(absent)
    return Gpu(**values)  # type: ignore[arg-type]
