"""Loops whose iterations several lanes may share: what they add up, step along, and store.

Iterations of such a loop depend on each other through accumulators alone (`sum += x`, `best =
max(best, x)`, `if (x < best) { best = x; at = j; }`), and through variables that every iteration
moves by the same amount. What they store goes to other places in each. Integer sums, bits, minima
and maxima are the same in any order; floating sums and products as far as rounding goes.

A counter that passes its bound by a few more steps than the author's does must still fit: a bound
within `lanes` steps of the type's end, which indexes memory that no device has, is not provided
for where it is read from memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    has_early_exit,
    is_pointed_at,
    is_pure,
    names_in,
    reads_memory,
    root_of,
)
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.analysis.polynomials import Polynomial, Symbol, number
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.accumulations import FUNCTIONS, Found, Kind, accumulations
from cudaops.transformations.aliasing import Allocations
from cudaops.transformations.draft import Draft
from cudaops.transformations.liveness import live_after, live_before
from cudaops.transformations.scans import Scan, scan_in
from cudaops.transformations.trees import declared_in

WORDS = frozenset({"int", "unsigned", "long long", "unsigned long long", "float", "double"})
"""What a shuffle moves as it is."""
ATOMICS = frozenset({"atomicAdd", "atomicSub", "atomicMin", "atomicMax", "atomicAnd", "atomicOr",
                     "atomicXor"})  # fmt: skip
"""Whose order is of no consequence where nobody looks at what they give."""
_HARMLESS = frozenset({"cxx_null_ptr_literal_expr"})
"""What the analysis does not follow, and leads to no memory."""


@dataclass(frozen=True)
class Accumulator:
    """A variable, a field of one, or an array of a thread's own, in which iterations meet."""

    place: Any
    """An expression; for an array, the array's name."""
    kind: Kind
    type: str
    extent: Any = None
    """Of an array: how many elements, as an expression."""
    function: str = ""
    """`fmaxf`, where the author's text says so; of a `best` `<` or `>`; of a `flag` its value."""
    moved: tuple[Any, ...] = ()
    """Of a `best`: variables that are assigned with it; the first holds the loop's counter."""

    @property
    def roots(self) -> set[str]:
        """Variables in which it is kept."""
        return {root_of(p) or "" for p in (self.place, *self.moved)}


@dataclass(frozen=True)
class Induction:
    """A variable that every iteration moves by the same amount."""

    name: str
    sign: Literal["+", "-"]
    by: Any
    """An expression."""
    at: Any
    """The expression of the loop's head, or the statement of its body, that moves it."""


@dataclass(frozen=True)
class Split:
    """How a loop may be shared."""

    loop: s.For
    accumulators: tuple[Accumulator, ...]
    inductions: tuple[Induction, ...]
    writes: frozenset[str]
    """Arrays that iterations store to."""
    requires: tuple[tuple[str, int], ...] = ()
    """(parameter, most it may be) so that the counter fits, for steps of one lane."""
    scans: tuple[Scan, ...] = ()
    """Accumulators at whose values iterations look."""
    demands: tuple[Polynomial, ...] = ()
    """Over parameters and extents: none may be negative, so that stores do not meet."""


