"""How agents reach their tools: over MCP, in memory by default."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, TypeVar

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel

Result = TypeVar("Result", bound=BaseModel)


class ToolFailed(Exception):
    """A tool refused or could not do what was asked; the message is meant for the agent."""

    def __init__(self, server: str, tool: str, message: str) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool


class Toolbox:
    """Open MCP clients by server name. Use as an asynchronous context manager."""

    def __init__(self, servers: Mapping[str, FastMCP]) -> None:
        self._servers = servers
        self._clients: dict[str, Client[Any]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Toolbox:
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

    async def call(self, server: str, tool: str, result: type[Result], **arguments: Any) -> Result:
        """Call a tool and read its structured result. Raises ToolFailed where the tool refuses."""
        try:
            answer = await self._clients[server].call_tool(tool, arguments)
        except ToolError as error:
            raise ToolFailed(server, tool, str(error)) from error
        return result.model_validate(answer.structured_content)
