"""Bilinear schemes: their proof, which kernels are read as convolutions, what the rewrites
compute, and how much rounding error they add."""

# ruff: noqa: E501 - a table of kernels, one a line

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.hygiene import check_source
from cudaops.recipes.convolution import ConvolutionRecipe
from cudaops.recipes.registry import propose
from cudaops.recipes.schemes import SCHEMES, Scheme, proved
from tests.recipes.bench import Array, Bench, workload_of

MakeProgram = Callable[..., Program]

_XY = """
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z;"""
_SIGNATURE = "const {t}* in, const {t}* w, {t}* out, int C, int H, int W, int OH, int OW"
_DATA, _TAPS = "in[(c * H + y + r) * W + x + s]", "w[((k * C + c) * 3 + r) * 3 + s]"
_OUT = "out[(k * OH + y) * OW + x]"


def _conv(
    term: str = f"{_DATA} * {_TAPS}", store: str = f"{_OUT} = acc;", t: str = "float",
    counts: tuple[str, str, str] = ("C", "3", "3"), head: str = _SIGNATURE,
) -> str:  # fmt: skip
    c, r, s = counts
    return f"""
__global__ void conv({head.format(t=t)}) {{{_XY}
    if (x >= OW || y >= OH) return;
    {t} acc = 0;
    for (int c = 0; c < {c}; ++c)
        for (int r = 0; r < {r}; ++r)
            for (int s = 0; s < {s}; ++s) acc += {term};
    {store}
}}"""


_LINE = """
__global__ void conv(const float* in, const float* w, float* out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < n) { float acc = 0; for (int s = 0; s < 3; ++s) acc += in[x + s] * w[s]; out[x] = acc; }
}"""
ACCEPTED: dict[str, str] = {
    "a 3 x 3 convolution over channels": _conv(),
    "doubles": _conv(t="double"),
    "factors in the other order": _conv(f"{_TAPS} * {_DATA}"),
    "two rows of three taps": _conv(counts=("C", "2", "3")),
    "a filter turned round": _conv(f"{_DATA} * w[((k * C + c) * 3 + r) * 3 - s + 2]"),
    "with a bias and an activation": _conv(store=f"{_OUT} = fmaxf(acc + b[k], 0.0f);", head=_SIGNATURE + ", const float* b"),
    "one row": _LINE,
}  # fmt: skip
REFUSED: dict[str, str] = {
    "whole numbers": _conv(t="int"),
    "five taps": _conv(counts=("C", "3", "5")),
    "taps of an unknown number": _conv(counts=("C", "3", "S"), head=_SIGNATURE + ", int S"),
    "every second element": _conv(f"in[(c * H + y + r) * W + 2 * x + s] * {_TAPS}"),
    "dilated": _conv(f"in[(c * H + y + r) * W + x + 2 * s] * {_TAPS}"),
    "a true convolution": _conv(f"in[(c * H + y + r) * W + x - s + 2] * {_TAPS}"),
    "in place": _conv(f"out[(c * H + y + r) * W + x + s] * {_TAPS}"),
    "a product of three": _conv(f"{_DATA} * {_TAPS} * {_TAPS}"),
    "a sum of squares": _conv(f"{_DATA} * {_DATA}"),
    "taps that differ along the row": _conv(f"{_DATA} * w[x * 3 + s]"),
    "added to the output": _conv(store=f"{_OUT} += acc;"),
    "a wider sum": _conv().replace("float acc", "double acc"),
    "a sum that starts elsewhere": _conv().replace("acc = 0", "acc = in[0]"),
}  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_a_scheme_is_the_convolution_on_random_integers(scheme: Scheme) -> None:
    """Beside the proof on unit vectors, by the definition and Python's integers."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        d = [int(x) for x in rng.integers(-(10**9), 10**9, len(scheme.data[0]))]
        g = [int(x) for x in rng.integers(-(10**9), 10**9, len(scheme.taps[0]))]
        p = [
            sum(a * x for a, x in zip(u, d, strict=True)) * sum(a * x for a, x in zip(v, g, strict=True))
            for u, v in zip(scheme.data, scheme.taps, strict=True)
        ]  # fmt: skip
        found = [
            Fraction(sum(a * x for a, x in zip(w, p, strict=True)), scheme.denominator)
            for w in scheme.out
        ]
        assert found == [sum(d[i + k] * t for k, t in enumerate(g)) for i in range(len(found))]


@pytest.mark.parametrize("part", ["data", "taps", "out"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_one_wrong_coefficient_is_not_proved(scheme: Scheme, part: str) -> None:
    matrix = getattr(scheme, part)
    for i, row in enumerate(matrix):
        for j in range(len(row)):
            wrong = [list(r) for r in matrix]
            wrong[i][j] += 1
            changed: dict[str, Any] = {part: tuple(map(tuple, wrong))}
            with pytest.raises(ValueError, match=r"F\(\d,3\) does not compute a convolution"):
                proved(replace(scheme, **changed))


def test_products_and_growth() -> None:
    """4 and 6 products for 6 and 12. Growth by hand for the first output of F(2,3): its products
    have sums of 2 * 1, 2 * 3 and 2 * 3 terms, weighted 2, 1, 1 over 2: 8 against 3."""
    assert [(s.name, s.products, s.growth) for s in SCHEMES] == [
        ("F(2,3)", 4, Fraction(8, 3)), ("F(4,3)", 6, Fraction(16)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_recognises(name: str, program_of: MakeProgram) -> None:
    program = program_of(ACCEPTED[name])
    found = ConvolutionRecipe().propose(program, program.kernel("conv"), (), None)
    assert [r.title[-6:] for r in found] == ["F(2,3)", "F(4,3)"]
    assert all(check_source(r.source) == () for r in found)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, program_of: MakeProgram) -> None:
    program = program_of(REFUSED[name])
    assert ConvolutionRecipe().propose(program, program.kernel("conv"), (), None) == ()


def test_a_number_of_taps_that_every_launch_passes(
    program_of: MakeProgram, launch_of: Callable[..., Workload]
) -> None:
    program = program_of(REFUSED["taps of an unknown number"])
    kernel, recipe = program.kernel("conv"), ConvolutionRecipe()
    three, five = launch_of("conv", "in w out", S=3), launch_of("conv", "in w out", S=5)
    rewrite, _ = recipe.propose(program, kernel, (three,), None)
    assert "S == 3" in rewrite.plan.requires
    assert recipe.propose(program, kernel, (three, five), None) == ()


def test_is_offered_only_where_the_user_allows_it(program_of: MakeProgram) -> None:
    program = program_of(_conv())
    kernel = program.kernel("conv")
    assert propose(program, kernel, (), None) == ()
    allowed = propose(program, kernel, (), None, allow_reassociation=True)
    assert [r.proposer for r in allowed] == ["recipe:convolution"] * 2


@pytest.fixture(scope="module")
def executor(kernels: Path) -> CpuExecutor:
    return CpuExecutor("A10", kernels, workers=2)


def _outputs(bench: Bench, folder: Path, which: int, arguments: dict[str, Array | int]) -> Array:
    """`out` after the scheme's rewrite ran, every access checked."""
    out = arguments["out"]
    assert isinstance(out, np.ndarray)
    grid = ((out.shape[2] + 15) // 16, (out.shape[1] + 15) // 16, out.shape[0])
    workload = workload_of(folder / "w", "conv", grid, (16, 16, 1), arguments)
    rewrites = ConvolutionRecipe().propose(bench.program, bench.kernel, (workload,), None)
    rewrite: Rewrite = rewrites[which].tuned_with({"CUDAOPS_BLOCK": 32})
    outcome = bench.run(rewrite, workload)
    assert not getattr(outcome, "warnings", ("no run",)), outcome
    return np.fromfile(outcome.outputs[2], dtype=out.dtype).reshape(out.shape)  # type: ignore[union-attr]


@pytest.mark.parametrize("which", [0, 1], ids=[s.name for s in SCHEMES])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 131])
def test_whole_numbers_come_out_exactly_at_every_edge(
    which: int, width: int, executor: CpuExecutor, tmp_path: Path, program_of: MakeProgram
) -> None:
    bench = Bench(executor, tmp_path, program_of(_conv()), "conv")
    rng = np.random.default_rng(width)
    C, K, height = 2, 3, 5
    data = rng.integers(-9, 9, (C, height + 2, width + 2)).astype(np.float32)
    taps = rng.integers(-9, 9, (K, C, 3, 3)).astype(np.float32)
    out = np.full((K, height, width), -1, np.float32)
    found = _outputs(bench, tmp_path, which, {
        "in": data, "w": taps, "out": out, "C": C, "H": height + 2, "W": width + 2,
        "OH": height, "OW": width,
    })  # fmt: skip
    np.testing.assert_array_equal(found, _convolved(data, taps))


