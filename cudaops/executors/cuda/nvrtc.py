"""NVRTC in worker processes: quick cubins for the search, and never a reason to fail.

Whatever goes wrong here (no library, a source that it cannot take, a crash, a hang) only means that
nvcc compiles instead.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.executors.isolation.level import level_of
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.isolation.start import Confined
from cudaops.executors.ledger import LEDGER
from cudaops.executors.process import child_environment, python_path

START_TIMEOUT_S = 30.0
COMPILE_TIMEOUT_S = 20.0
"""What takes longer is nvcc's. With cub's headers NVRTC 13.0 takes 1.3 s."""
_STARTER = ThreadPoolExecutor(1, "nvrtc-starter")
"""What bubblewrap holds dies with the thread that started it (PR_SET_PDEATHSIG), not with our
process: a worker that a search's thread had started was killed while it compiled for another."""
MAX_DEATHS = 5
"""Workers that may die in a row before NVRTC is given up for good."""
MOST_WORKERS = 4
"""As many as drafts are tried beside each other."""
CORES_A_WORKER = 4
"""Chosen: four runs share a GPU, and 16 cores come with each of the machines that we know."""
_WORKER = Path(__file__).with_name("nvrtc_worker.py")
_LIBRARIES = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")
"""Where the library may have to be looked for."""


class NvrtcResult(NamedTuple):
    """What NVRTC made of a text."""

    ok: bool
    final: bool
    """False: another try may end otherwise (the worker died, the library is not there)."""
    log: str


class Nvrtc:
    """Workers that compile beside each other, each started when it is first needed."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: workers at once; None: as many as the cores allow, up to MOST_WORKERS."""
        cores = len(os.sched_getaffinity(0))
        self._most = most or max(1, min(MOST_WORKERS, cores // CORES_A_WORKER))
        self._turns = threading.BoundedSemaphore(self._most)
        self._closing = threading.Lock()
        self._lock = threading.Lock()
        """Held for what is known of all workers, never while one compiles or starts."""
        self._idle: list[_Worker] = []
        self._version: str | None = None
        self._deaths = 0
        self._missing = ""
        atexit.register(self.close)

    def version(self) -> str | None:
        """`13.0`; None where there is no NVRTC here."""
        if self._version is not None and not self._missing:
            return self._version
        with self._worker() as worker:
            return None if worker is None else self._version

    @property
    def missing(self) -> str:
        """Why there is no NVRTC; empty where there is one or nobody has asked."""
        return self._missing

    def compile(
        self,
        source: str,
        options: tuple[str, ...],
        output: Path,
        timeout_s: float = COMPILE_TIMEOUT_S,
    ) -> NvrtcResult:
        """A cubin in `output`, or the reason why there is none. Threads may compile at once."""
        with self._worker() as worker:
            if worker is None:
                return NvrtcResult(False, False, self._missing)
            with LEDGER.working("nvrtc"):
                made = worker.compile(source, options, output, timeout_s)
            self._note(alive=made.final)
            return made

    def close(self) -> None:
        """End the workers, after what they are at; a later call starts others."""
        with self._closing, contextlib.ExitStack() as turns:
            for _ in range(self._most):
                turns.enter_context(self._turns)
            while self._idle:
                self._idle.pop().end()

    @contextlib.contextmanager
    def _worker(self) -> Iterator[_Worker | None]:
        """One for this thread alone, the one that was idle last; None where there is no NVRTC."""
        with self._turns:
            with self._lock:
                worker = self._idle.pop() if self._idle else _Worker()
            try:
                yield worker if self._is_ready(worker) else None
            finally:
                with self._lock:
                    self._idle.append(worker)

    def _is_ready(self, worker: _Worker) -> bool:
        """Whether it runs, after starting it where it does not."""
        if self._missing:
            return False
        if worker.runs:
            return True
        hello = worker.start()
        if "version" in hello:
            self._version = str(hello["version"])
            return True
        if self._version is None:
            self._missing = str(hello.get("missing", "its worker does not start"))
        else:  # another one did start
            self._note(alive=False)
        return False

    def _note(self, *, alive: bool) -> None:
        """Outcome of a worker."""
        with self._lock:
            self._deaths = 0 if alive else self._deaths + 1
            if self._deaths >= MAX_DEATHS:
                self._missing = f"its worker died {self._deaths} times in a row"


class _Worker:
    """One process, for one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._confined: Confined | None = None
        self._pending = b""

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> dict[str, Any]:
        """What it says first, before any request; empty where it says nothing."""
        self.end()
        self._start()
        hello = self._read(time.monotonic() + START_TIMEOUT_S) or {}
        if "version" not in hello:
            self.end()
        return hello

    def compile(
        self, source: str, options: tuple[str, ...], output: Path, timeout_s: float
    ) -> NvrtcResult:
        """See `Nvrtc.compile`. It is ended where it does not answer."""
        request = {
            "source": source,
            "options": list(options),
            "output": str(output if self._confined is None else self._made),
            "seconds": timeout_s,
        }
        answer = self._ask(request, timeout_s + 1.0)
        if answer is None:
            self.end()
            return NvrtcResult(False, False, "the NVRTC worker died or ran out of time")
        if answer["ok"] and self._confined is not None:
            shutil.move(self._made, output)
        return NvrtcResult(bool(answer["ok"]), True, str(answer["log"]))

    def _start(self) -> None:
        extra = {name: os.environ[name] for name in _LIBRARIES if name in os.environ}
        env = child_environment({**extra, "PYTHONPATH": python_path()})
        # -P: the worker's own folder holds modules named like Python's (platform.py).
        command = [sys.executable, "-P", str(_WORKER)]
        passed: tuple[int, ...] = ()
        if (level := level_of("compile")) != "S0":
            self._confined = Confined(Confinement("compile"), level, command, Path("/"), env)
            command, env, passed = self._confined.argv, {}, self._confined.pass_fds
        with contextlib.suppress(OSError):
            self._process = _STARTER.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                pass_fds=passed,
                start_new_session=True,
            ).result()
        if self._confined is not None:
            self._confined.started()
        self._pending = b""

    @property
    def _made(self) -> Path:
        """Where a confined worker may write: a place of its own, from which a cubin is taken."""
        assert self._confined is not None
        return self._confined.folder / "made.cubin"

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self._read(time.monotonic() + seconds)

    def _read(self, deadline: float) -> dict[str, Any] | None:
        """The next answer; None where the worker ends or is late."""
        if self._process is None or self._process.stdout is None:
            return None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not _readable(descriptor, left):
                return None
            data = os.read(descriptor, 1 << 16)
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            return answer if isinstance(answer, dict) else None
        return None

    def end(self) -> None:
        """Kill it, where it runs; it can be started again."""
        worker, self._process = self._process, None
        confined, self._confined = self._confined, None
        if confined is not None:
            confined.release()
            if worker is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(10.0)
            confined.close()
        if worker is None:
            return
        if worker.poll() is None:  # else its number may be another process' by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.pid, signal.SIGKILL)
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        worker.wait(10.0)


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000.0))
