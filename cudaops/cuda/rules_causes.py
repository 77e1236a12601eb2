"""Rules for causes behind a busy memory path: accesses that move or repeat more than they must."""

from __future__ import annotations

from cudaops.cuda import facts as derived
from cudaops.cuda import metric_counters as counters
from cudaops.cuda import metric_details as details
from cudaops.cuda.rule import Condition, Rule

_CAUSE = 30
_MINOR = 90

_TWICE_COALESCED = (
    "twice the 4 sectors of 32 threads on neighbouring 4-byte words (CUDA C++ Best Practices "
    "Guide, coalesced access); broadcasts take fewer and stay out"
)
_HALF_USED = (
    "judgement: half of every sector unused; the captured naive product uses 18 of 32 through "
    "broadcasts, which this must not name"
)
_MEMORY_IDLES = Condition(
    details.MEMORY_THROUGHPUT, "<", 20.0, "judgement: so idle a memory system is not what limits"
)
_BEYOND_VECTOR = "32 threads with 16-byte accesses fill 16 sectors; more cannot be coalesced"


def _uncoalesced(kind: str, requests: str, used: str) -> tuple[Rule, ...]:
    text = f"a global {kind} touches {{0}} sectors a request"
    wasteful = Rule(
        id=f"uncoalesced_{kind}",
        subtype="uncoalesced_access",
        priority=_CAUSE,
        severity="critical",
        conditions=(
            Condition(requests, ">=", 8.0, _TWICE_COALESCED),
            Condition(used, "<=", 16.0, _HALF_USED),
        ),
        unless=(_MEMORY_IDLES,),
        text=text + " and uses {1} of the 32 bytes in each",
    )
    scattered = wasteful._replace(
        id=f"scattered_{kind}",
        priority=_CAUSE + 1,
        conditions=(Condition(requests, ">", 16.0, _BEYOND_VECTOR),),
        text=text,
    )
    minor = scattered._replace(
        id=f"scattered_{kind}_minor",
        priority=_MINOR,
        severity="info",
        conditions=(*scattered.conditions, _MEMORY_IDLES),
        unless=(),
        text=text + ", in a memory system used {1} %",
    )
    return wasteful, scattered, minor


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
        priority=_CAUSE,
        severity="critical",
        conditions=(
            Condition(details.SPILL_OVERHEAD, ">=", 5.0, _SPILLS),
            Condition(details.SPILL_REQUESTS, ">", 0.0, "any spill at all"),
        ),
        text="{0} % of L1 requests ({1}) only move spilled registers",
    ),
    Rule(
        id="local_memory",
        subtype="register_spills",
        priority=_CAUSE + 1,
        severity="critical",
        conditions=(
            Condition(
                derived.LOCAL_SECTOR_SHARE, ">=", 10.0,
                "judgement: a tenth of L1's sectors; a kernel without spills or indexed local "
                "arrays has none",
            ),
        ),
        text="{0} % of the sectors in L1 are local memory: spills or indexed local arrays",
    ),
    Rule(
        id="spills_by_compiler",
        subtype="register_spills",
        priority=_MINOR,
        severity="info",
        conditions=(
            Condition(
                counters.SPILL_LOAD_BYTES, ">", 0.0,
                "any spill at all; how often it runs is not known, so it never decides",
            ),
        ),
        text="the compiler spilled registers: a thread fetches {0} bytes again",
    ),
    *_uncoalesced("load", derived.LD_SECTORS_PER_REQUEST, counters.BYTES_PER_SECTOR_LD),
    *_uncoalesced("store", derived.ST_SECTORS_PER_REQUEST, counters.BYTES_PER_SECTOR_ST),
    Rule(
        id="shared_bank_conflicts",
        subtype="shared_bank_conflicts",
        priority=_CAUSE + 2,
        severity="critical",
        conditions=(
            Condition(derived.BANK_CONFLICT_SHARE, ">=", 25.0, _CONFLICTS),
            Condition(counters.SHARED_DATA_PIPE, ">=", 30.0, _SHARED_MATTERS),
        ),
        text="{0} % of the shared-memory wavefronts are bank conflicts, on a data path used {1} %",
    ),
    Rule(
        id="bank_conflicts_on_loads",
        subtype="shared_bank_conflicts",
        priority=_MINOR,
        severity="info",
        conditions=(Condition(derived.BANK_CONFLICT_LD_SHARE, ">=", 25.0, _CONFLICTS),),
        text="{0} % of the shared load wavefronts are bank conflicts",
    ),
    Rule(
        id="bank_conflicts_on_stores",
        subtype="shared_bank_conflicts",
        priority=_MINOR,
        severity="info",
        conditions=(Condition(derived.BANK_CONFLICT_ST_SHARE, ">=", 25.0, _CONFLICTS),),
        text="{0} % of the shared store wavefronts are bank conflicts",
    ),
    Rule(
        id="atomic_unit",
        subtype="atomic_contention",
        priority=_CAUSE + 3,
        severity="critical",
        conditions=(
            Condition(counters.L2_ATOMIC_UNIT, ">=", 50.0, _ATOMICS),
            Condition(derived.ATOMIC_SHARE, ">", 0.0, "any atomic at all"),
        ),
        text="L2's atomic units are {0} % busy; {1} % of the global requests are atomics",
    ),
    Rule(
        id="atomic_requests",
        subtype="atomic_contention",
        priority=_CAUSE + 4,
        severity="warning",
        conditions=(
            Condition(derived.ATOMIC_SHARE, ">=", 25.0, _ATOMICS),
            Condition(
                derived.IDLE_ISSUE, ">=", 60.0,
                "judgement: with most issue slots idle the atomics are waited for",
            ),
        ),
        text="{0} % of the global requests are atomics, and {1} % of the issue slots are idle",
    ),
    Rule(
        id="shared_atomics",
        subtype="atomic_contention",
        priority=_CAUSE + 5,
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
        priority=_CAUSE + 6,
        severity="critical",
        conditions=(
            Condition(
                details.ACTIVE_THREADS, "<=", 20.0,
                "judgement: three of eight lanes idle in the mean instruction",
            ),
            Condition(
                details.BRANCH_EFFICIENCY, "<", 95.0,
                "judgement: so that lanes idle by branching, not by a block that is no multiple "
                "of a warp",
            ),
        ),
        text="a mean instruction has {0} of 32 threads active, {1} % of the branches are uniform",
    ),
    Rule(
        id="divergence_minor",
        subtype="divergence",
        priority=_MINOR,
        severity="info",
        conditions=(
            Condition(details.ACTIVE_THREADS, "<=", 24.0, "judgement: a quarter of the lanes idle"),
        ),
        text="a mean instruction has {0} of 32 threads active",
    ),
)  # fmt: skip
