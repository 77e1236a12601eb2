"""Gate `hygiene`: device code only, by the rules of `program/hygiene.py`."""

from __future__ import annotations

import time

from cudaops.domain.judgement import Gate
from cudaops.domain.rewrite import Rewrite
from cudaops.program.hygiene import check_source


def hygiene_gate(rewrite: Rewrite, allow_libraries: bool) -> Gate:
    """Refuse host functions, constructors, assembly and foreign includes in a rewrite's text."""
    started = time.monotonic()
    problems = check_source(rewrite.source, allow_libraries=allow_libraries)
    clean = "device code only: no host function, no constructor, no assembly"
    return Gate(
        name="hygiene",
        passed=not problems,
        summary=problems[0] if problems else clean,
        numbers={"problems": float(len(problems))},
        seconds=time.monotonic() - started,
    )
