"""What the service refuses, and how: callers, bodies, names, addresses, slow clients."""

from __future__ import annotations

import gzip
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator

import pytest

from cudaops.service.middleware import is_loopback_host
from cudaops.service.problems import KINDS
from cudaops.service.records import REQUESTS
from tests.service.api_server import SOURCE, Api, open_to_all, read_all, running
from tests.service.test_api_jobs import refused

SECRET = "a-source-that-must-not-come-back"
LIMIT = 200_000


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    """Open, with limits that a test reaches soon."""
    options = open_to_all(
        max_body_bytes=LIMIT, stall_seconds=1, slow_window_seconds=1, min_body_bytes_per_second=1000
    )
    with running(new_database(), options) as found:
        yield found


@pytest.fixture(scope="module")
def closed(new_database: Callable[[], str]) -> Iterator[Api]:
    with running(new_database(), open_to_all(tokens="always", admin_token="a" * 40)) as found:
        yield found


# -- callers ------------------------------------------------------------------------------------
def test_without_a_valid_token_everything_is_401_alike(closed: Api) -> None:
    gone = closed.token("gone", "admin")
    closed.ask(lambda store: store.remove_token("gone"))
    callers: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer cudaops_wrong"},
        {"Authorization": "Bearer " + "x" * 5000},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer"},
        gone,
    ]
    asked = [
        ("GET", "/jobs"),
        ("GET", "/metrics"),
        ("POST", "/batches"),
        *(("POST", f"/{kind}") for kind in REQUESTS),
    ]
    said = set()
    for method, path in asked:
        for headers in callers:
            answer = closed.http.request(method, path, headers=headers, json={"source": SOURCE})
            said.add(json.dumps(refused(answer, 401)))
            assert answer.headers["www-authenticate"] == 'Bearer realm="cudaops"'
    assert len(said) == 1
    assert not closed.ask(lambda store: store.jobs(owner=None))


def test_scopes_are_kept_apart(closed: Api) -> None:
    read, run = closed.token("reader", "read"), closed.token("runner", "run")
    for kind in REQUESTS:
        answer = closed.http.post(f"/{kind}", headers=read, json={"source": SOURCE})
        assert refused(answer, 403)["type"] == "urn:cudaops:problem:scope"
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    id = closed.submit(headers=run)
    refused(closed.http.post(f"/jobs/{id}/cancel", headers=read), 403)
    boss = {"Authorization": "Bearer " + "a" * 40}
    assert closed.http.post(f"/jobs/{id}/cancel", headers=boss).status_code == 200
    assert closed.http.get("/jobs", headers=read).status_code == 200


def test_pages_and_probes_need_no_token(closed: Api) -> None:
    for path in ("/healthz", "/version", "/docs", "/openapi.json", "/docs/style.css"):
        assert closed.http.get(path).status_code == 200


def test_a_service_that_asked_for_none_asks_once_there_is_one(conninfo: str) -> None:
    with running(conninfo) as api:
        api.submit()
        headers = api.token("ann", "run")
        wait_until(lambda: api.http.get("/jobs").status_code == 401)
        assert api.http.get("/jobs", headers=headers).json() == []
        api.ask(lambda store: store.remove_token("ann"))
        wait_until(lambda: api.http.get("/jobs", headers=headers).status_code == 401)


def wait_until(true: object) -> None:
    deadline = time.monotonic() + 60
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_a_page_of_another_origin_starts_nothing(api: Api, origin: str) -> None:
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    answer = api.http.post("/run", content=json.dumps({"source": SOURCE}), headers=headers)
    assert refused(answer, 403)["type"] == "urn:cudaops:problem:foreign-origin"
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked = api.http.options("/run", headers=preflight)
    read = api.http.get("/jobs", headers={"Origin": origin})
    for each in (answer, asked, read):
        assert not [name for name in each.headers if name.startswith("access-control")]


def test_the_own_page_may_ask(api: Api, conninfo: str) -> None:
    own = {"Origin": api.address}
    assert api.http.post("/run", json={"source": SOURCE}, headers=own).status_code == 202
    with running(conninfo, open_to_all(public_url="https://kernels.example.org/")) as behind:
        proxied = {"Origin": "https://kernels.example.org"}
        answer = behind.http.post("/run", json={"source": SOURCE}, headers=proxied)
        assert answer.status_code == 202


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_an_open_service_answers_to_no_foreign_name(api: Api, host: str) -> None:
    answer = api.http.get("/jobs", headers={"Host": host})
    assert refused(answer, 403)["type"] == "urn:cudaops:problem:foreign-host"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:8080", True),
        ("127.3.2.1", True),
        ("[::1]:8080", True),
        ("[::1", False),
        ("0.0.0.0", False),
        ("localhost.evil.example", False),
        ("evil@127.0.0.1", True),
        ("127.0.0.1@evil.example", False),
    ],
)
def test_loopback_names(host: str, own: bool) -> None:
    assert is_loopback_host(host) is own


