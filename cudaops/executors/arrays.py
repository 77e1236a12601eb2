"""Buffers on disk as numpy arrays, by element type: whole, or a chunk at a time by all processors,
so that memory does not grow with their size.

Files are read and never mapped: who wrote them may still cut them short, and a mapped page that is
gone would end this process instead of raising.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cudaops.domain.workload import ELEMENT_BYTES, FLOATING, Element
from cudaops.storage import replacing

Array = npt.NDArray[Any]
Seen = TypeVar("Seen")

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
LARGEST: dict[Element, float] = {
    "f16": 65504.0, "bf16": 2.0**128 * (1 - 2.0**-8), "f32": 2.0**128 * (1 - 2.0**-24),
    "f64": 2.0**1023 * (2 - 2.0**-52),
}  # fmt: skip
"""What is finite. Source: as `UNIT_ROUNDOFF`."""

EXACT_LIMIT: dict[Element, float] = {
    "f16": 2.0**11, "bf16": 2.0**8, "f32": 2.0**24, "f64": 2.0**53,
}  # fmt: skip
"""Largest magnitude below which every integer is representable. Source: IEEE 754-2019."""

CHUNK = 1 << 18
"""Elements looked at together: 2 MB as doubles, so that what is computed on them stays in a
processor's cache."""

PIECE = 16
"""Chunks that one thread looks at before it asks for more: 16 MiB of float32."""

MOST_THREADS = 16
"""Chosen: a few processors take all that memory gives, and each thread holds chunks of its own."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of `mallopt`. Source: glibc, malloc/malloc.h."""
KEPT_BYTES = 64 * 1024**2
"""Freed memory that a thread keeps. Chosen: beyond what one chunk takes in `compare`, about 16 MB,
and as much as glibc's own limit ever grows to."""

TURN_S = 5e-5
"""How long one thread may keep Python's interpreter from the others. Threads that compare need it
some twenty times a chunk, for some microseconds; beside a thread that never lets go of it (one that
writes rewrites) each of them waits 5 ms by Python's default. Measured: two buffers of 256 MiB took
19.1 s beside such a thread, and take 0.57 s; 0.07 s alone (2 cores, 2026-11-25, `python
benchmarks/comparing.py`)."""

BLOCK = 1 << 12
"""Elements that stand together in a sample."""


def read_array(path: Path | str, element: Element, start: int = 0, count: int = -1) -> Array:
    """Contents of a buffer: `count` elements from element `start` on, to its end where -1.

    A trailing part smaller than an element is dropped. bf16 comes back as float32, every other
    type as itself.
    """
    size = ELEMENT_BYTES[element]
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = max(0, os.fstat(handle).st_size - start * size)
        raw = np.empty(left if count < 0 else min(left, count * size), np.uint8)
        done = 0
        while done < raw.size:
            if not (step := os.preadv(handle, [raw.data[done:]], start * size + done)):
                break  # it was cut short
            done += step
    finally:
        os.close(handle)
    return decoded(raw[:done], element)


def decoded(raw: npt.NDArray[np.uint8], element: Element) -> Array:
    """Bytes as numbers of `element`; bf16 comes back as float32."""
    usable = raw.size - raw.size % ELEMENT_BYTES[element]
    values = raw[:usable].view(_DTYPES[element])
    if element == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def write_array(path: Path, values: Array | Values, element: Element) -> None:
    """Write float64 or integer values as a buffer of `element`, rounding to nearest."""
    source = values if isinstance(values, Values) else in_memory(values)
    _write(path, source, lambda part: encoded(part, element), ELEMENT_BYTES[element])


def _write(
    path: Path, source: Values, encoded: Callable[[Array], Array], element_bytes: int
) -> None:
    """Every chunk encoded and put in its place by one of the threads: memory of a new file is made
    as it is written, which takes longer than most of what is computed."""
    with path.open("wb", buffering=0) as file:

        def put(start: int, count: int) -> Array:
            part = source.read(start, count)
            _put(file.fileno(), encoded(part), start * element_bytes)
            return part

        for _ in over_chunks(len, Values(source.size, put)):
            pass


def write_pieces(
    path: Path, element: Element, size: int, piece: int, made: Callable[[int, int], Array]
) -> None:
    """Write a buffer of `size` elements: what `made` gives, asked by several threads in no order
    for the first element and the length of each piece."""
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(threads_for_arrays()) as pool:

        def put(start: int) -> None:
            values = encoded(made(start, min(piece, size - start)), element)
            _put(file.fileno(), values, start * ELEMENT_BYTES[element])

        for _ in pool.map(put, range(0, size, piece)):
            pass


def _put(descriptor: int, values: Array, offset: int) -> None:
    """Write them at an offset, however many calls that takes."""
    data = np.ascontiguousarray(values).view(np.uint8).data
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def encoded(values: Array, element: Element) -> Array:
    """Numbers as they are in memory."""
    if element == "bf16":
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return rounded.astype("<u2")
    return values.astype(_DTYPES[element], copy=False)


WIDE_DOUBLE = np.dtype(np.longdouble)
HAS_WIDE_DOUBLE = WIDE_DOUBLE.itemsize == 16 and np.finfo(np.longdouble).eps < 2.0**-52
"""Whether `long double` is wider than double here: 64 bits of significand on x86-64, 113 on
aarch64."""


