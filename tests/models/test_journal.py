"""The journal: what was paid for is not paid for again, however the run ended."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudaops.errors import ModelUnavailable, SandboxUnavailable
from cudaops.models.budget import Budget
from cudaops.models.caller import ModelAnswer, ModelCaller
from cudaops.models.journal import CallEntry, Journal, question_key
from cudaops.models.scripted import Scripted, ScriptedToolCall
from tests.models.asked import DIALOGUE, LOOK, caller

FIRST = Scripted("first", input_tokens=40, output_tokens=4)
SECOND = Scripted("second", input_tokens=50, output_tokens=5)

CHILD = """
import asyncio, pathlib, sys
from cudaops.models.scripted import Scripted
from tests.models.asked import DIALOGUE, caller

async def main():
    asks, _ = caller(
        Scripted("first", input_tokens=40, output_tokens=4),
        Scripted("second", seconds=600.0),
        journal=pathlib.Path(sys.argv[1]),
    )
    await asks.ask("planner", DIALOGUE, scope="01")
    print("paid", flush=True)
    await asks.ask("coder", DIALOGUE, scope="01")

asyncio.run(main())
"""


def ask(asks: ModelCaller, scope: str = "01", **options: Any) -> ModelAnswer:
    return asyncio.run(asks.ask("coder", DIALOGUE, scope=scope, **options))


def test_a_killed_run_pays_for_no_finished_call_twice(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert (said, child.returncode) == ("paid\n", -signal.SIGKILL)
    asks, model = caller(SECOND, journal=folder, budget=Budget(max_tokens=100))
    assert asks.use().tokens.total == 44
    planned = asyncio.run(asks.ask("planner", DIALOGUE, scope="01"))
    assert (planned.text, len(model.requests)) == ("first", 0)
    assert ask(asks, max_output_tokens=50).text == "second"
    assert len(model.requests) == 1
    assert asks.use().tokens.total == asks.budget.spent.tokens == 99
    assert [call.role for call in asks.calls] == ["planner", "coder"]


def test_a_resumed_run_hears_the_same_and_knows_what_it_cost(tmp_path: Path) -> None:
    said = Scripted(
        "see",
        tool_calls=(ScriptedToolCall("look", {"what": "x"}),),
        input_tokens=9,
        output_tokens=1,
    )
    before = ask(caller(said, journal=tmp_path)[0], tools=[LOOK])
    asks, model = caller(journal=tmp_path)
    after = ask(asks, tools=[LOOK])
    assert after.text == before.text
    assert after.tool_calls == before.tool_calls
    assert after.call == before.call
    assert after.message.content == before.message.content
    assert after.message.tool_calls == before.message.tool_calls
    assert asks.use().calls == 1
    assert model.requests == ()


def test_the_nth_question_gets_the_nth_answer_of_its_scope(tmp_path: Path) -> None:
    asks, _ = caller(FIRST, SECOND, Scripted("elsewhere"), journal=tmp_path)
    assert [ask(asks).text, ask(asks).text, ask(asks, "02").text] == [
        "first", "second", "elsewhere",
    ]  # fmt: skip
    asks, model = caller(Scripted("third"), journal=tmp_path)
    assert [ask(asks, "02").text, ask(asks).text, ask(asks).text, ask(asks).text] == [
        "elsewhere", "first", "second", "third",
    ]  # fmt: skip
    assert len(model.requests) == 1


def test_a_failed_call_is_asked_again_and_its_cost_is_kept(tmp_path: Path) -> None:
    half = Scripted("x", input_tokens=30, output_tokens=3, finish_reason="length")
    asks, _ = caller(half, Scripted(status=401), journal=tmp_path)
    with pytest.raises(ModelUnavailable):
        ask(asks)
    asks, _ = caller(SECOND, journal=tmp_path)
    assert asks.use().tokens.total == 33
    assert ask(asks).text == "second"
    assert asks.use().tokens.total == 88
    assert [call.outcome for call in asks.calls] == ["failed", "answered"]


def test_an_entry_is_whole_private_and_readable(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    ask(caller(FIRST, journal=folder)[0])
    (path,) = folder.iterdir()
    assert path.name == "0001-coder.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    entry = json.loads(path.read_text("utf-8"))
    assert entry["messages"] == [
        {"role": "system", "content": "Rules."},
        {"role": "human", "content": "Write a kernel."},
    ]
    assert entry["answer"] == "first"
    assert entry["call"]["tokens"]["input_tokens"] == 40


def test_a_key_never_reaches_the_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path, secrets=["nvapi-secret"])
    journal.record_tool("01", "search", {"q": "nvapi-secret"}, "found nvapi-secret")
    text = "".join(path.read_text("utf-8") for path in tmp_path.iterdir())
    assert "nvapi-secret" not in text
    assert "found ***" in text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0007-coder.json", '{"format": 1, "call": {"scope"'),
        ("0007-coder.json", ""),
        ("0007-coder.json", '{"format": 2}'),
        ("0007-coder.json", "\x00\x00"),
        (".0007-coder.json.tmp", '{"format": 1}'),
    ],
)
def test_damage_is_said_and_ignored(tmp_path: Path, name: str, content: str) -> None:
    ask(caller(FIRST, journal=tmp_path)[0])
    (tmp_path / name).write_text(content)
    journal = Journal(tmp_path)
    (said,) = journal.damaged
    assert said.startswith(name)
    assert "\n" not in said
    assert len(journal.calls) == 1
    journal.record_tool("01", "look", {}, "result")
    assert (tmp_path / "0008-tool.json").exists()


FULL = """
import pathlib, resource, signal, sys
from cudaops.errors import SandboxUnavailable
from cudaops.models.journal import Journal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    Journal(pathlib.Path(sys.argv[1])).record_tool("01", "look", {}, "x" * 300)
except SandboxUnavailable as error:
    print(error)
