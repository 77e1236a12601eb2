"""The runner's process: serves tasks over two pipes, or does one task from a file.

    python -m cudaops.executors.cuda.runner DRIVER --tasks-fd N --replies-fd N
    python -m cudaops.executors.cuda.runner DRIVER --task FILE --reply FILE [--first FOLDER]

With `--first` it launches a kernel that does nothing, in turn (`turns`) in that folder, and then
waits for FILE.

DRIVER is `nvidia`, or `package.module:Class`, a class that implements `Driver`. Standard
output and error belong to what the kernels print. The first line over the pipe is a ProbeReply, or
RefusedReply where no GPU could be opened. Exit code: 3 with a RefusedReply, else 0.
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from cudaops.domain.base import Dim3
from cudaops.executors.cuda.gpu_lock import POLL_S
from cudaops.executors.cuda.protocol import ProbeReply, RefusedReply, Reply
from cudaops.executors.cuda.runner.driver import Driver, DriverError, DriverMissing, TaskRefused
from cudaops.executors.cuda.runner.server import answer, encode, serve
from cudaops.executors.cuda.runner.tracing import CuptiTimes
from cudaops.executors.cuda.turns import in_turn

REFUSED_EXIT = 3
MOST_WAIT_S = 900.0
"""For a task that is given later. Chosen: longer than a search; who began this ends it before."""


def main(argv: Sequence[str]) -> int:
    """Open the driver and do what the arguments say."""
    options = _options(argv)
    if options.task is not None:
        return _once(options)
    replies = os.fdopen(options.replies_fd, "wb")
    tasks = os.fdopen(options.tasks_fd, "rb")
    try:
        driver = open_driver(options.driver, options.device)
        first: Reply = ProbeReply(facts=driver.facts, free_bytes=driver.free_bytes())
    except DriverMissing as missing:
        first = RefusedReply(problem=missing.problem, remedy=missing.remedy)
    except DriverError as problem:
        first = RefusedReply(problem=str(problem), remedy="look at `nvidia-smi`")
    replies.write(encode(first))
    replies.flush()
    if isinstance(first, RefusedReply):
        return REFUSED_EXIT
    end_with_parent(options.tasks_fd)
    serve(driver, tasks, replies, CuptiTimes() if driver.facts.real else None)
    return 0


def open_driver(name: str, device: int) -> Driver:
    """The driver of this name on this device. Raises DriverMissing."""
    if name == "nvidia":
        from cudaops.executors.cuda.runner.nvidia import NvidiaDriver

        return NvidiaDriver(device)
    module, _, cls = name.partition(":")
    driver: Driver = getattr(importlib.import_module(module), cls)()
    return driver


def end_with_parent(tasks_fd: int) -> None:
    """End this process as soon as nobody can send tasks, even while a kernel never ends."""
    waiter = select.poll()
    waiter.register(tasks_fd, 0)

    def wait() -> None:
        waiter.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="end with parent").start()


def _once(options: argparse.Namespace) -> int:
    """One task for a tool that looks at the process: no tracer of our own beside it."""
    try:
        driver = open_driver(options.driver, options.device)
        if options.first is not None:
            _begin(driver, options.first)
            _wait_for(options.task)
    except (DriverMissing, TaskRefused) as missing:
        reply: Reply = RefusedReply(problem=missing.problem, remedy=missing.remedy)
    else:
        reply = answer(driver, options.task.read_bytes())
    options.reply.write_bytes(encode(reply))
    return REFUSED_EXIT if isinstance(reply, RefusedReply) else 0


def _begin(driver: Driver, folder: Path) -> None:
    """Let the tool do what it does once, for its first kernel."""
    empty = driver.empty_kernel()
    with in_turn(folder):
        driver.profiler_range(start=True)
        if empty is not None:
            driver.launch(empty, Dim3(), Dim3(x=32), 0, ())
        driver.synchronize()
        driver.profiler_range(start=False)


def _wait_for(task: Path) -> None:
    until = time.monotonic() + MOST_WAIT_S
    while not task.exists():
        if time.monotonic() > until:
            raise TaskRefused(f"no task came within {MOST_WAIT_S:.0f} s", "report it")
        time.sleep(POLL_S)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cudaops.executors.cuda.runner")
    parser.add_argument("driver")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--tasks-fd", type=int)
    parser.add_argument("--replies-fd", type=int)
    parser.add_argument("--task", type=Path)
    parser.add_argument("--reply", type=Path)
    parser.add_argument("--first", type=Path)
    options = parser.parse_args(argv)
    if (options.task is None) != (options.reply is None):
        parser.error("--task and --reply go together")
    if options.task is None and (options.tasks_fd is None or options.replies_fd is None):
        parser.error("give --task and --reply, or --tasks-fd and --replies-fd")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
