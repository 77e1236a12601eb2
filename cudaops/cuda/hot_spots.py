"""Warp samples of machine instructions added up to source lines: where a measured kernel waits.

ncu samples where each warp stands and why it does not go on. A sample falls on the instruction
that waits, which for a load's latency is the first one that needs the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from cudaops.domain.base import SourceLocation
from cudaops.domain.profile import HotLine

MOST = 3
LEAST_PCT = 1.0
"""A line with less is not worth a reader's time (judgement)."""
NOT_WAITING = ("selected", "not_selected")
"""Sampled states in which the warp could go on. Source: Kernel Profiling Guide, warp states."""

Line = tuple[str, int]
"""File as the line table names it, and 1-based line."""


class SassInstruction(NamedTuple):
    """One machine instruction of the launched kernel, with what ncu counted there."""

    offset: int
    """Bytes from the kernel's first instruction."""
    sass: str
    executed: int
    """By warps."""
    samples: int
    stalls: Mapping[str, int]
    """Reason (`long_scoreboard`) to samples; they add up to `samples`."""
    global_sectors: int = 0
    """32-byte sectors its accesses need of L2, whether they hit in L1 or not."""
    shared_wavefronts: int = 0
    line: Line | None = None
    """Where the report itself holds line information."""


_KINDS: tuple[tuple[str, str], ...] = (
    (r"LDGSTS", "asynchronous copy to shared memory"),
    (r"LDG|LD(\.|$)", "global load"),
    (r"STG|ST(\.|$)", "global store"),
    (r"ATOMS", "shared atomic"),
    (r"ATOM|ATOMG|RED(\.|$)|REDG", "global atomic"),
    (r"LDSM|LDS", "shared load"),
    (r"STSM|STS", "shared store"),
    (r"LDL|STL", "local memory: spills or indexed local arrays"),
    (r"LDC|LDCU|ULDC", "constant load"),
    (r"TEX|TLD|SULD|SUST", "texture access"),
    (r"[HIDBQ]MMA|[HIQ]?GMMA|UTC.*MMA", "matrix instruction"),
    (r"BAR|SYNCS|WARPSYNC", "barrier"),
    (r"MEMBAR|FENCE", "memory fence"),
    (r"SHFL|VOTE|MATCH|REDUX", "warp exchange"),
    (r"MUFU", "special function"),
    (r"[DF](FMA|ADD|MUL)|HFMA2|HADD2|HMUL2", "floating-point arithmetic"),
    (r"I2F|F2I|F2F|I2I", "conversion"),
    (r"BRA|EXIT|CALL|RET|BSSY|BSYNC", "branch"),
)
"""Opcode to words, first match wins. Source: CUDA Binary Utilities, instruction set reference."""
_MEMORY = ("global load", "global store", "shared load", "shared store", "global atomic",
           "shared atomic", "asynchronous copy to shared memory")  # fmt: skip


def kind_of(sass: str) -> str:
    """What an instruction does, in words; `integer arithmetic and moves` where it is neither of
    memory, control nor floating point."""
    words = [word for word in sass.split() if not word.startswith("@")]
    opcode = words[0] if words else ""
    found = next((kind for pattern, kind in _KINDS if re.match(pattern, opcode)), None)
    return found or "integer arithmetic and moves"


def hot_lines(
    instructions: Sequence[SassInstruction],
    lines: Mapping[int, Line],
    text_of: Callable[[SourceLocation], str],
    rename: Callable[[str], str] = lambda file: PurePosixPath(file).name,
) -> tuple[HotLine, ...]:
    """Up to three lines with most samples, hottest first; empty where no sample has a line.

    `lines` maps offsets to lines and gives way to what an instruction itself holds; `rename` turns
    a file of the line table into the name the program has for it. Shares are of all samples.
    """
    total = sum(each.samples for each in instructions)
    by_line: dict[Line, list[SassInstruction]] = {}
    for each in instructions:
        at = each.line or lines.get(each.offset)
        if at is not None:
            by_line.setdefault((rename(at[0]), at[1]), []).append(each)
    spots = [
        (SourceLocation(file=file, line=line), group) for (file, line), group in by_line.items()
    ]
    return _hottest(spots, total, text_of)


def hot_instructions(kernel: str, instructions: Sequence[SassInstruction]) -> tuple[HotLine, ...]:
    """The same for machine instructions, where nothing tells their lines: the file is
    `KERNEL.sass`, the line the instruction's number."""
    total = sum(each.samples for each in instructions)
    ordered = sorted(instructions, key=lambda each: each.offset)
    texts = {number: each.sass for number, each in enumerate(ordered, 1)}
    spots = [
        (SourceLocation(file=f"{kernel}.sass", line=number), [each])
        for number, each in enumerate(ordered, 1)
    ]
    return _hottest(spots, total, lambda place: texts[place.line])


def _hottest(
    spots: Iterable[tuple[SourceLocation, list[SassInstruction]]],
    total: int,
    text_of: Callable[[SourceLocation], str],
) -> tuple[HotLine, ...]:
    ranked = sorted(
        ((sum(each.samples for each in group), place, group) for place, group in spots),
        key=lambda spot: (-spot[0], spot[1].file, spot[1].line),
    )
    return tuple(
        HotLine(
            location=place,
            text=text_of(place).strip(),
            share_pct=100.0 * samples / total,
            note=_note(group),
        )
        for samples, place, group in ranked[:MOST]
        if total > 0 and 100.0 * samples / total >= LEAST_PCT
    )


def _note(group: Sequence[SassInstruction]) -> str:
    parts = [_access(kind, group) for kind in _kinds(group)]
    stalls: dict[str, int] = {}
    for each in group:
        for reason, samples in each.stalls.items():
            if reason not in NOT_WAITING:
                stalls[reason] = stalls.get(reason, 0) + samples
    waited = sum(stalls.values())
    if waited:
        worst = max(stalls, key=lambda reason: stalls[reason])
        share = 100.0 * stalls[worst] / waited
        parts.append(f"{share:.0f} % of its stalls {worst.replace('_', ' ')}")
    return ", ".join(parts)


def _kinds(group: Sequence[SassInstruction]) -> list[str]:
    """What the line does: its memory accesses and barriers, else what most of its samples do."""
    samples: dict[str, int] = {}
    for each in group:
        kind = kind_of(each.sass)
        samples[kind] = samples.get(kind, 0) + each.samples
    accesses = [kind for kind in samples if kind in _MEMORY]
    return accesses or [max(samples, key=lambda kind: samples[kind])]


def _access(kind: str, group: Sequence[SassInstruction]) -> str:
    here = [each for each in group if kind_of(each.sass) == kind]
    requests = sum(each.executed for each in here)
    sectors = sum(each.global_sectors for each in here)
    wavefronts = sum(each.shared_wavefronts for each in here)
    if requests and sectors:
        return f"{kind}, {sectors / requests:.1f} sectors/request"
    if requests and wavefronts:
        return f"{kind}, {wavefronts / requests:.1f} wavefronts/instruction"
    return kind