def write_widened(path: Path, narrow: Path, element: Element) -> None:
    """Write what equals the floating values stored in `narrow`: doubles, of doubles `long double`
    (as `Unit.wide_doubles` has them)."""
    wide = WIDE_DOUBLE if element == "f64" else np.dtype("<f8")
    _write(path, stored(narrow, element), lambda part: part.astype(wide), wide.itemsize)


def round_wide_doubles(path: Path) -> None:
    """Make the doubles nearest to them of the `long double` values that a file holds."""
    size = WIDE_DOUBLE.itemsize
    wide = Values(
        path.stat().st_size // size,
        lambda start, count: np.fromfile(path, WIDE_DOUBLE, count, offset=start * size),
    )

    def nearest(values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and what is no number
            return values.astype("<f8")

    with replacing(path) as part:
        _write(part, wide, nearest, 8)


def element_count(size_bytes: int, element: Element) -> int:
    """Whole elements in a buffer of this size."""
    return size_bytes // ELEMENT_BYTES[element]


class Values(NamedTuple):
    """A buffer's numbers, wherever they are."""

    size: int
    read: Callable[[int, int], Array]
    """Takes the first element and how many of them."""

    def chunks(self) -> Iterator[tuple[int, int]]:
        """First element and length of each chunk, in order."""
        for start in range(0, self.size, CHUNK):
            yield start, min(CHUNK, self.size - start)


def over_chunks(look: Callable[..., Seen], *sides: Values) -> Iterator[Seen]:
    """What `look` finds in each chunk of equally long buffers, in their order.

    Threads look at later chunks meanwhile (numpy computes without the interpreter's lock); what is
    summed up in this order is the same on every machine. Raises ValueError where sizes differ.
    """
    if any(side.size != sides[0].size for side in sides):
        raise ValueError(" and ".join(f"{s.size}" for s in sides) + " elements do not pair up")
    chunks = list(sides[0].chunks())

    def piece(first: int) -> list[Seen]:
        spans = chunks[first : first + PIECE]
        return [look(*(side.read(start, count) for side in sides)) for start, count in spans]

    if len(chunks) <= PIECE:
        for start, count in chunks:
            yield look(*(side.read(start, count) for side in sides))
        return
    _keep_freed_memory()
    share_interpreter()
    threads = threads_for_arrays()
    waiting: deque[Future[list[Seen]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for first in range(0, len(chunks), PIECE):
                waiting.append(pool.submit(piece, first))
                if len(waiting) > 2 * threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()


def share_interpreter() -> None:
    """Have Python's threads take turns of `TURN_S`, in this process from now on."""
    sys.setswitchinterval(min(TURN_S, sys.getswitchinterval()))


@functools.cache
def _keep_freed_memory() -> None:
    """Have glibc keep what arrays of a chunk took for the next: it gives back more than 4 MB at
    once to the system, and fresh pages took three quarters of the time of a comparison. Elsewhere
    nothing is asked of the allocator."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES // 2)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def threads_for_arrays() -> int:
    """How many threads work on one buffer."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS)


def in_memory(values: Array) -> Values:
    """Numbers that are there already."""
    flat = values.ravel()
    return Values(flat.size, lambda start, count: flat[start : start + count])


def stored(path: Path | str, element: Element) -> Values:
    """Contents of a buffer on disk; a trailing part smaller than an element is left out."""
    size = element_count(Path(path).stat().st_size, element)
    return Values(size, lambda start, count: read_array(path, element, start, count))


def stored_widened(path: Path | str, element: Element) -> Values:
    """The same of a buffer that a widened build wrote: doubles where `element` is floating."""
    return stored(path, "f64" if element in FLOATING else element)


def contents_digest(path: Path | str) -> bytes:
    """BLAKE2b of a file: of its size, and of the digests of its chunks in their order."""
    whole = hashlib.blake2b(str(Path(path).stat().st_size).encode())
    for part in over_chunks(lambda part: hashlib.blake2b(part).digest(), stored(path, "u8")):
        whole.update(part)
    return whole.digest()


def changed(values: Values, change: Callable[[Array], Array]) -> Values:
    """The numbers that `change` makes of these, chunk by chunk."""
    return Values(values.size, lambda start, count: change(values.read(start, count)))


def in_step(change: Callable[..., Array], *sides: Values) -> Values:
    """The numbers that `change` makes of equally long buffers, chunk by chunk."""
    return Values(sides[0].size, lambda *span: change(*(side.read(*span) for side in sides)))


def filled(byte: int, size: int, element: Element) -> Values:
    """Memory contents for `size` elements after every byte was set to `byte`."""
    one = decoded(np.full(ELEMENT_BYTES[element], byte, np.uint8), element)
    return Values(size, lambda start, count: np.repeat(one, count))


def sample(values: Values, limit: int) -> Array:
    """At most `limit` elements in blocks spread evenly from the first to the last.

    The places depend on size and limit alone, so samples of equally long buffers belong together.
    """
    if values.size <= limit:
        return values.read(0, values.size)
    blocks = max(1, limit // BLOCK)
    starts = np.linspace(0, values.size - BLOCK, blocks).astype(np.int64)
    return np.concatenate([values.read(int(start), BLOCK) for start in starts])
