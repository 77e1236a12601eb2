"""Every function that a launch runs: the kernel and the device functions that it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import calls_in
from cudaops.program.analysis.library_calls import PURE
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import FILE, Draft

Rewritten = Callable[[Draft, s.Function], tuple[Any, ...] | None]
"""Another body of a function of a draft; None where it stays as it is."""

FLOATING = frozenset({"float", "double"})
"""Numbers whose division always has a result."""


def reached(draft: Draft) -> Iterator[s.Function]:
    """The kernel and the program's functions that it reaches, callers before what they call.

    Several instances of one template are left out: their text is one, their types are not.
    """
    form = draft.form
    yield form.kernel
    places = [f.where for f in form.functions]
    plain = {f.name: f for f in form.functions if places.count(f.where) == 1}
    left = dict(plain)
    while left:
        called = {name for f in left.values() for name in calls_in(f.body) if name != f.name}
        free = [name for name in left if name not in called] or list(left)[:1]
        for name in free:
            yield left.pop(name)


def rewritten(draft: Draft, change: Rewritten) -> Draft:
    """With `change` made in every function that can be edited: a device function of the author is
    copied into the draft first, and what calls it too. The draft itself where nothing changes.

    Raises NotUnderstood where the kernel itself cannot be printed.
    """
    draft = owning(draft, change)
    for name in [f.name for f in reached(draft) if f.where is not None and f.where.file == FILE]:
        function = _named(draft, name)
        body = None if function is None else change(draft, function)
        if function is not None and body is not None:
            draft = draft.edited(function, draft.printer(function).printed(body))
    return draft


def _named(draft: Draft, name: str) -> s.Function | None:
    kernel = draft.form.kernel
    return kernel if name == kernel.name else draft.form.function(name)


def owning(draft: Draft, change: Rewritten) -> Draft:
    """With everything in the draft that is to be edited, and all callers of it."""
    left_out: set[str] = set()
    while True:
        function = _missing(draft, change, left_out)
        if function is None:
            return draft
        try:
            draft = draft.with_own_copy_of(function.name)
        except NotUnderstood:
            left_out.add(function.name)


def _missing(draft: Draft, change: Rewritten, left_out: set[str]) -> s.Function | None:
    """The author's function that is to come into the draft next."""
    functions = list(reached(draft))
    wanted: set[str] = set()
    for function in reversed(functions):
        if change(draft, function) is not None or calls_in(function.body) & wanted:
            wanted.add(function.name)
    shown = {draft.form.kernel.name}
    for function in functions:
        if function.name not in wanted or function.name in left_out:
            continue
        called = any(function.name in calls_in(f.body) for f in functions if f.name in shown)
        if function.where is not None and function.where.file == FILE:
            shown.add(function.name)
        elif called:
            return function
    return None


def computing(draft: Draft) -> frozenset[str]:
    """Functions of the program whose result depends on their arguments alone, and that can be given
    any: they read no memory, hold no loop and divide no integers."""
    pure, left = set[str](), list(draft.form.functions)
    while found := [f for f in left if _computes(f, pure)]:
        pure |= {f.name for f in found}
        left = [f for f in left if f not in found]
    return frozenset(pure)


def _computes(function: s.Function, pure: set[str]) -> bool:
    if any(p.is_pointer or p.is_reference or p.is_volatile for p in function.parameters):
        return False
    declared = [x for x in s.below(function.body) if isinstance(x, s.Declare)]
    if any(x.pointer or x.shared or x.extents for x in declared):
        return False
    own = {p.name for p in function.parameters} | {x.name for x in declared} | {"true", "false"}
    return all(_is_harmless(x, own, pure) for x in s.below(function.body))


def _is_harmless(x: Any, own: set[str], pure: set[str]) -> bool:
    match x:
        case s.Assign(s.Name(), "/" | "%", type=kind) if kind not in FLOATING:
            return False
        case s.Name(text) | s.Assign(s.Name(text)) | s.Step(s.Name(text)):
            return text in own
        case s.Call(function):
            return function in PURE or function in pure
        case s.Binary("/" | "%", type=kind):
            return kind in FLOATING
        case s.Unary(operator):
            return operator in ("-", "+", "!", "~")
        case s.Number() | s.Cast() | s.Binary() | s.Choice():
            return True
        case tuple() | s.Declare() | s.Evaluate() | s.If() | s.Give() | s.Block():
            return True
    return False
