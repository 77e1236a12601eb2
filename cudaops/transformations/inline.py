"""A device function's body in place of a call, so that other transformations see what it does.

nvcc does the same by itself: it brings no time. But a loop that its author put into a function is
out of reach for what edits the kernel's own body.

Every argument is worked out once, ahead of the body: a parameter is a local of its type, or the
argument itself where that is a variable which holds the same value all along. `p[k]` of a pointer
parameter is `a[at + k]` of the kernel's array, with the offset in a local of 64 bits, as wide as
pointer arithmetic is. A reference is the variable that it is bound to. Names are made free. An
early `return` becomes an `if` with the rest of the body in its `else`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cudaops.domain.hypothesis import Family
from cudaops.program import syntax as s
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.lexing import byte_text, lex, plain_text
from cudaops.program.outline import outline
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting
from cudaops.transformations.draft import FILE, Draft, Step
from cudaops.transformations.text import FunctionText, Raw, RawExpression
from cudaops.transformations.trees import (
    BARRIERS,
    COLLECTIVES,
    PURE,
    bodies_of,
    calls_in,
    changed,
    declarations_in,
    declared_in,
    is_pure,
    names_in,
    reads_memory,
    swapped,
)

MOST_CALLS = 16
"""Calls of one kernel that are replaced: more make a text that nobody reads."""
_NUMBERS = INTEGERS | {"float", "double", "bool", "half"}
_SHORT_CIRCUIT = ("&&", "||", ",")
_MEMBER = (".", "->")
_LOCAL_TYPES = frozenset({"using", "typedef", "struct", "class", "enum", "union"})
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!pragma\b|define\b|undef\b)", re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_ARRAY = re.compile(r"([^\[]*)\[\d*\]((?:\[\d+\])*)")


class Inline:
    """Functions with loops, barriers, arrays or loads, called from the kernel, become part of it.

    All of them at once, and what they call: a search begins with that wherever it can be, and
    times what it makes possible.
    """

    name = "inline"
    title = "device functions' bodies in place of their calls"
    family: Family = "other"
    relieves: frozenset[str] = frozenset()

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """One, where there is a call to replace."""
        return ({},) if next(_sites(draft, frozenset()), None) is not None else ()

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """One call after the other; those that cannot be replaced stay."""
        made, told, left = draft, list[str](), set[str]()
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
        if not told:
            raise NotUnderstood("no call whose function can stand in the kernel")
        made = _without_unused(draft, made)
        functions = " and ".join(dict.fromkeys(told))
        return made.stepped(Step(self.name, setting, f"The body of {functions} is in the kernel."))


# Which calls


class _Site(NamedTuple):
    """A call that may be replaced, in a statement ahead of which statements may stand."""

    statement: Any
    call: s.Call
    function: s.Function


def _sites(draft: Draft, left: frozenset[str] | set[str]) -> Iterator[_Site]:
    """Those of functions other than `left`."""
    functions = _functions(draft.form)
    wanted = {name for name in functions if name not in left and _is_wanted(name, functions)}
    loads = {n for n, f in functions.items() if n not in left and reads_memory(f.body)}
    for statement, is_in_loop in _places(draft.form.kernel.body, is_in_loop=False):
        for call in _first_calls(_root(statement), draft.form):
            if call.function in (wanted | loads if is_in_loop else wanted):
                yield _Site(statement, call, functions[call.function])


def _functions(form: s.KernelForm) -> dict[str, s.Function]:
    """The program's functions that can be looked at by their names: not several instances of one
    template, whose text is one."""
    places = [f.where for f in form.functions]
    return {f.name: f for f in form.functions if f.where and places.count(f.where) == 1}


def _is_wanted(name: str, functions: Mapping[str, s.Function], above: tuple[str, ...] = ()) -> bool:
    """Whether a function, or one that it calls, holds what other transformations work on."""
    function = functions.get(name)
    if function is None or name in above:
        return False
    for x in s.below(function.body):
        if isinstance(x, s.For | s.Do) or (isinstance(x, s.Declare) and x.extents):
            return True
        if isinstance(x, s.Call) and x.function in BARRIERS | COLLECTIVES:
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
    """Calls that are made whenever an expression is worked out, arguments before what they go to,
    each of which may as well be made ahead of everything else in it."""
    reading = {f.name for f in form.functions if _only_reads(f, form, ())}
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
    function = form.function(call.function)
    if function is None:
        return None
    found = set()
    if not _only_reads(function, form, ()):
        found.add("memory")
        for argument in call.arguments:
            place = argument.operand if isinstance(argument, s.Unary) else argument
            found.add(_owner(place))
    return found


def _only_reads(function: s.Function, form: s.KernelForm, above: tuple[str, ...]) -> bool:
    """Whether a function changes nothing but its own variables, and waits for nobody."""
    if function.name in above:
        return False
    own = declared_in(function.body) | {
        p.name for p in function.parameters if not _is_reference(p)
    }  # fmt: skip
    for x in s.below(function.body):
        match x:
            case s.Assign(target) | s.Step(target) if _owner(target) not in own:
                return False
            case s.Unary("&") | s.Refer() | s.Unmodelled() | s.Opaque():
                return False
            case s.Call(name) if name not in PURE:
                callee = form.function(name)
                if callee is None or not _only_reads(callee, form, (*above, function.name)):
                    return False
    return True


# One call


def _inlined(draft: Draft, site: _Site) -> Draft:
    """With the body in place of the call. Raises NotUnderstood."""
    name = site.call.function
    _check(draft, site.function)
    index = _number_of(draft, site.call)
    owned = draft.owned(name)
    if owned is not draft:
        site = _again(owned, index)
    body = _Body(owned, site)
    statements, value = body.made()
    kernel = owned.form.kernel
    if value is None:
        if not (isinstance(site.statement, s.Evaluate) and site.statement.value is site.call):
            raise NotUnderstood(f"{name} gives nothing")
        new: tuple[Any, ...] = tuple(statements)
    else:
        new = (*statements, swapped(site.statement, site.call, value))
        if isinstance(site.statement, s.Evaluate) and site.statement.value is site.call:
            new = new if body.has_effect else new[:-1]
    made = owned.with_body(swapped(kernel.body, site.statement, new))
    assert made.form  # clang reads it
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
    raise NotUnderstood("a call that is no longer there")


def _check(draft: Draft, function: s.Function) -> None:
    """Raises NotUnderstood for a function that has to stay one."""
    name, form = function.name, draft.form
    waiting, seen = [function], {name}
    while waiting:
        for callee in map(form.function, calls_in(waiting.pop().body)):
            if callee is not None and callee.name == name:
                raise NotUnderstood(f"{name} calls itself")
            if callee is not None and callee.name not in seen:
                seen.add(callee.name)
                waiting.append(callee)
    if function.where is None or function.body_where is None:
        raise NotUnderstood(f"where {name} stands")
    for x in s.below(function.body):
        if isinstance(x, s.Opaque):
            raise NotUnderstood(f"{x.what} in {name}")
        if isinstance(x, s.Declare) and (x.shared or x.unsized):
            raise NotUnderstood(f"shared memory of {name}")
    text = draft.program.file(function.where.file).text
    if "noinline" in _header(text, function):
        raise NotUnderstood(f"{name} is not to be inlined")
    body = text.encode()[function.body_where.start : function.body_where.end].decode()
    words = {t.text for t in lex(byte_text(body)).tokens}
    if words & _LOCAL_TYPES or _DIRECTIVE.search(body):
        raise NotUnderstood(f"types or preprocessor directives in {name}")


# The body, as it stands in the kernel


class _Body:
    """A function's body for one call of it."""

    def __init__(self, draft: Draft, site: _Site) -> None:
        self._draft, self._call, self._function = draft, site.call, site.function
        self._kernel = draft.form.kernel
        self._text = draft.program.main.text.encode()
        self._printer = FunctionText(draft.program.main.text, site.function)
        self._handed = _Handed(draft.form)
        self._written = self._handed.owners(site.function.body)
        """Variables of the function that hold more than one value, or have another name."""
        self._taken: set[str] = set()
        self.has_effect = False
        """Whether working out the value does more than that."""

    def made(self) -> tuple[list[Any], Any]:
        """Statements that stand ahead of the caller's, and the value; None where it has none."""
        if len(self._call.arguments) != len(self._function.parameters):
            raise NotUnderstood(f"arguments of {self._function.name} that the call leaves out")
        self._check_order()
        names = self._free_names()
        lines, said = self._bound(names)
        body, value = self._returning(names)
        words = set(said) | {old for old, new in names.items() if old != new} | self._template()
        change = self._changing(names, said, words)
        text = self._printer.statements(changed(body, change))
        lines += [Raw(text)] if text else []
        if value is None:
            return lines, None
        self.has_effect = not is_pure(value)
        if isinstance(value, RawExpression):
            return lines, value
        shown = self._printer.expression(changed(self._typed(value), change))
        return lines, RawExpression(shown, self._function.result)

    def _typed(self, value: Any) -> Any:
        """As the function's type."""
        result = self._function.result
        if getattr(value, "type", "") == result:
            return value
        if result not in _NUMBERS:
            raise NotUnderstood(f"a conversion to {result}")
        return s.Cast(result, value)

    def _check_order(self) -> None:
        """Nothing that one argument does may be seen by another one: C++ does not say which is
        first."""
        for argument in self._call.arguments:
            others = [x for x in self._call.arguments if x is not argument]
            if is_pure(argument):
                continue
            if any(not isinstance(x, s.Number) for x in others):
                raise NotUnderstood("an argument that does something, and others")

    # Names

    def _free_names(self) -> dict[str, str]:
        """A name in the kernel for each of the function's variables, without their numbers."""
        own = {_plain(x) for x in declared_in(self._function.body)}
        own |= {p.name for p in self._function.parameters}
        kernel = _words(self._slice(self._kernel.where)) | _macro_words(self._draft)
        kernel |= names_in(self._kernel.body) | calls_in(self._kernel.body)
        self._check_meaning(own)
        return {name: self._free(name) if name in kernel else name for name in sorted(own)}

    def _free(self, wanted: str) -> str:
        name, at = self._draft.free(wanted), 2
        while name in self._taken:
            name, at = self._draft.free(f"{wanted}{at}"), at + 1
        self._taken.add(name)
        return name

    def _check_meaning(self, own: set[str]) -> None:
        """What the function does not declare itself must mean the same in the kernel."""
        body = self._function.body
        outer = _words(self._slice(self._function.body_where)) - own - self._template()
        outer |= {_plain(x) for x in names_in(body)} - own
        outer |= calls_in(body)
        theirs = {_plain(x) for x in declared_in(self._kernel.body)}
        theirs |= {p.name for p in self._kernel.parameters} | _template_words(
            _header(self._draft.program.main.text, self._kernel)
        )
        theirs |= _local_types(self._slice(self._kernel.body_where))
        if both := outer & theirs:
            raise NotUnderstood(f"{min(both)} means another thing in the kernel")

    def _template(self) -> set[str]:
        """Parameters of the function's template: what they stand for here is in the tree."""
        return _template_words(_header(self._draft.program.main.text, self._function))

    def _slice(self, where: s.Range | None) -> str:
        assert where is not None
        return self._text[where.start : where.end].decode()

    # Parameters

    def _bound(self, names: dict[str, str]) -> tuple[list[Any], dict[str, Any]]:
        """Declarations of locals for parameters, and what stands for other parameters."""
        lines: list[Any] = []
        said: dict[str, Any] = {}
        for p, argument in zip(self._function.parameters, self._call.arguments, strict=True):
            if not p.name:
                if not is_pure(argument):
                    raise NotUnderstood("an argument that nobody takes, which does something")
                continue
            if _is_reference(p):
                self._refer(p, argument, names, lines, said)
            elif (same := self._same(p, argument)) is not None:
                said[p.name] = same
            elif (moved := self._moved(p, argument)) is not None:
                at = self._free(f"{names[p.name]}_at")
                lines.append(s.Declare("const long long", at, value=moved[1]))
                said[p.name] = (moved[0], s.Name(at, type="long long"))
            else:
                lines.append(self._local(p, argument, names[p.name]))
        return lines, said

    def _local(self, p: s.TypedParameter, argument: Any, name: str) -> s.Declare:
        """A variable of the parameter's type."""
        kind = f"const {p.type}" if p.is_pointer and p.is_const else p.type
        if not p.is_pointer and p.name not in self._written and p.type in _NUMBERS:
            kind = f"const {p.type}"
        if "[" in kind:
            raise NotUnderstood(f"{p.name} is a pointer to arrays")
        return s.Declare(kind, name, pointer=p.is_pointer, value=argument)

    def _same(self, p: s.TypedParameter, argument: Any) -> Any:
        """The argument, where it can stand wherever the parameter does; None where it cannot."""
        if p.name in self._written:
            return None
        if isinstance(argument, s.Number):
            plain = not p.is_pointer and argument.type == p.type
            return s.Number(argument.text, type=argument.type) if plain else None
        if not isinstance(argument, s.Name):
            return None
        if p.is_pointer:
            return argument if self._is_pointer(p, argument) else None
        if argument.type != p.type or p.type not in _NUMBERS:
            return None
        return argument if argument.text in self._steady() else None

    def _is_pointer(self, p: s.TypedParameter, argument: s.Name) -> bool:
        """Whether a name is the pointer, or an array that it begins, and stays it."""
        array = _ARRAY.fullmatch(argument.type)
        if array is not None:
            is_same = f"{array[1]}{array[2]}" == p.type
        else:
            is_same = argument.type == f"{p.type}*" and argument.text in self._steady()
        handed = {
            x.text
            for call in s.below(self._function.body)
            if isinstance(call, s.Call) and self._draft.form.function(call.function) is not None
            for a in call.arguments
            for x in s.below(a)
            if isinstance(x, s.Name)
        }
        const = {q.name for q in self._kernel.parameters if q.is_const}
        return is_same and (not p.is_const or p.name not in handed or argument.text in const)

    def _moved(self, p: s.TypedParameter, argument: Any) -> tuple[s.Name, Any] | None:
        """An array and a place in it that a pointer parameter begins at, where the function only
        looks at elements from there."""
        if not p.is_pointer or p.name in self._written or not is_pure(argument):
            return None
        indexed = [x for x in s.below(self._function.body)
                   if isinstance(x, s.Index) and x.base == s.Name(p.name)]  # fmt: skip
        used = [x for x in s.below(self._function.body) if x == s.Name(p.name)]
        match argument:
            case s.Binary("+", s.Name() as array, offset):
                pass
            case s.Unary("&", s.Index(s.Name() as array, offset)):
                pass
            case _:
                return None
        plain = replace(p, is_const=False)
        whole = offset.type in INTEGERS and len(indexed) == len(used)
        return (array, offset) if whole and self._is_pointer(plain, array) else None

    def _refer(
        self, p: s.TypedParameter, argument: Any, names: dict[str, str], lines: list[Any],
        said: dict[str, Any],
    ) -> None:  # fmt: skip
        """A reference: the variable, a place whose index stays, or a value that nobody changes."""
        if isinstance(argument, s.Name) and argument.type == p.type:
            said[p.name] = argument
            return
        place = isinstance(argument, s.Name | s.Index | s.Member) or (
            isinstance(argument, s.Unary) and argument.operator == "*"
        )
        if not place or argument.type != p.type:
            if p.type not in _NUMBERS:
                raise NotUnderstood(f"a value of {p.type} for a reference")
            kind = p.type if p.name in self._written else f"const {p.type}"
            lines.append(s.Declare(kind, names[p.name], value=argument))
            return
        steady = names_in(argument) - s.BUILTINS <= self._steady() | self._arrays()
        inner = [x for x in s.children(argument) if reads_memory(x)]
        if isinstance(argument, s.Index) and is_pure(argument) and steady and not inner:
            if not isinstance(argument.index, s.Name | s.Number):
                at = self._free(f"{names[p.name]}_at")
                kind = argument.index.type
                if kind not in INTEGERS:
                    raise NotUnderstood(f"an index of type {kind}")
                lines.append(s.Declare(f"const {kind}", at, value=argument.index))
                argument = s.Index(argument.base, s.Name(at, type=kind), type=argument.type)
            said[p.name] = argument
            return
        if isinstance(argument, s.Member) and is_pure(argument) and steady and not inner:
            said[p.name] = argument
            return
        raise NotUnderstood(f"what {p.name} refers to")

    def _steady(self) -> set[str]:
        """Variables of the kernel that nothing in the function can change: the thread's own, no
        name of which but their own is known, not handed to this call to be changed."""
        kernel = self._kernel
        if any(isinstance(x, s.Opaque) for x in s.below(kernel.body)):
            return set()
        found = {p.name for p in kernel.parameters}
        found |= {x.name for x in declarations_in(kernel.body) if not x.shared and not x.extents}
        return found - self._handed.others(kernel.body)

    def _arrays(self) -> set[str]:
        return {x.name for x in declarations_in(self._kernel.body) if x.extents or x.unsized}

    # What it gives

    def _returning(self, names: dict[str, str]) -> tuple[tuple[Any, ...], Any]:
        """The body without `return`, and the expression that it gives."""
        body, result = self._function.body, self._function.result
        returns = [x for x in s.below(body) if _is_return(x)]
        if result == "void":
            return (_tails(body, lambda _: ()) if returns else body), None
        if len(returns) == 1 and body[-1] is returns[0] and isinstance(body[-1], s.Give):
            return body[:-1], body[-1].value
        if not _always(body) or result not in _NUMBERS:
            raise NotUnderstood(f"how {self._function.name} ends")
        name = self._free("result" if "result" not in names else "given")
        place = s.Name(name, type=result)

        def give(node: Any) -> tuple[Any, ...]:
            return (s.Evaluate(s.Assign(place, "", self._typed(node.value), type=result)),)

        return (s.Declare(result, name), *_tails(body, give)), RawExpression(name, result)

    def _changing(
        self, names: Mapping[str, str], said: Mapping[str, Any], words: set[str]
    ) -> Callable[[Any], Any]:
        """Puts names and arguments in place. What is written with a word that means something else
        in the kernel is written anew from its tree."""

        def change(node: Any) -> Any:
            match node:
                case s.Index(s.Name(text), index) if isinstance(said.get(text), tuple):
                    array, at = said[text]
                    whole = s.Binary("+", at, index, type="long long")
                    return s.Index(array, whole, type=node.type)
                case s.Name(text) if text in said:
                    return node if isinstance(said[text], tuple) else said[text]
                case s.Name(text) if (new := names.get(_plain(text), "")) not in ("", _plain(text)):
                    return s.Name(new, type=node.type)
                case s.Declare() | s.Refer():
                    return self._declared_again(
                        node, names.get(_plain(node.name), node.name), words
                    )
                case s.Call() if self._has(node, words):
                    return self._call_again(node, words)
                case _ if isinstance(node, s.Expression) and self._has(node, words):
                    if isinstance(node, s.Unmodelled):
                        raise NotUnderstood(f"a {node.what} with names of {self._function.name}")
                    return replace(node, where=None)
                case _ if isinstance(node, s.Statement) and self._has(node, words):
                    return replace(node)
            return node

        return change

    def _has(self, node: Any, words: set[str]) -> bool:
        """Whether the text that a node stands for has one of these words in it."""
        where = getattr(node, "where", None)
        return where is not None and where.file == FILE and bool(
            words & set(re.findall(r"[A-Za-z_]\w*", self._slice(where)))
        )  # fmt: skip

    def _declared_again(self, node: Any, name: str, words: set[str]) -> Any:
        if name == _plain(node.name) and not self._has(node, words):
            return node
        where, old = node.where, re.escape(_plain(node.name))
        written = re.split(rf"\b{old}\b", self._slice(where))[0] if where else ""
        before = set(re.findall(r"[A-Za-z_]\w*", written))
        if isinstance(node, s.Refer) and "const" in before:
            return replace(node, name=name, type=f"const {node.type}")
        return replace(node, name=name, where=None if words & before else where)

    def _call_again(self, node: s.Call, words: set[str]) -> s.Call:
        written = self._slice(node.where).partition("(")[0]
        found = set(re.findall(r"[A-Za-z_]\w*", written))
        if words & found:
            raise NotUnderstood(f"how {node.function} is called")
        return replace(node)


