"""A function's body as it stands in a kernel, in place of one call: its parameters, names, returns.

Every argument is computed once, ahead of the body: a parameter is a local of its type, or the
argument itself where that is a variable which holds the same value all along. `p[k]` of a pointer
parameter is `a[at + k]` of the kernel's array, with the offset in a local of 64 bits, as wide as
pointer arithmetic is. A reference is the variable that it is bound to. Names are made free. An
early `return` becomes an `if` with the rest of the body in its `else`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    aliased_variables,
    calls_in,
    changed_variables,
    has_return,
    is_pure,
    is_return,
    names_in,
    reads_memory,
)
from cudaops.program.analysis.intervals import INTEGERS
from cudaops.program.lexing import byte_text, lex
from cudaops.program.outline import outline
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import FILE, Draft
from cudaops.transformations.text import Raw, RawExpression
from cudaops.transformations.trees import changed, declarations_in, declared_in

_NUMBERS = INTEGERS | {"float", "double", "bool", "half"}
_MEMBER = (".", "->")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_ARRAY = re.compile(r"([^\[]*)\[\d*\]((?:\[\d+\])*)")


class InlinedBody:
    """A function's body for one call of it."""

    def __init__(self, draft: Draft, call: s.Call, function: s.Function) -> None:
        """`function`: what is called; it stands in the draft."""
        self._draft, self._call, self._function = draft, call, function
        self._kernel = draft.form.kernel
        self._text = draft.program.main.text.encode()
        self._printer = draft.printer(function)
        self._written = changed_variables(function.body, draft.form, arrays=True)
        """Variables of the function that hold more than one value, or have another name."""
        self._taken: set[str] = set()
        self.has_effect = False
        """Whether working out the value does more than that."""

    def made(self) -> tuple[list[Any], Any]:
        """Statements that stand ahead of the caller's, and the value; None where it has none."""
        if len(self._call.arguments) != len(self._function.parameters):
            raise NotUnderstood(f"arguments of {self._function.name} with default values")
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
                raise NotUnderstood("an argument with a side effect among others")

    # Names

    def _free_names(self) -> dict[str, str]:
        """A name in the kernel for each of the function's variables, without their numbers."""
        own = {s.plain_name(x) for x in declared_in(self._function.body)}
        own |= {p.name for p in self._function.parameters}
        kernel = _words(self._slice(self._kernel.where)) | macro_words(self._draft)
        kernel |= names_in(self._kernel.body) | calls_in(self._kernel.body)
        self._check_meaning(own)
        return {name: self._free(name) if name in kernel else name for name in sorted(own)}

    def _free(self, wanted: str) -> str:
        return self._draft.fresh_name_beside(wanted, self._taken)

    def _check_meaning(self, own: set[str]) -> None:
        """What the function does not declare itself must mean the same in the kernel."""
        body = self._function.body
        outer = _words(self._slice(self._function.body_where)) - own - self._template()
        outer |= {s.plain_name(x) for x in names_in(body)} - own
        outer |= calls_in(body)
        theirs = {s.plain_name(x) for x in declared_in(self._kernel.body)}
        theirs |= {p.name for p in self._kernel.parameters} | _template_words(
            header_of(self._draft.program.main.text, self._kernel)
        )
        theirs |= _local_types(self._slice(self._kernel.body_where))
        if both := outer & theirs:
            raise NotUnderstood(f"{min(both)} has another meaning in the kernel")

    def _template(self) -> set[str]:
        """Parameters of the function's template: what they stand for here is in the tree."""
        return _template_words(header_of(self._draft.program.main.text, self._function))

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
                    raise NotUnderstood("an unused argument with a side effect")
                continue
            if p.is_reference:
                self._refer(p, argument, names, lines, said)
            elif (same := self._same(p, argument)) is not None:
                said[p.name] = same
            elif (moved := self._moved(p, argument)) is not None:
                at = self._free(f"{p.name}_at")
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
                at = self._free(f"{p.name}_at")
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
        return found - aliased_variables(kernel.body, self._draft.form)

    def _arrays(self) -> set[str]:
        return {x.name for x in declarations_in(self._kernel.body) if x.extents or x.unsized}

    # What it gives

    def _returning(self, names: dict[str, str]) -> tuple[tuple[Any, ...], Any]:
        """The body without `return`, and the expression that it gives."""
        body, result = self._function.body, self._function.result
        returns = [x for x in s.below(body) if is_return(x)]
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
                case s.Name(text) if (new := names.get(s.plain_name(text), "")) and (
                    new != s.plain_name(text)
                ):
                    return s.Name(new, type=node.type)
                case s.Declare() | s.Refer():
                    name = names.get(s.plain_name(node.name), node.name)
                    return self._declared_again(node, name, words)
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
        if name == s.plain_name(node.name) and not self._has(node, words):
            return node
        where, old = node.where, re.escape(s.plain_name(node.name))
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


def _always(body: Sequence[Any]) -> bool:
    """Whether what comes after these statements is never reached."""
    for x in body:
        if is_return(x):
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
        if not has_return(x):
            continue
        before, rest = tuple(body[:at]), tuple(body[at + 1 :])
        if is_return(x):
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
            raise NotUnderstood("a return on one of several paths")
        hiding, hidden = (set(map(s.plain_name, x)) for x in (declared_in(inner), names_in(rest)))
        if hiding & hidden:
            raise NotUnderstood("names that shadow later ones")
        return (*before, _branching(x, _tails(yes, give), _tails(no, give)))
    return tuple(body)


def _branching(node: s.If, yes: tuple[Any, ...], no: tuple[Any, ...]) -> s.If:
    if yes or not no:
        return replace(node, yes=yes, no=no)
    opposite = s.Unary("!", node.condition, type="bool")
    return replace(node, condition=opposite, yes=no, no=())


# Names


def _words(text: str) -> set[str]:
    """Names in a text that are not looked up in something else."""
    found, before = set(), ""
    for token in lex(byte_text(text)).tokens:
        if token.kind == "name" and before not in _MEMBER:
            found.add(token.text)
        before = token.text
    return found


def macro_words(draft: Draft) -> set[str]:
    """Names in the bodies of all macros."""
    texts = [f.text for f in draft.program.files]
    return {w for t in texts for m in _MACRO.findall(t) for w in re.findall(r"[A-Za-z_]\w*", m)}


def header_of(text: str, function: s.Function) -> str:
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
