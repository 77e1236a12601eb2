"""Answers that leave something out: `// ... rest unchanged`, `{ ... }`, an empty kernel.

What stands for code that is not there would be compiled as nothing. Read strictly: a sentence that
might mean so counts, since asking again costs one call and a kernel with a hole in it a whole round
through the gates. Comments that merely use the same words amid code do not count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from cudaops.program.lexing import Comment, byte_text, line_of, plain_text
from cudaops.program.outline import Outline, outline

_TEXT = (
    r"(?:code|kernels?|functions?|body|bodies|implementation|program|file|source|logic|definitions?"
    r"|lines|stuff|includes|directives|helpers|contents?)"
)
_PART = (
    rf"(?:{_TEXT}|loops?|computation|steps?|parts?|sections?|setup|epilogue|prologue|everything"
    r"|rest)"
)
_REST = r"(?:rest|remainder|everything else)"
_OLD = r"(?:existing|original|previous|remaining|same|other|unchanged|baseline|earlier|old)"
_GONE = (
    r"(?:unchanged|unmodified|omitted|elided|truncated|abbreviated|snipped|not shown|here"
    r"|(?:goes|comes|belongs|would go|should go) here|as before|as above"
    r"|(?:stays?|remains?) same)"
)
_STATE = rf"(?:{_GONE}|skipped|as is|same|identical|follows|continues|remains?|stays?|exactly as)"
_BEFORE = r"(?:before|above|earlier|previously|previous|originally|original|existing|baseline)"
_FILL_IN = r"(?:insert|add|put|place|fill in|write|paste|copy|implement)"
_SOME = r"(?:\w+ ){0,2}"
_STANDS_FOR_CODE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\.\.\.+(?:.*\b(?:{_OLD}|{_STATE}|rest|remain\w*|more|similar\w*|etc|{_TEXT})\b.*)?",
        (
            r".*\b(?:rest \w+|existing|unchanged|implementation|code|omitted|so on|etc"
            r"|as before|as above|goes here|original)\b[^.]{0,20}\.\.\.+"
        ),
        rf"{_SOME}{_REST} {_SOME}{_TEXT}",
        rf"{_SOME}{_REST}:?,? (?:\w+:?,? ){{0,4}}{_STATE}.*",
        rf"(?:keep|insert|add|put|paste|copy|use)? ?{_OLD} {_SOME}(?:{_TEXT}|{_PART}.* {_STATE}.*)",
        rf"{_SOME}{_PART} {_GONE}(?: .*)?",
        rf"{_SOME}{_PART} left out",
        (
            r"(?!(?:keeps|leaves|leaving|so|with|which) )(?:[\w`'/-]+ ){0,5}"
            r"(?:unchanged|unmodified)(?: (?:from|as|here|below|above)\b.*)?"
        ),
        (
            r"(?:(?:code|body|kernel|everything|logic|loop|exactly) ){0,6}(?:same|identical|as)"
            rf"(?: (?:as|to|like|code|logic|in)){{0,4}} {_BEFORE}(?: {_PART}| version| one)?"
        ),
        r"(?:omitted|elided|truncated|abbreviated|snip|snipped|placeholder|stub|tbd)(?: .*)?",
        (
            rf"{_FILL_IN}\b.{{0,40}}\b(?:{_PART}|{_OLD}|your|same)\b.{{0,40}}"
            r"\b(?:here|as before|as above)"
        ),
        (
            r"(?:todo|fixme|xxx)\b[: -]{0,3}(?:\w+: )?(?:implement|add|fill|complete|write|finish"
            r"|insert|copy|port|same|rest|code)\b.*"
        ),
        (
            r".*\b(?:for (?:brevity|conciseness)|not repeated|not reproduced|as an exercise)\b.*"
            r"|.*\b(?:not shown|(?:left out|removed|simplified) for clarity)(?: here| again)?"
        ),
    )
)
"""Comments that stand for code wherever they are, as a whole and without `_FILLING`."""
_FILLING = re.compile(r"\b(?:the|this|your|my|all|of|is|are|was) ")
_AT_AN_END = re.compile(
    r"(?:todo|fixme|xxx)\b.*|.*\.\.\.+"
    r"|(?:same|similar|similarly|likewise|repeat|ditto|etc|and so on|continue|continued"
    r"|implement\w*|as before|as above)\b.*"
    rf"|{_FILL_IN}\b.{{0,80}}\b(?:here|as before|as above)"
)
"""Comments on a line of their own that stand for code where none follows them in their block."""
_EDGES = "/*!<>-=~_[](){}#:;,\"' \t"
_WINDOW, _STEP = 400, 300
"""Longer lines are read in overlapping pieces, so that no pattern sees more at once."""


class Elision(NamedTuple):
    """Something that is left out."""

    line: int
    """1-based."""
    text: str
    """What is in its place, in one line."""


def elision(source: str) -> Elision | None:
    """The first place where a source leaves code out; None where it is written out."""
    facts = outline(byte_text(source.replace("\u2026", "...")))
    raw = facts.lexed.text
    at = min([*_comments(facts), *_dots(facts), *_empty(facts)], default=None)
    if at is None:
        return None
    written = plain_text(raw[raw.rfind("\n", 0, at) + 1 :].split("\n", 1)[0])
    return Elision(line_of(raw, at), " ".join(written.split())[:120])


def _comments(facts: Outline) -> Iterator[int]:
    tokens = facts.lexed.tokens
    for comment in facts.lexed.comments:
        after = bisect_left(tokens, comment.start, key=lambda t: t.start)
        closes = after == len(tokens) or tokens[after].text == "}"
        line = facts.lexed.text.rfind("\n", 0, comment.start) + 1
        alone = facts.lexed.text[line : comment.start].rstrip()[-1:] in ("", "{")
        if any(_stands_for_code(said, closes and alone) for said in _said(comment)):
            yield comment.start


def _said(comment: Comment) -> Iterator[str]:
    """The comment's lines without what decorates them, and all of them as one sentence."""
    text = plain_text(comment.text)
    lines = [" ".join(line.strip(_EDGES).lower().split()) for line in text.split("\n")]
    if len(lines) > 1:
        lines.append(" ".join(line for line in lines if line))
    for line in lines:
        for at in range(0, max(1, len(line) - _WINDOW + _STEP), _STEP):
            yield line[at : at + _WINDOW].replace("(", "").replace(")", "").strip(_EDGES)


