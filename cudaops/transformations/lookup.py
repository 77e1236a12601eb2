"""What a dear function makes of small integers, computed once into a table.

`logf(count)`, `(n + 0.5f) * logf(n) - n`, `score(length)`, `sqrtf(dx * dx + dy * dy) / steps`:
thousands of threads take the same logarithm, root, power or function of the program of one or two
integers that are mostly small. A kernel before the author's computes it for the first thousand, or
for the first of both, by the same operations; the author's reads that table, and computes as before
where an integer lies outside.

Legal for all integers: the value depends on them and on constants, and neither it nor a function of
the program that it calls reads memory, writes anything but variables of its own, holds a loop, or
divides integers. It may be computed for integers that no thread has. A variable that holds a value
of integers stands for it where nothing that it is made of has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import is_pure, names_in, plain_variables, root_of, targets_in
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.launch_expression import build
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.functions import FLOATING, computing
from cudaops.transformations.tabulate import is_dear, with_maker, with_tables
from cudaops.transformations.text import with_parameters
from cudaops.transformations.trees import changed, lists_changed, renamed

ENTRIES = (1024, 256, 8192)
"""Of a table: 4 KiB of floats stay in L1 beside other data, 32 KiB hold what counts of a block or a
row may reach. For two integers as many of each as makes no more."""
_MOST_TABLES = 2
_NARROW = frozenset({"char", "signed char", "unsigned char", "short", "unsigned short"})
_WIDE = INTEGERS - _NARROW - {"bool"}
"""Types that an integer keeps when it is computed with; narrow ones become `int`."""
_MOST_KEYS = 2


class Lookup:
    """Tables of functions of one or two integers."""

    name = "lookup"
    title = "lookup table for a function of small integers"
    family: Family = "algorithm"
    relieves = frozenset({"sfu_pipe", "fma_pipe", "fp64_pipe", "issue_slots", "stall_wait"})

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Entries of each table, where there is something to look up."""
        found = next(_entries(_forwarded(draft)), None) is not None
        return tuple({"entries": entries} for entries in ENTRIES) if found else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Each function in a table of its own, the first two of them."""
        entries = int(setting["entries"])
        begun = _forwarded(draft)
        made = with_tables(
            begun, _entries, lambda x, entry: _with_table(x, entry, entries), _MOST_TABLES
        )
        if made is begun:
            raise NotUnderstood("no expensive function of one or two integers")
        says = f"Functions of small integers are read from tables of {entries} at most."
        return made.stepped(Step(self.name, setting, says))


# Variables of such values


def _forwarded(draft: Draft) -> Draft:
    """With the values of integers in place of the variables that hold them; the draft itself where
    that makes nothing to look up."""
    pure, kernel = computing(draft), draft.form.kernel.body
    own = plain_variables(draft.form.kernel)
    fixed = own - {root_of(x) for x in targets_in(kernel)}

    def forward(statements: tuple[Any, ...]) -> tuple[Any, ...]:
        for at, x in enumerate(statements):
            if isinstance(x, s.Declare) and x.name in fixed and _is_held(x, pure):
                rest = statements[at + 1 :]
                if _is_as_it_was(x, rest, own):
                    return (*statements[:at], *forward(renamed(rest, {x.name: x.value})))
        return statements

    body = lists_changed(kernel, forward)
    return draft if body is kernel else draft.with_body(body)


def _is_held(x: s.Declare, pure: frozenset[str]) -> bool:
    """Whether a variable is declared with a dear function of integers."""
    plain = not (x.pointer or x.shared or x.extents) and x.type in FLOATING
    return plain and x.value is not None and bool(_keys(x.value, pure)) and (
        getattr(x.value, "type", "") == x.type and any(is_dear(y) for y in s.below(x.value))
    )  # fmt: skip


def _is_as_it_was(x: s.Declare, rest: tuple[Any, ...], own: frozenset[str]) -> bool:
    """Whether until a variable's last use nothing is written that its value is made of."""
    parts, uses = names_in(x.value), [n for n, y in enumerate(rest) if x.name in names_in(y)]
    for n, y in enumerate(rest[: uses[-1] + 1] if uses else ()):
        match y:
            case s.Evaluate(s.Assign(target, _, value)) if n == uses[-1] and is_pure(
                (target, value)
            ):
                pass  # written after all was read
            case s.Declare(name=name, value=value, shared=False) if name not in parts and (
                value is None or is_pure(value)
            ):
                pass
            case s.Evaluate(s.Assign(s.Name(target), _, value)) if (
                target in own - parts and is_pure(value)
            ):
                pass
            case _:
                return False
    return bool(uses)


# Which values


@dataclass(frozen=True)
class _Entry:
    """One table."""

    value: s.Expression
    """One of the places that are looked up."""
    keys: tuple[s.Expression, ...]
    """The integers in it, in the order in which they stand there."""
    is_turned: bool
    """The first of two changes more often than the second: neighbours in the table differ in it."""


def _entries(draft: Draft) -> Iterator[_Entry]:
    """Largest expressions first, in the text's order; one of two integers only where something
    dear in it is made of both."""
    pure = computing(draft)

    def below(node: Any, changing: frozenset[str]) -> Iterator[_Entry]:
        keys = _keys(node, pure) if getattr(node, "type", "") in FLOATING else ()
        if keys and any(is_dear(x) and len(_keys(x, pure)) == len(keys) for x in s.below(node)):
            often = [bool(names_in(key) & changing) for key in keys]
            yield _Entry(node, keys, often == [True, False])
            return
        if isinstance(node, s.For):
            declared = {x.name for x in s.below(node) if isinstance(x, s.Declare)}
            written = {root_of(x) or "" for x in targets_in(node)}
            changing = frozenset(declared | written)
        for child in s.children(node):
            yield from below(child, changing)

    yield from below(draft.form.kernel.body, frozenset())


