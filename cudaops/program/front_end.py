"""What clang says of a program's kernels: asked of a child process that stays for the next one."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from cudaops.cuda.nvcc_line import preprocessor_words
from cudaops.domain.program import Kernel, Program
from cudaops.errors import PrerequisiteError
from cudaops.program.clusters import WORD as CLUSTERS
from cudaops.program.launches import joined
from cudaops.program.syntax import KernelForm, LaunchedInstance, NotUnderstood, decoded

TIMEOUT_S = 60.0
"""For one program. The slowest of 57 programs of strangers took 2.1 s, on a 2-core Xeon beside a
test run (2026-11-23)."""
_CODE = "from cudaops.program.clang_child import main; main()"
_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR", "CXX", "CUDA_HOME")
"""All that the child needs of the environment: it reads strangers' texts, and is given no key."""
_PACKAGE = Path(__file__).parents[2]
_REMEDY = "install it again: `python -m pip install 'libclang>=18.1,<19'`; it needs g++ beside it"


class FrontEnd:
    """The child, started when it is first needed and again after it died. Safe to share."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's answer. Raises NotUnderstood where clang does not come to an end with this
        program, PrerequisiteError where it does not start."""
        with self._lock:
            child = self._running()
            # Beside us: a child that reads nothing would hold us in a full pipe.
            text = json.dumps(request) + "\n"
            threading.Thread(target=_send, args=(child.stdin, text), daemon=True).start()
            try:
                line = self._answers.get(timeout=self.timeout_s)
            except queue.Empty:
                self._end()
                raise NotUnderstood(f"clang is not done after {self.timeout_s:g} s") from None
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
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            self._start()
        assert self._child is not None
        return self._child

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cudaops-clang")
        environment = {n: v for n in _VARIABLES if (v := os.environ.get(n)) is not None}
        path = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        complaints = Path(self._folder.name) / "stderr"
        with complaints.open("w") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE], cwd=self._folder.name,
                env={**environment, "PYTHONPATH": os.pathsep.join(path)}, text=True,
                encoding="utf-8", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
        self._answers = queue.Queue()
        heard = (self._child.stdout, self._answers)
        threading.Thread(target=_listen, args=heard, daemon=True).start()
        try:
            ready = self._answers.get(timeout=TIMEOUT_S)
        except queue.Empty:
            ready = ""
        if not ready:
            *_, said = "not a word", *complaints.read_text("utf-8", "replace").split("\n")[:-1]
            self._end()
            raise PrerequisiteError(f"libclang does not start: {said}", _REMEDY)

    def _end(self) -> None:
        """It has nothing to put away."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            assert self._child.stdin is not None
            with contextlib.suppress(OSError):
                self._child.stdin.close()
            self._child = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _send(stream: IO[str], text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # it died: the listener says so
        stream.write(text)
        stream.flush()


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
    if CLUSTERS in kernel.text:
        raise NotUnderstood("thread block clusters")
    files = _texts(program)
    instance = callee if is_template else None
    flags = tuple(preprocessor_words(program.code_options))
    place = (kernel.file, kernel.start_byte, kernel.end_byte)
    found = _form_or_why_not(
        files, program.main_path, kernel.qualified_name, place, kernel.needs_types, instance, flags
    )
    if isinstance(found, str):
        raise NotUnderstood(found)
    return found


def _texts(program: Program) -> tuple[tuple[str, str], ...]:
    """Its files as clang takes them, of the same length."""
    return tuple((f.path, _alignment_first(joined(f.text))) for f in program.files)


_ALIGNED = re.compile(
    r"(\b(?:(?:extern|static)\s+)*__shared__)(\s+)(alignas\s*\((?:[^()\n]|\([^()\n]*\))*\))"
)


def _alignment_first(text: str) -> str:
    """`__shared__ alignas(16)` as `alignas(16) __shared__`, of the same length: nvcc takes both,
    and clang only what is before the attribute that the first word becomes."""
    return _ALIGNED.sub(r"\3\2\1", text)


@lru_cache(maxsize=64)
def _form_or_why_not(
    files: tuple[tuple[str, str], ...],
    main: str,
    kernel: str,
    place: tuple[str, int, int],
    is_overloaded: bool,
    callee: str | None,
    flags: tuple[str, ...],
) -> KernelForm | str:
    """Kept either way: several recipes ask about one kernel, and a hang costs a minute."""
    request: dict[str, Any] = {
        "files": dict(files), "main": main, "kernel": kernel, "place": place,
        "is_overloaded": is_overloaded, "callee": callee, "flags": flags,
    }  # fmt: skip
    try:
        answer = _front_end.ask(request)
    except NotUnderstood as problem:
        return str(problem)
    if "form" not in answer:
        return str(answer["problem"])
    form: KernelForm = decoded(answer["form"])
    return form


def launched_instances(program: Program) -> tuple[LaunchedInstance, ...]:
    """What the launches of a program mean, as far as clang can tell; empty where it cannot."""
    files = _texts(program)
    return _launched(files, program.main_path, tuple(preprocessor_words(program.code_options)))


@lru_cache(maxsize=64)
def _launched(
    files: tuple[tuple[str, str], ...], main: str, flags: tuple[str, ...]
) -> tuple[LaunchedInstance, ...]:
    try:
        answer = _front_end.ask({"files": dict(files), "main": main, "flags": flags})
    except NotUnderstood:
        return ()
    found: tuple[LaunchedInstance, ...] = tuple(decoded(one) for one in answer.get("launches", ()))
    return found
