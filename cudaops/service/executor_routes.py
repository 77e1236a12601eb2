"""Routes of the remote executor: contents, calls, and what there is to call.

They are a protocol between one cudaops and another (docs/remote.md), not a part of the API page.
"""

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable
from typing import IO, Annotated, TypeVar
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from cudaops import __version__
from cudaops.domain.base import Record
from cudaops.sandbox.wire import PROTOCOL, CallRequest, CallState, Missing, Offer, Question
from cudaops.sandbox.wire_checks import check_call
from cudaops.sandbox.wire_files import contents_of
from cudaops.service.blobs import MAX_BLOB_BYTES, NoRoom
from cudaops.service.context import Service
from cudaops.service.executor_queue import Calls, OtherCall, TooManyCalls
from cudaops.service.problems import Refused
from cudaops.service.store import Identity

MAX_WAIT_S = 30.0
"""Longest a request waits for a call to end; less than proxies commonly give up after (60 s)."""
IN_MEMORY_BYTES = 4 << 20
"""Uploads up to this size are not spooled to a temporary file."""

MAX_JSON_BYTES = 4 << 20
"""Of a call: plans and workloads with some hundred buffers take a few ten thousand."""

Asked = TypeVar("Asked", bound=Record)
Caller = Callable[..., Awaitable[Identity]]
Hash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S)]

CROWDED_S = 1.0
"""How long a client is held that may not wait."""


def build_router(calls: Calls, caller: Caller) -> APIRouter:
    """The routes under `/executor`. `caller` is a dependency that gives who asks, of scope run."""
    router = APIRouter(prefix="/executor", include_in_schema=False)
    _add_offer(router, calls, caller)
    _add_blobs(router, calls, caller)
    _add_calls(router, calls, caller)
    return router


def _add_offer(router: APIRouter, calls: Calls, caller: Caller) -> None:
    Who = Annotated[Identity, Depends(caller)]

    @router.get("")
    async def offer(who: Who) -> Offer:
        return Offer(version=__version__, protocol=PROTOCOL, places=await calls.offers())


def _add_blobs(router: APIRouter, calls: Calls, caller: Caller) -> None:
    Who = Annotated[Identity, Depends(caller)]

    @router.post("/blobs/missing")
    async def missing(request: Request, who: Who) -> Missing:
        question = await _json(request, Question)
        return Missing(missing=await calls.blobs.missing(who.name, question.sha256))

    @router.put("/blobs/{sha256}", status_code=204)
    async def put_blob(sha256: Hash, request: Request, who: Who) -> Response:
        if not await calls.blobs.missing(who.name, [sha256]):
            return Response(status_code=204)
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as file:
            await _receive(request, sha256, file)
            try:
                await calls.blobs.put(who.name, sha256, file)
            except NoRoom:
                raise Refused(
                    "unavailable",
                    "the service has no room for more contents; try again in some minutes",
                    headers={"Retry-After": "30"},
                ) from None
        return Response(status_code=204)

    @router.get("/blobs/{sha256}")
    async def get_blob(sha256: Hash, request: Request, who: Who) -> Response:
        stored = await calls.blobs.find(who.name, sha256)
        if stored is None:
            raise Refused("not-found", "no such contents are there; they may have been forgotten")
        start = _start(request.headers.get("range"), stored.size_bytes)
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Length": str(stored.size_bytes - start),
            "ETag": f'"{sha256}"',
        }
        if start:
            last = stored.size_bytes - 1
            headers["Content-Range"] = f"bytes {start}-{last}/{stored.size_bytes}"
        return StreamingResponse(
            calls.blobs.read(who.name, stored, start),
            status_code=206 if start else 200,
            headers=headers,
            media_type="application/octet-stream",
        )


def _add_calls(router: APIRouter, calls: Calls, caller: Caller) -> None:
    Who = Annotated[Identity, Depends(caller)]

    @router.put("/calls/{id}")
    async def put_call(id: UUID, request: Request, who: Who, wait: Wait = 0) -> CallState:
        call = await _json(request, CallRequest)
        _check(call)
        gone = await calls.blobs.missing(who.name, tuple(contents_of(call.call)))
        if gone:
            raise Refused("blob-missing", f"{len(gone)} contents are not there; send them first")
        try:
            state = await calls.put(who.name, id, call)
        except OtherCall:
            raise Refused("key-reused", "another call has this id; make a new one") from None
        except TooManyCalls:
            raise Refused(
                "too-often", "too many calls wait; go on when some have ended",
                headers={"Retry-After": "2"},
            ) from None  # fmt: skip
        return await _ended(calls, who, id, request, state, wait)

    @router.get("/calls/{id}")
    async def get_call(id: UUID, request: Request, who: Who, wait: Wait = 0) -> CallState:
        state = await calls.state(who.name, id)
        if state is None:
            raise Refused("not-found", "there is no call of this id")
        return await _ended(calls, who, id, request, state, wait)

    @router.delete("/calls/{id}", status_code=204)
    async def withdraw(id: UUID, who: Who) -> Response:
        await calls.withdraw(who.name, id)
        return Response(status_code=204)


def _check(request: CallRequest) -> None:
    """Refuse what could reach beyond the call's own folder, or what a worker could not read: JSON
    keeps no number that is not finite."""
    try:
        CallRequest.model_validate_json(request.model_dump_json())
        check_call(request.call)
        tuple(contents_of(request.call))
    except ValueError as problem:
        raise Refused("invalid-request", str(problem)) from None


async def _ended(
    calls: Calls, who: Identity, id: UUID, request: Request, state: CallState, wait_s: float
) -> CallState:
    """The state once it has ended, or as it is after `wait_s`, when the service drains, or where
    too many wait already."""
    if state.status == "ended" or wait_s == 0:
        return state
    service: Service = request.app.state.service
    try:
        with service.waiting(who):
            async with asyncio.timeout(wait_s), contextlib.aclosing(calls.watch(id)) as changes:
                async for _ in changes:
                    found = await calls.state(who.name, id)
                    state = found or state
                    if found is None or state.status == "ended" or service.closing.is_set():
                        break
    except TimeoutError:
        pass
    except Refused:
        await asyncio.sleep(min(wait_s, CROWDED_S))  # it asks again at once
    return state


async def _json(request: Request, record: type[Asked]) -> Asked:
    """The body as a record. Nothing else bounds what stands under this prefix."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_JSON_BYTES:
            raise Refused("too-large", f"a call has at most {MAX_JSON_BYTES >> 20} MiB")
    try:
        return record.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])[:100]
        raise Refused("invalid-request", f"{where}: {first['msg']}") from None


async def _receive(request: Request, sha256: str, file: IO[bytes]) -> None:
    """Write the body to `file`, which stands at its start afterwards."""
    total, size = hashlib.sha256(), 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BLOB_BYTES:
            raise Refused("too-large", f"contents have at most {MAX_BLOB_BYTES >> 20} MiB")
        total.update(piece)
        await asyncio.to_thread(file.write, piece)
    if total.hexdigest() != sha256:
        raise Refused("invalid-request", "the contents have another SHA-256; send them again")
    file.seek(0)


def _start(header: str | None, size: int) -> int:
    """First byte that a `Range: bytes=N-` asks for; anything else asks for all."""
    found = re.fullmatch(r"bytes=(\d{1,15})-", header or "")
    start = int(found[1]) if found else 0
    return start if start < size else 0
