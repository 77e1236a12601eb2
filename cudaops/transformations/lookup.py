"""What a dear function makes of small integers, computed once into a table.

`logf(count)`, `(n + 0.5f) * logf(n) - n`, `score(length)`: thousands of threads take the same
logarithm, root, power or function of the program of integers that are mostly small. A kernel before
the author's computes it for the first thousand, by the same operations; the author's reads that
table, and computes as before where the integer lies outside.

Legal for every integer: the value depends on one integer and on constants, and neither it nor a
function of the program that it calls reads memory, writes anything but variables of its own, holds
a loop, or divides integers. It may be computed for integers that no thread has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.functions import computing
from cudaops.transformations.tabulate import FLOATS, is_dear, with_maker, with_tables
from cudaops.transformations.text import with_parameters
from cudaops.transformations.trees import PURE, changed, is_pure

ENTRIES = (1024, 256, 8192)
"""Of a table: 4 KiB of floats stay in L1 beside other data, 32 KiB hold what counts of a block or a
row may reach."""
_MOST_TABLES = 2
_WIDE = INTEGERS - {"bool", "char", "signed char", "unsigned char", "short", "unsigned short"}
"""Types that an integer keeps when it is computed with."""


class Lookup:
    """Tables of functions of one integer."""

    name = "lookup"
    title = "a table of what a function makes of small integers"
    family: Family = "algorithm"
    relieves = frozenset({"sfu_pipe", "fma_pipe", "fp64_pipe", "issue_slots", "stall_wait"})

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Entries of each table, where there is something to look up."""
        found = next(_entries(draft), None) is not None
        return tuple({"entries": entries} for entries in ENTRIES) if found else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Each function in a table of its own, the first two of them."""
        entries = int(setting["entries"])
        made = with_tables(
            draft, _entries, lambda x, entry: _with_table(x, entry, entries), _MOST_TABLES
        )
        if made is draft:
            raise NotUnderstood("no dear function of one integer")
        says = f"What depends on one integer alone is looked up where it is below {entries}."
        return made.stepped(Step(self.name, setting, says))


@dataclass(frozen=True)
class _Entry:
    """One table."""

    value: s.Expression
    """One of the places that are looked up."""
    key: s.Expression
    """The integer in it."""


def _entries(draft: Draft) -> Iterator[_Entry]:
    """Largest expressions first, in the text's order."""
    pure = computing(draft)

    def below(node: Any) -> Iterator[_Entry]:
        key = _key(node, pure) if getattr(node, "type", "") in FLOATS else None
        if key is not None and any(is_dear(x) for x in s.below(node)):
            yield _Entry(node, key)
            return
        for child in s.children(node):
            yield from below(child)

    yield from below(draft.form.kernel.body)


def _key(node: Any, pure: frozenset[str]) -> s.Expression | None:
    """The one integer that an expression depends on; None where there is none or more."""
    keys: list[s.Expression] = []
    return keys[0] if _depends(node, pure, keys) and len(keys) == 1 else None


def _depends(node: Any, pure: frozenset[str], keys: list[s.Expression]) -> bool:
    """Whether it depends on constants and on integers alone, which are put into `keys`."""
    if isinstance(node, s.Number):
        return True
    kind = getattr(node, "type", "")
    if kind in INTEGERS:
        if kind in _WIDE and is_pure(node) and node not in keys:
            keys.append(node)
        return kind in _WIDE and is_pure(node)
    match node:
        case s.Call(function, arguments) if function in PURE or function in pure:
            parts: tuple[Any, ...] = arguments
        case s.Binary("+" | "-" | "*" | "/", left, right):
            parts = (left, right)
        case s.Unary("-" | "+", operand) | s.Cast(operand=operand):
            parts = (operand,)
        case _:
            return False
    return kind in FLOATS and all(_depends(x, pure, keys) for x in parts)


def _key_type(draft: Draft, value: Any, key: Any) -> str:
    """In which type the integer is looked up: that of the parameter that it is given to, else its
    own."""
    if isinstance(value, s.Call) and value.arguments == (key,):
        function = draft.form.function(value.function)
        if function is not None and function.parameters[0].type in _WIDE:
            return function.parameters[0].type
    return str(getattr(key, "type", ""))


def _with_table(draft: Draft, entry: _Entry, entries: int) -> Draft:
    kind, kernel, printer = getattr(entry.value, "type", ""), draft.form.kernel, draft.printer()
    of = _key_type(draft, entry.value, entry.key)
    base = draft.subject.kernel.name
    looked, maker = draft.free(f"{base}_looked_up"), draft.free(f"{base}_values")
    table, lent, at = draft.free("values"), draft.free("values_bytes"), draft.free("at")

    def at_key(value: Any, key: Any) -> Any:
        return changed(value, lambda x: s.Name(at, type=of) if x == key else x)

    pattern = at_key(entry.value, entry.key)
    value = printer.expression(pattern)
    text = (
        f"__device__ __forceinline__ {kind} {looked}({of} {at}, const {kind}* __restrict__ {table})"
        f"\n{{\n    return (unsigned long long){at} < {entries} ? {table}[{at}] : {value};\n}}\n\n"
        f"__global__ void {maker}({kind}* {table})\n{{\n"
        f"    const {of} {at} = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if ({at} < {entries}) {table}[{at}] = {value};\n}}"
    )
    pure = computing(draft)

    def look_up(x: Any) -> Any:
        key = _key(x, pure) if getattr(x, "type", "") == kind else None
        if key is None or _key_type(draft, x, key) != of or at_key(x, key) != pattern:
            return x
        return s.Call(looked, (key, s.Name(table)), type=kind)

    header = with_parameters(printer.header, [f"const {kind}* __restrict__ {table}"])
    edited = draft.with_body(changed(kernel.body, look_up), header).adding(text)
    size = f"{entries} * {FLOATS[kind]}"
    return with_maker(edited, maker, (), str(entries), lent, size)
