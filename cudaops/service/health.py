"""Whether the service can do its work: its database, and somebody who takes jobs."""

from __future__ import annotations

import asyncio

from cudaops.domain.base import Record
from cudaops.errors import ServiceUnavailable
from cudaops.service.database import REMEDY
from cudaops.service.logs import logger
from cudaops.service.rows import WORKER_SEEN_S
from cudaops.service.store import Store

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
            f"no worker was seen in the last {WORKER_SEEN_S} s: jobs are taken and wait; start"
            " one with `cudaops worker`"
        )
    executors = sorted({executor for worker in workers for executor in worker.executors})
    return Readiness(workers=len(workers), executors=tuple(executors))
