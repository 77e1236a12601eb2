"""ScriptedModel: streams, tools, tokens, errors, and what it says when the script does not fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import tool

from cudaops.domain.model_use import ModelRole
from cudaops.errors import InputError, ModelUnavailable
from cudaops.models.caller import ModelCaller
from cudaops.models.clients import ModelAccess
from cudaops.models.journal import Journal
from cudaops.models.names import parse_model
from cudaops.models.scripted import (
    ROLE,
    Script,
    Scripted,
    ScriptedModel,
    ScriptedToolCall,
    read_script,
)

TEXT = "Tiles of 16x16 in shared memory, so that each operand is read once per tile."


def role(name: str) -> RunnableConfig:
    return {"metadata": {ROLE: name}}


async def streamed(
    model: Runnable[Any, Any], prompt: str, config: RunnableConfig | None = None
) -> tuple[AIMessageChunk, int]:
    chunks = [chunk async for chunk in model.astream(prompt, config)]
    joined = chunks[0]
    for chunk in chunks[1:]:
        joined += chunk
    assert [chunk.usage_metadata for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    return joined, len(chunks)


@tool
def compile_source(source: str) -> str:
    """Compile."""
    return source


def test_streamed_and_whole_are_the_same_answer() -> None:
    call = ScriptedToolCall("compile_source", {"source": "__global__ void k() {}", "arch": "sm_86"})
    answer = Scripted(
        TEXT,
        input_tokens=900,
        output_tokens=40,
        cached_input_tokens=700,
        finish_reason="tool_calls",
        tool_calls=(call, call),
        reasoning="First I look at the loads, then at the tile.",
    )
    model = ScriptedModel(answers=(answer, answer, answer))
    joined, pieces = asyncio.run(streamed(model, "go"))
    for whole in (asyncio.run(model.ainvoke("go")), model.invoke("go")):
        assert joined.content == whole.content == TEXT
        assert joined.usage_metadata == whole.usage_metadata
        assert joined.response_metadata["finish_reason"] == "tool_calls"
        assert joined.response_metadata == whole.response_metadata
        assert joined.tool_calls == whole.tool_calls
        assert joined.additional_kwargs == whole.additional_kwargs
    assert pieces > 8
    assert [call["id"] for call in joined.tool_calls] == ["call-1", "call-2"]
    assert joined.usage_metadata is not None
    assert joined.usage_metadata["total_tokens"] == 940
    assert joined.usage_metadata["input_token_details"] == {"cache_read": 700}


def test_no_tokens_where_the_script_has_none() -> None:
    model = ScriptedModel(answers=(Scripted(), Scripted("x")))
    joined, _ = asyncio.run(streamed(model, "go"))
    assert (joined.content, joined.usage_metadata) == ("", None)
    assert "".join(str(chunk.content) for chunk in model.stream("go")) == "x"


def test_it_keeps_what_it_was_sent() -> None:
    model = ScriptedModel(answers=(Scripted("a"), Scripted("b")))
    bound = model.bind_tools([compile_source], tool_choice="auto")
    messages = [SystemMessage("rules"), HumanMessage("task")]

    async def ask() -> None:
        _ = [chunk async for chunk in bound.astream(messages, role("coder"), max_tokens=7)]
        await model.ainvoke(messages, role("fixer"), stop=["END"])

    asyncio.run(ask())
    first, second = model.requests
    assert (first.text, first.role) == ("rules\ntask", "coder")
    assert first.tools[0]["function"]["name"] == "compile_source"
    assert first.options == {"max_tokens": 7, "tool_choice": "auto"}
    assert (second.role, second.tools, second.options) == ("fixer", (), {"stop": ["END"]})
    assert model.left == 0


@pytest.mark.parametrize(
    ("status", "first_line"),
    [(429, "[429] Too Many Requests"), (503, "[503] Service Unavailable"), (599, "[599] Unknown")],
)
def test_errors_are_worded_as_nvidias_client_words_them(status: int, first_line: str) -> None:
    model = ScriptedModel(answers=(Scripted("slow down", status=status), Scripted("fine")))
    with pytest.raises(Exception, match="slow down") as caught:
        asyncio.run(streamed(model, "go"))
    assert str(caught.value).startswith(first_line)
    assert asyncio.run(model.ainvoke("go")).content == "fine"


def test_a_delay_comes_before_the_first_token_and_can_be_cancelled() -> None:
    model = ScriptedModel(answers=(Scripted("late", seconds=3600.0),))

    async def ask() -> None:
        async with asyncio.timeout(0.05):
            await streamed(model, "go")

    with pytest.raises(TimeoutError):
        asyncio.run(ask())


def test_a_strict_script_is_a_dialogue() -> None:
    model = ScriptedModel(
        answers=(
            Scripted("plan", role="planner"),
            Scripted("code", role="coder", when=("16x16", "Failed before")),
        ),
        model="scripted:demo.json",
    )
    with pytest.raises(InputError) as caught:
        asyncio.run(streamed(model, "write the kernel", role("coder")))
    message = str(caught.value)
    assert "answer 1 of 2 is for the role planner" in message
    assert "the role coder, with a prompt that ends in 'write the kernel'" in message
    assert "\n" not in message
    with pytest.raises(InputError, match="asked was no role"):
        model.invoke("plan")
    assert model.invoke("plan", role("planner")).content == "plan"
    with pytest.raises(InputError, match="answer 2 of 2 is for a prompt that holds 'Failed before"):
        model.invoke("a tile of 16x16", role("coder"))
    assert model.invoke("Failed before: 16x16", role("coder")).content == "code"
    with pytest.raises(
        ModelUnavailable, match=r"all of its answers \(2\); asked was the role coder"
    ):
        model.invoke("more", role("coder"))


def test_any_order_serves_whoever_asks() -> None:
    answers = (
        Scripted("tile", role="coder", when="tiling"),
        Scripted("vector", role="coder", when="vector"),
        Scripted("plan", role="planner"),
    )
    model = ScriptedModel(answers=answers, order="any", repeat_last=True)

    async def ask() -> list[Any]:
        prompts = [("vector", "coder"), ("tiling", "coder"), ("vector", "coder")]
        asked = [model.ainvoke(prompt, role(who)) for prompt, who in prompts]
        return [message.content for message in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == ["vector", "tile", "vector"]
    with pytest.raises(InputError, match="none of the 1 answers left of 3"):
        model.invoke("vector", role("fixer"))


def test_past_the_end() -> None:
    model = ScriptedModel(answers=(Scripted("a"), Scripted("b")), repeat_last=True)
    assert [model.invoke("go").content for _ in range(4)] == ["a", "b", "b", "b"]
    resumed = ScriptedModel(answers=(Scripted("a"), Scripted("b")))
    resumed.skip(1)
    assert resumed.invoke("go").content == "b"


def write(folder: Path, **fields: Any) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps({"cudaops_script": 1, **fields}), "utf-8")
    return path


def test_a_script_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/one.md").write_text("from a file\n", "utf-8")
    path = write(
        tmp_path,
        about="two answers",
        order="any",
        answers=[
            {"file": "answers/one.md", "role": "coder", "when": ["a", "b"]},
            {"text": ["two", "lines"], "tool_calls": [{"name": "t", "arguments": {"x": 1}}]},
        ],
    )
    first, second = read_script(path).answers
    assert (first.text, first.phrases) == ("from a file\n", ("a", "b"))
    assert (second.text, second.tool_calls[0].arguments) == ("two\nlines", {"x": 1})
    model = ScriptedModel.from_file(path)
    assert (model.order, model.left, model.model) == ("any", 2, f"scripted:{path}")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"answers": []}, "at least one answer"),
        ({"answers": ["x"]}, "answer 1: an answer is an object"),
        ({"answers": [{}, {"txt": "x"}]}, "answer 2: txt: Unexpected keyword argument"),
        ({"answers": [{"role": "poet"}]}, "answer 1: role: Input should be 'planner'"),
        ({"answers": [{"text": "x", "file": "y"}]}, "not both"),
        ({"answers": [{"file": "../secret"}]}, "outside the script's folder"),
        ({"answers": [{"file": "none.md"}]}, "cannot be read"),
        ({"answers": [{"input_tokens": 3}]}, "or neither"),
        ({"answers": [{"cached_input_tokens": 3}]}, "cannot be more"),
        ({"answers": [{}], "order": "random"}, "order: Input should be"),
        ({"answers": [{}], "cudaops_script": 2}, "must hold"),
    ],
)
def test_a_wrong_script_is_one_clear_line(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read_script(write(tmp_path, **fields))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_script(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    with pytest.raises(InputError, match="cannot be read"):
        ScriptedModel.from_file(path)
    for text, problem in [("{", "is not JSON"), ("[]", "one JSON object")]:
        path.write_text(text)
        with pytest.raises(InputError, match=problem):
            ScriptedModel.from_file(path)


def test_the_script_of_the_manual_can_be_read(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text("utf-8")
    manual = manual.partition("### The file\n")[2]
    path = tmp_path / "script.json"
    path.write_text(manual.split("```json\n")[1].split("```")[0], "utf-8")
    script = read_script(path)
    told = {line.split("|")[1] for line in manual.splitlines() if line.startswith("| `")}
    fields = {name for row in told for name in row.replace("`", "").replace(",", " ").split()}
    known = {*Scripted.__dataclass_fields__, *Script.model_fields, "cudaops_script", "file"}
    assert fields == known
    assert script.answers[1].text == "TITLE: two lines\nWHY: of text"
    assert {answer.role for answer in script.answers} == {"planner", "coder", None}


def journalled(
    folder: Path, model: ScriptedModel, questions: Sequence[tuple[ModelRole, str]]
) -> Any:
    name = parse_model("scripted:answers.json")
    caller = ModelCaller(model, name, ModelAccess(), journal=Journal(folder))

    async def ask() -> list[tuple[str, int]]:
        asked = [
            await caller.ask(who, [HumanMessage(prompt)], scope="01") for who, prompt in questions
        ]
        return [(answer.text, len(answer.tool_calls)) for answer in asked]

    return asyncio.run(ask())


def test_a_recorded_run_is_given_again(tmp_path: Path) -> None:
    call = ScriptedToolCall("look", {"x": 1}, id="c7")
    model = ScriptedModel(
        answers=(
            Scripted("plan", input_tokens=9, output_tokens=2, cached_input_tokens=4),
            Scripted("half of it, which is long enough, ", finish_reason="length"),
            Scripted("and the rest"),
            Scripted("", tool_calls=(call,), finish_reason="tool_calls"),
            Scripted(""),
            Scripted(""),
        )
    )
    questions: list[tuple[ModelRole, str]] = [
        ("planner", "a"), ("coder", "b"), ("coder", "c"), ("reflector", "d"),
    ]  # fmt: skip
    said = journalled(tmp_path / "first", model, questions)
    assert said[1] == ("half of it, which is long enough, and the rest", 0)
    assert said[2:] == [("", 1), ("", 0)]
    again = ScriptedModel.from_journal(tmp_path / "first")
    assert journalled(tmp_path / "second", again, questions) == said
    assert (again.left, again.order) == (0, "any")
    assert again.answers[0].cached_input_tokens == 4
    assert again.answers[1].input_tokens is None


def test_a_folder_that_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ScriptedModel.from_journal(tmp_path / "none")
    with pytest.raises(InputError, match="no answer of a model"):
        ScriptedModel.from_journal(tmp_path)
    (tmp_path / "0001-coder.json").write_text("{")
    with pytest.raises(InputError, match=r"0001-coder\.json"):
        ScriptedModel.from_journal(tmp_path)


def test_a_resumed_run_goes_on_where_the_script_stood(tmp_path: Path) -> None:
    answers = (Scripted("a"), Scripted("", finish_reason="stop"), Scripted("b"), Scripted("c"))
    questions: list[tuple[ModelRole, str]] = [("planner", "1"), ("coder", "2"), ("coder", "3")]
    first = ScriptedModel(answers=answers)
    assert journalled(tmp_path, first, questions[:2]) == [("a", 0), ("b", 0)]
    second = ScriptedModel(answers=answers)
    second.skip(sum(call.tries for call in Journal(tmp_path).calls))
    assert journalled(tmp_path, second, questions) == [("a", 0), ("b", 0), ("c", 0)]
    assert [request.text for request in second.requests] == ["3"]
