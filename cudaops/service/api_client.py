"""The API of a service as its clients ask it: requests outlast a broken connection, a restart and a
full house, and a submission that is sent again is the same job."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import httpx_sse
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from cudaops.domain.base import Record
from cudaops.errors import InputError, PrerequisiteError, ServiceUnavailable
from cudaops.service.job_folder import MAX_FILE_BYTES
from cudaops.service.records import (
    RESULTS,
    Artefact,
    Job,
    JobEvent,
    JobKind,
    JobSummary,
    ProgramRequest,
)
from cudaops.settings import Settings

PATIENCE_S = 120.0
"""How long a service may be away before we give up. A restart takes some seconds."""
FIRST_PATIENCE_S = 5.0
"""The same before its first answer: a wrong address should be said soon."""
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 60.0
"""Longest without a byte; a silent event stream says every 15 s that it is alive."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed: none of ours does a thing twice."""
MOST_FAULTS = 3
"""Answers 500 in a row after which a request is given up: the same fault comes again."""
MAX_DELAY_S = 5.0
MAX_RETRY_AFTER_S = 30.0

TOKEN_REMEDY = (
    "set CUDAOPS_TOKEN to a token of scope run; on the service's side "
    "`cudaops token add NAME --scope run` makes one"
)
UPDATE = "install the same version of cudaops on both sides"

T = TypeVar("T")
R = TypeVar("R", bound=Record)


def address_of_service(given: str, named: str = "CUDAOPS_SERVER") -> str:
    """The address without a slash at its end. Raises InputError, with what it was `named` by, where
    it is none."""
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", given):
        raise InputError(
            f"{named} must be the address of a service: http://host:port, "
            "without a name or password in it"
        )
    return given.rstrip("/")


