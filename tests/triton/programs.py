"""The examples with Triton kernels, rewrites of them, and a Python that can run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cudaops.triton.source import TritonProgram
from tests.lanes import NO_TRITON

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
REWRITES = EXAMPLES / "rewrites"
SIZES = {
    "vector_add": ("1000",),
    "layer_norm": ("3", "200"),
    "matmul": ("40", "36", "50"),
    "column_sum": ("40", "70"),
    "row_softmax": ("4", "100"),
}
"""Program arguments for an interpreter, which takes a millisecond for an operation."""


def example(name: str) -> TritonProgram:
    """An example, read."""
    path = EXAMPLES / f"{name}.py"
    return TritonProgram(path.read_text("utf-8"), path.name)


@cache
def triton_python() -> str:
    """An interpreter with torch and Triton: TRITON_PYTHON, or this one. Skips where none has."""
    named = os.environ.get("TRITON_PYTHON", sys.executable)
    found = shutil.which(named)
    asked = (
        "import importlib.util as u; print(bool(u.find_spec('torch') and u.find_spec('triton')))"
    )
    if found is not None:
        ran = subprocess.run([found, "-c", asked], capture_output=True, text=True, timeout=60)
        if ran.stdout.strip() == "True":
            return found
    pytest.skip(f"{NO_TRITON}: TRITON_PYTHON names a Python with torch and Triton")
