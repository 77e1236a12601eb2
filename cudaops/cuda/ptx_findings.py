"""What a candidate's device code does and its baseline's does not, and what follows from it.

Why each comparison is as it is:

- State (`.global` variables that are written). A counter for the last block of a reduction is
  honest, a result kept for the next launch is not, and both look alike: a person decides, unless
  the baseline keeps state as well. What nothing writes is a table.
- Clocks, `%smid`, waiting, `discard.L2`, device printf and malloc: seldom needed, and each lets a
  kernel work otherwise where it is timed.
- Precision. Narrow operands are no loss where the baseline's own data are as narrow (halves that
  are multiplied on tensor cores and added in float); narrow results are, unless the baseline rounds
  its results so as well. Float is narrow where the baseline computes in double alone.
- Approximations. `ex2.approx` and `rsqrt.approx` are what expf and rsqrtf are made of; `__expf`
  cannot be told from expf and is left to the gates on results. `sin`, `cos`, `lg2` and `tanh` are
  named where the baseline has none. Whoever allows a narrow type allows these: its unit roundoff
  (2^-11 for tf32 and fp16) is no smaller than their error.
- Launches from the device, calls out of the module and breakpoints have no place in a kernel that
  somebody else launches, whoever does it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cudaops.cuda.ptx_facts import Facts, Kind, Trait
from cudaops.domain.judgement import Precision

REFUSED: Mapping[Kind, str] = {
    "launches": "launches kernels from the device: {}",
    "calls": "calls what is not in its text: {}",
    "breakpoint": "stops for a debugger: {}",
}

SUSPICIOUS: Mapping[Kind, str] = {
    "state": "keeps {} between launches; look whether every launch sets it anew",
    "clock": "reads a clock ({}); look whether the result or the work depends on it",
    "place": "asks where it runs ({}); look whether the work depends on it",
    "sleeps": "waits ({}); look for what",
    "discards": "throws away cached data ({}); look whether it is written again before it is read",
    "profiler": "tells a profiler something ({})",
    "dependents": "starts what depends on it early ({}); look what is done after it",
    "heap": "uses the device's heap ({}), which outlives a launch",
    "prints": "prints from the device ({})",
    "matrix": "multiplies {} matrices, where the baseline's data are none",
    "arithmetic": "computes in {}, where the baseline does not",
    "rounding": "rounds to {}, where the baseline does not",
    "approximation": "approximates coarsely ({}), where the baseline does not",
}

_SAME_DATA: frozenset[Kind] = frozenset({"matrix", "rounding"})
_SAME_THING: frozenset[Kind] = frozenset({"arithmetic", "approximation"})
_COVERED: Mapping[Precision, frozenset[str]] = {
    "tf32": frozenset({"tf32"}),
    "fp16": frozenset({"fp16", "tf32"}),
    "bf16": frozenset({"bf16", "tf32"}),
}
"""What an allowed precision lets through. TF32 has the significant bits of fp16 and the exponents
of bf16, so it is no less exact than either."""


class Findings(NamedTuple):
    """What a candidate does beyond its baseline, one line each."""

    refused: tuple[str, ...]
    suspicious: tuple[str, ...]
    allowed: tuple[str, ...]
    """Lower precision that the user allowed."""


def findings(
    candidate: Facts,
    baseline: Facts,
    allowed: Precision | None = None,
    shown: Callable[[str], str] = str,
) -> Findings:
    """Compare two kernels' facts; `shown` turns a variable's symbol into a name."""
    beyond = {t for t in candidate if not _excused(t, baseline)}
    permitted = {t for t in beyond if _permitted(t, allowed)}
    return Findings(
        refused=_lines(REFUSED, beyond, shown),
        suspicious=_lines(SUSPICIOUS, beyond - permitted, shown),
        allowed=tuple(sorted({t.what for t in permitted})),
    )


def _excused(trait: Trait, baseline: Facts) -> bool:
    """Whether the baseline does this too."""
    if trait.kind in REFUSED or trait in baseline:
        return trait in baseline
    if trait.kind in _SAME_DATA:
        return Trait("holds", trait.what) in baseline
    if trait == ("arithmetic", "fp32"):
        return Trait("arithmetic", "fp64") not in baseline
    if trait == ("arithmetic", "fp64") or trait.kind == "holds":
        return True
    if trait.kind in _SAME_THING:
        return False
    return any(t.kind == trait.kind for t in baseline)


def _permitted(trait: Trait, allowed: Precision | None) -> bool:
    if allowed is None:
        return False
    if trait.kind == "approximation":
        return True
    precise = trait.kind in ("matrix", "arithmetic", "rounding")
    return precise and trait.what in _COVERED[allowed]


def _lines(
    texts: Mapping[Kind, str], found: set[Trait], shown: Callable[[str], str]
) -> tuple[str, ...]:
    lines = []
    for kind, text in texts.items():
        names = sorted(
            shown(t.what) if kind == "state" else t.what for t in found if t.kind == kind
        )
        if names:
            lines.append(text.format(", ".join(f"`{n}`" for n in names[:4])))
    return tuple(lines)
