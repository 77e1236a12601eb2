"""Template instances: which one a launch with deduced arguments means, and how it is spelled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from cudaops.domain.program import Kernel
from cudaops.domain.workload import Element
from cudaops.program.lexing import Token, byte_text, lex, plain_text, split_commas

SPELLED: dict[Element, str] = {
    "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double",
    "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short",
    "i32": "int", "u32": "unsigned int", "i64": "long long", "u64": "unsigned long long",
    "bool": "bool",
}  # fmt: skip
"""C++ type of an element. `opaque` has none."""

_ELEMENTS: dict[str, Element] = {
    **{text: element for element, text in SPELLED.items()},
    "half": "f16", "unsigned": "u32", "char": "i8", "__half2": "f16", "__nv_bfloat162": "bf16",
}  # fmt: skip
VECTORS: dict[str, Element] = {
    "char": "i8", "uchar": "u8", "short": "i16", "ushort": "u16", "int": "i32", "uint": "u32",
    "long": "i64", "ulong": "u64", "longlong": "i64", "ulonglong": "u64", "float": "f32",
    "double": "f64",
}  # fmt: skip
"""Element of CUDA's vector types, by their names without the digit."""


def plain_name(callee: str) -> str:
    """What is launched, without namespaces and template arguments: `scale` of `n::scale<float>`."""
    return callee.partition("<")[0].rpartition("::")[2].strip()


def element_of(type_text: str) -> Element:
    """Element of a type as `syntax.normal_type` spells it; `opaque` for what has none."""
    if type_text[-1:] in "1234" and type_text[:-1] in VECTORS:
        return VECTORS[type_text[:-1]]
    return _ELEMENTS.get(type_text, "opaque")


_PACK_OR_NAME = re.compile(r"^(?:typename|class)\s*(\.\.\.)?\s*(\w+)\s*(?:=\s*(.+))?$", re.DOTALL)
_VALUE = re.compile(r"^.*?(\w+)\s*(?:=\s*(.+))?$", re.DOTALL)


_ANYWHERE = frozenset({
    "bool", "char", "double", "float", "int", "long", "short", "signed", "unsigned", "true",
    "false",
})  # fmt: skip


def plain_arguments(tokens: Sequence[Token], name: str) -> list[tuple[str, ...]]:
    """The template arguments with which a text names something, of those that mean the same
    anywhere: numbers and C++'s own types of one word. Each once, in order."""
    found: dict[tuple[str, ...], None] = {}
    for index, token in enumerate(tokens[:-1]):
        if token.text != name or tokens[index + 1].text != "<":
            continue
        given = list(takewhile(lambda t: t.text != ">", tokens[index + 2 : index + 12]))
        each = [t for t in given if t.text != ","]
        plain = all(t.kind == "number" or t.text in _ANYWHERE for t in each)
        if plain and len(given) == 2 * len(each) - 1:
            found[tuple(t.text for t in each)] = None
    return list(found)


def deduce_instance(kernel: Kernel, elements: Sequence[Element | None]) -> str | None:
    """Spell the instance of a template kernel from its arguments' element types: `scale<float>`.

    `elements` are in parameter order, None where unknown. The plain name for a kernel that is no
    template; None where a template parameter occurs in no parameter and has no default.
    """
    if not kernel.template_parameters:
        return kernel.qualified_name
    bound: dict[str, str] = {}
    for parameter, element in zip(kernel.parameters, elements, strict=False):
        name = _bare(parameter.type_text)
        if element is not None and element in SPELLED:
            bound.setdefault(name, SPELLED[element])
    arguments = []
    for written in kernel.template_parameters:
        argument = _argument(written, bound)
        if argument is None:
            return None
        arguments.append(argument)
    return f"{kernel.qualified_name}<{', '.join(arguments)}>"


def _bare(type_text: str) -> str:
    words = re.sub(
        r"\b(const|volatile|__restrict__|__restrict|restrict)\b|[*&]|\[\w*\]", " ", type_text
    )
    return " ".join(words.split())


def _argument(written: str, bound: dict[str, str]) -> str | None:
    typed = _PACK_OR_NAME.match(written)
    if typed is not None:
        if typed.group(1):
            return None
        return bound.get(typed.group(2), typed.group(3))
    valued = _VALUE.match(written)
    return None if valued is None else valued.group(2)


def template_parameter_names(kernel: Kernel) -> tuple[str, ...]:
    """Names of the template parameters, without their kinds and defaults."""
    return tuple(parameter_name(written) for written in kernel.template_parameters)


def parameter_name(written: str) -> str:
    """`T` of `typename T = float`, `N` of `int N`."""
    match = _PACK_OR_NAME.match(written) or _VALUE.match(written)
    if match is None:
        return written
    return match.group(2) if match.re is _PACK_OR_NAME else match.group(1)


def template_arguments(callee: str) -> tuple[str, ...]:
    """`64`, `ops::Pair<int, 2>` of `fast<64, ops::Pair<int, 2>>`; empty where none are written."""
    raw = byte_text(callee.partition("<")[2].rpartition(">")[0])
    parts = split_commas(lex(raw).tokens, angles=True)
    return tuple(plain_text(raw[p[0].start : p[-1].end]) for p in parts if p)


def bound_arguments(kernel: Kernel, callee: str) -> dict[str, str]:
    """Template parameter to what it is in this instance, as far as that can be told: not behind a
    parameter pack, and not from a default that needs other parameters."""
    written = template_arguments(callee)
    names = template_parameter_names(kernel)
    bound: dict[str, str] = {}
    for index, (name, parameter) in enumerate(zip(names, kernel.template_parameters, strict=True)):
        if "..." in parameter:
            break
        argument = written[index] if index < len(written) else _argument(parameter, {})
        words = set(re.findall(r"[A-Za-z_]\w*", argument or ""))
        if argument is not None and (index < len(written) or not words & {*names}):
            bound[name] = argument
    return bound


def is_type_parameter(written: str) -> bool:
    """Whether a template parameter stands for a type."""
    return _PACK_OR_NAME.match(written) is not None


def callee_of(demangled: str) -> str:
    """The callable part of a demangled function: `ops::scale<float, 4>`.

    Return type and parameters go; what is between angle brackets stays.
    """
    depth = 0
    end = len(demangled)
    for index, character in enumerate(demangled):
        if character == "<":
            depth += 1
        elif character == ">" and demangled[index - 1 : index + 1] != "->":
            depth -= 1
        elif character == "(" and depth == 0 and not demangled.startswith("(anonymous", index):
            end = index
            break
    head = demangled[:end].strip()
    depth = 0
    start = 0
    for index, character in enumerate(head):
        depth += (character == "<") - (character == ">")
        if character == " " and depth == 0 and not head.startswith("(anonymous", index - 10):
            start = index + 1
    return head[start:].replace("(anonymous namespace)::", "")
