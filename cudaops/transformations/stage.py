"""What every thread of a block works out alike in a loop: once, tile by tile, in shared memory.

A loop that all threads of a block run over the same range reads the same elements in each of them:
bodies that attract, vertices of a polygon, weights, a query. The block's threads read a tile of
them together, one each, work out what depends on nothing else (a division, a root), and every
thread then goes through the tile.

Threads that the author sends home early stay for the barriers: `active` stands for the condition.
Only what the author does in every iteration is staged, from memory that the kernel only reads, in
allocations of its own as captured; and only where some thread of the block runs the loop. A sum or
product of floats is not computed apart from what it goes into: it may be one operation with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_return,
    is_pure,
    names_in,
    reads_memory,
    root_of,
)
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.predication import without_returns
from cudaops.transformations.shared_memory import room_for, threads_of
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import changed, swapped
from cudaops.transformations.uniformity import Uniformity

TILES = (256, 128)
_MOST_STAGED = 8
_MOST_BYTES = 16
"""Of a staged value: more than one wide access would be taken apart."""


class Stage:
    """Tiles in shared memory for loops that a block's threads run alike, also within loops in which
    no thread of the block is ahead of another.

    Legal because every thread of the block comes to the new barriers: around the loop are only
    conditions and ranges that are the same for the block, from parameters, block indices and memory
    that the kernel only reads.
    """

    name = "stage"
    title = "shared-memory tile"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "stall_lg_throttle", "stall_long_scoreboard", "issue_slots",
        "l2_bandwidth", "fp64_pipe", "sfu_pipe", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Elements of a tile; loops of the kernel's own statements before those in others."""
        room, offered = room_for(draft), list[Setting]()
        refused: list[NotUnderstood] = []
        for where in ({}, {"loop": "inner"}):
            try:
                plan = _plan(draft, nested=bool(where))
                offered += [{"tile": n, **where} for n in TILES if n * plan.bytes <= room]
            except NotUnderstood as error:
                refused.append(error)
        if len(refused) > 1:
            raise refused[0]
        return tuple(offered)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The first loop of the kernel in which it is worth it."""
        plan, tile = _plan(draft, nested="loop" in setting), int(setting["tile"])
        if tile * plan.bytes > room_for(draft):
            raise NotUnderstood("no room for a tile in shared memory")
        if any(b.is_divergent for b in draft.facts.barriers):
            raise NotUnderstood("a divergent barrier")
        tiled = _tiled(draft, plan, tile)
        body = _within(plan, tiled) if plan.nested else _around(draft, plan, tiled)
        names = " and ".join(dict.fromkeys(f"`{x}`" for x in plan.arrays))
        step = Step(
            self.name, setting,
            f"Staged the data that a block reads from {names} in tiles of {tile} in shared "
            "memory, with values derived from it.",
        )  # fmt: skip
        return draft.with_body(body).stepped(step)


@dataclass(frozen=True)
class _Plan:
    """A loop, where it stands, and what of it is staged."""

    before: tuple[Any, ...]
    """The whole kernel's statements for a nested loop."""
    condition: s.Expression | None
    """Under which a thread runs what follows; None for every thread."""
    head: tuple[Any, ...]
    loop: s.For
    tail: tuple[Any, ...]
    variable: s.Declare
    end: s.Expression
    values: tuple[Any, ...]
    """Expressions that are staged, each once."""
    needs: tuple[s.Declare, ...]
    """Variables of the loop's body that they are made of."""
    arrays: tuple[str, ...]
    bytes: int
    nested: bool = False
    """Within loops and conditions in which the threads of a block do not differ."""


def _plan(draft: Draft, *, nested: bool) -> _Plan:
    """Raises NotUnderstood where there is no such loop."""
    facts = draft.facts
    if facts.unmodelled or facts.calls:
        raise NotUnderstood(f"what {(*facts.unmodelled, *facts.calls)[0]} does")
    body = draft.form.kernel.body
    body = without_returns(body) if has_return(body) else body
    if nested:
        return _of_nested(draft, body)
    before, condition, inner = _opened(body)
    why = "no loop with a block-uniform range"
    for at, node in enumerate(inner):
        if isinstance(node, s.For):
            try:
                head, tail = inner[:at], inner[at + 1 :]
                return _of_loop(draft, before, condition, head, node, tail)
            except NotUnderstood as error:
                why = str(error)
    raise NotUnderstood(why)


