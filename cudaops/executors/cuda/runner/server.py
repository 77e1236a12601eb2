"""From a task to its reply, in a loop until the parent ends."""

from __future__ import annotations

from typing import BinaryIO

from pydantic import ValidationError

from cudaops.executors.cuda.protocol import (
    REPLY,
    TASK,
    FaultReply,
    MeasureTask,
    ProbeReply,
    ProfileTask,
    RefusedReply,
    ReleaseTask,
    Reply,
    RunTask,
    SeriesTask,
    Task,
)
from cudaops.executors.cuda.runner import replay
from cudaops.executors.cuda.runner.device_state import StateCache
from cudaops.executors.cuda.runner.driver import (
    NO_ROOM,
    Driver,
    DriverError,
    KernelFault,
    TaskRefused,
    refusal_of,
)
from cudaops.executors.cuda.runner.timing import measure
from cudaops.executors.cuda.runner.tracing import KernelTimes


def perform(
    driver: Driver, task: Task, activity: KernelTimes | None = None, kept: StateCache | None = None
) -> Reply:
    """Do a task. Whatever goes wrong is in the reply. `kept`: what earlier tasks left there, and
    what later ones shall find; None: nothing is left."""
    held = kept or StateCache(driver)
    try:
        return _with_room(driver, task, activity, held)
    except KernelFault as fault:
        return FaultReply(
            what=fault.what, message=fault.message, error=fault.error, sticky=fault.sticky
        )
    except TaskRefused as refusal:
        return _refused(refusal)
    except DriverError as problem:
        return _refused(refusal_of(problem))
    except OSError as problem:
        return RefusedReply(
            problem=f"cannot write the outputs: {problem}",
            remedy="free some disk space, or point CUDAOPS_CACHE and TMPDIR at a larger disk",
        )
    finally:
        if kept is None:
            held.drop()


def serve(
    driver: Driver, tasks: BinaryIO, replies: BinaryIO, activity: KernelTimes | None = None
) -> None:
    """Answer tasks, one JSON object a line, until they end or the context is lost."""
    kept = StateCache(driver)
    for line in tasks:
        reply = answer(driver, line, activity, kept)
        replies.write(encode(reply))
        replies.flush()
        if isinstance(reply, FaultReply) and reply.sticky:
            return


def answer(
    driver: Driver, line: bytes, activity: KernelTimes | None = None, kept: StateCache | None = None
) -> Reply:
    """The reply to a task as it came over the pipe."""
    try:
        task = TASK.validate_json(line)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = f"the task cannot be read: {place}: {first['msg']}"
        return RefusedReply(problem=text, remedy="report it; it is a fault of cudaops")
    return perform(driver, task, activity, kept)


def encode(reply: Reply) -> bytes:
    """One line."""
    return REPLY.dump_json(reply) + b"\n"


def _refused(refusal: TaskRefused) -> RefusedReply:
    return RefusedReply(problem=refusal.problem, remedy=refusal.remedy, no_room=refusal.no_room)


def _with_room(driver: Driver, task: Task, activity: KernelTimes | None, kept: StateCache) -> Reply:
    """Whatever fails, nothing stays of what was kept before; where that had the room which was
    wanted, the task is done again."""
    try:
        return _performed(driver, task, activity, kept)
    except Exception as problem:
        if not (kept.drop() and _wants_room(problem)):
            raise
    return _performed(driver, task, activity, kept)


def _wants_room(problem: Exception) -> bool:
    if isinstance(problem, TaskRefused):
        return problem.no_room
    if isinstance(problem, KernelFault):
        return problem.error == NO_ROOM
    return isinstance(problem, DriverError) and problem.name == NO_ROOM


def _performed(driver: Driver, task: Task, activity: KernelTimes | None, kept: StateCache) -> Reply:
    if isinstance(task, RunTask):
        return replay.run(driver, task)
    if isinstance(task, SeriesTask):
        return replay.run_series(driver, task)
    if isinstance(task, MeasureTask):
        return measure(driver, task, activity=activity, kept=kept)
    if isinstance(task, ProfileTask):
        return replay.profile(driver, task)
    if isinstance(task, ReleaseTask):
        kept.drop()
        return ProbeReply(facts=driver.facts, free_bytes=driver.free_bytes())
    return replay.probe(driver)
