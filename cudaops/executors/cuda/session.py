"""The parent's side of a runner: starts it, asks it, ends it, and reports the result."""

from __future__ import annotations

import functools
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, TypeGuard, TypeVar

from pydantic import ValidationError

from cudaops.domain.execution import Misbehaved
from cudaops.domain.judgement import IsolationLevel
from cudaops.errors import EnvironmentFailure, PrerequisiteError, SandboxUnavailable
from cudaops.executors.cuda.gpu_lock import WAIT_S, gpu_turn, hint_turn, wait_for_tools
from cudaops.executors.cuda.protocol import (
    REPLY,
    TASK,
    DeviceFacts,
    FaultReply,
    MeasureReply,
    MeasureTask,
    ProbeReply,
    ProbeTask,
    ProfileTask,
    RefusedReply,
    ReleaseTask,
    Reply,
    RunReply,
    Task,
)
from cudaops.executors.cuda.runner_process import RunnerProcess, runner_argv, runner_environment
from cudaops.executors.isolation.level import level_of, weaken
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.ledger import LEDGER, waited
from cudaops.executors.process import run_bounded
from cudaops.executors.stopping import Stopped

START_S = 90.0
"""Opening a GPU takes a fraction of a second, and up to half a minute on a machine with many GPUs
and no persistence daemon."""
PROBE_S = 30.0
PROBE_REMEDY = (
    "look at `nvidia-smi` and at `dmesg | grep -i xid`; where the GPU hangs, reset it as root "
    "(nvidia-smi --gpu-reset -i N) or reboot"
)
AGAIN = "run again; if it happens again, report it"
LOG_SHOWN = 4096

LONG_US = 500.0
"""A launch of this length or more is not ranked beside others on the GPU. Chosen: processes take
turns there for some milliseconds each, so that a shorter one mostly runs in one turn. Seen on an
H200, eight runs at once: of a launch of 8 ms, times of 8 to 34 ms (2026-11-24)."""
TURN_S = 1.0
"""How long launches that are only to be ranked may keep the GPU, one after the other, where several
of them wait. Chosen: some ten of them, so that eight jobs on a GPU do not each queue anew
for every launch of 50 ms; whoever decides something waits little longer for it."""

Kind = TypeVar("Kind", RunReply, MeasureReply)


class _HeldTurn(NamedTuple):
    """The GPU, as it is had for launches that are only to be ranked."""

    turn: ExitStack
    alone: bool
    until: float


