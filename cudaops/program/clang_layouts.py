"""Where the numbers in a program's structures stand, as clang lays them out: as they are, and with
every floating type widened, as the accuracy yardstick compiles them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from clang.cindex import AccessSpecifier, CursorKind, TypeKind, conf

from cudaops.domain.workload import ELEMENT_BYTES, Element
from cudaops.program.clang_classes import members
from cudaops.program.instances import element_of
from cudaops.program.syntax import POINTER_BYTES, Layout, NumberField, normal_type

MOST_FIELDS = 256
"""Of one structure; each is drawn and compared by itself."""

_DEEPEST = 16
_WIDE_BYTES: dict[Element, int] = {"f16": 8, "bf16": 8, "f32": 8, "f64": 16}
"""Of a widened number: `double`, of doubles `long double`, on x86-64 and aarch64."""
_WIDE_ALIGNMENT: dict[tuple[Element, int], int] = {
    ("f32", 2): 16, ("f32", 4): 16, ("f64", 2): 32, ("f64", 4): 32,
}  # fmt: skip
"""Of a widened vector of so many. Source: `double2` and `double4` in vector_types.h, those of
`long double` in wide_doubles.h. `__half2` has no widened layout here."""


class _NotTold(Exception):
    """A member that is neither a number nor a pointer, or has no known offset."""


class _Piece(NamedTuple):
    path: str
    at: int
    wide_at: int
    element: Element | None
    """None: a pointer."""
    is_public: bool = True
    bits: tuple[int, int] | None = None


class _Part(NamedTuple):
    """A type that a structure is made of."""

    size: int
    alignment: int
    wide_size: int
    wide_alignment: int
    is_wide: bool
    """Whether the widened layout is known."""
    pieces: tuple[_Piece, ...]


def layout_of(kind: Any, *, by_value: bool = False) -> Layout | None:
    """Of a structure; None for any other type. Without fields where it holds anything but numbers:
    a union, a base, virtual functions, and pointers unless it is passed `by_value`."""
    kind = kind.get_canonical()
    if kind.kind != TypeKind.RECORD:
        return None
    try:
        part = _part(kind, 0)
    except _NotTold:
        return Layout(kind.get_size(), None, ())
    if not by_value and any(piece.element is None for piece in part.pieces):
        return Layout(kind.get_size(), None, ())
    fields = tuple(
        NumberField(
            p.path.removeprefix("."),
            p.at,
            p.element,
            p.wide_at if part.is_wide else None,
            p.is_public,
            p.bits,
        )
        for p in part.pieces
        if p.element is not None
    )
    pointers = tuple((p.at, p.wide_at) for p in part.pieces if p.element is None)
    return Layout(part.size, part.wide_size if part.is_wide else None, fields, pointers)


def _part(kind: Any, deep: int) -> _Part:
    kind = kind.get_canonical()
    size, alignment = kind.get_size(), kind.get_align()
    if kind.kind == TypeKind.POINTER:
        pieces = (_Piece("", 0, 0, None),)
        return _Part(POINTER_BYTES, alignment, POINTER_BYTES, alignment, True, pieces)
    if kind.kind == TypeKind.CONSTANTARRAY:
        return _array(kind, deep)
    whole = kind.get_declaration().enum_type if kind.kind == TypeKind.ENUM else kind
    element = element_of(normal_type(whole.get_canonical().spelling))
    if element != "opaque":
        return _vector(element, size, alignment)
    if kind.kind != TypeKind.RECORD or deep > _DEEPEST:
        raise _NotTold
    return _record(kind, deep)


def _vector(element: Element, size: int, alignment: int) -> _Part:
    """A number, or some of one kind under the names that CUDA gives them."""
    one = ELEMENT_BYTES[element]
    count = size // one
    if count * one != size or count > len("xyzw"):
        raise _NotTold
    wide = _WIDE_BYTES.get(element, one)
    names = ("",) if count == 1 else tuple(f".{axis}" for axis in "xyzw"[:count])
    pieces = tuple(_Piece(name, n * one, n * wide, element) for n, name in enumerate(names))
    if element not in _WIDE_BYTES:
        return _Part(size, alignment, size, alignment, True, pieces)
    known = count in (1, 3) or (element, count) in _WIDE_ALIGNMENT
    wide_alignment = _WIDE_ALIGNMENT.get((element, count), wide)
    return _Part(size, alignment, count * wide, wide_alignment, known, pieces)


def _array(kind: Any, deep: int) -> _Part:
    one, count = _part(kind.element_type, deep + 1), kind.element_count
    if count * len(one.pieces) > MOST_FIELDS:
        raise _NotTold
    pieces = tuple(
        p._replace(
            path=f"[{n}]{p.path}",
            at=n * one.size + p.at,
            wide_at=n * one.wide_size + p.wide_at,
        )
        for n in range(count)
        for p in one.pieces
    )
    return one._replace(size=count * one.size, wide_size=count * one.wide_size, pieces=pieces)


def _record(kind: Any, deep: int) -> _Part:
    declared = kind.get_declaration()
    parts = members(declared, conf.lib)
    if declared.kind == CursorKind.UNION_DECL or any(map(_moves_fields, parts)):
        raise _NotTold
    end, wide_end, alignment, wide_alignment, is_wide = 0, 0, 1, 1, True
    pieces: list[_Piece] = []
    has_bits = False
    for member in kind.get_fields():
        if member.is_bitfield():
            has_bits = True
            piece, last = _bit_field(member, kind.get_size())
            pieces += [piece] if member.spelling else []
            end, wide_end = max(end, last), max(wide_end, last)
            continue
        part, at = _part(member.type, deep + 1), member.get_field_offsetof() // 8
        wide_at = _aligned(wide_end, part.wide_alignment)
        # What is packed, or aligned on its own, is elsewhere: where, widened, is not told.
        is_wide &= part.is_wide and at == _aligned(end, part.alignment)
        pieces += _below(member, at, wide_at, part)
        end, wide_end = at + part.size, wide_at + part.wide_size
        alignment = max(alignment, part.alignment)
        wide_alignment = max(wide_alignment, part.wide_alignment)
    if len(pieces) > MOST_FIELDS:
        raise _NotTold
    end, wide_end = max(end, 1), max(wide_end, 1)  # an empty one has a byte
    size, written = kind.get_size(), kind.get_align()
    wide_alignment = max(wide_alignment, written if written > alignment else 1)
    wide_size = _aligned(wide_end, wide_alignment)
    if has_bits:  # no type of theirs is widened: where no other is, nothing moves
        is_wide = not any(p.element in _WIDE_BYTES for p in pieces)
        pieces = [p._replace(wide_at=p.at) for p in pieces]
        wide_size, wide_alignment = size, written
    else:
        is_wide &= size == _aligned(end, written) and written >= alignment
    return _Part(size, written, wide_size, wide_alignment, is_wide, tuple(pieces))


def _bit_field(member: Any, structure_bytes: int) -> tuple[_Piece, int]:
    """A bit-field in the integer of its declared type that it lies in, and the byte behind it.
    Private: a bit-field has no address, and none is named in a launch."""
    declared = member.type.get_canonical()
    whole = declared.get_declaration().enum_type if declared.kind == TypeKind.ENUM else declared
    element = element_of(normal_type(whole.get_canonical().spelling))
    element = "u8" if element == "bool" else element
    first, width = member.get_field_offsetof(), member.get_bitfield_width()
    unit = ELEMENT_BYTES[element]
    at = first // (8 * unit) * unit
    low, end = first - 8 * at, -(-(first + width) // 8)
    if element == "opaque" or low + width > 8 * unit or at + unit > structure_bytes:
        raise _NotTold  # packed: it lies across two
    return _Piece(f".{member.spelling}", at, at, element, False, (low, width)), end


def _below(member: Any, at: int, wide_at: int, part: _Part) -> Iterator[_Piece]:
    """The pieces of a member; what is in one without a name is named as if it were outside."""
    name = member.spelling
    inside = f".{name}" if name and "(" not in name else ""
    hidden = member.access_specifier in (AccessSpecifier.PRIVATE, AccessSpecifier.PROTECTED)
    for p in part.pieces:
        yield p._replace(
            path=f"{inside}{p.path}",
            at=at + p.at,
            wide_at=wide_at + p.wide_at,
            is_public=p.is_public and not hidden,
        )


def _moves_fields(member: Any) -> bool:
    """Whether it puts something into its class that is not among the fields."""
    if member.kind == CursorKind.CXX_BASE_SPECIFIER:
        return True
    methods = (CursorKind.CXX_METHOD, CursorKind.DESTRUCTOR, CursorKind.CONVERSION_FUNCTION)
    return member.kind in methods and bool(conf.lib.clang_CXXMethod_isVirtual(member))


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
