"""Distances between results, and which precision each bound allows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Ran
from cudaops.domain.judgement import Policy
from cudaops.domain.workload import Allocation
from cudaops.executors.arrays import CHUNK, Array, in_memory, read_array, write_array
from cudaops.executors.base import InputSet
from cudaops.executors.compare import distance
from cudaops.gates.accuracy import (
    DIGESTED_BYTES,
    BufferAccuracy,
    buffer_accuracy,
    compare_sides,
    compare_sides_exactly,
    exact_accuracy,
)
from cudaops.gates.tolerance import Sides
from cudaops.sandbox.oracle import KeptFacts, Reference

POLICY = Policy()

OUT = Allocation(index=0, size_bytes=64 * 64 * 4, element="f32", role="out", before="b", after="a")


def tf32(values: Array) -> Array:
    """Round float32 to the 10 mantissa bits of TF32."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


class Product:
    """A 64x64x1024 product in double, in float, and in whatever a test does to it."""

    def __init__(self, folder: Path) -> None:
        generator = np.random.default_rng(7)
        self.a = generator.standard_normal((64, 1024)).astype(np.float32)
        self.b = generator.standard_normal((1024, 64)).astype(np.float32)
        self.wide = self.a.astype(np.float64) @ self.b.astype(np.float64)
        self.baseline = np.zeros((64, 64), np.float32)
        for k in range(1024):
            self.baseline += self.a[:, k : k + 1] * self.b[k : k + 1, :]
        self.folder = folder

    def reference(self, with_yardstick: bool = True) -> Reference:
        base, wide = self.folder / "base.bin", self.folder / "wide.bin"
        self.baseline.tofile(base)
        self.wide.tofile(wide)
        outputs = {0: str(wide)} if with_yardstick else None
        return Reference("signed", InputSet(contents={}), {0: str(base)}, outputs)

    def ran(self, result: Array) -> Ran:
        path = self.folder / "out.bin"
        result.astype(np.float32).tofile(path)
        return Ran(outputs={0: str(path)}, seconds=0.0)


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.mark.parametrize("with_yardstick", [True, False])
def test_another_order_of_summation_passes(product: Product, with_yardstick: bool) -> None:
    result = product.a @ product.b
    found = buffer_accuracy(
        OUT, "C", product.ran(result), product.reference(with_yardstick), POLICY
    )
    assert found.passed, found.summary
    # Without a yardstick the baseline's own error is unknown, and unknown is not 0.
    assert ("C_baseline_relative_l2" in found.numbers) == with_yardstick
    assert ("no higher-precision reference" in found.summary) != with_yardstick


@pytest.mark.parametrize("with_yardstick", [True, False])
@pytest.mark.parametrize("narrow", [tf32, lambda x: x.astype(np.float16)])
def test_a_silent_drop_of_precision_fails(product: Product, narrow, with_yardstick: bool) -> None:  # type: ignore[no-untyped-def]
    result = narrow(product.a).astype(np.float32) @ narrow(product.b).astype(np.float32)
    found = buffer_accuracy(
        OUT, "C", product.ran(result), product.reference(with_yardstick), POLICY
    )
    assert not found.passed, found.summary


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: np.zeros_like(c),
        lambda c: np.full_like(c, c.mean()),
        lambda c: np.where(np.arange(c.size).reshape(c.shape) < c.size // 2, c, 0),
        lambda c: c.T.copy(),
        lambda c: np.where(np.arange(c.size).reshape(c.shape) == 77, c + 0.01, c),
        lambda c: np.where(np.arange(c.size).reshape(c.shape) == 77, np.nan, c),
        lambda c: np.where(np.arange(c.size).reshape(c.shape) == 77, np.inf, c),
        lambda c: c * 1.0001,
    ],
)
def test_wrong_results_fail(product: Product, spoil) -> None:  # type: ignore[no-untyped-def]
    found = buffer_accuracy(
        OUT, "C", product.ran(spoil(product.baseline)), product.reference(), POLICY
    )
    assert not found.passed, found.summary


