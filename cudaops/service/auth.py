"""Who asks, and whether that is allowed: bearer tokens with scopes read < run < admin."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cudaops.service.options import ServiceOptions
from cudaops.service.problems import Refused
from cudaops.service.rates import Rate, Rates, address_key
from cudaops.service.records import SCOPES, Scope
from cudaops.service.store import Identity, Store

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


class Doorkeeper:
    """Knows callers by their tokens and counts what they ask."""

    def __init__(self, store: Store, options: ServiceOptions) -> None:
        self.rates = Rates(options)
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
        keeper: Doorkeeper = request.app.state.service.doorkeeper
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
