"""The numbers of a buffer, read a stretch at a time, so that memory does not grow with its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.workload import ELEMENT_BYTES, FLOATING, Element
from cudaops.sandbox.verification.arrays import Array, decoded, element_count, read_array

STRETCH = 1 << 18
"""Elements looked at together: 2 MB as doubles, so that what is computed on them stays in a
processor's cache."""

BLOCK = 1 << 12
"""Elements that stand together in a sample."""


class Values(NamedTuple):
    """A buffer's numbers, wherever they are."""

    size: int
    read: Callable[[int, int], Array]
    """Takes the first element and how many of them."""

    def stretches(self) -> Iterator[tuple[int, int]]:
        """First element and length of each stretch, in order."""
        for start in range(0, self.size, STRETCH):
            yield start, min(STRETCH, self.size - start)


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


def filled(byte: int, size: int, element: Element) -> Values:
    """What stands in memory for `size` elements after every byte was set to `byte`."""
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
