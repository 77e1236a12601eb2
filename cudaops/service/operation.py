"""What whoever runs the service asks it: alive, ready, version, and Prometheus metrics: what this
process counts, and what the database knows of all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cudaops.domain.base import Record
from cudaops.errors import ServiceUnavailable
from cudaops.service.database import REMEDY
from cudaops.service.logs import logger
from cudaops.service.problems import Refused, responses
from cudaops.service.rows import SECONDS, WORKER_SEEN_S, CounterIncrement, WorkerRow, counter_sums
from cudaops.service.store import Store

# Prometheus metrics: what this process counts, and what the database knows of all of them.

MEDIA_TYPE = CONTENT_TYPE_LATEST
FRESH_S = 2.0
"""How long an answer of the database is good for: several scrapers cost no more than one."""
MAX_WORKERS = 200
"""Workers that get series of their own."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Family(NamedTuple):
    """A family whose values are sums in the database."""

    help: str
    labels: tuple[str, ...]
    kind: type[CounterMetricFamily] | type[HistogramMetricFamily] = CounterMetricFamily


FAMILIES: dict[str, Family] = {
    "jobs_ended": Family("Jobs that ended, by outcome.", ("kind", "outcome")),
    "job_duration_seconds": Family(
        "From a job's first start to its end.", ("kind", "outcome"), HistogramMetricFamily
    ),
    "job_wait_seconds": Family(
        "From a job's submission to its first start.", ("kind",), HistogramMetricFamily
    ),
    "job_losses": Family("Attempts at ended jobs over which a worker died.", ("kind",)),
    "stage_seconds": Family("Seconds in each stage of the graph.", ("stage",)),
    "tool_seconds": Family("Seconds in which each tool worked, compilers among them.", ("tool",)),
    "candidates_judged": Family("Candidates that were judged.", ("proposer", "outcome")),
    "configurations_tried": Family("Configurations that the tuner tried.", ()),
    "model_calls": Family("Questions to language models.", ()),
    "model_tokens": Family("Tokens of language models.", ("direction",)),
    "model_cost_usd": Family("US dollars for language models, where a price is known.", ()),
}
"""By the names under which `meters` keeps them; `cudaops_` comes before each."""

GPU_GAUGES: dict[str, str] = {
    "utilization_ratio": "Share of the last second in which a kernel ran, 0 to 1, by NVML.",
    "memory_used_bytes": "Memory in use, the driver's own included.",
    "memory_total_bytes": "Memory there is.",
    "temperature_celsius": "Temperature.",
    "sm_clock_hertz": "SM clock.",
    "power_watts": "Power drawn.",
    "ecc_corrected_errors": "Memory errors that ECC corrected since the driver was loaded.",
    "ecc_uncorrected_errors": "Memory errors that it could not correct since then.",
    "ecc_uncorrected_errors_lifetime": "The same over the GPU's life.",
    "rows_to_remap": "1 where a memory row waits for its repair by a reset, else 0.",
    "row_remap_failed": "1 where a memory row could not be repaired, else 0.",
    "last_xid": "Last Xid error by DCGM, 0 where there was none.",
    "sm_active_ratio": "Share of time in which an SM had a warp, 0 to 1, by DCGM.",
    "sm_occupancy_ratio": "Warps on the SMs over the most they hold, 0 to 1, by DCGM.",
    "tensor_active_ratio": "Share of time in which the tensor pipe worked, 0 to 1, by DCGM.",
    "dram_active_ratio": "Share of time in which DRAM moved data, 0 to 1, by DCGM.",
}


class DatabaseSnapshot(NamedTuple):
    """What the database said last; None where it did not answer."""

    taken: float = 0.0
    """`time.monotonic()`."""
    depth: dict[tuple[str, str], int] | None = None
    oldest_s: dict[str, float] = {}  # noqa: RUF012  a NamedTuple's default is never written to
    sums: tuple[CounterIncrement, ...] = ()
    workers: tuple[WorkerRow, ...] = ()


