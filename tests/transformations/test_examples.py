"""The page of transformations: made of real edits, each of which computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.transformations.registry import TRANSFORMATIONS
from tests.transformations.bench import Case
from tests.transformations.examples import EXAMPLES, PAGE, after, page


def test_the_page_is_what_the_code_makes() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.transformations.examples"


def test_every_transformation_has_an_example() -> None:
    assert set(EXAMPLES) == {one.name for one in TRANSFORMATIONS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_computes_the_same(name: str, kernels: Path, tmp_path: Path) -> None:
    one = EXAMPLES[name]
    executor = CpuExecutor("A10", kernels)
    case = Case(executor, tmp_path, one.source, one.arguments, grid=one.grid, block=one.block)
    case.same(after(name, case.draft), tolerance=1e-5)
