"""Shared arrays with places left free, where a warp meets in few banks.

Lanes that step from row to row of an array whose rows are a multiple of 32 words long all meet in
one bank, and wait for each other. One element more a row spreads them over the banks. Nothing but
the place of the elements changes: every mention of the array is an element with all its indices,
and an index beyond its row is outside of C's meaning. In an array of one dimension, whatever its
index says, one place after every so many stays free: `i` stands at `i + i / 32`.

Places are left free only where the warp's addresses, computed for the first warp of the launched
block, then meet less often.
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
from cudaops.transformations.thread_communication import WARP
from cudaops.transformations.trees import changed, swapped

BANKS, BANK_BYTES = 32, 4
_AFTER = (128, 64, 32, 16, 8)
"""Elements after which one place may stay free, the most memory saved first."""


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
        padded: dict[str, list[str]] = {"rows": [], "flat": []}
        result = draft
        for name in [node.name for node in _arrays(draft)]:
            if not _waits(result, name):
                continue
            node = next(x for x in _arrays(result) if x.name == name)
            kind = "rows" if len(node.extents) > 1 else "flat"
            longer = (
                [_longer(result, node, int(setting["words"]))] if kind == "rows"
                else [_spread(result, node, after) for after in _AFTER]
            )  # fmt: skip
            best = min(longer, key=lambda x: _waits(x, name))
            if _waits(best, name) < _waits(result, name):
                result = best
                padded[kind].append(f"`{name}`")
        if not any(padded.values()):
            raise NotUnderstood("no shared array with bank conflicts from its row length")
        if room_for(result) < 0:
            raise NotUnderstood("no room for longer rows in shared memory")
        done = []
        if padded["rows"]:
            done.append(f"made the rows of {' and '.join(padded['rows'])} a word longer")
        if padded["flat"]:
            done.append(f"padded {' and '.join(padded['flat'])}")
        says = f"{', '.join(done)}, so that lanes have fewer bank conflicts."
        return result.stepped(Step(self.name, setting, f"{says[0].upper()}{says[1:]}"))


def _arrays(draft: Draft) -> tuple[s.Declare, ...]:
    """Those every use of which is an element; of those whose size the launch gives, one alone."""
    declared = [x for f in (draft.form.kernel, *draft.form.functions)
                for x in s.below(f.body) if isinstance(x, s.Declare) and x.shared]  # fmt: skip
    by_launch = sum(x.unsized for x in declared)
    return tuple(
        x
        for x in s.below(draft.form.kernel.body)
        if isinstance(x, s.Declare) and x.shared and not x.pointer and "#" not in x.name
        and (by_launch == 1 if x.unsized else x.extents)
        and all(extent(e) is not None for e in x.extents) and ELEMENT_BYTES.get(x.type, 0)
        and is_only_indexed(draft, x.name, max(len(x.extents), 1))
    )  # fmt: skip


def _longer(draft: Draft, node: s.Declare, words: int) -> Draft:
    more = max(words * BANK_BYTES // ELEMENT_BYTES[node.type], 1)
    last = s.Binary("+", node.extents[-1], s.Number(str(more)))
    if (value := extent(node.extents[-1])) is not None and isinstance(node.extents[-1], s.Binary):
        last = s.Number(str(value + more))  # type: ignore[assignment]
    longer: Any = replace(node, extents=(*node.extents[:-1], last))
    return draft.with_body(swapped(draft.form.kernel.body, node, longer))


def _spread(draft: Draft, node: s.Declare, after: int) -> Draft:
    """With a place left free after each `after` elements of an array of one dimension."""
    place = draft.fresh_name(f"spread_{after}")

    def change(x: Any) -> Any:
        if x is node and not node.unsized:
            count = extent(node.extents[0]) or 0
            return replace(node, extents=(s.Number(str(count + count // after)),))
        match x:
            case s.Index(s.Name(name), index) if name == node.name:
                return replace(x, index=s.Call(place, (index,), type="unsigned"))
        return x

    text = f"""// Where element i of a shared array stands: one place after each {after} is free.
__device__ __forceinline__ unsigned {place}(unsigned i) {{ return i + i / {after}; }}"""
    found = draft.with_body(changed(draft.form.kernel.body, change)).adding(text)
    if not node.unsized:
        return found
    whole = draft.launch.smem
    more = ELEMENT_BYTES[node.type]
    return found.launched(smem=whole + whole / (after * more) * more)


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
