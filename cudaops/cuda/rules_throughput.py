"""Rules for a unit of the chip that is busy: pipes, issue, caches, device memory."""

from __future__ import annotations

from cudaops.cuda import facts as derived
from cudaops.cuda import metric_counters as counters
from cudaops.cuda import metric_details as details
from cudaops.cuda.rule import Condition, Rule
from cudaops.cuda.subtypes import Subtype

BUSY_PCT = 80.0
BUSY_SOURCE = (
    "Nsight Compute's SOLBottleneck rule: above 80 % of peak a unit is the limit "
    "(its text in tests/data/ncu)"
)
STRAINED_PCT = 60.0
STRAINED_SOURCE = (
    "Nsight Compute's SOLBottleneck rule: below 60 % of both compute and memory peak a kernel is "
    "limited by latency, so from 60 % up by the unit"
)
IDLE_DRAM_PCT = 40.0
IDLE_DRAM_SOURCE = (
    "judgement: half of what counts as busy; the captured naive product shows 0.4 %, the A10 run "
    "of seed document 000 1.5 %"
)

_PIPE = 20
_PATH = 40
_STRAINED = 50


def _unit_rules(
    subtype: Subtype,
    fact: str,
    text: str,
    priority: int,
    *,
    extra: tuple[Condition, ...] = (),
    unless: tuple[Condition, ...] = (),
    also: tuple[tuple[str, str], ...] = (),
    suffix: str = "",
) -> tuple[Rule, Rule]:
    """A critical rule at 80 % and a warning at 60 %; the warning is silent at 80 %."""
    busy = Rule(
        id=f"{subtype}{suffix}",
        subtype=subtype,
        priority=priority,
        severity="critical",
        conditions=(Condition(fact, ">=", BUSY_PCT, BUSY_SOURCE), *extra),
        text=text,
        unless=unless,
        also=also,
    )
    strained = busy._replace(
        id=f"{subtype}{suffix}_strained",
        priority=_STRAINED,
        severity="warning",
        conditions=(
            Condition(fact, ">=", STRAINED_PCT, STRAINED_SOURCE),
            *extra,
            Condition(fact, "<", BUSY_PCT, BUSY_SOURCE),
        ),
    )
    return busy, strained


_DRAM_IDLES = Condition(details.DRAM_THROUGHPUT, "<=", IDLE_DRAM_PCT, IDLE_DRAM_SOURCE)
_AND_FMA = ((counters.PIPE_FMA, " and the FMA pipe runs at {} %"),)
_MOSTLY_SHARED = Condition(
    counters.SHARED_DATA_PIPE, ">=", 50.0,
    "judgement: half of the data path's peak goes to shared memory",
)  # fmt: skip

COMPUTE_RULES: tuple[Rule, ...] = (
    *_unit_rules("tensor_pipe", counters.PIPE_TENSOR, "the tensor pipe is at {0} %", _PIPE),
    *_unit_rules("fp64_pipe", counters.PIPE_FP64, "the FP64 pipe is at {0} %", _PIPE),
    *_unit_rules("sfu_pipe", counters.PIPE_XU, "the special-function (XU) pipe is at {0} %", _PIPE),
    *_unit_rules("fma_pipe", counters.PIPE_FMA, "the FMA pipe is at {0} %", _PIPE),
    *_unit_rules("integer_pipe", counters.PIPE_ALU, "the integer (ALU) pipe is at {0} %", _PIPE),
    Rule(
        id="issue_slots",
        subtype="issue_slots",
        priority=_PIPE + 1,
        severity="critical",
        conditions=(Condition(details.ISSUE_SLOTS_BUSY, ">=", BUSY_PCT, BUSY_SOURCE),),
        text="{0} % of the issue slots are used",
    ),
)
"""A busy pipe is the work itself, so it is named before what feeds it."""

PATH_RULES: tuple[Rule, ...] = (
    *_unit_rules(
        "dram_bandwidth", details.DRAM_THROUGHPUT, "DRAM is at {0} % of its peak", _PATH,
        also=((details.L2_HIT_RATE, " with an L2 hit rate of {} %"),),
    ),
    *_unit_rules(
        "l2_bandwidth", details.L2_THROUGHPUT, "L2 is at {0} % while DRAM is at {1} %", _PATH + 1,
        extra=(Condition(details.DRAM_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),),
    ),
    *_unit_rules(
        "shared_throughput", details.L1_THROUGHPUT,
        "L1/TEX is at {0} %, shared memory alone takes {1} % of its data path", _PATH + 2,
        extra=(_MOSTLY_SHARED,), also=_AND_FMA,
    ),
    *_unit_rules(
        "l1_load_throughput", details.L1_THROUGHPUT,
        "L1/TEX is at {0} % while DRAM idles at {1} %", _PATH + 3,
        extra=(_DRAM_IDLES,), unless=(_MOSTLY_SHARED,), also=_AND_FMA,
    ),
    *_unit_rules(
        "l1_load_throughput", counters.PIPE_LSU,
        "the load/store pipe is at {0} % while DRAM idles at {1} %", _PATH + 4,
        extra=(_DRAM_IDLES,), unless=(_MOSTLY_SHARED,), also=_AND_FMA, suffix="_lsu",
    ),
)  # fmt: skip
"""Farthest memory first: what saturates DRAM also keeps the caches before it busy."""

OVERALL_RULES: tuple[Rule, ...] = (
    Rule(
        id="launch_bound",
        subtype="launch_bound",
        priority=0,
        severity="critical",
        conditions=(
            Condition(
                details.DURATION, "<=", 4.0,
                "judgement: a launch itself costs about 2 to 4 us on current drivers, so a kernel "
                "this short spends as long being started",
            ),
        ),
        text="the kernel takes {0} us, about what a launch costs",
    ),
    Rule(
        id="near_peak_compute",
        subtype="near_peak",
        priority=10,
        severity="info",
        conditions=(
            Condition(
                derived.COMPUTE_ATTAINED, ">=", 80.0,
                "judgement: well-tuned libraries reach 80 to 95 % of the arithmetic peak; above "
                "that tuning has little left to give",
            ),
        ),
        text="its operations run at {0} % of the device's arithmetic peak",
    ),
    Rule(
        id="near_peak_memory",
        subtype="near_peak",
        priority=39,
        severity="info",
        conditions=(
            Condition(
                derived.MEMORY_ATTAINED, ">=", 85.0,
                "judgement: plain copies reach about 90 % of the published DRAM bandwidth",
            ),
        ),
        text="the bytes it moves cross DRAM at {0} % of its published bandwidth",
    ),
)  # fmt: skip
"""`near_peak_memory` comes after the causes: wasted bytes at full bandwidth are not a peak."""
