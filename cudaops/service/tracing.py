"""Traces by OpenTelemetry: request, job, stages of the graph.

Off, and at no cost, until `configure` is given an endpoint. The context travels as a `traceparent`
(W3C Trace Context, level 1, section 3.2): from the client's request into the row of the job, from
there into the worker. Spans carry names, identifiers and times, never what somebody sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from cudaops import __version__
from cudaops.errors import InputError, PrerequisiteError
from cudaops.service.records import JobEvent

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
SHUTDOWN_MS = 5_000
"""How long the end of a process waits for a collector."""


class _Active(NamedTuple):
    provider: TracerProvider
    tracer: Tracer


_active: _Active | None = None


def configure(endpoint: str | None, service: str, *, exporter: SpanExporter | None = None) -> None:
    """Send spans of this process to an OTLP/HTTP collector, as `service`; None: nowhere.

    `exporter` takes the place of OTLP. Raises InputError where the endpoint is no http address and
    PrerequisiteError where the extra is not installed.
    """
    global _active  # one process, one destination
    close()
    if endpoint is None and exporter is None:
        return
    if endpoint is not None and not re.match(r"https?://[^/\s]+", endpoint):
        raise InputError(
            "OTEL_EXPORTER_OTLP_ENDPOINT must be the http:// or https:// address of a collector"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise PrerequisiteError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set, and {missing.name} is not installed",
            "python -m pip install 'cudaops[otel]', or unset the variable",
        ) from missing
    if exporter is None:
        exporter = OTLPSpanExporter(endpoint=f"{(endpoint or '').rstrip('/')}/v1/traces")
    resource = Resource.create({"service.name": service, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _active = _Active(provider, provider.get_tracer("cudaops", __version__))


def close() -> None:
    """Send what is left, wait for at most 5 s, and stop. Nothing where nothing was configured."""
    global _active
    if _active is not None:
        _active.provider.force_flush(SHUTDOWN_MS)
        _active.provider.shutdown()
        _active = None


def current() -> str | None:
    """The `traceparent` of the span that this code runs in; None without one."""
    if _active is None:
        return None
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class Traced:
    """A span that is open, or nothing where traces are off."""

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def name(self, name: str) -> None:
        """Rename it: a request's route is known late."""
        if self._span is not None:
            self._span.update_name(name)

    def note(self, **attributes: str | int | float | bool | None) -> None:
        """Attributes; `__` in a name becomes a dot. None is left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def failed(self, why: str) -> None:
        """Mark it as failed."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR, why)


class JobTraced(Traced):
    """A job's span, with a child for every stage as its events tell."""

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)
        self._stages: dict[tuple[str, str], Span] = {}

    def event(self, event: JobEvent) -> None:
        """Open, close or mark the span of the event's stage, at the event's own time."""
        if self._span is None or _active is None:
            return
        key = (event.stage, event.agent)
        at = _nanoseconds(event.time)
        if event.kind == "started":
            self._end(key, at)
            from opentelemetry.trace import set_span_in_context

            self._stages[key] = _active.tracer.start_span(
                f"stage {event.stage}", set_span_in_context(self._span), start_time=at,
                attributes={"cudaops.stage": event.stage, "cudaops.agent": event.agent},
            )  # fmt: skip
        elif event.kind in ("finished", "failed") and key in self._stages:
            if event.kind == "failed":
                Traced(self._stages[key]).failed("the stage failed")
            self._end(key, at)

    def close(self) -> None:
        """End what a cancelled or killed job left open."""
        for key in list(self._stages):
            self._end(key, None)

    def _end(self, key: tuple[str, str], at: int | None) -> None:
        if (span := self._stages.pop(key, None)) is not None:
            span.end(at)


@contextmanager
def request(method: str, traceparent: str | None) -> Iterator[Traced]:
    """A span for one HTTP request, below the client's where it names one."""
    with _span(f"{method}", traceparent, "server") as span:
        yield Traced(span)


@contextmanager
def job(
    traceparent: str | None, id: UUID, kind: str, attempt: int | None = None
) -> Iterator[JobTraced]:
    """A span for one attempt at a job, below the request that submitted it."""
    with _span(f"job {kind}", traceparent, "consumer") as span:
        traced = JobTraced(span)
        traced.note(cudaops__job=str(id), cudaops__kind=kind, cudaops__attempt=attempt)
        try:
            yield traced
        finally:
            traced.close()


@contextmanager
def _span(name: str, traceparent: str | None, kind: str) -> Iterator[Span | None]:
    if _active is None:
        yield None
        return
    from opentelemetry.trace import SpanKind

    with _active.tracer.start_as_current_span(
        name, _context(traceparent), kind=SpanKind[kind.upper()],
        record_exception=False, set_status_on_exception=False,  # its text is not ours to send
    ) as span:  # fmt: skip
        yield span


def _context(traceparent: str | None) -> Context | None:
    """A foreign span as parent; None, for the current one, where the header is not one."""
    if traceparent is None or not TRACEPARENT.fullmatch(traceparent):
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def _nanoseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1e9)