class Loops:
    """Of one kernel: which may be split."""

    def __init__(self, draft: Draft, *, scans: bool = False) -> None:
        """`scans`: whether iterations may look at what those before them have added up."""
        form = draft.form
        self._scans_too = scans
        self.form, self.facts = form, draft.facts
        self._allocations = Allocations(draft)
        self._body = form.kernel.body
        declares = [x for x in s.below(self._body) if isinstance(x, s.Declare)]
        self.declared = {x.name: x for x in declares}
        self.private = {x.name for x in declares if not x.shared and not x.pointer} | {
            p.name for p in form.kernel.parameters if not p.is_pointer
        }
        self._referred = {
            name
            for x in s.below(self._body)
            for name in _aliased(x)
            if isinstance(x, s.Refer | s.Unary)
        }
        """Variables that go by another name too, or whose address is taken."""

    def is_pure(self, node: Any) -> bool:
        """Whether an expression gives a value and does nothing else."""
        own = [
            f.name for f in self.form.functions if self.written_parameters(f.name) == frozenset()
        ]
        return is_pure(node, {*FUNCTIONS, *own})

    def may_meet(self, a: Access, b: Access) -> bool:
        """Whether two accesses may touch one array: pointers that never led into one allocation
        at a captured launch are taken as ones that never do."""
        if a.array == b.array:
            return True
        if a.space != b.space and "unknown" not in (a.space, b.space):
            return False
        if a.space in ("shared", "local", "module"):
            return False
        return not self._allocations.apart(a.array, b.array)

    # One loop

    def split(self, loop: s.For) -> Split:
        """How it may be shared. Raises NotUnderstood."""
        self._refuse_exits(loop)
        self._refuse_calls(loop)
        inside = declared_in(loop.body)
        headed = {x.name for x in loop.first if isinstance(x, s.Declare)}
        inductions = self._inductions(loop, inside)
        moved = {x.name for x in inductions}
        bound = self._bound(loop, moved)
        written = self._written(loop, inside | moved)
        accumulators = self._accumulators(loop, written)
        kept = {n for a in accumulators for n in a.roots}
        scans = self._scans(loop, written - kept) if self._scans_too else ()
        kept |= {x.name for x in scans}
        for name in written - kept:
            self._refuse_kept(name, loop)
        for name in moved - headed:
            self._refuse_after(name, loop)
        if kept & self._referred:
            raise NotUnderstood("an aliased accumulator")
        writes, demands = self._stores(loop, inside | kept)
        if writes and any(reads_memory(x) for x in (bound, *(i.by for i in inductions))):
            raise NotUnderstood("a loop bound in memory that the loop may store to")
        limits = self._limits(bound, inductions)
        if scans and any(x.at not in loop.step for x in inductions):
            raise NotUnderstood("a counter that steps in the body of a scan")
        return Split(loop, accumulators, inductions, writes, limits, scans, demands)

    def _refuse_exits(self, loop: s.For) -> None:
        if any(isinstance(x, s.Opaque | s.Unmodelled) for x in s.below(loop.body)):
            raise NotUnderstood("an unsupported statement in the loop")
        if has_early_exit(loop.body, "continue"):
            raise NotUnderstood("an early exit of the loop")
        for what in self.facts.unmodelled:
            if what not in _HARMLESS:
                raise NotUnderstood(f"a {what}")

    def _refuse_calls(self, loop: s.For) -> None:
        statements = [x.value for x in s.below(loop.body) if isinstance(x, s.Evaluate)]
        for x in s.below(loop):
            if not isinstance(x, s.Call) or x.function in FUNCTIONS:
                continue
            if x.function in ATOMICS and any(x is value for value in statements):
                continue
            if x.function in BARRIERS | COLLECTIVES:
                raise NotUnderstood(f"{x.function} in the loop")
            written = self.written_parameters(x.function)
            if written is None:
                raise NotUnderstood(f"{x.function}, which may have side effects")
            inside = declared_in(loop.body)
            for nth in written:
                if nth >= len(x.arguments) or root_of(_pointee(x.arguments[nth])) not in inside:
                    raise NotUnderstood(f"{x.function}, which modifies its arguments")

    def written_parameters(self, name: str, depth: int = 0) -> frozenset[int] | None:
        """Which arguments a function of the program may change; None where it may do more."""
        function = self.form.function(name)
        if function is None or depth > 8:
            return None
        known = [p.name for p in function.parameters]
        own = declared_in(function.body)
        pointers = {
            x.name
            for x in s.below(function.body)
            if isinstance(x, s.Refer) or (isinstance(x, s.Declare) and (x.pointer or x.shared))
        }
        roots: list[str | None] = []
        for x in s.below(function.body):
            if isinstance(x, s.Opaque | s.Unmodelled):
                return None
            if isinstance(x, s.Assign | s.Step | s.Refer):
                roots.append(root_of(x.target))
            elif isinstance(x, s.Call) and x.function not in FUNCTIONS:
                inner = self.written_parameters(x.function, depth + 1)
                if inner is None or any(nth >= len(x.arguments) for nth in inner):
                    return None
                roots += [root_of(_pointee(x.arguments[nth])) for nth in inner]
        if any(r is None or r in pointers or r not in {*known, *own} for r in roots):
            return None
        return frozenset(known.index(r) for r in roots if r in known)

    # What moves evenly

    def _inductions(self, loop: s.For, inside: set[str]) -> tuple[Induction, ...]:
        targets = Counter(root_of(t) for t in _targets(loop.body) + _targets(loop.step))
        changing = {t or "" for t in targets} | inside
        moved: list[Induction] = []
        for moves in loop.step:
            step = _stepped(moves)
            if step is None or targets[step[0]] > 1 or not self._is_even(moves, step, changing):
                raise NotUnderstood("an unsupported loop step")
            moved.append(Induction(*step, moves))
        goes_on = any(_is_continue(x) for x in _own(loop.body))
        for statement in loop.body:
            x: Any = statement.value if isinstance(statement, s.Evaluate) else None
            step = _stepped(x)
            if step is None or step[0] in inside or targets[step[0]] > 1 or goes_on:
                continue
            if _mentions(loop, step[0]) > _mentions(x, step[0]) and self._is_even(
                x, step, changing
            ):
                moved.append(Induction(*step, statement))
        if any(x.name in self._referred for x in moved):
            raise NotUnderstood("an aliased counter")
        return tuple(moved)

    def _is_even(self, x: Any, step: tuple[str, str, Any], changing: set[str]) -> bool:
        """Whether a variable is one that can step, by an amount that stays."""
        name, _, by = step
        kind = x.target.type
        whole = kind in INTEGERS or kind.endswith("*") or self._is_pointer(name)
        return whole and self.is_pure(by) and not names_in(by) & changing

    def _is_pointer(self, name: str) -> bool:
        declared = self.declared.get(name)
        return bool(declared and declared.pointer) or any(
            p.name == name and p.is_pointer for p in self.form.kernel.parameters
        )

    def _bound(self, loop: s.For, moved: set[str]) -> Any:
        """What the counter is compared with, which no iteration changes."""
        match loop.condition:
            case s.Binary(operator, left, right) if operator in s.ORDERS:
                if names_in(right) & moved and not names_in(left) & moved:
                    operator, left, right = s.MIRRORED[operator], right, left
            case _:
                raise NotUnderstood("an unsupported loop bound")
        if (
            isinstance(left, s.Binary)
            and left.operator in "+-"
            and not names_in(left.right) & moved
        ):
            right, left = s.Binary("-", right, left.right), left.left
        if not isinstance(left, s.Name) or left.text not in moved:
            raise NotUnderstood("an unsupported loop bound")
        changed = {root_of(t) for t in _targets(loop.body) + _targets(loop.step)} | declared_in(
            loop.body
        )
        if not self.is_pure(right) or names_in(right) & {*changed, left.text}:
            raise NotUnderstood("a loop bound that the body changes")
        return right

    def _limits(self, bound: Any, inductions: tuple[Induction, ...]) -> tuple[tuple[str, int], ...]:
        parameters = {p.name for p in self.form.kernel.parameters if p.type in ("int", "unsigned")}
        if isinstance(bound, s.Name) and bound.text in parameters and inductions:
            by = inductions[0].by
            step = int(by.text) if isinstance(by, s.Number) and by.text.isdigit() else 1
            return ((bound.text, step),)
        return ()

    # What is added up

    def _written(self, loop: s.For, known: set[str]) -> set[str]:
        """Variables from outside that an iteration writes, other than counters."""
        written = {
            root_of(t) for t in _targets(loop.body) + _targets(loop.step) if self.is_private(t)
        }
        taken = {n for x in s.below(loop.body) for n in _aliased(x)} & self.private
        if None in written or taken - declared_in(loop.body):
            raise NotUnderstood("a variable whose address is taken")
        return {x for x in written if x} - known

    def is_private(self, place: Any) -> bool:
        """Whether a place is a variable of the thread, not memory behind a pointer."""
        if isinstance(place, s.Name):
            return True
        return (
            root_of(place) in self.private
            and not is_pointed_at(place)
            and not any(isinstance(x, s.Unary) and x.operator == "*" for x in s.below(place))
        )

    def _accumulators(self, loop: s.For, written: set[str]) -> tuple[Accumulator, ...]:
        """Of the written variables, those that every mention accumulates into."""
        found = [x for x in accumulations(loop.body) if root_of(x.place) in written]
        whole = Counter(x.text for x in s.below(loop) if isinstance(x, s.Name))
        uses: Counter[str] = Counter()
        for x in found:
            uses[root_of(x.place) or ""] += x.uses
            uses.update(root_of(p) or "" for p, _ in x.moved)
        sure = {name for name in written if whole[name] == uses[name]}
        made: dict[str, Accumulator] = {}
        for x in found:
            names = {root_of(x.place) or "", *(root_of(p) or "" for p, _ in x.moved)}
            if not names <= sure:
                continue
            one = self._accumulator(x, loop)
            before = made.setdefault(repr(one.place), one)
            if replace(before, function="") != replace(one, function=""):
                raise NotUnderstood("an accumulator of two kinds")
            if not before.function:
                made[repr(one.place)] = one
        kept = tuple(made.values())
        roots = Counter(n for a in kept if a.moved for n in a.roots)
        if any(roots[n] > 1 or any(n in a.roots for a in kept if not a.moved) for n in roots):
            raise NotUnderstood("one variable tracked for two extremes")
        return kept

    def _scans(self, loop: s.For, names: set[str]) -> tuple[Scan, ...]:
        """Those of these variables that are prefixes: of sums, minima and so on."""
        found = []
        for name in sorted(names):
            if not _is_fresh(loop, name):
                accumulated, scan = scan_in(loop, name, self._allocations.apart, self.form)
                found.append(replace(scan, accumulator=self._accumulator(accumulated, loop)))
        if len(found) > 1:
            raise NotUnderstood("two scans in one loop")
        return tuple(found)

    def _accumulator(self, x: Found, loop: s.For) -> Accumulator:
        place, extent = x.place, None
        if isinstance(place, s.Index):
            array = place.base
            declared = self.declared.get(array.text) if isinstance(array, s.Name) else None
            if declared is None or len(declared.extents) != 1 or x.kind in ("flag", "best"):
                raise NotUnderstood("accumulators in an array")
            place, extent = array, declared.extents[0]
        kind = x.place.type
        if kind not in WORDS and not (x.kind == "flag" and kind == "bool"):
            raise NotUnderstood(f"an accumulator of type {kind or 'unknown'}")
        given = {getattr(v, "type", "") for v in x.values}
        if kind in INTEGERS and not given <= {*INTEGERS, "bool"}:
            raise NotUnderstood("floating values in an integer accumulator")
        moved: tuple[Any, ...] = ()
        if x.kind == "best":
            counter = next((p for p, value in x.moved if _is_counter(value, loop)), None)
            if counter is None or counter.type not in INTEGERS:
                raise NotUnderstood("the order of equal elements")
            if any(p.type not in WORDS for p, _ in x.moved):
                raise NotUnderstood("the value tracked with the extreme")
            moved = (counter, *(p for p, _ in x.moved if p is not counter))
        return Accumulator(place, x.kind, kind, extent, x.function, moved)

    # Variables from outside

    def _refuse_kept(self, name: str, loop: s.For) -> None:
        """Unless it is a place for values of one iteration, set anew in each."""
        fresh = _is_fresh(loop, name)
        if not fresh or name in self._referred or _mentions(loop.condition, name):
            raise NotUnderstood(f"a loop-carried dependence through {name}")
        self._refuse_after(name, loop)

    def _refuse_after(self, name: str, loop: s.For) -> None:
        """Unless what the loop leaves in a variable is never looked at."""
        if name in self._referred or live_after(self._body, loop, name):
            raise NotUnderstood(f"{name}, which is used after the loop")

    # Memory

    def _stores(self, loop: s.For, own: set[str]) -> tuple[frozenset[str], tuple[Polynomial, ...]]:
        """Arrays that it stores to, at places that no two iterations share, and what must not be
        negative for that."""
        inside = [a for a in self.facts.accesses if any(_same(o.where, loop) for o in a.loops)]
        if any(_targets(x) for x in loop.body) and not self._are_known(loop, inside):
            raise NotUnderstood("the loop stores to an unknown address")
        stored: set[str] = set()
        demands: dict[Polynomial, None] = {}
        for access in inside:
            if access.kind == "read":
                continue
            if access.space == "local":
                if access.array not in own:
                    raise NotUnderstood(
                        f"iterations that write the same elements of {access.array}"
                    )
                continue
            if access.space not in ("global", "shared", "module") or not access.array:
                raise NotUnderstood("the loop stores to an unknown address")
            stored.add(access.array)
            others = [a for a in inside if self.may_meet(a, access)]
            if access.kind == "atomic":
                if any(a.kind != "atomic" for a in others):
                    raise NotUnderstood(f"{access.array}, which is read outside of its atomics")
                continue
            demands |= dict.fromkeys(self._apart(access, others, loop))
        return frozenset(stored), tuple(demands)

    def _are_known(self, loop: s.For, inside: list[Access]) -> bool:
        """Whether the analysis saw all the stores that the text shows."""
        shown = any(not self.is_private(t) for t in _targets(loop.body))
        return not shown or any(a.kind != "read" for a in inside)

    def _apart(self, store: Access, others: list[Access], loop: s.For) -> tuple[Polynomial, ...]:
        """What must not be negative so that iterations store to different places. Raises
        NotUnderstood where that cannot be said."""
        name = f"{store.array}, to which two iterations may store"
        if any((a.array, a.offset_bytes) != (store.array, store.offset_bytes) for a in others):
            raise NotUnderstood(name)
        around = next(o for o in store.loops if _same(o.where, loop))
        symbol, offset = around.symbol, store.offset_bytes
        parts = None if offset is None else offset.linear_in(symbol)
        if parts is None or not store.element_bytes:
            raise NotUnderstood(name)
        apart, rest = parts
        width = number(store.element_bytes)
        for atom in rest.atoms():
            value = self.facts.unknowns.get(atom.name) if isinstance(atom, Symbol) else None
            inner = next((o for o in store.loops if o.symbol == atom), None)
            if inner is not None and store.loops.index(inner) > store.loops.index(around):
                along = rest.linear_in(inner.symbol)
                if along is None or inner.count is None or not along[0].sure_nonnegative:
                    raise NotUnderstood(name)
                width = width + along[0] * (inner.count - number(1))
            elif value is not None and symbol.name in value.depends:
                raise NotUnderstood(name)
        if _reaches(apart, width):
            return ()
        known = {p.name for p in self.form.kernel.parameters}
        symbols = {a.name if isinstance(a, Symbol) else "" for a in (apart - width).atoms()}
        if not apart.terms or not all(
            n in known or n.startswith(("gridDim.", "blockDim.")) for n in symbols
        ):
            raise NotUnderstood(name)
        return (_smallest(apart - width),)


