"""Whether a text is device code and nothing else (design D1): the gate before any compiler sees it.

A candidate on the `cpu` executor shares a process with code that reports about it, so whatever
could run on its own, reach our shim or escape its namespace is refused. The executors isolate as
well; this gate makes the reason readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from cudaops.program.lexing import Directive, Lexed, Token, byte_text, line_of
from cudaops.program.outline import Item, Outline, outline

ALLOWED_INCLUDES = frozenset({
    "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "math.h", "cmath", "cstdint", "stdint.h", "cstddef", "stddef.h", "mma.h", "math_constants.h",
    "device_launch_parameters.h", "float.h", "cfloat", "limits.h", "climits", "cuda_pipeline.h",
})  # fmt: skip
"""Headers that declare device functions or types only."""

_PRAGMAS = frozenset({"unroll", "nounroll", "once", "nv_diag_suppress", "diag_suppress"})
_RESERVED = re.compile(r"^(?:cuda\w*|cu[A-Z]\w*|cudaops\w*|CUDAOPS\w*|__\w*)$")
_KEYWORDS = frozenset({
    "float", "double", "int", "char", "short", "long", "unsigned", "signed", "bool", "void", "half",
    "const", "constexpr", "static", "inline", "if", "else", "for", "while", "do", "return",
    "switch", "case", "break", "continue", "struct", "class", "union", "enum", "template",
    "typename", "namespace", "using", "threadIdx", "blockIdx", "blockDim", "gridDim",
    "warpSize", "dim3", "sizeof", "extern",
})  # fmt: skip
_REFUSED_WORDS = {
    "asm": "inline assembly",
    "__asm__": "inline assembly",
    "__asm": "inline assembly",
    "constructor": "a function that runs by itself",
    "destructor": "a function that runs by itself",
    "init_priority": "an object that is built by itself",
    "ifunc": "a function that runs by itself",
    "__declspec": "a compiler extension",
}
_HOST_CALLS = frozenset({
    "system", "popen", "fork", "vfork", "execl", "execv", "execve", "execvp", "dlopen", "dlsym",
    "ptrace", "mmap", "mprotect", "syscall", "getenv", "setenv", "environ", "fopen", "freopen",
    "open", "socket", "longjmp", "setjmp", "signal", "sigaction", "atexit", "_exit", "exit",
    "abort", "quick_exit", "raise", "kill", "clock_gettime", "gettimeofday", "getpid",
})  # fmt: skip


_TUNE_NAME = re.compile(r"^\s*//\s*@tune\s+(\w+)", re.MULTILINE)
"""A tune name is defined for the length of the candidate and cannot leak, whatever it is."""


def check_source(rewrite_source: str) -> tuple[str, ...]:
    """Problems of a device-only text, one line each with its line number. Empty: clean."""
    facts = outline(byte_text(rewrite_source), frozenset())
    found = [
        *_words(facts.lexed, frozenset(_TUNE_NAME.findall(rewrite_source))),
        *_spelling(facts.lexed),
        *_directives(facts.lexed),
        *_structure(facts.lexed),
        *_items(facts),
    ]
    lines = {(line_of(facts.lexed.text, at), message) for at, message in found}
    return tuple(f"line {line}: {message}" for line, message in sorted(lines))


Problem = tuple[int, str]


def _is_ours(name: str) -> bool:
    return name.lower().startswith("cudaops")


def _words(lexed: Lexed, tuned: frozenset[str]) -> Iterator[Problem]:
    tokens = _live(lexed)
    for index, token in enumerate(tokens):
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        before = tokens[index - 1].text if index else ""
        if token.text == "<<<":
            yield token.start, "`<<<` launches a kernel; use a `// @launch` directive"
        elif token.kind == "name" and token.text in _REFUSED_WORDS:
            yield token.start, f"`{token.text}`: {_REFUSED_WORDS[token.text]} is not device code"
        elif token.kind == "name" and _is_ours(token.text) and token.text not in tuned:
            yield token.start, f"`{token.text}`: names of cudaops itself are reserved"
        elif token.text in _HOST_CALLS and after == "(" and before not in (".", "->"):
            yield token.start, f"`{token.text}` is a host function"
        elif token.text == "namespace" and after in ("std", "cuda", "__gnu_cxx"):
            yield token.start, f"`namespace {after}` must not be extended"


def _live(lexed: Lexed) -> list[Token]:
    """All tokens but those that `#if 0` hides, which no compiler ever sees."""
    never = [r for r in lexed.dead_ranges if _is_never(lexed, r[0])]
    return [t for t in lexed.tokens if not any(a <= t.start < b for a, b in never)]


def _is_never(lexed: Lexed, start: int) -> bool:
    opener = next((d for d in lexed.directives if d.end == start), None)
    words = [] if opener is None else [t.text for t in lexed.tokens[opener.first : opener.last]]
    return words == ["#", "if", "0"]


def _spelling(lexed: Lexed) -> Iterator[Problem]:
    """Spellings that hide what a token is from a reader."""
    for match in re.finditer(r"(?<=[\w])\\\r?\n(?=\w)", lexed.text):
        yield match.start(), "a line continuation inside of a word"
    for token in lexed.tokens:
        if token.text == "\\":
            yield token.start, "a lone backslash"
    for first, second in zip(lexed.tokens, lexed.tokens[1:], strict=False):
        if first.end == second.start and first.text + second.text in ("%:", "<%", "%>", "??"):
            yield first.start, f"`{first.text}{second.text}`: write the plain token"
    if lexed.text.rstrip().endswith("\\"):
        yield len(lexed.text) - 1, "the text ends with a line continuation"
    for comment in lexed.comments:
        if comment.text.startswith("/*") and not (
            len(comment.text) > 3 and comment.text.endswith("*/")
        ):
            yield comment.start, "a comment that does not end"


def _directives(lexed: Lexed) -> Iterator[Problem]:
    opened: list[Directive] = []
    for directive in lexed.directives:
        words = lexed.tokens[directive.first + 2 : directive.last]
        name = words[0].text if words else ""
        keyword = directive.keyword
        if keyword == "include":
            written = lexed.text[words[0].start : words[-1].end] if words else ""
            if written.strip('<>"') not in ALLOWED_INCLUDES:
                yield directive.start, f"`#include {written}` is not a device header"
        elif keyword in ("define", "undef"):
            yield from _define(directive, name, words)
        elif keyword == "pragma" and name not in _PRAGMAS:
            yield directive.start, f"`#pragma {name}` is not allowed; only unroll is"
        elif keyword in ("line", "import", "include_next", "ident"):
            yield directive.start, f"`#{keyword}` is not allowed"
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


def _define(directive: Directive, name: str, words: tuple[Token, ...]) -> Iterator[Problem]:
    if _RESERVED.match(name) or name in _KEYWORDS:
        yield directive.start, f"`#{directive.keyword} {name}` changes what a CUDA name means"
    texts = [t.text for t in words]
    if any(a == b == "#" for a, b in pairwise(texts)):
        yield directive.start, f"macro `{name}` pastes tokens together"
    if texts.count("{") != texts.count("}"):
        yield directive.start, f"macro `{name}` opens or closes a brace only"


def _structure(lexed: Lexed) -> Iterator[Problem]:
    depth = 0
    for token in _live(lexed):
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


def _items(facts: Outline) -> Iterator[Problem]:
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


def _outside_body(facts: Outline, item: Item) -> tuple[Token, ...]:
    return facts.tokens[item.first : item.last if item.body is None else item.body[0]]


def _defines_object(facts: Outline, item: Item) -> bool:
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


def _declaration(item: Item, constructed: frozenset[str]) -> Iterator[Problem]:
    if not item.spaces & {"__global__", "__device__"}:
        yield item.start, f"`{item.name}`: host code at file scope"
    elif item.specifiers & constructed and "__global__" not in item.spaces:
        yield item.start, f"`{item.name}`: an object with a constructor"


def _variable(
    facts: Outline, item: Item, constructed: frozenset[str], macros: _Macros
) -> Iterator[Problem]:
    device = item.spaces & {"__device__", "__constant__", "__shared__", "__managed__"}
    tokens = facts.tokens[item.first : item.last]
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
        and ((a.kind == "name" and a.text != "sizeof") or a.text in ("]", ")", ">"))
        for a, b in pairwise(tokens)
    )
