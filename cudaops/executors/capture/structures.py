"""Which pointers a structure hands to a kernel: what a recorder saw in its bytes, by clang's types.

A recorder reports every word that is an address in an allocation. Only the type tells a pointer
from a number that looks like one, and what it points to.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import (
    Element,
    Field,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    PointerField,
    ScalarArgument,
)
from cudaops.executors.capture.report import Passed, Place, PointerWord
from cudaops.program.analysis.facts import Access
from cudaops.program.analysis.kernel import analyse
from cudaops.program.front_end import kernel_form
from cudaops.program.instances import element_of
from cudaops.program.syntax import (
    POINTER_BYTES,
    KernelForm,
    Layout,
    NotUnderstood,
    PointerMember,
    TypedParameter,
    normal_type,
)

NOWHERE = 0x10
"""Stands for a pointer that is not null and points into no allocation of the device: it still is
not null, and nothing can be read there. No allocation begins so low (`vm.mmap_min_addr`)."""


class NotFollowed(Exception):
    """A structure that cannot be captured; the text says which and why."""


def with_pointers(
    program: Program,
    kernel: Kernel,
    callee: str,
    passed: Sequence[Passed],
    addresses: dict[int, tuple[PointerWord, ...]],
) -> tuple[Passed, ...]:
    """The arguments with the pointers and numbers in structures, and with what a `void*` is cast
    to.

    Raises NotFollowed where a structure holds an address and its type does not say what that is.
    """
    untyped = any(
        isinstance(p.argument, PointerArgument) and p.argument.element == "opaque" for p in passed
    )
    if not (addresses or untyped or any(isinstance(p.argument, OpaqueArgument) for p in passed)):
        return tuple(passed)
    try:
        form = kernel_form(program, kernel, callee)
        parameters: Sequence[TypedParameter] = form.kernel.parameters
        if len(parameters) != len(passed):
            raise NotUnderstood(f"{len(parameters)} parameters, {len(passed)} arguments")
    except NotUnderstood as problem:
        if not addresses:
            return tuple(passed)
        name = passed[min(addresses)].argument.name
        raise NotFollowed(
            f"parameter {name} is a structure that holds a device pointer, and clang cannot tell "
            f"which: {problem}"
        ) from problem
    return tuple(
        _typed(form, parameter, one, addresses.get(position, ()))
        for position, (parameter, one) in enumerate(zip(parameters, passed, strict=True))
    )


class Linked(NamedTuple):
    """A pointer that is in memory."""

    name: str
    """How it is reached: `rows[0]`, `at[2].next`."""
    element: Element
    is_const: bool


def linked(
    program: Program, kernel: Kernel, callee: str, passed: Sequence[Passed],
    places: Sequence[Place], contents: Sequence[Path],
) -> tuple[dict[int, list[Linked]], frozenset[int]]:  # fmt: skip
    """By allocation, the pointers into it that are in memory, as the types of the parameters tell
    that lead there: tables of pointers, and structures with pointers to numbers or to more of the
    same; and the allocations that are such tables. `places` and `contents`, before the launch, are
    by allocation."""
    try:
        parameters = kernel_form(program, kernel, callee).kernel.parameters
    except NotUnderstood:
        return {}, frozenset()
    found: dict[int, list[Linked]] = {}
    tables = set[int]()
    waiting: list[tuple[int, str, TypedParameter]] = [
        (p.argument.allocation, p.argument.name, parameter)
        for parameter, p in zip(parameters, passed, strict=False)
        if isinstance(p.argument, PointerArgument)
    ]
    seen = set[int]()
    order = sorted((place.address, i) for i, place in enumerate(places))
    while waiting:
        index, name, parameter = waiting.pop()
        if index in seen or not places[index].holds_pointers:
            continue
        seen.add(index)
        if parameter.type.endswith("*"):
            tables.add(index)
        for target, path, field in _pointers_in(contents[index], parameter, places, order):
            one = Linked(f"{name}{path}", element_of(field.type), field.is_const)
            found.setdefault(target, []).append(one)
            if field.type == parameter.type:
                waiting.append((target, one.name, parameter))
    return found, frozenset(tables)


def _pointers_in(
    contents: Path,
    parameter: TypedParameter,
    places: Sequence[Place],
    order: Sequence[tuple[int, int]],
) -> Iterator[tuple[int, str, PointerMember]]:
    """The allocation of each that is an address, its path, and its type. `order`: of the places by
    their addresses."""
    words = np.fromfile(contents, dtype="<u8", count=contents.stat().st_size // POINTER_BYTES)
    fields = parameter.pointers
    size = parameter.layout.size_bytes if parameter.layout is not None else 0
    if parameter.type.endswith("*"):
        bare = normal_type(parameter.type.removesuffix("*").replace("const", "").strip())
        fields = (PointerMember("", 0, bare, "const" in parameter.type),)
        size = POINTER_BYTES
    if not size or size % POINTER_BYTES:
        return
    for start in range(0, len(words) * POINTER_BYTES - size + 1, size):
        for field in fields:
            address = int(words[(start + field.offset_bytes) // POINTER_BYTES])
            before = bisect_right(order, (address, len(places))) - 1
            target = order[before][1]
            if before >= 0 and places[target].has(address):
                yield target, f"[{start // size}]{field.path}", field


def stands_in(function: str, closure: str) -> bool:
    """Whether a closure of this mangled type is a function's of that mangled name (Itanium ABI:
    `Z <encoding of the function> E <name>`). `L` marks names that no other file sees; compilers do
    not agree where."""
    function, closure = (re.sub(r"L(?=\d)", "", name) for name in (function, closure))
    return closure.startswith(f"Z{function.removeprefix('_Z')}E")


def takes(parameters: Sequence[TypedParameter], passed: Sequence[Passed]) -> bool:
    """Whether a function with these parameters can have been called with these arguments."""
    return len(parameters) == len(passed) and all(map(_takes, parameters, passed))


def _takes(parameter: TypedParameter, passed: Passed) -> bool:
    argument = passed.argument
    match argument:
        case NullArgument():
            return parameter.is_pointer
        case PointerArgument():
            element = element_of(parameter.type)
            return parameter.is_pointer and argument.element in (element, "opaque")
        case ScalarArgument():
            return not parameter.is_pointer and element_of(parameter.type) != "opaque"
    return not parameter.is_pointer and normal_type(passed.type) == parameter.type


def _typed(
    form: KernelForm, parameter: TypedParameter, passed: Passed, addresses: Sequence[PointerWord]
) -> Passed:
    argument = passed.argument
    if isinstance(argument, PointerArgument) and argument.element == "opaque":
        update: dict[str, object] = {
            "element": _pointee(form, parameter.name, parameter.type),
            "structure_bytes": dict(form.sizes).get(parameter.type),
        }
        layout = parameter.layout if update["element"] == "opaque" else None
        return passed._replace(argument=argument.model_copy(update=update), layouts=(layout,))
    if not isinstance(argument, OpaqueArgument):
        return passed
    is_plain = not (addresses or parameter.pointers)
    if is_plain and len(argument.raw_hex) != 2 * parameter.size_bytes:
        return passed
    if parameter.unclear and addresses:
        raise NotFollowed(f"parameter {parameter.unclear}")
    known = {address.at_bytes: address for address in addresses}
    declared = {field.offset_bytes for field in parameter.pointers}
    if strange := sorted(set(known) - declared):
        raise NotFollowed(
            f"parameter {parameter.name} holds a device address at byte {strange[0]}, where its "
            "type has no pointer"
        )
    data = bytearray.fromhex(argument.raw_hex)
    if len(data) != parameter.size_bytes:
        raise NotFollowed(
            f"parameter {parameter.name} has {len(data)} bytes, and {parameter.size_bytes} by clang"
        )
    pointers: list[PointerField] = []
    layouts: list[Layout | None] = []
    for field in parameter.pointers:
        place = slice(field.offset_bytes, field.offset_bytes + POINTER_BYTES)
        if field.offset_bytes not in known:
            if field.is_certain and any(data[place]):
                data[place] = NOWHERE.to_bytes(POINTER_BYTES, "little")
            continue
        address = known[field.offset_bytes]
        data[place] = bytes(POINTER_BYTES)
        element = _pointee(form, field.path, field.type)
        layouts.append(field.layout if element == "opaque" else None)
        pointers.append(
            PointerField(
                path=field.path,
                at_bytes=field.offset_bytes,
                is_const=field.is_const,
                element=element,
                allocation=address.allocation,
                offset_bytes=address.offset_bytes,
            )
        )
    layout = parameter.layout or Layout(parameter.size_bytes, None, ())
    update = {
        "raw_hex": data.hex(),
        "pointers": tuple(pointers),
        "fields": number_fields(layout),
        "wide_bytes": layout.wide_size_bytes,
        "words": layout.pointers,
    }
    return passed._replace(argument=argument.model_copy(update=update), layouts=tuple(layouts))


def number_fields(layout: Layout) -> tuple[Field, ...]:
    """The numbers in a structure, as workloads have them."""
    return tuple(
        Field(
            path=one.path,
            element=one.element,
            at_bytes=one.offset_bytes,
            wide_at_bytes=one.wide_offset_bytes,
            is_public=one.is_public,
            bits=one.bits,
        )
        for one in layout.fields
    )


def _pointee(form: KernelForm, path: str, written: str) -> Element:
    """What a pointer points to by its type, or, of a `void*`, by all that the kernel and the
    functions it calls read and write through it."""
    if written != "void":
        return dict(form.structures).get(written, element_of(written))
    accesses = _accesses(form)
    wanted = _without_indices(path)
    found = {element_of(a.type) for a in accesses if _without_indices(a.array) == wanted}
    followed = all(a.space != "unknown" for a in accesses)
    return found.pop() if len(found) == 1 and followed else "opaque"


@lru_cache(maxsize=8)
def _accesses(form: KernelForm) -> tuple[Access, ...]:
    try:
        return analyse(form).accesses
    except NotUnderstood:
        return ()


def _without_indices(path: str) -> str:
    return re.sub(r"\[(\d+|\.\.)\]", "[]", path)


class VariableType(NamedTuple):
    """Of one of the program's variables, or of an array's elements."""

    element: Element
    layout: Layout | None = None
    is_used: bool = True
    """See `GlobalState.is_used`."""
    is_told: bool = True
    """False: it may be a structure of which nothing is known."""
    is_pointer: bool = False
    """To data, by clang."""


def typed_variables(
    program: Program, kernel: Kernel, callee: str, names: Sequence[str]
) -> dict[str, VariableType]:
    """The types of these variables, by clang where their authors' words do not say enough."""
    texts = {v.qualified_name: v.type_text for v in program.global_variables}
    types = {name: VariableType(_declared_element(texts.get(name, ""))) for name in names}
    unclear = [name for name, one in types.items() if one.element == "opaque"]
    if not unclear:
        return types
    try:
        form = kernel_form(program, kernel, callee)
    except NotUnderstood:
        return types | {name: VariableType("opaque", is_told=False) for name in unclear}
    known = {
        v.name: VariableType(element_of(v.type), v.layout, is_pointer=_is_pointer(v.type))
        for v in form.variables
    }
    unused = VariableType("opaque", is_used=False, is_told=False)
    return types | {name: known.get(name.partition("<")[0], unused) for name in unclear}


