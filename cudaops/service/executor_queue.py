"""Calls of executors elsewhere in the database: what clients ask, what workers take and answer.

A call is many and short, so workers take calls from the table itself; a job's queue would cost more
than most calls do. As with jobs, only the holder of a lease may end one, and one is ended once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from cudaops.domain.base import Record
from cudaops.sandbox.wire import CallProblem, CallRequest, CallState, Place, Reply
from cudaops.service import meters
from cudaops.service.blobs import Blobs
from cudaops.service.notify import tell
from cudaops.service.store import Store

WORK = UUID("63616c6c-0000-4000-8000-000000000001")
"""Told where a call was queued, as others are told by their job's id."""
MAX_ATTEMPTS = 2
"""A call whose runner or worker died over it is tried once more."""
ABANDONED_MINUTES = 5
"""A queued call that its client stopped asking for is not run."""
MAX_OPEN = 256
"""Most calls of one owner that wait or run."""
KEPT_HOURS = 24
"""Ended calls are kept so long, for clients that lost the connection."""
UNOFFERED_S = 120
"""After which a call that nobody can take fails; a worker that starts again is back long before."""
HOST_SEEN_S = 30
"""Hosts that said nothing for longer offer nothing."""

LOST = CallProblem(
    kind="lost",
    problem=f"what ran this call ended {MAX_ATTEMPTS} times over it",
    remedy="look into the log of the service's worker",
)
ABANDONED = CallProblem(kind="abandoned", problem="nobody asked for this call any more")
UNREADABLE = CallProblem(kind="fault", problem="the service's worker cannot read this call")
UNOFFERED = CallProblem(
    kind="sandbox",
    problem=f"no worker has offered the place of this call for {UNOFFERED_S} s",
    remedy="start one there (`cudaops worker`), then start the run again",
)


class TooManyCalls(Exception):
    """This owner has as many open calls as anyone may."""


class OtherCall(Exception):
    """The id belongs to another call of this owner."""


class Taken(NamedTuple):
    """A call that a worker holds until it ends it or the lease runs out."""

    owner: str
    id: UUID
    lease: UUID
    attempt: int
    request: CallRequest


