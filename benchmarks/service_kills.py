"""Kill the workers, and the service, at random while jobs are under way; every job must end once.

    python benchmarks/service_kills.py --jobs 50 --workers 3 --every 8 --seed 1

Starts an embedded PostgreSQL in a folder of its own, `cudaops serve` without workers of its own
(`--no-service` leaves it out: jobs go straight into the database then) and `cudaops worker`
processes, submits jobs of all six kinds through HTTP, and kills (SIGKILL) one process chosen at
random every so often; each is started again at once. Prints what came of every kind.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import httpx

from cudaops.rag.embedded import EmbeddedServer
from cudaops.service.records import ENDED, REQUESTS, Job, JobKind
from cudaops.service.store import Store

SOURCE = """\
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
int main() {
  const int n = 4096;
  std::vector<float> host(n, 1.0f);
  float *x, *y;
  cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4);
  cudaMemcpy(x, host.data(), n * 4, cudaMemcpyHostToDevice);
  scale<<<n / 256, 256>>>(x, y, n);
  cudaMemcpy(host.data(), y, n * 4, cudaMemcpyDeviceToHost);
  printf("%f\\n", host[7]);
}
"""
CANDIDATE = """\
// @launch scaled grid=(n / 256) block=(256) args=(x, y, n)
__global__ void scaled(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}
"""
KINDS: tuple[JobKind, ...] = ("optimize", "run", "profile", "verify", "benchmark", "compile")
LEAVES = {"optimize": {"run.json", "report.md"}, "verify": {"run.json", "report.md"}}
"""Artefacts that an ended job of the kind must have."""


class Options(NamedTuple):
    jobs: int
    workers: int
    every_s: float
    lease_s: float
    seed: int
    service: bool


class Processes:
    """What may be killed, by name, and how each is started."""

    def __init__(self, folder: Path, conninfo: str, options: Options) -> None:
        self.port = _free_port()
        self._environment = {
            **os.environ,
            "DATABASE_URL": conninfo,
            "CUDAOPS_SERVICE_FOLDER": str(folder / "service"),
            "CUDAOPS_CACHE": str(folder / "cache"),
        }
        self._log = (folder / "log.txt").open("ab")
        base = [sys.executable, "-m", "cudaops"]
        self._commands = {
            f"worker {n}": [
                *base, "worker", "--executor", "cpu", "--lease", str(options.lease_s),
                "--name", f"worker-{n}",
            ]
            for n in range(1, options.workers + 1)
        }  # fmt: skip
        if options.service:
            self._commands["service"] = [*base, "serve", "--workers", "0", "--port", str(self.port)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.kills: collections.Counter[str] = collections.Counter()

    @property
    def names(self) -> list[str]:
        return list(self._commands)

    def start(self, name: str) -> None:
        self._running[name] = subprocess.Popen(
            self._commands[name], env=self._environment, stderr=self._log, stdout=self._log
        )

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()
        self.kills[name] += 1

    def stop(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def request(kind: JobKind, number: int) -> dict[str, Any]:
    # A text of its own each, so that no compile is a cache hit.
    body: dict[str, Any] = {"source": f"// {number}\n{SOURCE}", "executor": "cpu"}
    if kind in ("verify", "benchmark"):
        body["candidate"] = CANDIDATE
    if kind == "optimize":
        body["max_iterations"] = 1
    return body


async def submit(store: Store, processes: Processes, options: Options) -> list[UUID]:
    """Every job once, whatever is killed meanwhile: the idempotency key makes a repeat harmless."""
    ids = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{processes.port}") as client:
        for number in range(options.jobs):
            kind = KINDS[number % len(KINDS)]
            body, key = request(kind, number), f"job-{number}"
            if not options.service:
                asked: Any = REQUESTS[kind].model_validate(body)
                ids.append((await store.submit(kind, asked, "bench", key)).job.id)
                continue
            while True:
                try:
                    answer = await client.post(
                        f"/{kind}", json=body, headers={"Idempotency-Key": key}, timeout=30
                    )
                    if 400 <= answer.status_code < 500 and answer.status_code != 429:
                        raise SystemExit(f"{kind} was refused: {answer.text}")
                    if answer.is_success:
                        ids.append(UUID(answer.json()["id"]))
                        break
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)
    return ids


async def killing(processes: Processes, options: Options, over: asyncio.Event) -> None:
    dice = random.Random(options.seed)
    while not over.is_set():
        try:
            async with asyncio.timeout(dice.uniform(0.2, 1.8) * options.every_s):
                await over.wait()
        except TimeoutError:
            name = dice.choice(processes.names)
            processes.kill(name)
            processes.start(name)


async def wait(store: Store, ids: list[UUID]) -> None:
    left, said = set(ids), 0
    while left:
        await asyncio.sleep(1.0)
        for id in list(left):
            job = await store.summary(id)
            if job is not None and job.status in ENDED:
                left.discard(id)
        if len(ids) - len(left) >= said + 10:
            said = len(ids) - len(left)
            print(f"{said} of {len(ids)} jobs have ended", file=sys.stderr)


async def faults(store: Store, job: Job) -> list[str]:
    """What is wrong with an ended job; nothing should be."""
    events = await store.events(job.id, 0, limit=100_000)
    ends = [one for one in events if one.kind == "status" and one.message in ENDED]
    wrong = []
    if len(ends) != 1 or events[-1] != ends[0]:
        wrong.append(f"{job.id} has {len(ends)} ends")
    if [one.seq for one in events] != list(range(1, len(events) + 1)):
        wrong.append(f"{job.id} has gaps in its events")
    if job.status == "succeeded" and not {a.name for a in job.artefacts} >= LEAVES.get(
        job.kind, set()
    ):
        wrong.append(f"{job.id} lacks artefacts")
    if job.status != "succeeded" and (job.problem is None or "3 times" not in job.problem.detail):
        wrong.append(f"{job.id} {job.status}: {job.problem}")
    return wrong


async def run(folder: Path, conninfo: str, options: Options) -> int:
    store = await Store.open(conninfo)
    processes = Processes(folder, conninfo, options)
    started, over = time.monotonic(), asyncio.Event()
    try:
        for name in processes.names:
            processes.start(name)
        killer = asyncio.create_task(killing(processes, options, over))
        ids = await submit(store, processes, options)
        await wait(store, ids)
        over.set()
        await killer
        jobs = [job for id in ids if (job := await store.job(id)) is not None]
        wrong = [line for job in jobs for line in await faults(store, job)]
        if len(set(ids)) != options.jobs or len(jobs) != options.jobs:
            wrong.append(f"{options.jobs} were submitted, {len(jobs)} are there")
        seconds = time.monotonic() - started
    finally:
        processes.stop()
        await store.close()
    print(table(jobs, processes, seconds))
    for line in wrong:
        print(f"WRONG: {line}")
    print("every job ended once, with its artefacts" if not wrong else f"{len(wrong)} faults")
    return 1 if wrong else 0


def table(jobs: list[Job], processes: Processes, seconds: float) -> str:
    lines = [
        f"{len(jobs)} jobs in {seconds:.0f} s; killed: "
        + ", ".join(f"{name} {n} times" for name, n in sorted(processes.kills.items())),
        "",
        "| kind | jobs | succeeded | given up | attempts: 1 | 2 | 3 | more |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        these = [job for job in jobs if job.kind == kind]
        tries = collections.Counter(min(job.attempts, 4) for job in these)
        succeeded = sum(job.status == "succeeded" for job in these)
        lines.append(
            f"| {kind} | {len(these)} | {succeeded} | {len(these) - succeeded} | "
            + " | ".join(str(tries[n]) for n in (1, 2, 3, 4))
            + " |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between kills")
    parser.add_argument("--lease", type=float, default=5.0, help="of the workers, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-service", action="store_true")
    given = parser.parse_args()
    options = Options(
        given.jobs, given.workers, given.every, given.lease, given.seed, not given.no_service
    )
    # PostgreSQL's own account must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="cudaops-kills-", dir="/var/tmp"))
    folder.chmod(0o755)
    server = EmbeddedServer.start(folder / "database")
    try:
        code = asyncio.run(run(folder, server.conninfo, options))
    finally:
        server.close()
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs are in {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
