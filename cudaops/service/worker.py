"""A worker: takes jobs from the queue and has each performed in a process of its own, on the GPU it
was given.

Several may run on one machine and on many, at the same database. What they share is that and
nothing else; a job that one of them lost is another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import structlog
from procrastinate.exceptions import ProcrastinateException

from cudaops import __version__
from cudaops.domain.options import ExecutorName
from cudaops.domain.run import Event
from cudaops.errors import EnvironmentFailure, InputError, ServiceUnavailable
from cudaops.executors.cuda.telemetry import gpu_gauges, whole_gpus
from cudaops.service import gpu_faults, tracing
from cudaops.service.attempt import JOB_LIMIT_S, LEASE_S, JobAttempt, WorkerSetup
from cudaops.service.database import WORKER_POLL_S, build_queue_app, queue_of
from cudaops.service.job_folder import JobFolder, remove_left
from cudaops.service.job_process import fault, job_event, start_server
from cudaops.service.logs import bound
from cudaops.service.records import ENDED
from cudaops.service.self_check import CheckOptions, SelfCheck, working
from cudaops.service.store import Claim, Store
from cudaops.service.store_work import MAX_ATTEMPTS
from cudaops.settings import Settings

# Which GPUs workers may use, and which of them one does: by CUDA's own variable.

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"""


def gpus_here(environment: Mapping[str, str]) -> tuple[str, ...]:
    """An entry for CUDA_VISIBLE_DEVICES for each GPU that a process may use: those that the
    variable names already, else those that NVML shows, without the ones cut into slices.

    Empty where none is known.
    """
    named = environment.get(VISIBLE)
    if named is None:
        return tuple(whole_gpus())
    entries = (entry.strip() for entry in named.split(","))
    # CUDA ignores an entry that it cannot use and all behind it.
    return tuple(takewhile(_names_a_gpu, entries))


def use_gpu(index: int, environment: MutableMapping[str, str]) -> None:
    """Let CUDA see this one alone, counted among `gpus_here` from 0.

    Without NVML there is nothing to count, and CUDA's own number is taken, by place on the bus.
    Raises InputError where there is no such GPU.
    """
    there = gpus_here(environment)
    if index < len(there):
        environment[VISIBLE] = there[index]
    elif there or VISIBLE in environment:
        by = f"{VISIBLE} names" if VISIBLE in environment else "this machine has"
        count = f"{len(there)} GPU" + ("" if len(there) == 1 else "s")
        raise InputError(f"--gpu {index}: {by} {count} to choose from, counted from 0")
    else:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment[VISIBLE] = str(index)


