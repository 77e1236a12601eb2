"""The servers as other hosts use them: the official client and LangChain's, stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import LoggingMessageNotificationParams

from cudaops.certify.envelope import open_envelope
from cudaops.domain.certificate import Certificate
from cudaops.mcp_servers.guidance import EXAMPLES
from cudaops.mcp_servers.sessions import SessionPool
from tests.lanes import mostly_deep
from tests.mcp_servers.serving import SERVERS, hosting, on_stdio, over_http, server_of, text_of_run

MOST_A_HOST_SHOWS = 45_000
"""Characters of one answer (docs/mcp.md): 49,928 were seen to be shown whole."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"
ONE_CALL: dict[str, tuple[str, dict[str, Any], str]] = {
    "profiler": ("explain_metric", {"name": "dram__bytes.sum"}, "dram__bytes.sum"),
    "knowledge": ("read_expert_note", {"id": "stall_wait"}, "Fixed latency"),
    "sandbox": ("describe_program", {}, "open_program"),
    "all": ("explain_metric", {"name": "dram__bytes.sum"}, "dram__bytes.sum"),
}
"""A quick call of each server, and what its answer holds."""


async def by_the_official_client(session: ClientSession, server: str) -> None:
    told = await session.initialize()
    assert told.serverInfo.name.startswith("cudaops")
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    for tool in tools.values():
        assert tool.description
        assert tool.outputSchema
        assert tool.annotations
        assert tool.annotations.title
        assert tool.annotations.readOnlyHint is not None
        assert tool.name in EXAMPLES
    name, arguments, says = ONE_CALL[server]
    assert says in str((await session.call_tool(name, arguments)).content)
    if server == "all":
        assert set(EXAMPLES) == set(tools)
        prompts = {p.name for p in (await session.list_prompts()).prompts}
        assert prompts == {"optimize", "explain_verdict", "review_rewrite"}
        asked = await session.get_prompt("optimize", {"program": "mm.cu"})
        assert 'open_program(path="mm.cu")' in str(asked.messages[0].content)
        for uri in ("cudaops://metrics", "cudaops://verdict-rules", "cudaops://devices"):
            text = (await session.read_resource(uri)).contents[0].text  # type: ignore[arg-type, union-attr]
            assert len(text) > 1000


async def by_langchain(session: ClientSession, server: str) -> None:
    tools = {tool.name: tool for tool in await load_mcp_tools(session)}
    name, arguments, says = ONE_CALL[server]
    assert says in str(await tools[name].ainvoke(arguments))


@pytest.mark.parametrize("server", mostly_deep(reversed(SERVERS), 1))
def test_on_stdio(server: str, tmp_path: Path) -> None:
    parameters = on_stdio(server, tmp_path / "runs")

    async def official() -> None:
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await by_the_official_client(session, server)

    async def langchain() -> None:
        connection: Any = {
            "transport": "stdio",
            "command": parameters.command,
            "args": parameters.args,
            "env": parameters.env,
            "cwd": parameters.cwd,
        }
        async with MultiServerMCPClient({server: connection}).session(server) as session:
            await by_langchain(session, server)

    async def both() -> None:
        await asyncio.gather(official(), langchain())

    asyncio.run(both())


@pytest.mark.parametrize("server", SERVERS)
def test_over_http(server: str, tmp_path: Path) -> None:
    host = hosting(tmp_path / "runs", strangers=True)
    pool = SessionPool(host.strangers_session)

    async def talk(url: str) -> None:
        async with (
            streamable_http_client(url) as (reads, writes, _),
            ClientSession(reads, writes) as session,
        ):
            await by_the_official_client(session, server)
        connection: Any = {"transport": "streamable_http", "url": url}
        async with MultiServerMCPClient({server: connection}).session(server) as session:
            await by_langchain(session, server)

    with over_http(server_of(server, pool, host)) as address:
        asyncio.run(talk(address.url))
    assert pool.size == 0


@pytest.mark.essential
def test_a_scripted_host_optimises_a_kernel_by_tools_alone(tmp_path: Path) -> None:
    """Profile, search, propose, tune, judge, accept, over stdio; nothing of the user's changes."""
    program = tmp_path / "naive_matmul.cu"
    program.write_text(EXAMPLE.read_text("utf-8").replace("N = 1024", "N = 256"), "utf-8")
    before, runs = program.read_bytes(), tmp_path / "runs"
    said: list[str] = []
    logged: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        logged.append(str(params.data))

    async def drive() -> tuple[dict[str, Any], str]:
        parameters = on_stdio("all", runs)
        async with (
            stdio_client(parameters) as streams,
            ClientSession(streams[0], streams[1], logging_callback=on_log) as session,
        ):
            await session.initialize()

            async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                answer = await session.call_tool(tool, arguments, progress_callback=on_progress)
                assert not answer.isError, f"{tool}: {answer.content}"
                assert answer.structuredContent is not None
                chars = len(json.dumps(answer.structuredContent))
                assert chars < MOST_A_HOST_SHOWS, f"{tool} answers with {chars} characters"
                return answer.structuredContent

            opened = await call("open_program", path=str(program))
            assert opened["kernel"] == "naive_matmul"
            verdict = (await call("profile_kernel"))["verdict"]
            found = await call(
                "search_knowledge", query=verdict["relief"], subtype=verdict["subtype"], limit=2
            )
            assert len(found["citations"]) == 2
            ideas = await call("propose_rewrites", limit=1)
            assert ideas["subtype"] == verdict["subtype"]
            idea = ideas["proposals"][0]
            tuned = await call("tune_rewrite", source=idea["source"], max_trials=2)
            judged = await call(
                "judge_rewrite", source=idea["source"], tuned=tuned["best"], title=idea["title"]
            )
            assert judged["judgement"]["outcome"] == "provisional", judged["judgement"]["reason"]
            accepted = await call("accept_rewrite", rewrite_id=judged["rewrite_id"])
            record = await text_of_run(call, accepted["run_id"], "record")
            assert json.loads(record)["outcome"] == "provisional"
            return accepted, await text_of_run(call, accepted["run_id"], "certificate")

    accepted, certificate = asyncio.run(drive())
    assert accepted["outcome"] == "provisional"
    assert accepted["speedup"] > 1.2
    assert accepted["provenance"] == " (modelled for A10)"
    assert accepted["filename"] == "naive_matmul.cu"
    assert accepted["patch"].startswith("--- ")
    assert "<<<" in accepted["best"]
    assert program.read_bytes() == before
    envelope = open_envelope(certificate.encode(), "certificate.json")
    assert isinstance(envelope.record, Certificate)
    assert any("judge" in line or "gate" in line or "us" in line for line in said)
    assert any("provisional" in line for line in logged)
    kept = list(runs.glob("*/*/run.json"))
    assert len(kept) == 1
    assert (kept[0].parent / "best.cu").read_text("utf-8") == accepted["best"]
