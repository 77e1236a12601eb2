"""From a kernel's optimised IL and its traced memory sites to the phases of a block's life."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cudaops.timemodel import costs as cost
from cudaops.timemodel.aliasing import GlobalAccesses
from cudaops.timemodel.divergence import ALIKE, UNEVEN_WARPS, Divergence
from cudaops.timemodel.gimple import GimpleFunction, Phi, Place, ssa_names
from cudaops.timemodel.instructions import Callee, FindSite, Op, Translator, prologue
from cudaops.timemodel.loops import (
    NOTHING_ASKED,
    Asked,
    innermost_loops,
    most_copies,
    natural_loops,
    reverse_postorder,
)
from cudaops.timemodel.steps import (
    LoopOverhead,
    Scheduler,
    address_only,
    reduced_addresses,
    unroll_factor,
    unrolled,
)
from cudaops.timemodel.work import MemorySite, Mix, Phase, Stretch, ThreadCounts, Use, WorkStep


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
    function: GimpleFunction,
    sites: Sequence[MemorySite],
    find: FindSite,
    callees: Mapping[str, Callee],
    sampled: Sampled,
    divergence: Divergence = ALIKE,
    asked: Asked = NOTHING_ASKED,
) -> KernelShape:
    """Phases, stretches and steps of the kernel, with thread-level operation counts.

    `find` joins a statement to the traced site of the same line, size and direction; `callees` has
    the instructions of device functions that were not inlined, a call each; `divergence` says how
    unequal threads are; `asked` what the author asks of the compiler.
    """
    translator = Translator(function, find, callees)
    nodes = nodes_of(function, operations(function, translator))
    aliasing = GlobalAccesses(function, [op for node in nodes for op in node.ops], sites)
    nodes[0].ops.insert(0, prologue(function))
    ends = _phase_ends(nodes, sampled)
    runs = runs_of(nodes, ends)
    passes = _passes(nodes, ends, sampled)
    times = {end: max(n, 1.0) for end, n in passes.items()}
    borrowed = _borrowers(runs)
    stretches: dict[int, list[Stretch]] = {}
    once: list[Stretch] = []
    for position, run in enumerate(runs):
        turns = times.get(run.phase, 1.0)
        before = turns > 1.5 and run.head.count <= 1.02 * sampled.threads
        one = 1.0 if before else turns
        lanes = _lanes(run, sites, sampled, divergence)
        built = _stretch(run, function, sites, nodes, sampled, one, aliasing, lanes, asked)
        if built is None:
            continue
        unevenness = _unevenness(run, divergence, sampled)
        blocks = min(max(unevenness, 1.0) * built.warps, 1.0) if divergence.is_known else 1.0
        built = replace(built, settles=position in borrowed, blocks=blocks)
        unequal = by_warps(built, sampled.warps, unevenness)
        (once if before else stretches.setdefault(run.phase, [])).extend(unequal)
    phases = [Phase(tuple(once), 1.0, False)] if once else []
    for phase in dict.fromkeys(run.phase for run in runs):
        if phase in stretches:
            phases.append(Phase(tuple(stretches[phase]), times.get(phase, 1.0), phase >= 0))
    phases = balanced(phases, sites, sampled.warps)
    counts = ThreadCounts()
    for node in nodes:
        for op in node.ops:
            counts += translator.thread_counts(op).times(node.count / sampled.blocks)
    return KernelShape(tuple(phases), counts, sum(passes.values()))


def _phase_ends(nodes: list[FlowNode], sampled: Sampled) -> dict[int, int]:
    """By barrier node, the one that stands for it.

    A block's threads pass a barrier together, whichever path led them there; but g++ copies one
    into the arms of a branch (`if (threadIdx.x == 0)` on both sides of it) and counts each copy's
    threads alone. Copies of one line that only together make whole blocks are one barrier.
    """
    copies: dict[Place | None, list[FlowNode]] = {}
    for node in nodes:
        if node.barrier and node.count % sampled.threads_per_block:
            copies.setdefault(node.ops[-1].statement.place, []).append(node)
    ends = {n.index: n.index for n in nodes if n.barrier}
    for place, found in copies.items():
        whole = sum(n.count for n in found) % sampled.threads_per_block == 0
        if place is not None and whole:
            largest = max(found, key=lambda n: n.count)
            ends |= {n.index: largest.index for n in found}
    return ends


def _passes(nodes: list[FlowNode], ends: Mapping[int, int], sampled: Sampled) -> dict[int, float]:
    """How often a sampled block goes through each barrier, mean."""
    passes: dict[int, float] = {}
    for index, end in ends.items():
        passes[end] = passes.get(end, 0.0) + nodes[index].count / sampled.threads
    return passes


def _borrowers(runs: list[StraightRun]) -> set[int]:
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


def operations(function: GimpleFunction, translator: Translator) -> dict[int, list[Op]]:
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
    run: StraightRun, function: GimpleFunction, sites: Sequence[MemorySite],
    nodes: list[FlowNode], sampled: Sampled, turns: float, aliasing: GlobalAccesses, lanes: float,
    asked: Asked,
) -> Stretch | None:  # fmt: skip
    threads = _threads_taking_part(run.head, nodes) / sampled.blocks / max(turns, 1e-9)
    lanes = min(lanes, max(threads, 1.0))
    per_warp = run.head.count / lanes / sampled.blocks / sampled.warps / max(turns, 1e-9)
    warps = min(threads / lanes / sampled.warps, per_warp, 1.0)

    def weight(site: int, share: float) -> float:
        seen = sites[site]
        joined = seen.instructions_per_block / max(seen.requests_per_block, 1e-9)
        return joined * min(share * lanes / max(seen.lanes, 1e-9), 1.0)

    back = run.head.index in run.nodes[-1].successors
    sinks = back and not any(op.stores for node in run.nodes for op in node.ops)
    scheduler = Scheduler(function, sites, weight, aliasing, asked.branching, sinks)
    ends = {n.index: n.ops[-1].statement for n in run.nodes if n.ops and n.ops[-1].kind == "branch"}
    for node in run.nodes:
        share = min(node.count / run.head.count, 1.0) if run.head.count else 0.0
        above = [ends[p] for p in node.predecessors if p in ends and p != run.nodes[-1].index]
        in_arm = share < ALWAYS or len(node.predecessors) == 1
        scheduler.under(above if in_arm and node is not run.head else [])
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
        most, by_pragma = _most_copies(run, function, asked.pragmas)
        factor = unroll_factor(steps, _trips(run.head, nodes), most, by_pragma)
        carried = {source for phi in run.head.phis for source, _ in phi.sources}
        chase = scheduler.feeds_address(carried & _address_roots(run))
        behind = scheduler.shared_behind(_made(run))
        merge = not (
            scheduler.stores_block_loads(_made(run)) or chase or any(s.joins for s in steps)
        )
        steps = unrolled(
            steps, factor, sites,
            LoopOverhead(merge, _loop_overhead(run), _carried_chain(run), behind),
        )  # fmt: skip
    repeats = per_warp / warps / factor
    return Stretch(tuple(steps), max(repeats, 1.0), warps * min(repeats, 1.0), turns_back=back)


def _most_copies(
    run: StraightRun, function: GimpleFunction, pragmas: Mapping[Place, int]
) -> tuple[int, int | None]:
    """How often nvcc may repeat this innermost loop, and how often a pragma asks for."""
    body = [s for n in run.nodes for s in function.blocks[n.block].statements]
    members = {n.index for n in run.nodes}
    left = [n for n in run.nodes if any(x not in members for x in n.successors)]
    tests = [n.ops[-1].statement for n in left if n.ops]
    at = [(s.place[0].rpartition("/")[2], s.place[1]) for s in tests if s.place is not None]
    asked = next((pragmas[place] for place in at if place in pragmas), None)
    return most_copies(function, run.head.phis, body, tests), asked


def _threads_taking_part(head: FlowNode, nodes: list[FlowNode]) -> float:
    """Threads of all sampled blocks, a turn counted for each time, that run this node at all: as
    many as enter the loops around it that no barrier stands in."""
    with_barrier = {header for n in nodes if n.barrier for header in n.loops}
    entered = [_entered(nodes[h], nodes) for h in head.loops if h not in with_barrier]
    return min([head.count, *(n for n in entered if n)])


def _innermost(run: StraightRun, nodes: list[FlowNode]) -> bool:
    return run.head.loop == run.head.index and loop_size(nodes, run.head.index) == len(run.nodes)


def _leaves(node: FlowNode, run: StraightRun) -> bool:
    """Whether the branch at the end of the node stays a branch: it closes or leaves the run."""
    members = {n.index for n in run.nodes}
    outside = any(s not in members for s in node.successors)
    return node is run.nodes[-1] or outside or run.head.index in node.successors


def _lanes(
    run: StraightRun, sites: Sequence[MemorySite], sampled: Sampled, divergence: Divergence
) -> float:  # fmt: skip
    """Active threads of a warp in this run, from its unconditional memory accesses and, in a loop,
    from the turns of each warp's longest lane: the trace drops what a thread does too often, and
    the longest lane of all loops may be less in one of them, so that both may say too many."""
    full = sampled.threads_per_block / sampled.warps
    seen = [
        sites[s].lanes
        for node in run.nodes
        if node.count >= 0.98 * run.head.count
        for op in node.ops
        for s in (*op.loads, *op.stores)
    ]
    turns = divergence.of(op.statement for op in run.head.ops) if run.head.loops else None
    by_turns = full if turns is None else max(turns.threads / turns.lanes, 1.0)
    return min(max(seen, default=full), by_turns, full)


def _unevenness(run: StraightRun, divergence: Divergence, sampled: Sampled) -> float:
    """Turns of a block's longest warp over the mean of its warps, in a loop; 1 elsewhere."""
    if not run.head.loops:
        return 1.0
    turns = divergence.of(op.statement for op in run.head.ops)
    return 1.0 if turns is None else turns.longest * sampled.warps / turns.lanes


