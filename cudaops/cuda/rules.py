"""Every verdict rule, and which of them fire for a launch.

In this order: a unit of the chip that is busy; causes behind a busy memory path; and, where no unit
is busy, too little in flight and what warps wait for.
"""

from __future__ import annotations

from cudaops.cuda import derived
from cudaops.cuda import metrics as ncu
from cudaops.cuda.rule import Condition, Rule
from cudaops.cuda.subtypes import Subtype

FEW_SMS_PRIORITY = 15
_PIPE_PRIORITY = 20
_CAUSE_PRIORITY = 30
_PATH_PRIORITY = 40
STRAINED_PRIORITY = 50
_GRID_PRIORITY = 60
_OCCUPANCY_PRIORITY = 65
_STALL_PRIORITY = 70
_LAST_PRIORITY = 80
_MINOR_PRIORITY = 90
"""Lower decides first; `cuda.verdict` tells why in this order."""

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
    "judgement: half of what counts as busy; the captured naive product shows 0.4 % on an "
    "H200, and 1.5 % on an A10"
)


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
        priority=STRAINED_PRIORITY,
        severity="warning",
        conditions=(
            Condition(fact, ">=", STRAINED_PCT, STRAINED_SOURCE),
            *extra,
            Condition(fact, "<", BUSY_PCT, BUSY_SOURCE),
        ),
    )
    return busy, strained


_DRAM_IDLES = Condition(ncu.DRAM_THROUGHPUT, "<=", IDLE_DRAM_PCT, IDLE_DRAM_SOURCE)
_AND_FMA = ((ncu.PIPE_FMA, ", the FMA pipe at {} %"),)
_MOSTLY_SHARED = Condition(
    ncu.SHARED_DATA_PIPE, ">=", 50.0,
    "judgement: half of the data path's peak goes to shared memory",
)  # fmt: skip

COMPUTE_RULES: tuple[Rule, ...] = (
    *_unit_rules("tensor_pipe", ncu.PIPE_TENSOR, "the tensor pipe is at {0} %", _PIPE_PRIORITY),
    *_unit_rules("fp64_pipe", ncu.PIPE_FP64, "the FP64 pipe is at {0} %", _PIPE_PRIORITY),
    *_unit_rules(
        "sfu_pipe", ncu.PIPE_XU, "the special-function (XU) pipe is at {0} %", _PIPE_PRIORITY
    ),
    *_unit_rules("fma_pipe", ncu.PIPE_FMA, "the FMA pipe is at {0} %", _PIPE_PRIORITY),
    *_unit_rules(
        "integer_pipe", ncu.PIPE_ALU, "the integer (ALU) pipe is at {0} %", _PIPE_PRIORITY
    ),
    Rule(
        id="issue_slots",
        subtype="issue_slots",
        priority=_PIPE_PRIORITY + 1,
        severity="critical",
        conditions=(Condition(ncu.ISSUE_SLOTS_BUSY, ">=", BUSY_PCT, BUSY_SOURCE),),
        text="{0} % of the issue slots are used",
    ),
)
"""A busy pipe is the work itself, so it is named before what feeds it."""

