"""Jobs, events and artefacts for tests of the store, and what it then says of them."""

from __future__ import annotations

import hashlib
from uuid import UUID

from cudaops.service.records import (
    Artefact,
    CompileRequest,
    CompileResult,
    JobEvent,
)
from cudaops.service.store import Claim, Store

COMPILE = CompileRequest(source="__global__ void k() {}", executor="cpu")
RESULT = CompileResult(ok=True, message="g++ 12.2")


def event(message: str, attempt: int = 1) -> JobEvent:
    return JobEvent(
        seq=0, time="2026-11-22T00:00:00.000Z", attempt=attempt, stage="sandbox", agent="sandbox",
        kind="progress", message=message,
    )  # fmt: skip


def artefact(name: str, content: bytes) -> tuple[Artefact, bytes]:
    sha256 = hashlib.sha256(content).hexdigest()
    kept = Artefact(name=name, media_type="text/plain", size_bytes=len(content), sha256=sha256)
    return kept, content


async def claimed(store: Store, lease_s: float = 30.0) -> Claim:
    submitted = await store.submit("compile", COMPILE, "ann", None)
    claim = await store.claim(submitted.job.id, "worker", lease_s)
    assert claim is not None
    return claim


async def said(store: Store, id: UUID) -> list[str]:
    return [one.message for one in await store.events(id, 0)]


async def deliveries(store: Store) -> list[str]:
    rows = await store.fetch(
        "SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id"
    )
    return [row["queueing_lock"] for row in rows]
