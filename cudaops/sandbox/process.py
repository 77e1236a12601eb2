"""Bounded child processes: time, output, environment, and nothing left running afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import cudaops
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.sandbox.ledger import LEDGER, tool_of

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""Kept of stdout and of stderr; a child that writes twice as much is ended."""
MAX_FILE_BYTES = 16 * 1024**3
"""Largest file a child may write."""
TERMINAL_GRACE_S = 2.0
"""How long a process group gets to die after SIGKILL before we stop waiting for it."""

INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""What a child sees of our environment: no keys, no tokens."""

SPACE_REMEDY = "free some disk space, or point CUDAOPS_CACHE and TMPDIR at a larger disk"


class Finished(NamedTuple):
    """A child that ended, or was ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    flooded: bool = False


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
    tool: str | None = None,
) -> Finished:
    """Run to the end, or to `timeout_s` seconds, in a session of its own; then kill what is left.

    `tool` is what the time counts as in the ledger; by default what the command's name says.

    Raises PrerequisiteError where the program does not exist, SandboxUnavailable where the machine
    cannot start a process or has no space left.
    """
    started = time.monotonic()
    child = _start(command, cwd, child_environment(env))
    try:
        _limit(child.pid)
        collected = _drain(child, started + timeout_s, max_output_bytes)
    finally:
        _end(child)
    LEDGER.add(tool or tool_of(command), started, time.monotonic())
    out, err, timed_out, flooded = collected
    return Finished(
        exit_code=child.returncode if child.returncode is not None else -signal.SIGKILL,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        seconds=time.monotonic() - started,
        timed_out=timed_out,
        flooded=flooded,
    )


def raise_for_space(problem: OSError, what: str) -> None:
    """Turn a full disk or quota into SandboxUnavailable; do nothing for any other OSError."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        raise SandboxUnavailable(f"no space left while {what}", SPACE_REMEDY) from problem


def _start(command: Sequence[str], cwd: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as problem:
        if not cwd.is_dir():
            raise SandboxUnavailable(f"the folder {cwd} is gone", "run again") from problem
        raise PrerequisiteError(
            f"{command[0]} is not there", "install it or put it on PATH"
        ) from problem
    except OSError as problem:
        raise_for_space(problem, f"starting {command[0]}")
        raise SandboxUnavailable(
            f"cannot start {command[0]}: {problem.strerror}", "free memory or processes"
        ) from problem


def _limit(pid: int) -> None:
    """No core files, no endless files. The child has just started and has written nothing yet."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILE_BYTES)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))


def _drain(
    child: subprocess.Popen[bytes], deadline: float, limit: int
) -> tuple[bytes, bytes, bool, bool]:
    """Read both pipes until they close, the child floods them, or time is up."""
    assert child.stdout is not None
    assert child.stderr is not None
    kept: dict[IO[bytes], bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
    seen = dict.fromkeys(kept, 0)
    timed_out = flooded = False
    with selectors.DefaultSelector() as selector:
        for pipe in kept:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 or flooded:
                timed_out = not flooded
                break
            if child.poll() is not None:
                left = 0.05  # a grandchild may hold the pipe open for ever
            ready = selector.select(min(left, 0.5))
            if not ready and child.returncode is not None:
                break
            for key, _ in ready:
                stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    selector.unregister(stream)
                    continue
                seen[stream] += len(data)
                kept[stream] += data[: max(0, limit - len(kept[stream]))]
                flooded = flooded or seen[stream] > 2 * limit
    if not timed_out and not flooded:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
    return bytes(kept[child.stdout]), bytes(kept[child.stderr]), timed_out, flooded


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole session, whoever is left in it, and collect the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(TERMINAL_GRACE_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
