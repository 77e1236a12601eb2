"""The OpenAPI document: what FastAPI derives, and the schemas that it cannot see."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cudaops.service.problems import InvalidRequest
from cudaops.service.records import REQUESTS, JobEvent, Problem

DESCRIPTION = """\
Takes a CUDA program, says what limits its kernel, rewrites it, and proves the rewrite.

Every operation that does work makes a **job** and answers `202` with it. Follow `Location`, read
`/jobs/{id}/events` as server-sent events, or send `Prefer: wait=60` to have the finished job in the
answer. Jobs survive a restart of the service. Errors are problem details (RFC 9457).
"""

_SCHEMAS: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
    *((model, "validation") for model in REQUESTS.values()),
    (Problem, "serialization"),
    (InvalidRequest, "serialization"),
    (JobEvent, "serialization"),
]  # fmt: skip


EVENTS = "text/event-stream"
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "description": "`kind` of the JobEvent, or `end`."},
        "id": {"type": "string", "description": "`seq` of the JobEvent."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "anyOf": [
                    {"$ref": "#/components/schemas/JobEvent"},
                    {"$ref": "#/components/schemas/JobSummary"},
                ]
            },
        },
    },
}
"""One event of a stream, as OpenAPI 3.2 (section 4.14.4) describes server-sent events."""


def install(app: FastAPI) -> None:
    """Gives `app.openapi()` the whole document; made once, at the first call."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    _, found = models_json_schema(_SCHEMAS, ref_template="#/components/schemas/{model}")
    schemas = made["components"]["schemas"]
    for name, schema in found["$defs"].items():
        schemas.setdefault(name, schema)
    made["components"]["schemas"] = dict(sorted(schemas.items()))
    stream = made["paths"]["/jobs/{id}/events"]["get"]["responses"]["200"]["content"]
    stream[EVENTS] = {"itemSchema": EVENT, "example": stream[EVENTS]["example"]}
    return made
