"""Hints for a kernel's shape that installed packages give a model."""

from __future__ import annotations

from cudaops.domain.program import Kernel, Program
from cudaops.plugins import Plugin, plugins, wrong_type

MOST_CHARACTERS = 2000
"""Of one hint. Chosen: as long as an expert note."""


def plugged_hints() -> tuple[Plugin, ...]:
    """Installed ones. Raises InputError where one is none."""
    found = plugins("hints")
    for one in found:
        if not callable(one.value):
            raise wrong_type(one, "a function of a program and a kernel")
    return found


def hints_for(program: Program, kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Title and text of each hint that knows the kernel's shape. Raises InputError, one line, where
    one raises or answers with neither text nor None."""
    hints: list[tuple[str, str]] = []
    for number, one in enumerate(plugged_hints(), start=1):
        said = one.called(one.value, program, kernel)
        if not isinstance(said, str | None):
            raise wrong_type(one._replace(value=said), "text or None")
        if said:
            hints.append((f"plug-in-{number}", said[:MOST_CHARACTERS]))
    return tuple(hints)
