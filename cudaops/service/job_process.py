"""A job's own process, from both ends: the worker starts it and kills it with everything below it;
it performs and reports.

It is forked from a server process that has imported everything (multiprocessing's forkserver), so
that it begins work at once. Messages go one way, a JSON object each: events, and at the
end a result or a problem. Silence at the end means that the process died.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.domain.base import Record
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.service.job_folder import (
    FolderTaken,
    JobTask,
    Scrub,
    remove_left,
    remove_own,
    take_own,
)
from cudaops.service.records import RESULTS, JobEvent, JobKind, Problem

# Ending a process with everything it started, whatever sessions those have made for themselves.

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: linux/prctl.h."""

KILL_WITHIN_S = 2.0
"""How long we go on killing what new descendants turn up."""


def adopt_orphans() -> None:
    """Processes below this one whose own parent dies become its children, not init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parents_death(number: signal.Signals) -> None:
    """Have this process told when the one that started it is gone."""
    _prctl(PR_SET_PDEATHSIG, number)


async def ended_within(process: asyncio.subprocess.Process, patience_s: float) -> bool:
    """Ask a process of ours to end, and wait for that; False where it had to be killed."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return False
    return True


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, int(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(root: int) -> list[int]:
    """Living processes below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, state, parent, _session in _processes():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found, to_see = [], [root]
    while to_see:
        below = children.get(to_see.pop(), [])
        found += below
        to_see += below
    return found


def reap_adopted() -> None:
    """Collect dead children that were adopted. They are known by their session, which is neither
    ours nor their own: whoever starts a process and waits for it leaves it in ours, or has it
    begin one."""
    ours = os.getsid(0)
    for pid, parent, session in _zombies():
        if parent == os.getpid() and session not in (ours, pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _zombies() -> Iterator[tuple[int, int, int]]:
    """Process, parent and session of every process that is dead and not collected."""
    for pid, state, parent, session in _processes():
        if state == "Z":
            yield pid, parent, session


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Process, state, parent and session of everything that /proc shows."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                # The name in brackets may hold anything; what follows does not.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), fields[0], int(fields[1]), int(fields[3])


def kill_descendants(root: int) -> None:
    """Kill all that is below `root`. Where `root` adopts orphans and starts nothing meanwhile,
    nothing of it is left."""
    deadline = time.monotonic() + KILL_WITHIN_S
    while (below := descendants(root)) and time.monotonic() < deadline:
        for pid in below:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def kill_tree(root: int) -> None:
    """Stop `root`, so that it starts nothing more, and kill it with all that is below it."""
    _signal(root, signal.SIGSTOP)
    kill_descendants(root)
    _signal(root, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


# A job's own process, from both ends: the worker starts and kills it, it performs and reports.

PRELOAD = ("cudaops.service.job_process", "cudaops.service.perform")
"""Imported once in the fork server: all that a job needs."""

ENVIRONMENT = "urn:cudaops:problem:environment"
"""Type of the problem of a job that failed for what the worker's machine lacks."""

SEND_LIMIT_BYTES = 256 * 2**20
"""Longest message taken from a job's process. A record of 50 attempts has some MB."""

REAP_EVERY_S = 1.0
"""How often a job's process collects what it has adopted; a compile leaves one such process."""


class Ended(NamedTuple):
    """What a job's process said at its end: one of the two is there."""

    result: Record | None
    problem: Problem | None


def context() -> ForkServerContext:
    """How job processes are made."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(list(PRELOAD))
    return made


def start_server() -> None:
    """Start the fork server, and wait until it has imported what jobs need."""
    made = context()
    forkserver.ensure_running()
    first = made.Process(target=_nothing, daemon=True)
    first.start()
    first.join()


def _nothing() -> None:
    pass


class JobProcess:
    """The worker's end."""

    def __init__(self, kind: JobKind, task: JobTask) -> None:
        """Start it. To be called in a running event loop."""
        made = context()
        self._kind = kind
        self._ours, theirs = made.Pipe(duplex=True)
        self.process = made.Process(target=_main, args=(theirs, kind, task), daemon=True)
        self.process.start()
        theirs.close()
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._reader = threading.Thread(target=self._read, name="job messages", daemon=True)
        self._reader.start()

    async def next(self) -> Event | Ended | None:
        """The next thing it says; None: it has died without a word."""
        message = await self._messages.get()
        if message is None:
            return None
        if "event" in message:
            return Event.model_validate(message["event"])
        if "problem" in message:
            return Ended(None, Problem.model_validate(message["problem"]))
        return Ended(RESULTS[self._kind].model_validate_json(message["result"]), None)

    def kill(self) -> None:
        """End it with everything it started; returns when that is done, within some seconds."""
        if self.process.pid is not None and self.process.is_alive():
            kill_tree(self.process.pid)
        self.process.join()
        self._reader.join()
        self._ours.close()
        remove_left()

    @property
    def how_it_died(self) -> str:
        """For a process that is gone: its signal or exit code, in words."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def _read(self) -> None:
        message: dict[str, Any] | None
        while True:
            try:
                message = json.loads(self._ours.recv_bytes(SEND_LIMIT_BYTES))
            except (EOFError, OSError, ValueError):
                message = None
            with suppress(RuntimeError):  # the loop has ended, and nobody listens
                self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
            if message is None:
                return


def _main(channel: Connection, kind: JobKind, task: JobTask) -> None:
    """The process's end: perform, and report the result."""
    os.setsid()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda _number, _frame: _vanish())
    signal_on_parents_death(signal.SIGTERM)
    take_own()
    threading.Thread(target=_watch, args=(channel,), daemon=True).start()
    threading.Thread(target=_reap, daemon=True).start()
    os.dup2(sys.stderr.fileno(), 1)
    # The fork server has imported it; the worker itself has no need of it.
    from cudaops.service.perform import perform, write_report

    scrub = Scrub(task.folder, task.settings.cache, task.settings.builds_folder)

    def told(event: Event) -> None:
        _send(channel, "event", json.loads(scrub(event.model_dump_json())))

    try:
        with task.folder.taken():
            said = scrub(perform(task, told).model_dump_json())
            # What cannot be read again must be known here, where it is one job's fault.
            result = RESULTS[kind].model_validate_json(said)
            if isinstance(result, RunRecord):
                write_report(task.folder, result, scrub)
        _send(channel, "result", said)
    except FolderTaken:
        # For the worker one that died: the job is tried again later, and ends after a few times.
        sys.stderr.write(f"{task.folder.root}: an earlier attempt at this job does not end\n")
        _vanish()
    except InputError as error:
        _send(channel, "problem", wrong_input(scrub(str(error))).model_dump(mode="json"))
    except EnvironmentFailure as error:
        problem = cannot(scrub(error.problem), scrub(error.remedy))
        _send(channel, "problem", problem.model_dump(mode="json"))
    except Exception as error:  # noqa: BLE001  the outermost edge of a job
        traceback.print_exc()
        first = (str(error).splitlines() or [""])[0]
        said = scrub(f"{type(error).__name__}: {first}")
        _send(channel, "problem", fault(said).model_dump(mode="json"))
    sys.stderr.flush()
    channel.close()
    kill_descendants(os.getpid())
    remove_own()
    os._exit(0)


