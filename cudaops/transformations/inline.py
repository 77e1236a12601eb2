"""A device function's body in place of a call, so that other transformations see what it does.

nvcc does the same by itself: it brings no time. But a loop that its author put into a function is
out of reach for what edits the kernel's own body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    calls_in,
    changed_variables,
    has_volatile,
    is_pure,
    names_in,
    pure_functions,
    reads_memory,
)
from cudaops.program.analysis.library_calls import BARRIERS, COLLECTIVES
from cudaops.program.lexing import byte_text, lex, plain_text
from cudaops.program.outline import outline
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.groups import (
    asks_group,
    has_groups,
    without_groups,
    without_unused_groups,
)
from cudaops.transformations.inlined_body import InlinedBody, header_of
from cudaops.transformations.trees import bodies_of, swapped

MOST_CALLS = 16
"""Calls of one kernel that are replaced: more make a text that nobody reads."""
_SHORT_CIRCUIT = ("&&", "||", ",")
_UNKNOWN = frozenset({
    "using", "typedef", "struct", "class", "enum", "union", "alignas", "__align__",
    "__attribute__", "decltype",
})  # fmt: skip
"""Words of a function's text that say more than its tree does."""
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!pragma\b|define\b|undef\b)", re.MULTILINE)


class Inline:
    """Functions with loops, barriers, arrays or loads, called from the kernel, become part of it,
    and methods of cooperative groups the intrinsics that they are.

    All of them at once, and what they call: a search begins with that wherever it can be, and
    times what it makes possible.
    """

    name = "inline"
    title = "device functions inlined"
    family: Family = "other"
    relieves: frozenset[str] = frozenset()

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is a call to replace."""
        found = next(_sites(draft, frozenset()), None) is not None or has_groups(draft)
        return ({},) if found else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One call after the other; those that cannot be replaced stay."""
        told, left = list[str](), set[str]()
        try:
            made = plain = without_groups(draft)
        except NotUnderstood:
            made = plain = draft
        for _ in range(MOST_CALLS):
            site = next(_sites(made, left), None)
            if site is None:
                break
            name = site.function.qualified_name.rpartition("::")[2]
            try:
                made = _inlined(made, site)
            except NotUnderstood:
                left.add(site.call.function)
                continue
            told.append(_spelled(draft, name))
        says = []
        if told:
            made = _without_unused(draft, made)
            says.append(f"The body of {' and '.join(dict.fromkeys(told))} is in the kernel.")
        if plain is not draft:
            made = without_unused_groups(made)
            says.append("Cooperative-group methods are replaced by their intrinsics.")
        if not says:
            raise NotUnderstood("no call that can be inlined")
        return made.stepped(Step(self.name, setting, " ".join(says)))


# Which calls


class _Site(NamedTuple):
    """A call that may be replaced, in a statement ahead of which statements may stand."""

    statement: Any
    call: s.Call
    function: s.Function


def _sites(draft: Draft, left: frozenset[str] | set[str]) -> Iterator[_Site]:
    """Those of functions other than `left`."""
    form = draft.form
    functions = _functions(form)
    wanted = {name for name in functions if name not in left and _is_wanted(name, functions)}
    loads = {n for n, f in functions.items() if n not in left and reads_memory(f.body)}
    for statement, is_in_loop in _places(form.kernel.body, is_in_loop=False):
        asked = wanted | loads if is_in_loop else wanted
        if not asked.isdisjoint(calls_in(root := _root(statement))):
            for call in _first_calls(root, form):
                if call.function in asked:
                    yield _Site(statement, call, functions[call.function])


def _functions(form: s.KernelForm) -> dict[str, s.Function]:
    """The program's functions that can be copied by their names: not methods, nor several
    instances of one template, whose text is one."""
    places = [f.where for f in form.functions]
    return {
        f.name: f
        for f in form.functions
        if f.where and places.count(f.where) == 1 and f.name.isidentifier()
    }


