"""Directives in an answer: faults of their dress mended, faults of their sense named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import LaunchPlan
from cudaops.errors import PlanError
from cudaops.program.constants import integer_constants
from cudaops.program.directives import WORDS, read_directives, unknown_name
from cudaops.program.grammar import ROOTS
from cudaops.program.lexing import (
    Comment,
    Edit,
    Lexed,
    apply_edits,
    byte_text,
    disjoint,
    lex,
    plain_text,
)
from cudaops.program.plans import parse_plan

_WORD = rf"@(?:{'|'.join(WORDS)})\b"
_LINE = re.compile(rf"[\s/*#>`-]{{0,20}}({_WORD}.*?)[\s`;*]{{0,20}}")
_DIRECTIVE = re.compile(rf"//[/!]?[ \t]*{_WORD}")
_CONTINUED = re.compile(
    r"//[/!]?\s*((?:grid|block|smem|args|bytes)\s*=(?!=).*)", re.DOTALL | re.ASCII
)
_SPLICE = re.compile(r"[ \t]*\\\n[ \t]*(?://+)?[ \t]*")
# On bytes as characters, where half of a letter may look like a space.
_TAIL = re.compile(r"[\s;`*]+\Z", re.ASCII)


def mended(source: str) -> tuple[str, tuple[str, ...]]:
    """The source with its directives in `//` comments of one line, and what was changed.

    Mended without a guess: no `//` before a directive, one in `/* */`, one over several lines, a
    semicolon or backquote at its end. Anything else stays for `plan_of` to name.
    """
    raw = byte_text(source)
    notices: list[str] = []
    for find, notice in _MENDINGS:
        if edits := disjoint(find(lex(raw))):
            raw = apply_edits(raw, edits)
            notices.append(notice)
    return plain_text(raw), tuple(notices)


def has_launch(source: str) -> bool:
    """Whether a comment of the source is a `@launch` directive."""
    comments = lex(byte_text(source)).comments
    return any(re.match(r"//[/!]?\s*@launch\b", c.text) for c in comments)


def directive_lines(text: str) -> str:
    """The directives that stand in a text by themselves, a `//` line each; empty without."""
    found = (_LINE.fullmatch(line) for line in text.split("\n") if len(line) < 2000)
    return "".join(f"// {match[1]}\n" for match in found if match)


def plan_of(source: str, kernel: Kernel) -> LaunchPlan:
    """The plan of a rewrite of this kernel. Raises PlanError with line and column, also for a name
    that neither the kernel's author nor the rewrite has given."""
    plan = parse_plan(source)
    found = read_directives(source)
    known: Mapping[str, object] = {
        **dict.fromkeys(p.name for p in kernel.parameters),
        **integer_constants(source, {t.name: t.values[0] for t in plan.tune}),
        **dict.fromkeys(t.name for t in plan.tune),
        **dict.fromkeys(s.name for s in plan.scratch),
        **{f"{root}.{axis}": None for root in ROOTS for axis in "xyz"},
        "smem": None,
        "nullptr": None,
    }
    expressions = [*found.requires, *(s.size for s in found.scratch)]
    for launch in found.launches:
        expressions += [*launch.grid, *launch.block, launch.smem, *launch.args]
    for expression in expressions:
        for name, column in expression.name_columns().items():
            if name not in known:
                raise PlanError(unknown_name(name, known), expression.line, column)
    return plan


def _bare(lexed: Lexed) -> Iterator[Edit]:
    """`@launch ...` as code, with or without a `#` before it."""
    for before, token in pairwise((None, *lexed.tokens)):
        if token is None or token.text != "@":
            continue
        start = before.start if before is not None and before.text == "#" else token.start
        line = lexed.text.rfind("\n", 0, start) + 1
        if lexed.text[line:start].strip() or not re.match(_WORD, lexed.text[token.start :][:40]):
            continue
        yield Edit(start, token.start, "// ")


def _in_blocks(lexed: Lexed) -> Iterator[Edit]:
    """`/* @launch ... */`: each of its lines as a `//` line, where nothing follows it."""
    for comment in lexed.comments:
        if not comment.text.startswith("/*"):
            continue
        lines = comment.text[2:].removesuffix("*/").split("\n")
        if not any(re.match(rf"[\s*]*{_WORD}", line[:200]) for line in lines):
            continue
        end = lexed.text.find("\n", comment.end)
        if not lexed.text[comment.end : end if end >= 0 else len(lexed.text)].strip():
            text = "\n".join("// " + line.strip(" \t*") for line in lines)
            yield Edit(comment.start, comment.end, text)


def _spread(lexed: Lexed) -> Iterator[Edit]:
    """A directive that goes on after a backslash, or in the comments of the lines below it."""
    opened = False
    for before, comment in pairwise((None, *lexed.comments)):
        if comment is None:
            continue
        if _DIRECTIVE.match(comment.text):
            opened = True
            if _SPLICE.search(comment.text):
                text = _SPLICE.sub(" ", comment.text)
                yield Edit(comment.start, comment.end, text)
            continue
        goes_on = _CONTINUED.fullmatch(comment.text) if opened else None
        if goes_on is None or before is None or not _is_next_line(lexed, before, comment):
            opened = False
            continue
        yield Edit(before.end, comment.end, " " + goes_on[1])


def _is_next_line(lexed: Lexed, before: Comment, comment: Comment) -> bool:
    between = lexed.text[before.end : comment.start]
    return not between.strip() and between.count("\n") == 1


def _tails(lexed: Lexed) -> Iterator[Edit]:
    for comment in lexed.comments:
        text = comment.text[-200:]
        tail = _TAIL.search(text) if _DIRECTIVE.match(comment.text) else None
        if tail and tail.group().strip():
            yield Edit(comment.end - len(tail.group()), comment.end, "")


def named(source: str, error: PlanError) -> str:
    """What is wrong with a directive and the line on which it stands, in one sentence."""
    lines = source.split("\n")
    written = lines[error.line - 1].strip() if 0 < error.line <= len(lines) else ""
    return f"{error.message}, in the line `{written[:300]}`"


_MENDINGS: tuple[tuple[Callable[[Lexed], Iterator[Edit]], str], ...] = (
    (_bare, "the `//` before a directive was missing"),
    (_in_blocks, "a directive stood in `/* */`"),
    (_spread, "a directive stood on several lines"),
    (_tails, "a directive ended with a sign too many"),
)
"""In this order: each sees what the ones before it made."""
