"""What workers say to the store, on a real PostgreSQL: claims, leases, ends, the sweep."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from cudaops.service.records import Problem
from cudaops.service.store import Store
from tests.service.stored import COMPILE, RESULT, artefact, claimed, deliveries, event, said

pytestmark = pytest.mark.anyio


async def test_of_twenty_claimers_one_wins(store: Store) -> None:
    id = (await store.submit("compile", COMPILE, "ann", None)).job.id
    claims = await asyncio.gather(*(store.claim(id, f"w{n}", 30.0) for n in range(20)))
    assert sum(claim is not None for claim in claims) == 1
    assert await said(store, id) == ["queued", "running"]


async def test_a_job_ends_once(store: Store) -> None:
    claim = await claimed(store)
    id = claim.job.id
    ended = await asyncio.gather(
        *(
            store.end(id, claim.lease, "succeeded", result=RESULT, artefacts=[artefact("a", b"")])
            for _ in range(10)
        )
    )
    assert sum(ended) == 1
    assert (await said(store, id)).count("succeeded") == 1
    assert not await store.end(id, claim.lease, "failed")
    assert await store.add_events(id, claim.lease, [event("late")]) is None
    assert await store.claim(id, "w2", 30.0) is None
    assert await store.cancel(id) == "succeeded"


async def test_an_end_is_whole_or_not_at_all(store: Store) -> None:
    claim = await claimed(store)
    twice = [artefact("a", b"1"), artefact("a", b"2")]
    with pytest.raises(psycopg.errors.UniqueViolation):
        await store.end(claim.job.id, claim.lease, "succeeded", result=RESULT, artefacts=twice)
    job = await store.job(claim.job.id)
    assert job is not None
    assert (job.status, job.result, job.artefacts) == ("running", None, ())
    assert await said(store, claim.job.id) == ["queued", "running"]


async def test_seq_has_no_gaps_whoever_writes(store: Store) -> None:
    claim = await claimed(store)
    await asyncio.gather(
        *(
            store.add_events(claim.job.id, claim.lease, [event(f"{n} {m}") for m in range(3)])
            for n in range(10)
        )
    )
    seqs = [one.seq for one in await store.events(claim.job.id, 0)]
    assert seqs == list(range(1, 33))


async def test_a_lease_that_runs_out_is_another_workers(store: Store) -> None:
    claim = await claimed(store, lease_s=0.0)
    id = claim.job.id
    second = await store.claim(id, "w2", 30.0)
    assert second is not None
    assert (second.attempt, second.losses) == (2, 1)
    assert await store.renew(id, claim.lease, 30.0) is None
    assert await store.add_events(id, claim.lease, [event("late")]) is None
    assert not await store.end(id, claim.lease, "succeeded", result=RESULT)
    assert await store.renew(id, second.lease, 30.0) is False
    assert await store.claim(id, "w3", 30.0) is None
    assert await store.end(id, second.lease, "succeeded", result=RESULT)


async def test_the_sweep_queues_again_and_at_last_gives_up(store: Store) -> None:
    id = (await store.submit("compile", COMPILE, "ann", None)).job.id
    assert await store.sweep() == 0
    for attempt in (1, 2, 3):
        await store.fetch("SELECT 1 FROM jobs")
        claim = await store.claim(id, "w", 0.0)
        assert claim is not None
        assert claim.attempt == attempt
        assert await store.sweep(3) == 1
    job = await store.job(id)
    assert job is not None
    assert job.status == "failed"
    assert job.problem is not None
    assert "3 times" in job.problem.detail
    assert await said(store, id) == ["queued", "running"] * 3 + ["failed"]
    assert await store.sweep() == 0


async def test_the_sweep_finds_what_the_queue_forgot(store: Store) -> None:
    id = (await store.submit("compile", COMPILE, "ann", None)).job.id
    async with store.pool.transaction() as cursor:
        await cursor.execute("DELETE FROM procrastinate_jobs")
    assert await store.sweep() == 1
    assert await deliveries(store) == [str(id)]
    # Taken by a worker of procrastinate that died before it could claim.
    async with store.pool.transaction() as cursor:
        await cursor.execute("UPDATE procrastinate_jobs SET status = 'doing'")
    assert await store.sweep() == 1
    assert await deliveries(store) == [str(id)]
    assert await store.sweep() == 0


async def test_release_puts_a_job_back_and_counts_no_loss(store: Store) -> None:
    claim = await claimed(store)
    for _ in range(4):
        assert await store.release(claim.job.id, claim.lease)
        assert not await store.release(claim.job.id, claim.lease)
        assert str(claim.job.id) in await deliveries(store)
        again = await store.claim(claim.job.id, "w", 30.0)
        assert again is not None
        assert again.losses == 0
        claim = again
    assert claim.attempt == 5
    assert await store.release(claim.job.id, claim.lease, lost=True)
    again = await store.claim(claim.job.id, "w", 30.0)
    assert again is not None
    assert again.losses == 1


async def test_cancelling(store: Store) -> None:
    queued = (await store.submit("compile", COMPILE, "ann", None)).job.id
    assert await store.cancel(queued, "root") == "cancelled"
    assert await store.cancel(queued) == "cancelled"
    assert await store.claim(queued, "w", 30.0) is None
    claim = await claimed(store)
    assert await store.renew(claim.job.id, claim.lease, 30.0) is False
    assert await store.cancel(claim.job.id) == "running"
    assert await store.renew(claim.job.id, claim.lease, 30.0) is True
    # A worker that goes away instead of cancelling: nobody takes it up again.
    assert await store.release(claim.job.id, claim.lease)
    job = await store.summary(claim.job.id)
    assert job is not None
    assert job.status == "cancelled"
    assert [line.actor for line in await store.audited(queued)] == ["ann", "root"]


async def test_a_problem_is_kept(store: Store) -> None:
    claim = await claimed(store)
    problem = Problem(title="The input is wrong", status=422, detail="no kernel in it")
    await store.end(claim.job.id, claim.lease, "failed", problem=problem)
    job = await store.summary(claim.job.id)
    assert job is not None
    assert job.problem == problem
    assert (await store.events(claim.job.id, 2))[0].data == {
        "problem": problem.model_dump(mode="json")
    }


async def test_a_queued_job_says_which_worker_is_missing(store: Store) -> None:
    id = (await store.submit("compile", COMPILE, "ann", None)).job.id
    await store.beat("gpu", ["cuda"], None, "1")
    waiting = (await store.jobs(owner="ann"))[0].waiting_for
    assert waiting is not None
    assert waiting.startswith("a worker for cpu: none was seen")
    await store.beat("w1", ["cpu"], None, "1")
    summary = await store.summary(id)
    assert summary is not None
    assert summary.waiting_for is None, "it waits for its turn only"
    await store.retire("w1")
    claim = await store.claim(id, "w1", 30.0)
    assert claim is not None
    assert claim.job.waiting_for is None, "it runs"


async def test_auto_waits_for_any_worker(store: Store) -> None:
    auto = COMPILE.model_copy(update={"executor": "auto"})
    submitted = (await store.submit("compile", auto, "ann", None)).job
    assert (submitted.waiting_for or "").startswith("a worker: none")
    await store.beat("gpu", ["cuda"], None, "1")
    summary = await store.summary(submitted.id)
    assert summary is not None
    assert summary.waiting_for is None


async def test_what_ended_long_ago_is_forgotten(store: Store) -> None:
    old, new = await claimed(store), await claimed(store)
    waiting = (await store.submit("compile", COMPILE, "ann", None)).job.id
    for claim in (old, new):
        kept = [artefact("a", b"1")]
        assert await store.end(claim.job.id, claim.lease, "succeeded", artefacts=kept)
    async with store.pool.transaction() as cursor:
        await cursor.execute(
            "UPDATE jobs SET ended_at = now() - interval '3 days' WHERE id = %s", [old.job.id]
        )
    assert await store.forget(4) == 0
    assert await store.forget(2) == 1
    assert await store.job(old.job.id) is None
    assert await store.events(old.job.id, 0) == ()
    assert await store.artefact(old.job.id, "a") is None
    assert await store.audited(old.job.id), "the audit stays"
    assert {job.id for job in await store.jobs(owner="ann")} == {new.job.id, waiting}


async def test_a_job_whose_worker_has_gone_is_cancelled_by_who_asks(store: Store) -> None:
    claim = await claimed(store, lease_s=0.0)
    assert await store.cancel(claim.job.id) == "cancelled"
    assert not await store.end(claim.job.id, claim.lease, "succeeded", result=RESULT)
    held = await claimed(store)
    assert await store.cancel(held.job.id) == "running"


async def test_what_was_to_be_cancelled_does_not_fail(store: Store) -> None:
    claim = await claimed(store, lease_s=30.0)
    assert await store.cancel(claim.job.id) == "running"
    async with store.pool.transaction() as cursor:
        await cursor.execute("UPDATE jobs SET lease_until = now() - interval '1 second'")
    assert await store.sweep(max_attempts=1) == 1
    job = await store.summary(claim.job.id)
    assert job is not None
    assert job.status == "cancelled"
