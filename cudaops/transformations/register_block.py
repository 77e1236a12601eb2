"""Several outputs a thread along one part of an index that the kernel takes apart.

A kernel over one flat index takes it apart into the places of its output:

    t = blockIdx.x * blockDim.x + threadIdx.x;  x = t % w;  y = t / w % h;  c = t / (w * h);

Each of these is a part, `t / stride % extent`. Neighbours in `t` share no operands; neighbours in
one part may: the channels of a convolution have one window, the rows of a product one column. With
fewer threads, whose number `u` is taken apart as `t` was but for the chosen part, which has an
extent of `ceil(extent / factor)` there:

    part = u / stride % groups * factor + item
    t = (u / (stride * groups) * extent + part) * stride + u % stride

Over all `u` below their count and all items, `t` is every index of the author's once, and where
sizes do not divide some that an item's guard leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number, of, symbol
from cudaops.program.expressions import parse
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.blocks import without_unused
from cudaops.transformations.conduct import (
    conduct,
    effects_in,
    functions_say,
    local_variables,
    pure_functions,
    refuse_exchange,
)
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.items import Spread
from cudaops.transformations.places import AXES, Places, builtins_in
from cudaops.transformations.predication import has_return, leaves, without_returns
from cudaops.transformations.ranges import holds, in_order, launch_text
from cudaops.transformations.serial import continued, item_loop, own_parameters
from cudaops.transformations.serial_blocks import modified
from cudaops.transformations.text import with_parameters
from cudaops.transformations.trees import (
    changed,
    names_in,
    renamed,
    root_of,
    targets_in,
)
from cudaops.transformations.variables import Variables

_FACTORS = (4, 2, 8)
_MOST_SETTINGS = 6
_LARGEST = 2**31 - 1
_MOST_ROWS = 65_535
"""Blocks along y and z."""
_FLAT = "@flat"
"""The author's flat index, while it is told apart from everything else."""
_WORDS = ("int", "unsigned", "long long", "unsigned long long")
_ONE = number(1)
_DEEPEST = 16


