"""One block's work after another's in the same block: parameters, jumps and what comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import changed_variables, names_in, written_names
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.text import Raw
from cudaops.transformations.trees import changed, renamed


def item_loop(item: str, factor: int, body: Sequence[Any]) -> tuple[Any, ...]:
    """`body` once for every item."""
    first = (s.Declare("int", item, value=s.Number("0")),)
    condition = s.Binary("<", s.Name(item), s.Number(str(factor)))
    loop = s.For(first, condition, (s.Step(s.Name(item), 1),), tuple(body))
    return (Raw("#pragma unroll"), loop)


def continued(body: Any) -> Any:
    """With `continue` for `return`. Raises NotUnderstood inside of loops and switches."""
    for node in s.below(body):
        if isinstance(node, s.For | s.Do | s.Switch) and any(
            isinstance(x, s.Leave) and x.word == "return" for x in s.below(node)
        ):
            raise NotUnderstood("a return inside of a loop")

    def change(node: Any) -> Any:
        leaves = isinstance(node, s.Leave) and node.word == "return"
        return replace(node, word="continue", where=None) if leaves else node

    return changed(body, change)


def own_parameters(draft: Draft, body: Any) -> Any:
    """With copies of parameters that the kernel changes: each block's work begins with the
    launch's."""
    parameters = draft.form.kernel.parameters
    changing = changed_variables(body, draft.form) & {p.name for p in parameters}
    copies = []
    for p in parameters:
        if p.name not in changing:
            continue
        own = draft.fresh_name(f"{p.name}_own")
        body = renamed(body, {p.name: s.Name(own, type=p.type + "*" * p.is_pointer)})
        const = "const " if p.is_pointer and p.is_const else ""
        value = s.Name(p.name)
        copies.append(s.Declare(const + p.type, own, pointer=p.is_pointer, value=value))
    return (*copies, *body)


def invariant(draft: Draft, body: Sequence[Any], item: str) -> tuple[list[Any], list[Any]]:
    """Declarations at the begin that are the same whatever `item` is, and the rest."""
    early: list[Any] = []
    rest = list(body)
    while rest and isinstance(rest[0], s.Declare):
        node = rest[0]
        later = {x.name for x in rest if isinstance(x, s.Declare)}
        changing = written_names(tuple(rest), draft.form)
        if (
            changing is None or node.name in changing or node.value is None or node.extents
            or names_in(node.value) & ({item} | later | changing)
            or any(isinstance(x, s.Call | s.Unmodelled | s.Index) for x in s.below(node.value))
        ):  # fmt: skip
            break
        early.append(rest.pop(0))
    return early, rest