# -- bodies -------------------------------------------------------------------------------------
def test_a_body_too_large_is_refused_while_it_comes(api: Api) -> None:
    big = json.dumps({"source": "x" * (LIMIT + 1)}).encode()
    sized = api.http.post("/run", content=big, headers={"Content-Type": "application/json"})
    refused(sized, 413)
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 65536
            yield b"x" * 65536

    chunked = api.http.post("/run", content=chunks(), headers={"Content-Type": "application/json"})
    refused(chunked, 413)
    form = api.http.post("/run", files={"source": ("a.cu", b"x" * (LIMIT + 1))})
    refused(form, 413)
    claimed = api.raw(
        b"POST /run HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99999999999999999999999\r\n\r\n"
    )
    assert claimed.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, gzip", "zstd"])
def test_compressed_bodies_are_not_opened(api: Api, coding: str) -> None:
    bomb = gzip.compress(b"0" * 10_000_000)
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    answer = api.http.post("/run", content=bomb, headers=headers)
    refused(answer, 415)
    assert answer.headers["accept-encoding"] == "identity"


def test_an_archive_is_no_source(api: Api) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.cu", "0" * 1_000_000)
    for content in (packed.getvalue(), gzip.compress(b"x"), b"\x7fELF\x00", "ü".encode("utf-16")):
        answer = api.http.post("/run", files={"source": ("a.cu", content)})
        assert refused(answer, 422)["type"] == "urn:cudaops:problem:not-source"


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "", "application/jsonx"])
def test_other_kinds_of_body_are_415(api: Api, kind: str) -> None:
    refused(api.http.post("/run", content=b"{}", headers={"Content-Type": kind}), 415)


