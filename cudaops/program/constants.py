"""Integer constants that a text defines: `#define TILE 32`, `constexpr int BK = TILE / 2;`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cudaops.errors import PlanError
from cudaops.program.expressions import parse
from cudaops.program.lexing import Lexed, Token, byte_text
from cudaops.program.outline import outline

_SUFFIXES = "uUlL"


def integer_constants(source: str, known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Constants of a text that can be evaluated; `known` wins over what the text says."""
    values = dict(known or {})
    for name, tokens in _definitions(source):
        if name not in values:
            value = _evaluated(tokens, values)
            if value is not None:
                values[name] = value
    return {n: v for n, v in values.items() if n not in (known or {})}


def integer_macros(source: str) -> dict[str, int]:
    """Macros of a text that are integers, as its last definition of each has them."""
    values: dict[str, int] = {}
    for name, tokens in _macros(outline(byte_text(source)).lexed):
        value = _evaluated(tokens, values)
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values


def _definitions(source: str) -> Iterator[tuple[str, tuple[Token, ...]]]:
    facts = outline(byte_text(source))
    yield from _macros(facts.lexed)
    for item in facts.items:
        if item.kind == "variable" and item.specifiers & {"constexpr", "const"}:
            yield from _declarators(facts.tokens[item.first : item.last - 1])


def _macros(lexed: Lexed) -> Iterator[tuple[str, tuple[Token, ...]]]:
    for directive in lexed.directives:
        tokens = lexed.tokens[directive.first : directive.last]
        if directive.keyword == "define" and len(tokens) > 3 and not lexed.dead(directive.start):
            function_like = tokens[3].text == "(" and tokens[3].start == tokens[2].end
            if not function_like:
                yield tokens[2].text, tokens[3:]


def _declarators(words: Sequence[Token]) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """Of `const int A = 4 * B, C = 2`: each name with what it is set to; no pointer, no array."""
    first, depth = 0, 0
    for at, word in enumerate((*words, None)):
        text = "," if word is None else word.text
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if text == "," and depth == 0:
            part = words[first:at]
            set_at = next((i for i, t in enumerate(part) if t.text == "="), 0)
            if set_at and not any(t.text in ("*", "{", "[") for t in part[:set_at]):
                yield part[set_at - 1].text, tuple(part[set_at + 1 :])
            first = at + 1


def _evaluated(tokens: tuple[Token, ...], known: Mapping[str, int]) -> int | None:
    # A cast in front of an integer changes nothing that a launch plan could notice.
    text = " ".join(t.text.rstrip(_SUFFIXES) if t.kind == "number" else t.text for t in tokens)
    for cast in ("( int )", "( size_t )", "( unsigned )"):
        text = text.replace(cast, "")
    try:
        value = parse(text).evaluate(known)
    except PlanError:
        return None
    return value if isinstance(value, int) else None
