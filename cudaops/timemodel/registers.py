"""What a kernel keeps in registers, and what of it lands in local memory.

Both are estimates from g++'s IL; where nvcc was asked, its numbers go before them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from cudaops.domain.execution import KernelResources
from cudaops.timemodel.gimple import (
    BasicBlock,
    GimpleFunction,
    GimpleStatement,
    array_base,
    bytes_of,
    ssa_names,
)
from cudaops.timemodel.work import MemorySite

OVERHEAD = 20.0
GROWTH = 1.15
"""Registers of an empty kernel with addresses and scheduling slack, and registers for each one that
liveness demands. Fitted to `ptxas -v` (nvcc 13.0.88, sm_90, 2026-11-20) of the six calibration
programs; docs/model.md shows the misses."""

LARGEST = 255


def registers_per_thread(function: GimpleFunction, launch_bound_threads: int | None = None) -> int:
    """Estimated registers, in the multiples of 8 that the hardware hands out.

    Args:
        function: The kernel.
        launch_bound_threads: First argument of `__launch_bounds__`: the compiler then stays low
            enough for such a block to fit on an SM.
    """
    wanted = OVERHEAD + GROWTH * _most_live(function)
    rounded = 8 * math.ceil(max(wanted, 16.0) / 8)
    if launch_bound_threads:
        rounded = min(rounded, 65536 // launch_bound_threads // 8 * 8)
    return max(16, min(rounded, LARGEST))


def shared_bytes(function: GimpleFunction) -> int:
    """Bytes of the `__shared__` variables the kernel declares; those of unknown type are left
    out."""
    total = 0
    for name in function.statics:
        count = math.prod(function.arrays.get(name, (1,)))
        total += count * bytes_of(function.types.get(name, ""))
    return total


def _most_live(function: GimpleFunction) -> float:
    weight = _weights(function)
    before, after = _block_facts(function)
    live_out = _flow(function, before, after)
    arrays = _local_arrays(function)
    most = 0.0
    for number, block in function.blocks.items():
        held = _held(block, arrays)
        live = set(live_out[number])
        size = held + sum(weight.get(n, 0.0) for n in live)
        most = max(most, size)
        for s in reversed(block.statements):
            if s.target_name and s.target_name in live:
                live.discard(s.target_name)
                size -= weight.get(s.target_name, 0.0)
            for name in s.uses:
                if name not in live:
                    live.add(name)
                    size += weight.get(name, 0.0)
            most = max(most, size)
    return most


def _weights(function: GimpleFunction) -> Mapping[str, float]:
    """Registers by SSA name: 64-bit values take two, parameters stay in constant memory, and of
    integers only half survive the folding of addresses."""
    names: dict[str, float] = {}
    for block in function.blocks.values():
        defined = [s.target_name for s in block.statements if s.target_name]
        for name in (*defined, *(phi.target for phi in block.phis)):
            kind = function.type_of(name)
            size = max(bytes_of(kind), 4) / 4
            floating = kind in ("float", "double") or kind.startswith("vector")
            names[name] = size if floating else 0.5 * min(size, 2.0)
    return names


def _block_facts(function: GimpleFunction) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    used: dict[int, set[str]] = {}
    made: dict[int, set[str]] = {}
    for number, block in function.blocks.items():
        made[number] = {phi.target for phi in block.phis}
        used[number] = set()
        for s in block.statements:
            used[number].update(
                n for n in s.uses if n not in made[number] and not n.endswith("(D)")
            )
            if s.target_name:
                made[number].add(s.target_name)
    return used, made


def _flow(
    function: GimpleFunction, used: dict[int, set[str]], made: dict[int, set[str]]
) -> dict[int, set[str]]:
    live_in = {n: set(used[n]) for n in function.blocks}
    live_out: dict[int, set[str]] = {n: set() for n in function.blocks}
    edge_uses: dict[int, set[str]] = {n: set() for n in function.blocks}
    for block in function.blocks.values():
        for phi in block.phis:
            for source, edge in phi.sources:
                if edge in edge_uses and ssa_names(source):
                    edge_uses[edge].add(source)
    changed = True
    while changed:
        changed = False
        for number in reversed(list(function.blocks)):
            out = set(edge_uses[number])
            for successor in function.blocks[number].successors:
                out |= live_in.get(successor, set())
            into = used[number] | (out - made[number])
            if out != live_out[number] or into != live_in[number]:
                live_out[number], live_in[number] = out, into
                changed = True
    return live_out


def _local_arrays(function: GimpleFunction) -> dict[str, float]:
    """Registers of local arrays that are only indexed by constants; others live in local memory."""
    indexed = arrays_in_local_memory(function)
    return {
        name: math.prod(extents) * max(bytes_of(function.types.get(name, "")), 4) / 4
        for name, extents in function.arrays.items()
        if name not in function.statics and name not in indexed
    }


def _held(block: BasicBlock, arrays: Mapping[str, float]) -> float:
    """Registers of the arrays this block reads; elsewhere their elements are SSA values."""
    words = {w for s in block.statements for w in re.findall(r"[A-Za-z_]\w*", s.value)}
    return sum(size for name, size in arrays.items() if name in words)


SPILL = "spill"
"""Name of the sites that stand for spilled registers."""


def arrays_in_local_memory(function: GimpleFunction) -> frozenset[str]:
    """Arrays of the function itself that some statement indexes by a value: registers have no
    index."""
    text = "\n".join(s.text for b in function.blocks.values() for s in b.statements)
    names = (n for n in function.arrays if n not in function.statics)
    return frozenset(
        n for n in names if re.search(rf"\b{re.escape(n)}(?:\[\d+\])*\[(?!\d+\])", text)
    )


def local_sites(
    function: GimpleFunction, blocks: int, threads: int, l1_bytes: float,
    resources: KernelResources | None,
) -> list[MemorySite]:  # fmt: skip
    """Accesses to local memory: arrays indexed by a value, and spilled registers where nvcc told.

    A word of all lanes stands in one line of 128 bytes, so that lanes with one index need one
    wavefront and lanes with several as many as there are indices. What does not fit in L1 beside
    the other threads goes to L2.

    Args:
        function: The kernel.
        blocks: Sampled blocks, whose counts the function has together.
        threads: A block.
        l1_bytes: L1 that a block has to itself.
        resources: What nvcc says; where it has no stack frame, no array is in local memory.
    """
    if resources is not None and not resources.stack_bytes:
        return []
    arrays = arrays_in_local_memory(function)
    held = sum(_array_bytes(function, name) for name in arrays)
    if resources is not None:
        held = resources.stack_bytes
    hit = min(1.0, l1_bytes / max(held * threads, 1))
    accesses: dict[tuple[str, bool], float] = {}
    lanes: dict[tuple[str, bool], float] = {}
    defined = {s.target_name: s for b in function.blocks.values() for s in b.statements}
    for block in function.blocks.values():
        for s in block.statements:
            for reference, write in ((s.target or "", True), (s.value, False)):
                name = array_base(reference)
                if name not in arrays or (write and s.target_name is not None):
                    continue
                key = (str(name), write)
                accesses[key] = accesses.get(key, 0.0) + block.count / blocks
                wide = 32.0 if _differs_by_lane(reference, defined) else 1.0
                lanes[key] = max(lanes.get(key, 1.0), wide)
    sites = []
    for (name, write), count in accesses.items():
        size = max(bytes_of(function.types.get(name, "")), 4)
        rows = min(lanes[name, write], float(math.prod(function.arrays[name])))
        sites.append(_local_site(name, write, size, count, rows, hit))
    if resources is not None:
        passes = _mean_passes(function) / blocks
        for spilled, write in (
            (resources.spill_load_bytes, False), (resources.spill_store_bytes, True),
        ):  # fmt: skip
            if spilled:
                sites.append(_local_site(SPILL, write, 4, spilled / 4 * passes, 1.0, hit))
    return [s for s in sites if s.accesses_per_block > 0]


def _local_site(
    name: str, write: bool, size: int, accesses: float, rows: float, hit: float
) -> MemorySite:
    requests = accesses / 32.0
    wavefronts = rows * size / 4
    return MemorySite(
        space="local", write=write, atomic=False, file=name, line=0, bytes_per_thread=size,
        instructions_per_block=requests, requests_per_block=requests, accesses_per_block=accesses,
        wavefronts=wavefronts, ideal_wavefronts=wavefronts,
        sectors=min(rows, 8.0) * 4.0 * size / 4, l1_hit=hit,
    )  # fmt: skip


def _array_bytes(function: GimpleFunction, name: str) -> int:
    return math.prod(function.arrays[name]) * max(bytes_of(function.types.get(name, "")), 4)


def _differs_by_lane(reference: str, defined: Mapping[str | None, GimpleStatement]) -> bool:
    """Whether an index comes out of memory or of the thread's place, rather than of a counter."""
    pending, seen = ssa_names(reference), set[str]()
    while pending:
        name = pending.pop()
        made = defined.get(name)
        if name in seen or made is None:
            continue
        seen.add(name)
        if "threadIdx" in made.value or re.search(r"(?:^|\W)(?:\*\w|MEM)|\[", made.value):
            return True
        pending += made.uses
    return False


def _mean_passes(function: GimpleFunction) -> float:
    """How often all sampled threads together run a statement, mean over the statements that ran:
    where in the code a register is spilled is not known."""
    ran = [(len(b.statements), b.count) for b in function.blocks.values() if b.count]
    return sum(n * count for n, count in ran) / max(sum(n for n, _ in ran), 1)