def _of_nested(draft: Draft, body: tuple[Any, ...]) -> _Plan:
    """The first loop in a loop in which no thread of a block is ahead of another."""
    together = _uniformity(draft).together
    why = "no loop that all threads of a block come to"
    for outer in s.below(body):
        for node in s.below(outer.body) if isinstance(outer, s.For) else ():
            if isinstance(node, s.For) and together(body, node):
                try:
                    return replace(_of_loop(draft, body, None, (), node, ()), nested=True)
                except NotUnderstood as error:
                    why = str(error)
    raise NotUnderstood(why)


def _uniformity(draft: Draft) -> Uniformity:
    return Uniformity(draft.facts, form=draft.form, constant=_read_only(draft))


def _opened(body: tuple[Any, ...]) -> tuple[tuple[Any, ...], s.Expression | None, tuple[Any, ...]]:
    """What stands before, the condition, and what runs under it, where a kernel ends with that."""
    last = body[-1] if body else None
    if isinstance(last, s.If) and not last.no and any(isinstance(x, s.For) for x in last.yes):
        return body[:-1], last.condition, last.yes
    return (), None, body


def _of_loop(
    draft: Draft, before: tuple[Any, ...], condition: s.Expression | None, head: tuple[Any, ...],
    loop: s.For, tail: tuple[Any, ...],
) -> _Plan:  # fmt: skip
    variable, end = _range(draft, loop)
    apart = _read_only(draft)
    finder = _Finder(draft, variable.name, loop, apart)
    values = tuple(finder.values())
    if not values or not any(map(reads_memory, values)):
        raise NotUnderstood("no block-uniform load in the loop")
    if len(values) > _MOST_STAGED:
        raise NotUnderstood("more data in the loop than a tile holds")
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    widths = [sizes.get(v.type, 0) for v in values]
    if not all(0 < w <= _MOST_BYTES for w in widths):
        raise NotUnderstood("values too wide for a tile")
    arrays = dict.fromkeys(
        root for v in (*values, *finder.needed(values)) for x in s.below(v)
        if isinstance(x, s.Index) and (root := root_of(x))
    )  # fmt: skip
    return _Plan(
        before, condition, head, loop, tail, variable, end, values, finder.needed(values),
        tuple(arrays), sum(widths),
    )  # fmt: skip


def _range(draft: Draft, loop: s.For) -> tuple[s.Declare, s.Expression]:
    """The variable that counts up by one, and its end. Raises NotUnderstood."""
    match loop:
        case s.For((s.Declare() as variable,), s.Binary("<", s.Name(j), end), (step,)):
            pass
        case _:
            raise NotUnderstood("a loop that does not count up to a bound")
    one = isinstance(step, s.Step) and step.by == 1
    if isinstance(step, s.Assign):
        one = step.operator == "+" and step.value == s.Number("1")
    target = step.target if isinstance(step, s.Step | s.Assign) else None
    if not one or target != s.Name(j) or variable.name != j or variable.value is None:
        raise NotUnderstood("a loop whose step is not 1")
    uniformity = _uniformity(draft)
    names = names_in(end) | {j}
    if not (uniformity.same(variable.value) and uniformity.same(end)):
        raise NotUnderstood("a loop bound that differs between threads")
    if variable.type not in INTEGERS or changed_variables(loop.body, draft.form) & names:
        raise NotUnderstood("a loop bound that changes in the loop")
    if any(isinstance(x, s.Leave) and x.word != "continue" for x in s.below(loop.body)):
        raise NotUnderstood("a loop with an early exit")
    if any(isinstance(x, s.Call) and x.function.startswith("__sync") for x in s.below(loop)):
        raise NotUnderstood("a barrier in the loop")
    return variable, end


def _read_only(draft: Draft) -> frozenset[str]:
    """Pointers through which the kernel only reads, from allocations that it only reads."""
    facts = draft.facts
    if any(a.space == "unknown" for a in facts.accesses):
        raise NotUnderstood("a pointer of unknown target")
    written = {a.array for a in facts.accesses if a.kind != "read"}
    found = {p.name for p in facts.parameters if p.is_pointer} - written
    found -= changed_variables(draft.form.kernel.body, draft.form)
    allocations = Allocations(draft)
    globally = {a.array for a in facts.accesses if a.kind != "read" and a.space == "global"}
    return frozenset(
        name
        for name in found
        if allocations.is_given(name) and all(allocations.apart(name, x) for x in globally)
    )


