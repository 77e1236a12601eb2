"""The roofline: what a device allows for a kernel's operations and bytes, and what it reached.

Both axes are logarithmic. A memory roof is bandwidth times intensity, the compute roof the peak of
the arithmetic that was counted (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009). A point
of a level has the intensity of that level's bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cudaops.cuda import devices
from cudaops.cuda import metrics as ncu
from cudaops.cuda import roofline as limits
from cudaops.cuda.devices import Device
from cudaops.domain.profile import Profile, Roofline, Verdict
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.reports.html.scale import LogScale, Tick, log_scale, placeable
from cudaops.reports.profiles import time_clock
from cudaops.reports.quantities import Clock, significant

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 30, 50
_ROOM = 3.0
"""Factor left free around the outermost points and the ridge: half a decade, for the labels."""


class Point(NamedTuple):
    """One launch under one roof."""

    who: str
    """`author's kernel`, `best rewrite`."""
    best: bool
    level: str
    """`DRAM` or `L2`."""
    intensity: float
    """FLOP a byte of that level."""
    gflops: float
    roof_gflops: float
    """What the roofs allow at this intensity."""
    source: str

    @property
    def share_pct(self) -> float:
        """Of what the roofs allow."""
        return 100.0 * self.gflops / self.roof_gflops


class Roof(NamedTuple):
    """One limit of the device."""

    name: str
    """`DRAM`, `L2`, `FP32`."""
    value: str
    """`600 GB/s`."""
    start: tuple[float, float]
    end: tuple[float, float]
    at: tuple[float, float]
    """Point of the line that its name belongs to."""
    shift: float
    """From there to the name's base line, down, before it is turned."""
    angle: float
    """Of the name, degrees."""
    anchor: str


class RooflinePoint(NamedTuple):
    """A point in the drawing."""

    point: Point
    x: float
    y: float
    roof_y: float
    label: str
    label_x: float
    label_y: float
    anchor: str


class RooflineLayout(NamedTuple):
    """All places of the chart."""

    x_ticks: list[Tick]
    y_ticks: list[Tick]
    roofs: list[Roof]
    marks: list[RooflinePoint]
    step: tuple[float, float, float, float] | None
    """From the author's kernel to the best rewrite."""
    source: str
    """Behind every point: `modelled for A10`; where they differ the table says it."""
    summary: str
    """The drawing in words."""


class RooflineView(NamedTuple):
    """The chart, its numbers, and what is missing from it."""

    drawing: RooflineLayout | None
    points: list[Point]
    roofs_from: str
    missing: list[str]


class _Seen(NamedTuple):
    who: str
    best: bool
    profile: Profile
    line: Roofline


def view(record: RunRecord) -> RooflineView:
    """The device's roofs with what the author's kernel and the best rewrite reached."""
    if record.profile is None:
        return RooflineView(None, [], "", ["The kernel was not profiled, so there is no point."])
    device = device_of(record, record.profile.baseline.device)
    missing: list[str] = []
    seen: list[_Seen] = []
    given: list[tuple[str, bool, Profile | None, Verdict | None]] = [
        ("author's kernel", False, record.profile.baseline, record.profile.verdict_detail),
        ("best rewrite", True, record.profile.best, record.profile.best_verdict),
    ]
    for who, best, profile, verdict in given:
        if profile is None:
            if record.best is not None:
                missing.append(f"{who}: it was not profiled.")
            continue
        line = _line(profile, verdict, device)
        if line is None:
            missing.append(f"{who}: {_why_none(profile, device)}")
        else:
            seen.append(_Seen(who, best, profile, line))
    if device is None:
        missing.append(
            f"{record.profile.baseline.device} is not in the device table: only recorded roofs."
        )
    elif device.l2_bandwidth_gb_s is None:
        missing.append(f"L2 roof of {device.name}: width or clock of its L2 has no source.")
    if not seen:
        return RooflineView(None, [], "", missing)
    points, without = _points(seen, device)
    return RooflineView(
        _drawing(seen, points, device),
        points,
        f"Roofs: {device.full_name} at {significant(device.sm_clock_mhz)} MHz. {device.source}."
        if device is not None
        else "Roofs: as recorded with the verdict.",
        [*missing, *without],
    )


def _line(profile: Profile, verdict: Verdict | None, device: Device | None) -> Roofline | None:
    """As recorded; where no verdict was drawn, from the metrics by the same rule."""
    if verdict is not None and verdict.roofline is not None:
        found = verdict.roofline
    elif verdict is None and device is not None:
        computed = limits.roofline(profile, device)
        if computed is None:
            return None
        found = computed
    else:
        return None
    positive = (
        found.arithmetic_intensity_flop_per_byte, found.attained_gflops,
        found.peak_gflops, found.peak_bandwidth_gb_s,
    )  # fmt: skip
    return found if all(placeable(value) for value in positive) else None


def _why_none(profile: Profile, device: Device | None) -> str:
    if limits.flops(profile, "f") is None:
        return "floating-point operations were not counted."
    if limits.dram_bytes(profile) is None:
        return "bytes from and to DRAM were not counted."
    if device is None:
        return f"the peaks of {profile.device} are unknown."
    return (
        "no operation of single or double precision was counted, or tensor or half-precision "
        "instructions did work that the device table has no peak for."
    )


