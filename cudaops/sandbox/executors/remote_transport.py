"""Requests to a service that outlast a broken connection, a restart and a full house."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

import httpx

from cudaops.domain.base import Record
from cudaops.errors import InputError, PrerequisiteError, SandboxUnavailable

PATIENCE_S = 120.0
"""How long a service may be away before a run gives up. A restart takes some seconds."""
FIRST_PATIENCE_S = 5.0
"""The same at the first contact: a wrong address should be said soon."""
WAIT_S = 20.0
"""How long one request waits for a call's end; proxies commonly give up after 60 s."""
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0
"""Longest without a byte where the service was not asked to wait."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed: none of ours does a thing twice."""
MOST_FAULTS = 3
"""Answers 500 after which the same request is given up: the same fault comes again."""
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 5.0
MAX_RETRY_AFTER_S = 30.0
PIECE_BYTES = 1 << 20

TOKEN_REMEDY = (
    "set CUDAOPS_TOKEN to a token of scope run; on the service's side "
    "`cudaops token add NAME --scope run` makes one"
)


Asked = TypeVar("Asked", bound=Record)


class NotThere(Exception):
    """404: the service has forgotten it, or never knew it."""


class BlobMissing(Exception):
    """409: contents that a call names are not there."""


class Transport:
    """One service, one connection pool. Threads may use it at once."""

    def __init__(self, server: str, token: str | None, patience_s: float = PATIENCE_S) -> None:
        """Raises InputError where `server` is no address."""
        if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", server):
            raise InputError(
                "CUDAOPS_SERVER must be the address of a service: http://host:port, "
                "without a name or password in it"
            )
        self.server = server.rstrip("/")
        self.patience_s = patience_s
        self.sent_bytes = 0
        self.received_bytes = 0
        """Of contents, both ways."""
        headers = {"User-Agent": "cudaops-remote"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=self.server,
            headers=headers,
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=16),
        )

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        json: str | None = None,
        wait_s: float = 0.0,
        patience_s: float | None = None,
    ) -> httpx.Response:
        """A good answer to a request that may be sent again.

        Raises NotThere, BlobMissing, PrerequisiteError (token), InputError (refused as wrong),
        SandboxUnavailable (no good answer within the patience).
        """
        timeout = httpx.Timeout(SILENCE_S + wait_s, connect=CONNECT_TIMEOUT_S)
        headers = {} if json is None else {"Content-Type": "application/json"}
        params = {"wait": f"{wait_s:g}"} if wait_s else None

        def once() -> httpx.Response:
            return self._client.request(
                method, path, content=json, headers=headers, params=params, timeout=timeout
            )

        return self._until_good(once, patience_s)

    def ask_record(
        self, record: type[Asked], method: str, path: str, *, json: str | None = None,
        wait_s: float = 0.0, patience_s: float | None = None,
    ) -> Asked:  # fmt: skip
        """The answer as a record. Raises what `ask` raises."""
        answer = self.ask(method, path, json=json, wait_s=wait_s, patience_s=patience_s)
        try:
            return record.model_validate_json(answer.content)
        except ValueError:
            raise SandboxUnavailable(
                f"{self.server} answers to {path} with something else than cudaops does",
                "correct CUDAOPS_SERVER, or update cudaops on both sides to the same version",
            ) from None

    def upload(self, path: str, file: Path) -> None:
        """PUT a file's contents. Raises what `ask` raises."""

        def pieces() -> Iterator[bytes]:
            with file.open("rb") as stream:
                while piece := stream.read(PIECE_BYTES):
                    self.sent_bytes += len(piece)
                    yield piece

        headers = {"Content-Length": str(file.stat().st_size)}
        self._until_good(lambda: self._client.put(path, content=pieces(), headers=headers))

    def upload_bytes(self, path: str, content: bytes) -> None:
        """The same of what is in memory."""
        self.sent_bytes += len(content)
        self._until_good(lambda: self._client.put(path, content=content))

    def download(self, path: str, file: Path) -> None:
        """GET contents into `file`; goes on where a connection broke off. Raises as `ask`."""

        def once() -> httpx.Response:
            have = file.stat().st_size if file.exists() else 0
            headers = {"Range": f"bytes={have}-"} if have else {}
            with self._client.stream("GET", path, headers=headers) as answer:
                if answer.status_code not in (200, 206):
                    answer.read()
                    return answer
                with file.open("ab" if answer.status_code == 206 else "wb") as stream:
                    for piece in answer.iter_bytes(PIECE_BYTES):
                        self.received_bytes += len(piece)
                        stream.write(piece)
            return answer

        self._until_good(once, progress=lambda: file.stat().st_size if file.exists() else 0)

    def _until_good(
        self,
        once: Callable[[], httpx.Response],
        patience_s: float | None = None,
        progress: Callable[[], int] = lambda: 0,
    ) -> httpx.Response:
        """Ask until there is a good answer. Whatever moves `progress` counts as one."""
        patience_s = self.patience_s if patience_s is None else patience_s
        deadline, delay, faults, got = time.monotonic() + patience_s, FIRST_DELAY_S, 0, progress()
        while True:
            pause = 0.0
            try:
                answer = once()
            except httpx.RequestError as error:
                trouble = _short(error)
            else:
                if answer.status_code < 300:
                    return answer
                if answer.status_code not in AGAIN:
                    self._refused(answer)
                trouble = f"it answers {answer.status_code}: {_detail(answer)}"
                faults += answer.status_code == 500
                pause = _retry_after(answer.headers)
            if got != (got := progress()):
                deadline, delay = time.monotonic() + patience_s, FIRST_DELAY_S
            if time.monotonic() >= deadline or faults >= MOST_FAULTS:
                self._away(trouble, patience_s)
            time.sleep(max(pause, delay * random.uniform(0.5, 1.0)))
            delay = min(delay * 2, MAX_DELAY_S)

    def _refused(self, answer: httpx.Response) -> NoReturn:
        status, detail = answer.status_code, _detail(answer)
        if status == 404:
            raise NotThere(detail)
        if status == 409:
            raise BlobMissing(detail)
        if status in (401, 403):
            raise PrerequisiteError(
                f"the service {self.server} refuses the token: {detail}", TOKEN_REMEDY
            )
        if 300 <= status < 400:
            detail = f"it redirects to {answer.headers.get('location', 'elsewhere')}"
        raise InputError(f"the service {self.server} refuses the call ({status}): {detail}")

    def _away(self, trouble: str, patience_s: float) -> NoReturn:
        raise SandboxUnavailable(
            f"the service {self.server} gives no good answer for {patience_s:g} s: {trouble}",
            "look whether it runs (`cudaops doctor`), then `cudaops resume` goes on where this "
            "run stopped; --executor cpu or cuda needs no service",
        )


def _detail(answer: httpx.Response) -> str:
    """What the service says of it: problem details, else the status's own words."""
    try:
        said = answer.json()
    except ValueError:
        return answer.reason_phrase
    detail = said.get("detail") if isinstance(said, dict) else None
    return str(detail or answer.reason_phrase)[:300]


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return min(float(headers.get("retry-after", "0")), MAX_RETRY_AFTER_S)
    except ValueError:
        return 0.0


def _short(error: httpx.RequestError) -> str:
    words = str(error).splitlines()
    return (words[0] if words else "") or type(error).__name__