def by_warps(stretch: Stretch, warps: int, unevenness: float) -> list[Stretch]:
    """The same work, the block's first warp doing `unevenness` times the mean of all."""
    total = stretch.warps * stretch.repeats * warps
    longest = min(unevenness * total / warps, total)
    taking_part = max(round(stretch.warps * warps), 1)
    if unevenness < UNEVEN_WARPS or longest <= stretch.repeats or longest < 2.0:
        return [stretch]
    if taking_part == 1:
        return [replace(stretch, warps=1.0 / warps, repeats=max(longest, 1.0))]
    others = (total - longest) / (taking_part - 1)
    rest = replace(
        stretch, repeats=max(others, 1.0), warps=taking_part / warps * min(others, 1.0)
    )  # fmt: skip
    first = replace(stretch, repeats=max(longest - others, 1.0), warps=1.0 / warps)
    return [first, rest] if rest.warps else [first]


def _trips(header: FlowNode, nodes: list[FlowNode]) -> float:
    """How often the loop goes round each time it is entered."""
    entered = _entered(header, nodes)
    return header.count / entered if entered else float(header.count)


def _entered(header: FlowNode, nodes: list[FlowNode]) -> float:
    """How often threads come to a loop from outside.

    g++ counts the loop with its test on top. Where it then copies the test in front of the loop,
    it takes the copy to fail as often as the loop's own test, once in `trips + 1`; that is undone.
    """
    outside = [nodes[p] for p in header.predecessors if header.index not in nodes[p].loops]
    guessed = sum(n.count for n in outside)
    if guessed >= header.count:
        return float(header.count)
    return min(guessed * header.count / (header.count - guessed), float(header.count))


