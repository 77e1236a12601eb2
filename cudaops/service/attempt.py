"""One attempt at one job: a process is started, listened to, and ended; the database told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Literal, NamedTuple

import structlog

from cudaops.domain.run import Event
from cudaops.errors import ServiceUnavailable
from cudaops.graph.events import utc_now
from cudaops.service.job_folder import JobFolder, JobTask, Scrub, collect
from cudaops.service.job_process import ENVIRONMENT, Ended, JobProcess, job_event
from cudaops.service.records import JobEvent, Problem
from cudaops.service.store import Claim, Store
from cudaops.service.store_work import MAX_ATTEMPTS
from cudaops.settings import Settings

LEASE_S = 30.0
"""How long a job stays with a worker that is not heard of."""
RENEWALS = 6
"""In the time of a lease: a few may be missed."""
BATCH_S = 0.2
"""Events are written together for this long."""
JOB_LIMIT_S = 2 * 3600.0
"""Wall time of one attempt; `budget_minutes` ends a run earlier, and orderly."""
END_PATIENCE_S = 300.0
"""How long we go on trying to tell a database that is away how a job has ended."""
STOP_HEARD_S = 0.5
"""Within which both a worker and its children have heard that they are to end."""

BROKEN = "its worker's machine cannot do it any longer"
"""Why a job goes on elsewhere that failed through no fault of its own."""

Why = Literal["died", "cancelled", "lost", "stopped", "too long"]
"""Why an attempt ended without a word from its process."""

log = structlog.get_logger("cudaops.worker")


class WorkerSetup(NamedTuple):
    """Where jobs are worked on, and how."""

    settings: Settings
    folder: JobFolder
    executors: tuple[str, ...]
    stop: asyncio.Event
    """Set when the worker is to end."""
    still_works: Callable[[], Awaitable[bool]]
    """Asked where a job failed for what this machine lacks: another may yet do it."""
    lease_s: float = LEASE_S
    limit_s: float = JOB_LIMIT_S


class JobAttempt:
    """Of `claim`, at `place`."""

    def __init__(
        self, store: Store, claim: Claim, place: WorkerSetup, on_event: Callable[[Event], None]
    ):
        self._store, self._claim, self._place = store, claim, place
        self._on_event = on_event
        self._pending: list[JobEvent] = []
        self._over = False

    async def run(self) -> None:
        """From the start of its process to the job's end, or to its return to the queue."""
        claim, place = self._claim, self._place
        job = log.bind(job=str(claim.job.id), kind=claim.job.kind, attempt=claim.attempt)
        job.info("job started")
        task = JobTask(claim.request, place.folder, place.settings, place.executors, claim.attempt)
        child = JobProcess(claim.job.kind, task)
        keep = asyncio.create_task(self._keep())
        try:
            await self._see_through(job, child, keep)
        finally:
            keep.cancel()
            await asyncio.gather(keep, return_exceptions=True)

    async def _see_through(self, job: Any, child: JobProcess, keep: asyncio.Task[Why]) -> None:
        """The lease is kept until the end is written, which takes a moment after the child's."""
        claim, place = self._claim, self._place
        try:
            ended = await self._follow(child, keep)
        finally:
            await asyncio.to_thread(child.kill)
        if isinstance(ended, Ended) and await self._is_for_another(ended):
            job.warning("job goes back to the queue", why=BROKEN)
            await self._give_back(lost=True, why=BROKEN)
        elif isinstance(ended, Ended):
            problem = ended.problem
            status = "succeeded" if problem is None else "failed"
            job.info("job ended", status=status, problem=problem.detail if problem else None)
            await self._end(ended)
        elif ended == "stopped" or (ended == "died" and claim.losses == 0):
            job.warning("job goes back to the queue", why=ended, how=child.how_it_died)
            await self._give_back(lost=ended == "died")
        elif ended == "lost":
            job.warning(
                "the lease is lost; another worker has the job, or the database was unreachable"
            )
        else:
            job.warning("job ended", why=ended, how=child.how_it_died)
            await self._end(Ended(None, _problem(ended, child, place.limit_s)), ended)

    async def _is_for_another(self, ended: Ended) -> bool:
        """Whether it failed for what is broken on this machine, and may be tried on another."""
        return (
            ended.problem is not None
            and ended.problem.type == ENVIRONMENT
            and self._claim.losses + 1 < MAX_ATTEMPTS
            and not await self._place.still_works()
        )

    async def _follow(self, child: JobProcess, keep: asyncio.Task[Why]) -> Ended | Why:
        """Until it has ended, or must."""
        writing = asyncio.create_task(self._write())
        relay = asyncio.create_task(self._relay(child))
        stop = asyncio.create_task(self._place.stop.wait())
        try:
            done, _ = await asyncio.wait(
                {relay, keep, stop, writing},
                timeout=self._place.limit_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if relay in done and relay.result() is None:
                # Who ends a service tells every process of it, and the child is quick to go.
                await asyncio.wait({stop}, timeout=STOP_HEARD_S)
                return "stopped" if stop.done() else "died"
            if relay in done:
                return relay.result() or "died"
            for watched in (keep, writing):
                if watched in done:
                    return watched.result()
            return "stopped" if stop in done else "too long"
        finally:
            self._over = True
            for task in (relay, stop):
                task.cancel()
            await asyncio.gather(relay, stop, return_exceptions=True)
            # What is being written must be known to be written, or its events come twice; of a
            # lost job nothing is, and the database may be what hangs.
            await asyncio.wait({writing, keep}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done() and keep.result() == "cancelled":
                await asyncio.wait({writing})
            writing.add_done_callback(_seen)

    async def _relay(self, child: JobProcess) -> Ended | None:
        while True:
            said = await child.next()
            if not isinstance(said, Event):
                return said
            self._pending.append(job_event(said, self._claim.attempt))
            self._on_event(said)

    async def _write(self) -> Why:
        """Append events in batches. Ends where the lease is lost, or with the attempt."""
        while not self._over:
            await asyncio.sleep(BATCH_S)
            batch = list(self._pending)
            if not batch:
                continue
            with suppress(ServiceUnavailable):  # `_keep` says when that has lasted too long
                if (
                    await self._store.add_events(self._claim.job.id, self._claim.lease, batch)
                    is None
                ):
                    return "lost"
                del self._pending[: len(batch)]
        return "stopped"

    async def _keep(self) -> Why:
        """Renew the lease until it is lost or cancelling is asked for."""
        id, lease, lease_s = self._claim.job.id, self._claim.lease, self._place.lease_s
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        async with aclosing(self._store.watch(id, every_s=lease_s / RENEWALS)) as news:
            async for _ in news:
                # A database that hangs refuses nothing, and a statement to it cannot even be
                # cancelled; the lease runs out all the same.
                renewing = asyncio.create_task(self._store.renew(id, lease, lease_s))
                renewing.add_done_callback(_seen)
                await asyncio.wait({renewing}, timeout=max(0.0, renewed + lease_s - loop.time()))
                if not renewing.done():
                    return "lost"
                if (error := renewing.exception()) is not None:
                    if not isinstance(error, ServiceUnavailable):
                        raise error
                    if loop.time() - renewed > lease_s:
                        return "lost"
                    continue
                cancelled = renewing.result()
                if cancelled is None:
                    return "lost"
                if cancelled:
                    return "cancelled"
                renewed = loop.time()
        return "lost"

    async def _end(self, ended: Ended, why: Why | None = None) -> None:
        claim, folder = self._claim, self._place.folder
        status: Literal["succeeded", "failed", "cancelled"]
        status = "succeeded" if ended.problem is None else "failed"
        problem = ended.problem
        if why == "cancelled":
            status, problem = "cancelled", None
        settings = self._place.settings
        scrub = Scrub(folder, settings.cache, settings.builds_folder)
        found = await asyncio.to_thread(collect, folder.run, scrub)
        events = [*self._pending, *(_notice(line, claim.attempt) for line in found.left_out)]
        written = await self._persist(
            lambda: self._store.end(
                claim.job.id,
                claim.lease,
                status,
                result=ended.result,
                problem=problem,
                artefacts=found.files,
                events=events,
            )
        )
        if written:
            await asyncio.to_thread(folder.remove)

    async def _give_back(self, *, lost: bool, why: str | None = None) -> None:
        id, lease = self._claim.job.id, self._claim.lease
        if self._pending:
            with suppress(ServiceUnavailable):
                await self._store.add_events(id, lease, self._pending)
        with suppress(ServiceUnavailable):  # then the lease runs out, and a sweep does the same
            await self._store.release(id, lease, lost=lost, why=why)

    async def _persist(self, say: Callable[[], Awaitable[bool]]) -> bool:
        """Go on saying it to a database that is away: what a run has found is worth waiting for,
        and its folder is there for another attempt where that lasts too long."""
        deadline, pause_s = time.monotonic() + END_PATIENCE_S, 0.2
        while True:
            try:
                return await say()
            except ServiceUnavailable as error:
                if time.monotonic() > deadline or self._place.stop.is_set():
                    log.error("a job's end could not be written", problem=error.problem)
                    return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 10.0)


def _seen(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any longer; its failure is no news."""
    if not task.cancelled():
        task.exception()


def _notice(line: str, attempt: int) -> JobEvent:
    return JobEvent(
        seq=0, time=utc_now(), attempt=attempt, stage="report", agent="service", kind="notice",
        message=line,
    )  # fmt: skip


def _problem(why: Why, child: JobProcess, limit_s: float) -> Problem:
    if why == "too long":
        return Problem(
            type="urn:cudaops:problem:time-limit",
            title="The job took too long",
            status=422,
            detail=f"it was ended after {limit_s:g} s; ask for less, or set budget_minutes",
        )
    return Problem(
        type="urn:cudaops:problem:job-lost",
        title="The job was given up",
        status=500,
        detail=(
            f"more than once its worker or its process died, now: {child.how_it_died}; the"
            " worker's log says more, and a smaller input may pass"
        ),
    )
