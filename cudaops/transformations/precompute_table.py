"""What many threads compute alike, computed once for each of its few values, ahead of the kernel.

`gamma[c] / sqrtf(var[c] + eps)` of a channel `c = i / size % channels`, `powf(base, k / d)` of a
column, a root of the block's own number: thousands of threads take the same division, root or
power of one integer that has few values. A small kernel before the author's computes it for every
value, by the same operations; the author's reads a table. What depends on the launch alone is a
table of one.

Legal because the expression is pure, its variables are declared once and never changed, and the
integer is never negative and below a number that the launch gives. Arithmetic may be done for
values that no thread has. What is read of memory is read only where some thread of the author's
reads it too: nothing in the launch writes it, the integer is the block's number, or the remainder
of the thread's place (or of what of it is divided by a number of the launch), and the conditions
around the expression hold for threads of all its values, which the launch is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.launch_expression import ONE, LaunchExpression, maximum, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.aliasing import Memory
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.functions import FLOATING
from cudaops.transformations.places import (
    AXES,
    GlobalThreadIndex,
    builtin,
    threads_along,
    through_casts,
)
from cudaops.transformations.ranges import Proof, Ranges
from cudaops.transformations.tabulate import (
    MOST_ENTRIES,
    arguments_of,
    is_dear,
    parameter_list,
    with_maker,
    with_tables,
)
from cudaops.transformations.text import Raw, with_parameters
from cudaops.transformations.trees import changed

_USES = 8
"""So many threads must share an entry, at the captured launches."""
_MOST_TABLES = 4
_OWN = ("threadIdx", "blockIdx")


class PrecomputeTable:
    """Tables of what depends on one integer of few values, or on the launch alone."""

    name = "precompute_table"
    title = "precomputed values shared by threads"
    family: Family = "algorithm"
    relieves = frozenset({
        "sfu_pipe", "fma_pipe", "fp64_pipe", "issue_slots", "stall_wait", "integer_pipe",
        "register_spills", "stall_long_scoreboard",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is something."""
        return ({},) if next(_Search(draft).entries(), None) is not None else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them, each in a table of its own."""
        made = with_tables(draft, lambda x: _Search(x).entries(), _with_table, _MOST_TABLES)
        if made is draft:
            raise NotUnderstood("no expensive expression of one integer with few values")
        says = "Values that many threads compute identically are precomputed by a separate kernel."
        return made.stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Entry:
    """One table."""

    value: s.Expression
    key: s.Expression | None
    """The integer that it depends on; None for the launch alone."""
    needed: tuple[s.Declare, ...]
    """Variables that the value is computed from, in the text's order."""
    count: LaunchExpression
    """Values that the integer may have."""
    proof: Proof


@dataclass
class _Seen:
    """What an expression is computed from."""

    needed: dict[str, s.Declare]
    reads: bool = False