PATH_RULES: tuple[Rule, ...] = (
    *_unit_rules(
        "dram_bandwidth", ncu.DRAM_THROUGHPUT, "DRAM is at {0} % of its peak", _PATH_PRIORITY,
        also=((ncu.L2_HIT_RATE, " with an L2 hit rate of {} %"),),
    ),
    *_unit_rules(
        "l2_bandwidth", ncu.L2_THROUGHPUT, "L2 is at {0} % while DRAM is at {1} %",
        _PATH_PRIORITY + 1,
        extra=(Condition(ncu.DRAM_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),),
    ),
    *_unit_rules(
        "shared_throughput", ncu.L1_THROUGHPUT,
        "L1/TEX is at {0} %, shared-memory wavefronts at {1} % of its data path",
        _PATH_PRIORITY + 2,
        extra=(_MOSTLY_SHARED,), also=_AND_FMA,
    ),
    *_unit_rules(
        "l1_load_throughput", ncu.L1_THROUGHPUT,
        "L1/TEX is at {0} %, DRAM at {1} %", _PATH_PRIORITY + 3,
        extra=(_DRAM_IDLES,), unless=(_MOSTLY_SHARED,), also=_AND_FMA,
    ),
    *_unit_rules(
        "l1_load_throughput", ncu.PIPE_LSU,
        "the load/store pipe is at {0} %, DRAM at {1} %", _PATH_PRIORITY + 4,
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
                ncu.DURATION, "<=", 4.0,
                "judgement: a launch itself costs about 2 to 4 us on current drivers, so a kernel "
                "this short spends as long being started",
            ),
        ),
        text="the kernel takes {0} us, about the launch latency",
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


_TWICE_COALESCED = (
    "twice the 4 sectors of 32 threads on neighbouring 4-byte words (CUDA C++ Best Practices "
    "Guide, coalesced access); broadcasts take fewer and stay out"
)
_HALF_USED = (
    "judgement: half of every sector unused; the captured naive product uses 18 of 32 through "
    "broadcasts, which this must not name"
)
_MEMORY_IDLES = Condition(
    ncu.MEMORY_THROUGHPUT, "<", 20.0, "judgement: so idle a memory system is not what limits"
)
_COALESCED = (
    "the 4 sectors of 32 threads on neighbouring 4-byte words; lanes that are idle, as in rows of "
    "unequal length, touch none"
)
_WASTE = "judgement: unused bytes of these are less than a fifth of all that global accesses move"
_BEYOND_VECTOR = "32 threads with 16-byte accesses fill 16 sectors; more cannot be coalesced"


def _uncoalesced(kind: str, requests: str, used: str, waste: str) -> tuple[Rule, ...]:
    text = f"a global {kind} takes {{0}} sectors/request"
    wasteful = Rule(
        id=f"uncoalesced_{kind}",
        subtype="uncoalesced_access",
        priority=_CAUSE_PRIORITY,
        severity="critical",
        conditions=(
            Condition(requests, ">=", 8.0, _TWICE_COALESCED),
            Condition(used, "<=", 16.0, _HALF_USED),
        ),
        unless=(_MEMORY_IDLES, Condition(waste, "<", 20.0, _WASTE)),
        text=text + " and uses {1} of 32 bytes/sector",
    )
    sparse = wasteful._replace(
        id=f"sparse_{kind}",
        conditions=(
            Condition(requests, ">", 4.0, _COALESCED),
            Condition(used, "<=", 8.0, "judgement: three quarters of every sector unused"),
            Condition(requests, "<", 8.0, f"from there on uncoalesced_{kind} says it"),
        ),
    )
    scattered = wasteful._replace(
        id=f"scattered_{kind}",
        priority=_CAUSE_PRIORITY + 1,
        conditions=(Condition(requests, ">", 16.0, _BEYOND_VECTOR),),
        unless=(
            *wasteful.unless,
            Condition(used, "<=", 16.0, f"uncoalesced_{kind} says it then"),
        ),
        text=text,
    )
    minor = scattered._replace(
        id=f"scattered_{kind}_minor",
        priority=_MINOR_PRIORITY,
        severity="info",
        conditions=(*scattered.conditions, _MEMORY_IDLES),
        unless=(),
        text=text + ", in a memory system used {1} %",
    )
    return wasteful, sparse, scattered, minor


_CONFLICTS = (
    "judgement: a quarter of the wavefronts wasted; the captured register-tiled product has 4 %, "
    "with 35 % of its stores, and is limited by something else"
)
_SHARED_MATTERS = "judgement: below 30 % of the data path, shared memory is not what waits"
_SPILLS = "judgement: 5 % of L1 requests; Nsight Compute shows the overhead without a threshold"
_ATOMICS = "judgement: no capture yet; ordinary kernels have none, histograms a third and more"

