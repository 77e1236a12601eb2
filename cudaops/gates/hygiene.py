"""Gate `hygiene`: device code only, by the rules of `program/hygiene.py`."""

from __future__ import annotations

import time

from cudaops.cuda.devices import Device
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.program.hygiene import check_source
from cudaops.program.hygiene_ptx import NO_PTX, AuthorsPtx


def hygiene_gate(
    rewrite: Rewrite,
    policy: Policy,
    device: Device | None = None,
    authors: AuthorsPtx = NO_PTX,
) -> Gate:
    """Refuse host functions, constructors, assembly and foreign includes in a rewrite's text, and
    what `device` does not have; of inline PTX what `authors` has is fine where PTX is."""
    started = time.monotonic()
    problems = check_source(
        rewrite.source,
        allow_libraries=policy.allow_libraries,
        allow_ptx=policy.allow_ptx,
        authors=authors,
        device=device,
    )
    assembly = "allowed PTX only" if policy.allow_ptx else "no assembly"
    clean = f"device code only: no host function, no constructor, {assembly}"
    return Gate(
        name="hygiene",
        passed=not problems,
        summary=problems[0] if problems else clean,
        numbers={"problems": float(len(problems))},
        seconds=time.monotonic() - started,
    )
