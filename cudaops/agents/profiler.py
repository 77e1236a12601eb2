"""Profiler: metrics of the incumbent into a verdict."""

from __future__ import annotations

from cudaops.agents.tools import Toolbox
from cudaops.domain.rewrite import Rewrite
from cudaops.mcp_servers.profiler import Diagnosis


async def profile(toolbox: Toolbox, incumbent: Rewrite | None) -> Diagnosis:
    """Profile the author's kernel, or the best rewrite so far, through the `profiler` server."""
    if incumbent is None:
        return await toolbox.call("profiler", "profile_kernel", Diagnosis, {"every_metric": True})
    arguments = {
        "source": incumbent.source,
        "tuned": incumbent.values(),
        "every_metric": True,
    }
    return await toolbox.call("profiler", "profile_rewrite", Diagnosis, arguments)
