"""The source lines that cause most of what limits a modelled kernel."""

from __future__ import annotations

from pathlib import PurePosixPath

from cudaops.cuda.timing import Modelled
from cudaops.cuda.work import Mix, Site, Use
from cudaops.domain.base import SourceLocation
from cudaops.domain.profile import HotLine
from cudaops.executors.cpu.look import Look
from cudaops.program.candidate import FILE as CANDIDATE_FILE

MOST = 3
Line = tuple[str, int]


def hot_lines(look: Look) -> tuple[HotLine, ...]:
    """Up to three lines, the most expensive first, with their share of the limiting part's work."""
    limiter = look.modelled.estimate.limiter
    costs = _costs(look, limiter)
    total = sum(costs.values())
    if total <= 0:
        return ()
    result = []
    for line in sorted(costs, key=lambda at: costs[at], reverse=True)[:MOST]:
        place = _place(look, line)
        share = 100.0 * costs[line] / total
        if place is None or share < 1.0:
            continue
        result.append(
            HotLine(
                location=place, text=_text(look, place), share_pct=share, note=_note(look, line)
            )
        )
    return tuple(result)


def _costs(look: Look, limiter: str) -> dict[Line, float]:
    memory = {"data_path", "lsu", "l2", "dram", "latency", "launch", "atomics"}
    costs: dict[Line, float] = {}
    if limiter in memory:
        for index, site in enumerate(look.modelled.work.sites):
            if site.line:
                at = (site.file, site.line)
                costs[at] = costs.get(at, 0.0) + _memory_cost(look.modelled, index, site, limiter)
    if limiter not in memory or not any(costs.values()):
        for at, mix in look.line_mixes.items():
            costs[at] = costs.get(at, 0.0) + _pipe_cost(mix, limiter)
    return costs


def _memory_cost(m: Modelled, index: int, site: Site, limiter: str) -> float:
    count = site.instructions_per_block
    load = m.costs.load([Use(index, 1.0)])
    stored = m.costs.store([Use(index, 1.0)])
    if limiter in ("l2", "dram"):
        position = 2 if limiter == "l2" else 3
        moved = stored[position] if site.write else (load.l2 if limiter == "l2" else load.dram)
        return count * moved
    if limiter == "atomics":
        return site.requests_per_block * site.same_address if site.atomic else 0.0
    if limiter in ("latency", "launch"):
        return 0.0 if site.write and not site.atomic else count * load.latency
    return count * load.data_path


def _pipe_cost(mix: Mix, limiter: str) -> float:
    return {
        "fp32": mix.fp32,
        "fp64": mix.fp64,
        "alu": mix.alu,
        "sfu": mix.sfu,
        "convert": mix.convert,
    }.get(limiter, mix.issued)


def _place(look: Look, line: Line) -> SourceLocation | None:
    names = [CANDIDATE_FILE, *(f.path for f in look.unit.program.files)]
    file = next((n for n in names if PurePosixPath(n).name == line[0]), None)
    return None if file is None else SourceLocation(file=file, line=line[1])


def _text(look: Look, place: SourceLocation) -> str:
    if place.file == CANDIDATE_FILE and look.unit.rewrite is not None:
        source = look.unit.rewrite.source
    else:
        source = look.unit.program.file(place.file).text
    lines = source.splitlines()
    return lines[place.line - 1].strip() if place.line <= len(lines) else ""


def _note(look: Look, line: Line) -> str:
    """What the line does to memory, in the words of the metrics."""
    here = [s for s in look.modelled.work.sites if (s.file, s.line) == line]
    if not here:
        return "arithmetic"
    parts = []
    for kind in dict.fromkeys((s.space, s.write, s.atomic) for s in here):
        same = [s for s in here if (s.space, s.write, s.atomic) == kind]
        count = sum(s.instructions_per_block for s in same)
        what = "atomic" if kind[2] else "store" if kind[1] else "load"
        if kind[0] == "shared":
            waves = sum(s.instructions_per_block * s.wavefronts for s in same) / max(count, 1e-9)
            parts.append(f"shared {what}, {waves:.1f} wavefronts an instruction")
        else:
            sectors = sum(s.instructions_per_block * s.sectors for s in same) / max(count, 1e-9)
            parts.append(f"global {what}, {sectors:.1f} sectors a request")
    return "; ".join(parts)
