"""Which model would be asked, by whom it is served, what it costs, and where memory is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudaops.doctor.ladder import Rung
from cudaops.doctor.machine import Response, ThisMachine
from cudaops.models.names import DEFAULT_MODEL
from cudaops.settings import Settings
from tests.doctor.machines import OtherMachine, climbed, settings
from tests.nim import Nim

RUNGS = ("model", "model key", "model server", "model price")
SECRET = "nvapi-hunter2"
EVERYTHING = (
    "langchain", "langchain_nvidia_ai_endpoints", "langchain_openai", "langchain_anthropic",
    "langchain_google_genai", "langchain_ollama",
)  # fmt: skip


class Recording(OtherMachine):
    """Serves one list of models and keeps what was asked."""

    def __init__(self, response: Response | Exception, **more: Any) -> None:
        super().__init__(packages=EVERYTHING, **more)
        self.response = response
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        self.asked.append((url, headers))
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


class Online(OtherMachine):
    """Reaches the network as this machine does."""

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        return ThisMachine().get(url, headers, timeout_s)


def listing(*models: str) -> Response:
    return Response(200, json.dumps({"data": [{"id": model} for model in models]}))


def rungs(machine: OtherMachine, given: Settings) -> dict[str, Rung]:
    found = climbed(machine, given, *RUNGS)
    for rung in found.values():
        assert SECRET not in f"{rung.detail}{rung.remedy}"
        assert rung.status in ("ok", "skipped") or rung.remedy, rung
        assert not rung.needed
    return found


def test_nothing_is_set(tmp_path: Path) -> None:
    found = rungs(OtherMachine(), settings(tmp_path))
    assert found["model"].status == "missing"
    assert "recipes propose" in found["model"].detail
    assert DEFAULT_MODEL in (found["model"].remedy or "")
    assert {found[name].blocked_by for name in RUNGS[1:]} == {("model",)}


def test_the_default_with_a_key(tmp_path: Path) -> None:
    machine = Recording(listing(DEFAULT_MODEL, "a/b"))
    found = rungs(machine, settings(tmp_path, key=SECRET))
    assert found["model"].detail.startswith(f"{DEFAULT_MODEL}, the default")
    assert found["model key"].detail == f"NVIDIA_API_KEY is set, for {DEFAULT_MODEL}"
    assert found["model server"].status == "ok"
    assert machine.asked == [
        ("https://integrate.api.nvidia.com/v1/models", {"Authorization": f"Bearer {SECRET}"})
    ]
    assert found["model price"].status == "missing"
    assert "--max-cost is refused" in found["model price"].detail


@pytest.mark.parametrize(
    ("name", "key", "url", "header", "served"),
    [
        ("openai:gpt-6-sol", "openai_api_key", "https://api.openai.com/v1/models",
         ("Authorization", f"Bearer {SECRET}"), "gpt-6-sol"),
        ("anthropic:claude-haiku-4-5", "anthropic_api_key",
         "https://api.anthropic.com/v1/models?limit=1000", ("x-api-key", SECRET),
         "claude-haiku-4-5-20251001"),
        ("google_genai:gemini-3.5-flash", "google_api_key",
         "https://generativelanguage.googleapis.com/v1beta/openai/models",
         ("Authorization", f"Bearer {SECRET}"), "models/gemini-3.5-flash"),
    ],
)  # fmt: skip
def test_other_providers(
    name: str, key: str, url: str, header: tuple[str, str], served: str, tmp_path: Path
) -> None:
    machine = Recording(listing("x", served))
    found = rungs(machine, settings(tmp_path, model=name, **{key: SECRET}))
    assert {rung.status for rung in found.values()} == {"ok"}, found
    (asked,) = machine.asked
    assert asked[0] == url
    assert header in asked[1].items()
    assert found["model price"].detail.startswith("$")
    without = rungs(Recording(listing()), settings(tmp_path, model=name))
    assert without["model key"].status == "missing"
    assert f"set {key.upper()}" in (without["model key"].remedy or "")
    assert without["model server"].blocked_by == ("model key",)


@pytest.mark.parametrize(
    ("given", "variables", "url"),
    [
        ({}, {}, "http://localhost:11434/v1/models"),
        ({}, {"OLLAMA_HOST": "gpubox"}, "http://gpubox:11434/v1/models"),
        ({}, {"OLLAMA_HOST": "gpubox:99"}, "http://gpubox:99/v1/models"),
        ({}, {"OLLAMA_HOST": "https://gpubox"}, "https://gpubox/v1/models"),
        ({"model_url": "http://box:1/"}, {"OLLAMA_HOST": "other"}, "http://box:1/v1/models"),
    ],
)
def test_ollama_needs_no_key(
    given: dict[str, str], variables: dict[str, str], url: str, tmp_path: Path
) -> None:
    machine = Recording(listing("llama4:latest"), variables=variables)
    found = rungs(machine, settings(tmp_path, model="ollama:llama4", **given))
    assert [asked[0] for asked in machine.asked] == [url]
    assert found["model server"].status == "ok", found["model server"]


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"base_url": "http://h:8000"}, "let NVIDIA_BASE_URL end in /v1"),
        ({"base_url": "h:8000/v1"}, "let NVIDIA_BASE_URL be like http://HOST:PORT/v1"),
        ({"base_url": "http://[h/v1"}, "let NVIDIA_BASE_URL be like"),
        ({"model": "openai:x", "model_url": "nowhere"}, "let CUDAOPS_MODEL_URL be like"),
        ({"model": "ollama:x", "model_url": "http://h:1/v1"}, "leave /v1 out of CUDAOPS_MODEL_URL"),
    ],
)
def test_an_address_that_cannot_be_right(
    given: dict[str, str], remedy: str, tmp_path: Path
) -> None:
    machine = Recording(listing())
    found = rungs(machine, settings(tmp_path, **given))
    assert found["model key"].status == "failed"
    assert remedy in (found["model key"].remedy or "")
    assert not machine.asked


@pytest.mark.parametrize(
    ("response", "hosted", "own"),
    [
        (Response(401, ""), "make a new key at build.nvidia.com", "set NVIDIA_API_KEY to the key"),
        (Response(404, ""), "HTTPS_PROXY", "correct NVIDIA_BASE_URL"),
        (Response(500, ""), "HTTPS_PROXY", "look into that server's log"),
        (Response(200, "<html>"), "HTTPS_PROXY", "does not implement NIM's or OpenAI's API"),
        (ConnectionError(), "HTTPS_PROXY", "start that server, or correct NVIDIA_BASE_URL"),
        (listing(), "wait until", "wait until"),
        (listing("z"), "CUDAOPS_MODEL to one that it lists, nvidia:z", "nvidia:z or another"),
        (listing("nvidia/nemotron-3-super-120b"), "CUDAOPS_MODEL=nvidia/nemotron-3-super-120b",
         "CUDAOPS_MODEL=nvidia/nemotron-3-super-120b"),
    ],
)  # fmt: skip
def test_a_server_that_does_not_list_the_model(
    response: Response | Exception, hosted: str, own: str, tmp_path: Path
) -> None:
    places: tuple[tuple[dict[str, str], str], ...] = (
        ({"key": SECRET}, hosted),
        ({"key": SECRET, "base_url": f"http://me:{SECRET}@h:8000/v1"}, own),
    )
    for given, remedy in places:
        found = rungs(Recording(response), settings(tmp_path, **given))["model server"]
        assert found.status == "failed"
        assert remedy in (found.remedy or "")


def test_an_openai_server_without_v1(tmp_path: Path) -> None:
    given = settings(tmp_path, model="openai:mine", model_url="http://h:8000")
    found = rungs(Recording(Response(404, "")), given)
    assert found["model key"].detail.endswith("called without a key")
    assert found["model server"].remedy == "let CUDAOPS_MODEL_URL end in /v1"


def test_a_real_server_is_asked(tmp_path: Path) -> None:
    with Nim() as nim:
        given = settings(tmp_path, key=str(nim.key), base_url=nim.url, model=nim.model)
        assert rungs(Online(), given)["model server"].detail.endswith("test/chat among 3 models")
        refused = settings(tmp_path, key="bad", base_url=nim.url, model=nim.model)
        assert "HTTP 401" in rungs(Online(), refused)["model server"].detail


def test_a_client_that_is_not_installed(tmp_path: Path) -> None:
    found = rungs(OtherMachine(), settings(tmp_path, model="openai:x"))
    assert found["model"].status == "missing"
    assert found["model"].remedy == "pip install 'cudaops[models]'"


def test_a_name_that_is_no_models(tmp_path: Path) -> None:
    found = rungs(OtherMachine(), settings(tmp_path, model="mistral:x"))
    assert "unknown model provider 'mistral'" in found["model"].detail
    assert found["model"].remedy == "correct CUDAOPS_MODEL"


def test_a_script(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    given = settings(tmp_path, model=f"scripted:{path}")
    assert "cannot be read" in rungs(OtherMachine(), given)["model"].detail
    path.write_text("{}")
    assert "it must hold" in rungs(OtherMachine(), given)["model"].detail
    path.write_text(json.dumps({"cudaops_script": 1, "answers": [{"text": "[]"}]}))
    found = rungs(OtherMachine(), given)
    assert "1 answer scripted" in found["model"].detail
    assert found["model key"].status == found["model server"].status == "ok"


@pytest.mark.parametrize(
    ("price", "status", "words"),
    [("0.5,2", "ok", "$0.5 in, $2 out"), ("cheap", "failed", "'cheap' is not")],
)
def test_a_price_that_the_user_gives(price: str, status: str, words: str, tmp_path: Path) -> None:
    given = settings(tmp_path, key=SECRET, model_price=price)
    found = rungs(Recording(listing()), given)["model price"]
    assert found.status == status
    assert words in found.detail


def memory(tmp_path: Path, where: str) -> Rung:
    given = settings(tmp_path, memory=where)
    return climbed(OtherMachine(), given, "memory folder")["memory folder"]


def test_memory_is_looked_at_and_left_alone(tmp_path: Path) -> None:
    assert memory(tmp_path, "off").detail.startswith("off, as CUDAOPS_MEMORY says")
    found = memory(tmp_path, str(tmp_path / "new"))
    assert (found.status, found.detail) == ("ok", f"{tmp_path / 'new'}, 0 kernels known")
    assert not (tmp_path / "new").exists()
    (tmp_path / "taken").write_text("x")
    found = memory(tmp_path, str(tmp_path / "taken"))
    assert found.status == "failed"
    assert "CUDAOPS_MEMORY" in (found.remedy or "")


_OUTSIDER = """
import os, sys
from pathlib import Path
import cudaops.memory.store
from tests.doctor.test_language_model_traps import memory
if os.geteuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
found = memory(Path(sys.argv[1]), sys.argv[1])
print(found.status, found.detail, found.remedy)
"""


def test_a_memory_that_this_user_may_not_write(cache: Path) -> None:
    closed = cache / "closed"  # other accounts may enter the cache, and not pytest's folders
    closed.mkdir(mode=0o555)
    said = subprocess.run(
        [sys.executable, "-c", _OUTSIDER, str(closed)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert said.startswith("failed"), said
    assert "cannot be written to: Permission denied" in said
    assert "CUDAOPS_MEMORY" in said