# Returns


def _is_return(node: Any) -> bool:
    return isinstance(node, s.Give) or (isinstance(node, s.Leave) and node.word == "return")


def _returns(node: Any) -> bool:
    return any(map(_is_return, s.below(node)))


def _always(body: Sequence[Any]) -> bool:
    """Whether what comes after these statements is never reached."""
    for x in body:
        if _is_return(x):
            return True
        if isinstance(x, s.If) and _always(x.yes) and _always(x.no):
            return True
        if isinstance(x, s.Block) and _always(x.body):
            return True
    return False


def _tails(body: Sequence[Any], give: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The body with `give` in place of each `return`, after which nothing is left to do: what
    follows on a way that returns stands on the other ways alone. Raises NotUnderstood."""
    for at, x in enumerate(body):
        if not _returns(x):
            continue
        before, rest = tuple(body[:at]), tuple(body[at + 1 :])
        if _is_return(x):
            return (*before, *give(x))
        if isinstance(x, s.Block) and (not rest or _always(x.body)):
            return (*before, replace(x, body=_tails(x.body, give)))
        if not isinstance(x, s.If):
            raise NotUnderstood("a return in a loop")
        if _always(x.yes):
            yes, no = x.yes, (*x.no, *rest)
            inner: tuple[Any, ...] = x.no
        elif _always(x.no):
            yes, no, inner = (*x.yes, *rest), x.no, x.yes
        elif not rest:
            yes, no, inner = x.yes, x.no, ()
        else:
            raise NotUnderstood("a return on one of several ways")
        if rest and {_plain(n) for n in declared_in(inner)} & {_plain(n) for n in names_in(rest)}:
            raise NotUnderstood("names that hide those of what follows")
        return (*before, _branching(x, _tails(yes, give), _tails(no, give)))
    return tuple(body)


def _branching(node: s.If, yes: tuple[Any, ...], no: tuple[Any, ...]) -> s.If:
    if yes or not no:
        return replace(node, yes=yes, no=no)
    opposite = s.Unary("!", node.condition, type="bool")
    return replace(node, condition=opposite, yes=no, no=())


# Names


class _Handed:
    """Variables whose own storage an expression changes or makes known by another name."""

    def __init__(self, form: s.KernelForm) -> None:
        self._form = form

    def owners(self, node: Any) -> set[str]:
        """All of them."""
        found = self.others(node)
        for x in s.below(node):
            if isinstance(x, s.Assign | s.Step):
                found.add(_owner(x.target))
        return found - {""}

    def others(self, node: Any) -> set[str]:
        """Those that are reached by another name: references, addresses, functions' arguments."""
        found: set[str] = set()
        for x in s.below(node):
            match x:
                case s.Unary("&", operand) | s.Refer(_, _, operand):
                    found.add(_owner(operand))
                case s.Call():
                    found.update(map(_owner, self._by_reference(x)))
                case s.Unmodelled():
                    found |= names_in(x)
        return found - {""}

    def _by_reference(self, call: s.Call) -> Iterator[Any]:
        function = self._form.function(call.function)
        if function is None:
            values = PURE | BARRIERS | COLLECTIVES
            known = call.function in values or call.function.startswith(("atomic", "__"))
            yield from () if known else call.arguments
        elif len(function.parameters) != len(call.arguments):
            yield from call.arguments  # a method's object comes first
        else:
            pairs = zip(function.parameters, call.arguments, strict=True)
            yield from (a for p, a in pairs if _is_reference(p))


def _owner(place: Any) -> str:
    """The variable whose own storage a place is in; empty for one that a pointer leads to."""
    match place:
        case s.Name(text):
            return text
        case s.Member(base):
            return _owner(base)
        case s.Index(base) if "[" in getattr(base, "type", ""):
            return _owner(base)
    return ""


def _is_reference(parameter: s.TypedParameter) -> bool:
    return parameter.unclear.endswith("is a reference")


def _plain(name: str) -> str:
    return name.partition("#")[0]


def _words(text: str) -> set[str]:
    """Names in a text that are not looked up in something else."""
    found, before = set(), ""
    for token in lex(byte_text(text)).tokens:
        if token.kind == "name" and before not in _MEMBER:
            found.add(token.text)
        before = token.text
    return found


def _macro_words(draft: Draft) -> set[str]:
    """Names in the bodies of all macros."""
    texts = [f.text for f in draft.program.files]
    return {w for t in texts for m in _MACRO.findall(t) for w in re.findall(r"[A-Za-z_]\w*", m)}


def _header(text: str, function: s.Function) -> str:
    """Everything of a function before its body, a template's parameters too."""
    assert function.where is not None
    assert function.body_where is not None
    start = function.where.start
    items = outline(byte_text(text)).items
    start = next((x.start for x in items if x.start <= start < x.end), start)
    return text.encode()[start : function.body_where.start].decode()


def _template_words(header: str) -> set[str]:
    """Names that a template header gives to its parameters."""
    if not header.lstrip().startswith("template"):
        return set()
    depth, end = 0, len(header)
    for at, character in enumerate(header):
        depth += (character == "<") - (character == ">")
        if depth == 0 and character == ">":
            end = at
            break
    inside = header[header.index("<") + 1 : end]
    return {m[1] for m in re.finditer(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", inside)}


def _local_types(body: str) -> set[str]:
    """Names of types that a body declares."""
    return set(re.findall(r"\b(?:using|struct|class|enum|union)\s+(\w+)", body)) | set(
        re.findall(r"\btypedef\b[^;]*?(\w+)\s*;", body)
    )


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
    return len(re.findall(rf"\b{re.escape(name)}\b", text))