class _Line:
    """Threads that wait for a lock, counted."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiting = 0
        self._counting = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """With the lock."""
        self._count(1)
        try:
            self._lock.acquire()
        finally:
            self._count(-1)
        try:
            yield
        finally:
            self._lock.release()

    def is_empty(self) -> bool:
        """Whether nobody waits. Who is seen to wait will have the lock."""
        with self._counting:
            return self._waiting == 0

    def _count(self, more: int) -> None:
        with self._counting:
            self._waiting += more


class RunnerSession:
    """A runner that is started when it is first needed, and again after it had to be ended.

    Thread-safe: one task at a time. After a kill or a fault that cost the context, the next request
    starts a fresh runner and probes the GPU before it does anything else.

    A runner that dies or hangs while it times may have done so in CUPTI, which is no kernel's
    fault: it is asked once more without, and where that works CUPTI is left alone from then on.
    """

    _tracer_fails: ClassVar[bool] = False
    _opens_confined: ClassVar[bool] = False

    def __init__(
        self,
        driver: str,
        *,
        device_index: int = 0,
        environment: Mapping[str, str] | None = None,
        lock_wait_s: float = WAIT_S,
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`environment` goes on top of what a runner sees by itself.

        `lock_wait_s` is how long other processes are waited for that use the GPU. `make_room` gives
        memory of the GPU back that another session keeps, and says whether there was any.
        """
        self._argv = runner_argv(driver, device_index)
        self._environment = runner_environment(environment)
        self._lock = threading.RLock()
        self._runner: RunnerProcess | None = None
        self._facts: DeviceFacts | None = None
        self._suspect = False
        self._hung = False
        self._ended_silently = False
        self._log = ""
        self._lock_wait_s = lock_wait_s
        self._make_room = make_room
        self._keeps = False
        """Whether its runner may hold memory between tasks."""
        self._times_long = False
        """Whether a launch that was to be ranked lasted so long that others disturbed it."""
        self._hints = _Line(self._lock)
        """Those with launches to be ranked."""
        self._turn_held: _HeldTurn | None = None

    def __enter__(self) -> RunnerSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def facts(self) -> DeviceFacts:
        """What the driver says about the GPU.

        Raises PrerequisiteError where no GPU can be opened, SandboxUnavailable where the runner
        cannot be started or the GPU does not answer.
        """
        with self._lock:
            if self._facts is None:
                self._ready()
            assert self._facts is not None
            return self._facts

    @property
    def log(self) -> str:
        """The end of what the last runner and its kernels printed."""
        with self._lock:
            return self._printed()

    def request(self, task: Task, timeout_s: float) -> Reply | Misbehaved:
        """Have a task done; `timeout_s` counts from when the GPU is ours.

        Never returns FaultReply or RefusedReply: what the launched code did wrong is Misbehaved,
        what the runner cannot do raises SandboxUnavailable, and a GPU that cannot be opened
        PrerequisiteError.
        """
        asked = time.monotonic()
        if isinstance(task, MeasureTask) and task.is_hint and not _traced(task):
            return self._ranked(task, timeout_s)
        with self._lock:
            waited(asked)
            self._let_go()
            if not (_traced(task) and self.facts.real):
                return self._answer(task, timeout_s)
            if RunnerSession._tracer_fails:
                return _noted(self._answer(_untraced(task), timeout_s))
            outcome = self._answer(task, timeout_s)
            if not (isinstance(outcome, Misbehaved) and self._ended_silently):
                return outcome
            again = _noted(self._answer(_untraced(task), timeout_s))
            RunnerSession._tracer_fails = isinstance(again, MeasureReply)
            return again

    def close(self) -> None:
        """End the runner. The session may be used again and starts another."""
        with self._lock:
            self._let_go()
            if self._runner is not None:
                self._runner.leave()
                self._forget()

    def release(self) -> bool:
        """Have the runner give back what it keeps of the GPU's memory between tasks. False where
        there is nothing, or it is at a task: nobody may wait for that who holds the GPU."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._runner is None or not self._keeps:
                return False
            self._keeps = False
            self._asked(self._runner, ReleaseTask(), PROBE_S)
            return True
        except SandboxUnavailable:
            return True  # it was ended, and nothing of it is left
        finally:
            self._lock.release()

    def _ranked(self, task: MeasureTask, timeout_s: float) -> Reply | Misbehaved:
        """Several that wait have the GPU in one turn, `TURN_S` at most."""
        asked = time.monotonic()
        with self._hints.turn():
            waited(asked)
            try:
                return self._hint(task, timeout_s)
            finally:
                held = self._turn_held
                if held and (self._hints.is_empty() or time.monotonic() > held.until):
                    self._let_go()

    def _hint(self, task: MeasureTask, timeout_s: float) -> Reply | Misbehaved:
        """Beside others where they would be waited for too long, and alone where that spoils it."""
        self._keeps = self._keeps or task.keep
        while True:
            if self._runner is None:
                self._let_go()  # it takes its time to start
            runner = self._ready()
            alone = self._hold()
            with LEDGER.working("kernels"):
                hint = self._asked(runner, task, timeout_s)
            if alone or not _is_long(hint):
                return hint
            self._times_long = True
            self._let_go()

    def _hold(self) -> bool:
        """Have the GPU until `_let_go`; whether alone."""
        if self._turn_held is None:
            assert self._facts is not None
            asked, turn = time.monotonic(), ExitStack()
            if alone := self._times_long:
                turn.enter_context(gpu_turn(self._facts, alone=True, wait_s=self._lock_wait_s))
            else:
                alone = turn.enter_context(hint_turn(self._facts, wait_s=self._lock_wait_s))
            waited(asked)
            self._turn_held = _HeldTurn(turn, alone, time.monotonic() + TURN_S)
        return self._turn_held.alone

    def _let_go(self) -> None:
        held, self._turn_held = self._turn_held, None
        if held is not None:
            held.turn.close()

    def _answer(self, task: Task, timeout_s: float) -> Reply | Misbehaved:
        runner = self._ready()
        self._keeps = self._keeps or (isinstance(task, MeasureTask) and task.keep)
        asked = time.monotonic()
        with self._turn(task), LEDGER.working("kernels"):
            waited(asked)
            return self._asked(runner, task, timeout_s)

    def _turn(self, task: Task) -> AbstractContextManager[None]:
        """Nothing else runs on a GPU while something is timed there."""
        assert self._facts is not None
        alone = isinstance(task, MeasureTask | ProfileTask)
        if isinstance(task, MeasureTask):
            wait_for_tools(self._facts)
        return gpu_turn(self._facts, alone=alone, wait_s=self._lock_wait_s)

    def _asked(self, runner: RunnerProcess, task: Task, timeout_s: float) -> Reply | Misbehaved:
        came = runner.exchange(TASK.dump_json(task) + b"\n", timeout_s)
        self._ended_silently = came.ended in ("timeout", "gone")
        if came.ended == "stopped":
            self._end()
            raise Stopped
        if came.ended == "timeout":
            self._end()
            text = f"did not end within {timeout_s:g} s and was stopped"
            return self._misbehaved("timeout", text)
        if came.ended == "flood":
            self._end()
            return self._misbehaved("output_flood", "printed more than is kept and was stopped")
        if came.ended == "gone":
            return self._died(runner)
        reply = self._read(came.text)
        if isinstance(reply, RefusedReply):
            if reply.no_room and self._make_room():
                return self._asked(runner, task, timeout_s)
            self._end()
            raise SandboxUnavailable(reply.problem, reply.remedy)
        if isinstance(reply, FaultReply):
            found = self._misbehaved(reply.what, reply.message)
            if reply.sticky:
                self._end()
            return found
        return reply

    def _ready(self) -> RunnerProcess:
        """A runner that lives, on a GPU that works."""
        if self._runner is not None and self._runner.exit_code is not None:
            self._end()
        if self._runner is None:
            with LEDGER.working("kernels"):
                self._start()
        assert self._runner is not None
        if self._suspect:
            self._probe(self._runner)
        return self._runner

    def _start(self) -> None:
        """Confined; less so from then on where the GPU opens only then."""
        try:
            self._open("S3")
        except (PrerequisiteError, SandboxUnavailable) as problem:
            if self._opens_confined or level_of("runner") in ("S0", "S1") or self._hung:
                raise
            self._open("S1")
            weaken("runner", "S1", problem.problem)
        type(self)._opens_confined = True

    def _open(self, at_most: IsolationLevel) -> None:
        runner = self._runner = RunnerProcess(self._argv, self._environment, at_most)
        came = runner.exchange(b"", START_S)
        self._hung = came.ended == "timeout"
        if came.ended != "line":
            code = runner.gone() if came.ended == "gone" else None
            said = self._last_line()
            self._end()
            if came.ended == "stopped":
                raise Stopped
            what = f"ended with {_spelled(code)}" if code is not None else "does not answer"
            raise SandboxUnavailable(f"the runner {what} while it opened the GPU{said}", AGAIN)
        reply = self._read(came.text)
        if isinstance(reply, RefusedReply):
            self._end()
            if self._suspect and self._facts is not None:
                raise SandboxUnavailable(reply.problem, reply.remedy)
            self._suspect = False
            raise PrerequisiteError(reply.problem, reply.remedy)
        if not isinstance(reply, ProbeReply):
            self._end()
            raise SandboxUnavailable(f"the runner began with a {reply.kind!r} reply", AGAIN)
        self._facts = reply.facts

    def _probe(self, runner: RunnerProcess) -> None:
        came = runner.exchange(TASK.dump_json(ProbeTask()) + b"\n", PROBE_S)
        reply = self._read(came.text) if came.ended == "line" else None
        if isinstance(reply, ProbeReply):
            self._suspect = False
            return
        self._end()
        said = f": {reply.problem}" if isinstance(reply, RefusedReply) else ""
        raise SandboxUnavailable(
            f"the GPU does not work since the last kernel was stopped or failed{said}",
            PROBE_REMEDY,
        )

    def _died(self, runner: RunnerProcess) -> Misbehaved:
        """A signal is the kernel's or its driver's doing; a Python error is ours."""
        code = runner.gone()
        said = self._last_line()
        self._end()
        if code is not None and code < 0:
            return self._misbehaved("crash", f"the runner was ended by {_spelled(code)}")
        raise SandboxUnavailable(f"the runner ended with {_spelled(code)}{said}", AGAIN)

    def _read(self, line: bytes) -> Reply:
        try:
            return REPLY.validate_json(line)
        except ValidationError as problem:
            self._end()
            start = line[:80].decode("utf-8", "backslashreplace")
            text = f"the runner wrote an invalid reply: {start!r}"
            raise SandboxUnavailable(text, AGAIN) from problem

    def _misbehaved(self, what: str, message: str) -> Misbehaved:
        return Misbehaved.model_validate(
            {"what": what, "message": message, "log": self._printed()[-LOG_SHOWN:]}
        )

    def _end(self) -> None:
        """Kill the runner; the next one looks at the GPU first."""
        if self._runner is not None:
            self._runner.kill()
            self._forget()
        self._suspect = True

    def _forget(self) -> None:
        self._log = self._printed()
        self._runner = None
        self._keeps = False

    def _printed(self) -> str:
        if self._runner is None:
            return self._log
        return bytes(self._runner.log).decode("utf-8", "replace")

    def _last_line(self) -> str:
        lines = [line for line in self._printed().splitlines() if line.strip()]
        return f": {lines[-1].strip()[:200]}" if lines else ""


def expected(reply: Reply | Misbehaved, kind: type[Kind]) -> Kind | Misbehaved:
    """The reply as the kind that a task has. Raises SandboxUnavailable where it is another."""
    if isinstance(reply, kind | Misbehaved):
        return reply
    raise SandboxUnavailable(f"the runner answered with a {reply.kind!r} reply", AGAIN)


def task_command(
    driver: str,
    task_file: Path,
    reply_file: Path,
    *,
    device_index: int = 0,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment that do one task from a file, for a tool that wraps a process.

    Exit code 0 also with a FaultReply, 3 with a RefusedReply. The environment is the whole
    one; whoever runs it holds `gpu_lock`.
    """
    argv = runner_argv(driver, device_index)
    argv += ["--task", str(task_file.absolute()), "--reply", str(reply_file.absolute())]
    return argv, runner_environment(environment)


