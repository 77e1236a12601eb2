"""Gate `isolation`: how well the candidate was confined while it was judged, in every judgement."""

from __future__ import annotations

from cudaops.domain.judgement import Gate, IsolationLevel
from cudaops.executors.isolation.level import MEANING


def isolation_gate(level: IsolationLevel) -> Gate:
    """Always passed: who runs unconfined has said so (`--trust-source`), and the record keeps it.

    Where less is reached than was asked for, nothing runs in the first place.
    """
    return Gate(
        name="isolation",
        passed=True,
        summary=f"{level}: {MEANING[level]}",
        numbers={"level": float(level[1])},
    )
