"""A real service for `--executor remote`: the API in one process, a worker in another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from cudaops.service.records import ENDED, JobSummary

DEADLINE_S = 600.0
"""For whatever is waited for, on a loaded machine."""


class RemoteService:
    """Starts, kills and starts again."""

    def __init__(self, conninfo: str, folder: Path, cache: Path) -> None:
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
        wait_for(lambda: httpx.get(f"{self.address}/readyz").status_code == 200)

    def start_api(self) -> None:
        api = self._start("api", "serve", "--workers", "0", "--port", str(self.port))
        assert api.stdout is not None
        said = api.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, (said, (self.folder / "api.log").read_text())
        self.port = int(found[1])

    def start_worker(self) -> None:
        self._start("worker", "worker", "--executor", "cpu")

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

    def newest(self) -> JobSummary:
        """The job that was submitted last. Raises IndexError where there is none."""
        (found,) = httpx.get(f"{self.address}/jobs", params={"limit": 1}).json()
        return JobSummary.model_validate(found)

    def wait_for_end(self) -> JobSummary:
        """The newest job, once it has ended."""
        wait_for(lambda: self.newest().status in ENDED)
        return self.newest()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "DATABASE_URL": self.conninfo,
            "CUDAOPS_CACHE": str(self.cache),
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
