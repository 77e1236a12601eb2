"""The part of a worker that does calls of executors elsewhere: takes, runs, answers.

The calls run in threads of one child process (`executor_host`), which is started again where it
dies. Everything that needs the database happens here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import structlog

import cudaops
from cudaops import __version__
from cudaops.errors import ServiceUnavailable
from cudaops.sandbox.wire import (
    REPLY,
    CallProblem,
    MeasurePair,
    OnWorkload,
    Reply,
    Run,
    RunSeries,
)
from cudaops.sandbox.wire import Call as WireCall
from cudaops.sandbox.wire_files import contents_of, swap_inputs, swap_reply
from cudaops.service import tracing
from cudaops.service.blobs import NoRoom
from cudaops.service.executor_files import GoneContents, LocalFiles
from cudaops.service.executor_host import HostOptions, Task
from cudaops.service.executor_process import HostDied, HostProcess
from cudaops.service.executor_queue import ABANDONED, LOST, MAX_ATTEMPTS, WORK, Calls, Taken
from cudaops.service.self_check import SelfCheck
from cudaops.service.store import Store

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger("cudaops.calls")

LEASE_S = 15.0
"""A worker that is gone is noticed after this long; renewed three times as often."""
BEAT_S = 10.0
SWEEP_S = 30.0
RETRY_S = 2.0
"""Between attempts where the database or the host is away."""
STOP_GRACE_S = 10.0
"""How long running calls get when the worker is told to stop; then they are another's."""

NO_ROOM = CallProblem(
    kind="sandbox",
    problem="the service has no room for what this call made",
    remedy="wait until other runs have ended, then start the run again",
)


class Means(NamedTuple):
    """With what calls are done."""

    host: HostProcess
    check: SelfCheck
    """Asked where a call failed for what this machine lacks: another may yet do it."""


async def serve(
    store: Store,
    options: HostOptions,
    folder: Path,
    stop: asyncio.Event,
    *,
    name: str,
    means: Means,
    lease_s: float = LEASE_S,
) -> None:
    """Do calls until `stop` is set, in a folder of this worker's own below `folder`.

    The host is closed with them; where it dies earlier, another is started. Database trouble is
    waited out: calls whose lease runs out meanwhile are another worker's.
    """
    files = LocalFiles(Calls(store).blobs, folder)
    await _Worker(Calls(store), options, files, name, means, lease_s).run(stop)


