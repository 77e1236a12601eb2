"""Control flow of one function: pieces of blocks cut at barriers, loops, and straight runs of
code."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudaops.timemodel.gimple import Function, Phi
from cudaops.timemodel.instructions import Op

SMALL_ARM = 12
"""Statements of a conditional arm that nvcc still turns into predicated instructions."""


@dataclass
class Node:
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
    loop: int | None = None
    """Header of the innermost loop around it, itself included."""


@dataclass
class Run:
    """Nodes that a warp goes through in one go, small conditional arms included."""

    nodes: list[Node]
    phase: int
    """Node whose barrier comes next; -1: the kernel's end."""

    @property
    def head(self) -> Node:
        """Its first node, which every pass goes through."""
        return self.nodes[0]


def loops_of_blocks(function: Function) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Innermost loop header by block, and the blocks of each loop by its header."""
    live = [b.number for b in function.blocks.values() if b.count > 0]
    edges = {n: [s for s in function.blocks[n].successors if s in set(live)] for n in live}
    bodies = _natural_loops(live, edges)
    return _innermost(live, bodies), bodies


def nodes_of(function: Function, ops: dict[int, list[Op]]) -> list[Node]:
    """Live blocks cut after each barrier, joined by edges, entry first."""
    nodes: list[Node] = []
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for block in function.blocks.values():
        if block.count == 0:
            continue
        node = Node(len(nodes), block.number, block.count, phis=list(block.phis))
        first[block.number] = node.index
        nodes.append(node)
        for op in ops[block.number]:
            node.ops.append(op)
            if op.kind == "barrier":
                node.barrier = True
                following = Node(len(nodes), block.number, block.count)
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
    inner = _innermost(list(edges), _natural_loops(list(edges), edges))
    for node in nodes:
        node.loop = inner.get(node.index)
    return nodes


def runs_of(nodes: list[Node]) -> list[Run]:
    """Straight runs in the order a thread meets them."""
    phases = _next_barrier(nodes)
    runs: list[Run] = []
    for index in _reverse_postorder(
        [n.index for n in nodes], {n.index: n.successors for n in nodes}
    ):
        node = nodes[index]
        current = runs[-1] if runs else None
        if current and current.phase == phases[index] and _continues(current, node):
            current.nodes.append(node)
        else:
            runs.append(Run([node], phases[index]))
    return runs


def loop_size(nodes: list[Node], header: int) -> int:
    """Nodes whose innermost loop this is."""
    return sum(n.loop == header for n in nodes)


def _continues(run: Run, node: Node) -> bool:
    head = run.head
    if node.loop != head.loop or node.index == node.loop or run.nodes[-1].barrier:
        return False
    members = {n.index for n in run.nodes}
    if not any(p in members for p in node.predecessors):
        return False
    if node.count >= 0.98 * head.count:
        return True
    return len(node.ops) <= SMALL_ARM and len(node.successors) == 1 and node.count <= head.count


def _next_barrier(nodes: list[Node]) -> list[int]:
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


def _reverse_postorder(items: list[int], edges: dict[int, list[int]]) -> list[int]:
    if not items:
        return []
    order: list[int] = []
    seen = {items[0]}
    stack: list[tuple[int, int]] = [(items[0], 0)]
    while stack:
        node, position = stack[-1]
        following = edges[node]
        if position < len(following):
            stack[-1] = (node, position + 1)
            # The last successor first: a loop's body then stands before what follows the loop.
            child = following[len(following) - 1 - position]
            if child not in seen:
                seen.add(child)
                stack.append((child, 0))
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def _natural_loops(items: list[int], edges: dict[int, list[int]]) -> dict[int, set[int]]:
    order = _reverse_postorder(items, edges)
    position = {n: i for i, n in enumerate(order)}
    before: dict[int, list[int]] = {n: [] for n in order}
    for n in order:
        for s in edges[n]:
            before[s].append(n)
    idom = _dominators(order, position, before)
    bodies: dict[int, set[int]] = {}
    for n in order:
        for header in edges[n]:
            if not _dominates(header, n, idom):
                continue
            body = bodies.setdefault(header, {header})
            stack = [n]
            while stack:
                x = stack.pop()
                if x not in body:
                    body.add(x)
                    stack += before[x]
    return bodies


def _dominators(
    order: list[int], position: dict[int, int], before: dict[int, list[int]]
) -> dict[int, int]:
    idom = {order[0]: order[0]} if order else {}
    changed = True
    while changed:
        changed = False
        for n in order[1:]:
            known = [p for p in before[n] if p in idom]
            if not known:
                continue
            new = known[0]
            for other in known[1:]:
                while new != other:
                    while position[other] > position[new]:
                        other = idom[other]
                    while position[new] > position[other]:
                        new = idom[new]
            if idom.get(n) != new:
                idom[n] = new
                changed = True
    return idom


def _dominates(a: int, b: int, idom: dict[int, int]) -> bool:
    while b != a and idom.get(b, b) != b:
        b = idom[b]
    return a == b


def _innermost(items: list[int], bodies: dict[int, set[int]]) -> dict[int, int]:
    by_size = sorted(bodies.items(), key=lambda item: len(item[1]), reverse=True)
    return {n: header for header, body in by_size for n in body if n in set(items)}
