"""Bounded child processes: time, output, environment, and nothing left running afterwards."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import cudaops
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.isolation.level import level_of
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.isolation.start import Confined
from cudaops.executors.isolation.watch import DISK, LOOK_S, Watch
from cudaops.executors.ledger import LEDGER, tool_of
from cudaops.executors.stopping import raise_if_stopped
from cudaops.storage import raise_for_space

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""Kept of stdout and of stderr; a child that writes twice as much is ended."""
PRINTED_BYTES = 128 * 1024 * 1024
"""The same of an author's whole program, of which what comes after `MAX_OUTPUT_BYTES` is not
kept: with a line an element, 2^20 elements are 20 MB."""
MAX_FILE_BYTES = 16 * 1024**3
"""Largest file a child may write."""
TERMINAL_GRACE_S = 2.0
"""How long a process group gets to die after SIGKILL before we stop waiting for it."""
CLEARING_S = 10.0
"""How long a launcher gets to kill what a confined child left, forks without end among it."""

INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""What a child sees of our environment: no keys, no tokens."""


class Finished(NamedTuple):
    """A child that ended, or was ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    flooded: bool = False
    """It wrote more than it may, to its output or to disk."""
    exceeded: str = ""
    """Which bound of memory or disk it passed and was stopped for, in one line."""


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Only what `INHERITED` names, `LC_ALL=C` for readable tool messages, and `extra`."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}


def python_path(*more: str) -> str:
    """PYTHONPATH of a child of ours: this cudaops, `more`, and wherever this process finds its
    packages, which a bounded environment would not tell it. Not the working folder, which is the
    author's."""
    ours = str(Path(cudaops.__file__).parent.parent)
    found = [p for p in sys.path if p != str(Path.cwd())]
    return os.pathsep.join(dict.fromkeys(p for p in (ours, *more, *found) if p))


def run_bounded(
    command: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    printed_bytes: int | None = None,
    tool: str | None = None,
    confine: Confinement | None = None,
    uncounted_s: Callable[[], float] = float,
    stdin: Path | None = None,
) -> Finished:
    """Run to the end, or to `timeout_s` seconds, in a session of its own; then kill what is left.

    `tool` is what the time counts as in the ledger; by default what the command's name says.
    `confine` says what the child may do, and None that it is a trusted tool which sees nothing
    untrusted but names. A child that cannot be confined as wanted is not run. `uncounted_s` says
    how many seconds of its life so far do not count as time that it took. `stdin`: what it reads
    there; None: nothing. `printed_bytes`: with more on one stream it is ended; None: with twice
    `max_output_bytes`, which are kept.

    Raises PrerequisiteError where the program does not exist, SandboxUnavailable where the machine
    cannot start a process, cannot confine it, or has no space left, Stopped where the work it is
    part of was asked to end.
    """
    raise_if_stopped()
    started = time.monotonic()

    def deadline() -> float:
        return started + timeout_s + uncounted_s()

    given = child_environment(env)
    most = OutputLimits(max_output_bytes, printed_bytes or 2 * max_output_bytes)
    level = "S0" if confine is None else level_of(confine.phase, confine.at_most)
    if confine is None or level == "S0":
        child = _start(command, cwd, given, stdin=stdin)
        collected = _watched(child, deadline, most, None)
        code = child.returncode
    else:
        confined = Confined(confine, level, command, cwd, given, cpu_s=timeout_s)
        try:
            child = _start(confined.argv, cwd, {}, confined, stdin)
            watch = Watch(child.pid, confined.limits, (*confine.writes, confined.folder))
            collected = _watched(child, deadline, most, watch, confined)
            report = confined.launcher_report()
            stopped = collected.timed_out or collected.flooded or bool(collected.exceeded)
            confined.raise_if_not_begun(report, stopped, collected.stderr)
        finally:
            confined.close()
        code = report.ended
    LEDGER.add(tool or tool_of(command), started + uncounted_s(), time.monotonic())
    return Finished(
        exit_code=code if code is not None else -signal.SIGKILL,
        stdout=collected.stdout.decode("utf-8", "replace"),
        stderr=collected.stderr.decode("utf-8", "replace"),
        seconds=time.monotonic() - started,
        timed_out=collected.timed_out,
        flooded=collected.flooded,
        exceeded=collected.exceeded,
    )


