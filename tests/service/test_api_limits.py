"""Clients that are slow, too many, or ask too often: given up or told to wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from cudaops.service.auth import ServiceOptions
from tests.service.api_server import DEADLINE_S, Api, open_to_all, read_all, running
from tests.service.test_api_jobs import refused


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    """With limits that a test reaches soon."""
    options = open_to_all(stall_seconds=1, slow_window_seconds=1, min_body_bytes_per_second=1000)
    with running(new_database(), options) as found:
        yield found


HEAD = (
    b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100000\r\n\r\n"
)


def test_a_body_that_stops_is_given_up(api: Api) -> None:
    with api.connect() as connection:
        connection.sendall(HEAD + b'{"source"')
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_drips_is_given_up(api: Api) -> None:
    with api.connect() as connection:
        connection.sendall(HEAD)
        deadline = time.monotonic() + 60
        connection.settimeout(0.2)
        answer = b""
        while not answer:
            assert time.monotonic() < deadline
            connection.sendall(b"x")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_headers_that_drip_are_cut(api: Api) -> None:
    with api.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert read_all(connection) == b""
    with api.connect() as connection:  # nothing at all
        assert read_all(connection) == b""


def test_a_body_nobody_reads_does_not_hold_a_connection(api: Api) -> None:
    with api.connect() as connection:
        connection.sendall(HEAD.replace(b"application/json", b"text/plain"))
        assert read_all(connection).startswith(b"HTTP/1.1 415 ")


def test_a_token_or_address_may_ask_so_often(conninfo: str) -> None:
    options = ServiceOptions(version="0", reads_per_minute=5, submits_per_minute=2)
    with running(conninfo, options) as api:
        ann, bob = api.token("ann", "run"), api.token("bob", "run")
        assert [api.http.get("/jobs", headers=ann).status_code for _ in range(5)] == [200] * 5
        late = api.http.get("/jobs", headers=ann)
        refused(late, 429)
        assert 1 <= int(late.headers["retry-after"]) <= 60
        assert api.http.get("/jobs", headers=bob).status_code == 200
        sent = [api.http.post("/run", json={"source": "x"}, headers=ann) for _ in range(3)]
        assert [answer.status_code for answer in sent] == [202, 202, 429]
        strangers = [api.http.get("/jobs").status_code for _ in range(6)]
        assert strangers == [401] * 5 + [429]
        assert api.http.get("/jobs", headers=bob).status_code == 200


def test_too_many_at_once_are_told_so(conninfo: str) -> None:
    with running(conninfo, open_to_all(max_requests=1)) as api:
        id = api.submit()
        with api.http.stream("GET", f"/jobs/{id}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            with httpx.Client(base_url=api.address) as other:
                busy = other.get("/jobs")
            refused(busy, 503)
            assert busy.headers["retry-after"]


def test_one_address_leaves_connections_to_others(conninfo: str) -> None:
    with running(conninfo, open_to_all(max_connections=6)) as api:
        port = httpx.URL(api.address).port
        with ExitStack() as silent:
            for _ in range(6):
                connection = socket.create_connection(("127.0.0.1", port))
                silent.enter_context(connection)
                connection.settimeout(DEADLINE_S)
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"{api.address}/healthz")
            transport = httpx.HTTPTransport(local_address="127.0.0.2")
            with httpx.Client(transport=transport, base_url=api.address) as other:
                assert other.get("/healthz").status_code == 200
        deadline = time.monotonic() + DEADLINE_S
        while True:  # until it has noticed that they are gone
            try:
                assert httpx.get(f"{api.address}/healthz").status_code == 200
                break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
