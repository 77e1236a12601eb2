"""Units to build, and what is checked of every build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.domain.program import Program, SourceFile
from cudaops.executors.cuda.platform import Executable, Module
from cudaops.program.parse import parse_files
from cudaops.program.plans import make_rewrite

TESTS = Path(__file__).parents[2]
PROGRAMS = TESTS / "data" / "programs"
EXAMPLE = TESTS.parent / "examples" / "naive_matmul.cu"
INSTANCES = {"signal::energy": "signal::energy<float>", "stride<32>": "stride<32, int>"}
"""What capture spells out where the author let the compiler deduce."""


def program_of(text: str) -> Program:
    body = f"#include <cstdio>\n{text}\nint main() {{ return 0; }}\n"
    return parse_files("k", (SourceFile(path="k.cu", text=body),))


def unit_of(text: str, callee: str, rewrite: str | None = None, *, widened: bool = False) -> Unit:
    """A kernel that stands on line 2 of `k.cu`."""
    program = program_of(text)
    kernel = re.split(r"<|::", callee.replace("::", "\0"))[0].split("\0")[-1]
    made = None if rewrite is None else make_rewrite(rewrite, "user", "t", "w")
    return Unit(program=program, kernel=kernel, callee=callee, rewrite=made, widened=widened)


def built(outcome: Module | CompileFailed) -> Module:
    assert isinstance(outcome, Module), f"{outcome.placed}\n{outcome.log}"
    return outcome


def refused(outcome: Module | CompileFailed | Executable) -> CompileFailed:
    assert isinstance(outcome, CompileFailed), outcome
    return outcome


COPY = "__global__ void copy(const float* a, float* b, int n) { b[threadIdx.x] = a[n]; }"


def cubin_says(module: Module) -> dict[str, KernelResources]:
    """The module's resources as `cuobjdump -res-usage` gives them, by symbol."""
    wheels = [str(p) for s in sys.path for p in Path(s).glob("nvidia/cu*/bin/cuobjdump")]
    tool = next((t for t in (shutil.which("cuobjdump"), *wheels) if t), None)
    if tool is None:
        pytest.skip("no cuobjdump here (extra `toolkit`)")
    done = subprocess.run(
        [tool, "-res-usage", str(module.image)], capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) .*?CONSTANT\[0\]:(\d+)"
    return {
        symbol: KernelResources(
            kernel="", sm_arch="", registers=int(registers), stack_bytes=int(stack),
            static_smem_bytes=int(shared), constant_bytes=int(constant),
            spill_store_bytes=0, spill_load_bytes=0,
        )
        for symbol, registers, stack, shared, constant in re.findall(pattern, done.stdout)
    }  # fmt: skip


def check_resources(module: Module, reserved: int = 0) -> None:
    said = cubin_says(module)
    assert len(module.resources) == len(module.launchables)
    for one, known in zip(module.launchables, module.resources, strict=True):
        other = said[one.symbol]
        assert known.kernel == one.shown
        assert known.registers == other.registers
        assert known.stack_bytes == other.stack_bytes
        assert known.constant_bytes == other.constant_bytes
        assert known.static_smem_bytes == max(0, other.static_smem_bytes - reserved)
