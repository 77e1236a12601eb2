"""The process that holds the executors of a worker and does calls in threads.

Tasks come as lines of JSON on stdin, answers leave on stdout. It has no way to the database and
none of the service's secrets. When stdin ends, so does it, with everything it started.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import device as device_named
from cudaops.domain.base import Record
from cudaops.domain.run import IsolationChoice
from cudaops.errors import EnvironmentFailure, InputError, PrerequisiteError
from cudaops.sandbox.executors.cpu import CpuExecutor
from cudaops.sandbox.executors.cuda import CudaExecutor
from cudaops.sandbox.isolation.level import enforce
from cudaops.sandbox.wire import Call, CallProblem, Machinery, Place, ProblemKind, Reply
from cudaops.service.executor_methods import Callee, perform
from cudaops.service.temporary import remove_own, take_own
from cudaops.storage import sweep

MOST_GPU_OWNERS = 2
"""Owners whose runners stay on the GPU at once; each owner has processes of its own there."""


class HostOptions(Record):
    """What a worker lets executors elsewhere use."""

    executors: tuple[Machinery, ...] = ("cpu",)
    """Those that work here are offered, the others are left out."""
    builds: str
    """Folder for what compilers make, absolute."""
    builds_bytes: int
    """Size it keeps to."""
    driver: Literal["nvidia", "standin"] = "nvidia"
    isolation: IsolationChoice = "auto"
    """Never `off`: what comes from elsewhere is nobody's to vouch for."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    """Calls at once. Compiles overlap with measurements; a GPU is measured on by one at a time."""


class Task(Record):
    """One call for the host, its references resolved to files of this machine."""

    id: str
    """Of this task; the answer has it too."""
    owner: str
    place: Place
    call: Annotated[Call, Field(discriminator="method")]
    """Paths where references were, those of unit, baseline and program apart."""
    documents: dict[str, str] = Field(default_factory=dict)
    """Reference of a unit or program to the file that holds it."""
    folder: str
    """For the call alone; exists."""


class Hello(Record):
    """What the host says first."""

    kind: Literal["hello"] = "hello"
    places: tuple[Place, ...]
    lacks: dict[Machinery, CallProblem] = Field(default_factory=dict)
    """Executors that were asked for and do not work here, with why."""


class Answer(Record):
    """What came of a task."""

    kind: Literal["answer"] = "answer"
    id: str
    reply: Reply | None = None
    problem: CallProblem | None = None


@dataclass
class _Gpu:
    executor: CudaExecutor
    users: int = 0


