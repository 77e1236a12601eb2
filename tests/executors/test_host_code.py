"""Host code that writes a little past a buffer runs, as its author's own nvcc without -O has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.executors.cpu.toolchain import compile_flags, find_toolchain
from cudaops.executors.cuda.toolchain import nvcc_command, require_nvcc
from cudaops.executors.process import run_bounded

ENDS_PAST_ITS_BUFFER = """
#include <cstdio>
#include <cstdlib>
int main(int count, char**) {
  char* text = (char*)malloc(8);
  for (int i = 0; i < 4; ++i) sprintf(text + 2 * i, "%2.2x", count + i);
  return puts(text) < 0;
}
"""
OF_UBUNTU = "-D_FORTIFY_SOURCE=3"
"""What Ubuntu 24.04's g++ says to itself where it optimizes, before all words that it is given."""


def lives(command: list[str], folder: Path) -> bool:
    """The program, compiled by this command."""
    made = run_bounded(command, cwd=folder, timeout_s=120)
    assert made.exit_code == 0, made.stderr
    return run_bounded(["./a.out"], cwd=folder, timeout_s=60).exit_code == 0


def test_on_a_processor(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(ENDS_PAST_ITS_BUFFER, "utf-8")
    compiler, flags = find_toolchain().gxx, (*compile_flags("plain"), "-no-pie")
    assert lives([compiler, OF_UBUNTU, *flags, "main.cpp"], tmp_path)
    assert not lives([compiler, *flags, OF_UBUNTU, "main.cpp"], tmp_path)


@pytest.mark.nvcc
def test_for_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(ENDS_PAST_ITS_BUFFER, "utf-8")
    command = nvcc_command(require_nvcc(), Path("main.cu"), Path("a.out"), "sm_86")
    ubuntu = ["-Xcompiler", OF_UBUNTU]
    assert lives([command[0], *ubuntu, *command[1:]], tmp_path)
    assert not lives([*command, *ubuntu], tmp_path)
