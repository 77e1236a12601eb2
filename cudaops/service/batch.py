"""A batch from its client's side: programs handed to a service as jobs, followed to their ends,
their results fetched.

What was begun stands in a small file before anything is sent: an identity of the batch, from which
every job's idempotency key follows. Whoever is killed and called again asks for the same jobs by
the same keys, and gets those that there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from pydantic import ValidationError

from cudaops.domain.base import Record
from cudaops.domain.batch import Batch, BatchRow, batch_of, figures_of
from cudaops.domain.options import ExecutorName
from cudaops.errors import InputError, SandboxUnavailable, ServiceUnavailable
from cudaops.graph.folder import alone, write_whole
from cudaops.graph.html_report import REPORT_NAME, html_report
from cudaops.reports import html
from cudaops.reports.batch_table import speedup_of
from cudaops.service.api_client import ServiceClient
from cudaops.service.client import RemoteJob, fetched
from cudaops.service.job_process import ended_within, signal_on_parents_death
from cudaops.service.records import Job, JobEvent, OptimizeRequest, batch_row

STATE = "state/batch.json"
RECORD, PAGE, SERVICE_LOG = "batch.json", "batch.html", "state/service.log"
RESERVED = frozenset({"state", RECORD, PAGE})
"""Names below a batch's folder that are no program's."""
FOLLOWED = 16
"""Jobs that are followed at once, in the order of the queue; the others end all the same, and are
told of when it is their turn. A service lets one token follow 250."""
OWN_PATIENCE_S = 30.0
"""How long one may give no answer: nobody starts it again."""
STOP_S = 60.0
"""How long a service of our own may take to end before it is killed."""

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """One program that is asked for."""

    name: str
    """Of the folder for its results, below the batch's."""
    program: str
    """Its file as it was named."""
    source: Path
    request: OptimizeRequest | None
    """None: it is wrong already."""
    wrong: str = ""
    """Why, in one line."""

    @property
    def sha256(self) -> str:
        """The same for the same program with the same options."""
        text = f"{self.program}\n{self.wrong}"
        if self.request is not None:
            text += self.request.model_dump_json(exclude_defaults=True)
        return hashlib.sha256(text.encode()).hexdigest()


class BatchItem(Record):
    """How far one program has come."""

    name: str
    sha256: str
    job: UUID | None = None
    row: BatchRow | None = None
    """Its result, once its results are here."""


class BatchState(Record):
    """How far a batch has come, as its folder holds it."""

    id: UUID
    created_at: datetime
    server: str | None
    """Address of the service; null: one of the batch's own."""
    items: tuple[BatchItem, ...]


