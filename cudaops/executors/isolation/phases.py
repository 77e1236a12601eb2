"""What each kind of child may do (docs/isolation.md has the same as a table)."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.isolation import places
from cudaops.executors.isolation.landlock import (
    READ,
    REFER,
    RUN,
    TRUNCATE,
    WRITE,
    WRITE_FILE,
    PathRule,
)
from cudaops.executors.isolation.seccomp import Allowed

Phase = Literal["compile", "kernel", "program", "gpu", "runner", "sanitizer", "profiler"]
"""`compile`: compilers and what reads their output. `kernel`: a candidate's kernel on the
processor. `program`: an author's whole program there. `gpu`: the same on a GPU. `runner`: our own
process that launches cubins. `sanitizer`, `profiler`: compute-sanitizer and ncu around it."""
TRUSTED: tuple[Phase, ...] = ("runner", "sanitizer", "profiler")
"""Phases in which the host code is ours or NVIDIA's and what is untrusted runs on the GPU alone,
where it can make no system call. Which files they need is known task by task."""

GIB = 1024**3
PROGRAM_STACK_BYTES = GIB // 4
"""Authors of programs with large local arrays raise their own: `ulimit -s`, MSVC's `/STACK`."""
SANITIZER_PORTS = range(49152, 49152 + 512)
"""compute-sanitizer's: `--base-port` and what it opens above (its `--help`, 2025.4)."""


class PhaseLimits(NamedTuple):
    """Bounds of one child with everything it starts."""

    file_bytes: int
    """Largest single file."""
    disk_bytes: int
    """By which its writable folders may grow together."""
    disk_entries: int
    tasks: int
    """Processes and threads beyond those the account has now."""
    address_space_bytes: int | None = None
    """A process; None where CUDA or fibers reserve more than they use."""
    share_of_memory: float = 0.75
    """Of this machine's memory that may be resident."""
    open_files: int = 4096
    stack_bytes: int | None = None
    """Of the first thread, and what others get by default; None: as it is here."""


@dataclass(frozen=True)
class Confinement:
    """What one child is and which of the author's and our files it needs.

    The command itself, system libraries and (by phase) compilers or this Python come on top, and a
    temporary folder of the child's own.
    """

    phase: Phase
    reads: tuple[Path, ...] = ()
    """Files, or folders with everything in them. What is not there is left out."""
    writes: tuple[Path, ...] = ()
    """Folders it may make, read, change and remove files in; files it may change."""
    runs: tuple[Path, ...] = ()
    """Executables beside the command."""
    limits: PhaseLimits | None = None
    """None: the phase's."""
    moves: bool = False
    """It may move files from folder to folder, as compilers may: Triton's cache does so."""
    at_most: IsolationLevel = "S3"
    """Not confined better than this, for what a stronger level is known to break."""


def limits_of(phase: Phase) -> PhaseLimits:
    """The phase's own bounds."""
    cores = os.cpu_count() or 1
    if phase == "compile":
        return PhaseLimits(4 * GIB, 8 * GIB, 20_000, 256, address_space_bytes=8 * GIB)
    if phase == "kernel":
        return PhaseLimits(16 * GIB, 32 * GIB, 4_000, cores + 64)
    stack_bytes = None if phase in TRUSTED else PROGRAM_STACK_BYTES
    return PhaseLimits(16 * GIB, 32 * GIB, 20_000, 8 * cores + 512, stack_bytes=stack_bytes)


def resource_limits(limits: PhaseLimits, tasks_now: int) -> list[tuple[int, int]]:
    """Numbers of RLIMIT_* with their values."""
    found = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, tasks_now + limits.tasks),
    ]
    if limits.address_space_bytes is not None:
        found.append((resource.RLIMIT_AS, limits.address_space_bytes))
    if limits.stack_bytes is not None:
        found.append((resource.RLIMIT_STACK, limits.stack_bytes))
    return found


def rules(confinement: Confinement, command: Path) -> list[PathRule] | None:
    """What Landlock allows; None: files are left alone."""
    phase = confinement.phase
    if phase in TRUSTED:
        return None
    found = [*places.base(), PathRule(command, RUN, needed=True)]
    if phase == "compile":
        found += [*places.programs(), *places.python()]
    if phase == "gpu":
        # This Python for the probe that tries the GPU under this very profile.
        found += [
            *places.gpu(),
            *places.python(),
            PathRule(Path("/proc/self"), READ | WRITE_FILE | TRUNCATE),
        ]
    extra = REFER if phase == "compile" or confinement.moves else 0
    found += [PathRule(p, RUN) for p in confinement.runs]
    found += [PathRule(p, READ) for p in confinement.reads]
    found += [PathRule(p, WRITE | extra, needed=True) for p in confinement.writes]
    return found


def allowed_calls(phase: Phase) -> Allowed | None:
    """What seccomp allows; None: no filter. ncu reads counters by calls that a filter could
    only guess at (perf events, its own sessions)."""
    if phase == "profiler":
        return None
    if phase == "kernel":
        return Allowed()
    if phase in ("compile", "program"):
        # ld makes what it links executable.
        compiles = phase == "compile"
        return Allowed(processes=True, attributes=compiles, only_pairs=compiles)
    trusted = phase in TRUSTED
    return Allowed(
        processes=True,
        unix_sockets=trusted or places.mps_folder() is not None,
        pairs=True,
        hidden_memory=True,
        tcp=phase == "sanitizer",
        attributes=trusted,
        limits_of_others=trusted,
    )


def switches_account(phase: Phase) -> bool:
    """Whether a child of root goes by an account of its own; otherwise it stays root."""
    return phase not in TRUSTED
