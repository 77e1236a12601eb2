"""How agents reach their tools: over MCP, in memory by default."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from fastmcp import Client, FastMCP
from fastmcp.client.client import CallToolResult
from fastmcp.client.messages import MessageHandler
from fastmcp.exceptions import ToolError
from mcp.types import ProgressNotification, TextContent
from pydantic import BaseModel

from cudaops.domain.run import Say
from cudaops.mcp_servers.payloads import CALL_KEY, error_in, progress_in

Result = TypeVar("Result", bound=BaseModel)


class ToolText(NamedTuple):
    """What a model is told of a tool call: the result as text, or why there is none."""

    text: str
    failed: bool


class _Listeners(MessageHandler):
    """Whoever hears the progress of a call that is under way. fastmcp's own progress handler is
    given a notification's message alone, this one its `_meta` too."""

    def __init__(self) -> None:
        self._calls = itertools.count(1)
        self._listening: dict[str, Say] = {}

    @contextmanager
    def hearing(self, listener: Say | None) -> Iterator[str]:
        """The name of a new call, whose progress goes to the listener."""
        call = str(next(self._calls))
        if listener is not None:
            self._listening[call] = listener
        try:
            yield call
        finally:
            self._listening.pop(call, None)

    async def on_progress(self, message: ProgressNotification) -> None:
        """Hand it on."""
        call, progress = progress_in(message.params)
        if call in self._listening and progress != "":
            self._listening[call](progress)


class Toolbox:
    """Open MCP clients by server name. Use as an asynchronous context manager."""

    def __init__(self, servers: Mapping[str, FastMCP]) -> None:
        self._servers = servers
        self._clients: dict[str, Client[Any]] = {}
        self._listeners = _Listeners()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Toolbox:
        # An error reaches the agent as one of ours; fastmcp would print its traceback as well, and
        # mcp a line for every request.
        for name in ("fastmcp", "mcp"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        for name, server in self._servers.items():
            client = Client(server, message_handler=self._listeners)
            self._clients[name] = await self._stack.enter_async_context(client)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def call(
        self,
        server: str,
        tool: str,
        result: type[Result],
        arguments: Mapping[str, Any] | None = None,
        on_progress: Say | None = None,
    ) -> Result:
        """Call a tool and read its structured result; what it says on the way goes to a listener.

        Raises InputError where the tool refuses, another CudaOpsError as the tool raised it, and
        ToolError where the server itself broke.
        """
        with self._listeners.hearing(on_progress) as call:
            answer = await self._clients[server].call_tool(
                tool, dict(arguments or {}), raise_on_error=False, meta={CALL_KEY: call}
            )
        if answer.is_error:
            raise error_in(answer.meta) or ToolError(_text(answer))
        return result.model_validate(answer.structured_content)

    async def schemas(self, wanted: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], ...]:
        """The named tools (server to tool names) as a chat model is told of them: OpenAI's form."""
        found: list[dict[str, Any]] = []
        for server, names in wanted.items():
            there = {tool.name: tool for tool in await self._clients[server].list_tools()}
            for name in names:
                tool = there[name]
                function = {
                    "name": name,
                    "description": tool.description or "",
                    "parameters": tool.inputSchema,
                }
                found.append({"type": "function", "function": function})
        return tuple(found)

    async def ask(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolText:
        """Call a tool for a model: whatever comes of it is a text, wrong arguments included."""
        answer = await self._clients[server].call_tool(tool, dict(arguments), raise_on_error=False)
        return ToolText(_text(answer), answer.is_error)


def _text(answer: CallToolResult) -> str:
    return "\n".join(block.text for block in answer.content if isinstance(block, TextContent))