def _is_wanted(name: str, functions: Mapping[str, s.Function], above: tuple[str, ...] = ()) -> bool:
    """Whether a function, or one that it calls, holds what other transformations work on."""
    function = functions.get(name)
    if function is None or name in above:
        return False
    for x in s.below(function.body):
        if isinstance(x, s.For | s.Do) or (isinstance(x, s.Declare) and x.extents):
            return True
        if isinstance(x, s.Call) and (x.function in BARRIERS | COLLECTIVES or asks_group(x)):
            return True
    return any(_is_wanted(x, functions, (*above, name)) for x in calls_in(function.body))


def _places(body: Sequence[Any], *, is_in_loop: bool) -> Iterator[tuple[Any, bool]]:
    """Statements that others may stand ahead of, and whether a loop is around them. In a switch a
    declaration would stand between its cases."""
    for statement in body:
        yield statement, is_in_loop
        inside = is_in_loop or isinstance(statement, s.For | s.Do)
        if isinstance(statement, s.Switch):
            for inner in statement.body:
                for block in bodies_of(inner):
                    yield from _places(block, is_in_loop=inside)
            continue
        for block in bodies_of(statement):
            yield from _places(block, is_in_loop=inside)


def _root(statement: Any) -> Any:
    """What a statement works out once, before all else; None where there is no such thing."""
    match statement:
        case s.Declare(extents=(), shared=False) | s.Evaluate() | s.Give():
            return statement.value
        case s.If(condition):
            return condition
        case s.Switch(subject):
            return subject
    return None


def _first_calls(node: Any, form: s.KernelForm) -> Iterator[s.Call]:
    """Calls that are made whenever an expression is computed, arguments before what they go to,
    each of which may as well be made ahead of everything else in it."""
    reading = pure_functions(form)
    for call in _calls(node):
        inside = {id(x) for x in s.below(call)}
        above = {id(x) for x in s.below(node) if any(y is call for y in s.below(x))}
        beside = tuple(x for x in s.below(node) if id(x) not in inside | above)
        if not is_pure(beside, reading):
            continue
        # What is assigned to is looked at after the value.
        target = node.target if isinstance(node, s.Assign) else None
        later = {id(x) for x in s.below(target)} if target is not None else set[int]()
        early = tuple(x for x in beside if id(x) not in later)
        changes = _changes(call, form)
        if changes is None or (changes and (reads_memory(early) or calls_in(early) & reading)):
            continue
        if names_in(early).isdisjoint(changes):
            yield call


def _calls(node: Any) -> Iterator[s.Call]:
    """Those under no condition."""
    match node:
        case None | s.Choice() | s.Unmodelled() | s.Values():
            return
        case s.Binary(operator) if operator in _SHORT_CIRCUIT:
            return
    for child in s.children(node):
        yield from _calls(child)
    if isinstance(node, s.Call):
        yield node


def _changes(call: s.Call, form: s.KernelForm) -> set[str] | None:
    """Variables of the caller that a call may change; nothing where it only gives a value, and
    "memory" among them where it does more. None for a function that is not the program's."""
    if form.function(call.function) is None:
        return None
    if call.function in pure_functions(form):
        return set()
    return {"memory"} | changed_variables(call, form, arrays=True)


# One call


def _inlined(draft: Draft, site: _Site) -> Draft:
    """With the body in place of the call. Raises NotUnderstood."""
    name = site.call.function
    _check(draft, site.function)
    index = _number_of(draft, site.call)
    owned = draft.with_own_copy_of(name)
    if owned is not draft:
        site = _again(owned, index)
    body = InlinedBody(owned, site.call, site.function)
    statements, value = body.made()
    kernel = owned.form.kernel
    if value is None:
        if not (isinstance(site.statement, s.Evaluate) and site.statement.value is site.call):
            raise NotUnderstood(f"{name} returns no value")
        new: tuple[Any, ...] = tuple(statements)
    else:
        new = (*statements, swapped(site.statement, site.call, value))
        if isinstance(site.statement, s.Evaluate) and site.statement.value is site.call:
            new = new if body.has_effect else new[:-1]
    made = owned.with_body(swapped(kernel.body, site.statement, new))
    calls_in(made.form.kernel.body)  # clang reads it
    return made


