"""Many clients at once against `cudaops serve`: latencies, errors, and whether a job was lost.

    python benchmarks/service_load.py [--clients 200] [--seconds 60] [--workers 1]

Starts a service of its own on an embedded database in a temporary folder. Every client submits a
small compile now and then, looks at its jobs, lists them, follows one as an event stream, and reads
an artefact. At the end every job that was answered 202 must exist and have ended; what still waits
is cancelled first, by the API, as a client would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

SOURCE = """\
__global__ void scale(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
int main() {
    float* x;
    cudaMallocManaged(&x, 256 * sizeof(float));
    for (int i = 0; i < 256; ++i) x[i] = 1.0f;
    scale<<<1, 256>>>(x, 256);
    cudaDeviceSynchronize();
    return 0;
}
"""
ENDED = ("succeeded", "failed", "cancelled")
PAUSE_S = 0.5
"""Mean pause of a client between two requests: people and agents think in between."""


@dataclass
class Seen:
    """What all clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)

    def note(self, route: str, answer: httpx.Response, seconds: float) -> None:
        self.seconds[route].append(seconds)
        self.statuses[str(answer.status_code)] += 1
        if answer.status_code >= 400:
            self.errors.append(f"{route} {answer.status_code} {answer.text[:200]}")


class Client:
    """One of them."""

    def __init__(self, http: httpx.AsyncClient, seen: Seen, seed: int) -> None:
        self._http, self._seen = http, seen
        self._random = random.Random(seed)
        self._own: list[str] = []

    async def run(self, until: float) -> None:
        await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_S))
        while time.monotonic() < until:
            try:
                await self._one()
            except httpx.HTTPError as error:
                self._seen.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_S))

    async def _one(self) -> None:
        what = self._random.random()
        if what < 0.1 or not self._own:
            await self._submit()
        elif what < 0.7:
            await self._get("GET /jobs/{id}", f"/jobs/{self._random.choice(self._own)}")
        elif what < 0.85:
            await self._get("GET /jobs", "/jobs?limit=20")
        elif what < 0.95:
            await self._follow(self._random.choice(self._own))
        else:
            await self._get("GET artefacts", f"/jobs/{self._random.choice(self._own)}/artefacts")

    async def _submit(self) -> None:
        body = {"source": SOURCE, "executor": "cpu"}
        began = time.monotonic()
        answer = await self._http.post("/compile", json=body)
        self._seen.note("POST /compile", answer, time.monotonic() - began)
        if answer.status_code == 202:
            self._own.append(answer.json()["id"])
            self._seen.jobs.add(self._own[-1])

    async def _get(self, route: str, path: str) -> None:
        began = time.monotonic()
        answer = await self._http.get(path)
        self._seen.note(route, answer, time.monotonic() - began)

    async def _follow(self, id: str) -> None:
        """Opens a stream, reads for two seconds at most; the time is that to the first event."""
        began = time.monotonic()
        async with self._http.stream("GET", f"/jobs/{id}/events") as answer:
            if answer.status_code != 200:
                await answer.aread()
                self._seen.note("GET events", answer, time.monotonic() - began)
                return
            try:
                async with asyncio.timeout(2):
                    first = True
                    async for _ in answer.aiter_lines():
                        if first:
                            self._seen.note("GET events", answer, time.monotonic() - began)
                            first = False
            except TimeoutError:
                return


async def load(address: str, clients: int, seconds: float) -> Seen:
    """Every client has connections of its own, as clients elsewhere have: one pool for all of them
    searches itself at each request, and the table would show that."""
    seen = Seen()
    until = time.monotonic() + seconds

    async def one(number: int) -> None:
        async with httpx.AsyncClient(
            base_url=address, timeout=60, verify=False, trust_env=False
        ) as http:
            await Client(http, seen, number).run(until)

    await asyncio.gather(*(one(number) for number in range(clients)))
    return seen


async def settle(address: str, jobs: set[str], patience_s: float) -> Counter[str]:
    """How every job ended, `lost` among them; what has not after `patience_s` is cancelled."""
    found: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        until = time.monotonic() + patience_s
        waiting = set(jobs)
        while waiting:
            for id in sorted(waiting):
                answer = await http.get(f"/jobs/{id}")
                status = answer.json()["status"] if answer.status_code == 200 else "lost"
                if status in (*ENDED, "lost"):
                    found[status] += 1
                    waiting.discard(id)
                elif time.monotonic() > until:
                    await http.post(f"/jobs/{id}/cancel")
            await asyncio.sleep(0.5)
    return found


def start(folder: Path, workers: int) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable, "-m", "cudaops", "serve", "--port", "0", "--workers", str(workers),
        "--reads-per-minute", "0", "--submits-per-minute", "0",
    ]  # fmt: skip
    env = {**os.environ, "CUDAOPS_CACHE": str(folder), "CUDAOPS_MEMORY": "off"}
    with (folder / "service.log").open("w") as log:
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    assert service.stdout is not None
    said = service.stdout.readline()
    address = next((word for word in said.split() if word.startswith("http")), "")
    if not address:
        raise SystemExit(f"the service did not start: {(folder / 'service.log').read_text()}")
    return service, address


def table(seen: Seen, seconds: float) -> str:
    rows = ["| route | requests | p50 ms | p95 ms | p99 ms | max ms |", "|---|--:|--:|--:|--:|--:|"]
    for route, times in sorted(seen.seconds.items()):
        ms = [1000 * each for each in times]
        cuts = statistics.quantiles(ms, n=100) if len(ms) > 1 else ms * 99
        figures = (cuts[49], cuts[94], cuts[98], max(ms))
        rows.append(f"| {route} | {len(ms)} | " + " | ".join(f"{f:.0f}" for f in figures) + " |")
    total = sum(len(times) for times in seen.seconds.values())
    rows.append(f"\n{total} requests, {total / seconds:.0f} a second")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--patience", type=float, default=60, help="for jobs to end by themselves")
    parser.add_argument("--json", type=Path, help="write what was seen there too")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cudaops-load-", dir="/var/tmp"))
    folder.chmod(0o755)
    service, address = start(folder, asked.workers)
    try:
        seen = asyncio.run(load(address, asked.clients, asked.seconds))
        ends = asyncio.run(settle(address, seen.jobs, asked.patience))
    finally:
        service.terminate()
        service.wait(60)
        log = (folder / "service.log").read_text()
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {asked.clients} clients, {asked.seconds:g} s,"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f},"
        f" Python {platform.python_version()}"
    )
    print(table(seen, asked.seconds))
    print(f"jobs taken {len(seen.jobs)}, ended {dict(ends)}, lost {ends['lost']}")
    print(f"errors {len(seen.errors)}; statuses {dict(seen.statuses)}")
    for error in seen.errors[:10]:
        print("  ", error)
    faults = [line for line in log.splitlines() if " error " in line or "Traceback" in line]
    for line in faults[:10]:
        print("  log:", line)
    if asked.json:
        found: dict[str, Any] = {"seconds": seen.seconds, "ends": ends, "errors": seen.errors}
        asked.json.write_text(json.dumps(found))
    return 1 if seen.errors or ends["lost"] or faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
