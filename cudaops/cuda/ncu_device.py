"""Which device a page of ncu was taken on, where it tells no name.

The details page tells the compute capability alone, which several devices share. What it measured
tells them apart: the number of SMs, and the DRAM bandwidth that its two DRAM rows imply.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaops.cuda import metric_details as details
from cudaops.cuda.devices import DEVICES, Device
from cudaops.domain.profile import Profile

_HALF_DIGIT_PCT = 0.005
"""The details page prints percentages with two decimals."""
_TOLERANCE = 0.10
"""judgement: memory clocks below their maximum, and `gpu__dram_throughput` counting other cycles
than those that move bytes; devices of one capability lie 15 % and more apart, or cannot be told."""


class Likely(NamedTuple):
    """Devices that nothing in the page speaks against, and by what they were told."""

    devices: tuple[Device, ...]
    signs: str


def likely_devices(profile: Profile) -> Likely:
    """Devices with the profile's compute capability, SM count and DRAM bandwidth.

    Empty where the profile names no capability, or none that is known.
    """
    found = re.fullmatch(r"compute capability (\d+)\.(\d+)", profile.device)
    if found is None:
        return Likely((), "")
    capability = (int(found[1]), int(found[2]))
    devices = [d for d in DEVICES.values() if d.compute_capability == capability]
    signs = [profile.device]
    count = profile.get(details.SM_COUNT)
    if count is not None:
        signs.append(f"{count:.0f} SMs")
        devices = [d for d in devices if d.sm_count == count]
    peak = _implied_bandwidth_gb_s(profile)
    if peak is not None:
        low, high = peak
        signs.append(f"a DRAM peak of about {(low + high) / 2:,.0f} GB/s")
        devices = [
            d
            for d in devices
            if low * (1 - _TOLERANCE) <= d.dram_bandwidth_gb_s <= high * (1 + _TOLERANCE)
        ]
    return Likely(tuple(devices), ", ".join(signs))


def _implied_bandwidth_gb_s(profile: Profile) -> tuple[float, float] | None:
    """Between what limits the peak lies, from bytes a second and their share of the peak."""
    rate, share = profile.get(details.DRAM_BYTES_PER_SECOND), profile.get(details.DRAM_THROUGHPUT)
    if rate is None or share is None or share <= 4 * _HALF_DIGIT_PCT:
        return None
    high, low = (1e-7 * rate / (share + half) for half in (-_HALF_DIGIT_PCT, _HALF_DIGIT_PCT))
    return low, high
