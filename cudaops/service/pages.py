"""What people and their tools read of the API: the OpenAPI document, /docs as a page of plain HTML
made of it, and the page to watch jobs with.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from cudaops.service.problems import MEDIA_TYPE, InvalidRequest
from cudaops.service.records import REQUESTS, BatchRequest, JobEvent, Problem
from cudaops.service.routes_artefacts import matches, style_sheet

# The OpenAPI document: what FastAPI derives, and the schemas that it cannot see.

DESCRIPTION = """\
Takes a CUDA program, says what limits its kernel, rewrites it, and tests the rewrite.

Every operation that does work makes a **job** and answers `202` with it. Follow `Location`, read
`/jobs/{id}/events` as server-sent events, or send `Prefer: wait=60` to have the finished job in the
answer. `POST /batches` makes one of each of its programs. Jobs survive a restart of the service.
Errors are problem details (RFC 9457).
"""

_SCHEMAS: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
    *((model, "validation") for model in REQUESTS.values()),
    (BatchRequest, "validation"),
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


def install_openapi(app: FastAPI) -> None:
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


# /docs: the OpenAPI document as a page of plain HTML, complete without a script.

JSON = "application/json"
METHODS = ("get", "post", "put", "delete", "head")


def docs_page(document: dict[str, Any]) -> str:
    """The whole page."""
    schemas = document["components"]["schemas"]
    groups: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item and method != "head":
                operation = item[method]
                group = groups.setdefault((operation.get("tags") or ["other"])[0], [])
                group.append(_operation(method, path, operation, schemas))
    body = "".join(
        _tag("section", _tag("h2", escape(name)), *operations)
        for name, operations in groups.items()
    )
    title = f"{document['info']['title']} {document['info']['version']}: the API"
    intro = _prose(document["info"]["description"])
    records = _tag("section", _tag("h2", "Records"), *_records(schemas))
    contents = _contents(document)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        '<link rel="stylesheet" href="/docs/style.css"></head><body>'
        '<a class="skip" href="#main">Skip to content</a>'
        '<header><a href="/">cudaops</a> <a href="/openapi.json">openapi.json</a></header>'
        f'<main id="main"><h1>{escape(title)}</h1>{intro}{_how_to_ask()}{contents}{body}{records}'
        "</main></body></html>\n"
    )


def _tag(name: str, *inner: str, **attributes: str) -> str:
    """An element around what is HTML already; attributes are escaped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{''.join(inner)}</{name}>"


def _code(text: str) -> str:
    return _tag("code", escape(text))


def _prose(text: str) -> str:
    """Paragraphs with `code` and **bold**, as docstrings have them."""
    return "".join(_tag("p", _inline(part)) for part in text.strip().split("\n\n"))


def _inline(text: str) -> str:
    pieces = escape(" ".join(text.split()), quote=False).split("`")
    marked = "".join(
        f"<code>{piece}</code>" if odd % 2 else piece for odd, piece in enumerate(pieces)
    )
    bold = marked.split("**")
    return "".join(f"<strong>{b}</strong>" if odd % 2 else b for odd, b in enumerate(bold))


def _how_to_ask() -> str:
    return _tag(
        "p",
        "The examples use two variables: ",
        _code("CUDAOPS=http://127.0.0.1:8080"),
        ", this service's address, and ",
        _code("TOKEN"),
        ", from ",
        _code("cudaops token add NAME --scope run"),
        ". A service on loopback without any token asks for none: leave that header out.",
    )


def _contents(document: dict[str, Any]) -> str:
    rows = [
        _tag("li", _tag("a", _code(f"{method.upper()} {path}"),
             href=f"#{item[method]['operationId']}"), " ", escape(item[method].get("summary", "")))
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item and method != "head"
    ]  # fmt: skip
    return _tag("nav", _tag("ul", *rows), aria_label="Operations")


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    head = _tag("h3", _tag("span", method.upper(), class_=f"method {method}"), " ", _code(path))
    parts = [head, _tag("p", _tag("strong", escape(operation.get("summary", ""))))]
    parts.append(_prose(operation.get("description", "")))
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            (p["name"], p["in"], _kind(p["schema"]), p.get("description", "")) for p in parameters
        ]
        parts.append(_table("Parameters", ("name", "in", "type", "meaning"), rows))
    content = operation.get("requestBody", {}).get("content", {})
    if JSON in content:
        name = _reference(content[JSON]["schema"])
        parts.append(_fields(f"Body: {name}", schemas[name]))
        for example in content[JSON].get("examples", {}).values():
            parts.append(_curl(path, example))
    parts.append(_answers(operation["responses"]))
    return _tag("article", *parts, id=operation["operationId"])


