"""What every thread computes alike in every turn of a loop, computed once into a table.

In a loop whose turns the launch gives, an expression of the turn's number, of numbers of the launch
and of arrays that nothing in the launch writes is the same for all threads. A small kernel before
the author's computes it for every turn into scratch memory, by the same operations; the loop reads
the table. Taken where it holds a division, a root or another function that costs more than a load.

Legal because the expression is pure, its variables are declared once and never changed, and what
it reads of memory is read by the author's own first thread in every turn: the loop is not left
early, the place is under no condition within it, and those around the loop are met by the first
thread, which the launch is asked for. Arithmetic alone may be computed where the author would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    is_pure,
    may_write,
    names_in,
    plain_variables,
    reads_memory,
)
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.expressions import folded
from cudaops.program.launch_expression import (
    ONE,
    ZERO,
    LaunchExpression,
    Variable,
    build,
    ceil_div,
    maximum,
    product,
)
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, DraftLaunch, Step
from cudaops.transformations.functions import FLOATING
from cudaops.transformations.ranges import Proof, Ranges
from cudaops.transformations.text import Raw, with_parameters
from cudaops.transformations.trees import bodies_of, changed

Entry = TypeVar("Entry")

THREADS = 128
MOST_ENTRIES = 1 << 20
_MOST_TABLES = 4
_CHEAP = frozenset({
    "abs", "fabs", "fabsf", "min", "max", "fmin", "fminf", "fmax", "fmaxf", "fma", "fmaf", "__ldg",
    "floor", "floorf", "ceil", "ceilf", "trunc", "truncf", "rint", "rintf", "float", "double",
    "int", "unsigned", "make_float2", "make_float3", "make_float4", "make_int2", "make_int3",
    "__int_as_float", "__float_as_int", "__mul24", "__umul24", "signbit", "copysignf",
})  # fmt: skip
"""Functions that cost no more than a load."""


class Tabulate:
    """Tables of what depends on a loop's turn alone."""

    name = "tabulate"
    title = "precomputed table shared by all threads"
    family: Family = "algorithm"
    relieves = frozenset({
        "sfu_pipe", "fma_pipe", "fp64_pipe", "issue_slots", "stall_wait", "integer_pipe",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is something."""
        return ({},) if next(_entries(draft), None) is not None else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them, each in a table of its own."""
        made = with_tables(draft, _entries, _with_table, _MOST_TABLES)
        if made is draft:
            raise NotUnderstood("no expensive loop that is identical in all threads")
        says = "Values that depend only on the iteration are computed once, into a table."
        return made.stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Turns:
    """A loop that counts up by one between numbers of the launch."""

    loop: s.For
    variable: str
    type: str
    start: s.Expression
    bound: s.Expression
    is_included: bool
    """Whether the bound itself is reached."""
    before: tuple[str, str, s.Expression] | None = None
    """A variable that holds the turn before: its name, type, and value in the first turn."""
    count: LaunchExpression = ZERO
    """How many; not negative."""


@dataclass(frozen=True)
class _Entry:
    """One table."""

    value: s.Expression
    turns: tuple[_Turns, ...]
    needed: tuple[s.Declare, ...]
    """Variables that the value is computed from, in the text's order."""
    proof: Proof


def _entries(draft: Draft) -> Iterator[_Entry]:
    ranges, memory = Ranges(draft), Memory(draft)
    search = _Search(draft, ranges, memory)
    for loop, outer in _loops(draft.form.kernel.body, ()):
        turns = _turns(draft, ranges, loop)
        if turns is None:
            continue
        around = tuple(t for o in outer if (t := _turns(draft, ranges, o)) is not None)
        yield from search.of_loop(turns, around, is_alone=not outer)


def _loops(body: Any, outer: tuple[s.For, ...]) -> Iterator[tuple[s.For, tuple[s.For, ...]]]:
    for statement in body:
        inner = (*outer, statement) if isinstance(statement, s.For) else outer
        if isinstance(statement, s.Do | s.Switch):
            continue
        if isinstance(statement, s.For):
            yield statement, outer
        for each in bodies_of(statement):
            yield from _loops(each, inner)


def _turns(draft: Draft, ranges: Ranges, loop: s.For) -> _Turns | None:
    """None for a loop that counts in another way."""
    match loop.condition:
        case s.Binary("<" | "<=" as operator, s.Name(variable, type=kind), bound):
            pass
        case _:
            return None
    before = ""
    match loop.step:
        case (s.Step(s.Name(text), 1),) if text == variable:
            pass
        case (s.Assign(s.Name(before), "", s.Step(s.Name(text), 1, gives_old=True)),) if (
            text == variable
        ):
            pass
        case _:
            return None
    plain = plain_variables(draft.form.kernel)
    start = _began(draft, loop, variable)
    names = {variable, before} - {""}
    if start is None or not names <= plain or kind not in INTEGERS:
        return None
    if any(may_write(x, names, draft.form) for x in loop.body):
        return None
    ends = ranges.launched(bound), ranges.launched(start)
    if ends[0] is None or ends[1] is None:
        return None
    found = None
    if before:
        first = _began(draft, loop, before)
        if first is None or ranges.launched(first) is None:
            return None
        found = (before, kind, first)
    return _Turns(
        loop, variable, kind, start, bound, operator == "<=", found,
        _counted(_minus(bound, start), ends[0], ends[1], int(operator == "<=")),
    )  # fmt: skip


def _counted(
    apart: s.Expression, bound: LaunchExpression, start: LaunchExpression, more: int
) -> LaunchExpression:
    """Turns, never negative. `apart`: how far the bound is from the start."""
    known = _whole(apart)
    if known is not None:
        return build(max(known + more, 0))
    turns = bound if start == ZERO else bound - start
    return maximum(turns + 1 if more else turns, 0)


def _began(draft: Draft, loop: s.For, variable: str) -> s.Expression | None:
    """What a variable of a loop holds in its first turn: of its begin, or of its declaration
    where nothing else but the loop writes it."""
    for first in loop.first:
        match first:
            case s.Declare(name=name, value=value) if name == variable:
                return value
            case s.Evaluate(s.Assign(s.Name(name), "", value)) if name == variable:
                return value
    body = draft.form.kernel.body
    declared = [x for x in s.below(body) if isinstance(x, s.Declare) and x.name == variable]
    inside = {id(x) for x in s.below(loop)}
    others = [
        x for x in s.below(body)
        if isinstance(x, s.Assign | s.Step) and id(x) not in inside
        and may_write(x, {variable}, draft.form)
    ]  # fmt: skip
    if len(declared) != 1 or others:
        return None
    again = any(
        any(y is loop for y in s.below(x.body)) and not any(y is declared[0] for y in s.below(x))
        for x in s.below(body) if isinstance(x, s.For | s.Do)
    )  # fmt: skip
    return None if again else declared[0].value


class _Search:
    """For what may stand in a table."""

    def __init__(self, draft: Draft, ranges: Ranges, memory: Memory) -> None:
        self._draft, self._ranges, self._memory = draft, ranges, memory
        kernel = draft.form.kernel
        self._parameters = {
            p.name for p in kernel.parameters
            if p.is_pointer or p.name in ranges.single_assignment
        }  # fmt: skip
        self._pointers = {p.name for p in kernel.parameters if p.is_pointer}

    def of_loop(
        self, turns: _Turns, around: tuple[_Turns, ...], *, is_alone: bool
    ) -> Iterator[_Entry]:  # fmt: skip
        known = {t.variable: t for t in (*around, turns)}
        known |= {t.before[0]: t for t in (*around, turns) if t.before is not None}
        ends = any(isinstance(x, s.Leave) for x in s.below(turns.loop.body))
        for statement in turns.loop.body:
            at_once = isinstance(statement, s.Declare | s.Evaluate) and is_alone and not ends
            for value in self._largest(statement, known):
                entry = self._entry(value, turns, known)
                if entry is None:
                    continue
                if not self._reads(entry):
                    yield entry
                    continue
                proof = self._ranges.reached_first(turns.loop.condition or value)
                if at_once and proof is not None and self._draft.holds(*proof):
                    yield replace(entry, proof=proof)

    def _largest(self, node: Any, known: dict[str, _Turns]) -> Iterator[s.Expression]:
        """Largest expressions that may be tabulated."""
        if isinstance(node, s.For):
            return
        if self._fits(node) and self._closure(node, known) is not None:
            yield node
            return
        for child in s.children(node):
            yield from self._largest(child, known)

    def _fits(self, node: Any) -> bool:
        kind = getattr(node, "type", "")
        if not isinstance(node, s.Binary | s.Call | s.Unary | s.Cast) or kind not in FLOATING:
            return False
        return is_pure(node)

    def _closure(self, node: Any, known: dict[str, _Turns]) -> dict[str, s.Declare] | None:
        """Variables that it is computed from; None where one of them is a thread's own."""
        found: dict[str, s.Declare] = {}
        for name in names_in(node):
            if name in known or name in self._parameters or name in ("true", "false"):
                continue
            value = self._ranges.value_of(name)
            if value is None or not is_pure(value):
                return None
            inner = self._closure(value, known)
            if inner is None:
                return None
            declared = next(
                x for x in s.below(self._draft.form.kernel.body)
                if isinstance(x, s.Declare) and x.name == name
            )  # fmt: skip
            found |= {**inner, name: declared}
        for x in s.below(node):
            if not self._is_harmless(x):
                return None
        return found

    def _is_harmless(self, x: Any) -> bool:
        match x:
            case s.Name(text):
                return text not in s.BUILTINS
            case s.Index(s.Name(text)):
                return text in self._pointers and self._memory.is_read_only(text)
            case s.Index() | s.Unary("*" | "&"):
                return False
            case s.Binary("/" | "%", _, by, type=kind) if kind in INTEGERS:
                return isinstance(by, s.Number) and by.text.rstrip("uUlL") not in ("0", "0x0")
        return True

    def _entry(
        self, value: s.Expression, turns: _Turns, known: dict[str, _Turns]
    ) -> _Entry | None:  # fmt: skip
        closure = self._closure(value, known)
        assert closure is not None
        parts = [value, *(d.value for d in closure.values())]
        if not any(is_dear(x) for x in s.below(tuple(parts))):
            return None
        used = {id(known[n]): known[n] for p in parts for n in names_in(p) if n in known}
        names = {n for p in parts for n in names_in(p)}
        if id(turns) not in used or len({s.plain_name(n) for n in names}) < len(names):
            return None
        order = [t for t in known.values() if id(t) in used]
        return _Entry(value, tuple(dict.fromkeys(order)), tuple(closure.values()), ())

    def _reads(self, entry: _Entry) -> bool:
        return reads_memory((entry.value, *(d.value for d in entry.needed)))


def is_dear(node: Any) -> bool:
    """Whether an operation costs more than a load."""
    match node:
        case s.Binary("/", _, by, type=kind):
            return kind in FLOATING and not isinstance(by, s.Number)
        case s.Call(name):
            return name not in _CHEAP
    return False


# The table


def _with_table(draft: Draft, entry: _Entry) -> Draft:
    kind = getattr(entry.value, "type", "")
    kernel = draft.form.kernel
    table, lent = draft.fresh_name("table"), draft.fresh_name("table_bytes")
    maker = draft.fresh_name(f"{draft.subject.kernel.plain_name}_table")
    printer = draft.printer()
    entries = folded(product(t.count for t in entry.turns))
    limit = entries <= MOST_ENTRIES
    if entries.integer is not None and entries.integer > MOST_ENTRIES:
        raise NotUnderstood("a table that is too large")
    least = folded(maximum(entries, 1))
    text, used = _maker(draft, entry, maker, kind)
    index = _index(entry)
    value = s.Index(s.Name(table), index, type=kind)
    body = changed(kernel.body, lambda x: value if _is(x, entry.value) else x)
    header = with_parameters(printer.header, [f"const {kind}* __restrict__ {table}"])
    edited = draft.with_body(body, header).adding(text)
    size = least * ELEMENT_BYTES[kind]
    arguments = arguments_of(draft, used)
    edited = with_maker(edited, maker, arguments, least, lent, size)
    return edited.requiring(*entry.proof, limit)


def arguments_of(draft: Draft, names: Sequence[str]) -> tuple[LaunchExpression, ...]:
    """What the launch gives for these parameters."""
    known = [p.name for p in draft.form.kernel.parameters]
    return tuple(draft.launch.args[known.index(n)] for n in names)


def parameter_list(draft: Draft, names: Sequence[str]) -> list[str]:
    """These parameters of the kernel as those of another one, which reads what they point to."""
    known = {p.name: p for p in draft.form.kernel.parameters}
    return [
        f"const {known[n].type}* __restrict__ {n}" if known[n].is_pointer
        else f"{known[n].type} {n}" for n in names
    ]  # fmt: skip


def with_tables(
    draft: Draft,
    entries: Callable[[Draft], Iterator[Entry]],
    with_table: Callable[[Draft, Entry], Draft],
    most: int,
) -> Draft:
    """One table after the other, at most so many, each of the first entry of what the one before
    left; the draft itself where there is none."""
    for _ in range(most):
        entry = next(entries(draft), None)
        if entry is None:
            break
        draft = with_table(draft, entry)
    return draft


def with_maker(
    edited: Draft, maker: str, arguments: Sequence[LaunchExpression], entries: LaunchExpression,
    lent: str, size: LaunchExpression,
) -> Draft:  # fmt: skip
    """With a kernel before the launch that fills scratch memory, a thread an entry, and that
    memory as the launch's last argument."""
    grid, memory = (ceil_div(entries, THREADS), ONE, ONE), Variable(lent)
    first = DraftLaunch(maker, grid, (build(THREADS), ONE, ONE), (*arguments, memory))
    edited = edited.launched(args=(*edited.launch.args, memory))
    launches = list(edited.launches)
    launches.insert(edited.focus, first)
    return replace(
        edited, launches=tuple(launches), focus=edited.focus + 1,
        scratch=(*edited.scratch, (lent, size)),
    )  # fmt: skip


def _is(node: Any, value: s.Expression) -> bool:
    return node is value or (
        isinstance(node, type(value)) and node.where is not None and node.where == value.where
        and node == value
    )  # fmt: skip


def _index(entry: _Entry) -> s.Expression:
    """Of this turn, of all loops together."""
    total: s.Expression | None = None
    for t in entry.turns:
        name = s.Name(t.variable, type=t.type)
        at = _minus(name, t.start)
        if total is None:
            total = at
        else:
            total = s.Binary("+", s.Binary("*", total, _count(t)), at, type=t.type)
    assert total is not None
    return total


def _count(t: _Turns) -> s.Expression:
    turns, more = _minus(t.bound, t.start), int(t.is_included)
    if (known := _whole(turns)) is not None:
        return s.Number(str(known + more), type=t.type)
    return s.Binary("+", turns, s.Number("1"), type=t.type) if more else turns


def _minus(a: s.Expression, b: s.Expression) -> s.Expression:
    known = _whole(a), _whole(b)
    if known[0] is not None and known[1] is not None:
        return s.Number(str(known[0] - known[1]), type="int")
    if known[1] == 0:
        return a
    if isinstance(b, s.Unary) and b.operator == "-":
        return s.Binary("+", a, b.operand, type=getattr(a, "type", ""))
    return s.Binary("-", a, b, type=getattr(a, "type", ""))


def _whole(x: s.Expression) -> int | None:
    if isinstance(x, s.Unary) and x.operator == "-":
        inner = _whole(x.operand)
        return None if inner is None else -inner
    return int(x.text) if isinstance(x, s.Number) and x.text.isdigit() else None


def _maker(draft: Draft, entry: _Entry, name: str, kind: str) -> tuple[str, list[str]]:
    """The kernel that fills the table, and the parameters of the draft's that it takes."""
    printer = draft.printer()
    at, table = draft.fresh_name("entry"), draft.fresh_name("table")
    body: list[Any] = [Raw(f"int {at} = blockIdx.x * blockDim.x + threadIdx.x;")]
    counts = [printer.expression(_count(t), 14) for t in entry.turns]
    body.append(Raw(f"if ({at} >= {' * '.join(counts)}) return;"))
    for nth, t in enumerate(entry.turns):
        inner = " * ".join(counts[nth + 1 :])
        this = f"{at} / ({inner})" if inner else at
        this = f"{this} % {counts[nth]}" if nth else this
        start = "" if _whole(t.start) == 0 else f"{printer.expression(t.start, 12)} + "
        body.append(Raw(f"{t.type} {t.variable.partition('#')[0]} = {start}{this};"))
        if t.before is not None:
            before, of, first = t.before
            body.append(Raw(
                f"{of} {before.partition('#')[0]} = {t.variable} > {printer.expression(t.start)}"
                f" ? {t.variable} - 1 : {printer.expression(first)};"
            ))  # fmt: skip
    body += entry.needed
    body.append(Raw(f"{table}[{at}] = {printer.expression(entry.value)};"))
    lines = printer.statements(body, 1)
    used = _used(draft, entry)
    listed = [*parameter_list(draft, used), f"{kind}* {table}"]
    head = f"__global__ void {name}({', '.join(listed)})"
    return f"{head}\n{{\n{lines}\n}}", used


def _used(draft: Draft, entry: _Entry) -> list[str]:
    """Parameters, in the kernel's order."""
    parts: Sequence[Any] = (
        entry.value, *(d.value for d in entry.needed),
        *(x for t in entry.turns for x in (t.start, t.bound)),
        *(t.before[2] for t in entry.turns if t.before is not None),
    )  # fmt: skip
    names = set().union(*(names_in(x) for x in parts))
    return [p.name for p in draft.form.kernel.parameters if p.name in names]
