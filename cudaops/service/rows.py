"""What a statement of the store reads and writes in its transaction: a job's row as the records the
service gives, its events and audit lines, and the counters.

Counters survive restarts and are right with several API processes: a change is written in the
transaction that ends a job, so that a job is counted once, whoever ends it and however often it was
taken up. `operation.py` reads the sums.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from psycopg.types.json import Json

from cudaops.domain.base import Record
from cudaops.domain.batch import figures_of
from cudaops.domain.run import RunRecord
from cudaops.graph.events import utc_now
from cudaops.service.database import Cursor, Pool, tell
from cudaops.service.records import (
    REQUESTS,
    RESULTS,
    Artefact,
    CompileResult,
    Job,
    JobEvent,
    JobKind,
    JobRequest,
    JobStatus,
    JobSummary,
    Problem,
    Scope,
)

# Counters that survive restarts and are right with several API processes: kept in the database.

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Upper bounds of what a job's time is sorted into: from a cached compile to the two hours that a
job may take."""
PROPOSERS = frozenset({"recipe", "llm", "mcp", "user"})
"""First part of `Rewrite.proposer`; what follows it is not bounded and no label."""
COMPACT_ROWS = 5_000
"""Rows above which a reader replaces them by their counter_sums: some 200 jobs."""


class CounterIncrement(NamedTuple):
    """One addition to one counter."""

    name: str
    labels: Mapping[str, str]
    value: float = 1.0


def observed(name: str, labels: Mapping[str, str], seconds: float) -> Iterator[CounterIncrement]:
    """A time, as the one bucket that it falls into and its share of the sum."""
    le = next((f"{bound:g}" for bound in SECONDS if seconds <= bound), "+Inf")
    yield CounterIncrement(f"{name}_bucket", {**labels, "le": le})
    yield CounterIncrement(f"{name}_sum", labels, seconds)


def of_result(result: Record | None) -> Iterator[CounterIncrement]:
    """What a job's result says: stages, tools, candidates, the model."""
    if isinstance(result, CompileResult):
        if result.seconds is not None and not result.cached:
            yield CounterIncrement("tool_seconds", {"tool": "compiler"}, result.seconds)
        return
    if not isinstance(result, RunRecord):
        return
    for stage, seconds in result.seconds_by_stage.items():
        yield CounterIncrement("stage_seconds", {"stage": stage}, seconds)
    for tool, seconds in result.seconds_by_tool.items():
        yield CounterIncrement("tool_seconds", {"tool": tool}, seconds)
    judged: Counter[tuple[str, str]] = Counter()
    for attempt in result.attempts:
        family = attempt.proposer.partition(":")[0]
        judged[family if family in PROPOSERS else "other", attempt.judgement.outcome] += 1
    for (proposer, outcome), count in judged.items():
        yield CounterIncrement(
            "candidates_judged", {"proposer": proposer, "outcome": outcome}, count
        )
    if tried := sum(attempt.configurations_tried for attempt in result.attempts):
        yield CounterIncrement("configurations_tried", {}, tried)
    if result.model is not None:
        yield CounterIncrement("model_calls", {}, result.model.calls)
        yield CounterIncrement(
            "model_tokens", {"direction": "input"}, result.model.tokens.input_tokens
        )
        yield CounterIncrement(
            "model_tokens", {"direction": "output"}, result.model.tokens.output_tokens
        )
        if result.model.cost_usd is not None:
            yield CounterIncrement("model_cost_usd", {}, result.model.cost_usd)


async def count_ended(cursor: Cursor, id: UUID, result: Record | None) -> None:
    """Count a job that this transaction has just ended."""
    await cursor.execute(
        "SELECT kind, coalesce(outcome, status) AS outcome, losses,"
        " extract(epoch FROM ended_at - started_at)::float8 AS ran_s,"
        " extract(epoch FROM started_at - created_at)::float8 AS waited_s"
        " FROM jobs WHERE id = %s",
        [id],
    )
    row = await cursor.fetchone()
    if row is None:
        return
    labels = {"kind": row["kind"], "outcome": row["outcome"]}
    changes = [CounterIncrement("jobs_ended", labels)]
    if row["ran_s"] is not None:
        changes += observed("job_duration_seconds", labels, row["ran_s"])
        changes += observed("job_wait_seconds", {"kind": row["kind"]}, row["waited_s"])
    if row["losses"]:
        changes.append(CounterIncrement("job_losses", {"kind": row["kind"]}, row["losses"]))
    await add_changes(cursor, [*changes, *of_result(result)])


