"""The reference page on expert notes, written from the notes and what fires them.

`python -m tests.prompts.expert_document > docs/expert-notes.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from cudaops.cuda.derived import label_and_unit
from cudaops.cuda.document import table
from cudaops.cuda.rule import Condition
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.prompts.expert_notes import (
    MOST_BEARING,
    MOST_FIRED,
    STALLED_MATH,
    TRIGGERS,
    Cue,
    ExpertNote,
    all_notes,
    catalogue,
)
from cudaops.prompts.prompt import count_tokens, counted_by

_INTRO = (
    "Written by `python -m tests.prompts.expert_document` from `cudaops/prompts/expert/` and "
    "`cudaops/prompts/expert_notes.py`; a test holds this page to them. A model's question holds "
    f"the ids of all and the full text of at most {MOST_BEARING} on the verdict's own subtype; a "
    "model can read the others by id through the tool `read_expert_note` of the knowledge server. "
    "`propose_rewrites` names at most {most}: first those on the verdict's subtype, then those on "
    "the other findings in their order, then those that metrics alone call for, by severity. A "
    "metric that was not collected fires nothing.\n\n"
    "The topics are those of a list that this project was given; the text is our own. Where its "
    "trigger or its advice is not followed, the last column says why. *The naive product* and *the"
    " tiled product* are the two captures in [tests/data/ncu](../tests/data/ncu/README.md): NVIDIA"
    " H200, ncu 2025.3.1, 2026-11-20, with the commands that made them. Tokens are counted by "
    "{counter}."
)

DIFFERS: Mapping[str, str] = {
    "severe_memory_bound": "It asks for DRAM at 80 % alone. L2, L1 and shared memory fill too: the "
    "naive product has L1 at 96 % and DRAM at 0.4 %.",
    "near_peak_compute": "It asks for SM throughput at 85 %. That counts the load path: 62 % in "
    "the naive product, whose FMA pipe is at 25 %. It advises tensor cores; at a lower precision "
    "they compute another function, which verification rejects.",
    "huge_dram_traffic": "It asks for 10 GB a launch. Bytes say nothing without the time: an H200 "
    "moves 10 GB in 2.1 ms at its 4,814 GB/s. It advises less precision: another function.",
    "low_occupancy": "It asks for 50 % alone. A kernel with independent work a thread needs no "
    "more; so issue slots must idle as well, and the grid must fill the device.",
    "register_limited": "It asks for registers to allow fewer blocks than warps do. So they do in "
    "the tiled product, whose grid ends long before; and at 75 % occupancy it costs little. Spills "
    "are the same trouble, so they fire it too.",
    "low_waves_per_sm": "It asks for fewer than 2 waves. Exactly 1 or 2 lose nothing; what counts "
    "is a grid below 1 and what a partial last wave loses.",
    "high_waves_per_sm": "It asks for 40 waves, as a secondary sign. Long blocks make many waves "
    "harmless, so the life of a block is asked for.",
    "poor_coalescing": "It compares L2 sectors with an ideal. That counts broadcasts as waste: the "
    "naive product uses 18 of 32 bytes through them, with 2 sectors a request. Its 1.25 is kept as "
    "the bytes used of a sector, where a request touches more than 4.",
    "low_l1_hit": "It asks for 30 % alone. The tiled product has 2.8 %, as it should.",
    "low_l2_hit": "It asks for 50 % alone. A stream has no more, whatever is done.",
    "smem_bank_conflicts": "It asks for any conflict at all. ncu's counter holds other lost "
    "wavefronts: the tiled product has 4.2 %.",
    "stall_long_scoreboard": "The same threshold, which is NVIDIA's.",
    "stall_short_scoreboard": "It counts waiting for L1 here. A hit in L1 is long scoreboard.",
    "stall_mio_throttle": "The same threshold. The queue for global and local memory (LG) is a "
    "second one with the same cure, and fires this note too.",
    "stall_math_pipe": "It names SFU and XU as two pipes; they are one. A modelled profile has no "
    "such stall, so a full pipe fires it as well.",
    "stall_barrier": "It asks for 20 %; 30 % is NVIDIA's threshold for every stall.",
    "stall_wait": "It takes it for waiting at `__syncthreads` and advises fewer barriers. Nsight "
    "Compute: a fixed-latency execution dependency. The barrier is stall_barrier.",
    "stall_membar": "The same threshold. It calls such a fence redundant; it may be needed, and "
    "then only its scope or its count can change.",
    "low_ipc": "It asks for less than 0.5 alone. Beside a full memory path that is normal.",
}
"""Of each note: what the given list says of its trigger or cure, and where we differ."""


def expert_notes_page() -> str:
    """docs/expert-notes.md: every note with its size, what fires it, and where that comes from."""
    notes = all_notes()
    summary = [
        (f"`{note.id}`", note.signal, f"{count_tokens(note.text)}", DIFFERS[note.id])
        for note in notes
    ]
    parts = [
        "# Expert notes",
        _INTRO.format(most=MOST_FIRED, counter=counted_by()),
        table(("id", "signal", "tokens", "what the given list has"), summary),
        _totals(notes),
        "## What fires each",
        "Rules and their thresholds: [verdicts](verdicts.md).",
        *(_triggers(note) for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def _totals(notes: Iterable[ExpertNote]) -> str:
    sizes = sorted((count_tokens(note.text) for note in notes), reverse=True)
    fired = {subtype for cues in TRIGGERS.values() for cue in cues for subtype in cue.subtypes}
    silent = ", ".join(f"`{subtype}`" for subtype in SUBTYPES if subtype not in fired)
    return (
        f"The ids take {count_tokens(catalogue()):,} tokens, the {MOST_FIRED} longest notes "
        f"{sum(sizes[:MOST_FIRED]):,}, all of them {sum(sizes):,}. No note is about the subtypes "
        f"{silent}: there the verdict's relief and the page of the knowledge base stand alone."
    )


def _triggers(note: ExpertNote) -> str:
    lines = [f"### `{note.id}`: {note.title}", ""]
    lines += [f"- {_cue(cue)}" for cue in TRIGGERS[note.id]]
    return "\n".join([*lines, "", f"Sources: {'; '.join(note.sources)}."])


def _cue(cue: Cue) -> str:
    findings = ", ".join(f"`{subtype}` ({_rules(subtype)})" for subtype in cue.subtypes)
    start = f"a finding {findings}" if findings else f"metrics alone ({cue.severity})"
    conditions = "; ".join(_condition(condition) for condition in cue.conditions)
    return start + (f"{', and' if findings else ':'} {conditions}" if conditions else "")


def _rules(subtype: str) -> str:
    return ", ".join(rule.id for rule in RULES if rule.subtype == subtype)


def _condition(condition: Condition) -> str:
    if condition.fact == STALLED_MATH.name:
        label, unit = STALLED_MATH.label, STALLED_MATH.unit
    else:
        label, unit = label_and_unit(condition.fact)
    amount = f"{condition.threshold:g} {unit}".strip()
    return f"{label} {condition.comparison} {amount} (`{condition.fact}`; {condition.source})"


if __name__ == "__main__":
    sys.stdout.write(expert_notes_page())
