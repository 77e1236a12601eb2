"""What `--executor remote` costs over `--executor cpu` on one machine: seconds and bytes a call.

    python -m cudaops serve --port 8080 &
    python benchmarks/remote_overhead.py http://127.0.0.1:8080 examples/naive_matmul.cu

Both executors do the same calls in turn, so that the machine's load is the same for both. Every
build is made once before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cudaops.domain.execution import Captured, Compiled, Unit
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.executors.base import Executor
from cudaops.sandbox.executors.cpu import CpuExecutor
from cudaops.sandbox.executors.cpu_unit import captured_inputs
from cudaops.sandbox.executors.remote import RemoteExecutor


def calls_of(executor: Executor, source: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """What is timed, with everything built that it needs."""
    program = load_program(source)
    captured = executor.capture(program, None, (), folder / "first", 120.0)
    assert isinstance(captured, Captured), captured
    workload = captured.workloads[0]
    unit = Unit(program=program, kernel=captured.kernel, callee=workload.callee)
    compiled = executor.compile(unit)
    assert isinstance(compiled, Compiled), compiled
    plan, inputs = baseline_plan(workload), captured_inputs(workload)
    executor.measure(compiled, workload, plan)
    return {
        "compile (cached)": lambda: executor.compile(unit),
        "run": lambda: executor.run(compiled, workload, plan, inputs, folder / "run"),
        "measure": lambda: executor.measure(compiled, workload, plan),
        "capture": lambda: executor.capture(program, None, (), folder / "again", 120.0),
    }


def main() -> None:
    """Time and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("source", type=Path)
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = CpuExecutor("A10", folder / "kernels")
        remote = RemoteExecutor(given.server, None, folder / "remote", device="A10")
        ours = calls_of(local, given.source, folder / "local")
        theirs = calls_of(remote, given.source, folder / "there")
        first = (remote.transport.sent_bytes, remote.transport.received_bytes)
        print(f"first capture, compile, measure: sent {first[0]:,} B, received {first[1]:,} B")
        for what in ours:
            seconds: dict[str, list[float]] = {"cpu": [], "remote": []}
            before = (remote.transport.sent_bytes, remote.transport.received_bytes)
            for _ in range(given.times):
                for where, call in (("cpu", ours[what]), ("remote", theirs[what])):
                    start = time.perf_counter()
                    call()
                    seconds[where].append(time.perf_counter() - start)
            sent = (remote.transport.sent_bytes - before[0]) // given.times
            received = (remote.transport.received_bytes - before[1]) // given.times
            here, there = (statistics.median(seconds[where]) for where in ("cpu", "remote"))
            print(
                f"{what:18} cpu {here:7.3f} s  remote {there:7.3f} s  +{(there - here) * 1e3:6.1f}"
                f" ms   sent {sent:,} B, received {received:,} B a call"
            )
        remote.close()


if __name__ == "__main__":
    main()
