"""Whether a worker can do what it offers: asked at its start, and when something failed for it.

A worker that cannot, and takes jobs all the same, fails every job of a queue within seconds while
others could do them. Executors are tried in a child process, for a driver may hang or crash; it has
no way to the database and none of the service's secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cudaops.domain.base import Record
from cudaops.domain.options import ExecutorName
from cudaops.domain.run import IsolationChoice
from cudaops.errors import EnvironmentFailure, InputError, SandboxUnavailable
from cudaops.executors.base import close_executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.isolation.level import enforce
from cudaops.executors.process import child_environment, python_path
from cudaops.service.job_folder import remove_left, remove_own, take_own
from cudaops.storage import sweep

HOLDS_S = 60.0
"""What was found to work is believed for this long: a check takes seconds."""
CHECK_S = 300.0
"""A first check imports everything and may open a GPU, on a loaded machine."""
PASSED_ON = ("LD_LIBRARY_PATH", "HOME", "TMPDIR")


class CheckOptions(Record):
    """What a worker wants to run on, and where it keeps what compilers make."""

    executors: tuple[ExecutorName, ...] = ("cpu",)
    builds: str
    """Folder for what compilers make, absolute."""
    builds_bytes: int
    """Size it keeps to."""
    driver: str = "nvidia"
    isolation: IsolationChoice = "auto"


class Lack(Record):
    """Why an executor does not work here."""

    problem: str
    remedy: str = ""


class SelfCheckReport(Record):
    """What the child says."""

    lacks: dict[ExecutorName, Lack]


class SelfCheck:
    """Of a worker with the executors that `options` names when it is asked."""

    def __init__(
        self,
        options: Callable[[], CheckOptions],
        on_failure: Callable[[EnvironmentFailure], None],
    ) -> None:
        self._options = options
        self._on_failure = on_failure
        self._passed_at: float | None = None
        self._lock = asyncio.Lock()

    async def passes(self) -> bool:
        """Try the executors. Where one of them fails, `on_failure` has been told."""
        async with self._lock:
            if self._passed_at is not None and time.monotonic() - self._passed_at < HOLDS_S:
                return True
            self._passed_at = None
            try:
                await working(self._options(), all_must_work=True)
            except SandboxUnavailable as failure:
                self._on_failure(failure)
                return False
            self._passed_at = time.monotonic()
            return True


async def working(options: CheckOptions, *, all_must_work: bool) -> tuple[ExecutorName, ...]:
    """Those of a worker's executors that work.

    Raises SandboxUnavailable where they cannot be tried, where none works, or one that must.
    """
    lacks = (await _checked(options)).lacks
    if lacks and (all_must_work or len(lacks) == len(options.executors)):
        raise _cannot_work(lacks)
    return tuple(name for name in options.executors if name not in lacks)


async def _checked(options: CheckOptions) -> SelfCheckReport:
    env = child_environment(
        {n: v for n, v in os.environ.items() if n.startswith("CUDA_") or n in PASSED_ON}
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cudaops.service.self_check", options.model_dump_json()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**env, "PYTHONPATH": python_path()},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CHECK_S):
            said, _ = await process.communicate()
        return SelfCheckReport.model_validate_json(said)
    except (ValueError, TimeoutError):
        raise SandboxUnavailable(
            "the process that tests this worker's executors did not finish",
            "see what it has written above; a machine without memory for it needs more, or fewer"
            " jobs",
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.to_thread(remove_left)


def _cannot_work(lacks: Mapping[ExecutorName, Lack]) -> SandboxUnavailable:
    """For executors that do not work; the remedy is that of the first."""
    told = "; ".join(f"{name}: {lack.problem}" for name, lack in lacks.items())
    first = next(iter(lacks.values()))
    remedy = first.remedy or "`cudaops doctor` looks at every part"
    if list(lacks) == ["cuda"]:
        remedy += "; or start it with --executor cpu"
    return SandboxUnavailable(f"this worker's executors do not work here: {told}", remedy)


def lacks_of(options: CheckOptions) -> SelfCheckReport:
    """Try each executor, in this process."""
    lacks: dict[ExecutorName, Lack] = {}
    for name in options.executors:
        try:
            enforce(options.isolation)
            _try(name, options)
        except EnvironmentFailure as failure:
            lacks[name] = Lack(problem=failure.problem, remedy=failure.remedy)
        except InputError as problem:
            lacks[name] = Lack(problem=str(problem))
    cache = Path(options.builds)
    cache.mkdir(parents=True, exist_ok=True)
    sweep(cache, options.builds_bytes)
    return SelfCheckReport(lacks=lacks)


def _try(name: ExecutorName, options: CheckOptions) -> None:
    cache = Path(options.builds)
    executor: CpuExecutor | CudaExecutor
    if name == "cpu":
        executor = CpuExecutor("A10", cache)
    else:
        executor = CudaExecutor(None, cache, driver=options.driver)
    try:
        executor.check_available()
    finally:
        close_executor(executor)


def main() -> None:
    """Say on stdout what does not work. The options are the one argument, as JSON."""
    take_own()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)  # whatever a library prints must not stand in the answer
        answer.write(lacks_of(CheckOptions.model_validate_json(sys.argv[1])).model_dump_json())
    remove_own()


if __name__ == "__main__":
    main()
