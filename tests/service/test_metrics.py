"""What /metrics says is what happened, whoever counted it and however often it is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cudaops.domain.run import RunRecord
from cudaops.service import logs, problems
from cudaops.service.auth import ServiceOptions
from cudaops.service.middleware import ObserveRequests
from cudaops.service.operation import (
    FAMILIES,
    GPU_GAUGES,
    Metrics,
    Readiness,
    build_operation_router,
    readiness,
)
from cudaops.service.records import (
    CompileRequest,
    CompileResult,
    JobStatus,
    OptimizeRequest,
    Problem,
)
from cudaops.service.rows import COMPACT_ROWS, CounterIncrement, add_changes, counter_sums, observed
from cudaops.service.store import Store

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "examples" / "recorded" / "dialogues" / "invert8" / "run.json"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: bytes) -> Samples:
    """Every sample; a family that the format does not allow raises."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def of(samples: Samples, name: str, /, **labels: str) -> float | None:
    return samples.get((f"cudaops_{name}", tuple(sorted(labels.items()))))


async def ended(store: Store, kind: str, status: JobStatus, result: object = None) -> UUID:
    request = {"compile": CompileRequest, "optimize": OptimizeRequest}[kind](source="x")
    job = (await store.submit(kind, request, "ci", None)).job  # type: ignore[arg-type]
    claim = await store.claim(job.id, "w", 30)
    assert claim is not None
    problem = Problem(title="t", status=500) if status == "failed" else None
    assert await store.end(
        job.id, claim.lease, status, result=result, problem=problem  # type: ignore[arg-type]
    )  # fmt: skip
    return job.id


async def test_jobs_are_counted_once_with_what_came_of_them(store: Store) -> None:
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))
    await ended(store, "optimize", "succeeded", record)
    await ended(store, "compile", "failed")
    await ended(store, "compile", "succeeded", CompileResult(ok=True, message="g++", seconds=1.5))
    queued = (await store.submit("compile", CompileRequest(source="x"), "ci", None)).job
    await store.submit("compile", CompileRequest(source="x"), "ci", None)
    await store.cancel(queued.id)
    metrics = Metrics(store, "1.2.3")
    samples = parsed(await metrics.exposition())

    assert of(samples, "build_info", version="1.2.3") == 1
    assert of(samples, "database_up") == 1
    assert of(samples, "jobs", kind="compile", status="queued") == 1
    assert of(samples, "jobs_ended_total", kind="optimize", outcome=record.outcome) == 1
    assert of(samples, "jobs_ended_total", kind="compile", outcome="failed") == 1
    assert of(samples, "jobs_ended_total", kind="compile", outcome="cancelled") == 1
    age = of(samples, "oldest_queued_job_age_seconds", kind="compile")
    assert age is not None
    assert age >= 0
    labels = {"kind": "optimize", "outcome": record.outcome}
    assert of(samples, "job_duration_seconds_count", **labels) == 1
    assert of(samples, "job_duration_seconds_bucket", **labels, le="+Inf") == 1
    assert of(samples, "job_duration_seconds_bucket", **labels, le="7200") == 1
    assert of(samples, "job_wait_seconds_count", kind="compile") == 2  # the cancelled never began
    for stage, seconds in record.seconds_by_stage.items():
        assert of(samples, "stage_seconds_total", stage=stage) == pytest.approx(seconds)
    assert of(samples, "tool_seconds_total", tool="compiler") == 1.5
    judged = {
        (labels, value)
        for (name, labels), value in samples.items()
        if name == "cudaops_candidates_judged_total"
    }
    assert sum(value for _, value in judged) == len(record.attempts)
    assert {dict(labels)["proposer"] for labels, _ in judged} == {"llm"}
    assert record.model is not None
    tokens = of(samples, "model_tokens_total", direction="input")
    assert tokens == record.model.tokens.input_tokens


async def test_another_process_and_a_restart_say_the_same(conninfo: str, store: Store) -> None:
    await ended(store, "compile", "succeeded")
    other = await Store.open(conninfo)
    try:
        await ended(other, "compile", "succeeded")
        labels = {"kind": "compile", "outcome": "succeeded"}
        for one in (store, other):
            samples = parsed(await Metrics(one, "0").exposition())
            assert of(samples, "jobs_ended_total", **labels) == 2
    finally:
        await other.close()


async def test_a_job_that_a_transaction_did_not_end_is_not_counted(store: Store) -> None:
    id = await ended(store, "compile", "succeeded")
    assert not await store.end(id, UUID(int=0), "failed")
    samples = parsed(await Metrics(store, "0").exposition())
    assert of(samples, "jobs_ended_total", kind="compile", outcome="failed") is None


