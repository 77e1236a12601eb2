"""One memory file as bytes and as what stands in it. What is the user's own is never rewritten."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cudaops.domain.memory import KernelKey, MemoryEntry
from cudaops.memory.lines import (
    entry_line,
    escaped,
    meant_as_ours,
    read_avoided,
    read_entry,
    unescaped,
)
from cudaops.memory.records import Avoided, KernelMemory

INTRODUCTION = (
    "<!-- cudaops writes one line a candidate; whatever else you write is kept and shown to the "
    "model. docs/memory.md -->"
)
NOTES, RESOLVED, PENDING, AVOID, TRIED = "Notes", "Resolved", "Pending", "Avoid", "Tried"
"""Headings of the second level. Entries under Resolved and Pending were settled by compaction."""
SECTIONS = (NOTES, RESOLVED, PENDING, AVOID, TRIED)
"""In the order in which a file has them."""
SETTLED = (RESOLVED, PENDING)

_FIELDS = ("structure", "device_class", "name")
_HEADER_LINE = re.compile(r"(\w+):\s*(.*)")


class Line(NamedTuple):
    """One line of a file."""

    raw: bytes
    """With its end, where it has one."""
    section: str = ""
    """The heading of the second level that it stands under; empty above the first."""
    content: MemoryEntry | Avoided | None = None
    """What cudaops reads in it."""
    ours: bool = False
    """Written by cudaops: header, title, heading, entry. The rest is the user's own."""

    @property
    def text(self) -> str:
        """Without its end; bytes that are no UTF-8 are replaced."""
        return self.raw.decode("utf-8", errors="replace").rstrip("\r\n")


class Document(NamedTuple):
    """One memory file."""

    lines: tuple[Line, ...]
    header: dict[str, str]
    """Front matter; empty where there is none."""

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return b"".join(line.raw for line in self.lines)

    @property
    def entries(self) -> tuple[MemoryEntry, ...]:
        """Oldest first: settled ones, then the others in the order of the file."""
        settled = [e for e, section in self._entries() if section in SETTLED]
        return (*settled, *self.whole)

    @property
    def whole(self) -> tuple[MemoryEntry, ...]:
        """Entries that compaction has not settled, oldest first."""
        return tuple(e for e, section in self._entries() if section not in SETTLED)

    @property
    def avoided(self) -> tuple[Avoided, ...]:
        """Rejected ones taken together."""
        return tuple(line.content for line in self.lines if isinstance(line.content, Avoided))

    @property
    def notes(self) -> str:
        """The user's own lines, runs of empty ones made one."""
        own = "\n".join(line.text.rstrip() for line in self.lines if not line.ours)
        return re.sub(r"\n{3,}", "\n\n", own).strip()

    @property
    def suspicious(self) -> tuple[tuple[int, str], ...]:
        """Lines that look like a damaged entry, with their 1-based numbers: notes all the same."""
        return tuple(
            (number, line.text)
            for number, line in enumerate(self.lines, start=1)
            if not line.ours and meant_as_ours(line.text)
        )

    @property
    def key(self) -> KernelKey | None:
        """The key in the front matter; None where it is not there or not whole."""
        return _key(self.header)

    def memory(self, key: KernelKey) -> KernelMemory:
        """What the file says about the kernel of this key."""
        return KernelMemory(key=key, entries=self.entries, avoided=self.avoided, notes=self.notes)

    def _entries(self) -> Iterator[tuple[MemoryEntry, str]]:
        for line in self.lines:
            if isinstance(line.content, MemoryEntry):
                yield line.content, line.section


def read_document(data: bytes) -> Document:
    """Whatever the bytes are, they come back as `Document.data`."""
    rows = _split(data)
    header, end = _front_matter(rows)
    lines = [Line(raw, ours=True) for raw in rows[:end]]
    section, titled = "", False
    for raw in rows[end:]:
        line = _line(raw, section)
        heading = _heading(line)
        if heading is not None:
            section = heading
            line = line._replace(section=section, ours=section in SECTIONS)
        elif not titled and end and line.text.startswith("# "):
            titled, line = True, line._replace(ours=True)
        lines.append(line)
    return Document(tuple(lines), header)


def read_key(data: bytes) -> KernelKey | None:
    """The key in a file's front matter alone."""
    return _key(_front_matter(_split(data))[0])


