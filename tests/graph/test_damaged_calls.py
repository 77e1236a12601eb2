"""What is opened before the graph begins: calls of a resumed run that cannot be read are said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cudaops.domain.run import RunOptions
from cudaops.graph.events import EventLog, read_events
from cudaops.graph.loop import Services, open_context
from cudaops.graph.model_setup import CALLS, Development
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.services import make_executor, open_bench
from cudaops.graph.state import State
from cudaops.graph.toolbox import build_toolbox
from cudaops.models.journal import Journal
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import load_settings

MM = Path(__file__).parents[1] / "exploits" / "mm.cu"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunOptions, Workbench]:
    """A program that was captured once, in a run whose model is a script."""
    folder = tmp_path_factory.mktemp("opened")
    script = folder / "answers.json"
    script.write_text(json.dumps({"cudaops_script": 1, "answers": [{"text": "[]"}]}))
    options = run_options(
        MM, folder / "run", target("A10", None), optimizer="llm", model=f"scripted:{script}"
    )
    return options, open_bench(options, make_executor(options, load_settings()))


def open_again(options: RunOptions, bench: Workbench) -> tuple[Development, list[str]]:
    """The run's model and the notices that opening it gave."""
    path = Path(options.out) / "events.jsonl"
    path.unlink(missing_ok=True)
    events = EventLog(path, lambda _: None)

    async def opening() -> Development:
        async with build_toolbox(bench, load_settings()) as toolbox:
            services = Services(options, load_settings(), bench, toolbox, events)
            return open_context(services, 0.0, State())[1]

    development = asyncio.run(opening())
    said = read_events(path) if path.exists() else []
    return development, [event.message for event in said if event.kind == "notice"]


def test_damaged_calls_are_said_on_resuming(opened: tuple[RunOptions, Workbench]) -> None:
    options, bench = opened
    development, notices = open_again(options, bench)
    assert (development.damaged, notices) == ((), [])
    calls = Path(options.out) / CALLS
    Journal(calls).record_tool("01", "explain_metric", {"name": "x"}, "result")
    (calls / "0002-coder.json").write_text('{"format": 1, "call"')
    (calls / ".0003-coder.json.tmp").write_text("")
    development, notices = open_again(options, bench)
    assert development.developer is not None
    assert notices == list(development.damaged)
    half, cut = notices
    assert half.startswith("state/calls/.0003-coder.json.tmp: half-written; its calls are repeated")
    assert cut.startswith("state/calls/0002-coder.json: ")


def test_they_are_said_where_no_model_is_asked_too(opened: tuple[RunOptions, Workbench]) -> None:
    options, bench = opened
    options = options.model_copy(update={"model": "nvidia/nemotron"})
    (Path(options.out) / CALLS).mkdir(parents=True, exist_ok=True)
    (Path(options.out) / CALLS / "0009-coder.json").write_text("")
    development, notices = open_again(options, bench)
    assert development.developer is None
    assert any("0009-coder.json" in notice for notice in notices)
