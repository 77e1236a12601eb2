"""What the code knows, as notes: made anew from its tables, so that they cannot differ."""

from __future__ import annotations

from cudaops.cuda.devices import DEVICES, Device
from cudaops.rag.notes import BUILTIN, Note

SOURCE = "cudaops' table of devices; each row's own source ends its passage"


def house_notes() -> list[Note]:
    """One, on the devices of the table, a section each: of a note few passages are cited."""
    body = "\n".join(map(_section, DEVICES.values()))
    return [Note("devices", BUILTIN, "reference", "Devices", (), (), (SOURCE,), body)]


def _section(device: Device) -> str:
    """The limits of its SMs stand in the note `sm-limits`."""
    major, minor = device.compute_capability
    return (
        f"## {device.name}: number of SMs, clock, bandwidth\n"
        f"{device.full_name}, compute capability {major}.{minor}: "
        f"{device.sm_count} SMs at {device.sm_clock_mhz:.0f} MHz ({device.sm_clock_kind}), "
        f"{device.memory_gb:g} GB at {device.dram_bandwidth_gb_s:.0f} GB/s, "
        f"L2 of {device.l2_bytes >> 20} MiB, at most {device.peak_fp32_gflops / 1000:.1f} TFLOP/s "
        f"in single and {device.peak_fp64_gflops / 1000:.2f} in double precision.\n"
        f"Source: {device.source}\n"
    )
