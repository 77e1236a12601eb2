"""Whether a worker can do what it offers: asked at its start, and when something failed for it.

A worker that cannot, and takes jobs all the same, fails every job of a queue within seconds while
others could do them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from cudaops.errors import EnvironmentFailure, SandboxUnavailable
from cudaops.sandbox.wire import CallProblem, Machinery
from cudaops.service.executor_host import HostOptions
from cudaops.service.executor_process import HostDied, HostProcess

HOLDS_S = 60.0
"""What was found to work is believed for this long: a check takes seconds."""


class SelfCheck:
    """Of a worker with the executors that `options` names when it is asked."""

    def __init__(
        self,
        options: Callable[[], HostOptions],
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
                host = await tried_host(self._options(), all_must_work=True)
            except SandboxUnavailable as failure:
                self._on_failure(failure)
                return False
            await host.close()
            self._passed_at = time.monotonic()
            return True


async def tried_host(options: HostOptions, *, all_must_work: bool) -> HostProcess:
    """A process of a worker's executors, started; it has tried each of them.

    Raises SandboxUnavailable where it does not come up, where no executor works, or one that must.
    """
    try:
        host = await HostProcess.start(options)
    except HostDied:
        raise SandboxUnavailable(
            "the process of this worker's executors does not start",
            "see what it has written above; a machine without memory for it needs more, or fewer"
            " jobs",
        ) from None
    if host.lacks and (all_must_work or not host.places):
        await host.close()
        raise _cannot_work(host.lacks)
    return host


def _cannot_work(lacks: Mapping[Machinery, CallProblem]) -> SandboxUnavailable:
    """For executors that do not work; the remedy is that of the first."""
    told = "; ".join(f"{name}: {lack.problem}" for name, lack in lacks.items())
    first = next(iter(lacks.values()))
    remedy = first.remedy or "`cudaops doctor` looks at every part"
    if list(lacks) == ["cuda"]:
        remedy += "; or start it with --executor cpu"
    return SandboxUnavailable(f"this worker's executors do not work here: {told}", remedy)