class ExecutorHost:
    """The executors of one machine, made when they are first needed."""

    def __init__(self, options: HostOptions) -> None:
        if options.isolation == "off":
            raise InputError("a service confines what it runs: leave CUDAOPS_ISOLATION=off out")
        enforce(options.isolation)
        self._options = options
        self._cache = Path(options.builds)
        self._gpus: OrderedDict[tuple[str, str], _Gpu] = OrderedDict()
        self._lock = threading.Lock()

    def hello(self) -> Hello:
        """Look what works here."""
        places, lacks = [], {}
        for name in self._options.executors:
            try:
                places.append(self._place(name))
            except EnvironmentFailure as failure:
                lacks[name] = _lack(failure)
            except InputError as problem:
                lacks[name] = CallProblem(kind="input", problem=str(problem))
        self._cache.mkdir(parents=True, exist_ok=True)
        sweep(self._cache, self._options.builds_bytes)
        return Hello(places=tuple(places), lacks=lacks)

    def answer(self, task: Task) -> Answer:
        """Do a task; whatever goes wrong becomes a problem."""
        try:
            with self._executor(task) as executor:
                reply = perform(self._callee(executor, task), task.call)
        except InputError as problem:
            return _problem(task, "input", str(problem))
        except ValueError as problem:
            return _problem(task, "value", str(problem)[:1000])
        except EnvironmentFailure as failure:
            return Answer(id=task.id, problem=_lack(failure))
        except Exception as fault:  # noqa: BLE001  one call's fault must not end the others
            return _problem(task, "fault", f"{type(fault).__name__}: {fault}"[:1000])
        return Answer(id=task.id, reply=reply)

    def _callee(self, executor: CpuExecutor | CudaExecutor, task: Task) -> Callee:
        return Callee(executor, task.documents, Path(task.folder))

    def _place(self, name: Machinery) -> Place:
        if name == "cpu":
            CpuExecutor("A10", self._cache).check_available()
            return Place(executor="cpu", device="")
        executor = CudaExecutor(None, self._cache, driver=self._options.driver)
        try:
            executor.check_available()
            return Place(executor="cuda", device=executor.device, sm_arch=executor.sm_arch)
        finally:
            executor.close()

    @contextmanager
    def _executor(self, task: Task) -> Iterator[CpuExecutor | CudaExecutor]:
        """The task's executor; whole programs run in an empty folder."""
        empty = Path(task.folder) / "empty"
        empty.mkdir(exist_ok=True)
        if task.place.executor == "cpu":
            row = device_named(task.place.device)
            microarchitecture(row.compute_capability)
            yield CpuExecutor(row.name, self._cache, program_folder=empty)
            return
        gpu = self._hold(task.owner, task.place)
        try:
            if gpu.executor.device != task.place.device:
                raise PrerequisiteError(
                    f"the GPU here is {gpu.executor.device}, not {task.place.device}",
                    "start the run again: the service's GPUs have changed",
                )
            executor = copy.copy(gpu.executor)
            executor.program_folder = empty
            yield executor
        finally:
            with self._lock:
                gpu.users -= 1

    def _hold(self, owner: str, place: Place) -> _Gpu:
        """One owner's executor. What another owner's runners left on the GPU goes with them."""
        key = (owner, place.sm_arch)
        with self._lock:
            if key not in self._gpus:
                made = CudaExecutor(
                    None,
                    self._cache,
                    driver=self._options.driver,
                    sm_arch=place.sm_arch or None,
                )
                self._gpus[key] = _Gpu(made)
            self._gpus.move_to_end(key)
            self._gpus[key].users += 1
            idle = [k for k, gpu in self._gpus.items() if gpu.users == 0]
            for old in idle[: max(0, len(self._gpus) - MOST_GPU_OWNERS)]:
                self._gpus.pop(old).executor.close()
            return self._gpus[key]


def _problem(task: Task, kind: ProblemKind, problem: str) -> Answer:
    return Answer(id=task.id, problem=CallProblem(kind=kind, problem=problem))


def _lack(failure: EnvironmentFailure) -> CallProblem:
    kind: ProblemKind = "prerequisite" if isinstance(failure, PrerequisiteError) else "sandbox"
    return CallProblem(kind=kind, problem=failure.problem, remedy=failure.remedy)


def _answer(host: ExecutorHost, line: bytes, say: Callable[[Record], None]) -> None:
    """An answer to every task: the worker waits an hour for one that is missing."""
    try:
        say(host.answer(Task.model_validate_json(line)))
    except Exception as fault:  # noqa: BLE001  nobody looks at a pool's futures
        id = str(json.loads(line)["id"])
        problem = f"{type(fault).__name__}: {fault}"[:1000]
        say(Answer(id=id, problem=CallProblem(kind="fault", problem=problem)))


def main() -> None:
    """Serve tasks until stdin ends. The options are the one argument, as JSON."""
    options = HostOptions.model_validate_json(sys.argv[1])
    take_own()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand among the answers
    writing = threading.Lock()
    host = ExecutorHost(options)

    def say(record: Record) -> None:
        with writing:
            answers.write(record.model_dump_json() + "\n")
            answers.flush()

    with suppress(BrokenPipeError):  # the worker has ended meanwhile
        say(host.hello())
    pool = ThreadPoolExecutor(max_workers=options.concurrency, thread_name_prefix="call")
    for line in sys.stdin.buffer:
        pool.submit(_answer, host, line, say)
    remove_own()
    os._exit(0)  # threads may be at work for a worker that is gone


if __name__ == "__main__":
    main()
