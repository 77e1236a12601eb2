"""Calls of remote executors in the database: who takes them, and that none waits for ever."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID, uuid4

import httpx
import pytest

from cudaops.sandbox.wire import CallRequest, Describe, Place
from cudaops.service.executor_queue import Calls
from cudaops.service.store import Store
from tests.sandbox.test_wire import call
from tests.service.remote_service import RemoteService

CPU = Place(executor="cpu", device="A10")
GPU = Place(executor="cuda", device="NVIDIA H200")


async def put(calls: Calls, place: Place = CPU) -> UUID:
    id = uuid4()
    await calls.put("ann", id, CallRequest(place=place, call=Describe()))
    return id


async def changed(store: Store, what: LiteralString, id: UUID) -> None:
    async with store.pool.transaction() as cursor:
        await cursor.execute("UPDATE calls SET " + what + " WHERE id = %s", [id])


async def problem(calls: Calls, id: UUID) -> str | None:
    state = await calls.state("ann", id)
    assert state is not None
    return None if state.problem is None else state.problem.kind


@pytest.mark.anyio
@pytest.mark.parametrize(
    "since",
    [
        "queued_at = now() - interval '3 minutes'",
        "status = 'running', lease = gen_random_uuid(), lease_until = now() - interval '3 minutes'",
    ],
    ids=["queued", "its worker has gone"],
)
async def test_a_call_that_nobody_can_take_fails(store: Store, since: LiteralString) -> None:
    calls = Calls(store)
    waits, taken = await put(calls), await put(calls)
    lost = await put(calls, GPU)
    await calls.beat("w1", [CPU], "1")
    for id in (waits, lost):
        await changed(store, since, id)
    assert await problem(calls, waits) is None, "a worker offers its place"
    assert await problem(calls, lost) == "sandbox"
    await calls.retire("w1")
    assert await problem(calls, taken) is None, "it has not waited for long"
    await calls.sweep()
    assert await problem(calls, waits) == "sandbox"


@pytest.mark.anyio
async def test_a_call_that_cannot_be_read_is_in_nobodys_way(store: Store) -> None:
    calls = Calls(store)
    bad, good = await put(calls), await put(calls)
    await changed(store, "request = '{}'", bad)
    taken = await calls.take(["cpu"], "w1", 30.0)
    assert taken is not None
    assert taken.id == good
    assert await problem(calls, bad) == "fault"


@pytest.mark.parametrize(
    ("share", "device"),
    [("1e400", "A10"), ("NaN", "A10"), ("1.0", "A\\u0000b"), ("1.0", "A\\nb")],
    ids=["infinite", "no number", "NUL", "two lines"],
)
def test_what_no_worker_could_read_is_refused(
    remote_service: RemoteService, share: str, device: str
) -> None:
    """JSON keeps no infinity: such a call would come out of the database as something else."""
    made = CallRequest(place=CPU, call=call()).model_dump_json()
    assert '"time_share":1.0' in made
    body = made.replace('"time_share":1.0', f'"time_share":{share}').replace("A10", device)
    address = f"{remote_service.address}/executor/calls/{uuid4()}"
    answer = httpx.put(address, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    described = CallRequest(place=CPU, call=Describe()).model_dump_json()
    address = f"{remote_service.address}/executor/calls/{uuid4()}?wait=30"
    after = httpx.put(address, content=described, timeout=90)
    assert after.json().get("reply"), after.text
