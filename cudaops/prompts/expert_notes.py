"""Expert notes: a short brief on each of nineteen bottlenecks, given where a profile asks for it.

A model's question holds the ids of all and the text of the few that bear on the verdict; over MCP
those that fired are named, and read where they are wanted. The texts lie in `expert/`; when each
fires is here (`TRIGGERS`), all of it in docs/expert-notes.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from cudaops.cuda import derived
from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import DerivedDef, Fact, facts
from cudaops.cuda.rule import Condition, Severity, holds
from cudaops.cuda.rules import BUSY_PCT, BUSY_SOURCE, IDLE_DRAM_PCT, STRAINED_PCT, STRAINED_SOURCE
from cudaops.cuda.subtypes import Subtype
from cudaops.domain.profile import Profile, Roofline, Verdict
from cudaops.errors import InputError

MOST_FIRED = 5
"""Notes given in full at once: five of at most 320 tokens leave room in a prompt of 8,000."""
MOST_BEARING = 2
"""Of them in a model's question: each is beside the evidence, and more is not read."""

_FIELDS = ("id", "title", "signal", "subtypes", "sources")

_SEVEREST_FIRST: tuple[Severity, ...] = ("critical", "warning", "info")


class ExpertNote(NamedTuple):
    """A brief on one bottleneck, for the author of a rewrite."""

    id: str
    title: str
    signal: str
    """How a profile shows it, in one line."""
    subtypes: tuple[str, ...]
    """Verdict subtypes that it is about."""
    sources: tuple[str, ...]
    text: str
    """Markdown: signal, root causes by likelihood, fixes, anti-patterns."""


class Cue(NamedTuple):
    """One way to fire a note: a finding of one of `subtypes`, all `conditions`, or both.

    A condition whose fact is unknown does not hold.
    """

    subtypes: tuple[Subtype, ...] = ()
    """Of the verdict or a finding; the one that the note is most about first."""
    conditions: tuple[Condition, ...] = ()
    severity: Severity = "info"
    """Places the note among those that metrics alone fired."""


_BUSY_ALU = Condition(ncu.PIPE_ALU, ">=", BUSY_PCT, BUSY_SOURCE)
_BUSY_FMA = Condition(ncu.PIPE_FMA, ">=", BUSY_PCT, BUSY_SOURCE)
_BUSY_FP64 = Condition(ncu.PIPE_FP64, ">=", BUSY_PCT, BUSY_SOURCE)
_BUSY_TENSOR = Condition(ncu.PIPE_TENSOR, ">=", BUSY_PCT, BUSY_SOURCE)
_BUSY_XU = Condition(ncu.PIPE_XU, ">=", BUSY_PCT, BUSY_SOURCE)

_COMPUTE_PEAK = Condition(
    derived.COMPUTE_ATTAINED, ">=", 80.0, "the rule near_peak_compute: its peak is arithmetic"
)
_MEMORY_PEAK = Condition(
    derived.MEMORY_ATTAINED, ">=", 85.0, "the rule near_peak_memory: its peak is DRAM's bandwidth"
)
_L1_LOW = Condition(
    ncu.L1_HIT_RATE, "<", 30.0,
    "judgement; alone it means nothing: the tiled product has 3 % by design",
)  # fmt: skip
_L2_LOW = Condition(
    ncu.L2_HIT_RATE, "<", 50.0,
    "judgement; alone it means nothing: a stream reads each byte once",
)  # fmt: skip
_DRAM_USED = Condition(
    ncu.DRAM_THROUGHPUT, ">=", IDLE_DRAM_PCT,
    "judgement: below it DRAM idles in the rules of the verdict",
)  # fmt: skip
_MEMORY_USED = Condition(
    ncu.MEMORY_THROUGHPUT, ">=", 20.0, "the uncoalesced rules: below it memory is not the limit"
)
_CPI_STALL = "Nsight Compute's CPIStall rule: 30 % of the cycles between two instructions"

STALLED_MATH = DerivedDef(
    "cudaops__stall_math_pipe_throttle_pct", "Stalled: math pipe throttle", "%",
    "Share of a warp's time between two of its instructions.",
    (ncu.STALL_MATH, ncu.CYCLES_PER_ISSUE),
    lambda stalled, cycles: 100.0 * stalled / cycles if cycles > 0 else None,
)  # fmt: skip
"""No verdict rule reads it, so `cudaops.cuda.derived` does not know it: a full pipe is named by the
pipe's own use."""


