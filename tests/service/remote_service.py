"""A real service for the remote executor: the API in one process, a worker in another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import httpx
import psycopg

from cudaops.sandbox.executors.remote import RemoteExecutor

DEADLINE_S = 600.0
"""For whatever is waited for, on a loaded machine."""


class RemoteService:
    """Starts, kills and starts again."""

    def __init__(
        self, conninfo: str, folder: Path, cache: Path, executor: Literal["cpu", "cuda"] = "cpu"
    ) -> None:
        """`cuda` is the stand-in's."""
        self._executor = executor
        self.conninfo, self.folder, self.cache = conninfo, folder, cache
        self.port = 0
        self._processes: dict[str, subprocess.Popen[str]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.start_api()
        self.start_worker()
        self.wait_for_places()

    def start_api(self) -> None:
        api = self._start("api", "serve", "--workers", "0", "--port", str(self.port))
        assert api.stdout is not None
        said = api.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, (said, (self.folder / "api.log").read_text())
        self.port = int(found[1])

    def start_worker(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return self._start("worker", "worker", "--executor", self._executor, env=env)

    def wait_for_places(self) -> None:
        wait_for(lambda: bool(httpx.get(f"{self.address}/executor").json()["places"]))

    def kill_host(self) -> None:
        """The worker's child that holds its executors."""
        worker = self._processes["worker"].pid
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == worker and b"cudaops.service.executor_host" in words:
                os.kill(int(entry.name), signal.SIGKILL)

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        process = self._processes.pop(name)
        process.kill()
        process.communicate()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def executor(self, cache: Path, patience_s: float = 120.0) -> RemoteExecutor:
        return RemoteExecutor(self.address, None, cache, device="A10", patience_s=patience_s)

    def calls(self) -> list[tuple[str, str, int, str]]:
        """Method, status, attempts and problem of every call."""
        with psycopg.connect(self.conninfo) as connection:
            rows = connection.execute(
                "SELECT request->'call'->>'method', status, attempts, problem->>'kind'"
                " FROM cudaops_service.calls ORDER BY created_at"
            ).fetchall()
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def _start(
        self, name: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            **(env or {}),
            "DATABASE_URL": self.conninfo,
            "CUDAOPS_CACHE": str(self.cache),
            "CUDAOPS_GPU_DRIVER": "standin",
            "CUDAOPS_SERVICE_FOLDER": str(self.folder / "work"),
        }
        with (self.folder / f"{name}.log").open("a") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "cudaops", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
            )
        return self._processes[name]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            if condition():
                return
        except (httpx.HTTPError, KeyError, ValueError):
            pass
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
