"""HTTP as the server speaks it: whole answers, streams, and every way to break one off."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.nim.replies import Asked, Reply, completion, error_body, events

if TYPE_CHECKING:
    from tests.nim.server import Nim


class Wire(ThreadingHTTPServer):
    """Listens, and answers as a Nim says; a thread a connection."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], nim: Nim) -> None:
        super().__init__(address, _Handler)
        self.nim = nim

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news here; anything else is a fault of this server."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.nim.faults.append(error)


class _Handler(BaseHTTPRequestHandler):
    server: Wire
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(Asked(self.path, {}, self.headers.get("Authorization")))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(Asked(self.path, body, self.headers.get("Authorization")))

    def _answer(self, asked: Asked) -> None:
        nim = self.server.nim
        nim.asked.append(asked)
        refused = nim.refusal(asked)
        if refused is not None:
            self._error(*refused)
        elif asked.path == "/v1/chat/completions":
            self._chat(nim.next_reply(asked), asked)
        elif (facts := nim.facts(asked)) is not None:
            self._send(200, "application/json", json.dumps(facts).encode())
        else:
            self._send(404, "text/plain", b"404 page not found")

    def _chat(self, reply: Reply, asked: Asked) -> None:
        if reply.wait_s:
            self.server.nim.released.wait(reply.wait_s)
        if reply.status >= 400:
            self._error(reply.status, reply.text, reply.retry_after)
        elif reply.fault == "hang":
            self._hang()
        elif asked.body.get("stream"):
            self._stream(reply, asked)
        else:
            self._whole(reply, asked)

    def _error(self, status: int, detail: str, retry_after: str | None = None) -> None:
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        self._send(status, *error_body(status, detail), headers)

    def _whole(self, reply: Reply, asked: Asked) -> None:
        data = json.dumps(completion(reply, asked)).encode()
        if reply.fault is None:
            self._send(200, "application/json", data)
        elif reply.fault == "malformed":
            self._send(200, "application/json", data[: len(data) // 2])
        elif reply.fault == "stream_error":
            self._error(500, "EngineDeadError")
        elif reply.fault == "no_events":
            self._send(200, "application/json", b"{}")
        else:
            self._head(200, "application/json", {"Content-Length": str(len(data))})
            self.wfile.write(data[: len(data) // 2])
            self._break_off(reply)

    def _stream(self, reply: Reply, asked: Asked) -> None:
        framed = reply.fault != "cut_silently"
        self._head(
            200,
            "text/event-stream",
            {"Transfer-Encoding": "chunked"} if framed else {"Connection": "close"},
        )
        sent = [] if reply.fault == "no_events" else list(events(reply, asked))
        lines = [f"data: {json.dumps(event)}\n\n".encode() for event in sent]
        if reply.fault is not None:
            lines = lines[: max(1, len(lines) // 2)] if lines else []
        for line in lines:
            self._event(line, framed)
        if reply.fault == "malformed":
            self._event(b'data: {"choices": [{"delta": {"content": "x\n\n', framed)
        elif reply.fault == "stream_error":
            error = {"object": "error", "message": "EngineDeadError", "type": "InternalServerError"}
            self._event(f"data: {json.dumps({'error': error})}\n\n".encode(), framed)
        elif reply.fault in ("stall", "cut", "cut_silently"):
            self._break_off(reply)
            return
        if reply.fault is None:
            self._event(b"data: [DONE]\n\n", framed)
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: bytes, framed: bool) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if framed else data)
        self.wfile.flush()

    def _break_off(self, reply: Reply) -> None:
        self.wfile.flush()
        if reply.fault == "stall":
            self._hang()
        self.close_connection = True

    def _hang(self) -> None:
        """Until the server is closed: the client gives up first."""
        self.server.nim.released.wait()
        self.close_connection = True

    def _send(
        self, status: int, kind: str, data: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self._head(status, kind, {"Content-Length": str(len(data)), **(headers or {})})
        self.wfile.write(data)

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: `asked` keeps what matters."""