class _Trouble(Exception):
    """No good answer, and the same request may get one later."""

    def __init__(self, why: str, *, status: int = 0, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.status = status
        self.pause_s = pause_s


class ServiceClient:
    """The API of one service, for one token."""

    def __init__(self, address: str, token: str | None, patience_s: float = PATIENCE_S) -> None:
        """Raises InputError where `address` is none."""
        self.address = address_of_service(address)
        self._patience_s = patience_s
        self._answered = False
        headers = {"User-Agent": "cudaops"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.AsyncClient(base_url=self.address, headers=headers, timeout=timeout)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """That of the settings. Raises InputError where they name none."""
        if settings.server is None:
            raise InputError(
                "--executor remote needs a service: set CUDAOPS_SERVER to its address, "
                "http://host:port"
            )
        return cls(settings.server, settings.token.get_secret_value() if settings.token else None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def submit(
        self, kind: JobKind, request: ProgramRequest, key: str | None = None
    ) -> JobSummary:
        """Start a job, once, however often it has to be asked for. `key`: the idempotency key, for
        who may ask again as another process; None: a new one."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or uuid4().hex}
        # What is as by default is left out, so that an older service takes the rest.
        body = request.model_dump_json(exclude_defaults=True)
        answer = await self._ask("POST", f"/{kind}", content=body, headers=headers)
        return self._read(Job, answer.content)

    async def job(self, id: UUID) -> Job:
        """The job with its result."""
        job = self._read(Job, (await self._ask("GET", f"/jobs/{id}")).content)
        if job.result is not None and not isinstance(job.result, RESULTS[job.kind]):
            raise ServiceUnavailable(f"job {id} has a result of an unexpected type", UPDATE)
        return job

    async def cancel(self, id: UUID) -> None:
        """Have it cancelled; one that has ended stays as it is."""
        await self._ask("POST", f"/jobs/{id}/cancel")

    async def follow(self, id: UUID, tell: Callable[[JobEvent], None]) -> None:
        """Tell what it does, until it has ended."""
        told = 0
        ended = False

        async def listen() -> None:
            nonlocal told, ended
            before = told
            try:
                async for said in self._events(id, told):
                    if said is None:
                        ended = True
                        return
                    told = max(told, said.seq)
                    tell(said)
            except httpx.TransportError as error:
                if told == before:
                    raise _Trouble(_short(error)) from None
            if told == before:
                raise _Trouble("its stream of events ended before the job")

        while not ended:
            await self._until_good(listen)

    async def content(self, id: UUID, artefact: Artefact) -> bytes:
        """An artefact's bytes, which are those that its hash says."""
        size = artefact.size_bytes
        url = f"/jobs/{id}/artefacts/{quote(artefact.name)}"

        async def load() -> bytes:
            content = bytearray()
            async with self._http.stream("GET", url) as answer:
                await self._check(answer)
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > size:
                        break
            return bytes(content)

        content = await self._until_good(load) if size <= MAX_FILE_BYTES else b""
        if hashlib.sha256(content).hexdigest() != artefact.sha256:
            problem = f"{artefact.name} of job {id} came as something else than the service says"
            raise ServiceUnavailable(problem, "`cudaops resume` fetches it again")
        return content

    async def _events(self, id: UUID, after: int) -> AsyncIterator[JobEvent | None]:
        """Events after that one; None: the job has ended."""
        url, params = f"/jobs/{id}/events", {"after": after}
        async with httpx_sse.aconnect_sse(self._http, "GET", url, params=params) as source:
            await self._check(source.response)
            async for said in source.aiter_sse():
                if said.event == "end":
                    yield None
                    return
                if said.data:  # behind an id, httpx-sse makes an event of every comment
                    yield self._read(JobEvent, said.data)

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            answer = await self._http.request(method, path, **more)
            await self._check(answer)
            return answer

        return await self._until_good(once)

    async def _until_good(self, once: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is a good answer. Raises ServiceUnavailable where patience runs out."""
        faults = 0
        began = time.monotonic()

        def enough(state: RetryCallState) -> bool:
            nonlocal faults
            error = state.outcome.exception() if state.outcome else None
            faults += isinstance(error, _Trouble) and error.status == 500
            patience_s = self._patience_s if self._answered else FIRST_PATIENCE_S
            return faults >= MOST_FAULTS or time.monotonic() - began >= patience_s

        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((_Trouble, httpx.TransportError)),
                stop=enough,
                wait=_pause_s,
                reraise=True,
            ):
                with attempt:
                    return await once()
        except (_Trouble, httpx.TransportError) as trouble:
            raise ServiceUnavailable(
                f"the service {self.address} does not answer correctly: {_short(trouble)}",
                "check the service (`cudaops doctor`); the job continues there, and `cudaops"
                " resume` fetches it"
                if self._answered
                else "start it there (`cudaops serve`), or"
                " correct CUDAOPS_SERVER; --executor cpu or cuda needs no service",
            ) from None
        raise AssertionError("it ends by an answer or an error")

    async def _check(self, answer: httpx.Response) -> None:
        """Raise what an answer that is not good means."""
        self._answered = True
        if answer.status_code < 300:
            return
        await answer.aread()
        status, detail = answer.status_code, _detail(answer)
        if status in AGAIN:
            why = f"it answers {status}: {detail}"
            raise _Trouble(why, status=status, pause_s=_retry_after(answer))
        if status in (401, 403):
            raise PrerequisiteError(
                f"the service {self.address} refuses the token: {detail}", TOKEN_REMEDY
            )
        if 300 <= status < 400:
            detail = f"it redirects to {answer.headers.get('location', 'elsewhere')}"
        raise InputError(f"the service {self.address} refuses this ({status}): {detail}")

    def _read(self, record: type[R], text: str | bytes) -> R:
        try:
            return record.model_validate_json(text)
        except ValueError:
            raise ServiceUnavailable(
                f"{self.address} sent an answer that this version cannot read",
                f"correct CUDAOPS_SERVER, or {UPDATE}",
            ) from None


def _pause_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.pause_s if isinstance(error, _Trouble) else 0.0
    return max(asked_s, wait_random_exponential(multiplier=0.1, max=MAX_DELAY_S)(state))


def _detail(answer: httpx.Response) -> str:
    """What the service says of it: problem details, else the status's own words."""
    try:
        said = answer.json()
    except ValueError:
        return answer.reason_phrase
    detail = said.get("detail") if isinstance(said, dict) else None
    return str(detail or answer.reason_phrase)[:300]


def _retry_after(answer: httpx.Response) -> float:
    try:
        return min(float(answer.headers.get("retry-after", "0")), MAX_RETRY_AFTER_S)
    except ValueError:
        return 0.0


def _short(error: Exception) -> str:
    words = str(error).splitlines()
    return (words[0] if words else "") or type(error).__name__
