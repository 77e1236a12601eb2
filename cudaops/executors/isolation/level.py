"""Isolation level of this machine: found by confining a child, and what the user asked for.

What is in force holds for the whole process, as what the machine can do does: no call that starts a
child can miss it. Entry points state it once with `enforce`; without that it is `auto`.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.judgement import IsolationLevel
from cudaops.domain.run import IsolationChoice
from cudaops.errors import EnvironmentFailure, SandboxUnavailable
from cudaops.executors.isolation import credentials, landlock, seccomp
from cudaops.executors.isolation.landlock import EXECUTE, NET_ABI, SCOPE_ABI
from cudaops.executors.isolation.phases import TRUSTED, Confinement, Phase
from cudaops.executors.isolation.places import python
from cudaops.executors.isolation.start import Confined, find_bubblewrap

MEANING: dict[IsolationLevel, str] = {
    "S0": "not confined",
    "S1": "limits on time, memory and files, no new privileges, no surviving process",
    "S2": "Landlock, seccomp and limits, no surviving process",
    "S3": "namespaces by bubblewrap, Landlock, seccomp and limits, no surviving process",
}
"""What a level is made of, in one line."""

PROBE_S = 30.0
_ORDER: tuple[IsolationLevel, ...] = ("S0", "S1", "S2", "S3")
_REMEDIES: dict[str, str] = {
    "S1": "run cudaops on Linux with /proc mounted, or trust the source with CUDAOPS_ISOLATION=off",
    "S2": "use a kernel with Landlock (5.13 and later, `landlock` in /sys/kernel/security/lsm) on "
    "x86_64 or aarch64, and a container runtime whose seccomp profile allows it",
    "S3": "install bubblewrap (`apt-get install bubblewrap`) and allow user namespaces",
}
_PROBE = """
import _socket, os, sys
def refused(call, *words):
    try:
        call(*words)
    except (PermissionError, FileNotFoundError):
        return True
    return False
