"""The three servers over one session, and several servers as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastmcp import FastMCP

from cudaops.mcp_servers import knowledge, profiler, sandbox
from cudaops.mcp_servers.session import Session
from cudaops.rag.knowledge import Knowledge


def build_servers(session: Session, open_knowledge: Callable[[], Knowledge]) -> dict[str, FastMCP]:
    """Servers by name; the knowledge base is opened at its first use."""
    return {
        "profiler": profiler.build_server(session),
        "knowledge": knowledge.build_server(open_knowledge),
        "sandbox": sandbox.build_server(session),
    }


def combine(servers: Iterable[FastMCP]) -> FastMCP:
    """One server with the tools and resources of all, for a host that takes a single command."""
    together: FastMCP = FastMCP("cudaops")
    for server in servers:
        together.mount(server)
    return together
