"""The knowledge server: search notes on CUDA performance, read one, say what there is."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastmcp import FastMCP
from pydantic import Field

from cudaops.domain.base import Record
from cudaops.domain.run import Citation
from cudaops.errors import InputError
from cudaops.mcp_servers.calls import reaches_out, reads
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.sessions import Session
from cudaops.prompts import expert_notes
from cudaops.rag.kernel_words import kernel_words
from cudaops.rag.knowledge import (
    NOTHING_FOUND,
    IngestReport,
    Knowledge,
    KnowledgeStatus,
    NoteText,
)
from cudaops.rag.packages import is_package

MAX_RESULTS = 20

INSTRUCTIONS = """Notes on what limits CUDA kernels and what relieves it, with sources. Search
with the verdict's subtype for its page, or in plain words; then read a whole note by its id.
Expert notes are shorter: nineteen briefs for whoever rewrites a kernel, read by their own ids."""


class SearchResult(Record):
    """Passages, best first; none where no passage is relevant."""

    query: str
    citations: tuple[Citation, ...]
    notices: tuple[str, ...]
    """What was degraded, or that no passage is relevant; empty where all is well."""
    searched_with: str = ""
    """The embedding model, and the reranking model or that there was none."""


class ExpertNoteText(Record):
    """A brief on one bottleneck."""

    id: str
    title: str
    signal: str
    """How a profile shows it."""
    text: str
    """Markdown: signal, root causes, fixes, anti-patterns."""


class _Lazy:
    """Opens the knowledge base at the first use and keeps it; a failed opening is tried again."""

    def __init__(self, open_knowledge: Callable[[], Knowledge]) -> None:
        self._open = open_knowledge
        self._knowledge: Knowledge | None = None
        self._lock = threading.Lock()

    def get(self) -> Knowledge:
        """The knowledge base. Raises KnowledgeUnavailable."""
        with self._lock:
            if self._knowledge is None:
                self._knowledge = self._open()
            return self._knowledge

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            if self._knowledge is not None:
                self._knowledge.close()
                self._knowledge = None


Adding = Literal["no", "packages", "all"]
"""What a host may add: nothing; `pypi:NAME` alone; paths of this machine too."""


def build_server(open_knowledge: Callable[[], Knowledge], adding: Adding = "no") -> FastMCP:
    """A server over one knowledge base, opened at the first call and closed with the server.

    A knowledge base that cannot be opened is a tool error that names the remedy, not a server
    that does not start.
    """
    lazy = _Lazy(open_knowledge)

    @asynccontextmanager
    async def lifespan(_: FastMCP) -> AsyncIterator[None]:
        try:
            yield
        finally:
            lazy.close()

    server: FastMCP = FastMCP(
        "cudaops-knowledge",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        middleware=[Guide(Session())],
    )

    _offer_search(server, lazy)
    _offer_notes(server, lazy)
    _offer_expert_notes(server)
    if adding != "no":
        _offer_adding(server, lazy, adding)
    return server


def _offer_adding(server: FastMCP, lazy: _Lazy, adding: Adding) -> None:
    @server.tool(annotations=reaches_out("Add a source"))
    def add_source(
        what: Annotated[
            str, Field(min_length=1, description="`pypi:NAME`, or a path where allowed: never run.")
        ],
        source: Annotated[
            str | None,
            Field(description="Project it belongs to: `flashinfer`. None: told by names."),
        ] = None,
        only: Annotated[
            tuple[str, ...], Field(description="Paths in it to take: `include/**`.")
        ] = (),
    ) -> IngestReport:
        """Add documents or code to the knowledge base; what came from there before is replaced."""
        if adding == "packages" and not is_package(what):
            raise InputError(
                f"{what} is no pypi:NAME: callers over HTTP name packages alone, unless the server"
                " was started with --allow-paths"
            )
        return lazy.get().add(what, source, only=only)


def _offer_search(server: FastMCP, lazy: _Lazy) -> None:
    @server.tool(annotations=reads("Search the notes"))
    def search_knowledge(
        query: Annotated[
            str, Field(min_length=1, description="What you want to know, in plain words.")
        ],
        limit: Annotated[int, Field(ge=1, le=MAX_RESULTS, description="Most passages wanted.")] = 5,
        subtype: Annotated[
            str | None,
            Field(description="Verdict subtype whose page must lead: `l1_load_throughput`."),
        ] = None,
        kernel: Annotated[
            str,
            Field(description="With `subtype`, the kernel's code: added sources bring its like."),
        ] = "",
        kind: Annotated[
            str | None,
            Field(description="Only sources of this kind: `notes`, `flashinfer`, `documents`."),
        ] = None,
    ) -> SearchResult:
        """Find passages on a CUDA performance problem or technique; none where none is relevant."""
        knowledge = lazy.get()
        words = kernel_words(kernel)
        citations = knowledge.search(query, limit, subtype, kernel=words, kind=kind)
        return SearchResult(
            query=query,
            citations=citations,
            notices=knowledge.notices if citations else (*knowledge.notices, NOTHING_FOUND),
            searched_with=knowledge.searched_with,
        )


def _offer_expert_notes(server: FastMCP) -> None:
    """They are part of the program: no knowledge base is opened for them."""

    @server.tool(annotations=reads("Read an expert note"))
    def read_expert_note(
        id: Annotated[str, Field(min_length=1, description="An expert note's id: `stall_wait`.")],
    ) -> ExpertNoteText:
        """Read the brief on one bottleneck: signal, causes, fixes for the code, anti-patterns."""
        note = expert_notes.read_note(id)
        return ExpertNoteText(id=note.id, title=note.title, signal=note.signal, text=note.text)

    @server.resource("expert://{note}", mime_type="text/markdown", title="Brief on one bottleneck")
    def expert_note(note: str) -> str:
        """A brief on one bottleneck: signal, causes, fixes for the code, anti-patterns."""
        found = expert_notes.read_note(note)
        return f"# {found.title}\n\n{found.text}\n"

    @server.resource("cudaops://expert-notes", mime_type="application/json", title="Expert notes")
    def catalogue() -> dict[str, str]:
        """Address of every brief, with the signal it is about."""
        return {f"expert://{note.id}": note.signal for note in expert_notes.all_notes()}


def _offer_notes(server: FastMCP, lazy: _Lazy) -> None:
    @server.tool(annotations=reads("Read a note"))
    def read_note(
        note: Annotated[str, Field(min_length=1, description="A note's id: `note` of a citation.")],
    ) -> NoteText:
        """Read a whole note."""
        return lazy.get().read(note)

    @server.tool(annotations=reads("Say what notes there are"))
    def knowledge_status() -> KnowledgeStatus:
        """Say how many notes there are, where they are kept and which model searches them."""
        return lazy.get().status()

    @server.resource("note://{note*}", mime_type="text/markdown", title="Note")
    def note_page(note: str) -> str:
        """A note as Markdown, its front matter as JSON in a comment."""
        text = lazy.get().read(note)
        front_matter = json.dumps(text.model_dump(exclude={"body"}), ensure_ascii=False)
        return f"<!-- {front_matter} -->\n\n# {text.title}\n\n{text.body}"
