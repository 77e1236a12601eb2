"""A kernel's class is told by the form of its code, whatever its author calls things."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

from cudaops.rag.kernel_words import kernel_words, words_of

CLASSES = Path(__file__).parents[2] / "benchmarks" / "classes"


def kernel_of(text: str) -> str:
    return text[text.index("__global__") : text.index("int main")]


def renamed(code: str) -> str:
    """Every name that is not the language's or the library's, as letters that say nothing."""
    kept = (
        r"__\w+|float|int|const|void|for|if|return|break|blockIdx|threadIdx|blockDim|gridDim|x|y|"
    )
    kept += r"f?maxf|expf|r?sqrtf|\d\w*"
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        word = found[0]
        return word if re.fullmatch(kept, word) else names.setdefault(word, f"z{len(names)}")

    return re.sub(r"(?<![\d.])\b[A-Za-z_]\w*", name, re.sub(r"//.*", "", code))


@pytest.mark.parametrize("path", sorted(CLASSES.glob("*.cu")), ids=lambda path: path.stem)
def test_names_do_not_matter(path: Path) -> None:
    word = {"sampling_best": "argmax"}.get(path.stem, path.stem.split("_")[0])
    code = kernel_of(path.read_text("utf-8"))
    assert word in kernel_words(code).split()
    assert word in kernel_words(renamed(code)).split()


HEAD = "__global__ void f(const float* a, const int* c, float* y, int n) {\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y[threadIdx.x] = 2.0f * a[threadIdx.x];", ""),
        ("if (n < 3) { y[0] += a[0]; y[1] += a[1]; }", ""),
        ("float s = 0; for (int i = 0; i < n; ++i) s += a[i]; y[0] = s;", "reduction reduce sum"),
        ("for (int i = 0; i < n; ++i) s += a[i] * y[c[i]];", "sparse matrix spmv csr"),
        ("for (int i = 0; i < n; ++i) atomicAdd(&y[c[i]], 1);", "histogram"),
        ("float t = y[i]; y[i] = y[j]; y[j] = t;", "sort"),
        ("// expf( fmaxf( softmax\ny[0] = a[0];", ""),
    ],
)
def test_forms(body: str, words: str) -> None:
    assert kernel_words(HEAD + body + "\n}") == (f"kernel {words}" if words else "")


def test_parts_of_names() -> None:
    assert words_of("BatchDecodeWithPagedKVCacheKernel") == [
        "batch", "decode", "with", "paged", "kv", "cache", "kernel",
    ]  # fmt: skip
    assert words_of("rms_norm2D") == ["rms", "norm", "2", "d"]


@pytest.mark.parametrize("piece", ["for (", "{", "a[", "* a[", "x += a[i] * ", "if (a > ", "fmaf("])
def test_hostile_text_takes_no_time(piece: str) -> None:
    started = process_time()
    kernel_words(HEAD + piece * 3000)
    assert process_time() - started < 2
