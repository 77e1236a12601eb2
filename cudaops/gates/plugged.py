"""Gate `plugin`: what gates of installed packages say of a candidate. They refuse and no more."""

from __future__ import annotations

import time
from collections.abc import Callable

from cudaops.domain.judgement import Gate
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.plugins import Plugin, plugins, wrong_type

PluggedGate = Callable[[Program, Rewrite], str | None]
"""Why the rewrite of this program is refused, in one line; None: no objection."""


def plugged_gates() -> tuple[Plugin, ...]:
    """Installed gates. Raises InputError where one is none."""
    found = plugins("gates")
    for one in found:
        if not callable(one.value):
            raise wrong_type(one, "a function of a program and a rewrite")
    return found


def plugin_gate(program: Program, rewrite: Rewrite) -> Gate | None:
    """The first refusal; None where no gate is installed.

    A gate that raises or answers with neither text nor None has refused: one that could not run has
    failed.
    """
    started = time.monotonic()
    found = plugged_gates()
    if not found:
        return None
    refusal = next((said for one in found if (said := _refusal(one, program, rewrite))), "")
    asked = ", ".join(one.label.removesuffix(",") for one in found)
    return Gate(
        name="plugin",
        passed=not refusal,
        summary=refusal or f"no objection: {asked}",
        numbers={"gates": float(len(found))},
        seconds=time.monotonic() - started,
    )


def _refusal(one: Plugin, program: Program, rewrite: Rewrite) -> str:
    try:
        said = one.called(one.value, program, rewrite)
    except InputError as problem:
        return str(problem)
    if said is None:
        return ""
    if not isinstance(said, str):
        return f"{one.label} answered {type(said).__name__}, neither text nor None"
    line = " ".join(said.split())[:300]
    return f"{one.label} refuses it: {line}"
