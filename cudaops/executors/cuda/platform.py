"""The seam between the `cuda` executor and what it builds for: a GPU, or its stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.domain.program import Program
from cudaops.executors.cuda.protocol import Launchable


class Module(NamedTuple):
    """A unit that was built."""

    key: str
    """Content address over sources, flags and compiler."""
    folder: Path
    image: Path
    """What the runner loads."""
    launchables: tuple[Launchable, ...]
    variables: dict[str, str]
    """Qualified name of each device variable that is in the module, to its symbol."""
    resources: tuple[KernelResources, ...]
    """One a launchable, in the same order, as ptxas reports them."""
    command: str
    compiler: str
    seconds: float
    cached: bool
    log: str

    def launchable(self, entry: int) -> Launchable:
        """The kernel of this entry. Raises KeyError."""
        for one in self.launchables:
            if one.entry == entry:
                return one
        raise KeyError(entry)


class Executable(NamedTuple):
    """A whole program that was built."""

    path: Path
    command: str
    seconds: float
    cached: bool


class Platform(Protocol):
    """What a unit and a program are built with, and which driver the runner opens."""

    driver: Literal["nvidia", "standin"]
    sm_arch: str

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        """Build the kernels of a unit. `draft`: by the quicker compiler where it can."""

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        """Build the whole program; `recorded`: with its launches going through the recorder."""
