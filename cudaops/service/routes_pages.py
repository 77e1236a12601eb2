"""Pages for people: the one to watch jobs with, and the API's own description."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from cudaops.service.docs_page import docs_page
from cudaops.service.rendering import style_sheet
from cudaops.service.routes_artefacts import matches

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
