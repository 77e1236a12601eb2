"""Over HTTP: who may call, no path is opened, every host has a session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp import Client
from fastmcp.client.auth import BearerAuth
from fastmcp.exceptions import ToolError

from cudaops.cli.boundary import EXIT_INPUT, run_command
from cudaops.errors import InputError
from cudaops.mcp_servers.http import one_token
from cudaops.mcp_servers.sessions import ProgramTexts, Session, SessionPool, write_texts
from tests.mcp_servers.serving import MM, Address, hosting, over_http, server_of

TOKEN = "a-token-of-twenty-characters"
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
def pool(tmp_path: Path) -> SessionPool:
    return SessionPool(hosting(tmp_path / "runs", strangers=True).strangers_session, most=2)


@pytest.fixture
def address(pool: SessionPool, tmp_path: Path) -> Iterator[Address]:
    host = hosting(tmp_path / "runs", strangers=True)
    with over_http(server_of("all", pool, host), one_token(TOKEN)) as listening:
        yield listening


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://evil.example"}, 403),
    ],
)
def test_who_may_call(address: Address, headers: dict[str, str], status: int) -> None:
    answer = httpx.post(address.url, json=HELLO, headers={**HEADERS, **headers}, timeout=60)
    assert answer.status_code == status
    assert TOKEN not in answer.text


def test_two_hosts_do_not_see_each_others_program(
    address: Address, pool: SessionPool, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("int hunter2;\n")

    def client() -> Client[Any]:
        return Client(address.url, auth=BearerAuth(TOKEN))

    async def talk() -> None:
        async with client() as one, client() as other:
            opened = await one.call_tool("open_program", {"source": MM, "filename": "mm.cu"})
            assert opened.structured_content["kernel"] == "mm"
            with pytest.raises(ToolError, match="no program is open"):
                await other.call_tool("describe_program", {})
            assert pool.size == 2
            for arguments, says in (
                ({"path": str(secret)}, "opens no path"),
                ({"source": MM + f'\n#include "{secret}"\n'}, "leaves the folder"),
                ({"source": MM, "files": {"../up.h": ""}}, "cannot be a file's name"),
                ({"source": MM, "filename": "/etc/passwd"}, "cannot be a file's name"),
            ):
                with pytest.raises(ToolError, match=says) as refused:
                    await other.call_tool("open_program", arguments)
                assert "hunter2" not in str(refused.value)
            with pytest.raises(ToolError, match="opens no path"):
                await other.call_tool("optimize_kernel", {"path": str(secret)})
            async with client() as third:
                with pytest.raises(ToolError, match="no program is open"):
                    await third.call_tool("describe_program", {})
                await other.call_tool("knowledge_status", {}, raise_on_error=False)
            assert pool.size == 2
            # Two at once is all this server takes: the longest unused had to go.
            with pytest.raises(ToolError, match=r"closed to make room.*open_program"):
                await one.call_tool("describe_program", {})

    asyncio.run(talk())


def test_idle_sessions_are_closed_with_their_folders(tmp_path: Path) -> None:
    now = [0.0]
    folders: list[Path] = []

    def new_session(why: str | None) -> Session:
        folder = tmp_path / f"session-{len(folders)}"
        folder.mkdir()
        folders.append(folder)
        return Session(folder=folder, on_close=folder.rmdir, closed_before=why)

    pool = SessionPool(new_session, idle_s=60.0, clock=lambda: now[0])
    server = server_of("sandbox", pool, hosting(tmp_path / "runs", strangers=True))

    async def talk() -> None:
        async with Client(server) as client:
            with pytest.raises(ToolError, match="no program is open"):
                await client.call_tool("describe_program", {})
            assert folders[0].is_dir()
            now[0] = 61.0
            pool.sweep()
            assert not folders[0].exists()
            with pytest.raises(ToolError, match="closed after 1 idle minutes; no program is open"):
                await client.call_tool("describe_program", {})
        assert len(folders) == 2

    asyncio.run(talk())
    assert not folders[1].exists()


@pytest.mark.parametrize(
    "texts",
    [
        ProgramTexts(MM, "../mm.cu"),
        ProgramTexts(MM, "mm.txt"),
        ProgramTexts(MM, "a/mm.cu"),
        ProgramTexts(MM, files={".hidden": ""}),
        ProgramTexts(MM, files={"a//b.h": ""}),
        ProgramTexts('#include "../x.h"\n' + MM),
        ProgramTexts(MM, files={"a/b.h": '#include "../../x.h"\n'}),
        ProgramTexts(MM, files={"big.h": " " * 400_001}),
    ],
)
def test_texts_stay_in_their_folder(texts: ProgramTexts, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_texts(tmp_path / "texts", texts)
    assert not (tmp_path / "texts").exists()


def test_nobody_elses_machine_without_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["mcp", "all", "--transport", "http", "--host", "0.0.0.0"])
    assert code == EXIT_INPUT
    assert "CUDAOPS_TOKEN" in capsys.readouterr().err


def test_a_token_that_is_no_secret_is_refused() -> None:
    with pytest.raises(InputError, match="16 characters"):
        one_token("short")
