"""Mutants of a kernel: its text with one small fault, as a programmer or a model would make it.

Places are found in the tree that clang gave of the text (`cudaops.program.syntax`), so that an
operator knows types and where a statement ends; what a macro stands for is left alone. Nothing here
says whether a mutant computes something else.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from cudaops.program import syntax as s
from cudaops.program.lexing import Edit, apply_edits, byte_text, plain_text
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import FILE, Draft

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&": "|", "|": "&", "^": "|", "<<": ">>",
    ">>": "<<",
}  # fmt: skip
LOGIC = {"&&": "||", "||": "&&"}
EXTREMES = {
    "min": "max", "fmin": "fmax", "fminf": "fmaxf", "umin": "umax", "__hmin": "__hmax",
    "atomicMin": "atomicMax",
}  # fmt: skip
EXTREMES |= {other: name for name, other in EXTREMES.items()}
BARRIERS = {
    "__syncthreads", "__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system",
    "sync",
}  # fmt: skip
ATOMICS = {
    "atomicAdd": "*({0}) += {1}", "atomicSub": "*({0}) -= {1}", "atomicExch": "*({0}) = {1}",
    "atomicMax": "*({0}) = max(*({0}), {1})", "atomicMin": "*({0}) = min(*({0}), {1})",
    "atomicAnd": "*({0}) &= {1}", "atomicOr": "*({0}) |= {1}", "atomicXor": "*({0}) ^= {1}",
}  # fmt: skip
SIBLINGS = {
    **dict.fromkeys(("abs", "fabs", "floor", "ceil", "round", "rint", "trunc"), "({0})"),
    **dict.fromkeys(("fabsf", "floorf", "ceilf", "roundf", "rintf", "truncf"), "({0})"),
    "expm1f": "(expf({0}) - 1.0f)", "expm1": "(exp({0}) - 1.0)",
    "log1pf": "logf(1.0f + ({0}))", "log1p": "log(1.0 + ({0}))",
    "erfcf": "(1.0f - erff({0}))", "erfc": "(1.0 - erf({0}))",
    "hypotf": "sqrtf(({0}) * ({0}) + ({1}) * ({1}))",
    "hypot": "sqrt(({0}) * ({0}) + ({1}) * ({1}))",
}  # fmt: skip
"""Cheaper, and the same nearly everywhere. `__expf` for expf is left out: its error is within what
the judge allows on purpose (docs/verification.md)."""
NARROWER = {"double": "float", "long long": "int", "unsigned long long": "unsigned"}
_WIDE = re.compile(r"\b(?:(double)|(?:unsigned )?long long|size_t|u?int64_t)\b")
_FLOAT = re.compile(r"([0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)([fFlL]?)")
_EFFECTS = (s.Assign, s.Step, s.Call)


class Mutant(NamedTuple):
    """One fault, as edits of the draft's own text, in bytes."""

    operator: str
    edits: tuple[Edit, ...]


class Changed(NamedTuple):
    """A mutant's text and how it differs."""

    operator: str
    text: str
    """Device code without directives."""
    line: int
    """Of the text, from 1, where the first edit is."""
    before: str
    after: str


def whole_copy(draft: Draft) -> Draft:
    """With copies of the author's device functions in it, of those that can be copied."""
    tried: set[str] = set()
    while True:
        theirs = [f.name for f in draft.form.functions if f.where and f.where.file != FILE]
        name = next((n for n in theirs if n not in tried), None)
        if name is None:
            return draft
        tried.add(name)
        try:
            draft = draft.owned(name)
        except NotUnderstood:
            continue


def mutants(draft: Draft, seed: str) -> Iterator[Changed]:
    """Every mutant of the draft's functions once, operators taking turns, in an order that the seed
    decides. Raises NotUnderstood where the kernel has no tree."""
    drawn = random.Random(seed)
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    for function in (draft.form.kernel, *draft.form.functions):
        if function.where is not None and function.where.file == FILE:
            for found in _Sites(draft, function, drawn).all():
                by_operator[found.operator].append(found)
    for each in by_operator.values():
        drawn.shuffle(each)
    turns = sorted(by_operator)
    drawn.shuffle(turns)
    seen = {draft.text}
    while any(by_operator.values()):
        for operator in turns:
            if by_operator[operator]:
                changed = _changed(draft, by_operator[operator].pop())
                if changed.text not in seen:
                    seen.add(changed.text)
                    yield changed


def _changed(draft: Draft, mutant: Mutant) -> Changed:
    text = apply_edits(byte_text(draft.text), mutant.edits)
    ours, theirs = draft.text.splitlines(), plain_text(text).splitlines()
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    same = 1
    while ours[-same] == theirs[-same]:
        same += 1
    before, after = (
        " ".join(line.strip() for line in lines[at : len(lines) - same + 1])
        for lines in (ours, theirs)
    )
    return Changed(mutant.operator, plain_text(text), at + 1, before, after)


def mutated(draft: Draft, changed: Changed) -> Draft:
    """The draft with this text."""
    return replace(draft, text=changed.text)


