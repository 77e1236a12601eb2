"""Execution and memory spaces, `__device__` and the like, as words and as macros for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from cudaops.program.lexing import Lexed

K = TypeVar("K")

SPACES = frozenset(
    {"__global__", "__device__", "__host__", "__constant__", "__managed__", "__shared__"}
)
Aliases = frozenset[tuple[str, frozenset[str]]]
"""Macros that stand for spaces, as `space_aliases` gives them."""


def space_aliases(lexed: Lexed, known: Aliases = frozenset()) -> Aliases:
    """Object-like macros that stand for `__global__`, `__device__` or `__host__`, with which, by
    themselves or by macros that are known or are above; as `NAME(` those that define a kernel."""
    meant = merged(known)
    found: dict[str, frozenset[str]] = {}
    for directive in lexed.directives:
        if directive.keyword != "define":
            continue
        words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
        if defines_kernel(words):
            found[f"{words[0]}("] = frozenset({"__global__"})
            continue
        spaces = frozenset(s for w in words[1:] for s in meant.get(w, {w} & SPACES))
        if spaces and "{" not in words:
            name = words[0]
            meant[name] = found[name] = spaces | meant.get(name, frozenset())
    return frozenset(found.items())


def defines_kernel(words: Sequence[str]) -> bool:
    """Whether a macro of this name, these parameters and this body defines a kernel where it is
    used."""
    return words[1:2] == ["("] and "__global__" in words and "{" in words


def merged(pairs: Iterable[tuple[K, frozenset[str]]]) -> dict[K, frozenset[str]]:
    """The spaces of every name; both of one that is defined twice, under conditions."""
    found: dict[K, frozenset[str]] = {}
    for name, spaces in pairs:
        found[name] = found.get(name, frozenset()) | spaces
    return found
