"""nvcc's word on what recipes write: it compiles, spills nothing, and loads wide."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.recipes.matmul import NAMES, MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe

MakeProgram = Callable[..., Program]

pytestmark = [pytest.mark.nvcc]

_MATMUL = """
__global__ void mm(const {t}* A, const {t}* B, {t}* C, int M, int N, int K) {{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    {t} acc = 0;
    for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[{b}];
    C[row * N + col] = acc;
}}"""
_TRANSPOSE = """
__global__ void tr(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[x * h + y] = in[y * w + x];
}"""


def _nvcc(rewrite: Rewrite, folder: Path, *options: str) -> str:
    """Standard error of nvcc; fails where it does not compile."""
    defines = "".join(f"#define {n} {v}\n" for n, v in rewrite.values().items())
    (folder / "candidate.cu").write_text(defines + rewrite.source)
    command = [str(find_nvcc()), "-O3", "-arch=sm_86", "-Werror", "all-warnings", *options]
    done = subprocess.run(
        [*command, "-o", "out", "candidate.cu"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("kind", "right"),
    [("float", "k * N + col"), ("float", "col * K + k"), ("double", "k * N + col")],
)
def test_every_matmul_seed_compiles_and_spills_nothing(
    kind: str, right: str, program_of: MakeProgram, tmp_path: Path
) -> None:
    program = program_of(_MATMUL.format(t=kind, b=right))
    recipe = MatmulRecipe()
    (rewrite,) = recipe.propose(program, program.kernel("mm"), (), None)
    tried = 0
    for values in recipe.seeds(rewrite):
        tuned = rewrite.tuned_with(dict(values))
        if recipe.refusal(tuned) is None:
            report = _nvcc(tuned, tmp_path, "-cubin", "-Xptxas", "-v")
            assert " 0 bytes spill stores" in report, (values, report)
            tried += 1
    assert tried >= 4


def test_matmul_loads_sixteen_bytes_at_once(program_of: MakeProgram, tmp_path: Path) -> None:
    program = program_of(_MATMUL.format(t="float", b="k * N + col"))
    (rewrite,) = MatmulRecipe().propose(program, program.kernel("mm"), (), None)
    rewrite = rewrite.tuned_with(dict(zip(NAMES, (128, 64, 16, 8, 8, 2), strict=True)))
    _nvcc(rewrite, tmp_path, "-ptx")
    text = (tmp_path / "out").read_text()
    loads, steps, rows = 2 + 1, 8, 8
    """Of A and B a round; in a round by one group; of outputs that a thread has."""
    assert len(re.findall(r"ld\.global\.nc\.v4\.f32", text)) == 2 * loads, (
        "before the loop and in it"
    )
    assert len(re.findall(r"ld\.shared\.v4\.f32", text)) == 4 * (steps + 1)
    assert len(re.findall(r"fma\.rn\.f32", text)) == 64 * steps
    assert len(re.findall(r"bar\.sync", text)) == 2 + 1 + rows, "the last to add up the groups"


def test_transpose_compiles(program_of: MakeProgram, tmp_path: Path) -> None:
    program = program_of(_TRANSPOSE)
    recipe = TransposeRecipe()
    (rewrite,) = recipe.propose(program, program.kernel("tr"), (), None)
    for values in recipe.seeds(rewrite):
        _nvcc(rewrite.tuned_with(dict(values)), tmp_path, "-cubin")
