"""How often one token or address may ask: moving windows of a minute, kept in this process.

Ours because the library for it (limits 5.8) starts a thread a request to forget old entries, which
cost more than answering did.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Literal

from cudaops.service.options import ServiceOptions
from cudaops.service.problems import Refused

Rate = Literal["read", "submit"]

WINDOW_S = 60.0


class Rates:
    """Counts requests. Several API processes count each for itself (docs/service.md)."""

    def __init__(
        self, options: ServiceOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed: dict[Rate, int] = {
            "read": options.reads_per_minute,
            "submit": options.submits_per_minute,
        }
        self._clock = clock
        self._times: dict[tuple[Rate, str], deque[float]] = {}
        self._tidied_at = clock()

    def count(self, rate: Rate, who: str) -> None:
        """One more request of `who`. Raises Refused (429) where it is one too many."""
        allowed, now = self._allowed[rate], self._clock()
        if not allowed:
            return
        if now - self._tidied_at > WINDOW_S:
            self._tidy(now)
        times = self._times.setdefault((rate, who), deque())
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        if len(times) >= allowed:
            wait_s = max(1, math.ceil(times[0] + WINDOW_S - now))
            raise Refused(
                "too-often",
                f"at most {allowed} such requests a minute; wait {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        times.append(now)

    def _tidy(self, now: float) -> None:
        """Forget who has not asked for a minute: addresses of strangers are many."""
        live = {key: t for key, t in self._times.items() if t and t[-1] > now - WINDOW_S}
        self._times, self._tidied_at = live, now


def address_key(host: str | None) -> str:
    """Under which an address is counted: of IPv6 the /64, which one household has whole."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return "address:unknown"
    if isinstance(address, IPv6Address):
        return f"address:{IPv6Address(int(address) >> 64 << 64)}/64"
    return f"address:{address}"
