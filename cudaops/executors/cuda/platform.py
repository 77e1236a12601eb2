"""The seam between the `cuda` executor and what it builds for: NVIDIA's driver, or another one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from cudaops.domain.execution import CompileFailed, KernelResources, Unit
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.isolation.phases import Phase

NVIDIA = "nvidia"
"""The driver of NVIDIA's GPUs."""


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
    tree: Path | None = None
    """The folder of an author's build, with what else it made at its place. A program that lies
    elsewhere is an interpreter, and is run there rather than where the author is."""
    needs: tuple[Path, ...] = ()
    """Of one that is the author's own, run where the author is and never built: what it runs of
    this machine, itself among it."""
    preload: Path | None = None
    """What is loaded into it."""
    arguments: tuple[str, ...] = ()
    """What comes before those of every run."""

    @property
    def is_interpreted(self) -> bool:
        """Whether what was built is run by a program of this machine."""
        return self.tree is not None and not self.path.is_relative_to(self.tree)


class Platform(Protocol):
    """What units and programs are built with, for one driver."""

    driver: str
    """Which driver the runner opens: `NVIDIA`, or `package.module:Class`, which implements
    `runner.driver.Driver`."""
    sm_arch: str
    program_phase: Phase
    """How whole programs are confined: `gpu` where they open one."""
    names_faults: bool
    """Whether what runs a program's kernels reports their faults itself, as the `cpu` executor's
    runtime does."""

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        """Build the kernels of a unit. `draft`: by the quicker compiler where it can."""

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        """Build the whole program; `recorded`: with its launches going through the recorder."""


class PlatformClass(Protocol):
    """A platform to be made, such as a double of the driver that tests bring along."""

    @property
    def driver(self) -> str:
        """See `Platform`; known before there is one, as the runner says what GPU there is."""

    @property
    def program_phase(self) -> Phase:
        """See `Platform`."""

    def __call__(self, cache: Path, builder: Platform) -> Platform:
        """`builder` makes cubins for NVIDIA's driver; `cache` takes other builds."""

    def runner_environment(self) -> Mapping[str, str]:
        """What its runner reads of our environment, beside what every runner sees."""


def platform_class(name: str) -> PlatformClass:
    """The class that `CUDAOPS_GPU_DRIVER` names as `package.module:Class`.

    Raises InputError where it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InputError(
            f"CUDAOPS_GPU_DRIVER is {name!r}; it is {NVIDIA!r}, or 'package.module:Class' of a "
            "platform that Python can import"
        )
    try:
        found: PlatformClass = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise InputError(
            f"CUDAOPS_GPU_DRIVER names {name}, which cannot be imported: {problem}"
        ) from problem
    return found