CAUSE_RULES: tuple[Rule, ...] = (
    Rule(
        id="register_spills",
        subtype="register_spills",
        priority=_CAUSE_PRIORITY,
        severity="critical",
        conditions=(
            Condition(ncu.SPILL_OVERHEAD, ">=", 5.0, _SPILLS),
            Condition(ncu.SPILL_REQUESTS, ">", 0.0, "any spill at all"),
        ),
        text="{0} % of L1 requests ({1}) are register spills",
    ),
    Rule(
        id="local_memory",
        subtype="register_spills",
        priority=_CAUSE_PRIORITY + 1,
        severity="critical",
        conditions=(
            Condition(
                derived.LOCAL_SECTOR_SHARE, ">=", 10.0,
                "judgement: a tenth of L1's sectors; a kernel without spills or indexed local "
                "arrays has none",
            ),
            Condition(
                derived.LOCAL_AN_INSTRUCTION, ">=", 1.0,
                "judgement: one in a hundred instructions; a few bytes that a thread spills once "
                "are most of the sectors of a kernel that computes",
            ),
        ),
        text="{0} % of the sectors in L1 are local memory: spills or indexed local arrays",
    ),
    Rule(
        id="spills_by_compiler",
        subtype="register_spills",
        priority=_MINOR_PRIORITY,
        severity="info",
        conditions=(
            Condition(
                ncu.SPILL_LOAD_BYTES, ">", 0.0,
                "any spill at all; how often it runs is not known, so it never decides",
            ),
        ),
        text="register spills: each thread reloads {0} bytes",
    ),
    *_uncoalesced(
        "load", derived.LD_SECTORS_PER_REQUEST, ncu.BYTES_PER_SECTOR_LD, derived.LD_WASTE
    ),
    *_uncoalesced(
        "store", derived.ST_SECTORS_PER_REQUEST, ncu.BYTES_PER_SECTOR_ST, derived.ST_WASTE
    ),
    Rule(
        id="shared_bank_conflicts",
        subtype="shared_bank_conflicts",
        priority=_CAUSE_PRIORITY + 2,
        severity="critical",
        conditions=(
            Condition(derived.BANK_CONFLICT_SHARE, ">=", 25.0, _CONFLICTS),
            Condition(ncu.SHARED_DATA_PIPE, ">=", 30.0, _SHARED_MATTERS),
        ),
        text="{0} % of the shared-memory wavefronts are bank conflicts, on a data path used {1} %",
    ),
    Rule(
        id="bank_conflicts_on_loads",
        subtype="shared_bank_conflicts",
        priority=_MINOR_PRIORITY,
        severity="info",
        conditions=(Condition(derived.BANK_CONFLICT_LD_SHARE, ">=", 25.0, _CONFLICTS),),
        text="{0} % of the shared load wavefronts are bank conflicts",
    ),
    Rule(
        id="bank_conflicts_on_stores",
        subtype="shared_bank_conflicts",
        priority=_MINOR_PRIORITY,
        severity="info",
        conditions=(Condition(derived.BANK_CONFLICT_ST_SHARE, ">=", 25.0, _CONFLICTS),),
        text="{0} % of the shared store wavefronts are bank conflicts",
    ),
    Rule(
        id="atomic_unit",
        subtype="atomic_contention",
        priority=_CAUSE_PRIORITY + 3,
        severity="critical",
        conditions=(
            Condition(ncu.L2_ATOMIC_UNIT, ">=", 50.0, _ATOMICS),
            Condition(derived.ATOMIC_SHARE, ">", 0.0, "any atomic at all"),
        ),
        text="L2's atomic units are {0} % busy; {1} % of the global requests are atomics",
    ),
    Rule(
        id="atomic_requests",
        subtype="atomic_contention",
        priority=_CAUSE_PRIORITY + 4,
        severity="warning",
        conditions=(
            Condition(derived.ATOMIC_SHARE, ">=", 25.0, _ATOMICS),
            Condition(
                derived.IDLE_ISSUE, ">=", 60.0,
                "judgement: with most issue slots idle the atomics are waited for",
            ),
            Condition(
                derived.ATOMICS_AN_INSTRUCTION, ">=", 0.5,
                "judgement: one in two hundred instructions; rarer, as where each block adds its "
                "own sum once, it is the rest that is waited for",
            ),
        ),
        text="{0} % of the global requests are atomics, and {1} % of the issue slots are idle",
    ),
    Rule(
        id="shared_atomics",
        subtype="atomic_contention",
        priority=_CAUSE_PRIORITY + 5,
        severity="warning",
        conditions=(
            Condition(derived.SHARED_ATOMIC_SHARE, ">=", 25.0, _ATOMICS),
            Condition(derived.BANK_CONFLICT_SHARE, ">=", 25.0, _CONFLICTS),
        ),
        text="{0} % of the shared accesses are atomics, and {1} % of the wavefronts are conflicts",
    ),
    Rule(
        id="divergence",
        subtype="divergence",
        priority=_CAUSE_PRIORITY + 6,
        severity="critical",
        conditions=(
            Condition(
                ncu.ACTIVE_THREADS, "<=", 20.0,
                "judgement: three of eight lanes idle in the mean instruction",
            ),
            Condition(
                ncu.BRANCH_EFFICIENCY, "<", 95.0,
                "judgement: so that lanes idle by branching, not by a block that is no multiple "
                "of a warp",
            ),
        ),
        text="{0} of 32 threads are active per instruction, {1} % of the branches are uniform",
    ),
    Rule(
        id="divergence_minor",
        subtype="divergence",
        priority=_MINOR_PRIORITY,
        severity="info",
        conditions=(
            Condition(ncu.ACTIVE_THREADS, "<=", 24.0, "judgement: a quarter of the lanes idle"),
        ),
        text="{0} of 32 threads are active per instruction",
    ),
)  # fmt: skip


