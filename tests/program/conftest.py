"""Programs and workloads that the tests of `cudaops.program` share."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

import pytest

import cudaops
from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import PointerArgument, ScalarArgument, Workload
from cudaops.program.parse import load_program

DATA = Path(__file__).parent.parent / "data"
SHIM = Path(cudaops.__file__).parent / "executors" / "cpu" / "include"


class CheckCpp(Protocol):
    """Write files under the test's folder and give g++'s errors on one of them, '' where none."""

    def __call__(self, files: dict[str, str], main: str) -> str: ...


@pytest.fixture
def check_cpp(tmp_path: Path) -> CheckCpp:
    """g++ with the `cpu` executor's headers."""

    def check(files: dict[str, str], main: str) -> str:
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        command = ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", f"-I{SHIM}"]
        command += ["-include", "cuda_runtime.h", str(tmp_path / main)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stderr if done.returncode else ""

    return check


@pytest.fixture
def naive() -> Program:
    """The calibration's naive matrix product."""
    return load_program(DATA / "calibration" / "naive_matmul.cu")


@pytest.fixture
def naive_kernel(naive: Program) -> Kernel:
    """Its kernel."""
    return naive.kernel("naive_matmul")


@pytest.fixture
def workload() -> Workload:
    """One launch of it, N = 1024, without contents."""
    return Workload(
        id="w0",
        kernel="naive_matmul",
        callee="naive_matmul",
        site=0,
        grid=Dim3(x=64, y=64),
        block=Dim3(x=16, y=16),
        arguments=(
            PointerArgument(name="A", element="f32", allocation=0),
            PointerArgument(name="B", element="f32", allocation=1),
            PointerArgument(name="C", element="f32", allocation=2),
            ScalarArgument(name="N", element="i32", value=1024),
        ),
        allocations=(),
        folder="w0",
    )
