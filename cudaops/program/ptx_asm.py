"""Inline PTX: asm statements taken apart, refused or written as the C++ that they mean.

A statement is read as `ptxas` would read it, from the tokens of its text: nothing is searched for.
What cannot be read in full is refused, so that no instruction hides in a macro, an escape, a
comment, an operand or a string put together from others. `ptx_instructions` says which instructions
there may be. Both the gate and the processor's build use this reading: what is judged is what runs.
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
from cudaops.program.ptx_instructions import BITS, PACK, UNPACK, Operation, operation, unsigned

MAX_INSTRUCTIONS = 64
"""Of one statement. Judgement: the longest in CUTLASS that computes has some 20."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_LETTERS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
"""Constraints of registers. Source: Inline PTX Assembly in CUDA, table of constraints."""
_CONSTRAINT = re.compile(r"(?P<sign>[=+]?)(?P<early>&?)(?P<letter>[hrlfdn])")
_PIECE = re.compile(
    r"\s+|(?P<operand>%\d+)|(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(?P<number>0[xX][0-9a-fA-F]{1,16}U?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+U?)"
    r"|(?P<word>\.?[A-Za-z_]\w*(?:(?:\.|::)\w+)*)|(?P<mark>[{}()\[\];,@!+\-])"
)
_AHEAD = frozenset({";", "{", "}", "else"})
"""What stands before a statement. A `)` is none: `f(x) asm("exit")` would name a function of the
host's."""


class AsmError(Exception):
    """Why an asm statement is not taken, in a few words."""

    def __init__(self, message: str, at: int, start: int) -> None:
        super().__init__(message)
        self.message, self.at, self.start = message, at, start
        """Bytes in its source: of what is wrong, and of the statement."""


class Operand(NamedTuple):
    """One operand of a statement, in C++."""

    letter: str
    is_read: bool
    is_written: bool
    text: str
    """The expression as written."""


class Statement(NamedTuple):
    """An asm statement, read."""

    start: int
    end: int
    """After its closing parenthesis."""
    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    """C++ of its instructions, over the registers `cudaops_ptx_r0`, ... and its own names."""


def asm_statements(lexed: Lexed) -> Iterator[Statement | AsmError]:
    """Every `asm` of a text outside of preprocessor lines, read or with what is wrong."""
    macros = _unbalanced_macros(lexed)
    for index, token in enumerate(lexed.tokens):
        if token.text == "asm" and token.kind == "name" and token.directive < 0:
            try:
                yield _Reader(lexed, index, macros).statement()
            except AsmError as error:
                yield error


def asm_edits(lexed: Lexed) -> list[Edit]:
    """Each asm statement that can be read as the C++ that it means, on the same lines."""
    found = (s for s in asm_statements(lexed) if isinstance(s, Statement))
    return [Edit(s.start, s.end, _cpp(s, lexed.text.count("\n", s.start, s.end))) for s in found]


def _cpp(statement: Statement, newlines: int) -> str:
    head, tail = [], []
    for number, one in enumerate(statement.operands):
        name = _register(number)
        kind = f"::cudaops_ptx::{unsigned(_LETTERS.get(one.letter, 64))}"
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
    text = " ".join([*head, *statement.lines, *tail])
    return f"do {{ {text} }} while (0)" + "\n" * (newlines - text.count("\n"))


