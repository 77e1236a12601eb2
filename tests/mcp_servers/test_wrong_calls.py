"""A tool called wrongly says what to do instead: which tool, which argument, an example."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from mcp.shared.exceptions import McpError
from mcp.types import TextContent

from tests.mcp_servers.serving import MM, TILES, hosting, server_of

BROKEN = TILES.replace("grid=(N / 16, N / 16)", "grid=(M / 16, N / 16)")
NO_KERNEL = "int main() { return 0; }\n"

EMPTY: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("profile_kernel", {}, "open_program"),
    ("judge_rewrite", {"source": TILES}, "open_program"),
    ("accept_rewrite", {"rewrite_id": "0123456789ab"}, "open_program"),
    ("propose_rewrites", {}, "open_program"),
)
"""Calls before a program is open, and what the answer names."""

WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("open_program", {}, "`path` or `source`.*open_program"),
    ("open_program", {"path": "nowhere.cu"}, "no such file.*`source`"),
    ("open_program", {"path": "a.cu", "source": MM}, "not both"),
    ("open_program", {"source": " "}, "empty.*open_program"),
    ("open_program", {"source": NO_KERNEL}, "__global__"),
    ("open_program", {"source": MM, "kernel": "nn"}, "no kernel 'nn'.*it has mm"),
    ("open_program", {"source": MM, "arguments": "text"}, "`arguments`.*tuple|list.*open_program"),
    ("profile_rewrite", {}, "`source`.*Missing.*profile_rewrite"),
    ("explain_metric", {"name": "dram__bytes.summ"}, r"dram__bytes\.sum"),
    ("search_knowledge", {"query": ""}, "`query`.*at least 1 character.*search_knowledge"),
    ("search_knowledge", {"query": "x", "limit": 99}, "`limit`.*less than or equal to 20"),
    ("read_expert_note", {"id": "stall-wait"}, "nearest: stall_wait"),
    ("compile_rewrite", {"source": "__global__ void k() {}"}, "@launch"),
    ("compile_rewrite", {"source": TILES, "tuned": {"TILE": 8}}, "not a @tune name"),
    ("compile_rewrite", {"source": TILES, "tune": {"TILE": 8}}, "`tune`.*compile_rewrite"),
    ("tune_rewrite", {"source": TILES, "max_trials": 0}, "`max_trials`.*greater than or equal"),
    ("judge_rewrite", {"source": TILES, "min_speedup": -1}, "`min_speedup`.*greater than 0"),
    ("accept_rewrite", {"rewrite_id": "0123456789ab"}, "judge_rewrite.*rewrite_id"),
    ("strip_program", {"text": NO_KERNEL}, "no kernel in it"),
    ("read_run", {"run_id": "../../etc"}, "no finished run.*optimize_kernel"),
    ("read_run", {"run_id": "x", "part": "secrets"}, "`part`.*'record'.*'report'"),
    ("optimize_kernel", {}, "`path` or `source`.*optimize_kernel"),
    ("optimize_kernel", {"source": MM, "executor": "tpu"}, "`executor`.*'cpu'"),
    ("optimize_kernel", {"source": MM, "max_iterations": 0}, "`max_iterations`"),
    ("optimize_kernel", {"source": MM, "device": "Voodoo2", "executor": "cpu"}, "known: .*A10"),
    ("judge_rewrit", {"source": TILES}, "did you mean judge_rewrite"),
)
"""Calls with a program open, and what the answer says to do."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastMCP]:
    host = hosting(tmp_path_factory.mktemp("wrong") / "runs", strangers=False)
    session = host.session()
    yield server_of("all", session, host)
    session.close()


async def refused(client: Client[Any], tool: str, arguments: dict[str, Any], says: str) -> str:
    answer = await client.call_tool(tool, arguments, raise_on_error=False)
    assert answer.is_error, f"{tool}({arguments}) was taken"
    content = answer.content[0]
    assert isinstance(content, TextContent)
    assert re.search(says, content.text, flags=re.DOTALL), f"{tool}: {content.text}"
    assert not content.text.startswith("Error calling tool"), content.text
    assert "Traceback" not in content.text
    assert "errors.pydantic.dev" not in content.text
    return content.text


def test_every_wrong_call_says_what_to_do_instead(server: FastMCP) -> None:
    async def talk() -> None:
        async with Client(server) as client:
            for tool, arguments, says in EMPTY:
                await refused(client, tool, arguments, says)
            await client.call_tool("open_program", {"source": MM, "filename": "mm.cu"})
            for tool, arguments, says in WRONG:
                await refused(client, tool, arguments, says)
            # What failed to open took nothing away.
            told = await client.call_tool("describe_program", {})
            assert told.structured_content["kernel"] == "mm"

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("cudaops://metric", "cudaops://metrics"),
        ("expert://stall-wait", "nearest: stall_wait"),
        ("run://none/record", "no finished run"),
    ],
)
def test_a_wrong_resource_says_which_there_are(server: FastMCP, uri: str, says: str) -> None:
    async def talk() -> None:
        async with Client(server) as client:
            with pytest.raises(McpError, match=says):
                await client.read_resource(uri)

    asyncio.run(talk())


def test_a_judged_rewrite_is_accepted_and_a_rejected_one_is_not(
    server: FastMCP, tmp_path: Path
) -> None:
    async def talk() -> None:
        async with Client(server) as client:
            path = tmp_path / "mm.cu"
            path.write_text(MM, "utf-8")
            opened = await client.call_tool("open_program", {"path": str(path)})
            assert opened.structured_content["kernel"] == "mm"
            timed = await client.call_tool("benchmark_rewrite", {"source": TILES})
            assert timed.structured_content["speedup"] > 0.5
            assert timed.structured_content["provenance"] == " (modelled for A10)"
            judged = await client.call_tool("judge_rewrite", {"source": TILES, "title": "tiles"})
            name = judged.structured_content["rewrite_id"]
            accepted = (await client.call_tool("accept_rewrite", {"rewrite_id": name})).data
            assert accepted.outcome == "provisional"
            assert "tiles" in accepted.best
            assert path.read_text("utf-8") == MM
            high = {"source": TILES, "min_speedup": 1000}
            await client.call_tool("judge_rewrite", high)
            await refused(client, "accept_rewrite", {"rewrite_id": name}, "was rejected.*again")

    asyncio.run(talk())


def test_two_programs_are_judged_against_each_other(server: FastMCP) -> None:
    async def talk() -> None:
        async with Client(server) as client:
            arguments = {"baseline": MM, "candidate": TILES}
            judged = await client.call_tool("verify_programs", arguments)
            judgement = judged.structured_content["judgement"]
            assert judgement["outcome"] == "provisional", judgement["reason"]
            assert judged.structured_content["notices"] == []

    asyncio.run(talk())


def test_a_whole_program_is_told_from_the_rewrite_in_it(server: FastMCP) -> None:
    async def talk() -> None:
        async with Client(server) as client:
            once = MM.replace("A[row * N + k]", "__ldg(A + row * N + k)")
            arguments = {"baseline": MM, "candidate": once}
            judged = await client.call_tool("verify_programs", arguments)
            judgement = judged.structured_content["judgement"]
            assert "handed_in" in [gate["name"] for gate in judgement["gates"]]
            judged_line, meant_for = judged.structured_content["notices"]
            assert judged_line.startswith("judged: ")
            assert "not for the candidate as submitted" in meant_for

    asyncio.run(talk())
