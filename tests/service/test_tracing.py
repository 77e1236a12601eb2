"""Spans from the request through the job to its stages; nothing where traces are off."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cudaops.errors import InputError
from cudaops.service import tracing
from cudaops.service.middleware import ObserveRequests
from cudaops.service.records import JobEvent

CLIENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
"""A client's own span."""


@pytest.fixture(autouse=True)
def _off_again() -> Iterator[None]:
    yield
    tracing.close()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    tracing.configure(None, "test", exporter=made)
    return made


def event(kind: str, stage: str, second: int) -> JobEvent:
    return JobEvent.model_validate(
        {"seq": 1, "time": f"2026-11-22T00:00:{second:02d}.500Z", "attempt": 1, "stage": stage,
         "agent": stage, "kind": kind, "message": "secret text"}
    )  # fmt: skip


def finished(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    tracing.close()  # sends what is left
    return {span.name: span for span in exporter.get_finished_spans()}


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def test_off_costs_nothing_and_says_nothing() -> None:
    tracing.configure(None, "test")
    with tracing.request("GET", CLIENT) as span:
        span.name("x")
        span.note(a=1)
        span.failed("x")
        assert tracing.current() is None
    with tracing.job(CLIENT, uuid4(), "run", 1) as traced:
        traced.event(event("started", "intake", 0))


def test_a_trace_goes_from_the_client_to_the_stages(exporter: InMemorySpanExporter) -> None:
    with tracing.request("POST", CLIENT) as request:
        request.name("POST /optimize")
        kept = tracing.current()  # what is stored with the job
    assert kept is not None
    assert kept.startswith(CLIENT[:36])
    with tracing.job(kept, UUID(int=7), "optimize", 2) as job:
        for kind, stage, second in [
            ("started", "intake", 1), ("progress", "intake", 2), ("finished", "intake", 3),
            ("started", "sandbox", 4), ("failed", "sandbox", 6), ("started", "optimizer", 7),
        ]:  # fmt: skip
            job.event(event(kind, stage, second))
    spans = finished(exporter)

    names = {"POST /optimize", "job optimize", "stage intake", "stage sandbox"}
    assert set(spans) == names | {"stage optimizer"}  # the last was open when the job ended
    trace = int(CLIENT[3:35], 16)
    assert {ids(span)[0] for span in spans.values()} == {trace}
    parents = {name: span.parent.span_id for name, span in spans.items() if span.parent}
    assert parents["POST /optimize"] == int(CLIENT[36:52], 16)
    assert parents["job optimize"] == ids(spans["POST /optimize"])[1]
    inner = names - {"POST /optimize", "job optimize"}
    assert {parents[name] for name in inner} == {ids(spans["job optimize"])[1]}
    intake = spans["stage intake"]
    assert intake.start_time is not None
    assert intake.end_time is not None
    assert intake.end_time - intake.start_time == 2_000_000_000  # by the events' own clock
    assert not spans["stage sandbox"].status.is_ok
    job_attributes = spans["job optimize"].attributes
    assert job_attributes is not None
    assert job_attributes["cudaops.attempt"] == 2
    assert "secret text" not in "".join(span.to_json() for span in spans.values())


@pytest.mark.parametrize(
    "header", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_a_wrong_traceparent_begins_a_trace_of_its_own(
    exporter: InMemorySpanExporter, header: str | None
) -> None:
    with tracing.request("GET", header) as span:
        span.name("GET /x")
    assert finished(exporter)["GET /x"].parent is None


@pytest.mark.anyio
async def test_the_middleware_names_the_route_and_marks_faults(
    exporter: InMemorySpanExporter,
) -> None:
    app = FastAPI()

    @app.get("/jobs/{id}")
    async def job(id: UUID) -> str:
        return tracing.current() or ""

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("private")

    app.add_middleware(ObserveRequests)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {"traceparent": CLIENT}
        inside = (await client.get(f"/jobs/{UUID(int=3)}", headers=headers)).json()
        await client.get("/broken")
    spans = finished(exporter)
    span = spans["GET /jobs/{id}"]
    assert inside[:36] == CLIENT[:36]
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "http.request.method": "GET", "http.route": "/jobs/{id}",
        "http.response.status_code": 200, "cudaops.job": str(UUID(int=3)),
    }  # fmt: skip
    assert not spans["GET /broken"].status.is_ok
    assert "private" not in spans["GET /broken"].to_json()


def test_a_real_collector_receives_them() -> None:
    received: list[tuple[str, ExportTraceServiceRequest]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            received.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        tracing.configure(f"http://127.0.0.1:{server.server_port}/", "cudaops-worker")
        with tracing.job(CLIENT, UUID(int=1), "run", 1):
            pass
        tracing.close()
        server.shutdown()
        thread.join()
    ((path, sent),) = received
    assert path == "/v1/traces"
    (resource,) = sent.resource_spans
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert about["service.name"] == "cudaops-worker"
    (span,) = resource.scope_spans[0].spans
    assert span.name == "job run"
    assert span.trace_id == bytes.fromhex("ab" * 16)


def test_an_endpoint_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="OTEL_EXPORTER_OTLP_ENDPOINT must be"):
        tracing.configure("collector:4318", "test")
