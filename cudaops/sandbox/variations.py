"""Ways in which the contents of a buffer may be others than a program's one run showed.

Each way is one property that authors' inputs have or lack: order, repetition, range, sign, size of
the exponent, values that an input says of itself by its type. Which of them the author's kernel
accepts is found by running it (`drawn.py`), never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from cudaops.domain.workload import FLOATING, Element
from cudaops.executors.arrays import LARGEST, Array

Way = Literal[
    "captured", "touched", "permuted", "reversed", "resampled", "between", "ties", "least", "most",
    "flags", "sparse", "mixed", "ascending", "steps", "evenly", "small", "both_signs", "any",
    "near", "signed", "positive", "integers", "equal", "magnitudes", "widest", "zeros",
    "one_large", "offset", "scaled", "infinite", "not_a_number", "large", "huge", "nothing",
    "some_large", "cancelling", "ten_bits", "twenty_bits", "thirty_bits",
    "denormals", "few_huge", "alike", "infinities", "either_zero", "extremes",
]  # fmt: skip
"""`captured` leaves it as it is; the others are the cases of `integers` and `floats`."""

INTEGER_WAYS: tuple[Way, ...] = (
    "permuted", "between", "ties", "touched", "sparse", "steps", "flags", "small", "any",
    "both_signs", "twenty_bits", "mixed", "ascending", "resampled", "reversed", "ten_bits",
    "thirty_bits", "least", "most", "near", "evenly", "extremes",
)  # fmt: skip
"""Those of integers, in order of what they show."""
FLOAT_WAYS: tuple[Way, ...] = (
    "signed", "magnitudes", "positive", "integers", "near", "ties", "zeros", "one_large", "offset",
    "denormals", "permuted", "ascending", "equal", "scaled", "widest", "large", "huge", "nothing",
    "infinite", "few_huge", "alike", "infinities", "either_zero",
)  # fmt: skip
"""Those of floating values, likewise."""
COMPENSATED_WAYS: tuple[Way, ...] = ("some_large", "cancelling")
"""Those of floating values that an author who computes rounding errors is asked in addition."""
UNIFORM_WAYS: tuple[Way, ...] = (
    "captured", "least", "evenly", "captured", "least", "evenly", "most", "ascending",
)  # fmt: skip
"""Those of integers by which all threads do the same, the likelier twice."""
BITS: dict[Way, tuple[int, int]] = {
    "ten_bits": (8, 13), "twenty_bits": (15, 23), "thirty_bits": (24, 30),
}  # fmt: skip
"""How many bits the largest integer may have: their products, and sums of these, are too large for
16, 32 and 64 bits in turn, where those of `any` are too large for all."""
LOWEST_SHARE = 0.8
"""Elements of `extremes` that are the least number of their type, the others being the largest:
products of two least ones are the largest there are, and seldom what a program holds."""
LONG_WAYS: tuple[Way, ...] = (
    "nothing", "least", "alike", "most", "signed", "any",
)  # fmt: skip
"""Those of all buffers of a launch with one large size, one after the other: first one value all
over, so that counts of it run over."""
EXACT_WAYS: frozenset[Way] = frozenset({"integers", "ties", "equal", "nothing"})
"""Small integers: arithmetic on them is exact, and so is the rule for ties."""

INFINITE: frozenset[Way] = frozenset({"infinite", "infinities"})

FEW_VALUES = 3
"""Different values of `ties`."""
TOUCHED = 16
"""One in so many elements of `touched` moves by one."""
NEAR = (-1e-3, -1e-6, 0.0, 1e-6, 1e-3, 0.3, -0.3)
"""How far from a number of the text values of `near` are, in shares of it."""
OUTLIER = 2.0**24
"""The one element of `one_large`: every float32 of ordinary size vanishes beside it."""
SOME = 64
"""One in so many elements of `some_large` is OUTLIER: what the others add to it is rounded off."""
FEW = 16
"""One in so many elements of `few_huge` is next to the largest of its type: a short sum has one,
and is as large without running over."""
CANCELLING = 16
"""One in so many elements of `cancelling` is OUTLIER of either sign: where a sum has as many of one
as of the other, it is made of what was rounded off beside them."""
OFFSET = 4096.0
"""Mean of `offset`, whose spread is 1: squares of the values lose what a variance is made of."""
ORDINARY: dict[Element, int] = {"f16": 6, "bf16": 30, "f32": 30, "f64": 200}
"""Exponents of `magnitudes` go from minus this to this: products of two values stay in range."""
SMALLEST_NORMAL: dict[Element, float] = {
    "f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022,
}  # fmt: skip
LARGEST_EXPONENT: dict[Element, int] = {"f16": 15, "bf16": 127, "f32": 127, "f64": 1023}
"""Source of both: IEEE 754-2019 table 3.5; bfloat16 has the exponents of float32."""
SUMMED: dict[Element, int] = {"f16": 4, "bf16": 12, "f32": 12, "f64": 12}
"""Sums of two to this many values of `large` stay in range, in whatever order; squares do not."""
LIMITS: dict[Element, tuple[int, int]] = {
    "i8": (-(2**7), 2**7 - 1), "u8": (0, 2**8 - 1), "i16": (-(2**15), 2**15 - 1),
    "u16": (0, 2**16 - 1), "i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1), "u64": (0, 2**64 - 1), "bool": (0, 1),
}  # fmt: skip


def ways_of(
    element: Element, values: Array, *, asks_nan: bool = False, compensated: bool = False
) -> tuple[Way, ...]:
    """Ways that give something else than `values` for this type. `asks_nan`: the author's text
    says what happens to a value that is no number. `compensated`: his kernel computes rounding
    errors."""
    if element in FLOATING:
        ways = (*FLOAT_WAYS, "not_a_number") if asks_nan else FLOAT_WAYS
        return (*ways, *COMPENSATED_WAYS) if compensated else ways
    if element == "opaque" or not values.size:
        return ()
    if element == "bool":
        return ("flags", "least", "most", "permuted")
    left_out: set[Way] = {w for w, (least, _) in BITS.items() if 2**least > LIMITS[element][1]}
    if values.min() < 0 or values.max() > 1:
        left_out.add("flags")
    return tuple(w for w in INTEGER_WAYS if w not in left_out)


def varied(
    way: Way,
    element: Element,
    values: Array,
    generator: np.random.Generator,
    numbers: Sequence[float] = (),
) -> Array:
    """As many values as `values` has, of its type. `numbers`: those that the text compares with."""
    if way == "captured" or not values.size:
        return values
    if element in FLOATING:
        with np.errstate(over="ignore"):
            drawn = floats(way, element, values, generator, numbers)
        largest = LARGEST[element]  # what is drawn beyond it becomes this
        return np.where(np.isfinite(drawn), np.clip(drawn, -largest, largest), drawn)
    return integers(way, element, values, generator, numbers)


def integers(
    way: Way,
    element: Element,
    values: Array,
    generator: np.random.Generator,
    numbers: Sequence[float] = (),
) -> Array:
    """Integers of this type: see `Way`.

    `between`, `ascending`, `steps`, `evenly` stay within what was captured, so that an index may
    stay one; the last three begin and end as the captured values do, as offsets must.
    """
    least, most = LIMITS[element]
    low, high = int(values.min()), int(values.max())
    count = values.size

    def draw(first: int, last: int, size: int = count) -> Array:
        return generator.integers(first, last, size, dtype=values.dtype.type, endpoint=True)

    if way == "permuted":
        return generator.permutation(values)
    if way == "reversed":
        return values[::-1].copy()
    if way == "resampled":
        return generator.choice(values, count)
    if way == "between":
        return draw(low, high)
    if way == "flags":
        return draw(0, 1)
    if way == "ties":
        return generator.choice(draw(low, high, FEW_VALUES), count)
    if way in ("least", "most"):
        return np.full_like(values, low if way == "least" else high)
    if way == "small":
        return draw(max(least, -4), min(most, 15))
    if way == "both_signs":
        reach = max(abs(low), abs(high), 16)
        return draw(max(least, -reach), min(most, reach))
    if way == "extremes":
        return np.where(generator.random(count) < LOWEST_SHARE, least, most).astype(values.dtype)
    if way in BITS:
        reach = 2 ** int(generator.integers(*BITS[way], endpoint=True))
        return draw(max(least, -reach), min(most, reach))
    if way in ("ascending", "steps"):
        few = draw(low, high, 5 if way == "steps" else count)
        return _in_order(values, generator.choice(few, count) if way == "steps" else few)
    if way == "evenly":
        return _evenly(values)
    if way == "touched":
        return _moved(values, least, most, generator)
    if way == "near":
        close = [int(n) + d for n in numbers for d in (-1, 0, 1) if n == int(n)]
        close = [n for n in close if least <= n <= most] or [low]
        return generator.choice(np.array(close, dtype=values.dtype), count)
    if way == "mixed":
        sources = [generator.choice(values, count), draw(low, high), draw(least, most)]
        sources += [draw(max(least, low - 4), min(most, high + 4))]
        result: Array = np.choose(generator.integers(0, len(sources), count), sources)
        return result
    if way == "sparse":
        return _replaced_in_places(values, least, most, generator, numbers)
    drawn = draw(least, most)
    extremes = np.array([least, most, 0, 1, max(least, -1), most - 1], dtype=values.dtype)
    places = generator.random(count) < 0.25
    drawn[places] = generator.choice(extremes, int(places.sum()))
    return drawn


def _evenly(values: Array) -> Array:
    """From the first of them to the last in steps that differ by one at most. In integers: doubles
    do not hold those beyond 2^53."""
    first, last, parts = int(values[0]), int(values[-1]), max(1, values.size - 1)
    step, rest = divmod(abs(last - first), parts)
    nth = np.arange(values.size, dtype=np.uint64)
    moved = nth * np.uint64(step) + nth * np.uint64(rest) // np.uint64(parts)
    begin = np.uint64(first % 2**64)
    result: Array = (begin + moved if last >= first else begin - moved).astype(values.dtype)
    return result


def _in_order(values: Array, pool: Array) -> Array:
    """`pool` ascending, from the first to the last of `values` as offsets go."""
    ordered = np.sort(pool)
    ordered[0], ordered[-1] = min(values[0], values[-1]), max(values[0], values[-1])
    return np.sort(ordered)


def _replaced_in_places(
    values: Array, least: int, most: int, generator: np.random.Generator, numbers: Sequence[float]
) -> Array:
    told = [int(n) for n in numbers if n == int(n) and least <= n <= most]
    low, high = int(values.min()), int(values.max())
    special = np.array([*told, least, most, low, high, most - 1], dtype=values.dtype)
    changed = values.copy()
    places = generator.random(values.size) < 1.0 / TOUCHED
    changed[places] = generator.choice(special, int(places.sum()))
    return changed


def _moved(values: Array, least: int, most: int, generator: np.random.Generator) -> Array:
    moved = values.copy()
    places = generator.integers(0, values.size, max(1, values.size // TOUCHED))
    for place in places:
        moved[place] = min(most, max(least, int(moved[place]) + int(generator.choice([-1, 1]))))
    return moved


def _with_outliers(way: Way, normal: Array, generator: np.random.Generator) -> Array:
    """One, some, or some of either sign, which cancel."""
    count = normal.size
    if way == "one_large":
        normal[generator.integers(count)] = OUTLIER
        return normal
    if way == "some_large":
        return np.where(generator.random(count) < 1.0 / SOME, OUTLIER, np.abs(normal) + 0.05)
    outliers = generator.choice([-OUTLIER, OUTLIER], count)
    return np.where(generator.random(count) < 1.0 / CANCELLING, outliers, normal)


def floats(
    way: Way,
    element: Element,
    values: Array,
    generator: np.random.Generator,
    numbers: Sequence[float] = (),
) -> Array:
    """Floating values, as doubles: see `Way`."""
    count = values.size
    normal = generator.standard_normal(count)
    if way == "signed":
        return normal
    if way == "positive":
        return np.abs(normal) + 0.05
    if way == "integers":
        return generator.integers(-3, 4, count).astype(np.float64)
    if way == "ties":
        return generator.choice(generator.integers(-8, 9, FEW_VALUES), count).astype(np.float64)
    if way == "equal":
        return np.full(count, float(generator.integers(1, 5)))
    if way == "scaled":
        return values * generator.uniform(0.5, 1.5, count)
    if way == "permuted":
        return generator.permutation(values)
    if way == "ascending":
        return np.sort(normal)
    if way in ("one_large", "some_large", "cancelling"):
        return _with_outliers(way, normal, generator)
    if way == "offset":
        return normal + OFFSET if element in ("f32", "f64") else normal + 16.0
    if way == "nothing":
        return np.zeros(count)
    if way == "either_zero":
        return generator.choice([0.0, -0.0], count)
    if way == "alike":
        return np.full(count, generator.choice(values), dtype=np.float64)
    if way == "infinities":
        return np.where(np.arange(count) < (count + 1) // 2, -np.inf, np.inf)
    if way == "few_huge":
        huge = np.exp2(LARGEST_EXPONENT[element] - generator.uniform(0, 1, count))
        return np.where(generator.random(count) < 1.0 / FEW, huge, normal)
    if way in ("large", "huge"):
        reach = LARGEST_EXPONENT[element] - (SUMMED[element] if way == "large" else 0)
        large = np.exp2(generator.uniform(reach - 5, reach, count))
        return np.where(generator.random(count) < 0.5, large, -large)
    if way in ("magnitudes", "widest"):
        reach = ORDINARY[element]
        if way == "widest":
            reach = LARGEST_EXPONENT[element] - 1
        signs = generator.choice([-1.0, 1.0], count)
        return signs * np.exp2(generator.uniform(-reach, reach, count))
    if way in ("zeros", "denormals"):
        tiny = SMALLEST_NORMAL[element]
        special = np.array([0.0, -0.0, 1.0, -1.0])
        if way == "denormals":
            special = np.array([0.0, tiny, -tiny, tiny / 4, -tiny / 4])
        return np.where(generator.random(count) < 0.4, normal, generator.choice(special, count))
    if way == "near":
        known = np.array(list(numbers) or [1.0])
        chosen = generator.choice(known, count) * (1.0 + generator.choice(NEAR, count))
        return np.where(generator.random(count) < 0.2, normal, chosen)
    special_value = np.inf if way == "infinite" else np.nan
    places = generator.choice(count, min(count, max(1, count // 50)), replace=False)
    normal[places] = special_value
    if way == "infinite":
        normal[places[1::2]] = -np.inf
    return normal
