"""A body that does its work for several items: statement by statement where that shares something.

The body comes with the item's number in it as a variable. What does not depend on it is done once;
loops that every item runs alike stay single, with the items inside; loads are issued for all items
before any is used. Values that go from one such place to another become small arrays that registers
hold once the loops over the items are unrolled:

    float x[4];                                  // loads of all items
    for (int item = 0; item < 4; ++item) x[item] = in[i + item * width];
    for (int item = 0; item < 4; ++item) out[i + item * width] = f(x[item]);

Each item's own statements keep their order, but for loads that move up past what has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    calls_in,
    changed_by,
    has_early_exit,
    has_effects,
    local_variables,
    names_in,
    reads_memory,
    root_of,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number, symbol
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.idle import Idle
from cudaops.transformations.loads import Loads
from cudaops.transformations.serial import item_loop
from cudaops.transformations.thread_communication import VOTES, is_vote
from cudaops.transformations.trees import changed, declarations_in, declared_in, is_barrier, renamed

_CHEAP = frozenset({"min", "max", "abs"})
_MOST_LOADS = 48
"""Loads that are issued ahead, of all items: each takes a register."""
_Names = Collection[str]


@dataclass
class _Group:
    """Statements that stand in one loop over the items."""

    body: list[Any]
    guard: Any = None
    declared: set[str] = field(default_factory=set)


@dataclass
class _Shared:
    """A statement that all items go through together, with groups in it."""

    node: Any
    parts: tuple[list[_Part], ...]
    before: Sequence[Any] = ()
    """Declarations for it."""


@dataclass
class _Single:
    """A statement that does not depend on the item."""

    node: Any


_Part = _Group | _Shared | _Single


class CoarsenedBody:
    """One body, spread over its items."""

    def __init__(
        self, draft: Draft, body: tuple[Any, ...], item: str, factor: int,
        pure: Collection[str], whole: Callable[[s.If], bool] | None = None, *,
        shared: Sequence[s.Declare] = (), by_guards: bool = True, growing: Sequence[s.Name] = (),
    ) -> None:  # fmt: skip
        """`body` has no `return`; `item` is the variable in it. `pure`: functions of the program
        that are. `whole`: whether a guard is the same for all items of a thread. `shared`: what
        stands above the body. `by_guards`: the work under a guard of each item may be spread too,
        rather than be done for one after the other. `growing`: variables that no item has smaller
        than those before it."""
        calls = [
            x for x in s.below(body) if isinstance(x, s.Call) and draft.form.function(x.function)
        ]
        if any(changed_by(x, draft.form, arrays=False) for x in calls):
            raise NotUnderstood("a variable modified through a reference")
        self._whole, self._by_guards, self._growing = whole, by_guards, growing
        self._idle: set[str] = set()
        self._draft, self._body, self._item, self._factor = draft, body, item, factor
        self._pure = pure
        self._local = set(local_variables(body))
        self._declares = {x.name: x for x in s.below(body) if isinstance(x, s.Declare)}
        self._block = frozenset(x.name for x in shared)
        self._known = {item, *s.BUILTINS, *self._declares}
        self._known |= {p.name for p in draft.form.kernel.parameters} | self._added(body)
        self._taken: set[str] = set()
        self._writes = dict(self._all_writes())
        self._dependent = self._found_dependent()
        self._groups: list[_Group] = []

    def _added(self, body: Any) -> set[str]:
        """Names of parameters that were added to the kernel's own."""
        return names_in(body) - names_in(self._draft.form.kernel.body) - {self._item}

    # What depends on the item

    def _all_writes(self) -> Iterator[tuple[str, int]]:
        """(variable, how often it is assigned after its declaration)."""
        counts: dict[str, int] = {}
        for node in s.below(self._body):
            for name in self._changed_by(node):
                counts[name] = counts.get(name, 0) + 1
        yield from counts.items()

    def _changed_by(self, node: Any) -> set[str]:
        """Variables that one node may change, and the thread's own arrays of which an element."""
        form = self._draft.form
        return changed_by(node, form, arrays=False) | (changed_by(node, form) & self._local)

    def _found_dependent(self) -> set[str]:
        # A pointer that moves: what moves it is not among statements that are done once for all.
        found = {n for n, x in self._declares.items() if x.pointer and n in self._writes}
        while True:
            before = len(found)
            self._mark(self._body, None, found)
            if len(found) == before:
                return found

    def _mark(self, body: Sequence[Any], inside: _Names | None, found: set[str]) -> None:
        """`inside`: variables that are declared under the innermost condition that depends on the
        item; None where there is none. What is assigned under one and declared outside differs
        by item, whatever its value."""
        for node in body:
            match node:
                case s.If(condition, yes, no):
                    under = declared_in(node) if self._depends(condition, found) else inside
                    self._mark_expressions((condition,), inside, found)
                    self._mark((*yes, *no), under, found)
                case s.For(first, condition, step, statements):
                    self._mark(first, inside, found)
                    under = declared_in(node) if self._loop_depends(node, found) else inside
                    self._mark_expressions((condition, *step), under, found)
                    self._mark(statements, under, found)
                case s.Do(statements, condition):
                    under = declared_in(node) if self._loop_depends(node, found) else inside
                    self._mark_expressions((condition,), under, found)
                    self._mark(statements, under, found)
                case s.Switch(subject, statements):
                    under = declared_in(node) if self._depends(subject, found) else inside
                    self._mark(statements, under, found)
                case s.Block(statements):
                    self._mark(statements, inside, found)
                case s.Declare():
                    if node.value is not None and self._depends(node.value, found):
                        found.add(node.name)
                    self._mark_expressions((node.value,), inside, found)
                case s.Refer(_, name, target):
                    root = root_of(target)
                    if root is None or self._depends(target, found) or root in self._local:
                        found.add(name)
                        found.update({root} if root in self._local else ())
                case s.Evaluate(value):
                    self._mark_expressions((value,), inside, found)

    def _mark_expressions(
        self, nodes: Sequence[Any], inside: _Names | None, found: set[str]
    ) -> None:
        for node in nodes:
            for x in s.below(node) if node is not None and not is_vote(node) else ():
                for name in self._changed_by(x):
                    if name in self._declares and (
                        (inside is not None and name not in inside) or self._depends(x, found)
                    ):
                        found.add(name)

    def _loop_depends(self, node: s.For | s.Do, found: set[str]) -> bool:
        """Whether items may run it differently often."""
        conditions = [node.condition, *(node.step if isinstance(node, s.For) else ())]
        if any(self._depends(c, found) for c in conditions if c is not None):
            return True
        return has_early_exit(node.body)

    def _depends(self, node: Any, found: Collection[str] | None = None) -> bool:
        found = self._dependent if found is None else found
        names = names_in(node)
        if self._item in names or names & set(found):
            return True
        return any(
            isinstance(x, s.Call)
            and (x.function in COLLECTIVES | VOTES or x.function.startswith("atomic"))
            for x in s.below(node)
        )

    def _stays_single(self, node: Any) -> bool:
        """Whether a statement is the same for all items and may be done once."""
        if self._depends(node):
            return False
        if has_effects(node, self._local, self._pure):
            return self._stores_alike(node)
        return not any(
            isinstance(x, s.Declare) and x.name in self._dependent for x in s.below(node)
        ) and not any(n in self._dependent for x in s.below(node) for n in self._changed_by(x))

    def _stores_alike(self, node: Any) -> bool:
        """Of a statement that does not depend on the item: whether all it does is to store one
        value to one place, which is the same however often it is done in a row."""
        match node:
            case s.Evaluate(s.Assign(s.Index(base, index), "", value)):
                parts = (base, index, value)
                return root_of(base) not in self._local and not has_effects(
                    parts, self._local, self._pure
                )
        return False

    # Groups

    def statements(self) -> tuple[Any, ...]:
        """The body of the kernel. Raises NotUnderstood where something stands in the way."""
        parts = self._parts(self._body, None, top=self._by_guards)
        return tuple(self._printed(parts))

    @property
    def groups(self) -> int:
        """Loops over the items, once `statements` was asked for."""
        return len(self._groups)

    def _parts(self, body: Sequence[Any], guard: Any, *, top: bool = False) -> list[_Part]:
        parts: list[_Part] = []
        waiting: list[Any] = []

        def flush() -> None:
            if waiting:
                parts.extend(self._grouped(waiting, guard))
                waiting.clear()

        for node in body:
            if is_barrier(node, BARRIERS - VOTES):
                if guard is not None:
                    raise NotUnderstood("a barrier that is divergent after coarsening")
                flush()
                parts.append(_Single(node))
            elif isinstance(node, s.Evaluate) and is_vote(vote := node.value):
                assert isinstance(vote, s.Assign)
                if guard is not None or root_of(vote.target) in self._dependent:
                    raise NotUnderstood("a block vote whose operand depends on the coarsened item")
                flush()
                self._groups.append(_Group([node]))
                parts.append(self._groups[-1])
            elif self._stays_single(node):
                if not isinstance(node, s.Declare) or has_effects(
                    tuple(waiting), self._local, self._pure
                ):
                    flush()
                parts.append(_Single(node))
            elif (shared := self._shared(node, guard, top=top)) is not None:
                flush()
                parts.extend(shared)
            else:
                if calls_in(node) & BARRIERS:
                    raise NotUnderstood("a barrier that is divergent after coarsening")
                waiting.append(node)
        flush()
        return parts

    def _shared(self, node: Any, guard: Any, *, top: bool) -> list[_Part] | None:
        """A statement that all items go through alike, or a guard that may stand at each group."""
        match node:
            case s.For(first, condition, step, body):
                ends = [x for x in (condition, *step) if x is not None]
                if self._loop_depends(node, self._dependent) or not all(
                    self._stays_single(x) for x in first
                ):
                    return None
                if any(has_effects(x, self._local, self._pure) for x in ends):
                    return None
                return [_Shared(node, (self._parts(body, guard),))]
            case s.If(condition, yes, no) if not self._depends(condition) and not has_effects(
                condition, self._local, self._pure
            ):
                if has_early_exit(yes) or has_early_exit(no):
                    return None
                return [_Shared(node, (self._parts(yes, guard), self._parts(no, guard)))]
            case s.If(condition, yes, ()) if top and guard is None and self._may_repeat(condition):
                return self._guarded(node)
        return None

    def _guarded(self, node: s.If) -> list[_Part] | None:
        """What stands under a guard: groups that each ask it, below one that asks for the first
        item where something is done once for all."""
        if self._whole is not None and self._whole(node):
            return [self._for_first(node, self._parts(node.yes, None))]
        parts = self._parts(node.yes, node.condition)
        if all(isinstance(p, _Group) for p in parts):
            return parts
        if not self._first_decides(node.condition):
            raise NotUnderstood("shared work under a guard of each item")
        own = {x.name for x in declarations_in(node.yes)}
        self._relax(parts, Idle(self._draft, own, self._declares, self._depends))
        return [self._for_first(node, parts)]

    def _for_first(self, node: s.If, parts: list[_Part]) -> _Shared:
        """Under the guard of the first item."""
        needed = self._needed((node.condition,))
        again = [n for n in self._declares if n in needed]
        names = {n: s.Name(self.fresh(f"first_{n.partition('#')[0]}")) for n in again}

        def first(x: Any) -> Any:
            match x:
                case s.Name(text) if text == self._item:
                    return s.Number("0")
                case s.Binary("+", left, s.Number("0")):
                    return left
            return x

        before = []
        for name in again:
            declared = self._declares[name]
            value = renamed(changed(declared.value, first), names)
            before.append(replace(declared, name=names[name].text, value=value, where=None))
        condition = renamed(changed(node.condition, first), names)
        return _Shared(replace(node, condition=condition), (parts, []), before)

    def _first_decides(self, condition: Any) -> bool:
        """Whether no item is inside of a guard where the first one is not."""
        match condition:
            case s.Binary("&&", left, right):
                return all(not self._depends(x) or self._first_decides(x) for x in (left, right))
            case s.Binary("<" | "<=", left, right) if not self._depends(right):
                value = number(0) if self._grows(left) else self._polynomial(left)
            case s.Binary(">" | ">=", left, right) if not self._depends(left):
                value = self._polynomial(right)
            case _:
                return False
        parts = None if value is None else value.linear_in(Symbol(self._item))
        return parts is not None and parts[0].sure_nonnegative

    def _grows(self, node: Any) -> bool:
        """Whether an integer is no smaller for an item than for those before it."""
        if isinstance(node, s.Binary) and node.operator == "+":
            return self._grows(node.left) and self._grows(node.right)
        return node in (s.Name(self._item), *self._growing) or not self._depends(node)

    def _polynomial(self, node: Any) -> Polynomial | None:
        """An integer over the launch's own numbers, which are not negative."""
        match node:
            case s.Number() if (found := s.integer_of(node)) is not None:
                return number(found)
            case s.Name(text) if text == self._item:
                return symbol(text)
            case s.Name(text) if self._is_stable(text):
                return self._polynomial(self._declares[text].value)
            case s.Cast(kind, operand) if kind in INTEGERS:
                return self._polynomial(operand)
            case s.Member(s.Name(root), axis) if root in s.BUILTINS:
                return symbol(f"{root}.{axis}")
            case s.Binary("+" | "*" as operator, left, right):
                a, b = self._polynomial(left), self._polynomial(right)
                if a is None or b is None:
                    return None
                return a + b if operator == "+" else a * b
        return None

    def _relax(self, parts: Sequence[_Part], idle: Idle, loops: tuple[s.For, ...] = ()) -> None:
        """Groups that an item which is not there may run need no guard."""
        for part in parts:
            match part:
                case _Shared(node, inner):
                    within = (*loops, node) if isinstance(node, s.For) else loops
                    for some in inner:
                        self._relax(some, idle, within)
                case _Group(body):
                    needed = self._needed(tuple(body))
                    again = [self._declares[n].value for n in needed if self._is_recomputed(n)]
                    if idle.may_run((*body, *again), loops):
                        part.guard = None
                        self._idle |= needed

    def _may_repeat(self, condition: Any) -> bool:
        """Whether a guard may be asked again at each group: it reads what never changes."""
        return self._is_fixed(condition) and not has_effects(condition, (), ())

    def _is_fixed(self, value: Any) -> bool:
        """Whether an expression has one value wherever it stands: nothing that it reads changes."""
        return not reads_memory(value) and all(
            self._is_stable(n) if n in self._dependent
            else n in self._known and not self._writes.get(n)
            for n in names_in(value)
        )  # fmt: skip

    def _is_stable(self, name: str) -> bool:
        """Whether a variable has one value from its declaration on."""
        node = self._declares.get(name)
        return (
            node is not None and node.value is not None and not node.extents
            and not self._writes.get(name)
        )  # fmt: skip

    def _grouped(self, body: Sequence[Any], guard: Any) -> list[_Part]:
        """Statements in one group, their loads in others before it."""
        levels, rest = Loads(self, body).split()
        found: list[_Part] = []
        for statements in [*levels, rest]:
            if statements:
                group = _Group(list(statements), guard)
                group.declared = {x.name for x in statements if isinstance(x, s.Declare)}
                self._groups.append(group)
                found.append(group)
        return found

    # What goes from one group to another

    def _is_recomputed(self, name: str) -> bool:
        """Whether a variable is so cheap that each group computes it for itself."""
        node = self._declares.get(name)
        if node is None or not self._is_stable(name) or not self._is_fixed(node.value):
            return False
        return not calls_in(node.value) - _CHEAP and not has_effects(node.value, (), ())

    def _needed(self, node: Sequence[Any]) -> set[str]:
        """Variables that these must have, those behind recomputed ones included."""
        found: set[str] = set()
        inner = {x.name for part in node for y in s.children(part) for x in declarations_in(y)}
        waiting = [n for n in names_in(node) - inner if n in self._dependent]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            if self._is_recomputed(name):
                inner = names_in(self._declares[name].value)
                waiting += [n for n in inner if n in self._dependent]
        return found

    def _printed(self, parts: list[_Part]) -> list[Any]:
        return self._lines(parts, self._crossing(), set())

    def _crossing(self) -> set[str]:
        """Variables that one group declares and another uses, and that are not computed again."""
        owner = {n: g for g in self._groups for n in g.declared}
        found = set()
        for group in self._groups:
            for name in self._needed((*group.body, *([group.guard] if group.guard else []))):
                if owner.get(name) is not group and not self._is_recomputed(name):
                    if name not in owner:
                        if name in {x.name for y in group.body for x in declarations_in(y)}:
                            continue
                        raise NotUnderstood(
                            f"{name}, which is declared outside of the item's scope"
                        )
                    found.add(name)
        return found

    def _lines(self, parts: list[_Part], crossing: set[str], shown: set[str]) -> list[Any]:
        lines: list[Any] = []
        for part in parts:
            match part:
                case _Single(node):
                    lines.append(node)
                case _Shared(node, inner):
                    lines += part.before
                    bodies = [tuple(self._lines(list(x), crossing, shown)) for x in inner]
                    if isinstance(node, s.For):
                        lines.append(replace(node, body=bodies[0]))
                    else:
                        lines.append(replace(node, yes=bodies[0], no=bodies[1]))
                case _Group():
                    lines += self._group_lines(part, crossing, shown)
        return lines

    def _group_lines(self, group: _Group, crossing: set[str], shown: set[str]) -> list[Any]:
        def is_again(node: Any) -> bool:
            return isinstance(node, s.Declare) and self._is_recomputed(node.name)

        kept = [x for x in group.body if not is_again(x)]
        if not kept:
            return []
        guards = [group.guard] if group.guard is not None else []
        needed = self._needed((*kept, *guards))
        body = [x for x in group.body if not is_again(x) or x.name in needed]
        shown |= {x.name for x in body if isinstance(x, s.Declare)}
        again = [
            n for n in self._declares
            if n in needed and self._is_recomputed(n) and n not in group.declared
        ]  # fmt: skip
        arrays = [self._array(x) for x in body if isinstance(x, s.Declare) and x.name in crossing]
        own = [self._assigned(x, crossing) for x in body]
        statements = [self._in_items(x, crossing) for y in own for x in y]
        inside_guard = {n for g in guards for n in self._needed((g,))}
        before: list[Any] = []
        after: list[Any] = []
        for name in again:
            node = self._declares[name]
            node = node if name not in shown else replace(node, where=None)
            shown.add(name)
            placed = before if not guards or name in inside_guard else after
            placed.append(self._in_items(node, crossing))
        if not statements:
            return arrays
        if guards:
            guarded = s.If(self._in_items(guards[0], crossing), (*after, *statements))
            statements, after = [guarded], []
        return [*arrays, *item_loop(self._item, self._factor, (*before, *after, *statements))]

    def _array(self, node: s.Declare) -> s.Declare:
        if node.name.count("#"):
            raise NotUnderstood(f"a second {node.name.partition('#')[0]}")
        if node.extents and (node.value is not None or node.unsized):
            raise NotUnderstood(f"{node.name}, an array with an initializer")
        size = s.Number(str(self._factor))
        zeroed = node.zeroed or node.name in self._idle
        return replace(node, extents=(size, *node.extents), value=None, zeroed=zeroed, where=None)

    def _assigned(self, node: Any, crossing: set[str]) -> tuple[Any, ...]:
        """A declaration of what crosses as an assignment to its place in the array."""
        if not isinstance(node, s.Declare) or node.name not in crossing:
            return (node,)
        if node.value is None:
            return ()  # zeros come with the array
        value = s.Assign(s.Name(node.name), "", node.value)
        return (s.Evaluate(value, where=node.where),)

    def _in_items(self, node: Any, crossing: set[str]) -> Any:
        def change(x: Any) -> Any:
            if isinstance(x, s.Name) and x.text in crossing:
                return s.Index(s.Name(x.text), s.Name(self._item), type=x.type)
            return x

        return changed(node, change)

    # For loads

    def fresh(self, wanted: str) -> str:
        """A name that nothing uses."""
        return self._draft.fresh_name_beside(wanted, self._taken)

    def declare(self, node: s.Declare) -> None:
        """A variable of each item's that the author did not have."""
        self._declares[node.name] = node
        self._dependent.add(node.name)
        self._local.add(node.name)

    def is_ready(self, name: str, ready: Collection[str]) -> bool:
        """Whether a variable has its value once these have theirs."""
        if name not in self._dependent or name in ready or name == self._item:
            return True
        if not self._is_recomputed(name):
            return self._is_stable(name) and name in self._owned
        inner = names_in(self._declares[name].value) & self._dependent
        return all(self.is_ready(n, ready) for n in inner)

    @property
    def _owned(self) -> set[str]:
        return {n for g in self._groups for n in g.declared}

    def has_effect(self, node: Any) -> bool:
        """Whether it does more than to change the thread's own variables."""
        return has_effects(node, self._local, self._pure)

    @property
    def most_loads(self) -> int:
        """Loads of one item that may be issued ahead."""
        return _MOST_LOADS // self._factor

    def is_memory(self, place: Any) -> bool:
        """Whether a place is not one of the thread's or block's own variables."""
        root = root_of(place)
        node = self._declares.get(root or "")
        is_shared = root in self._block or bool(node and node.shared)
        return root is not None and root not in self._local and not is_shared

    def is_stable(self, name: str) -> bool:
        """Whether a variable has one value from its declaration on."""
        return self._is_stable(name)

    def depends(self, node: Any) -> bool:
        """Whether it depends on the item."""
        return self._depends(node)