def _uncoalesced(requests: str, used: str) -> Cue:
    return Cue(
        conditions=(
            Condition(
                requests, ">", 4.0,
                "the 4 sectors of 32 threads on neighbouring 4-byte words; broadcasts take fewer",
            ),
            Condition(
                used, "<", 25.6,
                "judgement: a fifth of the bytes wasted; just 25.6 is what a stride-free "
                "access shifted by one word uses, and not worth a rewrite",
            ),
            _MEMORY_USED,
        ),
        severity="warning",
    )  # fmt: skip


TRIGGERS: Mapping[str, tuple[Cue, ...]] = MappingProxyType({
    "severe_memory_bound": (
        Cue(("dram_bandwidth", "l1_load_throughput", "l2_bandwidth", "shared_throughput")),
        Cue(("near_peak",), (_MEMORY_PEAK,)),
    ),
    "near_peak_compute": (
        Cue(("near_peak",), (_COMPUTE_PEAK,)),
        Cue(("issue_slots",)),
        Cue(("fma_pipe",), (_BUSY_FMA,)),
        Cue(("fp64_pipe",), (_BUSY_FP64,)),
        Cue(("sfu_pipe",), (_BUSY_XU,)),
        Cue(("integer_pipe",), (_BUSY_ALU,)),
        Cue(("tensor_pipe",), (_BUSY_TENSOR,)),
    ),
    "huge_dram_traffic": (
        Cue(("dram_bandwidth",)),
        Cue(
            conditions=(
                Condition(
                    ncu.DRAM_THROUGHPUT, ">=", 50.0,
                    "judgement: half of the time is what the bytes alone take",
                ),
            ),
            severity="warning",
        ),
    ),
    "low_occupancy": (
        Cue(("occupancy_shared", "occupancy_block_size", "occupancy_registers")),
        Cue(
            conditions=(
                Condition(
                    ncu.ACHIEVED_OCCUPANCY, "<", 50.0,
                    "judgement: half of what an SM can hold",
                ),
                Condition(
                    derived.IDLE_ISSUE, ">=", 50.0,
                    "the occupancy rules: only a scheduler that idles can use more warps",
                ),
                Condition(
                    ncu.WAVES, ">=", 1.0, "with less it is the grid that leaves slots empty"
                ),
            ),
            severity="warning",
        ),
    ),
    "register_limited": (Cue(("occupancy_registers", "register_spills")),),
    "low_waves_per_sm": (Cue(("occupancy_grid", "tail_effect")),),
    "high_waves_per_sm": (Cue(("many_waves",)),),
    "poor_coalescing": (
        Cue(("uncoalesced_access",)),
        _uncoalesced(derived.LD_SECTORS_PER_REQUEST, ncu.BYTES_PER_SECTOR_LD),
        _uncoalesced(derived.ST_SECTORS_PER_REQUEST, ncu.BYTES_PER_SECTOR_ST),
    ),
    "low_l1_hit": (
        Cue(("l2_bandwidth",), (_L1_LOW,)),
        Cue(conditions=(_L1_LOW, Condition(derived.STALLED_LONG, ">=", 30.0, _CPI_STALL))),
    ),
    "low_l2_hit": (
        Cue(("dram_bandwidth",), (_L2_LOW,)),
        Cue(conditions=(_L2_LOW, _DRAM_USED)),
    ),
    "smem_bank_conflicts": (Cue(("shared_bank_conflicts",)),),
    "stall_long_scoreboard": (Cue(("stall_long_scoreboard",)),),
    "stall_short_scoreboard": (Cue(("stall_short_scoreboard",)),),
    "stall_mio_throttle": (Cue(("stall_mio_throttle", "stall_lg_throttle")),),
    "stall_math_pipe": (
        Cue(("fma_pipe", "fp64_pipe", "sfu_pipe", "integer_pipe", "tensor_pipe")),
        Cue(conditions=(Condition(STALLED_MATH.name, ">=", 30.0, _CPI_STALL),), severity="warning"),
    ),
    "stall_barrier": (Cue(("stall_barrier",)),),
    "stall_wait": (Cue(("stall_wait",)),),
    "stall_membar": (Cue(("stall_membar",)),),
    "low_ipc": (
        Cue(("low_parallelism",)),
        Cue(
            conditions=(
                Condition(
                    ncu.EXECUTED_IPC_ACTIVE, "<", 0.5,
                    "judgement: an eighth of what four schedulers can issue",
                ),
                Condition(ncu.MEMORY_THROUGHPUT, "<", STRAINED_PCT, STRAINED_SOURCE),
            ),
        ),
    ),
})  # fmt: skip
"""Cues of every note, in the order of the source document's four groups: what is full, how the
launch fills the device, memory accesses, what warps wait for."""


