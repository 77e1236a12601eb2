"""An index that a kernel takes apart: which expressions are parts of it, and how far it goes.

    t = blockIdx.x * blockDim.x + threadIdx.x;  x = t % w;  y = t / w % h;  c = t / (w * h);

Each of these is a part, `t / stride % extent`, where strides and extents are products of the
launch's own numbers. Parts may stand in any expression and go through variables that keep their
value: `r = t / w; y = r % h; x = t - r * w`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_early_exit,
    has_effects,
    has_return,
    local_variables,
    names_in,
    pure_functions,
    root_of,
    targets_in,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.polynomials import Polynomial, Symbol, divide, number, of, symbol
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.places import GlobalThreadIndex, builtins_in
from cudaops.transformations.ranges import launch_expression
from cudaops.transformations.serial import own_parameters
from cudaops.transformations.thread_communication import functions_say, thread_communication
from cudaops.transformations.trees import renamed
from cudaops.transformations.variables import Variables

FLAT = "@flat"
"""The author's flat index, while it is told apart from everything else."""
ONE = number(1)
_WORDS = ("int", "unsigned", "long long", "unsigned long long")
_DEEPEST = 16


@dataclass(frozen=True)
class Part:
    """`t / stride % extent`; without an extent where nothing is above it."""

    stride: Polynomial
    extent: Polynomial | None


