"""Launch directives in `//` comments, read into parts that know their line and column.

The grammar, with examples: docs/launch-plans.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn

from cudaops.errors import PlanError
from cudaops.program.expressions import Expression, parse
from cudaops.program.grammar import SIZE_OF, unknown_size
from cudaops.program.lexing import byte_text, lex, line_of, plain_text

MAX_LAUNCHES = 16
"""Launches of one plan; a candidate with more has another algorithm's cost."""
WORDS = ("launch", "scratch", "tune", "requires")
_KEYS = ("grid", "block", "smem", "args")
_KEY = re.compile(r"\b(\w+)\s*=(?!=)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALLEE = re.compile(r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*\s*(?:<[\w\s,<>:*+\-/%()]*>)?")


class Text(NamedTuple):
    """A piece of a directive and where it starts."""

    text: str
    line: int
    column: int

    def part(self, start: int, end: int | None = None) -> Text:
        """The piece between two offsets, spaces around it removed."""
        piece = self.text[start:end]
        lead = len(piece) - len(piece.lstrip())
        return Text(piece.strip(), self.line, self.column + start + lead)

    def fail(self, message: str, at: int = 0) -> NoReturn:
        """Raise PlanError at an offset into this piece."""
        raise PlanError(message, self.line, self.column + at)

    def expression(self) -> Expression:
        """This piece read as an expression. Raises PlanError."""
        return parse(self.text, self.line, self.column)


@dataclass(frozen=True)
class LaunchDirective:
    """`@launch`."""

    callee: Text
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    smem: Expression
    args: tuple[Expression, ...]
    line: int


@dataclass(frozen=True)
class ScratchBuffer:
    """`@scratch`."""

    name: Text
    size: Expression


@dataclass(frozen=True)
class TuneName:
    """`@tune`."""

    name: Text
    values: tuple[int, ...]


@dataclass(frozen=True)
class Directives:
    """Every directive of a text, in order."""

    launches: tuple[LaunchDirective, ...]
    scratch: tuple[ScratchBuffer, ...]
    tune: tuple[TuneName, ...]
    requires: tuple[Expression, ...]


@lru_cache(maxsize=64)
def read_directives(source: str) -> Directives:
    """Read a rewrite's directives. Raises PlanError with line and column."""
    launches, scratch, tune, requires = [], [], [], []
    for word, body in _comments(source):
        match word:
            case "launch":
                launches.append(_launch(body))
            case "scratch":
                scratch.append(_scratch(body))
            case "tune":
                tune.append(_tune(body))
            case "requires":
                requires.append(_requires(body))
    if len(launches) > MAX_LAUNCHES:
        launches[-1].callee.fail(f"more than {MAX_LAUNCHES} launches in one plan")
    _reject_twice([*(s.name for s in scratch), *(t.name for t in tune)])
    return Directives(tuple(launches), tuple(scratch), tuple(tune), tuple(requires))


def _comments(source: str) -> Iterator[tuple[str, Text]]:
    raw = byte_text(source)
    for comment in lex(raw).comments:
        match = re.match(r"//[/!]?\s*@(\w+)", comment.text)
        if match is None:
            continue
        line = line_of(raw, comment.start)
        before = plain_text(raw[raw.rfind("\n", 0, comment.start) + 1 : comment.start])
        whole = Text(plain_text(comment.text).rstrip(), line, len(before) + 1)
        word = match.group(1)
        if word in WORDS:
            yield word, whole.part(match.end())
        elif close := difflib.get_close_matches(word, WORDS, 1, 0.7):
            whole.fail(
                f"unknown directive `@{word}`; did you mean `@{close[0]}`?", match.start(1) - 1
            )


def _launch(body: Text) -> LaunchDirective:
    fields = _fields(body)
    callee = body.part(0, min((at for at, _ in fields.values()), default=None))
    if not callee.text:
        body.fail(
            "`@launch` needs a kernel name first: `@launch kernel grid=(..) block=(..) args=(..)`"
        )
    if _CALLEE.fullmatch(callee.text) is None:
        callee.fail(f"`{callee.text}` is not a kernel name with template arguments")
    for key in ("grid", "block", "args"):
        if key not in fields:
            body.fail(f"`@launch {callee.text}` misses `{key}=(..)`", len(body.text))
    smem = fields["smem"][1] if "smem" in fields else Text("0", body.line, body.column)
    return LaunchDirective(
        callee,
        _extent("grid", fields["grid"][1]),
        _extent("block", fields["block"][1]),
        smem.expression(),
        _listed("args", fields["args"][1]),
        body.line,
    )


