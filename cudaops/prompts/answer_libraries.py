"""Other people's kernels in an answer: which names and headers of libraries it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudaops.program.hygiene_directives import is_library_header
from cudaops.program.lexing import Lexed, line_of, plain_text

_FAMILIES = r"cublas|cudnn|cufft|cusolver|cusparse|cutensor|curand|nvrtc|nvjpeg|nccl|magma"
_FROM_THE_HOST = re.compile(rf"(?:{_FAMILIES})(?:[A-Z_]\w*)")
"""Libraries that are called by host code, which a rewrite has none of."""
_HEADERS_FROM_THE_HOST = re.compile(rf"(?:{_FAMILIES}|npp|thrust/|torch/|ATen/|c10/)")
_GRID_WIDE = frozenset({
    "this_grid", "grid_group", "this_multi_grid", "multi_grid_group", "cudaLaunchCooperativeKernel",
})  # fmt: skip
"""Synchronisation of a whole grid, which needs host code that launches it so."""
_NAMESPACES = {"cub": "CUB", "cutlass": "CUTLASS", "cute": "CuTe"}


def forbidden_library(lexed: Lexed, allow_libraries: bool) -> tuple[int, str] | None:
    """Line and reason of the first use of a library that the answer may not use; None without.

    Libraries of host code and Thrust are never possible: see `is_library_header` for those that
    `allow_libraries` permits.
    """
    found = [*_includes(lexed, allow_libraries), *_names(lexed, allow_libraries)]
    if not found:
        return None
    at, reason = min(found)
    return line_of(lexed.text, at), reason


def _includes(lexed: Lexed, allow_libraries: bool) -> Iterator[tuple[int, str]]:
    for directive in lexed.directives:
        if directive.keyword != "include" or directive.last <= directive.first + 2:
            continue
        written = plain_text(lexed.text[lexed.tokens[directive.first + 2].start : directive.end])
        name = written.strip().strip('<>"')
        if _HEADERS_FROM_THE_HOST.match(name):
            yield directive.start, f"`#include <{name}>`: a library that host code calls"
        elif is_library_header(name) and not allow_libraries:
            yield directive.start, f"`#include <{name}>`: a library, and the user allows none"
        elif name.partition("/")[0] in _NAMESPACES and not is_library_header(name):
            yield directive.start, f"`#include <{name}>`: not one of its device-side headers"


def _names(lexed: Lexed, allow_libraries: bool) -> Iterator[tuple[int, str]]:
    tokens = lexed.tokens
    for at, token in enumerate(tokens):
        if token.kind != "name":
            continue
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if _FROM_THE_HOST.fullmatch(token.text):
            yield token.start, f"`{token.text}`: a library that host code calls"
        elif token.text == "thrust" and after == "::":
            yield token.start, "`thrust::`: its algorithms are launched by host code"
        elif token.text in _NAMESPACES and after == "::" and not allow_libraries:
            yield token.start, f"`{token.text}::`: {_NAMESPACES[token.text]} is not allowed"
        elif token.text in _GRID_WIDE:
            yield token.start, f"`{token.text}` needs a cooperative launch, which is host code"
