"""From a kernel's optimised IL and its traced memory sites to the phases of a block's life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cudaops.cuda.work import Mix, Phase, Site, Stretch, ThreadCounts
from cudaops.timemodel import costs as cost
from cudaops.timemodel.addresses import address_only, reduced_addresses
from cudaops.timemodel.balance import balanced
from cudaops.timemodel.flow import (
    Node,
    Run,
    loop_size,
    loops_of_blocks,
    nodes_of,
    runs_of,
)
from cudaops.timemodel.gimple import Function, ssa_names
from cudaops.timemodel.instructions import FindSite, Op, Translator, thread_counts
from cudaops.timemodel.steps import Loop, Scheduler, unroll_factor, unrolled


class KernelShape(NamedTuple):
    """What the IL says of one launch."""

    phases: tuple[Phase, ...]
    counts: ThreadCounts
    """A block."""
    barriers_per_block: float


class Sampled(NamedTuple):
    """How much was run to get the counts."""

    blocks: int
    threads_per_block: int

    @property
    def threads(self) -> int:
        """All threads of all sampled blocks."""
        return self.blocks * self.threads_per_block

    @property
    def warps(self) -> int:
        """Warps a block."""
        return -(-self.threads_per_block // 32)


def shape(
    function: Function,
    sites: Sequence[Site],
    find: FindSite,
    callees: Mapping[str, Mix],
    sampled: Sampled,
) -> KernelShape:
    """Phases, stretches and steps of the kernel, with thread-level operation counts.

    `find` joins a statement to the traced site of the same line, size and direction; `callees` has
    the instructions of device functions that were not inlined, a call each.
    """
    translator = Translator(function, find, callees)
    nodes = nodes_of(function, operations(function, translator))
    runs = runs_of(nodes)
    times = {n.index: n.count / sampled.threads for n in nodes if n.barrier}
    borrowed = _borrowers(runs)
    stretches: dict[int, list[Stretch]] = {}
    once: list[Stretch] = []
    for position, run in enumerate(runs):
        turns = times.get(run.phase, 1.0)
        prologue = turns > 1.5 and run.head.count <= 1.02 * sampled.threads
        built = _stretch(run, function, sites, nodes, sampled, 1.0 if prologue else turns)
        if built is None:
            continue
        built = replace(built, settles=position in borrowed)
        (once if prologue else stretches.setdefault(run.phase, [])).append(built)
    phases = [Phase(tuple(once), 1.0, False)] if once else []
    for phase in dict.fromkeys(run.phase for run in runs):
        if phase in stretches:
            phases.append(Phase(tuple(stretches[phase]), times.get(phase, 1.0), phase >= 0))
    phases = balanced(phases, sites, sampled.warps)
    return KernelShape(
        tuple(phases), _count(nodes, function, translator, sampled), sum(times.values())
    )


def _borrowers(runs: list[Run]) -> set[int]:
    """Runs that read what another run, or their own last pass, has loaded."""
    loader = {
        op.statement.target_name: index
        for index, run in enumerate(runs)
        for node in run.nodes
        for op in node.ops
        if op.loads and op.statement.target_name
    }
    carried = {
        phi.target: source
        for run in runs
        for node in run.nodes
        for phi in node.phis
        for source, _ in phi.sources
        if source in loader
    }
    found: set[int] = set()
    for index, run in enumerate(runs):
        own = {op.statement.target_name for node in run.nodes for op in node.ops}
        for node in run.nodes:
            joined = {phi.target for phi in node.phis if any(s in own for s, _ in phi.sources)}
            for op in node.ops:
                uses = op.statement.uses
                if any(loader.get(n, index) != index for n in uses) or any(
                    n in carried and n not in joined for n in uses
                ):
                    found.add(index)
    return found


def operations(function: Function, translator: Translator) -> dict[int, list[Op]]:
    """The operations of every block that ran, address arithmetic already folded."""
    inner, bodies = loops_of_blocks(function)
    only_address = address_only(function)
    result: dict[int, list[Op]] = {}
    for block in function.blocks.values():
        if block.count == 0:
            continue
        loop = inner.get(block.number)
        made = [
            translator.op(s, address=s.target_name in only_address if s.target_name else False)
            for s in block.statements
        ]
        if loop is not None:
            reduced_addresses(made, function, bodies[loop], only_address)
        result[block.number] = made
    return result


def _stretch(
    run: Run,
    function: Function,
    sites: Sequence[Site],
    nodes: list[Node],
    sampled: Sampled,
    turns: float,
) -> Stretch | None:
    lanes = _lanes(run, sites, sampled)
    per_warp = run.head.count / lanes / sampled.blocks / sampled.warps / max(turns, 1e-9)

    def weight(site: int, share: float) -> float:
        seen = sites[site]
        joined = seen.instructions_per_block / max(seen.requests_per_block, 1e-9)
        return joined * min(share * lanes / max(seen.lanes, 1e-9), 1.0)

    scheduler = Scheduler(function, sites, weight)
    for node in run.nodes:
        share = min(node.count / run.head.count, 1.0) if run.head.count else 0.0
        if node is not run.head:
            for phi in node.phis:
                scheduler.merge(phi.target, [source for source, _ in phi.sources])
        for op in node.ops:
            if op.kind == "branch" and not _leaves(node, run):
                op = Op(op.statement, cost.ONE_ALU, kind="branch")
            scheduler.add(op, share)
    steps = scheduler.steps()
    if not steps:
        return None
    factor = 1
    if _innermost(run, nodes) and not any(n.barrier for n in run.nodes):
        factor = unroll_factor(steps, _trips(run.head, nodes))
        carried = {source for phi in run.head.phis for source, _ in phi.sources}
        chase = scheduler.feeds_address(carried & _address_roots(run))
        merge = not (scheduler.stores_block_loads or chase)
        steps = unrolled(
            steps, factor, sites, Loop(merge, _loop_overhead(run), _carried_chain(run))
        )
    if per_warp >= 1:
        return Stretch(tuple(steps), per_warp / factor)
    return Stretch(tuple(steps), 1.0, per_warp / factor)


def _innermost(run: Run, nodes: list[Node]) -> bool:
    return run.head.loop == run.head.index and loop_size(nodes, run.head.index) == len(run.nodes)


def _leaves(node: Node, run: Run) -> bool:
    """Whether the branch at the end of the node stays a branch: it closes or leaves the run."""
    members = {n.index for n in run.nodes}
    outside = any(s not in members for s in node.successors)
    return node is run.nodes[-1] or outside or run.head.index in node.successors


def _lanes(run: Run, sites: Sequence[Site], sampled: Sampled) -> float:
    """Active threads of a warp in this run, from its unconditional memory accesses."""
    full = sampled.threads_per_block / sampled.warps
    seen = [
        sites[s].lanes
        for node in run.nodes
        if node.count >= 0.98 * run.head.count
        for op in node.ops
        for s in (*op.loads, *op.stores)
    ]
    return min(max(seen, default=full), full)


def _trips(header: Node, nodes: list[Node]) -> float:
    """How often the loop goes round each time it is entered."""
    outside = sum(nodes[p].count for p in header.predecessors if nodes[p].loop != header.index)
    return header.count / outside if outside else float(header.count)


def _loop_overhead(run: Run) -> Mix:
    """Counter, comparison and branch of a loop, which unrolling shares out."""
    carried = {source for phi in run.head.phis for source, _ in phi.sources}
    total = Mix()
    for node in run.nodes:
        for op in node.ops:
            closes = op.kind == "branch" and _leaves(node, run)
            counts = (
                op.statement.target_name in carried
                and op.mix.alu
                and not op.mix.fp32
                and not op.loads
            )
            if closes or counts:
                total += op.mix
    return total


def _carried_chain(run: Run) -> float:
    """Longest dependent arithmetic from a value carried into an iteration to one carried out."""
    depth = {phi.target: 0.0 for phi in run.head.phis}
    for node in run.nodes:
        for op in node.ops:
            name = op.statement.target_name
            needs = [depth[n] for n in op.statement.uses if n in depth]
            if name and needs:
                depth[name] = max(needs) + op.latency
    sources = {source for phi in run.head.phis for source, _ in phi.sources}
    return max((depth[s] for s in sources if s in depth), default=0.0)


def _address_roots(run: Run) -> set[str]:
    """Values carried round the loop that some address in it is made of."""
    made = {op.statement.target_name: op for node in run.nodes for op in node.ops}
    pending = [
        n
        for node in run.nodes
        for op in node.ops
        if op.loads
        for n in ssa_names(op.statement.value)
    ]
    targets = {phi.target: [s for s, _ in phi.sources] for phi in run.head.phis}
    roots: set[str] = set()
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in targets:
            roots.update(targets[name])
        elif name in made and not made[name].loads:
            pending += made[name].statement.uses
    return roots


def _count(
    nodes: list[Node], function: Function, translator: Translator, sampled: Sampled
) -> ThreadCounts:
    total = [0.0] * len(ThreadCounts._fields)
    for node in nodes:
        for op in node.ops:
            made = thread_counts(op, translator, function)
            total = [a + b * node.count / sampled.blocks for a, b in zip(total, made, strict=True)]
    return ThreadCounts(*total)