open(sys.argv[1]).read()
print(refused(open, sys.argv[2]), refused(_socket.socket), refused(os.fork))
"""


class LevelFound(NamedTuple):
    """What a machine can do for the phases without a GPU."""

    level: IsolationLevel
    notes: tuple[str, ...]
    """What keeps it from more, and what this level lacks here."""


class _InForce:
    """The policy of this process, and phases that turned out to bear less."""

    def __init__(self) -> None:
        self.wanted: IsolationChoice = "auto"
        self.at_most: dict[Phase, IsolationLevel] = {}
        self.notices: list[str] = []
        self.lock = threading.RLock()


_IN_FORCE = _InForce()


def enforce(wanted: IsolationChoice) -> IsolationLevel:
    """State what is wanted from now on; the level of a candidate's kernel on the processor.

    Raises SandboxUnavailable, with a remedy, where S2 or S3 is wanted and not reached.
    """
    with _IN_FORCE.lock:
        before, _IN_FORCE.wanted = _IN_FORCE.wanted, wanted
        try:
            return level_of("kernel")
        except EnvironmentFailure:
            _IN_FORCE.wanted = before
            raise


def level_of(phase: Phase, at_most: IsolationLevel = "S3") -> IsolationLevel:
    """How well a child of this phase is confined. Raises SandboxUnavailable: not well enough."""
    wanted = _IN_FORCE.wanted
    if wanted == "off":
        return "S0"
    if wanted == "S1":
        return "S1"
    reached = probe()
    level = lowest(reached.level, at_most, _IN_FORCE.at_most.get(phase, "S3"))
    if phase in TRUSTED:
        level = lowest(level, "S1" if phase == "profiler" else "S2")
    if wanted != "auto" and _ORDER.index(reached.level) < _ORDER.index(wanted):
        why = "; ".join(reached.notes) or "not on this machine"
        raise SandboxUnavailable(
            f"isolation {wanted} is wanted and {reached.level} is reached ({why})",
            _REMEDIES[wanted],
        )
    return level


def lowest(*levels: IsolationLevel) -> IsolationLevel:
    """The weakest of several levels."""
    return min(levels, key=_ORDER.index)


def weaken(phase: Phase, level: IsolationLevel, why: str) -> None:
    """A phase that does not work confined as well as the machine could: it is not, and says so.

    Raises SandboxUnavailable where that is less than what was asked for.
    """
    with _IN_FORCE.lock:
        wanted = _IN_FORCE.wanted
        if wanted in ("S2", "S3") and _ORDER.index(level) < _ORDER.index(wanted):
            raise SandboxUnavailable(
                f"isolation {wanted} is wanted and {phase} does not work so: {why}",
                "allow less with CUDAOPS_ISOLATION=auto, which says what it did without",
            )
        _IN_FORCE.at_most[phase] = level
        _IN_FORCE.notices.append(f"{phase}: isolation {level} only, because {why}")


def notices() -> tuple[str, ...]:
    """What is confined less than the machine could, and why."""
    return tuple(_IN_FORCE.notices)


@functools.cache
def probe() -> LevelFound:
    """Confine a child at each level from the strongest down until one holds.

    Raises SandboxUnavailable where not even limits and a clean end can be had.
    """
    notes: list[str] = []
    why = "bubblewrap is not installed" if find_bubblewrap() is None else _why_not("S3")
    if not why:
        return LevelFound("S3", _lacking())
    notes.append(f"no S3: {why}")
    why = _unsupported() or _why_not("S2")
    if not why:
        return LevelFound("S2", (*notes, *_lacking()))
    notes.append(f"no S2: {why}")
    if why := _why_not("S1"):
        raise SandboxUnavailable(f"no child can be confined here: {why}", _REMEDIES["S1"])
    return LevelFound("S1", tuple(notes))


def _unsupported() -> str:
    if landlock.abi() < 1:
        return "this kernel has no Landlock, or it is switched off"
    if not seccomp.supported():
        return "no list of system calls for this processor"
    return ""


def _lacking() -> tuple[str, ...]:
    """What Landlock of this age does not refuse."""
    version = landlock.abi()
    lacks = []
    if version < SCOPE_ABI and not credentials.can_switch():
        lacks.append(f"Landlock {version}: signals to this account's processes are not refused")
    if version < NET_ABI:
        lacks.append(f"Landlock {version}: TCP is refused by seccomp alone")
    return tuple(lacks)


def _why_not(level: IsolationLevel) -> str:
    """Empty where a child confined at this level can do what it may and nothing else."""
    with tempfile.TemporaryDirectory(prefix="cudaops-probe-") as name:
        allowed, refused = Path(name) / "allowed", Path(name) / "refused"
        for path in (allowed, refused):
            path.write_text("x", encoding="utf-8")
        command = [sys.executable, "-I", "-S", "-c", _PROBE, str(allowed), str(refused)]
        runs = tuple(rule.path for rule in python() if rule.access & EXECUTE)
        confinement = Confinement("kernel", (allowed,), runs=runs)
        try:
            said = _run(confinement, level, command, Path(name))
        except EnvironmentFailure as problem:
            return problem.problem
    held = level == "S1" or said.split() == ["True"] * 3
    return "" if held else f"the sandbox is too permissive: of file, socket, fork it denied {said}"


def _run(confinement: Confinement, level: IsolationLevel, command: list[str], cwd: Path) -> str:
    """Output of a probe. Raises EnvironmentFailure where it does not run to its end."""
    confined = Confined(confinement, level, command, cwd, {"PATH": "/usr/bin:/bin"})
    try:
        done = subprocess.run(
            confined.argv,
            cwd=cwd,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=confined.pass_fds,
            start_new_session=True,
            timeout=PROBE_S,
            check=False,
        )
        report = confined.launcher_report()
        confined.raise_if_not_begun(report, False, done.stderr)
        if report.ended != 0:
            text = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise SandboxUnavailable(f"a confined child ended with {report.ended} {text}", "")
        return done.stdout.decode("utf-8", "replace").strip()
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SandboxUnavailable(str(problem), "") from problem
    finally:
        confined.close()
