"""The runtime API, intrinsics and atomics of the `cpu` executor: programs that check themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudaops.domain.execution import ProgramRan, Unit
from cudaops.executors.cpu.build import Built, build_program, build_unit
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program

DATA = Path(__file__).parents[2] / "data" / "cpu"


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return cpu_executor


def test_the_runtime_api(executor: CpuExecutor) -> None:
    outcome = executor.run_program(load_program(DATA / "runtime_api.cu"), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert (outcome.stderr, outcome.stdout) == ("", "ok\n")


@pytest.mark.parametrize("name", ["runtime_state", "graphs"])
def test_the_runtime_keeps_what_it_is_told(executor: CpuExecutor, name: str) -> None:
    outcome = executor.run_program(load_program(DATA / f"{name}.cu"), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert (outcome.stderr, outcome.stdout) == ("", "ok\n")


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["runtime_state", "graphs"])
def test_nvcc_takes_the_same_program(name: str, tmp_path: Path) -> None:
    command = ["nvcc", "-arch=sm_86", "-c", "-o", "p.o", str(DATA / f"{name}.cu")]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


def test_intrinsics_and_atomics(executor: CpuExecutor) -> None:
    outcome = executor.run_program(load_program(DATA / "device_functions.cu"), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert outcome.stdout.splitlines() == [
        "wrong 0",
        "512 -1024 63 -63 512 | ffffffff 0 2 0 | 512 | 256 128",
    ]


@pytest.mark.parametrize("kernel", ["integers", "floats", "narrow", "atomics"])
def test_the_widened_build_knows_the_same_functions(executor: CpuExecutor, kernel: str) -> None:
    program = load_program(DATA / "device_functions.cu")
    unit = Unit(program=program, kernel=kernel, callee=kernel, widened=True)
    built = build_unit(executor.cache, unit)
    assert isinstance(built, Built), built


def test_the_checked_build_takes_every_atomic(executor: CpuExecutor) -> None:
    built = build_program(executor.cache, load_program(DATA / "device_functions.cu"), "checked")
    assert isinstance(built, Built), built
