"""Fewer blocks, each of which does the work of several of the author's, one after the other.

CUDA promises nothing about the order of blocks, so that a kernel which does not wait for other
blocks is right in any order, and one after the other in the same block too. What a block keeps
between them, a private copy of something, is paid for once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, has_volatile
from cudaops.program.launch_expression import ONE, LaunchExpression, minimum, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft, Extents
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.thread_communication import require_converged_warps
from cudaops.transformations.trees import changed, renamed

_WAITS = frozenset({"__syncthreads", "__syncwarp"})
"""Barriers that are no business of other blocks."""


@dataclass(frozen=True)
class SerialBlocks:
    """The loop over the author's blocks, as it is to be written."""

    loop: s.For
    parameters: tuple[str, ...]
    """To be added to the kernel's."""
    arguments: tuple[LaunchExpression, ...]
    """Theirs."""
    grid: Extents
    requires: tuple[LaunchExpression, ...]


def prove_independent(draft: Draft) -> None:
    """Raise NotUnderstood for a kernel that may wait for other blocks, or talks to them."""
    facts = draft.facts
    if facts.unmodelled or facts.calls:
        raise NotUnderstood(f"what {(*facts.unmodelled, *facts.calls)[0]} does")
    if any(b.function not in _WAITS for b in facts.barriers):
        raise NotUnderstood("a memory fence or a grid-wide barrier")
    for function in (draft.form.kernel, *draft.form.functions):
        if has_volatile(function):
            raise NotUnderstood("volatile memory")
        if any(isinstance(x, s.Opaque) for x in s.below(function.body)):
            raise NotUnderstood("a statement that is not modelled")


def _kept(draft: Draft, body: Any) -> tuple[tuple[Raw, ...], dict[str, s.Name]]:
    """Copies of the parameters that a block changes: the next one begins with the author's."""
    parameters = {p.name: p for p in draft.form.kernel.parameters}
    lines, names = [], {}
    for name in sorted(changed_variables(body, draft.form) & set(parameters)):
        parameter = parameters[name]
        if parameter.size_bytes > 8:
            raise NotUnderstood(f"{name} is changed")
        names[name] = s.Name(draft.fresh_name(f"own_{name}"))
        const = "const " if parameter.is_pointer and parameter.is_const else ""
        star = "*" if parameter.is_pointer else ""
        lines.append(Raw(f"{const}{parameter.type}{star} {names[name].text} = {name};"))
    return tuple(lines), names


def serial(draft: Draft, body: Sequence[Any], most: int, *, is_last: bool = True) -> SerialBlocks:
    """A loop over the author's blocks around `body`, in which nothing returns, for at most this
    many blocks of one dimension. Raises NotUnderstood.

    `is_last`: what is in shared memory when a block ends is of no use to the next one.
    """
    for function in draft.form.functions:
        if any(_is_of_grid(x) for x in s.below(function.body)):
            raise NotUnderstood(f"{function.name} reads blockIdx or blockDim")
    require_converged_warps(draft)
    axes = [a for a, extent in zip("xyz", draft.launch.grid, strict=True) if extent != ONE] or ["x"]
    flat = axes == ["x"]
    block = draft.fresh_name("block")
    sizes = {a: draft.fresh_name("blocks" if flat else f"blocks_{a}") for a in axes}
    places = {a: block if flat else draft.fresh_name(f"block_{a}") for a in axes}
    kept, names = _kept(draft, tuple(body))
    inner = (*kept, *renamed(changed(tuple(body), _Renamed(places, sizes)), names))
    if any(isinstance(x, s.Name) and x.text in ("blockIdx", "gridDim") for x in s.below(inner)):
        raise NotUnderstood("blockIdx as a whole")
    if is_last and any(a.space == "shared" for a in draft.facts.accesses):
        inner = (*inner, Raw("__syncthreads();"))
    total = " * ".join(sizes.values())
    if not flat:
        inner = (Raw(_places(block, places, sizes)), *inner)
    loop = s.For(
        (Raw(f"unsigned {block} = blockIdx.x"),),  # type: ignore[arg-type]
        RawExpression(f"{block} < {total}"),  # type: ignore[arg-type]
        (RawExpression(f"{block} += gridDim.x"),),  # type: ignore[arg-type]
        inner,
    )
    whole = [draft.launch_expression(f"gridDim.{a}") for a in axes]
    count = product(whole)
    return SerialBlocks(
        loop, tuple(f"const unsigned {name}" for name in sizes.values()), tuple(whole),
        (minimum(count, most), ONE, ONE), () if flat else (count < 2**31 - 1,),
    )  # fmt: skip


def _places(block: str, places: dict[str, str], sizes: dict[str, str]) -> str:
    lines, before = [], ""
    axes = list(places)
    for n, axis in enumerate(axes):
        value = f"{block} / {before}" if before else block
        value = f"{value} % {sizes[axis]}" if n < len(axes) - 1 else value
        lines.append(f"const unsigned {places[axis]} = {value};")
        before = f"({before[1:-1]} * {sizes[axis]})" if before.startswith("(") else (
            f"({before} * {sizes[axis]})" if before else sizes[axis]
        )  # fmt: skip
    return "\n".join(lines)


def _is_of_grid(node: Any) -> bool:
    return isinstance(node, s.Name) and node.text in ("blockIdx", "gridDim")


@dataclass(frozen=True)
class _Renamed:
    places: dict[str, str]
    sizes: dict[str, str]

    def __call__(self, node: Any) -> Any:
        match node:
            case s.Member(s.Name("blockIdx"), axis):
                return s.Name(self.places[axis], type="unsigned") if axis in self.places else _of(0)
            case s.Member(s.Name("gridDim"), axis):
                return s.Name(self.sizes[axis], type="unsigned") if axis in self.sizes else _of(1)
        return node


def _of(value: int) -> s.Number:
    return s.Number(f"{value}u", type="unsigned")
