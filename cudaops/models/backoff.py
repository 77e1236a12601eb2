"""How long to wait before a request is sent again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cudaops.models.failures import Failure


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential waits with full jitter, as AWS's Builders' Library advises for clients that
    would otherwise come back all at once.

    The defaults wait 31 s on average and 62 s at most over all tries: NVIDIA's trial endpoint
    refuses by the minute (40 requests; fungather.com on the API catalogue, read 2026-11-20).
    """

    tries: int = 6
    """Requests for one piece of an answer, the first included."""
    timeout_tries: int = 2
    """The same where they end in time-outs, which have waited long enough already."""
    base_s: float = 2.0
    """Most that the first wait can be; doubled for each further one."""
    cap_s: float = 60.0
    """Most that any wait of ours can be."""
    longest_retry_after_s: float = 120.0
    """A server that asks for more is taken to have refused."""
    longest_wait_s: float = 120.0
    """Most that all waits for one piece of an answer take together: somebody sits before it."""
    network_tries: int = 3
    """Requests where nobody can be reached at all."""
    announce: Callable[[str], None] = lambda line: None
    """Takes one line before each wait."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    """From 0 to 1."""

    def delay_s(self, tried: int, failure: Failure) -> float | None:
        """Seconds before the next try; None where there is to be none.

        Args:
            tried: Requests sent so far.
            failure: Of the last one.
        """
        few = {"timeout": self.timeout_tries, "network": self.network_tries}
        most = few.get(failure.kind, self.tries)
        if not failure.retryable or tried >= most:
            return None
        drawn = self.random() * min(self.cap_s, self.base_s * 2.0 ** (tried - 1))
        if failure.retry_after_s is None:
            return drawn
        if failure.retry_after_s > self.longest_retry_after_s:
            return None
        return failure.retry_after_s + min(drawn, 1.0)