async def test_sums_take_the_place_of_rows_and_lose_none(store: Store) -> None:
    change = CounterIncrement("configurations_tried", {}, 2)

    async def write() -> None:
        for _ in range(10):
            async with store.pool.transaction() as cursor:
                await add_changes(cursor, [change] * (COMPACT_ROWS // 20))

    async def read() -> None:
        for _ in range(10):
            await counter_sums(store.pool)

    await asyncio.gather(write(), read(), write(), read(), read())
    (total,) = await counter_sums(store.pool)
    assert total.value == 20 * 2 * (COMPACT_ROWS // 20)
    (row,) = await store.fetch("SELECT count(*) AS rows FROM meters")
    assert row["rows"] <= COMPACT_ROWS


async def test_times_fall_into_one_bucket_and_come_out_cumulative(store: Store) -> None:
    async with store.pool.transaction() as cursor:
        for seconds in (0.05, 0.1, 3.0, 1e6):
            labels = {"kind": "compile", "outcome": "succeeded"}
            await add_changes(cursor, observed("job_duration_seconds", labels, seconds))
    samples = parsed(await Metrics(store, "0").exposition())
    buckets = {
        bound: of(samples, "job_duration_seconds_bucket", **labels, le=bound)
        for bound in ("0.1", "2.5", "5.0", "7200.0", "5", "7200", "+Inf")
    }
    assert {k: v for k, v in buckets.items() if v is not None} == {
        "0.1": 2, "2.5": 2, "5": 3, "7200": 3, "+Inf": 4,
    }  # fmt: skip
    assert of(samples, "job_duration_seconds_sum", **labels) == pytest.approx(1e6 + 3.15)


async def test_workers_and_their_gpus(store: Store) -> None:
    gpu: dict[str, object] = {"index": 0.0, "uuid": "GPU-1", "name": "H200"}
    gpu |= {name: number for number, name in enumerate(GPU_GAUGES)} | {"power_watts": None}
    await store.beat("a", ["cpu"], None, "1", {"load_1m": 1.0, "cpus": 2, "gpus": []})
    await store.beat("b", ["cpu", "cuda"], "H200", "1", {"gpus": [gpu]})
    samples = parsed(await Metrics(store, "0").exposition())
    assert of(samples, "workers", executor="cpu") == 2
    assert of(samples, "workers", executor="cuda") == 1
    assert of(samples, "worker_load_ratio", worker="a") == 0.5
    labels = {"worker": "b", "gpu": "GPU-1", "name": "H200"}
    assert of(samples, "gpu_sm_clock_hertz", **labels) == list(GPU_GAUGES).index("sm_clock_hertz")
    assert of(samples, "gpu_power_watts", **labels) is None  # not said: missing, not 0


async def test_names_units_and_labels_follow_the_conventions(store: Store) -> None:
    text = (await Metrics(store, "0").exposition()).decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.name.startswith(("cudaops_", "process_")), family.name
        for sample in family.samples:
            assert not {"id", "job", "owner", "le_"} & set(sample.labels)
    assert set(FAMILIES) <= {
        family.name.removeprefix("cudaops_") for family in text_string_to_metric_families(text)
    }


async def test_without_a_database_the_rest_is_still_there(store: Store, conninfo: str) -> None:
    metrics = Metrics(store, "0")
    metrics.request("GET", "/jobs", 200, 0.1)
    await _break(conninfo)
    samples = parsed(await metrics.exposition())
    assert of(samples, "database_up") == 0
    assert of(samples, "http_requests_total", method="GET", route="/jobs", status="200") == 1
    assert not [name for name, _ in samples if name.startswith("cudaops_jobs")]
    missing = await readiness(store)
    assert isinstance(missing, str)
    assert "check that PostgreSQL runs" in missing


async def _break(conninfo: str) -> None:
    """Take the database away, with everybody who is connected to it."""
    name = conninfo_to_dict(conninfo)["dbname"]
    elsewhere = make_conninfo(conninfo, dbname="postgres")
    async with await psycopg.AsyncConnection.connect(elsewhere, autocommit=True) as connection:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def application(store: Store, metrics: Metrics) -> FastAPI:
    app = FastAPI()
    problems.install(app)
    options = ServiceOptions(version="1.2.3")
    app.include_router(build_operation_router(store, metrics, options))

    @app.get("/jobs/{id}")
    async def job(id: UUID) -> dict[str, str]:
        logs.logger("cudaops.test").info("inside")
        return {"id": str(id)}

    app.add_middleware(ObserveRequests, metrics=metrics)
    return app


async def test_routes_and_requests(store: Store) -> None:
    metrics = Metrics(store, "1.2.3")
    transport = httpx.ASGITransport(application(store, metrics))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        version = (await client.get("/version")).json()
        assert version == {"version": "1.2.3"}
        unready = await client.get("/readyz")
        assert unready.status_code == 503
        assert unready.json()["type"] == "urn:cudaops:problem:not-ready"
        assert "cudaops worker" in unready.json()["detail"]
        await store.beat("a", ["cpu"], None, "1", {})
        ready = await client.get("/readyz")
        assert Readiness.model_validate(ready.json()).executors == ("cpu",)

        for number in range(3):
            await client.get(f"/jobs/{UUID(int=number)}")
            await client.get(f"/nothing/{number}")
        given = await client.get("/healthz", headers={"X-Request-ID": "mine-1"})
        assert given.headers["X-Request-ID"] == "mine-1"
        forged = await client.get("/healthz", headers={"X-Request-ID": "a b\tc"})
        assert len(forged.headers["X-Request-ID"]) == 32

        answer = await client.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        samples = parsed(answer.content)
    assert of(samples, "http_requests_total", method="GET", route="/jobs/{id}", status="200") == 3
    assert of(samples, "http_requests_total", method="GET", route="unmatched", status="404") == 3
    labels = {"method": "GET", "route": "/jobs/{id}"}
    assert of(samples, "http_request_duration_seconds_count", **labels) == 3
    assert not [labels for _, labels in samples if "nothing" in json.dumps(labels)]


async def test_streams_are_counted_while_they_are_open(store: Store) -> None:
    metrics = Metrics(store, "0")
    with metrics.stream(), metrics.stream():
        assert of(parsed(await metrics.exposition()), "event_streams") == 2
    assert of(parsed(await metrics.exposition()), "event_streams") == 0
