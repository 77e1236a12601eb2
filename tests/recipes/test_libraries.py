"""Which library does a kernel's whole job: named for what was understood, and for nothing more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.program import SourceFile
from cudaops.program.parse import parse_files
from cudaops.recipes.libraries import library_for
from tests.recipes.bench import workload_of

FLAT = "int i = blockIdx.x * blockDim.x + threadIdx.x; "
ROW = "int row = blockIdx.x * blockDim.x + threadIdx.x; if (row >= n) return; "
FLOATS = "__global__ void k(const float* a, const float* b, float* c, int n, float f) { BODY }"
WORDS = "__global__ void k(const int* a, int* c, int n) { BODY }"
PRODUCT = (
    "int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;"
    "if (row >= n || col >= n) return; float s = 0.0f;"
    "for (int k = 0; k < n; ++k) s += a[row * n + k] * b[k * n + col]; c[row * n + col] = VALUE;"
)
SWAP = (
    "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
    "if (x < n && y < n) c[x * n + y] = VALUE;"
)
SUM = ROW + "float s = 0.0f; for (int k = 0; k < n; ++k) s += TERM; c[row] = s;"

NAMED = [
    ("gemm", FLOATS, PRODUCT.replace("VALUE", "s"), "cublasSgemm of cuBLAS"),
    ("scaled", FLOATS, PRODUCT.replace("VALUE", "f * s + 2.0f * c[row * n + col]"), "cublasSgemm"),
    ("double", FLOATS.replace("float", "double"),
     PRODUCT.replace("float", "double").replace("0.0f", "0.0").replace("VALUE", "s"),
     "cublasDgemm"),
    ("transpose", FLOATS, SWAP.replace("VALUE", "a[y * n + x]"), "cublasSgeam"),
    ("matrix times vector", FLOATS, SUM.replace("TERM", "a[row * n + k] * b[k]"), "cublasSgemv"),
    ("sums of rows", FLOATS, SUM.replace("TERM", "a[row * n + k]"), "cub::DeviceSegmentedReduce"),
    ("sum", WORDS, FLAT + "if (i < n) atomicAdd(c, a[i]);", "cub::DeviceReduce::Sum"),
    ("histogram", WORDS, FLAT + "if (i < n) atomicAdd(&c[a[i]], 1);", "cub::DeviceHistogram"),
    ("a loop's histogram", WORDS,
     FLAT + "for (; i < n; i += blockDim.x * gridDim.x) atomicAdd(&c[a[i]], 1);",
     "cub::DeviceHistogram"),
]  # fmt: skip
NOT_NAMED = [
    ("a product and more", FLOATS, PRODUCT.replace("VALUE", "s > 0 ? s : 0")),
    ("a product of products", FLOATS, PRODUCT.replace("VALUE", "s * c[row * n + col]")),
    ("a scaled transpose", FLOATS, SWAP.replace("VALUE", "f * a[y * n + x]")),
    ("sums of squares", FLOATS, SUM.replace("TERM", "a[row * n + k] * a[row * n + k]")),
    ("sums of what is written", FLOATS, SUM.replace("TERM", "c[row * n + k]")),
    ("a triangle", FLOATS, SUM.replace("k < n", "k < row").replace("TERM", "a[row * n + k]")),
    ("a sum of some", WORDS, FLAT + "if (i < n && a[i] > 3) atomicAdd(c, a[i]);"),
    ("a sum of every other", WORDS, FLAT + "if (2 * i < n) atomicAdd(c, a[2 * i]);"),
    ("a sum of squares", WORDS, FLAT + "if (i < n) atomicAdd(c, a[i] * a[i]);"),
    ("a histogram of halves", WORDS, FLAT + "if (i < n) atomicAdd(&c[a[i] / 2], 1);"),
    ("a histogram by weight", WORDS, FLAT + "if (i < n) atomicAdd(&c[a[i]], a[i]);"),
    ("a copy", WORDS, FLAT + "if (i < n) c[i] = a[i];"),
    ("the greatest", WORDS, FLAT + "if (i < n) atomicMax(c, a[i]);"),
]


def named(folder: Path, source: str, body: str) -> str | None:
    text = source.replace("BODY", body) + "\nint main() { return 0; }\n"
    program = parse_files("main", (SourceFile(path="main.cu", text=text),))
    element = np.int32 if "int* a" in source else np.float64 if "double" in source else np.float32
    given: dict[str, object] = {
        p.name: np.zeros(64, element) if p.is_pointer else 8 if p.name == "n" else 1.5
        for p in program.kernels[0].parameters
    }
    workload = workload_of(folder / "w", "k", (2, 2), (4, 4), given)  # type: ignore[arg-type]
    found = library_for(program, program.kernels[0], (workload,))
    return None if found is None else f"{found.name}: {found.job}"


@pytest.mark.parametrize(
    ("source", "body", "name"), [x[1:] for x in NAMED], ids=[x[0] for x in NAMED]
)
def test_a_whole_job_is_named(source: str, body: str, name: str, tmp_path: Path) -> None:
    found = named(tmp_path, source, body)
    assert found is not None
    assert name in found


@pytest.mark.parametrize(
    ("source", "body"), [x[1:] for x in NOT_NAMED], ids=[x[0] for x in NOT_NAMED]
)
def test_another_job_is_not(source: str, body: str, tmp_path: Path) -> None:
    assert named(tmp_path, source, body) is None
