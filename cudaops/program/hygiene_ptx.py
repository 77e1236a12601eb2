"""Inline PTX where the user allows it: statements that are read in full, in device functions."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.program import Program
from cudaops.program.hygiene_items import Problem
from cudaops.program.lexing import byte_text, plain_text
from cudaops.program.outline import Outline, outline
from cudaops.program.ptx_asm import asm_statements
from cudaops.program.ptx_text import AsmError


class Assembly(NamedTuple):
    """The asm statements of a text."""

    read: frozenset[int]
    """Where those begin of which everything is said: by `problems`, or that they are fine."""
    problems: tuple[Problem, ...]


NONE = Assembly(frozenset(), ())
"""Of whoever does not allow it: each is inline assembly, and refused as such."""


def assembly(facts: Outline) -> Assembly:
    """Look at every asm statement outside of preprocessor lines; inside of these it is refused."""
    read: set[int] = set()
    problems: list[Problem] = []
    for one in asm_statements(facts.lexed):
        read.add(one.start)
        if isinstance(one, AsmError):
            problems.append((one.at, f"inline PTX: {plain_text(one.message)}"))
        elif not _in_device_code(facts, one.start):
            problems.append((one.start, "inline PTX outside of a device function"))
    return Assembly(frozenset(read), tuple(problems))


def has_ptx(program: Program) -> bool:
    """Whether the author's own device code has inline PTX."""
    for file in program.files:
        if "asm" in file.text:
            facts = outline(byte_text(file.text))
            if any(_in_device_code(facts, at) for at in assembly(facts).read):
                return True
    return False


def _in_device_code(facts: Outline, at: int) -> bool:
    item = facts.item_at(at)
    if item is None:
        return False
    if item.kind == "type":
        return True
    inside = item.body is not None and facts.tokens[item.body[0]].start < at
    return inside and bool(item.spaces & {"__global__", "__device__"})
