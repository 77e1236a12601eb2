"""Builders for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.nvrtc import Nvrtc


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
