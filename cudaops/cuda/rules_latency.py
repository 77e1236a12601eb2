"""Rules for kernels in which no unit is busy: too little in flight, and what warps wait for."""

from __future__ import annotations

from cudaops.cuda import facts as derived
from cudaops.cuda import metric_details as details
from cudaops.cuda.rule import Condition, Rule
from cudaops.cuda.rules_throughput import STRAINED_PCT, STRAINED_SOURCE
from cudaops.cuda.subtypes import Subtype

_GRID = 60
_OCCUPANCY = 65
_STALL = 70
_LAST = 80

_NOT_FILLED = Condition(
    details.WAVES, "<", 1.0, "such a grid leaves the limit unused, whatever it is"
)
_LOW_OCCUPANCY = "judgement: half of the warp slots; above, more warps seldom help"
_IDLE = Condition(
    derived.IDLE_ISSUE, ">=", 50.0, "judgement: only a scheduler that idles can use more warps"
)


def _occupancy(subtype: Subtype, slack: str, what: str, threshold: float) -> Rule:
    return Rule(
        id=subtype,
        subtype=subtype,
        priority=_OCCUPANCY,
        severity="warning",
        conditions=(
            Condition(details.THEORETICAL_OCCUPANCY, "<=", threshold, _LOW_OCCUPANCY),
            Condition(slack, "==", 0.0, "the tightest of the limits"),
            _IDLE,
        ),
        unless=(_NOT_FILLED,),
        text=f"{what} let an SM hold {{0}} % of its warps, and {{2}} % of the issue slots are idle",
        also=((details.REGISTERS, " ({} registers a thread)"),)
        if subtype == "occupancy_registers"
        else (),
    )


_CPI_STALL = (
    "Nsight Compute's CPIStall rule, as its captures in tests/data/ncu show it: 35 and 36 % of the "
    "cycles between two instructions are reported, 22 % are not"
)


def _stall(subtype: Subtype, fact: str, what: str, threshold: float, source: str) -> Rule:
    return Rule(
        id=subtype,
        subtype=subtype,
        priority=_STALL,
        severity="warning",
        conditions=(Condition(fact, ">=", threshold, source),),
        text=f"warps spend {{0}} % of their time {what}",
        also=((details.ACHIEVED_WARPS, ", with {} warps resident on an SM"),),
    )


STRUCTURE_RULES: tuple[Rule, ...] = (
    Rule(
        id="occupancy_grid",
        subtype="occupancy_grid",
        priority=_GRID,
        severity="critical",
        conditions=(
            Condition(
                details.WAVES, "<", 1.0,
                "Nsight Compute's SOLBottleneck rule: a grid of less than one full wave is too "
                "small (its text in tests/data/ncu)",
            ),
        ),
        text="the grid is only {0} of what the device holds at once",
        also=(
            (details.GRID_SIZE, " ({} blocks)"),
            (details.ACHIEVED_WARPS, ", an SM holds {} warps"),
            (derived.IDLE_ISSUE, " and {} % of the issue slots are idle"),
        ),
    ),
    Rule(
        id="tail_effect",
        subtype="tail_effect",
        priority=_GRID + 1,
        severity="warning",
        conditions=(
            Condition(
                derived.IDLE_WAVE_SLOTS, ">=", 20.0,
                "judgement: a fifth of all block slots; Nsight Compute reports the longest "
                "possible loss instead, 25 % for a last wave that is 88 % full",
            ),
            Condition(details.WAVES, ">", 1.0, "below one wave the grid itself is too small"),
        ),
        text="{0} % of the block slots stay empty because {1} waves are not a whole number",
    ),
    _occupancy("occupancy_registers", derived.SLACK_REGISTERS, "registers", 50.0),
    _occupancy("occupancy_shared", derived.SLACK_SHARED, "shared memory a block", 50.0),
    _occupancy("occupancy_block_size", derived.SLACK_BLOCK_SIZE, "blocks of this size", 67.0),
    Rule(
        id="many_waves",
        subtype="many_waves",
        priority=_OCCUPANCY + 1,
        severity="warning",
        conditions=(
            Condition(
                derived.US_PER_WAVE, "<=", 2.0,
                "judgement: starting a block, fetching its arguments and computing its indices "
                "takes of the order of 1 us; the captured naive product lives 107 us a wave",
            ),
            Condition(
                details.WAVES, ">=", 32.0,
                "judgement: with fewer waves the same work in larger blocks leaves a partial wave",
            ),
        ),
        text="{1} waves of blocks that live {0} us each",
    ),
)  # fmt: skip

STALL_RULES: tuple[Rule, ...] = (
    _stall("stall_long_scoreboard", derived.STALLED_LONG,
           "waiting for data from L1, L2 or DRAM", 30.0, _CPI_STALL),
    _stall("stall_short_scoreboard", derived.STALLED_SHORT,
           "waiting for shared memory or special functions", 30.0, _CPI_STALL),
    _stall("stall_mio_throttle", derived.STALLED_MIO,
           "at a full queue for shared memory and special functions", 30.0, _CPI_STALL),
    _stall("stall_lg_throttle", derived.STALLED_LG,
           "at a full queue for global and local memory", 30.0, _CPI_STALL),
    _stall("stall_barrier", derived.STALLED_BARRIER,
           "at barriers, waiting for other warps of their block", 30.0, _CPI_STALL),
    _stall("stall_membar", derived.STALLED_MEMBAR, "at memory fences", 15.0,
           "judgement: a kernel without fences has none"),
    _stall("stall_branch", derived.STALLED_BRANCH, "waiting for branch targets", 20.0,
           "judgement: the captures show 0.2 and 1.4 %"),
    _stall("stall_wait", derived.STALLED_WAIT,
           "on the fixed latency of dependent instructions", 30.0, _CPI_STALL),
)  # fmt: skip

LAST_RULES: tuple[Rule, ...] = (
    Rule(
        id="few_eligible_warps",
        subtype="low_parallelism",
        priority=_LAST,
        severity="warning",
        conditions=(
            Condition(
                details.NO_ELIGIBLE, ">=", 60.0,
                "judgement: schedulers idle more than they issue; 63 and 68 % in the captures",
            ),
            Condition(
                details.ELIGIBLE_WARPS, "<=", 1.0,
                "judgement: less than one ready warp a scheduler cannot keep it busy",
            ),
        ),
        text="in {0} % of the cycles no warp is ready; a scheduler has {1} ready warps",
    ),
    Rule(
        id="nothing_busy",
        subtype="low_parallelism",
        priority=_LAST + 1,
        severity="warning",
        conditions=(
            Condition(details.SM_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),
            Condition(details.MEMORY_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),
        ),
        text="compute is at {0} % and memory at {1} % of peak: time passes in waiting",
    ),
)  # fmt: skip