"""


def test_a_full_disk_is_this_machines_fault_and_leaves_nothing_half(tmp_path: Path) -> None:
    ask(caller(FIRST, journal=tmp_path)[0])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert f"cannot be kept in {tmp_path}: File too large; free space there" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["0001-coder.json"]
    journal = Journal(tmp_path)
    assert journal.damaged == ()
    assert journal.recall_tool("01", "look", {}) is None


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "calls").write_text("x")
    journal = Journal(tmp_path / "calls")
    with pytest.raises(SandboxUnavailable, match="resume the run"):
        journal.record_tool("01", "look", {}, "result")


def test_a_folder_in_an_entrys_place_is_damage(tmp_path: Path) -> None:
    (tmp_path / "0001-coder.json").mkdir()
    assert Journal(tmp_path).damaged == ("0001-coder.json: Is a directory",)


def test_results_of_tools_are_recalled_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for result in ("one", "two"):
        assert journal.recall_tool("01", "look", {"a": 1, "b": 2}) is None
        journal.record_tool("01", "look", {"a": 1, "b": 2}, result)
    again = Journal(tmp_path)
    results = [again.recall_tool("01", "look", {"b": 2, "a": 1}) for _ in range(3)]
    assert results == ["one", "two", None]
    assert again.recall_tool("02", "look", {"a": 1, "b": 2}) is None
    assert again.recall_tool("01", "look", {"a": 1}) is None


def test_a_key_is_over_everything_and_over_nothing_else() -> None:
    assert question_key({"a": 1, "b": [2]}) == question_key({"b": [2], "a": 1})
    assert question_key({"a": 1}) != question_key({"a": 2})


@pytest.mark.parametrize("key", ["x", "token", "1"])
def test_a_key_that_is_a_word_spoils_nothing(tmp_path: Path, key: str) -> None:
    """Servers of one's own take any; code holds it too."""
    entry = CallEntry.model_validate_json(_entry_text(tmp_path / "made"))
    Journal(tmp_path / "calls", secrets=[key]).record(entry)
    again = Journal(tmp_path / "calls", secrets=[key])
    assert again.damaged == ()
    assert again.recall(entry.call.scope, entry.call.key) == entry


def _entry_text(folder: Path) -> bytes:
    ask(caller(FIRST, journal=folder)[0])
    (path,) = folder.iterdir()
    return path.read_bytes()
