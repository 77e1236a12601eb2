"""`cudaops serve` and `cudaops token` as processes: starting, refusing, draining, its workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from cudaops.cli.boundary import run_command
from cudaops.service.records import EXAMPLES, RESULTS, Job
from tests.service.api_server import DEADLINE_S

JOB_DEADLINE_S = 240.0


class Served:
    """A running `cudaops serve`."""

    def __init__(self, process: subprocess.Popen[str], address: str, said: str) -> None:
        self.process, self.address, self.said = process, address, said
        self.http = httpx.Client(base_url=address, timeout=JOB_DEADLINE_S)

    def workers(self) -> list[psutil.Process]:
        """Those alive: one that ended and waits for its parent to notice has no command line."""
        below = psutil.Process(self.process.pid).children()
        return [each for each in below if "worker" in _cmdline(each)]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@contextmanager
def serving(conninfo: str, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-m", "cudaops", "serve", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "DATABASE_URL": conninfo, **(env or {})},
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, said
        served = Served(process, found[0], said)
        yield served
        served.http.close()
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


def test_it_says_where_it_is_and_ends_well(conninfo: str) -> None:
    with serving(conninfo, "--workers", "0") as served:
        assert "asks for no token" in served.said
        id = served.http.post("/run", json={"source": "x"}).json()["id"]
        with served.http.stream("GET", f"/jobs/{id}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            served.process.send_signal(signal.SIGTERM)
            rest = list(lines)  # the stream ends by itself
            assert "event: end" not in rest
        assert served.process.wait(DEADLINE_S) == 0


def test_it_is_not_open_to_others_without_a_token(
    conninfo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", conninfo)
    assert run_command(["serve", "--host", "0.0.0.0", "--port", "0", "--workers", "0"]) == 2
    said = capsys.readouterr().err
    assert "cudaops token add NAME" in said
    assert len(said.splitlines()) == 1
    monkeypatch.setenv("CUDAOPS_ADMIN_TOKEN", "short")
    assert run_command(["serve", "--port", "0"]) == 2
    assert "CUDAOPS_ADMIN_TOKEN has fewer than 32" in capsys.readouterr().err
    monkeypatch.delenv("CUDAOPS_ADMIN_TOKEN")
    for options in (["--host", "no.such.host.invalid"], ["--public-url", "kernels/path"]):
        assert run_command(["serve", "--port", "0", "--workers", "0", *options]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_tokens_are_added_listed_and_removed(
    conninfo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", conninfo)
    assert run_command(["token", "add", "ci", "--scope", "read", "--days", "7"]) == 0
    token = capsys.readouterr().out.strip()
    assert re.fullmatch(r"cudaops_[\w-]{40,}", token)
    assert run_command(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ci" in listed
    assert "read" in listed
    assert token not in listed
    assert run_command(["token", "add", "ci"]) == 2
    assert "already" in capsys.readouterr().err
    for name in ("admin", "anyone", "a b", "", "x" * 65):
        assert run_command(["token", "add", "--", name]) == 2
    assert run_command(["token", "remove", "ci"]) == 0
    assert run_command(["token", "remove", "ci"]) == 2


def test_the_admin_token_of_the_environment_opens_it_to_others(conninfo: str) -> None:
    token = "t" * 40
    with serving(
        conninfo, "--host", "0.0.0.0", "--workers", "0", env={"CUDAOPS_ADMIN_TOKEN": token}
    ) as served:
        address = served.address.replace("0.0.0.0", "127.0.0.1")
        assert "asks for tokens" in served.said
        assert httpx.get(f"{address}/jobs").status_code == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/jobs", headers=bearer).json() == []


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_every_example_of_the_page_runs_and_a_dead_worker_is_replaced(
    conninfo: str, tmp_path: Path
) -> None:
    with serving(conninfo, env={"CUDAOPS_SERVICE_FOLDER": str(tmp_path)}) as served:
        (first,) = served.workers()
        first.kill()
        deadline = time.monotonic() + DEADLINE_S
        while not [w for w in served.workers() if w.pid != first.pid]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        paths = served.http.get("/openapi.json").json()["paths"]
        waiting = {}
        for kind in EXAMPLES:
            content = paths[f"/{kind}"]["post"]["requestBody"]["content"]["application/json"]
            for name, example in content["examples"].items():
                answer = served.http.post(f"/{kind}", json=example["value"])
                assert answer.status_code == 202, answer.text
                waiting[kind, name] = answer.headers["location"]
        jobs = {key: _ended(served, where) for key, where in waiting.items()}
        for (kind, name), job in jobs.items():
            assert job.status == "succeeded", (kind, name, job.problem)
            assert isinstance(job.result, RESULTS[kind]), (kind, name)
            assert str(tmp_path) not in job.model_dump_json()
        assert jobs["verify", "rewrite"].outcome == "provisional"
        (worker,) = served.workers()
    assert not worker.is_running()


def _ended(served: Served, where: str) -> Job:
    deadline = time.monotonic() + JOB_DEADLINE_S
    while True:
        job = Job.model_validate_json(served.http.get(where).text)
        if job.ended_at is not None:
            return job
        assert time.monotonic() < deadline, job.status
        time.sleep(0.2)
