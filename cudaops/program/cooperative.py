"""Barriers of a whole grid: which kernels wait for all of their blocks, and so have to be launched
by `cudaLaunchCooperativeKernel`, which takes a grid that the device can run at once.

It is read off the text, so that a rewrite need not say it: a kernel whose code, or the code of what
it calls by name, has `sync`, `barrier_arrive` or `barrier_wait` of a `grid_group`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.program.instances import plain_name
from cudaops.program.lexing import Token, byte_text
from cudaops.program.outline import outline

_GROUPS = ("this_grid", "grid_group")
_WAITS = frozenset({"sync", "barrier_arrive", "barrier_wait"})


def step_waits(rewrite: Rewrite, step: int) -> bool:
    """Whether the kernel that a launch of a rewrite's plan is of waits for its whole grid."""
    callee = rewrite.plan.launches[step].kernel
    return plain_name(callee) in _waiting((rewrite.source,))


def author_waits(program: Program, kernel: Kernel) -> bool:
    """Whether one of the program's own kernels does."""
    return kernel.plain_name in _waiting(tuple(f.text for f in program.files))


@lru_cache(maxsize=32)
def _waiting(texts: tuple[str, ...]) -> frozenset[str]:
    if not any(group in text for text in texts for group in _GROUPS):
        return frozenset()
    words = dict[str, set[str]]()
    found = set[str]()
    # By names alone, of all texts together: a function that shares one with a waiting one waits.
    for text in texts:
        for name, tokens in _named(text):
            words.setdefault(name, set()).update(t.text for t in tokens)
            if _waits(tokens):
                found.add(name)
    while more := {name for name, own in words.items() if name not in found and own & found}:
        found |= more
    return frozenset(found)


def _named(text: str) -> Iterator[tuple[str, Sequence[Token]]]:
    """Functions, classes and macros with the contents of each."""
    facts = outline(byte_text(text))
    for item in facts.items:
        yield item.name, [t for t in facts.tokens if item.start <= t.start < item.end]
    for directive in facts.lexed.directives:
        tokens = facts.lexed.tokens[directive.first : directive.last]
        if directive.keyword == "define" and len(tokens) > 2:
            yield tokens[2].text, tokens[3:]


def _waits(tokens: Sequence[Token]) -> bool:
    words = [t.text for t in tokens]
    groups = set(_groups(words))
    for at, word in enumerate(words):
        if word not in _WAITS:
            continue
        if words[at - 1] in (".", "->"):
            before = words[max(at - 4, 0) : at - 1]
            if (before[-1:] == [")"] and "this_grid" in before) or before[-1] in groups:
                return True
        elif words[at + 1 : at + 2] == ["("]:
            given = words[at + 2 : at + 6]
            if given[:1] and (given[0] in groups or "this_grid" in given):
                return True
    return False


def _groups(words: Sequence[str]) -> Iterator[str]:
    """Variables and parameters that are groups of a grid."""
    for at, word in enumerate(words):
        if word == "grid_group":
            name = next((w for w in words[at + 1 : at + 4] if w not in ("&", "const")), "")
            yield name
        elif word == "this_grid":
            equals = next((i for i in range(at - 1, max(at - 5, 0), -1) if words[i] == "="), None)
            if equals is not None:
                yield words[equals - 1]
