"""Every operation of the OpenAPI document, asked rightly and wrongly by schemathesis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cudaops.domain.run import RunRecord
from cudaops.service.records import CompileResult, JobKind, Problem
from tests.service.api_server import Api, open_to_all, running
from tests.service.test_api_jobs import RECORDED, PlainReports

ADMIN = "a" * 40
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
LEFT = {
    "run.json": ("application/json", b"{}"),
    "iterations/01/candidate.cu": ("text/plain", b"x"),
}


@contextmanager
def jobs_being_done(api: Api) -> Iterator[None]:
    """Ends whatever is queued, as a worker would: some with a result, some without."""
    stopping = threading.Event()
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))

    def work() -> None:
        while not stopping.wait(0.05):
            api.ask(lambda store: store.beat("w", ("cpu",), None, "0", {}))
            for job in api.ask(lambda store: store.jobs(owner=None, status="queued")):
                end(job.id, job.kind)

    def end(id: object, kind: JobKind) -> None:
        try:
            if kind == "optimize":
                api.work(id, result=record, leaves=LEFT)  # type: ignore[arg-type]
            elif kind == "compile":
                api.work(id, result=CompileResult(ok=True, message="g++"))  # type: ignore[arg-type]
            else:
                problem = Problem(title="wrong", status=422)
                api.work(id, "failed", problem=problem, says=["x"])  # type: ignore[arg-type]
        except AssertionError:
            return  # it was cancelled meanwhile

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stopping.set()
        worker.join()


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    options = open_to_all(tokens="always", admin_token=ADMIN, max_stream_seconds=0.2)
    with running(new_database(), options, renderer=PlainReports()) as found, jobs_being_done(found):
        yield found


def examine(api: Api, folder: Path, body: str, *options: str) -> int:
    """How many operations were tested; fails with what was found."""
    settings = f'[auth.openapi.token]\nbearer = "{ADMIN}"\n'
    (folder / "schemathesis.toml").write_text(settings, encoding="utf-8")
    ran = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"{api.address}/openapi.json",
            "--seed", "20261122", "--request-timeout", "60", "--generation-database", "none",
            "--no-color", "--continue-on-failure", *options,
        ],
        capture_output=True, text=True, cwd=folder, timeout=840, check=False,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "TESTED_BODY": body},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    found = re.search(r"Tested: (\d+)", ran.stdout)
    assert found, ran.stdout[-2000:]
    return int(found[1])


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_no_fault_and_no_breach_of_the_schema(api: Api, tmp_path: Path) -> None:
    """All checks of every operation: examples, coverage, fuzzing and chains of requests."""
    assert examine(api, tmp_path, "application/json", "--max-examples", "3") >= 17


@pytest.mark.timeout(900)
def test_forms_make_no_fault_either(api: Api, tmp_path: Path) -> None:
    """Every answer is one of the document; what is taken is the same code for all six."""
    found = examine(
        api, tmp_path, "multipart/form-data", "--include-path-regex", "^/(compile|verify)$",
        "--exclude-checks", "positive_data_acceptance,negative_data_rejection",
        "--phases", "coverage,fuzzing", "--max-examples", "10",
    )  # fmt: skip
    assert found == 2