@dataclass
class FlatBound:
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
class FlatIndex:
    """A kernel whose place on one axis is taken apart. Raises NotUnderstood for any other."""

    draft: Draft
    axis: str
    spelled: dict[str, s.Expression] = field(default_factory=dict)
    """By the names that strides and extents have in polynomials."""

    def __post_init__(self) -> None:
        draft = self.draft
        if functions_say(draft) or not thread_communication(draft).is_alone:
            raise NotUnderstood("a barrier or shared-memory communication within the block")
        body: Any = own_parameters(draft, draft.form.kernel.body)
        self.places = GlobalThreadIndex.of(draft, body, self.axis)
        found: list[Any] = []

        def hold(place: Any) -> Any:
            found.append(place)
            return s.Name(FLAT, type=place.type)

        body = self.places.replaced(body, hold, totals=True)
        if not found:
            raise NotUnderstood("no global thread index")
        self.place: s.Expression = found[0]
        self.total: int | None = None
        """Threads of the grid, where the kernel says so as a literal."""
        body = _once_assigned(draft, body)
        self.variables = Variables(draft, body)
        self.reach = self._reach(body)
        if f"gridDim.{self.axis}" in builtins_in((*self.reach.before, *self.reach.work)):
            raise NotUnderstood("use of the grid size outside of a grid-stride loop")
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
            raise NotUnderstood("an index that is not decomposed")

    # Bounds

    def _reach(self, body: Sequence[Any]) -> FlatBound:
        pure, local = pure_functions(self.draft.form), set(local_variables(body))
        at = next(
            (i for i, x in enumerate(body)
             if not isinstance(x, s.Declare) or has_effects(x, local, pure)), len(body),
        )  # fmt: skip
        before, rest = list(body[:at]), list(body[at:])
        is_last = len(rest) == 1
        match rest[0] if rest else None:
            case s.If(condition, (s.Leave("return"),), ()):
                found = self._bound(condition, "||", ">=", "<=")
                if found is not None:
                    tested, limit, others = found
                    others = [replace(rest[0], condition=others, where=None)] if others else []
                    return FlatBound(before, [*others, *rest[1:]], tested, limit, is_left=True)
            case s.If(condition, yes, ()) if is_last:
                found = self._bound(condition, "&&", "<", ">")
                if found is not None:
                    tested, limit, others = found
                    work = [s.If(others, yes)] if others else list(yes)
                    return FlatBound(before, work, tested, limit)
            case s.For() as loop if is_last and (name := self._strided(loop)):
                assert isinstance(loop.condition, s.Binary)
                flat = s.Name(FLAT, type=self._type_of(name))
                work = list(_once_assigned(self.draft, renamed(_ended(loop.body), {name: flat})))
                self.variables = Variables(self.draft, (*before, *work))
                return FlatBound(before, work, flat, loop.condition.right, loop)
        return FlatBound(before, rest)

    def _bound(
        self, condition: Any, joint: str, operator: str, flipped: str
    ) -> tuple[s.Expression, s.Expression, Any] | None:
        """The index or its highest part, what it is compared with, and the rest of the condition;
        None where there is no such comparison."""
        terms = list(s.joined_by(condition, joint))
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
                stays = not (
                    changed_variables(loop.body, self.draft.form) & {name, *names_in(limit)}
                )
                begins = self.part(first) == Part(ONE, None)
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
        return None not in roots and not (changed_variables(loop.body, self.draft.form) & outside)

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
            if FLAT in names_in(x):
                whole = isinstance(x, s.Declare) and self.part(x.value) == Part(ONE, None)
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

    def tests(self, part: Part | None) -> bool:
        """Whether it bounds this part, rather than the index; None: any part."""
        if self.reach.tested is None:
            return False
        tested = self.part(self.reach.tested)
        return tested != Part(ONE, None) if part is None else tested == part

    # Parts

    def part(self, node: Any) -> Part | None:
        """What it takes out of the index; None for anything else."""
        match node:
            case s.Name(text) if text == FLAT:
                return Part(ONE, None)
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

    def _taken(self, part: Part | None, operator: str, size: Any) -> Part | None:
        by = self.size(size) if part is not None else None
        if part is None or by is None:
            return None
        if part.extent is None:
            return Part(part.stride * by, None) if operator == "/" else Part(part.stride, by)
        left = over(part.extent, by)
        if left is None:
            return None
        return Part(part.stride * by, left) if operator == "/" else Part(part.stride, by)

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
        if getattr(node, "type", "") not in INTEGERS or self._launched(node) is None:
            return None
        worth = self.variables.polynomial(node)
        key_text = repr(node) if worth is None else worth.text()
        self.spelled.setdefault(key_text, node)
        return symbol(key_text)

    def _launched(self, node: Any) -> LaunchExpression | None:
        return launch_expression(self.draft, node, self.variables.value)

    def launch_expression(self, size: Polynomial) -> LaunchExpression:
        """What the host computes for it."""

        def of(name: str) -> LaunchExpression:
            found = self._launched(self.spelled[name])
            assert found is not None  # `size` asked
            return found

        return size.launch_expression(of)

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

    def taken_apart(self, node: Any) -> Iterator[tuple[Any, Part]]:
        """Expressions that are parts, the outermost of each."""
        waiting = [node]
        while waiting:
            at = waiting.pop()
            found = self.part(at) if not isinstance(at, s.Name) else None
            if found is not None and found != Part(ONE, None):
                yield at, found
            else:
                waiting.extend(s.children(at))

    def _parts(self) -> tuple[Part, ...]:
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

    def promise(self, part: Part) -> tuple[int, bool, int]:
        """The smaller the more is shared by neighbours in a part. What the lanes of a warp read in
        different places counts twice: one place for all is one access."""
        shared = 0
        for x in s.below(self.body):
            if isinstance(x, s.Index) and self._is_memory(x):
                found = self._depends(x.index, 0)
                declared = self.variables.declared(root_of(x) or "")
                found |= self._depends(declared.value, 0) if declared is not None else set()
                shared += (part not in found) * (1 + (self.parts[0] in found))
        return -shared, part.stride == ONE, self.parts.index(part)

    def _is_memory(self, node: s.Index) -> bool:
        root = root_of(node) or ""
        declared = self.variables.declared(root)
        return declared is None or declared.pointer

    def _depends(self, node: Any, deep: int) -> set[Part]:
        """Parts that an expression is made of, through variables that keep their value."""
        found: set[Part] = set()
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

    def may_hold(self, part: Part, factor: int) -> bool:
        """Whether the part is that long in all launches."""
        if part.extent is None:
            return True
        return self.draft.holds(self.launch_expression(part.extent) >= factor)

    def name_of(self, part: Part) -> str:
        """What its author calls it; empty where it has no name."""
        named = (x.name for x in s.below(self.body)
                 if isinstance(x, s.Declare) and x.value is not None
                 and self.part(x.value) == part)  # fmt: skip
        return s.plain_name(next(named, ""))


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
                    stem, nth = s.plain_name(name), 1
                    while (fresh := draft.fresh_name(f"{stem}_{nth}")) in taken:
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
        if divides and not (changed_variables((*rest, *inner), draft.form) & {x.name}):
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
                raise NotUnderstood("a grid-stride loop with an early exit")
            case s.If(_, yes, no):
                new = _ended(yes), _ended(no)
                x = x if new == (yes, no) else replace(x, yes=new[0], no=new[1])
            case s.Block(inner):
                x = replace(x, body=_ended(inner))
            case s.Switch() if has_early_exit((x,)):
                raise NotUnderstood("a jump out of a switch")
        lines.append(x)
    return tuple(lines)


def over(size: Polynomial, by: Polynomial) -> Polynomial | None:
    """The exact quotient of two products; None where there is none."""
    found = divide(size, by)
    return (
        found if all(isinstance(a, Symbol) for a in found.atoms()) and found * by == size else None
    )


def _degree(size: Polynomial) -> tuple[int, int]:
    (factors, scale), *_ = size.terms
    return len(factors), scale