def _points(seen: list[_Seen], device: Device | None) -> tuple[list[Point], list[str]]:
    found, missing = [], []
    l2_rate = device.l2_bandwidth_gb_s if device is not None else None
    for one in seen:
        line, source = one.line, _source(one.profile)

        def point(
            level: str, rate: float, moved: float, one: _Seen = one, source: str = source
        ) -> Point:
            intensity = one.line.flops / moved
            roof = min(one.line.peak_gflops, rate * intensity)
            gflops = one.line.attained_gflops
            return Point(one.who, one.best, level, intensity, gflops, roof, source)

        moved = line.flops / line.arithmetic_intensity_flop_per_byte
        found.append(point("DRAM", line.peak_bandwidth_gb_s, moved))
        if device is None or l2_rate is None:
            continue
        read = one.profile.get(ncu.L2_READ_SECTORS)
        written = one.profile.get(ncu.L2_WRITE_SECTORS)
        if read is None or written is None or not read + written > 0:
            missing.append(f"{one.who}: sectors of L2 were not counted, so L2 has no point.")
            continue
        at_l2 = point("L2", l2_rate, (read + written) * device.sector_bytes)
        if placeable(at_l2.intensity) and placeable(at_l2.roof_gflops):
            found.append(at_l2)
    return found, missing


def _source(profile: Profile) -> str:
    """Whose the operations are, and whose the time, where they differ."""
    counts, time = str(Clock(profile.source, profile.device)), str(time_clock(profile))
    return counts if profile.source in ("mixed", "modelled") else time


def _drawing(seen: list[_Seen], points: list[Point], device: Device | None) -> RooflineLayout:
    peaks = sorted({(_peak_name(one.line.peak_gflops, device), one.line.peak_gflops)
                    for one in seen})  # fmt: skip
    rates = [("DRAM", seen[0].line.peak_bandwidth_gb_s)]
    if any(point.level == "L2" for point in points) and device is not None:
        rates.append(("L2", device.l2_bandwidth_gb_s or 0.0))
    top = max(peak for _, peak in peaks)
    ridges = [peak / rate for _, peak in peaks for _, rate in rates]
    shown = log_scale([*(p.intensity for p in points), *ridges], 0, 1, margin=_ROOM)
    x = LogScale(_left_of(max(ridges), shown), shown.high, LEFT, WIDTH - RIGHT)
    y = log_scale([*(p.gflops for p in points), top], HEIGHT - BOTTOM, TOP, margin=_ROOM)
    highest = max(rate for _, rate in rates)
    roofs = [_memory_roof(name, rate, top, x, y, rate < highest) for name, rate in rates]
    roofs += [_compute_roof(name, peak, highest, x, y) for name, peak in peaks]
    marks = [_mark(point, points, x, y) for point in points]
    dram = {m.point.best: m for m in marks if m.point.level == "DRAM"}
    step = (dram[False].x, dram[False].y, dram[True].x, dram[True].y) if len(dram) == 2 else None
    sources = {point.source for point in points}
    said = "; ".join(
        f"{p.who}, {p.level}: {significant(p.gflops, 3)} GFLOP/s at "
        f"{significant(p.intensity, 3)} FLOP/byte, {significant(p.share_pct, 3)} % of the roof, "
        f"{p.source}"
        for p in points
    )
    return RooflineLayout(
        x.ticks(), y.ticks(), roofs, marks, step,
        sources.pop() if len(sources) == 1 else "sources in the table", said,
    )  # fmt: skip


def _left_of(ridge: float, shown: LogScale) -> float:
    """Lowest intensity, such that the memory roofs take at least 30 % of the axis."""
    return min(shown.low, ridge * math.pow(ridge / shown.high, 0.3 / 0.7))


def _peak_name(peak_gflops: float, device: Device | None) -> str:
    for name, peak in (
        (("FP32", device.peak_fp32_gflops), ("FP64", device.peak_fp64_gflops)) if device else ()
    ):
        if math.isclose(peak, peak_gflops, rel_tol=1e-3):
            return name
    return "arithmetic"


def _memory_roof(name: str, rate: float, top: float, x: LogScale, y: LogScale, below: bool) -> Roof:
    """From the lower or left edge up to the highest compute roof; `below`: where the name stands,
    another roof being above."""
    first = max(x.low, y.low / rate)
    last = min(x.high, top / rate)
    start, end = (x(first), y(first * rate)), (x(last), y(last * rate))
    angle = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
    middle = math.sqrt(first * last)
    at = (x(middle), y(middle * rate))
    value = f"{significant(rate / 1e3, 3)} TB/s" if rate >= 1e3 else f"{significant(rate)} GB/s"
    return Roof(name, value, start, end, at, 15 if below else -6, round(angle, 1), "middle")


def _compute_roof(name: str, peak: float, rate: float, x: LogScale, y: LogScale) -> Roof:
    start, end = (x(max(x.low, peak / rate)), y(peak)), (x(x.high), y(peak))
    at = (end[0] - 4, end[1])
    value = f"{significant(peak / 1e3, 3)} TFLOP/s" if peak >= 1e3 else f"{peak:.3g} GFLOP/s"
    return Roof(name, value, start, end, at, -6, 0.0, "end")


def _mark(point: Point, others: list[Point], x: LogScale, y: LogScale) -> RooflinePoint:
    """The label stands on the free side: below the lower point, above the upper one."""
    at_x, at_y = x(point.intensity), y(point.gflops)
    faster = max(p.gflops for p in others)
    upper = point.gflops >= faster and point.best
    anchor = "end" if at_x > LEFT + 0.55 * (WIDTH - LEFT) else "start"
    label_x = at_x + (-11 if anchor == "end" else 11)
    label_y = at_y + (-9 if upper and point.level == "DRAM" else 19)
    if point.level == "L2":
        anchor, label_x, label_y = "middle", at_x, at_y + (-12 if point.best else 19)
    label = "L2" if point.level == "L2" else f"{point.who}, {significant(point.share_pct, 3)} %"
    return RooflinePoint(
        point, at_x, at_y, y(point.roof_gflops), label, round(label_x, 1), round(label_y, 1), anchor
    )


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
