"""Asking a model that misbehaves: what comes back, how often it was asked, what it is said to cost.

The same against the real clients: test_nim_client.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage

from cudaops.errors import InputError, ModelUnavailable
from cudaops.models.caller import CONTINUATIONS, OUTPUT_TOKENS, ModelAnswer, ModelCaller
from cudaops.models.clients import ModelAccess, Timeouts
from cudaops.models.names import parse_model
from cudaops.models.scripted import Scripted, ScriptedModel, ScriptedToolCall
from cudaops.models.streaming import CONTINUE, MALFORMED
from tests.models.asked import DIALOGUE, LOOK, NAME, Waits, caller

OK = Scripted("the answer", input_tokens=50, output_tokens=5)


def ask(asks: ModelCaller, **options: Any) -> ModelAnswer:
    return asyncio.run(asks.ask("coder", DIALOGUE, scope="01", **options))


def test_an_answer_and_its_account() -> None:
    asks, model = caller(OK)
    answer = ask(asks)
    assert answer.text == "the answer"
    call = answer.call
    assert (call.outcome, call.tries, call.tokens.total, call.scope) == ("answered", 1, 55, "01")
    assert not call.tokens.estimated
    assert call.problem is None
    assert asks.calls == (call,)
    assert model.requests[0].options == {"max_tokens": OUTPUT_TOKENS["coder"]}
    assert model.requests[0].role == "coder"


def test_the_same_question_has_the_same_key_and_another_one_has_not() -> None:
    asks, _ = caller(OK, repeat_last=True)
    first, again = ask(asks), ask(asks)
    other = ask(asks, max_output_tokens=10)
    with_tools = ask(asks, tools=[LOOK])
    assert first.call.key == again.call.key
    assert len({first.call.key, other.call.key, with_tools.call.key}) == 3
    assert len(first.call.key) == 16


def test_tokens_are_estimated_from_above_where_nobody_says() -> None:
    asks, _ = caller(Scripted("x" * 100))
    tokens = ask(asks).call.tokens
    assert tokens.estimated
    assert tokens.output_tokens == 50
    assert tokens.input_tokens > 12


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    waits = Waits()
    asks, _ = caller(Scripted(status=status), Scripted(status=status), OK, waits=waits)
    answer = ask(asks)
    assert (answer.text, answer.call.tries) == ("the answer", 3)
    assert answer.call.tokens.total == 55
    assert str(status) in (answer.call.problem or "")
    assert waits.slept == [2.0, 4.0]


def test_tries_are_bounded_and_their_waits_double_up_to_a_cap() -> None:
    waits = Waits(tries=8, cap_s=20.0)
    asks, model = caller(Scripted(status=503), repeat_last=True, waits=waits)
    with pytest.raises(ModelUnavailable, match="HTTP 503"):
        ask(asks)
    assert len(model.requests) == 8
    assert waits.slept == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0, 20.0]
    assert asks.calls[0].outcome == "failed"
    assert asks.calls[0].tries == 8
    assert asks.use().tokens.total == 0


@pytest.mark.parametrize(("status", "named"), [(401, "refused"), (404, "--model"), (422, "422")])
def test_what_will_not_pass_is_tried_once(status: int, named: str) -> None:
    waits = Waits()
    asks, model = caller(Scripted(status=status), waits=waits)
    with pytest.raises(ModelUnavailable, match=named):
        ask(asks)
    assert len(model.requests) == 1
    assert waits.slept == []


def test_an_answer_that_is_cut_off_is_continued() -> None:
    first = Scripted(
        "int a = 1;\nint second", finish_reason="length", input_tokens=9, output_tokens=4
    )
    rest = Scripted(" = 2;\n", input_tokens=20, output_tokens=2)
    asks, model = caller(first, rest)
    answer = ask(asks)
    assert answer.text == "int a = 1;\nint second = 2;"
    assert answer.message.content == answer.text
    assert (answer.call.outcome, answer.call.tries, answer.call.tokens.total) == ("answered", 2, 35)
    sent = model.requests[1].messages
    assert [m.text for m in sent[-2:]] == [first.text, CONTINUE]


def test_the_line_break_before_a_continuation_is_kept() -> None:
    asks, _ = caller(Scripted("one;\n", finish_reason="length"), Scripted("two;"))
    assert ask(asks).text == "one;\ntwo;"


def test_continuations_are_bounded() -> None:
    pieces = [Scripted(f"piece {n}; ", finish_reason="length") for n in range(9)]
    asks, model = caller(*pieces)
    answer = ask(asks)
    assert answer.call.outcome == "cut_off"
    assert len(model.requests) == CONTINUATIONS + 1
    assert answer.text == "piece 0; piece 1; piece 2; piece 3; "


def test_an_empty_answer_is_asked_for_once_more() -> None:
    asks, model = caller(Scripted("  \n"), OK)
    answer = ask(asks)
    assert (answer.text, answer.call.tries, answer.call.outcome) == ("the answer", 2, "answered")
    assert "empty" in model.requests[1].text
    asks, _ = caller(Scripted(""), Scripted("", finish_reason="content_filter"))
    answer = ask(asks)
    assert (answer.text, answer.call.outcome) == ("", "empty")


def test_a_model_that_only_thought_gets_twice_the_room() -> None:
    thought = Scripted("", reasoning="hm " * 50, finish_reason="length")
    asks, model = caller(thought, OK)
    answer = ask(asks, max_output_tokens=100)
    assert answer.text == "the answer"
    assert [r.options["max_tokens"] for r in model.requests] == [100, 200]
    assert "reasoning alone used up 100 tokens" in (answer.call.problem or "")


@pytest.mark.parametrize(
    "said",
    [
        Scripted("<think>first\nsecond</think>\n\nthe answer"),
        Scripted("the template opened it</think>the answer"),
        Scripted("the answer", reasoning="first, second"),
    ],
)
def test_thoughts_are_no_answer_and_count_as_output(said: Scripted) -> None:
    asks, _ = caller(said)
    answer = ask(asks)
    assert answer.text == answer.message.text == "the answer"
    assert answer.message.additional_kwargs == {}
    assert answer.call.tokens.output_tokens >= len(said.text + said.reasoning) // 2


def test_tool_calls_have_ids_and_the_message_goes_back_into_the_dialogue() -> None:
    said = Scripted("let me look", tool_calls=(ScriptedToolCall("look", {"what": "tiles"}),))
    asks, model = caller(said)
    answer = ask(asks, tools=[LOOK])
    (call,) = answer.tool_calls
    assert (call["name"], call["args"], call["id"]) == ("look", {"what": "tiles"}, "call-1")
    assert answer.message.tool_calls == [call]
    assert [tool["function"]["name"] for tool in model.requests[0].tools] == ["look"]


class Unsteady(ScriptedModel):
    """Refuses tools, as some models and servers do."""

    def _take(self, messages: Any, stop: Any, run_manager: Any, kwargs: Any) -> Scripted:
        if kwargs.get("tools"):
            raise Exception("[400] tools are not supported by this model")
        return super()._take(messages, stop, run_manager, kwargs)


def test_a_model_that_refuses_tools_is_asked_without_from_then_on() -> None:
    model = Unsteady(answers=(OK, OK))
    asks = ModelCaller(model, NAME, ModelAccess(), backoff=Waits().backoff)
    first, second = ask(asks, tools=[LOOK]), ask(asks, tools=[LOOK])
    assert (first.call.tries, second.call.tries) == (2, 1)
    assert "called without tools" in (first.call.problem or "")


def test_a_small_context_gets_a_smaller_limit() -> None:
    too_long = Scripted("maximum context length is 8192 tokens", status=400)
    asks, model = caller(too_long, too_long, OK)
    answer = ask(asks)
    assert [r.options["max_tokens"] for r in model.requests] == [8192, 4096, 2048]
    assert answer.text == "the answer"
    asks, model = caller(too_long, repeat_last=True)
    with pytest.raises(ModelUnavailable, match="too long"):
        ask(asks)
    assert len(model.requests) == 4


class Whole(GenericFakeChatModel):
    """Cannot stream, and writes the arguments of a tool so that nobody can read them."""

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        yield await self.ainvoke(input, config)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def test_a_model_that_cannot_stream_and_a_call_that_cannot_be_read() -> None:
    broken = {"name": "look", "args": '{"what": ', "id": None, "error": "cut"}
    said = AIMessage(
        "see",
        invalid_tool_calls=[broken],
        response_metadata={"finish_reason": "stop"},
    )
    asks = ModelCaller(Whole(messages=iter([said])), NAME, ModelAccess())
    answer = ask(asks, tools=[LOOK])
    assert answer.text == "see"
    (call,) = answer.tool_calls
    assert (call["args"], call["id"]) == ({MALFORMED: '{"what": '}, "call-1")


@pytest.mark.parametrize("seconds", [30.0])
def test_a_model_that_says_nothing_is_tried_twice_and_counted(seconds: float) -> None:
    waits = Waits()
    slow = Scripted("late", seconds=seconds)
    timeouts = Timeouts(first_token_s=0.05, total_s=20.0)
    asks, model = caller(slow, slow, slow, waits=waits, timeouts=timeouts)
    with pytest.raises(ModelUnavailable, match="did not answer in time"):
        ask(asks)
    assert len(model.requests) == 2
    assert asks.use().tokens.estimated
    assert asks.use().tokens.input_tokens > 0


def test_cancelling_ends_the_request_and_gives_its_money_back() -> None:
    asks, model = caller(Scripted("late", seconds=30.0), OK)

    async def course() -> str:
        task = asyncio.create_task(asks.ask("coder", DIALOGUE, scope="01"))
        while not model.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await asks.ask("coder", DIALOGUE, scope="01")).text

    assert asyncio.run(course()) == "the answer"
    assert [call.outcome for call in asks.calls] == ["failed", "answered"]
    assert len(model.requests) == 2


def test_a_script_that_does_not_fit_is_the_users_mistake_and_passes_through() -> None:
    asks, _ = caller(Scripted("x", role="planner"))
    with pytest.raises(InputError, match="planner"):
        ask(asks)


def test_a_stream_with_no_end_is_a_lost_connection_where_ends_are_always_said() -> None:
    waits = Waits()

    class Cut(ScriptedModel):
        async def astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for chunk in super().astream(*args, **kwargs):
                first = len(self.requests) == 1
                yield chunk.model_copy(update={"response_metadata": {}}) if first else chunk

    model = Cut(answers=(Scripted("half"), OK))
    name = parse_model("openai:test/chat")
    asks = ModelCaller(
        model, name, ModelAccess(base_url="http://127.0.0.1:9"), backoff=waits.backoff
    )
    answer = asyncio.run(asks.ask("coder", DIALOGUE, scope="01"))
    assert (answer.text, answer.call.tries) == ("the answer", 2)
    assert answer.call.tokens.estimated


def test_messages_are_left_as_they_were() -> None:
    before: list[BaseMessage] = list(DIALOGUE)
    asks, _ = caller(Scripted(""), OK)
    ask(asks)
    assert list(DIALOGUE) == before
