"""A whole program as a rewrite: its kernels without its host code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel, Program, SourceFile
from cudaops.domain.rewrite import LaunchPlan, Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.program.hygiene import check_source
from cudaops.program.parse import load_program, parse_files
from cudaops.program.plans import resolve
from cudaops.program.reroute import candidate_text
from cudaops.program.whole_program import device_source, rewrite_from_workload

CheckCpp = Callable[[dict[str, str], str], str]
DATA = Path(__file__).parent.parent / "data"
PROGRAMS = [
    p
    for p in sorted([*(DATA / "programs").glob("*.cu"), *(DATA / "calibration").glob("*.cu")])
    if p.stem not in ("no_main", "no_kernel", "syntax_error")
]


def captured(workload: Workload, kernel: str, callee: str) -> Workload:
    return workload.model_copy(
        update={
            "kernel": kernel,
            "callee": callee,
            "grid": Dim3(x=16, y=16),
            "block": Dim3(x=128),
            "dynamic_smem_bytes": 32,
        }
    )


def test_rewrite(naive_kernel: Kernel, workload: Workload, check_cpp: CheckCpp) -> None:
    other = load_program(DATA / "calibration" / "reg64x8.cu")
    callee = "reg_matmul<64,64,8,8,4>"
    rewrite = rewrite_from_workload(other, naive_kernel, captured(workload, "reg_matmul", callee))
    (step,) = rewrite.plan.launches
    assert step.kernel == callee
    assert (step.grid, step.block, step.smem) == (("16", "16", "1"), ("128", "1", "1"), "32")
    assert step.args == ("A", "B", "C", "N")
    assert "main" not in rewrite.source
    assert check_source(rewrite.source) == ()
    assert resolve(rewrite, naive_kernel, workload).launches[0].block == Dim3(x=128)
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


def test_names_win_over_positions(naive_kernel: Kernel, workload: Workload) -> None:
    program = parse("__global__ void k(int N, float* C, const float* A) {}")
    rewrite = rewrite_from_workload(program, naive_kernel, captured(workload, "k", "k"))
    assert rewrite.plan.launches[0].args == ("N", "C", "A")
    program = parse("__global__ void k(const float* x, const float* y, float* z, int n) {}")
    rewrite = rewrite_from_workload(program, naive_kernel, captured(workload, "k", "k"))
    assert rewrite.plan.launches[0].args == ("A", "B", "C", "N")


def test_parameters_that_cannot_be_matched(naive_kernel: Kernel, workload: Workload) -> None:
    program = parse("__global__ void k(float* out) {}")
    with pytest.raises(InputError, match=r"`k` takes \(out\) and `naive_matmul` \(A, B, C, N\)"):
        rewrite_from_workload(program, naive_kernel, captured(workload, "k", "k"))


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


def test_types_that_the_baseline_has_are_its_own() -> None:
    folder = DATA / "verify"
    baseline, candidate = (load_program(folder / f"{n}.cu") for n in ("shade", "shade_shared"))
    alone = device_source(candidate)
    beside = device_source(candidate, beside=baseline)
    assert "struct Sphere" in alone
    assert "struct" not in beside
    assert "term(tile[k], i)" in beside
    other = parse_files("other", (SourceFile(path="o.cu", text="struct Sphere { int other; };"),))
    assert "struct Sphere" in device_source(candidate, beside=other)


def test_a_linkage_block_is_opened() -> None:
    text = device_source(load_program(DATA / "verify" / "shade_shared.cu"))
    assert "extern" not in text
    assert text.count("{") == text.count("}")
    assert check_source(text) == ()
