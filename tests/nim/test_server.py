"""The local NIM server keeps the protocol, seen with a plain HTTP client and with NVIDIA's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from cudaops.models.scripted import ScriptedToolCall
from tests.nim import Fault, Nim, Reply, Usage
from tests.nim import nim as nim

TOOLS = [{"type": "function", "function": {"name": "compile", "parameters": {"type": "object"}}}]


def ask(nim: Nim, key: str | None = "test-key", **body: Any) -> requests.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    whole = {"model": nim.model, "messages": [{"role": "user", "content": "hello"}], **body}
    return requests.post(f"{nim.url}/chat/completions", json=whole, headers=headers, timeout=60)


def events(response: requests.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_whole_answer(nim: Nim) -> None:
    nim.script(Reply("héllo", usage=Usage(11, 3, cached=8), reasoning="hm"))
    body = ask(nim).json()
    choice = body["choices"][0]
    assert choice["message"]["content"] == "héllo"
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 14
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}
    assert nim.chats[0].prompt == "hello"


def test_a_stream_ends_in_finish_reason_then_usage_then_done(nim: Nim) -> None:
    text = "one word after another, more than one piece"
    call = ScriptedToolCall("compile", {"source": "__global__ void k() {}"})
    nim.script(Reply(text, tool_calls=(call,), finish_reason="tool_calls", usage=Usage(5, 6)))
    sent = events(ask(nim, stream=True, stream_options={"include_usage": True}))
    deltas = [event["choices"][0]["delta"] for event in sent if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == text
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("call-1", "compile")
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == call.arguments
    assert len(calls) > 2
    assert sent[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert (sent[-1]["choices"], sent[-1]["usage"]["total_tokens"]) == ([], 11)


@pytest.mark.parametrize(
    ("usage", "options"), [(None, {"include_usage": True}), (Usage(1, 1), None)]
)
def test_usage_comes_only_where_it_is_asked_for_and_kept(
    nim: Nim, usage: Usage | None, options: dict[str, bool] | None
) -> None:
    nim.script(Reply("x", usage=usage))
    sent = events(ask(nim, stream=True, stream_options=options))
    assert not [event for event in sent if "usage" in event]


@pytest.mark.parametrize("status", [400, 403, 429, 500, 502, 503])
def test_errors_by_script(nim: Nim, status: int) -> None:
    nim.script(Reply("why", status=status, retry_after="7"), Reply("fine"))
    refused = ask(nim, stream=True)
    assert (refused.status_code, refused.headers["Retry-After"]) == (status, "7")
    assert ("html" in refused.headers["Content-Type"]) == (status in (502, 503))
    assert ask(nim).json()["choices"][0]["message"]["content"] == "fine"


def test_keys_models_and_paths(nim: Nim) -> None:
    nim.script(Reply("x"))
    assert ask(nim, key="wrong").status_code == ask(nim, key=None).status_code == 401
    assert ask(nim, model="test/other").status_code == 404
    assert ask(nim, messages=[]).status_code == 422
    bearer = {"Authorization": f"Bearer {nim.key}"}
    assert requests.get(f"{nim.url}/nothing", headers=bearer, timeout=60).status_code == 404
    listed = requests.get(f"{nim.url}/models", headers=bearer, timeout=60).json()
    assert [entry["id"] for entry in listed["data"]] == list(nim.models)
    nim.key = None
    assert ask(nim, key=None).status_code == 200


def test_tools_can_be_refused_without_using_up_a_reply(nim: Nim) -> None:
    nim.takes_tools = False
    nim.script(Reply("without"))
    refused = ask(nim, tools=TOOLS)
    assert refused.status_code == 400
    assert "tools" in refused.json()["message"]
    assert ask(nim).status_code == 200


def test_a_result_needs_its_call(nim: Nim) -> None:
    nim.script(Reply("fine"))
    user = {"role": "user", "content": "go"}
    result = {"role": "tool", "content": "it compiles", "tool_call_id": "call-1"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "call-1"}]}
    assert ask(nim, messages=[user, result]).status_code == 400
    assert ask(nim, messages=[user, call, result]).status_code == 200


def test_a_dialogue_is_kept(nim: Nim) -> None:
    nim.script(Reply("first", when=("hello",)), Reply("second", when=("goodbye",)))
    assert ask(nim).status_code == 200
    assert ask(nim).status_code == 422
    assert "goodbye" in ask(nim).json()["message"]
    assert (nim.unexpected, len(nim.replies)) == (2, 1)
    nim.any_order = nim.repeat_last = True
    nim.script(Reply("third", when=("hello",)))
    assert ask(nim).json()["choices"][0]["message"]["content"] == "third"
    nim.answer_with(lambda asked: Reply(asked.prompt.upper()))
    assert ask(nim).json()["choices"][0]["message"]["content"] == "HELLO"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", ["cut", "malformed", "cut_silently", "no_events", "stream_error"])
def test_broken_answers(nim: Nim, fault: Fault, stream: bool) -> None:
    nim.script(Reply("a text that is long enough to be broken in its middle", fault=fault))
    try:
        response = ask(nim, stream=stream)
    except requests.exceptions.RequestException:
        assert fault in ("cut", "cut_silently")
        return
    if response.status_code == 500:
        assert (fault, stream) == ("stream_error", False)
    elif stream:
        assert "[DONE]" not in response.text
    else:
        assert fault in ("malformed", "no_events")
        assert "choices" not in (response.text if fault == "no_events" else "")


@pytest.mark.parametrize("fault", ["hang", "stall"])
def test_a_hanging_answer_lets_go_when_the_server_is_left(fault: Fault) -> None:
    started = time.monotonic()
    with Nim(Reply("x" * 200, fault=fault)) as nim:
        chat = [{"role": "user", "content": "?"}]
        body: Any = {"model": nim.model, "messages": chat, "stream": True}
        bearer = {"Authorization": f"Bearer {nim.key}"}
        with pytest.raises(requests.exceptions.RequestException):
            requests.post(f"{nim.url}/chat/completions", json=body, headers=bearer, timeout=0.3)
    assert time.monotonic() - started < 60


def test_a_fault_of_the_server_is_not_swallowed() -> None:
    nim = Nim()
    nim.answer_with(lambda asked: Reply(str(1 // 0)))
    nim.__enter__()
    with pytest.raises(requests.exceptions.RequestException):
        ask(nim)
    with pytest.raises(ZeroDivisionError):
        nim.__exit__(None, None, None)


def test_by_hand(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"cudaops_script": 1, "answers": [{"text": "by hand", "role": "coder"}]}')
    command = [sys.executable, "-m", "tests.nim", "--port", "0", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url, told = server.stdout.readline().split(" ", 1)
            assert told == "serves test/chat, 1 replies\n"
            whole: Any = {"model": "test/chat", "messages": [{"role": "user", "content": "?"}]}
            answered = requests.post(f"{url}/chat/completions", json=whole, timeout=60)
            assert answered.json()["choices"][0]["message"]["content"] == "by hand"
        finally:
            server.terminate()
