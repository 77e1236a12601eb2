"""The API as one FastAPI application. It talks to the database alone: nothing is run here."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from cudaops.service import openapi, problems
from cudaops.service.auth import Doorkeeper, require
from cudaops.service.bodies import BodyLimits
from cudaops.service.boundary import Boundary
from cudaops.service.context import Service
from cudaops.service.metrics import Metrics
from cudaops.service.observing import ObserveRequests
from cudaops.service.options import ServiceOptions
from cudaops.service.rendering import Renderer
from cudaops.service.routes_artefacts import build_artefacts_router
from cudaops.service.routes_jobs import router as jobs_router
from cudaops.service.routes_operation import build_operation_router
from cudaops.service.routes_pages import add_pages
from cudaops.service.routes_submit import build_submit_router
from cudaops.service.store import Store


def build_app(
    store: Store,
    options: ServiceOptions,
    *,
    metrics: Metrics | None = None,
    renderer: Renderer | None = None,
) -> FastAPI:
    """The application on an open store.

    Args:
        store: stays the caller's to close.
        options: limits, and whether tokens are asked for.
        metrics: what /metrics shows; None: one of this store.
        renderer: makes reports; None: there is no /jobs/{id}/report.
    """
    metrics = metrics or Metrics(store, options.version)
    doorkeeper = Doorkeeper(store, options)
    service = Service(store, options, doorkeeper, metrics)

    app = FastAPI(
        title="cudaops", version=options.version,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    problems.install(app)
    app.include_router(build_submit_router())
    app.include_router(jobs_router)
    app.include_router(build_artefacts_router(renderer))
    app.include_router(
        build_operation_router(store, metrics, options, dependencies=[Depends(require("read"))])
    )
    add_pages(app, with_report=renderer is not None)
    openapi.install(app)
    app.add_middleware(BodyLimits, options=options)
    app.add_middleware(Boundary, options=options, doorkeeper=doorkeeper)
    app.add_middleware(ObserveRequests, metrics=metrics)
    return app
