"""Whole programs on platforms that need no GPU, for the tests of the recorder."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.executors.cuda.platform import Executable, Module
from cudaops.executors.cuda.program import GpuProgram
from cudaops.executors.isolation.phases import Phase
from tests.standin.platform import DRIVER
from tests.standin.whole_program import standin_program

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
PROGRAMS = sorted((DATA / "programs").glob("*.cu"))
REFUSED = {"syntax_error", "no_main", "no_kernel"}


class StandInPrograms:
    """The stand-in platform as far as whole programs go: no cubins, hence no nvcc."""

    driver: str = DRIVER
    program_phase: Phase = "program"
    names_faults = True
    sm_arch = "sm_86"

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        raise AssertionError("whole programs only")

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        return standin_program(self.cache, program, recorded)


def on_gpu(
    platform: StandInPrograms, parsed: Program, *argv: str, timeout_s: float = 60.0
) -> GpuProgram:
    return GpuProgram(platform, parsed, argv, Path.cwd(), timeout_s)


def recorded_bytes(workload: Workload, name: str) -> bytes:
    return (Path(workload.folder) / name).read_bytes()
