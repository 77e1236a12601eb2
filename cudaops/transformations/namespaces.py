"""Device code of a namespace, copied out of it: names mean there what they meant inside.

Lookup goes from the innermost namespace outwards and stops at the first that has the name; a
using-declaration in front of the copy is found first too, and hides what stands further out. That a
copy means the same is seen from what clang makes of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cudaops.domain.program import Program
from cudaops.program import syntax as s
from cudaops.program.lexing import Edit, Token, apply_edits, byte_text, closing, lex, plain_text
from cudaops.program.outline import Declaration, Outline, outline, spaces_of
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.trees import changed

_TYPES = frozenset({"struct", "class", "union", "enum"})
_INTO = ("::", ".", "->")
"""After these a name is looked up in something else."""


class Copied(NamedTuple):
    """Text of a namespace that may stand outside of it."""

    using: tuple[str, ...]
    """Declarations to stand before it, a line each."""
    text: str


def copied(program: Program, text: str, namespaces: Sequence[str], beside: str = "") -> Copied:
    """A definition's text, for any other namespace. `beside`: further text with names that it needs
    there, left as it is. Raises NotUnderstood."""
    if not namespaces:
        return Copied((), text)
    scopes = _scopes(program, namespaces)
    lexed = lex(byte_text(text))
    words = [Token("punct", "", 0, 0, -1), *lexed.tokens, *lex(byte_text(beside)).tokens]
    plain = {
        token.text
        for before, token in pairwise(words)
        if token.kind == "name" and before.text not in _INTO
    }
    used = _used(program, plain)
    using = [
        f"using ::{scope}::{name};"
        for name in sorted(used)
        if (scope := next((x for x in scopes if name in scopes[x].names), None)) is not None
    ]
    edits = []
    for before, token, after in zip(lexed.tokens, lexed.tokens[1:], lexed.tokens[2:], strict=False):
        inner = next((x for x in scopes if token.text in scopes[x].spaces), None)
        if inner is not None and after.text == "::" and before.text not in _INTO:
            edits.append(Edit(token.start, token.start, f"::{inner}::"))
    return Copied(tuple(using), plain_text(apply_edits(lexed.text, edits)))


class _Scope(NamedTuple):
    """What one namespace declares, in all files."""

    names: frozenset[str]
    spaces: frozenset[str]
    """Namespaces in it."""


def _scopes(program: Program, namespaces: Sequence[str]) -> dict[str, _Scope]:
    """Every enclosing namespace, the innermost first."""
    texts = [byte_text(f.text) for f in program.files]
    known = spaces_of(texts)
    outlines = [outline(text, known) for text in texts]
    found = {}
    for depth in range(len(namespaces), 0, -1):
        path = tuple(namespaces[:depth])
        names: set[str] = set()
        spaces: set[str] = set()
        for facts in outlines:
            for item in facts.items:
                if item.namespaces == path:
                    names |= set(_declared(facts, item))
                elif item.namespaces[:depth] == path:
                    spaces.add(item.namespaces[depth])
        found["::".join(path)] = _Scope(frozenset(names), frozenset(spaces))
    return found


def _declared(facts: Outline, item: Declaration) -> Iterator[str]:
    """Names that an item of a namespace brings into it. Raises NotUnderstood."""
    tokens = facts.tokens[item.first : item.last]
    if item.kind in ("function", "declaration", "variable"):
        if "__shared__" in item.spaces:
            raise NotUnderstood("shared memory declared in a namespace")
        if item.name.isidentifier():
            yield item.name
    elif item.kind == "type":
        yield from _type_names(tokens)
    elif tokens[0].text == "using":
        if tokens[1].text == "namespace":
            raise NotUnderstood("`using namespace` in a namespace")
        alias = len(tokens) > 2 and tokens[2].text == "="
        yield (tokens[1] if alias else tokens[-2]).text
    elif tokens[0].text == "typedef" and tokens[-2].kind == "name":
        yield tokens[-2].text


def _type_names(tokens: Sequence[Token]) -> Iterator[str]:
    """A type's own name, and the values of an enumeration that has no scope of its own."""
    at = next(i for i, t in enumerate(tokens) if t.text in _TYPES)
    word, at = tokens[at].text, at + 1
    scoped = word == "enum" and tokens[at].text in ("class", "struct")
    at += scoped
    while at < len(tokens) and tokens[at].text in ("alignas", "__align__", "__attribute__"):
        at = closing(tokens, at + 1) + 1
    if at < len(tokens) and tokens[at].kind == "name":
        yield tokens[at].text
    if word == "enum" and not scoped:
        for before, token in pairwise(tokens[at:]):
            if before.text in ("{", ",") and token.kind == "name":
                yield token.text


def _used(program: Program, names: set[str]) -> set[str]:
    """Names, and those in the bodies of macros among them."""
    bodies: dict[str, set[str]] = {}
    for file in program.files:
        lexed = lex(byte_text(file.text))
        for directive in lexed.directives:
            words = [t.text for t in lexed.tokens[directive.first : directive.last]]
            if directive.keyword == "define" and len(words) > 2:
                bodies.setdefault(words[2], set()).update(words[3:])
    waiting, found = set(names), set(names)
    while waiting:
        found |= waiting
        waiting = {w for name in waiting for w in bodies.get(name, ())} - found
    return found


def meaning(
    form: s.KernelForm, draft: str, own: Mapping[str, s.Function] | None = None
) -> tuple[Any, ...]:
    """All that a kernel does, comparable between two texts of it: its body and those of the
    functions that it reaches, each with its place, and the places of variables.

    `draft`: a file whose places do not count. `own`: functions that are copies, by their names,
    each with what it is a copy of.
    """
    copies = own or {}

    def named(node: Any) -> Any:
        if isinstance(node, s.Call) and node.function in copies:
            return s.Call(copies[node.function].name, node.arguments)
        return node

    def place(where: s.Range | None) -> s.Range | str | None:
        return draft if where is not None and where.file == draft else where

    def function(f: s.Function) -> tuple[Any, ...]:
        original = copies.get(f.name, f)
        types = tuple((p.name, p.type, p.is_pointer) for p in f.parameters)
        return original.name, place(original.where), f.result, types, changed(f.body, named)

    kernel = function(form.kernel)[2:]
    functions = frozenset(map(function, form.functions))
    variables = frozenset((name, place(where)) for name, where in form.outside)
    return kernel, form.kernel.launch_bounds, functions, variables
