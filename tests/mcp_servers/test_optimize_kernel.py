"""`optimize_kernel`: the whole loop in one call, the host's own model, and a host that gives up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.sampling import SamplingParams
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import McpError
from mcp.types import CreateMessageResult, SamplingMessage, TextContent

from cudaops.domain.run import RunRecord
from cudaops.mcp_servers.sessions import SessionPool
from tests.mcp_servers.serving import ENDLESS, MM, TILES, hosting, over_http, server_of

PLAN = """```json
[{"family": "tiling", "title": "tiles of both operands", "why": "every operand is read again",
  "steps": ["load a tile of each into shared memory"], "expected_speedup": 1.1}]
```"""
REWRITE = f"TITLE: tiles of both operands\nWHY: fewer loads\n```cuda\n{TILES}\n```"
LESSON = "Tiles of a product this small cost more than they save."
GENEROUS_S = 120.0


class ScriptedHost:
    """A host whose model says what was written down for it, and keeps what it was asked."""

    def __init__(self, *answers: str | None) -> None:
        """None: the host's user refuses."""
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    async def __call__(
        self, messages: list[SamplingMessage], params: SamplingParams, _: Any
    ) -> CreateMessageResult:
        content = messages[-1].content
        assert isinstance(content, TextContent)
        self.asked.append((params.systemPrompt or "", content.text))
        said = self.answers.pop(0)
        if said is None:
            raise RuntimeError("the user declined")
        text = TextContent(type="text", text=said)
        return CreateMessageResult(
            role="assistant", content=text, model="scripted-1", stopReason="endTurn"
        )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def server(runs: Path) -> Iterator[FastMCP]:
    host = hosting(runs, strangers=False)
    session = host.session()
    yield server_of("all", session, host)
    session.close()


def test_the_hosts_own_model_proposes(server: FastMCP, runs: Path) -> None:
    scripted = ScriptedHost(PLAN, REWRITE, LESSON)
    said: list[str] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    async def talk() -> dict[str, Any]:
        async with Client(server, sampling_handler=scripted) as client:
            arguments = {"source": MM, "optimizer": "host", "max_iterations": 1, "max_trials": 2}
            answer = await client.call_tool("optimize_kernel", arguments, progress_handler=listen)
            (page,) = await client.read_resource(answer.structured_content["resources"][0])
            record = RunRecord.model_validate_json(page.text)
            assert record.run_id == answer.structured_content["run_id"]
            return dict(answer.structured_content or {})

    told = asyncio.run(talk())
    assert told["outcome"] == "provisional"
    assert told["title"] == "tiles of both operands"
    assert told["model"].startswith("host:")
    assert told["tokens"] > 1000
    assert told["attempts"][0]["proposer"] == f"llm:{told['model']}"
    assert "tiles<<<" in told["best"]
    assert told["provenance"] == " (modelled for A10)"
    assert not scripted.answers
    system, prompt = scripted.asked[0]
    assert "__global__ void mm" in system + prompt
    assert any("hypothesis" in line for line in said)
    record = RunRecord.model_validate_json(next(runs.glob("*/*/run.json")).read_text("utf-8"))
    assert record.model is not None
    assert record.model.tokens.estimated


def test_a_host_that_refuses_is_said_and_recipes_go_on(server: FastMCP) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server, sampling_handler=ScriptedHost(None)) as client:
            arguments = {"source": MM, "optimizer": "host", "max_iterations": 1, "max_trials": 2}
            answer = await client.call_tool("optimize_kernel", arguments)
            return dict(answer.structured_content or {})

    told = asyncio.run(talk())
    assert told["attempts"][0]["proposer"].startswith("recipe:")
    assert any(
        "the host refused to call its model: the user declined" in n for n in told["notices"]
    )


@pytest.mark.deep
def test_a_host_that_cannot_sample_is_said_and_recipes_go_on(server: FastMCP) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server) as client:
            arguments = {"source": MM, "optimizer": "host", "max_iterations": 1, "max_trials": 2}
            answer = await client.call_tool("optimize_kernel", arguments)
            return dict(answer.structured_content or {})

    told = asyncio.run(talk())
    assert told["attempts"][0]["proposer"].startswith("recipe:")
    assert "does not offer MCP sampling" in told["notices"][0]
    assert told["model"] is None


Pids = frozenset[int]


def children(apart: Pids = frozenset()) -> list[psutil.Process]:
    """Processes at work under this one, PostgreSQL's aside."""
    found = psutil.Process().children(recursive=True)
    return [
        p for p in found if p.pid not in apart and p.is_running() and "postgres" not in p.name()
    ]


@pytest.fixture
def others() -> Pids:
    """What other tests of this process keep running: fork servers, a session's own children."""
    return frozenset(p.pid for p in children())


async def until_children(wanted: bool, others: Pids) -> None:
    """Wait until some child is at work, or none."""
    deadline = time.monotonic() + GENEROUS_S
    while bool(children(others)) != wanted:
        assert time.monotonic() < deadline, f"children at work: {children(others)}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("tool", ["open_program", "optimize_kernel"])
def test_a_cancelled_call_leaves_nothing_running(tool: str, tmp_path: Path, others: Pids) -> None:
    host = hosting(tmp_path / "runs", strangers=True)
    pool = SessionPool(host.strangers_session)

    async def talk(url: str) -> None:
        async with Client(url) as client:
            call = asyncio.create_task(client.session.call_tool(tool, {"source": ENDLESS}))
            number = client.session._request_id  # given to the call when it runs
            await until_children(True, others)
            await client.cancel(number)
            with pytest.raises(McpError, match="cancelled"):
                await call
            await until_children(False, others)
            # The session goes on.
            opened = await client.call_tool("open_program", {"source": MM})
            assert opened.structured_content["kernel"] == "mm"

    with over_http(server_of("all", pool, host)) as address:
        asyncio.run(talk(address.url))


def test_a_stranger_sends_the_server_nowhere_else(tmp_path: Path) -> None:
    """`remote` would act there with the token of whoever started this server."""
    host = hosting(tmp_path / "runs", strangers=True)
    pool = SessionPool(host.strangers_session)

    async def talk(url: str) -> None:
        async with Client(url) as client:
            with pytest.raises(ToolError, match="omit `executor`"):
                await client.call_tool("optimize_kernel", {"source": MM, "executor": "remote"})

    with over_http(server_of("all", pool, host)) as address:
        asyncio.run(talk(address.url))


def test_cancelling_in_the_middle_of_the_graph_ends_the_run(server: FastMCP, others: Pids) -> None:
    async def talk() -> None:
        reached = asyncio.Event()

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            if "profiling" in (message or ""):
                reached.set()

        async with Client(server) as client:
            call = asyncio.create_task(
                client.session.call_tool(
                    "optimize_kernel", {"source": MM}, progress_callback=listen
                )
            )
            number = client.session._request_id
            await asyncio.wait_for(reached.wait(), GENEROUS_S)
            await client.cancel(number)
            with pytest.raises(McpError, match="cancelled"):
                await call
            await until_children(False, others)

    asyncio.run(talk())
