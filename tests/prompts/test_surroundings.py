"""What a kernel leans on is shown with it, and nothing of the host."""

from __future__ import annotations

import pytest

from cudaops.domain.program import SourceFile
from cudaops.program.parse import load_program, parse_files
from cudaops.prompts.surroundings import MOST_LINES, surroundings
from tests.prompts.samples import ROOT

PROGRAMS = ROOT / "tests" / "data" / "programs"


@pytest.mark.parametrize(
    ("name", "kernel", "holds"),
    [
        ("stencil", "blur", ["#define RADIUS 4", "__constant__ float weights", "int touched;"]),
        ("struct_argument", "apply", ["struct Affine {", "int   limit;"]),
        ("helper_macros", "saxpy", ["#define GRID_STRIDE(i, n)"]),
        ("reduction", "block_sums", ["__device__ __forceinline__ float warp_sum"]),
        ("namespace_template", "energy", ["// in namespace", "T squared(T x)"]),
        ("histogram", "count", ["constexpr int BINS = 64;"]),
    ],
)
def test_declarations_that_a_kernel_uses(name: str, kernel: str, holds: list[str]) -> None:
    program = load_program(PROGRAMS / f"{name}.cu")
    found = surroundings(program, program.kernel(kernel))
    assert all(words in found for words in holds)
    assert "main" not in found
    assert "__global__" not in found


def test_a_kernel_that_stands_alone_has_none() -> None:
    program = load_program(ROOT / "examples" / "naive_matmul.cu")
    assert surroundings(program, program.kernel("naive_matmul")) == ""


def test_what_is_reached_through_others_comes_too_and_hosts_values_do_not() -> None:
    text = """
using real = float;
typedef struct { real v; } Box;
enum { SIDE = 4 };
int N = 9;
static int counter() { return N; }
__device__ real half_of(Box b) { return b.v / SIDE; }
__device__ real unused(real x) { return x; }
__global__ void k(Box* p, float* C, int N) { C[N] = half_of(p[N]); }
int main() { return counter(); }
"""
    program = parse_files("m", (SourceFile(path="m.cu", text=text),))
    found = surroundings(program, program.kernel("k"))
    assert found.splitlines() == [
        "using real = float;", "typedef struct { real v; } Box;", "enum { SIDE = 4 };",
        "__device__ real half_of(Box b) { return b.v / SIDE; }",
    ]  # fmt: skip


def test_very_long_surroundings_are_cut_and_say_so() -> None:
    table = "__device__ int big[] = {\n" + "1,\n" * 400 + "};\n"
    text = table + "__global__ void k(int* C) { C[0] = big[0]; }\nint main() { return 0; }\n"
    program = parse_files("m", (SourceFile(path="m.cu", text=text),))
    lines = surroundings(program, program.kernel("k")).splitlines()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "// 252 more lines are not shown"


def test_exclusive_branches_are_not_shown_as_if_all_held() -> None:
    text = """
#ifndef REAL_H
#define REAL_H
#if PRECISION == 64
typedef double real;
#elif PRECISION == 16
typedef __half real;
#else
typedef float real;
#endif
#ifdef FAST
#define SCALE 2
#endif
struct Box { real v; };
#endif
__global__ void k(Box* p) { p[0].v = SCALE; }
int main() {}
"""
    program = parse_files("m", (SourceFile(path="m.cu", text=text),))
    assert surroundings(program, program.kernel("k")).splitlines() == [
        "// only where `#if PRECISION == 64` holds:", "typedef double real;",
        "// only after `#if PRECISION == 64` did not hold, where `#elif PRECISION == 16` does:",
        "typedef __half real;",
        "// only after `#if PRECISION == 64`, `#elif PRECISION == 16` did not hold:",
        "typedef float real;",
        "// only where `#ifdef FAST` holds:", "#define SCALE 2",
        "// in any case:", "struct Box { real v; };",
    ]  # fmt: skip