def _is_long(outcome: Reply | Misbehaved) -> bool:
    if not isinstance(outcome, MeasureReply):
        return False
    sides = (side for times in outcome.regimes for side in times.sides)
    return any(us >= LONG_US for side in sides for us in side.samples_us)


def _traced(task: Task) -> TypeGuard[MeasureTask]:
    return isinstance(task, MeasureTask) and task.policy.cupti_launches > 0


def _untraced(task: MeasureTask) -> MeasureTask:
    policy = task.policy.model_copy(update={"cupti_launches": 0})
    return task.model_copy(update={"policy": policy})


def _noted(outcome: Reply | Misbehaved) -> Reply | Misbehaved:
    if not isinstance(outcome, MeasureReply):
        return outcome
    text = "no kernel durations by CUPTI: the runner ended meanwhile"
    return outcome.model_copy(update={"notices": (*outcome.notices, text)})


def _spelled(code: int | None) -> str:
    if code is None:
        return "no exit code"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name} ({-code})"
    except ValueError:
        return f"signal {-code}"


OPENING_S = 60.0


_SETTLING = threading.Lock()


def settle_gpu_level(driver: str) -> IsolationLevel:
    """Open the GPU confined as its programs will be, a level lower where that does not work; once
    for all who ask.

    Raises SandboxUnavailable where a level was asked for and does not work. A GPU that works at no
    level is not found out here: the program itself will say so.
    """
    with _SETTLING:
        return _settled(driver)


