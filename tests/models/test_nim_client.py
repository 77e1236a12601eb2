"""The clients of NVIDIA and OpenAI through `ModelCaller`, against the local NIM server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from cudaops.domain.model_use import ModelRole
from cudaops.errors import ModelUnavailable
from cudaops.models.caller import ModelAnswer, ModelCaller
from cudaops.models.clients import ModelAccess, Timeouts, build_model
from cudaops.models.failures import Backoff
from cudaops.models.names import parse_model
from cudaops.models.scripted import Scripted, ScriptedModel, ScriptedToolCall
from tests.nim import Fault, Nim, Reply, Usage
from tests.nim import nim as nim

PROMPT = (SystemMessage("You write kernels."), HumanMessage("Make it faster."))
TOOL = {
    "type": "function",
    "function": {
        "name": "explain_metric",
        "description": "What a metric means.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
CODE = "```cuda\n__global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }\n```"

CLIENTS = [
    "nvidia",
    pytest.param(
        "openai",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("langchain_openai") is None,
            reason="langchain-openai is not installed (pip install 'cudaops[models]')",
        ),
    ),
]


@dataclass
class Session:
    """A caller whose waits are written down instead of slept through."""

    nim: Nim
    client: str
    runner: asyncio.Runner
    timeouts: Timeouts = field(default_factory=Timeouts)
    model: str = "test/chat"
    key: str | None = "test-key"
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = parse_model(self.model if self.client == "nvidia" else f"openai:{self.model}")
        access = ModelAccess(
            nvidia_api_key=self.key,
            nvidia_base_url=self.nim.url,
            base_url=self.nim.url,
            api_keys={} if self.key is None else {"openai": self.key},
            timeouts=self.timeouts,
        )
        backoff = Backoff(sleep=self._wait, random=lambda: 1.0)
        self.caller = ModelCaller(build_model(name, access), name, access, backoff=backoff)

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    def ask(
        self,
        messages: Sequence[BaseMessage] = PROMPT,
        role: ModelRole = "coder",
        tools: Sequence[dict[str, Any]] = (),
    ) -> ModelAnswer:
        return self.runner.run(self.caller.ask(role, messages, scope="01", tools=tools))


Connect = Callable[..., Session]


@pytest.fixture(params=CLIENTS)
def connect(request: pytest.FixtureRequest, nim: Nim) -> Iterator[Connect]:
    """Makes sessions with one kind of client; all of a test share an event loop, as in a run."""
    with asyncio.Runner() as runner:
        yield lambda server=nim, **kwargs: Session(server, request.param, runner, **kwargs)


def test_an_answer_is_streamed_and_its_tokens_are_counted(nim: Nim, connect: Connect) -> None:
    session = connect()
    assert nim.asked == []
    nim.script(Reply(CODE, usage=Usage(900, 40)))
    answer = session.ask()
    assert answer.text == CODE
    assert (answer.call.outcome, answer.call.tries, answer.call.role) == ("answered", 1, "coder")
    tokens = answer.call.tokens
    assert (tokens.input_tokens, tokens.output_tokens, tokens.estimated) == (900, 40, False)
    (asked,) = nim.chats
    assert asked.authorization == "Bearer test-key"
    assert asked.body["stream"] is True
    assert asked.body["stream_options"] == {"include_usage": True}
    assert asked.body["model"] == "test/chat"
    assert [message["role"] for message in asked.messages] == ["system", "user"]
    assert max(asked.body.get(k) or 0 for k in ("max_tokens", "max_completion_tokens")) == 8192


def test_tokens_are_estimated_where_the_server_leaves_them_out(nim: Nim, connect: Connect) -> None:
    nim.script(Reply(CODE, usage=None))
    tokens = connect().ask().call.tokens
    assert tokens.estimated
    assert tokens.input_tokens >= 5
    assert tokens.output_tokens >= len(CODE) // 5


def test_tool_calls_come_whole_and_their_results_go_back(nim: Nim, connect: Connect) -> None:
    calls = (
        ScriptedToolCall("explain_metric", {"name": "l1tex__throughput", "deep": [1, {"a": "é"}]}),
        ScriptedToolCall("explain_metric", {"name": "dram__throughput"}),
    )
    nim.script(Reply(tool_calls=calls, finish_reason="tool_calls"), Reply("done"))
    session = connect()
    first = session.ask(tools=[TOOL])
    assert [call["args"] for call in first.tool_calls] == [call.arguments for call in calls]
    assert nim.chats[0].body["tools"][0]["function"]["name"] == "explain_metric"
    ids = [str(call["id"]) for call in first.tool_calls]
    results = [ToolMessage(f"result {i}", tool_call_id=i) for i in ids]
    second = session.ask([*PROMPT, first.message, *results], tools=[TOOL])
    assert second.text == "done"
    assistant, *answers = nim.chats[1].messages[2:]
    assert [call["id"] for call in assistant["tool_calls"]] == ids
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == calls[0].arguments
    assert [(m["role"], m["tool_call_id"]) for m in answers] == [("tool", i) for i in ids]


def test_too_many_requests_waits_as_long_as_the_server_asks(nim: Nim, connect: Connect) -> None:
    nim.script(Reply(status=429, retry_after="7"), Reply(status=429), Reply("at last"))
    session = connect()
    answer = session.ask()
    assert (answer.text, answer.call.tries) == ("at last", 3)
    assert 7.0 <= session.waits[0] <= 8.0
    assert 0.0 < session.waits[1] <= 60.0
    assert answer.call.problem is not None
    assert "429" in answer.call.problem


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_breaks_is_asked_again(nim: Nim, connect: Connect, status: int) -> None:
    nim.script(Reply(status=status), Reply("fine"))
    session = connect()
    assert session.ask().text == "fine"
    assert len(session.waits) == 1


def test_a_server_that_stays_broken_is_given_up(nim: Nim, connect: Connect) -> None:
    nim.down = True
    session = connect()
    with pytest.raises(ModelUnavailable, match="503") as caught:
        session.ask()
    assert len(nim.chats) == Backoff().tries
    assert session.waits == sorted(session.waits)
    assert "\n" not in str(caught.value)
    assert [call.outcome for call in session.caller.calls] == ["failed"]


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "API_KEY"), (403, "API_KEY"), (404, "--model")]
)
def test_what_no_waiting_mends_is_said_at_once(
    nim: Nim, connect: Connect, status: int, remedy: str
) -> None:
    nim.script(Reply("nvapi-secret was refused", status=status))
    session = connect()
    with pytest.raises(ModelUnavailable, match=str(status)) as caught:
        session.ask()
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert (len(nim.chats), session.waits) == (1, [])


def test_a_wrong_key_is_not_repeated_in_the_message(nim: Nim, connect: Connect) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        connect(key="very-private").ask()
    assert "very-private" not in str(caught.value)
    assert len(nim.chats) == 1


def test_a_wrong_model_id_names_the_setting(nim: Nim, connect: Connect) -> None:
    with pytest.raises(ModelUnavailable, match="test/other") as caught:
        connect(model="test/other").ask()
    assert "CUDAOPS_MODEL" in caught.value.remedy
    assert len(nim.chats) == 1


def test_a_server_of_ones_own_needs_no_key(nim: Nim, connect: Connect) -> None:
    nim.key = None
    nim.script(Reply("mine"))
    assert connect(key=None).ask().text == "mine"
    assert nim.chats[0].authorization == "Bearer no-key"


def test_nobody_listens(connect: Connect) -> None:
    with Nim() as gone:
        session = connect(gone)
    with pytest.raises(ModelUnavailable, match="connection"):
        session.ask()
    assert len(session.waits) == Backoff().network_tries - 1


@pytest.mark.parametrize("fault", ["hang", "stall"])
def test_a_silent_server_is_a_time_out(nim: Nim, connect: Connect, fault: Fault) -> None:
    nim.answer_with(lambda asked: Reply(CODE, fault=fault))
    session = connect(timeouts=Timeouts(first_token_s=0.5, total_s=60.0))
    with pytest.raises(ModelUnavailable, match="in time"):
        session.ask()
    assert len(nim.chats) == Backoff().timeout_tries


def test_an_answer_that_takes_too_long_as_a_whole_is_a_time_out(nim: Nim, connect: Connect) -> None:
    nim.answer_with(lambda asked: Reply("x", wait_s=600.0))
    session = connect(timeouts=Timeouts(first_token_s=60.0, total_s=0.5))
    with pytest.raises(ModelUnavailable, match="in time"):
        session.ask()


@pytest.mark.parametrize("fault", ["cut", "cut_silently", "no_events", "malformed", "stream_error"])
def test_half_an_answer_is_no_answer(nim: Nim, connect: Connect, fault: Fault) -> None:
    nim.script(Reply("half " * 40, fault=fault), Reply(CODE))
    session = connect()
    answer = session.ask()
    assert (answer.text, answer.call.tries, answer.call.outcome) == (CODE, 2, "answered")
    assert len(session.waits) == 1


def test_an_answer_that_is_cut_off_is_continued(nim: Nim, connect: Connect) -> None:
    where = len(CODE) // 2
    first, rest = CODE[:where], CODE[where - 20 :]
    nim.script(Reply(first, finish_reason="length"), Reply(rest))
    answer = connect().ask()
    assert (answer.text, answer.call.outcome, answer.call.tries) == (CODE, "answered", 2)
    assert first in nim.chats[1].prompt


def test_an_answer_that_never_ends_is_bounded(nim: Nim, connect: Connect) -> None:
    nim.answer_with(lambda asked: Reply(f"part {len(asked.messages)} ", finish_reason="length"))
    answer = connect().ask()
    assert answer.call.outcome == "cut_off"
    assert answer.text.startswith("part 2")
    assert len(nim.chats) <= 5


def test_an_empty_answer_is_asked_for_once_more(nim: Nim, connect: Connect) -> None:
    nim.script(Reply(""), Reply(CODE), Reply(""), Reply(""))
    session = connect()
    assert session.ask().text == CODE
    again = session.ask()
    assert (again.text, again.call.outcome, len(nim.chats)) == ("", "empty", 4)


def test_a_model_that_takes_no_tools_is_asked_without(nim: Nim, connect: Connect) -> None:
    nim.takes_tools = False
    nim.script(Reply(CODE), Reply(CODE))
    session = connect()
    answer = session.ask(tools=[TOOL])
    assert answer.text == CODE
    assert answer.call.problem is not None
    assert "without tools" in answer.call.problem
    assert ["tools" in asked.body for asked in nim.chats] == [True, False]
    session.ask(tools=[TOOL])
    assert "tools" not in nim.chats[-1].body


def test_thoughts_are_no_part_of_the_answer(nim: Nim, connect: Connect) -> None:
    thought = "A tile of 16 would do, but 32 needs fewer loads."
    nim.script(
        Reply(CODE, reasoning=thought),
        Reply(f"<think>\n{thought}\n</think>\n{CODE}"),
    )
    session = connect()
    for _ in range(2):
        assert session.ask().text == CODE


def test_a_script_says_the_same_over_http(nim: Nim, connect: Connect) -> None:
    call = ScriptedToolCall("explain_metric", {"name": "dram__throughput"})
    answers = (
        Scripted("slow down", status=429),
        Scripted(CODE, input_tokens=900, output_tokens=40),
        Scripted("look", tool_calls=(call,), finish_reason="tool_calls"),
        Scripted("half", finish_reason="length"),
        Scripted(" done"),
    )
    nim.script(*map(Reply.from_script, answers))
    over_http = connect()
    in_memory = connect()
    name = parse_model("scripted:answers.json")
    in_memory.caller = ModelCaller(
        ScriptedModel(answers=answers),
        name,
        ModelAccess(),
        backoff=Backoff(sleep=in_memory._wait, random=lambda: 1.0),
    )
    for _ in range(3):
        here, there = in_memory.ask(tools=[TOOL]), over_http.ask(tools=[TOOL])
        assert here.text == there.text
        assert here.tool_calls == there.tool_calls
        assert (here.call.tries, here.call.outcome) == (there.call.tries, there.call.outcome)
        if not here.call.tokens.estimated:
            said = here.call.tokens
            if over_http.client == "nvidia":  # its client hands on nothing of the cache
                said = said.model_copy(update={"cached_input_tokens": None})
            assert there.call.tokens == said
    assert in_memory.waits == over_http.waits
    assert not nim.replies