class Metrics:
    """The metrics of one API process."""

    def __init__(self, store: Store, version: str) -> None:
        self._store = store
        self._known = _Known()
        self._asking = asyncio.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self._known)
        ProcessCollector(registry=self.registry)
        info = Gauge(
            "cudaops_build_info", "1; the version is its label.", ["version"],
            registry=self.registry,
        )  # fmt: skip
        info.labels(version).set(1)
        self._requests = Counter(
            "cudaops_http_requests", "Requests answered by this process.",
            ["method", "route", "status"], registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "cudaops_http_request_duration_seconds",
            "From a request's headers to the end of its answer; without event streams.",
            ["method", "route"], buckets=REQUEST_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._streams = Gauge(
            "cudaops_event_streams", "Event streams open in this process.", registry=self.registry
        )

    def request(self, method: str, route: str | None, status: int, seconds: float | None) -> None:
        """Count one answer. `route`: template, None where nothing matched; `seconds` None: a
        stream, whose length says nothing of the service."""
        method = method if method in METHODS else "other"
        route = route or "unmatched"
        self._requests.labels(method, route, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(method, route).observe(seconds)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an event stream while it is open."""
        self._streams.inc()
        try:
            yield
        finally:
            self._streams.dec()

    async def exposition(self) -> bytes:
        """Everything in Prometheus' text format. Where the database does not answer, what it would
        have said is missing, and `cudaops_database_up` is 0."""
        async with self._asking:
            if time.monotonic() - self._known.snapshot.taken > FRESH_S:
                self._known.snapshot = await self._asked()
        return generate_latest(self.registry)

    async def _asked(self) -> DatabaseSnapshot:
        try:
            async with asyncio.timeout(DATABASE_WAIT_S):
                return await self._ask()
        except (ServiceUnavailable, TimeoutError):
            return DatabaseSnapshot(taken=time.monotonic())

    async def _ask(self) -> DatabaseSnapshot:
        depth = await self._store.queue_depth()
        oldest = await self._store.fetch(
            "SELECT kind, extract(epoch FROM now() - min(created_at))::float8 AS age_s"
            " FROM jobs WHERE status = 'queued' GROUP BY kind"
        )
        return DatabaseSnapshot(
            taken=time.monotonic(),
            depth={(kind, status): count for (kind, status), count in depth.items()},
            oldest_s={row["kind"]: row["age_s"] for row in oldest},
            sums=tuple(await counter_sums(self._store.pool)),
            workers=await self._store.workers(),
        )


class _Known(Collector):
    """Turns the last snapshot into families."""

    def __init__(self) -> None:
        self.snapshot = DatabaseSnapshot()

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: a registry asks this once, before there is a snapshot."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All families that the database has values for."""
        known = self.snapshot
        up = known.depth is not None
        yield GaugeMetricFamily(
            "cudaops_database_up", "1 where the database answered last.", value=float(up)
        )
        if not up:
            return
        yield from _queue(known)
        yield from _sums(known.sums)
        yield from _workers(known.workers[:MAX_WORKERS])


def _queue(known: DatabaseSnapshot) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "cudaops_jobs", "Jobs by kind and status; ended ones of the last day.",
        labels=["kind", "status"],
    )  # fmt: skip
    for (kind, status), count in sorted((known.depth or {}).items()):
        jobs.add_metric([kind, status], count)
    yield jobs
    oldest = GaugeMetricFamily(
        "cudaops_oldest_queued_job_age_seconds", "How long the oldest waiting job waits.",
        labels=["kind"],
    )  # fmt: skip
    for kind, age_s in sorted(known.oldest_s.items()):
        oldest.add_metric([kind], max(0.0, age_s))
    yield oldest


def _sums(sums: Iterable[CounterIncrement]) -> Iterator[Metric]:
    by_name: dict[str, list[CounterIncrement]] = defaultdict(list)
    for change in sums:
        by_name[change.name].append(change)
    for name, family in FAMILIES.items():
        full = f"cudaops_{name}"
        if family.kind is CounterMetricFamily:
            counter = CounterMetricFamily(full, family.help, labels=family.labels)
            for change in by_name[name]:
                counter.add_metric(_values(change, family), change.value)
            yield counter
            continue
        histogram = HistogramMetricFamily(full, family.help, labels=family.labels)
        totals = {_values(one, family): one.value for one in by_name[f"{name}_sum"]}
        counts: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        for change in by_name[f"{name}_bucket"]:
            counts[_values(change, family)][change.labels["le"]] = change.value
        for values, by_bound in sorted(counts.items()):
            histogram.add_metric(values, _cumulative(by_bound), totals.get(values, 0.0))
        yield histogram


def _values(change: CounterIncrement, family: Family) -> tuple[str, ...]:
    return tuple(change.labels.get(label, "") for label in family.labels)


def _cumulative(by_bound: dict[str, float]) -> list[tuple[str, float]]:
    """Prometheus' buckets hold everything up to their bound; ours what fell into each."""
    total, buckets = 0.0, []
    for bound in [*(f"{one:g}" for one in SECONDS), "+Inf"]:
        total += by_bound.get(bound, 0.0)
        buckets.append((bound, total))
    return buckets


def _workers(workers: Iterable[WorkerRow]) -> Iterator[Metric]:
    alive = GaugeMetricFamily(
        "cudaops_workers", "Workers seen in the last 30 s, by what they run on.",
        labels=["executor"],
    )  # fmt: skip
    load = GaugeMetricFamily(
        "cudaops_worker_load_ratio", "Load of a worker's machine over its processors.",
        labels=["worker"],
    )  # fmt: skip
    gpus = {
        name: GaugeMetricFamily(
            f"cudaops_gpu_{name}", f"Of a worker's GPU: {text}", labels=["worker", "gpu", "name"]
        )
        for name, text in GPU_GAUGES.items()
    }
    xids = GaugeMetricFamily(
        "cudaops_gpu_xid_errors", "Xid errors of a worker's GPU in the kernel's log, by code.",
        labels=["worker", "gpu", "name", "xid"],
    )  # fmt: skip
    running: dict[str, int] = defaultdict(int)
    for worker in workers:
        for executor in worker.executors:
            running[executor] += 1
        gauges = worker.gauges
        if isinstance(loaded := gauges.get("load_1m"), int | float) and gauges.get("cpus"):
            load.add_metric([worker.name], loaded / float(gauges["cpus"]))
        for gpu in gauges.get("gpus") or ():
            labels = _gpu_labels(worker.name, gpu)
            _add_gpu(gpus, labels, gpu)
            for code, count in sorted((gpu.get("xids") or {}).items()):
                xids.add_metric([*labels, code], count)
    for executor, count in sorted(running.items()):
        alive.add_metric([executor], count)
    yield from (alive, load, *gpus.values(), xids)


def _gpu_labels(worker: str, gpu: dict[str, Any]) -> list[str]:
    return [worker, str(gpu.get("uuid", gpu.get("index", ""))), str(gpu.get("name", ""))]


def _add_gpu(
    gpus: dict[str, GaugeMetricFamily], labels: Sequence[str], gpu: dict[str, Any]
) -> None:
    for name, family in gpus.items():
        if isinstance(value := gpu.get(name), int | float):
            family.add_metric(labels, value)


# Whether the service can do its work: its database, and somebody who takes jobs.

DATABASE_WAIT_S = 3.0
"""How long a probe or a scrape waits for the database: less than those who ask wait for us."""


class Health(Record):
    """The process answers."""

    status: str = "ok"


class Readiness(Record):
    """The service takes jobs and somebody works on them."""

    status: str = "ready"
    workers: int
    """Seen in the last 30 s."""
    executors: tuple[str, ...]
    """What they run on, each once."""


async def readiness(store: Store) -> Readiness | str:
    """Ready, or what is missing and what to do."""
    try:
        async with asyncio.timeout(DATABASE_WAIT_S):
            workers = await store.workers()
    except (ServiceUnavailable, TimeoutError) as error:
        # Everybody may ask this: where the database is stays in the log.
        logger("cudaops.service").warning("the database does not answer", why=str(error) or "slow")
        return f"the service's database does not answer; {REMEDY}"
    if not workers:
        return (
            f"no worker was seen in the last {WORKER_SEEN_S} s: jobs are queued; start"
            " one with `cudaops worker`"
        )
    executors = sorted({executor for worker in workers for executor in worker.executors})
    return Readiness(workers=len(workers), executors=tuple(executors))


# Routes for whoever runs the service: alive, ready, metrics, version.


class Version(Record):
    """What runs here."""

    version: str
    """Of cudaops."""


class _Options(Protocol):
    @property
    def version(self) -> str: ...


def build_operation_router(
    store: Store, metrics: Metrics, options: _Options, *, dependencies: Sequence[Any] = ()
) -> APIRouter:
    """`/healthz`, `/readyz` and `/version` for everybody; `/metrics` behind `dependencies`."""
    router = APIRouter(tags=["operation"])
    ready = _Readiness(store)

    @router.get("/healthz", operation_id="health", summary="Is the process alive?")
    async def healthz() -> Health:
        """Answers without looking at anything else. For a supervisor that restarts."""
        return Health()

    @router.get(
        "/readyz",
        operation_id="readiness",
        summary="Can jobs be accepted and run?",
        responses=responses("not-ready"),
    )
    async def readyz() -> Readiness:
        """The database answers, and a worker was seen in the last 30 s. For a load balancer."""
        found = await ready.now()
        if isinstance(found, str):
            raise Refused("not-ready", found, headers={"Retry-After": "5"})
        return found

    @router.get("/version", operation_id="version", summary="What runs here")
    async def version() -> Version:
        """Version of cudaops."""
        return Version(version=options.version)

    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        dependencies=list(dependencies),
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus text format; docs/service.md lists the families",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **responses("no-token", "scope", "too-often"),
        },
    )
    async def exposition(request: Request) -> Response:
        """Queue, jobs, stages, candidates, workers and GPUs; HTTP requests of this process."""
        return Response(await metrics.exposition(), headers={"Content-Type": MEDIA_TYPE})

    return router


class _Readiness:
    """Asked for by anybody, often: all who wait share one look into the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking: asyncio.Task[Readiness | str] | None = None

    async def now(self) -> Readiness | str:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(readiness(self._store))
        return await asyncio.shield(self._looking)
