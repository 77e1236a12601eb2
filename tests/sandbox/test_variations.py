"""Ways in which contents may be others keep what they promise."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest

from cudaops.domain.workload import FLOATING, Element
from cudaops.executors.arrays import decoded
from cudaops.sandbox.inputs import ascends
from cudaops.sandbox.text_asks import asks_for_nan, numbers_in, only_divides
from cudaops.sandbox.variations import LIMITS, integers, varied, ways_of

OFFSETS = np.array([0, 5, 5, 9, 20, 41, 60, 60, 99, 120], np.int32)


@pytest.mark.parametrize("element", sorted(set(get_args(Element)) - {"opaque"}))
def test_every_way_gives_as_many_values_of_the_type(element: Element) -> None:
    generator = np.random.default_rng(1)
    values = np.arange(64).astype(decoded(np.zeros(8, np.uint8), element).dtype)
    values %= 2 if element == "bool" else 64
    for way in ways_of(element, values, asks_nan=True):
        drawn = varied(way, element, values, generator, (3.0, 0.5, 2.0**40))
        assert drawn.shape == values.shape, way
        if element not in FLOATING:
            least, most = LIMITS[element]
            assert drawn.dtype == values.dtype, way
            assert least <= int(drawn.min()), way
            assert int(drawn.max()) <= most, way


@pytest.mark.parametrize(
    ("element", "low", "high"),
    [
        ("u64", 2**63 + 5, 2**64 - 1),
        ("u64", 0, 2**64 - 1),
        ("i64", -(2**63), 2**63 - 1),
        ("i64", -7, 2**62),
        ("u32", 0, 2**32 - 1),
    ],
)
def test_integers_of_the_widest_range_are_drawn_within_it(
    element: Element, low: int, high: int
) -> None:
    """As the limbs of a long number are: most of them do not fit a signed word or a double."""
    generator = np.random.default_rng(1)
    values = np.full(64, low, {"u64": "u8", "i64": "i8", "u32": "u4"}[element])
    values[1::2] = high
    least, most = LIMITS[element]
    for way in ways_of(element, values):
        drawn = varied(way, element, values, generator, (3.0, 2.0**40, 2.0**64, 0.5))
        assert drawn.dtype == values.dtype, way
        assert least <= int(drawn.min()), way
        assert int(drawn.max()) <= most, way
    for way in ("between", "ascending", "steps", "ties"):
        drawn = varied(way, element, values, generator)
        assert low <= int(drawn.min()), way
        assert int(drawn.max()) <= high, way


@pytest.mark.parametrize("ends", [(0, 63), (2**63 + 1, 2**64 - 1), (2**64 - 1, 3), (7, 7)], ids=str)
def test_evenly_is_even_where_no_double_is(ends: tuple[int, int]) -> None:
    values = np.full(64, ends[0], np.uint64)
    values[-1] = ends[1]
    drawn = [int(x) for x in integers("evenly", "u64", values, np.random.default_rng(0))]
    assert (drawn[0], drawn[-1]) == ends
    steps = {abs(b - a) for a, b in pairwise(drawn)}
    assert max(steps) - min(steps) <= 1
    assert integers("evenly", "u64", values[:1], np.random.default_rng(0)) == values[:1]


@pytest.mark.parametrize("way", ["ascending", "steps"])
def test_offsets_stay_offsets(way: str) -> None:
    for seed in range(50):
        drawn = integers(way, "i32", OFFSETS, np.random.default_rng(seed))  # type: ignore[arg-type]
        assert (drawn[0], drawn[-1]) == (0, 120)
        assert (np.diff(drawn) >= 0).all()


def test_steps_leave_segments_empty() -> None:
    drawn = integers("steps", "i32", OFFSETS, np.random.default_rng(0))
    assert (np.diff(drawn) == 0).any()


def test_numbers_of_a_text() -> None:
    text = "if (x > 20.f) y = a[3] * 1e-6f; // 77\n#define ERASED 0xFFFFFFFEu\n"
    assert numbers_in(text) == (20.0, 3.0, 1e-6, 4294967294.0)
    assert numbers_in(f"f(1e400, 0x{'9' * 300}, 8)") == (8.0,), "no infinity, no error"


@pytest.mark.parametrize(
    ("text", "asks"),
    [("isnan(v) ? 0 : v", True), ("v != v", True), ("v != w", False), ("// isnan", False)],
)
def test_who_asks_for_what_is_no_number(text: str, asks: bool) -> None:
    assert asks_for_nan(text) is asks


def test_order() -> None:
    assert ascends(OFFSETS)
    assert not ascends(OFFSETS[::-1])
    assert not ascends(np.zeros(20, np.int32)), "all the same"
    assert not ascends(np.arange(3)), "too few to mean anything"


def test_what_a_kernel_only_divides_by() -> None:
    text = "void k(int n, int w, int d) { int i = x / w; /* w */ if (i < n / w) y[i % d] = i / d; }"
    assert [only_divides(text, name) for name in ("n", "w", "d")] == [False, True, False]
