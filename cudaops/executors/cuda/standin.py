"""Units and programs built for the stand-in GPU: by nvcc, and again by g++ to be run."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Literal

from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.build import Built, build_unit
from cudaops.executors.cuda.platform import Executable, Module, Platform
from cudaops.executors.cuda.standin_unit import IMAGE, write_image
from cudaops.storage import Facts, entry_of, make_once

HEADER = Path(__file__).with_name("standin.h")


class StandInPlatform:
    """Implements `Platform`: what nvcc refuses is refused, what it makes is described, g++'s runs.

    `image` of a module is for `StandInDriver`; everything else is the real build's.
    """

    def __init__(self, cache: Path, builder: Platform) -> None:
        """`builder` makes cubins; `cache` takes the builds of g++."""
        self.driver: Literal["nvidia", "standin"] = "standin"
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
        flags = ("-include", str(HEADER), f"-DCUDAOPS_STANDIN={_header_digest()}")
        built = build_unit(self._cache, unit, "plain", flags)
        if isinstance(built, CompileFailed):
            text = f"cannot run on the stand-in GPU: {built.message}"
            return built.model_copy(update={"message": text})
        return real._replace(
            image=self._image(unit, real, built),
            seconds=real.seconds + built.seconds,
            cached=real.cached and built.cached,
        )

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        """The whole program over the `cpu` executor's runtime."""
        from cudaops.executors.cuda.standin_program import standin_program

        return standin_program(self._cache, program, recorded)

    def _image(self, unit: Unit, real: Module, built: Built) -> Path:
        """The file that the driver loads, written once for this pair of builds."""
        entry = entry_of(self._cache, "standin", str(self._cache), real.key, built.key)

        def make(folder: Path) -> Facts:
            write_image(folder, unit, real, built)
            return {}

        make_once(entry, {}, make)
        return entry.folder / IMAGE


@functools.cache
def _header_digest() -> str:
    return hashlib.sha256(HEADER.read_bytes()).hexdigest()[:16]
