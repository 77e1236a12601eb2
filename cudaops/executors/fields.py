"""Numbers in structures on disk: read, drawn anew and written, by field.

A buffer is looked at as `View`s: itself where it holds numbers, each field where it holds
structures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cudaops.domain.workload import (
    ELEMENT_BYTES,
    FLOATING,
    Allocation,
    Argument,
    DeviceMemory,
    Element,
    Field,
    OpaqueArgument,
    Workload,
)
from cudaops.executors.arrays import (
    WIDE_DOUBLE,
    Array,
    Values,
    decoded,
    encoded,
    filled,
    over_chunks,
    read_array,
    stored,
    stored_widened,
)
from cudaops.executors.compare import holds_fill
from cudaops.program.syntax import POINTER_BYTES

PIECE_BYTES = 4 << 20
"""Of structures that are in memory at once. Chosen: what a processor's cache holds."""


@dataclass(frozen=True)
class View:
    """Numbers of one kind in an allocation."""

    allocation: Allocation
    field: Field | None
    """None: all that is in it."""

    @property
    def index(self) -> int:
        """The allocation's."""
        return self.allocation.index

    @property
    def element(self) -> Element:
        """Of the numbers."""
        return self.allocation.element if self.field is None else self.field.element

    def named(self, buffer: str) -> str:
        """`p.pos.x` of a buffer `p`."""
        return buffer if self.field is None else f"{buffer}.{self.field.path}"

    def stored(self, path: Path | str) -> Values:
        """The numbers in a file with contents of the allocation."""
        if self.field is None:
            return stored(path, self.element)
        return stored_field(path, self.allocation, self.field)

    def stored_widened(self, path: Path | str) -> Values:
        """The same of a file that a widened build wrote, whose doubles were rounded from `long
        double` where the buffer holds doubles alone (`arrays.round_wide_doubles`)."""
        if self.field is None:
            return stored_widened(path, self.element)
        return _stored_wide_field(path, self.allocation, self.field)

    def holds_fill(self, path: Path, byte: int) -> bool:
        """Whether any number still is what filled the file with this byte."""
        if self.field is None:
            return holds_fill(path, byte, ELEMENT_BYTES[self.element])
        if self.field.bits is not None:  # a bit or two are as the fill by chance
            whole = self.field.model_copy(update={"bits": None})
            return View(self.allocation, whole).holds_fill(path, byte)
        fill = filled(byte, 1, self.element).read(0, 1)[0]
        return any(over_chunks(lambda part: bool((part == fill).any()), self.stored(path)))


def views(allocation: Allocation) -> tuple[View, ...]:
    """What an allocation consists of; of structures that clang does not tell, their bytes."""
    return tuple(View(allocation, field) for field in allocation.fields) or (
        View(allocation, None),
    )


def floating_views(workload: Workload) -> Iterator[View]:
    """All floating numbers in memory."""
    for allocation in workload.allocations:
        yield from (view for view in views(allocation) if view.element in FLOATING)


def structure_count(memory: DeviceMemory) -> int:
    """Whole structures in a buffer whose fields are known."""
    return memory.size_bytes // _stride(memory)


def field_values(path: Path | str, memory: DeviceMemory, field: Field) -> Array:
    """One field of every whole structure in a file; bf16 comes back as float32."""
    values = stored_field(path, memory, field)
    return values.read(0, values.size)


