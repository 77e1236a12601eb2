"""What shared memory a block of a draft has left, and how its threads are counted."""

from __future__ import annotations

import math
import re
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in
from cudaops.program.analysis.facts import ELEMENT_BYTES
from cudaops.program.launch_expression import LaunchExpression, product
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.trees import declarations_in

STATIC_BYTES = 48 * 1024
"""Of a block, without opting in. Source: CUDA C++ Programming Guide, technical specifications."""


def block_of(draft: Draft) -> tuple[int, int, int]:
    """The block of every launch. Raises NotUnderstood where launches differ in it."""
    x, y, z = (draft.value(f"blockDim.{axis}") for axis in "xyz")
    if not (isinstance(x, int) and isinstance(y, int) and isinstance(z, int)):
        raise NotUnderstood("launches with different blocks")
    return x, y, z


def block_guards(draft: Draft, block: tuple[int, int, int]) -> tuple[LaunchExpression, ...]:
    """The conditions that a launch has this block."""
    return tuple(x.equals(n) for x, n in zip(draft.launch.block, block, strict=True))


def thread_in_block(block: tuple[int, int, int]) -> str:
    """A thread's number in its block, x the fastest, as C; safe as a factor where it is one name.

    Builtins stay as they are: what calls this must know that nobody names a variable like them.
    """
    x, y, z = block
    text = "threadIdx.x"
    if z > 1:
        return f"(threadIdx.z * {y} + threadIdx.y) * {x} + {text}"
    return f"threadIdx.y * {x} + {text}" if y > 1 else text


def threads_of(draft: Draft) -> tuple[str, str]:
    """A thread's number in its block and how many there are, as C that asks the launch."""
    if draft.launch.has_flat_block:
        return "threadIdx.x", "blockDim.x"
    return (
        "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x",
        "blockDim.x * blockDim.y * blockDim.z",
    )


def whole_warps(draft: Draft) -> LaunchExpression:
    """The condition that a launch has no part of a warp."""
    return (product(draft.launch.block) % 32).equals(0)


def room_for(draft: Draft) -> int:
    """Bytes of static shared memory that a block may still declare. Raises NotUnderstood."""
    used = max(w.dynamic_smem_bytes for w in draft.workloads)
    sizes = ELEMENT_BYTES | dict(draft.form.sizes)
    bodies = (draft.form.kernel, *draft.form.functions)
    for node in (x for function in bodies for x in s.below(function.body)):
        if isinstance(node, s.Declare) and node.shared and not node.unsized:
            used += _bytes_of(node, sizes)
    return STATIC_BYTES - used


def _bytes_of(node: s.Declare, sizes: dict[str, int]) -> int:
    extents = [extent(e) for e in node.extents]
    known = 8 if node.pointer else sizes.get(node.type)
    if known is None or None in extents:
        raise NotUnderstood(f"unknown size of {node.name}")
    return known * math.prod(e for e in extents if e is not None)


def extent(node: s.Expression) -> int | None:
    """The value of a literal, or of sums and products of them; None for anything else."""
    if isinstance(node, s.Binary) and node.operator in ("+", "-", "*"):
        a, b = extent(node.left), extent(node.right)
        if a is None or b is None:
            return None
        return {"+": a + b, "-": a - b, "*": a * b}[node.operator]
    return s.integer_of(node)


def element_of(node: Any, name: str, rank: int) -> tuple[s.Expression, ...] | None:
    """The indices, where it is an element of this array, of which all indices are written."""
    indices: list[s.Expression] = []
    while isinstance(node, s.Index):
        indices.insert(0, node.index)
        node = node.base
    if isinstance(node, s.Name) and node.text == name and len(indices) == rank:
        return tuple(indices)
    return None


def is_only_indexed(draft: Draft, name: str, rank: int) -> bool:
    """Whether every mention of an array is one of its elements, of which nobody takes the address,
    and nothing asks for its size or type."""
    body = draft.form.kernel.body
    mentions = sum(1 for x in s.below(body) if isinstance(x, s.Name) and x.text == name)
    elements = 0
    for x in s.below(body):
        if element_of(x, name, rank) is not None:
            elements += 1
        if isinstance(x, s.Unary) and x.operator == "&" and name in names_in(x.operand):
            return False
    word = re.escape(s.plain_name(name))
    if re.search(rf"\b(sizeof|decltype)\b[^;]*\b{word}\b", draft.program.main.text):
        return False
    if any(x.name == name and x.is_volatile for x in declarations_in(body)):
        return False
    return elements == mentions > 0
