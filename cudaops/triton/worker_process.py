"""Starts the worker in the user's interpreter, confined, and reads what it wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from cudaops.domain.base import Record
from cudaops.domain.execution import Misbehaved, MisbehaviourKind
from cudaops.domain.judgement import IsolationLevel
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.cuda.gpu_lock import gpu_lock
from cudaops.executors.cuda.program import gpu_environment
from cudaops.executors.cuda.session import settle_gpu_level
from cudaops.executors.isolation.level import level_of
from cudaops.executors.isolation.phases import Phase
from cudaops.executors.isolation.view import ProgramView, hint_for
from cudaops.executors.process import Finished, last_words
from cudaops.executors.untrusted_files import UntrustedFileError, read_untrusted, remove
from cudaops.problem.reference import Interpreter

WORKER = Path(__file__).with_name("worker.py")
KERNELS = Path(__file__).with_name("worker_kernels.py")
MOST_REPLY = 64 << 20
STARTING_S = 60.0
"""For an interpreter to load torch and Triton, beside the time that its work may take. Chosen:
torch 2.11 took 4 s on two cores with warm files, and a cold disk may take ten times as long."""


class TensorBuffer(Record):
    """Memory that a launch is given."""

    bytes: int
    element: Literal[
        "f16", "bf16", "f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"
    ]


class TritonLaunch(Record):
    """One configuration of a kernel's launches, as the program makes it."""

    kernel: str
    grid: tuple[int, ...]
    args: dict[str, dict[str, Any] | None]
    """By parameter: `{"buffer": n, "offset": bytes, "element": ...}`, `{"value": ...}` or
    `{"dtype": ...}`."""
    options: dict[str, int | float | str | bool | None]
    buffers: tuple[TensorBuffer, ...] = ()
    problem: str = ""
    """Argument that is not captured; empty where all are."""
    launches: int
    time_us: float | None
    """Of one launch: on `cpu` of the interpreter, which says nothing of a GPU."""
    folder: str
    """Where its contents are, below the capture; empty where they were not kept."""
    grids: tuple[tuple[int, ...] | None, ...] = ()
    """For each configuration asked for."""

    @property
    def total_us(self) -> float:
        """All its launches."""
        return self.launches * (self.time_us or 0.0)


class Capture(Record):
    """A program that ran with the hook in it."""

    exit: int
    launches: tuple[TritonLaunch, ...]
    device: str
    arch: str
    torch: str
    triton: str
    uuid: str = ""
    stdout: str = ""


class Host(NamedTuple):
    """Where Triton kernels run."""

    interpreter: Interpreter
    on_gpu: bool
    timeout_s: float
    cache: Path
    """Where Triton keeps what it compiles, made; one run's."""
    driver: str = "nvidia"
    hidden: tuple[Path, ...] = ()
    uuid: str = ""
    """Of the GPU, by which its lock is called; empty where it is not known yet."""

    @property
    def phase(self) -> Phase:
        """How children are confined."""
        return "gpu" if self.on_gpu else "program"

    @property
    def level(self) -> IsolationLevel:
        """How well."""
        return level_of(self.phase)

    def capture(
        self, script: Path, argv: tuple[str, ...], task: Mapping[str, Any], out: Path,
        text: str | None = None,
    ) -> Capture:  # fmt: skip
        """Run the program. `text`: what stands in its file instead.

        Raises InputError, one line, where it does not run to its end.
        """
        with ProgramView(script.parent, (script.name, *argv), self.hidden) as view:
            here = view.folder / script.name
            if text is not None:
                here.unlink()
                here.write_text(text, encoding="utf-8")
            asked = {**task, "task": "capture", "script": str(here), "argv": argv}
            found = self.asked(asked, out, view.folder, tuple(view.reads), (view.root,))
        if isinstance(found, Misbehaved):
            raise InputError(f"{script.name}: {found.message}")
        reply, done = found
        try:
            return Capture.model_validate({**reply, "stdout": done.stdout})
        except ValidationError as error:
            what = " ".join(str(error).split())[:200]
            raise InputError(f"{script.name}: what was captured cannot be read: {what}") from error

    def asked(
        self, task: Mapping[str, Any], out: Path, cwd: Path | None = None,
        reads: tuple[Path, ...] = (), writes: tuple[Path, ...] = (), timeout_s: float | None = None,
        *, alone: bool = False,
    ) -> tuple[dict[str, Any], Finished] | Misbehaved:  # fmt: skip
        """The reply to a task, in the new folder `out`. `alone`: nobody else of ours uses the GPU
        meanwhile.

        Raises InputError where the worker refuses the program, SandboxUnavailable where it cannot
        be started.
        """
        remove(out)
        out.mkdir(parents=True)
        if self.on_gpu:
            settle_gpu_level(self.driver)
        path = out.with_suffix(".json")
        path.write_text(json.dumps({**task, "interpret": not self.on_gpu}), encoding="utf-8")
        limit = self.timeout_s if timeout_s is None else timeout_s
        with gpu_lock(self.uuid, alone=alone) if self.on_gpu and self.uuid else nullcontext():
            done = self.interpreter.run(
                WORKER,
                (str(path), str(out)),
                cwd=cwd or out,
                reads=(*reads, KERNELS.absolute(), path),
                writes=(*writes, out, self.cache),
                timeout_s=limit + STARTING_S,
                env=self._environment(),
                phase=self.phase,
                tool="triton",
                beside=self._headers(),
                moves=True,
            )
        return self._reply(done, out, limit)

    def _headers(self) -> tuple[Path, ...]:
        """Python's, with which Triton compiles what launches."""
        path = self.interpreter.path
        return tuple({p.parent.parent / "include" for p in (path, path.resolve())})

    def _environment(self) -> dict[str, str]:
        own = {"TRITON_CACHE_DIR": str(self.cache), "HOME": str(self.cache), "USER": "cudaops"}
        if not self.on_gpu:
            return {**own, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        return {**own, **gpu_environment()}

    def _reply(
        self, done: Finished, out: Path, limit_s: float
    ) -> tuple[dict[str, Any], Finished] | Misbehaved:
        def wrong(what: MisbehaviourKind, text: str) -> Misbehaved:
            return Misbehaved(what=what, message=text, log=done.stderr[-4000:])

        try:
            raise InputError(read_untrusted(out, "refused", 4000).decode("utf-8", "replace"))
        except UntrustedFileError:
            pass
        if done.timed_out:
            return wrong("timeout", f"took longer than {limit_s:g} s; raise --timeout")
        if done.exceeded or done.flooded:
            return wrong("output_flood", done.exceeded or "it prints too much")
        if done.exit_code != 0:
            hint = hint_for(done.stderr)
            text = f"ended with exit code {done.exit_code}: {last_words(done.stderr)}"
            return wrong("crash", text + (f" ({hint})" if hint else ""))
        try:
            return json.loads(read_untrusted(out, "reply.json", MOST_REPLY)), done
        except (UntrustedFileError, ValueError) as error:
            raise SandboxUnavailable(
                f"the interpreter left no reply: {error}", "run again with CUDAOPS_ISOLATION=S1"
            ) from error


def one_line(text: str) -> str:
    """Without line breaks, at most 300 characters."""
    return re.sub(r"\s+", " ", text).strip()[:300]
