"""Distances between results, and which precision each bound lets through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Ran
from cudaops.domain.workload import Allocation
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.verification.accuracy import buffer_accuracy, exact_accuracy
from cudaops.sandbox.verification.arrays import Array, read_array, write_array
from cudaops.sandbox.verification.compare import distance
from cudaops.sandbox.verification.reference import Reference

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
    found = buffer_accuracy(OUT, "C", product.ran(result), product.reference(with_yardstick), 4.0)
    assert found.passed, found.summary
    # Without a yardstick the baseline's own error is unknown, and unknown is not 0.
    assert ("C_baseline_relative_l2" in found.numbers) == with_yardstick
    assert ("yardstick" in found.summary) != with_yardstick


@pytest.mark.parametrize("with_yardstick", [True, False])
@pytest.mark.parametrize("narrow", [tf32, lambda x: x.astype(np.float16)])
def test_a_silent_drop_of_precision_fails(product: Product, narrow, with_yardstick: bool) -> None:  # type: ignore[no-untyped-def]
    result = narrow(product.a).astype(np.float32) @ narrow(product.b).astype(np.float32)
    found = buffer_accuracy(OUT, "C", product.ran(result), product.reference(with_yardstick), 4.0)
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
        OUT, "C", product.ran(spoil(product.baseline)), product.reference(), 4.0
    )
    assert not found.passed, found.summary


def test_exact_results_must_be_equal_bit_for_bit(product: Product) -> None:
    product.baseline = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    reference = product.reference(with_yardstick=False)
    assert exact_accuracy(OUT, "C", product.ran(product.baseline), reference, 4.0).passed
    spoilt = product.baseline.copy()
    spoilt[3, 3] = np.nextafter(spoilt[3, 3], np.float32(1e9))
    assert not exact_accuracy(OUT, "C", product.ran(spoilt), reference, 4.0).passed


def test_integers_must_be_equal(tmp_path: Path) -> None:
    counts = Allocation(index=0, size_bytes=40, element="i32", role="out", before="b", after="a")
    base = tmp_path / "base.bin"
    np.arange(10, dtype=np.int32).tofile(base)
    reference = Reference("captured", InputSet(contents={}), {0: str(base)}, None)
    off_by_one = tmp_path / "out.bin"
    (np.arange(10, dtype=np.int32) + (np.arange(10) == 4)).astype(np.int32).tofile(off_by_one)
    assert buffer_accuracy(
        counts, "n", Ran(outputs={0: str(base)}, seconds=0), reference, 4.0
    ).passed
    assert not buffer_accuracy(
        counts, "n", Ran(outputs={0: str(off_by_one)}, seconds=0), reference, 4.0
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
