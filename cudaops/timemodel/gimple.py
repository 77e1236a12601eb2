"""Reads g++'s `-fdump-tree-optimized-lineno` dump: functions, basic blocks with counts, statements.

Only the text is taken apart here; what a statement costs on a GPU is `instructions`' business.
The dump comes from g++ 11 or newer, from a build with `-fbranch-probabilities`, so that every block
carries how often the sampled threads went through it.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

NO_NAMES: Mapping[str, str] = MappingProxyType({})
Place = tuple[str, int]
"""File as the compiler names it, 1-based line."""

_LOCATION = re.compile(r"\[([^\[\]\s]+):(\d+):(\d+)(?: discrim \d+)?\] ?")
_FUNCTION = re.compile(r"^;; Function (.+) \((\S+), funcdef_no=")
_BLOCK = re.compile(r"^  <bb (\d+)> \[(?:(local )?count: )?(\d+)?")
_HOW_CALLED = re.compile(r";? \[(?:return slot optimization|(?:must )?tail call)\]")
_EDGE = re.compile(r"goto <bb (\d+)>;")
_CASE = re.compile(r"<L\d+>|<bb (\d+)>")
_SSA = re.compile(r"[A-Za-z_$][\w$.]*_\d+(?:\(D\))?|(?<![\w$])_\d+(?:\(D\))?")
_DECLARATION = re.compile(
    r"^  (?:static )?([A-Za-z_][\w :<>,*&()]*?[ *&])([\w$.]+)((?:\[\d*\])*);$"
)


@dataclass(frozen=True)
class GimpleStatement:
    """One GIMPLE statement without its location marks."""

    text: str
    place: Place | None
    target: str | None
    """What stands left of `=`; None for calls without a result, branches and returns."""
    value: str
    """What stands right of `=`, or the whole statement."""

    @functools.cached_property
    def target_name(self) -> str | None:
        """The SSA name it defines; None where it writes memory or nothing."""
        return self.target if self.target and _SSA.fullmatch(self.target) else None

    @functools.cached_property
    def uses(self) -> list[str]:
        """SSA names it reads, address parts of a store included."""
        read = _SSA.findall(self.value)
        if self.target and self.target_name is None:
            read += _SSA.findall(self.target)
        return read


@dataclass(frozen=True)
class Phi:
    """A value that depends on the edge taken."""

    target: str
    sources: tuple[tuple[str, int], ...]
    """Value and the block it comes from."""


@dataclass
class BasicBlock:
    """A basic block and how often all sampled threads together ran it."""

    number: int
    count: int
    statements: list[GimpleStatement] = field(default_factory=list)
    phis: list[Phi] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


@dataclass
class GimpleFunction:
    """One function of the dump."""

    name: str
    """As the compiler prints it, without parameters: `reg_matmul<64, 64>`."""
    mangled: str
    blocks: dict[int, BasicBlock] = field(default_factory=dict)
    """In the order of the dump; the first is the entry."""
    types: dict[str, str] = field(default_factory=dict)
    """Declared type by variable or SSA name; an array's element type."""
    arrays: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Extents of the arrays declared in the function."""
    statics: set[str] = field(default_factory=set)
    """Variables declared `static`: in device code the `__shared__` ones."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Type text by parameter name."""
    ran: bool = True
    """False where no thread of the sample came to it."""
    is_guessed: bool = False
    """Whether its counts are g++'s guesses, since it found no counters of this function."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What a type's other name stands for: `ull` for `unsigned long long`."""

    def resolved(self, kind: str) -> str:
        """The type with such names replaced."""
        for _ in range(MOST_NAMES):
            found = next((w for w in re.findall(r"\w+", kind) if w in self.names), None)
            if found is None:
                break
            kind = re.sub(rf"\b{found}\b", self.names[found], kind)
        return kind

    def type_of(self, name: str) -> str:
        """Type of an SSA name or variable, qualifiers stripped; empty where unknown."""
        plain = name.removesuffix("(D)")
        found = self.types.get(plain)
        if found is None:
            base = plain.rpartition("_")[0]
            found = self.types.get(base) or self.parameters.get(base, "")
        return self.resolved(found.replace("const ", "").replace("volatile ", "").strip())


