"""Stage `service` of gpu_check.py: `cudaops serve` with a worker on the GPU, asked over HTTP and by
`run --executor remote`.

    python benchmarks/gpu_service.py SOURCE.cu FOLDER

Two jobs at once, or one a GPU where there are more, must all end, with one measurement at a time on
each GPU; what comes back is printed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import site
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu_locks import watched

ROOT = Path(__file__).resolve().parents[1]
STANDIN = os.environ.get("CUDAOPS_GPU_DRIVER", "nvidia") != "nvidia"
JOBS_S = 300.0
"""Two jobs of some 45 s each on one GPU, and their compilers."""


def gpus() -> int:
    """How many `cudaops serve` would see."""
    from cudaops.service.worker import gpus_here

    return len(gpus_here(os.environ))


def interpreter(folder: Path) -> str:
    """Python for the service. Where cudaops only lies here and its packages on PYTHONPATH, one in
    `folder` that has both without it: `cudaops serve` asks for its own version, and the process of
    a worker's executors is not given PYTHONPATH."""
    try:
        version("cudaops")
    except PackageNotFoundError:
        pass
    else:
        return sys.executable
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    first = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    text = f"import sys; sys.path[:0] = {first!r}; sys.path += {site.getsitepackages()!r}\n"
    (packages / "ours.pth").write_text(text, "utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    facts = packages / f"cudaops-{project['version']}.dist-info"
    facts.mkdir()
    text = f"Metadata-Version: 2.1\nName: cudaops\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(text, "utf-8")
    return str(folder / "bin" / "python")


@contextmanager
def service(python: str, folder: Path, workers: int | None) -> Iterator[str]:
    """A service with two workers on one GPU, so that two jobs want it at once, or with as many as
    it chooses; its address."""
    command = [python, "-m", "cudaops", "serve", "--port", "0"]
    if workers is not None:
        command += ["--workers", str(workers)]
    with (folder / "serve.err").open("w") as log:
        child = subprocess.Popen(
            [*command, "--executor", "cuda"], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            print("     ", line.strip())
            found = re.search(r"http://\S+", line)
            if found is None:
                sys.exit((folder / "serve.err").read_text("utf-8")[-2000:])
            yield found[0]
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


def ask(address: str, what: dict[str, Any] | None = None) -> Any:
    """The JSON that the service answers."""
    data = None if what is None else json.dumps(what).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as got:
        return json.load(got)


def jobs(address: str, source: str, folder: Path, count: int) -> None:
    """The main job, `count` times at once."""
    started = time.monotonic()
    request = {"source": source, "executor": "cuda", "max_iterations": 1, "optimizer": "recipes"}
    ids = [ask(f"{address}/optimize", request)["id"] for _ in range(count)]
    open_jobs = set(ids)
    while open_jobs and time.monotonic() - started < JOBS_S:
        time.sleep(1)
        for id in sorted(open_jobs):
            job = ask(f"{address}/jobs/{id}")
            if job["status"] not in ("queued", "running"):
                open_jobs.remove(id)
                after = time.monotonic() - started
                print(f"      job {job['status']} after {after:.1f} s, {_came_to(job)}")
                print(f"          on {job['worker']}")
                (folder / f"job-{len(open_jobs)}.json").write_text(json.dumps(job), "utf-8")
                with urllib.request.urlopen(f"{address}/jobs/{id}/events", timeout=60) as got:
                    (folder / f"events-{len(open_jobs)}.txt").write_bytes(got.read())
    print(f"      jobs not ended: {len(open_jobs)}")


def _came_to(job: dict[str, Any]) -> str:
    if job["problem"]:
        return str(job["problem"])
    record = job["result"]
    verify = record["verify"]
    return (
        f"{job['outcome']}, {verify['baseline_kernel_ms']} -> {verify['candidate_kernel_ms']} ms, "
        f"{verify['speedup']}x ({record['time_source']}), loop {record['loop_time_seconds']} s, "
        f"{len(job['artefacts'])} artefacts"
    )


def remote(python: str, address: str, source: Path, folder: Path) -> None:
    """The command line, which hands the service the whole job."""
    started = time.monotonic()
    words = ["run", str(source), "--executor", "remote", "--max-iterations", "1", "--no-memory"]
    environment = {**os.environ, "CUDAOPS_SERVER": address}
    done = subprocess.run(
        [python, "-m", "cudaops", *words, "--out", str(folder / "remote")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (folder / "remote.out").write_text(done.stdout, "utf-8")
    (folder / "remote.err").write_text(done.stderr, "utf-8")
    print(
        f"      run --executor remote: exit {done.returncode}, {time.monotonic() - started:.1f} s"
    )
    print("\n".join(f"      {line}" for line in (done.stdout or done.stderr).splitlines()[:6]))


def main() -> None:
    """All of it."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-service-") as name:
        Path(name).chmod(0o755)  # programs run as other accounts
        python = interpreter(Path(name) / "python")
        found = gpus()
        print(f"      GPUs: {found}")
        # On several GPUs the service chooses how many workers there are.
        with service(python, folder, 2 if found < 2 else None) as address:
            with watched() as locks:
                jobs(address, source.read_text("utf-8"), folder, max(2, found))
            locks.write(folder / "locks.txt")
            print(
                f"      locks: {len(locks.seen)} changes, {locks.broken()} with another beside one"
                f" who was alone; {locks.alone_s(1):.1f} s measured alone on a GPU,"
                f" {locks.alone_s(2):.1f} s of them on two at once"
            )
            remote(python, address, source, folder)
            with urllib.request.urlopen(f"{address}/metrics", timeout=30) as got:
                (folder / "metrics.txt").write_bytes(got.read())


if __name__ == "__main__":
    main()
