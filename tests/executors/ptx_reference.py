"""What PTX's instructions compute, written from PTX ISA 9.0, chapter 9, bit by bit as it states it:
the yardstick for `executors/cpu/include/cudaops/ptx.h`. Nothing here is taken from there."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence

_LIBM = ctypes.CDLL("libm.so.6")
_LIBM.fmaf.restype, _LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
_LIBM.fma.restype, _LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3

ERROR_ULP = {"rsqrt": 2.0, "rcp": 1.0, "sqrt": 2.0, "ex2": 2.0, "lg2": 1.0, "div": 2.0}
"""Relative, of approximate instructions, in units of 2^-23. Source: there, 9.7.3."""
ERROR_ABSOLUTE = {"sin": 2.0**-20.5, "cos": 2.0**-20.5, "tanh": 2.0**-11, "lg2": 2.0**-22}


def _f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def _f64(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def _bits32(value: float) -> int:
    return int.from_bytes(bytes(ctypes.c_float(value)), "little")


def _bits64(value: float) -> int:
    return int.from_bytes(bytes(ctypes.c_double(value)), "little")


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _flush(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < 2.0**-126 else value


def expected(opcode: str, inputs: Sequence[int]) -> int | float:
    """Bits of the exact result, or a number for an approximate one."""
    parts = opcode.split(".")
    name, kind = parts[0], parts[-1]
    if name == "cvt":
        return _converted(parts, inputs[0])
    if name in ("mov", "cvta"):
        return inputs[0] & ((1 << int(kind[1:])) - 1)
    if name == "selp":
        return inputs[0 if inputs[2] else 1] & ((1 << int(kind[1:])) - 1)
    if name == "setp":
        return _compared(parts, inputs)
    if kind in ("f32", "f64"):
        return _floating(parts, inputs)
    if kind == "pred":
        a, b = bool(inputs[0]), bool(inputs[1])
        return int({"and": a and b, "or": a or b, "xor": a != b, "not": not a}[name])
    return _integer(parts, inputs)


def _floating(parts: Sequence[str], inputs: Sequence[int]) -> int | float:
    name, is_single = parts[0], parts[-1] == "f32"
    read, write = (_f32, _bits32) if is_single else (_f64, _bits64)
    a, b, c = (read(v) for v in inputs[:3])
    if "ftz" in parts:
        a, b, c = _flush(a), _flush(b), _flush(c)
    value = _value(name, parts, a, b, c, is_single)
    if "approx" in parts or "full" in parts:
        return _flush(value) if "ftz" in parts else value
    value = _f32(write(value)) if is_single else value
    if "ftz" in parts:
        value = _flush(value)
    if "sat" in parts:
        value = 0.0 if math.isnan(value) else min(max(0.0, value), 1.0)  # of -0 nothing is said
    return write(value)


def _value(name: str, parts: Sequence[str], a: float, b: float, c: float, single: bool) -> float:
    match name:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "fma" | "mad":
            return float((_LIBM.fmaf if single else _LIBM.fma)(a, b, c))
        case "abs":
            return abs(a)
        case "neg":
            return -a
        case "copysign":
            return math.copysign(b, a)
        case "min" | "max":
            return _extreme(name, "NaN" in parts, a, b)
        case "div":
            if "approx" in parts and 2.0**126 < abs(b) < math.inf:
                return a * math.copysign(0.0, b)
            return _divided(a, b)
        case "rcp":
            return _divided(1.0, a)
        case "sqrt":
            return _root(a)
        case "rsqrt":
            return _divided(1.0, _root(a))
        case "ex2":
            return math.inf if a >= 128 else 0.0 if a < -160 else 2.0**a
        case "lg2":
            return math.nan if a < 0 or math.isnan(a) else math.log2(a) if a > 0 else -math.inf
        case "sin" | "cos":
            return math.nan if math.isinf(a) else getattr(math, name)(a)
        case _:
            return math.tanh(a)


def _root(a: float) -> float:
    return math.nan if a < 0 or math.isnan(a) else math.sqrt(a)


def _divided(a: float, b: float) -> float:
    if b != 0 or math.isnan(a):
        return a / b if b else a
    return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _extreme(name: str, keeps_nan: bool, a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return (
            math.nan
            if keeps_nan or (math.isnan(a) and math.isnan(b))
            else b
            if math.isnan(a)
            else a
        )
    first = (a, math.copysign(1.0, a)) < (b, math.copysign(1.0, b))
    return (a if first else b) if name == "min" else (b if first else a)


def _compared(parts: Sequence[str], inputs: Sequence[int]) -> int:
    kind = parts[-1]
    bits = int(kind[1:])
    values: list[float] = [v & ((1 << bits) - 1) for v in inputs[:2]]
    if kind[0] == "s":
        values = [_signed(int(v), bits) for v in values]
    if kind[0] == "f":
        values = [_f32(int(v)) if bits == 32 else _f64(int(v)) for v in values]
        values = [_flush(v) for v in values] if "ftz" in parts else values
    a, b = values
    told = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    is_number = not (math.isnan(a) or math.isnan(b)) if kind[0] == "f" else True
    return int(told[parts[1]] and is_number)


def _converted(parts: Sequence[str], bits: int) -> int:
    to, of = parts[-2], parts[-1]
    width = int(of[1:])
    if of[0] == "f":
        value = _f32(bits) if width == 32 else _f64(bits)
        value = _flush(value) if "ftz" in parts else value
        if to[0] == "f":
            return _bits32(value) if to == "f32" else _bits64(value)
        return _whole(parts[1], to, value, width)
    number = _signed(bits, width) if of[0] == "s" else bits & ((1 << width) - 1)
    if to == "f32":
        return _nearest_single(number)
    return _bits64(float(number)) if to == "f64" else number & ((1 << int(to[1:])) - 1)


def _nearest_single(number: int) -> int:
    """By hand: through a double it would be rounded twice."""
    size, lost = abs(number), max(0, abs(number).bit_length() - 24)
    kept, rest, half = size >> lost, size & ((1 << lost) - 1), (1 << lost) >> 1
    kept += int(lost > 0 and (rest > half or (rest == half and kept & 1 == 1)))
    return _bits32(math.copysign(float(kept) * 2.0**lost, number))


def _whole(way: str, to: str, value: float, width: int) -> int:
    bits, is_signed = int(to[1:]), to[0] == "s"
    if math.isnan(value):  # PTX ISA: 0 of 32 bits from 32, else the highest bit alone
        return 1 << (bits - 1) if bits == 64 or width == 64 else 0
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    if math.isinf(value):
        number = high if value > 0 else low
    else:
        rounding: dict[str, Callable[[float], int]] = {
            "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil
        }  # fmt: skip
        number = rounding[way](value)
    return min(max(number, low), high) & ((1 << bits) - 1)


def _integer(parts: Sequence[str], inputs: Sequence[int]) -> int:
    name, kind = parts[0], parts[-1]
    bits = int(kind[1:])
    mask = (1 << bits) - 1
    is_signed = kind[0] == "s"
    a, b, c = (v & mask for v in inputs[:3])
    x, y, z = ((_signed(v, bits) if is_signed else v) for v in (a, b, c))
    match name:
        case "add":
            return (a + b) & mask
        case "sub":
            return (a - b) & mask
        case "mul" | "mad":
            product = x * y
            if parts[1] == "wide":
                return (product + (inputs[2] if name == "mad" else 0)) & ((1 << 2 * bits) - 1)
            half = product >> bits if parts[1] == "hi" else product
            return (half + (z if name == "mad" else 0)) & mask
        case "min" | "max":
            return (min if name == "min" else max)(x, y) & mask
        case "abs" | "neg":
            return (abs(x) if name == "abs" else -x) & mask
        case "and" | "or" | "xor" | "not":
            return {"and": a & b, "or": a | b, "xor": a ^ b, "not": ~a}[name] & mask
        case "sad":
            return (z + abs(x - y)) & mask
        case "popc":
            return a.bit_count()
        case "clz":
            return bits - a.bit_length()
        case "brev":
            return int(f"{a:0{bits}b}"[::-1], 2)
        case "dp4a":
            return _dot(parts[1], parts[2], a, b, c)
        case "lop3":
            return sum(
                (0xCA >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i
                for i in range(32)
            )
        case "prmt":
            return _permuted(a, b, c)
        case "shf":
            return _funnel(parts[1], parts[2], a, b, c)
        case _:
            return (
                _field(name, kind, inputs)
                if name in ("bfe", "bfi")
                else _shifted(name, x, inputs[1], mask)
            )


def _shifted(name: str, value: int, by: int, mask: int) -> int:
    by = min(by & 0xFFFFFFFF, mask.bit_length())
    return (value << by if name == "shl" else value >> by) & mask


def _funnel(way: str, mode: str, a: int, b: int, c: int) -> int:
    n = c & 31 if mode == "wrap" else min(c, 32)
    if way == "l":
        return ((b << n) | (a >> (32 - n))) & 0xFFFFFFFF
    return ((b << (32 - n)) | (a >> n)) & 0xFFFFFFFF


def _permuted(a: int, b: int, selector: int) -> int:
    chosen = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")]
    found = []
    for nibble in range(4):
        pick = selector >> (4 * nibble) & 15
        byte = chosen[pick & 7]
        found.append((255 if byte & 128 else 0) if pick & 8 else byte)
    return int.from_bytes(bytes(found), "little")


def _dot(of_a: str, of_b: str, a: int, b: int, c: int) -> int:
    total = c
    for i in range(4):
        x, y = a >> 8 * i & 255, b >> 8 * i & 255
        total += (_signed(x, 8) if of_a == "s32" else x) * (_signed(y, 8) if of_b == "s32" else y)
    return total & 0xFFFFFFFF


def _field(name: str, kind: str, inputs: Sequence[int]) -> int:
    bits = int(kind[1:])
    msb, mask = bits - 1, (1 << bits) - 1
    if name == "bfe":
        a, pos, length = inputs[0] & mask, inputs[1] & 255, inputs[2] & 255
        sign = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, msb) & 1
        taken = (
            (a >> (pos + i) & 1) if i < length and pos + i <= msb else sign for i in range(bits)
        )
        return sum(bit << i for i, bit in enumerate(taken))
    a, f = inputs[0] & mask, inputs[1] & mask
    pos, length = inputs[2] & 255, inputs[3] & 255
    for i in range(length):
        if pos + i <= msb:
            f = f & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
    return f
