"""What a kernel's text uses: device functions, types, constants and macros of its program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.program.lexing import Directive, Lexed, byte_text, lex, plain_text
from cudaops.program.outline import Declaration, Outline, outline

MOST_LINES = 150
"""Of surroundings that are shown; what is beyond is counted and left out."""


class _Piece(NamedTuple):
    order: tuple[int, int]
    """File and byte offset."""
    text: str
    words: frozenset[str]
    """Names that it uses."""
    branch: str
    """The branches of conditionals in which it stands, outermost first; empty outside of any."""


def surroundings(program: Program, kernel: Kernel) -> str:
    """Declarations that the kernel uses, directly or through one another, in the program's order.

    Found by name, so that one too many may be among them. Empty where the kernel is alone.
    """
    pieces: dict[str, list[_Piece]] = {}
    for index, file in enumerate(program.files):
        for names, piece in (*_items(index, file.text), *_macros(index, file.text)):
            for name in names:
                pieces.setdefault(name, []).append(piece)
    found = _reached(pieces, _words(kernel.text) - {p.name for p in kernel.parameters})
    lines = "\n".join(_branched(found)).splitlines()
    left_out = len(lines) - MOST_LINES
    if left_out > 0:
        lines = [*lines[:MOST_LINES], f"// {left_out} more lines are not shown"]
    return "\n".join(lines)


def _branched(found: list[_Piece]) -> Iterator[str]:
    """The pieces; those of a conditional's branch under a comment that names it."""
    branch = ""
    for piece in found:
        if piece.branch != branch:
            branch = piece.branch
            yield f"// only {branch}:" if branch else "// in any case:"
        yield piece.text


def _reached(pieces: dict[str, list[_Piece]], words: frozenset[str]) -> list[_Piece]:
    wanted, seen, found = list(words), set(words), set[_Piece]()
    while wanted:
        for piece in pieces.get(wanted.pop(), ()):
            found.add(piece)
            wanted += piece.words - seen
            seen |= piece.words
    return sorted(found, key=lambda piece: piece.order)


def _items(index: int, text: str) -> Iterator[tuple[set[str], _Piece]]:
    facts = outline(byte_text(text))
    branches = _branches(lex(byte_text(text)))
    for item in facts.items:
        names = _declared(facts, item)
        if names:
            shown = plain_text(facts.slice(item.start, item.end)).strip()
            if item.namespaces:
                shown = f"// in namespace {'::'.join(item.namespaces)}:\n{shown}"
            yield (
                names,
                _Piece((index, item.start), shown, _words(shown), _branch_at(branches, item.start)),
            )


def _declared(facts: Outline, item: Declaration) -> set[str]:
    """Names under which device code may use an item; none of what only the host can use."""
    tokens = [t.text for t in facts.tokens[item.first : item.last]]
    match item.kind:
        case "function" if not (item.is_kernel or item.is_host_only):
            return {item.name}
        case "variable" if item.spaces or item.specifiers & {"const", "constexpr"}:
            return {item.name}
        case "type" if "enum" in tokens[:2]:
            return {t for t in tokens if t.isidentifier()}
        case "type":
            return {name for word, name in pairwise(tokens) if word in ("struct", "class", "union")}
        case "other" if tokens[0] == "using" and tokens[1] != "namespace":
            return {tokens[1]}
        case "other" if tokens[0] == "typedef":
            return {tokens[-2]}
    return set()


def _macros(index: int, text: str) -> Iterator[tuple[set[str], _Piece]]:
    lexed = lex(byte_text(text))
    branches = _branches(lexed)
    for directive in lexed.directives:
        words = [t.text for t in lexed.tokens[directive.first : directive.last]]
        if words[1:2] == ["define"] and len(words) > 2 and not lexed.dead(directive.start):
            shown = plain_text(lexed.text[directive.start : directive.end]).strip()
            branch = _branch_at(branches, directive.start)
            yield {words[2]}, _Piece((index, directive.start), shown, frozenset(words[3:]), branch)


class _Branch(NamedTuple):
    start: int
    end: int
    words: str


def _branches(lexed: Lexed) -> list[_Branch]:
    """Every branch of every conditional but a header's guard, outer ones first."""
    found: list[_Branch] = []
    opened: list[list[Directive]] = []
    for place, directive in enumerate(lexed.directives):
        if directive.keyword in ("if", "ifdef", "ifndef"):
            opened.append([directive])
            following = lexed.directives[place + 1 : place + 2]
            if following and _is_guard(lexed, directive, following[0]):
                opened[-1].clear()
        elif opened and directive.keyword in ("elif", "else", "endif"):
            before = opened[-1]
            if before:
                words = [plain_text(lexed.text[d.start : d.end]).strip() for d in before]
                words = [" ".join(one.split()) for one in words]
                where = f"where `{words[-1]}` holds"
                if len(words) > 1:
                    where = f"after {', '.join(f'`{one}`' for one in words[:-1])} did not hold"
                    where += "" if words[-1] == "#else" else f", where `{words[-1]}` does"
                found.append(_Branch(before[-1].end, directive.start, where))
                before.append(directive)
            if directive.keyword == "endif":
                opened.pop()
    return sorted(found)


def _is_guard(lexed: Lexed, first: Directive, second: Directive) -> bool:
    """Whether `#ifndef X` is followed by `#define X` at once."""
    tokens = lexed.tokens
    one = [t.text for t in tokens[first.first + 1 : first.last]]
    other = [t.text for t in tokens[second.first + 1 : second.first + 3]]
    at_once = first.last == second.first
    return at_once and one[:1] == ["ifndef"] and other == ["define", *one[1:]]


def _branch_at(branches: list[_Branch], offset: int) -> str:
    return " and ".join(b.words for b in branches if b.start <= offset < b.end)


def _words(text: str) -> frozenset[str]:
    return frozenset(t.text for t in lex(byte_text(text)).tokens if t.kind == "name")
