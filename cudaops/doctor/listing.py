"""The models that a server says it has, and what to do where it does not say."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cudaops.doctor.machine import Machine, Response
from cudaops.doctor.records import Finding, failed

SOON_S = 6.0
OFFLINE = "check the network and its proxy (HTTPS_PROXY); cudaops works without it, on what it has"

KEYS_FROM = {
    "NVIDIA_API_KEY": "build.nvidia.com",
    "OPENAI_API_KEY": "platform.openai.com",
    "ANTHROPIC_API_KEY": "platform.claude.com",
    "GOOGLE_API_KEY": "aistudio.google.com",
}
"""Where a new one is made."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where `GET models` is asked."""

    base: str
    """Up to and with `/v1`, or what stands in its place."""
    key_variable: str | None = None
    address_variable: str | None = None
    """Names a server of one's own; None for a provider's."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: str = ""

    @property
    def shown(self) -> str:
        """The address for messages, without a name and a password that may stand in it."""
        try:
            parts = urlsplit(self.base)
        except ValueError:
            return f"the address in {self.address_variable}"
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=host, query="", fragment="").geturl()


def bearer(key: str | None) -> dict[str, str]:
    """The header that OpenAI's protocol carries a key in; none without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def listed(machine: Machine, endpoint: Endpoint) -> tuple[str, ...] | Finding:
    """Ids of the models that the endpoint serves, or what is wrong."""
    try:
        answer = machine.get(
            f"{endpoint.base.rstrip('/')}/models{endpoint.query}", endpoint.headers, SOON_S
        )
    except OSError as error:
        reason = f"{endpoint.shown} cannot be reached ({type(error).__name__})"
        if endpoint.address_variable is None:
            return failed(reason, OFFLINE)
        return failed(reason, f"start that server, or correct {endpoint.address_variable}")
    if answer.status in (401, 403):
        return failed(f"{endpoint.shown} refuses the key (HTTP {answer.status})", _key(endpoint))
    if answer.status != 200:
        return failed(
            f"{endpoint.shown}/models answered HTTP {answer.status}", _address(endpoint, answer)
        )
    try:
        return tuple(str(model["id"]) for model in json.loads(answer.text)["data"])
    except (ValueError, KeyError, TypeError):
        return failed(
            f"{endpoint.shown}/models answered with something else than a list",
            _address(endpoint, answer),
        )


def nearest(model: str, ids: Sequence[str]) -> str | None:
    """The listed id that a mistyped one may have meant."""
    return next(iter(difflib.get_close_matches(model, ids, n=1, cutoff=0.6)), None)


def _key(endpoint: Endpoint) -> str:
    variable = endpoint.key_variable
    if variable is None:
        return f"let {endpoint.address_variable} name a server that asks for no key"
    if endpoint.address_variable is not None:
        return f"set {variable} to the key that this server wants; without quotes or spaces"
    return (
        f"make a new key at {KEYS_FROM[variable]} and set {variable}; "
        "without quotes or spaces around it"
    )


def _address(endpoint: Endpoint, answer: Response) -> str:
    variable = endpoint.address_variable
    if variable is None:
        return OFFLINE
    if answer.status == 404 and not endpoint.base.rstrip("/").endswith("/v1"):
        return f"let {variable} end in /v1"
    if answer.status in (200, 404):
        return f"correct {variable}: what is there does not speak NIM's or OpenAI's protocol"
    return f"look into that server's log; {variable} names it"
