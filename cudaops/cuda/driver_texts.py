"""What the NVIDIA driver and the kernel say in their own files and logs, as facts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


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