def _curl(path: str, example: dict[str, Any]) -> str:
    value = json.dumps(example["value"], indent=2)
    command = (
        f'curl -s "$CUDAOPS{path}" -H "Authorization: Bearer $TOKEN" -H "Prefer: wait=60" \\\n'
        f"  -H 'Content-Type: application/json' -d @- <<'JSON'\n{value}\nJSON"
    )
    return _tag(
        "details",
        _tag("summary", "Example: ", escape(example["summary"])),
        _tag("pre", _code(command), tabindex="0"),
    )


def _answers(responses: dict[str, Any]) -> str:
    shown = []
    for status, answer in sorted(responses.items()):
        kinds = ", ".join(
            _reference(body.get("schema", {})) or kind
            for kind, body in answer.get("content", {}).items()
        )
        shown.append((status, kinds, answer["description"]))
    return _tag(
        "details",
        _tag("summary", "Answers"),
        _table(f"Answers; problems as {MEDIA_TYPE}", ("status", "body", "meaning"), shown),
    )


def _records(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        if schema.get("properties"):
            yield _tag(
                "details", _tag("summary", escape(name)), _prose(schema.get("description", "")),
                _fields(name, schema), id=f"record-{name}",
            )  # fmt: skip


def _fields(caption: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in needed else json.dumps(field.get("default"))
        rows.append((name, _kind(field), default, field.get("description", "")))
    return _table(caption, ("field", "type", "default", "meaning"), rows)


def _table(caption: str, heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    head = _tag("tr", *(_tag("th", escape(h), scope="col") for h in heads))
    lines = []
    for first, *rest in rows:
        cells = [_code(each) if each else "" for each in rest[:-1]]
        lines.append(
            _tag("tr", _tag("th", _code(first), scope="row"),
                 *(_tag("td", cell) for cell in cells), _tag("td", _inline(rest[-1])))
        )  # fmt: skip
    table = _tag("table", _tag("caption", escape(caption)), head, *lines)
    return _tag("div", table, class_="wide", tabindex="0", role="region", aria_label=caption)


def _reference(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rsplit("/", 1)[-1]


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words: `integer 1..50`, `"a" | "b"`, `array of Artefact`."""
    if reference := _reference(schema):
        return reference
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_kind(each) for each in schema[union])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(v) for v in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", "any"))
    if kind == "array" and "items" in schema:
        return f"array of {_kind(schema['items'])}"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None or high is not None:
        return f"{kind} {'' if low is None else low}..{'' if high is None else high}"
    if "maxLength" in schema:
        return f"{kind}, at most {schema['maxLength']} characters"
    return kind


# Pages for people: the one to watch jobs with, and the API's own description.

STATIC = Path(__file__).with_name("static")
DOCS_STYLE = Path(__file__).with_name("docs.css")
REVALIDATE = {"Cache-Control": "no-cache"}
"""Files of the program itself: kept by a browser, asked for again each time, 304 as a rule."""


class _Files(StaticFiles):
    """Static files that are revalidated, so that an upgrade shows at once."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(REVALIDATE)
        return response


def add_pages(app: FastAPI, *, with_report: bool) -> None:
    """`/`, `/static/*`, `/docs` and `/openapi.json`. None needs a token: they hold no data."""
    plain = {"include_in_schema": False}

    @functools.cache
    def schema() -> str:
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":"))

    @functools.cache  # made once: it takes 45 ms, and anybody may ask
    def docs_text() -> str:
        return docs_page(app.openapi())

    @app.api_route("/", methods=["GET", "HEAD"], **plain)  # type: ignore[arg-type]
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers=REVALIDATE)

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], **plain)  # type: ignore[arg-type]
    async def document(request: Request) -> Response:
        return _tagged(request, schema(), "application/json")

    @app.api_route("/docs", methods=["GET", "HEAD"], **plain)  # type: ignore[arg-type]
    async def docs(request: Request) -> Response:
        return _tagged(request, docs_text(), "text/html")

    @app.api_route("/docs/style.css", methods=["GET", "HEAD"], **plain)  # type: ignore[arg-type]
    async def docs_style() -> Response:
        return FileResponse(DOCS_STYLE, headers=REVALIDATE)

    if with_report:

        @app.api_route("/static/report.css", methods=["GET", "HEAD"], **plain)  # type: ignore[arg-type]
        async def report_style() -> Response:
            return FileResponse(style_sheet(), headers=REVALIDATE)

    app.mount("/static", _Files(directory=STATIC), name="static")


def _tagged(request: Request, text: str, media_type: str) -> Response:
    """A text with its hash, so that a client that has it gets 304."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, **REVALIDATE}
    if matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=media_type, headers=headers)
