"""The server: NIM's chat, embeddings, ranking and models endpoints on this machine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from tests.nim.replies import Asked, Reply
from tests.nim.wire import Wire

Answerer = Callable[[Asked], Reply]


class Nim:
    """Answers on 127.0.0.1 while it is entered; what it was asked is in `asked`.

    A chat is answered with the next of `replies`, or by the function given to `answer_with`. A
    chat past the last reply is answered with 422 and counted in `unexpected`.
    """

    key: str | None = "test-key"
    """What the server takes as `Bearer`; None: it asks for no key, like a NIM of one's own."""
    model = "test/chat"
    models: tuple[str, ...] = ("test/chat", "test/embed", "test/rank")
    """What it serves; anything else is 404."""
    dimension = 8
    """Of embeddings."""
    takes_tools = True
    """False: a chat with tools is answered with 400."""
    down = False
    """True: everything is answered with 503."""
    any_order = False
    """True: a chat gets the first reply left whose `when` fits, not the next one."""
    repeat_last = False
    """True: the last reply is given again and again."""

    def __init__(self, *replies: Reply, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.replies: deque[Reply] = deque(replies)
        self.unexpected = 0
        self.released = threading.Event()
        self.faults: list[BaseException] = []
        """The server's own; raised where it is left."""
        self._answerer: Answerer | None = None
        self._lock = threading.Lock()
        self._http = Wire(("127.0.0.1", port), self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), daemon=True, name="nim"
        )

    @property
    def url(self) -> str:
        """Base URL for clients."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def chats(self) -> list[Asked]:
        """The chats among `asked`."""
        return [asked for asked in self.asked if asked.path == "/v1/chat/completions"]

    def script(self, *replies: Reply) -> None:
        """Put these at the end of the dialogue."""
        self.replies.extend(replies)

    def answer_with(self, answerer: Answerer) -> None:
        """Let a function of the request answer from now on. It may be called by several threads."""
        self._answerer = answerer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if self.faults:
            raise self.faults[0]

    def next_reply(self, asked: Asked) -> Reply:
        """The reply to this chat."""
        if asked.body.get("tools") and not self.takes_tools:
            return Reply("this model does not take `tools`", status=400)
        if self._answerer is not None:
            return self._answerer(asked)
        with self._lock:
            if not self.replies:
                self.unexpected += 1
                return Reply("the dialogue has no further reply", status=422)
            for reply in list(self.replies) if self.any_order else [self.replies[0]]:
                if all(text in asked.prompt for text in reply.when):
                    if not (self.repeat_last and len(self.replies) == 1):
                        self.replies.remove(reply)
                    return reply
            self.unexpected += 1
            wanted = self.replies[0].when
            return Reply(f"no reply is for this prompt; the next wants {wanted!r}", status=422)

    def refusal(self, asked: Asked) -> tuple[int, str] | None:
        """Why nobody gets an answer to this: status and detail."""
        if self.down:
            return 503, "overloaded"
        if self.key is not None and asked.authorization != f"Bearer {self.key}":
            return 401, "Authentication failed"
        if asked.path != "/v1/models" and asked.body.get("model") not in self.models:
            return 404, f"The model `{asked.body.get('model')}` does not exist."
        if asked.path == "/v1/chat/completions":
            return _fault_of_chat(asked.body)
        return None

    def facts(self, asked: Asked) -> dict[str, Any] | None:
        """The body of everything but chats; None for a path that NIM does not have."""
        match asked.path:
            case "/v1/models":
                return {"object": "list", "data": [{"id": name} for name in self.models]}
            case "/v1/embeddings":
                return {"data": [self._embedding(*item) for item in enumerate(asked.body["input"])]}
            case "/v1/ranking":
                return {"rankings": _shortest_first(asked.body["passages"])}
        return None

    def _embedding(self, index: int, text: str) -> dict[str, Any]:
        vector = [float(len(text) % (d + 2)) + 0.5 for d in range(self.dimension)]
        return {"index": index, "embedding": vector}


def _fault_of_chat(body: dict[str, Any]) -> tuple[int, str] | None:
    messages = body.get("messages")
    if not messages:
        return 422, "messages: field required"
    called: set[str] = set()
    for message in messages:
        called |= {call["id"] for call in message.get("tool_calls") or []}
        if message["role"] == "tool" and message.get("tool_call_id") not in called:
            return 400, "a message with role `tool` must follow a message with its `tool_calls`"
    return None


def _shortest_first(passages: list[dict[str, str]]) -> list[dict[str, float]]:
    lengths = [len(passage["text"]) for passage in passages]
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    return [{"index": index, "logit": -float(lengths[index])} for index in order]


@pytest.fixture
def nim() -> Iterator[Nim]:
    """A server with an empty dialogue."""
    with Nim() as server:
        yield server