def _stands_for_code(said: str, at_an_end: bool) -> bool:
    whole = said if said.endswith("...") else said.rstrip(".!").rstrip(_EDGES)
    whole = _FILLING.sub("", whole)
    if any(pattern.fullmatch(whole) for pattern in _STANDS_FOR_CODE):
        return True
    return at_an_end and _AT_AN_END.fullmatch(whole) is not None


def _dots(facts: Outline) -> Iterator[int]:
    """`...` where C++ has none: as a statement, a body, a value or all of a call's arguments."""
    raw, tokens = facts.lexed.text, facts.lexed.tokens
    for at in range(len(tokens) - 2):
        if not tokens[at].text == tokens[at + 1].text == tokens[at + 2].text == ".":
            continue
        before = tokens[at - 1] if at else None
        after = tokens[at + 3] if at + 3 < len(tokens) else None
        if before is not None and before.text == ".":
            continue
        if before is None or after is None or before.text in ("{", "}", ";", ":", "=", "["):
            yield tokens[at].start
            continue
        lines = (
            "\n" in raw[before.end : tokens[at].start],
            "\n" in raw[tokens[at].end : after.start],
        )
        called = tokens[at - 2].text if at > 1 else ""
        arguments = (
            before.text == "("
            and after.text == ")"
            and tokens[at].directive < 0
            and called not in ("catch", "")
        )
        if all(lines) or after.text in (";", "}", ".") or arguments:
            yield tokens[at].start


def _empty(facts: Outline) -> Iterator[int]:
    """Kernels that do nothing, and device functions that hold a comment alone."""
    for item in facts.items:
        if item.kind != "function" or item.body is None:
            continue
        opener, closer = (facts.tokens[i] for i in item.body)
        inside = {t.text for t in facts.tokens[item.body[0] + 1 : item.body[1]]}
        remarked = any(opener.end <= c.start < closer.start for c in facts.lexed.comments)
        if inside <= {";", "return"} and (item.is_kernel or remarked):
            yield item.start
