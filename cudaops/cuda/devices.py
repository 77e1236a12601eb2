"""Devices by name: the table's, and those that this process has met."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cudaops.cuda.devices_arch import ARCHITECTURES
from cudaops.cuda.devices_base import Architecture, Device
from cudaops.cuda.devices_driver import DriverFacts, described, device_of, matching
from cudaops.cuda.devices_table import DEFAULT_DEVICE_BY_ARCH, DEVICES
from cudaops.errors import InputError

__all__ = [
    "ARCHITECTURES",
    "DEFAULT_DEVICE_BY_ARCH",
    "DEVICES",
    "Architecture",
    "Device",
    "DriverFacts",
    "described",
    "device",
    "device_of",
    "from_record",
    "matching",
    "register",
    "to_record",
]

_met: dict[str, Device] = {}


def device(name: str) -> Device:
    """The device of this short name, full name, nvcc target or compute capability, in any case;
    or exactly the name of one that was registered.

    A target (`sm_86`) or capability (`compute capability 8.6`, all that ncu's details page tells)
    stands for the architecture's device in DEFAULT_DEVICE_BY_ARCH.

    Raises:
        InputError: no such device; names the known ones and the nearest.
    """
    if name in _met:
        return _met[name]
    wanted = _folded(name)
    for row in DEVICES.values():
        if wanted in (_folded(row.name), _folded(row.full_name)):
            return row
    arch = re.sub(r"^compute capability (\d+)\.(\d)$", r"sm_\1\2", name.lower()).rstrip("af")
    by_arch = DEFAULT_DEVICE_BY_ARCH.get(arch)
    if by_arch is not None:
        return DEVICES[by_arch]
    near = difflib.get_close_matches(wanted, {_folded(n): n for n in DEVICES}, n=1, cutoff=0.4)
    hint = f", did you mean {next(n for n in DEVICES if _folded(n) == near[0])}" if near else ""
    raise InputError(f"unknown device {name!r}{hint}; known: {', '.join((*DEVICES, *_met))}")


def register(row: Device) -> Device:
    """Make `device` know this row by its name, in this process; a row of the table needs it not.

    Whoever opens a GPU registers what `device_of` made of it; whoever reads a record that names a
    device outside of the table registers the record's row.
    """
    if row.name not in DEVICES:
        _met[row.name] = row
    return row


def to_record(row: Device) -> dict[str, Any] | None:
    """The row for a record in JSON, None where the table has it: its name is enough then."""
    return None if DEVICES.get(row.name) == row else _adapter().dump_python(row, mode="json")


def from_record(kept: Mapping[str, Any]) -> Device:
    """The row that `to_record` wrote.

    Raises:
        InputError: it is not such a row.
    """
    try:
        return _adapter().validate_python(dict(kept))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InputError(
            f"the record's device cannot be read: {where}: {error.errors()[0]['msg']}"
        ) from error


@cache
def _adapter() -> TypeAdapter[Device]:
    return TypeAdapter(Device)


def _folded(name: str) -> str:
    words = name.lower().replace("-", " ").split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))
