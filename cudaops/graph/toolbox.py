"""The knowledge base of the settings, and the servers that a run's agents work with."""

from __future__ import annotations

import functools

from cudaops.agents.tools import Toolbox
from cudaops.mcp_servers.servers import build_servers
from cudaops.mcp_servers.sessions import Session
from cudaops.rag.embedding import choose_embedder, choose_reranker
from cudaops.rag.knowledge import Knowledge
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings


def open_knowledge(settings: Settings) -> Knowledge:
    """The knowledge base of the settings. Raises KnowledgeUnavailable."""
    url = settings.database_url.get_secret_value() if settings.database_url else None
    key = settings.nvidia_api_key.get_secret_value() if settings.nvidia_api_key else None
    own = settings.nvidia_base_url
    embedder = choose_embedder(key, settings.nvidia_embed_url or own, settings.nvidia_embed_model)
    # A key for one's own NIM is not one for the hosted reranker.
    hosted_key = key if settings.nvidia_rerank_url or not own else None
    reranker = choose_reranker(hosted_key, settings.nvidia_rerank_url, settings.nvidia_rerank_model)
    return Knowledge.open(
        database_url=url,
        data_folder=settings.knowledge_folder,
        embedder=embedder,
        reranker=reranker,
    )


def build_toolbox(bench: Workbench, settings: Settings) -> Toolbox:
    """The servers for one open program, in memory."""
    return Toolbox(build_servers(Session(bench=bench), functools.partial(open_knowledge, settings)))
