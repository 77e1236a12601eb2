"""CUDA C++ text to tokens that know where they are; comments and strings never look like code.

Every scanner of this package works on the file's UTF-8 bytes seen as Latin-1 text
(`byte_text`), so that an offset into the text is an offset into the bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

TokenKind = Literal["name", "number", "string", "char", "punct"]

_LEXEME = re.compile(
    r"""
    (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
  | (?P<splice>\\\r?\n)
  | (?P<newline>\n)
  | (?P<space>[ \t\r\f\v]+|\xef\xbb\xbf)
  | (?P<string>(?:u8|[uUL])?(?:R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
        |"(?:\\\r?\n|\\.|[^"\\\n])*"?))
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[0-9A-Za-z_.])*)
  | (?P<name>[A-Za-z_$\x80-\xff][0-9A-Za-z_$\x80-\xff]*)
  | (?P<punct><<[ \t\r\n]*<|::|->|[-+*/%&|^=!<>]=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)

_OPENERS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """One token of code; offsets are bytes, `end` exclusive."""

    kind: TokenKind
    text: str
    start: int
    end: int
    directive: int
    """Index of the preprocessor directive it belongs to, -1 outside of one."""


class Comment(NamedTuple):
    """One comment with its delimiters."""

    text: str
    start: int
    end: int


class Directive(NamedTuple):
    """One preprocessor line, continuation lines included."""

    keyword: str
    """`include`, `define`, `if`, ...; empty for a lone `#`."""
    start: int
    """Offset of the `#`."""
    end: int
    """Offset of the newline that ends it, or the end of the text."""
    first: int
    """Index of its `#` token."""
    last: int
    """Index after its last token."""


@dataclass(frozen=True, eq=False)
class Lexed:
    """A text taken apart."""

    text: str
    tokens: tuple[Token, ...]
    comments: tuple[Comment, ...]
    directives: tuple[Directive, ...]

    def code(self) -> list[Token]:
        """Tokens outside of preprocessor directives, without branches that are never compiled."""
        live = [t for t in self.tokens if t.directive < 0]
        return [t for t in live if not self.dead(t.start)] if self.dead_ranges else live

    def dead(self, offset: int) -> bool:
        """Whether a byte lies in a branch that is never compiled."""
        # Ranges may nest; one that ended does not hide an outer one that did not.
        at = bisect_right(self._dead_starts, offset)
        return any(offset < end for _, end in self.dead_ranges[max(0, at - 8) : at])

    @cached_property
    def _dead_starts(self) -> tuple[int, ...]:
        return tuple(start for start, _ in self.dead_ranges)

    @cached_property
    def dead_ranges(self) -> tuple[tuple[int, int], ...]:
        """Byte ranges that are never compiled, or that would unbalance the braces of the others.

        `#if 0` is never compiled. Where the first branch of a conditional opens a brace that it
        does not close, each later branch opens the same brace again, so only the first is kept.
        """
        dead: list[tuple[int, int]] = []
        groups: list[list[Directive]] = []
        for directive in self.directives:
            if directive.keyword in ("if", "ifdef", "ifndef"):
                groups.append([directive])
            elif directive.keyword in ("else", "elif") and groups:
                groups[-1].append(directive)
            elif directive.keyword == "endif" and groups:
                dead.extend(_dead_branches(self, [*groups.pop(), directive]))
        return tuple(sorted(dead))


def byte_text(text: str) -> str:
    """The UTF-8 bytes of a text, one character a byte."""
    return text.encode("utf-8").decode("latin-1")


def plain_text(raw: str) -> str:
    """The inverse of `byte_text`."""
    return raw.encode("latin-1").decode("utf-8")


@lru_cache(maxsize=128)
def lex(raw: str) -> Lexed:
    """Take a `byte_text` apart. Never fails: what is unterminated ends at its line's end."""
    tokens: list[Token] = []
    comments: list[Comment] = []
    directives: list[Directive] = []
    opened = -1
    fresh_line = True
    for match in _LEXEME.finditer(raw):
        kind = match.lastgroup
        if kind == "delimiter":
            kind = "string"
        start, end = match.span()
        if kind == "comment":
            comments.append(Comment(match.group(), start, end))
        elif kind == "newline":
            if opened >= 0:
                directives.append(_directive(tokens, opened, start))
                opened = -1
            fresh_line = True
        elif kind not in ("space", "splice"):
            if fresh_line and match.group() == "#":
                opened = len(tokens)
            fresh_line = False
            inside = len(directives) if opened >= 0 else -1
            text = match.group()
            if text.startswith("<<"):
                text = "<<<"  # which nvcc takes with white space in it
            tokens.append(Token(kind, text, start, end, inside))  # type: ignore[arg-type]
    if opened >= 0:
        directives.append(_directive(tokens, opened, len(raw)))
    return Lexed(raw, tuple(tokens), tuple(comments), tuple(directives))


def _directive(tokens: Sequence[Token], opened: int, end: int) -> Directive:
    named = len(tokens) > opened + 1 and tokens[opened + 1].kind == "name"
    keyword = tokens[opened + 1].text if named else ""
    return Directive(keyword, tokens[opened].start, end, opened, len(tokens))


