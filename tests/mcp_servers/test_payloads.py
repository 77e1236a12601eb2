"""Between our servers and our client errors and progress are data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import get_args

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import CurrentContext
from fastmcp.exceptions import ToolError

from cudaops import errors
from cudaops.agents.tools import Toolbox
from cudaops.domain.judgement import Gate
from cudaops.domain.run import Progress, TriedConfiguration
from cudaops.errors import (
    CudaOpsError,
    EnvironmentFailure,
    InputError,
    KnowledgeUnavailable,
    ModelUnavailable,
    PlanError,
)
from cudaops.executors.stopping import Stopped
from cudaops.mcp_servers.calls import in_thread, progress
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.payloads import ERROR_KEY, ErrorClass, ErrorPayload, error_text
from cudaops.mcp_servers.sessions import Session
from cudaops.models.budget import BudgetSpent
from cudaops.rag.knowledge import KnowledgeStatus

WRONG = InputError("no kernel 'nn'. Remedy: of the user's own words")
LINE = PlanError("`M` is not a scalar; it has N", 3, 7)
GONE = KnowledgeUnavailable("PostgreSQL is gone. Remedy: none", "start it. Remedy: or not")


def test_every_error_of_ours_has_a_name_on_the_list() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, CudaOpsError)
    }
    assert set(get_args(ErrorClass)) == ours | {"Stopped"}


@pytest.mark.parametrize(
    "error", [WRONG, LINE, GONE, Stopped(), CudaOpsError("x"), EnvironmentFailure("a", "b")]
)
def test_an_error_comes_back_as_it_was(error: CudaOpsError) -> None:
    again = ErrorPayload.model_validate_json(ErrorPayload.of(error).model_dump_json()).exception()
    assert (type(again), str(again)) == (type(error), str(error))
    assert vars(again) == vars(error)
    assert again.__traceback__ is None


def test_one_that_is_not_listed_comes_back_as_the_nearest_that_is() -> None:
    again = ErrorPayload.of(BudgetSpent("cost", "0.5 of 0.5 USD are spent")).exception()
    assert type(again) is ModelUnavailable
    assert error_text(again) == "0.5 of 0.5 USD are spent. Remedy: raise --max-cost to continue"


def failing(raised: Callable[[], Exception]) -> FastMCP:
    """A server whose tools raise, one of them in a thread of its own."""
    server: FastMCP = FastMCP("failing", middleware=[Guide(Session())])

    @server.tool
    def knowledge_status() -> KnowledgeStatus:
        raise raised()

    @server.tool
    @in_thread
    def long_work() -> KnowledgeStatus:
        raise raised()

    outer: FastMCP = FastMCP("outer", middleware=[Guide(Session())])
    outer.mount(server)
    return outer


@pytest.mark.parametrize("tool", ["knowledge_status", "long_work"])
@pytest.mark.parametrize("error", [WRONG, LINE, GONE, Stopped()])
def test_our_client_raises_what_the_tool_raised(error: CudaOpsError, tool: str) -> None:
    async def talk() -> None:
        async with Toolbox({"a": failing(lambda: error)}) as toolbox:
            with pytest.raises(type(error)) as caught:
                await toolbox.call("a", tool, KnowledgeStatus)
            assert vars(caught.value) == vars(error)
            assert (await toolbox.ask("a", tool, {})).text == error_text(error)

    asyncio.run(talk())


def test_a_host_that_is_not_ours_reads_the_text() -> None:
    async def talk() -> None:
        async with Client(failing(lambda: GONE)) as client:
            answer = await client.call_tool("knowledge_status", raise_on_error=False)
            assert [block.type for block in answer.content] == ["text"]
            assert answer.structured_content is None
            assert (answer.meta or {})[ERROR_KEY]["remedy"] == GONE.remedy
            with pytest.raises(ToolError, match=r"PostgreSQL is gone.*Remedy: start it"):
                await client.call_tool("knowledge_status")

    asyncio.run(talk())


def test_a_wrong_call_is_wrong_input() -> None:
    async def talk() -> None:
        async with Toolbox({"a": failing(lambda: GONE)}) as toolbox:
            with pytest.raises(InputError, match="`colour`"):
                await toolbox.call("a", "knowledge_status", KnowledgeStatus, {"colour": 1})
            with pytest.raises(InputError, match="did you mean long_work"):
                await toolbox.call("a", "long_works", KnowledgeStatus)

    asyncio.run(talk())


def test_a_server_that_broke_is_no_error_of_ours() -> None:
    async def talk() -> None:
        async with Toolbox({"a": failing(lambda: ZeroDivisionError("by zero"))}) as toolbox:
            with pytest.raises(ToolError, match="by zero"):
                await toolbox.call("a", "knowledge_status", KnowledgeStatus)

    asyncio.run(talk())


TOLD: tuple[Progress, ...] = (
    "looking for races; tried N=1: 3.0 us",
    TriedConfiguration(values={"TILE": 16}, time_us=1 / 3, provenance=" (modelled for A10)"),
    Gate(name="checker", passed=True, summary="clean", numbers={"errors": 0.0}, seconds=1.5),
)


def telling() -> FastMCP:
    """A server whose tool tells something on its way, twice at once where two call it."""
    server: FastMCP = FastMCP("telling", middleware=[Guide(Session())])

    @server.tool
    @in_thread
    def tell(before: str, context: Context = CurrentContext()) -> KnowledgeStatus:  # noqa: B008
        say = progress(context)
        say(before)
        for each in TOLD:
            say(each)
        raise GONE

    return server


def test_our_client_hears_records_of_its_own_calls_alone() -> None:
    async def talk() -> None:
        async with Toolbox({"a": telling()}) as toolbox:
            heard: dict[str, list[Progress]] = {"first": [], "second": []}

            async def call(name: str) -> None:
                arguments = {"before": name}
                with pytest.raises(KnowledgeUnavailable):
                    await toolbox.call("a", "tell", KnowledgeStatus, arguments, heard[name].append)

            await asyncio.gather(call("first"), call("second"))
            assert heard == {name: [name, *TOLD] for name in heard}
            with pytest.raises(KnowledgeUnavailable):
                await toolbox.call("a", "tell", KnowledgeStatus, {"before": "nobody hears it"})

    asyncio.run(talk())


def test_a_host_that_is_not_ours_reads_lines() -> None:
    lines: list[str | None] = []

    async def listen(number: float, total: float | None, message: str | None) -> None:
        assert (number, total) == (len(lines) + 1, None)
        lines.append(message)

    async def talk() -> None:
        async with Client(telling()) as client:
            with pytest.raises(ToolError):
                await client.call_tool("tell", {"before": "x"}, progress_handler=listen)

    asyncio.run(talk())
    assert lines == [
        "x",
        "looking for races; tried N=1: 3.0 us",
        "tried TILE=16: 0.3 us (modelled for A10)",
        "checker passed: clean",
    ]
