"""Anthropic's client through `ModelCaller`, against a local server that speaks its protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from cudaops.models.budget import Budget
from cudaops.models.caller import ModelAnswer, ModelCaller
from cudaops.models.clients import ModelAccess
from cudaops.models.names import parse_model
from cudaops.models.prices import known_price

langchain_anthropic = pytest.importorskip("langchain_anthropic")

NAME = parse_model("anthropic:claude-sonnet-5-5")
PREFIX = "You write kernels."
CODE = "```cuda\n__global__ void k() {}\n```"
TOOL = {"type": "function", "function": {"name": "read_note", "parameters": {"type": "object"}}}


class Server(ThreadingHTTPServer):
    """Answers /v1/messages with `CODE` as a stream; its cache holds each marked prefix."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.cached: set[str] = set()

    def usage(self, body: dict[str, Any]) -> dict[str, int]:
        """1,000 tokens of prefix, written where it is marked and new, and 50 of the rest."""
        system = body["system"]
        marked = isinstance(system, list) and "cache_control" in system[-1]
        known = json.dumps(system) in self.cached
        if marked:
            self.cached.add(json.dumps(system))
        return {
            "input_tokens": 50 if marked else 1050,
            "cache_creation_input_tokens": 1000 if marked and not known else 0,
            "cache_read_input_tokens": 1000 if marked and known else 0,
            "output_tokens": 1,
        }


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        message: dict[str, Any] = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
            "content": [], "stop_reason": None, "stop_sequence": None,
            "usage": self.server.usage(body),
        }  # fmt: skip
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": _text(text="")},
            {"type": "content_block_delta", "index": 0, "delta": _text("text_delta", CODE)},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {**message["usage"], "output_tokens": 20}},
            {"type": "message_stop"},
        ]  # fmt: skip
        data = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


def _text(kind: str = "text", text: str = "") -> dict[str, str]:
    return {"type": kind, "text": text}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server: Server, *dialogues: list[BaseMessage]) -> tuple[list[ModelAnswer], ModelCaller]:
    model = langchain_anthropic.ChatAnthropic(
        model=NAME.model, api_key="test-key", max_retries=0,
        base_url=f"http://127.0.0.1:{server.server_address[1]}",
    )  # fmt: skip
    caller = ModelCaller(model, NAME, ModelAccess(), budget=Budget(price=known_price(NAME)))

    async def all_of_them() -> list[ModelAnswer]:
        return [
            await caller.ask("coder", d, scope=f"{n:02}", tools=[TOOL])
            for n, d in enumerate(dialogues, start=1)
        ]

    return asyncio.run(all_of_them()), caller


def test_the_frozen_prefix_is_marked_and_what_the_cache_saved_is_counted(server: Server) -> None:
    dialogues: list[list[BaseMessage]] = [
        [SystemMessage(PREFIX), HumanMessage(question)] for question in ("one", "two", "three")
    ]
    answers, caller = ask(server, *dialogues)
    assert [answer.text for answer in answers] == [CODE] * 3
    mark = {"type": "text", "text": PREFIX, "cache_control": {"type": "ephemeral"}}
    assert [body["system"] for body in server.bodies] == [[mark]] * 3
    assert all("cache_control" not in json.dumps(b["messages"]) for b in server.bodies)
    counts = [answer.call.tokens for answer in answers]
    assert [(c.input_tokens, c.cached_input_tokens, c.cache_write_tokens) for c in counts] == [
        (1050, 0, 1000), (1050, 1000, 0), (1050, 1000, 0),
    ]  # fmt: skip
    use = caller.use()
    # Sonnet 5.5: 2 dollars a million tokens in, 0.1 read, 2.5 written.
    assert use.cache_saved_usd == pytest.approx((2000 * 1.9 - 1000 * 0.5) / 1e6)
    fresh = (3 * 1050 * 2.0 + use.tokens.output_tokens * 10.0) / 1e6
    assert use.cost_usd == pytest.approx(fresh - (use.cache_saved_usd or 0.0))


def test_a_question_with_no_system_message_is_sent_as_it_is(server: Server) -> None:
    server.usage = lambda body: {"input_tokens": 5, "output_tokens": 1}  # type: ignore[method-assign]
    answers, caller = ask(server, [HumanMessage("one")])
    assert "cache_control" not in json.dumps(server.bodies)
    assert answers[0].call.tokens.cached_input_tokens is None
    assert caller.use().cache_saved_usd is None
