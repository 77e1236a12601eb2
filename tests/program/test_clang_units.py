"""Readings of rewrites that stand below one program: compiled once, and read as if it were not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaops.program.clang_child import answer
from cudaops.program.clang_units import Clang

AUTHOR = """#include <vector>
#include "size.h"
#define TWICE(x) (2 * (x))
template <typename T> __device__ T half(T x) { return x / 2; }
__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = half(x[0]) + SIZE; }
int main() { std::vector<int> all(3); return (int)all.size() - 3; }
"""
BELOW = """#include "main.cu"
namespace made {
template <int B>
__global__ void k_fast(float* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = TWICE(half(x[B])) + SIZE;
}
}
"""


@pytest.fixture(scope="module")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Clang:
    return Clang(tmp_path_factory.mktemp("clang"))


def asked(author: str = AUTHOR, below: str = BELOW, size: int = 4) -> dict[str, object]:
    files = {"draft.cu": below, "main.cu": author, "size.h": f"#define SIZE {size}\n"}
    return {
        "files": files, "main": "draft.cu", "kernel": "made::k_fast", "callee": "made::k_fast<3>",
        "place": ("draft.cu", 0, len(below)), "is_overloaded": False,
    }  # fmt: skip


def read_whole(clang: Clang, request: dict[str, object]) -> object:
    """Without what is kept of the author's: an empty line stands above it."""
    files = dict(request["files"])  # type: ignore[call-overload]
    files["draft.cu"] = "\n" + files["draft.cu"]
    return answer(clang, {**request, "files": files})


def shifted(found: object) -> str:
    """Without places, which the empty line moves."""
    return re.sub(r"\d+", "", str(found))


def test_the_same_is_read(clang: Clang) -> None:
    first, again = answer(clang, asked()), answer(clang, asked())
    assert "form" in first
    assert first == again
    assert shifted(first) == shifted(read_whole(clang, asked()))


@pytest.mark.parametrize(
    "named",
    [
        "__global__ void k_fast(float* x) { x[0] = 1; }",
        "#define NAME k_fast\n__global__ void NAME(float* x) { x[0] = 1; }",
        "__global__ void k_fast(float* x);\n__global__ void k_fast(float* x) { x[0] = 1; }",
        "__device__ int k_fast(int i) { return i; } __global__ void k_fast(float* x) { *x = 1; }",
    ],
)
def test_a_kernel_is_found_where_it_is_defined_or_among_all(clang: Clang, named: str) -> None:
    below = f'#include "main.cu"\nnamespace made {{\n{named}\n}}\n'
    request = {**asked(below=below), "callee": None}
    found = answer(clang, request)
    assert "form" in found
    assert found == answer(clang, {**request, "place": ("draft.cu", 0, 1)})


@pytest.mark.parametrize(
    "other",
    [
        asked(size=5),
        asked(author=AUTHOR.replace("x / 2", "x / 3")),
        asked(below=BELOW.replace("TWICE(half", "half(half")),
    ],
)
def test_nothing_of_another_program_is_read(
    clang: Clang, other: dict[str, object], tmp_path: Path
) -> None:
    first = answer(clang, asked())
    found = answer(clang, other)
    assert found == answer(Clang(tmp_path), other)
    assert found != first


def test_errors_are_seen_each_time(clang: Clang) -> None:
    wrong = asked(author=AUTHOR.replace("x / 2", "x / two"))
    for _ in range(2):
        assert "two" in str(answer(clang, wrong)["problem"])
    assert "form" in answer(clang, asked())