def _dead_branches(lexed: Lexed, group: list[Directive]) -> Iterable[tuple[int, int]]:
    never = [t.text for t in lexed.tokens[group[0].first + 1 : group[0].last]] == ["if", "0"]
    if never:
        yield group[0].end, group[1].start
        return
    balance = 0
    for token in lexed.tokens[group[0].last : group[1].first]:
        if token.directive < 0:
            balance += (token.text == "{") - (token.text == "}")
    if balance:
        yield from ((a.end, b.start) for a, b in pairwise(group[1:]))


def closing(tokens: Sequence[Token], opener: int) -> int:
    """Index of the bracket that closes the one at `opener`; the last token where none does."""
    depth = 0
    for index in range(opener, len(tokens)):
        text = tokens[index].text
        if text in _OPENERS:
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def opening(tokens: Sequence[Token], closer: int) -> int:
    """Index of the bracket that opens the one at `closer`; 0 where none does."""
    depth = 0
    for index in range(closer, -1, -1):
        text = tokens[index].text
        if text in (")", "]", "}"):
            depth += 1
        elif text in _OPENERS:
            depth -= 1
            if depth == 0:
                return index
    return 0


def closing_angle(tokens: Sequence[Token], opener: int) -> int | None:
    """Index of the `>` that closes the template bracket at `opener`; None for a comparison."""
    depth = 0
    index = opener
    while index < len(tokens):
        text = tokens[index].text
        if text in _OPENERS:
            if text == "{":
                return None
            index = closing(tokens, index)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        elif text in (";", ")", "}", "<<<"):
            return None
        index += 1
    return None


def opening_angle(tokens: Sequence[Token], closer: int) -> int | None:
    """Index of the `<` that opens the template bracket closed at `closer`; None without."""
    depth = 0
    index = closer
    while index >= 0:
        text = tokens[index].text
        if text in (")", "]"):
            index = opening(tokens, index)
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if depth == 0:
                return index
        elif text in (";", "{", "}", "("):
            return None
        index -= 1
    return None


def split_commas(tokens: Sequence[Token], *, angles: bool = False) -> list[list[Token]]:
    """Tokens between commas that are outside of brackets; with `angles`, of `<>` as well."""
    parts: list[list[Token]] = [[]]
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        end: int | None = index
        if text in _OPENERS:
            end = closing(tokens, index)
        elif angles and _opens_template(tokens, index):
            end = closing_angle(tokens, index)
        if text == ",":
            parts.append([])
        else:
            parts[-1].extend(tokens[index : (end or index) + 1])
        index = (end or index) + 1
    return parts if parts != [[]] else []


def _opens_template(tokens: Sequence[Token], index: int) -> bool:
    """Whether the `<` at `index` can open template arguments: `a<b` may, `a << b` not."""
    if tokens[index].text != "<" or index == 0 or index + 1 == len(tokens):
        return False
    return tokens[index - 1].kind == "name" and tokens[index + 1].text != "<"


def line_of(raw: str, offset: int) -> int:
    """1-based line of a byte offset."""
    return raw.count("\n", 0, offset) + 1


class Edit(NamedTuple):
    """Replace bytes [start, end) by `text`."""

    start: int
    end: int
    text: str


def apply_edits(raw: str, edits: Iterable[Edit]) -> str:
    """The text with disjoint edits made."""
    pieces: list[str] = []
    position = 0
    for edit in sorted(edits):
        if edit.start < position:
            raise ValueError(f"edits overlap at byte {edit.start}")
        pieces += (raw[position : edit.start], edit.text)
        position = edit.end
    return "".join([*pieces, raw[position:]])


def disjoint(edits: Iterable[Edit]) -> list[Edit]:
    """The edits without those that overlap an earlier one, as two readings of broken text may."""
    kept: list[Edit] = []
    for edit in sorted(edits):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept


def blank(text: str) -> str:
    """Spaces of the same length; line ends stay."""
    return re.sub(r"[^\r\n]", " ", text)


def _uncommented(lexed: Lexed, start: int, end: int) -> str:
    text = lexed.text[start:end]
    for comment in lexed.comments:
        if start <= comment.start and comment.end <= end:
            a, b = comment.start - start, comment.end - start
            text = text[:a] + blank(text[a:b]) + text[b:]
    return text


def without_comments(text: str) -> str:
    """C++ text with blanks in the place of its comments."""
    lexed = lex(byte_text(text))
    return plain_text(_uncommented(lexed, 0, len(lexed.text)))


def one_line(lexed: Lexed, start: int, end: int) -> str:
    """The range without comments and line ends."""
    text = _uncommented(lexed, start, end)
    return " ".join(text.replace("\\\n", " ").replace("\\\r\n", " ").split())


def hollow(lexed: Lexed, start: int, end: int) -> str:
    """The range without code; preprocessor lines stay, since a branch may end outside of it."""
    kept = [d for d in lexed.directives if start <= d.start and d.end <= end]
    edits = []
    position = start
    for directive in kept:
        edits.append(blank(lexed.text[position : directive.start]))
        edits.append(lexed.text[directive.start : directive.end])
        position = directive.end
    return "".join([*edits, blank(lexed.text[position:end])])
