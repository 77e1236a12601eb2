"""A kept rewrite judged again, as a new job: with new secret inputs, by any worker."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from uuid import UUID

from fastapi import APIRouter, Request, Response

from cudaops.domain.options import JudgeOptions
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunRecord
from cudaops.service import tracing
from cudaops.service.problems import Refused, responses
from cudaops.service.records import ENDED, Job, ProgramRequest, VerifyRequest
from cudaops.service.routes_jobs import (
    OF_A_JOB,
    IdempotencyKey,
    Prefer,
    Serving,
    Submitter,
    answer,
    submit_headers,
    submitting,
    wait_seconds,
)


def build_confirm_router() -> APIRouter:
    """POST /jobs/{id}/confirm."""
    router = APIRouter(tags=["start a job"])
    headers = submit_headers()
    accepted = {"description": "Kept and queued.", "headers": headers}
    finished = {"model": Job, "description": "Finished within the wait.", "headers": headers}
    problems = ("scope", "foreign-origin", "not-ended", "queue-full", "key-reused")
    router.add_api_route(
        "/jobs/{id}/confirm",
        _confirmer(),
        methods=["POST"],
        operation_id="confirmJob",
        summary="Judge a kept rewrite again",
        description="Starts a `verify` job of the rewrite that an `optimize` or `verify` job kept,"
        " with its program and options, but a new secret seed. It needs nothing of the machine"
        " on which that ran.",
        status_code=202,
        response_model=Job,
        responses={**responses(*OF_A_JOB, *problems), 200: finished, 202: accepted},
    )
    return router


def _confirmer() -> Callable[..., Awaitable[Response]]:
    async def confirm(
        id: UUID,
        request: Request,
        identity: Submitter,
        service: Serving,
        prefer: Prefer = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        job = await service.visible_job(id, identity)
        if job.status not in ENDED:
            raise Refused("not-ended", "ask again when the job has ended")
        asked = await service.store.request(id)
        record = job.result if isinstance(job.result, RunRecord) else None
        if asked is None or record is None or record.best is None or record.program is None:
            raise Refused("not-found", "this job kept no rewrite that could be judged again")
        again = again_of(asked, record.program.kernel, record.best)
        with submitting():
            new, created = await service.store.submit(
                "verify", again, identity.name, idempotency_key, trace=tracing.current()
            )
        headers = {"Location": f"/jobs/{new.id}"}
        if not created:
            headers["Idempotent-Replayed"] = "true"
        return await answer(request, service, identity, new, wait_seconds(prefer), headers)

    return confirm


def again_of(asked: ProgramRequest, kernel: str, best: Rewrite) -> VerifyRequest:
    """The request that judges `best` as `asked` was, with inputs that nobody has seen."""
    shared = {*ProgramRequest.model_fields, *JudgeOptions.model_fields} - {"seed"}
    fields = asked.model_dump(include=shared, exclude_unset=True)
    kept = {"kernel": asked.kernel or kernel, "candidate": with_values(best)}
    return VerifyRequest.model_validate({**fields, **kept})


def with_values(best: Rewrite) -> str:
    """The rewrite's text with the values in force as the only ones of its tune names."""
    text = best.source
    for name, value in best.values().items():
        line = rf"^([ \t]*//[ \t]*@tune[ \t]+{re.escape(name)}[ \t]*=).*$"
        text = re.sub(line, rf"\g<1> {value}", text, count=1, flags=re.MULTILINE)
    return text