def _loop_overhead(run: StraightRun) -> Mix:
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


def _carried_chain(run: StraightRun) -> float:
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


def _made(run: StraightRun) -> set[str]:
    """SSA names that the run's code makes or joins."""
    made = {op.statement.target_name for node in run.nodes for op in node.ops}
    joined = {phi.target for node in run.nodes for phi in node.phis}
    return {name for name in made if name} | joined


def _address_roots(run: StraightRun) -> set[str]:
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


ALWAYS = 0.98
"""Share of a run's passes from which on a node is no conditional arm."""
SMALL_ARM = 12
"""Statements of a conditional arm that nvcc still turns into predicated instructions."""


@dataclass
class FlowNode:
    """A basic block, or the part of one up to or after a barrier."""

    index: int
    block: int
    count: int
    """Times all sampled threads together went through."""
    ops: list[Op] = field(default_factory=list)
    phis: list[Phi] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    barrier: bool = False
    """Whether it ends at a barrier."""
    loops: tuple[int, ...] = ()
    """Headers of the loops around it, itself included, the innermost first."""

    @property
    def loop(self) -> int | None:
        """Header of the innermost loop."""
        return self.loops[0] if self.loops else None


@dataclass
class StraightRun:
    """Nodes that a warp goes through in one go, small conditional arms included."""

    nodes: list[FlowNode]
    phase: int
    """Node whose barrier comes next; -1: the kernel's end."""

    @property
    def head(self) -> FlowNode:
        """Its first node, which every pass goes through."""
        return self.nodes[0]


