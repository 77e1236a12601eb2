"""A tool that dies in the middle of a judgement never turns into a pass: gate by gate, on `cpu`.

The rewrite is honest and passes with whole tools. Those of other gates: compute-sanitizer killed,
missing or silent in executors/cuda/test_sanitizer.py and test_checking.py there; a second clock
that is not there in test_clocks.py; timed launches that nobody looked at in test_timed_outputs.py;
a kernel without counts in test_physical_floor.py; inputs that the baseline does not bear in
test_input_domains.py; a launcher that cannot confine in executors/isolation/; a gate that is
missing in domain/test_judge.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HONEST = ROOT / "tests" / "exploits" / "honest" / "shared_tiles.cu"
pytestmark = [pytest.mark.nvcc]


def judged(folder: Path, tool: str = "", when: str = "", how: str = "") -> dict[str, Any]:
    """The judgement where `tool` does `how` instead of its work on command lines like `when`."""
    path = os.environ["PATH"]
    if tool:
        (folder / "bin").mkdir()
        double = folder / "bin" / tool
        whose = "$(grep -qs candidate.cu * && echo CANDIDATE)"
        text = f'case "$* {whose}" in {when}) {how};; esac\nexec {shutil.which(tool)} "$@"\n'
        double.write_text("#!/bin/sh\n" + text)
        double.chmod(0o755)
        path = f"{double.parent}:{path}"
    command = [sys.executable, "-m", "tests.gates.judged_with_tools", str(HONEST), str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.deep
def test_with_whole_tools_it_passes(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert found["outcome"] == "provisional", found
    assert all(passed for _, passed, _ in found["gates"])


KILLED = "kill -9 $$"


@pytest.mark.parametrize(
    ("gate", "tool", "when", "how"),
    [
        ("preprocessed", "g++", "*' -E '*", KILLED),
        pytest.param("preprocessed", "nvcc", "*' -E '*", "exit 1", marks=pytest.mark.deep),
        ("compile", "g++", "*' -c '*CANDIDATE", KILLED),
        ("object", "nvcc", "*' -ptx '*", KILLED),
        ("checker", "g++", "*'-fsanitize=thread'**' -c '*CANDIDATE", "exit 1"),
        pytest.param("nvcc_compile", "nvcc", "*'-cudart'*", KILLED, marks=pytest.mark.deep),
        pytest.param("nvcc_compile", "nvcc", "*'-cudart'*", "exit 3", marks=pytest.mark.deep),
    ],
)
def test_a_tool_that_dies_fails_its_gate(
    gate: str, tool: str, when: str, how: str, tmp_path: Path
) -> None:
    found = judged(tmp_path, tool, when, how)
    if "broken" in found:
        return  # said as a fault of the machine, with a remedy: nothing was judged
    assert found["outcome"] == "rejected", found
    failed = [name for name, passed, _ in found["gates"] if not passed]
    assert failed == [gate], found
