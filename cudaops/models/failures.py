"""What went wrong with a model: every exception of every client, put into one of eight kinds; and
how long to wait before a request is sent again.

The clients agree on nothing: ChatNVIDIA raises a bare `Exception` whose text begins with
`[429] Too Many Requests`, openai and anthropic set `status_code`, google-genai sets `code`, and
aiohttp, requests and httpx have families of their own. Libraries are recognised by the names of
their classes, so that none has to be imported.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from cudaops.errors import ModelUnavailable
from cudaops.models.names import (
    KEY_VARIABLES,
    MODEL_SETTING,
    URL_VARIABLE,
    ModelName,
    Provider,
)

FailureKind = Literal[
    "auth", "not_found", "rate", "server", "timeout", "network", "bad_request", "too_long"
]
"""auth: the key is missing, wrong or not entitled. not_found: no such model here. server: it broke,
or answered what is no answer. too_long: the prompt does not fit."""

LONGEST_MESSAGE = 300
"""Characters of a server's own words that a message keeps."""

_TIMEOUTS = {
    "APITimeoutError", "ReadTimeout", "ConnectTimeout", "PoolTimeout", "WriteTimeout", "Timeout",
    "TimeoutException", "ServerTimeoutError", "DeadlineExceeded",
}  # fmt: skip
_NETWORK = {
    "APIConnectionError", "ClientConnectionError", "ClientPayloadError", "ClientOSError",
    "ConnectionError", "ChunkedEncodingError", "ProtocolError", "TransportError",
    "IncompleteRead", "ServiceUnavailable",
}  # fmt: skip
_TOO_LONG = re.compile(
    r"context[ _]length|context window|maximum context|too many (input )?tokens|prompt is too long"
    r"|input (is|was) too long|exceeds? the (maximum|model'?s)[^.]{0,40}tokens",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient[_ ]quota|credit balance|billing|out of credits", re.I)
_NO_ANSWER = "No generation chunks were returned"
"""LangChain's words for a stream that ended before it began."""
_BRACKETED = re.compile(r"\s*\[(\d{3}|[^\]\s]{1,20})\]\s")
_PAGE_STATUS = re.compile(r"<(?:title|h1)>\s*(\d{3})\b", re.IGNORECASE)
_TAG = re.compile(r"^[^<>]{0,8}>|</?[a-zA-Z][^<>]{0,200}>")
_SECRETS = re.compile(r"(?i)\bnvapi-[\w-]+|\bsk-[\w-]{8,}|\bAIza[\w-]{16,}|(?<=bearer )\S+")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a request brought no answer."""

    kind: FailureKind
    retryable: bool
    """The same request may succeed a little later."""
    problem: str
    """One line, with the server's own words where it had some; never a key."""
    remedy: str
    retry_after_s: float | None = None
    """How long the server asks to wait."""

    def unavailable(self) -> ModelUnavailable:
        """The exception for a failure that stays."""
        return ModelUnavailable(self.problem, self.remedy)


@dataclass
class HttpAnswer:
    """Status and headers of the last answer, seen where the client itself drops them."""

    status: int | None = None
    retry_after: str | None = None


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


def classify(
    error: BaseException,
    name: ModelName,
    *,
    seen: HttpAnswer | None = None,
    secrets: Iterable[str] = (),
) -> Failure:
    """The failure behind an exception that a client raised.

    Args:
        error: As it was caught.
        name: The model that was asked.
        seen: What is known of the HTTP answer from elsewhere.
        secrets: Keys that must not appear in a message, whatever a server echoes.
    """
    text = one_line(_words(error), secrets)
    status = None if isinstance(error, TimeoutError) else _status(error)
    if status is None and seen is not None and (seen.status or 0) >= 400:
        status = seen.status
    waited = _retry_after(error) or _seconds(seen.retry_after if seen else None)
    kind, retryable = _kind(error, status, text)
    said = "" if isinstance(error, TimeoutError) and not status else f": {text}"
    code = f" (HTTP {status})" if status else ""
    return Failure(
        kind=kind,
        retryable=retryable,
        problem=f"{_WHAT[kind].format(name=name.text)}{code}{said}",
        remedy=remedy(kind, name, retryable=retryable),
        retry_after_s=waited,
    )


def one_line(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without keys, line breaks and control characters, cut at LONGEST_MESSAGE."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    text = _SECRETS.sub("***", text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def remedy(kind: FailureKind, name: ModelName, *, retryable: bool = True) -> str:
    """What the user can change about a failure of this kind."""
    variable = KEY_VARIABLES.get(name.provider)
    if kind == "auth":
        return f"set {variable} to a key that may use this model" if variable else "check access"
    if kind == "not_found":
        return f"check the model's id ({MODEL_SETTING}) and that the key may use it"
    if kind == "rate":
        if not retryable:
            return f"check the credit of the account, or choose another model ({MODEL_SETTING})"
        return "wait and run again, or ask for fewer candidates at once"
    if kind == "too_long":
        return f"choose a model with a larger context ({MODEL_SETTING})"
    if kind == "bad_request":
        return f"choose another model ({MODEL_SETTING}) and report the server's message"
    return f"check that {_server(name.provider)} can be reached, then run again"


_WHAT: dict[FailureKind, str] = {
    "auth": "the key for {name} was refused",
    "not_found": "the model {name} was not found",
    "rate": "{name} refuses more requests for now",
    "server": "the server of {name} failed",
    "timeout": "{name} did not answer in time",
    "network": "the connection to {name} failed",
    "bad_request": "{name} refused the request",
    "too_long": "the prompt is too long for {name}",
}


def _server(provider: Provider) -> str:
    if provider == "nvidia":
        return "NVIDIA's endpoint or your own NIM (NVIDIA_BASE_URL)"
    if provider in ("openai", "ollama"):
        return f"the server ({URL_VARIABLE})"
    return "the provider"


def _kind(error: BaseException, status: int | None, text: str) -> tuple[FailureKind, bool]:
    if status is not None:
        return _kind_of_status(status, text)
    names = {cls.__name__ for link in _chain(error) for cls in type(link).__mro__}
    if isinstance(error, TimeoutError) or names & _TIMEOUTS:
        return "timeout", True
    if names & _NETWORK or any(isinstance(link, OSError) for link in _chain(error)):
        return "network", True
    if _TOO_LONG.search(text):
        return "too_long", False
    garbled = isinstance(error, json.JSONDecodeError | UnicodeError | AssertionError)
    if type(error) is Exception or garbled or "APIError" in names or _NO_ANSWER in text:
        return "server", True
    return "bad_request", False


def _kind_of_status(status: int, text: str) -> tuple[FailureKind, bool]:
    if status in (400, 413, 422) and (status == 413 or _TOO_LONG.search(text)):
        return "too_long", False
    if status in (401, 403):
        return "auth", False
    if status in (404, 410):  # 410: NVIDIA has retired the model
        return "not_found", False
    if status == 402 or (status == 429 and _NO_CREDIT.search(text)):
        return "rate", False
    if status == 429:
        return "rate", True
    if status in (408, 504):
        return "timeout", True
    if status in (409, 425) or status >= 500:
        return "server", True
    return "bad_request", False


def _words(error: BaseException) -> str:
    """What the client says, without the frame that ChatNVIDIA puts around the server's words."""
    text = str(error) or type(error).__name__
    if type(error) is Exception and (framed := _BRACKETED.match(text)):
        title, _, body = text[framed.end() :].partition("\n")
        said = [title] if title != "Unknown Error" else []
        said += [body] if body.strip() not in ("", title) and not body.startswith("{") else []
        text = ": ".join(said) or title
    return _TAG.sub(" ", text)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    for link in _chain(error):
        response: Any = getattr(link, "response", None)
        values = [getattr(link, "status_code", None), getattr(response, "status_code", None)]
        if type(link).__name__ == "ClientResponseError":
            values.append(getattr(link, "status", None))
        if type(link).__module__.startswith("google"):
            values.append(getattr(link, "code", None))
        for value in values:
            if isinstance(value, int) and 400 <= value < 600:
                return int(value)
    text = str(error)
    if type(error) is Exception and (found := _BRACKETED.match(text)):
        if found[1].isdigit():
            return int(found[1])
        if page := _PAGE_STATUS.search(text):
            return int(page[1])
    return None


def _retry_after(error: BaseException) -> float | None:
    for link in _chain(error):
        headers: Any = getattr(getattr(link, "response", None), "headers", None)
        if headers is not None and (found := _seconds(headers.get("retry-after"))) is not None:
            return found
    return None


def _seconds(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number or an HTTP date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
