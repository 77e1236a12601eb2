"""What whoever starts the service may choose: limits, and whether tokens are asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cudaops.domain.base import Record

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
