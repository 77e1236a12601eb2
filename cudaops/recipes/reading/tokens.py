"""Tokens of a kernel's text, with the program's own macros expanded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class NotUnderstood(Exception):
    """The text says something this reader does not know; whoever asked must leave it alone."""


class Token(NamedTuple):
    """One token: its kind and its text."""

    kind: str
    """`name`, `number` or `op`."""
    text: str


class Macro(NamedTuple):
    """One `#define` of the program."""

    parameters: tuple[str, ...] | None
    """None for a macro without an argument list."""
    body: tuple[Token, ...]


_PATTERN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>0[xX][0-9a-fA-F']+[uUlL]*|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uUlLfF]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<op><<=|>>=|->|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>>|<=|>=|==|!=|&&|\|\||::
        |[-+*/%<>=!&|^~?:;,.(){}\[\]])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(.*)$", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*(\w+)(\(([^)]*)\))?(.*)$", re.DOTALL)
LINKAGE = re.compile(r'\bextern\s*"C"\s*(?!\{)')
"""How a function's name is spelled for the linker: says nothing about what it computes."""
_HARMLESS = frozenset({"pragma"})
_MAX_TOKENS = 20_000


def without_comments(text: str) -> str:
    """`text` with comments blanked and continued lines joined."""
    joined = text.replace("\\\n", " ")
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", joined, flags=re.DOTALL)


def split(text: str) -> tuple[Token, ...]:
    """Tokens of `text`. Raises NotUnderstood for strings, odd characters and `#if` in a body."""
    plain = without_comments(text)
    for found in _DIRECTIVE.finditer(plain):
        if found[1] not in _HARMLESS:
            raise NotUnderstood(f"#{found[1]} inside the kernel")
    plain = LINKAGE.sub("", _DIRECTIVE.sub("", plain))
    tokens = []
    for found in _PATTERN.finditer(plain):
        kind = found.lastgroup or "other"
        if kind == "other":
            raise NotUnderstood(f"the character {found[0]!r}")
        if kind != "space":
            tokens.append(Token(kind, found[0]))
    return tuple(tokens)


def macros_of(texts: Iterable[str]) -> dict[str, Macro | None]:
    """Macros defined anywhere in these files; None for a name with two meanings."""
    found: dict[str, Macro | None] = {}
    for text in texts:
        for directive in _DIRECTIVE.finditer(without_comments(text)):
            if directive[1] == "undef":
                found[directive[2].strip()] = None
            if directive[1] != "define" or (parts := _DEFINE.match(directive[2])) is None:
                continue
            macro = _macro(parts)
            name = parts[1]
            found[name] = macro if name not in found or found[name] == macro else None
    return found


def _macro(parts: re.Match[str]) -> Macro | None:
    parameters = None
    if parts[2] is not None:
        parameters = tuple(p.strip() for p in parts[3].split(",") if p.strip())
    if "#" in parts[4]:
        return None
    try:
        return Macro(parameters, split(parts[4]))
    except NotUnderstood:
        return None


def expand(
    tokens: tuple[Token, ...],
    macros: Mapping[str, Macro | None],
    hidden: frozenset[str] = frozenset(),
) -> tuple[Token, ...]:
    """`tokens` with macros replaced. Raises NotUnderstood where a used name has two meanings."""
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind != "name" or token.text in hidden or token.text not in macros:
            result.append(token)
            continue
        macro = macros[token.text]
        if macro is None:
            raise NotUnderstood(f"{token.text} is defined in two ways")
        body = macro.body
        if macro.parameters is not None:
            if at >= len(tokens) or tokens[at].text != "(":
                result.append(token)
                continue
            arguments, at = _arguments(tokens, at)
            body = _substitute(macro, arguments, token.text)
        result.extend(expand(body, macros, hidden | {token.text}))
        if len(result) > _MAX_TOKENS:
            raise NotUnderstood("macros that grow without end")
    return tuple(result)


def _arguments(tokens: tuple[Token, ...], at: int) -> tuple[list[tuple[Token, ...]], int]:
    """The arguments of a macro call whose `(` stands at `at`, and where it ends."""
    arguments: list[tuple[Token, ...]] = []
    current: list[Token] = []
    depth = 0
    for position in range(at, len(tokens)):
        text = tokens[position].text
        if text in ")]}":
            depth -= 1
            if depth == 0:
                return [*arguments, tuple(current)], position + 1
        if text == "," and depth == 1:
            arguments.append(tuple(current))
            current = []
        elif depth > 0:
            current.append(tokens[position])
        if text in "([{":
            depth += 1
    raise NotUnderstood("a macro call without its end")


def _substitute(macro: Macro, arguments: list[tuple[Token, ...]], name: str) -> tuple[Token, ...]:
    parameters = macro.parameters or ()
    if len(parameters) != len(arguments) and not (not parameters and arguments == [()]):
        raise NotUnderstood(f"{name} called with {len(arguments)} arguments")
    given = dict(zip(parameters, arguments, strict=False))
    result: list[Token] = []
    for token in macro.body:
        result.extend(given.get(token.text, (token,)))
    return tuple(result)
