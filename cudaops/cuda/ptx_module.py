"""PTX text taken apart: variables, functions, instructions. Nothing is judged here.

Source of every name: PTX ISA 9.0 (chapters 4 on syntax, 5 on state spaces, 9 on instructions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINES_WITHOUT_END = re.compile(r"^[ \t]*\.(?:version|target|address_size|file|loc)\b[^\n]*", re.M)
_SECTION = re.compile(r"\.section\b[^{]*\{[^}]*\}")
_LABEL = re.compile(r"[$%\w]+\s*:(?!:)\s*")
_GUARD = re.compile(r"@!?%[\w$]+\s+")
_VARIABLE = re.compile(
    r"\.(?P<space>global|const)\b(?P<head>[^=;]*?)(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<extent>\[[^=;]*)?$"
)
_FUNCTION = re.compile(r"\.(?P<kind>entry|func)\b\s*(?:\([^)]*\)\s*)?(?P<name>[A-Za-z_$%][\w$]*)")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


class Instruction(NamedTuple):
    """One instruction; its guard and label are left out."""

    name: str
    """`mma`, `ld`, `mov`."""
    modifiers: tuple[str, ...]
    """`("sync", "aligned", "m16n8k8", ...)`."""
    operands: str

    @property
    def opcode(self) -> str:
        """As written: `ex2.approx.ftz.f32`."""
        return ".".join((self.name, *self.modifiers))


class Variable(NamedTuple):
    """One variable at module scope."""

    name: str
    space: str
    """`global` or `const`."""
    managed: bool
    words: frozenset[str]
    """Names in its initialiser: addresses of functions and of other variables."""


class Function(NamedTuple):
    """One function that is defined."""

    name: str
    is_entry: bool
    instructions: tuple[Instruction, ...]


class PtxModule(NamedTuple):
    """What stands in one PTX text."""

    variables: dict[str, Variable]
    functions: dict[str, Function]
    external: frozenset[str]
    """Functions that are declared and not defined."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Kernels, in order."""
        return tuple(f.name for f in self.functions.values() if f.is_entry)


class PtxError(ValueError):
    """A text that is not the PTX that this reader knows."""


def read_ptx(text: str) -> PtxModule:
    """Take a PTX text apart. Raises PtxError where its braces do not match or it has no version."""
    if not re.search(r"^[ \t]*\.version\s+\d+\.\d+", text, re.M):
        raise PtxError("no PTX: there is no .version")
    plain = _COMMENT.sub(" ", text)
    plain = _SECTION.sub(" ", _LINES_WITHOUT_END.sub("", plain))
    variables: dict[str, Variable] = {}
    functions: dict[str, Function] = {}
    declared: set[str] = set()
    for head, body in _items(plain):
        function = _FUNCTION.search(head.partition("=")[0])
        if function is not None and body is not None:
            instructions = tuple(_instructions(body))
            name = function["name"]
            functions[name] = Function(name, function["kind"] == "entry", instructions)
        elif function is not None:
            declared.add(function["name"])
        elif variable := _variable(head):
            variables[variable.name] = variable
    return PtxModule(variables, functions, frozenset(declared - functions.keys()))


def names_in(operands: str) -> frozenset[str]:
    """Names of variables, functions and labels in an operand list; registers are not among them."""
    return frozenset(m.group() for m in _WORD.finditer(re.sub(r"%[\w$]+(?:\.\w+)?", " ", operands)))


def _items(plain: str) -> Iterator[tuple[str, str | None]]:
    """Declarations and definitions at module scope; a definition with what stands in its braces."""
    start = at = 0
    while at < len(plain):
        character = plain[at]
        if character == "}":
            raise PtxError("a brace closes nothing")
        if character == "{":
            end = _closing(plain, at)
            head = plain[start:at]
            if "=" not in head:
                yield head, plain[at + 1 : end]
                start = end + 1
            at = end
        elif character == ";":
            yield plain[start:at], None
            start = at + 1
        at += 1


def _closing(plain: str, opener: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(plain, opener):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxError("a brace is not closed")


def _variable(head: str) -> Variable | None:
    declared, _, initial = head.partition("=")
    found = _VARIABLE.search(declared.strip())
    if found is None:
        return None
    managed = ".managed" in found["head"]
    return Variable(found["name"], found["space"], managed, names_in(initial))


def _instructions(body: str) -> Iterator[Instruction]:
    for statement in body.split(";"):
        text = statement.strip("{} \t\r\n")
        while label := _LABEL.match(text):
            text = text[label.end() :].lstrip("{} \t\r\n")
        if guard := _GUARD.match(text):
            text = text[guard.end() :]
        if not text or text.startswith("."):
            continue
        first = re.match(r"\S+", text)
        assert first is not None
        opcode, operands = first.group(), text[first.end() :].strip()
        name, *modifiers = re.split(r"\.|::", opcode)
        yield Instruction(name, tuple(modifiers), " ".join(operands.split()))