class Calls:
    """Statements about calls; each is a transaction of its own and safe from several processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = store.pool
        self.blobs = Blobs(store.pool)

    # -- for clients ----------------------------------------------------------------------------
    async def put(self, owner: str, id: UUID, request: CallRequest) -> CallState:
        """Queue a call, or join the one that has this id already.

        Raises OtherCall, TooManyCalls.
        """
        text = request.model_dump_json()
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "INSERT INTO calls (owner, id, target, request, request_sha256)"
                " SELECT %s, %s, %s, %s, %s WHERE"
                " (SELECT count(*) FROM calls WHERE owner = %s AND status <> 'ended') < %s"
                " ON CONFLICT (owner, id) DO NOTHING",
                [owner, id, request.place.target, text, digest, owner, MAX_OPEN],
            )
            if cursor.rowcount:
                await tell(cursor, WORK)
                return CallState(status="queued")
            await cursor.execute(
                "SELECT request_sha256 FROM calls WHERE owner = %s AND id = %s", [owner, id]
            )
            row = await cursor.fetchone()
        if row is None:
            raise TooManyCalls
        if row["request_sha256"] != digest:
            raise OtherCall
        return await self.state(owner, id) or CallState(status="queued")

    async def state(self, owner: str, id: UUID) -> CallState | None:
        """How it stands; None where there is no such call. Counts as being asked for."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE calls SET asked_at = now() WHERE owner = %s AND id = %s"
                " AND status <> 'ended' AND asked_at < now() - interval '10 seconds'",
                [owner, id],
            )
            # Here too: where there is no worker, nobody sweeps.
            await cursor.execute(
                f"{_END} WHERE owner = %s AND id = %s AND {_UNOFFERED}",
                [UNOFFERED.model_dump_json(), owner, id],
            )
            await cursor.execute(
                "SELECT status, reply, problem, attempts FROM calls WHERE owner = %s AND id = %s",
                [owner, id],
            )
            row = await cursor.fetchone()
        return None if row is None else CallState.model_validate(row)

    def watch(self, id: UUID) -> AsyncGenerator[None, None]:
        """Yields at once and whenever the call (or `WORK`: any) may have changed."""
        return self._store.watch(id)

    async def withdraw(self, owner: str, id: UUID) -> None:
        """The client wants it no more: a queued call is not run."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE calls SET status = 'ended', ended_at = now(), problem = %s"
                " WHERE owner = %s AND id = %s AND status = 'queued'",
                [ABANDONED.model_dump_json(), owner, id],
            )

    async def offers(self) -> tuple[Place, ...]:
        """What the hosts offer that were seen of late, each place once."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "SELECT places FROM executor_hosts"
                " WHERE seen_at > now() - make_interval(secs => %s) ORDER BY name",
                [HOST_SEEN_S],
            )
            rows = await cursor.fetchall()
        places = (Place.model_validate(place) for row in rows for place in row["places"])
        return tuple({place.target: place for place in places}.values())

    # -- for workers ------------------------------------------------------------------------------
    async def beat(self, name: str, places: Sequence[Place], version: str) -> None:
        """Say that this host is there."""
        text = "[" + ",".join(place.model_dump_json() for place in places) + "]"
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "INSERT INTO executor_hosts (name, places, version) VALUES (%s, %s, %s)"
                " ON CONFLICT (name) DO UPDATE SET places = excluded.places,"
                " version = excluded.version, seen_at = now()",
                [name, text, version],
            )

    async def retire(self, name: str) -> None:
        """This host offers nothing any more."""
        async with self._pool.transaction() as cursor:
            await cursor.execute("DELETE FROM executor_hosts WHERE name = %s", [name])

    async def take(self, targets: Sequence[str], worker: str, lease_s: float) -> Taken | None:
        """The oldest call that waits, or whose worker's lease has run out; None: there is none."""
        while True:
            async with self._pool.transaction() as cursor:
                await cursor.execute(
                    "UPDATE calls SET status = 'running', lease = %s, worker = %s,"
                    " lease_until = now() + make_interval(secs => %s), attempts = attempts + 1,"
                    " started_at = coalesce(started_at, now())"
                    " WHERE (owner, id) = (SELECT owner, id FROM calls WHERE target = ANY(%s)"
                    " AND attempts < %s AND (status = 'queued'"
                    " OR (status = 'running' AND lease_until < now()))"
                    " ORDER BY created_at FOR UPDATE SKIP LOCKED LIMIT 1)"
                    " RETURNING owner, id, lease, attempts, request",
                    [uuid4(), worker, lease_s, list(targets), MAX_ATTEMPTS],
                )
                row = await cursor.fetchone()
                if row is None:
                    return None
                try:
                    request = CallRequest.model_validate(row["request"])
                except ValueError:  # of another version, say: it must not stay in everybody's way
                    await cursor.execute(
                        f"{_END} WHERE lease = %s", [UNREADABLE.model_dump_json(), row["lease"]]
                    )
                    await tell(cursor, row["id"])
                    continue
            return Taken(row["owner"], row["id"], row["lease"], row["attempts"], request)

    async def renew(self, leases: Sequence[UUID], lease_s: float) -> None:
        """Keep these leases."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE calls SET lease_until = now() + make_interval(secs => %s)"
                " WHERE lease = ANY(%s)",
                [lease_s, list(leases)],
            )

    async def end(self, taken: Taken, outcome: Reply | CallProblem) -> bool:
        """End the call. False: the lease is lost, somebody else has it; nothing was written."""
        problem = outcome if isinstance(outcome, CallProblem) else None
        reply = outcome if problem is None else None
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE calls SET status = 'ended', ended_at = now(), lease = NULL,"
                " lease_until = NULL, reply = %s, problem = %s WHERE lease = %s"
                " RETURNING extract(epoch FROM now() - started_at)::float8 AS seconds",
                [_json(reply), _json(problem), taken.lease],
            )
            row = await cursor.fetchone()
            if row is None:
                return False
            method = {"method": taken.request.call.method}
            outcome_label = "failed" if reply is None else "succeeded"
            await meters.add(
                cursor,
                [
                    meters.Change("executor_calls", {**method, "outcome": outcome_label}),
                    *meters.observed("executor_call_seconds", method, row["seconds"]),
                ],
            )
            await tell(cursor, taken.id)
            return True

    async def put_back(self, taken: Taken, *, counts: bool) -> None:
        """Queue it again; `counts`: something died over it, so it may not happen often."""
        async with self._pool.transaction() as cursor:
            await cursor.execute(
                "UPDATE calls SET status = 'queued', queued_at = now(), lease = NULL,"
                " lease_until = NULL, attempts = attempts - %s WHERE lease = %s",
                [0 if counts else 1, taken.lease],
            )
            await tell(cursor, WORK)

    async def sweep(self) -> None:
        """End what was tried often enough or is wanted by nobody; forget what is old."""
        async with self._pool.transaction() as cursor:
            for problem, condition in (
                (LOST, _LOST), (ABANDONED, _ABANDONED), (UNOFFERED, _UNOFFERED),
            ):  # fmt: skip
                await cursor.execute(
                    f"{_END} WHERE {condition} RETURNING id", [problem.model_dump_json()]
                )
                for row in await cursor.fetchall():
                    await tell(cursor, row["id"])
            await cursor.execute(
                "DELETE FROM calls WHERE status = 'ended'"
                " AND ended_at < now() - make_interval(hours => %s)",
                [KEPT_HOURS],
            )
            await cursor.execute(
                "DELETE FROM executor_hosts WHERE seen_at < now() - interval '1 day'"
            )
        await self.blobs.prune()


_END = (
    "UPDATE calls SET status = 'ended', ended_at = now(), lease = NULL, lease_until = NULL,"
    " problem = %s"
)
_LOST = (
    f"attempts >= {MAX_ATTEMPTS} AND"
    " (status = 'queued' OR (status = 'running' AND lease_until < now()))"
)
_ABANDONED = f"status = 'queued' AND asked_at < now() - make_interval(mins => {ABANDONED_MINUTES})"

_UNOFFERED = (
    f"(status = 'queued' AND queued_at < now() - make_interval(secs => {UNOFFERED_S})"
    f" OR status = 'running' AND lease_until < now() - make_interval(secs => {UNOFFERED_S}))"
    " AND NOT EXISTS (SELECT 1 FROM executor_hosts, json_array_elements(places) AS place"
    f" WHERE seen_at > now() - make_interval(secs => {HOST_SEEN_S})"
    " AND calls.target = CASE WHEN place ->> 'executor' = 'cpu' THEN 'cpu'"
    " ELSE 'cuda:' || (place ->> 'device') END)"
)


def _json(record: Record | None) -> str | None:
    return None if record is None else record.model_dump_json()
