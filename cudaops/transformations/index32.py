"""64-bit index arithmetic in 32 bits, where every launch's numbers fit.

Variables and parameters of 64 bits that are proved to hold 0 to 2^31 - 1 (`ranges`: what the text
does not say the launch is asked for) become `int`. Every sum, product, quotient and remainder of
such is proved to stay in that range too, and is then the same number in either width; where it is
not proved, an operand is widened again, so that it is computed as before.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, plain_variables
from cudaops.program.analysis.intervals import INTEGERS, Interval, of_type
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.ranges import Proof, Ranges, in_order
from cudaops.transformations.text import Raw

WIDE = ("long long", "unsigned long long")
MOST = (1 << 31) - 1


class Index32:
    """`int` in place of `size_t`, `long` and their kin."""

    name = "index32"
    title = "32-bit indices"
    family: Family = "algorithm"
    relieves = frozenset({
        "integer_pipe", "issue_slots", "occupancy_registers", "register_spills", "stall_wait",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is arithmetic of 64 bits on what may be narrowed."""
        wide = any(
            isinstance(x, s.Binary) and x.type in WIDE for x in s.below(draft.form.kernel.body)
        )
        return ({},) if wide and _candidates(draft, Ranges(draft)) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Parameters are narrowed at the kernel's begin."""
        ranges = Ranges(draft)
        narrow = _narrowed(draft, _candidates(draft, ranges), ranges)
        if not narrow:
            raise NotUnderstood("no 64-bit variable proved to fit into 32 bits")
        change = _Narrowing(draft, ranges, set(narrow))
        body = tuple(change.statement(x) for x in draft.form.kernel.body)
        if not change.done:
            raise NotUnderstood("no 64-bit arithmetic proved to fit into 32 bits")
        header, lines = _parameters(draft, [n for n in narrow if n in _names_of_parameters(draft)])
        proofs = in_order((*narrow.values(), *change.proofs))
        step = Step(self.name, setting, "Indices are 32-bit: all launches fit.")
        edited = draft.with_body((*lines, *body), header)
        return edited.requiring(*proofs).stepped(step)


def _names_of_parameters(draft: Draft) -> dict[str, str]:
    return {p.name: p.type for p in draft.form.kernel.parameters if not p.is_pointer}


def _candidates(draft: Draft, ranges: Ranges) -> dict[str, str]:
    """Variables and parameters of 64 bits by name, with their types."""
    kernel = draft.form.kernel
    plain = plain_variables(kernel) & ranges.single_assignment
    used = names_in(kernel.body)
    found = {n: t for n, t in _names_of_parameters(draft).items() if n in used}
    found |= {
        x.name: x.type for x in s.below(kernel.body)
        if isinstance(x, s.Declare) and x.value is not None and not x.extents
    }  # fmt: skip
    return {n: t for n, t in found.items() if n in plain and t in WIDE}


def _narrowed(draft: Draft, candidates: dict[str, str], ranges: Ranges) -> dict[str, Proof]:
    found = {}
    for name, kind in candidates.items():
        proof = _small(s.Name(name, type=kind), ranges)
        if proof is not None and draft.holds(*proof):
            found[name] = proof
    return found


def _small(x: s.Expression, ranges: Ranges) -> Proof | None:
    """That it is 0 to 2^31 - 1."""
    low = ranges.nonnegative(x)
    if isinstance(x, s.Member) or of_type(_type(x)).within(Interval(None, MOST)):
        return low
    most = ranges.upper(x)
    return None if low is None or most is None else (*low, *most[1], most[0] <= MOST)


