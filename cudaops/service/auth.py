"""Who may ask, and how often: a service's limits, bearer tokens with scopes read < run < admin, and
moving windows of a minute for each of them.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Literal

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.service.problems import Refused
from cudaops.service.records import SCOPES, Scope
from cudaops.service.store import Identity, Store

# What whoever starts the service may choose: limits, and whether tokens are asked for.

MIB = 1 << 20


class ServiceOptions(Record):
    """Limits of one API process. A limit of 0 means none where its description says so."""

    version: str
    """Of cudaops; shown by /version and the OpenAPI page."""
    public_url: str | None = None
    """Address under which browsers reach the service where that is not the `Host` header's: behind
    a proxy that ends TLS. Scheme, host and port alone: `https://kernels.example.org`."""
    tokens: Literal["always", "once_one_exists"] = "always"
    """`once_one_exists`: everybody may do everything until a token is added. For loopback only."""
    admin_token: Annotated[str, Field(min_length=32)] | None = Field(default=None, repr=False)
    """A token from outside the database that may do everything."""
    reads_per_minute: Annotated[int, Field(ge=0)] = 600
    """Requests of one token, or of one address without a token; 0: no limit."""
    submits_per_minute: Annotated[int, Field(ge=0)] = 60
    """New jobs of one token or address; 0: no limit."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 8 * MIB
    """A source, 64 headers and their JSON escapes fit; see records.MAX_TEXT_CHARS."""
    stall_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Longest pause inside a request's body, and longest time to send its headers."""
    slow_window_seconds: Annotated[float, Field(gt=0)] = 30.0
    """A body must come at `min_body_bytes_per_second` on average over any such window."""
    min_body_bytes_per_second: Annotated[int, Field(ge=0)] = 1024
    max_requests: Annotated[int, Field(ge=1)] = 1000
    """Requests in progress at once, streams among them; more are answered 503."""
    max_connections: Annotated[int, Field(ge=1)] = 2000
    """Open connections at once, half as many from one address (or IPv6 /64); more are closed
    unanswered."""
    max_streams: Annotated[int, Field(ge=0)] = 500
    """Event streams and `Prefer: wait` at once; more are answered 503."""
    max_stream_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """A stream is cut then; its reader resumes by the last id."""
    keep_alive_seconds: Annotated[float, Field(gt=0)] = 15.0
    """Between two comments in a silent stream, so that proxies leave it open."""


# How often one token or address may ask: moving windows of a minute, kept in this process.

Rate = Literal["read", "submit"]

WINDOW_S = 60.0


class RateLimiter:
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

    def count(self, rate: Rate, who: str, more: int = 1) -> None:
        """So many more requests of `who`. Raises Refused (429) where they are too many."""
        allowed, now = self._allowed[rate], self._clock()
        if not allowed:
            return
        if now - self._tidied_at > WINDOW_S:
            self._tidy(now)
        times = self._times.setdefault((rate, who), deque())
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        if (too_many := len(times) + more - allowed) > 0:
            wait_s = max(1, math.ceil(times[too_many - 1] + WINDOW_S - now))
            raise Refused(
                "too-often",
                f"at most {allowed} such requests a minute; wait {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        times.extend([now] * more)

    def allowed(self, rate: Rate) -> int:
        """Most in a minute; 0: no limit."""
        return self._allowed[rate]

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


# Who asks, and whether that is allowed: bearer tokens with scopes read < run < admin.

ANYONE = Identity("anyone", "admin")
"""Who asks where no token is asked for: the person at this machine."""
LOOK_AGAIN_S = 5.0
"""How soon a service without tokens notices that one was added."""
MAX_TOKEN_CHARS = 256

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of `cudaops token add NAME --scope read|run|admin`."
    " A service on loopback without any token asks for none.",
)


class Authenticator:
    """Knows callers by their tokens and counts what they ask."""

    def __init__(self, store: Store, options: ServiceOptions) -> None:
        self.rates = RateLimiter(options)
        self._store = store
        self._admin = _digest(options.admin_token) if options.admin_token else None
        self._asks = options.tokens == "always" or self._admin is not None
        self._looked_at = -LOOK_AGAIN_S

    async def asks(self) -> bool:
        """Whether a token is needed. Once it was, it stays so until a restart."""
        if not self._asks and time.monotonic() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            self._asks = bool(await self._store.tokens())
        return self._asks

    async def identify(self, token: str | None, address: str | None, rate: Rate) -> Identity:
        """Who this is. Raises Refused: 401, the same for an unknown, an expired and no
        token; 429."""
        if not await self.asks():
            self.rates.count(rate, address_key(address))
            return ANYONE
        found = await self._known(token) if token else None
        if found is None:
            self.rates.count("read", address_key(address))
            raise Refused(
                "no-token",
                "send the header `Authorization: Bearer TOKEN`; `cudaops token add` makes one",
                headers={"WWW-Authenticate": 'Bearer realm="cudaops"'},
            )
        self.rates.count(rate, f"token:{found.name}")
        return found

    def count_jobs(self, who: Identity, address: str | None, jobs: int) -> None:
        """Count the jobs of a request that starts several, for which `identify` has counted one;
        more than there may be in a minute take a whole one. Raises Refused: 429."""
        allowed = self.rates.allowed("submit")
        more = min(jobs, allowed) - 1 if allowed else 0
        if more > 0:
            key = address_key(address) if who is ANYONE else f"token:{who.name}"
            self.rates.count("submit", key, more)

    async def _known(self, token: str) -> Identity | None:
        if len(token) > MAX_TOKEN_CHARS or "\x00" in token:
            return None
        if self._admin is not None and hmac.compare_digest(_digest(token), self._admin):
            return Identity("admin", "admin")
        return await self._store.identify(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def allows(has: Scope, needs: Scope) -> bool:
    """Whether scope `has` includes `needs`."""
    return SCOPES.index(has) >= SCOPES.index(needs)


def require(scope: Scope, rate: Rate = "read") -> Callable[..., Awaitable[Identity]]:
    """A dependency: the caller, who may do `scope`; counts the request under `rate`."""

    async def identified(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    ) -> Identity:
        keeper: Authenticator = request.app.state.service.authenticator
        token = credentials.credentials if credentials else None
        address = request.client.host if request.client else None
        identity = await keeper.identify(token, address, rate)
        request.state.actor = identity.name
        if not allows(identity.scope, scope):
            raise Refused(
                "scope",
                f"this needs a token of scope `{scope}`; yours has `{identity.scope}`",
                headers={
                    "WWW-Authenticate": f'Bearer realm="cudaops", error="insufficient_scope",'
                    f' scope="{scope}"'
                },
            )
        return identity

    return identified
