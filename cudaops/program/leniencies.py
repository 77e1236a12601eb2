"""What nvcc takes of an author's text and g++ refuses, as edits that keep every line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudaops.program.lexing import Edit, Lexed, Token, closing, opening
from cudaops.program.outline import Item, Outline

_TO_ITS_LINES_END = re.compile(r"(?:[ \t\r\f\v]|/\*[^\n]*?\*/)*(?://[^\n]*)?(?:\n|$)")
_CONTROLS = frozenset({"if", "for", "while", "switch", "catch", "constexpr"})
_OPENS_BLOCK = frozenset({"{", "}", ";", "else", "do", "try", ":"})
"""What stands before a brace that opens no function."""


def lenient_edits(facts: Outline) -> Iterator[Edit]:
    """All of them."""
    yield from _stray_backslashes(facts.lexed)
    for item in facts.items:
        if item.name == "main" and not item.namespaces and item.body is not None:
            yield from _returns_of_main(facts.tokens, item)


def _stray_backslashes(lexed: Lexed) -> Iterator[Edit]:
    """One with blanks or a comment between it and the end of its line continues that line."""
    for token in lexed.tokens:
        continues = token.text == "\\" and token.directive < 0
        if continues and _TO_ITS_LINES_END.match(lexed.text, token.end):
            yield Edit(token.start, token.end, " ")


def _returns_of_main(tokens: Sequence[Token], item: Item) -> Iterator[Edit]:
    """`return;` in `main` returns 0. Not in a lambda or a structure there."""
    if item.body is None or "void" in item.specifiers:
        return
    at, last = item.body[0] + 1, item.body[1]
    while at < last:
        if tokens[at].text == "{" and not _is_block(tokens, at):
            at = closing(tokens, at)
        elif tokens[at].text == "return" and tokens[at + 1].text == ";":
            yield Edit(tokens[at].end, tokens[at].end, " 0")
        at += 1


def _is_block(tokens: Sequence[Token], brace: int) -> bool:
    before = tokens[brace - 1].text
    if before != ")":
        return before in _OPENS_BLOCK
    return tokens[opening(tokens, brace - 1) - 1].text in _CONTROLS