def _is_pointer(type_text: str) -> bool:
    bare = type_text.partition("[")[0].rstrip().removesuffix("const").rstrip()
    return bare.endswith("*") and "(" not in bare


def type_of(variable: VariableType, size_bytes: int) -> dict[str, Any]:
    """The fields of a `GlobalState` that say so. What is neither a number nor a structure, a
    pointer, is of one size in every unit."""
    layout = variable.layout
    same = size_bytes if variable.element == "opaque" and variable.is_told else None
    return {
        "element": variable.element,
        "is_used": variable.is_used,
        "fields": () if layout is None else number_fields(layout),
        "structure_bytes": same if layout is None else layout.size_bytes,
        "wide_structure_bytes": same if layout is None else layout.wide_size_bytes,
    }


_ALIASES: dict[str, Element] = {
    "int8_t": "i8", "uint8_t": "u8", "uchar": "u8", "int16_t": "i16", "uint16_t": "u16",
    "ushort": "u16", "int32_t": "i32", "uint32_t": "u32", "uint": "u32", "int64_t": "i64",
    "uint64_t": "u64", "size_t": "u64", "half2": "f16",
}  # fmt: skip
"""Of the C library and CUDA, on LP64."""


def _declared_element(type_text: str) -> Element:
    """Of a variable's type as its author writes it, or of the vector type's scalar; `opaque` for a
    structure, and for what only clang tells."""
    bare = normal_type(type_text.partition("[")[0])
    return _ALIASES.get(bare) or element_of(bare)
