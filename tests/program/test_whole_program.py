"""A whole program as a rewrite: its kernels without its host code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import RecordedLaunch
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import LaunchPlan, Rewrite
from cudaops.errors import InputError
from cudaops.program.hygiene import check_source
from cudaops.program.parse import load_program, parse_files
from cudaops.program.plans import resolve
from cudaops.program.reroute import candidate_text
from cudaops.program.whole_program import (
    device_source,
    replaced_kernels,
    rewrite_from_program,
    standing_beside,
)
from tests.program.recordings import launch, number, pointer, side, workload_of

CheckCpp = Callable[[dict[str, str], str], str]
DATA = Path(__file__).parent.parent / "data"
PROGRAMS = [
    p
    for p in sorted([*(DATA / "programs").glob("*.cu"), *(DATA / "calibration").glob("*.cu")])
    if p.stem not in ("no_main", "no_kernel", "syntax_error")
]


MEMORY = [(4 << 20, "a", "a"), (4 << 20, "b", "b"), (4 << 20, "zero", "product")]
AUTHOR = launch(
    "naive_matmul",
    [pointer("A", 0), pointer("B", 1), pointer("C", 2), number("N", 1024)],
    MEMORY,
    grid=64,
    block=16,
    read_only=["A", "B"],
)


def taken(naive: Program, other: Program, seen: RecordedLaunch) -> Rewrite:
    """The other program's launch in the place of the author's."""
    kernel = naive.kernel("naive_matmul")
    return rewrite_from_program(
        side(naive, AUTHOR), kernel, [workload_of(AUTHOR)], side(other, seen)
    )


def test_rewrite(naive: Program, check_cpp: CheckCpp) -> None:
    other = load_program(DATA / "calibration" / "reg64x8.cu")
    callee = "reg_matmul<64,64,8,8,4>"
    arguments = [pointer("A", 0), pointer("B", 1), pointer("C", 2), number("N", 1024)]
    seen = launch("reg_matmul", arguments, MEMORY, callee=callee, grid=16, smem=32)
    rewrite = taken(naive, other, seen)
    (step,) = rewrite.plan.launches
    assert step.kernel == callee
    assert (step.grid, step.block, step.smem) == (("16", "1", "1"), ("128", "1", "1"), "32")
    assert step.args == ("A", "B", "C", "N")
    assert "main" not in rewrite.source
    assert check_source(rewrite.source) == ()
    kernel = naive.kernel("naive_matmul")
    assert resolve(rewrite, kernel, workload_of(AUTHOR)).launches[0].block == Dim3(x=128)
    assert check_cpp({"all.cpp": candidate_text(rewrite)}, "all.cpp") == ""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_device_source_is_clean_and_compiles(path: Path, check_cpp: CheckCpp) -> None:
    text = device_source(load_program(path))
    assert check_source(text) == ()
    bare = Rewrite(source=text, plan=LaunchPlan(launches=()), proposer="user", title="t", why="w")
    # Dynamic shared memory outside of functions is no part of a rewrite's dialect.
    if path.stem != "indirect":
        assert check_cpp({"all.cpp": candidate_text(bare)}, "all.cpp") == ""


def parse(text: str) -> Program:
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


def test_names_win_over_positions(naive: Program) -> None:
    program = parse("__global__ void k(int N, float* C, const float* A) {}")
    arguments = [number("N", 1024), pointer("C", 0), pointer("A", 1)]
    seen = launch("k", arguments, [MEMORY[2], MEMORY[0]], read_only=["A"])
    assert taken(naive, program, seen).plan.launches[0].args == ("N", "C", "A")
    program = parse("__global__ void k(const float* x, const float* y, float* z, int n) {}")
    arguments = [pointer("x", 0), pointer("y", 1), pointer("z", 2), number("n", 1024)]
    seen = launch("k", arguments, MEMORY, read_only=["x", "y"])
    assert taken(naive, program, seen).plan.launches[0].args == ("A", "B", "C", "N")


def test_parameters_that_cannot_be_matched(naive: Program) -> None:
    program = parse("__global__ void k(float* out) {}")
    seen = launch("k", [pointer("out", 0)], [(8, "zero", "sum")])
    with pytest.raises(InputError, match=r"\(`k`\) writes what `naive_matmul` writes, `C`"):
        taken(naive, program, seen)


def test_a_library_that_is_not_allowed_is_named(naive: Program) -> None:
    text = "#include <cub/cub.cuh>\n__global__ void k(float* C, int N) { cub::LaneId(); }"
    seen = launch("k", [pointer("C", 0), number("N", 1024)], [MEMORY[2]])
    with pytest.raises(InputError, match=r"use `cub` of <cub/cub\.cuh>: --allow-libraries"):
        taken(naive, parse(text), seen)


def test_only_what_kernels_need_is_kept() -> None:
    text = device_source(
        parse(
            "#include <vector>\n#include <cuda_fp16.h>\n#define CK(x) check(x)\n#define TILE 8\n"
            "using namespace std;\nstruct Timer { std::vector<int> laps; };\n"
            "struct Point { float x; };\nstruct Box { Point low; };\nstatic int runs = 0;\n"
            "const int LIMIT = 3;\nvoid check(int);\n"
            "__device__ float left(Box b) { return b.low.x; }\n"
            "__global__ void k(Box b, float* p) { p[TILE] = left(b) + LIMIT; }\n"
            "int main() { CK(1); k<<<1, 1>>>({}, 0); }\n"
        )
    )
    for kept in (
        "cuda_fp16.h",
        "#define TILE 8",
        "struct Point",
        "struct Box",
        "LIMIT = 3",
        "left(",
    ):
        assert kept in text
    for dropped in ("vector", "CK", "using", "Timer", "runs", "check", "main"):
        assert dropped not in text


def test_what_other_kernels_need_is_left_out() -> None:
    text = device_source(
        parse(
            "#define WIDE 8\n#pragma omp declare simd\nstruct Own { int n; };\n"
            "__constant__ int used[2];\n__constant__ int unused[2];\n"
            "__device__ int inner() { return used[0]; }\n"
            "__device__ int helper() { return inner(); }\n"
            "__device__ int left(Own own) {\n#pragma unroll\nfor (;;) {} }\n"
            "__global__ void k(int* p) { p[0] = helper(); }\n"
            "__global__ void other(Own* p) { p[WIDE].n = left(*p); }\n"
        ),
        kernels=["k"],
    )
    for kept in ("used[2]", "inner()", "helper()", "void k("):
        assert kept in text
    for dropped in ("WIDE", "pragma", "Own", "unused", "left", "other"):
        assert dropped not in text


def test_a_header_guard_goes_with_what_it_guards() -> None:
    header = "#ifndef __K_H__\n#define __K_H__\n__global__ void k(int* p) { p[0] = 1; }\n#endif\n"
    files = (
        SourceFile(path="main.cu", text='#include "k.cuh"\n#include "k.cuh"\nint main() {}\n'),
        SourceFile(path="k.cuh", text=header),
    )
    text = device_source(parse_files("main", files), kernels=["k"])
    assert "K_H" not in text
    assert "#" not in text
    assert text.count("void k(") == 1


def test_which_kernels_another_program_replaces() -> None:
    head = (
        "#define TILE 4\n__device__ int f() { return TILE; }\n"
        "__global__ void a(int* p) { p[0] = f(); }\n__global__ void b(int* p) { p[1] = 2; }\n"
    )
    main = "int main() { int* p; a<<<1, 32>>>(p); b<<<1, 32>>>(p); }\n"
    author = parse(head + main)

    def replaced(*edits: tuple[str, str]) -> frozenset[str]:
        text = head + "/* again */" + main
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        return replaced_kernels(author, parse(text))

    assert replaced() == frozenset()
    assert replaced(("TILE 4", "TILE 8")) == {"a"}
    assert replaced(("b<<<1, 32>>>", "b<<<2, 16>>>")) == {"b"}
    assert replaced(("p[1] = 2", "p[1] = 3"), ("return TILE", "return 4")) == {"a", "b"}
    assert replaced(("a<<<1, 32>>>(p);", "")) == {"a"}


def test_types_that_the_baseline_has_are_its_own() -> None:
    folder = DATA / "verify"
    baseline, candidate = (load_program(folder / f"{n}.cu") for n in ("shade", "shade_shared"))
    alone = device_source(candidate)
    together = device_source(candidate, beside=baseline)
    assert "struct Sphere" in alone
    assert "struct" not in together
    assert "term(tile[k], i)" in together
    other = parse_files("other", (SourceFile(path="o.cu", text="struct Sphere { int other; };"),))
    assert "struct Sphere" in device_source(candidate, beside=other)


def test_what_a_rewrite_says_again_is_the_authors() -> None:
    author = parse_files("main", (SourceFile(path="main.cu", text="""
        struct Key { unsigned words[8]; };
        __constant__ float taps[16];
        __device__ int mixed(Key k) { return k.words[0]; }
        __device__ int plain(int k) { return k; }
        __global__ void cipher(Key key, int *out) { out[0] = mixed(key); }
        int main() { cipher<<<1, 1>>>(Key{}, nullptr); }
    """),))  # fmt: skip
    source = """// @launch fast grid=(1) block=(1) args=(key, out)
struct Key { unsigned words[8]; };
struct Own { int a; };
__constant__ float taps[16];
__device__ int mixed(Key k) { return k.words[0] & 7; }
__device__ int plain(int k) { return k; }
__global__ void fast(Key key, int *out) { out[0] = mixed(key) + plain(1); }
"""
    text = standing_beside(author, source)
    assert text.count("\n") == source.count("\n")
    assert "struct Key" not in text
    assert "taps" not in text
    assert "struct Own" in text
    assert "mixed_2(Key k)" in text
    assert "mixed_2(key) + plain(1)" in text
    other = source.replace("words[8]", "words[4]")
    assert "struct Key" in standing_beside(author, other)


def test_a_linkage_block_is_opened() -> None:
    text = device_source(load_program(DATA / "verify" / "shade_shared.cu"))
    assert "extern" not in text
    assert text.count("{") == text.count("}")
    assert check_source(text) == ()
