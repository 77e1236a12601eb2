"""The store on a real PostgreSQL: what is kept, who wins a race, what is told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from uuid import UUID, uuid4

import pytest

from cudaops.errors import InputError, ServiceUnavailable
from cudaops.service.database import SCHEMA_VERSION, migrations_since, queue_of
from cudaops.service.records import (
    CompileRequest,
    CompileResult,
    OptimizeRequest,
)
from cudaops.service.store import IdempotencyConflict, QueueFull, Store
from tests.service.stored import COMPILE, RESULT, artefact, claimed, deliveries, event, said

pytestmark = pytest.mark.anyio


async def test_a_job_from_submission_to_its_end(store: Store) -> None:
    submitted = await store.submit("compile", COMPILE, "ann", None, trace="00-aa-bb-01")
    assert submitted.created
    assert (submitted.job.status, submitted.job.owner) == ("queued", "ann")
    assert await deliveries(store) == [str(submitted.job.id)]
    assert await store.request(submitted.job.id) == COMPILE

    claim = await store.claim(submitted.job.id, "w1", 30.0)
    assert claim is not None
    assert (claim.attempt, claim.request, claim.trace) == (1, COMPILE, "00-aa-bb-01")
    assert await store.add_events(claim.job.id, claim.lease, [event("one"), event("two")]) == 4
    files = [artefact("best.cu", b"void k();"), artefact("iterations/01/candidate.cu", b"\x00\xff")]
    assert await store.end(
        claim.job.id, claim.lease, "succeeded", result=RESULT, artefacts=files, events=[event("3")]
    )

    job = await store.job(claim.job.id)
    assert job is not None
    assert (job.status, job.result, job.attempts, job.worker) == ("succeeded", RESULT, 1, "w1")
    assert job.started_at is not None
    assert job.ended_at is not None
    assert job.artefacts == tuple(kept for kept, _ in files)
    assert await store.artefact(job.id, "iterations/01/candidate.cu") == files[1]
    assert await store.artefact(job.id, "../best.cu") is None
    assert await store.artefact(job.id, "best.cu\0") is None
    events = await store.events(job.id, 0)
    assert [one.seq for one in events] == list(range(1, 7))
    assert [one.message for one in events] == ["queued", "running", "one", "two", "3", "succeeded"]
    assert [one.seq for one in await store.events(job.id, 4)] == [5, 6]
    assert [one.seq for one in await store.events(job.id, 2, limit=1)] == [3]
    lines = await store.audited(job.id)
    assert [(line.actor, line.action) for line in lines] == [
        ("ann", "submitted"), ("worker w1", "started"), ("worker w1", "succeeded"),
    ]  # fmt: skip


async def test_texts_that_jsonb_would_refuse(store: Store) -> None:
    request = CompileRequest(source="a\\u0000 😀 \u2028")
    submitted = await store.submit("compile", request, "ann", None)
    assert await store.request(submitted.job.id) == request
    claim = await store.claim(submitted.job.id, "w", 30.0)
    assert claim is not None
    await store.add_events(claim.job.id, claim.lease, [event("printed \0")])
    result = CompileResult(ok=False, message="\0", log="\0")
    await store.end(claim.job.id, claim.lease, "succeeded", result=result)
    job = await store.job(claim.job.id)
    assert job is not None
    assert job.result == result
    assert "printed \0" in await said(store, claim.job.id)


async def test_unknown_jobs(store: Store) -> None:
    nobody = uuid4()
    assert await store.job(nobody) is None
    assert await store.summary(nobody) is None
    assert await store.request(nobody) is None
    assert await store.cancel(nobody) is None
    assert await store.claim(nobody, "w", 30.0) is None
    assert await store.renew(nobody, uuid4(), 30.0) is None
    assert await store.events(nobody, 0) == ()
    assert not await store.release(nobody, uuid4())


async def test_jobs_are_listed_newest_first_by_owner_and_page(store: Store) -> None:
    ids = [
        (await store.submit("compile", COMPILE, owner, None)).job.id
        for owner in ("ann", "bob", "ann", "ann")
    ]
    optimize = OptimizeRequest(source="x")
    ids.append((await store.submit("optimize", optimize, "ann", None)).job.id)
    await store.cancel(ids[0])

    async def listed(**asked: object) -> list[UUID]:
        return [job.id for job in await store.jobs(**asked)]  # type: ignore[arg-type]

    assert await listed(owner=None) == ids[::-1]
    assert await listed(owner="bob") == [ids[1]]
    assert await listed(owner="ann", limit=2) == [ids[4], ids[3]]
    assert await listed(owner="ann", before=ids[3]) == [ids[2], ids[0]]
    assert await listed(owner=None, status="cancelled") == [ids[0]]
    assert await listed(owner=None, kind="optimize") == [ids[4]]
    assert await listed(owner=None, before=uuid4()) == []
    assert await store.queue_depth() == {
        ("compile", "queued"): 3, ("compile", "cancelled"): 1, ("optimize", "queued"): 1,
    }  # fmt: skip


async def test_an_idempotency_key_is_one_job(store: Store) -> None:
    several = await asyncio.gather(
        *(store.submit("compile", COMPILE, "ann", "key") for _ in range(10))
    )
    assert sum(one.created for one in several) == 1
    assert len({one.job.id for one in several}) == 1
    assert len(await deliveries(store)) == 1
    assert (await store.submit("compile", COMPILE, "bob", "key")).created
    with pytest.raises(IdempotencyConflict, match="another request"):
        await store.submit("compile", COMPILE.model_copy(update={"kernel": "k"}), "ann", "key")
    with pytest.raises(IdempotencyConflict):
        await store.submit("run", COMPILE, "ann", "key")


async def test_a_full_queue_takes_no_more(conninfo: str) -> None:
    store = await Store.open(conninfo, max_queued=2)
    try:
        first = await store.submit("compile", COMPILE, "ann", "first")
        await store.submit("compile", COMPILE, "ann", None)
        with pytest.raises(QueueFull, match="2 jobs wait"):
            await store.submit("compile", COMPILE, "ann", None)
        # Asking again for one that waits is no further job.
        again = await store.submit("compile", COMPILE, "ann", "first")
        assert again.job.id == first.job.id
        await store.cancel(first.job.id)
        assert (await store.submit("compile", COMPILE, "ann", None)).created
    finally:
        await store.close()


async def test_watchers_are_told_from_another_connection(store: Store, conninfo: str) -> None:
    other = await Store.open(conninfo, pool_size=1)
    claim = await claimed(store)
    try:
        async with aclosing(other.watch(claim.job.id, every_s=300.0)) as news:
            await anext(news)
            # Until it listens, which it says by waking everybody, it looks by the clock.
            for n in range(3):
                await store.add_events(claim.job.id, claim.lease, [event(str(n))])
                async with asyncio.timeout(60):
                    await anext(news)
    finally:
        await other.close()


async def test_many_watch_over_one_connection(store: Store) -> None:
    claim = await claimed(store)
    seen: list[int] = []

    async def follow() -> None:
        async with aclosing(store.watch(claim.job.id)) as news:
            async for _ in news:
                job = await store.summary(claim.job.id)
                if job is not None and job.ended_at is not None:
                    seen.append(1)
                    return

    followers = [asyncio.create_task(follow()) for _ in range(50)]
    await asyncio.sleep(0.1)
    await store.end(claim.job.id, claim.lease, "succeeded", result=RESULT)
    async with asyncio.timeout(60):
        await asyncio.gather(*followers)
    assert len(seen) == 50
    rows = await store.fetch(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        " AND starts_with(query, 'LISTEN')"
    )
    assert rows[0]["n"] == 1


async def test_tokens(store: Store, conninfo: str) -> None:
    token = await store.add_token("ci", "run", None)
    assert token.startswith("cudaops_")
    assert len(token) > 40
    with pytest.raises(InputError, match="already"):
        await store.add_token("ci", "read", None)
    expired = await store.add_token("old", "read", 0)
    for _ in range(3):
        identity = await store.identify(token)
        assert identity is not None
        assert (identity.name, identity.scope) == ("ci", "run")
    for wrong in ("", "cudaops_x", token + "x", expired, "\0", "ä"):
        assert await store.identify(wrong) is None
    assert {row.name: row.last_used_at is not None for row in await store.tokens()} == {
        "ci": True, "old": False,
    }  # fmt: skip
    held = await store.fetch("SELECT * FROM tokens")
    assert token not in str(held)
    assert await store.remove_token("ci")
    assert not await store.remove_token("ci")
    assert await store.identify(token) is None
    assert [line.action for line in await store.audited()] == [
        "token added", "token added", "token removed",
    ]  # fmt: skip


async def test_workers_beat_and_retire(store: Store) -> None:
    await store.beat("w1", ("cpu",), None, "1.0", {"load_1m": 0.5})
    await store.beat("w1", ("cpu", "cuda"), "H200", "1.1", {"gpus": [{"index": 0}]})
    (row,) = await store.workers()
    assert (row.executors, row.device, row.version) == (("cpu", "cuda"), "H200", "1.1")
    assert row.gauges == {"gpus": [{"index": 0}]}
    assert await store.workers(seen_within_s=0) == ()
    await store.retire("w1")
    assert await store.workers() == ()


async def test_stores_may_open_at_once_and_again(conninfo: str) -> None:
    stores = await asyncio.gather(*(Store.open(conninfo, pool_size=1) for _ in range(5)))
    try:
        submitted = await stores[0].submit("compile", COMPILE, "ann", None)
        assert await stores[4].summary(submitted.job.id) == submitted.job
    finally:
        for one in stores:
            await one.close()
    again = await Store.open(conninfo)
    assert await again.summary(submitted.job.id) == submitted.job
    await again.close()


async def test_tables_of_an_older_cudaops_are_brought_up_to_date(conninfo: str) -> None:
    """Version 1 had a queue of its own for single calls."""
    store = await Store.open(conninfo)
    async with store.pool.transaction() as cursor:
        await cursor.execute("UPDATE facts SET value = '1' WHERE name = 'schema_version'")
        await cursor.execute("CREATE TABLE calls (owner text)")
        await cursor.execute("CREATE TABLE blobs (owner text PRIMARY KEY)")
        await cursor.execute("CREATE TABLE blob_chunks (owner text REFERENCES blobs)")
    await store.close()
    store = await Store.open(conninfo)
    left = await store.fetch("SELECT to_regclass('calls') AS calls, to_regclass('blobs') AS blobs")
    assert left == [{"calls": None, "blobs": None}]
    facts = await store.fetch("SELECT value FROM facts WHERE name = 'schema_version'")
    assert facts == [{"value": str(SCHEMA_VERSION)}]
    await store.close()


async def test_tables_of_a_newer_cudaops_are_left_alone(conninfo: str) -> None:
    store = await Store.open(conninfo)
    async with store.pool.transaction() as cursor:
        await cursor.execute("UPDATE facts SET value = '999' WHERE name = 'schema_version'")
    await store.close()
    with pytest.raises(ServiceUnavailable, match="newer cudaops"):
        await Store.open(conninfo)


async def test_a_database_that_is_away_says_so(store: Store) -> None:
    with pytest.raises(ServiceUnavailable) as refused:
        await Store.open("postgresql://u:secret@127.0.0.1:1/none?connect_timeout=2")
    assert "secret" not in str(refused.value)
    await store.check()
    # Connections that the server has closed are replaced without anybody noticing.
    async with store.pool.transaction() as cursor:
        await cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await store.check()


def test_queues_and_migrations() -> None:
    assert [queue_of(name) for name in ("auto", "cpu", "cuda")] == ["any", "cpu", "cuda"]
    names = ["03.04.00_50_post_x.sql", "03.03.00_01_pre_y.sql", "03.04.00_01_pre_x.sql"]
    assert migrations_since("03.03.00_01_pre_y.sql", names) == [names[2], names[0]]