def _start(
    command: Sequence[str],
    cwd: Path,
    env: dict[str, str],
    confined: Confined | None = None,
    stdin: Path | None = None,
) -> subprocess.Popen[bytes]:
    try:
        with Path(os.devnull if stdin is None else stdin).open("rb") as given:
            child = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=env,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=confined.pass_fds if confined else (),
            )
    except FileNotFoundError as problem:
        if not cwd.is_dir():
            raise SandboxUnavailable(f"the folder {cwd} no longer exists", "run again") from problem
        raise PrerequisiteError(
            f"{command[0]} is not there", "install it or put it on PATH"
        ) from problem
    except OSError as problem:
        raise_for_space(problem, f"starting {command[0]}")
        raise SandboxUnavailable(
            f"cannot start {command[0]}: {problem.strerror}", "free memory or processes"
        ) from problem
    if confined:
        confined.started()
    return child


class OutputLimits(NamedTuple):
    """Of one stream of a child."""

    kept_bytes: int
    read_bytes: int


class _Collected(NamedTuple):
    """Result of a child and why it was stopped, if it was."""

    stdout: bytes
    stderr: bytes
    timed_out: bool
    flooded: bool
    exceeded: str


def _watched(
    child: subprocess.Popen[bytes],
    deadline: Callable[[], float],
    limits: OutputLimits,
    watch: Watch | None,
    confined: Confined | None = None,
) -> _Collected:
    """Drain it to its end, then leave nothing of it."""
    try:
        if confined is None:
            _limit(child.pid)
        return _drain(child, deadline, limits, watch)
    finally:
        if confined is not None:
            confined.release()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(CLEARING_S)
        _end(child)


def _limit(pid: int) -> None:
    """No core files, no endless files. The child has just started and has written nothing yet."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILE_BYTES)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))


@contextlib.contextmanager
def _ending(pid: int) -> Iterator[int | None]:
    """A descriptor that can be read when the process has ended; None before Linux 5.3."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _drain(
    child: subprocess.Popen[bytes],
    deadline: Callable[[], float],
    limits: OutputLimits,
    watch: Watch | None,
) -> _Collected:
    """Read both pipes until they close, the child passes a bound, or time is up."""
    assert child.stdout is not None
    assert child.stderr is not None
    kept: dict[IO[bytes], bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
    seen = dict.fromkeys(kept, 0)
    timed_out = flooded = False
    exceeded = ""
    with selectors.DefaultSelector() as selector, _ending(child.pid) as ended:
        for pipe in kept:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        while child.poll() is None or len(selector.get_map()) > 0:
            raise_if_stopped()
            exceeded = watch.exceeded() if watch and child.returncode is None else ""
            left = deadline() - time.monotonic()
            if left <= 0 or flooded or exceeded:
                timed_out = not flooded and not exceeded
                break
            if child.returncode is not None:
                left = 0.05  # a grandchild may hold the pipe open for ever
            ready = selector.select(min(left, LOOK_S if ended is not None else 0.02))
            if not ready and child.returncode is not None:
                break
            for key, _ in ready:
                if key.fileobj == ended:
                    selector.unregister(key.fileobj)
                    continue
                stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    selector.unregister(stream)
                    continue
                seen[stream] += len(data)
                kept[stream] += data[: max(0, limits.kept_bytes - len(kept[stream]))]
                flooded = flooded or seen[stream] > limits.read_bytes
    out, err = bytes(kept[child.stdout]), bytes(kept[child.stderr])
    full = flooded or exceeded.startswith(DISK)
    return _Collected(out, err, timed_out, full, exceeded)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole session, whoever is left in it, and collect the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(TERMINAL_GRACE_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def last_words(printed: str) -> str:
    """The last line with a word in it, at most 200 characters of it; empty where there is none."""
    lines = [line for line in printed.splitlines() if any(map(str.isalnum, line))]
    return lines[-1].strip()[:200] if lines else ""