_NOT_FILLED = Condition(ncu.WAVES, "<", 1.0, "such a grid leaves the limit unused, whatever it is")
_LOW_OCCUPANCY = "judgement: half of the warp slots; above, more warps seldom help"
_IDLE = Condition(
    derived.IDLE_ISSUE, ">=", 50.0, "judgement: only a scheduler that idles can use more warps"
)


def _occupancy(subtype: Subtype, slack: str, what: str, threshold: float, *own: Condition) -> Rule:
    return Rule(
        id=subtype,
        subtype=subtype,
        priority=_OCCUPANCY_PRIORITY,
        severity="warning",
        conditions=(
            Condition(ncu.THEORETICAL_OCCUPANCY, "<=", threshold, _LOW_OCCUPANCY),
            Condition(slack, "==", 0.0, "the tightest of the limits"),
            _IDLE,
            *own,
        ),
        unless=(_NOT_FILLED,),
        text=f"{what} let an SM hold {{0}} % of its warps, and {{2}} % of the issue slots are idle",
        also=((ncu.REGISTERS, " ({} registers/thread)"),)
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
        priority=_STALL_PRIORITY,
        severity="warning",
        conditions=(Condition(fact, ">=", threshold, source),),
        text=f"warps spend {{0}} % of their time {what}",
        also=((ncu.ACHIEVED_WARPS, ", with {} warps resident on an SM"),),
    )


