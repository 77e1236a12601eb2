"""Powers with a small whole exponent as products, the more accurate way.

A product of up to three factors rounds at most twice; CUDA's `powf` is documented with 4 ulp, `pow`
with 2. Overflow, underflow, NaN and infinities are what the function makes of them: an intermediate
power lies between the base and the result.

An exponent may be a number of the text, or an argument of the kernel whose values at the captured
launches are few. Then the loop is written once for each of those values, behind a comparison that
all threads decide alike, and as its author wrote it for every other value: nothing is required of
a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cudaops.domain.workload import ScalarArgument
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import may_write
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.transformations.draft import Draft
from cudaops.transformations.functions import FLOATING, owning, reached, rewritten
from cudaops.transformations.trees import changed

HIGHEST_POWER = {"float": 8, "double": 5}
"""Whose product stays within the rounding that CUDA documents for `powf` and `pow`.
Source: CUDA C++ Programming Guide, mathematical functions: 4 and 2 ulp."""
MOST_CASES = 4
"""Values of an exponent that the launch gives: each is a copy of a loop."""
_ARGUMENTS = (FLOATING | INTEGERS) - {"bool"}
_POWER_NAMES = {2: "squared", 3: "cubed"}
_PRODUCTS = {
    2: ("x * x",), 3: ("x * x * x",), 4: ("x * x", "x2 * x2"), 5: ("x * x", "x2 * x2 * x"),
    6: ("x * x", "x2 * x2 * x2"), 7: ("x * x", "x2 * x2 * x2 * x"),
    8: ("x * x", "(x2 * x2) * (x2 * x2)"),
}  # fmt: skip


def has_power(draft: Draft) -> bool:
    """Whether `with_powers` or `with_cases` would find any."""
    return (
        any(_power(x) for f in reached(draft) for x in s.below(f.body)) or _cases(draft) is not None
    )


# Exponents of the text


@dataclass(frozen=True)
class _Power:
    base: s.Expression
    exponent: int
    type: str


def _power(node: Any) -> _Power | None:
    called = _called(node)
    value = None if called is None else _whole_number(called.arguments[1])
    if called is None or value is None or not 1 <= value <= HIGHEST_POWER[called.type]:
        return None
    return _Power(called.arguments[0], value, called.type)


def _called(node: Any) -> s.Call | None:
    """A call of `pow` or `powf`."""
    match node:
        case s.Call("pow", (_, _), type=kind) if kind in FLOATING:
            return node
        case s.Call("powf", (_, _), type="float"):
            return node
    return None


def _whole_number(node: s.Expression) -> int | None:
    if isinstance(node, s.Cast) and node.type in (*FLOATING, *INTEGERS):
        return _whole_number(node.operand)
    if not isinstance(node, s.Number):
        return None
    try:
        value = float(node.text.rstrip("fFlLuU"))
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def with_powers(draft: Draft) -> Draft:
    """Products for powers, in the kernel and in what it calls; the draft itself without any."""
    found = [p for f in reached(draft) for x in s.below(f.body) if (p := _power(x))]
    needed = sorted({(p.exponent, p.type) for p in found if _in_place(p) is None})
    names = {
        (n, kind): draft.fresh_name(_POWER_NAMES.get(n, f"to_the_{n}") + "f" * (kind == "float"))
        for n, kind in needed
    }
    used: set[tuple[int, str]] = set()

    def change(node: Any) -> Any:
        power = _power(node)
        if power is None:
            return node
        if (product := _in_place(power)) is not None:
            return product
        key = (power.exponent, power.type)
        used.add(key)
        return s.Call(names[key], (power.base,), type=power.type)

    def changing(_: Draft, function: s.Function) -> tuple[Any, ...] | None:
        body = changed(function.body, change)
        return None if body is function.body else body

    # Copies of the author's functions go to the top: the helpers above them.
    helpers = {key: _power_function(names[key], *key) for key in needed}
    begun = owning(draft, changing) if found else draft
    used.clear()
    for text in helpers.values():
        begun = begun.adding(text)
    edited = rewritten(begun, changing)
    if edited is begun:
        return draft
    for key in helpers.keys() - used:
        edited = replace(edited, text=edited.text.replace(f"{helpers[key]}\n\n", ""))
    return edited


def _in_place(power: _Power) -> s.Expression | None:
    """What reads well in place of the call: the base itself, or a short square."""
    same = getattr(power.base, "type", "") == power.type
    if power.exponent == 1:
        return power.base if same else s.Cast(power.type, power.base)
    if power.exponent == 2 and isinstance(power.base, s.Name) and same:
        return s.Binary("*", power.base, power.base, type=power.type)
    return None


def _power_function(name: str, exponent: int, kind: str) -> str:
    *steps, result = _PRODUCTS[exponent]
    lines = [f"    const {kind} x2 = {step};" for step in steps]
    head = f"__device__ __forceinline__ {kind} {name}({kind} x)\n{{\n"
    return head + "\n".join([*lines, f"    return {result};"]) + "\n}"


# Exponents of the launch


@dataclass(frozen=True)
class _Cases:
    """An argument of the kernel that powers are taken with."""

    name: str
    type: str
    values: tuple[int, ...]

    def is_call(self, node: Any) -> bool:
        """Whether it is a power with the argument as its exponent."""
        called = _called(node)
        return called is not None and _plain(called.arguments[1]) == self.name

    def calls(self, node: Any) -> Iterator[s.Call]:
        """Such powers that stand where no value of the argument is ruled out."""
        if self.is_call(node):
            yield node
        below = s.children(node)
        if isinstance(node, s.If | s.Choice) and self.decides(node.condition):
            below = (node.yes,)
        for child in below:
            yield from self.calls(child)

    def among(self, node: Any) -> bool:
        """Whether there are any."""
        return next(self.calls(node), None) is not None

    def decides(self, condition: s.Expression) -> bool:
        """Whether it compares the argument with a number."""
        match condition:
            case s.Binary("==", s.Name(name), s.Number()):
                return name == self.name
        return False

    def is_value(self, value: int) -> s.Expression:
        """`p == 2.0f`."""
        name = s.Name(self.name, type=self.type)
        return s.Binary("==", name, self._number(value), type="bool")

    def taking(self, node: Any, value: int) -> Any:
        """With the number in place of the argument in its powers."""

        def change(x: Any) -> Any:
            if not self.is_call(x):
                return x
            return replace(x, arguments=(x.arguments[0], self._number(value)))

        return changed(node, change)

    def _number(self, value: int) -> s.Number:
        text = {"float": f"{value}.0f", "double": f"{value}.0"}.get(self.type, str(value))
        return s.Number(text, type=self.type)


def _plain(node: Any) -> str | None:
    """The variable that an exponent is, whatever it is made to."""
    while isinstance(node, s.Cast) and node.type in FLOATING:
        node = node.operand
    return node.text if isinstance(node, s.Name) else None


def with_cases(draft: Draft) -> Draft:
    """Loops and single powers once for each value of an exponent that the launch gives."""
    cases = _cases(draft)
    if cases is None:
        return draft
    return draft.with_body(tuple(_split(cases, x) for x in draft.form.kernel.body))


def _cases(draft: Draft) -> _Cases | None:
    """Of one argument, as copies for two would multiply: one that a loop takes powers with."""
    kernel = draft.form.kernel
    calls = [called for x in s.below(kernel.body) if (called := _called(x))]
    exponents = {_plain(called.arguments[1]) for called in calls}
    if exponents <= {None} or any(isinstance(x, s.Opaque) for x in s.below(kernel.body)):
        return None
    hidden = {x.name.partition("#")[0] for x in s.below(kernel.body) if isinstance(x, s.Declare)}
    loops = [x for x in s.below(kernel.body) if isinstance(x, s.For | s.Do)]
    found = []
    for p in kernel.parameters:
        plain = p.type in _ARGUMENTS and not p.is_pointer and p.name in exponents - hidden
        if not plain or may_write(kernel.body, {p.name}, draft.form):
            continue
        cases = _Cases(p.name, p.type, ())
        highest = min(HIGHEST_POWER[x.type] for x in calls if cases.is_call(x))
        cases = replace(cases, values=_values(draft, p.name, highest))
        if cases.values and cases.among(kernel.body):
            found.append(cases)
    return max(found, key=lambda cases: any(map(cases.among, loops)), default=None)


def _split(cases: _Cases, statement: Any) -> Any:
    """A loop as a whole, so that no iteration compares; elsewhere the power alone."""
    if not cases.among(statement):
        return statement
    match statement:
        case s.For() | s.Do():
            done: Any = statement
            for value in reversed(cases.values):
                done = s.If(cases.is_value(value), (cases.taking(statement, value),), (done,))
            return done
        case s.If(condition, yes, no):
            yes = tuple(_split(cases, x) for x in yes)
            if cases.decides(condition):
                return replace(statement, yes=yes)
            no = tuple(_split(cases, x) for x in no)
            return replace(statement, condition=_chosen(cases, condition), yes=yes, no=no)
        case s.Block(body) | s.Switch(_, body):
            return replace(statement, body=tuple(_split(cases, x) for x in body))
    return _chosen(cases, statement)


def _chosen(cases: _Cases, node: Any) -> Any:
    """With `p == 2.0f ? powf(x, 2.0f) : powf(x, p)` for each power that is taken there."""
    found = {id(call): call for call in cases.calls(node)}

    def change(x: Any) -> Any:
        if id(x) not in found:
            return x
        done = x
        for value in reversed(cases.values):
            yes = cases.taking(x, value)
            done = s.Choice(cases.is_value(value), yes, done, type=x.type)
        return done

    return changed(node, change) if found else node


def _values(draft: Draft, name: str, highest: int) -> tuple[int, ...]:
    """The whole ones that it has at the captured launches; none where they are many."""
    found = set()
    for workload in draft.workloads:
        argument = next((a for a in workload.arguments if a.name == name), None)
        if not isinstance(argument, ScalarArgument):
            return ()
        value = float(argument.value)
        if value.is_integer() and 1 <= value <= highest:
            found.add(int(value))
    return tuple(sorted(found)) if len(found) <= MOST_CASES else ()
