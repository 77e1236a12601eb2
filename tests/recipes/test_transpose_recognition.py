"""Which kernels are read as transposes, and which are left alone."""

# ruff: noqa: E501 - a table of kernels, one a line

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.program import Program
from cudaops.program.hygiene import check_source
from cudaops.recipes.transpose import TransposeRecipe

MakeProgram = Callable[..., Program]

_XY = """
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;"""


def _kernel(body: str, head: str = "const float* in, float* out, int w, int h") -> str:
    return f"__global__ void tr({head}) {{{body}\n}}"


def _plain(line: str = "out[x * h + y] = in[y * w + x];", head: str | None = None) -> str:
    body = f"{_XY} if (x < w && y < h) {{ {line} }}"
    return _kernel(body) if head is None else _kernel(body, head)


ACCEPTED: dict[str, str] = {
    "plain": _plain(),
    "coalesced writes": _plain("out[y * w + x] = in[x * h + y];"),
    "through a local": _plain("float v = in[y * w + x]; out[h * x + y] = v;"),
    "leading dimensions": _plain(
        "out[x * ldo + y] = in[y * ldi + x];", "const float* in, float* out, int w, int h, int ldi, int ldo"),
    "scaled": _plain("out[x*h+y] = s * in[y*w+x];", "const float* in, float* out, float s, int w, int h"),
    "a function of the element": _plain("out[x*h+y] = fmaxf(in[y*w+x], 0.0f);"),
    "bytes": _plain(head="const unsigned char* in, unsigned char* out, int w, int h"),
    "shorts": _plain(head="const short* in, short* out, int w, int h"),
    "halves": "#include <cuda_fp16.h>\n" + _plain(head="const half* in, half* out, int w, int h"),
    "doubles": _plain(head="const double* in, double* out, int w, int h"),
    "float4": _plain(head="const float4* in, float4* out, int w, int h"),
    "square": _plain("out[x * w + y] = in[y * w + x];", "const float* in, float* out, int w, int h"),
    "converted": _plain(head="const float* in, double* out, int w, int h"),
    "flat": _kernel(
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < w * h) out[(i % w) * h + i / w] = in[i];"),
    "batched": _kernel(
        _XY + "int b = blockIdx.z; if (x < w && y < h) out[b*w*h + x*h + y] = in[b*w*h + y*w + x];"),
    "no guard": _kernel(_XY + "out[x * h + y] = in[y * w + x];"),
    "early return": _kernel(_XY + "if (x >= w || y >= h) return; out[x * h + y] = in[y * w + x];"),
}  # fmt: skip

REFUSED: dict[str, str] = {
    "copy": _plain("out[y * w + x] = in[y * w + x];"),
    "in place": _plain("in[x * h + y] = in[y * w + x];", "float* in, float* out, int w, int h"),
    "swap": _plain("float t = out[x*h+y]; out[x*h+y] = in[y*w+x]; in[y*w+x] = t;",
        "float* in, float* out, int w, int h"),
    "two elements": _plain("out[x * h + y] = in[y * w + x] + in[y * w + x + 1];"),
    "added to": _plain("out[x * h + y] += in[y * w + x];"),
    "gather": _plain("out[x * h + y] = in[idx[y] * w + x];", "const float* in, float* out, const int* idx, int w, int h"),
    "reversed": _plain("out[x * h + y] = in[y * w + (w - 1 - x)];"),
    "strided": _plain("out[x * h + y] = in[y * w + 2 * x];"),
    "guard on the data": _kernel(_XY + "if (x < w && y < h && in[x] > 0) out[x * h + y] = in[y * w + x];"),
    "upper triangle": _kernel(_XY + "if (x < w && y < h && x < y) out[x * h + y] = in[y * w + x];"),
    "a reduction": _plain("float s = 0; for (int k = 0; k < w; ++k) s += in[y * w + k]; out[x * h + y] = s;"),
    "structures": "struct P { float a[5]; };\n" + _plain(head="const P* in, P* out, int w, int h"),
    "looks at the thread": _plain("out[x * h + y] = in[y * w + x] * threadIdx.x;"),
    "every batch to one place": _kernel(
        _XY + "if (x < w && y < h) out[x * h + y] = in[blockIdx.z * w * h + y * w + x];"),
    "already tiled": _kernel("__shared__ float t[32][33];" + _XY
        + "t[threadIdx.y][threadIdx.x] = in[y*w+x]; __syncthreads(); out[x*h+y] = t[threadIdx.x][threadIdx.y];"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_recognises(name: str, program_of: MakeProgram) -> None:
    program = program_of(ACCEPTED[name])
    (rewrite,) = TransposeRecipe().propose(program, program.kernel("tr"), (), None)
    assert rewrite.plan.launches[0].block == ("CUDAOPS_TILE", "CUDAOPS_ROWS")
    assert check_source(rewrite.source) == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, program_of: MakeProgram) -> None:
    program = program_of(REFUSED[name])
    assert TransposeRecipe().propose(program, program.kernel("tr"), (), None) == ()


def test_requires_that_no_element_is_written_twice(program_of: MakeProgram) -> None:
    program = program_of(ACCEPTED["leading dimensions"])
    (rewrite,) = TransposeRecipe().propose(program, program.kernel("tr"), (), None)
    assert "ldo >= h" in rewrite.plan.requires


def test_tiles_that_do_not_fit_are_refused(program_of: MakeProgram) -> None:
    program = program_of(ACCEPTED["float4"])
    (rewrite,) = TransposeRecipe().propose(program, program.kernel("tr"), (), None)
    recipe = TransposeRecipe()
    assert recipe.refusal(rewrite) is None
    assert "bytes of shared memory" in str(recipe.refusal(rewrite.tuned_with({"CUDAOPS_TILE": 64})))
    assert recipe.refusal(rewrite.tuned_with({"CUDAOPS_TILE": 16, "CUDAOPS_ROWS": 32}))