def catalogue() -> str:
    """The id of each note. The same for every run."""
    return ", ".join(note.id for note in _notes().values())


def fired(verdict: Verdict, profile: Profile) -> tuple[ExpertNote, ...]:
    """The notes that this verdict and these metrics call for, at most `MOST_FIRED`.

    First those on the verdict's subtype, then those on the other findings in their order, then
    those that metrics alone call for, by severity. `profile` is what the verdict was made of.
    """
    known = _known_facts(profile, verdict.roofline)
    subtypes = dict.fromkeys((verdict.subtype, *(each.subtype for each in verdict.findings)))
    ids = [note for subtype in subtypes for note in _on(subtype, known)]
    found = tuple(dict.fromkeys((*ids, *_by_metrics(known))))
    return tuple(_notes()[note] for note in found[:MOST_FIRED])


def bearing(verdict: Verdict, profile: Profile) -> tuple[ExpertNote, ...]:
    """Of those that fired, the notes on the verdict's own subtype, at most `MOST_BEARING`."""
    ids = dict.fromkeys(_on(verdict.subtype, _known_facts(profile, verdict.roofline)))
    return tuple(_notes()[note] for note in list(ids)[:MOST_BEARING])


def read_note(note: str) -> ExpertNote:
    """A note by its id.

    Raises:
        InputError: there is none; names the nearest.
    """
    found = _notes().get(note)
    if found is None:
        near = difflib.get_close_matches(note, TRIGGERS, n=3, cutoff=0.0)
        raise InputError(f"there is no expert note `{note[:60]}`; nearest: {', '.join(near)}")
    return found


def all_notes() -> tuple[ExpertNote, ...]:
    """Every note, in the catalogue's order."""
    return tuple(_notes().values())


def _known_facts(profile: Profile, roofline: Roofline | None) -> dict[str, Fact]:
    """Everything cues may compare for this launch; what is not in it is unknown."""
    found = facts(profile, roofline)
    inputs = [found[name].value for name in STALLED_MATH.inputs if name in found]
    if len(inputs) == len(STALLED_MATH.inputs):
        share = STALLED_MATH.compute(*inputs)
        if share is not None:
            found[STALLED_MATH.name] = Fact(share, STALLED_MATH.unit, STALLED_MATH.label)
    return found


def _on(subtype: str, known: Mapping[str, Fact]) -> Iterable[str]:
    """Notes that a finding of this subtype fires, those most about it first."""
    places = [
        (list(cue.subtypes).index(subtype), order, note)
        for order, (note, cues) in enumerate(TRIGGERS.items())
        for cue in cues
        if subtype in cue.subtypes and _all_hold(cue, known)
    ]
    return [note for _, _, note in sorted(places)]


def _by_metrics(known: Mapping[str, Fact]) -> Iterable[str]:
    """Notes that metrics alone fire, the severest first."""
    places = [
        (_SEVEREST_FIRST.index(cue.severity), order, note)
        for order, (note, cues) in enumerate(TRIGGERS.items())
        for cue in cues
        if not cue.subtypes and _all_hold(cue, known)
    ]
    return [note for _, _, note in sorted(places)]


def _all_hold(cue: Cue, known: Mapping[str, Fact]) -> bool:
    return all(holds(condition, known.get(condition.fact)) for condition in cue.conditions)


@cache
def _notes() -> Mapping[str, ExpertNote]:
    folder = files("cudaops.prompts").joinpath("expert")
    return {name: _parsed(folder.joinpath(f"{name}.md").read_text("utf-8")) for name in TRIGGERS}


def _parsed(page: str) -> ExpertNote:
    """A note of its file: fields between two lines of `---`, then the text."""
    _, head, text = page.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    note, title, signal, subtypes, sources = (fields[name] for name in _FIELDS)
    return ExpertNote(
        note, title, signal, tuple(subtypes.split(", ")), tuple(sources.split("; ")), text.strip()
    )
