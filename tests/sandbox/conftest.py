"""One `cpu` executor for all tests of this folder, its runtime built once; builders for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.nvrtc import Nvrtc


@pytest.fixture(scope="session")
def cpu_executor(kernels: Path) -> CpuExecutor:
    return CpuExecutor("A10", kernels, workers=2)


@pytest.fixture(scope="module")
def builder(kernels: Path) -> Iterator[GpuBuilder]:
    made = GpuBuilder(kernels, "sm_86")
    yield made
    made.close()


@pytest.fixture(scope="module")
def nvrtc() -> str:
    """Version of NVRTC; skips where there is none."""
    asked = Nvrtc()
    version = asked.version()
    asked.close()
    if version is None:
        pytest.skip(f"no NVRTC here: {asked.missing}")
    return version
