"""How to read single pieces of GIMPLE text: references, operations, calls, sizes of types."""

from __future__ import annotations

import re

from cudaops.timemodel.gimple import ssa_names

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