class _Search:
    """For what may stand in a table."""

    def __init__(self, draft: Draft) -> None:
        kernel = draft.form.kernel
        self._draft, self._body = draft, kernel.body
        self._ranges, self._memory = Ranges(draft), Memory(draft)
        self._numbers = {
            p.name for p in kernel.parameters
            if not p.is_pointer and p.name in self._ranges.single_assignment and p.size_bytes <= 8
        }  # fmt: skip
        self._pointers = {p.name for p in kernel.parameters if p.is_pointer}
        self._declared = {x.name: x for x in s.below(kernel.body) if isinstance(x, s.Declare)}

    def entries(self) -> Iterator[_Entry]:
        """In the text's order, outer expressions before those in them; those that others are
        computed from come last."""
        found = list(self._largest(self._body))
        inner = {id(y) for x in found for d in x.needed for y in s.below(d)}
        yield from (x for x in found if id(x.value) not in inner)
        yield from (x for x in found if id(x.value) in inner)

    def _largest(self, node: Any) -> Iterator[_Entry]:
        entry = self._entry(node)
        if entry is not None:
            yield entry
            return
        for child in s.children(node):
            yield from self._largest(child)

    def _entry(self, node: Any) -> _Entry | None:
        kind = getattr(node, "type", "")
        parts = s.Binary | s.Call | s.Unary | s.Cast
        if not isinstance(node, parts) or kind not in FLOATING or not is_pure(node):
            return None
        seen = _Seen({})
        keys = self._keys(node, seen)
        if keys is None or len(keys) > 1:
            return None
        values = [node, *(x.value for x in seen.needed.values())]
        names = {n for v in values for n in names_in(v)} | set(seen.needed)
        key = keys[0] if keys else None
        names |= set() if key is None else names_in(key)
        if not any(is_dear(x) for x in s.below(tuple(values))) or self._is_hidden(names):
            return None
        bounds = self._bounds(key, node, reads=seen.reads)
        if bounds is None or not self._pays(*bounds):
            return None
        needed = tuple(x for n, x in self._declared.items() if n in seen.needed)
        return _Entry(node, key, needed, *bounds)

    def _is_hidden(self, names: set[str]) -> bool:
        """Whether one of these may mean another variable somewhere in the text."""
        plain = {s.plain_name(n) for n in self._declared if "#" in n}
        return any(s.plain_name(n) in plain for n in names)

    # What it depends on

    def _keys(self, node: Any, seen: _Seen) -> list[s.Expression] | None:
        """Integers of a thread's or block's own, of which it is computed; None where there is more
        to it."""
        match node:
            case s.Number(constant=name) if name:
                return self._local(name, seen)
            case s.Name(text):
                if text in self._numbers or text in ("true", "false"):
                    return []
                return self._local(text, seen)
            case s.Member(s.Name(root), _) if root in s.BUILTINS:
                return [node] if root in _OWN else None
            case s.Index(s.Name(text), index):
                if text not in self._pointers or not self._memory.is_read_only(text):
                    return None
                seen.reads = True
                return self._keys(index, seen)
            case s.Index() | s.Member() | s.Unary("*" | "&"):
                return None
            case s.Binary("%", left, right, type=kind) if (
                kind in INTEGERS and self._ranges.launched(right) is not None
                and self._keys(left, _Seen({}))
            ):  # fmt: skip
                return [node]
            case s.Binary("/" | "%", _, by, type=kind) if kind in INTEGERS:
                if not isinstance(by, s.Number) or by.text.rstrip("uUlL") in ("0", "0x0"):
                    return None
        found: list[s.Expression] = []
        for child in s.children(node):
            keys = self._keys(child, seen)
            if keys is None:
                return None
            found += [k for k in keys if k not in found]
        return found

    def _local(self, name: str, seen: _Seen) -> list[s.Expression] | None:
        """Of a variable: itself, where it is an integer made of several, or a remainder."""
        value, declared = self._ranges.value_of(name), self._declared.get(name)
        if value is None or declared is None or declared.pointer or declared.extents:
            return None
        inner = _Seen({})
        keys = self._keys(value, inner) if is_pure(value) else None
        if declared.type in INTEGERS:
            is_remainder = keys is not None and keys == [through_casts(value)]
            if keys is None or len(keys) > 1 or (is_remainder and not builtin(keys[0])):
                return [s.Name(name, type=declared.type)]
        if keys is None:
            return None
        seen.needed |= {**inner.needed, name: declared}
        seen.reads |= inner.reads
        return keys

    # How many there are

    def _bounds(
        self, key: s.Expression | None, node: Any, *, reads: bool
    ) -> tuple[LaunchExpression, Proof] | None:  # fmt: skip
        """How many values the integer has, and what that needs."""
        if key is None:
            return None if reads else (ONE, ())
        low, most = self._ranges.nonnegative(key), self._ranges.upper(key)
        if low is None or most is None:
            return None
        proof = (*low, *most[1])
        if not reads:
            return most[0] + 1, proof
        found = self._reached(key, node)
        return None if found is None else (found[0], (*proof, *found[1]))

    def _reached(self, key: s.Expression, node: Any) -> tuple[LaunchExpression, Proof] | None:
        """The same where every value is one of a thread that comes by the expression."""
        if not _comes_by(self._body, node):
            return None
        shape = self._shape(self._ranges.expanded(key))
        if shape is None:
            return None
        place, last, count, proof = shape
        met = self._ranges.reached_by(node, place, last)
        return None if met is None else (count, (*proof, *met))

    def _shape(
        self, key: s.Expression
    ) -> tuple[s.Expression, LaunchExpression, LaunchExpression, Proof] | None:
        """What of a thread the integer is made of, the largest that is looked at, and how many
        values that gives."""
        said = builtin(key)
        if said:
            root, _, axis = said.partition(".")
            extent = self._draft.launch_expression(
                f"{'gridDim' if root == 'blockIdx' else 'blockDim'}.{axis}"
            )
            return key, extent - 1, extent, ()
        match key:
            case s.Binary("%", s.Binary("/", place, by), number):
                step, positive = self._ranges.launched(by), self._ranges.most(by, 1)
            case s.Binary("%", place, number):
                step, positive = ONE, ()
            case _:
                return None
        count, least = self._ranges.launched(number), self._ranges.most(number, 1)
        total = self._total(place)
        if step is None or count is None or total is None or positive is None or least is None:
            return None
        last = count - 1 if step == ONE else (count - 1) * step
        return place, last, count, (*positive, *least, last < total)

    def _total(self, place: s.Expression) -> LaunchExpression | None:
        """How many threads there are along an axis, where it is their number."""
        for axis in AXES:
            if GlobalThreadIndex.of(self._draft, self._body, axis).is_place(place):
                return threads_along(self._draft, axis)
        return None

    def _pays(self, count: LaunchExpression, proof: Proof) -> bool:
        extents = (*self._draft.launch.grid, *self._draft.launch.block)
        return self._draft.holds(*proof, count <= MOST_ENTRIES, count * _USES <= product(extents))


