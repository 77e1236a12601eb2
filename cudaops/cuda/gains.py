"""What removing a cause can gain at most: the rest of the launch takes as long as its busiest other
unit needs.

A unit that is busy U % of the time needs U % of it whatever else happens. So without a cause the
launch still takes the share of the busiest unit that the cause does not keep busy; of a wait, the
share of the busiest unit at all. It is a bound and no promise: waits that overlap with work, and
work that a relief adds, are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cudaops.cuda import derived
from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import Fact
from cudaops.cuda.subtypes import Subtype

_PIPES = frozenset({ncu.PIPE_FMA, ncu.PIPE_ALU, ncu.PIPE_FP64, ncu.PIPE_XU, ncu.PIPE_TENSOR})
_L1 = frozenset({ncu.L1_THROUGHPUT, ncu.PIPE_LSU})
_PATHS = _L1 | {ncu.L2_THROUGHPUT, ncu.DRAM_THROUGHPUT}
_ISSUE = frozenset({ncu.ISSUE_SLOTS_BUSY})
UNITS = _PIPES | _PATHS | _ISSUE
"""In % of peak: what a launch cannot take less time than."""

RELIEVED: Mapping[Subtype, frozenset[str]] = {
    "fma_pipe": frozenset({ncu.PIPE_FMA}),
    "fp64_pipe": frozenset({ncu.PIPE_FP64}),
    "tensor_pipe": frozenset({ncu.PIPE_TENSOR}),
    "sfu_pipe": frozenset({ncu.PIPE_XU}),
    "integer_pipe": frozenset({ncu.PIPE_ALU}),
    "issue_slots": _ISSUE,
    "divergence": _ISSUE | _PIPES,
    "register_spills": _L1 | {ncu.L2_THROUGHPUT, ncu.DRAM_THROUGHPUT},
    "uncoalesced_access": _PATHS,
    "shared_bank_conflicts": _L1,
    "atomic_contention": _L1 | {ncu.L2_THROUGHPUT},
    "l1_load_throughput": _L1,
    "shared_throughput": _L1,
    "l2_bandwidth": frozenset({ncu.L2_THROUGHPUT}),
    "dram_bandwidth": frozenset({ncu.DRAM_THROUGHPUT}),
    "near_peak": frozenset({ncu.DRAM_THROUGHPUT}),
}
"""Units that are idle once the cause is gone. A cause that is not listed is a wait: without it
every unit still does what it does."""

_OF_ITS_OWN: Mapping[Subtype, str] = {
    "stall_long_scoreboard": derived.STALLED_LONG,
    "stall_short_scoreboard": derived.STALLED_SHORT,
    "stall_mio_throttle": derived.STALLED_MIO,
    "stall_lg_throttle": derived.STALLED_LG,
    "stall_barrier": derived.STALLED_BARRIER,
    "stall_membar": derived.STALLED_MEMBAR,
    "stall_branch": derived.STALLED_BRANCH,
    "stall_wait": derived.STALLED_WAIT,
    "tail_effect": derived.IDLE_WAVE_SLOTS,
}
"""Share of the time that the wait itself takes, in %: no more can be gained."""
_WARP = 32


class Gain(NamedTuple):
    """A bound of what removing a cause saves."""

    at_most_pct: float
    """Of the launch's time, 0-100."""
    busy_pct: float
    """Of the busiest unit that the cause keeps busy, 0-100; 0: none, or not known."""
    weight_pct: float
    """What causes are ranked by: the bound, and of a unit's cause no more than the unit is busy. A
    unit that idles may be waited for, and the bound is loose then."""
    then: str
    """Label of the unit that the rest waits for, with its share: `FP64 pipe 88 %`."""


def gain_of(subtype: Subtype, facts: Mapping[str, Fact]) -> Gain | None:
    """What removing the cause saves at most; None where nothing is known of any unit, or where the
    launch itself is what costs."""
    if subtype in ("launch_bound", "unknown"):
        return None
    relieved = RELIEVED.get(subtype, frozenset())
    if subtype == "occupancy_grid" and derived.IDLE_SMS in facts:
        # More SMs share what is busy in one, and nothing that all of them share.
        idle = facts[derived.IDLE_SMS].value
        relieved = UNITS - {ncu.L2_THROUGHPUT, ncu.DRAM_THROUGHPUT} if idle > 0 else relieved
    rest = [facts[unit] for unit in UNITS - relieved if unit in facts]
    if not rest:
        return None
    busiest = max(rest, key=lambda fact: (fact.value, fact.label))
    left = [100.0 - min(busiest.value, 100.0)]
    own = _OF_ITS_OWN.get(subtype)
    if subtype == "occupancy_grid" and relieved:
        own = derived.IDLE_SMS
    if own is not None and own in facts:
        left.append(facts[own].value)
    if subtype == "divergence" and ncu.ACTIVE_THREADS in facts:
        left.append(100.0 * (1.0 - facts[ncu.ACTIVE_THREADS].value / _WARP))
    busy = max((facts[unit].value for unit in relieved if unit in facts), default=0.0)
    most = max(0.0, min(left))
    serial = subtype in ("occupancy_grid", "atomic_contention")
    weight = most if serial or not busy else min(most, busy)
    return Gain(most, busy, weight, f"{busiest.label} {busiest.value:.0f} %")
