"""What the tests of modelled times share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cpu.profile_cases import Case, made_case


@pytest.fixture
def executor(kernels: Path) -> CpuExecutor:
    return CpuExecutor("H200", kernels)


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., Case]:
    """`made_case` in the test's own folder."""
    return partial(made_case, tmp_path)
