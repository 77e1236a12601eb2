"""The container files: complete, pinned, closed, and about things that exist.

What they run is run in tests/test_packaging.py, which has an installation to run it in.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudaops.service.operation import FAMILIES, GPU_GAUGES
from cudaops.service.problems import KINDS
from cudaops.service.rows import WORKER_SEEN_S

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
OURS = ("service", "worker", "worker-gpu")
DOCKERFILE = [
    line.strip()
    for line in (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]


def stages() -> dict[str, list[str]]:
    """Every stage of the Dockerfile with its instructions, its FROM first."""
    found: dict[str, list[str]] = {}
    for line in DOCKERFILE:
        if line.startswith("FROM "):
            current = found.setdefault(line.split(" AS ")[1], [])
        if not line.startswith("ARG "):
            current.append(line)
    return found


def setting(stage: str, instruction: str) -> str:
    """The last of that instruction in a stage, or in the one it is built on."""
    own = [line for line in stages()[stage] if line.startswith(f"{instruction} ")]
    if own:
        return own[-1].removeprefix(f"{instruction} ")
    return setting(stages()[stage][0].split()[1], instruction)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_are_closed(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert service["healthcheck"]["test"][1:3] == ["python", "/usr/local/lib/cudaops/healthy.py"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for volume in service.get("volumes", []):
        assert volume.split(":")[0] in COMPOSE["volumes"]  # nothing of the host's


def test_secrets_come_from_outside_and_must_be_set() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    for name in ("POSTGRES_PASSWORD", "CUDAOPS_ADMIN_TOKEN"):
        assert f"${{{name}:?" in text
        assert f"${{{name}:-" not in text
    service, worker = (COMPOSE["services"][name]["environment"] for name in ("service", "worker"))
    assert not [name for name in service if name.endswith("_API_KEY")]  # the API asks no model
    assert "CUDAOPS_ADMIN_TOKEN" not in worker
    assert worker["CUDAOPS_ISOLATION"] == "${CUDAOPS_ISOLATION:-S2}"


def test_a_gpu_is_asked_for_by_the_gpu_worker_alone() -> None:
    assert COMPOSE["services"]["worker-gpu"]["profiles"] == ["gpu"]
    (device,) = COMPOSE["services"]["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert "deploy" not in COMPOSE["services"]["worker"]


@pytest.mark.parametrize("name", OURS)
def test_images_run_what_the_compose_file_says(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["build"] == {"context": ".", "target": name}
    assert setting(name, "USER") == service["user"]
    assert ast.literal_eval(setting(name, "CMD")) == service["command"]


def test_base_images_are_pinned_by_version() -> None:
    arguments = dict(line.removeprefix("ARG ").split("=") for line in DOCKERFILE if "ARG" in line)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", arguments["PYTHON_IMAGE"])
    assert re.fullmatch(r"nvidia/cuda:13\.\d+\.\d+-devel-ubuntu24\.04", arguments["CUDA_IMAGE"])
    known = {f"${{{name}}}" for name in arguments}
    for name, lines in stages().items():
        base = lines[0].split()[1]
        assert base in known, f"{name} is built on {base}"
        known.add(name)


def test_the_dockerfile_copies_and_runs_what_exists() -> None:
    seen = set()
    for name, lines in stages().items():
        for line in lines:
            words = line.split()
            if words[0] == "COPY" and words[1].startswith("--from="):
                assert words[1].removeprefix("--from=") in seen
            elif words[0] == "COPY":
                assert all((ROOT / word).exists() for word in words[1:-1]), line
            elif words[0] == "RUN":
                script = ROOT / "docker" / Path(words[1]).name
                assert os.access(script, os.X_OK), line
        seen.add(name)


def test_the_build_gets_what_it_needs_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    needed = {"cudaops", "docker", "constraints.txt", "pyproject.toml", "README.md", "LICENSE"}
    links = (path.resolve() for path in (ROOT / "cudaops").rglob("*") if path.is_symlink())
    needed |= {path.relative_to(ROOT.resolve()).as_posix() for path in links}
    assert kept == needed
    assert not any(fnmatch.fnmatch(".env", rule) for rule in kept)


@pytest.mark.parametrize("script", ["install.sh", "system.sh"])
def test_scripts_are_posix_shell(script: str) -> None:
    path = ROOT / "docker" / script
    assert path.read_text("utf-8").startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=30)


def test_the_bound_of_the_health_check_is_the_services() -> None:
    text = (ROOT / "docker" / "healthy.py").read_text("utf-8")
    assert f"SEEN_S = {WORKER_SEEN_S:g}\n" in text


def test_the_compose_file_follows_the_compose_specification() -> None:
    """By check-jsonschema, which carries the specification's schema: needs no Docker."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    good = subprocess.run(
        [*command, str(ROOT / "docker-compose.yml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert good.returncode == 0, good.stdout + good.stderr


def test_the_compose_check_sees_a_misspelt_key(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    bad = tmp_path / "docker-compose.yml"
    bad.write_text(text.replace("    healthcheck:", "    health_check:", 1), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", bad],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "health_check" in done.stdout


@pytest.mark.parametrize("profile", [(), ("--profile", "gpu")])
def test_compose_itself_accepts_the_file(tmp_path: Path, profile: tuple[str, ...]) -> None:
    command = _compose()
    if command is None:
        pytest.skip("neither the `docker compose` plugin nor docker-compose is installed")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    secrets = {"POSTGRES_PASSWORD": "p@ss/w:rd$$", "CUDAOPS_ADMIN_TOKEN": "t" * 40}
    done = subprocess.run(
        [*command, *profile, "config"], cwd=tmp_path, env={"PATH": os.environ["PATH"], **secrets},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)["services"]
    expected = {"postgres", "service", "worker"} | ({"worker-gpu"} if profile else set())
    # Compose 1 shows services of profiles that were not asked for as well.
    assert expected <= set(shown) <= expected | {"worker-gpu"}
    database = shown["worker"]["environment"]["DATABASE_URL"]
    assert database == "postgresql://cudaops@postgres:5432/cudaops"

    refused = subprocess.run(
        [*command, "config"], cwd=tmp_path, env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "set POSTGRES_PASSWORD in .env" in refused.stderr


def _compose() -> list[str] | None:
    if shutil.which("docker"):
        asked = subprocess.run(
            ["docker", "compose", "version"], capture_output=True, timeout=60, check=False
        )
        if asked.returncode == 0:
            return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def test_the_handbook_names_every_metric_and_every_problem() -> None:
    handbook = (ROOT / "docs" / "service.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([\w*-]+)` \|", handbook, flags=re.MULTILINE))
    plain = {name.removeprefix("cudaops_").removesuffix("_total") for name in rows}
    assert set(FAMILIES) | {f"gpu_{name}" for name in GPU_GAUGES} <= plain
    said = dict(re.findall(r"^\| `([\w-]+)` \| (\d+) \|", handbook, flags=re.MULTILINE))
    assert said == {name: str(kind.status) for name, kind in KINDS.items()}