MOST_NAMES = 8
"""Names of names that are followed."""
_STANDARD = {
    "size_t": "unsigned long", "ulong": "unsigned long", "uint": "unsigned int",
    "ushort": "unsigned short", "uchar": "unsigned char",
    **{
        f"{sign}int{bits}_t": f"{word}{kind}"
        for sign, word in (("", ""), ("u", "unsigned "))
        for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    },
    "int8_t": "signed char",
}  # fmt: skip
_NUMBER = r"((?:(?:unsigned|signed|char|short|int|long|float|double|[A-Za-z_]\w*)\s+)*?\w+)"
_TYPEDEF = re.compile(rf"\btypedef\s+{_NUMBER}\s+(\w+)\s*;")
_USING = re.compile(rf"\busing\s+(\w+)\s*=\s*{_NUMBER}\s*;")


def type_names(texts: Iterable[str]) -> dict[str, str]:
    """Other names of numbers' types in these sources, and the standard ones. g++ prints whichever
    the author wrote."""
    found = dict(_STANDARD)
    for text in texts:
        found |= {name: " ".join(kind.split()) for kind, name in _TYPEDEF.findall(text)}
        found |= {name: " ".join(kind.split()) for name, kind in _USING.findall(text)}
    return {name: _as_printed(kind) for name, kind in found.items() if name not in kind.split()}


def _as_printed(kind: str) -> str:
    """An integer's type in g++'s words: `long long unsigned int`."""
    words = kind.split()
    if "unsigned" not in words or not {"short", "int", "long", "unsigned"}.issuperset(words):
        return kind
    return " ".join([*(w for w in words if w in ("short", "long")), "unsigned int"])


_OF_TWO_OR_FOUR = (
    r"u?(?:char|short|int)[24]|u?long(?:long)?2|float[24]|double2|cu(?:Float|Double)?Complex"
)
_MEMBER = re.compile(
    r"(?:\*?(?P<name>[A-Za-z_$][\w.$]*_\d+(?:\(D\))?|_\d+)(?:->|\.)"
    rf"|MEM\[\((?:const )?(?:struct )?(?:{_OF_TWO_OR_FOUR}) [*&]\)[^\]]*\]\.)[xyzw]\b"
)
_POINTER = re.compile(rf"(?:struct )?(?:{_OF_TWO_OR_FOUR}) (?:\* ?|& ?)(?:restrict)?")


def vector_members(functions: Sequence[GimpleFunction]) -> frozenset[Place]:
    """Lines that read or write a member of one of CUDA's aligned vector types (`float4`) through a
    pointer, files by the last part of their path: a compiler knows that neighbours lie in one
    aligned word."""
    return frozenset(
        (statement.place[0].rpartition("/")[2], statement.place[1])
        for function in functions
        for block in function.blocks.values()
        for statement in block.statements
        if statement.place is not None
        for found in _MEMBER.finditer(statement.text)
        if found["name"] is None or _POINTER.fullmatch(function.type_of(found["name"]))
    )


def parse(text: str, names: Mapping[str, str] = NO_NAMES) -> list[GimpleFunction]:
    """Every function of a dump, in order. Unnamed namespaces are left out of names. `names`: as
    `type_names` finds them."""
    functions: list[GimpleFunction] = []
    body: list[str] = []
    for line in text.replace("{anonymous}::", "").splitlines():
        start = _FUNCTION.match(line)
        if start:
            if functions:
                _fill(functions[-1], body)
            ran = not line.endswith("(unlikely executed)")
            functions.append(
                GimpleFunction(start.group(1), start.group(2), ran=ran, names=dict(names))
            )
            body = []
        elif functions:
            body.append(line)
    if functions:
        _fill(functions[-1], body)
    return functions