def test_exact_results_must_be_equal_bit_for_bit(product: Product) -> None:
    product.baseline = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    reference = product.reference(with_yardstick=False)
    assert exact_accuracy(OUT, "C", product.ran(product.baseline), reference, POLICY).passed
    spoilt = product.baseline.copy()
    spoilt[3, 3] = np.nextafter(spoilt[3, 3], np.float32(1e9))
    assert not exact_accuracy(OUT, "C", product.ran(spoilt), reference, POLICY).passed


def test_integers_must_be_equal(tmp_path: Path) -> None:
    counts = Allocation(index=0, size_bytes=40, element="i32", role="out", before="b", after="a")
    base = tmp_path / "base.bin"
    np.arange(10, dtype=np.int32).tofile(base)
    reference = Reference("captured", InputSet(contents={}), {0: str(base)}, None)
    off_by_one = tmp_path / "out.bin"
    (np.arange(10, dtype=np.int32) + (np.arange(10) == 4)).astype(np.int32).tofile(off_by_one)
    assert buffer_accuracy(
        counts, "n", Ran(outputs={0: str(base)}, seconds=0), reference, POLICY
    ).passed
    assert not buffer_accuracy(
        counts, "n", Ran(outputs={0: str(off_by_one)}, seconds=0), reference, POLICY
    ).passed


def test_nan_of_the_baseline_must_be_met_by_nan() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf])
    assert distance(reference, reference).non_finite_mismatches == 0
    assert distance(np.array([1.0, 2.0, np.inf, -np.inf]), reference).non_finite_mismatches == 1
    assert distance(np.array([1.0, np.nan, -np.inf, np.inf]), reference).non_finite_mismatches == 2
    assert (
        distance(np.array([np.nan, np.nan, np.inf, -np.inf]), reference).non_finite_mismatches == 1
    )


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_arrays_come_back_as_written(tmp_path: Path, element: str) -> None:
    values = np.array([0.0, 1.0, -2.5, 0.125, 3.0])
    path = tmp_path / "x.bin"
    write_array(path, values, element)  # type: ignore[arg-type]
    assert read_array(path, element).tolist() == values.tolist()  # type: ignore[arg-type]


def test_chunks_are_put_together_right() -> None:
    generator = np.random.default_rng(4)
    reference = generator.standard_normal(3 * CHUNK + 17)
    result = reference * (1 + 1e-6 * generator.standard_normal(reference.size))
    result[-1] += 0.5
    reference[CHUNK] = result[CHUNK] = np.nan
    result[2 * CHUNK + 5] = np.inf
    found = distance(result, reference)
    both = np.isfinite(result) & np.isfinite(reference)
    gap, rms = np.abs(result - reference)[both], np.sqrt(np.mean(reference[both] ** 2))
    norm = np.linalg.norm(reference[both])
    assert found.relative_l2 == pytest.approx(np.linalg.norm(gap) / norm)
    assert found.scale == pytest.approx(rms)
    assert found.max_abs == gap.max()
    assert found.max_scaled == pytest.approx((gap / (np.abs(reference[both]) + rms)).max())
    assert (found.non_finite_mismatches, found.compared) == (1, reference.size - 2)


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e-310, 1e200])
def test_doubles_of_any_size_are_told_apart(unit: float) -> None:
    reference = unit * np.arange(1.0, 9.0)
    assert distance(0 * reference, reference).relative_l2 == pytest.approx(1.0)
    found = distance(reference * 1.5, reference)
    assert found.relative_l2 == pytest.approx(0.5)
    assert found.scale == pytest.approx(unit * 5.049752469181039)


