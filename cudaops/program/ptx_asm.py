"""Inline PTX: asm statements taken apart, refused or written as the C++ that they mean.

A statement is read as `ptxas` would read it, from the tokens of its text: nothing is searched for.
What cannot be read in full is refused, so that no instruction hides in a macro, an escape, a
comment, an operand or a string put together from others. `ptx_instructions` says which instructions
there may be. Both the gate and the processor's build use this reading: what is judged is what runs.

The author's own statements (`author`) are not judged: they may hold what `ptx_machine` lists too,
are in macros, be spelled in every way that nvcc takes, and leave unset what they like. A rewrite
may hold such a statement as its author spells it, with other operands (`known`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from cudaops.program.lexing import (
    Edit,
    Lexed,
    Token,
    closing,
    split_commas,
)
from cudaops.program.ptx_instructions import unsigned
from cudaops.program.ptx_text import LETTERS, AsmError, Operand, PtxText, register

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
ASM = frozenset({"asm", "__asm__", "__asm"})
"""Spellings of the keyword."""
_VOLATILE = frozenset({"volatile", "__volatile__", "__volatile"})
_CONSTRAINT = re.compile(r"(?P<sign>[=+]?)(?P<early>&?)(?P<letter>[hrlfdn])")
_RAW_STRING = re.compile(r'R"(?P<mark>[^(]*)\((?P<text>.*)\)(?P=mark)"', re.DOTALL)
_AHEAD = frozenset({";", "{", "}", "else"})
"""What comes before a statement. A `)` is none: `f(x) asm("exit")` would name a function of the
host's."""


Spelling = tuple[str, ...]
"""Text of a statement, whether it is volatile, its constraints and what it clobbers: all but the
expressions of its operands."""


class AsmStatement(NamedTuple):
    """An asm statement, read."""

    start: int
    end: int
    """After its closing parenthesis."""
    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    """C++ of its instructions, over the registers `cudaops_ptx_r0`, ... and its own names."""
    first: tuple[str, ...] = ()
    """What they need declared."""
    directive: int = -1
    """Of the macro that it is in."""
    spelling: Spelling = ()


def asm_statements(
    lexed: Lexed, *, author: bool = False, known: frozenset[Spelling] | None = frozenset()
) -> Iterator[AsmStatement | AsmError]:
    """Every `asm` of a text outside of preprocessor lines, read or with what is wrong; of the
    author's text every spelling of it, in macros too.

    `known`: statements that a rewrite may hold as they are, in macros too; None for all.
    """
    macros = frozenset() if author else _unbalanced_macros(lexed)
    for index, token in enumerate(lexed.tokens):
        if token.kind != "name" or token.text not in ASM:
            continue
        is_own = not author and token.text == "asm" and token.directive < 0
        own = _statement(lexed, index, macros, author=False) if is_own else None
        if isinstance(own, AsmStatement):
            yield own
            continue
        one = _statement(lexed, index, macros, author=True)
        if author or (isinstance(one, AsmStatement) and (known is None or one.spelling in known)):
            yield one
        elif own is not None:
            yield own


def _statement(
    lexed: Lexed, index: int, macros: frozenset[str], *, author: bool
) -> AsmStatement | AsmError:
    try:
        return _Reader(lexed, index, macros, author).statement()
    except AsmError as error:
        return error


def asm_edits(lexed: Lexed, *, author: bool = False) -> list[Edit]:
    """Each asm statement that can be read as the C++ that it means, on the same lines."""
    read = asm_statements(lexed, author=author, known=None)
    found = [s for s in read if isinstance(s, AsmStatement)]
    edits = [Edit(s.start, s.end, _cpp(s, lexed.text[s.start : s.end])) for s in found]
    return [*edits, *_renamed(lexed, found)]


_PARAMETER = "cudaops_given_"
"""What a macro's parameter is called where its body holds an asm statement: the C++ in the place of
that has words of its own, which the macro must not replace."""


def _parameters(lexed: Lexed, directive: int) -> frozenset[str]:
    """Names of a macro's parameters."""
    if directive < 0:
        return frozenset()
    line = lexed.directives[directive]
    words = lexed.tokens[line.first + 3 : line.last]
    # Of `#define NAME(`, without a space before the parenthesis.
    if line.keyword != "define" or not words or words[0].text != "(":
        return frozenset()
    if words[0].start != lexed.tokens[line.first + 2].end:
        return frozenset()
    return frozenset(t.text for t in words[1 : closing(words, 0)] if t.kind == "name")


