"""Units and programs built for the stand-in GPU: by nvcc, and again by g++ to be run."""

from __future__ import annotations

import os
from pathlib import Path

from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.build import Built, build_unit
from cudaops.executors.cuda.platform import Executable, Module, Platform
from cudaops.executors.isolation.phases import Phase
from cudaops.storage import Facts, entry_of, make_once
from tests.standin.unit import IMAGE, write_image
from tests.standin.whole_program import standin_program

HEADER = Path(__file__).with_name("unit.h")


STANDIN = "tests.standin.platform:StandInPlatform"
"""For CUDAOPS_GPU_DRIVER and `CudaExecutor(driver=...)`."""
DRIVER = "tests.standin.driver:StandInDriver"


class StandInPlatform:
    """Implements `Platform`: what nvcc refuses is refused, what it makes is described, g++'s runs.

    `image` of a module is for `StandInDriver`; everything else is the real build's.
    """

    driver: str = DRIVER
    program_phase: Phase = "program"
    names_faults = True

    def __init__(self, cache: Path, builder: Platform) -> None:
        """`builder` makes cubins; `cache` takes the builds of g++."""
        self.sm_arch = builder.sm_arch
        self._builder = builder
        self._cache = cache.absolute()

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        """Build with the real compiler, then for the stand-in.

        Raises PrerequisiteError where nvcc or g++ is missing.
        """
        real = self._builder.unit(unit, draft=draft)
        if isinstance(real, CompileFailed):
            return real
        header = {f"standin_{HEADER.name}": HEADER.read_text("utf-8")}
        built = build_unit(self._cache, unit, "plain", headers=header)
        if isinstance(built, CompileFailed):
            text = f"cannot run on the stand-in GPU: {built.message}"
            return built.model_copy(update={"message": text})
        return real._replace(
            image=self._image(unit, real, built),
            seconds=real.seconds + built.seconds,
            cached=real.cached and built.cached,
        )

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        """The whole program over the `cpu` executor's runtime; an application over whatever
        libcuda.so.1 it finds."""
        if program.application is not None:
            return self._builder.program(program, recorded=recorded)
        return standin_program(self._cache, program, recorded)

    @staticmethod
    def runner_environment() -> dict[str, str]:
        """The script of times."""
        return {n: v for n, v in os.environ.items() if n.startswith("CUDAOPS_STANDIN_")}

    def _image(self, unit: Unit, real: Module, built: Built) -> Path:
        """The file that the driver loads, written once for this pair of builds."""
        entry = entry_of(self._cache, "standin", str(self._cache), real.key, built.key)

        def make(folder: Path) -> Facts:
            write_image(folder, unit, real, built)
            return {}

        make_once(entry, {}, make)
        return entry.folder / IMAGE
