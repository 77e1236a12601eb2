"""One sampled launch: its modelled time on a device, and the source lines that limit it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import Device
from cudaops.cuda.occupancy import Occupancy, occupancy
from cudaops.domain.base import Dim3, SourceLocation
from cudaops.domain.execution import KernelResources, Misbehaved, Unit
from cudaops.domain.profile import HotLine
from cudaops.domain.rewrite import ResolvedLaunch
from cudaops.errors import SandboxUnavailable
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.candidate import NAMESPACE
from cudaops.timemodel.costs import BRANCHING, FAST_BRANCHING, is_dear
from cudaops.timemodel.divergence import ALIKE, Divergence
from cudaops.timemodel.gimple import GimpleFunction, vector_members
from cudaops.timemodel.instructions import Callee, Translator
from cudaops.timemodel.loops import Asked, unroll_pragmas
from cudaops.timemodel.phases import Sampled, operations, shape
from cudaops.timemodel.registers import local_sites, registers_per_thread, shared_bytes
from cudaops.timemodel.sampling_error import sampling_error
from cudaops.timemodel.sm_simulation import Costs
from cudaops.timemodel.timing import Modelled, estimate
from cudaops.timemodel.trace import (
    AtomicLine,
    Trace,
    busiest_line,
    finder,
    sites_of,
    traffic,
)
from cudaops.timemodel.work import KernelWork, MemorySite, Mix, ThreadCounts, Use

_OWN = ("cudaops::", "_GLOBAL__")
"""Functions of the runner and of our headers in a unit's dump."""


class LaunchSample(NamedTuple):
    """What the sampled blocks of one launch did."""

    trace: Trace
    functions: tuple[GimpleFunction, ...]
    """Functions of the unit that ran, with the counts of all sampled blocks together."""
    working_share: float = 1.0
    """Of the grid's blocks, 0-1; the others access no memory, and none of them is in the sample."""
    divergence: Divergence = ALIKE


class LaunchModel(NamedTuple):
    """One launch of a plan as the model sees it on a device."""

    modelled: Modelled
    kernel: str
    unit: Unit
    line_mixes: Mapping[tuple[str, int], Mix]
    """Warp instructions a block by source line, memory instructions left out."""
    notes: tuple[str, ...]
    resources: KernelResources | None = None
    """What the compiler said it takes; None where that was estimated."""
    error: float = 0.0
    """Half the width of the interval of its work, over the work: `sampling_error`."""

    @property
    def duration_us(self) -> float:
        """Modelled time of the launch: `Estimate.duration_us`."""
        return self.modelled.estimate.duration_us

    @property
    def interval_us(self) -> tuple[float, float]:
        """Where the time is were all blocks counted, at `sampling_error.LEVEL`: what an SM does
        takes as long as its blocks have work, launching does not."""
        own_us = self.duration_us - self.modelled.device.launch_us
        return self.duration_us - min(self.error, 1.0) * own_us, (
            self.duration_us + self.error * own_us
        )


