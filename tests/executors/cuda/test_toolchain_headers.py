"""Whether this machine's nvcc can be asked about a program: not where it lacks a header of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.execution import Unit
from cudaops.errors import InputError
from cudaops.executors.cuda import toolchain
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.toolchain import cutlass_includes, nvcc_for
from cudaops.graph.services import with_libraries
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite


@pytest.mark.parametrize(
    ("header", "is_asked"),
    [
        ("nvml.h", False),
        ("nvtx3/nvToolsExt.h", False),
        ("curand_kernel.h", False),
        ("cuda.h", True),
    ],
)
def test_nvcc_is_not_asked_where_it_lacks_a_library_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, is_asked: bool
) -> None:
    source = tmp_path / "main.cu"
    source.write_text(
        f"#include <{header}>\n__global__ void k(int *a) {{ *a = 1; }}\n"
        "int main() { int *a; cudaMalloc(&a, 4); k<<<1, 1>>>(a); }\n"
    )
    nvcc = tmp_path / "nvcc"
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(toolchain, "cuda_includes", lambda nvcc: (tmp_path / "include",))
    monkeypatch.setattr(toolchain, "_USUAL_FOLDERS", ())
    program = load_program(source)
    assert (nvcc_for(program) is not None) == is_asked
    (tmp_path / "include" / header).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "include" / header).touch()
    assert nvcc_for(program) == nvcc


def test_cutlass_is_found_and_candidates_compile_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no include/cutlass/cutlass\.h in it"):
        cutlass_includes()
    header = tmp_path / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    header.write_text("constexpr int twice(int x) { return 2 * x; }\n")
    assert cutlass_includes() == tmp_path / "include"
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "include"))
    assert cutlass_includes() == tmp_path / "include"


@pytest.mark.nvcc
def test_a_candidate_may_include_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    # As CUTLASS's own functions: host code that device code calls by --expt-relaxed-constexpr.
    header.write_text("#pragma once\nconstexpr int twice(int x) { return 2 * x; }\n")
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    source = tmp_path / "main.cu"
    source.write_text(
        "__global__ void k(int *a, int x) { *a = 2 * x; }\n"
        "int main() { int *a; cudaMalloc(&a, 4); k<<<1, 1>>>(a, 1); }\n"
    )
    rewrite = make_rewrite(
        "#include <cutlass/cutlass.h>\n// @launch fast grid=(1) block=(1) args=(a, x)\n"
        "__global__ void fast(int* a, int x) { *a = twice(x); }\n",
        "user", "t", "r",
    )  # fmt: skip
    program = with_libraries(load_program(source))
    unit = Unit(program=program, kernel="k", callee="k", rewrite=rewrite)
    made = GpuBuilder(tmp_path / "cache", "sm_86").unit(unit, draft=False)
    assert isinstance(made, Module), made
