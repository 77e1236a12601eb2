"""Whether a text can be read in bounded time: the readers of `program` follow its nesting."""

from __future__ import annotations

from cudaops.program.lexing import byte_text, lex, line_of

MAX_SOURCE = 100_000
"""Characters of a rewrite: twelve times the longest of those below. Judgement."""
_MAX_NESTING = 64
_MAX_LINES = 400
_MAX_TEMPLATES = 400
_MAX_RAW_STRINGS = 32
"""More of these than any kernel has: brackets within one another, preprocessor lines, template
headers, raw strings. Judgement; a recipe's output, the prompts' exemplars and the honest rewrites
of tests/exploits (39 texts) have at most 7, 17, 1 and 0."""
_PAIRS = {")": "(", "]": "[", "}": "{"}


def out_of_bounds(source: str) -> str:
    """What keeps a text from being read, in a few words; empty where nothing does."""
    if len(source) > MAX_SOURCE:
        return f"it has {len(source):,} characters"
    if source.count('R"') > _MAX_RAW_STRINGS:
        return f"it has more than {_MAX_RAW_STRINGS} raw strings"
    lexed = lex(byte_text(source))
    if len(lexed.directives) > _MAX_LINES:
        return f"it has more than {_MAX_LINES} preprocessor lines"
    if sum(t.text in ("template", "<<<") for t in lexed.tokens) > _MAX_TEMPLATES:
        return f"it has more than {_MAX_TEMPLATES} template headers"
    depth = 0
    for token in lexed.tokens:
        depth = max(0, depth + (token.text in _PAIRS.values()) - (token.text in _PAIRS))
        if depth > _MAX_NESTING:
            return f"it is nested more than {_MAX_NESTING} deep"
    return ""


def unbalanced(source: str) -> str:
    """The first bracket without its other half, in a few words; empty where each has one."""
    lexed = lex(byte_text(source))
    opened: list[str] = []
    for token in lexed.code():
        if token.text in _PAIRS.values():
            opened.append(token.text)
        elif token.text in _PAIRS and (not opened or opened.pop() != _PAIRS[token.text]):
            return f"in line {line_of(lexed.text, token.start)} a `{token.text}` closes nothing"
    return f"a `{opened[-1]}` is never closed" if opened else ""