BODIES = {
    "nothing": b"",
    "half": b'{"source": "x',
    "not utf-8": b'{"source": "\xff"}',
    "twice": b'{"source": "x", "source": "y"}',
    "deep": b"[" * 100_000,
    "deep object": b'{"source":' * 20_000,
    "nan": b'{"source": "x", "timeout_seconds": NaN}',
    "huge integer": b'{"source": "x", "timeout_seconds": ' + b"9" * 10_000 + b"}",
    "half a surrogate": b'{"source": "\\ud800"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_json_is_400(api: Api, name: str) -> None:
    headers = {"Content-Type": "application/json"}
    refused(api.http.post("/run", content=BODIES[name], headers=headers), 400)


FIELDS: dict[str, dict[str, object]] = {
    "an array": {"": [1]},
    "empty source": {"source": ""},
    "nul": {"source": SECRET + "\x00"},
    "nul in a header": {"files": {"a.h": "\x00"}},
    "nul in the device": {"device": "\x00"},
    "nul in argv": {"argv": ["\x00"]},
    "unknown": {"trust_source": True},
    "own path": {"out": "/tmp/x"},
    "infinity": {"timeout_seconds": 1e999},
    "large integer": {"seed": 2**62},
    "as text": {"max_iterations": "3"},
    "as truth": {"max_iterations": True},
    "above": {"filename": "../a.cu"},
    "absolute": {"filename": "/etc/passwd"},
    "escaped": {"filename": "%2e%2e%2fa.cu"},
    "backslash": {"filename": "..\\a.cu"},
    "line": {"filename": "a.cu\n"},
    "hidden": {"filename": ".bashrc"},
    "header above": {"files": {"../a.h": "x"}},
    "header inside above": {"files": {"a/../../b.h": "x"}},
    "header absolute": {"files": {"/a.h": "x"}},
    "header nul": {"files": {"a\x00.h": "x"}},
    "header folder": {"files": {"a/": "x"}},
    "kernel": {"kernel": "k<<<1,1>>>"},
    "arch": {"arch": "sm_86 -Xcompiler"},
    "many headers": {"files": {f"{n}.h": "x" for n in range(65)}},
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_field_is_named_and_no_source_comes_back(api: Api, name: str) -> None:
    wrong = FIELDS[name]
    body = json.dumps(wrong.get("", {"source": SECRET, **wrong}))
    headers = {"Content-Type": "application/json"}
    answer = api.http.post("/optimize", content=body.encode(), headers=headers)
    problem = refused(answer, 400 if name == "infinity" and "Infinity" in body else 422)
    assert problem.get("errors") or problem["status"] == 400
    assert SECRET not in answer.text


@pytest.mark.parametrize("name", ["../a.h", "/a.h", "a\\b.h", "..%2fa.h", "a/../b.h", "a\x01.h"])
def test_names_in_a_form_are_checked_alike(api: Api, name: str) -> None:
    def form(source_name: str, header_name: str) -> bytes:
        parts = [("source", source_name, SOURCE), ("files", header_name, "x")]
        return (
            b"".join(
                b"--b\r\nContent-Disposition: form-data; "
                + f'name="{field}"; filename="{name}"\r\n\r\n{text}\r\n'.encode()
                for field, name, text in parts
            )
            + b"--b--\r\n"
        )

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    for body in (form("a.cu", name), form(name.replace(".h", ".cu"), "b.h")):
        refused(api.http.post("/run", content=body, headers=headers), 422)
    good = api.http.post("/run", content=form("a.cu", "inc/b.h"), headers=headers)
    assert good.status_code == 202
    kept = api.ask(lambda store: store.request(good.json()["id"]))
    assert kept is not None
    assert (kept.filename, kept.files) == ("a.cu", {"inc/b.h": "x"})


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ({"files": ("a.h", b"x")}, 422),
        ({"source": (None, b"x")}, 202),
        ({"source": ("a.cu", b"x"), "files": (None, b"x")}, 422),
        ({"source": ("a.cu", b"x"), "odd": (None, b"x")}, 422),
        ({"source": ("a.cu", b"x"), "options": (None, b"[]")}, 422),
        ({"source": ("a.cu", b"x"), "options": (None, b'{"source": "y"}')}, 422),
        ({"source": ("a.cu", b"x"), "options": (None, b"{")}, 400),
        ({"source": ("a.cu", b"x"), "options": (None, b'{"max_iterations": 99}')}, 422),
        ({"source": ("a.cu", b"\xef\xbb\xbfx"), "options": (None, b'{"max_iterations": 9}')}, 202),
    ],
)
def test_a_form_has_source_files_and_options(
    api: Api, parts: dict[str, tuple[str | None, bytes]], status: int
) -> None:
    answer = api.http.post("/optimize", files=parts)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "body", [b"", b"--b--", b"--b\r\n\r\n--b--", b"--c\r\nx", b"--b\r\nContent-Disposition: x"]
)
@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=b"])
def test_a_broken_form_is_400_or_422(api: Api, kind: str, body: bytes) -> None:
    answer = api.http.post("/run", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


# -- addresses and headers ----------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    ["../run.json", "%2e%2e/run.json", "..%2f..%2fetc/passwd", "/etc/passwd", "a%00b", "a%5c..%5cb",
     "%ff%fe", "%0d%0aX: y", "run.json/"],
)  # fmt: skip
def test_an_artefact_is_named_not_reached(api: Api, name: str) -> None:
    id = api.submit()
    api.work(id, "failed", leaves={"run.json": ("application/json", b"{}")})
    for path in (f"/jobs/{id}/artefacts/{name}", f"/static/{name}"):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = api.raw(request.encode())
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), answer[:200]
        assert b"root:" not in answer


TWICE = b"Content-Length: 1\r\nContent-Length: 2\r\n"
SMUGGLED = b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET /\r\nX: y HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"POST /run HTTP/1.1\r\nHost: localhost\r\n" + TWICE + b"\r\nx", 400),
        (b"POST /run HTTP/1.1\r\nHost: localhost\r\n" + SMUGGLED + b"\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /jobs?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    ],
)  # fmt: skip
def test_heads_that_are_wrong_or_too_large(api: Api, sent: bytes, status: int) -> None:
    with api.connect() as connection:
        connection.sendall(
            sent.replace(b"Host: localhost\r\n", b"Host: localhost\r\nConnection: close\r\n")
        )
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"application/problem+json" in answer


def test_a_header_cannot_be_split(api: Api) -> None:
    answer = api.http.post(
        "/run", json={"source": SOURCE, "filename": "a.cu"}, headers={"X-Request-ID": "a b: c"}
    )
    assert answer.headers["x-request-id"] != "a b: c"
    found = api.http.get("/jobs?before=%0d%0aSet-Cookie:%20a=b")
    assert refused(found, 422)
    assert "set-cookie" not in found.headers


def test_every_answer_is_closed(api: Api) -> None:
    paths = ("/", "/docs", "/jobs", "/nothing", "/openapi.json", "/static/nothing", "/healthz")
    for path in paths:
        headers = api.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert headers["x-request-id"]
    assert api.http.get("/jobs").headers["cache-control"] == "no-store"
    wrong = api.http.delete("/jobs")
    assert (refused(wrong, 405)["title"], wrong.headers["allow"]) == (KINDS["method"].title, "GET")
