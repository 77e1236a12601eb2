"""Items at file scope that a rewrite may declare: device code, constants, plain types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from cudaops.program.lexing import Lexed, Token
from cudaops.program.outline import Declaration, Outline

Problem = tuple[int, str]
"""Byte offset and message."""

_ALIAS = re.compile(r"namespace \w+ = (?:::)? ?cooperative_groups ;")
"""As every text about cooperative groups begins."""
_VALUE = re.compile(r"__builtin_(?:inf|nan|huge_val)[fl]?|__int_as_float|__longlong_as_double")
"""What INFINITY, NAN and CUDART_INF stand for: written like a call, constant to any compiler."""


def live_tokens(lexed: Lexed) -> list[Token]:
    """All tokens but those that `#if 0` hides, which no compiler ever sees."""
    never = [r for r in lexed.dead_ranges if _is_never(lexed, r[0])]
    return [t for t in lexed.tokens if not any(a <= t.start < b for a, b in never)]


def _is_never(lexed: Lexed, start: int) -> bool:
    opener = next((d for d in lexed.directives if d.end == start), None)
    words = [] if opener is None else [t.text for t in lexed.tokens[opener.first : opener.last]]
    return words == ["#", "if", "0"]


def structure(lexed: Lexed) -> Iterator[Problem]:
    """Braces that close something else than they should, by which a text leaves its namespace."""
    depth = 0
    for token in live_tokens(lexed):
        if token.directive >= 0:
            continue
        depth += (token.text == "{") - (token.text == "}")
        if depth < 0:
            yield token.start, "`}` closes nothing"
            return
    if depth > 0:
        yield len(lexed.text) - 1 if lexed.text else 0, "a `{` is never closed"
    for start, _ in lexed.dead_ranges:
        if not _is_never(lexed, start):
            yield start, "branches of `#if` must each close the braces that they open"


def items(facts: Outline) -> Iterator[Problem]:
    """Host code and host objects at file scope."""
    macros = _Macros.of(facts.lexed)
    constructed = _constructed(facts, macros)
    for item in facts.items:
        if item.in_linkage_block:
            yield item.start, 'an `extern "C"` block is not allowed'
        for token in _outside_body(facts, item):
            if token.text in macros.stating:
                yield token.start, f"macro `{token.text}` declares something at file scope"
        match item.kind:
            case "function" if item.is_host_only:
                what = "`main`" if item.name == "main" else f"host function `{item.name}`"
                yield item.start, f"{what}: a rewrite is device code only; launch with `// @launch`"
            case "declaration":
                yield from _declaration(item, constructed)
            case "variable":
                yield from _variable(facts, item, constructed, macros)
            case "type" if _defines_object(facts, item):
                yield item.start, "an object defined together with its type"
            case "instantiation" if not item.spaces & {"__global__", "__device__"}:
                yield item.start, f"instantiation of a host function `{item.name}`"


class _Macros(NamedTuple):
    """Macros by what may hide in them, directly or through another macro."""

    calling: frozenset[str]
    """A call."""
    stating: frozenset[str]
    """A statement, a body or an initialiser."""

    @staticmethod
    def of(lexed: Lexed) -> _Macros:
        bodies = {
            lexed.tokens[d.first + 2].text: lexed.tokens[d.first + 3 : d.last]
            for d in lexed.directives
            if d.keyword == "define" and d.last > d.first + 2
        }
        calling = {n for n, tokens in bodies.items() if _has_call(tokens)}
        stating = {n for n, ts in bodies.items() if {t.text for t in ts} & {";", "{", "="}}
        return _Macros(*(_closed(s, bodies) for s in (calling, stating)))


def _closed(names: set[str], bodies: Mapping[str, Sequence[Token]]) -> frozenset[str]:
    """The names and every one whose body mentions one of them, and so on."""
    while more := {
        n for n, tokens in bodies.items() if n not in names and names & {t.text for t in tokens}
    }:
        names |= more
    return frozenset(names)


def _outside_body(facts: Outline, item: Declaration) -> tuple[Token, ...]:
    return facts.tokens[item.first : item.last if item.body is None else item.body[0]]


def _defines_object(facts: Outline, item: Declaration) -> bool:
    """`struct X { } x;`"""
    tokens = facts.tokens[item.first : item.last]
    return any(t.text == "{" for t in tokens) and tokens[-2].text != "}"


def _constructed(facts: Outline, macros: _Macros) -> frozenset[str]:
    """Types that do anything when an object is built, with their aliases, users and heirs."""
    bodies: dict[str, Sequence[Token]] = {}
    for item in facts.items:
        tokens = facts.tokens[item.first : item.last]
        if item.kind == "other" and tokens[0].text in ("using", "typedef"):
            name = tokens[1] if tokens[0].text == "using" else tokens[-2]
            bodies[name.text] = tokens
        elif item.kind == "type":
            for keyword, name in pairwise(tokens):
                if keyword.text in ("struct", "class", "union") and name.kind == "name":
                    bodies[name.text] = tokens
    acting = {"(", "="} | macros.calling | macros.stating
    built = {
        n
        for n, tokens in bodies.items()
        if tokens[0].text not in ("using", "typedef") and acting & {t.text for t in tokens}
    }
    return _closed(built, bodies)


def _declaration(item: Declaration, constructed: frozenset[str]) -> Iterator[Problem]:
    if not item.spaces & {"__global__", "__device__"}:
        yield item.start, f"`{item.name}`: host code at file scope"
    elif item.specifiers & constructed and "__global__" not in item.spaces:
        yield item.start, f"`{item.name}`: an object with a constructor"


def _variable(
    facts: Outline, item: Declaration, constructed: frozenset[str], macros: _Macros
) -> Iterator[Problem]:
    device = item.spaces & {"__device__", "__constant__", "__shared__", "__managed__"}
    tokens = facts.tokens[item.first : item.last]
    if _ALIAS.fullmatch(" ".join(t.text for t in tokens)):
        return
    at = next((i for i, t in enumerate(tokens) if t.text in ("=", "{")), len(tokens))
    calls = _has_call(tokens[at:]) or macros.calling & {t.text for t in tokens[at:]}
    if not device and not item.specifiers & {"const", "constexpr"}:
        yield item.start, f"`{item.name}`: a host variable at file scope"
    elif item.specifiers & constructed and "constexpr" not in item.specifiers:
        yield item.start, f"`{item.name}`: an object with a constructor"
    elif "constexpr" not in item.specifiers and calls:
        yield item.start, f"`{item.name}`: its initialiser calls something"


def _has_call(tokens: Sequence[Token]) -> bool:
    return any(
        b.text in ("(", "{")
        and ((a.kind == "name" and not _is_constant(a.text)) or a.text in ("]", ")", ">"))
        for a, b in pairwise(tokens)
    )


def _is_constant(name: str) -> bool:
    return name == "sizeof" or _VALUE.fullmatch(name) is not None
