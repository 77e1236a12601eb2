"""A loop that scans, as the lanes of a warp or a block go through it together.

In each turn every lane works out what its iteration adds; a shuffle over doubling distances gives
it what the lanes below it add, and the last lane's value is what the next turn begins with. All
lanes stay in the loop until none has an iteration left.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.combining import merged, neutral
from cudaops.transformations.draft import Draft
from cudaops.transformations.scans import Scan
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import renamed


def scanned(
    draft: Draft, scans: Sequence[Scan], loop: s.For, lane: str, lanes: int, mask: str
) -> tuple[s.For, dict[str, str]]:
    """The loop, which each lane begins at its own iteration and leaves those of the others out,
    for all of them; and functions that it needs, by name.

    `mask`: the lanes of the warp that are of the team; empty for a block.
    """
    (scan,) = scans
    a = scan.accumulator
    name = s.plain_name(scan.name)
    inside, add = draft.fresh_name("inside"), draft.fresh_name(f"{name}_added")
    here, before = draft.fresh_name(f"{name}_here"), draft.fresh_name(f"{name}_before")
    hoisted, first = _hoisted(scan)
    neutral_text = neutral(a) or name
    start: list[Any] = [s.Declare("bool", inside, value=loop.condition), *hoisted]
    own = s.Evaluate(s.Assign(s.Name(add), "", scan.value))
    start.append(Raw(f"{a.type} {add} = {neutral_text};"))
    start.append(s.If(RawExpression(inside), (*first, own)))  # type: ignore[arg-type]
    helpers: dict[str, str] = {}
    text = []
    if mask:
        text.append(_warp_lines(draft, a, add, lane, lanes, mask))
        text.append(f"{a.type} {here} = {name};\n{merged(a, here, add)}")
        width = f", {lanes}" if lanes < 32 else ""
        before_line = f"{a.type} {before} = __shfl_up_sync({mask}, {here}, 1{width});"
        kept = f"if ({lane} == 0) {before} = {name};"
        last = f"{name} = __shfl_sync({mask}, {here}, {lanes - 1}{width});"
    else:
        function = draft.fresh_name(f"block_{a.kind}s_of_{a.type.replace(' ', '_')}")
        helpers[function] = _block_helper(a, function, lanes)
        total = draft.fresh_name(f"{name}_total")
        text.append(f"{a.type} {total}, {before}_lanes;")
        text.append(f"{add} = {function}({add}, {neutral_text}, {total}, {before}_lanes);")
        text.append(f"{a.type} {here} = {name};\n{merged(a, here, add)}")
        before_line = f"{a.type} {before} = {name};\n{merged(a, before, f'{before}_lanes')}"
        kept = ""
        last = merged(a, name, total)
    if scan.between:
        text += [before_line, *([kept] if kept else [])]
    body: list[Any] = [*start, Raw("\n".join(text))]
    rest = (
        *renamed(scan.between, {scan.name: s.Name(before)}),
        *renamed(scan.after, {scan.name: s.Name(here)}),
    )
    if rest:
        body.append(s.If(RawExpression(inside), rest))  # type: ignore[arg-type]
    body.append(Raw(last))
    vote = s.Call("__any_sync", (RawExpression(mask), loop.condition))  # type: ignore[arg-type]
    if not mask:
        vote = s.Call("__syncthreads_or", (loop.condition,))  # type: ignore[arg-type]
    return replace(loop, condition=vote, body=tuple(body)), helpers


def _hoisted(scan: Scan) -> tuple[list[Any], list[Any]]:
    """Declarations for the whole iteration, and what sets them where there is one."""
    later = names_in((scan.between, scan.after))
    above: list[Any] = []
    first: list[Any] = []
    for x in scan.before:
        if not isinstance(x, s.Declare) or x.name not in later:
            first.append(x)
            continue
        if x.pointer or x.extents or x.shared or x.zeroed:
            raise NotUnderstood(f"{x.name}, which is not a scalar")
        above.append(s.Declare(x.type, x.name))
        if x.value is not None:
            first.append(s.Evaluate(s.Assign(s.Name(x.name), "", x.value), where=x.where))
    return above, first


def _warp_lines(draft: Draft, a: Any, value: str, lane: str, lanes: int, mask: str) -> str:
    apart, below = draft.fresh_name("apart"), draft.fresh_name("below")
    width = f", {lanes}" if lanes < 32 else ""
    return (
        f"for (int {apart} = 1; {apart} < {lanes}; {apart} *= 2) {{\n"
        f"    const {a.type} {below} = __shfl_up_sync({mask}, {value}, {apart}{width});\n"
        f"    if ({lane} >= {apart}) {merged(a, value, below)}\n}}"
    )


def _block_helper(a: Any, name: str, threads: int) -> str:
    """The function that scans one value of each thread of a block."""
    warps = threads // 32
    step = textwrap.indent(
        f"const {a.type} below = __shfl_up_sync(0xffffffff, value, apart);\n"
        f"if (threadIdx.x % 32 >= apart) {merged(a, 'value', 'below')}", " " * 8,
    )  # fmt: skip
    return (
        f"// The {a.kind} of the values of this thread and all before it; of all of them; of those "
        "before it.\n"
        f"__device__ {a.type} {name}({a.type} value, {a.type} none, {a.type}& total, "
        f"{a.type}& others)\n{{\n"
        f"    __shared__ {a.type} of_warp[{warps}];\n"
        f"    for (int apart = 1; apart < 32; apart *= 2) {{\n{step}\n    }}\n"
        f"    others = __shfl_up_sync(0xffffffff, value, 1);\n"
        f"    if (threadIdx.x % 32 == 0) others = none;\n"
        f"    if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = value;\n"
        f"    __syncthreads();\n    total = none;\n"
        f"    for (int warp = 0; warp < {warps}; ++warp) {{\n"
        f"        if (warp == threadIdx.x / 32) {{\n"
        f"            {merged(a, 'value', 'total')}\n            {merged(a, 'others', 'total')}\n"
        f"        }}\n        {merged(a, 'total', 'of_warp[warp]')}\n    }}\n"
        f"    __syncthreads();\n    return value;\n}}"
    )
