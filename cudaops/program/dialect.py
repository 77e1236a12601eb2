"""CUDA spellings that a C++ compiler does not know: dynamic shared memory and unroll pragmas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from cudaops.program.lexing import Directive, Edit, Lexed, Token, closing, split_commas
from cudaops.program.outline import Outline

UNROLL_ALL = 127
"""What a bare `#pragma unroll` becomes; g++ unrolls no loop further than its trip count."""
_UNROLL_MOST = 65534
"""Largest factor g++ takes. Source: GCC manual, loop-specific pragmas."""
_LOOPS = frozenset({"for", "while", "do"})
_ATTRIBUTES = frozenset({"__align__", "alignas", "__attribute__"})


class SharedGlobal(NamedTuple):
    """`extern __shared__ T name[];` at namespace scope."""

    name: str
    declaration: str
    """What declares it inside of a function."""


def dialect_edits(lexed: Lexed, macros: frozenset[str] = frozenset()) -> list[Edit]:
    """Edits that keep every line where it is; `macros` may stand for a loop's head."""
    return [*_shared_edits(lexed), *_unroll_edits(lexed, macros)]


def macro_names(lexed: Lexed) -> frozenset[str]:
    """Every name that the text defines as a macro."""
    return frozenset(
        lexed.tokens[d.first + 2].text
        for d in lexed.directives
        if d.keyword == "define" and d.last > d.first + 2
    )


def shared_globals(facts: Outline) -> list[SharedGlobal]:
    """Dynamic shared memory declared outside of any function."""
    found = []
    for item in facts.items:
        if item.kind == "variable" and {"extern", "__shared__"} <= item.specifiers:
            tokens = facts.tokens[item.first : item.last]
            declared = _declared([t for t in tokens if t.text != ";"])
            if declared is not None:
                found.append(SharedGlobal(item.name, declared + ";"))
    return found


def shared_global_edits(facts: Outline, known: Sequence[SharedGlobal]) -> Iterator[Edit]:
    """Declare such memory at the top of each function that names it instead."""
    for item in facts.items:
        if item.body is None or not item.spaces & {"__global__", "__device__"}:
            continue
        words = {t.text for t in facts.tokens[item.body[0] : item.body[1]]}
        needed = [s.declaration for s in known if s.name in words]
        at = facts.tokens[item.body[0]].end
        if needed:
            yield Edit(at, at, " " + " ".join(needed))


def _shared_edits(lexed: Lexed) -> Iterator[Edit]:
    tokens = lexed.tokens
    for index, token in enumerate(tokens):
        if token.text == "extern":
            statement = _statement(tokens, index)
            declared = _declared(statement)
            if declared is not None:
                start, end = statement[0].start, statement[-1].end
                yield Edit(start, end, _same_lines(declared, lexed, start, end))
        elif token.text == "static":
            near = next((t for t in tokens[index + 1 : index + 4] if t.text == "__shared__"), None)
            if near is not None and near.directive == token.directive:
                yield Edit(token.start, token.end, "")
        elif token.text == "__shared__" and _static_follows(tokens, index):
            yield Edit(tokens[index + 1].start, tokens[index + 1].end, "")


def _static_follows(tokens: Sequence[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].text == "static"


def _statement(tokens: Sequence[Token], index: int) -> list[Token]:
    """Tokens from `index` to before the next `;`, at most 64, all in the same directive or none."""
    found: list[Token] = []
    for token in tokens[index : index + 64]:
        if token.text in (";", "{", "}") or token.directive != tokens[index].directive:
            break
        found.append(token)
    return found


def _declared(statement: Sequence[Token]) -> str | None:
    """What declares `extern __shared__ T name[], ...` inside of a function; None for other text."""
    if statement[-1].text != "]" or all(t.text != "__shared__" for t in statement):
        return None
    kept: list[Token] = []
    index = 0
    while index < len(statement):
        word = statement[index].text
        if word in _ATTRIBUTES and "(" in [t.text for t in statement[index + 1 : index + 2]]:
            index = closing(statement, index + 1)
        elif word not in ("extern", "__shared__", "static"):
            kept.append(statement[index])
        index += 1
    first_bracket = next((i for i, t in enumerate(kept) if t.text == "["), len(kept))
    parts = split_commas(kept[first_bracket - 1 :])
    if first_bracket < 2 or any(_shape(p) != ("name", "[") for p in parts):
        return None
    type_text = _joined(kept[: first_bracket - 1])
    return "; ".join(_one_declared(type_text, part) for part in parts)


def _shape(declarator: Sequence[Token]) -> tuple[str, str]:
    """Kind of the first token and the second token: `("name", "[")` for `name[]`."""
    return ("", "") if len(declarator) < 2 else (declarator[0].kind, declarator[1].text)


def _joined(tokens: Sequence[Token]) -> str:
    """Tokens as written, on one line."""
    gaps = [" " if a.end < b.start else "" for a, b in pairwise(tokens)]
    return "".join(t.text + g for t, g in zip(tokens, [*gaps, ""], strict=True))


def _one_declared(type_text: str, declarator: Sequence[Token]) -> str:
    name = declarator[0].text
    rest = "".join(t.text for t in declarator[closing(declarator, 1) + 1 :])
    if rest or "," in type_text:
        # A macro argument can hold neither a comma nor a row type's brackets.
        row = f"cudaops_row_{name}"
        return f"typedef {type_text} {row}{rest}; CUDAOPS_DYNAMIC_SHARED({row}, {name})"
    return f"CUDAOPS_DYNAMIC_SHARED({type_text}, {name})"


def _same_lines(replacement: str, lexed: Lexed, start: int, end: int) -> str:
    original = lexed.text[start:end]
    newline = "\\\n" if "\\\n" in original else "\n"
    return replacement + newline * (original.count("\n") - replacement.count("\n"))


def _unroll_edits(lexed: Lexed, macros: frozenset[str]) -> Iterator[Edit]:
    for directive in lexed.directives:
        words = lexed.tokens[directive.first : directive.last]
        if (
            directive.keyword == "pragma"
            and len(words) > 2
            and words[2].text in ("unroll", "nounroll")
        ):
            head = _next_code(lexed, directive)
            start, end = words[0].start, words[-1].end
            fits = head in _LOOPS or head in macros
            new = f"#pragma {_unrolled(' '.join(t.text for t in words[2:]))}" if fits else ""
            yield Edit(start, end, _same_lines(new, lexed, start, end))
    for index, token in enumerate(lexed.tokens[2:], 2):
        inside = lexed.tokens[index - 2].text == "_Pragma" and token.kind == "string"
        if inside and re.match(r'"\s*(no)?unroll\b', token.text):
            yield Edit(token.start, token.end, f'"{_unrolled(token.text.strip(chr(34)))}"')


def _next_code(lexed: Lexed, directive: Directive) -> str:
    return next((t.text for t in lexed.tokens[directive.last :] if t.directive < 0), "")


def _unrolled(text: str) -> str:
    if text.strip().startswith("no"):
        return "GCC unroll 1"
    factor = re.search(r"unroll\s*\(?\s*(\d+)\s*\)?\s*$", text)
    count = UNROLL_ALL if factor is None else max(1, min(int(factor.group(1)), _UNROLL_MOST))
    return f"GCC unroll {count}"
