"""Inline PTX where it is allowed or the author writes it: statements that are read in full, and
those that the author's device code holds, in device functions."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.program import Program
from cudaops.program.hygiene_items import Problem
from cudaops.program.lexing import Lexed, byte_text, lex, plain_text
from cudaops.program.outline import Outline, outline
from cudaops.program.ptx_asm import AsmStatement, Spelling, asm_statements
from cudaops.program.ptx_text import AsmError


class Assembly(NamedTuple):
    """The asm statements of a text."""

    read: frozenset[int]
    """Where those begin of which everything is said: by `problems`, or that they are fine."""
    problems: tuple[Problem, ...]


NONE = Assembly(frozenset(), ())
"""Of whoever does not allow it: each is inline assembly, and refused as such."""


class AuthorsPtx(NamedTuple):
    """The asm statements of an author's device code."""

    spellings: frozenset[Spelling] = frozenset()
    words: frozenset[str] = frozenset()
    """Names in the C++ that `ptx_asm` writes for them."""


NO_PTX = AuthorsPtx()


def assembly(facts: Outline, authors: AuthorsPtx = NO_PTX) -> Assembly:
    """Look at every asm statement outside of preprocessor lines; inside of these it is refused, but
    for the author's own."""
    read: set[int] = set()
    problems: list[Problem] = []
    for one in asm_statements(facts.lexed, known=authors.spellings):
        read.add(one.start)
        if isinstance(one, AsmError):
            problems.append((one.at, f"inline PTX: {plain_text(one.message)}"))
        elif one.directive < 0 and not _in_device_code(facts, one.start):
            problems.append((one.start, "inline PTX outside of a device function"))
    return Assembly(frozenset(read), tuple(problems))


def authors_ptx(program: Program) -> AuthorsPtx:
    """The statements in the author's own device code and macros; none where it has none."""
    found: list[AsmStatement] = []
    for file in program.files:
        if "asm" in file.text:
            facts = outline(byte_text(file.text))
            found += (
                one
                for one in asm_statements(facts.lexed, author=True)
                if isinstance(one, AsmStatement)
                and (one.directive >= 0 or _in_device_code(facts, one.start))
            )
    lines = "\n".join(line for one in found for line in (*one.first, *one.lines))
    return AuthorsPtx(frozenset(one.spelling for one in found), _names(lex(byte_text(lines))))


def _names(lexed: Lexed) -> frozenset[str]:
    return frozenset(token.text for token in lexed.tokens if token.kind == "name")


def _in_device_code(facts: Outline, at: int) -> bool:
    item = facts.item_at(at)
    if item is None:
        return False
    if item.kind == "type":
        return True
    inside = item.body is not None and facts.tokens[item.body[0]].start < at
    return inside and bool(item.spaces & {"__global__", "__device__"})