def _fields(body: Text) -> dict[str, tuple[int, Text]]:
    """Key to its offset and value."""
    # A single `=` occurs in no expression, so each one ends a key.
    found = [(m.start(), m.end(), m.group(1)) for m in _KEY.finditer(body.text)]
    fields: dict[str, tuple[int, Text]] = {}
    for index, (start, end, key) in enumerate(found):
        if key not in _KEYS:
            body.fail(
                f"unknown key `{key}=`{_near(key, _KEYS)}; known are grid, block, smem, args", start
            )
        if key in fields:
            body.fail(f"`{key}=` is given twice", start)
        stop = found[index + 1][0] if index + 1 < len(found) else None
        fields[key] = (start, body.part(end, stop))
    return fields


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f", did you mean `{close[0]}`?" if close else ""


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Message for a name that an expression may not use, with the nearest that it may."""
    if name.startswith(SIZE_OF):
        return unknown_size(name)
    names = sorted(n for n in known if not n.startswith(SIZE_OF))
    near = _near(name, names)
    return f"unknown name `{name}`" + (near or "; known are " + ", ".join(names))


def _extent(key: str, value: Text) -> tuple[Expression, ...]:
    parts = _listed(key, value)
    if not 1 <= len(parts) <= 3:
        value.fail(f"`{key}=` takes 1 to 3 expressions, not {len(parts)}")
    return parts


def _listed(key: str, value: Text) -> tuple[Expression, ...]:
    """Expressions of `(a, b, c)`."""
    if not value.text.startswith("("):
        value.fail(f"`{key}=` needs parentheses: `{key}=(..)`")
    depth, cuts = 0, [1]
    for at, letter in enumerate(value.text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 1:
            cuts.append(at + 1)
        if depth == 0:
            return _between(value, cuts, at)
    return value.fail(f"unbalanced `(` after `{key}=`")


def _between(value: Text, cuts: list[int], end: int) -> tuple[Expression, ...]:
    rest = value.part(end + 1)
    if rest.text:
        rest.fail("unbalanced `)`" if rest.text[0] == ")" else f"unexpected `{rest.text}`")
    if len(cuts) == 1 and not value.text[1:end].strip():
        return ()
    stops = [*(c - 1 for c in cuts[1:]), end]
    return tuple(value.part(a, b).expression() for a, b in zip(cuts, stops, strict=True))


def _scratch(body: Text) -> ScratchBuffer:
    match = re.match(r"([A-Za-z_]\w*)\s+bytes\s*=(?!=)", body.text)
    if match is None:
        body.fail("write `@scratch NAME bytes=EXPRESSION`")
    return ScratchBuffer(body.part(0, match.end(1)), body.part(match.end()).expression())


def _tune(body: Text) -> TuneName:
    match = re.match(r"([A-Za-z_]\w*)\s*=(?!=)", body.text)
    if match is None:
        body.fail("write `@tune NAME = value, value, ...`")
    values: list[int] = []
    position = match.end()
    for written in body.text[position:].split(","):
        if re.fullmatch(r"\s*-?\d{1,9}\s*", written) is None:
            piece = body.part(position, position + len(written))
            piece.fail(f"`@tune {match.group(1)}` needs integers after `=`, found `{piece.text}`")
        if int(written) not in values:
            values.append(int(written))
        position += len(written) + 1
    return TuneName(body.part(0, match.end(1)), tuple(values))


def _requires(body: Text) -> Expression:
    if not body.text:
        body.fail("`@requires` needs a condition: `@requires N % 4 == 0`")
    return body.expression()


def _reject_twice(names: list[Text]) -> None:
    seen: dict[str, Text] = {}
    for name in names:
        if name.text in seen:
            name.fail(f"`{name.text}` is already defined on line {seen[name.text].line}")
        seen[name.text] = name
