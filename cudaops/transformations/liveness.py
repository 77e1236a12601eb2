"""Whether what a statement leaves in a variable is ever looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s


def live_after(body: Sequence[Any], node: Any, name: str) -> bool:
    """Whether a variable may be read after a statement of the body, before it is set again.

    Says yes where it cannot tell. Other names of the variable are not looked for.
    """
    walk = _Walk(node, name)
    walk.body(body, _Ways(after=False))
    return walk.found is not False


def live_before(body: Sequence[Any], name: str) -> bool:
    """Whether what a variable holds before these statements may be read in them. Says yes where it
    cannot tell, and looks for no other names of it."""
    return _Walk(None, name).body(body, _Ways(after=False))


@dataclass(frozen=True)
class _Ways:
    """Whether the variable is live where control may go on."""

    after: bool
    broken: bool = False
    continued: bool = False


class _Walk:
    def __init__(self, node: Any, name: str) -> None:
        self._node, self._name = node, name
        self.found: bool | None = None
        """Whether it is live after the statement; None while that was not met."""

    def body(self, body: Sequence[Any], ways: _Ways) -> bool:
        """Whether it is live before these statements."""
        live = ways.after
        for x in reversed(body):
            if x is self._node:
                self.found = live or bool(self.found)
            live = self._before(x, _Ways(live, ways.broken, ways.continued))
        return live

    def _before(self, x: Any, ways: _Ways) -> bool:
        match x:
            case s.Declare(name=name) if name == self._name:
                return x.value is not None and self._reads(x.value)
            case s.Evaluate(s.Assign(s.Name(name), "", value)) if name == self._name:
                return self._reads(value)
            case s.If(condition, yes, no):
                either = [self.body(yes, ways), self.body(no, ways)]
                return any(either) or self._reads(condition)
            case s.Block(inner):
                return self.body(inner, ways)
            case s.For(first, condition, step, inner):
                again = self._around(inner, condition, step, ways.after)
                return self.body(first, _Ways(again))
            case s.Do(inner, condition):
                live = ways.after or self._reads(condition)
                live = live or self.body(inner, _Ways(live, ways.after, live))
                return self.body(inner, _Ways(live, ways.after, live))
            case s.Leave("return") | s.Give():
                return isinstance(x, s.Give) and self._reads(x.value)
            case s.Leave(word):
                return ways.broken if word == "break" else ways.continued
            case s.Switch():
                return ways.after or ways.broken or ways.continued or self._reads(x)
        return ways.after or self._reads(x)

    def _around(
        self, inner: Sequence[Any], condition: Any, step: Sequence[Any], after: bool
    ) -> bool:
        """Whether it is live where a loop tests its condition."""
        live = after or self._reads(condition)
        for _ in range(2):
            stepped = live
            for x in reversed(step):
                stepped = self._before(s.Evaluate(x), _Ways(stepped))
            live = self.body(inner, _Ways(stepped, after, stepped)) or live
        return live

    def _reads(self, node: Any) -> bool:
        return any(isinstance(x, s.Name) and x.text == self._name for x in s.below(node))
