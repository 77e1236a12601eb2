"""One `cpu` executor for all tests of this folder: its runtime is built once."""

from __future__ import annotations

import pytest

from cudaops.sandbox.executors.cpu import CpuExecutor


@pytest.fixture(scope="session")
def cpu_executor(tmp_path_factory: pytest.TempPathFactory) -> CpuExecutor:
    return CpuExecutor("A10", tmp_path_factory.mktemp("kernels"), workers=2)
