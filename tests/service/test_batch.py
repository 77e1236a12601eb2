"""`cudaops batch` and `/batches`: many programs as jobs of a real service, each ended once,
whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import psycopg
import pytest
from psycopg.rows import dict_row

from cudaops.cli.boundary import (
    EXIT_ENVIRONMENT,
    EXIT_FOUND,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    run_command,
)
from cudaops.domain.batch import Batch
from cudaops.domain.run import RunRecord
from cudaops.service.batch import PAGE, RECORD, STATE, BatchItem, BatchState
from cudaops.service.records import BATCH_EXAMPLE, MAX_PROGRAMS, OptimizeRequest, Problem
from tests.service.api_server import SOURCE, Api, open_to_all, running
from tests.service.remote_service import RemoteService, wait_for
from tests.service.test_api_jobs import RECORDED, refused
from tests.service.workers import HEADERS, MATMUL

pytestmark = [pytest.mark.timeout(900)]

QUICK = ("--executor", "cpu", "--optimizer", "recipes", "--max-iterations", "1", "--seed", "7")
NOTHING = ("--budget-minutes", "0")
"""A run that profiles and tries nothing."""
SCALE = """\
#include <cstdio>
#include <cstdlib>
__global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
__global__ void shift(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}
int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 512;
  float* x;
  cudaMallocManaged(&x, n * 4);
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  scale<<<(n + 127) / 128, 128>>>(x, 3.0f, n);
  shift<<<(n + 127) / 128, 128>>>(x, 1.0f, n);
  cudaDeviceSynchronize();
  std::printf("%f\\n", x[n - 1]);
  return 0;
}
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Four that a service is asked for, one of which does not compile; one that is no CUDA, and one
    that is no program."""
    folder = tmp_path / "programs"
    files = {
        "broken.cu": SCALE.replace("float by, int n", "float by int n"),
        "host.cu": "int main() { return 0; }\n",
        "part.cu": SCALE.partition("int main")[0],
        "matmul/matmul.cu": MATMUL,
        "matmul/sizes.h": HEADERS["sizes.h"],
        "scale/scale.cu": SCALE,
        "scale/ARGS": "# one run\n640\n",
        "scale/shift.cu": SCALE.replace("512", "256"),
        ".hidden/scale.cu": SCALE,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def begun(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cudaops", "batch", *arguments],
        cwd=folder, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def done(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = begun(folder, *arguments, **environment)
    out, err = process.communicate(timeout=800)
    return process.returncode, out, err


def items_in(out: Path) -> tuple[BatchItem, ...]:
    """How far each program has come; empty before the batch has begun."""
    path = out / STATE
    return BatchState.model_validate_json(path.read_text()).items if path.exists() else ()


def record_in(out: Path) -> Batch:
    return Batch.model_validate_json((out / RECORD).read_text())


def asked(conninfo: str, query: str) -> list[dict[str, Any]]:
    options = "-c search_path=cudaops_service,cudaops_queue"
    with psycopg.connect(conninfo, options=options, row_factory=dict_row) as connection:
        return connection.execute(query).fetchall()


def raise_unless_each_ended_once(conninfo: str, jobs: int) -> None:
    """No job stands twice, and none was ended twice."""
    assert len(asked(conninfo, "SELECT id FROM jobs")) == jobs
    ends = asked(
        conninfo, "SELECT job FROM audit WHERE action IN ('succeeded', 'failed', 'cancelled')"
    )
    assert sorted(Counter(row["job"] for row in ends).values()) == [1] * jobs


def test_a_folder_killed_in_the_middle_ends_every_program_once(
    conninfo: str, programs: Path, tmp_path: Path
) -> None:
    out, where = tmp_path / "out", {"DATABASE_URL": conninfo}
    command = ("programs", *QUICK, "--max-trials", "3", "--out", "out")
    first = begun(tmp_path, *command, **where)
    # One has ended, another is worked on: by then all are in the queue.
    wait_for(
        lambda: (
            first.poll() is not None
            or (
                any(item.row and item.job for item in items_in(out))
                and bool(asked(conninfo, "SELECT id FROM jobs WHERE status = 'running'"))
            )
        )
    )
    assert first.poll() is None, first.communicate()
    service = psutil.Process(first.pid).children()
    first.kill()
    first.communicate()
    psutil.wait_procs(service, timeout=120)
    assert not any(each.is_running() for each in service)
    before = {item.name: item.row for item in items_in(out) if item.row}
    assert 0 < len(before) < 5

    code, told, said = done(tmp_path, *command, **where)
    assert code == EXIT_FOUND, said
    raise_unless_each_ended_once(conninfo, jobs=4)
    batch = record_in(out)
    rows = {row.program: row for row in batch.rows}
    assert {name: row.outcome for name, row in rows.items()} == {
        "broken.cu": "wrong_input", "host.cu": "wrong_input", "matmul/matmul.cu": "provisional",
        "scale/scale.cu": "nothing_found", "scale/shift.cu": "nothing_found",
    }  # fmt: skip
    for row in before.values():
        assert row in batch.rows, "what had ended is as it was"
    for name in before:
        assert f": {name} " not in said, "and was not done again"
    assert "must compile" in rows["broken.cu"].reason
    assert rows["host.cu"].job is None
    results = out / "matmul_matmul"
    assert {"best.cu", "best.patch", "run.json", "report.html", "certificate.json"} <= {
        path.name for path in results.iterdir()
    }
    found = RunRecord.model_validate_json((results / "run.json").read_text())
    assert rows["matmul/matmul.cu"].speedup == found.verify.speedup
    scaled = RunRecord.model_validate_json((out / "scale_scale" / "run.json").read_text())
    assert scaled.options.argument_lines == ("640",)
    page = (out / PAGE).read_text()
    assert 'href="matmul_matmul/report.html"' in page
    assert "<script" not in page
    assert "(modelled for A10)" in told
    assert "5 programs: " in told
    assert "part.cu" in told + said

    again = done(tmp_path, *command, **where)
    assert (again[0], again[1]) == (EXIT_FOUND, told)
    for words, change in (
        (command, lambda: (programs / "scale/scale.cu").write_text(SCALE.replace("3.0f", "5.0f"))),
        ((*command, "--min-speedup", "1.1"), lambda: None),
    ):
        change()
        code, _, said = done(tmp_path, *words, **where)
        assert code == EXIT_INPUT
        (line,) = [line for line in said.splitlines() if "other programs or options" in line]
        assert "name another --out" in line
    raise_unless_each_ended_once(conninfo, jobs=4)


@pytest.mark.deep
@pytest.mark.parametrize("queue", ["kept", "lost"])
def test_nothing_is_lost_where_service_and_workers_are_killed_too(
    conninfo: str, programs: Path, tmp_path: Path, queue: str
) -> None:
    """`lost`: as where the batch goes on from its folder on another machine."""
    where = {"DATABASE_URL": conninfo}
    command = ("programs", *QUICK, "--max-trials", "3", "--out", "out", "--jobs", "2")
    first = begun(tmp_path, *command, **where)
    running_now = "SELECT id FROM jobs WHERE status = 'running'"
    wait_for(
        lambda: (
            first.poll() is not None
            or (
                any(item.job for item in items_in(tmp_path / "out"))
                and len(asked(conninfo, running_now)) == 2
            )
        )
    )
    below = psutil.Process(first.pid).children(recursive=True)
    for process in (psutil.Process(first.pid), *below):
        process.kill()
    first.communicate()
    had_ended = sum(bool(item.row and item.job) for item in items_in(tmp_path / "out"))
    if queue == "lost":
        options = "-c search_path=cudaops_service,cudaops_queue"
        with psycopg.connect(conninfo, options=options, autocommit=True) as connection:
            connection.execute("TRUNCATE jobs CASCADE")
    code, _, said = done(tmp_path, *command, **where)
    assert code == EXIT_FOUND, said
    assert record_in(tmp_path / "out").ended
    if queue == "kept":
        raise_unless_each_ended_once(conninfo, jobs=4)
    else:
        assert len(asked(conninfo, "SELECT id FROM jobs")) == 4 - had_ended


def test_a_list_at_a_running_service(
    remote_service: RemoteService, programs: Path, tmp_path: Path
) -> None:
    lines = [
        "# what is worth it",
        "scale/scale.cu --kernel shift -- 384",
        "scale/scale.cu --args 'judged: 100' --args 'timed: 384'",
        json.dumps({"program": "scale/shift.cu", "kernel": "scale", "min_speedup": 3.0}),
        "",
    ]
    (programs / "list.txt").write_text("\n".join(lines))
    command = ("programs/list.txt", *QUICK, *NOTHING, "--server", remote_service.address, "--json")
    code, told, said = done(tmp_path, *command)
    assert code == EXIT_FOUND, said
    batch = Batch.model_validate_json(told)
    assert [(row.program, row.kernel) for row in batch.rows] == [
        ("scale/scale.cu", "shift"), ("scale/scale.cu", batch.rows[1].kernel),
        ("scale/shift.cu", "scale"),
    ]  # fmt: skip
    out = tmp_path / "batches" / "list"
    assert record_in(out) == batch
    options = [
        RunRecord.model_validate_json((out / str(row.report)).with_name("run.json").read_text())
        for row in batch.rows
    ]
    first, second, third = (record.options for record in options)
    assert first.argv == ("384",)
    assert second.argument_lines == ("judged: 100", "timed: 384")
    assert (first.policy.min_speedup, third.policy.min_speedup) == (1.2, 3.0)
    assert {each.budget_minutes for each in (first, second, third)} == {0.0}
    code, _, said = done(tmp_path, *command[:-3])
    assert code == EXIT_INPUT
    assert f"was started at {remote_service.address}" in said


@pytest.mark.deep
def test_ctrl_c_leaves_the_jobs_to_a_service_and_the_same_command_goes_on(
    remote_service: RemoteService, programs: Path, tmp_path: Path
) -> None:
    command = (
        "programs/scale", *QUICK, *NOTHING, "--kernels", "all",
        "--server", remote_service.address, "--out", "out",
    )  # fmt: skip
    first = begun(tmp_path, *command)
    wait_for(
        lambda: (
            first.poll() is not None
            or len([item for item in items_in(tmp_path / "out") if item.job]) == 4
        )
    )
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == EXIT_INTERRUPTED, said
    assert "the service continues" in said
    code, _, said = done(tmp_path, *command)
    assert code == EXIT_FOUND, said
    batch = record_in(tmp_path / "out")
    assert [(row.program, row.kernel) for row in batch.rows] == [
        ("scale.cu", "scale"), ("scale.cu", "shift"), ("shift.cu", "scale"), ("shift.cu", "shift"),
    ]  # fmt: skip
    assert {row.job for row in batch.rows} == {i.job for i in items_in(tmp_path / "out")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere: no such folder or list"),
        (("empty",), "empty: there is no .cu file with a `main` below it"),
        (("nothing.txt",), "nothing.txt names no program"),
        (("gone.txt",), "gone.txt:1: gone.cu: no such file"),
        (("flag.txt",), "flag.txt:2: No such option: --kernal"),
        (("bound.txt",), "bound.txt:1: "),
        (("json.txt",), "json.txt:1: it is not JSON"),
        (("unnamed.txt",), "unnamed.txt:1: `program` is missing"),
        (("unknown.txt",), "unknown.txt:1: kernal: Unexpected keyword argument"),
        (("programs", "--executor", "remote"), "name it with --server"),
        (
            ("programs", "--jobs", "2", "--server", "http://127.0.0.1:9"),
            "--jobs is for the temporary service",
        ),
        (("programs", "--timeout", "601"), "timeout_seconds"),
        (("programs", "--device", "A11"), "unknown device 'A11'"),
        (("programs", "--out", "programs"), "is not empty and holds no batch"),
        (("programs", "--server", "127.0.0.1:9"), "must be the address of a service"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_done(
    programs: Path, tmp_path: Path, words: tuple[str, ...], said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    for name, text in {
        "nothing.txt": "# nothing\n",
        "gone.txt": "gone.cu\n",
        "flag.txt": "programs/host.cu\nprograms/host.cu --kernal k\n",
        "bound.txt": "programs/host.cu --max-iterations 99\n",
        "json.txt": "{program}\n",
        "unnamed.txt": "{}\n",
        "unknown.txt": '{"program": "programs/host.cu", "kernal": "k"}\n',
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run_command(["batch", *words]) == EXIT_INPUT
    *progress, problem = capsys.readouterr().err.splitlines()
    assert said in problem
    assert all("skipped" in line or "to do" in line for line in progress)
    assert not (tmp_path / "batches").exists()


def test_nobody_at_the_address_is_an_environment_and_nothing_is_lost(
    programs: Path, tmp_path: Path
) -> None:
    command = ("programs/scale", "--out", "out", "--server", "http://127.0.0.1:9")
    (tmp_path / "out" / "state").mkdir(parents=True)  # as one leaves it that was killed at once
    (tmp_path / "out" / "state" / ".lock").touch()
    code, _, said = done(tmp_path, *command)
    assert code == EXIT_ENVIRONMENT
    assert "does not answer correctly" in said
    assert "the same command continues" in said
    assert not any(item.job or item.row for item in items_in(tmp_path / "out"))


# Over HTTP.


@pytest.fixture(scope="module")
def api(new_database: Any) -> Iterator[Api]:
    with running(new_database(), open_to_all()) as found:
        yield found


def posted(api: Api, *programs: dict[str, Any], **more: Any) -> Batch:
    headers = more.pop("headers", {})
    body = {"programs": [{"source": SOURCE, **each} for each in programs], **more}
    answer = api.http.post("/batches", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/batches/{answer.json()['id']}"
    return Batch.model_validate_json(answer.content)


def seen(api: Api, id: UUID, **headers: str) -> Batch:
    return Batch.model_validate_json(api.http.get(f"/batches/{id}", headers=headers).content)


def test_options_are_shared_and_a_program_s_own_go_first(api: Api) -> None:
    batch = posted(
        api, {"filename": "a.cu"}, {"filename": "b.cu", "min_speedup": 3.0, "argv": ["1"]},
        options={"executor": "cpu", "min_speedup": 2.0, "max_iterations": 1},
    )  # fmt: skip
    assert [row.program for row in batch.rows] == ["a.cu", "b.cu"]
    kept = [api.ask(lambda store, id=row.job: store.request(id)) for row in batch.rows]  # type: ignore[misc]
    assert kept == [
        OptimizeRequest(source=SOURCE, filename=name, executor="cpu", max_iterations=1, **own)
        for name, own in (
            ("a.cu", {"min_speedup": 2.0}), ("b.cu", {"min_speedup": 3.0, "argv": ("1",)})
        )
    ]  # fmt: skip


def test_rows_and_counts_follow_the_jobs(api: Api) -> None:
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))
    batch = posted(api, *({"filename": f"{n}.cu", "executor": "cpu"} for n in range(5)))
    assert batch.counts == {"queued": 5}
    jobs = [row.job for row in batch.rows]
    assert all(jobs)
    api.work(jobs[0], result=record)  # type: ignore[arg-type]
    wrong, broke = (Problem(title="x", status=s, detail=f"says {s}") for s in (422, 503))
    api.work(jobs[1], "failed", problem=wrong)  # type: ignore[arg-type]
    api.work(jobs[2], "failed", problem=broke)  # type: ignore[arg-type]
    api.http.post(f"/jobs/{jobs[3]}/cancel")
    batch = seen(api, batch.id)
    assert batch.counts == {
        record.outcome: 1, "wrong_input": 1, "failed": 1, "cancelled": 1, "queued": 1,
    }  # fmt: skip
    first = batch.rows[0]
    assert record.program is not None
    assert (first.kernel, first.outcome, first.reason) == (
        record.program.kernel, record.outcome, record.reason,
    )  # fmt: skip
    assert (first.speedup, first.device) == (record.verify.speedup, record.device)
    assert first.report == f"/jobs/{jobs[0]}/report"
    assert [row.reason for row in batch.rows[1:3]] == ["says 422", "says 503"]
    assert "a worker" in batch.rows[4].reason
    page = api.http.get(f"/batches/{batch.id}/report")
    assert f'href="/jobs/{jobs[0]}/report"' in page.text
    assert "Some programs are still running" in page.text
    assert "sandbox" in page.headers["content-security-policy"]
    api.ask(lambda store: store.forget(0))
    assert seen(api, batch.id).counts == {"queued": 1}, "jobs that are forgotten are in no batch"
    api.http.post(f"/jobs/{jobs[4]}/cancel")
    api.ask(lambda store: store.forget(0))
    refused(api.http.get(f"/batches/{batch.id}"), 404)


def test_sent_again_it_is_the_same_batch(api: Api) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    first = posted(api, {"filename": "a.cu"}, headers=key)
    again = api.http.post(
        "/batches", json={"programs": [{"source": SOURCE, "filename": "a.cu"}]}, headers=key
    )
    assert Batch.model_validate_json(again.content) == first
    assert again.headers["idempotent-replayed"] == "true"
    other = {"programs": [{"source": SOURCE, "filename": "b.cu"}]}
    refused(api.http.post("/batches", json=other, headers=key), 422)


def test_a_batch_is_its_owner_s(conninfo: str) -> None:
    with running(conninfo, open_to_all(tokens="always")) as api:
        ann, ben = api.token("ann", "run"), api.token("ben", "run")
        chief, reader = api.token("chief", "admin"), api.token("reader", "read")
        batch = posted(api, {}, headers=ann)
        assert seen(api, batch.id, **chief) == seen(api, batch.id, **ann) == batch
        refused(api.http.get(f"/batches/{batch.id}", headers=ben), 404)
        refused(api.http.get(f"/batches/{batch.id}/report", headers=ben), 404)
        refused(api.http.post("/batches", json={"programs": []}, headers=reader), 403)


def test_limits_are_those_of_jobs(conninfo: str) -> None:
    options = open_to_all(submits_per_minute=5)
    with running(conninfo, options, max_queued=7) as api:
        posted(api, {}, {}, {})
        body = {"programs": [{"source": SOURCE}] * 3}
        late = api.http.post("/batches", json=body)
        refused(late, 429)
        assert int(late.headers["retry-after"]) > 50
        assert len(api.http.get("/jobs").json()) == 3
    with running(conninfo, open_to_all(), max_queued=7) as api:
        refused(api.http.post("/batches", json={"programs": [{"source": SOURCE}] * 5}), 503)
        assert len(api.http.get("/jobs").json()) == 3, "all or none"
        posted(api, *[{}] * 4)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"programs": []}, "/programs"),
        ({"programs": [{"source": "x"}] * (MAX_PROGRAMS + 1)}, "/programs"),
        ({"programs": [{"source": ""}]}, "/programs/0/source"),
        ({"programs": [{"source": "x"}], "options": {"kernel": "k"}}, "/options/kernel"),
        ({"programs": [{"source": "x"}], "options": {"executor": "remote"}}, "/options/executor"),
        ({}, "/programs"),
    ],
)
def test_a_wrong_request_names_the_field(api: Api, body: dict[str, Any], path: str) -> None:
    answer = api.http.post("/batches", json=body)
    refused(answer, 422)
    assert answer.json()["errors"][0]["path"] == path


def test_the_example_of_the_page_is_taken_and_a_form_is_not(api: Api) -> None:
    document = api.http.get("/openapi.json").json()
    content = document["paths"]["/batches"]["post"]["requestBody"]["content"]
    assert list(content) == ["application/json"]
    assert content["application/json"]["examples"]["bars"] == BATCH_EXAMPLE
    answer = api.http.post("/batches", json=BATCH_EXAMPLE["value"])
    assert len(Batch.model_validate_json(answer.content).rows) == 2
    refused(api.http.post("/batches", files={"source": ("a.cu", "x")}), 415)