def _number_of(draft: Draft, call: s.Call) -> int:
    """Which of the kernel's calls it is: a draft with a copy of the function has the same."""
    every = [x for x in s.below(draft.form.kernel.body) if isinstance(x, s.Call)]
    return next(i for i, x in enumerate(every) if x is call)


def _again(draft: Draft, number: int) -> _Site:
    every = [x for x in s.below(draft.form.kernel.body) if isinstance(x, s.Call)]
    for statement, _ in _places(draft.form.kernel.body, is_in_loop=False):
        if any(x is every[number] for x in _calls(_root(statement))):
            function = draft.form.function(every[number].function)
            if function is not None:
                return _Site(statement, every[number], function)
    raise NotUnderstood("the call was not found")


def _check(draft: Draft, function: s.Function) -> None:
    """Raises NotUnderstood for a function that has to stay one."""
    name, form = function.name, draft.form
    waiting, seen = [function], {name}
    while waiting:
        for callee in map(form.function, calls_in(waiting.pop().body)):
            if callee is not None and callee.name == name:
                raise NotUnderstood(f"{name} is recursive")
            if callee is not None and callee.name not in seen:
                seen.add(callee.name)
                waiting.append(callee)
    if function.where is None or function.body_where is None:
        raise NotUnderstood(f"{name} was not found")
    for x in s.below(function.body):
        if isinstance(x, s.Opaque):
            raise NotUnderstood(f"{x.what} in {name}")
        if isinstance(x, s.Declare) and (x.unsized or (x.shared and _calls_of(name, form) > 1)):
            raise NotUnderstood(f"shared memory of {name}")
    text = draft.program.file(function.where.file).text
    header = header_of(text, function)
    if "noinline" in header:
        raise NotUnderstood(f"{name} is __noinline__")
    body = text.encode()[function.body_where.start : function.body_where.end].decode()
    words = {t.text for t in lex(byte_text(body)).tokens}
    if words & _UNKNOWN or has_volatile(function):
        raise NotUnderstood(f"{min(words & _UNKNOWN, default='volatile')} in {name}")
    if _DIRECTIVE.search(body):
        raise NotUnderstood(f"preprocessor directives in {name}")


def _calls_of(name: str, form: s.KernelForm) -> int:
    """How many places of the kernel, and of what it calls, call a function: its shared memory is
    the same in all of them."""
    bodies = [form.kernel.body, *(f.body for f in form.functions)]
    calls = (x for body in bodies for x in s.below(body) if isinstance(x, s.Call))
    return sum(x.function == name for x in calls)


# The copies


def _spelled(author: Draft, name: str) -> str:
    """A function as the draft that was begun with calls it."""
    known = {f.qualified_name.rpartition("::")[2] for f in author.form.functions}
    return name if name in known else name.removesuffix("_fast")


def _without_unused(before: Draft, draft: Draft) -> Draft:
    """Without the functions that nothing calls any more."""
    text = draft.text
    while True:
        facts = outline(byte_text(text))
        functions = (x for x in facts.items if x.kind == "function" and not x.is_kernel)
        gone = next(
            (x for x in functions if _uses(x.name, text) == 1 != _uses(x.name, before.text)), None
        )
        if gone is None:
            return replace(draft, text=text)
        raw = facts.lexed.text
        text = plain_text(raw[: gone.start] + raw[gone.end :].lstrip("\n"))


def _uses(name: str, text: str) -> int:
    """How often the code says a name; comments do not count."""
    return sum(token.text == name for token in lex(byte_text(text)).tokens)
