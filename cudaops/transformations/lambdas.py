"""Lambdas of a kernel as device functions, which take what they captured as further parameters.

What edits a kernel reads functions and no closures. A variable that keeps its value and its name
from where the lambda is made to the end of the block around it is handed over as it is, whichever
way it was captured. Of any other a constant is made where the lambda was, or a reference to it,
which is what the closure held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from cudaops.program import syntax as s
from cudaops.program.analysis.effects import aliased_variables, calls_in
from cudaops.program.analysis.library_calls import COLLECTIVES, PURE
from cudaops.program.lexing import (
    Edit,
    apply_edits,
    byte_text,
    closing,
    lex,
    opening,
    plain_text,
    split_commas,
)
from cudaops.program.outline import outline
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.draft import Draft
from cudaops.transformations.inlined_body import macro_words
from cudaops.transformations.trees import declarations_in

MOST_LAMBDAS = 16
_SPACES = ("__device__", "__host__")
_MEMBER = (".", "->", "::")
_NO_CALL = frozenset({"if", "while", "for", "switch", "return", "sizeof"})
"""Words in front of a parenthesis that call nothing."""
_NO_TYPE = frozenset({"return", "else", "case", "do", "goto", "sizeof", "throw", "operator"})
"""Words in front of a name that are no type."""
_PLAIN = re.compile(r"[A-Za-z_][\w ]*")
"""A type that is its name."""
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="})


def without_lambdas(draft: Draft) -> Draft:
    """With a function in place of every lambda that can be one; the draft itself without any, and
    where clang does not read it."""
    left: set[str] = set()
    for _ in range(MOST_LAMBDAS):
        try:
            kernel = _Kernel(draft)
        except NotUnderstood:
            break
        found = next((one for one in kernel.lambdas() if one.name not in left), None)
        if found is None:
            break
        try:
            own = draft.fresh_name(f"{found.name}_fast")
            made = kernel.with_function(found, own)
            calls_in(made.form.kernel.body)  # clang reads it
            draft = _with_result(made, own)
        except NotUnderstood:
            left.add(found.name)
    return draft


def _with_result(draft: Draft, name: str) -> Draft:
    """With the type that a function gives written down, where the rest takes it as well: later
    edits may make one `return` of several another type of the same size."""
    function = draft.form.function(name)
    if function is None or not _PLAIN.fullmatch(function.result):
        return draft
    text = draft.text.replace(f"auto {name}(", f"{function.result} {name}(", 1)
    typed = replace(draft, text=text)
    try:
        calls_in(typed.form.kernel.body)
    except NotUnderstood:
        return draft
    return typed


class _Lambda(NamedTuple):
    """Where its parts stand among the kernel's tokens; ends are exclusive."""

    name: str
    first: int
    captured: tuple[int, int]
    parameters: tuple[int, int]
    result: tuple[int, int]
    """Of a trailing type; empty without."""
    body: tuple[int, int]
    """With its braces."""
    end: int
    """Behind the semicolon."""


class _Captured(NamedTuple):
    parameter: str
    """As the function declares it."""
    handed: str
    """What a call hands over."""
    held: str = ""
    """Declares that where the lambda was."""


