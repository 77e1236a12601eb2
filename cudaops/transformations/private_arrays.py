"""Arrays of a thread's own, indexed by values: from local memory into shared memory or a register.

An array whose index is not known when the kernel is compiled cannot live in registers; it lives in
local memory, where every access is a load or store through L1. In shared memory each thread gets a
column of its own, such that the lanes of a warp always meet different banks. Few small counters
fit into one register, some bits each, where it is proved how far each can count.

Nothing is shared: a thread touches its own column alone, no barrier is needed, and the elements
keep their type. That holds where every mention of the array is an element of it (its address is
not taken, no row of it is passed on), and where all launches have the block that the columns are
made for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import targets_in
from cudaops.program.analysis.facts import ELEMENT_BYTES, Access
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.polynomials import Symbol
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import FILE, Draft, Step
from cudaops.transformations.shared_memory import (
    block_guards,
    block_of,
    element_of,
    extent,
    is_only_indexed,
    room_for,
    thread_in_block,
)
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.thread_communication import WARP
from cudaops.transformations.trees import changed, swapped

BANK_BYTES = 4
_MOST_UNROLLED = 64
"""Trips of a loop that compilers unroll, such that an index over it is a constant."""
_WORD_BITS = 64


class PrivateArrays:
    """Local memory's arrays, in shared memory or registers."""

    name = "private_arrays"
    title = "per-thread arrays moved out of local memory"
    family: Family = "algorithm"
    relieves = frozenset({
        "stall_lg_throttle", "l1_load_throughput", "stall_long_scoreboard", "register_spills",
        "issue_slots", "low_parallelism", "l2_bandwidth",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """All arrays in shared memory; counters in one register; a few elements chosen among."""
        arrays = _candidates(draft)
        found: list[Setting] = []
        if _fitting(draft, arrays):
            found.append({"into": "shared"})
        if any(_is_countable(draft, a) for a in arrays):
            found.append({"into": "word"})
        return tuple(found)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Every array that it can be done for."""
        arrays = _candidates(draft)
        if not arrays:
            raise NotUnderstood("no local array with a dynamic index")
        if setting["into"] == "shared":
            return _in_shared(draft, arrays, setting)
        return _in_word(draft, arrays, setting)


@dataclass(frozen=True)
class _Array:
    """An array of the kernel that lives in local memory, and may live elsewhere."""

    node: s.Declare
    sizes: tuple[int, ...]
    element_bytes: int

    @property
    def name(self) -> str:
        return self.node.name


def _candidates(draft: Draft) -> tuple[_Array, ...]:
    body = draft.form.kernel.body
    opaque = " ".join(_text_of(draft, x) for x in s.below(body) if isinstance(x, s.Opaque))
    found = []
    for node in s.below(body):
        if isinstance(node, s.Declare) and node.extents and not node.shared and not node.pointer:
            array = _array(draft, node)
            hidden = re.search(rf"\b{re.escape(node.name.partition('#')[0])}\b", opaque)
            if array is None or hidden or not is_only_indexed(draft, node.name, len(array.sizes)):
                continue
            if _is_dynamic(draft, array):
                found.append(array)
    return tuple(found)


def _text_of(draft: Draft, node: s.Opaque) -> str:
    """What a statement that is not modelled says. Raises NotUnderstood."""
    if node.where is None or node.where.file != FILE or node.what in ("goto_stmt", "label_stmt"):
        raise NotUnderstood("a statement that is not modelled")
    return draft.program.main.text.encode()[node.where.start : node.where.end].decode()


def _array(draft: Draft, node: s.Declare) -> _Array | None:
    sizes = [n for e in node.extents if (n := extent(e)) is not None]
    if len(sizes) != len(node.extents):
        return None
    size = (ELEMENT_BYTES | dict(draft.form.sizes)).get(node.type)
    return _Array(node, tuple(sizes), size) if size and size <= 16 else None


def _is_dynamic(draft: Draft, array: _Array) -> bool:
    """Whether it is written, and some index is no constant even once loops are unrolled."""
    if not any(
        element_of(t, array.name, len(array.sizes)) for t in targets_in(draft.form.kernel.body)
    ):
        return False
    return any(_is_by_value(a) for a in draft.facts.touching(array.name) if a.space == "local")


def _is_by_value(access: Access) -> bool:
    if access.offset_bytes is None:
        # An initialiser has no offset: a write that depends on nothing.
        return access.kind != "write" or bool(access.depends)
    short = {
        loop.symbol
        for loop in access.loops
        if loop.trips.constant is not None and loop.trips.constant <= _MOST_UNROLLED
    }
    return any(isinstance(a, Symbol) and a not in short for a in access.offset_bytes.atoms())


# In shared memory


def _fitting(draft: Draft, arrays: Sequence[_Array]) -> tuple[_Array, ...]:
    """As many as there is room for, in the text's order."""
    threads = math.prod(block_of(draft))
    room, found = room_for(draft), []
    for array in arrays:
        size = math.prod(array.sizes) * array.element_bytes * _columns(array, threads)
        if size <= room and s.plain_name(array.name) == array.name:
            room -= size
            found.append(array)
    return tuple(found)


def _columns(array: _Array, threads: int) -> int:
    """Such that warps which share words come together: whole groups of them."""
    group = WARP * max(BANK_BYTES // array.element_bytes, 1)
    return -(-threads // group) * group if group > WARP else threads


def _in_shared(draft: Draft, arrays: Sequence[_Array], setting: Setting) -> Draft:
    fitting = _fitting(draft, arrays)
    if not fitting:
        raise NotUnderstood("no room in shared memory for one column per thread")
    block = block_of(draft)
    body: Any = draft.form.kernel.body
    made: dict[str, RawExpression] = {}
    heads: list[Raw] = []
    for array in fitting:
        at, lines = _column(draft, array, block, made)
        heads += lines
        body = changed(body, _ElementsWith(array, at))
        body = changed(body, _DeclaredShared(draft, array, at, _columns(array, math.prod(block))))
    names = " and ".join(f"`{a.name}`" for a in fitting)
    step = Step(
        "private_arrays", setting,
        f"Moved {names} from local into shared memory, one column per thread, without bank "
        "conflicts.",
    )  # fmt: skip
    return draft.with_body((*heads, *body)).requiring(*block_guards(draft, block)).stepped(step)


def _column(
    draft: Draft, array: _Array, block: tuple[int, int, int], made: dict[str, RawExpression]
) -> tuple[RawExpression, list[Raw]]:
    """Where a thread's elements stand, and the lines that say so before everything else."""
    thread = thread_in_block(block)
    share = max(BANK_BYTES // array.element_bytes, 1)
    if share == 1 and thread == "threadIdx.x":
        return RawExpression(thread, "unsigned"), []
    lines = []
    key = "thread"
    if key not in made and (share > 1 or thread != "threadIdx.x"):
        made[key] = RawExpression(draft.fresh_name("thread"), "int")
        lines.append(Raw(f"const int {made[key].text} = {thread};"))
    if share == 1:
        return made[key], lines
    packed = f"column{array.element_bytes}"
    if packed not in made:
        made[packed] = RawExpression(draft.fresh_name("column" if share == 4 else "column2"), "int")
        t = made[key].text
        lines.append(Raw(
            f"// {share} warps share a row's words, one byte{'s' if share == 2 else ''} "
            f"of each lane's word: a lane keeps its bank.\n".replace("one bytes", "two bytes")
            + f"const int {made[packed].text} = {t} / {WARP * share} * {WARP * share} + "
            f"{t} % {WARP} * {share} + {t} / {WARP} % {share};"
        ))  # fmt: skip
    return made[packed], lines


@dataclass(frozen=True)
class _ElementsWith:
    """Elements of an array with one more index."""

    array: _Array
    at: RawExpression

    def __call__(self, node: Any) -> Any:
        if element_of(node, self.array.name, len(self.array.sizes)) is None:
            return node
        return s.Index(replace(node), self.at, type=node.type)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _DeclaredShared:
    """The declaration, and what the initialiser wrote."""

    draft: Draft
    array: _Array
    at: RawExpression
    columns: int

    def __call__(self, node: Any) -> Any:
        if not isinstance(node, s.Declare) or node.name != self.array.name or not node.extents:
            return node
        declared = replace(
            node, shared=True, value=None, zeroed=False,
            extents=(*node.extents, s.Number(str(self.columns))),
        )  # fmt: skip
        return (declared, *self._initial(node))

    def _initial(self, node: s.Declare) -> Iterator[Raw]:
        name, sizes, at = self.array.name, self.array.sizes, self.at.text
        if node.value is None and not node.zeroed:
            return
        items = node.value.items if isinstance(node.value, s.Values) else ()
        if (items and len(sizes) > 1) or (node.value is not None and not items):
            raise NotUnderstood(f"how {name} begins")
        printer = self.draft.printer()
        for index, item in enumerate(items):
            yield Raw(f"{name}[{index}][{at}] = {printer.expression(item, 2)};")
        if len(items) == sizes[0]:
            return
        at_each = [self.draft.fresh_name(f"{name}_{'ijkl'[n]}") for n in range(len(sizes))]
        place = "".join(f"[{i}]" for i in at_each)
        text = f"{name}{place}[{at}] = {{}};"
        for n in reversed(range(len(sizes))):
            first = len(items) if n == 0 else 0
            i = at_each[n]
            text = f"for (int {i} = {first}; {i} < {sizes[n]}; ++{i}) {text}"
        yield Raw(text)


# In one register


def _is_countable(draft: Draft, array: _Array) -> bool:
    try:
        return bool(_bits(draft, array))
    except NotUnderstood:
        return False


def _bits(draft: Draft, array: _Array) -> int:
    """Of a word that each counter needs. Raises NotUnderstood where it is no array of counters, or
    where they do not fit."""
    if len(array.sizes) != 1 or array.node.type not in INTEGERS:
        raise NotUnderstood(f"{array.name} is not a counter")
    most = _most(draft, array)
    bits = max(most.bit_length(), 1)
    if bits * array.sizes[0] > _WORD_BITS or most >= 1 << (8 * array.element_bytes - 1):
        raise NotUnderstood(f"the counters of {array.name} do not fit into a word")
    return bits


def _most(draft: Draft, array: _Array) -> int:
    """The highest number that one of the counters can reach, by how often the kernel counts."""
    body = draft.form.kernel.body
    resets = _resets(body, array)
    declared = array.node.where
    written = {a.where: a for a in analyse(draft.form).touching(array.name) if a.kind == "write"}
    most = sum(1 for t in targets_in(body) if element_of(t, array.name, 1) is not None)
    most -= len(resets)
    total = 0
    for statement in s.below(body):
        by = _counted(statement, array)
        if by is None:
            continue
        most -= 1
        access = written.get(statement.where)
        if access is None or declared is None:
            raise NotUnderstood(f"an unsupported increment of {array.name}")
        inner = [o for o in access.loops if o.where is not None and not o.where.holds(declared)]
        if any(o.trips.high is None for o in inner):
            raise NotUnderstood(f"an unknown number of increments of {array.name}")
        total += by * math.prod(o.trips.high or 0 for o in inner)
    if most or not (array.node.zeroed or resets):
        raise NotUnderstood(f"{array.name} holds other values than counters")
    return total


def _counted(node: Any, array: _Array) -> int | None:
    """By how much a statement counts one of them up."""
    match node:
        case s.Evaluate(s.Step(target, 1)) if element_of(target, array.name, 1):
            return 1
        case s.Evaluate(s.Assign(target, "+", s.Number() as by)) if element_of(
            target, array.name, 1
        ):
            return s.integer_of(by)
    return None


def _resets(body: Any, array: _Array) -> tuple[s.For, ...]:
    """Loops that set all counters to 0, and do nothing else."""
    found = []
    for loop in s.below(body):
        match loop:
            case s.For(
                (s.Declare(_, i, False, (), False, s.Number(first)),),
                s.Binary("<", s.Name(j), bound),
                (s.Step(s.Name(k), 1),),
                (s.Evaluate(s.Assign(s.Index(s.Name(name), s.Name(at)), "", s.Number(zero))),),
            ) if i == j == k == at and name == array.name and first == zero == "0":
                if extent(bound) == array.sizes[0]:
                    found.append(loop)
    return tuple(found)


def _in_word(draft: Draft, arrays: Sequence[_Array], setting: Setting) -> Draft:
    countable = [a for a in arrays if _is_countable(draft, a)]
    if not countable:
        raise NotUnderstood("no counter array that fits into a register")
    body: Any = draft.form.kernel.body
    for array in countable:
        word = _Word(draft, array, _bits(draft, array))
        for loop in _resets(body, array):
            body = swapped(body, loop, word.reset(loop))
        body = changed(changed(body, word.counting), word.reading)
    says = "; ".join(
        f"packed the {a.sizes[0]} counters of `{a.name}` into a register, "
        f"{_bits(draft, a)} bits each, as none exceeds {_most(draft, a)}"
        for a in countable
    )
    return draft.with_body(body).stepped(
        Step("private_arrays", setting, f"{says[0].upper()}{says[1:]}.")
    )


@dataclass(frozen=True)
class _Word:
    """Counters as bits of one register."""

    draft: Draft
    array: _Array
    bits: int

    @property
    def _type(self) -> str:
        return "unsigned" if self.bits * self.array.sizes[0] <= 32 else "unsigned long long"

    def _shift(self, index: s.Expression) -> s.Expression:
        return s.Binary("*", index, s.Number(str(self.bits)))

    def reset(self, loop: s.For) -> s.Evaluate:
        """In place of a loop that sets all to 0."""
        return s.Evaluate(s.Assign(s.Name(self.array.name), "", s.Number("0")), where=loop.where)

    def counting(self, node: Any) -> Any:
        """The declaration, and what counts up."""
        name = self.array.name
        if isinstance(node, s.Declare) and node.name == name and node.extents:
            return s.Declare(self._type, name, value=s.Number("0"), where=node.where)
        by = _counted(node, self.array)
        if by is None:
            return node
        target = next(t for t in targets_in(node) if element_of(t, name, 1))
        assert isinstance(target, s.Index)
        one = s.Number(f"{by}u" if self._type == "unsigned" else f"{by}ull")
        value = s.Binary("<<", one, self._shift(target.index))
        return replace(node, value=s.Assign(s.Name(name), "+", value))

    def reading(self, node: Any) -> Any:
        """What reads one of them."""
        index = element_of(node, self.array.name, 1)
        if index is None:
            return node
        moved = s.Binary(">>", s.Name(self.array.name), self._shift(index[0]))
        return s.Cast(
            self.array.node.type, s.Binary("&", moved, s.Number(str((1 << self.bits) - 1)))
        )