class _Finder:
    """What of a loop's body depends on nothing but the iteration."""

    def __init__(self, draft: Draft, variable: str, loop: s.For, arrays: frozenset[str]) -> None:
        self._loop, self._arrays = loop, arrays
        self._uniformity = _uniformity(draft)
        self._derived: dict[str, s.Declare] = {}
        self._variable = variable
        self._changed = changed_variables(loop.body, draft.form)

    def values(self) -> Iterator[Any]:
        """What to stage, each once; variables of the body that are made of it are noted."""
        found: list[Any] = []
        for statement in self._loop.body:
            for value in self._within(statement):
                if value not in found:
                    found.append(value)
            if isinstance(statement, s.Declare) and self._is_derived(statement):
                self._derived[statement.name] = statement
            if any(isinstance(x, s.Leave) for x in s.below(statement)):
                break
        yield from found

    def needed(self, values: Sequence[Any]) -> tuple[s.Declare, ...]:
        """Variables of the loop's body that these are made of, in order."""
        names = names_in(tuple(values))
        while True:
            more = names | names_in(tuple(d for n, d in self._derived.items() if n in names))
            if more == names:
                return tuple(d for n, d in self._derived.items() if n in names)
            names = more

    def _is_derived(self, node: s.Declare) -> bool:
        plain = node.value is not None and not node.extents and not node.pointer
        return plain and node.name not in self._changed and self._depends(node.value)

    def _within(self, node: Any) -> Iterator[Any]:
        """The largest parts, of those that every iteration works out."""
        if isinstance(node, s.Expression) and self._depends(node) and self._is_worth(node):
            yield node
            return
        match node:
            case s.If(condition) | s.Switch(condition):
                yield from self._within(condition)
            case s.For() | s.Do():
                return
            case s.Choice(condition):
                yield from self._within(condition)
            case s.Binary("&&" | "||", left):
                yield from self._within(left)
            case s.Assign(target, _, value):
                yield from self._within(value)
                for index in (x.index for x in s.below(target) if isinstance(x, s.Index)):
                    yield from self._within(index)
            case s.Call(function) if function not in PURE:
                for argument in node.arguments:
                    if not (isinstance(argument, s.Unary) and argument.operator == "&"):
                        yield from self._within(argument)
            case s.Unary("&") | s.Refer():
                return
            case _:
                for child in s.children(node):
                    yield from self._within(child)

    def _is_worth(self, node: Any) -> bool:
        """Loads, and what is dear; nothing that a larger operation may take in."""
        match node:
            case s.Index():
                return bool(names_in(node) & ({self._variable} | self._derived.keys()))
            case s.Member(base):
                return self._is_worth(base) and ELEMENT_BYTES.get(base.type, 99) > _MOST_BYTES
            case s.Binary("/" | "%"):
                return bool(names_in(node) & ({self._variable} | self._derived.keys()))
            case s.Call():
                return bool(names_in(node) & ({self._variable} | self._derived.keys()))
        return False

    def _depends(self, node: Any) -> bool:
        """Whether it is made of the iteration and of what is the same for all threads."""
        if not is_pure(node):
            return False
        match node:
            case s.Name(text):
                own = text == self._variable or text in self._derived
                return own or self._uniformity.same(node)
            case s.Index(s.Name(array), index):
                return array in self._arrays and self._depends(index)
            case s.Index() | s.Unary("*" | "&") | s.Values():
                return False
            case s.Member(s.Name(base), _) if base in s.BUILTINS:
                return base != "threadIdx"
            case s.Number():
                return True
        children = list(s.children(node))
        return bool(children) and all(map(self._depends, children))


# What is written


def _tiled(draft: Draft, plan: _Plan, tile: int) -> tuple[Any, ...]:
    """The loop over tiles."""
    j, kind = s.plain_name(plan.variable.name), plan.variable.type
    if plan.variable.name != j and any(plan.variable.name != n and s.plain_name(n) == j
                                       for n in names_in(plan.values)):  # fmt: skip
        raise NotUnderstood(f"two variables {j}")
    first, count, at = (
        draft.fresh_name("first"),
        draft.fresh_name("count"),
        draft.fresh_name("slot"),
    )
    names: list[str] = []
    for value in plan.values:
        same = sum(1 for n in names if n.startswith(f"{_stem(value)}_tile"))
        names.append(draft.fresh_name(f"{_stem(value)}_tile{same + 1 if same else ''}"))
    number, threads = threads_of(draft)
    printer = draft.printer()
    start, end = plan.variable.value, plan.end
    filling = [Raw(f"const {kind} {j} = {first} + {at};")]
    body: Any = plan.loop.body
    lines: list[Any] = [*filling, *(replace(d) for d in plan.needs)]
    for name, value in zip(names, plan.values, strict=True):
        lines.append(Raw(f"{name}[{at}] = {printer.expression(value, 2)};"))
        body = changed(
            body, _InTile(value, s.Index(s.Name(name), s.Binary("-", s.Name(j), s.Name(first))))
        )
    shared = [
        Raw(f"__shared__ {v.type} {n}[{tile}];") for n, v in zip(names, plan.values, strict=True)
    ]
    fill = s.For(
        (Raw(f"int {at} = {number}"),),  # type: ignore[arg-type]
        RawExpression(f"{at} < {count}"),  # type: ignore[arg-type]
        (RawExpression(f"{at} += {threads}"),),  # type: ignore[arg-type]
        tuple(lines),
    )
    walk = s.For(
        (Raw(f"{kind} {j} = {first}"),),  # type: ignore[arg-type]
        RawExpression(f"{j} < {first} + {count}"),  # type: ignore[arg-type]
        plan.loop.step,
        body,
    )
    last = printer.expression(end, 13)
    rest = f"{count} = min({tile}, {last} - {first});"
    if (kind, getattr(end, "type", "")) != ("int", "int"):
        rest = f"{count} = min(({kind}){tile}, ({kind})({last} - {first}));"
    outer = s.For(
        (Raw(f"{kind} {first} = {printer.expression(start)}"),),  # type: ignore[arg-type]
        RawExpression(f"{first} < {last}"),  # type: ignore[arg-type]
        (RawExpression(f"{first} += {count}"),),  # type: ignore[arg-type]
        (Raw(rest), Raw("__syncthreads();"), fill, Raw("__syncthreads();"), walk),  # type: ignore[arg-type]
        where=plan.loop.where,
    )  # fmt: skip
    return (*shared, Raw(f"int {count};"), outer)


