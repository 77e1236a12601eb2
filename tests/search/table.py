"""The table in docs/search.md: `python -m tests.search.table`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import fmean

from cudaops.domain.search import SearchOptions
from tests.search.landscape import KINDS, Landscape, climb, explore

WIDE = SearchOptions(strategy="beam", width=8, rounds=5)
NARROW = SearchOptions(strategy="beam")
SEEDS = range(40)


def rows() -> list[str]:
    """One a landscape and size of the beam."""
    head = (
        "| landscape | width x rounds | calls, at most | of | best leaf found | beam | greedy "
        "| branch |\n|---|---|---|---|---|---|---|---|"
    )
    return [head, *(_row(kind, options) for options in (NARROW, WIDE) for kind in KINDS)]


def _row(kind: Callable[[int], Landscape], options: SearchOptions) -> str:
    landscapes = [kind(seed) for seed in SEEDS]
    beam = [explore(one, options) for one in landscapes]
    one_round = options.model_copy(update={"strategy": "branch"})
    pairs = list(zip(beam, landscapes, strict=True))
    hits = sum(f.best_us <= one.best_us * 1.001 for f, one in pairs)
    found = {
        "beam": fmean(f.best_us / one.best_us for f, one in pairs),
        "greedy": fmean(climb(one, f.calls).best_us / one.best_us for f, one in pairs),
        "branch": fmean(explore(one, one_round).best_us / one.best_us for one in landscapes),
    }
    figures = " | ".join(f"{value:.2f}" for value in found.values())
    calls, of = max(f.calls for f in beam), min(one.exhaustive_calls for one in landscapes)
    size = f"{options.width} x {options.rounds}"
    return (
        f"| {landscapes[0].name} | {size} | {calls} | {of} | {hits} of {len(SEEDS)} | {figures} |"
    )


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
