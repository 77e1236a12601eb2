"""Adjacent elements as vectors: what is aligned and apart, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.domain.workload import PointerArgument
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.coarsen import Coarsen
from cudaops.transformations.vectorise import Vectorise
from tests.transformations.bench import Case, expression

_N = 512
_FLOATS = np.random.default_rng(8).random(4 * _N, dtype=np.float32)
_PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x; "


def _kernel(body: str, kind: str = "float") -> str:
    return f"__global__ void k(const {kind}* x, {kind}* y, int w) {{ {_PLACE}{body} }}"


def _made(case: Callable[..., Case], body: str, dtype: str = "float32", width: int = 16) -> Case:
    kinds = {"float32": "float", "int32": "int", "float64": "double", "uint8": "unsigned char",
             "int16": "short", "uint32": "unsigned"}  # fmt: skip
    x = (_FLOATS * 200).astype(dtype)
    return case(
        _kernel(body, kinds[dtype]), {"x": x, "y": x[::-1].copy(), "w": width},
        grid=(4,), block=(32,),
    )  # fmt: skip


COPIES = "for (int k = 0; k < 4; ++k) { y[i * 4 + k] = x[i * 4 + k] + k; }"
LOADS = (
    "float v[4]; for (int k = 0; k < 4; ++k) v[k] = x[4 * i + k]; y[i] = v[0] * v[1] + v[2] * v[3];"
)
ROWS = "for (int k = 0; k < 2; ++k) { int at = (i % 8) * w + 2 * (i / 8) + k; y[at] = x[at]; }"
OWN = "for (int k = 0; k < 4; ++k) { y[i * 4 + k] = y[i * 4 + k] * 2 + x[k]; }"
STEPS = (
    "for (int k = 0; k < 4; ++k) { float r; r = x[4 * i + k]; r = r * 2.f; r = r + 1.f; "
    "y[4 * i + k] = r; }"
)
LONG = "for (int k = 0; k < 8; ++k) { y[i * 8 + k] = 3 * x[i * 8 + k]; }"


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "uint8", "int16", "uint32"])
def test_types(dtype: str, case: Callable[..., Case]) -> None:
    made = _made(case, COPIES, dtype)
    draft = Vectorise().apply(made.draft, {"what": "all"})
    assert "reinterpret_cast<" in draft.text
    made.same(draft)


@pytest.mark.parametrize("body", [LOADS, ROWS, OWN, LONG, STEPS])
def test_results_stay(body: str, case: Callable[..., Case]) -> None:
    made = _made(case, body)
    draft = Vectorise().apply(made.draft, {"what": "all"})
    assert "reinterpret_cast<" in draft.text
    made.same(draft)


def test_a_row_must_be_whole_vectors(case: Callable[..., Case]) -> None:
    draft = Vectorise().apply(_made(case, ROWS).draft, {"what": "all"})
    assert expression("w % 2 == 0") in draft.requires


def test_arrays_must_begin_at_a_whole_vector_wherever_the_kernel_is_launched(
    case: Callable[..., Case],
) -> None:
    draft = Vectorise().apply(_made(case, COPIES).draft, {"what": "all"})
    assert expression("aligned(y, 16)") in draft.requires


def test_neighbours_become_vectors(case: Callable[..., Case]) -> None:
    source = (
        "__global__ void k(const float* x, float* y, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
        " float mine = x[i]; y[i] = mine / (1.f + mine); }"
    )
    made = case(source, {"x": _FLOATS, "y": _FLOATS * 0, "n": 2048}, grid=(16,), block=(128,))
    wide = Coarsen().apply(made.draft, {"factor": 4, "by": "neighbours", "axis": "x"})
    draft = Vectorise().apply(wide, {"what": "all"})
    assert draft.text.count("float4*>") == 2
    made.same(draft)


@pytest.mark.parametrize(
    "body",
    [
        "for (int k = 0; k < 4; ++k) y[i * 4 + k + 1] = x[i];",  # not aligned
        "for (int k = 0; k < 4; ++k) y[i * 3 + k] = x[i];",
        "for (int k = 0; k < 4; ++k) y[i + 128 * k] = x[i];",  # not adjacent
        "for (int k = 0; k < 4; ++k) y[i * 4 + 3 - k] = x[i];",
        "for (int k = 0; k < 3; ++k) y[i * 4 + k] = x[i];",
        "for (int k = 0; k < 4; ++k) if (k < w) y[i * 4 + k] = x[i];",
        "for (int k = 0; k < 4; ++k) y[i * 4 + k] = i > 0 ? y[i * 4 + k - 1] : 0.f;",  # a chain
        "for (int k = 0; k < 4; ++k) { y[i * 4 + k] = x[i]; y[i * 4 + k + 4] = 1.f; }",
        "for (int k = 0; k < 4; ++k) y[i * 4 + k] += x[i];",
        "y += 1; for (int k = 0; k < 4; ++k) y[i * 4 + k] = x[i];",
        "for (int k = 0; k < 4; ++k) atomicAdd(&y[i * 4 + k], x[i]);",
        "float v[4]; for (int k = 0; k < 4; ++k) { v[k] = 2.f; v[k] = x[i * 4 + k]; }",
        "float v[8]; for (int k = 0; k < 4; ++k) { v[k] = x[4 * i + k]; } y[i] = v[w % 4];",
        "const float* p = y + 4; for (int k = 0; k < 4; ++k) y[i * 4 + k] = p[k];",
        "volatile float* p = y; for (int k = 0; k < 4; ++k) p[i * 4 + k] = x[i];",
        "for (int k = 0; k < 4; ++k) y[i * w + k] = x[i];",  # w is 15
        "for (int k = 0; k < 4; ++k) { int j = (int)x[k]; y[4 * j + k] = 1.f; }",
        "for (int k = 0; k < 4; ++k) { int j = k; j = j * w % 3; y[4 * j + k] = 1.f; }",
        "int j = 0; for (int k = 0; k < 4; ++k) { y[4 * j + k] = 1.f; j = k; }",
    ],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = _made(case, body, width=15)
    with pytest.raises(NotUnderstood):
        Vectorise().apply(made.draft, {"what": "all"})


def test_an_array_that_begins_in_between(case: Callable[..., Case]) -> None:
    made = _made(case, COPIES)
    moved = tuple(
        a.model_copy(update={"offset_bytes": 4}) if isinstance(a, PointerArgument) else a
        for a in made.workload.arguments
    )
    subject = made.subject
    object.__setattr__(
        subject, "workloads", (made.workload.model_copy(update={"arguments": moved}),)
    )
    with pytest.raises(NotUnderstood):
        Vectorise().apply(made.draft, {"what": "all"})


def test_arrays_of_one_allocation(case: Callable[..., Case]) -> None:
    made = _made(case, COPIES)
    shared = tuple(
        a.model_copy(update={"allocation": 0}) if isinstance(a, PointerArgument) else a
        for a in made.workload.arguments
    )
    object.__setattr__(
        made.subject, "workloads", (made.workload.model_copy(update={"arguments": shared}),)
    )
    with pytest.raises(NotUnderstood):
        Vectorise().apply(made.draft, {"what": "all"})
