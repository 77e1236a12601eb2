"""Answers that leave code out are never taken; comments that only sound so are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.prompts.elisions import elision
from tests.lanes import examples
from tests.prompts.answer_texts import CODE, EXPLOITS, TILES, accepted, refused

SAID = [
    "...", "... rest unchanged", "... rest of the kernel", "rest of the code unchanged",
    "The rest of the kernel remains the same", "rest of kernel", "existing code",
    "Existing code here",
    "... existing code ...", "[existing code]", "keep the existing code", "original code",
    "original kernel code here", "same as before", "Same as above.", "same as the original",
    "same as in the original kernel", "code unchanged", "unchanged", "main loop unchanged",
    "(unchanged from the original)", "remaining code omitted for brevity", "omitted for brevity",
    "omitted", "for brevity, the loop is left out", "your code here", "Your code goes here",
    "implementation here", "implementation goes here", "TODO: implement", "TODO: add the loop",
    "FIXME: complete this", "insert the tile loop here", "placeholder", "previous code ...",
    "... (remaining lines unchanged) ...", "... same for B", "code as before",
    "identical to the original",
    "everything else stays the same", "the other code is not shown", "[...]", "{ ... }",
    "<rest of the kernel>", "------ rest unchanged ------", "copy the original loop here",
    "other kernels unchanged", "truncated", "etc ...", "kernel body omitted", "snip",
    "remainder of the function as before", "rest of the implementation follows the original",
]  # fmt: skip
DRESSES = ["// {}", "//{}", "/* {} */", "/*\n * {}\n */", "// ===== {} =====", "///  {}.", "// {}!"]
PLACES = [at for at, line in enumerate(CODE.split("\n")) if line.startswith("  ")]


@pytest.mark.parametrize("said", SAID)
def test_every_phrase_is_seen(said: str) -> None:
    lines = CODE.split("\n")
    text = "\n".join([*lines[:5], f"    // {said}", *lines[5:]])
    assert elision(text) is not None
    assert elision(text.replace("// " + said, "/* " + said + " */")) is not None


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(SAID), st.sampled_from(DRESSES), st.sampled_from(PLACES),
    st.integers(0, 6), st.sampled_from([str, str.upper, str.title]), st.booleans(),
)  # fmt: skip
def test_no_answer_with_a_hole_is_ever_taken(
    said: str, dress: str, at: int, taken: int, case: type[str], fenced: bool
) -> None:
    lines = CODE.split("\n")
    head = TILES[: TILES.index("__global__")]
    mangled = [*lines[:at], dress.format(case(said)), *lines[at + taken :]]
    text = head + "\n".join(mangled)
    answer = refused(f"TITLE: x\n```cuda\n{text}```\n" if fenced else text)
    assert answer.kind in ("elided", "malformed", "no_code", "bad_plan")


IN_CODE = [
    ("    for (int t = 0; t < N; t += 16) {", "    for (...) {"),
    ("        __syncthreads();\n    }", "        ...\n    }"),
    ("    float sum = 0.0f;", "    float sum = ...;"),
    ("    C[row * N + col] = sum;", "    \u2026"),
    ("= A[row * N + t + x];", "= A[...];"),
    ("sum += a[y][k] * b[k][x];", "{ ... }"),
]


@pytest.mark.parametrize(("old", "new"), IN_CODE)
def test_dots_in_the_place_of_code(old: str, new: str) -> None:
    assert old in TILES
    assert refused(TILES.replace(old, new, 1)).kind == "elided"


@pytest.mark.parametrize(
    "body",
    ["{}", "{ }", "{ ; }", "{ return; }", "{ /* as in the text above */ }", "{\n// tile loop\n}"],
)
def test_a_kernel_that_does_nothing(body: str) -> None:
    head = TILES[: TILES.index("{")]
    assert refused(head + body).kind == "elided"


def test_a_device_function_with_a_comment_for_a_body() -> None:
    hole = "__device__ void load(float* s) {\n    // loads a tile with float4\n}\n"
    at = TILES.index("__global__")
    assert refused(TILES[:at] + hole + TILES[at:]).kind == "elided"


HONEST = [
    "// Each thread computes one element of C.", "// load the remaining elements of the tile",
    "// the rest of the row is handled by the next block", "// for k = 0, 1, 2, ..., 15",
    "// N % 16 == 0, so no edge", "// same layout as B, padded by one column",
    "// unchanged inputs are read through the cache", "// store the result before the next tile...",
    "// TODO(tuning): other tile sizes", "// A and B are const: the compiler may use ld.global.nc",
    "/* a[y][x], a[y][x + 1], ... in registers */", "// wait until all have read the tile ...",
    "// previous tile is no longer needed", "// original order of summation is kept",
    "// here the bank conflicts are avoided", "// see the verdict: 32 sectors a request",
    "// mirrors the code of the author", "// more work per thread", "// edge: the last block",
    "// skip the first element", "// same for B", "// Then the same with b", "// remaining rows",
    "// rows past N are left out", "// the edge is left out of the tile and summed below",
    "// What is left out of the tile is zero", "// left out: the bounds check, by @requires",
    "// nothing is left out", "// keeps the author's order unchanged", "// unrolled for clarity",
    "// not shown to be slower", "// add the bias here", "// write partial sums here",
    "// 1. load  2. wait  3. compute", "// the kernel stays within 48 KB of shared memory",
]  # fmt: skip


@pytest.mark.parametrize("comment", HONEST)
def test_a_comment_amid_code_is_no_hole(comment: str) -> None:
    lines = TILES.split("\n")
    for at in [at for at in range(3, 13) if "}" not in lines[at]]:
        accepted("\n".join([*lines[:at], "    " + comment, *lines[at:]]))


def test_packs_and_variadic_macros_are_no_holes() -> None:
    code = """#define SUM(a, ...) ((a) + (__VA_ARGS__))
template <typename... T> __device__ float all(T... values) { return (0.0f + ... + values); }
template <typename... T> __device__ float count(T&&... v) { return sizeof...(T) + all(v...); }
"""
    at = TILES.index("__global__")
    accepted(TILES[:at] + code + TILES[at:])


def test_no_honest_rewrite_of_the_catalogue_has_a_hole() -> None:
    paths = sorted(EXPLOITS.rglob("honest/*.cu"))
    assert len(paths) > 20
    assert [p.stem for p in paths if elision(p.read_text())] == []
