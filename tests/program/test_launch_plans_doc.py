"""Every example of docs/launch-plans.md is read, and every error of its table is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaops.errors import PlanError
from cudaops.program.plans import parse_plan

PAGE = (Path(__file__).parents[2] / "docs" / "launch-plans.md").read_text()
EXAMPLES = re.findall(r"```cuda\n(.*?)```", PAGE, re.DOTALL)
ERRORS = re.findall(r"^\| `(// @[^|]*?)` \| `+(\d+:\d+: .*?)\s*`+ \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: str) -> None:
    assert parse_plan(example).launches


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 5
    assert len(ERRORS) == 7


@pytest.mark.parametrize(("text", "error"), ERRORS)
def test_error(text: str, error: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(f"{text}\n__global__ void k(float* A) {{}}\n")
    assert str(caught.value).startswith(error)
