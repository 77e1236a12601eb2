"""What clang says of a program's kernels: asked of a child process that stays for the next one."""

from __future__ import annotations

import atexit
import json
import queue
import subprocess
import sys
import threading
from functools import lru_cache
from typing import IO, Any

from cudaops.domain.program import Kernel, Program
from cudaops.program.syntax import KernelForm, NotUnderstood, decoded

TIMEOUT_S = 60.0
"""For one program. The slowest of 57 programs of strangers takes 1.4 s on a 2-core machine."""
CODE = "from cudaops.program.clang_child import main; main()"


class FrontEnd:
    """The child, started when it is first needed and again after it died. Safe to share."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's answer. Raises NotUnderstood where clang does not come to an end with this
        program."""
        with self._lock:
            child = self._running()
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(request) + "\n")
                child.stdin.flush()
                line = self._answers.get(timeout=self.timeout_s)
            except queue.Empty:
                self._end()
                raise NotUnderstood(f"clang is not done after {self.timeout_s:g} s") from None
            except BrokenPipeError:
                line = ""
            if not line:
                self._end()
                raise NotUnderstood("clang died of this program")
            found: dict[str, Any] = json.loads(line)
            return found

    @property
    def child_pid(self) -> int | None:
        """The child's process, where one runs."""
        return self._child.pid if self._child else None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._child = subprocess.Popen(
                [sys.executable, "-c", CODE], text=True, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert self._child.stdout is not None
            self._answers = queue.Queue()
            listening = threading.Thread(
                target=_listen, args=(self._child.stdout, self._answers), daemon=True
            )
            listening.start()
        return self._child

    def _end(self) -> None:
        if self._child is None:
            return
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
            self._child.wait(timeout=1.0)
        except (OSError, subprocess.TimeoutExpired):
            self._child.kill()
            self._child.wait()
        self._child = None


def _listen(stream: IO[str], answers: queue.Queue[str]) -> None:
    with stream:
        for line in stream:
            answers.put(line)
    answers.put("")


_front_end = FrontEnd()
atexit.register(_front_end.close)


def kernel_form(program: Program, kernel: Kernel, callee: str | None = None) -> KernelForm:
    """A kernel as a tree, with every function of the program that it reaches.

    `callee`: the instance of a template kernel, as captured: `reg_matmul<64, 64>`.
    Raises NotUnderstood where there is no such kernel, or clang cannot read the program.
    """
    is_template = bool(kernel.template_parameters)
    if is_template and "<" not in (callee or ""):
        raise NotUnderstood("template arguments that are not known")
    files = tuple((f.path, f.text) for f in program.files)
    instance = callee if is_template else None
    return _form(files, program.main_path, kernel.qualified_name, instance)


@lru_cache(maxsize=64)
def _form(
    files: tuple[tuple[str, str], ...], main: str, kernel: str, callee: str | None
) -> KernelForm:
    request = {"files": dict(files), "main": main, "kernel": kernel, "callee": callee}
    answer = _front_end.ask(request)
    if "form" not in answer:
        raise NotUnderstood(answer["problem"])
    form: KernelForm = decoded(answer["form"])
    return form