def model_launch(
    sample: LaunchSample, unit: Unit, kernel: str, launch: ResolvedLaunch, sizes: Mapping[int, int],
    device: Device, *, bounded: bool, rewritten: bool = False,
    resources: KernelResources | None = None, asked: str = "nvcc was not asked",
    cold: bool = False,
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
        resources: What nvcc says the kernel takes; None: registers and shared memory are estimated.
        asked: Which compiler says so, or why none does.
        cold: As in `estimate`.

    Misbehaved (`not_measured`) where the counts contradict themselves.
    """
    function = _kernel_function(sample.functions, kernel, rewritten=rewritten)
    threads = launch.block.volume
    if resources is not None:
        registers, static = resources.registers, resources.static_smem_bytes
    else:
        wanted = registers_per_thread(function, threads if bounded else None)
        registers = min(wanted, max(device.registers_per_sm // max(threads, 1) // 8 * 8, 16))
        static = shared_bytes(function)
    held = occupancy(device, threads, registers, smem := static + launch.dynamic_smem_bytes)
    if held.blocks_per_sm < 1:
        return _too_large(threads, registers, smem, device)
    l1_bytes = _l1_of_a_block(device, held, smem, launch)
    sampled = Sampled(max(len(sample.trace.counted), 1), threads)
    joins = _joins_atomics(function)
    local = local_sites(function, sampled.blocks, threads, l1_bytes, resources)
    sites = (*_traced(sample, l1_bytes, joins), *local)
    callees = _callees(sample.functions, function, sites)
    found = shape(
        function, sites, finder(sites), callees, sampled, sample.divergence, _asked_of_nvcc(unit)
    )
    working = _working(launch.grid, sample.working_share)
    moved = traffic(sample.trace, sites, working, sizes, device, held.blocks_per_sm)
    met = _hottest(sample.trace, sites, working.volume, joins)
    work = KernelWork(
        grid_blocks=working.volume, block_threads=threads, registers_per_thread=registers,
        static_smem_bytes=static, dynamic_smem_bytes=launch.dynamic_smem_bytes,
        phases=found.phases, sites=sites, counts=found.counts, traffic=moved,
        barriers_per_block=found.barriers_per_block,
        hottest_atomic=met.hottest, same_line=met.serial - met.hottest, integer_atomics=joins,
        heaviest_block=_heaviest(sample), longest_warp=sample.divergence.longest_warp,
        launched_blocks=launch.grid.volume,
    )  # fmt: skip
    costs = Costs.of(work, device, microarchitecture(device.compute_capability), cold=cold)
    estimated = estimate(work, device, cold=cold)
    modelled = Modelled(work, estimated, costs, device, launch.grid, launch.block)
    if (problem := _contradiction(modelled)) is not None:
        message = f"the time model contradicts itself about {kernel}: {problem}; {REMEDY}"
        return Misbehaved(what="not_measured", message=message)
    notes = _notes(modelled, sampled, resources, asked)
    mixes = _line_mixes(function, sites, callees, sampled)
    error = _sampling_error(sample, working.volume)
    return LaunchModel(modelled, kernel, unit, mixes, notes, resources, error)


def _too_large(threads: int, registers: int, smem: int, device: Device) -> Misbehaved:
    message = (
        f"a block of {threads} threads with {registers} registers each and {smem} bytes of "
        f"shared memory does not fit on an SM of {device.name}"
    )
    return Misbehaved(what="launch_refused", message=message)


def _asked_of_nvcc(unit: Unit) -> Asked:
    """By the sources that a kernel's statements may stand in, and by options."""
    texts = {f.path: f.text for f in unit.program.files}
    if unit.rewrite is not None:
        texts[CANDIDATE_FILE] = unit.rewrite.source
    is_fast = any(name == "use_fast_math" for name, _ in unit.program.code_options)
    return Asked(unroll_pragmas(texts), FAST_BRANCHING if is_fast else BRANCHING)


def _working(grid: Dim3, share: float) -> Dim3:
    """What the model plays of a grid: so much of its longest axis."""
    if share == 1.0:
        return grid
    axis = max("xyz", key=lambda name: int(getattr(grid, name)))
    return grid.model_copy(update={axis: max(1, round(share * getattr(grid, axis)))})


REMEDY = "measure on a GPU: --executor cuda"
"""For what the time model cannot say."""


def _contradiction(m: Modelled) -> str | None:
    """Arithmetic by threads was counted block by block of the code, instructions and time by
    phases; where the two contradict each other, one of them is ours and wrong."""
    counts, demand = m.work.counts, m.costs.demand(m.work)
    for name, done, pipe in (
        ("FP32", counts.ffma + counts.fadd + counts.fmul, "fp32"),
        ("FP64", counts.dfma + counts.dadd + counts.dmul, "fp64"),
    ):
        if done / 32.0 > (1.0 + _SLACK) * demand[pipe] + 1.0:
            said = f"{done:.4g} {name} operations a block"
            return f"{said} in {demand[pipe]:.4g} instructions of 32 threads"
    return None


_SLACK = 0.05
"""What rounding of repeats and shares of warps may lose."""


def _kernel_function(
    functions: tuple[GimpleFunction, ...], kernel: str, *, rewritten: bool
) -> GimpleFunction:
    """The one that ran: of a rewrite and its baseline, or of overloads, only one did."""
    wanted, inside = _base(kernel), f"{NAMESPACE}::"
    named = [
        f for f in functions if _base(f.name) == wanted and f.name.startswith(inside) == rewritten
    ]
    if not named:
        raise SandboxUnavailable(
            f"no IL of kernel {kernel!r} that ran",
            "report this program: the time model lost its kernel",
        )
    found = max(named, key=lambda f: (f.ran, next(iter(f.blocks.values())).count))
    if found.is_guessed:
        raise SandboxUnavailable(
            f"g++ found no counters of kernel {kernel!r}",
            "report this program: the time model would guess how often its loops turn",
        )
    return found


def _base(name: str) -> str:
    """Name without template arguments, namespaces and clone suffixes."""
    head = name.split("<")[0].split("(")[0].strip()
    return head.rpartition("::")[2].split(".")[0].split(" ")[-1]


def _callees(
    functions: tuple[GimpleFunction, ...], kernel: GimpleFunction, sites: tuple[MemorySite, ...]
) -> dict[str, Callee]:
    """What a call of each device function that stayed a call takes, with the calls it makes."""
    result: dict[str, Callee] = {}
    theirs = [f for f in functions if f is not kernel and not f.name.startswith(_OWN)]
    for _ in range(_CALL_DEPTH):
        before = dict(result)
        for function in theirs:
            is_counted = function.ran and not function.is_guessed
            if is_counted and next(iter(function.blocks.values())).count:
                result[function.name] = _callee(function, sites, before)
        if result == before:
            break
    return result


_CALL_DEPTH = 4
"""Calls inside calls that are followed; a deeper recursion counts as a call and little else."""


def _callee(
    function: GimpleFunction, sites: tuple[MemorySite, ...], inner: Mapping[str, Callee]
) -> Callee:
    entry = next(iter(function.blocks.values())).count
    translator = Translator(function, finder(sites), inner)
    mix, counts = Mix(), ThreadCounts()
    for number, ops in operations(function, translator).items():
        share = function.blocks[number].count / entry
        for op in ops:
            mix += op.mix.times(share)
            mix += Mix(issued=share * (len(op.loads) + len(op.stores)))
            counts += translator.thread_counts(op).times(share)
    return Callee(mix, counts)


def _l1_of_a_block(device: Device, held: Occupancy, smem: int, launch: ResolvedLaunch) -> float:
    """L1 left beside the shared memory of the resident blocks, over those blocks."""
    resident = max(min(held.blocks_per_sm, -(-launch.grid.volume // device.sm_count)), 1)
    wanted = held.blocks_per_sm * (smem + device.shared_reserved_per_block)
    carveout = next(
        (s for s in device.shared_carveouts_bytes if s >= wanted), device.shared_bytes_per_sm
    )
    return (device.l1_shared_bytes_per_sm - carveout) / resident


_INTEGER_ATOMIC = re.compile(r"__atomic_fetch_\w+_4 \(")
_UPDATE_LOOP = re.compile(r"\.ATOMIC_COMPARE_EXCHANGE|__atomic_compare_exchange")


def _joins_atomics(function: GimpleFunction) -> bool:
    """Whether all its atomics are sums or bit operations of 32-bit integers: nvcc adds up a warp's
    first where all lanes have one address (REDUX), and sends one."""
    values = [s.value for b in function.blocks.values() if b.count for s in b.statements]
    integers = any(_INTEGER_ATOMIC.search(v) for v in values)
    return integers and not any(_UPDATE_LOOP.search(v) for v in values)


def _traced(sample: LaunchSample, l1_bytes: float, joins: bool) -> tuple[MemorySite, ...]:
    sites = sites_of(sample.trace, l1_bytes, vector_members(sample.functions))
    return tuple(_joined(s) if joins else s for s in sites)


def _joined(site: MemorySite) -> MemorySite:
    if not site.atomic or site.same_address < 0.98 * site.lanes:
        return site
    return replace(site, accesses_per_block=site.requests_per_block, same_address=1.0)


def _hottest(
    trace: Trace, sites: tuple[MemorySite, ...], grid_blocks: int, joins: bool
) -> AtomicLine:
    """The line of global memory that takes most atomics in the whole launch, over its blocks."""
    met = busiest_line(trace, grid_blocks)
    atomics = [s for s in sites if s.atomic and s.space == "global"]
    if joins and atomics and all(s.same_address == 1.0 and s.lanes == 1.0 for s in atomics):
        one = min(met.hottest, max(s.requests_per_block for s in atomics))
        return AtomicLine(one, one)
    return met


def _heaviest(sample: LaunchSample) -> float:
    """Accesses of the sampled block that makes most, over their mean; or steps, if more by them."""
    done = [b.accesses for b in sample.trace.counted]
    by_accesses = max(done) * len(done) / sum(done) if sum(done) else 1.0
    return max(by_accesses, sample.divergence.heaviest_block)


def _sampling_error(sample: LaunchSample, blocks: int) -> float:
    """Of accesses or of steps, whichever differ more from block to block."""
    accesses = [float(b.accesses) for b in sample.trace.counted]
    return max(sampling_error(accesses, blocks), sampling_error(sample.divergence.steps, blocks))


def _line_mixes(
    function: GimpleFunction,
    sites: tuple[MemorySite, ...],
    callees: Mapping[str, Callee],
    sampled: Sampled,
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


def _notes(
    modelled: Modelled, sampled: Sampled, resources: KernelResources | None, asked: str
) -> tuple[str, ...]:
    work = modelled.work
    blocks = f"{sampled.blocks} of {modelled.grid.volume} blocks"
    if work.grid_blocks < modelled.grid.volume:
        blocks += f", of which about {work.grid_blocks} do not exit at once,"
    registers = f"{work.registers_per_thread} registers/thread, estimated ({asked})"
    if resources is not None:
        spilled = resources.spill_load_bytes + resources.spill_store_bytes
        registers = (
            f"{resources.registers} registers/thread and {spilled} bytes of spills by ptxas "
            f"({asked}, {resources.sm_arch})"
        )
    device = modelled.device
    compared = microarchitecture(device.compute_capability).is_compared
    unmeasured = (
        f"the time model is not validated for compute capability {device.capability}: its "
        "latencies are published or assumed"
    )
    return (
        f"modelled for {device.full_name} from {blocks} run on this machine's processor",
        *(() if compared else (unmeasured,)),
        registers,
        "DRAM bytes: cold L2",
        f"limiter of the time model: {modelled.estimate.limiter}",
    )


MOST = 3
_MEMORY = frozenset({"data_path", "lsu", "l2", "dram", "latency", "launch", "atomics"})
"""Limiters that a line's accesses use, not its arithmetic."""
_FEW_ACCESSES = 0.25
"""Of the instructions of a line, up to which what it does to memory is not what it costs."""
Line = tuple[str, int]


def hot_lines(model: LaunchModel) -> tuple[HotLine, ...]:
    """Up to three lines, the most expensive first, with their share of the limiting part's work."""
    limiter = model.modelled.estimate.limiter
    costs = _costs(model, limiter)
    total = sum(costs.values())
    if total <= 0:
        return ()
    result = []
    arithmetic = limiter not in _MEMORY
    for line in sorted(costs, key=lambda at: costs[at], reverse=True)[:MOST]:
        place = _place(model, line)
        share = 100.0 * costs[line] / total
        if place is None or share < 1.0:
            continue
        text = _text(model, place)
        note = _arithmetic(model, line, text) if arithmetic else ""
        note = note or _note(model, line)
        result.append(HotLine(location=place, text=text, share_pct=share, note=note))
    return tuple(result)


def _costs(model: LaunchModel, limiter: str) -> dict[Line, float]:
    costs: dict[Line, float] = {}
    if limiter in _MEMORY:
        for index, site in enumerate(model.modelled.work.sites):
            at = _line_of(model, site)
            costs[at] = costs.get(at, 0.0) + _memory_cost(model.modelled, index, site, limiter)
    if limiter not in _MEMORY or not any(costs.values()):
        for at, mix in model.line_mixes.items():
            costs[at] = costs.get(at, 0.0) + _pipe_cost(mix, limiter)
    return costs


def _line_of(model: LaunchModel, site: MemorySite) -> Line:
    """Where an access stands; of one to local memory, where its array is declared. Of spills no
    line tells: that of no file."""
    if site.space != "local":
        return site.file, site.line
    rewrite, kernel = model.unit.rewrite, model.unit.program.kernel(model.unit.kernel)
    declared = re.compile(rf"\b{re.escape(site.file)}\s*\[")
    file, text, first = kernel.file, kernel.text, kernel.first_line
    if rewrite is not None:
        file, text, first = CANDIDATE_FILE, rewrite.source, 1
    found = declared.search(text)
    if found is None:
        return site.file, 0
    return PurePosixPath(file).name, first + text.count("\n", 0, found.start())


def _memory_cost(m: Modelled, index: int, site: MemorySite, limiter: str) -> float:
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


def _arithmetic(model: LaunchModel, line: Line, text: str) -> str:
    """Where a line hardly accesses memory: what it does instead; empty otherwise."""
    issued = model.line_mixes.get(line, Mix()).issued
    sites = (s for s in model.modelled.work.sites if _line_of(model, s) == line)
    if sum(s.instructions_per_block for s in sites) > _FEW_ACCESSES * issued:
        return ""
    called = [name for name in re.findall(r"\b(\w+)\s*\(", text) if is_dear(name)]
    return ", ".join(["arithmetic", *dict.fromkeys(called)])


def _note(model: LaunchModel, line: Line) -> str:
    """What the line does to memory, in the words of the metrics."""
    here = [s for s in model.modelled.work.sites if _line_of(model, s) == line]
    if not here:
        return "arithmetic"
    parts = []
    for kind in dict.fromkeys((s.space, s.write, s.atomic) for s in here):
        same = [s for s in here if (s.space, s.write, s.atomic) == kind]
        count = sum(s.instructions_per_block for s in same)
        what = "atomic" if kind[2] else "store" if kind[1] else "load"
        if kind[0] == "shared":
            waves = sum(s.instructions_per_block * s.wavefronts for s in same) / max(count, 1e-9)
            parts.append(f"shared {what}, {waves:.1f} wavefronts/instruction")
        elif kind[0] == "constant":
            words = sum(s.instructions_per_block * s.wavefronts for s in same) / max(count, 1e-9)
            parts.append(f"constant load, {words:.1f} words/request, serialized")
        elif kind[0] == "local":
            waves = sum(s.instructions_per_block * s.wavefronts for s in same) / max(count, 1e-9)
            told = f"local memory {what}, {waves:.1f} wavefronts/instruction"
            parts.append(f"{told}: a dynamically indexed array is not in registers")
        else:
            sectors = sum(s.instructions_per_block * s.sectors for s in same) / max(count, 1e-9)
            parts.append(f"global {what}, {sectors:.1f} sectors/request")
    return "; ".join(parts)