async def add_changes(cursor: Cursor, changes: Iterable[CounterIncrement]) -> None:
    """Write changes in the caller's transaction."""
    rows = list(changes)
    await cursor.execute(
        "INSERT INTO meters (name, labels, value)"
        " SELECT * FROM unnest(%s::text[], %s::json[], %s::float8[])",
        [
            [row.name for row in rows],
            [json.dumps(dict(sorted(row.labels.items()))) for row in rows],
            [float(row.value) for row in rows],
        ],
    )


async def counter_sums(pool: Pool) -> list[CounterIncrement]:
    """Every counter as it stands."""
    async with pool.transaction() as cursor:
        await cursor.execute(
            "SELECT name, labels::text AS labels, sum(value) AS value, count(*) AS rows"
            " FROM meters GROUP BY name, labels::text"
        )
        found = await cursor.fetchall()
        if sum(row["rows"] for row in found) > COMPACT_ROWS:
            await _compact(cursor)
    return [CounterIncrement(row["name"], json.loads(row["labels"]), row["value"]) for row in found]


async def _compact(cursor: Cursor) -> None:
    """Sums in place of what they are of, in one statement: no reader sees something in between."""
    await cursor.execute(
        "WITH taken AS (DELETE FROM meters RETURNING name, labels, value)"
        " INSERT INTO meters (name, labels, value)"
        " SELECT name, labels::text::json, sum(value) FROM taken GROUP BY name, labels::text"
    )


# Between rows and records: what a job's row holds, as the records that the service gives.

WORKER_SEEN_S = 30
"""A worker that was not seen for longer counts as gone: three of its beats (worker.py)."""

SUMMARY: LiteralString = (
    "id, kind, status, filename, kernel, executor, owner, created_at, started_at, ended_at,"
    " attempts, worker, outcome, run_id, problem::text AS problem,"
    " CASE WHEN status = 'queued' AND NOT EXISTS (SELECT 1 FROM workers WHERE"
    f" seen_at > now() - make_interval(secs => {WORKER_SEEN_S}) AND (jobs.executor = 'auto' OR"
    " jobs.executor = ANY(executors))) THEN executor END AS waiting_for"
)
"""Columns of a JobSummary, read from `jobs`. Records are read as text, which pydantic parses
itself."""

_FIELDS = tuple(JobSummary.model_fields)


class Submitted(NamedTuple):
    """What submitting came to."""

    job: JobSummary
    created: bool
    """False: the idempotency key had been used for this very request before."""


class Claim(NamedTuple):
    """A job that a worker holds until `release`d, ended, or the lease runs out."""

    job: JobSummary
    request: JobRequest
    lease: UUID
    attempt: int
    """1 for the first."""
    losses: int = 0
    """Attempts that ended with their worker or its child dead."""
    trace: str | None = None
    """The traceparent (W3C Trace Context) of the request that started the job."""


class Identity(NamedTuple):
    """Who asks."""

    name: str
    scope: Scope


class TokenRow(Record):
    """A token as the service knows it; the token itself is kept nowhere."""

    name: str
    scope: Scope
    created_at: datetime.datetime
    expires_at: datetime.datetime | None = None
    last_used_at: datetime.datetime | None = None


class WorkerRow(Record):
    """A worker, and when it was last heard of."""

    name: str
    executors: tuple[str, ...]
    device: str | None
    """Name of its GPU; null without one."""
    version: str
    seen_at: datetime.datetime
    gauges: dict[str, Any]
    """What it measures of its machine, by metric name."""


class AuditRow(Record):
    """Who did what, and when."""

    at: datetime.datetime
    actor: str
    action: str
    job: UUID | None
    detail: dict[str, Any]


def summary(row: dict[str, Any]) -> JobSummary:
    """A job's row without its result."""
    return JobSummary.model_validate(_known(row))


