"""How agents reach their tools: over MCP, in memory by default."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from fastmcp import Client, FastMCP
from fastmcp.client.client import CallToolResult
from fastmcp.exceptions import ToolError
from mcp.types import TextContent
from pydantic import BaseModel

from cudaops.mcp_servers.payloads import error_in

Result = TypeVar("Result", bound=BaseModel)


class ToolText(NamedTuple):
    """What a model is told of a tool call: the result as text, or why there is none."""

    text: str
    failed: bool


class Toolbox:
    """Open MCP clients by server name. Use as an asynchronous context manager."""

    def __init__(self, servers: Mapping[str, FastMCP]) -> None:
        self._servers = servers
        self._clients: dict[str, Client[Any]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Toolbox:
        # An error reaches the agent as one of ours; fastmcp would print its traceback as well, and
        # mcp a line for every request.
        for name in ("fastmcp", "mcp"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        for name, server in self._servers.items():
            self._clients[name] = await self._stack.enter_async_context(Client(server))
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
        on_progress: Callable[[str], None] | None = None,
    ) -> Result:
        """Call a tool and read its structured result; what it says on the way goes to a listener.

        Raises InputError where the tool refuses, another CudaOpsError as the tool raised it, and
        ToolError where the server itself broke.
        """

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None and message:
                on_progress(message)

        answer = await self._clients[server].call_tool(
            tool, dict(arguments or {}), progress_handler=listen, raise_on_error=False
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