class RegisterBlock:
    """Several outputs for each thread along one part of a flat index: rows, columns or channels.
    What does not depend on that part is computed and loaded once for them."""

    name = "register_block"
    title = "several outputs a thread along one dimension"
    family: Family = "tiling"
    relieves = frozenset({
        "l1_load_throughput", "l2_bandwidth", "stall_lg_throttle", "stall_long_scoreboard",
        "issue_slots", "integer_pipe", "stall_wait", "many_waves", "dram_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Parts that the fewest loads depend on first; the one whose neighbours are adjacent in
        memory last."""
        conduct(draft)
        found: list[tuple[int, Setting]] = []
        for axis in AXES:
            try:
                flat = _FlatIndex(draft, axis)
            except NotUnderstood:
                continue
            for nth, part in enumerate(sorted(flat.parts, key=flat.promise)):
                long = [f for f in _FACTORS if flat.may_hold(part, f)]
                found += [
                    (nth + rank, {"axis": axis, "part": flat.parts.index(part), "factor": f})
                    for rank, f in enumerate(long)
                ]
        found.sort(key=lambda ranked: ranked[0])
        return tuple(setting for _, setting in found[:_MOST_SETTINGS])

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Raises NotUnderstood where the index is used otherwise, or threads deal with others."""
        flat = _FlatIndex(draft, str(setting["axis"]))
        if not 0 <= int(setting["part"]) < len(flat.parts):
            raise NotUnderstood("no such part of the index")
        part, factor = flat.parts[int(setting["part"])], int(setting["factor"])
        for spread in (True, False):
            edited = _Blocking(flat, part, factor).draft(spread=spread)
            if edited is None:
                continue
            name = flat.name_of(part) or "one part of its index"
            says = f"A thread does {factor} outputs along {name}."
            done = edited.stepped(Step(self.name, setting, says))
            try:
                _ = done.form
            except NotUnderstood:
                continue
            return done
        raise NotUnderstood("what came of it")


# Reading


@dataclass(frozen=True)
class _Part:
    """`t / stride % extent`; without an extent where nothing is above it."""

    stride: Polynomial
    extent: Polynomial | None


@dataclass
class _Reach:
    """Which indices a kernel does something for."""

    before: list[Any]
    """Declarations ahead of the work."""
    work: list[Any]
    tested: s.Expression | None = None
    """What is compared: the index, or its highest part; None where nothing is."""
    limit: s.Expression | None = None
    loop: s.For | None = None
    """A grid-stride loop around the work."""
    is_left: bool = False
    """The others leave: `if (t >= n) return;`."""


@dataclass
class _FlatIndex:
    """A kernel whose place on one axis is taken apart. Raises NotUnderstood for any other."""

    draft: Draft
    axis: str
    spelled: dict[str, s.Expression] = field(default_factory=dict)
    """By the names that strides and extents have in polynomials."""

    def __post_init__(self) -> None:
        draft = self.draft
        if functions_say(draft) or not conduct(draft).is_alone:
            raise NotUnderstood("threads that talk to their block")
        body: Any = own_parameters(draft, draft.form.kernel.body)
        self.places = Places.of(draft, body, self.axis)
        found: list[Any] = []

        def hold(place: Any) -> Any:
            found.append(place)
            return s.Name(_FLAT, type=place.type)

        body = self.places.replaced(body, hold, totals=True)
        if not found:
            raise NotUnderstood("no place in the grid")
        self.place: s.Expression = found[0]
        self.total: int | None = None
        """Threads of the grid, where the kernel says so as a literal."""
        body = _once_assigned(draft, body)
        self.variables = Variables(body)
        self.reach = self._reach(body)
        if f"gridDim.{self.axis}" in builtins_in((*self.reach.before, *self.reach.work)):
            raise NotUnderstood("the grid's size other than in a grid-stride loop")
        self.type = self.place.type
        self.index = ""
        """The author's variable that is the index; empty where there is none."""
        self._find_index()
        self.body = (*self.reach.before, *self.reach.work)
        self.parts = self._parts()
        sizes = [x for _, p in self.taken_apart(self.body) for x in (p.stride, p.extent)]
        atoms = {a for x in (*sizes, self.limit()) if x is not None for a in x.atoms()}
        self.names = sorted(a.name for a in atoms if isinstance(a, Symbol))
        """Of all sizes that matter, in polynomials."""
        if not self.parts:
            raise NotUnderstood("an index that is not taken apart")

    # Bounds

    def _reach(self, body: Sequence[Any]) -> _Reach:
        pure, local = pure_functions(self.draft), set(local_variables(body))
        at = next(
            (i for i, x in enumerate(body)
             if not isinstance(x, s.Declare) or effects_in(x, local, pure)), len(body),
        )  # fmt: skip
        before, rest = list(body[:at]), list(body[at:])
        is_last = len(rest) == 1
        match rest[0] if rest else None:
            case s.If(condition, (s.Leave("return"),), ()):
                found = self._bound(condition, "||", ">=", "<=")
                if found is not None:
                    tested, limit, others = found
                    others = [replace(rest[0], condition=others, where=None)] if others else []
                    return _Reach(before, [*others, *rest[1:]], tested, limit, is_left=True)
            case s.If(condition, yes, ()) if is_last:
                found = self._bound(condition, "&&", "<", ">")
                if found is not None:
                    tested, limit, others = found
                    work = [s.If(others, yes)] if others else list(yes)
                    return _Reach(before, work, tested, limit)
            case s.For() as loop if is_last and (name := self._strided(loop)):
                assert isinstance(loop.condition, s.Binary)
                flat = s.Name(_FLAT, type=self._type_of(name))
                work = list(_once_assigned(self.draft, renamed(_ended(loop.body), {name: flat})))
                self.variables = Variables((*before, *work))
                return _Reach(before, work, flat, loop.condition.right, loop)
        return _Reach(before, rest)

    def _bound(
        self, condition: Any, joint: str, operator: str, flipped: str
    ) -> tuple[s.Expression, s.Expression, Any] | None:
        """The index or its highest part, what it is compared with, and the rest of the condition;
        None where there is no such comparison."""
        terms = list(_joined(condition, joint))
        for nth, term in enumerate(terms):
            for left, right, wanted in (("left", "right", operator), ("right", "left", flipped)):
                if not isinstance(term, s.Binary) or term.operator != wanted:
                    continue
                tested, limit = getattr(term, left), getattr(term, right)
                part = self.part(tested)
                if part is None or part.extent is not None or self.size(limit) is None:
                    continue
                others = [x for i, x in enumerate(terms) if i != nth]
                rest = others[0] if others else None
                for x in others[1:]:
                    rest = s.Binary(joint, rest, x, type="bool")  # type: ignore[arg-type]
                return tested, limit, rest
        return None

    def _strided(self, loop: s.For) -> str:
        """The variable of `for (int i = t; i < n; i += all threads)`; empty for another loop."""
        match loop.first, loop.condition, loop.step:
            case (
                (s.Declare(_, name, value=first),),
                s.Binary("<", s.Name(tested), limit),
                (s.Assign(s.Name(stepped), "+", total),),
            ) if name == tested == stepped and self._is_total(total):
                stays = not modified(self.draft, loop.body, {name, *names_in(limit)})
                begins = self.part(first) == _Part(_ONE, None)
                if begins and stays and not has_return(loop) and self._is_independent(loop):
                    return name if self.size(limit) is not None else ""
        return ""

    def _is_total(self, node: Any) -> bool:
        """Whether it is the number of all threads, also as a literal."""
        if self.places.is_total(node):
            return True
        size = self.size(node)
        counts = [self.draft.value(f"{root}.{self.axis}") for root in ("gridDim", "blockDim")]
        if size is None or None in counts or size.constant != counts[0] * counts[1]:  # type: ignore[operator]
            return False
        self.total = size.constant
        return True

    def _is_independent(self, loop: s.For) -> bool:
        """Whether an iteration leaves the next one nothing in variables."""
        inside = {x.name for x in s.below(loop.body) if isinstance(x, s.Declare | s.Refer)}
        outside = names_in(loop.body) - inside
        roots = {root_of(x) for x in targets_in(loop.body)}
        return None not in roots and not modified(self.draft, loop.body, outside)

    def _type_of(self, name: str) -> str:
        return next(x.type for x in s.below(self.draft.form.kernel.body)
                    if isinstance(x, s.Declare) and x.name == name)  # fmt: skip

    def _find_index(self) -> None:
        """The variable that stands for the index, and the type that it is computed in."""
        if self.reach.loop is not None:
            declared = self.reach.loop.first[0]
            assert isinstance(declared, s.Declare)
            self.index, self.type = declared.name, declared.type
            return
        for x in (*self.reach.before, *self.reach.work):
            if _FLAT in names_in(x):
                whole = isinstance(x, s.Declare) and self.part(x.value) == _Part(_ONE, None)
                if whole and x.type in _WORDS and not self.variables.is_changed(x.name):
                    self.index, self.type = x.name, x.type
                return

    def limit(self) -> Polynomial | None:
        """How many indices there is something to do for; None where all threads have something."""
        if self.reach.tested is None or self.reach.limit is None:
            return None
        tested, size = self.part(self.reach.tested), self.size(self.reach.limit)
        assert tested is not None
        assert size is not None
        return tested.stride * size

    def tests(self, part: _Part | None) -> bool:
        """Whether it bounds this part, rather than the index; None: any part."""
        if self.reach.tested is None:
            return False
        tested = self.part(self.reach.tested)
        return tested != _Part(_ONE, None) if part is None else tested == part

    # Parts

    def part(self, node: Any) -> _Part | None:
        """What it takes out of the index; None for anything else."""
        match node:
            case s.Name(text) if text == _FLAT:
                return _Part(_ONE, None)
            case s.Name(text) if node.type in _WORDS:
                value = self.variables.value(text)
                return None if value is None else self.part(value)
            case s.Cast(kind, operand) if kind in _WORDS:
                return self.part(operand)
            case s.Binary("/" | "%" as operator, left, right):
                return self._taken(self.part(left), operator, right)
            case s.Binary("-", left, s.Binary("*", one, other)):
                for below, by in ((one, other), (other, one)):
                    part = self.part(below)
                    if part is not None and self._taken(self.part(left), "/", by) == part:
                        return self._taken(self.part(left), "%", by)
        return None

    def _taken(self, part: _Part | None, operator: str, size: Any) -> _Part | None:
        by = self.size(size) if part is not None else None
        if part is None or by is None:
            return None
        if part.extent is None:
            return _Part(part.stride * by, None) if operator == "/" else _Part(part.stride, by)
        left = over(part.extent, by)
        if left is None:
            return None
        return _Part(part.stride * by, left) if operator == "/" else _Part(part.stride, by)

    def size(self, node: Any) -> Polynomial | None:
        """A number of the launch as a product, one symbol a factor; None for any other."""
        match node:
            case s.Number():
                value = s.integer_of(node)
                return None if value is None or value < 1 else number(value)
            case s.Cast(kind, operand) if kind in INTEGERS:
                return self.size(operand)
            case s.Binary("*", left, right):
                sides = self.size(left), self.size(right)
                return None if sides[0] is None or sides[1] is None else sides[0] * sides[1]
            case s.Name(text) if (value := self.variables.value(text)) is not None:
                found = self.size(value)
                only = next((a for a in found.atoms() if found == of(a)), None) if found else None
                if isinstance(only, Symbol):
                    self.spelled[only.name] = node
                return found
        if getattr(node, "type", "") not in INTEGERS or self._plan(node) is None:
            return None
        worth = self.variables.polynomial(node)
        key_text = repr(node) if worth is None else worth.text()
        self.spelled.setdefault(key_text, node)
        return symbol(key_text)

    def _plan(self, node: Any) -> str | None:
        return launch_text(self.draft, node, self.variables.value)

    def says(self, size: Polynomial) -> str:
        """As an expression of plans."""

        def spell(name: str) -> str:
            return _closed(self._plan(self.spelled[name]) or "")

        return size.text(spell)

    def expression(self, *sizes: Polynomial) -> s.Expression | None:
        """A product as one of the kernel; None for 1."""
        found: s.Expression | None = None
        for size in sizes:
            (factors, scale), *_ = size.terms
            names = [self.spelled[a.name] for a in factors]  # type: ignore[union-attr]
            numbers = [s.Number(str(scale), type="int")] if scale != 1 else []
            for x in (*names, *numbers):
                found = x if found is None else s.Binary("*", found, x, type=self.type)
        return found

    def taken_apart(self, node: Any) -> Iterator[tuple[Any, _Part]]:
        """Expressions that are parts, the outermost of each."""
        waiting = [node]
        while waiting:
            at = waiting.pop()
            found = self.part(at) if not isinstance(at, s.Name) else None
            if found is not None and found != _Part(_ONE, None):
                yield at, found
            else:
                waiting.extend(s.children(at))

    def _parts(self) -> tuple[_Part, ...]:
        found = list(dict.fromkeys(part for _, part in self.taken_apart(self.body)))
        bounded = {x.stride for x in found if x.extent is not None}
        tops = [x for x in found if x.extent is None]
        kept = [
            x for x in found
            if x.extent is not None or (
                x.stride not in bounded
                and not any(y is not x and over(y.stride, x.stride) is not None for y in tops)
            )
        ]  # fmt: skip
        return tuple(sorted(kept, key=lambda x: (_degree(x.stride), repr(x))))

    # Which is promising

    def promise(self, part: _Part) -> tuple[int, bool, int]:
        """The smaller the more is shared by neighbours in a part. What the lanes of a warp read in
        different places counts twice: one place for all is one access."""
        shared = 0
        for x in s.below(self.body):
            if isinstance(x, s.Index) and self._is_memory(x):
                found = self._depends(x.index, 0)
                declared = self.variables.declared(root_of(x) or "")
                found |= self._depends(declared.value, 0) if declared is not None else set()
                shared += (part not in found) * (1 + (self.parts[0] in found))
        return -shared, part.stride == _ONE, self.parts.index(part)

    def _is_memory(self, node: s.Index) -> bool:
        root = root_of(node) or ""
        declared = self.variables.declared(root)
        return declared is None or declared.pointer

    def _depends(self, node: Any, deep: int) -> set[_Part]:
        """Parts that an expression is made of, through variables that keep their value."""
        found: set[_Part] = set()
        waiting = [node]
        while waiting:
            at = waiting.pop()
            part = self.part(at)
            if part is not None:
                found.add(part)
            elif not isinstance(at, s.Name):
                waiting.extend(s.children(at))
            elif deep < _DEEPEST and (value := self.variables.value(at.text)) is not None:
                found |= self._depends(value, deep + 1)
        return found

    def may_hold(self, part: _Part, factor: int) -> bool:
        """Whether the part is that long in all launches."""
        return part.extent is None or holds(self.draft, (f"{self.says(part.extent)} >= {factor}",))

    def name_of(self, part: _Part) -> str:
        """What its author calls it; empty where it has no name."""
        named = (x.name for x in s.below(self.body)
                 if isinstance(x, s.Declare) and x.value is not None
                 and self.part(x.value) == part)  # fmt: skip
        return _plain(next(named, ""))


def _once_assigned(draft: Draft, body: Sequence[Any]) -> tuple[Any, ...]:
    """With a variable for each value of an integer that is divided where it stands, `t /= w`: of
    those that are assigned in this list of statements alone."""
    lines: list[Any] = []
    now: dict[str, s.Name] = {}
    waiting = _divided(draft, body)
    taken: set[str] = set()
    for x in body:
        x = renamed((x,), now)[0]
        match x:
            case s.Evaluate(s.Assign(s.Name(text) as target, operator, value)):
                name = next((n for n in waiting if now.get(n, s.Name(n)).text == text), None)
                if name is not None:
                    stem, nth = _plain(name), 1
                    while (fresh := draft.free(f"{stem}_{nth}")) in taken:
                        nth += 1
                    taken.add(fresh)
                    whole = s.Binary(operator, target, value, type=target.type)
                    lines.append(
                        s.Declare(waiting[name], fresh, value=whole if operator else value)
                    )
                    now[name] = s.Name(fresh, type=target.type)
                    continue
        lines.append(x)
    return tuple(lines)


def _divided(draft: Draft, body: Sequence[Any]) -> dict[str, str]:
    """Variables that this list declares, divides and assigns, with their types."""
    found = {}
    for nth, x in enumerate(body):
        if not isinstance(x, s.Declare) or x.type not in _WORDS or x.pointer or x.value is None:
            continue
        later = body[nth + 1 :]
        assigned = [
            y.value for y in later
            if isinstance(y, s.Evaluate) and isinstance(y.value, s.Assign)
            and y.value.target == s.Name(x.name)
        ]  # fmt: skip
        divides = any(
            a.operator == "/" or (isinstance(a.value, s.Binary) and a.value.operator == "/")
            for a in assigned
        )
        rest = tuple(
            y for y in later
            if not (isinstance(y, s.Evaluate) and any(y.value is a for a in assigned))
        )  # fmt: skip
        inner = tuple(a.value for a in assigned)
        if divides and not modified(draft, (*rest, *inner), {x.name}):
            found[x.name] = x.type
    return found


def _ended(body: Sequence[Any]) -> tuple[Any, ...]:
    """A loop's body as if it were a function's: `return` for `continue`. Raises NotUnderstood where
    it leaves the loop."""
    lines: list[Any] = []
    for x in body:
        match x:
            case s.Leave("continue"):
                x = replace(x, word="return", where=None)
            case s.Leave():
                raise NotUnderstood("a grid-stride loop that is left early")
            case s.If(_, yes, no):
                new = _ended(yes), _ended(no)
                x = x if new == (yes, no) else replace(x, yes=new[0], no=new[1])
            case s.Block(inner):
                x = replace(x, body=_ended(inner))
            case s.Switch() if leaves((x,)):
                raise NotUnderstood("a jump out of a switch")
        lines.append(x)
    return tuple(lines)


def _joined(condition: Any, joint: str) -> Iterator[Any]:
    if isinstance(condition, s.Binary) and condition.operator == joint:
        yield from _joined(condition.left, joint)
        yield from _joined(condition.right, joint)
    else:
        yield condition


def over(size: Polynomial, by: Polynomial) -> Polynomial | None:
    """The exact quotient of two products; None where there is none."""
    found = divide(size, by)
    return (
        found if all(isinstance(a, Symbol) for a in found.atoms()) and found * by == size else None
    )


def _degree(size: Polynomial) -> tuple[int, int]:
    (factors, scale), *_ = size.terms
    return len(factors), scale


# Writing


class _Blocking:
    """Several outputs along one part."""

    def __init__(self, flat: _FlatIndex, part: _Part, factor: int) -> None:
        self._flat, self._part, self._factor = flat, part, factor
        self._draft = flat.draft
        self._header = self._draft.printer().header
        self._arguments: list[str] = []
        self._requires: list[str] = []
        self._item = self._name("item", "int")
        self._thread = self._name("thread")
        self._first = self._name(f"{flat.name_of(part) or 'part'}_first")
        self._index = s.Name(flat.index or self._draft.free("index"), type=flat.type)
        self._index_first = self._name(f"{_plain(self._index.text)}_first")
        self._measure()

    def _name(self, wanted: str, kind: str = "") -> s.Name:
        return s.Name(self._draft.free(wanted), type=kind or self._flat.type)

    # How much there is

    def _measure(self) -> None:
        """Sizes, as expressions of plans: groups of the part, and threads that have work."""
        flat, part, says = self._flat, self._part, self._flat.says
        for name in flat.names:
            self._requires.append(f"{says(symbol(name))} >= 1")
        axis = flat.axis
        whole = " * ".join(self._draft.says(f"{root}.{axis}") for root in ("gridDim", "blockDim"))
        limit, self._limit = flat.limit(), whole
        if flat.total is not None:
            self._requires.append(f"{whole} == {flat.total}")
        if limit is not None:
            self._limit = says(limit)
            self._requires.append(f"{self._limit} >= 1")
        if limit is not None and flat.reach.loop is None:
            self._requires.append(f"{whole} >= {self._limit}")
        row = part.stride if part.extent is None else part.stride * part.extent
        self._is_whole = self._divides(limit, self._limit, row)
        length = self._quotient_text(limit, self._limit, part.stride, exact=self._is_whole)
        extent = over(limit, part.stride) if limit is not None else None
        if part.extent is not None:
            length, extent = says(part.extent), part.extent
        factor = number(self._factor)
        self._is_even = self._divides(extent, length, factor)
        self._groups = self._quotient_text(extent, length, factor, exact=self._is_even)
        count = [*([says(part.stride)] if part.stride != _ONE else []), self._groups]
        if part.extent is not None:
            count.append(self._quotient_text(limit, self._limit, row, exact=self._is_whole))
        self._count = _folded(" * ".join(map(_closed, count)) if len(count) > 1 else count[0])
        self._requires.append(f"{_closed(self._count)} * {self._factor} <= {_LARGEST}")

    def _quotient_text(
        self, size: Polynomial | None, text: str, by: Polynomial, *, exact: bool
    ) -> str:
        """A size over another as plans say it, rounded up unless it is exact."""
        found = over(size, by) if size is not None else None
        if found is not None:
            return self._flat.says(found)
        divisor = self._flat.says(by)
        if exact:
            return _folded(f"{_closed(text)} / {_closed(divisor)}")
        return _folded(f"ceil_div({text}, {divisor})")

    def _divides(self, size: Polynomial | None, text: str, by: Polynomial) -> bool:
        """Whether a size is a multiple in all launches, by what it is or by a condition."""
        if size is not None and over(size, by) is not None:
            return True
        condition = f"{_closed(text)} % {_closed(self._flat.says(by))} == 0"
        if not holds(self._draft, in_order([(*self._requires, condition)])):
            return False
        self._requires.append(condition)
        return True

    def _given(self, hint: str, text: str) -> s.Expression:
        """What the launch knows, in the kernel: a number, or a further parameter."""
        if text.isdigit():
            return s.Number(text, type="int")
        name = self._name(hint)
        if name.text not in self._header:
            self._header = with_parameters(self._header, [f"const {name.type} {name.text}"])
            self._arguments.append(text)
        return name

    # The body

    def draft(self, *, spread: bool) -> Draft | None:
        """The whole; None where it cannot be spread over the statements."""
        flat, draft = self._flat, self._draft
        self._groups_given = self._given("groups", self._groups)
        body = self._one_output()
        item, factor = self._item.text, self._factor
        refuse_exchange(draft)
        if spread:
            try:
                work = Spread(
                    draft, without_returns(body), item, factor, pure_functions(draft),
                    growing=(self._index.text,),
                )  # fmt: skip
                lines = work.statements()
            except NotUnderstood:
                return None
        else:
            lines = item_loop(item, factor, continued(body))
        count = self._given("threads", self._count)
        edited = draft.with_body(self._for_threads(lines, count), self._header)
        at = AXES.index(flat.axis)
        grid = list(draft.launch.grid)
        blocks = f"ceil_div({self._count}, {draft.says(f'blockDim.{flat.axis}')})"
        grid[at] = blocks if flat.reach.loop is None else f"min({grid[at]}, {blocks})"
        if flat.places.literal_in(draft.form.kernel.body):
            width = draft.says(f"blockDim.{flat.axis}")
            self._requires.append(f"{width} == {flat.places.width}")
        if flat.axis != "x":
            self._requires.append(f"{blocks} <= {_MOST_ROWS}")
        if not holds(draft, in_order([tuple(self._requires)])):
            raise NotUnderstood("launches that the author's threads do not cover")
        edited = edited.launched(grid=tuple(grid), args=(*draft.launch.args, *self._arguments))
        return edited.requiring(*in_order([tuple(self._requires)]))

    def _for_threads(self, lines: Sequence[Any], count: s.Expression) -> tuple[Any, ...]:
        """What the threads do that have work."""
        reach, kind, thread = self._flat.reach, self._flat.type, self._thread
        if (loop := reach.loop) is not None:
            first = (s.Declare(kind, thread.text, value=self._flat.place),)
            (step,) = loop.step
            assert isinstance(step, s.Assign)
            step = replace(step, target=thread)
            if self._flat.total is not None:
                extents = (s.Member(s.Name(x), self._flat.axis) for x in ("blockDim", "gridDim"))
                step = replace(step, value=s.Binary("*", *extents))
            inside = s.Binary("<", thread, count)
            return (s.For(first, inside, (step,), tuple(lines)),)
        declared = s.Declare(f"const {kind}", thread.text, value=self._flat.place)
        if reach.is_left:
            leave = s.If(s.Binary(">=", thread, count), (s.Leave("return"),))
            return (declared, leave, *lines)
        return (declared, s.If(s.Binary("<", thread, count), tuple(lines)))

    def _one_output(self) -> tuple[Any, ...]:
        """What is done for one item."""
        flat = self._flat
        prelude = self._prelude()
        before = [x for x in flat.reach.before if x not in prelude]
        work = [x for x in flat.reach.work if x not in prelude]
        news: dict[int, Any] = {}
        for node, part in flat.taken_apart((*before, *work)):
            if (new := self._in_place_of(node, part)) is not None:
                news[id(node)] = new
        place = s.Binary("*", self._item, x) if (x := flat.expression(self._part.stride)) else (
            self._item
        )  # fmt: skip
        index = s.Declare(
            flat.type, self._index.text, value=s.Binary("+", self._index_first, place)
        )

        def own(x: Any) -> Any:
            if isinstance(x, s.Declare) and x.name == flat.index:
                return replace(x, value=index.value)
            return s.Name(self._index.text, type=x.type) if x == s.Name(_FLAT) else x

        stands = any(isinstance(x, s.Declare) and x.name == flat.index for x in (*before, *work))
        before, work = (
            list(changed(changed(tuple(x), lambda x: news.get(id(x), x)), own))
            for x in (before, work)
        )
        lines = [*prelude, *self._firsts(), *([] if stands else [index]), *before]
        guards = self._guards()
        if not guards:
            return tuple(without_unused([*lines, *work]))
        condition = guards[0] if len(guards) == 1 else s.Binary("&&", *guards, type="bool")
        return tuple(without_unused([*lines, s.If(condition, tuple(without_unused(work)))]))

    def _prelude(self) -> list[Any]:
        """Declarations that sizes are said with."""
        flat = self._flat
        waiting = names_in(tuple(flat.spelled[name] for name in flat.names))
        if flat.reach.limit is not None:
            waiting |= names_in(flat.reach.limit)
        needed: set[str] = set()
        while waiting:
            name = waiting.pop()
            declared = flat.variables.declared(name)
            if declared is not None and name not in needed:
                needed.add(name)
                waiting |= names_in(declared.value)
        found = [x for x in flat.body if isinstance(x, s.Declare) and x.name in needed]
        if len(found) != len(needed):
            raise NotUnderstood("a size that is computed further inside")
        return found

    def _firsts(self) -> tuple[s.Declare, s.Declare]:
        """The part and the index of the first item."""
        flat, part, kind = self._flat, self._part, f"const {self._flat.type}"
        own = self._quotient(part.stride)
        if part.extent is not None:
            own = self._binary("%", own, self._groups_given)
        own = self._binary("*", own, s.Number(str(self._factor), type="int"))
        index: s.Expression = self._first
        if part.extent is not None:
            above = self._quotient(part.stride, self._groups_given)
            above = self._binary("*", above, flat.expression(part.extent))
            index = self._binary("+", above, index)
        if (stride := flat.expression(part.stride)) is not None:
            index = self._binary("*", index, stride)
            index = self._binary("+", index, self._binary("%", self._thread, stride))
        return (
            s.Declare(kind, self._first.text, value=own),
            s.Declare(kind, self._index_first.text, value=index),
        )

    def _binary(self, operator: str, left: Any, right: Any) -> s.Expression:
        return s.Binary(operator, left, right, type=self._flat.type)

    def _quotient(self, size: Polynomial, groups: s.Expression | None = None) -> s.Expression:
        """The thread's number over a size, times as many groups."""
        if isinstance(groups, s.Number):
            size, groups = size * number(int(groups.text)), None
        by = self._flat.expression(size)
        if groups is not None:
            by = groups if by is None else self._binary("*", by, groups)
        return self._thread if by is None else self._binary("/", self._thread, by)

    def _in_place_of(self, node: Any, part: _Part) -> s.Expression | None:
        """A part by the thread's number; None where it takes the whole index."""
        flat, mine = self._flat, self._part
        if part == mine:
            return self._binary("+", self._first, self._item)
        if part.extent is not None and over(mine.stride, part.stride * part.extent) is not None:
            if isinstance(node, s.Binary) and node.operator == "-":
                return self._binary("%", self._quotient(part.stride), flat.expression(part.extent))
            plain: s.Expression = flat.variables.inlined(node, {_FLAT: self._thread})
            return plain
        if mine.extent is None:
            return None
        above = over(part.stride, mine.stride * mine.extent)
        if above is None:
            return None
        found = self._quotient(mine.stride * above, self._groups_given)
        if part.extent is not None:
            found = self._binary("%", found, flat.expression(part.extent))
        return found

    def _guards(self) -> list[s.Expression]:
        """Conditions under which there is an output for an item."""
        flat, part = self._flat, self._part
        found: list[s.Expression] = []
        if part.extent is not None and not self._is_even:
            own = self._binary("+", self._first, self._item)
            extent = flat.expression(part.extent)
            assert extent is not None
            found.append(s.Binary("<", own, extent, type="bool"))
        if self._is_whole and (part.extent is not None or self._is_even):
            return found
        if part.extent is None and flat.tests(part):
            own = self._binary("+", self._first, self._item)
            assert flat.reach.limit is not None
            return [s.Binary("<", own, flat.reach.limit, type="bool")]
        limit = flat.reach.limit
        if limit is None or flat.tests(None):
            limit = self._given("outputs", self._limit)
        found.append(s.Binary("<", self._index, limit, type="bool"))
        return found


def _plain(name: str) -> str:
    return name.partition("#")[0]


def _closed(text: str) -> str:
    """In parentheses unless it is one name, number or call, or has them."""
    name = re.match(r"[\w.]*", text)
    assert name is not None
    depth = 0
    for at, x in enumerate(text[name.end() :]):
        depth += (x == "(") - (x == ")")
        if depth == 0:
            return text if name.end() + at + 1 == len(text) and x == ")" else f"({text})"
    return text


def _folded(text: str) -> str:
    """A number where it names nothing."""
    found = parse(text)
    return text if found.names() else str(found.evaluate({}))
