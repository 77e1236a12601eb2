"""Host code beside kernels that have their directives: it is not needed, and goes."""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaops.program.hygiene_directives import ALLOWED_INCLUDES, is_library_header
from cudaops.program.lexing import Edit, apply_edits, byte_text, disjoint, hollow, plain_text
from cudaops.program.outline import outline

_HOST_HEADERS = frozenset({
    "algorithm", "array", "cassert", "chrono", "cstdio", "cstdlib", "cstring", "ctime",
    "fstream", "functional", "iomanip", "iostream", "memory", "numeric", "random", "sstream",
    "stdexcept", "string", "tuple", "type_traits", "utility", "vector", "assert.h", "stdio.h",
    "stdlib.h", "string.h", "time.h", "cuda.h", "cuda_runtime_api.h",
})  # fmt: skip
"""Headers that programs include for their host code; device code has no use for them."""


class DeviceText(NamedTuple):
    """A text without host functions and their headers."""

    source: str
    """The same lines as before."""
    notices: tuple[str, ...]


def without_host_code(source: str, allow_libraries: bool) -> DeviceText:
    """Drop host functions, `using namespace std` and standard headers.

    Anything else that is no device code stays, for the hygiene gate to name.
    """
    facts = outline(byte_text(source))
    edits: list[Edit] = []
    notices: dict[str, None] = {}
    for item in facts.items:
        text = " ".join(facts.slice(item.start, item.end).split())
        if item.kind == "function" and item.is_host_only:
            notices[f"host function `{item.name}` dropped"] = None
        elif item.kind != "other" or text != "using namespace std;":
            continue
        edits.append(Edit(item.start, item.end, hollow(facts.lexed, item.start, item.end)))
    for directive in facts.lexed.directives:
        words = facts.lexed.tokens[directive.first + 2 : directive.last]
        name = re.sub(r"\s", "", "".join(t.text for t in words)).strip('<>"')
        permitted = name in ALLOWED_INCLUDES or (allow_libraries and is_library_header(name))
        if directive.keyword == "include" and not permitted and name in _HOST_HEADERS:
            edits.append(Edit(directive.start, directive.end, ""))
            notices[f"`#include <{name}>` dropped: no device header"] = None
    return DeviceText(plain_text(apply_edits(facts.lexed.text, disjoint(edits))), tuple(notices))
