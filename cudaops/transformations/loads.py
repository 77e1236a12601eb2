"""Loads of several statements ahead of them, for all items of a thread before any is used."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import names_in, root_of
from cudaops.transformations.thread_communication import ATOMICS


class Items(Protocol):
    """The body whose statements they are."""

    @property
    def most_loads(self) -> int:
        """Loads of one item that may be issued ahead."""

    def depends(self, node: Any) -> bool:
        """Whether it depends on the item."""

    def is_ready(self, name: str, ready: Collection[str]) -> bool:
        """Whether a variable has its value once these have theirs."""

    def is_memory(self, place: Any) -> bool:
        """Whether a place is not one of the thread's or block's own variables."""

    def is_stable(self, name: str) -> bool:
        """Whether a variable has one value from its declaration on."""

    def has_effect(self, node: Any) -> bool:
        """Whether it does more than to change the thread's own variables."""

    def fresh(self, wanted: str) -> str:
        """A name that nothing uses."""

    def declare(self, node: s.Declare) -> None:
        """A variable of each item's that the author did not have."""


class Loads:
    """The loads of statements, in the order in which they can be issued."""

    def __init__(self, spread: Items, body: Sequence[Any]) -> None:
        self._spread, self._body = spread, body
        self._levels: list[list[Any]] = []
        self._ready: dict[str, int] = {}
        """Variables that hold a load, by its level."""
        self._known: dict[Any, str] = {}
        self._own = {x.name for x in body if isinstance(x, s.Declare)}

    def split(self) -> tuple[list[list[Any]], list[Any]]:
        """Loads by level, and what is left; no loads where nothing would follow them."""
        rest: list[Any] = []
        effects = False
        for node in self._body:
            if effects or not isinstance(node, s.Declare | s.Evaluate):
                effects = effects or self._spread.has_effect(node)
                rest.append(node)
                continue
            effects = self._spread.has_effect(node)
            rest += self._taken(node)
        if not self._levels or not any(self._spread.has_effect(x) for x in rest):
            return [], list(self._body)
        return self._levels, rest

    def _taken(self, node: s.Declare | s.Evaluate) -> tuple[Any, ...]:
        if isinstance(node, s.Declare):
            if node.value is None or node.extents or node.pointer:
                return (node,)
            if self._is_ahead(node):
                level = self._level(node.value)
                if level is not None and self._issue(node, level):
                    self._ready[node.name] = level
                    return ()
        if not self._is_plain(node.value):
            return (node,)
        value = self._replaced(node.value)
        return (node if value is node.value else replace(node, value=value),)

    def _is_ahead(self, node: s.Declare) -> bool:
        """Whether a whole declaration may be made ahead of what stands before it."""
        return (
            node.value is not None and self._spread.is_stable(node.name)
            and not self._spread.has_effect(node.value)
            and any(self._is_load(x) for x in s.below(node.value))
        )  # fmt: skip

    def _is_plain(self, value: Any) -> bool:
        """Whether nothing happens in an expression before its loads."""
        parts: tuple[Any, ...] = (value,)
        if isinstance(value, s.Assign):
            parts = (value.value, getattr(value.target, "index", value.target))
        elif isinstance(value, s.Call) and value.function in ATOMICS:
            parts = tuple(_index_of(a) for a in value.arguments)
        return not any(
            isinstance(x, s.Assign | s.Step) or self._spread.has_effect(x)
            for p in parts for x in s.below(p)
        )  # fmt: skip

    def _replaced(self, value: Any) -> Any:
        """The expression with its loads in variables."""
        match value:
            case s.Assign(target, _, right):
                place, new = self._in_place(target), self._replaced(right)
                same = new is right and place is target
                return value if same else replace(value, target=place, value=new)
            case s.Call(function, arguments) if function in ATOMICS:
                return replace(value, arguments=tuple(
                    replace(a, operand=self._in_place(a.operand))
                    if isinstance(a, s.Unary) and a.operator == "&" else self._replaced(a)
                    for a in arguments
                ))  # fmt: skip
            case s.Binary("&&" | "||" | ",") | s.Choice() | s.Unary("&") | s.Step():
                return value
            case s.Index() if self._is_load(value):
                return self._in_variable(value)
            case s.Binary(_, left, right):
                a, b = self._replaced(left), self._replaced(right)
                return value if a is left and b is right else replace(value, left=a, right=b)
            case s.Unary("-" | "+" | "~" | "!", operand) | s.Cast(_, operand):
                new = self._replaced(operand)
                return value if new is operand else replace(value, operand=new)
            case s.Call(_, arguments) if not self._spread.has_effect(value):
                found = tuple(self._replaced(a) for a in arguments)
                same = all(a is b for a, b in zip(found, arguments, strict=True))
                return value if same else replace(value, arguments=found)
        return value

    def _in_place(self, place: Any) -> Any:
        if not isinstance(place, s.Index):
            return place
        index = self._replaced(place.index)
        return place if index is place.index else replace(place, index=index)

    def _in_variable(self, load: s.Index) -> Any:
        if load in self._known:
            return s.Name(self._known[load], type=load.type)
        level = self._level(load)
        if level is None or not load.type or "[" in load.type or load.type.endswith("*"):
            return load
        root = s.plain_name(root_of(load) or "value")
        name = self._spread.fresh(f"{root}_value")
        node = s.Declare(load.type, name, value=load)
        if not self._issue(node, level):
            return load
        self._spread.declare(node)
        self._ready[name] = level
        self._known[load] = name
        return s.Name(name, type=load.type)

    def _is_load(self, node: Any) -> bool:
        """Whether it is one access to memory of the launch's, whatever its index."""
        if isinstance(node, s.Call) and node.function == "__ldg":
            return True
        return isinstance(node, s.Index) and self._spread.is_memory(node)

    def _issue(self, node: s.Declare, level: int) -> bool:
        if sum(map(len, self._levels)) >= self._spread.most_loads:
            return False
        while len(self._levels) <= level:
            self._levels.append([])
        self._levels[level].append(node)
        return True

    def _level(self, load: Any) -> int | None:
        """When it can be issued: 0 for at once, 1 after the first loads; None for later."""
        if not self._spread.depends(load):
            return None
        names = names_in(load)
        for level in range(3):
            ready = {n for n, at in self._ready.items() if at < level}
            if all(self._spread.is_ready(n, ready) for n in names):
                return level
        return None


def _index_of(argument: Any) -> Any:
    """Of `&place[index]`, the index; any other argument whole."""
    match argument:
        case s.Unary("&", s.Index(_, index)):
            return index
    return argument