def _register(number: int) -> str:
    return f"cudaops_ptx_r{number}"


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
    def __init__(self, lexed: Lexed, index: int, macros: frozenset[str]) -> None:
        self.lexed, self.tokens, self.index = lexed, lexed.tokens, index
        self.macros = macros

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        start = self.tokens[self.index].start
        raise AsmError(message, start if at is None else at, start)

    def statement(self) -> Statement:
        code = (t.text for t in reversed(self.tokens[: self.index]) if t.directive < 0)
        if next(code, "") not in _AHEAD:
            self.fail("must be a statement of its own, between braces after `if (..)`")
        at = self.index + 1
        words = self.tokens[at : at + 2]
        is_volatile = bool(words) and words[0].text == "volatile"
        at += is_volatile
        if at >= len(self.tokens) or self.tokens[at].text != "(":
            self.fail("only `asm(..)` and `asm volatile(..)` are read")
        end = closing(self.tokens, at)
        after = self.tokens[end + 1].text if end + 1 < len(self.tokens) else ""
        if self.tokens[end].text != ")" or after != ";":
            self.fail("must be a statement of its own")
        parts = self._parts(self.tokens[at + 1 : end])
        operands = [*self._operands(parts[1], True), *self._operands(parts[2], False)]
        clobbers = [t.text for t in parts[3]]
        if set(clobbers) - {'"memory"', ","}:
            self.fail(f'clobbers {" ".join(clobbers)}; only "memory" can be')
        text = "".join(self._decoded(t) for t in parts[0])
        program = _Ptx(text, tuple(operands), self).read()
        if program.has_memory and not is_volatile:
            self.fail("reaches memory and is not volatile")
        if program.has_stores and not clobbers:
            self.fail('stores and does not clobber "memory"')
        start, stop = self.tokens[self.index].start, self.tokens[end].end
        return Statement(start, stop, tuple(operands), tuple(program.lines))

    def _parts(self, tokens: Sequence[Token]) -> list[list[Token]]:
        """Text, outputs, inputs, clobbers."""
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            if token.directive >= 0:
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
        if token.kind != "string":
            self.fail(f"`{token.text}` stands where plain string literals do", token.start)
        text = token.text
        if not (text.startswith('"') and text.endswith('"') and len(text) > 1):
            self.fail("a string with a prefix; write plain ones", token.start)
        if not text.isascii() or "\n" in text:
            self.fail("a string that is not plain ASCII on one line", token.start)

        def escaped(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                self.fail(f"the escape `{found[0]}` in its text", token.start)
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", escaped, text[1:-1], flags=re.DOTALL)

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
            text = self.lexed.text[inside[0].end : inside[-1].start]
            is_read = found["sign"] != "="
            yield Operand(found["letter"], is_read, outputs, text)


class _Ptx:
    """The text of one statement."""

    def __init__(self, text: str, operands: tuple[Operand, ...], reader: _Reader) -> None:
        self.operands, self.reader = operands, reader
        self.pieces = list(self._split(text))
        self.at = 0
        self.scopes: list[dict[str, str]] = []
        self.written: set[str] = {
            _register(i) for i, o in enumerate(operands) if o.is_read and o.letter != "n"
        }
        self._fresh: set[str] = set()
        """What the instruction under way sets for certain."""
        self.lines: list[str] = []
        self.count = 0
        self.names = 0
        self.has_memory = self.has_stores = False

    def fail(self, message: str) -> NoReturn:
        self.reader.fail(message)

    def read(self) -> _Ptx:
        while self.at < len(self.pieces):
            self._statement()
        if self.scopes:
            self.fail("a `{` is never closed")
        if not self.count:
            self.fail("holds no instruction")
        for number, one in enumerate(self.operands):
            if one.is_written and _register(number) not in self.written:
                self.fail(f"leaves operand %{number} unset")
        return self

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        position = 0
        while position < len(text):
            found = _PIECE.match(text, position)
            if found is None:
                shown = text[position : position + 12].split("\n")[0]
                why = "a register of the machine" if shown.startswith("%%") else "not read"
                self.fail(f"`{shown}` in its text: {why}")
            if found.lastgroup:
                yield found.lastgroup, found[0]
            position = found.end()

    def _peek(self) -> str:
        return self.pieces[self.at][1] if self.at < len(self.pieces) else ""

    def _next(self, wanted: str = "") -> tuple[str, str]:
        if self.at >= len(self.pieces):
            self.fail("its text ends within an instruction; each ends with `;`")
        piece = self.pieces[self.at]
        if wanted and piece[1] != wanted:
            self.fail(f"`{piece[1]}` in its text where `{wanted}` must be")
        self.at += 1
        return piece

    def _statement(self) -> None:
        kind, text = self._next()
        if text == "{":
            self.scopes.append({})
            self.lines.append("{")
        elif text == "}":
            if not self.scopes:
                self.fail("a `}` closes nothing")
            self.scopes.pop()
            self.lines.append("}")
        elif text == ".reg":
            self._declare()
        elif text == "@":
            negated = self._peek() == "!"
            self.at += negated
            guard = self._read("pred", self._next())
            self._instruction(self._next(), f"if ({'!' if negated else ''}{guard}) ")
        else:
            self._instruction((kind, text), "")

    def _declare(self) -> None:
        if not self.scopes:
            self.fail("`.reg` outside of `{ }`: a second statement could not have it")
        kind = self._next()[1].removeprefix(".")
        if kind not in BITS:
            self.fail(f"registers of type `.{kind}`")
        while True:
            word, name = self._next()
            if word != "word" or "." in name or ":" in name:
                self.fail(f"`{name}` is not a register's name")
            if any(name in scope for scope in self.scopes):
                self.fail(f"`{name}` is declared twice")
            self.names += 1
            spelled = f"cudaops_ptx_{unsigned(BITS[kind])}_{self.names}"
            self.scopes[-1][name] = spelled
            self.lines.append(f"::cudaops_ptx::{unsigned(BITS[kind])} {spelled} = 0;")
            if self._next()[1] == ";":
                return
            if self.pieces[self.at - 1][1] != ",":
                self.fail("`.reg` lists names between commas")

    def _instruction(self, piece: tuple[str, str], guard: str) -> None:
        opcode = piece[1]
        self.count += 1
        if self.count > MAX_INSTRUCTIONS:
            self.fail(f"holds more than {MAX_INSTRUCTIONS} instructions")
        one = operation(opcode) if piece[0] == "word" else None
        if one is None:
            self.fail(f"`{opcode}` is not among the instructions that are allowed")
        if opcode == "mov.b64" and self._has_braces():
            one = UNPACK if self._peek() == "{" else PACK
        if one.memory:
            self.has_memory = True
            self._access(one, guard)
        elif one.unpacks:
            low, high = self._vector(one, guard, written=True)
            self._next(",")
            value = self._read("u64", self._next())
            self.lines.append(f"{guard}{{ {low} = (::cudaops_ptx::u32){value}; "
                              f"{high} = (::cudaops_ptx::u32)({value} >> 32); }}")  # fmt: skip
        else:
            target = self._target(one, guard)
            reads = self._sources(one)
            value = one.expression.format(*reads)
            self.lines.append(f"{guard}{target} = {_kept(one.writes, value)};")
        self._next(";")
        self.written |= self._fresh

    def _has_braces(self) -> bool:
        rest = [text for _, text in self.pieces[self.at : self.at + 12]]
        return "{" in rest[: rest.index(";")] if ";" in rest else False

    def _target(self, one: Operation, guard: str) -> str:
        assert one.writes is not None
        name = self._written(self._next(), BITS[one.writes])
        self._fresh = set() if guard else {name}
        return name

    def _sources(self, one: Operation) -> list[str]:
        if one is PACK:
            self._next(",")
            low, high = self._vector(one, "", written=False)
            return [low, high]
        found = []
        for kind in one.reads:
            self._next(",")
            found.append(self._read(kind, self._next()))
        return found

    def _vector(self, one: Operation, guard: str, *, written: bool) -> list[str]:
        """Registers between braces."""
        kind = one.writes if written else one.reads[0]
        assert kind is not None
        self._next("{")
        names = []
        for number in range(one.vector):
            if number:
                self._next(",")
            piece = self._next()
            names.append(self._written(piece, BITS[kind]) if written else self._read(kind, piece))
        self._next("}")
        if written:
            if len({*names}) < len(names):
                self.fail("writes one register twice")
            self._fresh = set() if guard else {*names}
        return names

    def _access(self, one: Operation, guard: str) -> None:
        kind = one.writes or one.reads[0]
        words = f"::cudaops_ptx::words<::cudaops_ptx::{kind}, {one.vector}>"
        self._fresh = set()
        if one.memory == "load":
            names = (
                self._vector(one, guard, written=True)
                if one.vector > 1
                else [self._target(one, guard)]
            )
            self._next(",")
            address = self._address()
            taken = "".join(f" {n} = cudaops_ptx_w.at[{i}];" for i, n in enumerate(names))
            call = f"::cudaops_ptx::load<::cudaops_ptx::{kind}, {one.vector}>({address})"
            self.lines.append(f"{guard}{{ {words} cudaops_ptx_w = {call};{taken} }}")
            return
        self.has_stores = True
        address = self._address()
        self._next(",")
        values = (
            self._vector(one, guard, written=False)
            if one.vector > 1
            else [self._read(kind, self._next())]
        )
        call = f"::cudaops_ptx::store<::cudaops_ptx::{kind}, {one.vector}>"
        self.lines.append(f"{guard}{call}({address}, {words}{{{{{', '.join(values)}}}}});")

    def _address(self) -> str:
        self._next("[")
        base = self._read("u64", self._next())
        offset = ""
        if self._peek() == "+":  # ptxas takes `[a+-4]` and not `[a-4]`
            self._next()
            sign = self._next()[1] if self._peek() == "-" else "+"
            kind, text = self._next()
            if kind != "number" or "." in text:
                self.fail(f"`{text}` is no offset")
            offset = f" {sign} {text.rstrip('U')}ull"
        self._next("]")
        return base + offset

    def _named(self, piece: tuple[str, str]) -> tuple[str, int] | None:
        """C++ name and width of a register."""
        kind, text = piece
        if kind == "operand":
            number = int(text[1:])
            if number >= len(self.operands):
                self.fail(f"has no operand {text}")
            return _register(number), _LETTERS.get(self.operands[number].letter, 0)
        if kind == "word":
            for scope in reversed(self.scopes):
                if text in scope:
                    width = scope[text].removeprefix("cudaops_ptx_").partition("_")[0]
                    return scope[text], BITS[width]
        return None

    def _written(self, piece: tuple[str, str], bits: int) -> str:
        known = self._named(piece)
        if known is None:
            self.fail(f"`{piece[1]}` is no register of its own")
        if piece[0] == "operand" and not self.operands[int(piece[1][1:])].is_written:
            self.fail(f"writes its input {piece[1]}")
        if known[1] != bits:
            self.fail(f"`{piece[1]}` has {known[1]} bits where {bits} are needed")
        return known[0]

    def _read(self, kind: str, piece: tuple[str, str]) -> str:
        """The value of a register or of a number, as C++ of this kind."""
        word, text = piece
        is_negative = text == "-"
        if is_negative:
            word, text = self._next()
        if word == "operand" and int(text[1:]) < len(self.operands):
            one = self.operands[int(text[1:])]
            if one.letter == "n" and not is_negative and kind[0] in "us":
                return f"(::cudaops_ptx::{kind})({one.text})"
        known = self._named((word, text))
        if known is not None and not is_negative:
            if known[1] != BITS[kind]:
                self.fail(f"`{text}` has {known[1]} bits where {BITS[kind]} are needed")
            if known[0] not in self.written:
                self.fail(f"reads `{text}` before it is set")
            spelled = f"::cudaops_ptx::as<::cudaops_ptx::{kind}>({known[0]})"
            return known[0] if kind == "pred" else spelled
        return self._number(kind, word, text, "-" if is_negative else "")

    def _number(self, kind: str, word: str, text: str, sign: str) -> str:
        is_real = kind in ("f32", "f64")
        if word == "float" and not sign and is_real:
            wanted = "f" if kind == "f32" else "d"
            if text[1].lower() == wanted:
                bits = f"0x{text[2:]}" + ("u" if kind == "f32" else "ull")
                return f"::cudaops_ptx::as<::cudaops_ptx::{kind}>({bits})"
        if word == "number" and is_real == ("." in text) and kind != "pred":
            digits = text.rstrip("U")
            if not is_real:
                if digits[:1] == "0" and digits[1:2].isdigit():
                    self.fail(f"`{text}`: an octal number")
                value = int(digits, 0)
                if value >= 2 ** BITS[kind]:
                    self.fail(f"`{text}` does not fit")
                digits += "ull"
            return f"(::cudaops_ptx::{kind})({sign}{digits})"
        return self.fail(f"`{sign}{text}` where a register or number of type .{kind} must be")


def _kept(kind: str | None, value: str) -> str:
    """A result in the kind of a register's bits."""
    assert kind is not None
    plain = unsigned(BITS[kind])
    if kind == "pred":
        return value
    return f"::cudaops_ptx::as<::cudaops_ptx::{plain}>((::cudaops_ptx::{kind})({value}))"