def _send(channel: Connection, what: str, value: object) -> None:
    channel.send_bytes(json.dumps({what: value}).encode())


def _watch(channel: Connection) -> None:
    """The worker sends nothing: all that can be read is that it is gone."""
    with suppress(EOFError, OSError):
        channel.recv_bytes()
    _vanish()


def _reap() -> None:
    while True:
        time.sleep(REAP_EVERY_S)
        reap_adopted()


def _vanish() -> None:
    kill_descendants(os.getpid())
    remove_own()
    os._exit(1)


def wrong_input(detail: str) -> Problem:
    """What was sent cannot be worked on."""
    return Problem(
        type="urn:cudaops:problem:wrong-input",
        title="The input is wrong",
        status=422,
        detail=detail,
    )


def cannot(problem: str, remedy: str) -> Problem:
    """The machine that took the job cannot do it."""
    return Problem(
        type=ENVIRONMENT,
        title="The worker's machine cannot do it",
        status=503,
        detail=f"{problem}; {remedy}",
    )


def fault(detail: str) -> Problem:
    """Our own fault."""
    return Problem(
        type="urn:cudaops:problem:fault",
        title="This is a fault of cudaops",
        status=500,
        detail=f"{detail}; the worker's log has the traceback, please report it",
    )


def job_event(event: Event, attempt: int) -> JobEvent:
    """A run's event as the service keeps it; `seq` is given when it is stored."""
    return JobEvent(
        seq=0,
        time=event.time,
        attempt=attempt,
        stage=event.stage,
        agent=event.agent,
        kind=event.kind,
        message=event.message,
        data=event.data,
    )