def _reaches(apart: Polynomial, width: Polynomial) -> bool:
    """Whether one iteration's places end where the next one's begin."""
    size = apart.constant
    if size is not None and width.constant is not None:
        return abs(size) >= width.constant
    return bool(apart.terms) and (apart - width).sure_nonnegative


def _smallest(value: Polynomial) -> Polynomial:
    """Divided by what divides all of it."""
    by = math.gcd(*(coefficient for _, coefficient in value.terms))
    return Polynomial(tuple((m, c // by) for m, c in value.terms)) if by else value


def _same(where: s.Range | None, loop: s.For) -> bool:
    return where is not None and where == loop.where


def _own(body: Any) -> Iterator[Any]:
    """What is below, without what continues of inner loops mean."""
    for x in body:
        yield x
        if not isinstance(x, s.For | s.Do):
            yield from _own(y for y in s.children(x) if isinstance(y, s.Statement))


def _is_continue(x: Any) -> bool:
    return isinstance(x, s.Leave) and x.word == "continue"


def _mentions(node: Any, name: str) -> int:
    return sum(isinstance(x, s.Name) and x.text == name for x in s.below(node))


def _is_fresh(loop: s.For, name: str) -> bool:
    """Whether each iteration sets a variable before it looks at it."""
    if any(_mentions(x, name) for x in (*loop.first, loop.condition, *loop.step) if x is not None):
        return False
    return not live_before(loop.body, name)


def _targets(node: Any) -> list[Any]:
    return [x.target for x in s.below(node) if isinstance(x, s.Assign | s.Step)]


def _pointee(argument: Any) -> Any:
    return (
        argument.operand if isinstance(argument, s.Unary) and argument.operator == "&" else argument
    )


def _aliased(x: Any) -> set[str]:
    """The variable whose address an expression takes, or that a reference means."""
    place = x.target if isinstance(x, s.Refer) else None
    if isinstance(x, s.Unary) and x.operator == "&":
        place = x.operand
    root = None if place is None else root_of(place)
    return set() if root is None else {root}


def _stepped(x: Any) -> tuple[str, Literal["+", "-"], Any] | None:
    """(variable, sign, by how much) of an expression that moves one."""
    match x:
        case s.Step(s.Name(name), by):
            return name, "+" if by > 0 else "-", s.Number(str(abs(by)), type="int")
        case s.Assign(s.Name(name), "+" | "-" as sign, by):
            return name, sign, by
        case s.Assign(s.Name(name), "", s.Binary("+" | "-" as sign, s.Name(same), by)):
            return (name, sign, by) if same == name else None
        case s.Assign(s.Name(name), "", s.Binary("+", by, s.Name(same))):
            return (name, "+", by) if same == name else None
    return None


def _is_counter(value: Any, loop: s.For) -> bool:
    """Whether a value is the loop's counter, which grows."""
    while isinstance(value, s.Cast):
        value = value.operand
    steps = [_stepped(x) for x in loop.step]
    return isinstance(value, s.Name) and any(
        x is not None and x[0] == value.text and x[1] == "+" and isinstance(x[2], s.Number)
        for x in steps
    )