STRUCTURE_RULES: tuple[Rule, ...] = (
    Rule(
        id="idle_sms",
        subtype="occupancy_grid",
        priority=FEW_SMS_PRIORITY,
        severity="critical",
        conditions=(
            Condition(
                derived.IDLE_SMS, ">=", 50.0,
                "judgement: half of the device does nothing, and what is busy in the other half "
                "(pipes, issue slots and L1 are counted while an SM is active) would be less so "
                "on more SMs",
            ),
        ),
        unless=(
            Condition(ncu.DRAM_THROUGHPUT, ">=", STRAINED_PCT, STRAINED_SOURCE),
            Condition(ncu.L2_THROUGHPUT, ">=", STRAINED_PCT, STRAINED_SOURCE),
            Condition(ncu.L2_ATOMIC_UNIT, ">=", 50.0, _ATOMICS),
        ),
        text="{0} % of the SMs have no block",
        also=((ncu.GRID_SIZE, ", with {} in the whole grid"),),
    ),
    Rule(
        id="occupancy_grid",
        subtype="occupancy_grid",
        priority=_GRID_PRIORITY,
        severity="critical",
        conditions=(
            Condition(
                ncu.WAVES, "<", 1.0,
                "Nsight Compute's SOLBottleneck rule: a grid of less than one full wave is too "
                "small (its text in tests/data/ncu)",
            ),
        ),
        text="the grid is only {0} of what the device holds at once",
        also=(
            (ncu.GRID_SIZE, " ({} blocks)"),
            (ncu.ACHIEVED_WARPS, ", an SM holds {} warps"),
            (derived.IDLE_ISSUE, " and {} % of the issue slots are idle"),
        ),
    ),
    Rule(
        id="tail_effect",
        subtype="tail_effect",
        priority=_GRID_PRIORITY + 1,
        severity="warning",
        conditions=(
            Condition(
                derived.IDLE_WAVE_SLOTS, ">=", 20.0,
                "judgement: a fifth of all block slots; Nsight Compute reports the longest "
                "possible loss instead, 25 % for a last wave that is 88 % full",
            ),
            Condition(ncu.WAVES, ">", 1.0, "below one wave the grid itself is too small"),
        ),
        text="{0} % of the block slots stay empty because {1} waves are not a whole number",
    ),
    _occupancy("occupancy_registers", derived.SLACK_REGISTERS, "registers", 50.0),
    _occupancy(
        "occupancy_shared", derived.SLACK_SHARED, "shared memory a block", 50.0,
        Condition(
            derived.OWN_SHARED, ">", 0.0,
            "what the driver takes of shared memory a block, no rewrite can give back: with none "
            "of its own a kernel is limited by the number of its blocks",
        ),
    ),
    _occupancy("occupancy_block_size", derived.SLACK_BLOCK_SIZE, "blocks of this size", 67.0),
    Rule(
        id="many_waves",
        subtype="many_waves",
        priority=_OCCUPANCY_PRIORITY + 1,
        severity="warning",
        conditions=(
            Condition(
                derived.US_PER_WAVE, "<=", 2.0,
                "judgement: starting a block, fetching its arguments and computing its indices "
                "takes of the order of 1 us; the captured naive product lives 107 us a wave",
            ),
            Condition(
                ncu.WAVES, ">=", 32.0,
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
        priority=_LAST_PRIORITY,
        severity="warning",
        conditions=(
            Condition(
                ncu.NO_ELIGIBLE, ">=", 60.0,
                "judgement: schedulers idle more than they issue; 63 and 68 % in the captures",
            ),
            Condition(
                ncu.ELIGIBLE_WARPS, "<=", 1.0,
                "judgement: less than one ready warp a scheduler cannot keep it busy",
            ),
        ),
        text="in {0} % of the cycles no warp is ready; a scheduler has {1} ready warps",
    ),
    Rule(
        id="nothing_busy",
        subtype="low_parallelism",
        priority=_LAST_PRIORITY + 1,
        severity="warning",
        conditions=(
            Condition(ncu.SM_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),
            Condition(ncu.MEMORY_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),
        ),
        text="compute is at {0} % and memory at {1} % of peak: time passes in waiting",
    ),
)  # fmt: skip


RULES: tuple[Rule, ...] = (
    *OVERALL_RULES,
    *COMPUTE_RULES,
    *CAUSE_RULES,
    *PATH_RULES,
    *STRUCTURE_RULES,
    *STALL_RULES,
    *LAST_RULES,
)
"""Order here is for readers; `Rule.priority` decides."""
