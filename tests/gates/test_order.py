"""Which file holds which gate: the table in `cudaops.gates`, against the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import cudaops.gates
from cudaops.domain.judgement import GateName

ROOT = Path(__file__).parents[2]
TABLE = re.findall(r"^\| `(\w+)` \| `([\w/.]+)`", cudaops.gates.__doc__ or "", re.MULTILINE)
DOCUMENT = (ROOT / "docs" / "verification.md").read_text("utf-8")


def test_the_table_names_every_gate_as_judged() -> None:
    assert [name for name, _ in TABLE] == list(get_args(GateName))


def test_the_document_names_every_gate_as_judged() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|\d]", DOCUMENT, re.MULTILINE)
    assert [name for name in rows if name in get_args(GateName)] == list(get_args(GateName))


@pytest.mark.parametrize(("gate", "file"), TABLE)
def test_the_file_decides_the_gate(gate: str, file: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert gate in texts
