"""Whether this machine's nvcc can be asked about a program: not where it lacks a header of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cuda import toolchain
from cudaops.executors.cuda.toolchain import nvcc_for
from cudaops.program.parse import load_program


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
