"""Keys, .env files, endpoints and model ids that are not what one thinks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cudaops.doctor.ladder import Rung
from cudaops.doctor.machine import Response, ThisMachine
from cudaops.doctor.prerequisites import python
from cudaops.rag.embedding import EMBEDDING_MODEL, RERANK_MODEL
from tests.doctor.machines import OtherMachine, climbed, settings

KEY = "nvapi-hunter2"


def rung(machine: OtherMachine, tmp_path: Path, **given: str) -> Rung:
    return climbed(machine, settings(tmp_path, **given), "nim models")["nim models"]


def listing(*models: str) -> Response:
    return Response(200, json.dumps({"data": [{"id": model} for model in models]}))


def test_python_is_too_old() -> None:
    """Trap 5 of the source write-up: the system's Python is 3.10."""
    found = python((3, 10, 12))
    assert found.status == "failed"
    assert "3.11 or newer" in found.detail
    assert "deadsnakes" in (found.remedy or "")


def test_a_key_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = climbed(OtherMachine(), settings(tmp_path), "nim key")["nim key"]
    assert found.status == "missing"
    assert str(tmp_path / ".env") in (found.remedy or "")


def test_a_key_in_an_env_file_further_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 8: who searches upwards finds another .env than one thinks; cudaops does not search."""
    below = tmp_path / "kernels" / "mine"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    machine = OtherMachine(files={str(tmp_path / ".env"): f"NVIDIA_API_KEY={KEY}\n"})
    found = climbed(machine, settings(tmp_path), "nim key")["nim key"]
    assert f"{tmp_path / '.env'} has it, and is not read" in found.detail
    assert f"source {tmp_path / '.env'}" in (found.remedy or "")
    assert KEY not in f"{found.detail}{found.remedy}"


def test_where_the_key_came_from(tmp_path: Path) -> None:
    """Trap 7: no client is left to find the key by itself."""
    exported = OtherMachine(variables={"NVIDIA_API_KEY": KEY})
    found = climbed(exported, settings(tmp_path, key=KEY), "nim key")["nim key"]
    assert "set in the environment and handed to every client by value" in found.detail
    found = climbed(OtherMachine(), settings(tmp_path, key=KEY), "nim key")["nim key"]
    assert "/.env and handed" in found.detail
    own = climbed(OtherMachine(), settings(tmp_path, base_url="http://x/v1"), "nim key")["nim key"]
    assert own.status == "ok"


@pytest.mark.parametrize(
    ("response", "cause", "remedy"),
    [
        (Response(401, ""), "refuses the key (HTTP 401)", "make a new key"),
        (Response(500, ""), "HTTP 500", "check the network"),
        (Response(200, "<html>"), "did not answer with a list", "check the network"),
        (Response(200, "{}"), "did not answer with a list", "check the network"),
        (listing("a/b", RERANK_MODEL), "does not serve nvidia/llama-nemotron-embed", "update"),
    ],
)
def test_an_endpoint_that_answers_otherwise(
    response: Response, cause: str, remedy: str, tmp_path: Path
) -> None:
    found = rung(OtherMachine(pages=lambda url: response), tmp_path, key=KEY)
    assert found.status == "failed"
    assert cause in found.detail
    assert remedy in (found.remedy or "")
    assert KEY not in f"{found.detail}{found.remedy}"


def test_a_model_id_that_is_nearly_right(tmp_path: Path) -> None:
    """Trap 6: a wrong id is a 404, which looks like a key's fault."""
    doubled = EMBEDDING_MODEL.replace("nvidia/", "nvidia/nvidia-")
    page = listing(doubled, RERANK_MODEL)
    found = rung(OtherMachine(pages=lambda url: page), tmp_path, key=KEY)
    assert f"does not serve {EMBEDDING_MODEL}; the nearest it has is {doubled}" in found.detail
    assert "404" in found.detail


def test_an_endpoint_without_v1(tmp_path: Path) -> None:
    found = rung(OtherMachine(), tmp_path, base_url="http://localhost:8000")
    assert "let NVIDIA_BASE_URL end in /v1" in (found.remedy or "")


def test_offline(tmp_path: Path) -> None:
    def nobody(url: str) -> Response:
        raise ConnectionError("nobody there")

    found = rung(OtherMachine(pages=nobody), tmp_path, key=KEY)
    assert (found.status, found.needed) == ("failed", False)
    assert "cannot be reached (ConnectionError)" in found.detail
    assert "HTTPS_PROXY" in (found.remedy or "")


class _Nim(BaseHTTPRequestHandler):
    """GET /v1/models and POST /v1/embeddings, as NIM answers them; any key but `bad`."""

    def do_GET(self) -> None:
        self._say({"data": [{"id": EMBEDDING_MODEL}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] == "Bearer bad":
            self._say({"detail": "no"}, 401)
        else:
            self._say({"data": [{"index": 0, "embedding": [0.5, 0.25, 0.125]}]})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _say(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def nim() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Nim)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Online(OtherMachine):
    """Reaches the network as this machine does."""

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        return ThisMachine().get(url, headers, timeout_s)


@pytest.mark.filterwarnings("ignore")
def test_a_real_endpoint_is_asked_and_answers(tmp_path: Path) -> None:
    with nim() as base:
        found = rung(Online(), tmp_path, key=KEY, base_url=base)
        assert found.status == "ok", found
        assert "answered with 3 numbers" in found.detail
        refused = rung(Online(), tmp_path, key="bad", base_url=base)
        assert refused.status == "failed"
        assert "NVIDIA_API_KEY" in (refused.remedy or "")


NO_WORKER = "no worker was seen in the last 30 s: jobs are queued"


@pytest.mark.parametrize(
    ("jobs", "ready", "status", "words", "remedy"),
    [
        (Response(401, "{}"), Response(200, "{}"), "failed", "refuses the token", "CUDAOPS_TOKEN"),
        (
            Response(200, "<html>"), Response(200, "<html>"),
            "failed", "not a cudaops service", "CUDAOPS_SERVER",
        ),
        (
            Response(200, "[]"), Response(200, '{"workers": 1, "executors": [], "new": 1}'),
            "failed", "not a cudaops service", "same version",
        ),
        (
            Response(200, "[]"),
            Response(503, f'{{"title": "not ready", "status": 503, "detail": "{NO_WORKER}"}}'),
            "failed", NO_WORKER, "on that service",
        ),
        (
            Response(200, "[]"),
            Response(200, '{"status": "ready", "workers": 2, "executors": ["cpu", "cuda"]}'),
            "ok", "has 2 workers, on cpu and cuda", "",
        ),
    ],
)  # fmt: skip
def test_the_service_of_the_remote_executor(
    jobs: Response, ready: Response, status: str, words: str, remedy: str, tmp_path: Path
) -> None:
    machine = OtherMachine(pages=lambda url: ready if url.endswith("/readyz") else jobs)
    found = climbed(machine, settings(tmp_path, server="http://gpu:8080"), "service")["service"]
    assert found.status == status
    assert words in found.detail
    assert remedy in (found.remedy or "")
