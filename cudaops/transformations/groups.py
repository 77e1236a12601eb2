"""Cooperative groups of a block and of whole warps as the intrinsics that their methods are.

`cg::tiled_partition<32>(block).shfl_down(x, 1)` is `__shfl_down_sync(0xffffffff, x, 1)`, and
`block.sync()` is `__syncthreads()`: all that knows barriers and shuffles by their names knows them
then. Tiles of fewer lanes and coalesced groups act for lanes that only they know: they stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in
from cudaops.program.launch_expression import ONE
from cudaops.transformations.draft import Draft
from cudaops.transformations.functions import reached, rewritten
from cudaops.transformations.trees import changed

_BLOCK = "cooperative_groups::thread_block"
_WARP = re.compile(r"cooperative_groups::thread_block_tile<32\b.*>")
_SHUFFLES = frozenset({"shfl", "shfl_down", "shfl_up", "shfl_xor"})
_VOTES = frozenset({"any", "all", "ballot"})
_PLACES = {
    "thread_index": "threadIdx", "group_index": "blockIdx", "group_dim": "blockDim",
    "dim_threads": "blockDim",
}  # fmt: skip
_METHODS = frozenset({
    "sync", "thread_rank", "size", "num_threads", "meta_group_rank", "meta_group_size", "reduce",
    *_SHUFFLES, *_VOTES, *_PLACES,
})  # fmt: skip
"""What is known of groups; each with the group as its first argument."""
_NUMBERS = frozenset({"int", "unsigned", "long long", "unsigned long long", "float", "double"})
_COMBINES = {"plus": "+", "less": "<", "greater": ">"}
_MASK, _LANES = s.Number("0xffffffff", type="unsigned"), 32


def asks_group(node: Any) -> bool:
    """Whether a call is of a group's method, whatever group it is."""
    match node:
        case s.Call(function, (group, *_)) if function in _METHODS:
            return bool(getattr(group, "type", "").startswith("cooperative_groups::"))
    return False


def has_groups(draft: Draft) -> bool:
    """Whether something asks a group for what an intrinsic does."""
    return any(_plain(draft, f) is not None for f in reached(draft))


def without_groups(draft: Draft) -> Draft:
    """With intrinsics in place of methods, in functions that the kernel calls too; the draft itself
    where there are none. Raises NotUnderstood."""
    made = rewritten(draft, _plain)
    _ = made.form
    return made


def without_unused_groups(draft: Draft) -> Draft:
    """Without the kernel's groups that nothing asks. Raises NotUnderstood."""
    body = draft.form.kernel.body
    shorter = _asked(body)
    return draft if shorter is body else draft.with_body(shorter)


def _plain(draft: Draft, function: s.Function) -> tuple[Any, ...] | None:
    groups = _Groups(draft, function)
    new: Any = changed(changed(function.body, groups.reduced), groups.intrinsic)
    return None if new is function.body else _asked(new)


def _asked(body: Any) -> tuple[Any, ...]:
    """A body without the groups that nothing asks."""
    now = body
    while (shorter := changed(now, _Unused(frozenset(names_in(now))))) is not now:
        now = shorter
    return tuple(now)


@dataclass(frozen=True)
class _Unused:
    """Leaves out groups that have none of these names."""

    used: frozenset[str]

    def __call__(self, node: Any) -> Any:
        is_group = isinstance(node, s.Declare) and _kind(s.Name(node.name, type=node.type))
        return () if is_group and node.name not in self.used else node


def _kind(node: Any) -> str:
    """`block` or `warp`, which its type tells; empty for anything else."""
    kind = getattr(node, "type", "")
    if not isinstance(node, s.Name) and not (
        isinstance(node, s.Call) and node.function in ("this_thread_block", "tiled_partition")
    ):
        return ""
    return "block" if kind == _BLOCK else "warp" if _WARP.fullmatch(kind) else ""