class _Sites:
    """Places in one function that an operator can change."""

    def __init__(self, draft: Draft, function: s.Function, drawn: random.Random) -> None:
        whole = draft.program.main.text.encode()
        self._whole = whole
        self._head = whole.index(b"{\n") + 2
        """Where the draft's own text begins in its file."""
        self._drawn = drawn
        self._nodes = [node for statement in function.body for node in s.below(statement)]
        self._first: dict[tuple[str, str], int] = {}
        """Variables by type and name: where each is first named."""
        for p in function.parameters:
            self._first[p.type + "*" * p.is_pointer, p.name] = 0
        for node in self._nodes:
            if isinstance(node, s.Name) and self._is_plain(node) and node.where is not None:
                self._first.setdefault((node.type, node.text), node.where.start)

    def all(self) -> Iterator[Mutant]:
        """Each operator on each node."""
        by_kind: dict[type, Sequence[Callable[[Any], Iterator[Mutant]]]] = {
            s.Number: (self._constant,), s.Binary: (self._binary,), s.Assign: (self._assign,),
            s.If: (self._guard,), s.Choice: (self._choice,), s.Evaluate: (self._statement,),
            s.Leave: (self._leave,), s.Call: (self._call,), s.For: (self._loop,),
            s.Cast: (self._cast,), s.Declare: (self._declare,), s.Unary: (self._unary,),
            s.Name: (self._name,), s.Member: (self._axis,),
        }  # fmt: skip
        for node in self._nodes:
            for operator in by_kind.get(type(node), ()):
                if self._text(node):
                    yield from operator(node)
            if isinstance(node, s.Evaluate | s.Declare):
                yield from self._indices(node)

    # The text

    def _where(self, node: Any) -> s.Range | None:
        """Where a node stands in the draft; None where it does not."""
        where: s.Range | None = node.where
        is_ours = where is not None and where.file == FILE and self._head <= where.start < where.end
        return where if is_ours else None

    def _text(self, node: Any) -> str:
        """What a node stands for; empty where it stands nowhere in the draft."""
        where = self._where(node)
        return "" if where is None else self._whole[where.start : where.end].decode()

    def _edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(start - self._head, end - self._head, byte_text(text))

    def _put(self, operator: str, node: Any, text: str) -> Iterator[Mutant]:
        """One mutant: this text in the node's place."""
        if where := self._where(node):
            yield Mutant(operator, (self._edit(where.start, where.end, text),))

    def _between(self, name: str, left: Any, right: Any, old: str, new: str) -> Iterator[Mutant]:
        """One mutant: another operator between two operands, where it is written there."""
        first, last = self._where(left), self._where(right)
        if first is None or last is None:
            return
        start, end = first.end, last.start
        gap = self._whole[start:end].decode() if start < end else ""
        if re.fullmatch(rf"[\s)]*{re.escape(old)}[\s(]*", gap):
            at = start + gap.index(old)
            yield Mutant(name, (self._edit(at, at + len(old), new),))

    @staticmethod
    def _is_plain(name: s.Name) -> bool:
        return name.text not in s.BUILTINS and "#" not in name.text

    # The operators

    def _constant(self, node: s.Number) -> Iterator[Mutant]:
        text = self._text(node)
        if not re.match(r"[0-9.]", text):
            return
        found = s.integer_literal(text)
        if found is not None:
            value, suffix = found
            others = {value + 1, abs(value - 1), 2 * value} - {value}
            yield from self._put("constant", node, f"{self._drawn.choice(sorted(others))}{suffix}")
        elif written := _FLOAT.fullmatch(text):
            value_f = float(written[1])
            changed = self._drawn.choice([value_f + 1.0, 2.0 * value_f or 0.5])
            yield from self._put("constant", node, f"{changed!r}{written[2]}")

    def _binary(self, node: s.Binary) -> Iterator[Mutant]:
        tables = {"comparison": COMPARISONS, "arithmetic": ARITHMETIC, "logic": LOGIC}
        for name, table in tables.items():
            if other := table.get(node.operator):
                yield from self._between(name, node.left, node.right, node.operator, other)

    def _assign(self, node: s.Assign) -> Iterator[Mutant]:
        if not node.operator:
            return
        others = ["="] + [f"{ARITHMETIC[node.operator]}="] * (node.operator in ARITHMETIC)
        old, new = f"{node.operator}=", self._drawn.choice(others)
        yield from self._between("arithmetic", node.target, node.value, old, new)

    def _guard(self, node: s.If) -> Iterator[Mutant]:
        for always in ("true", "false"):
            yield from self._put("guard", node.condition, always)

    def _choice(self, node: s.Choice) -> Iterator[Mutant]:
        for kept in (node.yes, node.no):
            if self._text(kept):
                yield from self._put("guard", node, f"({self._text(kept)})")

    def _statement(self, node: s.Evaluate) -> Iterator[Mutant]:
        call = node.value
        if isinstance(call, s.Call) and call.function in BARRIERS:
            yield from self._put("barrier", node, "")
        elif isinstance(call, s.Call) and (plain := self._plain(call)):
            yield from self._put("atomic", node, plain)
        elif isinstance(call, _EFFECTS):
            yield from self._put("statement", node, "")

    def _leave(self, node: s.Leave) -> Iterator[Mutant]:
        if node.word != "return":  # a guard's return is the guard's
            yield from self._put("statement", node, "")

    def _call(self, node: s.Call) -> Iterator[Mutant]:
        text, arguments = self._text(node), [self._text(a) for a in node.arguments]
        if other := EXTREMES.get(node.function):
            if found := re.match(rf"(?:\w*::)*{node.function}\b(?=\s*[(<])", text):
                name = found[0].removesuffix(node.function) + other
                yield from self._put("min and max", node, name + text[found.end() :])
        elif node.function in SIBLINGS and all(arguments) and text.startswith(node.function):
            yield from self._put("sibling", node, SIBLINGS[node.function].format(*arguments))
        elif node.function == "atomicAdd" and (plain := self._plain(node)):
            is_statement = any(
                isinstance(x, s.Evaluate) and x.value is node for x in self._nodes
            )  # of which _statement makes the shorter text
            if not is_statement:
                yield from self._put("atomic", node, f"(({plain}) - ({arguments[1]}))")

    def _plain(self, call: s.Call) -> str:
        """An atomic operation without being one; empty where there is none."""
        arguments = [self._text(a) for a in call.arguments]
        known = call.function in ATOMICS and len(arguments) == 2 and all(arguments)
        return ATOMICS[call.function].format(*arguments) if known else ""

    def _loop(self, node: s.For) -> Iterator[Mutant]:
        for first in node.first:
            value = first.value if isinstance(first, s.Declare) else None
            if not isinstance(value, s.Number | None) and self._text(value):
                yield from self._put("loop", value, f"{self._text(value)} + 1")
        for step in node.step:
            if isinstance(step, s.Step) and self._text(step.target):
                sign = "+" if step.by > 0 else "-"
                yield from self._put("loop", step, f"{self._text(step.target)} {sign}= 2")
            elif isinstance(step, s.Assign) and step.operator and self._text(step.value):
                yield from self._put("loop", step.value, f"2 * ({self._text(step.value)})")
        bound = node.condition
        if (
            isinstance(bound, s.Binary)
            and bound.operator in ("<", "<=")
            and self._text(bound.right)
        ):
            yield from self._put("loop", bound.right, f"({self._text(bound.right)}) - 1")

    def _cast(self, node: s.Cast) -> Iterator[Mutant]:
        if (narrow := NARROWER.get(node.type)) and self._text(node.operand):
            yield from self._put("narrowed", node, f"({narrow})({self._text(node.operand)})")

    def _declare(self, node: s.Declare) -> Iterator[Mutant]:
        text = self._text(node)
        found = _WIDE.search(text)
        if found is None or node.pointer or found.start() > text.find(node.name) >= 0:
            return
        narrow = "float" if found[1] else "int"
        yield from self._put("narrowed", node, text[: found.start()] + narrow + text[found.end() :])

    def _unary(self, node: s.Unary) -> Iterator[Mutant]:
        if node.operator in "-!~" and self._text(node.operand):
            yield from self._put("sign", node, f"({self._text(node.operand)})")

    def _name(self, node: s.Name) -> Iterator[Mutant]:
        where = self._where(node)
        if where is None or not self._is_plain(node) or self._text(node) != node.text:
            return
        others = [
            name
            for (kind, name), first in self._first.items()
            if kind == node.type and name != node.text and first < where.start
        ]
        if others:
            yield from self._put("variable", node, self._drawn.choice(others))

    def _axis(self, node: s.Member) -> Iterator[Mutant]:
        base = node.base
        if isinstance(base, s.Name) and base.text in s.BUILTINS and node.name in "xy":
            other = "y" if node.name == "x" else "x"
            yield from self._put("axis", node, f"{base.text}.{other}")

    def _indices(self, statement: s.Statement) -> Iterator[Mutant]:
        """The indices of two accesses of one statement exchanged, but for terms of one sum or
        factors of one product: that is the same again."""
        nodes = list(s.below(statement))
        chains = [
            {id(x) for x in s.joined_by(node, node.operator)}
            for node in nodes
            if isinstance(node, s.Binary) and node.operator in "+*"
        ]
        found = [
            (where, self._text(x.index), x)
            for x in nodes
            if isinstance(x, s.Index) and (where := self._where(x.index))
        ]
        for one, other in combinations(sorted(found, key=lambda x: x[0][1:]), 2):
            pair = {id(one[2]), id(other[2])}
            if one[2].base == other[2].base and any(pair <= chain for chain in chains):
                continue
            if one[1] != other[1] and one[0].end <= other[0].start:
                swapped = (one[0], other[1]), (other[0], one[1])
                edits = (self._edit(where.start, where.end, text) for where, text in swapped)
                yield Mutant("index", tuple(edits))