def _renamed(lexed: Lexed, statements: Sequence[AsmStatement]) -> Iterator[Edit]:
    """The parameters of macros with asm statements, outside of these."""
    for directive in {s.directive for s in statements if s.directive >= 0}:
        names, line = _parameters(lexed, directive), lexed.directives[directive]
        for token in lexed.tokens[line.first : line.last]:
            inside = any(s.start <= token.start < s.end for s in statements)
            if token.text in names and token.kind == "name" and not inside:
                yield Edit(token.start, token.end, _PARAMETER + token.text)


def _cpp(statement: AsmStatement, original: str) -> str:
    head, tail = [], []
    for number, one in enumerate(statement.operands):
        name = register(number)
        kind = f"::cudaops_ptx::{unsigned(LETTERS.get(one.letter, 64))}"
        if one.letter == "n":
            continue
        value = "0"
        if one.is_written:
            head.append(f"auto& cudaops_ptx_o{number} = ({one.text});")
            tail.append(f"::cudaops_ptx::out_{one.letter}(cudaops_ptx_o{number}, {name});")
            value = f"::cudaops_ptx::in_{one.letter}(cudaops_ptx_o{number})" if one.is_read else "0"
        else:
            value = f"::cudaops_ptx::in_{one.letter}({one.text})"
        head.append(f"{kind} {name} = {value};")
    text = " ".join([*statement.first, *head, *statement.lines, *tail])
    newline = "\\\n" if "\\\n" in original else "\n"
    text = f"do {{ {text} }} while (0)"
    return text + newline * (original.count("\n") - text.count("\n"))


def _unbalanced_macros(lexed: Lexed) -> frozenset[str]:
    """Macros that could end an operand and begin another one."""
    found = set()
    for directive in lexed.directives:
        words = lexed.tokens[directive.first + 2 : directive.last]
        if directive.keyword != "define" or not words:
            continue
        depth, texts = 0, [t.text for t in words[1:]]
        for text in texts:
            depth += (text in "([{") - (text in ")]}") if len(text) == 1 else 0
            if depth < 0 or (depth == 0 and text in (":", "::")):
                break
        if depth != 0 or {":", "::"} & set(texts):
            found.add(words[0].text)
    return frozenset(found)


