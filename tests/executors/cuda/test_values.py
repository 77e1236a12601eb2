"""Parameters packed as C++ would convert them; numpy is the other opinion."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.rewrite import BufferValue, NullValue, NumberValue, RawValue, Value
from cudaops.executors.cuda.runner.launching import Unpackable, known_bytes, pack

INTEGERS: dict[str, type[np.generic]] = {
    "char": np.int8, "unsigned char": np.uint8, "short": np.int16, "unsigned short": np.uint16,
    "int": np.int32, "unsigned int": np.uint32, "long": np.int64, "unsigned long": np.uint64,
    "long long": np.int64, "unsigned long long": np.uint64,
}  # fmt: skip
FLOATS: dict[str, type[np.floating]] = {
    "float": np.float32, "double": np.float64, "__half": np.float16,
}  # fmt: skip
any_integer = st.integers(-(2**63), 2**64 - 1)


def packed(value: Value, type_text: str, size: int) -> bytes:
    return pack(value, type_text, size, lambda v: 0x7000 + v.offset_bytes)


@given(any_integer, st.sampled_from(sorted(INTEGERS)))
def test_integers_wrap(number: int, type_text: str) -> None:
    size = np.dtype(INTEGERS[type_text]).itemsize
    wrapped = np.array([number % 2**64], np.uint64).astype(INTEGERS[type_text]).tobytes()
    assert packed(NumberValue(value=number), f"{type_text} const", size) == wrapped


@given(st.floats(allow_nan=False), st.sampled_from(sorted(FLOATS)))
def test_floats_round_to_nearest(number: float, type_text: str) -> None:
    kind = FLOATS[type_text]
    with np.errstate(over="ignore"):
        expected = np.float64(number).astype(kind).tobytes()
    assert packed(NumberValue(value=number), type_text, np.dtype(kind).itemsize) == expected


@given(any_integer, st.sampled_from(["float", "double"]))
def test_an_integer_becomes_the_nearest_float(number: int, type_text: str) -> None:
    kind = FLOATS[type_text]
    of_its_own = np.array([number], np.uint64 if number >= 0 else np.int64).astype(kind)
    size = np.dtype(kind).itemsize
    assert packed(NumberValue(value=number), type_text, size) == of_its_own.tobytes()


def test_an_integer_is_rounded_once() -> None:
    """Twice rounded, first to double, it would become 2**61: it lies just above the tie."""
    number = 2**61 + 2**37 + 1
    assert np.float32(float(number)) == 2.0**61
    assert packed(NumberValue(value=number), "float", 4) == struct.pack("<f", 2.0**61 + 2.0**38)


@given(st.floats(allow_nan=False, width=64))
def test_bfloat16_is_the_nearest_of_its_neighbours(number: float) -> None:
    bits = struct.unpack("<H", packed(NumberValue(value=number), "__nv_bfloat16", 2))[0]
    found = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    largest = float(np.uint32(0x7F7F0000).view(np.float32))
    if math.isinf(found):
        assert math.isinf(number) or abs(number) >= largest * (1 + 2.0**-9)
        return
    around = [struct.unpack("<f", struct.pack("<I", (bits + d) % 2**16 << 16))[0] for d in (-1, 1)]
    near = [abs(a - number) for a in around if math.isfinite(a)]
    assert abs(found - number) <= min(near)


def test_nan_stays_nan() -> None:
    for type_text, size in (("float", 4), ("double", 8), ("__half", 2)):
        data = packed(NumberValue(value=math.nan), type_text, size)
        assert np.isnan(np.frombuffer(data, FLOATS[type_text])[0])
    bits = int.from_bytes(packed(NumberValue(value=math.nan), "__nv_bfloat16", 2), "little")
    assert bits & 0x7F80 == 0x7F80
    assert bits & 0x7F


@pytest.mark.parametrize(
    ("value", "type_text", "size", "expected"),
    [
        (NumberValue(value=2.9), "int", 4, b"\x02\0\0\0"),
        (NumberValue(value=-2.9), "long", 8, b"\xfe" + b"\xff" * 7),
        (NumberValue(value=7), "bool", 1, b"\x01"),
        (NumberValue(value=0.0), "bool", 1, b"\x00"),
        (NumberValue(value=3), "Colour", 4, b"\x03\0\0\0"),
        (NumberValue(value=-1), "ns::Small", 1, b"\xff"),
        (NumberValue(value=3), "float", 4, struct.pack("<f", 3)),
        (NumberValue(value=1e40), "float", 4, struct.pack("<f", math.inf)),
        (NumberValue(value=-70000), "__half", 2, struct.pack("<e", -math.inf)),
        (NullValue(), "float const*", 8, bytes(8)),
        (BufferValue(offset_bytes=16), "float * __restrict__", 8, b"\x10\x70" + bytes(6)),
        (BufferValue(allocation=0), "void (*)(int)", 8, b"\x00\x70" + bytes(6)),
        (BufferValue(allocation=0), "", 8, b"\x00\x70" + bytes(6)),
        (RawValue(raw_hex="0102"), "Affine", 2, b"\x01\x02"),
        (RawValue(raw_hex="0000803f"), "float", 4, struct.pack("<f", 1)),
    ],
)  # fmt: skip
def test_conversions(value: Value, type_text: str, size: int, expected: bytes) -> None:
    assert packed(value, type_text, size) == expected


@pytest.mark.parametrize(
    ("value", "type_text", "size", "why"),
    [
        (NumberValue(value=1), "float*", 8, "a pointer is needed"),
        (NumberValue(value=0), "float*", 8, "a pointer is needed"),
        (NumberValue(value=1.5), "Colour", 4, "a number is given where Colour is needed"),
        (NumberValue(value=1), "Affine", 24, "a number is given where Affine is needed"),
        (NumberValue(value=1), "float1", 4, "a number is given where float1 is needed"),
        (NumberValue(value=math.inf), "int", 4, "inf is not an integer"),
        (NullValue(), "int", 4, "a pointer is given where int is needed"),
        (BufferValue(allocation=0), "unsigned long", 8, "where unsigned long is needed"),
        (RawValue(raw_hex="01"), "Affine", 2, "1 bytes are given where 2 are needed"),
        (RawValue(raw_hex="zz"), "Affine", 1, "not hexadecimal"),
        (NumberValue(value=1), "float", 8, "the driver gives the parameter 8 bytes"),
    ],
)
def test_what_cannot_be_converted_is_said(
    value: Value, type_text: str, size: int, why: str
) -> None:
    with pytest.raises(Unpackable, match=why.replace("(", r"\(")):
        packed(value, type_text, size)


def test_sizes_by_type_where_the_driver_knows_none() -> None:
    one = NumberValue(value=1)
    sizes = {"float const*": 8, "int": 4, "double": 8, "bool": 1, "__half": 2, "unsigned long": 8}
    assert {t: known_bytes(t, one) for t in sizes} == sizes
    assert known_bytes("Affine", RawValue(raw_hex="00" * 24)) == 24
    with pytest.raises(Unpackable, match=r"12\.4"):
        known_bytes("Colour", one)
