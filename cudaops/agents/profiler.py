"""Profiler: metrics of the incumbent into a verdict."""

from __future__ import annotations

from typing import Any

from cudaops.agents.tools import Toolbox
from cudaops.domain.rewrite import Rewrite
from cudaops.mcp_servers.profiler import Diagnosis


async def profile(
    toolbox: Toolbox, incumbent: Rewrite | None, *, every_metric: bool = False
) -> Diagnosis:
    """Profile the author's kernel, or the best rewrite so far, through the `profiler` server."""
    asked: dict[str, Any] = {"everything": True, "every_metric": every_metric}
    if incumbent is None:
        return await toolbox.call("profiler", "profile_kernel", Diagnosis, asked)
    arguments = {"source": incumbent.source, "tuned": incumbent.values(), **asked}
    return await toolbox.call("profiler", "profile_rewrite", Diagnosis, arguments)
