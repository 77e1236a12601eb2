"""A job's events over HTTP: what was, what comes, its end, and going on after a cut."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

import httpx
import psycopg

from cudaops.service.auth import ServiceOptions
from cudaops.service.records import CompileResult, JobEvent, JobSummary
from tests.service.api_server import DEADLINE_S, Api, open_to_all, running

DONE = CompileResult(ok=True, message="g++")
Block = dict[str, str]


def blocks(lines: Iterator[str]) -> Iterator[Block]:
    """Events as a browser reads them; a comment is one with the key `comment`."""
    found: Block = {}
    for line in lines:
        if not line:
            if found:
                yield found
            found = {}
        else:
            name, _, value = line.partition(": ")
            found[name or "comment"] = value


@contextmanager
def following(api: Api, id: UUID, **asked: object) -> Iterator[Iterator[Block]]:
    params = {key: str(value) for key, value in asked.items() if key == "after"}
    headers = {"Last-Event-ID": str(asked["last"])} if "last" in asked else {}
    with api.http.stream("GET", f"/jobs/{id}/events", params=params, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield blocks(answer.iter_lines())


def test_a_stream_replays_goes_on_live_and_ends(conninfo: str) -> None:
    with running(conninfo) as api:
        id = api.submit()
        with following(api, id) as events:
            first = next(events)
            assert (first["event"], first["id"]) == ("status", "1")
            assert JobEvent.model_validate_json(first["data"]).message == "queued"
            worker = threading.Thread(
                target=api.work, args=(id,), kwargs={"result": DONE, "says": ["a", "ü\n"]}
            )
            worker.start()
            rest = list(events)
            worker.join()
        assert [json.loads(b["data"])["message"] for b in rest[:-1]] == [
            "running", "a", "ü\n", "succeeded",
        ]  # fmt: skip
        assert [int(b["id"]) for b in rest[:-1]] == [2, 3, 4, 5]
        assert rest[-1]["event"] == "end"
        assert JobSummary.model_validate_json(rest[-1]["data"]).status == "succeeded"


def test_a_reader_goes_on_after_the_last_event_it_saw(conninfo: str) -> None:
    with running(conninfo) as api:
        id = api.submit()
        api.work(id, result=DONE, says=[str(n) for n in range(1200)])
        for asked in ({"after": 1200}, {"last": 1200}, {"after": 1200, "last": 3}):
            with following(api, id, **asked) as events:
                found = list(events)
            assert [b.get("id") for b in found] == ["1201", "1202", "1203", None]
        with following(api, id) as events:
            assert sum(1 for _ in events) == 1204
        with following(api, id, after=999_999) as events:
            assert [b["event"] for b in events] == ["end"]
        for bad in ("-1", "x", "1" * 30):
            answer = api.http.get(f"/jobs/{id}/events", headers={"Last-Event-ID": bad})
            assert answer.status_code == 422


def test_a_silent_stream_says_that_it_is_alive_and_is_cut_in_the_end(conninfo: str) -> None:
    options = open_to_all(keep_alive_seconds=0.05, max_stream_seconds=1.0)
    with running(conninfo, options) as api, following(api, api.submit()) as events:
        found = list(events)
    assert found[0]["event"] == "status"
    assert {"comment": "keep-alive"} in found
    assert all(block.get("event") != "end" for block in found)


def test_a_stream_ends_when_the_service_drains(conninfo: str) -> None:
    with running(conninfo) as api:
        id = api.submit()
        seen: list[Block] = []
        started = threading.Event()

        def read() -> None:
            address = f"{api.address}/jobs/{id}/events"
            with httpx.stream("GET", address, timeout=DEADLINE_S) as answer:
                for block in blocks(answer.iter_lines()):
                    seen.append(block)
                    started.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert started.wait(DEADLINE_S)
    reader.join(DEADLINE_S)
    assert not reader.is_alive()
    assert [block["event"] for block in seen] == ["status"]


def test_many_readers_share_few_connections_and_too_many_are_refused(conninfo: str) -> None:
    readers = 40
    with running(conninfo, open_to_all(max_streams=readers)) as api:
        id = api.submit()
        ended: list[str] = []
        started = threading.Semaphore(0)

        def read() -> None:
            address = f"{api.address}/jobs/{id}/events"
            with httpx.stream("GET", address, timeout=DEADLINE_S) as answer:
                for block in blocks(answer.iter_lines()):
                    started.release()
                    if block["event"] == "end":
                        ended.append(block["data"])

        threads = [threading.Thread(target=read) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for _ in range(readers):
            assert started.acquire(timeout=DEADLINE_S)
        refused = api.http.get(f"/jobs/{id}/events")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        waiting = api.http.post("/run", json={"source": "x"}, headers={"Prefer": "wait=5"})
        assert waiting.status_code == 202, "it is kept, and its address must be known"
        assert waiting.headers["location"] == f"/jobs/{waiting.json()['id']}"
        assert "preference-applied" not in waiting.headers
        with psycopg.connect(conninfo) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            ).fetchone()
        assert row is not None
        assert row[0] < readers / 2
        api.work(id, result=DONE)
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(ended) == readers
        with following(api, id) as events:
            assert list(events)[-1]["event"] == "end"


def test_one_token_leaves_streams_to_others(conninfo: str) -> None:
    with running(conninfo, ServiceOptions(version="0", max_streams=2)) as api:
        ann, bob = api.token("ann", "run"), api.token("bob", "run")
        ids = [api.submit(headers=who) for who in (ann, bob)]

        def follow(who: dict[str, str], id: UUID) -> AbstractContextManager[httpx.Response]:
            address = f"{api.address}/jobs/{id}/events"
            return httpx.stream("GET", address, headers=who, timeout=DEADLINE_S)

        with follow(ann, ids[0]) as first:
            assert first.status_code == 200
            with follow(ann, ids[0]) as second:
                assert second.status_code == 503
            with follow(bob, ids[1]) as other:
                assert other.status_code == 200