def test_a_large_buffer_takes_little_memory(tmp_path: Path) -> None:
    narrow, wide = tmp_path / "narrow.bin", tmp_path / "wide.bin"
    values = np.random.default_rng(9).standard_normal(1 << 22, dtype=np.float32)
    values.tofile(narrow)
    values.astype("<f8").tofile(wide)
    size = values.nbytes
    del values
    large = OUT.model_copy(update={"size_bytes": size})
    reference = Reference("signed", InputSet(contents={}), {0: str(narrow)}, {0: str(wide)})
    ran = Ran(outputs={0: str(narrow)}, seconds=0.0)
    tracemalloc.start()
    try:
        found = buffer_accuracy(large, "C", ran, reference, POLICY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.passed
    assert peak < 64 * CHUNK, f"{peak} bytes for {size}"


def held(result: Array, baseline: Array, wide: Array | None) -> BufferAccuracy:
    yardstick = None if wide is None else in_memory(wide)
    sides = Sides(in_memory(result), in_memory(baseline), yardstick, "not made")
    return compare_sides(sides, "f32", "C", POLICY)


@pytest.mark.parametrize("with_yardstick", [True, False])
def test_zero_everywhere_must_stay_zero(with_yardstick: bool) -> None:
    zeros = np.zeros(100, np.float32)
    wide = zeros.astype(np.float64) if with_yardstick else None
    assert held(zeros, zeros, wide).passed
    assert held(-zeros, zeros, wide).passed
    found = held(np.full(100, 1e-30, np.float32), zeros, wide)
    assert not found.passed
    assert "zero everywhere" in found.summary


def test_a_yardstick_of_zeros_measures_nothing_that_is_not_zero() -> None:
    baseline = np.ones(100, np.float32)
    assert held(baseline, baseline, np.zeros(100)).passed
    assert not held(0 * baseline, baseline, np.zeros(100)).passed


@pytest.mark.parametrize("with_yardstick", [True, False])
def test_a_constant_must_stay_that_constant(with_yardstick: bool) -> None:
    baseline = np.full(100, 0.1, np.float32)
    wide = np.full(100, 0.1) if with_yardstick else None
    assert held(np.nextafter(baseline, np.float32(1)), baseline, wide).passed
    assert not held(baseline * np.float32(1.0001), baseline, wide).passed


@pytest.mark.parametrize("with_yardstick", [True, False])
def test_subnormals_may_be_off_by_their_own_steps(with_yardstick: bool) -> None:
    wide = np.random.default_rng(5).uniform(1e-43, 1e-42, 1000)
    baseline = wide.astype(np.float32)
    yardstick = wide if with_yardstick else None
    assert held(np.nextafter(baseline, np.float32(1)), baseline, yardstick).passed
    assert not held(baseline * np.float32(2), baseline, yardstick).passed
    assert not held(0 * baseline, baseline, yardstick).passed


def test_a_large_element_may_be_off_by_its_own_roundoffs() -> None:
    wide = np.ones(100_000)
    wide[7] = 1e6
    baseline = wide.astype(np.float32)
    result = baseline.copy()
    result[7] *= np.float32(1 + 2.0**-22)
    assert held(result, baseline, None).passed
    result[8] = 1.1
    assert not held(result, baseline, None).passed


def test_a_few_large_elements_do_not_hide_all_others() -> None:
    wide = np.random.default_rng(6).standard_normal(100_000)
    wide[7] = 1e10
    baseline = wide.astype(np.float32)
    result = np.where(baseline == baseline[7], baseline, np.float32(0))
    found = held(result, baseline, wide)
    assert found.numbers["C_relative_l2"] < found.numbers["C_relative_l2_bound"]
    assert not found.passed
    assert "100% of the elements" in found.summary
    assert held(np.nextafter(baseline, np.float32(0)), baseline, wide).passed


def test_elements_that_are_noise_in_the_baseline_too_may_be_noise() -> None:
    generator = np.random.default_rng(6)
    wide = 1e-12 * generator.standard_normal(1000)
    wide[7] = 1.0
    noise = 1e-9 * generator.standard_normal((2, 1000))
    baseline, result = (wide + noise).astype(np.float32)
    assert held(result, baseline, wide).passed


def test_one_element_is_no_yardstick() -> None:
    """A baseline that is right by luck does not refuse a sum in another order; TF32 fails."""
    wide = np.array([123.456], dtype=np.float64)
    baseline = wide.astype(np.float32)
    for roundoffs, passed in ((5, True), (60, True), (4900, False)):
        result = (wide * (1 + roundoffs * 2.0**-24)).astype(np.float32)
        sides = Sides(in_memory(result), in_memory(baseline), in_memory(wide), None)
        assert compare_sides(sides, "f32", "sum", Policy()).passed == passed, roundoffs


def test_where_inputs_make_it_not_finite_the_places_must_agree() -> None:
    """NaN for an infinity is as good; a number, the opposite infinity, another place are not."""
    right = np.array([1.0, np.inf, -np.inf, np.nan, 2.0], np.float32)
    wide = right.astype(np.float64)
    overflow = np.array([1.0, np.inf, -np.inf, np.nan, 1e40])

    def passes(result: list[float], baseline: Array, yardstick: Array, *, places: bool) -> bool:
        made = np.array(result, np.float32)
        sides = Sides(in_memory(made), in_memory(baseline), in_memory(yardstick), None, places)
        return compare_sides(sides, "f32", "out", Policy()).passed

    inf, nan = float("inf"), float("nan")
    assert passes([1.0, inf, -inf, nan, 2.0], right, wide, places=False)
    assert passes([1.0, nan, nan, inf, 2.0], right, wide, places=True)
    assert not passes([1.0, nan, nan, inf, 2.0], right, wide, places=False)
    for wrong in (
        [1.0, -inf, -inf, nan, 2.0],
        [1.0, inf, -inf, 0.0, 2.0],
        [nan, inf, -inf, nan, 2],
    ):
        assert not passes(wrong, right, wide, places=True)
    overflown = np.array([1.0, np.inf, -np.inf, np.nan, np.inf], np.float32)
    assert passes([1.0, inf, -inf, nan, nan], overflown, overflow, places=True)
    assert not passes([1.0, inf, -inf, nan, 3.0], overflown, overflow, places=True)
    assert not passes([1.0, inf, -inf, nan, nan], overflown, overflow, places=False)


def test_what_the_kernel_leaves_alone_hides_nothing() -> None:
    """A sentinel in half of the buffer would drown every result in a norm, and half of the elements
    are right without anybody computing them."""
    generator = np.random.default_rng(5)
    before = np.full(4096, 3e38, np.float32)
    wide = before.astype(np.float64)
    wide[1024:3000] = generator.uniform(0.5, 2.0, 1976)
    baseline = wide.astype(np.float32)
    off = baseline.copy()
    off[1024:3000] *= np.float32(1.01)

    def compared(result: Array) -> BufferAccuracy:
        held = in_memory(result), in_memory(baseline), in_memory(wide)
        return compare_sides(Sides(*held, None), "f32", "y", POLICY)

    assert compared(baseline).passed
    assert not compared(off).passed
    assert "y: 1976 of 4096 elements differ; first y[1024] is " in compared(off).summary
    assert "100% of the elements of sizes 1.2e-01 to 2.0e+00 are off" in compared(off).summary


def test_the_first_element_that_is_not_finite_alone_is_named() -> None:
    wide = np.linspace(1.0, 2.0, 3 * CHUNK // 2)
    wide[CHUNK + 7] = np.nan
    result = wide.astype(np.float32)
    result[CHUNK + 7] = np.inf
    held = in_memory(result), in_memory(wide.astype(np.float32)), in_memory(wide)
    found = compare_sides(Sides(*held, None), "f32", "y", POLICY)
    assert not found.passed
    place = f"first y[{CHUNK + 7}] is inf, the author's nan"
    assert found.summary.startswith(f"y: 1 of {wide.size} elements differ; {place}")


def wild(size: int = 5000) -> Array:
    """Doubles, a few of them NaN or infinite."""
    wide = np.random.default_rng(12).standard_normal(size)
    wide[[3, 40, 700]] = np.nan, np.inf, -np.inf
    return wide


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("in_places", [False, True])
@pytest.mark.parametrize("with_yardstick", [True, False])
@pytest.mark.parametrize(
    "wide",
    [wild(), wild()[1000:], np.arange(-90.0, 90.0), np.zeros(100), np.full(100, np.nan)],
    ids=["with specials", "finite", "small integers", "zeros", "nowhere finite"],
)
def test_what_is_known_before_says_what_is_found_anew(
    wide: Array, with_yardstick: bool, in_places: bool, exactly: bool
) -> None:
    """Of the reference's own bytes, and of results that are near, wrong, and not finite elsewhere,
    one after another against what was kept of the first."""
    baseline = wide.astype(np.float32)
    near, wrong, other = np.nextafter(baseline, np.float32(9)), baseline.copy(), baseline.copy()
    wrong[7], other[9] = 1e3, np.inf
    compare = compare_sides_exactly if exactly else compare_sides
    yardstick = in_memory(wide) if with_yardstick else None
    known = KeptFacts()
    for result in (baseline, near, wrong, other, baseline):
        sides = Sides(in_memory(result), in_memory(baseline), yardstick, "none", in_places)
        kept = sides._replace(equal=result is baseline, known=known)
        anew, found = (compare(one, "f32", "y", POLICY) for one in (sides, kept))
        assert (found.passed, found.summary) == (anew.passed, anew.summary)
        assert repr(found.numbers) == repr(anew.numbers)


def test_a_reference_keeps_what_was_found_of_it(tmp_path: Path) -> None:
    product = Product(tmp_path)
    reference = product.reference()._replace(known={})
    for result in (product.baseline, tf32(product.baseline)):
        anew = buffer_accuracy(OUT, "C", product.ran(result), product.reference(), POLICY)
        assert buffer_accuracy(OUT, "C", product.ran(result), reference, POLICY) == anew
    assert reference.known is not None
    assert reference.known[0].own == distance(product.baseline.ravel(), product.wide.ravel())


def test_the_same_bytes_are_compared_once(tmp_path: Path) -> None:
    """A large result is known again by its digest; other bytes, and other ways to compare, are not
    taken for it."""
    count = DIGESTED_BYTES // 4
    large = OUT.model_copy(update={"size_bytes": DIGESTED_BYTES})
    wide, base = tmp_path / "wide.bin", tmp_path / "base.bin"
    exact = np.random.default_rng(3).standard_normal(count)
    exact.tofile(wide)
    exact.astype(np.float32).tofile(base)
    known: dict[int, KeptFacts] = {}
    inputs = InputSet(contents={})
    reference = Reference("signed", inputs, {0: str(base)}, {0: str(wide)}, known=known)

    def compared(name: str, values: Array) -> BufferAccuracy:
        path = tmp_path / f"{name}.bin"
        values.tofile(path)
        return buffer_accuracy(
            large, "b", Ran(outputs={0: str(path)}, seconds=0.0), reference, POLICY
        )

    result = np.nextafter(exact.astype(np.float32), np.float32(np.inf))
    first = compared("first", result)
    assert first.passed
    assert len(known[0].compared) == 1
    assert compared("second", result) is first
    result[count // 2] = 7.0
    other = compared("third", result)
    assert not other.passed
    assert compared("fourth", result) is other
    again = Ran(outputs={0: str(tmp_path / "first.bin")}, seconds=0.0)
    assert exact_accuracy(large, "b", again, reference, POLICY) is not first
    assert len(known[0].compared) == 3