class BatchFolder:
    """A batch on this machine, and its folder. Held by one process at a time."""

    def __init__(self, folder: Path, wanted: Sequence[Wanted], state: BatchState) -> None:
        self.folder, self._wanted, self._state = folder, wanted, state
        self._items = list(state.items)

    @classmethod
    @contextlib.contextmanager
    def held(
        cls, folder: Path, wanted: Sequence[Wanted], server: str | None
    ) -> Iterator[BatchFolder]:
        """A new one, or the one that was begun in the folder.

        Raises InputError: the folder holds something else, another batch, one at another service,
        or another process is at it. SandboxUnavailable: it cannot be written.
        """
        if not (folder / STATE).is_file() and not _is_new(folder):
            raise InputError(f"out {folder} is not empty and holds no batch; name a new folder")
        try:
            (folder / "state").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxUnavailable(
                f"{folder} cannot be made: {error.strerror}", "name another folder with --out"
            ) from error
        with alone(folder):
            known = _known(folder)
            if known is not None:
                _raise_if_other(folder, known, wanted, server)
            found = cls(folder, wanted, known or _new(wanted, server))
            found._save()
            yield found

    @property
    def open(self) -> list[int]:
        """Positions of those that have not ended."""
        return [at for at, item in enumerate(self._items) if item.row is None]

    @property
    def requests(self) -> list[OptimizeRequest]:
        """Of those that have not ended."""
        return [r for at in self.open if (r := self._wanted[at].request) is not None]

    def end_wrong(self, say: Say) -> None:
        """End those that no service need be asked about."""
        for at in self.open:
            wanted = self._wanted[at]
            if wanted.request is None:
                self._end(at, BatchRow(program=wanted.program, **_wrong(wanted.wrong)), say)

    async def work(self, service: ServiceClient, say: Say) -> None:
        """Hand over all that have not ended, by the same keys, and follow them to their ends; after
        `end_wrong`.

        Raises PrerequisiteError (token) and ServiceUnavailable (it is away); called again, it goes
        on.
        """
        for at in self.open:
            await self._submit(at, service, say)
        following = iter(self.open)

        async def follow() -> None:
            for at in following:
                await self._finish(at, service, say)

        await _all(follow() for _ in range(FOLLOWED))

    def batch(self) -> Batch:
        """Its result; after `work`."""
        rows = [item.row for item in self._items if item.row is not None]
        return batch_of(self._state.id, self._state.created_at, rows)

    def write(self, batch: Batch) -> None:
        """The record and the page, for who comes later."""
        write_whole(self.folder / RECORD, batch.model_dump_json(indent=2) + "\n")
        write_whole(self.folder / PAGE, html.batch_document(batch))

    async def _submit(self, at: int, service: ServiceClient, say: Say) -> None:
        # Those that were handed over too: a service of our own may be gone with all its jobs.
        wanted, item = self._wanted[at], self._items[at]
        assert wanted.request is not None, "the wrong ones have ended"
        try:
            key = f"batch-{self._state.id}-{at}"
            job = await service.submit("optimize", wanted.request, key)
        except InputError as error:
            kernel = wanted.request.kernel
            refused = BatchRow(program=wanted.program, kernel=kernel, **_wrong(str(error)))
            self._end(at, refused, say)
            return
        self._keep(at, item.model_copy(update={"job": job.id}))
        if job.waiting_for:
            say(f"{wanted.name} waits: {job.waiting_for}")

    async def _finish(self, at: int, service: ServiceClient, say: Say) -> None:
        id, wanted = self._items[at].job, self._wanted[at]
        assert id is not None, "it was submitted"

        def tell(said: JobEvent) -> None:
            if said.kind == "status" and said.message == "running":
                say(f"{wanted.name} is worked on")

        await service.follow(id, tell)
        job = await service.job(id)
        self._end(at, await self._fetch(wanted, job, service), say)

    async def _fetch(self, wanted: Wanted, job: Job, service: ServiceClient) -> BatchRow:
        """Result of a job, after its files are in the folder of its program."""
        figures = None
        if job.status == "succeeded":
            folder = self.folder / wanted.name
            there = RemoteJob(
                job=job.id, kind=job.kind, source=str(wanted.source),
                working_folder=str(wanted.source.parent),
            )  # fmt: skip
            figures = figures_of(await fetched(service, job, folder, there))
            write_whole(folder / REPORT_NAME, html_report(folder))
        row = batch_row(job, figures, f"{wanted.name}/{REPORT_NAME}")
        return row.model_copy(update={"program": wanted.program})

    def _end(self, at: int, row: BatchRow, say: Say) -> None:
        self._keep(at, self._items[at].model_copy(update={"row": row}))
        done, word = len(self._items) - len(self.open), (row.outcome or "").replace("_", " ")
        faster = f", {speedup_of(row)}" if row.speedup else ""
        say(f"{done} of {len(self._items)}: {self._wanted[at].name} {word}{faster}")

    def _keep(self, at: int, item: BatchItem) -> None:
        self._items[at] = item
        self._save()

    def _save(self) -> None:
        self._state = self._state.model_copy(update={"items": tuple(self._items)})
        write_whole(self.folder / STATE, self._state.model_dump_json(indent=1) + "\n")


def _wrong(why: str) -> dict[str, Any]:
    return {"status": "ended", "outcome": "wrong_input", "reason": why}


def _new(wanted: Sequence[Wanted], server: str | None) -> BatchState:
    items = tuple(BatchItem(name=each.name, sha256=each.sha256) for each in wanted)
    return BatchState(id=uuid4(), created_at=datetime.now(UTC), server=server, items=items)


def _is_new(folder: Path) -> bool:
    """Whether nothing is there, or only what a batch leaves that was killed before it began."""
    if not folder.exists():
        return True
    left = {folder / "state", folder / "state" / ".lock", folder / f"{STATE}.part"}
    return folder.is_dir() and left.issuperset(folder.rglob("*"))


def _known(folder: Path) -> BatchState | None:
    """What was begun in the folder. Raises InputError where it cannot be read."""
    path = folder / STATE
    try:
        return BatchState.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise InputError(f"{path} cannot be read; name another --out") from error


