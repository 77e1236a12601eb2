"""Constants of a program: what clang takes an expression to be worth, and how C++ writes it."""

from __future__ import annotations

import struct
from typing import Any

from clang.cindex import Cursor

_EVALUATED_INT, _EVALUATED_FLOAT = 1, 2


def evaluated(lib: Any, cursor: Cursor) -> int | float | None:
    """The constant that an expression or a variable's initialiser is."""
    result = lib.clang_Cursor_Evaluate(cursor)
    if not result:
        return None
    try:
        kind = lib.clang_EvalResult_getKind(result)
        if kind == _EVALUATED_INT:
            if lib.clang_EvalResult_isUnsignedInt(result):
                return int(lib.clang_EvalResult_getAsUnsigned(result))
            return int(lib.clang_EvalResult_getAsLongLong(result))
        if kind == _EVALUATED_FLOAT:
            return float(lib.clang_EvalResult_getAsDouble(result))
        return None
    finally:
        lib.clang_EvalResult_dispose(result)


def digits(value: float, kind: str) -> str | None:
    """The shortest text that means this value in this type; None where there is none."""
    if isinstance(value, int):
        suffix = {"unsigned": "u", "long long": "ll", "unsigned long long": "ull"}
        return f"{value}{suffix.get(kind, '')}"
    if kind not in ("float", "double") or value != value or value == float("inf"):
        return None
    if kind == "double":
        return repr(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
            break
    return f"{text if set(text) & set('.e') else text + '.0'}f"
