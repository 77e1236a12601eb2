"""What a launch gives as constants: scalars, block and grid, behind a guard on their values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import written_names
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed

EXTENTS = tuple(f"{root}.{axis}" for root in ("blockDim", "gridDim") for axis in "xyz")
_SUFFIXES = {"unsigned": "u", "long long": "LL", "unsigned long long": "ULL", "float": "f"}


class Specialise:
    """Scalars and extents that are the same at every launch become constants of the kernel."""

    name = "specialise"
    title = "arguments specialised to constants"
    family: Family = "algorithm"
    relieves = frozenset({
        "issue_slots", "integer_pipe", "fp64_pipe", "sfu_pipe", "occupancy_registers",
        "register_spills", "stall_wait", "low_parallelism",
    })  # fmt: skip

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """Sizes alone, then all numbers."""
        values = dict(_constants(draft, floats=True))
        used = [e for e in EXTENTS if _used(draft, e)]
        if not values and not used:
            return ()
        floats = any(isinstance(v, float) for v in values.values())
        return ({"what": "sizes"}, {"what": "numbers"}) if floats else ({"what": "sizes"},)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """Guards are the values themselves."""
        kernel = draft.form.kernel
        values = dict(_constants(draft, floats=setting["what"] == "numbers"))
        extents = {e: v for e in EXTENTS if _used(draft, e) and (v := draft.value(e)) is not None}
        if not values and not extents:
            raise NotUnderstood("no argument with one value in every launch")

        def change(node: Any) -> Any:
            place = _extent_of(node)
            return s.Number(f"{extents[place]}u", type="unsigned") if place in extents else node

        types = {p.name: p.type for p in kernel.parameters}
        lines = [
            Raw(f"constexpr {types[name]} {name} = {_literal(value, types[name])};")
            for name, value in values.items()
        ]
        printer = draft.printer()
        header = printer.header
        for name in values:
            header = _without_name(header, name, draft.fresh_name(f"{name}_launched"))
        header = _bounded(header, kernel, draft)
        known = {**values, **extents}
        guards = [draft.launch_expression(name).equals(value) for name, value in known.items()]
        edited = draft.with_body((*lines, *changed(kernel.body, change)), header)
        told = ", ".join(f"{x} = {v}" for x, v in known.items())
        step = Step(
            self.name, setting, f"Specialised for {told}: expressions of them are constants."
        )
        return edited.requiring(*guards).stepped(step)


def _constants(draft: Draft, *, floats: bool) -> Iterator[tuple[str, int | float]]:
    """Parameters that are used, never changed, and the same number at every launch."""
    kernel = draft.form.kernel
    written = written_names(kernel.body, draft.form)
    used = {x.text for x in s.below(kernel.body) if isinstance(x, s.Name)}
    for p in kernel.parameters:
        plain = p.type in INTEGERS or (floats and p.type in ("float", "double"))
        if p.is_pointer or not plain or p.name not in used or written is None or p.name in written:
            continue
        value = draft.value(p.name)
        if value is not None and math.isfinite(value):
            yield p.name, value


def _extent_of(node: Any) -> str:
    match node:
        case s.Member(s.Name(root), axis) if root in ("blockDim", "gridDim"):
            return f"{root}.{axis}"
    return ""


def _used(draft: Draft, extent: str) -> bool:
    return any(_extent_of(x) == extent for x in s.below(draft.form.kernel.body))


def _literal(value: int | float, kind: str) -> str:
    if isinstance(value, int) and kind not in ("float", "double"):
        return f"{value}{_SUFFIXES.get(kind, '')}"
    text = repr(float(value))
    return f"{text}f" if kind == "float" else text


def _without_name(header: str, name: str, other: str) -> str:
    """The parameter under another name: its own is the constant's."""
    found = list(re.finditer(rf"\b{re.escape(name)}\b(?=\s*[,)])", header))
    if not found:
        raise NotUnderstood(f"an unsupported declaration of {name}")
    at = found[-1]
    return header[: at.start()] + other + header[at.end() :]


def _bounded(header: str, kernel: s.Function, draft: Draft) -> str:
    """With the block's size said, where every launch has one."""
    sizes = [draft.value(f"blockDim.{axis}") for axis in "xyz"]
    if "__launch_bounds__" in header or None in sizes or not all(isinstance(x, int) for x in sizes):
        return header
    threads = math.prod(x for x in sizes if isinstance(x, int))
    name = re.escape(draft.launch.kernel)
    return re.sub(rf"\b{name}\b(?=\s*\()", f"__launch_bounds__({threads}) {name}", header, count=1)
