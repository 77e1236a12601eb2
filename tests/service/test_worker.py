"""Real workers on a real database: every kind of job, and workers that go away over one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.cli.boundary import EXIT_ENVIRONMENT
from cudaops.domain.run import ProfileSummary, RunRecord
from cudaops.service.records import (
    BenchmarkRequest,
    BenchmarkResult,
    CompileRequest,
    CompileResult,
    Job,
    JobKind,
    JobRequest,
    OptimizeRequest,
    ProfileRequest,
    RunRequest,
    RunResult,
    VerifyRequest,
)
from cudaops.service.store import Store
from tests.service.workers import (
    COALESCED,
    DEADLINE_S,
    HEADERS,
    MATMUL,
    removable_programs,
    service_folder,
    until_cleared,
    until_ended,
    until_said,
    until_works,
    worker_process,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

PROGRAM = {"source": MATMUL, "files": HEADERS, "filename": "m.cu", "executor": "auto"}
WRONG = COALESCED.replace("sum +=", "summ +=")
REQUESTS: list[tuple[JobKind, JobRequest]] = [
    ("compile", CompileRequest.model_validate(PROGRAM)),
    ("compile", CompileRequest.model_validate({**PROGRAM, "candidate": WRONG})),
    ("run", RunRequest.model_validate(PROGRAM)),
    ("profile", ProfileRequest.model_validate(PROGRAM)),
    ("verify", VerifyRequest.model_validate({**PROGRAM, "candidate": COALESCED})),
    ("benchmark", BenchmarkRequest.model_validate(PROGRAM)),
    ("benchmark", BenchmarkRequest.model_validate({**PROGRAM, "candidate": COALESCED})),
    ("benchmark", BenchmarkRequest.model_validate({**PROGRAM, "candidate": WRONG})),
    ("optimize", OptimizeRequest.model_validate({**PROGRAM, "max_iterations": 1, "max_trials": 3})),
]


@pytest.mark.essential
async def test_every_kind_of_job(store: Store, conninfo: str) -> None:
    with service_folder() as folder, worker_process(conninfo, folder, "--concurrency", "2"):
        submitted = [await store.submit(kind, request, "ann", None) for kind, request in REQUESTS]
        jobs = [await until_ended(store, one.job.id) for one in submitted]
        assert [(job.kind, job.status, job.attempts) for job in jobs] == [
            (kind, "succeeded", 1) for kind, _ in REQUESTS
        ]
        compiled, refused, ran, profiled, verified, alone, beside, failed, optimised = [
            job.result for job in jobs
        ]
        assert isinstance(compiled, CompileResult)
        assert compiled.ok
        assert isinstance(refused, CompileResult)
        assert not refused.ok
        assert "summ" in refused.message
        assert isinstance(ran, RunResult)
        assert ran.outcome.kind == "program_ran"
        assert isinstance(profiled, ProfileSummary)
        assert profiled.verdict
        assert isinstance(verified, RunRecord)
        assert verified.outcome == "provisional"
        assert isinstance(alone, BenchmarkResult)
        assert alone.comparisons
        assert (alone.speedup, alone.provenance) == (None, " (modelled for A10)")
        assert isinstance(beside, BenchmarkResult)
        assert beside.speedup is not None
        assert beside.speedup > 1
        assert isinstance(failed, BenchmarkResult)
        assert failed.failure is not None
        assert isinstance(optimised, RunRecord)
        assert optimised.outcome == "provisional"
        assert not optimised.options.use_memory
        assert jobs[-1].run_id == f"naive_matmul-{jobs[-1].id}"
        names = {artefact.name for artefact in jobs[-1].artefacts}
        assert names >= {
            "run.json", "report.md", "report.html", "best.cu", "best.patch", "certificate.json",
            "events.jsonl", "sizes.h", "iterations/01/candidate.cu",
        }  # fmt: skip
        for job in jobs:
            await _names_no_folder(store, job, folder)
        await until_cleared(folder)


async def _names_no_folder(store: Store, job: Job, folder: Path) -> None:
    """Nothing that a client can read of a job names a folder of this machine."""
    texts = {"job": job.model_dump_json()}
    for event in await store.events(job.id, 0, limit=5000):
        texts[f"event {event.seq}"] = event.model_dump_json()
    for artefact in job.artefacts:
        found = await store.artefact(job.id, artefact.name)
        assert found is not None
        texts[artefact.name] = found[1].decode()
    caches = (os.environ["CUDAOPS_CACHE"], os.environ["CUDAOPS_BUILDS"])
    places = (str(folder), *caches, str(Path(__file__).parents[2]), sys.prefix)
    for name, content in texts.items():
        for place in places:
            assert place not in content, f"{job.kind}: {name} names {place}"


@pytest.mark.deep
async def test_a_job_outlives_its_workers(store: Store, conninfo: str) -> None:
    """Asked to stop, killed, and done by a third: it ends once, and no stage ran twice for it."""
    request = OptimizeRequest.model_validate({**PROGRAM, "max_iterations": 1, "max_trials": 3})
    id = (await store.submit("optimize", request, "ann", None)).job.id
    lease = ("--lease", "3")
    with service_folder() as folder:
        with worker_process(conninfo, folder, "--name", "first", *lease) as first:
            after = await until_said(store, id, "profiler", "finished")
            first.terminate()
            assert await asyncio.to_thread(first.wait, DEADLINE_S) == 0
        job = await store.summary(id)
        assert job is not None
        assert job.status == "queued"
        with worker_process(conninfo, folder, "--name", "second", *lease) as second:
            after = await until_said(store, id, "supervisor", "notice", after)
            after = await until_said(store, id, "sandbox", "progress", after)
            second.kill()
            await asyncio.to_thread(second.wait, DEADLINE_S)
        with worker_process(conninfo, folder, "--name", "third", *lease):
            done = await until_ended(store, id)
    assert (done.status, done.outcome, done.attempts) == ("succeeded", "provisional", 3)
    assert done.worker == "third"
    assert {"run.json", "best.cu", "certificate.json"} <= {one.name for one in done.artefacts}
    events = await store.events(id, 0, limit=5000)
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    told = [one.message for one in events if one.kind == "status"]
    assert told == ["queued", "running"] * 3 + ["succeeded"]
    profiled = [one for one in events if (one.stage, one.kind) == ("profiler", "started")]
    assert profiled[0].attempt == 1
    intakes = [one for one in events if (one.stage, one.kind) == ("intake", "started")]
    assert len(intakes) == 1
    assert [one.message for one in events].count("resumed") == 2


async def test_a_worker_refuses_to_run_strangers_unconfined(conninfo: str) -> None:
    environment = {**os.environ, "DATABASE_URL": conninfo, "CUDAOPS_ISOLATION": "off"}
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "cudaops", "worker"],
        env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "CUDAOPS_ISOLATION=off" in ran.stderr


async def test_a_worker_whose_executor_does_not_work_takes_no_job(conninfo: str) -> None:
    """`cuda`, where no GPU can be seen."""
    with service_folder() as folder:
        environment = {"DATABASE_URL": conninfo, "CUDA_VISIBLE_DEVICES": ""}
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "cudaops", "worker", "--executor", "cuda"],
            env={**os.environ, **environment, "CUDAOPS_SERVICE_FOLDER": str(folder)},
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    assert ran.returncode == EXIT_ENVIRONMENT
    assert "worker ready" not in ran.stderr
    assert "this worker's executors do not work here: cuda: " in ran.stderr
    assert "or start it with --executor cpu" in ran.stderr


@pytest.mark.deep
async def test_a_worker_that_breaks_leaves_its_job_to_others(
    store: Store, conninfo: str, tmp_path: Path
) -> None:
    """Its compiler is removed while it runs."""
    programs = removable_programs(tmp_path / "bin")
    with service_folder() as folder:
        path = {"PATH": f"{Path(sys.executable).parent}:{programs}"}
        with worker_process(conninfo, folder, "--name", "first", env=path) as first:
            await until_works(store, "first")
            (programs / "g++").unlink()
            id = (await store.submit("run", RunRequest.model_validate(PROGRAM), "ann", None)).job.id
            assert await asyncio.to_thread(first.wait, DEADLINE_S) == EXIT_ENVIRONMENT
        job = await store.summary(id)
        assert job is not None
        assert (job.status, job.attempts) == ("queued", 1)
        told = [e.data.get("why") for e in await store.events(id, 0) if e.message == "queued"]
        assert told[-1] == "its worker's machine cannot do it any longer"
        with worker_process(conninfo, folder, "--name", "second"):
            done = await until_ended(store, id)
    assert (done.status, done.attempts, done.worker) == ("succeeded", 2, "second")
