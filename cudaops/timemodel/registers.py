"""An estimate of registers a thread and shared memory a block, where nvcc has not been asked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from cudaops.timemodel.gimple import Block, Function, bytes_of, ssa_names

OVERHEAD = 20.0
GROWTH = 1.15
"""Registers of an empty kernel with addresses and scheduling slack, and registers for each one that
liveness demands. Fitted to `ptxas -v` (nvcc 13.0.88, sm_90, 2026-11-20) of the six calibration
programs; docs/model.md shows the misses."""

LARGEST = 255


def registers_per_thread(function: Function, launch_bound_threads: int | None = None) -> int:
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


def shared_bytes(function: Function) -> int:
    """Bytes of the `__shared__` variables the kernel declares; those of unknown type are left
    out."""
    total = 0
    for name in function.statics:
        count = math.prod(function.arrays.get(name, (1,)))
        total += count * bytes_of(function.types.get(name, ""))
    return total


def _most_live(function: Function) -> float:
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


def _weights(function: Function) -> Mapping[str, float]:
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


def _block_facts(function: Function) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
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
    function: Function, used: dict[int, set[str]], made: dict[int, set[str]]
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


def _local_arrays(function: Function) -> dict[str, float]:
    """Registers of local arrays that are only indexed by constants; others live in local memory."""
    sizes: dict[str, float] = {}
    text = "\n".join(s.text for b in function.blocks.values() for s in b.statements)
    for name, extents in function.arrays.items():
        if name in function.statics:
            continue
        if re.search(rf"\b{re.escape(name)}(?:\[\d+\])*\[(?!\d+\])", text):
            continue
        sizes[name] = math.prod(extents) * max(bytes_of(function.types.get(name, "")), 4) / 4
    return sizes


def _held(block: Block, arrays: Mapping[str, float]) -> float:
    """Registers of the arrays this block reads; elsewhere their elements are SSA values."""
    words = {w for s in block.statements for w in re.findall(r"[A-Za-z_]\w*", s.value)}
    return sum(size for name, size in arrays.items() if name in words)
