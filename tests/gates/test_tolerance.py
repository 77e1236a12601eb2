"""What passes and what is refused, element by element: other orders of the same operations, results
that are wrong where a norm does not look, and inputs that say how exact anybody could be."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.workload import Element
from cudaops.executors.arrays import Array, in_memory
from cudaops.gates.accuracy import (
    BufferAccuracy,
    compare_sides,
    same_as_rows,
    same_as_sets,
)
from cudaops.gates.tolerance import Sides

POLICY = Policy()
F32 = np.float32


def sides(
    result: Array,
    baseline: Array,
    wide: Array | None,
    moved: Array | None = None,
    *,
    in_places: bool = False,
) -> Sides:
    yardstick, other = (None if x is None else in_memory(x) for x in (wide, moved))
    held = in_memory(result), in_memory(baseline), yardstick, "not made"
    return Sides(*held, in_places, moved=other)


def judged(*arrays: Array | None, element: Element = "f32", places: bool = False) -> BufferAccuracy:
    return compare_sides(sides(*arrays, in_places=places), element, "y", POLICY)  # type: ignore[arg-type]


def one_by_one(x: Array) -> Array:
    total: Array = np.add.accumulate(x, axis=-1, dtype=x.dtype)[..., -1]
    return total


def backwards(x: Array) -> Array:
    return one_by_one(x[..., ::-1])


def in_chains(x: Array) -> Array:
    return one_by_one(one_by_one(np.swapaxes(x.reshape(*x.shape[:-1], -1, 4), -1, -2)))


ORDERS = (one_by_one, backwards, in_chains)
Sum = Callable[[Array], Array]


def layer_norm(x: Array, y: Array, add: Sum) -> Array:
    count = x.dtype.type(x.shape[-1])
    centred: Array = x - (add(x) / count)[..., None]
    variance = add(centred * centred) / count + x.dtype.type(1e-5)
    result: Array = centred / np.sqrt(variance)[..., None] * y
    return result


def softmax(x: Array, y: Array, add: Sum) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= add(e)[..., None]
    return e


KERNELS: dict[str, Callable[[Array, Array, Sum], Array]] = {
    "sums": lambda x, y, add: add(x),
    "products": lambda x, y, add: add(x[:16, None, :] * y[None, :64, :]),
    "layer norms": layer_norm,
    "softmax": softmax,
}
INPUTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "signed": lambda g, shape: g.standard_normal(shape),
    "rows of many sizes": lambda g, shape: (
        g.standard_normal(shape) * 10.0 ** g.uniform(-6, 6, (shape[0], 1))
    ),
    "all sizes": lambda g, shape: g.choice([-1.0, 1.0], shape) * 2.0 ** g.uniform(-40, 40, shape),
    "sparse": lambda g, shape: g.standard_normal(shape) * 16.0 * (g.random(shape) < 0.1),
}


EQUAL_TERMS = ("softmax", "sparse")
"""Equal terms round in the same direction again and again: one by one is no equal of chains."""


@pytest.mark.parametrize(
    ("kernel", "inputs"), [(k, i) for k in KERNELS for i in INPUTS if (k, i) != EQUAL_TERMS]
)
def test_other_orders_of_the_same_sums_pass(kernel: str, inputs: str) -> None:
    seed = zlib.crc32(f"{kernel} {inputs}".encode())
    compute, generator = KERNELS[kernel], np.random.default_rng(seed)
    for _ in range(8):
        x, y = (INPUTS[inputs](generator, (256, 64)).astype(F32) for _ in range(2))
        wide = compute(x.astype(float), y.astype(float), one_by_one)
        results = [compute(x, y, add) for add in ORDERS]
        for baseline in results:
            for result in results:
                found = judged(result, baseline, wide)
                assert found.passed, found.summary


def three_quantities(generator: np.random.Generator) -> Array:
    cells = generator.uniform(0.5, 2.0, (6000, 3)) * [1e6, 1e7, 1e-3]
    return cells.ravel()


@pytest.mark.parametrize(
    ("spoil", "passed"),
    [
        (lambda small: 0.0 * small, False),
        (lambda small: small * (1.0 + 1e-5), False),  # a series cut short
        (lambda small: small.astype(np.float16), False),
        (lambda small: small * (1.0 + 2.0**-22), True),  # __fdividef, within 2 ulp
        (lambda small: np.where(np.arange(small.size) % 8 == 0, 0.0, small), False),
    ],
)
def test_small_quantities_beside_large_ones(spoil: Callable[[Array], Array], passed: bool) -> None:
    wide = three_quantities(np.random.default_rng(3))
    baseline = wide.astype(F32)
    result = baseline.copy()
    result[2::3] = spoil(baseline[2::3])
    found = judged(result, baseline, wide)
    assert found.numbers["y_relative_l2"] < found.numbers["y_relative_l2_bound"]
    assert found.passed == passed, found.summary
    if not passed:
        assert "of their own size" in found.summary


@pytest.mark.parametrize(("element", "kind"), [("f16", np.float16), ("f32", F32), ("f64", float)])
def test_subnormals_are_not_flushed(element: Element, kind: type[np.floating]) -> None:
    tiny = float(np.finfo(kind).smallest_normal)
    wide = np.append(np.random.default_rng(4).uniform(0.1, 0.9, 500) * tiny, np.ones(500))
    baseline = wide.astype(kind)
    stepped = np.where(wide < 0.5, np.nextafter(baseline, kind(1)), baseline)
    assert judged(stepped, baseline, baseline.astype(float), element=element).passed
    flushed = np.where(wide < 0.5, kind(0), baseline)
    assert not judged(flushed, baseline, baseline.astype(float), element=element).passed


def test_a_wide_run_that_is_not_finite_measures_nothing() -> None:
    baseline = np.linspace(1.0, 2.0, 1000).astype(F32)
    wide = np.full(1000, np.nan)
    found = judged(np.full(1000, F32(42.0)), baseline, wide)
    assert found.summary.startswith(
        "y: 1000 of 1000 elements differ; first y[0] is 42, the author's 1: "
    )
    assert "not finite in 1000 of 1000 places where the baseline is" in found.summary
    assert judged(np.nextafter(baseline, F32(9)), baseline, wide).passed
    wide[:900] = baseline[:900]
    assert judged(np.nextafter(baseline, F32(9)), baseline, wide).passed
    wrong = np.append(baseline[:900], np.full(100, F32(42.0)))
    summary = judged(wrong, baseline, wide).summary
    assert "where the higher-precision reference is not finite" in summary
    assert not judged(np.append(baseline[:900], np.full(100, F32(np.inf))), baseline, wide).passed


def test_what_is_finite_nowhere_must_be_so_in_the_same_way() -> None:
    nowhere = np.full(10, np.nan, F32)
    for wide in (None, nowhere.astype(float)):
        assert judged(nowhere, nowhere, wide).passed
        assert not judged(np.ones(10, F32), nowhere, wide).passed
        assert not judged(np.full(10, F32(np.inf)), nowhere, wide).passed


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("result", "baseline", "wide", "strictly", "in_places"),
    [
        (-INF, INF, -1e60, True, True),  # another order of a polynomial's terms
        (-INF, NAN, -1e60, True, True),
        (3.0, NAN, 3.0, True, True),
        (NAN, INF, 3.0, False, True),
        (4.0, NAN, 3.0, False, False),
        (-INF, INF, 1e60, False, False),  # the sign that neither has
        (INF, 3e38, 3e38, True, True),  # twice the value stood on the way
        (-INF, 3e38, 3e38, False, False),
        (INF, 1e37, 1e37, False, False),
        (NAN, 1.0, 1.0, False, False),
    ],
)
def test_overflow_on_the_way(
    result: float, baseline: float, wide: float, strictly: bool, in_places: bool
) -> None:
    rest = np.linspace(1.0, 2.0, 100)
    arrays = (np.append(rest.astype(F32), F32(one)) for one in (result, baseline))
    held = *arrays, np.append(rest.astype(F32).astype(float), wide)
    assert judged(*held).passed == strictly
    assert judged(*held, places=True).passed == in_places


def test_another_order_may_overflow_as_often_elsewhere() -> None:
    wide = np.linspace(1.0, 2.0, 100).astype(F32).astype(float)
    baseline, result = wide.astype(F32), wide.astype(F32)
    baseline[:5], result[10:18] = INF, INF
    assert judged(result, baseline, wide).passed
    result[18:22] = INF
    found = judged(result, baseline, wide)
    assert not found.passed
    assert found.summary.startswith("y: 12 of 100 elements differ; first y[10] is inf, the author")


def moved_up_or_down(x: Array, generator: np.random.Generator) -> Array:
    return np.nextafter(x, np.where(generator.random(x.shape) < 0.5, F32(INF), F32(-INF)))


def compensated(x: Array) -> Array:
    total, lost = np.zeros(x.shape[:-1], x.dtype), np.zeros(x.shape[:-1], x.dtype)
    for i in range(x.shape[-1]):
        term = x[..., i] - lost
        after = total + term
        lost = (after - total) - term
        total = after
    return total


@pytest.mark.parametrize("taken_away_again", [False, True])
def test_a_compensation_may_not_be_dropped(taken_away_again: bool) -> None:
    """One term 2^24 times the others: plain sums of many terms are refused, also where it is known
    what a roundoff in that term changes; as exact as that are chains of a few terms."""
    generator = np.random.default_rng(8)
    x = generator.uniform(0.5, 1.5, (512, 256)).astype(F32)
    x[:, 3] = F32(2.0**24)
    if taken_away_again:
        x[:, 252] = -F32(2.0**24)
    baseline, wide = compensated(x), x.astype(float).sum(axis=-1)
    moved = compensated(moved_up_or_down(x, generator))
    assert judged(compensated(x[:, ::-1]), baseline, wide, moved).passed
    assert not judged(one_by_one(x), baseline, wide, moved).passed
    assert not judged(in_chains(x), baseline, wide, moved).passed
    by_eights = one_by_one(one_by_one(x.reshape(512, 64, 4)).reshape(512, 8, 8))
    short = one_by_one(by_eights)
    assert judged(short, baseline, wide, moved).passed


def test_what_a_roundoff_of_the_inputs_changes_is_no_error() -> None:
    """exp2 of a product with log2(e) in place of exp: off by |x| roundoffs, as exp is of inputs
    that were rounded. bf16 in the place of float is not hidden by it."""
    generator = np.random.default_rng(9)
    x = generator.uniform(-60.0, 60.0, 4096).astype(F32)
    wide = np.exp(x.astype(float))
    baseline = wide.astype(F32)
    folded = np.exp2((x * F32(1.4426950408889634)).astype(float)).astype(F32)
    moved = np.exp(moved_up_or_down(x, generator).astype(float)).astype(F32)
    assert not judged(folded, baseline, wide).passed
    assert judged(folded, baseline, wide, moved).passed
    assert not judged(baseline * F32(1.0001), baseline, wide, moved).passed
    unrelated = generator.permutation(baseline)
    assert not judged(folded, baseline, wide, unrelated).passed


def test_a_sum_that_nearly_cancels_is_held_to_what_its_inputs_allow() -> None:
    generator = np.random.default_rng(10)
    refused = refused_without = 0
    for _ in range(400):
        x = generator.standard_normal((1, 4096)).astype(F32)
        x[0, 0] -= one_by_one(x)[0] * F32(0.9999)
        wide = x.astype(float).sum(axis=-1)
        moved = in_chains(moved_up_or_down(x, generator))
        result = in_chains(x.reshape(1, 64, 64).swapaxes(1, 2).reshape(1, 4096))
        refused += not judged(result, in_chains(x), wide, moved).passed
        refused_without += not judged(result, in_chains(x), wide).passed
    assert refused < refused_without / 2


def test_sums_shifted_by_a_row_s_first_may_lose_in_a_few_rows() -> None:
    """Where a row begins with a number far from the others; a result that is off everywhere by as
    much is refused."""
    generator = np.random.default_rng(11)
    wide = generator.standard_normal(128 * 384)
    baseline = wide.astype(F32)
    few = np.where(np.arange(wide.size) < 3 * 384, wide * (1 + 70 * 2.0**-24), wide).astype(F32)
    assert judged(few, baseline, wide).passed
    assert not judged((wide * (1 + 9 * 2.0**-24)).astype(F32), baseline, wide).passed
    half = np.where(np.arange(wide.size) % 8 == 0, wide * (1 + 40 * 2.0**-24), wide).astype(F32)
    assert not judged(half, baseline, wide).passed


def test_a_refusal_says_what_differs() -> None:
    right = np.array([1.0, 0.5, 2.0], F32)
    off = np.array([1.0, 0.25, 2.0], F32)
    told = "y: 1 of 3 elements differ; first y[1] is 0.25, the author's 0.5"
    assert judged(off, right, right.astype(float)).summary.startswith(told)
    near = np.nextafter(right, F32(9))
    assert judged(near, right, 2.0 * right.astype(float) - right).passed
    digits = judged(near * F32(1.0001), right, None).summary
    assert "y[0] is 1.00010014, the author's 1: " in digits
    counts = np.array([5, 7], np.int32)
    found = judged(counts, counts + np.int32(2), None, element="i32")
    assert found.summary == "y: 2 of 2 elements differ; first y[0] is 5, the author's 7"
    raw = np.array([5, 7], np.uint8)
    found = judged(raw, np.array([5, 9], np.uint8), None, element="opaque")
    assert found.summary == "y: 1 of 2 bytes differ; first byte 1 is 7, the author's 9"
    assert judged(-0 * right, 0 * right, 0 * right.astype(float)).passed


def test_the_same_elements_in_another_order() -> None:
    generator = np.random.default_rng(12)
    wide = generator.standard_normal(5000)
    baseline = wide.astype(F32)
    order = generator.permutation(5000)
    result = np.nextafter(baseline, F32(9))[order]
    found = same_as_sets(sides(result, baseline, wide), "f32", "y", POLICY)
    assert found.summary == "y: equal in another order (the author's own order is not fixed)"
    twice = np.where(np.arange(5000) == 7, result[8], result)
    assert not same_as_sets(sides(twice, baseline, wide), "f32", "y", POLICY).passed
    indices = np.arange(5000, dtype=np.int32)
    assert same_as_sets(sides(indices[order], indices, None), "i32", "y", POLICY).passed
    missing = same_as_sets(sides(0 * indices, indices, None), "i32", "y", POLICY)
    assert "both sorted" in missing.summary


def test_rows_in_another_order_stay_together() -> None:
    generator = np.random.default_rng(13)
    places, values = np.arange(1000, dtype=np.int32), generator.standard_normal(1000).astype(F32)
    order = generator.permutation(1000)

    def found(there: Array, what: Array) -> bool:
        columns = [
            (sides(what, values, None), "f32", "values"),
            (sides(there, places, None), "i32", "places"),
        ]
        return all(one.passed for one in same_as_rows(columns, POLICY))  # type: ignore[arg-type]

    assert found(places[order], np.nextafter(values, F32(9))[order])
    assert not found(places[order], values)
    with pytest.raises(ValueError, match="different lengths"):
        same_as_rows(
            [
                (sides(places, places, None), "i32", "a"),
                (sides(places[1:], places[1:], None), "i32", "b"),
            ],
            POLICY,
        )