def loops_of_blocks(function: GimpleFunction) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Innermost loop header by block, and the blocks of each loop by its header."""
    live = [b.number for b in function.blocks.values() if b.count > 0]
    edges = {n: [s for s in function.blocks[n].successors if s in set(live)] for n in live}
    bodies = natural_loops(live, edges)
    return innermost_loops(live, bodies), bodies


def nodes_of(function: GimpleFunction, ops: dict[int, list[Op]]) -> list[FlowNode]:
    """Live blocks cut after each barrier, joined by edges, entry first."""
    nodes: list[FlowNode] = []
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for block in function.blocks.values():
        if block.count == 0:
            continue
        node = FlowNode(len(nodes), block.number, block.count, phis=list(block.phis))
        first[block.number] = node.index
        nodes.append(node)
        for op in ops[block.number]:
            node.ops.append(op)
            if op.kind == "barrier":
                node.barrier = True
                following = FlowNode(len(nodes), block.number, block.count)
                node.successors.append(following.index)
                nodes.append(following)
                node = following
        last[block.number] = node.index
    for block in function.blocks.values():
        if block.count:
            nodes[last[block.number]].successors += [
                first[s] for s in block.successors if s in first
            ]
    for node in nodes:
        for successor in node.successors:
            nodes[successor].predecessors.append(node.index)
    edges = {n.index: n.successors for n in nodes}
    bodies = natural_loops(list(edges), edges)
    by_size = sorted(bodies, key=lambda header: len(bodies[header]))
    for node in nodes:
        node.loops = tuple(header for header in by_size if node.index in bodies[header])
    return nodes


def runs_of(nodes: list[FlowNode], ends: Mapping[int, int]) -> list[StraightRun]:
    """Straight runs in the order a thread meets them. `ends`: the barrier node that stands for
    each."""
    phases = [ends.get(barrier, barrier) for barrier in _next_barrier(nodes)]
    runs: list[StraightRun] = []
    for index in reverse_postorder(
        [n.index for n in nodes], {n.index: n.successors for n in nodes}
    ):
        node = nodes[index]
        current = runs[-1] if runs else None
        if current and current.phase == phases[index] and _continues(current, node):
            current.nodes.append(node)
        else:
            runs.append(StraightRun([node], phases[index]))
    return runs


def loop_size(nodes: list[FlowNode], header: int) -> int:
    """Nodes whose innermost loop this is."""
    return sum(n.loop == header for n in nodes)


def _continues(run: StraightRun, node: FlowNode) -> bool:
    head = run.head
    if node.loop != head.loop or node.index == node.loop or run.nodes[-1].barrier:
        return False
    members = {n.index for n in run.nodes}
    if not any(p in members for p in node.predecessors):
        return False
    if node.count > 1.02 * head.count:
        return False
    if node.count >= ALWAYS * head.count:
        return True
    return len(node.ops) <= SMALL_ARM and len(node.successors) == 1 and node.count <= head.count


def _next_barrier(nodes: list[FlowNode]) -> list[int]:
    """For each node the barrier node reached with the fewest edges, -1 where none is."""
    result = [-1] * len(nodes)
    for node in nodes:
        seen, frontier = {node.index}, [node.index]
        while frontier:
            found = next((i for i in frontier if nodes[i].barrier), None)
            if found is not None:
                result[node.index] = found
                break
            frontier = [s for i in frontier for s in nodes[i].successors if s not in seen]
            frontier = list(dict.fromkeys(frontier))
            seen.update(frontier)
    return result


LOADS_A_STEP = 8.0
"""How instructions whose place in the code is not known are bundled."""


def balanced(phases: Sequence[Phase], sites: Sequence[MemorySite], warps: int) -> list[Phase]:
    """The same phases with every site's instructions scaled to the traced number; what no step has
    is added to the phase with the most work."""
    used = [0.0] * len(sites)
    for phase in phases:
        for stretch in phase.stretches:
            times = phase.times * stretch.repeats * stretch.warps * warps
            for step in stretch.steps:
                for use in (*step.loads, *step.stores):
                    used[use.site] += times * use.instructions
    factors = [
        site.instructions_per_block / done if done > 0 else 1.0
        for site, done in zip(sites, used, strict=True)
    ]
    scaled = [_scaled(phase, lambda use: use.instructions * factors[use.site]) for phase in phases]
    missing = [
        i for i, done in enumerate(used) if done == 0 and sites[i].instructions_per_block > 0
    ]
    return _with_missing(scaled, sites, missing, warps)


def _scaled(phase: Phase, value: Callable[[Use], float]) -> Phase:
    def step(s: WorkStep) -> WorkStep:
        return replace(
            s,
            loads=tuple(Use(u.site, value(u)) for u in s.loads),
            stores=tuple(Use(u.site, value(u)) for u in s.stores),
        )

    stretches = tuple(replace(s, steps=tuple(step(x) for x in s.steps)) for s in phase.stretches)
    return replace(phase, stretches=stretches)


def _with_missing(
    phases: list[Phase], sites: Sequence[MemorySite], missing: Sequence[int], warps: int
) -> list[Phase]:
    if not missing:
        return phases
    if not phases:
        phases = [Phase((), 1.0, False)]
    heaviest = max(range(len(phases)), key=lambda i: phases[i].times * len(phases[i].stretches))
    phase = phases[heaviest]
    added = []
    for index in missing:
        each = sites[index].instructions_per_block / warps / phase.times
        bundle = min(each, LOADS_A_STEP)
        use = (Use(index, bundle),)
        step = (
            WorkStep(stores=use)
            if sites[index].write
            else WorkStep(loads=use, needs=(int(sites[index].space == "global"),))
        )
        added.append(Stretch((step,), each / bundle))
    phases[heaviest] = replace(phase, stretches=(*phase.stretches, *added))
    return phases