def _fill(function: GimpleFunction, lines: list[str]) -> None:
    block: BasicBlock | None = None
    falls: list[tuple[BasicBlock, bool]] = []
    pending = ""
    for line in lines:
        start = _BLOCK.match(line)
        if start:
            block = BasicBlock(int(start.group(1)), int(start.group(3) or 0))
            function.is_guessed |= start.group(2) is not None
            function.blocks[block.number] = block
            falls.append((block, True))
            continue
        if block is None:
            _declaration(function, line)
            continue
        stripped = line.strip()
        if (
            not stripped
            or stripped == "}"
            or stripped.startswith(("<L", ";;"))
            or "# DEBUG" in stripped
        ):
            continue
        if stripped.startswith("# "):
            _phi(block, stripped)
            continue
        pending = f"{pending} {stripped}" if pending else stripped
        if not _complete(pending):
            continue
        falls[-1] = (block, falls[-1][1] and not _ends(pending))
        _statement(block, pending)
        pending = ""
    for (this, open_end), (following, _) in itertools.pairwise(falls):
        if open_end and not this.successors:
            this.successors.append(following.number)
    _count_forwarders(function.blocks)


def _count_forwarders(blocks: dict[int, BasicBlock]) -> None:
    """An empty block that g++ makes once it has read the profile has no count of its own: where all
    of a block's ways on seem never to be taken, its threads went through that one."""
    live = [block for block in blocks.values() if block.count]
    while live:
        block = live.pop()
        ways = [blocks[n] for n in block.successors if n in blocks]
        if any(way.count for way in ways):
            continue
        empty = next((way for way in ways if not way.statements), None)
        if empty is not None:
            empty.count = block.count
            live.append(empty)


def _complete(text: str) -> bool:
    return text.endswith((";", "]", "else", ">")) or bool(
        re.search(r"^(?:\[\S+\] )?if \(.*\)$", text)
    )


def _ends(text: str) -> bool:
    bare = _LOCATION.sub("", text)
    return bare.startswith(("return", "goto", "switch", "__builtin_unreachable"))


def _declaration(function: GimpleFunction, line: str) -> None:
    declared = _DECLARATION.match(line)
    if declared:
        kind, name, extents = declared.group(1).strip(), declared.group(2), declared.group(3)
        function.types.setdefault(name, kind.removeprefix("static "))
        if extents:
            function.arrays[name] = tuple(int(n or 0) for n in re.findall(r"\[(\d*)\]", extents))
        if line.startswith("  static "):
            function.statics.add(name)
        return
    if line.endswith(")") and "(" in line and not line.startswith((" ", ";", "_")):
        for part in _split(line[line.rindex(" (") + 2 : -1]):
            kind, _, name = part.strip().rpartition(" ")
            function.parameters[name] = kind


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current] if current.strip() else parts


def _phi(block: BasicBlock, line: str) -> None:
    bare = _LOCATION.sub("", line[2:])
    target, _, right = bare.partition(" = PHI <")
    sources = re.findall(r"(\S+?)\((\d+)\)(?=[,>])", right)
    if sources and not target.startswith("."):
        block.phis.append(Phi(target, tuple((value, int(edge)) for value, edge in sources)))


def _statement(block: BasicBlock, text: str) -> None:
    located = _LOCATION.search(text)
    place = (located.group(1), int(located.group(2))) if located else None
    bare = _LOCATION.sub("", text)
    edges = [int(n) for n in _EDGE.findall(bare)]
    if bare.startswith("switch"):
        edges = [int(n) for n in _CASE.findall(bare) if n]
    block.successors += [e for e in edges if e not in block.successors]
    if bare.startswith(("goto", "else")) or "CLOBBER" in bare:
        return
    bare = _HOW_CALLED.sub("", bare).rstrip(";")
    target, equals, value = bare.partition(" = ")
    if (
        not equals
        or bare.startswith(("if (", "switch ("))
        or (
            "(" in target.split("[")[0]
            and not (
                target.startswith(("MEM", "*", "VIEW_CONVERT", "BIT_FIELD", "REALPART", "IMAGPART"))
            )
        )
    ):
        block.statements.append(GimpleStatement(bare, place, None, bare))
        return
    block.statements.append(GimpleStatement(bare, place, target, value))


