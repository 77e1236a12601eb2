"""Memory as it is shown: to a person whole, in a prompt bounded; one line a result, every time with
where it comes from.

The text holds what models and users wrote. It is material for a model, not instructions to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cudaops.domain.execution import MEASURED
from cudaops.domain.memory import MemoryEntry, Pattern
from cudaops.memory.results import Avoided, KernelMemory, decided, results, share_saved

CountTokens = Callable[[str], int]

NOTES_SHARE = 0.5
"""Share of the limit that the user's notes may take."""
_LINE = 300
"""Characters of one result's line."""


def estimated_tokens(text: str) -> int:
    """Tokens of a text, rather too many than too few: two bytes each.

    Measured: lines as runs write them have 2.1 to 3 bytes a token by the Llama tokenizer in
    wordllama 0.4.0.post1; upper-case names with numbers have fewest (2026-11-20).
    """
    return -(-len(text.encode("utf-8", errors="replace")) // 2)


def document(memory: KernelMemory) -> str:
    """All that is known of one kernel, as Markdown without control characters: the user's notes,
    rejected candidates that were put together, then one line a candidate."""
    key = memory.key
    lines = [f"# {key.name} on {key.device_class}", "", f"structure {key.structure}"]
    for heading, part in (
        ("Notes", memory.notes.splitlines()),
        ("Avoid", [_avoided_line(group) for group in memory.avoided]),
        ("Tried", [_entry_line(entry) for entry in memory.entries]),
    ):
        if part:
            lines += ["", f"## {heading}", "", *part]
    return "\n".join(map(_cleaned, lines))


def prompt_text(
    memory: KernelMemory, limit_tokens: int, count: CountTokens = estimated_tokens
) -> str:
    """What earlier runs and the user know of this kernel, in at most `limit_tokens`.

    Notes first, then what paid, best first, then what was rejected, newest first. A rewrite that
    was judged several times appears once. Empty where nothing is known.
    """
    text = _Bounded(limit_tokens, count)
    if memory.notes:
        text.open("Notes of the user:")
        text.fill(map(_printable, memory.notes.splitlines()), int(limit_tokens * NOTES_SHARE))
    last = decided(results((), memory.entries), lambda r: r.source_id).values()
    entries = [(r.entry, r.paid) for r in last if r.entry is not None]
    paid = sorted((e for e, did in entries if did), key=lambda e: -share_saved(e.speedup))
    if paid:
        text.open("Paid:")
        text.fill(map(_entry_text, paid))
    rejected = [e for e, did in entries if not did]
    known = {e.source_id for e, _ in entries}
    groups = [g for g in memory.avoided if set(g.source_ids) - known]
    if rejected or groups:
        text.open("Rejected:")
        text.fill([*map(_entry_text, reversed(rejected)), *map(_avoided_text, groups)])
    return text.joined()


def patterns_text(
    patterns: Sequence[Pattern], limit_tokens: int, count: CountTokens = estimated_tokens
) -> str:
    """What families of strategies brought on all kernels, in the order given; bounded."""
    text = _Bounded(limit_tokens, count)
    text.fill(map(pattern_line, patterns))
    return text.joined()


def pattern_line(pattern: Pattern) -> str:
    """One pattern in one line."""
    line = (
        f"- against {pattern.subtype} on {pattern.device_class}, {pattern.family}: "
        f"{pattern.paid} of {pattern.tried} paid"
    )
    if pattern.median_speedup is not None:
        how = "measured" if pattern.measured else "modelled"
        line += f", median {pattern.median_speedup:.2f}x, best {pattern.best_speedup:.2f}x {how}"
    return _printable(line)


class _Bounded:
    """Lines up to a limit; a last line counts those left out."""

    _RESERVE = "(9999 more lines are not shown)"

    def __init__(self, limit: int, count: CountTokens) -> None:
        self._limit, self._count = limit, count
        self._lines: list[str] = []
        self._heading: str | None = None

    def open(self, heading: str) -> None:
        """Begin a part; its heading appears with its first line."""
        self._heading = heading

    def fill(self, lines: Iterable[str], limit: int | None = None) -> None:
        """Add lines up to a limit of the whole text, the text's own where none is given."""
        most = min(self._limit, limit if limit is not None else self._limit)
        waiting = list(lines)
        for i, line in enumerate(waiting):
            more = [line] if self._heading is None else [self._heading, line]
            rest = [self._RESERVE] if i + 1 < len(waiting) else []
            if self._count("\n".join([*self._lines, *more, *rest])) > most:
                self._cut(len(waiting) - i)
                break
            self._lines += more
            self._heading = None
        self._heading = None

    def joined(self) -> str:
        """The text."""
        return "\n".join(self._lines)

    def _cut(self, left: int) -> None:
        line = f"({left} more lines are not shown)"
        if self._count("\n".join([*self._lines, line])) <= self._limit:
            self._lines.append(line)


def _entry_text(entry: MemoryEntry) -> str:
    how: str = entry.outcome
    if entry.speedup is not None:
        how += f" at {entry.speedup:.2f}x {_source(entry)}"
    if entry.gate is not None:
        how += f" by gate {entry.gate}"
    title = "" if entry.title in entry.lesson else f"{entry.title}: "
    return _printable(f"- {entry.family} against {entry.subtype}, {how}: {title}{entry.lesson}")


def _source(entry: MemoryEntry) -> str:
    if entry.time_source in MEASURED:
        return "measured"
    return entry.time_source or "of unknown source"


def _avoided_text(group: Avoided) -> str:
    at = f" by gate {group.gate}" if group.gate else ""
    return _printable(
        f"- {group.family} against {group.subtype}: {len(group.source_ids)} rejected{at}; "
        f"the last: {group.lesson}"
    )


def _entry_line(entry: MemoryEntry) -> str:
    """Every field of it, as docs/memory.md has them."""
    speedup = "-" if entry.speedup is None else f"{entry.speedup:.2f}x"
    timed = entry.speedup is not None or entry.time_source is not None
    fields = (
        entry.date,
        entry.outcome,
        f"{speedup} {entry.time_source or '-'}" if timed else "untimed",
        entry.subtype,
        entry.family,
        entry.title,
        f"by {entry.proposer}",
        f"run {entry.run_id}",
        f"source {entry.source_id}",
        f"gate {entry.gate or '-'}",
        entry.lesson,
    )
    return "- " + " | ".join(fields)


def _avoided_line(group: Avoided) -> str:
    fields = (
        f"avoid {len(group.source_ids)}x",
        group.subtype,
        group.family,
        f"gate {group.gate or '-'}",
        "measured" if group.measured else "unmeasured",
        " ".join(["sources", *group.source_ids]),
        group.lesson,
    )
    return "- " + " | ".join(fields)


def _printable(text: str) -> str:
    """One line of a prompt."""
    kept = _cleaned(text)
    return kept if len(kept) <= _LINE else kept[: _LINE - 1] + "…"


def _cleaned(text: str) -> str:
    """One line without control characters."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()
