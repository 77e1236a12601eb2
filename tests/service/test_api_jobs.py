"""Starting, seeing, waiting for and cancelling jobs over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from cudaops.domain.run import RunRecord
from cudaops.program.plans import make_rewrite
from cudaops.service.records import (
    REQUESTS,
    CompileResult,
    Job,
    JobSummary,
    Problem,
    VerifyRequest,
)
from cudaops.service.routes_artefacts import run_events
from cudaops.service.routes_confirm import with_values
from cudaops.service.routes_jobs import wait_seconds
from tests.service.api_server import DEADLINE_S, SOURCE, Api, event, open_to_all, running

DIALOGUES = Path(__file__).parents[2] / "examples" / "recorded" / "dialogues"
RECORDED = DIALOGUES / "invert8" / "run.json"
DONE = CompileResult(ok=True, message="g++ 12")


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    with running(new_database()) as found:
        yield found


def refused(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert Problem.model_fields.keys() >= problem.keys() - {"errors"}
    assert problem["status"] == status
    return problem


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_job_is_accepted_kept_and_found_again(api: Api, kind: str) -> None:
    body = {"source": SOURCE, **({"candidate": "x"} if kind == "verify" else {})}
    answer = api.http.post(f"/{kind}", json=body)
    assert answer.status_code == 202
    job = Job.model_validate_json(answer.text)
    assert (job.kind, job.status, job.owner) == (kind, "queued", "anyone")
    assert answer.headers["location"] == f"/jobs/{job.id}"
    found = Job.model_validate_json(api.http.get(answer.headers["location"]).text)
    assert found == job
    kept = api.ask(lambda store: store.request(job.id))
    assert kept is not None
    assert kept.source == SOURCE


@pytest.mark.parametrize(
    ("given", "status"), [("2", 202), ("2.0", 202), ("2.5", 422), ('"2"', 422), ("true", 422)]
)
def test_a_whole_number_is_what_json_schema_says(api: Api, given: str, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    body = f'{{"source": "x", "max_iterations": {given}}}'
    answer = api.http.post("/optimize", content=body, headers=headers)
    assert answer.status_code == status, answer.text


def test_the_result_and_a_failure_come_with_the_job(api: Api) -> None:
    good, bad = api.submit(), api.submit()
    api.work(good, result=DONE)
    api.work(bad, "failed", problem=Problem(title="wrong", status=422, detail="say it so"))
    assert Job.model_validate_json(api.http.get(f"/jobs/{good}").text).result == DONE
    failed = Job.model_validate_json(api.http.get(f"/jobs/{bad}").text)
    assert failed.status == "failed"
    assert failed.problem is not None
    assert failed.problem.detail == "say it so"


def test_prefer_wait_answers_with_the_finished_job(api: Api) -> None:
    def work_soon() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            (newest,) = api.ask(lambda store: store.jobs(owner=None, limit=1)) or (None,)
            if newest is not None and newest.filename == "waited_for.cu":
                break
            assert time.monotonic() < deadline
        api.work(newest.id, result=DONE)

    worker = threading.Thread(target=work_soon)
    worker.start()
    headers = {"Prefer": "respond-async, wait=60"}
    body = {"source": SOURCE, "filename": "waited_for.cu"}
    answer = api.http.post("/compile", json=body, headers=headers)
    worker.join()
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=60"
    assert answer.json()["result"]["message"] == "g++ 12"


def test_prefer_wait_gives_up_with_202(api: Api) -> None:
    answer = api.http.post("/run", json={"source": SOURCE}, headers={"Prefer": "wait=0"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=0"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("wait=7", 7),
        ("respond-async,wait=7;x=y", 7),
        ("Wait = 999999", 60),
        ("wait=-1", None),
        ("wait=soon", None),
        ("await=7", None),
        (None, None),
    ],
)
def test_prefer_is_read_as_rfc_7240_says(said: str | None, seconds: int | None) -> None:
    assert wait_seconds(said) == seconds


def test_a_key_sent_again_gives_the_same_job(api: Api) -> None:
    def send(**body: str) -> httpx.Response:
        return api.http.post("/run", json=body, headers={"Idempotency-Key": "a-key"})

    first, again = send(source=SOURCE), send(source=SOURCE)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = refused(send(source=SOURCE + "//"), 422)
    assert other["type"] == "urn:cudaops:problem:key-reused"
    api.ask(lambda store: store.cancel(Job.model_validate_json(first.text).id))
    assert send(source=SOURCE).status_code == 200


@pytest.mark.parametrize("key", ["", "with space", "x" * 201, "caf\xe9"])
def test_a_key_is_short_visible_ascii(api: Api, key: str) -> None:
    sent = {b"Idempotency-Key": key.encode("latin-1")}
    refused(api.http.post("/run", json={"source": SOURCE}, headers=sent), 422)


def test_jobs_are_listed_by_kind_and_status_page_by_page(conninfo: str) -> None:
    with running(conninfo) as api:
        see_lists(api)


def see_lists(api: Api) -> None:
    ids = [str(api.submit("run")) for _ in range(3)] + [str(api.submit("compile"))]
    listed = api.http.get("/jobs", params={"kind": "run", "limit": 2})
    assert [job["id"] for job in listed.json()] == [ids[2], ids[1]]
    older = api.http.get(listed.links["next"]["url"])
    assert [job["id"] for job in older.json()] == [ids[0]]
    assert "next" not in older.links
    assert api.http.get("/jobs", params={"status": "running"}).json() == []
    newest = JobSummary.model_validate_json(json.dumps(api.http.get("/jobs").json()[0]))
    assert newest.kind == "compile"
    refused(api.http.get("/jobs", params={"before": str(uuid4())}), 404)
    refused(api.http.get("/jobs", params={"status": "odd"}), 422)


def test_cancel_says_whether_it_is_done(api: Api) -> None:
    id = api.submit()
    done = api.http.post(f"/jobs/{id}/cancel")
    assert (done.status_code, done.json()["status"]) == (200, "cancelled")
    taken = api.submit()
    api.ask(lambda store: store.claim(taken, "w", 60))
    asked = api.http.post(f"/jobs/{taken}/cancel")
    assert (asked.status_code, asked.json()["status"]) == (202, "running")


def test_nobody_sees_the_job_of_another(conninfo: str) -> None:
    with running(conninfo, open_to_all(tokens="always")) as closed:
        see_strangers(closed)


def see_strangers(closed: Api) -> None:
    ann, bob = closed.token("ann", "run"), closed.token("bob", "run")
    boss = closed.token("boss", "admin")
    id = closed.submit(headers=ann)
    closed.work(id, result=DONE, leaves={"run.json": ("application/json", b"{}")})
    paths = ["", "/events", "/artefacts", "/artefacts/run.json"]
    for path in paths:
        assert closed.http.get(f"/jobs/{id}{path}", headers=ann).status_code == 200
        assert closed.http.get(f"/jobs/{id}{path}", headers=boss).status_code == 200
        stranger = refused(closed.http.get(f"/jobs/{id}{path}", headers=bob), 404)
        nothing = refused(closed.http.get(f"/jobs/{uuid4()}{path}", headers=bob), 404)
        assert stranger == nothing
    refused(closed.http.post(f"/jobs/{id}/cancel", headers=bob), 404)
    refused(closed.http.get("/jobs", params={"before": str(id)}, headers=bob), 404)
    assert closed.http.get("/jobs", headers=bob).json() == []
    assert len(closed.http.get("/jobs", headers=boss).json()) == 1


def test_a_full_queue_says_so(conninfo: str) -> None:
    with running(conninfo, max_queued=1) as api:
        api.submit()
        answer = api.http.post("/run", json={"source": SOURCE})
        assert refused(answer, 503)["type"] == "urn:cudaops:problem:queue-full"
        assert int(answer.headers["retry-after"]) > 0


def test_artefacts_are_files_to_save_with_a_tag(api: Api) -> None:
    id = api.submit()
    leaves = {
        "best.cu": ("text/x-cuda", "// ü\n".encode()),
        "report.html": ("text/html", b"<script>"),
        'iterations/01/x y".cu': ("text/plain", b"1"),
        "shot.png": ("image/png", b"2"),
    }
    api.work(id, result=DONE, leaves=leaves)
    listed = api.http.get(f"/jobs/{id}/artefacts").json()
    assert [each["name"] for each in listed] == sorted(leaves)
    found = api.http.get(f"/jobs/{id}/artefacts/best.cu")
    assert found.text == "// ü\n"
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert found.headers["content-disposition"] == 'attachment; filename="best.cu"'
    tag = found.headers["etag"]
    again = api.http.get(f"/jobs/{id}/artefacts/best.cu", headers={"If-None-Match": f'"x", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    head = api.http.head(f"/jobs/{id}/artefacts/best.cu")
    assert (head.status_code, head.headers["content-length"]) == (200, "6")
    assert head.headers["etag"] == tag
    page = api.http.get(f"/jobs/{id}/artefacts/report.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]
    odd = api.http.get(f"/jobs/{id}/artefacts/iterations/01/x%20y%22.cu")
    assert odd.headers["content-disposition"] == 'attachment; filename="x_y_.cu"'
    image = api.http.get(f"/jobs/{id}/artefacts/shot.png")
    assert image.headers["content-type"] == "application/octet-stream"


class PlainReports:
    """Says what it was given."""

    def document(self, record: RunRecord, events: object) -> str:
        return f"<!doctype html><title>{record.run_id}</title>"

    def sections(self, record: RunRecord, events: object) -> str:
        return f"<section>{record.run_id}</section>"


def test_a_report_is_there_for_a_finished_run_record(conninfo: str) -> None:
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))
    with running(conninfo, renderer=PlainReports()) as api:
        id, compiled = api.submit("optimize"), api.submit("compile")
        refused(api.http.get(f"/jobs/{id}/report"), 409)
        api.work(id, result=record)
        api.work(compiled, result=DONE)
        page = api.http.get(f"/jobs/{id}/report")
        assert record.run_id in page.text
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src" not in page.headers["content-security-policy"]
        assert "default-src 'none'" in page.headers["content-security-policy"]
        part = api.http.get(f"/jobs/{id}/report", params={"fragment": "1"})
        assert part.text.startswith("<section>")
        refused(api.http.get(f"/jobs/{compiled}/report"), 404)


def test_what_a_job_kept_is_judged_again_as_a_new_job(api: Api) -> None:
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))
    assert record.best is not None
    assert record.program is not None
    id = api.submit("optimize", seed=7, min_speedup=1.5, filename="k.cu", max_iterations=2)
    refused(api.http.post(f"/jobs/{id}/confirm"), 409)
    api.work(id, result=record)
    answers = [
        api.http.post(f"/jobs/{id}/confirm", headers={"Idempotency-Key": "one-click"})
        for _ in range(2)
    ]
    assert [a.status_code for a in answers] == [202, 202]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    first, second = (Job.model_validate_json(a.text) for a in answers)
    assert first.id == second.id != id
    assert answers[0].headers["location"] == f"/jobs/{first.id}"
    assert (first.kind, first.filename) == ("verify", "k.cu")
    again = api.ask(lambda store: store.request(first.id))
    assert isinstance(again, VerifyRequest)
    assert (again.source, again.min_speedup) == (SOURCE, 1.5)
    assert again.kernel == record.program.kernel
    assert again.seed is None, "the inputs are new ones"
    assert again.candidate == with_values(record.best)
    api.http.post(f"/jobs/{first.id}/cancel")


def test_nothing_is_judged_again_that_was_not_kept(api: Api) -> None:
    record = RunRecord.model_validate_json(RECORDED.read_text("utf-8"))
    nothing, compiled = api.submit("optimize"), api.submit("compile")
    api.work(nothing, result=record.model_copy(update={"best": None}))
    api.work(compiled, result=DONE)
    for id in (nothing, compiled, uuid4()):
        refused(api.http.post(f"/jobs/{id}/confirm"), 404)


def test_tuned_values_are_the_only_ones_when_judged_again() -> None:
    source = (
        "// @tune TILE = 16, 32\n// @tune TILE_B = 4, 8\n"
        "// @launch k grid=(1) block=(TILE) args=(a)\n__global__ void k(float* a) {}\n"
    )
    text = with_values(make_rewrite(source, "user", "t", "w").tuned_with({"TILE": 32}))
    assert text.splitlines()[:2] == ["// @tune TILE = 32", "// @tune TILE_B = 4"]
    assert make_rewrite(text, "user", "t", "w").values() == {"TILE": 32, "TILE_B": 4}


def test_a_report_is_drawn_from_the_last_attempt() -> None:
    first = event("one").model_copy(update={"seq": 1})
    status = event("running").model_copy(update={"seq": 2, "kind": "status", "attempt": 2})
    second = event("two").model_copy(update={"seq": 3, "attempt": 2})
    assert [(e.seq, e.message) for e in run_events((first, status, second))] == [(0, "two")]