def stored_field(path: Path | str, memory: DeviceMemory, field: Field) -> Values:
    """The same, read where it is asked for."""
    size = ELEMENT_BYTES[field.element]

    def read(start: int, count: int) -> Array:
        raw = _cut(path, _stride(memory), field.at_bytes, size, start, count)
        return _own_bits(decoded(raw, field.element), field)

    return Values(Path(path).stat().st_size // _stride(memory), read)


def _stored_wide_field(path: Path | str, memory: DeviceMemory, field: Field) -> Values:
    """Of a file in the widened layout. Floating values come back as double, rounded once."""
    stride, at = memory.wide_structure_bytes, field.wide_at_bytes
    if stride is None or at is None:
        raise ValueError(f"the widened layout of {field.path} is not known")
    if field.element not in FLOATING:
        kind = np.dtype(f"V{ELEMENT_BYTES[field.element]}")
    else:
        kind = WIDE_DOUBLE if field.element == "f64" else np.dtype("<f8")

    def read(start: int, count: int) -> Array:
        raw = _cut(path, stride, at, kind.itemsize, start, count)
        if field.element not in FLOATING:
            return _own_bits(decoded(raw, field.element), field)
        with np.errstate(over="ignore"):
            return raw.view(kind).astype("<f8")

    return Values(Path(path).stat().st_size // stride, read)


def _cut(path: Path | str, stride: int, at: int, size: int, start: int, count: int) -> Array:
    """`size` bytes from byte `at` on of so many structures, one after the other."""
    step = max(1, PIECE_BYTES // stride)
    parts = []
    for first in range(start, start + count, step):
        many = min(step, start + count - first)
        raw = read_array(path, "u8", first * stride, many * stride)
        rows = raw[: raw.size // stride * stride].reshape(-1, stride)
        parts.append(rows[:, at : at + size].ravel())
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def write_fields(
    path: Path, source: Path, memory: DeviceMemory, values: Mapping[str, Array]
) -> None:
    """Write the source's bytes with these fields replaced, by their paths; each has a value for
    every whole structure. What is between and behind them is kept."""
    stride, count = _stride(memory), structure_count(memory)
    replaced = [(f, values[f.path]) for f in memory.fields if f.path in values]
    step = max(1, PIECE_BYTES // stride)
    with path.open("wb") as file:
        for first in range(0, count, step):
            many = min(step, count - first)
            rows = read_array(source, "u8", first * stride, many * stride).reshape(-1, stride)
            for field, new in replaced:
                _set(rows, field, encoded(new[first : first + many], field.element))
            file.write(rows.data)
        file.write(read_array(source, "u8", count * stride).data)


def draw_fields(
    path: Path,
    source: Path,
    memory: DeviceMemory,
    draw: Callable[[Field, Array], Array | None],
) -> None:
    """Write the source's bytes with every field replaced by what `draw` makes of its values; None:
    they stay."""
    drawn = {f.path: draw(f, field_values(source, memory, f)) for f in memory.fields}
    write_fields(path, source, memory, {p: new for p, new in drawn.items() if new is not None})


def write_widened_fields(path: Path, narrow: Path, memory: DeviceMemory) -> None:
    """Write what equals the structures in `narrow` as a widened build lays them out, padding 0.
    What is behind the last whole one is kept."""
    stride, wide_stride = _stride(memory), memory.wide_structure_bytes
    if wide_stride is None:
        raise ValueError("the widened layout is not known")
    count, step = structure_count(memory), max(1, PIECE_BYTES // wide_stride)
    with path.open("wb") as file:
        for first in range(0, count, step):
            many = min(step, count - first)
            raw = read_array(narrow, "u8", first * stride, many * stride).reshape(-1, stride)
            file.write(_widened(raw, memory.fields, wide_stride).data)
        file.write(read_array(narrow, "u8", count * stride).data)


def _widened(rows: Array, fields: tuple[Field, ...], wide_stride: int) -> Array:
    wide = np.zeros((rows.shape[0], wide_stride), np.uint8)
    for field in fields:
        if field.wide_at_bytes is None:
            raise ValueError(f"the widened layout of {field.path} is not known")
        size = ELEMENT_BYTES[field.element]
        values: Array = rows[:, field.at_bytes : field.at_bytes + size]
        if field.element in FLOATING:
            values = decoded(values.ravel(), field.element)
            values = values.astype(WIDE_DOUBLE if field.element == "f64" else "<f8")
        _put(wide, field.wide_at_bytes, values)
    return wide


def widened_argument(argument: Argument) -> Argument:
    """The same, of a structure as a widened build lays it out, padding 0."""
    if not isinstance(argument, OpaqueArgument) or argument.wide_bytes is None:
        return argument
    narrow = np.frombuffer(bytes.fromhex(argument.raw_hex), np.uint8).reshape(1, -1)
    wide = _widened(narrow, argument.fields, argument.wide_bytes)
    places = dict(argument.words)
    for at, wide_at in places.items():
        wide[:, wide_at : wide_at + POINTER_BYTES] = narrow[:, at : at + POINTER_BYTES]
    moved = tuple(
        one.model_copy(update={"at_bytes": places[one.at_bytes]}) for one in argument.pointers
    )
    update = {"raw_hex": wide.tobytes().hex(), "pointers": moved}
    return argument.model_copy(update=update)


def _own_bits(values: Array, field: Field) -> Array:
    """What a bit-field holds of the integers that it lies in; other fields as they are."""
    if field.bits is None:
        return values
    first, width = field.bits
    bits = 8 * values.itemsize
    high: Array = values.view(f"<u{values.itemsize}") << (bits - first - width)
    own: Array = high.view(values.dtype) >> (bits - width)
    return own


def _set(rows: Array, field: Field, values: Array) -> None:
    """Put one value into every row, of a bit-field as many of its bits as it has."""
    if field.bits is None:
        _put(rows, field.at_bytes, values)
        return
    first, width = field.bits
    unsigned = np.dtype(f"<u{values.itemsize}")
    mask = unsigned.type(((1 << width) - 1) << first)
    stood = rows[:, field.at_bytes : field.at_bytes + unsigned.itemsize]
    others = np.ascontiguousarray(stood).view(unsigned).ravel() & ~mask
    _put(rows, field.at_bytes, others | values.view(unsigned) << first & mask)


def _put(rows: Array, at: int, values: Array) -> None:
    """Put the bytes of one value into every row."""
    data = np.ascontiguousarray(values).view(np.uint8).reshape(rows.shape[0], -1)
    rows[:, at : at + data.shape[1]] = data


def tail(path: Path | str, memory: DeviceMemory) -> Array:
    """The bytes behind the last whole structure."""
    return read_array(path, "u8", structure_count(memory) * _stride(memory))


def _stride(memory: DeviceMemory) -> int:
    if memory.structure_bytes is None:
        raise ValueError("the structures in this memory have no known fields")
    return memory.structure_bytes


def replaced(raw_hex: str, field: Field, value: int | float) -> str:
    """The bytes of a structure with another number in it, rounded to its type. Raises
    OverflowError for an integer that its type does not hold."""
    kind = np.float64 if field.element in FLOATING else None
    new = encoded(np.array([value], kind), field.element)
    if kind is None and new[0] != value:
        raise OverflowError(f"{field.path} cannot be {value}")
    rows = np.frombuffer(bytes.fromhex(raw_hex), np.uint8).reshape(1, -1).copy()
    _set(rows, field, new)
    if field.bits is not None and field.value(rows.tobytes()) != value:
        raise OverflowError(f"{field.path} cannot be {value}")
    return rows.tobytes().hex()
