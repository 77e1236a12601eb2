"""The sine and the cosine of one angle by one call.

`sinf(x)` and `cosf(x)` each bring their argument into an octant, with a path of their own for large
ones that takes a loop and an array; `sincosf` does so once: 141 instructions of PTX in place of 233
(nvcc 13.0, sm_90). The results are those of the two calls, to the bit for all floats and for 2^33
doubles on an H200 (`benchmarks/sincos.cu`). `sin` and `cos` of doubles become `sincos`, `sinpi` and
`cospi` become `sincospi`, the same for floats. Fast intrinsics (`__sinf`) share nothing and stay.

Both are computed where the first of the two stood, and only where both are computed in any case:
not for one that a condition may leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    has_effects,
    is_pure,
    may_write,
    names_in,
    plain_variables,
    reads_memory,
)
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.computed_once import Group, Run, Sought, groups, with_values
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.functions import FLOATING, reached, rewritten
from cudaops.transformations.places import through_casts

_SINES = {"sin": "sincos", "sinf": "sincos", "sinpi": "sincospi", "sinpif": "sincospi"}
_COSINES = {"cos": "sincos", "cosf": "sincos", "cospi": "sincospi", "cospif": "sincospi"}
_TOGETHER = {"sincos", "sincosf", "sincospi", "sincospif"}
_FOR_FLOAT = {"sinf", "cosf", "sinpif", "cospif"}


class SinCos:
    """One call for the sine and the cosine of an angle."""

    name = "sincos"
    title = "sincos instead of sin and cos"
    family: Family = "algorithm"
    relieves = frozenset({
        "issue_slots", "stall_wait", "integer_pipe", "fma_pipe", "fp64_pipe", "sfu_pipe",
        "divergence", "stall_branch", "low_parallelism", "occupancy_grid", "register_spills",
        "occupancy_registers",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there are such pairs."""
        if _own(draft):
            return ()
        return ({},) if any(list(_pairs(f, draft.form)) for f in reached(draft)) else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """All of them, in the kernel and in the functions that it calls."""
        if own := _own(draft):
            raise NotUnderstood(f"the program's own {', '.join(sorted(own))}")
        edited = rewritten(draft, _with_pairs)
        if edited is draft:
            raise NotUnderstood("no sin and cos of the same angle")
        says = "Sine and cosine of one angle are computed by one sincos call."
        return edited.stepped(Step(self.name, setting, says))


def _own(draft: Draft) -> set[str]:
    """Functions of the program under the names of CUDA's."""
    names = {f.name for f in draft.form.functions}
    return names & (_SINES.keys() | _COSINES.keys() | _TOGETHER)


@dataclass(frozen=True)
class _Angle:
    """What both are taken of."""

    function: str
    """`sincos` or `sincospi`."""
    type: str
    angle: s.Expression


def _angle(node: Any) -> tuple[_Angle, bool] | None:
    """Of a call, and whether that is a sine."""
    match node:
        case s.Call(name, (angle,), type=kind) if name in _SINES or name in _COSINES:
            pass
        case _:
            return None
    kind = "float" if name in _FOR_FLOAT else kind
    if kind not in FLOATING or not is_pure(angle):
        return None
    is_sine = name in _SINES
    return _Angle(_SINES[name] if is_sine else _COSINES[name], kind, angle), is_sine


def _pairs(function: s.Function, form: s.KernelForm) -> Iterator[tuple[_Angle, Group]]:
    found = [a for x in s.below(function.body) if (a := _angle(x))]
    sines = {angle for angle, is_sine in found if is_sine}
    both = dict.fromkeys(a for a, is_sine in found if not is_sine and a in sines)
    plain = plain_variables(function)
    for angle in both:
        names = names_in(angle.angle) - s.BUILTINS
        if names <= plain or reads_memory(angle.angle):
            for group in groups(_sought(angle, names, plain, form), function.body):
                yield angle, group


def _sought(angle: _Angle, names: set[str], plain: frozenset[str], form: s.KernelForm) -> Sought:
    loads = not names <= plain or reads_memory(angle.angle)

    def uses(node: Any) -> list[Any]:
        return [x for x in s.below(node) if (a := _angle(x)) and a[0] == angle]

    def disturbs(statement: s.Statement) -> bool:
        return may_write(statement, names, form) or (loads and has_effects(statement, plain))

    def pays(run: Run) -> bool:
        kinds = {a[1] for statement, _ in run for x in _certain(statement)
                 if (a := _angle(x)) and a[0] == angle}  # fmt: skip
        return len(kinds) == 2

    return Sought(uses, disturbs, pays)


def _certain(node: Any) -> Iterator[Any]:
    """What is computed whenever a statement is reached."""
    yield node
    parts: Sequence[Any]
    match node:
        case s.If(condition):
            parts = (condition,)
        case s.For(first, condition):
            parts = (*first, *(() if condition is None else (condition,)))
        case s.Switch(subject):
            parts = (subject,)
        case s.Choice(condition):
            parts = (condition,)
        case s.Binary("&&" | "||", left):
            parts = (left,)
        case _:
            parts = tuple(s.children(node))
    for part in parts:
        yield from _certain(part)


def _with_pairs(draft: Draft, function: s.Function) -> tuple[Any, ...] | None:
    placed: dict[int, list[Any]] = {}
    values: dict[int, s.Name] = {}
    taken: set[str] = set()
    for angle, group in _pairs(function, draft.form):
        sine, cosine = _named(draft, angle.angle, taken)
        call = f"{angle.function}f" if angle.type == "float" else angle.function
        out = tuple(s.Unary("&", s.Name(x, type=angle.type)) for x in (sine, cosine))
        placed.setdefault(id(group.before), []).extend(
            (
                s.Declare(angle.type, sine),
                s.Declare(angle.type, cosine),
                s.Evaluate(s.Call(call, (angle.angle, *out))),
            )
        )
        for use in group.uses:
            found = _angle(use)
            assert found is not None
            values[id(use)] = s.Name(sine if found[1] else cosine, type=angle.type)
    if not values:
        return None
    return with_values(function.body, placed, lambda node, done: values.get(id(node), done))


def _named(draft: Draft, angle: s.Expression, taken: set[str]) -> tuple[str, str]:
    plain = through_casts(angle)
    of = f"_{s.plain_name(plain.text)}" if isinstance(plain, s.Name) else ""
    return (
        draft.fresh_name_beside(f"sin{of}" if of else "sine", taken),
        draft.fresh_name_beside(f"cos{of}" if of else "cosine", taken),
    )
