"""Classes of a program as clang tells them: what their objects run that no statement shows."""

from __future__ import annotations

from typing import Any

from clang.cindex import Cursor, CursorKind, TypeKind

from cudaops.domain.workload import ELEMENT_BYTES, Element
from cudaops.program.instances import element_of
from cudaops.program.syntax import normal_type

ROOT = "/cudaops-program"
"""Where the program's files seem to be; nothing is written there."""
_K = CursorKind


def is_own(cursor: Cursor) -> bool:
    """Whether it is in a file of the program."""
    file = cursor.location.file
    return bool(file is not None and file.name.startswith(f"{ROOT}/"))


_ARRAYS = {
    TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.VARIABLEARRAY,
    TypeKind.DEPENDENTSIZEDARRAY,
}  # fmt: skip
REFERENCES = {TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE}


def is_volatile(kind: Any, within: frozenset[str] = frozenset()) -> bool:
    """Whether a type is volatile or leads to something that is: an element, what a pointer or
    reference is to, or a member, at any level. `within`: structures that are being looked at."""
    kind = kind.get_canonical()
    if kind.is_volatile_qualified():
        return True
    if kind.kind in _ARRAYS:
        return is_volatile(kind.element_type, within)
    if kind.kind == TypeKind.POINTER or kind.kind in REFERENCES:
        return is_volatile(kind.get_pointee(), within)
    if kind.kind != TypeKind.RECORD or (name := kind.spelling) in within:
        return False
    return any(is_volatile(field.type, within | {name}) for field in kind.get_fields())


def runs_by_itself(kind: Any) -> bool:
    """Whether a variable of this type runs code that nobody wrote down where it is declared: the
    program's own constructors and destructors, in it or in its members."""
    while kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        kind = kind.element_type.get_canonical()
    own = kind.kind == TypeKind.RECORD and is_own(kind.get_declaration())
    return bool(own and not kind.is_pod())


_MEMBERS = {
    _K.FIELD_DECL, _K.CONSTRUCTOR, _K.CXX_METHOD, _K.CONVERSION_FUNCTION, _K.FUNCTION_TEMPLATE,
    _K.CXX_ACCESS_SPEC_DECL, _K.TYPEDEF_DECL, _K.TYPE_ALIAS_DECL, _K.VAR_DECL, _K.STATIC_ASSERT,
    _K.FRIEND_DECL, _K.ENUM_DECL, _K.TEMPLATE_TYPE_PARAMETER, _K.TEMPLATE_NON_TYPE_PARAMETER,
}  # fmt: skip
"""What a class may consist of whose objects are values."""


def is_value(kind: Any, lib: Any) -> bool:
    """Whether objects of the program's class run no code but the constructor that begins them: no
    destructor, base, virtual method or written copy, in it or in its members."""
    kind = kind.get_canonical()
    if kind.kind != TypeKind.RECORD:
        return False
    declared = kind.get_declaration()
    parts = members(declared, lib)
    if any(first_value(c) is not None for c in parts) and not list(declared.get_children()):
        return False  # an instance's fields do not tell how they begin
    plain = all(
        (c.kind in _MEMBERS or c.kind.is_attribute() or c.kind.is_reference())
        and c.kind != _K.CXX_BASE_SPECIFIER
        and not (c.kind == _K.CXX_METHOD and c.is_virtual_method())
        and not (c.kind == _K.CONSTRUCTOR and _copies(c) and is_written(c))
        and not (c.spelling == "operator=" and not is_made(c))
        for c in parts
    )
    fields = list(kind.get_fields())
    return plain and bool(fields) and not any(runs_by_itself(f.type.get_canonical())
                                              or f.is_bitfield() for f in fields)  # fmt: skip


def only_element(kind: Any) -> Element:
    """What a structure consists of, where that is one kind of number and nothing else, no padding
    either: `struct { float3 at; float mass; }` of `f32`. `opaque` otherwise."""
    kind = kind.get_canonical()
    found = element_of(normal_type(kind.spelling))
    if found != "opaque":
        return found if kind.get_size() % ELEMENT_BYTES[found] == 0 else "opaque"
    if kind.kind == TypeKind.CONSTANTARRAY:
        return only_element(kind.element_type)
    fields = list(kind.get_fields()) if kind.kind == TypeKind.RECORD else []
    elements = {only_element(field.type) for field in fields}
    is_union = kind.get_declaration().kind == _K.UNION_DECL
    if len(elements) != 1 or is_union or any(field.is_bitfield() for field in fields):
        return "opaque"
    is_whole = sum(field.type.get_size() for field in fields) == kind.get_size()
    return elements.pop() if is_whole else "opaque"


def members(declared: Cursor, lib: Any) -> list[Cursor]:
    """Of a class; those of an instance of a template are its template's too."""
    template = lib.clang_getSpecializedCursorTemplate(declared)
    known = template is not None and not template.kind.is_invalid()
    return [*declared.get_children(), *(template.get_children() if known else ())]


def first_value(member: Cursor) -> Cursor | None:
    """What a class says that one of its members begins with."""
    if member.kind != _K.FIELD_DECL:
        return None
    kind, extents = member.type.get_canonical(), 0
    while kind.kind == TypeKind.CONSTANTARRAY:
        kind, extents = kind.element_type.get_canonical(), extents + 1
    found = [c for c in member.get_children() if c.kind.is_expression()]
    name = member.location.offset
    behind = (x.spelling for x in member.get_tokens() if x.extent.start.offset > name)
    said = {"=", "{"} & set(behind)
    return found[-1] if found and (said or len(found) > extents) else None


def _copies(constructor: Cursor) -> bool:
    return bool(constructor.is_copy_constructor() or constructor.is_move_constructor())


def is_written(constructor: Cursor) -> bool:
    """Whether the program says what a constructor does."""
    definition = constructor.get_definition()
    return bool(
        definition is not None and is_own(definition) and not is_made(definition)
        and any(c.kind == _K.COMPOUND_STMT for c in definition.get_children())
    )  # fmt: skip


def is_made(method: Cursor) -> bool:
    """Whether the compiler wrote it: it stands where its class does."""
    made: bool = method.location == method.semantic_parent.location or method.is_default_method()
    return made


def is_method(function: Cursor) -> bool:
    """Whether a call of it has an object."""
    methods = (_K.CXX_METHOD, _K.CONVERSION_FUNCTION)
    return function.kind in methods and not function.is_static_method()


def is_const_method(function: Cursor) -> bool:
    """Whether it is a method that cannot change its object."""
    if not is_method(function) or not function.is_const_method():
        return False
    fields = function.semantic_parent.type.get_fields()
    return not any(field.is_mutable_field() for field in fields)
