"""What a client of a service takes from it, and what it does not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cudaops import api as functions
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import (
    EnvironmentFailure,
    InputError,
    PrerequisiteError,
    SandboxUnavailable,
    ServiceUnavailable,
)
from cudaops.graph.resolve_options import Target, run_options
from cudaops.graph.services import make_executor
from cudaops.service import client
from cudaops.service.api_client import ServiceClient
from cudaops.service.client import place_of
from cudaops.service.records import Job, JobStatus, Problem
from cudaops.settings import Settings
from tests.service.api_server import Api, open_to_all, running
from tests.service.workers import COALESCED, HEADERS, MATMUL

RECORDED = Path(__file__).parents[2] / "tests" / "data" / "recorded" / "naive_matmul" / "run.json"


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    with running(new_database()) as found:
        yield found


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "sizes.h").write_text(HEADERS["sizes.h"])
    (tmp_path / "m.cu").write_text(MATMUL)
    return tmp_path / "m.cu"


def record() -> RunRecord:
    return RunRecord.model_validate_json(RECORDED.read_text("utf-8"))


def asked(address: str, program: Path, token: str | None = None) -> RunRecord:
    settings = Settings.model_validate({"server": address, "token": token})
    options = run_options(program, program.parent / "out", Target("remote", "", ""))
    return client.start(options, lambda _: None, settings)


def ran(api: Api, program: Path, work: Callable[[UUID], None]) -> RunRecord:
    """What `start` gives where `work` does the job in a worker's place."""
    known = {job["id"] for job in api.http.get("/jobs").json()}

    def do() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            new = [job["id"] for job in api.http.get("/jobs").json() if job["id"] not in known]
            if new:
                work(UUID(new[0]))
                return
            time.sleep(0.05)

    worker = threading.Thread(target=do)
    worker.start()
    try:
        return asked(api.address, program)
    finally:
        worker.join()


def leaving(api: Api, **leaves: bytes) -> Callable[[UUID], None]:
    files = {name: ("text/plain", content) for name, content in leaves.items()}
    return lambda id: api.work(id, result=record(), leaves=files)


def test_a_folder_is_filled(api: Api, program: Path) -> None:
    done = ran(api, program, leaving(api, **{"best.cu": b"\x00\xff", "include/a b.cuh": b"x"}))
    out = program.parent / "out"
    assert (out / "best.cu").read_bytes() == b"\x00\xff"
    assert (out / "include" / "a b.cuh").read_bytes() == b"x"
    assert RunRecord.model_validate_json((out / "run.json").read_text()) == done
    assert (done.options.out, done.options.source) == (str(out), str(program))
    assert (out / "report.md").read_text().startswith("# naive")


@pytest.mark.parametrize(
    "name",
    ["../up", "a/../../up", "/etc/up", "state/options.json", "workloads/w0/a0", "a//b", ".hidden",
     "a/.ssh/b", "a\\..\\b", "a\nb", "", "a/", "/".join("a" * 17), "x" * 201],
)  # fmt: skip
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ServiceUnavailable, match="as a file of a run"):
        place_of(tmp_path / "run", name)


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best").symlink_to(tmp_path)
    with pytest.raises(ServiceUnavailable, match="as a file of a run"):
        place_of(tmp_path / "run", "best/x.cu")
    assert place_of(tmp_path / "run", "best.cu") == tmp_path / "run" / "best.cu"


@pytest.mark.parametrize("name", ["../evil.txt", "state/options.json"])
def test_a_service_that_names_such_files_writes_none(api: Api, program: Path, name: str) -> None:
    with pytest.raises(ServiceUnavailable):
        ran(api, program, leaving(api, **{"best.cu": b"x", name: b"x"}))
    assert not (program.parent / "evil.txt").exists()
    found = {path.name for path in (program.parent / "out").rglob("*")}
    assert found <= {"state", "remote.json", ".lock"}


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        ("failed", 422, InputError),
        ("failed", 503, SandboxUnavailable),
        ("failed", 500, SandboxUnavailable),
        ("cancelled", None, SandboxUnavailable),
    ],
)
def test_a_job_that_ends_badly_leaves_nothing(
    api: Api, program: Path, status: JobStatus, code: int | None, error: type[Exception]
) -> None:
    problem = None if code is None else Problem(title="t", status=code, detail="do this")
    with pytest.raises(error, match="do this" if problem else "cancelled there"):
        ran(api, program, lambda id: api.work(id, status, problem=problem))
    assert not (program.parent / "out").exists()


