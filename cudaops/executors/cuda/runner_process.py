"""One runner process and its pipes: a line there, a line back, and nothing that can hang us."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops.domain.judgement import IsolationLevel
from cudaops.errors import SandboxUnavailable
from cudaops.executors.isolation.level import level_of
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.isolation.start import Confined
from cudaops.executors.isolation.watch import LOOK_S
from cudaops.executors.process import child_environment, python_path
from cudaops.executors.stopping import current_stop
from cudaops.storage import raise_for_space

MAX_LOG_BYTES = 64 * 1024
"""Kept of what the kernels print, the end of it."""
MAX_PRINTED_BYTES = 64 * 1024**2
"""Printed during one task; a runner whose kernels print more is ended."""
MAX_REPLY_BYTES = 64 * 1024**2
KILL_GRACE_S = 5.0
"""How long a killed runner may take to go: the kernel driver takes its context down first."""
PASSED = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "LD_LIBRARY_PATH",
)  # fmt: skip
"""What a CUDA process needs of our environment beyond what every child sees."""


class RunnerLine(NamedTuple):
    """Result of waiting for a reply."""

    ended: Literal["line", "timeout", "flood", "gone", "stopped"]
    """`stopped`: the work it is part of was asked to end; the runner is still at it."""
    text: bytes = b""


class RunnerProcess:
    """Started at once, in a session of its own. Not thread-safe: its user takes care of that."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        at_most: IsolationLevel = "S3",
    ) -> None:
        """`argv` ends before the pipes. Raises SandboxUnavailable where nothing can be started or
        confined."""
        level = level_of("runner", at_most)
        task_read, self._tasks = os.pipe()
        self._replies, reply_write = os.pipe()
        self.log = bytearray()
        self._printed = 0
        self._unread = bytearray()
        fds = (task_read, reply_write)
        pipes = ("--tasks-fd", str(task_read), "--replies-fd", str(reply_write))
        command, env, where = [*argv, *pipes], dict(environment), Path(tempfile.gettempdir())
        passed: tuple[int, ...] = fds
        self._confined: Confined | None = None
        try:
            if level != "S0":
                self._confined = Confined(
                    Confinement("runner"), level, command, where, env, passed=fds
                )
                command, env, passed = self._confined.argv, {}, self._confined.pass_fds
            self._child = subprocess.Popen(
                command,
                env=env,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                start_new_session=True,
            )
            if self._confined is not None:
                self._confined.started()
        except OSError as problem:
            os.close(self._tasks)
            os.close(self._replies)
            if self._confined is not None:
                self._confined.close()
            raise_for_space(problem, "starting a runner")
            raise SandboxUnavailable(
                f"cannot start a runner: {problem.strerror}", "free memory or processes"
            ) from problem
        finally:
            for fd in fds:
                os.close(fd)
        assert self._child.stdout is not None
        self._output = self._child.stdout.fileno()
        for fd in (self._tasks, self._replies, self._output):
            os.set_blocking(fd, False)

    @property
    def exit_code(self) -> int | None:
        """Negative: the signal that ended it; None while it lives."""
        return None if self._child.poll() is None else self._code()

    def exchange(self, line: bytes, timeout_s: float) -> RunnerLine:
        """Send a line (none where it is empty) and wait for one. Drains what kernels print."""
        deadline, stop = time.monotonic() + timeout_s, current_stop()
        unsent = memoryview(line)
        self._printed = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            if unsent:
                selector.register(self._tasks, selectors.EVENT_WRITE)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return RunnerLine("timeout")
                if stop is not None:
                    if stop.asked:
                        return RunnerLine("stopped")
                    left = min(left, LOOK_S)
                for key, _ in selector.select(left):
                    if key.fd == self._tasks:
                        unsent = unsent[self._sent(unsent) :]
                        if not unsent:
                            selector.unregister(self._tasks)
                    elif key.fd == self._output:
                        if not self._drained():
                            selector.unregister(self._output)
                    elif (found := self._received()) is not None:
                        self._drained()
                        return found
                if self._printed > MAX_PRINTED_BYTES:
                    return RunnerLine("flood")

    def kill(self) -> int | None:
        """End it and whatever it started, now. Its exit code where it went in time."""
        if self._confined is not None:
            self._confined.release()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(KILL_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        return self._ended()

    def leave(self) -> None:
        """Let it end by itself: it does when nobody can send tasks; then make sure."""
        self._close_tasks()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(KILL_GRACE_S)
        self.kill()

    def gone(self) -> int | None:
        """Exit code of a runner whose pipe has closed, given a moment to end."""
        try:
            self._child.wait(KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            return None
        return self._code()

    def _ended(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(KILL_GRACE_S)
        self._drained()
        self._close_tasks()
        code = self._code()
        if self._replies >= 0:
            os.close(self._replies)
            self._replies = -1
            assert self._child.stdout is not None
            self._child.stdout.close()
            if self._confined is not None:
                self._confined.close()
        return code

    def _code(self) -> int | None:
        """The runner's own; that of its launcher says no signal."""
        if self._confined is not None and self._child.returncode is not None:
            ended = self._confined.launcher_report().ended
            return -signal.SIGKILL if ended is None else ended
        return self._child.returncode

    def _close_tasks(self) -> None:
        if self._tasks >= 0:
            os.close(self._tasks)
            self._tasks = -1

    def _sent(self, data: memoryview) -> int:
        try:
            return os.write(self._tasks, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # it went away: the reply pipe says so too

    def _received(self) -> RunnerLine | None:
        try:
            data = os.read(self._replies, 1 << 16)
        except BlockingIOError:
            return None
        if not data:
            return RunnerLine("gone", bytes(self._unread))
        self._unread += data
        text, end, rest = self._unread.partition(b"\n")
        if end or len(self._unread) > MAX_REPLY_BYTES:
            self._unread = bytearray(rest)
            return RunnerLine("line", bytes(text))
        return None

    def _drained(self) -> bool:
        """Keep the end of what was printed; False once nothing more can come."""
        if self._replies < 0:
            return False
        while self._printed <= MAX_PRINTED_BYTES:
            try:
                data = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._printed += len(data)
            self.log = (self.log + data)[-MAX_LOG_BYTES:]
        return True


def runner_argv(driver: str, device_index: int) -> list[str]:
    """Command line of a runner, without what says where its tasks come from."""
    command = [sys.executable, "-P", "-m", "cudaops.executors.cuda.runner", driver]
    return [*command, "--device", str(device_index)]


def runner_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a runner sees: the bounded environment, CUDA's own names, and where cudaops is."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    given = dict(extra or {})
    asked = given.get("PYTHONPATH", "").split(os.pathsep)
    given["PYTHONPATH"] = python_path(*asked)
    # Code is loaded with the module, not with a kernel's first launch, which might be timed.
    return child_environment({**passed, "CUDA_MODULE_LOADING": "EAGER", **given})
