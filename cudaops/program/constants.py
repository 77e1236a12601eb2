"""Integer constants that a text defines: `#define TILE 32`, `constexpr int BK = TILE / 2;`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudaops.errors import PlanError
from cudaops.program.expressions import parse
from cudaops.program.lexing import Token, byte_text
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


def _definitions(source: str) -> Iterator[tuple[str, tuple[Token, ...]]]:
    facts = outline(byte_text(source))
    lexed = facts.lexed
    for directive in lexed.directives:
        tokens = lexed.tokens[directive.first : directive.last]
        if directive.keyword == "define" and len(tokens) > 3 and not lexed.dead(directive.start):
            function_like = tokens[3].text == "(" and tokens[3].start == tokens[2].end
            if not function_like:
                yield tokens[2].text, tokens[3:]
    for item in facts.items:
        if item.kind == "variable" and item.specifiers & {"constexpr", "const"}:
            words = facts.tokens[item.first : item.last - 1]
            at = next((i for i, t in enumerate(words) if t.text == "="), None)
            if at is not None and not any(t.text in ("*", "{", "[") for t in words):
                yield item.name, tuple(words[at + 1 :])


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
