"""What is installed from the wheel is the whole program, wherever it is started."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cudaops.rag.embedded import EmbeddedServer

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cudaops"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

BROUGHT_BY = {"fastmcp-slim": "fastmcp", "psycopg-pool": "psycopg", "pydantic-core": "pydantic"}
"""Distribution that holds a module, to the one that is asked for by name."""


class Installed(NamedTuple):
    """A wheel, and an environment that holds it and what it depends on, nothing else."""

    wheel: Path
    python: Path
    folder: Path
    """An empty folder to start from."""

    def run(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env=os.environ | {"CUDAOPS_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def call(*command: str | Path, timeout: float = 600) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="cudaops-w") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the embedded database's own account must be able to walk in
        told = [f"PYTHON={sys.executable}", f"WHEELS={folder}"]
        call("env", *told, ROOT / "docker" / "install.sh", folder / "venv")  # as the Dockerfile
        (wheel,) = folder.glob("cudaops-*.whl")
        python = folder / "venv" / "bin" / "python"
        # Its own knowledge: the notes must be in the wheel. What is compiled goes by its sources.
        (folder / "elsewhere" / "cache").mkdir(parents=True)
        yield Installed(wheel, python, folder / "elsewhere")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> str:
    found = re.match(r"[\w.-]+", text)
    assert found, text
    return normal(found.group())


LOADED = {
    "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm", "langchain-anthropic", "langchain-google-genai",
    "langchain-ollama", "langchain-openai", "python-dotenv", "python-multipart",
}  # fmt: skip
"""Nothing of these is imported by name: a library and a program that are found by path, clients
that `langchain` loads for a provider, what pydantic-settings reads `.env` with, and Starlette
uploads."""


def test_every_import_is_a_declared_dependency_and_the_other_way_round() -> None:
    declared = {requirement(text) for text in PROJECT["dependencies"]}
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                imported.add(node.module.split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"cudaops"}
    owners = {
        module: {BROUGHT_BY.get(normal(name), normal(name)) for name in names}
        for module, names in packages_distributions().items()
    }
    extras = PROJECT["optional-dependencies"]
    extra = [text for name in ("ncu", "cuda", "models", "otel") for text in extras[name]]
    ours = {requirement(text) for text in extra}
    assert {n for n in foreign if not owners.get(n, set()) & (declared | ours)} == set()
    unused = (declared | ours) - {owner for name in foreign for owner in owners.get(name, ())}
    assert unused == LOADED


def test_constraints_pin_every_requirement_and_name_no_address() -> None:
    text = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line
            pinned[normal(line.split("==")[0])] = line.split("==")[1]
    extras = [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    wanted = {requirement(text) for text in [*PROJECT["dependencies"], *extras]}
    assert wanted - set(pinned) == set()


def test_constraints_are_what_the_tests_run_with() -> None:
    from importlib.metadata import version

    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        name, _, pin = line.partition("==")
        if normal(name) in {requirement(text) for text in PROJECT["dependencies"]}:
            assert version(name) == pin


@pytest.mark.deep
def test_wheel_carries_everything_that_is_not_python(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
    here = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here - names == set()
    kinds = {Path(name).suffix for name in here}
    assert {".py", ".h", ".cpp", ".sql", ".md", ".j2"} <= kinds
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "standin" in name], "the driver's double is for tests"


@pytest.mark.deep
def test_installed_program_starts_from_another_folder(installed: Installed) -> None:
    helped = installed.run("-m", "cudaops", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "run" in helped.stdout
    script = installed.python.with_name("cudaops")
    told = subprocess.run(
        [script, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout == f"cudaops {PROJECT['version']}\n"


@pytest.mark.deep
def test_installed_doctor_finds_what_the_main_job_needs(installed: Installed) -> None:
    done = installed.run("-m", "cudaops", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    examination = json.loads(done.stdout)
    assert examination["ready"]
    rungs = {rung["name"]: rung for rung in examination["rungs"]}
    assert rungs["knowledge"]["status"] == "ok", rungs["knowledge"]


@pytest.mark.deep
def test_demo_from_the_wheel(installed: Installed) -> None:
    source = installed.folder / "naive_matmul.cu"
    source.write_bytes((ROOT / "examples" / "naive_matmul.cu").read_bytes())
    done = installed.run(
        "-m", "cudaops", "run", "naive_matmul.cu", "--max-iterations", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    for agent in ("intake", "supervisor", "profiler", "research", "optimizer", "sandbox", "verify"):
        assert re.search(rf"^ +[\d.]+ s  {agent} ", done.stderr, flags=re.MULTILINE), done.stderr
    assert "\x1b" not in done.stderr
    record = json.loads(done.stdout)
    assert record["outcome"] == "provisional"
    assert record["time_source"] == "modelled"
    assert record["profile"]["metrics_parsed"] >= 40
    assert record["profile"]["subtype"] == "l1_load_throughput"
    assert record["verify"]["speedup"] >= 3
    assert record["verify"]["correctness"] == "match"
    assert record["research"]["degraded"] is None
    folder = Path(record["options"]["out"])
    assert folder.parent == installed.folder / "runs" / "naive_matmul"
    for name in (
        "best.cu",
        "best.patch",
        "certificate.json",
        "report.md",
        "run.json",
        "events.jsonl",
    ):
        assert (folder / name).is_file(), name


@pytest.mark.deep
def test_the_containers_commands_and_health_checks_do_a_job(installed: Installed) -> None:
    deployed = Deployed(installed)
    try:
        for name in ("service", "worker"):
            deployed.start(name)
        for name in ("service", "worker"):
            deployed.wait_until_healthy(name)
        job = deployed.ask("/run", {"source": PROGRAM, "executor": "cpu"})
        deadline = time.monotonic() + 180
        while job["status"] not in ("succeeded", "failed") and time.monotonic() < deadline:
            time.sleep(0.5)
            job = deployed.ask(f"/jobs/{job['id']}")
        assert job["status"] == "succeeded", job
        assert job["result"]["outcome"]["stdout"] == "sum 499500\n"
        counted = 'cudaops_jobs_ended_total{kind="run",outcome="succeeded"} 1.0'
        assert counted in deployed.ask("/metrics")
    finally:
        codes = deployed.stop()
    assert codes == {"service": 0, "worker": 0}, deployed.logs()
    for line in deployed.logs().splitlines():
        assert json.loads(line)["level"] in ("info", "warning"), line
    assert Deployed.TOKEN not in deployed.logs()


PROGRAM = """\
#include <cstdio>
__global__ void number(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i;
}
int main() {
  const int n = 1000;
  int *device, host[n];
  cudaMalloc(&device, n * sizeof(int));
  number<<<(n + 127) / 128, 128>>>(device, n);
  cudaMemcpy(host, device, n * sizeof(int), cudaMemcpyDeviceToHost);
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += host[i];
  std::printf("sum %d\\n", sum);
}
"""


class Deployed:
    """The compose file's containers as processes: its commands, its environment, its checks."""

    TOKEN = "a-token-that-must-not-be-in-any-log-" + "x" * 8

    def __init__(self, installed: Installed) -> None:
        compose = (ROOT / "docker-compose.yml").read_text("utf-8")
        self.services = yaml.safe_load(compose)["services"]
        self.installed = installed
        self.folder = Path(tempfile.mkdtemp(prefix="cudaops-d", dir=installed.folder))
        self.folder.chmod(0o755)
        self.database = EmbeddedServer.start(self.folder / "database")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> dict[str, str]:
        """As compose fills it in, but for where the database, the cache and the port are."""
        given = {"POSTGRES_PASSWORD": "unused", "CUDAOPS_ADMIN_TOKEN": self.TOKEN}

        def filled(text: str) -> str:
            return re.sub(
                r"\$\{([A-Z_]+):([-?])([^}]*)\}",
                lambda found: given.get(found[1], found[3] if found[2] == "-" else ""),
                text,
            )

        asked = {key: filled(text) for key, text in self.services[name]["environment"].items()}
        home = self.folder / name
        home.mkdir(exist_ok=True)
        path = os.pathsep.join((str(self.installed.python.parent), os.environ["PATH"]))
        here = {"PATH": path, "HOME": str(home), "CUDAOPS_CACHE": str(home / "cache")}
        here |= {"DATABASE_URL": self.database.conninfo, "CUDAOPS_HEALTH_PORT": self.port}
        return asked | here

    def start(self, name: str) -> None:
        command = [self.port if word == "8080" else word for word in self.services[name]["command"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment(name), cwd=self.folder / name,
                stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    def wait_until_healthy(self, name: str) -> None:
        _, program, script, which = self.services[name]["healthcheck"]["test"]
        check = [program, str(ROOT / "docker" / Path(script).name), which]
        deadline = time.monotonic() + 180
        while True:
            done = subprocess.run(
                check, env=self.environment(name), cwd=self.folder, capture_output=True,
                text=True, timeout=60, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return
            assert self.processes[name].poll() is None, self.logs()
            assert time.monotonic() < deadline, done.stderr + self.logs()
            time.sleep(1)

    def ask(self, path: str, body: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
            is_json = "json" in answer.headers["Content-Type"]
        return json.loads(text) if is_json else text

    def stop(self) -> dict[str, int]:
        for process in self.processes.values():
            process.terminate()
        codes = {name: process.wait(120) for name, process in self.processes.items()}
        self.database.close()
        return codes

    def logs(self) -> str:
        return "".join(path.read_text("utf-8") for path in sorted(self.folder.glob("*.log")))
