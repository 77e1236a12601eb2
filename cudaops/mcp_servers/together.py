"""The servers over one session or one for each host, and all of them as one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastmcp import FastMCP

from cudaops import __version__
from cudaops.mcp_servers import knowledge, profiler, sandbox
from cudaops.mcp_servers.accepting import WriteRun
from cudaops.mcp_servers.dialogues import add_loop
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.opening import add_opening
from cudaops.mcp_servers.optimize import OptimizeKernel, add_optimizing
from cudaops.mcp_servers.session import Seat
from cudaops.mcp_servers.sessions import SessionPool
from cudaops.rag.knowledge import Knowledge

INSTRUCTIONS = """cudaops says what limits a CUDA kernel, rewrites it, and proves the rewrite.
One call: optimize_kernel. Or drive the loop: open_program, profile_kernel, search_knowledge,
propose_rewrites or your own device source, judge_rewrite, accept_rewrite. Claims do not count: only
judge_rewrite decides. A time marked `modelled` was computed, not measured; say so."""


def build_servers(
    seat: Seat, open_knowledge: Callable[[], Knowledge], write_run: WriteRun | None = None
) -> dict[str, FastMCP]:
    """Servers by name; the knowledge base is opened at its first use."""
    return {
        "profiler": profiler.build_server(seat),
        "knowledge": knowledge.build_server(open_knowledge),
        "sandbox": sandbox.build_server(seat, write_run),
    }


def build_server(
    name: str,
    seat: Seat,
    open_knowledge: Callable[[], Knowledge],
    *,
    write_run: WriteRun | None = None,
    optimize: OptimizeKernel | None = None,
) -> FastMCP:
    """The server of this name for other hosts: `profiler`, `knowledge`, `sandbox` or `all`, which
    is all three with `optimize_kernel`. Its sessions end with it."""
    servers = build_servers(seat, open_knowledge, write_run)
    lifespan = seat.lifespan if isinstance(seat, SessionPool) else None
    whole = name == "all"
    chosen = list(servers.values()) if whole else [servers[name]]
    # An error reaches the host as a result; fastmcp would print its traceback as well.
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)
    together: FastMCP = FastMCP(
        "cudaops" if whole else f"cudaops-{name}",
        instructions=INSTRUCTIONS if whole else servers[name].instructions,
        version=__version__,
        lifespan=lifespan,
        middleware=[Guide(seat)],
    )
    for server in chosen:
        together.mount(server)
    if name == "profiler":
        add_opening(together, seat)  # nothing can be profiled that was not opened
    if whole:
        add_loop(together)
        if optimize is not None:
            add_optimizing(together, seat, optimize)
    return together
