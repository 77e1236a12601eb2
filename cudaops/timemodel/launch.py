"""One sampled launch: its modelled time on a device, and the source lines that limit it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import Device
from cudaops.cuda.occupancy import Occupancy, occupancy
from cudaops.domain.base import SourceLocation
from cudaops.domain.execution import Misbehaved, Unit
from cudaops.domain.profile import HotLine
from cudaops.domain.rewrite import ResolvedLaunch
from cudaops.errors import SandboxUnavailable
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.candidate import NAMESPACE
from cudaops.timemodel.gimple import Block, Function, bytes_of, ssa_names
from cudaops.timemodel.instructions import Translator
from cudaops.timemodel.phases import Sampled, operations, shape
from cudaops.timemodel.sm_simulation import Costs
from cudaops.timemodel.timing import Modelled, estimate
from cudaops.timemodel.trace import Trace, finder, sites_of, traffic
from cudaops.timemodel.work import KernelWork, Mix, Site, Use

_OWN = ("cudaops::", "_GLOBAL__")
"""Functions of the runner and of our headers in a unit's dump."""


class Sample(NamedTuple):
    """What the sampled blocks of one launch did."""

    trace: Trace
    functions: tuple[Function, ...]
    """Functions of the unit that ran, with the counts of all sampled blocks together."""


class LaunchModel(NamedTuple):
    """One launch of a plan as the model sees it on a device."""

    modelled: Modelled
    kernel: str
    unit: Unit
    line_mixes: Mapping[tuple[str, int], Mix]
    """Warp instructions a block by source line, memory instructions left out."""
    notes: tuple[str, ...]

    @property
    def duration_us(self) -> float:
        """Modelled time of the launch, as events would show it."""
        return self.modelled.estimate.duration_us


