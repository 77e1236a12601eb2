"""Rows of shared arrays one element longer, where a warp meets in few banks.

Lanes that step from row to row of an array whose rows are a multiple of 32 words long all meet in
one bank, and wait for each other. One element more a row spreads them over the banks. Nothing but
the place of the elements changes: every mention of the array is an element with all its indices,
and an index beyond its row is outside of C's meaning. A row is made longer only where the warp's
addresses, worked out for the first warp of the launched block, then meet less often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cudaops.domain.base import Dim3
from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.facts import ELEMENT_BYTES, Access, KernelFacts, varies_in_block
from cudaops.program.analysis.polynomials import Atom, Polynomial, Symbol, number
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.shared_memory import extent, is_only_indexed, room_for
from cudaops.transformations.trees import swapped

BANKS, BANK_BYTES, WARP = 32, 4, 32


class Pad:
    """Longer rows in shared memory."""

    name = "pad"
    title = "padded rows in shared memory"
    family: Family = "tiling"
    relieves = frozenset({
        "shared_bank_conflicts", "shared_throughput", "stall_mio_throttle",
        "stall_short_scoreboard", "stall_barrier",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """A word more for each row in which lanes meet."""
        block = draft.workloads[0].block
        for node in _arrays(draft):
            if any(meetings(a, draft.facts, block) > 1 for a in draft.facts.touching(node.name)):
                return ({"words": 1},)
        return ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Every array that gains by it."""
        padded = []
        result = draft
        for name in [node.name for node in _arrays(draft)]:
            node = next(x for x in _arrays(result) if x.name == name)
            longer = _longer(result, node, int(setting["words"]))
            if _waits(longer, name) < _waits(result, name):
                result = longer
                padded.append(name)
        if not padded:
            raise NotUnderstood("no array in shared memory whose rows' length makes lanes wait")
        if room_for(result) < 0:
            raise NotUnderstood("no room for longer rows in shared memory")
        names = " and ".join(f"`{name}`" for name in padded)
        says = f"Made the rows of {names} a word longer, so that lanes meet in fewer banks."
        return result.stepped(Step(self.name, setting, says))


def _arrays(draft: Draft) -> tuple[s.Declare, ...]:
    """Of two and more dimensions, every use of which is an element."""
    return tuple(
        x
        for x in s.below(draft.form.kernel.body)
        if isinstance(x, s.Declare) and x.shared and not x.pointer and len(x.extents) > 1
        and all(extent(e) is not None for e in x.extents) and "#" not in x.name
        and ELEMENT_BYTES.get(x.type, 0) and is_only_indexed(draft, x.name, len(x.extents))
    )  # fmt: skip


def _longer(draft: Draft, node: s.Declare, words: int) -> Draft:
    more = max(words * BANK_BYTES // ELEMENT_BYTES[node.type], 1)
    last = s.Binary("+", node.extents[-1], s.Number(str(more)))
    if (value := extent(node.extents[-1])) is not None and isinstance(node.extents[-1], s.Binary):
        last = s.Number(str(value + more))  # type: ignore[assignment]
    changed: Any = replace(node, extents=(*node.extents[:-1], last))
    return draft.with_body(swapped(draft.form.kernel.body, node, changed))


def _waits(draft: Draft, name: str) -> int:
    """How often lanes wait for each other at all mentions of an array, each counted once."""
    block = draft.workloads[0].block
    return sum(meetings(a, draft.facts, block) - 1 for a in draft.facts.touching(name))


def meetings(access: Access, facts: KernelFacts, block: Dim3) -> int:
    """Turns that the first warp's access to shared memory takes, beyond those that its width needs:
    1 where no two lanes meet, or where it is not known."""
    offset, size = access.offset_bytes, access.element_bytes
    if offset is None or not size or access.space != "shared":
        return 1
    fixed = _fixed(offset, facts, block)
    if fixed is None:
        return 1
    lanes = WARP // max(size // BANK_BYTES, 1)
    seen: dict[int, set[int]] = {}
    for lane in range(min(lanes, block.x * block.y * block.z)):
        place = _at(offset, fixed, lane, block)
        if place is None:
            return 1
        for word in range(place // BANK_BYTES, (place + size - 1) // BANK_BYTES + 1):
            seen.setdefault(word % BANKS, set()).add(word)
    return max(map(len, seen.values()), default=1)


def _fixed(offset: Polynomial, facts: KernelFacts, block: Dim3) -> dict[Atom, Polynomial] | None:
    """Values for all unknowns but the thread; None where one of them differs among lanes."""
    sizes = {"blockDim.x": block.x, "blockDim.y": block.y, "blockDim.z": block.z}
    found: dict[Atom, Polynomial] = {}
    for atom in offset.atoms():
        if not isinstance(atom, Symbol) or atom.name.startswith("threadIdx."):
            continue
        unknown = facts.unknowns.get(atom.name)
        if unknown is None or varies_in_block(unknown.depends):
            return None
        value = sizes.get(atom.name, unknown.interval.constant)
        found[atom] = number(value if value is not None else 0)
    return found


def _at(offset: Polynomial, fixed: Mapping[Atom, Polynomial], lane: int, block: Dim3) -> int | None:
    thread: dict[Atom, Polynomial] = {
        Symbol("threadIdx.x"): number(lane % block.x),
        Symbol("threadIdx.y"): number(lane // block.x % block.y),
        Symbol("threadIdx.z"): number(lane // block.x // block.y),
    }
    return offset.replace({**fixed, **thread}).constant
