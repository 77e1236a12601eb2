"""Searches over made-up trees of rewrites whose every time is known: no compiler, no model.

A landscape is families of hypotheses, each with refinements of refinements. `beam`, `branch` and
`greedy` ask it for one node after the other; each answer is one call to a developer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cudaops.domain.hypothesis import FAMILIES
from cudaops.domain.search import Branch, Order, SearchOptions
from cudaops.search.beam import Round, Seed, Supply, plan_round
from cudaops.search.selection import champion

BASELINE_US = 1000.0
BRANCHING = 2
DEPTH = 2


@dataclass
class Node:
    """One rewrite: its time, or None where it fails, and what can be made of it."""

    family: str
    time_us: float | None
    children: list[Node] = field(default_factory=list)
    joined: bool = False

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class Landscape:
    """A tree of rewrites, in the order in which a planner names them."""

    name: str
    roots: list[Node]
    pays_together: frozenset[str] = frozenset()
    """Two families of which each alone gains little; joined, their gains multiply."""

    def join(self, first: Node, second: Node) -> Node:
        """What comes of two rewrites in one; hardly ever more than the better one alone. It is
        refined by refining either half."""
        if first.time_us is None or second.time_us is None:
            return Node(first.family, None)
        if {first.family, second.family} != self.pays_together or first.joined or second.joined:
            time_us = min(first.time_us, second.time_us) * 1.05
            return Node(first.family, time_us, joined=True)
        children = [self.join(best, second) for best in _best(first.children)]
        children += [self.join(first, best) for best in _best(second.children)]
        time_us = first.time_us * second.time_us / BASELINE_US
        return Node(first.family, time_us, children, joined=True)

    def nodes(self) -> list[Node]:
        return [node for root in self.roots for node in root.walk()]

    @property
    def exhaustive_calls(self) -> int:
        """Every node, and the best of every two families joined."""
        families = len({root.family for root in self.roots})
        return len(self.nodes()) + families * (families - 1) // 2

    @property
    def best_us(self) -> float:
        """Of every node and every two nodes joined."""
        nodes = [n for n in self.nodes() if n.time_us is not None]
        joined = [
            self.join(a, b).time_us
            for a in nodes
            for b in nodes
            if {a.family, b.family} == self.pays_together
        ]
        return min(t for t in (*(n.time_us for n in nodes), *joined) if t is not None)


class Found(NamedTuple):
    """What a search came to."""

    best_us: float
    calls: int
    branches: tuple[Branch, ...]
    rounds: tuple[Round, ...]


def explore(landscape: Landscape, options: SearchOptions) -> Found:
    """A `branch` or `beam` search; a landscape's roots are its hypotheses."""
    seeds = tuple(Seed(root.family, hypothesis=i) for i, root in enumerate(landscape.roots))
    supply = Supply(seeds, can_write=True, can_plan=False)
    developed: list[tuple[Branch, Node | None]] = []
    rounds: list[Round] = []
    while True:
        branches = [branch for branch, _ in developed]
        planned = plan_round(options, branches, BASELINE_US, supply)
        rounds.append(planned)
        if planned.stop is not None:
            break
        before = list(developed)
        developed += [_developed(landscape, order, before, planned) for order in planned.orders]
    branches = [branch for branch, _ in developed]
    best = champion(branches, options.seed)
    time_us = BASELINE_US if best is None or best.time_us is None else best.time_us
    return Found(time_us, len(branches), tuple(branches), tuple(rounds))


def _developed(
    landscape: Landscape,
    order: Order,
    before: Sequence[tuple[Branch, Node | None]],
    planned: Round,
) -> tuple[Branch, Node | None]:
    node = _node(landscape, order, before, planned)
    time_us = node.time_us if node else None
    branch = Branch(
        order=order,
        family=node.family if node else order.family or "other",
        title=f"branch {order.id}",
        rewrite=None,
        time_us=time_us,
        failure=None if time_us is not None else "it fails",
    )
    return branch, node


def _node(
    landscape: Landscape,
    order: Order,
    before: Sequence[tuple[Branch, Node | None]],
    planned: Round,
) -> Node | None:
    if order.hypothesis is not None:
        return landscape.roots[order.hypothesis]
    parents = [before[i][1] for i in order.parents]
    if order.kind == "crossover":
        first, second = parents
        assert first is not None
        assert second is not None
        return landscape.join(first, second)
    (parent,) = parents
    assert parent is not None
    elder = sum(b.order.parents == order.parents for b, _ in before)
    elder += sum(o.parents == order.parents and o.id < order.id for o in planned.orders)
    return parent.children[elder] if elder < len(parent.children) else None