def model_launch(
    sample: Sample, unit: Unit, kernel: str, launch: ResolvedLaunch, sizes: Mapping[int, int],
    device: Device, *, bounded: bool, rewritten: bool = False,
) -> LaunchModel | Misbehaved:  # fmt: skip
    """Model one launch.

    Args:
        sample: Its sampled blocks.
        unit: What was compiled.
        kernel: The launched expression.
        launch: Geometry.
        sizes: Bytes of each allocation, scratch at -2, -3, ...
        device: What to model.
        bounded: Whether the kernel has `__launch_bounds__`, which caps its registers.
        rewritten: Whether the kernel is the rewrite's own, which may be named as the baseline is.
    """
    function = _kernel_function(sample.functions, kernel, rewritten=rewritten)
    threads = launch.block.volume
    registers = registers_per_thread(function, threads if bounded else None)
    capped = min(registers, max(device.registers_per_sm // max(threads, 1) // 8 * 8, 16))
    static = shared_bytes(function)
    smem = static + launch.dynamic_smem_bytes
    held = occupancy(device, threads, capped, smem)
    if held.blocks_per_sm < 1:
        return Misbehaved(
            what="launch_refused",
            message=f"a block of {threads} threads with {smem} bytes of shared memory does not fit "
            f"on an SM of {device.name}",
        )
    sites = sites_of(sample.trace, _l1_of_a_block(device, held, smem, launch))
    sampled = Sampled(max(len(sample.trace.blocks), 1), threads)
    callees = _callees(sample.functions, function, sites)
    found = shape(function, sites, finder(sites), callees, sampled)
    moved = traffic(sample.trace, sites, launch.grid, sizes, device, held.blocks_per_sm)
    work = KernelWork(
        grid_blocks=launch.grid.volume, block_threads=threads, registers_per_thread=capped,
        static_smem_bytes=static, dynamic_smem_bytes=launch.dynamic_smem_bytes,
        phases=found.phases, sites=sites, counts=found.counts, traffic=moved,
        barriers_per_block=found.barriers_per_block,
        hottest_atomic=_hottest(sample),
    )  # fmt: skip
    costs = Costs.of(work, device, microarchitecture(device.compute_capability))
    estimated = estimate(work, device)
    modelled = Modelled(work, estimated, costs, device, launch.grid, launch.block)
    mixes = _line_mixes(function, sites, callees, sampled)
    return LaunchModel(modelled, kernel, unit, mixes, _notes(sample, modelled, sampled))


def _kernel_function(functions: tuple[Function, ...], kernel: str, *, rewritten: bool) -> Function:
    """The baseline never ran where the rewrite's kernel did, and g++ guesses counts for it then."""
    wanted, inside = _base(kernel), f"{NAMESPACE}::"
    named = [
        f for f in functions if _base(f.name) == wanted and f.name.startswith(inside) == rewritten
    ]
    if not named:
        raise SandboxUnavailable(
            f"no IL of kernel {kernel!r} that ran",
            "report this program: the time model lost its kernel",
        )
    return max(named, key=lambda f: next(iter(f.blocks.values())).count)


def _base(name: str) -> str:
    """Name without template arguments, namespaces and clone suffixes."""
    head = name.split("<")[0].split("(")[0].strip()
    return head.rpartition("::")[2].split(".")[0].split(" ")[-1]


def _callees(
    functions: tuple[Function, ...], kernel: Function, sites: tuple[Site, ...]
) -> dict[str, Mix]:
    """Instructions a call of each device function that stayed a call."""
    result: dict[str, Mix] = {}
    for function in functions:
        entry = next(iter(function.blocks.values())).count
        if function is kernel or entry == 0 or function.name.startswith(_OWN):
            continue
        translator = Translator(function, finder(sites), {})
        total = Mix()
        for number, ops in operations(function, translator).items():
            share = function.blocks[number].count / entry
            for op in ops:
                total += op.mix.times(share)
                total += Mix(issued=share * (len(op.loads) + len(op.stores)))
        result[function.name] = total
    return result


def _l1_of_a_block(device: Device, held: Occupancy, smem: int, launch: ResolvedLaunch) -> float:
    """L1 left beside the shared memory of the resident blocks, over those blocks."""
    resident = max(min(held.blocks_per_sm, -(-launch.grid.volume // device.sm_count)), 1)
    wanted = held.blocks_per_sm * (smem + device.shared_reserved_per_block)
    carveout = next(
        (s for s in device.shared_carveouts_bytes if s >= wanted), device.shared_bytes_per_sm
    )
    return (device.l1_shared_bytes_per_sm - carveout) / resident


def _hottest(sample: Sample) -> float:
    most = [b.hottest_atomic for b in sample.trace.blocks]
    return sum(most) / len(most) if most else 0.0


def _line_mixes(
    function: Function, sites: tuple[Site, ...], callees: Mapping[str, Mix], sampled: Sampled
) -> dict[tuple[str, int], Mix]:
    translator = Translator(function, finder(sites), callees)
    result: dict[tuple[str, int], Mix] = {}
    for number, ops in operations(function, translator).items():
        share = function.blocks[number].count / sampled.blocks / 32.0
        for op in ops:
            place = op.statement.place
            if place and op.mix.issued:
                key = (place[0].rpartition("/")[2], place[1])
                result[key] = result.get(key, Mix()) + op.mix.times(share)
    return result


def _notes(sample: Sample, modelled: Modelled, sampled: Sampled) -> tuple[str, ...]:
    work = modelled.work
    blocks = f"{sampled.blocks} of {work.grid_blocks} blocks"
    return (
        f"modelled for {modelled.device.full_name} from {blocks} run on this machine's processor",
        f"{work.registers_per_thread} registers a thread are an estimate, nvcc was not asked",
        "DRAM bytes are those of a launch that finds nothing in L2",
        f"time is limited by: {modelled.estimate.limiter}",
    )


MOST = 3
Line = tuple[str, int]


def hot_lines(model: LaunchModel) -> tuple[HotLine, ...]:
    """Up to three lines, the most expensive first, with their share of the limiting part's work."""
    limiter = model.modelled.estimate.limiter
    costs = _costs(model, limiter)
    total = sum(costs.values())
    if total <= 0:
        return ()
    result = []
    for line in sorted(costs, key=lambda at: costs[at], reverse=True)[:MOST]:
        place = _place(model, line)
        share = 100.0 * costs[line] / total
        if place is None or share < 1.0:
            continue
        result.append(
            HotLine(
                location=place, text=_text(model, place), share_pct=share, note=_note(model, line)
            )
        )
    return tuple(result)


def _costs(model: LaunchModel, limiter: str) -> dict[Line, float]:
    memory = {"data_path", "lsu", "l2", "dram", "latency", "launch", "atomics"}
    costs: dict[Line, float] = {}
    if limiter in memory:
        for index, site in enumerate(model.modelled.work.sites):
            if site.line:
                at = (site.file, site.line)
                costs[at] = costs.get(at, 0.0) + _memory_cost(model.modelled, index, site, limiter)
    if limiter not in memory or not any(costs.values()):
        for at, mix in model.line_mixes.items():
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


def _place(model: LaunchModel, line: Line) -> SourceLocation | None:
    names = [CANDIDATE_FILE, *(f.path for f in model.unit.program.files)]
    file = next((n for n in names if PurePosixPath(n).name == line[0]), None)
    return None if file is None else SourceLocation(file=file, line=line[1])


def _text(model: LaunchModel, place: SourceLocation) -> str:
    if place.file == CANDIDATE_FILE and model.unit.rewrite is not None:
        source = model.unit.rewrite.source
    else:
        source = model.unit.program.file(place.file).text
    lines = source.splitlines()
    return lines[place.line - 1].strip() if place.line <= len(lines) else ""


def _note(model: LaunchModel, line: Line) -> str:
    """What the line does to memory, in the words of the metrics."""
    here = [s for s in model.modelled.work.sites if (s.file, s.line) == line]
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