class _Kernel:
    """A draft's kernel as tokens."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._raw = byte_text(draft.text)
        facts = outline(self._raw)
        items = (x for x in facts.items if x.name == draft.launch.kernel and x.body)
        item = next(items, None)
        if item is None or item.parameters is None:
            raise NotUnderstood("the kernel is not in this file")
        self._start = item.start
        inside = facts.tokens[item.parameters[0] + 1 : item.parameters[1]]
        self._parameters = {part[-1].text: part for part in split_commas(inside, angles=True)}
        self._tokens = [t for t in lex(self._raw).tokens if item.start <= t.start < item.end]
        self._words = {t.text for t in self._tokens}

    # What is asked of kernels that have lambdas alone

    @cached_property
    def _form(self) -> s.KernelForm:
        return self._draft.form

    @cached_property
    def _handed(self) -> set[str]:
        """Variables that have another name, or are given to a function by reference."""
        found = aliased_variables(self._form.kernel.body, self._form)
        return {s.plain_name(name) for name in found}

    @cached_property
    def _macros(self) -> set[str]:
        return macro_words(self._draft)

    @cached_property
    def _values(self) -> set[str]:
        """Variables of the kernel, and parameters of its lambdas."""
        kernel = self._form.kernel
        found = {p.name for p in kernel.parameters}
        found |= {s.plain_name(x.name) for x in declarations_in(kernel.body)}
        return found | {self._says(part[-1]) for one in self.lambdas() for part in self._taken(one)}

    @cached_property
    def _head(self) -> int:
        """Bytes ahead of the draft in the file that clang reads."""
        return self._draft.program.main.text.encode().index(b"{\n") + 2

    def lambdas(self) -> Iterator[_Lambda]:
        """Those that a variable holds, in order."""
        for at in range(len(self._tokens) - 3):
            said = self._says(at), self._says(at + 2), self._says(at + 3)
            if said == ("auto", "=", "[") and (found := self._lambda(at)) is not None:
                yield found

    def with_function(self, one: _Lambda, own: str) -> Draft:
        """With a function of the name `own` in place of this one. Raises NotUnderstood."""
        captured = tuple(self._captures(one))
        edits = [Edit(*self._span(one.first, one.end), " ".join(c.held for c in captured).strip())]
        for at in self._uses(one):
            end = closing(self._tokens, at + 1)
            handed = ", ".join(c.handed for c in captured)
            comma = ", " if handed and end > at + 2 else ""
            place = self._tokens[end].start
            edits += [Edit(*self._span(at, at + 1), own), Edit(place, place, comma + handed)]
        edits.append(Edit(self._start, self._start, self._function(one, own, captured)))
        return replace(self._draft, text=plain_text(apply_edits(self._raw, edits)))

    # What a lambda is made of

    def _lambda(self, at: int) -> _Lambda | None:
        """The one whose `auto` is there; None for anything else."""
        capture = at + 3
        after = closing(self._tokens, capture) + 1
        while self._says(after) in _SPACES:
            after += 1
        parameters = (after, after)
        if self._says(after) == "(":
            parameters = (after + 1, closing(self._tokens, after))
            after = parameters[1] + 1
        result = (after, after)
        if self._says(after) == "->":
            brace = next(
                (i for i in range(after, len(self._tokens)) if self._says(i) == "{"), after
            )
            result, after = (after + 1, brace), brace
        end = closing(self._tokens, after) + 1
        if self._says(after) != "{" or self._says(end) != ";":
            return None
        first = at - 1 if self._says(at - 1) == "const" else at
        name = self._says(at + 1)
        return _Lambda(name, first, (capture + 1, closing(self._tokens, capture)), parameters,
                       result, (after, end), end + 1)  # fmt: skip

    def _function(self, one: _Lambda, own: str, captured: Sequence[_Captured]) -> str:
        parameters = self._text(*one.parameters)
        every = ([parameters] if parameters else []) + [c.parameter for c in captured]
        result = self._text(*one.result) or "auto"
        return f"__device__ {result} {own}({', '.join(every)}) {self._text(*one.body)}\n\n"

    def _uses(self, one: _Lambda) -> Iterator[int]:
        """Its calls, which must be all that is said of it."""
        for at in range(one.end, self._end_of_block(one)):
            if self._says(at) == one.name and self._says(at - 1) not in _MEMBER:
                if self._says(at + 1) != "(":
                    raise NotUnderstood(f"{one.name} is passed on")
                yield at

    # What it captures

    def _captures(self, one: _Lambda) -> Iterator[_Captured]:
        """Variables of the kernel that its body says. Raises NotUnderstood."""
        by_default, explicit = self._ways(one)
        own = {self._says(part[-1]) for part in self._taken(one)}
        body = range(*one.body)
        said = dict.fromkeys(
            self._says(i) for i in body
            if self._tokens[i].kind == "name" and self._says(i - 1) not in _MEMBER
        )  # fmt: skip
        if "auto" in (self._says(i) for i in range(*one.parameters)):
            raise NotUnderstood(f"{one.name} is a template")
        for name in said:
            if name in own or not (variables := self._variables(name, one)):
                continue
            if len(variables) > 1:
                raise NotUnderstood(f"several variables {name}")
            way = explicit.get(name, by_default)
            if way is None:
                raise NotUnderstood(f"{name} in {one.name} is not a capture")
            yield self._captured(variables[0], way, one)

    def _captured(
        self, variable: s.TypedParameter | s.Declare, way: str, one: _Lambda
    ) -> _Captured:
        name, kind = s.plain_name(variable.name), self._type(variable)
        if self._is_steady(name, one):
            return _Captured(f"{kind} {name}", name)
        held = self._draft.fresh_name(f"{name}_of_{one.name}")
        if way == "&":
            return _Captured(f"{kind}& {name}", held, f"{kind}& {held} = {name};")
        return _Captured(f"{kind} {name}", held, f"{kind} {held} = {name};")

    def _taken(self, one: _Lambda) -> Iterator[Sequence[int]]:
        """Tokens of each of its parameters."""
        tokens = self._tokens[slice(*one.parameters)]
        places = {t.start: i for i, t in enumerate(self._tokens)}
        for part in split_commas(tokens, angles=True):
            yield [places[t.start] for t in part]

    def _ways(self, one: _Lambda) -> tuple[str | None, dict[str, str]]:
        """How variables are captured by default, and those that are named. Raises NotUnderstood."""
        by_default: str | None = None
        explicit: dict[str, str] = {}
        for part in split_commas(self._tokens[slice(*one.captured)]):
            match [t.text for t in part]:
                case ["=" | "&" as way]:
                    by_default = way
                case ["&", name]:
                    explicit[name] = "&"
                case [name] if name != "this":
                    explicit[name] = "="
                case _:
                    raise NotUnderstood(f"what {one.name} captures")
        return by_default, explicit

    def _variables(self, name: str, one: _Lambda) -> list[s.TypedParameter | s.Declare]:
        """The kernel's of this name that are declared ahead of a lambda."""
        kernel, end = self._form.kernel, self._head + self._tokens[one.first].start
        found: list[s.TypedParameter | s.Declare] = [p for p in kernel.parameters if p.name == name]
        for x in declarations_in(kernel.body):
            if s.plain_name(x.name) == name and (x.where is None or x.where.start < end):
                found.append(x)
        return found

    def _type(self, one: s.TypedParameter | s.Declare) -> str:
        """As the author wrote it: what clang calls it may be another type of the same size. Raises
        NotUnderstood for what has no name of its type here."""
        name = s.plain_name(one.name)
        if isinstance(one, s.TypedParameter):
            written = self._parameters[name]
            return self._raw[written[0].start : written[-1].start].rstrip()
        if one.shared or one.extents or one.unsized:
            raise NotUnderstood(f"{name} is an array")
        shown = self._draft.printer().declaration(replace(one, value=None, zeroed=False))
        kind = shown.removesuffix(name).rstrip()
        return f"{one.type}{'*' if one.pointer else ''}" if "auto" in kind else kind

    def _is_steady(self, name: str, one: _Lambda) -> bool:
        """Whether it is sure that from where the lambda begins to the end of its block nothing
        changes the variable, and its name means nothing else."""
        if name in self._handed or name in self._macros or {"asm", "__asm__"} & self._words:
            return False
        places = range(one.first, self._end_of_block(one))
        here = [i for i in places if self._says(i) == name and self._says(i - 1) not in _MEMBER]
        return not any(self._is_changed(i) or self._is_declared(i) for i in here)

    def _end_of_block(self, one: _Lambda) -> int:
        depth = 0
        for at in range(one.end, len(self._tokens)):
            depth += {"{": 1, "}": -1}.get(self._says(at), 0)
            if depth < 0:
                return at
        return len(self._tokens)

    def _is_changed(self, at: int) -> bool:
        """Whether the name there stands where it may be changed, or made known by another name.
        What a pointer leads to is no part of it."""
        end = at + 1
        if self._says(end) in ("[", "->"):
            return False
        while self._says(end) in (".", "["):
            end = end + 2 if self._says(end) == "." else closing(self._tokens, end) + 1
        after = [self._says(end), self._says(end + 1)]
        shifted = after in (["<", "<="], [">", ">="])
        before = [self._says(at - 2), self._says(at - 1)]
        stepped = any(pair in (["+", "+"], ["-", "-"]) for pair in (before, after))
        address = before[1] == "&" and not self._is_operand(at - 2)
        bound = before[1] == "=" and self._says(at - 3) == "&"
        return (
            after[0] in _ASSIGNING or shifted or stepped or address or bound
            or self._is_handed_on(at, after[0])
        )  # fmt: skip

    def _is_handed_on(self, at: int, after: str) -> bool:
        """Whether it is an argument by itself, of a function that may take a reference."""
        if self._says(at - 1) not in ("(", ",") or after not in (")", ","):
            return False
        opened = at - 1
        while opened >= 0 and self._says(opened) not in ("(", "{", ";"):
            is_end = self._says(opened) in (")", "]", "}")
            opened = (opening(self._tokens, opened) if is_end else opened) - 1
        name = self._says(opened - 1) if self._says(opened) == "(" else ""
        function = self._form.function(name)
        if function is not None:
            return any(p.is_reference for p in function.parameters)
        return name not in PURE | COLLECTIVES | _NO_CALL and name.isidentifier()

    def _is_declared(self, at: int) -> bool:
        """Whether the name there may be one of a variable that is declared: behind a type."""
        first = at - 1
        while self._says(first) in ("*", "&", "const", "__restrict__"):
            first -= 1
        before = self._says(first)
        if before == "[" or (before == "," and self._says(first - 1) == "["):
            return self._says(first - 1) == "auto"
        if first < at - 1:
            return before == ">" or (before.isidentifier() and not self._is_operand(first))
        return before == ">" or (before.isidentifier() and before not in _NO_TYPE)

    def _is_operand(self, at: int) -> bool:
        """Whether a value ends there: a variable, a number, a bracket."""
        said = self._says(at)
        return said in (")", "]") or said[:1].isdigit() or said in self._values

    # Tokens

    def _says(self, at: int) -> str:
        return self._tokens[at].text if 0 <= at < len(self._tokens) else ""

    def _span(self, first: int, end: int) -> tuple[int, int]:
        return self._tokens[first].start, self._tokens[end - 1].end

    def _text(self, first: int, end: int) -> str:
        return "" if first == end else self._raw[slice(*self._span(first, end))]