def climb(landscape: Landscape, calls: int) -> Found:
    """Greedy: one at a time, on from the first that is better; `calls` are what it may ask for."""
    best, asked = BASELINE_US, 0
    here = list(landscape.roots)
    while here and asked < calls:
        node = here.pop(0)
        asked += 1
        if node.time_us is not None and node.time_us < best:
            best, here = node.time_us, [*node.children, *here]
    return Found(best, asked, (), ())


def smooth(seed: int) -> Landscape:
    """What begins well ends well: a refinement gains 5 to 25 %, those of one family up to 40 %."""
    draw = random.Random(f"smooth {seed}")
    families = _shuffled(draw)
    roots = _crowd(draw, families[1:], (550, 950), (0.75, 0.95))
    roots += [_line(draw, families[0], 500.0, 0.7), _grown(draw, families[0], 900.0, 0.9, 1)]
    return _landscape("smooth", draw, roots)


def deceptive(seed: int) -> Landscape:
    """The family that begins best hardly gains; one that begins at 700 us ends at 175."""
    draw = random.Random(f"deceptive {seed}")
    families = _shuffled(draw)
    roots = _crowd(draw, families[2:], (600, 950), (0.85, 1.1))
    roots += [_grown(draw, families[1], 420.0, 0.97, 1.05) for _ in range(2)]
    roots += [_line(draw, families[0], 700.0, 0.5), _grown(draw, families[0], 900.0, 0.9, 1)]
    return _landscape("deceptive", draw, roots)


def failing(seed: int) -> Landscape:
    """Half of what is written does not compile or is wrong; one line of descent holds."""
    draw = random.Random(f"failing {seed}")
    families = _shuffled(draw)
    crowd = _crowd(draw, families[1:], (550, 950), (0.75, 0.95))
    for node in [n for root in crowd for n in root.walk()]:
        if draw.random() < 0.5:
            node.time_us = None
    good = _line(draw, families[0], 600.0, 0.6)
    bad = Node(families[0], None)
    return _landscape("failing", draw, [*crowd, good, bad])


def together(seed: int) -> Landscape:
    """Two families gain a little each, and everything once they are joined."""
    draw = random.Random(f"together {seed}")
    families = _shuffled(draw)
    roots = _crowd(draw, families[2:], (650, 950), (0.9, 1.05))
    for family in families[:2]:
        roots += [_line(draw, family, 600.0, 0.9), _grown(draw, family, 900.0, 0.95, 1.1)]
    return _landscape("together", draw, roots, frozenset(families[:2]))


def random_walk(seed: int) -> Landscape:
    """No plan at all: roots anywhere, refinements gain or lose up to 40 %, a fifth fails."""
    draw = random.Random(f"walk {seed}")
    roots = _crowd(draw, _shuffled(draw), (400, 1300), (0.6, 1.4))
    for node in [n for root in roots for n in root.walk()]:
        if draw.random() < 0.2:
            node.time_us = None
    return _landscape("random walk", draw, roots)


KINDS = (smooth, deceptive, failing, together, random_walk)


def _grown(draw: random.Random, family: str, time_us: float, low: float, high: float) -> Node:
    def grow(time_us: float, depth: int) -> Node:
        children = [
            grow(time_us * draw.uniform(low, high), depth - 1)
            for _ in range(BRANCHING if depth else 0)
        ]
        return Node(family, time_us, children)

    return grow(time_us, DEPTH)


def _best(nodes: Sequence[Node]) -> list[Node]:
    return sorted((n for n in nodes if n.time_us is not None), key=lambda n: n.time_us or 0)[:1]


def _line(draw: random.Random, family: str, time_us: float, gain: float) -> Node:
    """Each refinement comes in two kinds, one of which gains half as much as the other."""

    def grow(time_us: float, depth: int) -> Node:
        gains = draw.sample([gain, (1 + gain) / 2], BRANCHING) if depth else []
        return Node(family, time_us, [grow(time_us * g, depth - 1) for g in gains])

    return grow(time_us, DEPTH)


def _shuffled(draw: random.Random) -> list[str]:
    return draw.sample(FAMILIES, 6)


def _crowd(
    draw: random.Random,
    families: Sequence[str],
    start: tuple[float, float],
    gain: tuple[float, float],
) -> list[Node]:
    """Two hypotheses of each family, begun and refined at random."""
    return [_grown(draw, f, draw.uniform(*start), *gain) for f in families for _ in range(2)]


def _landscape(
    name: str,
    draw: random.Random,
    roots: list[Node],
    pays_together: frozenset[str] = frozenset(),
) -> Landscape:
    """The roots as a planner would name them: families in any order, the two of one family in the
    order they are given in."""
    order = draw.sample([root.family for root in roots], len(roots))
    waiting = list(roots)
    named: list[Node] = []
    for family in order:
        named.append(next(root for root in waiting if root.family == family))
        waiting.remove(named[-1])
    return Landscape(name, named, pays_together)
