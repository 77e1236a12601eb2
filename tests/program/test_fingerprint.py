"""Which texts count as the same: names, comments and layout aside, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.program import Program, SourceFile
from cudaops.program.fingerprint import (
    DUPLICATE,
    near_duplicate,
    shape,
    similarity,
    structure_key,
)
from cudaops.program.lexing import Comment, Token, byte_text, lex, plain_text
from cudaops.program.parse import load_program, parse_files
from cudaops.recipes.matmul import MatmulRecipe
from tests.exploits.cases import load_case

EXPLOITS = Path(__file__).parents[1] / "exploits"
HONEST = sorted(p for p in EXPLOITS.rglob("honest/*.cu"))


def sources() -> dict[str, str]:
    found = {path.stem: load_case(path).source for path in HONEST}
    program = load_program(Path(__file__).parents[1] / "data" / "calibration" / "naive_matmul.cu")
    made = MatmulRecipe().propose(program, program.kernel("naive_matmul"), (), None)
    return found | {f"recipe {i}": rewrite.source for i, rewrite in enumerate(made)}


SOURCES = sources()
WORDS = re.findall(
    r"\w+",
    "asm namespace "
    "auto bool break case char const constexpr continue default do double else enum extern false "
    "float for if inline int long reinterpret_cast return short signed sizeof static static_cast "
    "struct switch template this true typename union unsigned using void volatile while half "
    "half2 dim3 threadIdx blockIdx blockDim gridDim warpSize pragma unroll include define endif "
    "ifdef undef INFINITY",
)


def names(source: str) -> list[str]:
    """What the author of a rewrite has named: no word of C++ or CUDA, no call of something that the
    text does not define, no component."""
    tokens = lex(byte_text(source)).tokens
    directive = set(re.findall(r"@(?:tune|scratch) (\w+)", source))
    headers = {t.text for t in tokens if t.directive >= 0}
    found = []
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], tokens[-1]], strict=False):
        own = token.kind == "name" and token.text not in WORDS and not token.text.startswith("__")
        library = re.fullmatch(
            r"(?:u?int|u?long|float|double|half|nv_\w+|size)\w*|(?:M|FLT|INT)_\w+", token.text
        )
        defined = re.search(rf"__(?:device|global)__[^;{{}}]*\b{re.escape(token.text)}\(", source)
        called = after.text in ("(", "::") and not defined
        if own and not library and not called and before.text not in (".", "->", "::"):
            found.append(token.text)
    return sorted(set(found) - headers - directive)


def renamed(source: str) -> str:
    """Other names in the code, other comments, another layout, tune values the other way round."""
    kernels = set(re.findall(r"@launch (\w+)", source))
    raw = byte_text(source)
    lexed = lex(raw)
    other = {n: f"q{i}_{n[::-1]}" for i, n in enumerate(names(source))}
    pieces, at = [], 0
    pieces_of_text: list[Token | Comment] = [*lexed.tokens, *lexed.comments]
    for item in sorted(pieces_of_text, key=lambda t: t.start):
        pieces.append(raw[at : item.start].replace("    ", "\t "))
        text = item.text
        if text.startswith("//") and "@" in text:
            for name in kernels & other.keys():
                text = re.sub(rf"(@launch ){name}\b", rf"\1{other[name]}", text)
            if "@tune" in text:
                head, _, values = text.partition("=")
                text = head + "= " + ", ".join(reversed(values.split(",")))
        elif text.startswith(("//", "/*")):
            text = "// said otherwise" if text.startswith("//") else "/* ... */"
        elif pieces[-2:] != [".", ""] and pieces[-2:] != ["->", ""]:
            text = other.get(text, text)
        pieces.append(text)
        at = item.end
    return "// An idea of my own.\n" + plain_text("".join([*pieces, raw[at:]]))


def changes(source: str) -> Iterator[str]:
    """The text with one literal, operator or index changed, one after the other."""
    raw = byte_text(source)
    tokens = lex(raw).tokens
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        new = None
        if token.kind == "number":
            new = f"1{token.text}"
        elif token.text in ("+", "-", "*", "/", "<", ">", "+=", "<=", ">=", "&&"):
            alone = before.end != token.start and token.end != after.start
            new = "%" if alone else None
        elif token.text in ("threadIdx", "blockIdx"):
            new = "blockDim"
        if new:
            yield plain_text(raw[: token.start] + new + raw[token.end :])


@pytest.mark.parametrize("label", SOURCES)
def test_a_copy_under_other_names_is_a_duplicate(label: str) -> None:
    source = SOURCES[label]
    copy = renamed(source)
    assert copy != source
    assert shape(copy) == shape(source)
    earlier = [(name, text) for name, text in SOURCES.items()]
    found = near_duplicate(copy, earlier)
    assert found is not None
    assert found.label == label
    assert found.similarity == 1.0


@pytest.mark.parametrize("label", SOURCES)
def test_one_change_makes_another(label: str) -> None:
    source = SOURCES[label]
    alike = [similarity(shape(source), shape(text)) for text in changes(source)]
    assert len(alike) > 5
    assert max(alike) < DUPLICATE
    assert all(near_duplicate(text, [("it", source)]) is None for text in changes(source))


def test_honest_rewrites_of_one_kernel_are_told_apart() -> None:
    for label, source in SOURCES.items():
        others = [(name, text) for name, text in SOURCES.items() if name != label]
        assert near_duplicate(source, others) is None


TILES = SOURCES["shared_tiles"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a[y][k] * b[k][x]", "a[k][y] * b[k][x]"),
        ("b[16][17]", "b[16][16]"),
        ("sum += a", "sum -= a"),
        ("block=(16, 16)", "block=(16, 8)"),
        ("args=(A, B, C, N)", "args=(B, A, C, N)"),
        ("@requires N % 16 == 0", "@requires N % 32 == 0"),
        ("        for (int k", "        #pragma unroll 4\n        for (int k"),
        ("__global__ void tiles", "__global__ void __launch_bounds__(256) tiles"),
        ("float sum = 0.0f", "double sum = 0.0f"),
        ("// @requires", "// @tune DEPTH = 1, 2\n// @requires"),
    ],
)
def test_what_makes_another_candidate(old: str, new: str) -> None:
    assert old in TILES
    changed = TILES.replace(old, new)
    assert near_duplicate(changed, [("first", TILES)]) is None
    assert similarity(shape(changed), shape(TILES)) > 0.5


def test_the_order_of_tune_values_does_not_count_but_their_set_does() -> None:
    def tuned(values: str) -> str:
        return f"// @tune T = {values}\n" + TILES.replace("16", "T")

    assert near_duplicate(tuned("8, 16, 32"), [("a", tuned("32, 8, 16"))]) is not None
    assert near_duplicate(tuned("8, 16"), [("a", tuned("8, 16, 32"))]) is None


def test_what_is_not_cuda_has_a_shape_too() -> None:
    for text in ("", "x", "// @launch", "}{)(", "@launch @tune \\ \0 é", "__global__ void k("):
        assert near_duplicate(text, [("it", TILES)]) is None
    assert similarity((), ()) == 1.0
    assert near_duplicate(TILES, []) is None


PROGRAM = """#define TILE 16
#define AT(i, j) ((i) * TILE + (j))
struct Pair { float a, b; };
__constant__ float weights[4];
__device__ float leaf(float x) { return x * weights[0]; }
__device__ float inner(Pair p) { return leaf(p.a) + p.b; }
__global__ void target(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = inner(Pair{in[i], in[AT(0, i)]});
}
__device__ float unused(float x) { return x + 3.0f; }
int main() { target<<<1, TILE>>>(nullptr, nullptr, 4); }
"""


def key(text: str, kernel: str = "target", **headers: str) -> str:
    files = [SourceFile(path="main.cu", text=text)]
    files += [SourceFile(path=f"{name}.h", text=header) for name, header in headers.items()]
    program: Program = parse_files("main", tuple(files))
    return structure_key(program, program.kernel(kernel))


def test_a_key_is_of_the_kernel_and_what_it_uses() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", key(PROGRAM))
    same = [
        ("target", "renamed"), ("int i ", "int index "), ("inner", "outer_"), ("x + 3.0f", "x"),
        ("Pair", "Two"), ("<<<1, TILE>>>", "<<<2, 2>>>"), ("    if", "    // why\n\tif"),
        ("weights", "w4"), ("AT(", "INDEX("),
    ]  # fmt: skip
    for old, new in same:
        assert old in PROGRAM
        text = re.sub(r"\bi\b", "index", PROGRAM) if "index" in new else PROGRAM.replace(old, new)
        assert key(text, "renamed" if new == "renamed" else "target") == key(PROGRAM), old
    moved = PROGRAM.split("__global__")
    assert key('#include "a.h"\n__global__' + moved[1], a=moved[0]) == key(PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TILE 16", "TILE 32"), ("+ p.b", "- p.b"), ("weights[0]", "weights[1]"),
        ("weights[4]", "weights[8]"), ("float a, b", "double a, b"), ("(i) * TILE", "(j) * TILE"),
        ("i < n", "i <= n"), ("int n", "long n"), ("const float* in", "float* in"),
    ],
)  # fmt: skip
def test_a_key_changes_with_what_the_kernel_does(old: str, new: str) -> None:
    assert old in PROGRAM
    assert key(PROGRAM.replace(old, new)) != key(PROGRAM)
