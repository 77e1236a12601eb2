"""Preprocessor lines that a rewrite may hold; the rest could change what its text means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cudaops.program.hygiene_items import Problem
from cudaops.program.lexing import Directive, Lexed, Token

ALLOWED_INCLUDES = frozenset({
    "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp4.h",
    "cooperative_groups.h", "cooperative_groups/reduce.h", "cooperative_groups/scan.h",
    "cooperative_groups/memcpy_async.h",
    "math.h", "cmath", "cstdint", "stdint.h", "cstddef", "stddef.h", "mma.h", "math_constants.h",
    "device_launch_parameters.h", "float.h", "cfloat", "limits.h", "climits", "cuda_pipeline.h",
})  # fmt: skip
"""Headers that declare device functions or types only."""

_LIBRARY = re.compile(
    r"cub/cub\.cuh|cub/(?:block|warp|thread|iterator)/\w+\.cuh|cub/util_\w+\.cuh"
    r"|cuda/(?:std/)?\w+|cutlass/(?:\w+/)*\w+\.h(?:pp)?|cute/(?:\w+/)*\w+\.hpp"
)
"""What of CUB, libcu++, CUTLASS and CuTe a kernel can call. CUB's `device/` is left out: its
functions launch kernels. Source: CCCL 3.0 (CUDA 13.0) and CUTLASS 4, folders of their headers."""

_CONDITIONS = ("if", "ifdef", "ifndef", "elif")
_COMPILERS = re.compile(
    r"__(?:CUDA_\w+|CUDACC\w*|NVCC\w*|NV_\w+|GNU\w+|GXX\w+|GCC_\w+|VERSION__|STRICT_ANSI__"
    r"|COUNTER__|INCLUDE_LEVEL__|BASE_FILE__|OPTIMIZE\w*)|CUDART?_VERSION"
)
"""Names that one compiler alone defines, or each with a value of its own. Source: `nvcc -E -dM` and
`g++ -E -dM` (13.0.88, 12.2)."""
_PRAGMAS = frozenset({"unroll", "nounroll", "once", "nv_diag_suppress", "diag_suppress"})
_RESERVED = re.compile(r"^(?:cuda\w*|cu[A-Z]\w*|cudaops\w*|CUDAOPS\w*|__\w*)$")
_KEYWORDS = frozenset({
    "float", "double", "int", "char", "short", "long", "unsigned", "signed", "bool", "void", "half",
    "const", "constexpr", "static", "inline", "if", "else", "for", "while", "do", "return",
    "switch", "case", "break", "continue", "struct", "class", "union", "enum", "template",
    "typename", "namespace", "using", "threadIdx", "blockIdx", "blockDim", "gridDim",
    "warpSize", "dim3", "sizeof", "extern",
})  # fmt: skip


def is_library_header(name: str) -> bool:
    """Whether this is a header of a device-side library that a user may allow."""
    return _LIBRARY.fullmatch(name) is not None


def library_headers(lexed: Lexed) -> tuple[str, ...]:
    """Names of device-side libraries' headers that a text includes, in order."""
    names = (
        _included(lexed, lexed.tokens[d.first + 2 : d.last]).strip('<>"')
        for d in lexed.directives
        if d.keyword == "include"
    )
    return tuple(name for name in names if is_library_header(name))


def _included(lexed: Lexed, words: Sequence[Token]) -> str:
    return lexed.text[words[0].start : words[-1].end] if words else ""


def directives(lexed: Lexed, allow_libraries: bool = False) -> Iterator[Problem]:
    """What is wrong with the lines that begin with `#`, and with `_Pragma`."""
    opened: list[Directive] = []
    for directive in lexed.directives:
        words = lexed.tokens[directive.first + 2 : directive.last]
        name = words[0].text if words else ""
        keyword = directive.keyword
        if keyword == "include":
            written = _included(lexed, words)
            header = written.strip('<>"')
            if header not in ALLOWED_INCLUDES and not (
                allow_libraries and is_library_header(header)
            ):
                yield directive.start, f"`#include {written}` is not a device header"
        elif keyword in ("define", "undef"):
            yield from _define(directive, name, words)
        elif keyword == "pragma" and name not in _PRAGMAS:
            yield directive.start, f"`#pragma {name}` is not allowed; only unroll is"
        elif keyword in ("line", "import", "include_next", "ident", "embed", "sccs", "assert"):
            yield directive.start, f"`#{keyword}` is not allowed"
        elif not keyword and directive.last > directive.first + 1:
            yield directive.start, "a line marker (`# 1 ...`) is not allowed"
        elif keyword in ("if", "ifdef", "ifndef"):
            opened.append(directive)
        elif keyword == "endif" and opened:
            opened.pop()
        elif keyword == "endif":
            yield directive.start, "`#endif` without `#if`"
    for directive in opened:
        yield directive.start, "`#if` without `#endif`"
    for index, token in enumerate(lexed.tokens[2:], 2):
        if lexed.tokens[index - 2].text == "_Pragma" and token.text.strip('"').split()[:1] not in (
            ["unroll"], ["nounroll"],
        ):  # fmt: skip
            yield token.start, f"`_Pragma({token.text})` is not allowed; only unroll is"


def foreign_conditions(lexed: Lexed, tuned: frozenset[str]) -> Iterator[Problem]:
    """Conditions on names that the text does not define itself, and words whose value a compiler
    makes up as it goes: by them a text may be another one for each compiler."""
    own = {lexed.tokens[d.first + 2].text.partition("(")[0] for d in lexed.directives
           if d.keyword == "define" and d.last > d.first + 2}  # fmt: skip
    known = own | tuned | {"defined", "true", "false", *_CONDITIONS}
    for token in lexed.tokens:
        within = lexed.directives[token.directive].keyword if token.directive >= 0 else ""
        if token.kind == "name" and within in _CONDITIONS and token.text not in known:
            yield token.start, f"a condition asks for `{token.text}`"
        elif token.kind == "name" and _COMPILERS.fullmatch(token.text):
            yield token.start, f"`{token.text}` is another one for each compiler"


def pragmas(lexed: Lexed) -> Iterator[Problem]:
    """A preprocessed text holds no directive but pragmas, and of these only those on loops."""
    for directive in lexed.directives:
        words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
        if directive.keyword != "pragma":
            yield directive.start, f"`#{directive.keyword}` is left after preprocessing"
        elif words[:1] and words[0] not in _PRAGMAS and words[:2] != ["GCC", "unroll"]:
            yield directive.start, f"`#pragma {words[0]}` is not allowed; only unroll is"


def _define(directive: Directive, name: str, words: tuple[Token, ...]) -> Iterator[Problem]:
    if _RESERVED.match(name) or name in _KEYWORDS:
        yield directive.start, f"`#{directive.keyword} {name}` changes what a CUDA name means"
    texts = [t.text for t in words]
    if any(a == b == "#" for a, b in pairwise(texts)):
        yield directive.start, f"macro `{name}` pastes tokens together"
    if texts.count("{") != texts.count("}"):
        yield directive.start, f"macro `{name}` opens or closes a brace only"
