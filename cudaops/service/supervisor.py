"""Worker processes beside the API: started again when they die, stopped orderly with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence

from cudaops.service.process_tree import signal_on_parents_death

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before a worker that died is started again; doubled each time, until one has lived a minute."""
LIVED_S = 60.0
STOP_S = 20.0
"""How long a worker may take to give its job back before it is killed."""

_log = logging.getLogger("cudaops.supervisor")


@contextlib.asynccontextmanager
async def supervised(commands: Sequence[Sequence[str]]) -> AsyncIterator[None]:
    """Keeps one process of each command alive within the block, and stops them at its end."""
    stopping = asyncio.Event()
    keepers = [asyncio.create_task(_keep(command, stopping)) for command in commands]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.gather(*keepers)


async def _keep(command: Sequence[str], stopping: asyncio.Event) -> None:
    pause_s = FIRST_PAUSE_S
    while not stopping.is_set():
        began = time.monotonic()
        try:
            process = await _start(command)
        except OSError as problem:  # no process, no memory: there may be some again
            _log.error("a worker cannot be started: %s", problem)
        else:
            if await _first(process.wait(), stopping.wait()):
                await _stop(process)
                return
            _log.warning("worker ended with %s; starting another", process.returncode)
        lived = time.monotonic() - began > LIVED_S
        pause_s = FIRST_PAUSE_S if lived else min(2 * pause_s, LONGEST_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()


async def _start(command: Sequence[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        # Ctrl-C in a terminal goes to all of its group: only we tell a worker to stop.
        start_new_session=True,
        preexec_fn=_tied,
    )
    _log.info("worker started", extra={"pid": process.pid})
    return process


def _tied() -> None:
    """In the child: where the service is killed, the worker is asked to stop."""
    signal_on_parents_death(signal.SIGTERM)


async def _first(*waits: object) -> bool:
    """Whether the second one was done when the first of them was."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return bool(tasks[1].done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        _log.error("worker %s did not stop in %g s and is killed", process.pid, STOP_S)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