def _keys(node: Any, pure: frozenset[str]) -> tuple[s.Expression, ...]:
    """The one or two integers that an expression depends on; none where it is more, or others."""
    keys: list[s.Expression] = []
    found = _depends(node, pure, keys, narrow=True) and len(keys) <= _MOST_KEYS
    return tuple(keys) if found else ()


def _depends(node: Any, pure: frozenset[str], keys: list[s.Expression], *, narrow: bool) -> bool:
    """Whether it depends on constants and on integers alone, which are put into `keys`. `narrow`:
    whether those may be of a type that they lose when they are computed with."""
    if isinstance(node, s.Number):
        return True
    kind = getattr(node, "type", "")
    if kind in INTEGERS:
        taken = (kind in _WIDE or (narrow and kind in _NARROW)) and is_pure(node)
        if taken and node not in keys:
            keys.append(node)
        return taken
    match node:
        case s.Call(function, arguments) if function in PURE or function in pure:
            parts: tuple[Any, ...] = arguments
            narrow = function not in pure
        case s.Binary("+" | "-" | "*" | "/", left, right):
            parts, narrow = (left, right), True
        case s.Unary("-" | "+", operand) | s.Cast(operand=operand):
            parts, narrow = (operand,), True
        case _:
            return False
    return kind in FLOATING and all(_depends(x, pure, keys, narrow=narrow) for x in parts)


def _key_types(draft: Draft, value: Any, keys: tuple[Any, ...]) -> tuple[str, ...]:
    """In which types the integers are looked up: that of the parameter that one is given to, else
    their own."""
    if isinstance(value, s.Call) and value.arguments == keys:
        function = draft.form.function(value.function)
        types = tuple(p.type for p in function.parameters) if function is not None else ()
        if types and all(x in _WIDE for x in types):
            return types
    kinds = (str(getattr(key, "type", "")) for key in keys)
    return tuple("int" if x in _NARROW else x for x in kinds)


# The table


def _with_table(draft: Draft, entry: _Entry, entries: int) -> Draft:
    kind, kernel, printer = getattr(entry.value, "type", ""), draft.form.kernel, draft.printer()
    types = _key_types(draft, entry.value, entry.keys)
    base = draft.subject.kernel.plain_name
    looked, maker = draft.fresh_name(f"{base}_looked_up"), draft.fresh_name(f"{base}_values")
    table, lent = draft.fresh_name("values"), draft.fresh_name("values_bytes")
    names = [draft.fresh_name(x) for x in ("at", "and_at")[: len(types)]]

    def at_keys(value: Any, keys: tuple[Any, ...]) -> Any:
        known = [(k, s.Name(n, type=of)) for k, n, of in zip(keys, names, types, strict=True)]
        for key, name in sorted(known, key=lambda of: -sum(1 for _ in s.below(of[0]))):
            value = changed(value, partial(_swap, key, name))
        return value

    pattern = at_keys(entry.value, entry.keys)
    value = printer.expression(pattern)
    side = entries if len(names) == 1 else math.isqrt(entries)
    given = [f"{of} {name}" for of, name in zip(types, names, strict=True)]
    small = " && ".join(f"(unsigned long long){name} < {side}" for name in names)
    index, made, count = _order(given, names, side, is_turned=entry.is_turned)
    text = (
        f"__device__ __forceinline__ {kind} {looked}({', '.join(given)}, "
        f"const {kind}* __restrict__ {table})\n{{\n"
        f"    return {small} ? {table}[{index}] : {value};\n}}\n\n"
        f"__global__ void {maker}({kind}* {table})\n{{\n{made[0]}"
        f"    if ({made[1]} < {count}) {table}[{made[1]}] = {value};\n}}"
    )
    pure = computing(draft)

    def look_up(x: Any) -> Any:
        keys = _keys(x, pure) if getattr(x, "type", "") == kind else ()
        if len(keys) != len(types) or _key_types(draft, x, keys) != types:
            return x
        return s.Call(looked, (*keys, s.Name(table)), type=kind) if (
            at_keys(x, keys) == pattern
        ) else x  # fmt: skip

    header = with_parameters(printer.header, [f"const {kind}* __restrict__ {table}"])
    edited = draft.with_body(changed(kernel.body, look_up), header).adding(text)
    size = build(count) * ELEMENT_BYTES[kind]
    return with_maker(edited, maker, (), build(count), lent, size)


def _swap(key: Any, name: Any, x: Any) -> Any:
    return name if x == key else x


def _order(
    given: list[str], names: list[str], side: int, *, is_turned: bool
) -> tuple[str, tuple[str, str], int]:
    """Where in its table a value stands; how the thread that makes it knows its integers, with its
    own number; and how many there are."""
    thread = "blockIdx.x * blockDim.x + threadIdx.x"
    if len(names) == 1:
        return names[0], (f"    const {given[0]} = {thread};\n", names[0]), side
    slow, fast = (1, 0) if is_turned else (0, 1)
    lines = (
        f"    const int thread = {thread};\n    const {given[slow]} = thread / {side};\n"
        f"    const {given[fast]} = thread % {side};\n"
    )
    return f"{names[slow]} * {side} + {names[fast]}", (lines, "thread"), side * side