def gpu_name(gauges: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Name of the GPU that such a process uses, of those that were measured; None where they do
    not say."""
    gpus = gauges.get("gpus") or []
    if len({gpu.get("name") for gpu in gpus}) == 1:
        name: str | None = gpus[0].get("name")
        return name
    first = next(iter(gpus_here(environment)), "")
    for gpu in gpus:
        if first.startswith("GPU-") and str(gpu.get("uuid", "")).startswith(first):
            return str(gpu.get("name"))
    return None


def _names_a_gpu(entry: str) -> bool:
    return entry.isdigit() or entry.startswith(("GPU-", "MIG-"))


# A worker: takes jobs from the queue and has each performed in a process of its own.

WorkerExecutor = Literal[ExecutorName, "all"]

SWEEP_EVERY_S = 5.0
BEAT_EVERY_S = 10.0
"""A worker that was not seen for three of these counts as gone (`Store.workers`)."""
FORGET_EVERY_S = 3600.0
CLEAR_EVERY_S = 3600.0
FAULTS_EVERY_S = 60.0
"""Between two runs of nvidia-smi, which takes seconds where nothing keeps the driver loaded."""
AGAIN_S = 1.0
"""Pause before something is tried again that the database has refused."""

log = structlog.get_logger("cudaops.worker")


class WorkerOptions(NamedTuple):
    """What a worker takes, and how."""

    name: str
    executors: tuple[ExecutorName, ...]
    folder: Path
    """In which every job has a folder, absolute."""
    all_must_work: bool = True
    """Whether an executor that does not work ends it, or is left out."""
    concurrency: int = 1
    """Jobs at once."""
    lease_s: float = LEASE_S
    job_limit_s: float = JOB_LIMIT_S
    dcgm_url: str | None = None
    """Page of a DCGM exporter on this machine; None: none is asked."""


def default_name() -> str:
    """This machine and this process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def executors_of(choice: WorkerExecutor) -> tuple[ExecutorName, ...]:
    """What a worker started for `choice` runs on."""
    return ("cpu", "cuda") if choice == "all" else (choice,)


def service_folder(settings: Settings) -> Path:
    """Where workers of these settings keep what they are working on, absolute."""
    return (settings.service_folder or settings.cache / "service").absolute()


def gauges() -> dict[str, Any]:
    """What a worker measures of its machine, sent with every beat; quick, raises nothing.

    `load_1m`: runnable processes, mean of a minute. `cpus`: processors this process may use.
    `gpus`: a list of `executors.cuda.telemetry.gpu_gauges`, empty without one.
    """
    return {
        "load_1m": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": gpu_gauges(),
    }


def check_settings(settings: Settings) -> None:
    """Raise InputError for settings with which strangers' programs must not run."""
    if settings.isolation == "off":
        raise InputError(
            "CUDAOPS_ISOLATION=off lets every client's program do what this account may do; leave"
            " the variable out (docs/isolation.md)"
        )


class Worker:
    """Of `store`, until `stop` is called."""

    def __init__(self, store: Store, settings: Settings, options: WorkerOptions) -> None:
        self._store, self._settings, self._options = store, settings, options
        self._executors = options.executors
        self._failure: EnvironmentFailure | None = None
        self._faults: list[gpu_faults.Gauges] = []
        self._stop = asyncio.Event()
        self._check = SelfCheck(self._check_options, self._fail)

    def stop(self) -> None:
        """End orderly: what is being worked on goes back to the queue."""
        self._stop.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until `stop`. `ready` is called once jobs can be taken.

        Raises ServiceUnavailable where the database is not there at the beginning; later it is
        waited for. Raises SandboxUnavailable where its executors do not work, then or later.
        """
        starting = asyncio.create_task(asyncio.to_thread(start_server))
        try:  # a driver may hang: until it has answered a signal ends us
            self._executors = await working(
                self._check_options(), all_must_work=self._options.all_must_work
            )
        finally:
            await starting
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        await self._beat()
        log.info("worker ready", name=self._options.name, executors=self._executors)
        ready()
        tasks = [
            asyncio.create_task(self._repeat(self._store.sweep, SWEEP_EVERY_S)),
            asyncio.create_task(self._repeat(self._beat, BEAT_EVERY_S)),
            asyncio.create_task(self._repeat(self._look_for_faults, FAULTS_EVERY_S)),
            asyncio.create_task(self._repeat(self._clear, CLEAR_EVERY_S)),
            asyncio.create_task(self._deliver()),
        ]
        if (days := self._settings.keep_days) is not None:
            forget = functools.partial(self._forget, days)
            tasks.append(asyncio.create_task(self._repeat(forget, FORGET_EVERY_S)))
        try:
            await self._stop.wait()
        finally:
            self._stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(ServiceUnavailable):
                await self._store.retire(self._options.name)
            log.info("worker stopped", name=self._options.name)
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: EnvironmentFailure) -> None:
        """End orderly, and say why: others do what cannot be done here."""
        self._failure = failure
        log.error("worker ends", problem=failure.problem, remedy=failure.remedy)
        self.stop()

    async def _deliver(self) -> None:
        """Have procrastinate bring jobs, and bring it back where the database threw it out."""
        app = build_queue_app(self._store.pool, self._take)
        await app.open_async(self._store.pool.connections)
        queues = ["any", *(queue_of(executor) for executor in self._executors)]
        while True:
            try:
                await app.run_worker_async(
                    queues=queues,
                    name=self._options.name,
                    concurrency=self._options.concurrency,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    fetch_job_polling_interval=WORKER_POLL_S,
                )
            except ProcrastinateException:
                pass  # the database was away
            except Exception:
                log.exception("deliveries failed")
            await asyncio.sleep(AGAIN_S)

    def _check_options(self) -> CheckOptions:
        return CheckOptions(
            executors=self._executors,
            builds=str(self._settings.builds_folder),
            builds_bytes=self._settings.builds_bytes,
            driver=self._settings.gpu_driver,
            isolation=self._settings.isolation,
        )

    async def _take(self, id: UUID) -> None:
        """A delivery: the job is claimed, or it was somebody else's."""
        options = self._options  # what is not claimed the sweep delivers again
        while not self._stop.is_set():
            try:
                claim = await self._store.claim(id, options.name, options.lease_s)
            except ServiceUnavailable:
                await asyncio.sleep(AGAIN_S)
                continue
            if claim is not None:
                await self._attempt(claim)
            return

    async def _attempt(self, claim: Claim) -> None:
        place = WorkerSetup(
            settings=self._settings,
            folder=JobFolder(self._options.folder / str(claim.job.id)),
            executors=self._executors,
            stop=self._stop,
            still_works=self._check.passes,
            lease_s=self._options.lease_s,
            limit_s=self._options.job_limit_s,
        )
        with (
            bound(job=str(claim.job.id)),
            tracing.job(claim.trace, claim.job.id, claim.job.kind, claim.attempt) as span,
        ):

            def told(event: Event) -> None:
                span.event(job_event(event, claim.attempt))

            try:
                await JobAttempt(self._store, claim, place, told).run()
            except Exception:
                log.exception("an attempt failed", attempt=claim.attempt)
                with contextlib.suppress(ServiceUnavailable):  # else the lease runs out
                    await self._give_up(claim)

    async def _give_up(self, claim: Claim) -> None:
        """After a fault of ours: another attempt, or the job's end."""
        if claim.losses + 1 < MAX_ATTEMPTS:
            await self._store.release(claim.job.id, claim.lease, lost=True)
        else:
            problem = fault("the worker failed on the job")
            await self._store.end(claim.job.id, claim.lease, "failed", problem=problem)

    async def _repeat(self, work: Callable[[], Awaitable[object]], every_s: float) -> None:
        while True:
            try:
                await work()
            except ServiceUnavailable:
                pass  # it is back, or the next time says so
            except Exception:  # a chore that ends would be missed by everybody
                log.exception("a chore failed")
            await asyncio.sleep(every_s)

    async def _beat(self) -> None:
        options, measured = self._options, await asyncio.to_thread(gauges)
        device = gpu_name(measured, os.environ) if "cuda" in self._executors else None
        url = options.dcgm_url
        dcgm = [] if url is None else await asyncio.to_thread(gpu_faults.read_dcgm, url)
        measured["gpus"] = gpu_faults.merged(measured["gpus"], self._faults, dcgm)
        await self._store.beat(options.name, self._executors, device, __version__, measured)

    async def _look_for_faults(self) -> None:
        self._faults = await asyncio.to_thread(gpu_faults.faults)

    async def _forget(self, days: int) -> None:
        if removed := await self._store.forget(days):
            log.info("removed jobs that had ended", jobs=removed, days=days)

    async def _clear(self) -> None:
        """Remove folders of jobs that have ended; one that is to go on stays. Of processes that
        died with an earlier worker the temporary ones too."""
        await asyncio.to_thread(remove_left)
        if not self._options.folder.is_dir():
            return
        for entry in self._options.folder.iterdir():
            try:
                job = await self._store.summary(UUID(entry.name))
            except ValueError:
                continue  # not one of ours
            if job is None or job.status in ENDED:
                # Another service's on this cache is held while it is worked on.
                await asyncio.to_thread(JobFolder(entry).remove_idle)
