"""From a value of a plan to the bytes of a kernel's parameter, converted as C++ would."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

from cudaops.domain.rewrite import BufferValue, NumberValue, RawValue, Value

POINTER_BYTES = 8

_FLOATS: dict[str, str] = {
    "float": "f", "double": "d", "__half": "e", "half": "e", "__nv_bfloat16": "b",
    "nv_bfloat16": "b", "_Float16": "e", "__bf16": "b",
}  # fmt: skip
_INTEGERS: dict[str, int] = {
    "char": 1, "signed char": 1, "unsigned char": 1, "char8_t": 1, "short": 2, "unsigned short": 2,
    "char16_t": 2, "wchar_t": 4, "char32_t": 4, "int": 4, "unsigned int": 4, "unsigned": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "size_t": 8,
    "__int128": 16, "unsigned __int128": 16, "std::size_t": 8,
}  # fmt: skip
_FLOAT_BYTES = {"f": 4, "d": 8, "e": 2, "b": 2}
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict)\b")
_VECTOR = re.compile(r"^(?:u?(?:char|short|int|long|longlong)|float|double|__half|half)[1-4]"
                     r"|^(?:__nv_bfloat162|nv_bfloat162)$")  # fmt: skip
MANTISSA_BITS = 53
"""Of a double. Source: IEEE 754-2019, binary64."""


class Unpackable(Exception):
    """The value cannot become this parameter; `str()` says why."""


def known_bytes(type_text: str, value: Value) -> int:
    """Size of a parameter where the driver cannot tell (before CUDA 12.4). Raises Unpackable."""
    plain = _plain(type_text)
    if _is_pointer(plain):
        return POINTER_BYTES
    if plain == "bool":
        return 1
    if plain in _FLOATS:
        return _FLOAT_BYTES[_FLOATS[plain]]
    if plain in _INTEGERS:
        return _INTEGERS[plain]
    if value.kind == "raw":
        return len(value.raw_hex) // 2
    raise Unpackable(f"the size of {type_text} is not known to this driver; it needs CUDA 12.4")


def pack(
    value: Value, type_text: str, size_bytes: int, address_of: Callable[[BufferValue], int]
) -> bytes:
    """The parameter's bytes. `type_text` is its C++ spelling, empty where it is not known.

    Numbers become what a C++ call would make of them: integers wrap, floating values round to
    nearest or lose their fraction. Raises Unpackable.
    """
    if value.kind == "raw":
        return _raw(value, size_bytes, address_of)
    plain = _plain(type_text)
    if value.kind == "number":
        return _number(value, plain, size_bytes)
    if size_bytes != POINTER_BYTES or not (_is_pointer(plain) or not plain):
        raise Unpackable(f"a pointer is given where {type_text or 'a value'} is needed")
    return _address(address_of(value) if value.kind == "buffer" else 0)


def _address(number: int) -> bytes:
    return struct.pack("<Q", number & 0xFFFF_FFFF_FFFF_FFFF)


def _plain(type_text: str) -> str:
    text = _QUALIFIER.sub(" ", type_text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*([*&])", r"\1", text)


def _is_pointer(plain: str) -> bool:
    return plain.endswith(("*", "&")) or bool(re.search(r"\(\*", plain))


def _raw(value: RawValue, size_bytes: int, address_of: Callable[[BufferValue], int]) -> bytes:
    try:
        data = bytearray.fromhex(value.raw_hex)
    except ValueError as problem:
        raise Unpackable("its bytes are not hexadecimal") from problem
    if len(data) != size_bytes:
        raise Unpackable(f"{len(data)} bytes are given where {size_bytes} are needed")
    for pointer in value.pointers:
        end = pointer.at_bytes + POINTER_BYTES
        if not POINTER_BYTES <= end <= size_bytes:
            raise Unpackable(f"a pointer at byte {pointer.at_bytes} of {size_bytes}")
        data[pointer.at_bytes : end] = _address(address_of(pointer.to))
    return bytes(data)


def _number(value: NumberValue, plain: str, size_bytes: int) -> bytes:
    number = value.value
    if _is_pointer(plain):
        raise Unpackable("a pointer is needed")
    if plain == "bool":
        return _sized(bytes([number != 0]), size_bytes)
    if plain in _FLOATS:
        return _sized(_floating(number, _FLOATS[plain]), size_bytes)
    if plain in _INTEGERS:
        return _integer(number, size_bytes)
    if isinstance(number, int) and size_bytes in (1, 2, 4, 8) and not _VECTOR.match(plain):
        return _integer(number, size_bytes)  # an enumeration, by its name a type like any other
    raise Unpackable(f"a number is given where {plain or 'another type'} is needed")


def _sized(data: bytes, size_bytes: int) -> bytes:
    if len(data) != size_bytes:
        raise Unpackable(f"the driver gives the parameter {size_bytes} bytes, not {len(data)}")
    return data


def _integer(number: int | float, size_bytes: int) -> bytes:
    if isinstance(number, float) and not math.isfinite(number):
        raise Unpackable(f"{number} is no integer")
    return (int(number) % (1 << (8 * size_bytes))).to_bytes(size_bytes, "little")


def _floating(number: int | float, code: str) -> bytes:
    exact = _double(number, code)
    if code == "b":
        return _bfloat16(exact)
    try:
        return struct.pack(f"<{code}", exact)
    except OverflowError:
        return struct.pack(f"<{code}", math.copysign(math.inf, exact))


def _double(number: int | float, code: str) -> float:
    """A double that rounds to the target as the number itself would.

    An integer longer than a double's mantissa is rounded to odd, so that the second rounding, to
    the shorter type, sees what was lost; a double's own rounding is to nearest.
    """
    if isinstance(number, float):
        return number
    extra = abs(number).bit_length() - MANTISSA_BITS
    if extra <= 0 or code == "d":
        return _to_double(number)
    top, lost = divmod(abs(number), 1 << extra)
    odd = _to_double((top | bool(lost)) << extra)
    return math.copysign(odd, number)


def _to_double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _bfloat16(number: float) -> bytes:
    """Round to nearest even from the exact double."""
    if math.isnan(number):
        return b"\xff\x7f"
    single = struct.unpack("<I", _truncated_to_odd(number))[0]
    upper, lower = single >> 16, single & 0xFFFF
    upper += lower > 0x8000 or (lower == 0x8000 and upper & 1 == 1)
    return struct.pack("<H", upper)


def _truncated_to_odd(number: float) -> bytes:
    """A float whose last bit remembers whether anything was lost: a second rounding is right."""
    if math.isinf(number):
        return struct.pack("<f", number)
    largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    if abs(number) > largest:
        return struct.pack("<f", math.copysign(largest, number))
    nearest = struct.unpack("<f", struct.pack("<f", number))[0]
    bits = struct.unpack("<I", struct.pack("<f", nearest))[0]
    if abs(nearest) > abs(number):
        bits -= 1
    if nearest != number:
        bits |= 1
    return struct.pack("<I", bits)