def new_document(key: KernelKey) -> Document:
    """The file of a kernel that nothing is known of."""
    values = zip(_FIELDS, (key.structure, key.device_class, key.name), strict=True)
    front = [f"{field}: {escaped(value)}" for field, value in values]
    title = f"# {escaped(key.name)} on {escaped(key.device_class)}"
    text = "\n".join(["---", *front, "---", title, "", INTRODUCTION, "", f"## {TRIED}", "", ""])
    return read_document(text.encode())


def with_entry(document: Document, entry: MemoryEntry) -> Document:
    """The file with one more entry behind the last one that is not settled."""
    lines = document.lines
    last = [i for i, line in enumerate(lines) if line.section == TRIED and _is_entry(line)]
    if last:
        return _inserted(document, last[-1] + 1, [entry_line(entry)])
    return in_section(document, TRIED, [entry_line(entry)])


def in_section(document: Document, section: str, texts: Iterable[str]) -> Document:
    """The file with these lines at the head of a section, which is made where it is not there."""
    for i, line in enumerate(document.lines):
        if _heading(line) == section:
            follows = document.lines[i + 1 : i + 2]
            blank = bool(follows) and not follows[0].text.strip()
            return _inserted(document, i + 1 + blank, texts if blank else ["", *texts])
    at = _place_of(document, section)
    before = document.lines[at - 1 : at]
    gap = [""] if before and before[0].text.strip() else []
    after = [""] if at < len(document.lines) else []
    return _inserted(document, at, [*gap, f"## {section}", "", *texts, *after])


def renamed(document: Document, name: str) -> Document:
    """The file with the kernel's name where it was last seen."""
    if not document.header or document.header.get("name") == name:
        return document
    named = f"name: {escaped(name)}\n".encode()
    rows = [line.raw for line in document.lines]
    for i, raw in enumerate(rows[1:], start=1):
        if raw.startswith(b"name:"):
            rows[i] = named
            break
        if raw.strip() == b"---":
            rows.insert(i, named)
            break
    return read_document(b"".join(rows))


def _place_of(document: Document, section: str) -> int:
    """Before the first section that comes after it; the end of the file where there is none."""
    later = SECTIONS[SECTIONS.index(section) + 1 :]
    for i, line in enumerate(document.lines):
        if _heading(line) in later:
            return i
    return len(document.lines)


def _inserted(document: Document, at: int, texts: Iterable[str]) -> Document:
    rows = [line.raw for line in document.lines]
    if at and not rows[at - 1].endswith(b"\n"):
        rows[at - 1] += b"\n"
    rows[at:at] = [text.encode() + b"\n" for text in texts]
    return read_document(b"".join(rows))


def _key(header: dict[str, str]) -> KernelKey | None:
    if not all(header.get(field) for field in _FIELDS[:2]):
        return None
    return KernelKey(**{field: header.get(field, "") for field in _FIELDS})


def _heading(line: Line) -> str | None:
    return line.text[3:].strip() if line.text.startswith("## ") else None


def _is_entry(line: Line) -> bool:
    return isinstance(line.content, MemoryEntry)


def _line(raw: bytes, section: str) -> Line:
    try:
        text = raw.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return Line(raw, section)
    content = read_entry(text) or read_avoided(text)
    return Line(raw, section, content, content is not None or text.strip() == INTRODUCTION)


def _split(data: bytes) -> list[bytes]:
    """Lines end with a line feed alone: a carriage return may stand inside one."""
    rows = data.split(b"\n")
    return [row + b"\n" for row in rows[:-1]] + ([rows[-1]] if rows[-1] else [])


def _front_matter(rows: list[bytes]) -> tuple[dict[str, str], int]:
    """Its values and how many lines it takes; nothing where it is not closed or holds other
    things."""
    if not rows or rows[0].removeprefix(codecs.BOM_UTF8).strip() != b"---":
        return {}, 0
    header: dict[str, str] = {}
    for i, raw in enumerate(rows[1:], start=1):
        text = raw.decode("utf-8", errors="replace").strip()
        if text == "---":
            return header, i + 1
        field = _HEADER_LINE.fullmatch(text)
        if field is None:
            break
        try:
            header[field[1]] = unescaped(field[2])
        except ValueError:
            header[field[1]] = field[2]
    return {}, 0