class _Worker:
    def __init__(
        self, calls: Calls, options: HostOptions, files: LocalFiles, name: str, means: Means,
        lease_s: float,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._options = options
        self._files = files
        self._name = name
        self._lease_s = lease_s
        self._host, self._check = means
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._look = asyncio.Event()
        self._look.set()

    async def run(self, stop: asyncio.Event) -> None:
        chores = [
            asyncio.create_task(self._again(work, seconds), name=f"calls: {what}")
            for what, work, seconds in (
                ("host", self._keep_host, RETRY_S),
                ("news", self._hear, RETRY_S),
                ("leases", self._renew, self._lease_s / 3),
                ("beat", self._beat, BEAT_S),
                ("sweep", self._calls.sweep, SWEEP_S),
                ("take", self._take, 0.0),
            )
        ]
        try:
            await stop.wait()
        finally:
            await _cancelled(chores)
            await self._wind_up()

    async def _again(self, work: Work, seconds: float) -> None:
        """Over and over; trouble is said and tried again."""
        while True:
            try:
                await work()
            except (ServiceUnavailable, HostDied) as problem:
                log.warning("calls wait", problem=str(problem) or "the host ended")
                await asyncio.sleep(RETRY_S)
            except Exception:  # a chore that ends would leave calls waiting for ever
                log.exception("calls wait")
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(seconds)

    async def _keep_host(self) -> None:
        if not self._host.is_alive:
            await self._host.close()  # its answers could not be read, but it may live
            self._host = await HostProcess.start(self._options)
            await self._beat()
            self._look.set()

    async def _hear(self) -> None:
        async with contextlib.aclosing(self._calls.watch(WORK)) as news:
            async for _ in news:
                self._look.set()

    async def _renew(self) -> None:
        if self._running:
            await self._calls.renew(list(self._running), self._lease_s)

    async def _beat(self) -> None:
        if self._host.is_alive:
            await self._calls.beat(self._name, self._host.places, __version__)

    async def _take(self) -> None:
        """Take calls while there is room for them."""
        await self._look.wait()
        self._look.clear()
        host = self._host
        while host.is_alive:
            if len(self._running) >= self._options.concurrency:
                return
            targets = [place.target for place in host.places]
            taken = await self._calls.take(targets, self._name, self._lease_s)
            if taken is None:
                return
            task = asyncio.create_task(self._do(host, taken), name=f"call {taken.id}")
            self._running[taken.lease] = task
            task.add_done_callback(functools.partial(self._done, taken.lease))

    def _done(self, lease: UUID, _: asyncio.Task[None]) -> None:
        self._running.pop(lease, None)
        self._look.set()

    async def _do(self, host: HostProcess, taken: Taken) -> None:
        try:
            with tracing.call(None, taken.id, taken.request.call.method):
                outcome: Reply | CallProblem = await self._outcome(host, taken)
        except HostDied:
            if taken.attempt < MAX_ATTEMPTS:
                await self._patiently(lambda: self._calls.put_back(taken, counts=True))
                return
            outcome = LOST
        except GoneContents:
            outcome = ABANDONED
        except asyncio.CancelledError:
            with contextlib.suppress(ServiceUnavailable):
                await self._calls.put_back(taken, counts=False)
            raise
        except ServiceUnavailable as problem:
            # Not ended: whoever looks for calls when the lease has run out takes it up again.
            log.warning("a call cannot go on", call=str(taken.id), problem=str(problem))
            return
        except NoRoom:
            outcome = NO_ROOM
        except Exception as fault:
            log.exception("a call failed", call=str(taken.id))
            outcome = CallProblem(kind="fault", problem=f"{type(fault).__name__}: {fault}"[:1000])
        if await self._is_for_another(taken, outcome):
            await self._patiently(lambda: self._calls.put_back(taken, counts=True))
            return
        await self._patiently(lambda: self._calls.end(taken, outcome))

    async def _is_for_another(self, taken: Taken, outcome: Reply | CallProblem) -> bool:
        """Whether it failed for what is broken on this machine, and may be tried on another."""
        failed = isinstance(outcome, CallProblem) and outcome.kind in ("prerequisite", "sandbox")
        return failed and taken.attempt < MAX_ATTEMPTS and not await self._check.passes()

    async def _patiently(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """A result is worth waiting for the database, as long as the lease may last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._lease_s):
                while True:
                    with contextlib.suppress(ServiceUnavailable):
                        await work()
                        return
                    await asyncio.sleep(RETRY_S)

    async def _outcome(self, host: HostProcess, taken: Taken) -> Reply | CallProblem:
        owner, call, id = taken.owner, taken.request.call, str(uuid4())
        held: set[str] = set()
        folder = self._files.call_folder(id)
        try:
            paths: dict[str, str] = {}
            for reference in set(contents_of(call)):
                paths[reference] = str(await self._files.fetch(owner, reference))
                held.add(reference)
            task = Task(
                id=id,
                owner=owner,
                place=taken.request.place,
                call=self._resolved(call, paths),
                documents=paths,
                folder=str(folder),
            )
            answer = await host.do(task)
            if answer.reply is None:
                return answer.problem or LOST
            return await self._sent(owner, answer.reply, folder)
        finally:
            self._files.leave(id, held)

    def _resolved(self, call: WireCall, paths: dict[str, str]) -> WireCall:
        """The call with files of this machine where references were."""
        if not isinstance(call, OnWorkload):
            return call
        changes: dict[str, object] = {"workload": self._files.workload(call.workload)}
        if isinstance(call, Run):
            changes["inputs"] = swap_inputs(call.inputs, paths.__getitem__)
        elif isinstance(call, RunSeries):
            changes["series"] = tuple(swap_inputs(one, paths.__getitem__) for one in call.series)
        elif isinstance(call, MeasurePair):
            sets = tuple(swap_inputs(one, paths.__getitem__) for one in call.alternatives)
            changes["alternatives"] = sets
        return call.model_copy(update=changes)

    async def _sent(self, owner: str, reply: Reply, folder: Path) -> Reply:
        """The reply with its files kept for their owner, and without paths of this machine."""
        made: list[str] = []

        def note(path: str) -> str:
            made.append(path)
            return path

        swap_reply(reply, note)
        kept = {path: await self._files.keep(owner, Path(path)) for path in dict.fromkeys(made)}
        text = swap_reply(reply, kept.__getitem__).model_dump_json()
        for path, shown in (
            (str(folder), "<call>"),
            (self._options.builds, "<cache>"),
            (str(Path(cudaops.__file__).parent), "<cudaops>"),
        ):
            text = text.replace(path, shown)
        return REPLY.validate_json(text)

    async def _wind_up(self) -> None:
        """Running calls get a moment; then they are put back for another worker."""
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=STOP_GRACE_S)
        await _cancelled(list(self._running.values()))
        await self._host.close()
        await asyncio.to_thread(self._files.remove)
        with contextlib.suppress(ServiceUnavailable):
            await self._calls.retire(self._name)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
