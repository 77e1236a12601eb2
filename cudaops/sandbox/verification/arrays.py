"""Buffers on disk as numpy arrays, by element type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cudaops.domain.workload import ELEMENT_BYTES, Element

Array = npt.NDArray[Any]

_DTYPES: dict[Element, str] = {
    "f16": "<f2", "f32": "<f4", "f64": "<f8", "i8": "<i1", "u8": "<u1", "i16": "<i2",
    "u16": "<u2", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8", "bool": "<u1",
    "opaque": "<u1", "bf16": "<u2",
}  # fmt: skip

UNIT_ROUNDOFF: dict[Element, float] = {
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "f32": 2.0**-24,
    "f64": 2.0**-53,
}
"""Largest relative error of one rounding to nearest. Source: IEEE 754-2019 table 3.5; bfloat16 has
8 significant bits."""


def read_array(path: Path | str, element: Element, start: int = 0, count: int = -1) -> Array:
    """Contents of a buffer: `count` elements from element `start` on, to its end where -1.

    A trailing part smaller than an element is dropped. bf16 comes back as float32, every other
    type as itself.
    """
    size = ELEMENT_BYTES[element]
    wanted = count * size if count >= 0 else -1
    return decoded(np.fromfile(path, np.uint8, wanted, offset=start * size), element)


def decoded(raw: npt.NDArray[np.uint8], element: Element) -> Array:
    """Bytes as numbers of `element`; bf16 comes back as float32."""
    usable = raw.size - raw.size % ELEMENT_BYTES[element]
    values = raw[:usable].view(_DTYPES[element])
    if element == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def write_array(path: Path, values: Array, element: Element) -> None:
    """Write float64 or integer values as a buffer of `element`, rounding to nearest."""
    if element == "bf16":
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded.astype("<u2").tofile(path)
    else:
        np.ascontiguousarray(values).astype(_DTYPES[element]).tofile(path)


def write_widened(path: Path, narrow: Path, element: Element) -> None:
    """Write the doubles that equal the floating values stored in `narrow`."""
    read_array(narrow, element).astype("<f8").tofile(path)


def element_count(size_bytes: int, element: Element) -> int:
    """Whole elements in a buffer of this size."""
    return size_bytes // ELEMENT_BYTES[element]
