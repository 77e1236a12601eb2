"""Profile: metrics of one launch, each with unit and source; Verdict: what they mean."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cudaops.domain.base import Record, SourceLocation

MetricSource = Literal["ncu", "cupti", "cuda_event", "ptxas", "modelled", "launch"]
"""`launch`: a fact of the launch itself (grid, block); `modelled`: counted or computed here."""

Provenance = Literal["measured", "modelled", "mixed"]
"""`measured`: every metric from ncu. `mixed`: the time is measured and what the compiler says is
ptxas's, but the counts are a model's, because ncu could not read the GPU's counters."""


class Metric(Record):
    """One number about a launch."""

    name: str
    """ncu's name, as in `cudaops.cuda.metrics.METRICS` where the table knows it; for a row of the
    details page that it does not know, `section / label`."""
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
    """What it does: `global load, 4.0 sectors/request`."""


class NvidiaRule(Record):
    """What one of Nsight Compute's own rules said about a launch."""

    section: str
    name: str
    """ncu's identifier of the rule: `SOLBottleneck`."""
    type: str
    """`INF`, `OPT` (an optimisation), `WRN` or `ERR`."""
    text: str
    estimated_speedup_pct: float | None = None
    """ncu's own estimate of the share of time that could be saved; None where it gave none."""
    speedup_scope: Literal["global", "local"] | None = None
    """`local`: of the part the rule looks at, not of the launch."""
    agrees_with: str | None = None
    """Subtype of the verdict or finding of ours that says the same; None where none does, and in a
    Profile, which holds no findings."""


class Profile(Record):
    """What is known about one launch on one device. A metric not listed is unknown."""

    kernel: str
    device: str
    """Key in `cudaops.cuda.devices.DEVICES` or the name ncu reports."""
    workload: str | None = None
    source: Provenance
    duration_us: float
    metrics: dict[str, Metric]
    texts: dict[str, str] = Field(default_factory=dict)
    """Metrics that are words, by the same names: cache configuration, cluster policy."""
    hot_lines: tuple[HotLine, ...] = ()
    nvidia_rules: tuple[NvidiaRule, ...] = ()
    """Empty where ncu did not profile the launch, or its rules are not in what was read."""
    notes: tuple[str, ...] = ()
    """Caveats of these numbers: sampled blocks, estimated registers."""

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
    gain_at_most_pct: float | None = None
    """Share of the launch's time that removing it saves at most, 0-100 (`cudaops.cuda.gains`);
    None where that cannot be told, and in records of before."""
    then: str = ""
    """What the rest waits for, with its share of the time: `FP64 pipe 88 %`."""

    @property
    def gain(self) -> str:
        """The bound in words; empty where there is none."""
        if self.gain_at_most_pct is None:
            return ""
        saved = f"saves at most {self.gain_at_most_pct:.0f} % of the time"
        return f"removing this limit alone {saved} (next limit: {self.then})"


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
    hot_lines: tuple[HotLine, ...] = ()
    """Up to three lines that cost most, hottest first; empty where nothing tells lines apart."""
    nvidia_rules: tuple[NvidiaRule, ...] = ()
    """Nsight Compute's own rules, those that say the same as a finding marked with it."""
    source: Provenance
    drawn_from: str = ""
    """How many metrics came from where: `11 of the launch, 8 from ptxas, 96 modelled`."""

    @property
    def gain(self) -> str:
        """What removing the cause saves at most; empty where that cannot be told."""
        return self.findings[0].gain if self.findings else ""