@functools.cache
def _settled(driver: str) -> IsolationLevel:
    level = level_of("gpu")
    lower: dict[IsolationLevel, IsolationLevel] = {"S3": "S2", "S2": "S1"}
    while level in lower and (why := _why_not(driver, level)):
        level = lower[level]
        weaken("gpu", level, why)
    return level


def _why_not(driver: str, level: IsolationLevel) -> str:
    """Empty where a runner could open the GPU, copy to it and back."""
    with tempfile.TemporaryDirectory(prefix="cudaops-probe-") as name:
        folder = Path(name)
        task, reply = folder / "task.json", folder / "reply.json"
        task.write_bytes(TASK.dump_json(ProbeTask()))
        argv, env = task_command(driver, task, reply)
        confine = Confinement("gpu", writes=(folder,), at_most=level)
        try:
            done = run_bounded(
                argv,
                cwd=folder,
                timeout_s=OPENING_S,
                env=env,
                tool="kernels",
                confine=confine,
            )
        except EnvironmentFailure as problem:
            return problem.problem
        try:
            said = REPLY.validate_json(reply.read_bytes())
        except (OSError, ValidationError):
            lines = done.stderr.strip().splitlines()[-1:]
            return f"the runner ended with {done.exit_code} {' '.join(lines)[:200]}".strip()
    if isinstance(said, ProbeReply):
        return ""
    return said.problem if isinstance(said, RefusedReply) else f"the runner answered {said.kind!r}"