def _stem(value: Any) -> str:
    root = next((root_of(x) for x in s.below(value) if isinstance(x, s.Index)), None)
    return s.plain_name(root or "value")


@dataclass(frozen=True)
class _InTile:
    """A staged value, read from its tile."""

    value: Any
    place: s.Expression

    def __call__(self, node: Any) -> Any:
        return self.place if type(node) is type(self.value) and node == self.value else node


def _around(draft: Draft, plan: _Plan, tiled: tuple[Any, ...]) -> tuple[Any, ...]:
    """All threads at the barriers, and each of them at its own work only."""
    if plan.condition is None:
        return (*plan.before, *plan.head, *tiled, *plan.tail)
    active, some = draft.fresh_name("active"), draft.fresh_name("some")
    printer = draft.printer()
    outside: list[Any] = [
        *plan.before,
        Raw(f"const bool {active} = {printer.expression(plan.condition)};"),
    ]
    under: list[Any] = []
    for node in plan.head:
        if isinstance(node, s.Declare) and not under and _is_harmless(node):
            outside.append(node)
        elif isinstance(node, s.Declare):
            if node.pointer or node.shared or (node.extents and (node.value or node.zeroed)):
                raise NotUnderstood(f"{node.name}, which is not block-uniform")
            if node.value is None:
                outside.append(node)
                continue
            outside.append(s.Declare(node.type, node.name))
            under.append(s.Evaluate(s.Assign(s.Name(node.name), "", node.value), where=node.where))
        elif isinstance(node, s.Refer):
            raise NotUnderstood(f"{node.name}, which is not block-uniform")
        else:
            under.append(node)
    late = {x.value.target.text for x in under if _assigns(x)}
    alike = (*plan.values, *plan.needs, plan.end, plan.variable)
    if unset := late & names_in(alike):
        raise NotUnderstood(f"{min(unset)}, which is not block-uniform")
    *shared, outer = tiled
    *steps, walk = outer.body
    outer = replace(outer, body=(*steps, s.If(RawExpression(active), (walk,))))  # type: ignore[arg-type]
    head = (s.If(RawExpression(active), tuple(under)),) if under else ()  # type: ignore[arg-type]
    tail = (s.If(RawExpression(active), plan.tail),) if plan.tail else ()  # type: ignore[arg-type]
    return (
        *outside, *head, *shared, Raw(f"const bool {some} = __syncthreads_or({active});"),
        s.If(RawExpression(some), (outer,)), *tail,  # type: ignore[arg-type]
    )  # fmt: skip


def _within(plan: _Plan, tiled: tuple[Any, ...]) -> tuple[Any, ...]:
    """The loop over tiles in the loop's place; tiles belong to the kernel."""
    *shared, count, outer = tiled
    return (*shared, *swapped(plan.before, plan.loop, (count, outer)))


def _assigns(node: Any) -> bool:
    return isinstance(node, s.Evaluate) and isinstance(getattr(node.value, "target", None), s.Name)


def _is_harmless(node: s.Declare) -> bool:
    """Whether every thread may run it: no memory is read, nothing is divided."""
    if node.shared or node.extents or node.value is None:
        return node.value is None and not node.shared
    divides = any(isinstance(x, s.Binary) and x.operator in ("/", "%") for x in s.below(node.value))
    return is_pure(node.value) and not reads_memory(node.value) and not divides
