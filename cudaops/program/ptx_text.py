"""The text of an asm statement: PTX, taken apart and written as C++."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from cudaops.program.ptx_instructions import BITS, PACK, UNPACK, PtxOperation, operation, unsigned
from cudaops.program.ptx_machine import (
    NARROW,
    REGISTERS,
    SPECIAL,
    machine_operation,
    warp_operation,
)

MAX_INSTRUCTIONS = 64
"""Of one statement. Judgement: the longest in CUTLASS that computes has some 20."""
MAX_REGISTERS = 256
"""Of one name, as ptxas has for a thread."""
LETTERS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
"""Constraints of registers. Source: Inline PTX Assembly in CUDA, table of constraints."""
_PIECE = re.compile(
    r"\s+|(?P<operand>%\d+)|%(?P<special>%[A-Za-z]\w*(?:\.[xyz])?)"
    r"|(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(?P<number>0[xX][0-9a-fA-F]{1,16}U?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+U?)"
    r"|(?P<word>\.?[A-Za-z_]\w*(?:(?:\.|::)\w+)*)|(?P<mark>[{}()\[\];,@!+\-:|<>])"
)
_AUTHORS = frozenset(":|<>")
"""Marks that a rewrite's text does not hold."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|%=", re.DOTALL)


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


_AMONG = ("are allowed", "are followed")
_UNUSED = "cudaops_ptx_unused"


def _label(name: str) -> str:
    return f"cudaops_ptx_l_{name.replace('$', '_')}"


def register(number: int) -> str:
    """What the register of an operand is called in C++."""
    return f"cudaops_ptx_r{number}"