def _comes_by(body: Sequence[Any], node: Any) -> bool:
    """Whether nothing but conditions stands around an expression, which is computed whenever its
    statement is reached."""
    for x in body:
        if not any(y is node for y in s.below(x)):
            continue
        match x:
            case s.If(condition, yes, no):
                inner = _is_sure(condition, node)
                return inner or _comes_by(yes, node) or _comes_by(no, node)
            case s.Block(statements):
                return _comes_by(statements, node)
            case s.Declare(value=value) | s.Evaluate(value):
                return _is_sure(value, node)
        return False
    return False


def _is_sure(x: Any, node: Any) -> bool:
    """Whether a part of an expression is computed with it."""
    if x is node:
        return True
    match x:
        case s.Binary("&&" | "||", left, _):
            return _is_sure(left, node)
        case s.Choice(condition):
            return _is_sure(condition, node)
    return any(_is_sure(y, node) for y in s.children(x))


# The table


def _with_table(draft: Draft, entry: _Entry) -> Draft:
    kind, kernel, printer = getattr(entry.value, "type", ""), draft.form.kernel, draft.printer()
    table, lent = draft.fresh_name("ahead"), draft.fresh_name("ahead_bytes")
    maker = draft.fresh_name(f"{draft.subject.kernel.plain_name}_ahead")
    used = [
        p.name for p in kernel.parameters
        if p.name in names_in((*entry.needed, entry.value))
    ]  # fmt: skip
    text = _maker(draft, entry, maker, table, used)
    at = s.Number("0") if entry.key is None else entry.key
    load = s.Index(s.Name(table), at, type=kind)
    body = changed(kernel.body, lambda x: load if _is(x, entry.value) else x)
    body = _without(body, {x.name for x in entry.needed})
    header = with_parameters(printer.header, [f"const {kind}* __restrict__ {table}"])
    edited = draft.with_body(body, header).adding(text)
    least = ONE if entry.key is None else maximum(entry.count, 1)
    size = least * ELEMENT_BYTES[kind]
    edited = with_maker(
        edited, maker, (*arguments_of(draft, used), least), least, lent, size
    )  # fmt: skip
    limit = () if entry.key is None else (entry.count <= MOST_ENTRIES,)
    return edited.requiring(*entry.proof, *limit)


def _without(body: Any, names: set[str]) -> Any:
    """Without declarations of those of these variables that nothing mentions any more."""
    while gone := names - names_in(body) & names:
        body = changed(body, lambda x: () if isinstance(x, s.Declare) and x.name in gone else x)
        names = names - gone
    return body


def _is(node: Any, value: s.Expression) -> bool:
    return node is value or (
        isinstance(node, type(value)) and node.where is not None and node.where == value.where
        and node == value
    )  # fmt: skip


def _maker(draft: Draft, entry: _Entry, name: str, table: str, used: Sequence[str]) -> str:
    """The kernel that fills the table."""
    printer, kind = draft.printer(), getattr(entry.value, "type", "")
    count, at = draft.fresh_name("entries"), draft.fresh_name("entry")
    key, of = entry.key, getattr(entry.key, "type", "int")
    plain = key.text if isinstance(key, s.Name) else at
    body: list[Any] = [
        Raw(f"const {of if entry.key else 'int'} {plain} = blockIdx.x * blockDim.x + threadIdx.x;"),
        Raw(f"if ({plain} >= {count}) return;"),
    ]

    def change(x: Any) -> Any:
        return s.Name(plain, type=of) if key is not None and x == key else x

    body += [changed(x, change) for x in entry.needed]
    value = printer.expression(changed(entry.value, change))
    body.append(Raw(f"{table}[{plain}] = {value};"))
    listed = [*parameter_list(draft, used), f"int {count}", f"{kind}* {table}"]
    lines = printer.statements(body, 1)
    return f"__global__ void {name}({', '.join(listed)})\n{{\n{lines}\n}}"
