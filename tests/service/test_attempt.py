"""Attempts at jobs in real processes: how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cudaops.service.attempt import JobAttempt, WorkerSetup
from cudaops.service.job_folder import JobFolder
from cudaops.service.job_process import descendants
from cudaops.service.records import JobRequest, ProgramRequest, RunRequest
from cudaops.service.store import Claim, Store
from cudaops.settings import load_settings
from tests.service.workers import DEADLINE_S, ENDLESS, service_folder, until_said

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

ENDLESS_RUN = RunRequest(source=ENDLESS, executor="cpu", timeout_seconds=600)


@pytest.fixture
def folder() -> Iterator[Path]:
    with service_folder() as made:
        yield made


async def claim(store: Store, request: JobRequest = ENDLESS_RUN, lease_s: float = 30.0) -> Claim:
    submitted = await store.submit("run", request, "ann", None)
    claimed = await store.claim(submitted.job.id, "w", lease_s)
    assert claimed is not None
    return claimed


def attempt(
    store: Store, claimed: Claim, folder: Path, stop: asyncio.Event | None = None,
    lease_s: float = 30.0, limit_s: float = 7200.0,
) -> asyncio.Task[None]:  # fmt: skip
    async def still_works() -> bool:
        return True

    place = WorkerSetup(
        load_settings(folder), JobFolder(folder / str(claimed.job.id)), ("cpu",),
        stop or asyncio.Event(), still_works, lease_s, limit_s,
    )  # fmt: skip
    return asyncio.create_task(JobAttempt(store, claimed, place, lambda _event: None).run())


def of_job(folder: Path, id: UUID) -> list[int]:
    """Processes below this one that hold the job's folder or run in it."""
    held = f"{folder / str(id)}"
    found = []
    for pid in descendants(os.getpid()):
        links = [Path(f"/proc/{pid}/cwd"), *_listed(Path(f"/proc/{pid}/fd"))]
        if any(_target(link).startswith(held) for link in links):
            found.append(pid)
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether it runs; one that waits to be collected by init does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def job_process(folder: Path, id: UUID) -> int:
    """The process that holds the job's folder, once it does."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for pid in of_job(folder, id):
            if any(_target(link).endswith("/.lock") for link in _listed(Path(f"/proc/{pid}/fd"))):
                return pid
        await asyncio.sleep(0.02)
    raise AssertionError("no process works on the job")


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await task


async def test_a_cancelled_job_leaves_no_process(store: Store, folder: Path) -> None:
    claimed = await claim(store)
    task = attempt(store, claimed, folder)
    id = claimed.job.id
    await until_said(store, id, "sandbox", "started")
    child = await job_process(folder, id)
    deadline = time.monotonic() + DEADLINE_S
    while not (below := descendants(child)):  # a compiler, or the program
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert await store.cancel(id) == "running"
    await ended(task)
    job = await store.job(id)
    assert job is not None
    assert (job.status, job.problem) == ("cancelled", None)
    assert not [pid for pid in (child, *below) if alive(pid)]
    assert not (folder / str(id)).exists()


async def test_a_job_has_limited_time(store: Store, folder: Path) -> None:
    claimed = await claim(store)
    await ended(attempt(store, claimed, folder, limit_s=0.5))
    job = await store.job(claimed.job.id)
    assert job is not None
    assert job.problem is not None
    assert (job.status, job.problem.status) == ("failed", 422)
    assert "0.5 s" in job.problem.detail


async def test_a_process_that_dies_is_started_once_more(store: Store, folder: Path) -> None:
    claimed = await claim(store)
    id = claimed.job.id
    for n in (1, 2):
        task = attempt(store, claimed, folder)
        os.kill(await job_process(folder, id), signal.SIGKILL)
        await ended(task)
        if n == 1:
            again = await store.claim(id, "w2", 30.0)
            assert again is not None
            assert (again.attempt, again.losses) == (2, 1)
            claimed = again
    job = await store.job(id)
    assert job is not None
    assert job.problem is not None
    assert (job.status, job.problem.status) == ("failed", 500)
    assert "more than once" in job.problem.detail


async def test_who_loses_the_lease_stops_at_once(store: Store, folder: Path) -> None:
    claimed = await claim(store, lease_s=0.0)
    id = claimed.job.id
    other = await store.claim(id, "w2", 30.0)
    assert other is not None
    task = attempt(store, claimed, folder, lease_s=1.0)
    await ended(task)
    assert not of_job(folder, id)
    job = await store.summary(id)
    assert job is not None
    assert (job.status, job.worker) == ("running", "w2")


async def test_a_database_that_hangs_does_not_keep_a_child_alive(
    store: Store, folder: Path
) -> None:
    claimed = await claim(store, lease_s=2.0)
    task = attempt(store, claimed, folder, lease_s=2.0)
    await job_process(folder, claimed.job.id)
    async with store.pool.transaction() as cursor:  # whoever writes to the job waits for this
        await cursor.execute("SELECT 1 FROM jobs FOR UPDATE")
        await ended(task)
        assert not of_job(folder, claimed.job.id)
    await asyncio.sleep(2.0)  # what hung may have renewed the lease once more
    other = await store.claim(claimed.job.id, "w2", 30.0)
    assert other is not None, "its lease has run out"


async def test_a_folder_that_is_held_is_no_failure_of_the_job(store: Store, folder: Path) -> None:
    claimed = await claim(store)
    job = JobFolder(folder / str(claimed.job.id))
    with job.taken():
        job.remove_idle()
        assert job.root.is_dir(), "somebody is at it"
        await ended(attempt(store, claimed, folder))
    summary = await store.summary(claimed.job.id)
    assert summary is not None
    assert summary.status == "queued", "it is tried again"
    job.remove_idle()
    assert not job.root.exists()


async def test_a_worker_that_stops_gives_its_job_back(store: Store, folder: Path) -> None:
    claimed, stop = await claim(store), asyncio.Event()
    id = claimed.job.id
    task = attempt(store, claimed, folder, stop)
    await job_process(folder, id)
    stop.set()
    await ended(task)
    assert not of_job(folder, id)
    job = await store.summary(id)
    assert job is not None
    assert job.status == "queued"
    again = await store.claim(id, "w2", 30.0)
    assert again is not None
    assert again.losses == 0


@pytest.mark.parametrize(
    ("request_", "detail"),
    [
        (RunRequest(source="int main() {}", executor="cpu"), "no CUDA code in it"),
        (
            RunRequest(source=f'#include "../../x.h"\n{ENDLESS}', executor="cpu"),
            "leaves the folder",
        ),
        (RunRequest(source=ENDLESS, files={"program.cu": "x"}, executor="cpu"), "main file"),
        (RunRequest(source=ENDLESS, files={"a": "x", "a/b": "y"}, executor="cpu"), "a/b"),
        (RunRequest(source=ENDLESS, executor="cpu", device="no such GPU"), "no such GPU"),
    ],
    ids=["no CUDA", "include", "name taken", "file below a file", "device"],
)
async def test_wrong_input_is_a_problem_of_the_job(
    store: Store, folder: Path, request_: ProgramRequest, detail: str
) -> None:
    assert isinstance(request_, RunRequest)
    claimed = await claim(store, request_)
    await ended(attempt(store, claimed, folder))
    job = await store.job(claimed.job.id)
    assert job is not None
    assert job.problem is not None
    assert (job.status, job.problem.status, job.attempts) == ("failed", 422, 1)
    assert detail in job.problem.detail
    assert str(folder) not in job.problem.detail
