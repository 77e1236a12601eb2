"""Knowledge: the store, the embedder and the built-in corpus in one thing to ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cudaops.domain.base import Record
from cudaops.domain.run import Citation
from cudaops.errors import InputError, ModelUnavailable
from cudaops.rag.documents import read_documents
from cudaops.rag.embedding import Embedder, Reranker, WordLlamaEmbedder
from cudaops.rag.house import house_notes
from cudaops.rag.notes import BUILTIN, builtin_notes, digest
from cudaops.rag.packages import downloaded, is_package, origin_of
from cudaops.rag.retrieval import clean, search
from cudaops.rag.server import open_database
from cudaops.rag.store import Source, Store

NOTHING_FOUND = "no passage is relevant; `cudaops knowledge add` adds sources"
"""What a search without passages says."""


class NoteText(Record):
    """A whole note."""

    id: str
    title: str
    kind: str
    """`bottleneck`, `technique` or `document` (added by a user)."""
    subtypes: tuple[str, ...]
    """Verdict subtypes it is about."""
    tags: tuple[str, ...]
    sources: tuple[str, ...]
    body: str
    """Markdown."""


class KnowledgeStatus(Record):
    """What the knowledge base holds and how it searches."""

    database: str
    embedding_model: str
    reranking_model: str | None = None
    """None: passages stand in the order of the fused scores."""
    notes: int
    chunks: int
    embedded: int
    """Chunks that have a vector of the model in use."""
    origins: dict[str, int]
    """`builtin`, the path that was added or `pypi:NAME`, to its number of notes."""
    notices: tuple[str, ...]
    """What was degraded, in plain words."""


class IngestReport(Record):
    """What adding documents did."""

    origin: str
    unchanged: int
    written: int
    removed: int
    embedded_chunks: int
    licence: str = ""
    """Empty where it is not known."""
    skipped: tuple[str, ...] = ()
    """`file: why` of what could not be read."""


class Knowledge:
    """A searchable knowledge base. The built-in notes are ingested at the first search."""

    def __init__(self, store: Store, embedder: Embedder, reranker: Reranker | None = None) -> None:
        """Takes the store over: `close` closes it."""
        self._store = store
        self._embedder = embedder
        self._reranker = reranker
        self._ready = False
        self._notices: list[str] = []
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        *,
        database_url: str | None,
        data_folder: Path | None,
        embedder: Embedder,
        reranker: Reranker | None = None,
    ) -> Knowledge:
        """Connect to the server of `database_url`, else start the embedded one in `data_folder`.

        Raises KnowledgeUnavailable.
        """
        database = open_database(database_url, data_folder)
        try:
            return cls(Store(database), embedder, reranker)
        except BaseException:
            database.close()
            raise

    @property
    def notices(self) -> tuple[str, ...]:
        """What was degraded since this was opened, in plain words."""
        return tuple(self._notices)

    @property
    def searched_with(self) -> str:
        """The models that order the passages now, for people."""
        order = f"reranked by {self._reranker.model_id}" if self._reranker else "not reranked"
        return f"words and vectors of {self._embedder.model_id}, {order}"

    def search(
        self,
        query: str,
        limit: int = 5,
        subtype: str | None = None,
        *,
        kernel: str = "",
        kind: str | None = None,
    ) -> tuple[Citation, ...]:
        """The passages that answer `query`, best first, or none; the page on `subtype` leads, and
        by the words of `kernel` a user's sources are looked up. `kind`: of the sources, alone.

        An embedding model that cannot be reached is replaced by the static one, with a notice.

        Raises KnowledgeUnavailable.
        """
        with self._lock:
            try:
                return self._search(query, limit, subtype, kernel, kind)
            except ModelUnavailable as error:
                if isinstance(self._embedder, WordLlamaEmbedder):
                    raise
                self._fall_back(error)
                return self._search(query, limit, subtype, kernel, kind)

    def read(self, note: str) -> NoteText:
        """The whole note of this id. Raises InputError where there is none."""
        with self._lock:
            self._prepare_or_fall_back()
            with self._store.transaction() as cursor:
                cursor.execute(
                    "SELECT id, title, kind, subtypes, tags, sources, body"
                    " FROM notes WHERE id = %s",
                    [clean(note)],
                )
                row = cursor.fetchone()
        if row is None:
            raise InputError(
                f"there is no note {note!r}: search_knowledge names the notes there are"
            )
        return NoteText(
            id=row[0],
            title=row[1],
            kind=row[2],
            subtypes=row[3],
            tags=row[4],
            sources=row[5],
            body=row[6],
        )

    def add(
        self,
        what: Path | str,
        source: str | None = None,
        *,
        only: Sequence[str] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> IngestReport:
        """Ingest a user's file, folder, archive or package (`pypi:NAME`), replacing what was added
        from there before.

        `source` is a key of SOURCE_WEIGHTS; None: told by the names of folders. `only`: globs of
        relative paths. `progress` hears how many passages of how many are written.

        Raises InputError for what is no document, KnowledgeUnavailable.
        """
        if isinstance(what, str) and is_package(what):
            with downloaded(what) as wheel:
                read = read_documents(wheel, source, only=only, origin=origin_of(what))
        else:
            read = read_documents(Path(what), source, only=only)
        with self._lock:
            self._prepare_or_fall_back()
            done = self._store.sync(read.origin, read.notes, self._embedder, progress)
            self._store.remember(f"licence/{read.origin}", read.licence)
        return IngestReport(
            origin=read.origin,
            unchanged=done.unchanged,
            written=done.written,
            removed=done.removed,
            embedded_chunks=done.embedded,
            licence=read.licence,
            skipped=read.skipped,
        )

    def remove(self, origin: str) -> int:
        """Take away what was added from a path; the number of notes.

        Raises InputError where nothing was, KnowledgeUnavailable.
        """
        with self._lock:
            self._prepare_or_fall_back()
            known = [each.origin for each in self._store.sources()]
            if origin == BUILTIN or origin not in known:
                added = ", ".join(each for each in known if each != BUILTIN) or "nothing"
                raise InputError(f"nothing was added from {origin}: there is {added}")
            return self._store.sync(origin, [], self._embedder).removed

    def sources(self) -> tuple[Source, ...]:
        """What was added, and the built-in notes. Raises KnowledgeUnavailable."""
        with self._lock:
            self._prepare_or_fall_back()
            return tuple(self._store.sources())

    def status(self) -> KnowledgeStatus:
        """What is there. Raises KnowledgeUnavailable."""
        with self._lock:
            self._prepare_or_fall_back()
            table = self._store.vector_table(self._embedder)
            with self._store.transaction() as cursor:
                cursor.execute("SELECT origin, count(*) FROM notes GROUP BY origin ORDER BY origin")
                origins = dict(cursor.fetchall())
                cursor.execute("SELECT count(*) FROM chunks")
                chunks = cursor.fetchone()
                embedded = None if table is None else self._store.count(cursor, table)
        return KnowledgeStatus(
            database=self._store.where,
            embedding_model=self._embedder.model_id,
            reranking_model=self._reranker.model_id if self._reranker else None,
            notes=sum(origins.values()),
            chunks=chunks[0] if chunks else 0,
            embedded=embedded or 0,
            origins=origins,
            notices=self.notices,
        )

    def close(self) -> None:
        """Close the connection; an embedded server nobody else uses stops."""
        self._store.close()

    def _search(
        self, query: str, limit: int, subtype: str | None, kernel: str, kind: str | None
    ) -> tuple[Citation, ...]:
        self._prepare()
        order = None if self._reranker is None else partial(self._reranked, clean(query))
        return tuple(
            search(
                self._store, self._embedder, query, limit, subtype,
                kernel=kernel, kind=kind, order=order,
            )
        )  # fmt: skip

    def _reranked(self, query: str, texts: Sequence[str]) -> Sequence[int]:
        """The reranker's order; as they are, with a notice, where it is away."""
        if self._reranker is not None:
            try:
                return self._reranker.order(query, texts)
            except ModelUnavailable as error:
                self._reranker = None
                self._notices.append(f"{error.problem}; passages are not reranked ({error.remedy})")
        return range(len(texts))

    def _prepare(self) -> None:
        """Bring the built-in notes up to date, once; skipped where their digest is on record."""
        if self._ready:
            return
        notes = [*builtin_notes(), *house_notes()]
        fact, wanted = f"builtin/{self._embedder.model_id}", digest(notes)
        if self._store.fact(fact) != wanted:
            self._store.sync(BUILTIN, notes, self._embedder)
            self._store.remember(fact, wanted)
        self._ready = True

    def _prepare_or_fall_back(self) -> None:
        try:
            self._prepare()
        except ModelUnavailable as error:
            if isinstance(self._embedder, WordLlamaEmbedder):
                raise
            self._fall_back(error)
            self._prepare()

    def _fall_back(self, error: ModelUnavailable) -> None:
        self._notices.append(f"{error.problem}; searching with the built-in model ({error.remedy})")
        self._embedder = WordLlamaEmbedder()
        self._ready = False