class PtxText:
    """The text of one statement, in `lines` once it is read; `fail` says what is wrong with it.

    `author`: whether it may hold what `ptx_machine` lists, and need not say all that it does.
    """

    def __init__(
        self,
        text: str,
        operands: tuple[Operand, ...],
        fail: Callable[[str], NoReturn],
        *,
        author: bool,
    ) -> None:
        self.operands, self.fail, self.author = operands, fail, author
        self.pieces = list(self._split(_COMMENT.sub(" ", text) if self.author else text))
        self.at = 0
        self.scopes: list[dict[str, str]] = [{}] if self.author else []
        self.labels: dict[str, bool] = {}
        """Whether each is set; those that are only jumped to are not."""
        self.sinks: list[str] = []
        """Declarations of what stands for `_`."""
        self.written: set[str] = {
            register(i) for i, o in enumerate(operands) if o.is_read and o.letter != "n"
        }
        self._fresh: set[str] = set()
        """What the instruction under way sets for certain."""
        self.lines: list[str] = []
        self.count = 0
        self.names = 0
        self.has_memory = self.has_stores = False

    def read(self) -> PtxText:
        while self.at < len(self.pieces):
            self._statement()
        if len(self.scopes) > self.author:
            self.fail("a `{` is never closed")
        if unset := [name for name, is_set in self.labels.items() if not is_set]:
            self.fail(f"jumps to `{unset[0]}`, which it does not hold")
        if not self.count:
            self.fail("holds no instruction")
        for number, one in enumerate(self.operands):
            if one.is_written and register(number) not in self.written and not self.author:
                self.fail(f"leaves operand %{number} unset")
        return self

    def first(self) -> tuple[str, ...]:
        """What its lines need declared before them."""
        text = " ".join(self.lines)
        labels = [f"__label__ {', '.join(map(_label, self.labels))};"] if self.labels else []
        flags = [f"bool {_UNUSED} = false;"] if _UNUSED in text else []
        return (*labels, *flags, *self.sinks)

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        position = 0
        while position < len(text):
            found = _PIECE.match(text, position)
            if found is None or (not self.author and found["mark"] in _AUTHORS):
                shown = text[position : position + 12].split("\n")[0]
                self.fail(f"`{shown}` in its text: not read")
            if found["special"] and not self.author:
                self.fail(f"`{found[0]}` in its text: a register of the machine")
            if found.lastgroup:
                yield found.lastgroup, found["special"] or found[0]
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
            if len(self.scopes) <= self.author:
                self.fail("a `}` closes nothing")
            self.scopes.pop()
            self.lines.append("}")
        elif text == ".reg":
            self._declare()
        elif text == ";" and self.author:
            pass
        elif kind == "word" and self._peek() == ":" and self.author:
            self._next()
            if self.labels.get(text):
                self.fail(f"sets the label `{text}` twice")
            self.labels[text] = True
            self.lines.append(f"{_label(text)}: ;")
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
        if kind not in (REGISTERS if self.author else BITS):
            self.fail(f"registers of type `.{kind}`")
        while True:
            word, name = self._next()
            if word not in ("word", "special" * self.author) or "." in name or ":" in name:
                self.fail(f"`{name}` is not a register's name")
            for one in self._numbered(name):
                self._register(one, kind)
            if self._next()[1] == ";":
                return
            if self.pieces[self.at - 1][1] != ",":
                self.fail("`.reg` lists names between commas")

    def _numbered(self, name: str) -> list[str]:
        """`r<3>` stands for `r0`, `r1`, `r2`."""
        if not (self.author and self._peek() == "<"):
            return [name]
        self._next()
        kind, count = self._next()
        self._next(">")
        if kind != "number" or not count.isdigit() or int(count) > MAX_REGISTERS:
            self.fail(f"`{name}<{count}>`: not read")
        return [f"{name}{i}" for i in range(int(count))]

    def _register(self, name: str, kind: str) -> None:
        inner = self.scopes[-1:] if self.author else self.scopes
        if any(name in scope for scope in inner):
            self.fail(f"`{name}` is declared twice")
        self.names += 1
        held = unsigned(REGISTERS[kind])
        spelled = f"cudaops_ptx_{held}_{self.names}"
        self.scopes[-1][name] = spelled
        # Without a value where a jump may pass it: C++ forbids that, and PTX leaves it unset.
        self.lines.append(f"::cudaops_ptx::{held} {spelled}{'' if self.author else ' = 0'};")

    def _instruction(self, piece: tuple[str, str], guard: str) -> None:
        opcode = piece[1]
        self.count += 1
        if self.count > MAX_INSTRUCTIONS and not self.author:
            self.fail(f"holds more than {MAX_INSTRUCTIONS} instructions")
        if self.author and opcode in ("bra", "bra.uni"):
            return self._jump(guard)
        one = self._operation(opcode) if piece[0] == "word" else None
        if one is None:
            self.fail(f"`{opcode}` is not among the instructions that {_AMONG[self.author]}")
        self._fresh = set()
        if one.memory:
            self.has_memory = True
            self._access(one, guard)
        elif one.unpacks:
            self._unpack(one, guard)
        else:
            self.has_memory |= one.writes is None or any(k.startswith("[") for k in one.reads)
            self._compute(one, guard)
        if not self.author or self._peek():  # nvcc asks for the last `;` only where it is code
            self._next(";")
        self.written |= self._fresh
        return None

    def _operation(self, opcode: str) -> PtxOperation | None:
        if opcode.startswith("mov.b") and self._has_braces():
            return self._packing(int(opcode[5:] or 0) if opcode[5:].isdigit() else 0)
        beyond = machine_operation if self.author else warp_operation
        return beyond(opcode) or operation(opcode)

    def _packing(self, bits: int) -> PtxOperation | None:
        """`mov` between a register and its parts."""
        unpacks = self._peek() == "{"
        texts = [text for _, text in self.pieces[self.at : self.at + 12]]
        count = texts[texts.index("{") : texts.index("}")].count(",") + 1 if "}" in texts else 0
        if (bits, count) == (64, 2):
            return UNPACK if unpacks else PACK
        if not self.author or (bits, count) not in ((32, 2), (64, 4)):
            return None
        whole, part = unsigned(bits), unsigned(bits // count)
        if unpacks:
            return PtxOperation(part, (whole,), vector=count, unpacks=True)
        joined = (f"(::cudaops_ptx::{whole}){{{i}}} << {i * bits // count}" for i in range(count))
        return PtxOperation(
            whole, (part,) * count, f"({' | '.join(joined)})", vector=count, packs=True
        )

    def _unpack(self, one: PtxOperation, guard: str) -> None:
        names = self._vector(one, guard, written=True)
        self._next(",")
        assert one.writes is not None
        value, width = self._read(one.reads[0], self._next()), BITS[one.writes]
        parts = "".join(
            f" {name} = (::cudaops_ptx::{one.writes})({value}{f' >> {i * width}' if i else ''});"
            for i, name in enumerate(names)
        )
        self.lines.append(f"{guard}{{{parts} }}")

    def _jump(self, guard: str) -> None:
        name = self._next()[1]
        self.labels.setdefault(name, False)
        self._next(";")
        self.lines.append(f"{guard}goto {_label(name)};")

    def _compute(self, one: PtxOperation, guard: str) -> None:
        """What writes the value of an expression to its registers, if to any."""
        names, beside = self._targets(one, guard)
        reads = self._sources(one, any_before=bool(names))
        words = {"p": beside or _UNUSED, "unused": _UNUSED}
        value = one.expression.format(*reads, **words)
        if one.writes is None:
            self.lines.append(f"{guard}{{ {value}; }}")
        elif len(names) == 1:
            self.lines.append(f"{guard}{names[0]} = {_kept(one.writes, value)};")
        else:
            parts = (
                f" {name} = {_kept(one.writes, f'cudaops_ptx_w.at[{i}]')};"
                for i, name in enumerate(names)
            )
            self.lines.append(f"{guard}{{ auto cudaops_ptx_w = {value};{''.join(parts)} }}")

    def _has_braces(self) -> bool:
        rest = [text for _, text in self.pieces[self.at : self.at + 12]]
        return "{" in rest[: rest.index(";")] if ";" in rest else False

    def _targets(self, one: PtxOperation, guard: str) -> tuple[list[str], str]:
        """Registers that it writes, and the predicate beside them."""
        if one.writes is None:
            return [], ""
        # One register between braces, as of `ldmatrix.x1`, is a register.
        if self._peek() == "{" and not one.packs:
            return self._vector(one, guard, written=True), ""
        names = [self._target(one, guard)]
        if not (one.beside and self._peek() == "|"):
            return names, ""
        self._next()
        beside = self._written(self._next(), 1)
        self._fresh |= set() if guard else {beside}
        return names, beside

    def _target(self, one: PtxOperation, guard: str) -> str:
        assert one.writes is not None
        name = self._written(self._next(), NARROW[one.writes])
        self._fresh = set() if guard else {name}
        return name

    def _sources(self, one: PtxOperation, *, any_before: bool) -> list[str]:
        if one.packs:
            self._next(",")
            return self._vector(one, "", written=False)
        found: list[str] = []
        for number, kind in enumerate(one.reads):
            if self._peek() == ";" and number >= len(one.reads) - one.optional:
                found.append(found[-1] if found else "")
                continue
            if number or any_before:
                self._next(",")
            found.append(self._source(kind))
        return found

    def _source(self, kind: str) -> str:
        """What is read in one place, as C++."""
        if kind == "0":
            if self._next()[1] != "0":
                self.fail(
                    "waits at a barrier other than 0, which every thread of the block reaches"
                )
            return ""
        if kind in ("[global]", "[shared]"):
            return self._address(kind[1:-1])
        if kind == "!pred":
            negated = self._peek() == "!"
            self.at += negated
            return f"{'!' if negated else ''}{self._read('pred', self._next())}"
        kind, _, count = kind.partition("*")
        if not count:
            return self._read(kind, self._next())
        held = PtxOperation(None, (kind,), vector=int(count))
        braced = (
            self._vector(held, "", written=False)
            if self._peek() == "{"
            else [self._read(kind, self._next())]
        )
        return f"::cudaops_ptx::words<::cudaops_ptx::{kind}, {count}>{{{{{', '.join(braced)}}}}}"

    def _vector(self, one: PtxOperation, guard: str, *, written: bool) -> list[str]:
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

    def _access(self, one: PtxOperation, guard: str) -> None:
        kind = one.writes or one.reads[0]
        held = one.stands_as or kind
        types = f"<::cudaops_ptx::{held}, {one.vector}>"
        words = f"::cudaops_ptx::words{types}"
        if one.memory == "load":
            names = (
                self._vector(one, guard, written=True)
                if one.vector > 1
                else [self._target(one, guard)]
            )
            self._next(",")
            call = f"::cudaops_ptx::load{one.order}{types}({self._address(one.space)})"
            taken = "".join(f" {n} = cudaops_ptx_w.at[{i}];" for i, n in enumerate(names))
            self.lines.append(f"{guard}{{ {words} cudaops_ptx_w = {call};{taken} }}")
        else:
            self.has_stores = True
            address = self._address(one.space)
            self._next(",")
            values = (
                self._vector(one, guard, written=False)
                if one.vector > 1
                else [self._read(held, self._next())]
            )
            call = f"::cudaops_ptx::store{one.order}{types}"
            self.lines.append(f"{guard}{call}({address}, {words}{{{{{', '.join(values)}}}}});")
        if one.optional:  # what the cache is to do with it
            self._next(",")
            self._read("u64", self._next())

    def _address(self, space: str = "global") -> str:
        self._next("[")
        base = self._read("u64" if space == "global" else "int", self._next())
        offset = ""
        if self._peek() == "+":  # ptxas takes `[a+-4]` and not `[a-4]`
            self._next()
            sign = self._next()[1] if self._peek() == "-" else "+"
            kind, text = self._next()
            known = self.author and kind == "operand" and int(text[1:]) < len(self.operands)
            if known and self.operands[int(text[1:])].letter == "n":
                offset = f" {sign} (::cudaops_ptx::u64)({self.operands[int(text[1:])].text})"
            elif kind != "number" or "." in text:
                self.fail(f"`{text}` is no offset")
            else:
                offset = f" {sign} {text.rstrip('U')}ull"
        self._next("]")
        return base + offset if space == "global" else f"::cudaops_ptx::shared_at({base}{offset})"

    def _named(self, piece: tuple[str, str]) -> tuple[str, int] | None:
        """C++ name and width of a register."""
        kind, text = piece
        if kind == "operand":
            number = int(text[1:])
            if number >= len(self.operands):
                self.fail(f"has no operand {text}")
            return register(number), LETTERS.get(self.operands[number].letter, 0)
        if kind in ("word", "special"):
            for scope in reversed(self.scopes):
                if text in scope:
                    width = scope[text].removeprefix("cudaops_ptx_").partition("_")[0]
                    return scope[text], BITS[width]
        return None

    def _written(self, piece: tuple[str, str], bits: int) -> str:
        if piece[1] == "_" and self.author:
            self.sinks.append(f"::cudaops_ptx::{unsigned(max(bits, 16) if bits > 1 else 1)} "
                              f"cudaops_ptx_sink{len(self.sinks)};")  # fmt: skip
            return f"cudaops_ptx_sink{len(self.sinks) - 1}"
        known = self._named(piece)
        if known is None:
            self.fail(f"`{piece[1]}` is no register of its own")
        if piece[0] == "operand" and not self.operands[int(piece[1][1:])].is_written:
            self.fail(f"writes its input {piece[1]}")
        if known[1] != bits and not (self.author and known[1] > bits > 1):
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
            if one.letter == "n" and not is_negative and kind[0] in "usi":
                return f"(::cudaops_ptx::{kind.replace('int', 'u64')})({one.text})"
        known = self._named((word, text)) or self._special(word, text)
        if known is not None and not is_negative:
            if kind == "int" or (self.author and kind[0] in "us" and known[1] > NARROW[kind] < 32):
                return f"(::cudaops_ptx::{kind.replace('int', 'u64')})({known[0]})"
            if known[1] != BITS[kind]:
                self.fail(f"`{text}` has {known[1]} bits where {BITS[kind]} are needed")
            if known[0] not in self.written and not self.author:
                self.fail(f"reads `{text}` before it is set")
            spelled = f"::cudaops_ptx::as<::cudaops_ptx::{kind}>({known[0]})"
            return known[0] if kind == "pred" else spelled
        return self._number(kind, word, text, "-" if is_negative else "")

    def _special(self, word: str, text: str) -> tuple[str, int] | None:
        """A register of the machine."""
        if word == "special" and text[1:] in SPECIAL:
            kind, value = SPECIAL[text[1:]]
            return value, BITS[kind]
        if word == "special":
            self.fail(f"`%%{text[1:]}` is not among the registers that are followed")
        return ("32u", 32) if text == "WARP_SZ" and self.author else None

    def _number(self, kind: str, word: str, text: str, sign: str) -> str:
        is_real = kind in ("f32", "f64")
        if word == "float" and not sign and (is_real or (self.author and kind in ("u32", "u64"))):
            wanted = "f" if BITS[kind] == 32 else "d"
            if text[1].lower() == wanted:
                bits = f"0x{text[2:]}" + ("u" if BITS[kind] == 32 else "ull")
                return f"::cudaops_ptx::as<::cudaops_ptx::{kind}>({bits})"
        if word == "number" and is_real == ("." in text) and kind != "pred":
            digits = text.rstrip("U")
            if not is_real:
                if digits[:1] == "0" and digits[1:2].isdigit():
                    self.fail(f"`{text}`: an octal number")
                value = int(digits, 0)
                if value >= 2 ** NARROW[kind]:
                    self.fail(f"`{text}` does not fit")
                digits += "ull"
            return f"(::cudaops_ptx::{kind})({sign}{digits})"
        return self.fail(f"`{sign}{text}` where a register or number of type .{kind} must be")


def _kept(kind: str | None, value: str) -> str:
    """A result in the kind of a register's bits."""
    assert kind is not None
    if kind == "pred":
        return value
    cast = f"(::cudaops_ptx::{kind})({value})"
    if kind[0] != "f":  # into a wider register with its sign
        return cast
    return f"::cudaops_ptx::as<::cudaops_ptx::{unsigned(BITS[kind])}>({cast})"
