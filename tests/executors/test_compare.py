"""Comparisons by all processors, chunk by chunk, against the same quantities computed plainly."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.workload import Element
from cudaops.executors.arrays import (
    CHUNK,
    PIECE,
    Array,
    contents_digest,
    in_memory,
    over_chunks,
    read_array,
    stored,
    write_array,
)
from cudaops.executors.compare import (
    Distance,
    beyond_one_rounding,
    differing,
    distance,
    holds_only,
    is_small_integers,
    is_zero,
    misplaced,
    non_finite_share,
    same_contents,
    share_beyond,
)

SIZES = (0, 1, 1000, CHUNK + 1, PIECE * CHUNK, 3 * PIECE * CHUNK + 12345)
"""Nothing, less than a chunk, more than one, exactly what one thread takes, and several of that."""


def plainly(result: Array, reference: Array) -> Distance:
    """The definition, on whole arrays of extended precision."""
    x, y = result.astype(np.longdouble), reference.astype(np.longdouble)
    finite = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    gap, size = np.abs(x[finite] - y[finite]), np.abs(y[finite])
    norm = float(np.sqrt((size**2).sum()))
    scale = norm / math.sqrt(size.size) if size.size else 0.0
    worst = float(gap.max(initial=0.0))
    difference = float(np.sqrt((gap**2).sum()))
    return Distance(
        relative_l2=difference / norm if norm else difference,
        max_abs=worst,
        max_scaled=float((gap / (size + scale)).max(initial=0.0)) if worst and scale else worst,
        scale=scale,
        non_finite_mismatches=int((~finite & ~same).sum()),
        compared=int(finite.sum()),
    )


def sides(size: int, seed: int, specials: bool) -> tuple[Array, Array]:
    """A float32 result and the doubles it approximates; a third of it exactly right."""
    numbers = np.random.default_rng((size, seed))
    reference = numbers.standard_normal(size) * 10.0 ** numbers.integers(-3, 4, size)
    result = reference.astype(np.float32)
    result[: size // 3] *= np.float32(1 + 1e-6)
    if specials and size > 9:
        for at, (mine, theirs) in enumerate(
            [(np.nan, np.nan), (np.inf, np.inf), (-np.inf, np.inf), (np.nan, 1.0), (1.0, np.inf)]
        ):
            place = at * (size // 5)
            result[place], reference[place] = mine, theirs
    return result, reference


@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_distance_is_what_its_definition_says(tmp_path: Path, size: int, specials: bool) -> None:
    result, reference = sides(size, 1, specials)
    result.tofile(tmp_path / "a.bin")
    reference.tofile(tmp_path / "b.bin")
    a, b = stored(tmp_path / "a.bin", "f32"), stored(tmp_path / "b.bin", "f64")
    expected = plainly(result, reference)
    found = distance(a, b)
    assert found == pytest.approx(expected, rel=1e-11)
    assert (
        found.non_finite_mismatches == misplaced(a, b, None, as_good=False).elements == expected[4]
    )
    assert distance(a, b) == found == distance(result, reference)  # the same to the last bit


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_what_is_equal_is_at_no_distance(tmp_path: Path, element: Element) -> None:
    values, _ = sides(PIECE * CHUNK + 7, 2, True)
    with np.errstate(over="ignore"):
        write_array(tmp_path / "a.bin", values, element)
    held = stored(tmp_path / "a.bin", element)
    found = distance(held, held)
    kept = read_array(tmp_path / "a.bin", element)
    assert found.exact
    assert found.compared == int(np.isfinite(kept).sum())
    assert found.scale == pytest.approx(plainly(kept, kept).scale, rel=1e-11)


@pytest.mark.parametrize("size", SIZES[2:])
def test_counts_are_those_of_whole_arrays(size: int) -> None:
    result, reference = sides(size, 3, False)
    whole = np.random.default_rng(size).integers(-3, 4, size).astype(np.int32)
    other = np.where(np.arange(size) % 97 == 5, whole + 1, whole)
    beyond = np.abs(result - reference) > 5e-7 * np.abs(reference)
    assert share_beyond(result, reference, 5e-7) == np.count_nonzero(beyond) / size
    off = differing(other, whole, 0.0)
    assert (0 if off is None else off.elements) == np.count_nonzero(other != whole)
    assert beyond_one_rounding(other, whole, 2.0, 0.5) == np.count_nonzero(
        (other != whole) & ~((np.abs(whole) > 2) & (np.abs(whole) * 0.5 >= 1))
    )
    assert is_small_integers(whole.astype(np.float32), 3.0)
    assert not is_small_integers(whole.astype(np.float32), 2.0)
    assert not is_small_integers(result, 1e30)
    result[-1] = np.nan
    assert non_finite_share(result) == 1 / result.size
    assert is_zero(np.zeros(size))
    assert not is_zero(np.append(np.zeros(size), 1e-300))


@pytest.mark.parametrize("size", [0, 5, 8 * CHUNK + 3, 8 * PIECE * CHUNK + 5])
def test_files_are_equal_only_if_every_byte_is(tmp_path: Path, size: int) -> None:
    one, other = tmp_path / "one.bin", tmp_path / "other.bin"
    one.write_bytes(b"\x5b" * size)
    other.write_bytes(b"\x5b" * size)
    assert same_contents(one, other)
    assert holds_only(one, 0x5B, size)
    assert not holds_only(one, 0x5B, size + 1)
    other.write_bytes(b"\x5b" * (size + 1))
    assert not same_contents(one, other)
    for place in {0, size // 2, size - 1} if size else ():
        other.write_bytes(b"\x5b" * place + b"\x00" + b"\x5b" * (size - place - 1))
        assert not same_contents(one, other)
        assert not holds_only(other, 0x5B, size)


def test_chunks_come_in_their_order_and_a_fault_in_one_is_raised() -> None:
    values = in_memory(np.arange(5 * PIECE * CHUNK))
    firsts = list(over_chunks(lambda part: int(part[0]), values))
    assert firsts == list(range(0, values.size, CHUNK))

    def refuses(part: Array) -> int:
        if part[0] > 2 * PIECE * CHUNK:
            raise OSError("gone")
        return 0

    with pytest.raises(OSError, match="gone"):
        list(over_chunks(refuses, values))
    with pytest.raises(ValueError, match="do not pair up"):
        list(over_chunks(lambda x, y: 0, values, in_memory(np.arange(3))))


def test_elements_that_differ_are_counted_from_the_first() -> None:
    right = np.arange(1.0, 2.0 * CHUNK + 1.0)
    wrong = right.copy()
    wrong[[CHUNK + 3, CHUNK + 9]] += [0.5, np.nan]
    found = differing(wrong, right, 1e-9)
    assert found == (2, CHUNK + 3, right[CHUNK + 3] + 0.5, right[CHUNK + 3])
    assert differing(right * (1.0 + 1e-10), right, 1e-9) is None


@pytest.mark.parametrize(
    ("result", "reference", "relative", "scale", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, 0.0, 0),
        ([1.0, 2.1], [1.0, 2.0], 0.0, 0.0, 1),
        ([0.001, 2.0], [0.0, 2.0], 0.01, 0.0, 1),
        ([0.001, 2.0], [0.0, 2.0], 0.01, 1.0, 0),
        ([np.nan, np.inf], [np.nan, np.inf], 0.01, 1.0, 0),
        ([np.nan, -np.inf], [0.0, np.inf], 0.01, 1.0, 2),
        ([1e308, 1.0], [-1e308, np.inf], 0.5, 1e308, 2),
        ([1e308, 1e308], [1e308, 0.6e308], 0.5, 1e308, 0),
    ],
)
def test_what_counts_as_different(
    result: list[float], reference: list[float], relative: float, scale: float, wrong: int
) -> None:
    found = differing(np.array(result), np.array(reference), relative, scale)
    assert (0 if found is None else found.elements) == wrong


def test_large_integers_are_told_apart() -> None:
    right = np.array([2**63 - 1, 5], np.int64)
    found = differing(right - np.array([1, 0]), right, 0.0)
    assert found is not None
    assert found == (1, 0, 2**63 - 2, 2**63 - 1)


@pytest.mark.parametrize("size", [1, 1000, 3 * CHUNK + 5])
def test_an_expected_scale_changes_nothing_but_the_passes(size: int) -> None:
    generator = np.random.default_rng(4)
    reference = generator.standard_normal(size)
    result = (reference * (1 + 1e-7 * generator.standard_normal(size))).astype(np.float32)
    reference[size // 2], result[size // 3] = np.inf, np.nan
    found = distance(result, reference)
    assert distance(result, reference, found.scale) == found
    assert distance(result, reference, 2.0 * found.scale + 1.0) == found


def test_a_digest_is_of_every_byte_and_of_the_size(tmp_path: Path) -> None:
    values = np.random.default_rng(8).integers(0, 256, (PIECE + 1) * CHUNK + 7).astype(np.uint8)
    one, other = tmp_path / "one", tmp_path / "other"
    values.tofile(one)
    values.tofile(other)
    assert contents_digest(one) == contents_digest(other)
    for place in (0, CHUNK, values.size - 1):
        changed = values.copy()
        changed[place] ^= 1
        changed.tofile(other)
        assert contents_digest(one) != contents_digest(other)
    values[:-1].tofile(other)
    assert contents_digest(one) != contents_digest(other)
    (tmp_path / "none").touch()
    assert contents_digest(tmp_path / "none") != contents_digest(other)
