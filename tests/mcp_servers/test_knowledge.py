"""The knowledge server, spoken to over MCP in memory, with a real store behind it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import McpError

from cudaops.domain.run import Citation
from cudaops.mcp_servers.knowledge import ExpertNoteText, SearchResult, build_server
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import NOTHING_FOUND, IngestReport, Knowledge, KnowledgeStatus, NoteText


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="cudaops-test-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def opener(database_url: str | None, folder: Path | None) -> Any:
    opened: list[Knowledge] = []

    def open_knowledge() -> Knowledge:
        opened.append(
            Knowledge.open(
                database_url=database_url, data_folder=folder, embedder=WordLlamaEmbedder()
            )
        )
        return opened[-1]

    return open_knowledge, opened


def test_search_read_and_status(folder: Path) -> None:
    open_knowledge, opened = opener(None, folder)

    async def talk() -> None:
        async with Client(build_server(open_knowledge)) as client:
            assert not opened
            names = {tool.name for tool in await client.list_tools()}
            assert names == {
                "search_knowledge", "read_note", "read_expert_note", "knowledge_status",
            }  # fmt: skip
            reply = await client.call_tool(
                "search_knowledge",
                {"query": "too many loads", "limit": 4, "subtype": "l1_load_throughput"},
            )
            result = SearchResult.model_validate(reply.structured_content)
            assert len(result.citations) == 4
            assert result.notices == ()
            reply = await client.call_tool(
                "search_knowledge", {"query": "How do I bake rye bread?"}
            )
            foreign = SearchResult.model_validate(reply.structured_content)
            assert foreign.citations == ()
            assert foreign.notices == (NOTHING_FOUND,)
            assert isinstance(result.citations[0], Citation)
            assert result.citations[0].note == "l1-load-throughput"
            assert result.notices == ()
            reply = await client.call_tool("read_note", {"note": result.citations[0].note})
            note = NoteText.model_validate(reply.structured_content)
            assert note.sources
            assert "## What relieves it" in note.body
            reply = await client.call_tool("knowledge_status", {})
            status = KnowledgeStatus.model_validate(reply.structured_content)
            assert status.notes == status.origins["builtin"] > 32
            assert status.embedded == status.chunks
            (page,) = await client.read_resource("note://l1-load-throughput")
            assert "# Limited by L1 load throughput" in page.text
            assert len(opened) == 1

    asyncio.run(talk())


def test_an_expert_note_is_read_without_opening_the_knowledge_base() -> None:
    open_knowledge, opened = opener("postgresql://u:secret@127.0.0.1:1/none", None)

    async def talk() -> None:
        async with Client(build_server(open_knowledge)) as client:
            reply = await client.call_tool("read_expert_note", {"id": "stall_wait"})
            note = ExpertNoteText.model_validate(reply.structured_content)
            assert note.title == "Fixed latency of dependent instructions"
            assert note.text.startswith("**Signal**")
            with pytest.raises(ToolError, match="nearest: stall_wait") as caught:
                await client.call_tool("read_expert_note", {"id": "stall-wait"})
            assert len(str(caught.value).splitlines()) == 1
        assert not opened

    asyncio.run(talk())


def test_calls_at_once_open_one_knowledge_base(folder: Path) -> None:
    open_knowledge, opened = opener(None, folder)

    async def talk() -> None:
        async with Client(build_server(open_knowledge)) as client:
            ask = [client.call_tool("search_knowledge", {"query": f"memory {i}"}) for i in range(8)]
            replies = await asyncio.gather(*ask)
            assert all(reply.structured_content["citations"] for reply in replies)
        assert len(opened) == 1

    asyncio.run(talk())


def test_a_user_note_is_read_by_its_slashed_id(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.md").write_text("# Own page\n\nAbout aardvarks.\n")
    open_knowledge, _ = opener(None, folder)
    knowledge = open_knowledge()
    knowledge.add(tmp_path)
    note = knowledge.search("aardvarks", 1)[0].note
    assert note.endswith("/deep/own.md")

    async def talk() -> None:
        async with Client(build_server(lambda: knowledge)) as client:
            (page,) = await client.read_resource(f"note://{note}")
            assert "aardvarks" in page.text

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("read_note", {"note": "no-such-note"}, "search_knowledge names the notes"),
        ("search_knowledge", {"query": ""}, "at least 1 character"),
        ("search_knowledge", {"query": "x", "limit": 0}, "greater than or equal to 1"),
        ("search_knowledge", {"query": "x", "limit": 1000}, "less than or equal to 20"),
    ],
)
def test_errors_say_what_to_do(
    folder: Path, tool: str, arguments: dict[str, Any], says: str
) -> None:
    open_knowledge, _ = opener(None, folder)

    async def talk() -> None:
        async with Client(build_server(open_knowledge)) as client:
            with pytest.raises(ToolError, match=says):
                await client.call_tool(tool, arguments)

    asyncio.run(talk())


def test_a_database_that_refuses_is_a_tool_error_with_the_remedy() -> None:
    open_knowledge, opened = opener("postgresql://u:secret@127.0.0.1:1/none", None)

    async def talk() -> None:
        async with Client(build_server(open_knowledge)) as client:
            for _ in range(2):
                with pytest.raises(ToolError, match=r"Remedy: .*DATABASE_URL") as caught:
                    await client.call_tool("search_knowledge", {"query": "x"})
                assert "secret" not in str(caught.value)
            with pytest.raises(McpError, match="cannot be reached"):
                await client.read_resource("note://l1-load-throughput")
        assert not opened

    asyncio.run(talk())


def test_a_source_is_added_where_allowed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "zebra.md").write_text("# Zebra\n\nQuokkas of lane zebra wait at the kiosk.\n")
    open_knowledge, _ = opener(None, folder)

    async def talk() -> None:
        async with Client(build_server(open_knowledge, "all")) as client:
            reply = await client.call_tool("add_source", {"what": str(tmp_path)})
            assert IngestReport.model_validate(reply.structured_content).written == 1
            reply = await client.call_tool("search_knowledge", {"query": "zebra quokkas kiosk"})
            result = SearchResult.model_validate(reply.structured_content)
            assert result.citations[0].title == "Zebra"
            with pytest.raises(ToolError, match="does not exist"):
                await client.call_tool("add_source", {"what": str(tmp_path / "none")})
        async with Client(build_server(open_knowledge, "packages")) as client:
            with pytest.raises(ToolError, match="--allow-paths"):
                await client.call_tool("add_source", {"what": str(tmp_path)})

    asyncio.run(talk())
