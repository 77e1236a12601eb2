"""Elements side by side in straight-line code: one vector where that is the same, else not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.slp import Slp
from tests.transformations.bench import Case, expressions

_FLOATS = np.random.default_rng(9).random(4096, dtype=np.float32)
_PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; "
ALL = {"what": "all"}


def _made(case: Callable[..., Case], body: str, dtype: str = "float32", width: int = 16) -> Case:
    kinds = {"float32": "float", "int32": "int", "float64": "double", "uint8": "unsigned char",
             "int16": "short"}  # fmt: skip
    kind = kinds[dtype]
    x = (_FLOATS * 200).astype(dtype)
    source = f"__global__ void k(const {kind}* x, {kind}* y, int w) {{ {_PLACE}{body} }}"
    return case(source, {"x": x, "y": x[::-1].copy(), "w": width}, grid=(4,), block=(32,))


SUM = "y[i] = x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3];"
EIGHT = "int at = 8 * i; y[i] = " + " + ".join(f"x[at + {k}]" for k in range(8)) + ";"
DECLARED = "".join(f"auto v{k} = x[4 * i + {k}]; " for k in range(4)) + "y[i] = v0 * v1 + v2 * v3;"
OVER_THE_GRID = (
    "float sum = 0.f; for (int j = 4 * i; j < 2048; j += 4 * blockDim.x * gridDim.x) "
    "sum += x[j] + x[j + 1] + x[j + 2] + x[j + 3]; y[i] = sum;"
)
TAKEN = {
    "a sum": (SUM, 1),
    "declarations": (DECLARED, 1),
    "eight": (EIGHT, 2),
    "in a loop over the grid": (OVER_THE_GRID, 1),
    "pairs": ("y[i] = x[2 * i] * x[2 * i + 1];", 1),
    "twice and in another order": ("y[i] = x[2 * i + 1] - x[2 * i] * x[2 * i + 1];", 1),
    "rows": ("int at = (i % 8) * w; y[i] = x[at] + x[at + 1];", 1),
    "five": ("y[i] = x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3] + x[4 * i + 4];", 1),
    "behind a condition": ("if (i > 7) y[i] = x[2 * i] + x[2 * i + 1];", 1),
    "writes elsewhere": ("y[i] = x[2 * i]; y[i + 128] = x[2 * i + 1];", 1),
}
REFUSED = {
    "not aligned": "y[i] = x[4 * i + 1] + x[4 * i + 2];",
    "no neighbours": "y[i] = x[4 * i] + x[4 * i + 2];",
    "a step of three": "y[i] = x[3 * i] + x[3 * i + 1];",
    "rows of odd width": "int at = (i % 8) * w; y[i] = x[at] + x[at + 1];",
    "one way of a choice": "y[i] = i > 5 ? x[2 * i] : x[2 * i + 1];",
    "a case of a switch": (
        "switch (w) { case 15: y[i] = x[2 * i] + x[2 * i + 1]; break; default: y[i] = 0; }"
    ),
    "behind a test": "y[i] = x[2 * i] > 1 && x[2 * i + 1] > 1 ? 1 : 0;",
    "written between": "auto a = y[2 * i]; y[2 * i + 1] = 7; auto b = y[2 * i + 1]; y[i] = a + b;",
    "the array itself": "y[2 * i] = y[2 * i] + y[2 * i + 1];",
    "where it is moves": "int at = 2 * i; auto a = x[at]; at += 2; y[i] = a + x[at + 1];",
    "declared between": "auto b = x[2 * i + 1]; int at = 2 * i; auto a = x[at]; y[i] = a + b;",
    "a barrier between": "auto a = x[2 * i]; __syncthreads(); y[i] = a + x[2 * i + 1];",
    "a pointer that moves": "x += 2; y[i] = x[2 * i] + x[2 * i + 1];",
    "another pointer": "const auto* p = x + 2; y[i] = p[2 * i] + p[2 * i + 1];",
    "an index from memory": "int at = (int)x[i]; y[i] = x[at] + x[at + 1];",
    "a loop that steps by three": (
        "for (int j = 0; j < 30; j += 3) y[i] = x[j] + x[j + 1];"
    ),
    "a loop that begins anywhere": "for (int j = i; j < 200; j += 2) y[i] = x[j] + x[j + 1];",
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_results_stay(name: str, case: Callable[..., Case]) -> None:
    body, vectors = TAKEN[name]
    made = _made(case, body)
    draft = Slp().apply(made.draft, ALL)
    assert draft.text.count("reinterpret_cast<") == vectors
    made.same(draft)


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_leaves(name: str, case: Callable[..., Case]) -> None:
    made = _made(case, REFUSED[name], width=15)
    with pytest.raises(NotUnderstood):
        Slp().apply(made.draft, ALL)


@pytest.mark.parametrize("dtype", ["int32", "float64", "uint8", "int16"])
def test_types(dtype: str, case: Callable[..., Case]) -> None:
    made = _made(case, SUM, dtype)
    draft = Slp().apply(made.draft, ALL)
    assert draft.text.count("reinterpret_cast<") == (2 if dtype == "float64" else 1)
    made.same(draft)


def test_rows_must_be_whole_vectors(case: Callable[..., Case]) -> None:
    draft = Slp().apply(_made(case, TAKEN["rows"][0]).draft, ALL)
    assert set(expressions("w % 2 == 0", "aligned(x, 8)")) <= set(draft.requires)
