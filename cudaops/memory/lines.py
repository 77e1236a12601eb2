r"""The two kinds of line that cudaops writes into a memory file, and reads back exactly.

    - DATE | OUTCOME | SPEEDUP | SUBTYPE | FAMILY | TITLE | by PROPOSER | run ID | source ID
      | gate NAME | LESSON
    - avoid COUNTx | SUBTYPE | FAMILY | gate NAME | measured or unmeasured | sources ID ID | LESSON

Each stands on one line. `SPEEDUP` is `5.56x modelled`, with `-` for what is not known, or
`untimed`. Inside a field `\|`, `\\`, `\n` and `\uXXXX` stand for a bar, a backslash, the end of a
line and whatever cannot be printed, `\s` for a space where a plain one would be lost. A line of any
other form is the user's own.
"""

from __future__ import annotations

import re

from cudaops.domain.memory import MemoryEntry
from cudaops.memory.records import Avoided

_BULLET = "- "
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)?", re.DOTALL)
_PLAIN = {"\\": "\\", "|": "|", "n": "\n", "s": " "}
_UNTIMED = "untimed"
_UNKNOWN = "-"


def escaped(text: str) -> str:
    """Text as it stands in a field: printable, on one line, without a bare bar. Half of a surrogate
    pair, which no file can hold, becomes U+FFFD."""
    body = text.strip(" ")
    if not body:
        return "\\s" * len(text)
    ahead = len(text) - len(text.lstrip(" "))
    behind = len(text) - len(text.rstrip(" "))
    return "\\s" * ahead + "".join(map(_escaped_character, body)) + "\\s" * behind


def unescaped(text: str) -> str:
    """The text of a field. Raises ValueError where an escape is none."""
    return _ESCAPE.sub(_meant, text)


def entry_line(entry: MemoryEntry) -> str:
    """The line of one entry, without its end."""
    fields = [
        escaped(entry.date),
        entry.outcome,
        _speed(entry),
        escaped(entry.subtype),
        escaped(entry.family),
        escaped(entry.title),
        f"by {escaped(entry.proposer)}",
        f"run {escaped(entry.run_id)}",
        f"source {escaped(entry.source_id)}",
        f"gate {entry.gate or _UNKNOWN}",
        escaped(entry.lesson),
    ]
    return _BULLET + " | ".join(fields)


def read_entry(line: str) -> MemoryEntry | None:
    """The entry that a line holds; None where it is no entry, or a damaged one."""
    fields = _fields(line)
    if len(fields) != 11:
        return None
    date, outcome, speed, subtype, family, title, by, run, source, gate, lesson = fields
    try:
        speedup, time_source = _read_speed(speed)
        return MemoryEntry.model_validate(
            {
                "date": unescaped(date),
                "outcome": outcome,
                "speedup": speedup,
                "time_source": time_source,
                "subtype": unescaped(subtype),
                "family": unescaped(family),
                "title": unescaped(title),
                "proposer": unescaped(_after("by", by)),
                "run_id": unescaped(_after("run", run)),
                "source_id": unescaped(_after("source", source)),
                "gate": _known(_after("gate", gate)),
                "lesson": unescaped(lesson),
            }
        )
    except ValueError:
        return None


def avoided_line(group: Avoided) -> str:
    """The line of rejected candidates taken together, without its end."""
    fields = [
        f"avoid {len(group.source_ids)}x",
        escaped(group.subtype),
        escaped(group.family),
        f"gate {group.gate or _UNKNOWN}",
        "measured" if group.measured else "unmeasured",
        " ".join(["sources", *(escaped(i).replace(" ", "\\s") for i in group.source_ids)]),
        escaped(group.lesson),
    ]
    return _BULLET + " | ".join(fields)


def read_avoided(line: str) -> Avoided | None:
    """The group that a line holds; None where it holds none. The sources count, not the number."""
    if not line.startswith(_BULLET + "avoid "):
        return None
    fields = _fields(line)
    if len(fields) != 7 or not re.fullmatch(r"avoid \d+x", fields[0]):
        return None
    _, subtype, family, gate, how, sources, lesson = fields
    if how not in ("measured", "unmeasured"):
        return None
    try:
        return Avoided.model_validate(
            {
                "subtype": unescaped(subtype),
                "family": unescaped(family),
                "gate": _known(_after("gate", gate)),
                "measured": how == "measured",
                "source_ids": tuple(map(unescaped, _after("sources", sources).split())),
                "lesson": unescaped(lesson),
            }
        )
    except ValueError:
        return None


def meant_as_ours(line: str) -> bool:
    """Whether somebody seems to have meant an entry, whatever became of it."""
    fields = _fields(line)
    return len(fields) >= 5 and line.startswith(_BULLET)


def _escaped_character(character: str) -> str:
    if character in "\\|":
        return "\\" + character
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _meant(escape: re.Match[str]) -> str:
    what = escape[1] or ""
    if len(what) > 1:
        character = chr(int(what[1:], 16))
        character.encode()  # no surrogates: UnicodeEncodeError is a ValueError
        return character
    if what not in _PLAIN:
        raise ValueError(f"{escape[0]!r} is no escape")
    return _PLAIN[what]


def _fields(line: str) -> list[str]:
    """What stands between bars that no backslash escapes; empty where it is no list item."""
    if not line.startswith(_BULLET):
        return []
    if "\\" not in line:
        return [field.strip() for field in line[len(_BULLET) :].split("|")]
    fields, start, skipped = [], len(_BULLET), False
    for i, character in enumerate(line):
        if skipped:
            skipped = False
        elif character == "\\":
            skipped = True
        elif character == "|":
            fields.append(line[start:i].strip())
            start = i + 1
    return [*fields, line[start:].strip()]


def _speed(entry: MemoryEntry) -> str:
    if entry.speedup is None and entry.time_source is None:
        return _UNTIMED
    speedup = _UNKNOWN if entry.speedup is None else f"{entry.speedup!r}x"
    return f"{speedup} {entry.time_source or _UNKNOWN}"


def _read_speed(field: str) -> tuple[float | None, str | None]:
    if field == _UNTIMED:
        return None, None
    speedup, _, time_source = field.partition(" ")
    if speedup == _UNKNOWN:
        return None, _known(time_source.strip())
    if not speedup.endswith("x"):
        raise ValueError(f"{field!r} is no speedup")
    return float(speedup[:-1]), _known(time_source.strip())


def _known(word: str) -> str | None:
    return None if word == _UNKNOWN else word


def _after(word: str, field: str) -> str:
    head, _, rest = field.partition(" ")
    if head != word:
        raise ValueError(f"{field!r} does not begin with {word!r}")
    return rest.strip()
