"""The servers over one session or one for each host, and all of them as one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastmcp import FastMCP

from cudaops import __version__
from cudaops.mcp_servers import knowledge, profiler, sandbox
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.judging import WriteRun
from cudaops.mcp_servers.opening import add_opening
from cudaops.mcp_servers.optimize import OptimizeKernel, add_optimizing
from cudaops.mcp_servers.prompts import add_loop
from cudaops.mcp_servers.sessions import SessionPool, SessionProvider
from cudaops.rag.knowledge import Knowledge

INSTRUCTIONS = """cudaops says what limits a CUDA kernel, rewrites it, and tests the rewrite.
One call: optimize_kernel. Or drive the loop: open_program, profile_kernel, search_knowledge,
propose_rewrites or your own device source, judge_rewrite, accept_rewrite. Claims do not count: only
judge_rewrite decides. A time marked `modelled` was computed, not measured; say so."""


def build_servers(
    sessions: SessionProvider,
    open_knowledge: Callable[[], Knowledge],
    write_run: WriteRun | None = None,
    adding: knowledge.Adding = "no",
) -> dict[str, FastMCP]:
    """Servers by name; the knowledge base is opened at its first use."""
    return {
        "profiler": profiler.build_server(sessions),
        "knowledge": knowledge.build_server(open_knowledge, adding),
        "sandbox": sandbox.build_server(sessions, write_run),
    }


def build_server(
    name: str,
    sessions: SessionProvider,
    open_knowledge: Callable[[], Knowledge],
    *,
    write_run: WriteRun | None = None,
    optimize: OptimizeKernel | None = None,
    adding: knowledge.Adding = "no",
) -> FastMCP:
    """The server of this name for other hosts: `profiler`, `knowledge`, `sandbox` or `all`, which
    is all three with `optimize_kernel`. Its sessions end with it."""
    servers = build_servers(sessions, open_knowledge, write_run, adding)
    lifespan = sessions.lifespan if isinstance(sessions, SessionPool) else None
    whole = name == "all"
    chosen = list(servers.values()) if whole else [servers[name]]
    # An error reaches the host as a result; fastmcp would print its traceback as well.
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)
    outer: FastMCP = FastMCP(
        "cudaops" if whole else f"cudaops-{name}",
        instructions=INSTRUCTIONS if whole else servers[name].instructions,
        version=__version__,
        lifespan=lifespan,
        middleware=[Guide(sessions)],
    )
    for server in chosen:
        outer.mount(server)
    if name == "profiler":
        add_opening(outer, sessions)  # nothing can be profiled that was not opened
    if whole:
        add_loop(outer)
        if optimize is not None:
            add_optimizing(outer, sessions, optimize)
    return outer
