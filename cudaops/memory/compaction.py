"""A long memory made short: what paid, what is pending, what to avoid. No model is asked.

What paid stays an entry of its own, one for each rewrite, best first: Resolved where it was
accepted, Pending where it is provisional. What was rejected is counted by verdict, family and gate
under Avoid, with the sources' ids, so that `patterns` come out the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudaops.domain.judgement import GateName
from cudaops.domain.memory import MemoryEntry
from cudaops.memory.document import (
    AVOID,
    PENDING,
    RESOLVED,
    Document,
    in_section,
    read_document,
)
from cudaops.memory.lines import avoided_line, entry_line
from cudaops.memory.records import Avoided, Result, decided, results

KEPT = 12
"""Entries that stay whole, the newest: as many as a prompt shows of them (`MEMORY_TOKENS` at some
100 tokens a line), four runs of three candidates."""
MOST = 2 * KEPT
"""Entries beyond which a memory is compacted: with every twelfth new one, not with each."""


def is_long(document: Document) -> bool:
    """Whether it has more entries than a prompt should hold."""
    return len(document.whole) > MOST


def compacted(document: Document, keep: int = KEPT) -> Document:
    """The file with all but the newest `keep` entries settled; the user's lines stay as they are.

    Unchanged where there is nothing to settle.
    """
    whole = document.whole
    old = whole[: len(whole) - keep] if keep < len(whole) else ()
    if not old:
        return document
    settled = document.entries[: len(document.entries) - len(whole)]
    found = results(document.avoided, (*settled, *old))
    last = decided(found, lambda r: (r.subtype, r.family, r.source_id)).values()
    paid = [r.entry for r in last if r.paid and r.entry is not None]
    short = _without(document, len(old))
    for section, lines in (
        (RESOLVED, _entry_lines(e for e in paid if e.outcome == "accepted")),
        (PENDING, _entry_lines(e for e in paid if e.outcome == "provisional")),
        (AVOID, _avoided_lines(r for r in last if not r.paid)),
    ):
        short = in_section(short, section, lines) if lines else short
    return short


def _entry_lines(entries: Iterable[MemoryEntry]) -> list[str]:
    """Best first; among equals in the order of the file."""
    return [entry_line(e) for e in sorted(entries, key=lambda e: -(e.speedup or 0.0))]


def _avoided_lines(rejected: Iterable[Result]) -> list[str]:
    """By verdict and family, the gate that stopped most first."""
    groups: dict[tuple[str, str, GateName | None, bool], list[Result]] = {}
    for r in rejected:
        groups.setdefault((r.subtype, r.family, r.gate, r.measured), []).append(r)
    ordered = sorted(groups.items(), key=lambda g: (*g[0][:2], -len(g[1]), str(g[0][2]), g[0][3]))
    return [
        avoided_line(
            Avoided(
                subtype=subtype,
                family=family,
                gate=gate,
                measured=measured,
                source_ids=tuple(r.source_id for r in members),
                lesson=members[-1].lesson,
            )
        )
        for (subtype, family, gate, measured), members in ordered
    ]


def _without(document: Document, oldest: int) -> Document:
    """The file without settled lines and without its `oldest` entries that are not settled."""
    rows, dropped = [], 0
    for line in document.lines:
        if isinstance(line.content, Avoided):
            continue
        if isinstance(line.content, MemoryEntry):
            if line.section in (RESOLVED, PENDING):
                continue
            dropped += 1
            if dropped <= oldest:
                continue
        rows.append(line.raw)
    return read_document(b"".join(rows))