def _raise_if_other(
    folder: Path, known: BatchState, wanted: Sequence[Wanted], server: str | None
) -> None:
    """Raise InputError, one line, where what is asked for is not what was begun."""
    begun = f"the batch in {folder}"
    if known.server != server:
        where = known.server or "a service of its own"
        raise InputError(f"{begun} was started at {where}; continue there, or name another --out")
    before = {item.name: item.sha256 for item in known.items}
    now = {each.name: each.sha256 for each in wanted}
    for name in [*before, *now]:
        if before.get(name) != now.get(name):
            what = "is gone" if name not in now else "is new" if name not in before else "changed"
            raise InputError(
                f"{begun} was started with other programs or options: {name} {what}; undo that, or"
                " name another --out"
            )
    if list(before) != list(now):
        raise InputError(f"{begun} was started in another order; undo that, or name another --out")


async def _all(works: Iterator[Coroutine[Any, Any, None]]) -> None:
    """Do them at once; where one fails the others end, and its error comes out."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# A service of the batch's own: `cudaops serve` with its workers, for as long as the batch lasts.

_SERVES = re.compile(r"cudaops serves (http://\S+) and [^;]*(?:; (.*))?")


@contextlib.asynccontextmanager
async def own_service(
    workers: int | None, executor: ExecutorName | None, log: Path
) -> AsyncIterator[ServiceClient]:
    """A service on loopback with workers on this machine, that ends with the block, or with us.

    Args:
        workers: how many; None: one a GPU, at least one.
        executor: on which all its jobs run; None: they say it one by one.
        log: what it says goes there.

    Raises:
        SandboxUnavailable: it does not come up, or its workers do not.
    """
    token = secrets.token_urlsafe(32)
    command = [
        sys.executable, "-m", "cudaops", "serve", "--port", "0", "--reads-per-minute", "0",
        "--submits-per-minute", "0", *(["--executor", executor] if executor else []),
        *([] if workers is None else ["--workers", str(workers)]),
    ]  # fmt: skip
    with log.open("w") as said:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
            env={**os.environ, "CUDAOPS_ADMIN_TOKEN": token},
            # Ctrl-C is ours to act on; where we are killed it is asked to stop.
            start_new_session=True,
            preexec_fn=lambda: signal_on_parents_death(signal.SIGTERM),
        )  # fmt: skip
    try:
        address = await _address(process, log)
        async with ServiceClient(address, token, OWN_PATIENCE_S) as service:
            yield service
    finally:
        await ended_within(process, STOP_S)


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = _SERVES.match(line)
    if found is None or found[2]:
        why = _complaint(log) or (found[2] if found else "no message")
        raise SandboxUnavailable(
            f"the batch's temporary service does not start: {why}", f"see {log}"
        )
    return found[1]


def _complaint(log: Path) -> str:
    """What a command that ended badly said last (cli/boundary.py); empty where none did."""
    lines = log.read_text("utf-8", "replace").splitlines()
    said = [line.partition(": ")[2] for line in lines if line.startswith("cudaops: ")]
    return said[-1] if said else ""


# The whole of it.


class Where(NamedTuple):
    """At which service a batch is done."""

    server: str | None = None
    """Its address; None: one of the batch's own."""
    token: str | None = None
    workers: int | None = None
    """Of one's own."""


def run_batch(folder: Path, wanted: Sequence[Wanted], where: Where, say: Say) -> Batch:
    """Do it, or what is left of it; the record, the page and a folder of results for each program
    are in `folder` afterwards.

    Raises InputError: it is not the batch that was begun there. PrerequisiteError,
    ServiceUnavailable and SandboxUnavailable: it cannot be done now; called again, it goes on.
    """
    with BatchFolder.held(folder, wanted, where.server) as begun:
        begun.end_wrong(say)
        if begun.open:
            asyncio.run(_work(begun, where, say))
        done = begun.batch()
        begun.write(done)
        return done


async def _work(begun: BatchFolder, where: Where, say: Say) -> None:
    again = f"the same command continues it, in {begun.folder}"
    try:
        if where.server is not None:
            async with ServiceClient(where.server, where.token) as service:
                await begun.work(service, say)
            return
        asked = {request.executor for request in begun.requests}
        executor = asked.pop() if len(asked) == 1 else "auto"
        only: ExecutorName | None = None if executor == "auto" else executor
        log = begun.folder / SERVICE_LOG
        async with own_service(where.workers, only, log) as service:
            await begun.work(service, say)
    except ServiceUnavailable as error:
        raise ServiceUnavailable(error.problem, again) from error
