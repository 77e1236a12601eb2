"""MCP over streamable HTTP: who may call, and from where."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier
from starlette.applications import Starlette

from cudaops.domain.address import is_loopback
from cudaops.errors import InputError

SCOPE = "run"
"""What a token must allow: every server runs what it is given."""
MIN_TOKEN_CHARS = 16


class TokenHolder(NamedTuple):
    """Whose token it is and what it allows."""

    name: str
    scopes: tuple[str, ...]


Verify = Callable[[str], Awaitable[TokenHolder | None]]
"""Looks a bearer token up; None: unknown or expired."""


class BearerTokens(TokenVerifier):
    """Accepts the bearer tokens that a callback knows, where they allow to run."""

    def __init__(self, verify: Verify) -> None:
        super().__init__(required_scopes=[SCOPE])
        self._verify = verify

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose it is; None where nobody's."""
        caller = await self._verify(token)
        if caller is None:
            return None
        return AccessToken(token=token, client_id=caller.name, scopes=list(caller.scopes))


def one_token(token: str) -> Verify:
    """Accepts exactly this token. Raises InputError where it is too short to be a secret."""
    if len(token) < MIN_TOKEN_CHARS:
        raise InputError(f"a token needs at least {MIN_TOKEN_CHARS} characters")
    wanted = hashlib.sha256(token.encode()).digest()

    async def verify(given: str) -> TokenHolder | None:
        digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        return TokenHolder("token", (SCOPE,)) if hmac.compare_digest(digest, wanted) else None

    return verify


def build_mcp_app(
    server: FastMCP,
    *,
    path: str,
    verify: Verify | None = None,
    allowed_hosts: Sequence[str] = (),
) -> Starlette:
    """An ASGI application that speaks streamable HTTP at `path`.

    Requests whose Host is neither this machine nor in `allowed_hosts` get 421, those from another
    Origin 403 (MCP 2025-11-25, transports, security warning: against DNS rebinding).

    Args:
        verify: Asked for every request's bearer token; None: no token is asked for.
    """
    return server.http_app(path=path, **_guarded(server, verify, allowed_hosts))


def _guarded(
    server: FastMCP, verify: Verify | None, allowed_hosts: Sequence[str]
) -> dict[str, Any]:
    """The server asks for its token; what it is served with keeps foreign names out."""
    server.auth = None if verify is None else BearerTokens(verify)
    return {"host_origin_protection": True, "allowed_hosts": list(allowed_hosts)}


def require_token(host: str, token: str | None) -> None:
    """Raise InputError where anybody on the network could run programs here."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host} can be reached from other machines, and any caller can run programs: "
            "set CUDAOPS_TOKEN to a secret that callers send as `Authorization: Bearer`, or use "
            "--host 127.0.0.1"
        )


def serve_http(
    server: FastMCP,
    *,
    host: str,
    port: int,
    path: str,
    verify: Verify | None,
    allowed_hosts: Sequence[str] = (),
) -> None:
    """Serve until interrupted."""
    server.run(
        transport="http", host=host, port=port, path=path, show_banner=False,
        **_guarded(server, verify, allowed_hosts),
    )  # fmt: skip