class _Narrowing:
    """Expressions over narrowed names."""

    def __init__(self, draft: Draft, ranges: Ranges, names: set[str]) -> None:
        self._draft, self._ranges, self._names = draft, ranges, names
        self.proofs: list[Proof] = []
        self.done = 0
        """Operations that take 32 bits now."""

    def statement(self, node: Any) -> Any:
        """Anything that is no expression, with the expressions in it."""
        if isinstance(node, s.Declare) and node.name in self._names:
            return replace(node, type="int", value=self.expression(node.value)[0])
        return self._parts(node, widen=False)

    def expression(self, node: Any) -> tuple[Any, bool]:
        """Another one of the same value, and whether it is an integer of 32 bits and small where
        it took 64 before."""
        match node:
            case s.Name(text):
                return node, text in self._names
            case s.Number(text, type=kind) if kind in WIDE:
                value = s.integer_of(node)
                small = value is not None and value <= MOST
                return (s.Number(text.rstrip("uUlL"), type="int"), True) if small else (node, False)
            case s.Cast(kind, operand) if kind in WIDE and _type(operand) in INTEGERS:
                return self._cast(node, operand)
            case s.Binary("+" | "*" | "/" | "%" as operator, left, right, type=kind) if (
                kind in WIDE
            ):
                return self._operation(node, operator, left, right)
            case s.Binary("<" | "<=" | ">" | ">=" | "==" | "!=", left, right):
                return self._parts(node, widen=self._may_be_negative(left, right)), False
            case s.Binary(operator, type=kind) if operator in "&&||" or kind not in INTEGERS:
                return self._parts(node, widen=False), False
            case s.Cast(kind) if kind not in WIDE:
                return self._parts(node, widen=False), False
            case s.Index(base, index):
                new = self.expression(base)[0], self.expression(index)[0]
                same = new[0] is base and new[1] is index
                return (node if same else replace(node, base=new[0], index=new[1])), False
            case s.Assign(target, operator, value):
                wide = operator != "" and _type(target) not in WIDE
                new = self._part(target, widen=False), self._part(value, widen=wide)
                same = new[0] is target and new[1] is value
                return (node if same else replace(node, target=new[0], value=new[1])), False
            case s.Step():
                return node, False
        return self._parts(node, widen=True), False

    def _operation(
        self, node: s.Binary, operator: str, left: Any, right: Any
    ) -> tuple[Any, bool]:  # fmt: skip
        sides = [self._operand(x) for x in (left, right)]
        proof = _small(node, self._ranges) if all(small for _, small in sides) else None
        if proof is not None and self._draft.holds(*proof):
            self.proofs.append(proof)
            self.done += 1
            return s.Binary(operator, sides[0][0], sides[1][0], type="int", where=node.where), True
        return self._parts(node, widen=True), False

    def _operand(self, node: Any) -> tuple[Any, bool]:
        """Of 32 bits anyway, or narrowed."""
        if _type(node) in INTEGERS and _type(node) not in WIDE:
            proof = _small(node, self._ranges)
            if proof is None or not self._draft.holds(*proof):
                return node, False
            self.proofs.append(proof)
            return node, True
        return self.expression(node)

    def _may_be_negative(self, left: Any, right: Any) -> bool:
        """One side of a comparison that takes it as a large number beside an unsigned one."""
        kinds = {_type(left), _type(right)}
        if "unsigned long long" not in kinds or len(kinds) == 1:
            return False
        sides = [x for x in (left, right) if not _type(x).startswith("unsigned")]
        return any(self._ranges.nonnegative(x) != () for x in sides)

    def _cast(self, node: s.Cast, operand: Any) -> tuple[Any, bool]:
        new, small = self._operand(operand)
        return (new, True) if small else (self._parts(node, widen=False), False)

    def _parts(self, node: Any, *, widen: bool) -> Any:
        """With its parts changed; `widen`: those that became narrow are made wide again."""
        if isinstance(node, tuple) and not isinstance(node, s.Range):
            items = tuple(self._part(x, widen=widen) for x in node)
            return node if all(a is b for a, b in zip(items, node, strict=True)) else items
        if not is_dataclass(node) or isinstance(node, type):
            return node
        updates = {}
        for f in fields(node):
            old = getattr(node, f.name)
            new = (
                self._parts(old, widen=widen)
                if type(old) is tuple
                else self._part(old, widen=widen)
            )
            if new is not old:
                updates[f.name] = new
        return replace(node, **updates) if updates else node

    def _part(self, node: Any, *, widen: bool) -> Any:
        if not is_dataclass(node) or isinstance(node, type):
            return node
        if isinstance(node, s.Statement):
            return self.statement(node)
        new, small = self.expression(node)
        if not (widen and small):
            return new
        return node if isinstance(node, s.Number) else s.Cast(_type(node), new)


def _type(node: Any) -> str:
    return str(getattr(node, "type", ""))


def _parameters(draft: Draft, names: list[str]) -> tuple[str, list[Raw]]:
    """The header with parameters under other names, and what they are narrowed to."""
    header = draft.printer().header
    lines = []
    for name in names:
        other = draft.fresh_name(f"{name}_launched")
        found = list(re.finditer(rf"\b{re.escape(name)}\b(?=\s*[,)])", header))
        if not found:
            raise NotUnderstood(f"an unsupported declaration of {name}")
        at = found[-1]
        header = header[: at.start()] + other + header[at.end() :]
        lines.append(Raw(f"const int {name} = static_cast<int>({other});"))
    return header, lines
