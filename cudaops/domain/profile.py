"""Profile: metrics of one launch, each with unit and source; Verdict: what they mean."""

from __future__ import annotations

from typing import Literal

from cudaops.domain.base import Record, SourceLocation

MetricSource = Literal["ncu", "cupti", "ptxas", "modelled", "launch"]
"""`launch`: a fact of the launch itself (grid, block); `modelled`: counted or computed here."""


class Metric(Record):
    """One number about a launch."""

    name: str
    """ncu's name, as in `cudaops.cuda.metrics.METRICS`."""
    value: float
    unit: str
    source: MetricSource


class HotLine(Record):
    """A source line and what it costs."""

    location: SourceLocation
    text: str
    share_pct: float
    """Share of the limiting resource's use that this line causes, 0-100."""
    note: str
    """What it does: `global load, 4.0 sectors a request`."""


class Profile(Record):
    """What is known about one launch on one device. A metric not listed is unknown."""

    kernel: str
    device: str
    """Key in `cudaops.cuda.devices.DEVICES` or the name ncu reports."""
    workload: str | None = None
    source: Literal["measured", "modelled"]
    duration_us: float
    metrics: dict[str, Metric]
    hot_lines: tuple[HotLine, ...] = ()
    notes: tuple[str, ...] = ()
    """What limits trust in these numbers: sampled blocks, estimated registers."""

    def get(self, name: str) -> float | None:
        """The metric's value, None where it was not collected."""
        metric = self.metrics.get(name)
        return None if metric is None else metric.value


class Evidence(Record):
    """One comparison a verdict rests on."""

    metric: str
    label: str
    value: float
    unit: str
    comparison: Literal[">=", "<=", ">", "<", "=="]
    threshold: float
    source: str
    """Where the threshold comes from."""


BottleneckClass = Literal[
    "compute_bound", "memory_bound", "latency_bound", "launch_bound", "near_peak", "unknown"
]


class Roofline(Record):
    """Distance to the device's limits for the work the kernel must do."""

    flops: float
    """Floating-point operations counted (an FMA is two)."""
    dram_bytes: float
    arithmetic_intensity_flop_per_byte: float
    attained_gflops: float
    peak_gflops: float
    peak_bandwidth_gb_s: float
    bound: Literal["compute", "memory"]
    floor_us: float
    """Shortest time the device allows: the larger of flops/peak and bytes/bandwidth."""
    attained_pct: float
    """floor_us / duration_us * 100."""


class Finding(Record):
    """One rule that fired."""

    rule: str
    severity: Literal["info", "warning", "critical"]
    subtype: str
    bottleneck_class: BottleneckClass
    text: str
    relief: str
    evidence: tuple[Evidence, ...]


class Verdict(Record):
    """What limits the kernel."""

    bottleneck_class: BottleneckClass
    subtype: str
    """Key in `cudaops.cuda.subtypes.SUBTYPES`: `l1_load_throughput`, `dram_bandwidth`, ..."""
    summary: str
    """One sentence a person reads first."""
    evidence: tuple[Evidence, ...]
    relief: str
    findings: tuple[Finding, ...] = ()
    """Every rule that fired, in the order that decides; the verdict is the first."""
    roofline: Roofline | None = None
    """None where flops or bytes are unknown."""
    source: Literal["measured", "modelled"]
