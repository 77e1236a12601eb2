"""From a task to its reply, and the loop that does so until the parent goes away."""

from __future__ import annotations

from typing import BinaryIO

from pydantic import ValidationError

from cudaops.executors.cuda.protocol import (
    REPLY,
    TASK,
    Fault,
    MeasureTask,
    ProfileTask,
    Refused,
    Reply,
    RunTask,
    SeriesTask,
    Task,
)
from cudaops.executors.cuda.runner import replay
from cudaops.executors.cuda.runner.driver import (
    Driver,
    DriverError,
    KernelFault,
    Refusal,
    refusal_of,
)
from cudaops.executors.cuda.runner.timing import measure
from cudaops.executors.cuda.runner.tracing import KernelTimes


def perform(driver: Driver, task: Task, activity: KernelTimes | None = None) -> Reply:
    """Do a task. Whatever goes wrong is in the reply."""
    try:
        return _performed(driver, task, activity)
    except KernelFault as fault:
        return Fault(what=fault.what, message=fault.message, error=fault.error, sticky=fault.sticky)
    except Refusal as refusal:
        return Refused(problem=refusal.problem, remedy=refusal.remedy)
    except DriverError as problem:
        why = refusal_of(problem)
        return Refused(problem=why.problem, remedy=why.remedy)
    except OSError as problem:
        return Refused(
            problem=f"cannot write the outputs: {problem}",
            remedy="free some disk space, or point CUDAOPS_CACHE and TMPDIR at a larger disk",
        )


def serve(
    driver: Driver, tasks: BinaryIO, replies: BinaryIO, activity: KernelTimes | None = None
) -> None:
    """Answer tasks, one JSON object a line, until they end or the context is lost."""
    for line in tasks:
        reply = answer(driver, line, activity)
        replies.write(encode(reply))
        replies.flush()
        if isinstance(reply, Fault) and reply.sticky:
            return


def answer(driver: Driver, line: bytes, activity: KernelTimes | None = None) -> Reply:
    """The reply to a task as it came over the pipe."""
    try:
        task = TASK.validate_json(line)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = f"the task cannot be read: {place}: {first['msg']}"
        return Refused(problem=text, remedy="report it; it is a fault of cudaops")
    return perform(driver, task, activity)


def encode(reply: Reply) -> bytes:
    """One line."""
    return REPLY.dump_json(reply) + b"\n"


def _performed(driver: Driver, task: Task, activity: KernelTimes | None) -> Reply:
    if isinstance(task, RunTask):
        return replay.run(driver, task)
    if isinstance(task, SeriesTask):
        return replay.run_series(driver, task)
    if isinstance(task, MeasureTask):
        return measure(driver, task, activity=activity)
    if isinstance(task, ProfileTask):
        return replay.profile(driver, task)
    return replay.probe(driver)
