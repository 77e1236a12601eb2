"""NVRTC in a worker process: quick cubins for the search, and never a reason to fail.

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
MAX_DEATHS = 5
"""Workers that may die in a row before NVRTC is given up for good."""
_WORKER = Path(__file__).with_name("nvrtc_worker.py")
_LIBRARIES = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")
"""Where the library may have to be looked for."""


class Compilation(NamedTuple):
    """What NVRTC made of a text."""

    ok: bool
    final: bool
    """False: another try may end otherwise (the worker died, the library is not there)."""
    log: str


class Nvrtc:
    """One worker, started when it is first needed; threads take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._confined: Confined | None = None
        self._version: str | None = None
        self._deaths = 0
        self._missing = ""
        self._pending = b""
        atexit.register(self.close)

    def version(self) -> str | None:
        """`13.0`; None where there is no NVRTC here."""
        with self._lock:
            return self._version if self._ready() else None

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
    ) -> Compilation:
        """A cubin in `output`, or the reason why there is none."""
        with self._lock:
            if not self._ready():
                return Compilation(False, False, self._missing)
            request = {
                "source": source,
                "options": list(options),
                "output": str(output if self._confined is None else self._made),
                "seconds": timeout_s,
            }
            with LEDGER.working("nvrtc"):
                answer = self._ask(request, timeout_s + 1.0)
            if answer is None:
                self._end()
                self._deaths += 1
                return Compilation(False, False, "the NVRTC worker died or ran out of time")
            self._deaths = 0
            if answer["ok"] and self._confined is not None:
                shutil.move(self._made, output)
            return Compilation(bool(answer["ok"]), True, str(answer["log"]))

    def close(self) -> None:
        """End the worker; a later call starts another."""
        with self._lock:
            self._end()

    def _ready(self) -> bool:
        """Whether a worker is there, after starting one where there was none."""
        if self._worker is not None and self._worker.poll() is None:
            return True
        self._end()
        if self._missing:
            return False
        if self._deaths >= MAX_DEATHS:
            self._missing = f"its worker died {self._deaths} times in a row"
            return False
        self._start()
        hello = self._read(time.monotonic() + START_TIMEOUT_S)
        if hello is None or "version" not in hello:
            self._missing = str((hello or {}).get("missing", "its worker does not start"))
            self._end()
            return False
        self._version = str(hello["version"])
        return True

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
            self._worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                pass_fds=passed,
                start_new_session=True,
            )
        if self._confined is not None:
            self._confined.started()
        self._pending = b""

    @property
    def _made(self) -> Path:
        """Where a confined worker may write: a place of its own, from which a cubin is taken."""
        assert self._confined is not None
        return self._confined.folder / "made.cubin"

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        assert self._worker is not None
        assert self._worker.stdin is not None
        try:
            self._worker.stdin.write(json.dumps(request).encode() + b"\n")
            self._worker.stdin.flush()
        except OSError:
            return None
        return self._read(time.monotonic() + seconds)

    def _read(self, deadline: float) -> dict[str, Any] | None:
        """The next answer; None where the worker ends or is late."""
        if self._worker is None or self._worker.stdout is None:
            return None
        descriptor = self._worker.stdout.fileno()
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

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        confined, self._confined = self._confined, None
        if confined is not None:
            confined.release()
            if worker is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(10.0)
            confined.close()
        if worker is None:
            return
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
