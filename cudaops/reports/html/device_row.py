"""The row of a device that a record names."""

from __future__ import annotations

from cudaops.cuda import devices
from cudaops.cuda.devices import Device
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError


def device_of(record: RunRecord, name: str) -> Device | None:
    """The record's own row, else the table's; None where neither has it."""
    try:
        if record.device_row is not None:
            kept = devices.from_record(record.device_row)
            if kept.name == name:
                return kept
        return devices.device(name)
    except InputError:
        return None
