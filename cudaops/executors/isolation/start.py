"""From a command and its Confinement to the command line that starts it confined."""

from __future__ import annotations

import contextlib
import errno
import marshal
import math
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.judgement import IsolationLevel
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.isolation import credentials, landlock, places, seccomp
from cudaops.executors.isolation.landlock import RUN, WRITE_FILE, PathRule
from cudaops.executors.isolation.phases import (
    SANITIZER_PORTS,
    TRUSTED,
    Confinement,
    Phase,
    PhaseLimits,
    allowed_calls,
    limits_of,
    resource_limits,
    rules,
    switches_account,
)
from cudaops.executors.untrusted_files import remove

LAUNCHER = Path(__file__).with_name("launcher.py")
OFF_REMEDY = (
    "look at `cudaops doctor`; CUDAOPS_ISOLATION=S1 does without what fails here and says so"
)


class LauncherReport(NamedTuple):
    """What the launcher reported."""

    ready: bool
    """Every step worked and the command was about to begin."""
    failed: str
    """The step that did not work and why; empty where all did."""
    exec_errno: int | None
    ended: int | None
    """Exit code, negative for a signal; None: it was still running when it was killed."""


class Confined:
    """One child that is about to be started. Its pipes, its temporary folder, and its end."""

    def __init__(
        self,
        confinement: Confinement,
        level: IsolationLevel,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        passed: Sequence[int] = (),
        cpu_s: float = math.inf,
    ) -> None:
        """`passed`: descriptors that the command inherits beside the standard ones. `cpu_s`: of
        processor time, for each core.

        Raises PrerequisiteError where the command does not exist, SandboxUnavailable where there is
        no room for a pipe or a folder.
        """
        self.limits: PhaseLimits = confinement.limits or limits_of(confinement.phase)
        self.command = list(command)
        program = _found(command[0], cwd, env)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="cudaops-child-"))
            self._report, report = os.pipe()
            life, self._life = os.pipe()
            spec = os.memfd_create("cudaops-child", 0)
        except OSError as problem:
            raise SandboxUnavailable(
                f"cannot prepare a child: {problem.strerror}", "free disk space or open files"
            ) from problem
        self._ours = [report, life, spec]
        self._said = b""
        self._handed: tuple[tuple[Path, ...], int] | None = None
        self.pass_fds = (*self._ours, *passed)
        try:
            self._prepare(
                spec, (report, life, *passed), confinement, level, program, cwd, env, cpu_s
            )
        except BaseException:
            self.close()
            raise

    def _prepare(
        self,
        spec: int,
        fds: Sequence[int],
        asked: Confinement,
        level: IsolationLevel,
        program: Path,
        cwd: Path,
        env: Mapping[str, str],
        cpu_s: float,
    ) -> None:
        """Write the specification and the command line that reads it."""
        confinement = _with_folder(asked, self.folder)
        found = _rules(confinement, program)
        account = self._account(confinement) if level in ("S2", "S3") else None
        report, life, *passed = fds
        content: dict[str, Any] = {
            **_confining(confinement.phase, level, found, self.limits, account),
            "command": [str(program), *self.command[1:]],
            "environment": _environment(confinement, self.folder, env),
            "report": report,
            "life": life,
            "passed": passed,
        }
        if math.isfinite(cpu_s):
            most = int(cpu_s * (os.cpu_count() or 1)) + 5
            content["limits"].append((resource.RLIMIT_CPU, most))
        with open(spec, "wb", closefd=False) as file:
            file.write(marshal.dumps(content))
        os.lseek(spec, 0, os.SEEK_SET)
        self.argv = [sys.executable, "-I", "-S", "-E", str(LAUNCHER), str(spec)]
        if level == "S3" and found is not None:
            bwrap = find_bubblewrap()
            if bwrap is None:
                raise SandboxUnavailable("bwrap has gone", "install bubblewrap again")
            self.argv = [*_wrapped(bwrap, confinement.phase, cwd, found), *self.argv]

    def _account(self, confinement: Confinement) -> dict[str, Any] | None:
        """Whose name it goes by. On a GPU, where MPS may need sockets, it is given what it writes
        to instead of the right to write past modes, with which it could reach everybody's."""
        if not switches_account(confinement.phase):
            return None
        if confinement.phase == "gpu" and credentials.can_narrow() and places.open_nodes():
            found = credentials.account(narrow=True)
            assert found is not None
            self._handed = (confinement.writes, found["uid"])
            try:
                credentials.hand_over(*self._handed)
                return found
            except OSError:
                self._take_back()
        return credentials.account()

    def _take_back(self) -> None:
        if self._handed is not None:
            credentials.take_back(*self._handed)
            self._handed = None

    def started(self) -> None:
        """The launcher has its ends of the pipes; ours of them go."""
        for number in self._ours:
            os.close(number)
        self._ours = []

    def release(self) -> None:
        """Have the launcher kill the command and whatever it left. Does not wait."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def launcher_report(self) -> LauncherReport:
        """What the launcher said; to be asked when it has ended. Raises nothing."""
        if self._report >= 0:
            os.set_blocking(self._report, False)
            with contextlib.suppress(BlockingIOError):
                while part := os.read(self._report, 1 << 14):
                    self._said += part
        text = self._said.decode("utf-8", "replace")
        lines = [line.partition(" ") for line in text.splitlines()]
        said = {word: rest for word, _, rest in lines}
        number = said.get("exec")
        ended = said.get("ended")
        return LauncherReport(
            "ready" in said,
            said.get("failed", ""),
            int(number) if number is not None else None,
            int(ended) if ended is not None else None,
        )

    def raise_if_not_begun(self, report: LauncherReport, stopped: bool, stderr: bytes) -> None:
        """The command ran confined, or this raises, unless it was `stopped` before.

        `stderr` is what bubblewrap may have said instead of the launcher.
        """
        name = self.command[0]
        if report.failed:
            raise SandboxUnavailable(f"{name} could not be confined: {report.failed}", OFF_REMEDY)
        if report.exec_errno == errno.ENOENT:
            raise PrerequisiteError(f"{name} is not there", "install it or put it on PATH")
        if report.exec_errno is not None:
            text = os.strerror(report.exec_errno)
            raise SandboxUnavailable(f"cannot start {name}: {text}", "free memory or processes")
        if not report.ready and not stopped:
            said = " ".join(stderr.decode("utf-8", "replace").split())[:200]
            text = f"{name} was ended before it was confined"
            raise SandboxUnavailable(f"{text}: {said}" if said else text, OFF_REMEDY)

    def close(self) -> None:
        """Close what is open and remove the temporary folder, whatever was left in it."""
        self.release()
        self.started()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1
        self._take_back()
        remove(self.folder)


def _found(name: str, cwd: Path, env: Mapping[str, str]) -> Path:
    found = shutil.which(name, path=env.get("PATH")) if os.sep not in name else str(cwd / name)
    if found is None or not Path(found).exists():
        if not cwd.is_dir():
            raise SandboxUnavailable(f"the folder {cwd} no longer exists", "run again")
        raise PrerequisiteError(f"{name} is not there", "install it or put it on PATH")
    return Path(found).absolute()


def _with_folder(asked: Confinement, folder: Path) -> Confinement:
    return replace(
        asked,
        reads=tuple(p.absolute() for p in asked.reads),
        writes=(*(p.absolute() for p in asked.writes), folder),
        runs=tuple(p.absolute() for p in asked.runs),
    )


def _environment(
    confinement: Confinement, folder: Path, env: Mapping[str, str]
) -> Mapping[str, str]:
    """With a temporary folder that the child may write to, and a PATH that is not ours. ncu keeps
    out of another ncu's way by a file in the machine's: what is trusted keeps what it has."""
    if confinement.phase in TRUSTED:
        return dict(env)
    asked = env.get("TMPDIR")
    usable = asked is not None and any(Path(asked).is_relative_to(p) for p in confinement.writes)
    path = places.search_path(env.get("PATH", ""), compilers=confinement.phase == "compile")
    temporary = asked if asked is not None and usable else str(folder)
    return {**env, "PATH": path, "TMPDIR": temporary}


def _rules(confinement: Confinement, program: Path) -> list[PathRule] | None:
    found = rules(confinement, program)
    resolved = program.resolve()
    if found is not None and resolved != program:
        found.append(PathRule(resolved, RUN))
    return found


def _confining(
    phase: Phase,
    level: IsolationLevel,
    found: Sequence[PathRule] | None,
    limits: PhaseLimits,
    account: dict[str, Any] | None,
) -> dict[str, Any]:
    """The launcher's steps with everything they need."""
    strong = level in ("S2", "S3")
    calls = allowed_calls(phase) if strong else None
    ports = SANITIZER_PORTS if phase == "sanitizer" else ()
    files = landlock.rule_set(landlock.abi(), found, ports) if strong else None
    switched = account is not None and account["uid"] is not None
    return {
        "limits": resource_limits(limits, 0 if switched else credentials.tasks_now()),
        # ncu may have its right to read counters from its file's capabilities.
        "no_new_privileges": phase != "profiler",
        "landlock": files,
        "account": account,
        "seccomp": None if calls is None else seccomp.program(calls),
    }