class _Reader:
    def __init__(self, lexed: Lexed, index: int, macros: frozenset[str], author: bool) -> None:
        self.lexed, self.tokens, self.index = lexed, lexed.tokens, index
        self.macros, self.author = macros, author

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        start = self.tokens[self.index].start
        raise AsmError(message, start if at is None else at, start)

    def statement(self) -> AsmStatement:
        at = self.index + 1
        words = self.tokens[at : at + 2]
        is_volatile = bool(words) and words[0].text in _VOLATILE
        at += is_volatile
        if at >= len(self.tokens) or self.tokens[at].text != "(":
            self.fail("only `asm(..)` and `asm volatile(..)` are read")
        end = closing(self.tokens, at)
        self._stands_alone(end)
        parts = self._parts(self.tokens[at + 1 : end])
        operands = [*self._operands(parts[1], True), *self._operands(parts[2], False)]
        text = "".join(self._decoded(t) for t in parts[0])
        constraints = [f"{n}{self._decoded(o[0])}" for n in (1, 2) for o in split_commas(parts[n])]
        clobbers = [t.text for t in parts[3]]
        program = PtxText(text, tuple(operands), self.fail, author=self.author).read()
        if not self.author:
            self._declares(program, is_volatile, clobbers)
        start, stop = self.tokens[self.index].start, self.tokens[end].end
        return AsmStatement(
            start,
            stop,
            tuple(operands),
            tuple(program.lines),
            program.first(),
            self.tokens[self.index].directive,
            (text, str(is_volatile), *constraints, *clobbers),
        )

    def _stands_alone(self, end: int) -> None:
        """Whether it is a statement, up to its closing parenthesis."""
        token, last = self.tokens[self.index], self.tokens[end]
        if last.text != ")" or last.directive != token.directive:
            self.fail("must be a statement of its own")
        after = self.tokens[end + 1] if end + 1 < len(self.tokens) else None
        if self.author:
            if after is not None and after.directive == token.directive and after.text not in ";}":
                self.fail("must be a statement of its own")
            return
        code = (t.text for t in reversed(self.tokens[: self.index]) if t.directive < 0)
        if next(code, "") not in _AHEAD:
            self.fail("must be a statement of its own, between braces after `if (..)`")
        if after is None or after.text != ";":
            self.fail("must be a statement of its own")

    def _declares(self, program: PtxText, is_volatile: bool, clobbers: Sequence[str]) -> None:
        """What reaches memory says so to the compiler."""
        if set(clobbers) - {'"memory"', ","}:
            self.fail(f'clobbers {" ".join(clobbers)}; only "memory" can be')
        if program.has_memory and not is_volatile:
            self.fail("reaches memory and is not volatile")
        if program.has_stores and not clobbers:
            self.fail('stores and does not clobber "memory"')

    def _parts(self, tokens: Sequence[Token]) -> list[list[Token]]:
        """Text, outputs, inputs, clobbers."""
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            if token.directive != self.tokens[self.index].directive:
                self.fail("holds a preprocessor line", token.start)
            depth += (token.text in "([{") - (token.text in ")]}") if len(token.text) == 1 else 0
            colons = {":": 1, "::": 2}.get(token.text, 0) if depth == 0 else 0
            if colons:
                parts += [[] for _ in range(colons)]
            else:
                parts[-1].append(token)
        if len(parts) > 4:
            self.fail("has more than text, outputs, inputs and clobbers")
        return parts + [[] for _ in range(4 - len(parts))]

    def _decoded(self, token: Token) -> str:
        """What a string literal holds."""
        text = token.text
        if token.kind != "string":
            text = self._defined(token.text) if self.author else ""
        if not text:
            self.fail(f"`{token.text}` stands where plain string literals do", token.start)
        if self.author and (raw := _RAW_STRING.fullmatch(text)):
            return raw["text"]
        if self.author:
            text = text.replace("\\\n", "")
        if not (text.startswith('"') and text.endswith('"') and len(text) > 1):
            self.fail("a string with a prefix; write plain ones", token.start)
        if not text.isascii() or "\n" in text:
            self.fail("a string that is not plain ASCII on one line", token.start)

        def escaped(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                self.fail(f"the escape `{found[0]}` in its text", token.start)
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", escaped, text[1:-1], flags=re.DOTALL)

    def _defined(self, name: str) -> str:
        """The one string that the text defines a macro to be, if it does."""
        found = [
            [t.text for t in self.tokens[d.first + 3 : d.last] if t.kind == "string"]
            for d in self.lexed.directives
            if d.keyword == "define" and self.tokens[d.first + 2].text == name
            and d.last == d.first + 4
        ]  # fmt: skip
        return found[0][0] if len(found) == 1 and found[0] else ""

    def _operands(self, tokens: Sequence[Token], outputs: bool) -> Iterator[Operand]:
        for part in split_commas(tokens):
            if not part:
                self.fail("an operand is missing")
            spelled = self._decoded(part[0])
            found = _CONSTRAINT.fullmatch(spelled)
            if found is None:
                self.fail(f'constraint "{spelled}"', part[0].start)
            if bool(found["sign"]) != outputs or (outputs and found["letter"] == "n"):
                self.fail(f'constraint "{spelled}" in this place', part[0].start)
            inside = part[1:]
            if len(inside) < 3 or inside[0].text != "(" or closing(inside, 0) != len(inside) - 1:
                self.fail("an operand is not one expression in parentheses", part[0].start)
            for token in inside:
                if token.text in self.macros or token.text in ("asm", "#"):
                    self.fail(f"`{token.text}` in an operand", token.start)
            text = self._given(inside)
            is_read = found["sign"] != "="
            yield Operand(found["letter"], is_read, outputs, text)

    def _given(self, inside: Sequence[Token]) -> str:
        """What is between an operand's parentheses, a macro's parameters by new names."""
        names = _parameters(self.lexed, inside[0].directive)
        parts, at = [], inside[0].end
        for token in inside[1:-1]:
            if token.text in names and token.kind == "name":
                parts += [self.lexed.text[at : token.start], _PARAMETER, token.text]
                at = token.end
        return "".join([*parts, self.lexed.text[at : inside[-1].start]])
