r"""Memory as it was kept before SQLite: Markdown files, one a kernel, read once and never written.

    - DATE | OUTCOME | SPEEDUP | SUBTYPE | FAMILY | TITLE | by PROPOSER | run ID | source ID
      | gate NAME | LESSON
    - avoid COUNTx | SUBTYPE | FAMILY | gate NAME | measured or unmeasured | sources ID ID | LESSON

Each stands on one line, the key in front matter. `SPEEDUP` is `5.56x modelled`, with `-` for what
is not known, or `untimed`. Inside a field `\|`, `\\`, `\n`, `\s` and `\uXXXX` stand for a bar, a
backslash, the end of a line, a space and any character. Whatever else stands in a file is a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from cudaops.domain.memory import KernelKey, MemoryEntry
from cudaops.memory.results import KernelMemory

_NAMED = re.compile(r"(?P<name>.*)-(?P<structure>[0-9a-f]{16})-(?P<device_class>\w+)")
_OURS = re.compile(r"## (Notes|Resolved|Pending|Avoid|Tried)|<!-- cudaops writes one line .*-->")


def _line(*fields: str) -> re.Pattern[str]:
    """A list item of fields between bars that no backslash escapes. A field is a name, after the
    word that stands before it in the line where there is one."""
    forms = []
    for field in fields:
        *word, name = field.split()
        before = "".join(rf"\s*{w}\b" for w in word)
        forms.append(rf"{before}(?P<{name}>(?:\\.|[^|\\])*)")
    return re.compile("- " + r"\|".join(forms))


_ENTRY = _line(
    "date", "outcome", "speedup", "subtype", "family", "title", "by proposer", "run run_id",
    "source source_id", "gate gate", "lesson",
)  # fmt: skip
_GROUP = _line(
    "avoid count", "subtype", "family", "gate gate", "how", "sources source_ids", "lesson"
)
_TIME = re.compile(r"untimed|(?:-|(?P<speedup>\S+)x) +(?P<time_source>\S+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)?")
_PLAIN = {"\\": "\\", "|": "|", "n": "\n", "s": " "}


def read_old_files(folder: Path) -> Iterator[KernelMemory]:
    """What each file says, by name; nothing where there is no folder. Raises OSError.

    A group of rejected candidates comes as entries, the oldest, that know no more than the group
    did: no date, title, run or proposer.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        if path.suffix == ".md" and not path.name.startswith(".") and path.is_file():
            rows = path.read_bytes().decode("utf-8", "replace").split("\n")
            head, body = _front_matter([row.rstrip("\r") for row in rows])
            named = _NAMED.fullmatch(path.stem)
            if head.get("structure") and head.get("device_class"):
                names = ("structure", "device_class", "name")
                yield _read(KernelKey(**{name: head.get(name, "") for name in names}), body)
            elif named:  # a head that was damaged by hand
                yield _read(KernelKey(**named.groupdict()), body)


def _read(key: KernelKey, rows: list[str]) -> KernelMemory:
    found: dict[str, list[MemoryEntry]] = {"avoided": [], "paid": [], "whole": []}
    own, section = [], ""
    for row in rows:
        if row.startswith("## "):
            section = row[3:].strip()
        if entry := _entry(row):
            found["paid" if section in ("Resolved", "Pending") else "whole"].append(entry)
        elif group := _group(row):
            found["avoided"] += group
        elif not _OURS.fullmatch(row.strip()):
            own.append(row.rstrip())
    notes = re.sub(r"\n{3,}", "\n\n", "\n".join(own)).strip()
    return KernelMemory(key=key, entries=tuple(chain(*found.values())), notes=notes)


def _front_matter(rows: list[str]) -> tuple[dict[str, str], list[str]]:
    """Its values and the rest without the title; nothing where it is not closed."""
    if rows[0].removeprefix("\ufeff").strip() != "---":
        return {}, rows
    head: dict[str, str] = {}
    for number, row in enumerate(rows[1:], start=2):
        name, colon, value = row.strip().partition(":")
        if name == "---":
            title = next((i for i in range(number, len(rows)) if rows[i].startswith("# ")), None)
            return head, [row for i, row in enumerate(rows) if i >= number and i != title]
        if not colon:
            break
        try:
            head[name] = _unescaped(value.strip())
        except ValueError:
            head[name] = value.strip()
    return {}, rows


def _entry(row: str) -> MemoryEntry | None:
    """The entry that a line holds; None where it is none, or a damaged one."""
    fields = _fields(_ENTRY, row)
    time = _TIME.fullmatch(fields["speedup"]) if fields else None
    if time is None:
        return None
    timed = {name: None if word == "-" else word for name, word in time.groupdict().items()}
    with suppress(ValueError):
        known = {name: _unescaped(text) for name, text in fields.items()}
        return MemoryEntry.model_validate(known | timed | {"gate": _gate(fields["gate"])})
    return None


def _group(row: str) -> list[MemoryEntry]:
    """Rejected candidates that were put together; none where the line is no such group."""
    fields = _fields(_GROUP, row)
    if fields.get("how") not in ("measured", "unmeasured"):
        return []
    known = {
        "date": "", "run_id": "", "title": "", "proposer": "", "outcome": "rejected",
        "speedup": None, "gate": _gate(fields["gate"]),
        "time_source": "cuda_event" if fields["how"] == "measured" else None,
    }  # fmt: skip
    with suppress(ValueError):
        known |= {name: _unescaped(fields[name]) for name in ("subtype", "family", "lesson")}
        sources = map(_unescaped, fields["source_ids"].split())
        return [MemoryEntry.model_validate(known | {"source_id": source}) for source in sources]
    return []


def _fields(form: re.Pattern[str], row: str) -> dict[str, str]:
    """Empty where the line has another form."""
    found = form.fullmatch(row)
    return {name: text.strip() for name, text in found.groupdict().items()} if found else {}


def _gate(word: str) -> str | None:
    return None if word == "-" else word


def _unescaped(text: str) -> str:
    """Raises ValueError where an escape is none."""

    def meant(escape: re.Match[str]) -> str:
        what = escape[1] or ""
        if len(what) > 1:
            character = chr(int(what[1:], 16))
            character.encode()  # no surrogates: UnicodeEncodeError is a ValueError
            return character
        if what not in _PLAIN:
            raise ValueError(f"{escape[0]!r} is no escape")
        return _PLAIN[what]

    return _ESCAPE.sub(meant, text)