def test_tokens(new_database: Callable[[], str], program: Path) -> None:
    with running(new_database(), open_to_all(tokens="always")) as api:
        for token in (None, "wrong", api.token("r", "read")["Authorization"].split()[1]):
            with pytest.raises(PrerequisiteError, match="refuses the token") as refused:
                asked(api.address, program, token)
            assert "CUDAOPS_TOKEN" in refused.value.remedy
        assert not (program.parent / "out").exists()


def test_something_else_at_that_address(program: Path, api: Api) -> None:
    for address, said in (
        (f"{api.address}/docs", "refuses this"),
        ("ftp://x", "CUDAOPS_SERVER must be"),
        ("http://me:secret@x", "CUDAOPS_SERVER must be"),
    ):
        with pytest.raises(InputError, match=said):
            asked(address, program)
    assert not (program.parent / "out").exists()


def test_a_service_that_stays_away_leaves_what_resume_needs(
    new_database: Callable[[], str], program: Path, tmp_path: Path
) -> None:
    """The same for events: what was told is not told again after a break."""
    database = new_database()

    async def followed(address: str, id: UUID, tell: Callable[[Any], None]) -> Job:
        async with ServiceClient(address, None, patience_s=1.0) as service:
            await service.job(id)  # it has answered: from now on it may be away for a while
            await service.follow(id, tell)
            return await service.job(id)

    with running(database) as api:
        id = api.submit("optimize")
        api.work(id, result=record(), says=["one", "two"])
        told: list[str] = []
        job = asyncio.run(followed(api.address, id, lambda said: told.append(said.message)))
        assert told == ["queued", "running", "one", "two", "succeeded"]
        assert isinstance(job.result, RunRecord)
        waiting = api.submit("optimize")
        address = api.address
        failed: list[BaseException] = []

        def follow() -> None:
            try:
                asyncio.run(followed(address, waiting, lambda _: None))
            except EnvironmentFailure as error:
                failed.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        time.sleep(1.0)
    thread.join(60)
    assert isinstance(failed[0], ServiceUnavailable)
    assert "cudaops resume" in failed[0].remedy


def test_a_job_that_says_nothing_for_long_is_followed(
    new_database: Callable[[], str], program: Path
) -> None:
    """The service fills a silence with comments, behind the ids of earlier events."""
    options = open_to_all(keep_alive_seconds=0.1)
    with running(new_database(), options) as api:

        def slowly(id: UUID) -> None:
            time.sleep(1.0)
            api.work(id, result=record())

        assert ran(api, program, slowly).run_id == record().run_id


def test_resume_of_a_folder_that_names_no_job_of_this_service(api: Api, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "remote.json").write_text(
        '{"job": "00000000-0000-4000-8000-000000000000", "kind": "optimize", "source": "x",'
        ' "working_folder": "y"}'
    )
    settings = Settings.model_validate({"server": api.address})
    with pytest.raises(InputError, match="no such job"):
        client.resume(tmp_path, lambda _: None, settings)
    (tmp_path / "state" / "remote.json").write_text("{}")
    with pytest.raises(InputError, match="start the run again"):
        client.resume(tmp_path, lambda _: None, settings)
    assert (tmp_path / "state" / "remote.json").exists()


def test_a_cancelled_coroutine_cancels_the_job(
    api: Api, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDAOPS_SERVER", api.address)
    out = program.parent / "out"
    told: list[Event] = []

    async def begun_and_cancelled() -> None:
        work = asyncio.ensure_future(
            functions.optimize_async(program, executor="remote", out=out, on_event=told.append)
        )
        while not told:
            await asyncio.sleep(0.05)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(begun_and_cancelled())
    id = told[0].message.split()[1]
    assert api.http.get(f"/jobs/{id}").json()["status"] == "cancelled"
    assert told[-1].message == f"job {id} is cancelled"
    assert not out.exists()


def test_one_header_of_a_name_for_base_and_candidate(program: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sizes.h").write_text("#define SIZE 64\n")
    (tmp_path / "other" / "m.cu").write_text(MATMUL)
    (tmp_path / "coalesced.cu").write_text(COALESCED)
    settings = Settings.model_validate({"server": "http://127.0.0.1:9"})
    options = run_options(program, program.parent / "out", Target("remote", "", ""))
    with pytest.raises(InputError, match=r"its sizes\.h is not the one"):
        client.verify_files(program, tmp_path / "other" / "m.cu", options, lambda _: None, settings)
    with pytest.raises(ServiceUnavailable, match="does not answer correctly"):
        client.verify_files(program, tmp_path / "coalesced.cu", options, lambda _: None, settings)


def test_what_is_no_whole_job_says_where_to_do_it(program: Path) -> None:
    """As `confirm` does, and a graph in Studio."""
    options = run_options(program, program.parent / "out", Target("remote", "", ""))
    with pytest.raises(InputError, match="on the service's own machine"):
        make_executor(options, Settings())
