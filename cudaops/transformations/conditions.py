"""Preprocessor conditions in a function: the branch that is compiled stays, the others go.

Which one that is, the tree tells: only what is compiled has nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from cudaops.program import syntax as s

_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)\n?", re.MULTILINE
)
_BY_COMPILER = re.compile(rb"__CUDA_ARCH|__CUDACC|__NVCC|__CUDA__|__clang|__GNUC|__HIP")
"""Conditions that g++, clang and nvcc answer differently, or nvcc's two passes."""


def resolved(text: str, function: s.Function, start: int) -> str:
    """A function's text with one branch of each condition.

    `start`: the byte of its file at which the text begins. Conditions on the compiler stay, and so
    does everything where directives do not pair up.
    """
    data = text.encode()
    places = [node.where.start - start for node in _placed(function)]
    waiting: list[list[re.Match[bytes]]] = []
    gone: list[tuple[int, int]] = []
    for found in _DIRECTIVE.finditer(data):
        word = found[1]
        if word in (b"if", b"ifdef", b"ifndef"):
            waiting.append([found])
        elif not waiting:
            return text
        elif word == b"endif":
            gone += _left_out([*waiting.pop(), found], places)
        else:
            waiting[-1].append(found)
    if waiting:
        return text
    kept, at = b"", 0
    for begin, end in sorted(gone):
        if end > at:  # a branch that goes may hold conditions of its own
            kept, at = kept + data[at : max(begin, at)], end
    return (kept + data[at:]).decode()


def _placed(function: s.Function) -> Iterator[Any]:
    for node in s.below(function.body):
        where = getattr(node, "where", None)
        if where is not None and function.where is not None and where.file == function.where.file:
            yield node


def _left_out(directives: list[re.Match[bytes]], places: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of one condition that go: all its directives, and the branches that hold no node."""
    if any(_BY_COMPILER.search(one[2]) for one in directives):
        return
    for one, after in pairwise(directives):
        holds = any(one.end() <= at < after.start() for at in places)
        yield one.start(), one.end() if holds else after.start()
    yield directives[-1].start(), directives[-1].end()
