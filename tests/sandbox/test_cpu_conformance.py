"""The `cpu` executor passes the suite that every executor must pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.sandbox.executors.cpu import CpuExecutor
from tests.sandbox.conformance import ConformanceSuite


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> CpuExecutor:
    cache: Path = tmp_path_factory.mktemp("kernels")
    return CpuExecutor("A10", cache, workers=2)


class TestCpu(ConformanceSuite):
    """See `conformance.py`."""