def array_base(reference: str) -> str | None:
    """Name of the variable a memory reference names directly; None for one through a pointer."""
    inner = re.match(r"(?:MEM\s*(?:<[^>]*>)?\s*\[\([^)]*\)\s*)?&?([A-Za-z_$][\w$.]*)", reference)
    if inner is None or inner.group(1) in ("MEM", "VIEW_CONVERT_EXPR", "BIT_FIELD_REF"):
        return None
    name = inner.group(1)
    return None if _SSA.fullmatch(name) else name.split(".")[0]


def ssa_names(text: str) -> list[str]:
    """SSA names in a piece of a statement, in order."""
    return _SSA.findall(text)


_REFERENCE = re.compile(r"^(\*|MEM\b|VIEW_CONVERT_EXPR|BIT_FIELD_REF|REALPART_EXPR|IMAGPART_EXPR)")
REINTERPRETED = re.compile(
    r"^(?:VIEW_CONVERT_EXPR|BIT_FIELD_REF|REALPART_EXPR|IMAGPART_EXPR) ?<[^>]*>"
    r"\([\w$.]*_\d+(?:\(D\))?\)$"
)
"""The bits of a register seen as another type."""
_VARIABLE = re.compile(r"^[A-Za-z_$][\w$]*(?:\.\w+|\[.*\])*$")
CALL = re.compile(r"^([.\w:~][\w:.<>, ~*&]*?) \((.*)\)$")
BINARY = re.compile(
    r"^(&?\S.*?) ([-+*/%&|^]|<<|>>|w\*|h\*|==|!=|<=?|>=?|un\w\w|ltgt|\w*ordered) (\S+)$"
)
MEM_TYPE = re.compile(
    r"^MEM <(?:const |volatile )*(.+?)> \["
    r"|^MEM\[\((?:const |volatile )*(.+?) [*&]+(?:\s*\{ref-all\})?\)"
)
CONSTANT = re.compile(r"^[-+]?(?:\d|\.\d|0x|Inf|Nan|\{|&\")")
COMPARES = frozenset({"==", "!=", "<", "<=", ">", ">="})

_SCALAR_BYTES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "_Bool": 1, "short": 2,
    "short int": 2, "unsigned short": 2, "short unsigned int": 2, "_Float16": 2,
    "__bf16": 2, "__half": 2, "int": 4, "unsigned int": 4, "float": 4,
    "long": 8, "long int": 8, "unsigned long": 8, "long unsigned int": 8, "long long int": 8,
    "long long unsigned int": 8, "double": 8,
    "__int128": 16, "__int128 unsigned": 16, "sizetype": 8,
}  # fmt: skip
_VECTOR = re.compile(
    r"^(?:struct )?(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)"
    r"([1234])$"
)
_VECTOR_ELEMENT = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4}


def bytes_of(type_text: str) -> int:
    """Size of a type by its name; 0 where unknown."""
    text = type_text.replace("const ", "").replace("volatile ", "").strip()
    if text.endswith(("*", "&")) or "* " in text:
        return 8
    lanes = re.match(r"^vector\((\d+)\) (.+)$", text)
    if lanes:
        return int(lanes.group(1)) * bytes_of(lanes.group(2))
    vector = _VECTOR.match(text)
    if vector:
        return _VECTOR_ELEMENT.get(vector.group(1), 8) * int(vector.group(2))
    return _SCALAR_BYTES.get(text.removeprefix("struct "), 0)


def is_reference(value: str) -> bool:
    """Whether the text names memory or a variable rather than a value."""
    if _REFERENCE.match(value):
        return True
    return (
        bool(_VARIABLE.match(value))
        and ssa_names(value)[:1] != [value]
        and not (CONSTANT.match(value) or value in ("true", "false"))
    )
