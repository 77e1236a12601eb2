"""Kernels to transform."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case


@pytest.fixture
def case(kernels: Path, tmp_path: Path) -> Callable[..., Case]:
    """Makes a `Case`: source, arguments by parameter, `grid`, `block`, `callee`."""

    def make(source: str, arguments: Arguments, **launch: object) -> Case:
        return Case(CpuExecutor("A10", kernels), tmp_path, source, arguments, **launch)  # type: ignore[arg-type]

    return make