_EMPTIED = ("/tmp", "/var/tmp", "/run/user")
"""Folders shared by all accounts. What a child needs below them is bound into them again."""


def find_bubblewrap() -> Path | None:
    """`bwrap` on PATH; None where it is not there."""
    found = shutil.which("bwrap")
    return Path(found) if found else None


def _wrapped(bwrap: Path, phase: Phase, cwd: Path, rules: Sequence[PathRule]) -> list[str]:
    """The command line up to the launcher's own. `rules` are what Landlock allows."""
    line = [
        str(bwrap), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
    ]  # fmt: skip
    if phase == "gpu":
        for node in sorted(Path("/dev").glob("nvidia*")):
            line += ["--dev-bind", str(node), str(node)]
    for folder in _EMPTIED:
        if Path(folder).is_dir():
            line += ["--tmpfs", folder]
    # As text: comparing Paths takes ten times as long, and every launch of a kernel comes by here.
    of_rules = {(str(r.path), r.access) for r in rules}
    apart = {(p, a) for p, a in of_rules if not _is_below(p, ("/dev",)) and "/proc" not in p}
    written = {p for p, access in apart if access & WRITE_FILE}
    # Our launcher runs in there too, whatever the child itself may read.
    wanted = {*(p for p, _ in apart), *(str(r.path) for r in places.python())}
    read = {p for p in wanted if _is_below(p, _EMPTIED)}
    if _is_below(str(cwd), _EMPTIED):
        line += ["--dir", str(cwd)]
    # What lies in a folder that is bound comes with it. bwrap cannot bind onto a link, such as the
    # `python` of a virtual environment under /tmp.
    for path in sorted(p for p in read - written if read.isdisjoint(_above(p))):
        line += ["--ro-bind-try", path, path]
    for path in sorted(written):
        line += ["--bind", path, path]
    return [*line, "--chdir", str(cwd), "--"]


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
