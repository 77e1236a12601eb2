"""The child process of a worker that holds its executors, as the worker sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import structlog

from cudaops.sandbox.process import child_environment, python_path
from cudaops.service.executor_host import Answer, Hello, HostOptions, Task
from cudaops.service.temporary import remove_left

log = structlog.get_logger("cudaops.calls")

HELLO_S = 300.0
"""A first start imports everything and may open a GPU, on a loaded machine."""
MAX_CALL_S = 3600.0
"""A host that takes longer over one call hangs: no limit within a call is longer than 10 min."""
MAX_LINE_BYTES = 256 << 20
PASSED_ON = ("LD_LIBRARY_PATH", "HOME", "TMPDIR")


class HostDied(Exception):
    """The child process ended while it was at work on this."""


class HostProcess:
    """The child and the tasks that it is at work on."""

    def __init__(self, process: asyncio.subprocess.Process, hello: Hello) -> None:
        self.places = hello.places
        self.lacks = hello.lacks
        """Executors that were asked for and do not work here."""
        self._process = process
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._reader = asyncio.create_task(self._read(), name="executor host")

    @classmethod
    async def start(cls, options: HostOptions) -> HostProcess:
        """Raises HostDied where it does not come up."""
        env = child_environment(
            {n: v for n, v in os.environ.items() if n.startswith("CUDA_") or n in PASSED_ON}
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cudaops.service.executor_host", options.model_dump_json()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**env, "PYTHONPATH": python_path()},
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(HELLO_S):
                hello = Hello.model_validate_json(await process.stdout.readline())
        except (ValueError, TimeoutError, asyncio.CancelledError) as problem:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            if isinstance(problem, asyncio.CancelledError):
                raise
            await process.wait()
            raise HostDied from None
        for name, lack in hello.lacks.items():
            said = f"{lack.problem}; {lack.remedy}" if lack.remedy else lack.problem
            log.warning("executor does not work", executor=name, problem=said)
        return cls(process, hello)

    @property
    def is_alive(self) -> bool:
        """Whether it takes tasks."""
        return not self._reader.done()

    async def do(self, task: Task) -> Answer:
        """Raises HostDied."""
        if not self.is_alive or self._process.stdin is None:
            raise HostDied
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[task.id] = future
        try:
            self._process.stdin.write(task.model_dump_json().encode() + b"\n")
            await self._process.stdin.drain()
            async with asyncio.timeout(MAX_CALL_S):
                return await future
        except (OSError, TimeoutError):
            await self.close()
            raise HostDied from None
        finally:
            self._waiting.pop(task.id, None)

    async def close(self) -> None:
        """End it with everything that it runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._reader, return_exceptions=True)
        await asyncio.to_thread(remove_left)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                answer = Answer.model_validate_json(line)
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(HostDied())
