"""Research: what the knowledge base says about a verdict, with citations."""

from __future__ import annotations

import contextlib
import re

from cudaops.agents.tools import Toolbox
from cudaops.domain.profile import Verdict
from cudaops.domain.run import ResearchFindings
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.mcp_servers.knowledge import SearchResult
from cudaops.mcp_servers.payloads import error_text
from cudaops.prompts.prompt import render
from cudaops.rag.knowledge import KnowledgeStatus

CITATIONS = 5
"""Passages kept: what relieves it, two more on what to do, why it happens, what it costs."""


_KERNEL = re.compile(r"__global__[^;{]*?\b(\w+)\s*\(\s*(?!\d)")
"""The name of a kernel: what it does is often said nowhere else."""


async def warm(toolbox: Toolbox) -> None:
    """Open the knowledge base while others work: a database takes a second to start. What goes
    wrong now is said when it is asked."""
    with contextlib.suppress(InputError, EnvironmentFailure):
        await toolbox.call("knowledge", "knowledge_status", KnowledgeStatus)


async def research(toolbox: Toolbox, verdict: Verdict, kernel_text: str) -> ResearchFindings:
    """Search for the remedy of a verdict. A store that is empty or down degrades to a notice."""
    query = render(
        "research_query.j2",
        verdict=verdict,
        kernel_text=kernel_text,
        kernels=" ".join(dict.fromkeys(_KERNEL.findall(kernel_text))),
    )
    try:
        found = await toolbox.call(
            "knowledge",
            "search_knowledge",
            SearchResult,
            {
                "query": query,
                "limit": CITATIONS,
                "subtype": verdict.subtype,
                "kernel": kernel_text,
            },
        )
    except (InputError, EnvironmentFailure) as failure:
        return ResearchFindings(query=query, summary=verdict.relief, degraded=error_text(failure))
    if not found.citations:
        reason = "; ".join(found.notices)
        return ResearchFindings(query=query, summary=verdict.relief, degraded=reason)
    summary = render("research_summary.j2", verdict=verdict, citations=found.citations)
    return ResearchFindings(
        query=query,
        summary=summary,
        citations=found.citations,
        degraded="; ".join(found.notices) or None,
        searched_with=found.searched_with,
    )