class _Groups:
    """What methods of groups stand for in one draft."""

    def __init__(self, draft: Draft, function: s.Function) -> None:
        self._draft = draft
        types = {p.name: p.type for p in function.parameters}
        types |= {x.name: x.type for x in s.below(function.body) if isinstance(x, s.Declare)}
        self._names = {n for n, kind in types.items() if _kind(s.Name(n, type=kind))}

    def is_method(self, node: Any) -> bool:
        """Whether a call is of a block's or a warp's method, or of a function for groups."""
        return (
            isinstance(node, s.Call) and node.function in _METHODS and node.arguments != ()
            and self._draft.form.function(node.function) is None
            and bool(_kind(node.arguments[0]))
        )  # fmt: skip

    # Expressions

    def intrinsic(self, node: Any) -> Any:
        """What a method's call stands for; anything else as it is."""
        match node:
            case s.Number(text, constant=name) if name in self._names:
                return s.Number(text, type=node.type)
            case s.Member(s.Call(method) as call, axis) if (
                method in _PLACES and self.is_method(call) and _kind(call.arguments[0]) == "block"
            ):
                return s.Member(s.Name(_PLACES[method]), axis, type="unsigned")
        if not self.is_method(node):
            return node
        group, *arguments = node.arguments
        found = self._of_block(node.function) if _kind(group) == "block" else (
            self._of_warp(node, arguments)
        )  # fmt: skip
        return node if found is None else found

    def _of_block(self, method: str) -> s.Expression | None:
        match method:
            case "sync":
                return s.Call("__syncthreads", (), type="void")
            case "thread_rank":
                return self._rank()
            case "size" | "num_threads":
                return self._threads()
        return None

    def _of_warp(self, call: s.Call, arguments: Sequence[Any]) -> s.Expression | None:
        lanes = s.Number(str(_LANES), type="unsigned")
        match call.function:
            case "sync":
                return s.Call("__syncwarp", (), type="void")
            case "thread_rank":
                return s.Binary("%", self._rank(), lanes, type="unsigned")
            case "meta_group_rank":
                return s.Binary("/", self._rank(), lanes, type="unsigned")
            case "meta_group_size":
                more = s.Number(str(_LANES - 1), type="unsigned")
                whole = s.Binary("+", self._threads(), more, type="unsigned")
                return s.Binary("/", whole, lanes, type="unsigned")
            case method if method in _SHUFFLES | _VOTES:
                if method in _SHUFFLES and call.type not in _NUMBERS:
                    return None
                return s.Call(f"__{method}_sync", (_MASK, *arguments), type=call.type)
        return None

    def _axes(self) -> str:
        """Those on which a block may have more than one thread."""
        return "x" + "".join(
            a for a in "yz" if self._draft.launch_expression(f"blockDim.{a}") != ONE
        )

    def _rank(self) -> s.Expression:
        """The thread's number in its block."""
        axes = self._axes()
        found: s.Expression = s.Member(s.Name("threadIdx"), axes[-1], type="unsigned")
        for axis in reversed("xyz"[: "xyz".index(axes[-1])]):
            extent = s.Member(s.Name("blockDim"), axis, type="unsigned")
            own = s.Member(s.Name("threadIdx"), axis, type="unsigned")
            found = s.Binary("+", s.Binary("*", found, extent, type="unsigned"), own,
                             type="unsigned")  # fmt: skip
        return found

    def _threads(self) -> s.Expression:
        """The threads of a block."""
        found, *rest = (s.Member(s.Name("blockDim"), a, type="unsigned") for a in self._axes())
        whole: s.Expression = found
        for x in rest:
            whole = s.Binary("*", whole, x, type="unsigned")
        return whole

    # Statements

    def reduced(self, node: Any) -> Any:
        """A loop of shuffles for `x = cg::reduce(warp, y, cg::plus<T>())`."""
        match node:
            case s.Declare(extents=(), pointer=False, shared=False, value=s.Call() as call):
                place = s.Name(node.name, type=node.type)
            case s.Evaluate(s.Assign(s.Name() as place, "", s.Call() as call)):
                pass
            case _:
                return node
        operator = self._combine(call)
        if not operator or place.type != call.type:
            return node
        value = call.arguments[1]
        first: tuple[Any, ...] = (s.Evaluate(s.Assign(place, "", value)),) * (value != place)
        if isinstance(node, s.Declare):
            first = (replace(node, value=value, where=None),)
        apart = s.Name(self._draft.fresh_name("apart"), type="int")
        other = s.Call("__shfl_xor_sync", (_MASK, place, apart), type=call.type)
        step: list[Any] = [s.Evaluate(s.Assign(place, "+", other))]
        if operator != "+":
            name = s.Name(self._draft.fresh_name("other"), type=call.type)
            chosen = s.Choice(s.Binary(operator, name, place, type="bool"), name, place)
            step = [s.Declare(f"const {call.type}", name.text, value=other),
                    s.Evaluate(s.Assign(place, "", chosen))]  # fmt: skip
        begin = s.Declare("int", apart.text, value=s.Number(str(_LANES // 2)))
        halved = s.Assign(apart, "/", s.Number("2"))
        loop = s.For((begin,), s.Binary(">", apart, s.Number("0")), (halved,), tuple(step))
        return (*first, loop)

    def _combine(self, call: s.Call) -> str:
        """What `reduce` over a warp combines by; empty for anything else."""
        match call:
            case s.Call("reduce", (group, _, functor)) if (
                self.is_method(call) and _kind(group) == "warp" and call.type in _NUMBERS
            ):
                found = re.fullmatch(r"cooperative_groups::(\w+)<([\w ]+)>", _made_by(functor))
                if found and s.normal_type(found[2]) == call.type:
                    return _COMBINES.get(found[1], "")
        return ""


def _made_by(node: Any) -> str:
    """The type of an object made of nothing: `cg::plus<float>()`, `cg::plus<float>{}`."""
    match node:
        case s.Call(function, ()):
            return function
        case s.Cast(type, s.Values(())):
            return type
    return ""
