"""The `cpu` executor passes the suite that every executor must pass."""

from __future__ import annotations

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.conformance import ConformanceSuite


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return cpu_executor


class TestCpu(ConformanceSuite):
    """See `conformance.py`."""
