"""What is refused when nothing was allowed, and what each allowed precision allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.judgement import Policy
from cudaops.domain.options import Precision
from cudaops.domain.workload import Allocation, Element, Workload
from cudaops.executors.arrays import Array, in_memory
from cudaops.executors.base import InputSet
from cudaops.gates.accuracy import BufferAccuracy, compare_sides, compare_sides_exactly
from cudaops.gates.tolerance import Sides
from cudaops.sandbox.precision import unfit_inputs
from tests.gates.precision_table import INPUTS, WAYS, Product, narrow, product, relative_l2

POLICIES: dict[str, Policy] = {
    "none": Policy(),
    "tf32": Policy(allow_precision="tf32"),
    "fp16": Policy(allow_precision="fp16"),
    "bf16": Policy(allow_precision="bf16"),
}

AS_EXACT = ("fp32, one sum after the other", "fp32, another order")
AS_TF32 = ("tf32 or fp16 operands", "tf32 operands, truncated", "one operand tf32")
AS_BF16 = ("bf16 operands", "one operand bf16")
AS_E4M3 = ("e4m3 operands (mantissa only)",)


def held(
    result: Array,
    baseline: Array,
    wide: Array | None,
    allowed: str = "none",
    element: Element = "f32",
) -> BufferAccuracy:
    yardstick = None if wide is None else in_memory(wide)
    sides = Sides(in_memory(result), in_memory(baseline), yardstick, "not made")
    return compare_sides(sides, element, "C", POLICIES[allowed])


def held_product(p: Product, way: str, allowed: str, yardstick: bool = True) -> BufferAccuracy:
    return held(WAYS[way](p), p.baseline, p.wide if yardstick else None, allowed)


@pytest.fixture(scope="module", params=[256, 4096])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("yardstick", [True, False])
@pytest.mark.parametrize("inputs", list(INPUTS))
def test_with_nothing_allowed_only_fp32_passes(depth: int, inputs: str, yardstick: bool) -> None:
    p = product(inputs, depth, side=32)
    for way in WAYS:
        found = held_product(p, way, "none", yardstick)
        expected = way in AS_EXACT
        # Without a yardstick 64 roundoffs are allowed, which products of one sign can hide in:
        # the signed inputs are there for that.
        if inputs != "uniform" or yardstick or expected:
            assert found.passed == expected, (way, found.summary)


@pytest.mark.parametrize(
    ("allowed", "passing", "refused"),
    [
        ("tf32", AS_EXACT + AS_TF32, AS_BF16 + AS_E4M3),
        ("fp16", AS_EXACT + AS_TF32, AS_BF16 + AS_E4M3),
        ("bf16", AS_EXACT + AS_TF32 + AS_BF16, AS_E4M3),
    ],
)
def test_what_an_allowed_precision_lets_through(
    depth: int, allowed: str, passing: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    for inputs in INPUTS:
        p = product(inputs, depth, side=32)
        for way in passing:
            found = held_product(p, way, allowed)
            assert found.passed, (inputs, way, found.summary)
        for way in refused if inputs != "uniform" else ():
            found = held_product(p, way, allowed)
            assert not found.passed, (inputs, way, found.summary)


def test_sums_kept_in_fp16_are_not_fp16_used_well() -> None:
    for inputs in INPUTS:
        p = product(inputs, 4096, side=32)
        assert not held_product(p, "fp16 operands and sums", "fp16").passed, inputs


def test_the_allowance_stands_in_the_record() -> None:
    p = product("randn", 256)
    found = held_product(p, "tf32 or fp16 operands", "tf32")
    assert "with tf32 allowed by the user" in found.summary
    assert found.numbers["C_relative_l2_bound"] == pytest.approx(2.0 * 2.0**-11)
    assert found.numbers["C_relative_l2"] > found.numbers["C_relative_l2_bound_strict"]
    assert "allowed by the user" not in held_product(p, "fp32, another order", "none").summary


SHAPES: dict[str, Callable[[Array], Array]] = {
    "sum": lambda x: x.sum(axis=1),
    "transpose": lambda x: x.T,
    "softmax": lambda x: (
        (e := np.exp(x - x.max(axis=1, keepdims=True))) / e.sum(axis=1, keepdims=True)
    ),
}


@pytest.mark.parametrize(
    ("shape", "inputs"),
    # exp(0.02 x) is nearly constant and does not show how exact x is.
    [("sum", "randn"), ("sum", "0.02 randn"), ("transpose", "randn"), ("softmax", "randn")],
)
def test_sums_transposes_and_softmax(shape: str, inputs: str) -> None:
    compute = SHAPES[shape]
    x = INPUTS[inputs](np.random.default_rng(3), (256, 512)).astype(np.float32)
    wide = compute(x.astype(np.float64))
    baseline = compute(x).astype(np.float32)
    accepted: dict[str, tuple[str, ...]] = {
        "none": (), "tf32": ("tf32", "fp16"), "fp16": ("tf32", "fp16"),
        "bf16": ("tf32", "fp16", "bf16"),
    }  # fmt: skip
    for kind in ("tf32", "fp16", "bf16", "e4m3"):
        result = compute(narrow(x, kind)).astype(np.float32)
        for allowed, kinds in accepted.items():
            found = held(result, baseline, wide, allowed)
            assert found.passed == (kind in kinds), (kind, allowed, found.summary)


def test_one_element_may_not_hide_behind_the_allowance() -> None:
    p = product("randn", 256)
    for allowed in POLICIES:
        spoilt = p.baseline.copy()
        spoilt[5, 5] += 0.1 * float(np.sqrt((p.wide**2).mean()))
        assert not held(spoilt, p.baseline, p.wide, allowed).passed


def test_integers_are_never_loosened() -> None:
    counts = np.arange(1000, dtype=np.int32)
    off = counts.copy()
    off[7] += 1
    for allowed in POLICIES:
        assert held(counts, counts, None, allowed, "i32").passed
        assert not held(off, counts, None, allowed, "i32").passed


def exactly(result: Array, baseline: Array, allowed: str) -> BufferAccuracy:
    sides = Sides(in_memory(result), in_memory(baseline), None, "not made")
    return compare_sides_exactly(sides, "f32", "C", POLICIES[allowed])


@pytest.mark.parametrize("allowed", ["tf32", "fp16", "bf16"])
def test_exact_results_stay_exact_under_an_allowance(allowed: str) -> None:
    generator = np.random.default_rng(2)
    a = generator.integers(-3, 4, (64, 1024)).astype(np.float32)
    b = generator.integers(-3, 4, (1024, 64)).astype(np.float32)
    baseline = a @ b
    kind = allowed
    assert np.array_equal(narrow(a, kind) @ narrow(b, kind), baseline)
    assert exactly(baseline, baseline, allowed).passed
    skipped = a[:, :-1] @ b[:-1]
    assert not exactly(skipped, baseline, allowed).passed
    assert relative_l2(skipped, baseline) > 0.01


def test_beyond_the_exact_range_of_the_type_one_rounding_is_allowed() -> None:
    baseline = np.arange(4000, dtype=np.float32)
    once = narrow(baseline, "bf16")
    assert exactly(once, baseline, "bf16").passed
    assert "allowed beyond 256" in exactly(once, baseline, "bf16").summary
    assert not exactly(once, baseline, "tf32").passed
    assert not exactly(once, baseline, "none").passed
    off = baseline.copy()
    off[200] += 1.0
    assert not exactly(off, baseline, "bf16").passed


def test_what_overflows_fp16_is_refused_under_fp16() -> None:
    wide = np.array([1.0, 70000.0, -3.0])
    baseline = wide.astype(np.float32)
    with np.errstate(over="ignore"):
        result = narrow(baseline, "fp16")
    found = held(result, baseline, wide, "fp16")
    assert not found.passed
    assert found.numbers["C_non_finite_mismatches"] == 1


def inputs_of(folder: Path, values: Array) -> tuple[Workload, InputSet]:
    path = folder / "a.bin"
    values.astype("<f4").tofile(path)
    allocation = Allocation(
        index=0, size_bytes=4 * values.size, element="f32", role="in", before="a.bin", after="a.bin"
    )
    workload = Workload(
        id="w0", kernel="k", callee="k", site=0, grid=Dim3(), block=Dim3(), arguments=(),
        allocations=(allocation,), folder=str(folder),
    )  # fmt: skip
    return workload, InputSet(contents={0: str(path)})


@pytest.mark.parametrize(
    ("scale", "allowed", "words"),
    [
        (1.0, "fp16", None),
        (2.0**40, "fp16", "overflow fp16"),
        (2.0**-40, "fp16", "vanish in fp16"),
        (2.0**40, "bf16", None),
        (2.0**-40, "tf32", None),
        (2.0**40, None, None),
    ],
)
def test_input_sets_outside_the_range_of_fp16_say_nothing_of_it(
    tmp_path: Path, scale: float, allowed: Precision | None, words: str | None
) -> None:
    values = scale * np.random.default_rng(1).standard_normal(5000)
    values[::7] = 0.0
    workload, inputs = inputs_of(tmp_path, values)
    problem = unfit_inputs(workload, inputs, Policy(allow_precision=allowed))
    assert (problem is None) if words is None else (problem is not None and words in problem)


@pytest.mark.parametrize("inputs", ["randn", "uniform"])
def test_sixteen_bits_of_storage_do_not_hide_eight(inputs: str) -> None:
    """A product of halves summed in float, stored as half: what drops bits shows all the same."""
    p = product(inputs, 256, side=32)
    a, b = p.a.astype(np.float16), p.b.astype(np.float16)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    baseline = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)

    def judged(result: Array) -> bool:
        return held(result.astype(np.float16), baseline, wide, element="f16").passed

    halves = [a[:, i::2].astype(np.float32) @ b[i::2].astype(np.float32) for i in (0, 1)]
    assert judged(halves[0] + halves[1])
    # Each half of the terms rounded to half, and then their sum: two roundings more.
    assert judged(halves[0].astype(np.float16) + halves[1].astype(np.float16))
    assert not judged(narrow(baseline.astype(np.float32), "bf16"))
    if inputs == "randn":
        assert not judged(narrow(a, "bf16") @ narrow(b, "bf16"))
