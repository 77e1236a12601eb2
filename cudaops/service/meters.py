"""Counters that survive restarts and are right with several API processes: kept in the database.

A change is written in the transaction that ends a job, so that a job is counted once, whoever ends
it and however often it was taken up. `metrics.py` reads the sums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from cudaops.domain.base import Record
from cudaops.domain.run import RunRecord
from cudaops.service.database import Cursor, Pool
from cudaops.service.records import CompileResult

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Upper bounds of what a job's time is sorted into: from a cached compile to the two hours that a
job may take."""
PROPOSERS = frozenset({"recipe", "llm", "mcp", "user"})
"""First part of `Rewrite.proposer`; what follows it is not bounded and no label."""
COMPACT_ROWS = 5_000
"""Rows above which a reader replaces them by their sums: some 200 jobs."""


class Change(NamedTuple):
    """One addition to one counter."""

    name: str
    labels: Mapping[str, str]
    value: float = 1.0


def observed(name: str, labels: Mapping[str, str], seconds: float) -> Iterator[Change]:
    """A time, as the one bucket that it falls into and its share of the sum."""
    le = next((f"{bound:g}" for bound in SECONDS if seconds <= bound), "+Inf")
    yield Change(f"{name}_bucket", {**labels, "le": le})
    yield Change(f"{name}_sum", labels, seconds)


def of_result(result: Record | None) -> Iterator[Change]:
    """What a job's result says: stages, tools, candidates, the model."""
    if isinstance(result, CompileResult):
        if result.seconds is not None and not result.cached:
            yield Change("tool_seconds", {"tool": "compiler"}, result.seconds)
        return
    if not isinstance(result, RunRecord):
        return
    for stage, seconds in result.seconds_by_stage.items():
        yield Change("stage_seconds", {"stage": stage}, seconds)
    for tool, seconds in result.seconds_by_tool.items():
        yield Change("tool_seconds", {"tool": tool}, seconds)
    judged: Counter[tuple[str, str]] = Counter()
    for attempt in result.attempts:
        family = attempt.proposer.partition(":")[0]
        judged[family if family in PROPOSERS else "other", attempt.judgement.outcome] += 1
    for (proposer, outcome), count in judged.items():
        yield Change("candidates_judged", {"proposer": proposer, "outcome": outcome}, count)
    if tried := sum(attempt.configurations_tried for attempt in result.attempts):
        yield Change("configurations_tried", {}, tried)
    if result.model is not None:
        yield Change("model_calls", {}, result.model.calls)
        yield Change("model_tokens", {"direction": "input"}, result.model.tokens.input_tokens)
        yield Change("model_tokens", {"direction": "output"}, result.model.tokens.output_tokens)
        if result.model.cost_usd is not None:
            yield Change("model_cost_usd", {}, result.model.cost_usd)


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
    changes = [Change("jobs_ended", labels)]
    if row["ran_s"] is not None:
        changes += observed("job_duration_seconds", labels, row["ran_s"])
        changes += observed("job_wait_seconds", {"kind": row["kind"]}, row["waited_s"])
    if row["losses"]:
        changes.append(Change("job_losses", {"kind": row["kind"]}, row["losses"]))
    await add(cursor, [*changes, *of_result(result)])


async def add(cursor: Cursor, changes: Iterable[Change]) -> None:
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


async def sums(pool: Pool) -> list[Change]:
    """Every counter as it stands."""
    async with pool.transaction() as cursor:
        await cursor.execute(
            "SELECT name, labels::text AS labels, sum(value) AS value, count(*) AS rows"
            " FROM meters GROUP BY name, labels::text"
        )
        found = await cursor.fetchall()
        if sum(row["rows"] for row in found) > COMPACT_ROWS:
            await _compact(cursor)
    return [Change(row["name"], json.loads(row["labels"]), row["value"]) for row in found]


async def _compact(cursor: Cursor) -> None:
    """Sums in place of what they are of, in one statement: no reader sees something in between."""
    await cursor.execute(
        "WITH taken AS (DELETE FROM meters RETURNING name, labels, value)"
        " INSERT INTO meters (name, labels, value)"
        " SELECT name, labels::text::json, sum(value) FROM taken GROUP BY name, labels::text"
    )
