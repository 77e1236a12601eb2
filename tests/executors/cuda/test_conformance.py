"""The `cuda` executor passes the suite of every executor: on its stand-in, and on a GPU.

Over the stand-in everything but NVIDIA's driver is real: nvcc, the runner's process, its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.errors import EnvironmentFailure
from cudaops.executors.cuda.executor import CudaExecutor
from tests.executors.conformance import ConformanceSuite
from tests.standin.platform import STANDIN


@pytest.fixture(scope="module")
def over_standin(kernels: Path) -> Iterator[CudaExecutor]:
    made = CudaExecutor(None, kernels, driver=STANDIN)
    yield made
    made.close()


@pytest.fixture(scope="module")
def over_gpu(kernels: Path) -> Iterator[CudaExecutor]:
    made = CudaExecutor(None, kernels, driver="nvidia")
    try:
        made.check_available()
    except EnvironmentFailure as problem:
        made.close()
        pytest.skip(f"no NVIDIA GPU that the runner can open: {problem}")
    yield made
    made.close()


@pytest.mark.deep
@pytest.mark.nvcc
class TestStandIn(ConformanceSuite):
    """See `conformance.py`."""

    @pytest.fixture
    def executor(self, over_standin: CudaExecutor) -> CudaExecutor:
        return over_standin

    def test_nothing_measured_here_counts(self, executor: CudaExecutor) -> None:
        assert executor.time_source == "standin"


@pytest.mark.nvcc
@pytest.mark.gpu
class TestGpu(ConformanceSuite):
    """See `conformance.py`."""

    @pytest.fixture
    def executor(self, over_gpu: CudaExecutor) -> CudaExecutor:
        return over_gpu

    def test_times_are_measured(self, executor: CudaExecutor) -> None:
        assert executor.time_source == "cuda_event"
