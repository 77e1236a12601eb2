"""What is installed from the wheel is the whole program, wherever it is started."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cudaops"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

BROUGHT_BY = {"fastmcp-slim": "fastmcp", "pydantic-core": "pydantic"}
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
        call(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
            ROOT,
        )
        (wheel,) = folder.glob("cudaops-*.whl")
        call(sys.executable, "-m", "venv", folder / "venv")
        python = folder / "venv" / "bin" / "python"
        constraints = ROOT / "constraints.txt"
        call(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel)
        (folder / "elsewhere").mkdir()
        yield Installed(wheel, python, folder / "elsewhere")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> str:
    found = re.match(r"[\w.-]+", text)
    assert found, text
    return normal(found.group())


LOADED = {
    "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm", "langchain-anthropic", "langchain-google-genai",
    "langchain-ollama", "langchain-openai",
}  # fmt: skip
"""Nothing of these is imported by name: a library and a program that are found by path, and clients
that `langchain` loads for a provider."""


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
    ours = {requirement(text) for text in (*extras["ncu"], *extras["cuda"], *extras["models"])}
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_installed_program_starts_from_another_folder(installed: Installed) -> None:
    helped = installed.run("-m", "cudaops", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "run" in helped.stdout
    script = installed.python.with_name("cudaops")
    told = subprocess.run(
        [script, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout == f"cudaops {PROJECT['version']}\n"


@pytest.mark.slow
def test_installed_doctor_finds_what_the_main_job_needs(installed: Installed) -> None:
    done = installed.run("-m", "cudaops", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    examination = json.loads(done.stdout)
    assert examination["ready"]
    rungs = {rung["name"]: rung for rung in examination["rungs"]}
    assert rungs["knowledge"]["status"] == "ok", rungs["knowledge"]


@pytest.mark.slow
def test_demo_from_the_wheel(installed: Installed) -> None:
    source = installed.folder / "naive_matmul.cu"
    source.write_bytes((ROOT / "examples" / "naive_matmul.cu").read_bytes())
    done = installed.run("-m", "cudaops", "run", "naive_matmul.cu", "--json")
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