def _convolved(data: Array, taps: Array) -> Array:
    """By the definition, in doubles."""
    height, width = data.shape[1] - 2, data.shape[2] - 2
    total = np.zeros((len(taps), height, width))
    for r in range(3):
        for s in range(3):
            part = data[:, r : r + height, s : s + width].astype(np.float64)
            total += np.einsum("chw,kc->khw", part, taps[:, :, r, s].astype(np.float64))
    return total


@pytest.mark.parametrize("which", [0, 1], ids=[s.name for s in SCHEMES])
def test_the_rounding_error_stays_within_the_schemes_growth(
    which: int, executor: CpuExecutor, tmp_path: Path, program_of: MakeProgram
) -> None:
    bench = Bench(executor, tmp_path, program_of(_conv()), "conv")
    rng = np.random.default_rng(7)
    C, K, side = 16, 2, 32
    data = rng.standard_normal((C, side + 2, side + 2)).astype(np.float32)
    taps = rng.standard_normal((K, C, 3, 3)).astype(np.float32)
    out = np.zeros((K, side, side), np.float32)
    found = _outputs(bench, tmp_path, which, {
        "in": data, "w": taps, "out": out, "C": C, "H": side + 2, "W": side + 2,
        "OH": side, "OW": side,
    })  # fmt: skip
    iterations, largest = 3 * C, np.abs(data).max() * np.abs(taps).max()
    roundings = iterations + 12  # one an iteration; sums of data, taps and products; the division
    bound = roundings * 2.0**-24 * 3 * iterations * largest
    error = np.abs(found - _convolved(data, taps)).max()
    assert 0 < error < float(SCHEMES[which].growth) * bound