def full(row: dict[str, Any], artefacts: list[dict[str, Any]]) -> Job:
    """A job's row with `result` as text, and its artefacts' rows."""
    kind: JobKind = row["kind"]
    result = None if row["result"] is None else RESULTS[kind].model_validate_json(row["result"])
    return Job.model_validate(
        {
            **_known(row),
            "result": result,
            "artefacts": tuple(Artefact.model_validate(one) for one in artefacts),
        }
    )


def _known(row: dict[str, Any]) -> dict[str, Any]:
    problem = row["problem"]
    return {
        **{name: row[name] for name in _FIELDS},
        "problem": None if problem is None else Problem.model_validate_json(problem),
        "waiting_for": _missing_worker(row["waiting_for"]),
    }


def _missing_worker(executor: str | None) -> str | None:
    if executor is None:
        return None
    kind = "worker" if executor == "auto" else f"worker for {executor}"
    return f"a {kind}: none was seen in the last {WORKER_SEEN_S} s; start one with `cudaops worker`"


def request_of(kind: JobKind, text: str) -> JobRequest:
    """What was asked for, as kept."""
    request: Any = REQUESTS[kind].model_validate_json(text)
    return request  # type: ignore[no-any-return]


def digest(kind: JobKind, request: JobRequest) -> str:
    """The same for the same request, however its JSON was spelled."""
    return hashlib.sha256(f"{kind}\n{request.model_dump_json()}".encode()).hexdigest()


async def append(cursor: Cursor, id: UUID, events: list[JobEvent]) -> int:
    """Add events behind the job's last; the caller holds the job's row. The last `seq`."""
    await cursor.execute("SELECT coalesce(max(seq), 0) AS last FROM events WHERE job = %s", [id])
    row = await cursor.fetchone()
    last = int(row["last"]) if row else 0
    numbered = [
        event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, start=last + 1)
    ]
    await cursor.executemany(
        "INSERT INTO events (job, seq, event) VALUES (%s, %s, %s)",
        [(id, event.seq, event.model_dump_json()) for event in numbered],
    )
    await tell(cursor, id)
    return last + len(numbered)


async def status_event(
    cursor: Cursor, id: UUID, attempt: int, status: JobStatus, data: dict[str, object] | None = None
) -> None:
    """Say that the job is now in this status."""
    event = JobEvent(
        seq=0,
        time=utc_now(),
        attempt=attempt,
        stage="job",
        agent="service",
        kind="status",
        message=status,
        data=data or {},
    )
    await append(cursor, id, [event])


async def note(cursor: Cursor, actor: str, action: str, job: UUID | None, detail: object) -> None:
    """One audit line."""
    await cursor.execute(
        "INSERT INTO audit (actor, action, job, detail) VALUES (%s, %s, %s, %s)",
        [actor, action, job, Json(detail)],
    )


async def finish(
    cursor: Cursor,
    id: UUID,
    attempt: int,
    status: JobStatus,
    actor: str,
    *,
    result: Record | None = None,
    problem: Problem | None = None,
) -> None:
    """End a job whose row the caller holds: its columns, its last event, its audit line."""
    outcome, run_id = getattr(result, "outcome", None), getattr(result, "run_id", None)
    outcome = outcome if isinstance(outcome, str) else None
    await cursor.execute(
        "UPDATE jobs SET status = %s, ended_at = now(), lease = NULL, lease_until = NULL,"
        " result = %s, problem = %s, outcome = %s, run_id = %s WHERE id = %s",
        [
            status,
            None if result is None else result.model_dump_json(),
            None if problem is None else problem.model_dump_json(),
            outcome,
            run_id,
            id,
        ],
    )
    if isinstance(result, RunRecord):
        await cursor.execute(
            "UPDATE batch_jobs SET figures = %s WHERE job = %s",
            [Json(figures_of(result)), id],
        )
    said: dict[str, object] = {"outcome": outcome} if outcome else {}
    if problem is not None:
        said = {"problem": problem.model_dump(mode="json")}
    await status_event(cursor, id, attempt, status, said)
    await note(cursor, actor, status, id, {"attempt": attempt, "outcome": outcome})
    await count_ended(cursor, id, result)
