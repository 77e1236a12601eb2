"""Notes, words and vectors in PostgreSQL with pgvector. The only place that writes to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector
from psycopg import sql

from cudaops.errors import KnowledgeUnavailable
from cudaops.rag.embedding import Embedder
from cudaops.rag.notes import Chunk, Note
from cudaops.rag.server import CONNECT_TIMEOUT_S, Database, first_line

SCHEMA = "cudaops_knowledge"

SCHEMA_VERSION = 5
"""Raised with every change of schema.sql; `_upgrade` brings an older one up to it."""

INDEXED_FROM = 10_000
"""Vectors of a model from which on they get an HNSW index; below, exact search is as fast."""

BATCH_CHUNKS = 1_000
"""Chunks that a transaction writes, or those of one note where it has more."""

REBUILT_FROM = 0.5
"""New vectors, as a share of those there are, from which on the HNSW index is built anew after
they are written: that runs in parallel, entering them one by one does not."""

WRITE_LOCK = 0x6375_6461
"""Key of the advisory lock that writers hold: `cuda` in ASCII."""

WRITE_LOCK_TIMEOUT_MS = 60_000
"""How long a writer waits for another. A first ingest takes some seconds."""


class Synced(NamedTuple):
    """What bringing an origin's notes up to date did."""

    unchanged: int
    written: int
    """New or changed notes."""
    removed: int
    embedded: int
    """Chunks embedded now."""


class Source(NamedTuple):
    """Where notes come from."""

    origin: str
    """`builtin`, the absolute path that was added, or `pypi:NAME`."""
    kind: str
    """`notes`, `documents` or a project: `flashinfer`."""
    weight: float
    """Factor of its scores."""
    notes: int
    passages: int
    licence: str = ""
    """Empty where it is not known."""


class Store:
    """A connection to the knowledge base. Usable from several threads, one statement at a time."""

    def __init__(self, database: Database) -> None:
        """Connect and create what is missing.

        Raises KnowledgeUnavailable: no connection, no vector extension, no rights, or the schema
        of a newer cudaops.
        """
        self._database = database
        self._connection = self._connect()

    @property
    def where(self) -> str:
        """Where the database is, for people."""
        return self._database.where

    def close(self) -> None:
        """Close the connection and let go of the server."""
        self._connection.close()
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        """A cursor in a transaction; database trouble comes out as KnowledgeUnavailable."""
        try:
            if self._connection.closed or self._connection.broken:
                self._connection = self._connect()
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor
        except psycopg.errors.LockNotAvailable as error:
            raise KnowledgeUnavailable(
                "another process is writing to the knowledge base", "try again when it is done"
            ) from error
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    def sync(
        self,
        origin: str,
        notes: Sequence[Note],
        embedder: Embedder,
        progress: Callable[[int, int], None] | None = None,
    ) -> Synced:
        """Make `notes` all that `origin` has, and every chunk of every origin embedded.

        What did not change is neither written nor embedded again. Notes are written with their
        chunks and vectors, some at a time in a transaction, and notes that are gone are removed
        last: cut short anywhere, the same call continues. Safe to call from several processes at
        once. `progress` hears how many passages of how many are written.

        Raises KnowledgeUnavailable or ModelUnavailable; what was written until then stays.
        """
        dimension = embedder.dimension
        with self.transaction() as cursor:
            _lock(cursor)
            cursor.execute("SELECT id, sha256 FROM notes WHERE origin = %s", [origin])
            known = dict(cursor.fetchall())
            table = _vector_table(cursor, embedder.model_id, dimension)
            changed = [note for note in notes if known.get(note.id) != note.sha256]
            cut = [(note, note.chunks()) for note in changed]
            new = sum(len(chunks) for _, chunks in cut)
            if new > REBUILT_FROM * _rows(cursor, table):
                cursor.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(_index_name(table)))
        embedded = 0
        for batch in _embedded_ahead(cut, embedder):
            with self.transaction() as cursor:
                embedded += _write(cursor, table, batch)
            if progress is not None:
                progress(embedded, new)
        with self.transaction() as cursor:
            _lock(cursor)
            cursor.execute("SELECT id FROM notes WHERE origin = %s", [origin])
            gone = sorted({each for (each,) in cursor.fetchall()} - {note.id for note in notes})
            _delete(cursor, gone)
            embedded += _embed_missing(cursor, table, embedder)
        with self.transaction() as cursor:
            _lock(cursor)
            if new >= BATCH_CHUNKS:
                _settle(cursor, table)
            _index_vectors(cursor, table, dimension)
        return Synced(len(notes) - len(changed), len(changed), len(gone), embedded)

    def sources(self) -> list[Source]:
        """All of them, by origin; one that bundles others once for each."""
        with self.transaction() as cursor:
            cursor.execute(
                "SELECT n.origin, n.source, n.weight, count(DISTINCT n.id), count(c.id),"
                " coalesce((SELECT value FROM facts WHERE name = 'licence/' || n.origin), '')"
                " FROM notes n LEFT JOIN chunks c ON c.note = n.id"
                " GROUP BY n.origin, n.source, n.weight ORDER BY n.origin, n.source"
            )
            return [Source(*row) for row in cursor.fetchall()]

    def vector_table(self, embedder: Embedder) -> sql.Identifier | None:
        """The table of this model's vectors; None where nothing was embedded with it."""
        with self.transaction() as cursor:
            cursor.execute("SELECT id FROM models WHERE name = %s", [embedder.model_id])
            row = cursor.fetchone()
        return None if row is None else _table_name(row[0])

    def count(self, cursor: psycopg.Cursor[Any], table: sql.Identifier) -> int:
        """Rows of a vector table."""
        return _rows(cursor, table)

    def fact(self, name: str) -> str | None:
        """A remembered value, None where there is none."""
        with self.transaction() as cursor:
            cursor.execute("SELECT value FROM facts WHERE name = %s", [name])
            row = cursor.fetchone()
        return None if row is None else str(row[0])

    def remember(self, name: str, value: str) -> None:
        """Keep a value under a name."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT INTO facts VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                [name, value],
            )

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            connection = psycopg.connect(
                self._database.conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        try:
            _prepare(connection)
        except psycopg.Error as error:
            connection.close()
            raise self._unavailable(error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _unavailable(self, error: psycopg.Error) -> KnowledgeUnavailable:
        return KnowledgeUnavailable(
            f"the knowledge base ({self._database.where}) failed: {first_line(error)}",
            self._database.remedy,
        )


def _vector_table(cursor: psycopg.Cursor[Any], model_id: str, dimension: int) -> sql.Identifier:
    """The table of a model's vectors, created where it is new."""
    cursor.execute(
        "INSERT INTO models (name, dimension) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
        [model_id, dimension],
    )
    cursor.execute("SELECT id, dimension FROM models WHERE name = %s", [model_id])
    row = cursor.fetchone()
    if row is None or row[1] != dimension:
        raise KnowledgeUnavailable(
            f"the stored vectors of {model_id} have another length than {dimension}",
            f"drop the schema {SCHEMA} to embed the notes again",
        )
    table = _table_name(row[0])
    cursor.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (chunk bigint PRIMARY KEY"
            " REFERENCES chunks (id) ON DELETE CASCADE, vector vector({}) NOT NULL)"
        ).format(table, sql.Literal(dimension))
    )
    return table


def _table_name(model: int) -> sql.Identifier:
    return sql.Identifier(f"embeddings_{model}")


def _lock(cursor: psycopg.Cursor[Any]) -> None:
    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(WRITE_LOCK_TIMEOUT_MS)])
    # The server would otherwise finish a long statement, an index, for a client that was killed.
    cursor.execute(
        "SELECT set_config(name, '1000', true) FROM pg_settings"
        " WHERE name = 'client_connection_check_interval'"
    )
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [WRITE_LOCK])


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Extension, schema and search path; a few catalogue look-ups where all is there."""
    if _extension_schema(connection) is None:
        _create_extension(connection)
    # Planning a search takes as long as running it, and what is looked up never changes the plan.
    # The planner's default is that of a rotating disk: it would read all notes for a hundred.
    connection.execute(
        "SELECT set_config('search_path', %s, false),"
        " set_config('plan_cache_mode', 'force_generic_plan', false),"
        " set_config('random_page_cost', '1.1', false)",
        [f'{SCHEMA}, "{_extension_schema(connection)}"'],
    )
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.facts"]).fetchone()
    if not (row and row[0]):
        _create_schema(connection)
    row = connection.execute("SELECT value FROM facts WHERE name = 'schema_version'").fetchone()
    found = int(row[0]) if row else 0
    if 1 <= found < SCHEMA_VERSION:
        _upgrade(connection)
    elif found != SCHEMA_VERSION:
        raise KnowledgeUnavailable(
            f"the knowledge base has schema version {found}, this cudaops knows {SCHEMA_VERSION}",
            f"use the cudaops that wrote it, or drop the schema {SCHEMA}: notes are ingested again",
        )
    register_vector(connection)


def _upgrade(connection: psycopg.Connection[Any]) -> None:
    """An older version to this: what can be made again is dropped, users' documents stay."""
    with connection.transaction(), connection.cursor() as cursor:
        _lock(cursor)
        row = cursor.execute("SELECT value FROM facts WHERE name = 'schema_version'").fetchone()
        found = int(row[0]) if row else SCHEMA_VERSION
        if found >= SCHEMA_VERSION:
            return  # another process was faster
        if found == 1:
            _upgrade_from_1(cursor)
        else:
            schema = files("cudaops.rag").joinpath("schema.sql").read_text("utf-8")
            terms = re.findall(r"terms tsvector.*? STORED", schema, re.DOTALL)[0]
            cursor.execute(
                "ALTER TABLE chunks DROP COLUMN IF EXISTS terms,"  # with its index
                " ADD COLUMN IF NOT EXISTS asked text NOT NULL DEFAULT ''"
            )
            cursor.execute(f"ALTER TABLE chunks ADD COLUMN {terms}".encode())
            cursor.execute(schema.encode())
            cursor.execute(
                "ALTER TABLE words ADD COLUMN IF NOT EXISTS house integer NOT NULL DEFAULT 0"
            )
            cursor.execute("TRUNCATE words")
            cursor.execute("DELETE FROM facts WHERE name IN ('chunks', 'house')")
            cursor.execute("SELECT id FROM notes")
            _count(cursor, [each for (each,) in cursor.fetchall()], 1)
            cursor.execute("SELECT id FROM models")
            for (model,) in cursor.fetchall():
                _settle(cursor, _table_name(model))
        cursor.execute(
            "UPDATE facts SET value = %s WHERE name = 'schema_version'", [str(SCHEMA_VERSION)]
        )


def _upgrade_from_1(cursor: psycopg.Cursor[Any]) -> None:
    cursor.execute("ALTER TABLE notes ADD COLUMN source text NOT NULL DEFAULT 'documents'")
    cursor.execute("ALTER TABLE notes ADD COLUMN weight real NOT NULL DEFAULT 1")
    cursor.execute("ALTER TABLE notes ALTER COLUMN source DROP DEFAULT")
    cursor.execute("ALTER TABLE notes ALTER COLUMN weight DROP DEFAULT")
    cursor.execute("ALTER TABLE chunks RENAME TO chunks_1")
    cursor.execute("ALTER TABLE chunks_1 DROP COLUMN terms")
    cursor.execute("DROP INDEX IF EXISTS chunks_terms")
    cursor.execute("SELECT name, id FROM models")
    for _, model in cursor.fetchall():
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_table_name(model)))
    cursor.execute("DELETE FROM models")
    cursor.execute("ALTER TABLE chunks_1 DROP CONSTRAINT chunks_note_position_key")
    cursor.execute(files("cudaops.rag").joinpath("schema.sql").read_bytes())
    cursor.execute(
        "INSERT INTO chunks (note, position, heading, body, subject)"
        " SELECT note, position, heading, body, subject FROM chunks_1 ORDER BY id"
    )
    cursor.execute("DROP TABLE chunks_1")
    cursor.execute("SELECT id FROM notes")
    _count(cursor, [each for (each,) in cursor.fetchall()], 1)
    cursor.execute("DELETE FROM facts WHERE name LIKE 'builtin/%'")


def _extension_schema(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute(
        "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace"
        " WHERE extname = 'vector'"
    ).fetchone()
    return None if row is None else str(row[0])


def _create_extension(connection: psycopg.Connection[Any]) -> None:
    try:
        with connection.transaction(), connection.cursor() as cursor:
            _lock(cursor)
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.Error as error:
        raise KnowledgeUnavailable(
            f"PostgreSQL there has no vector extension: {first_line(error)}",
            "install pgvector on it and let its administrator run CREATE EXTENSION vector,"
            " or unset DATABASE_URL to use the embedded server",
        ) from error


def _create_schema(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        _lock(cursor)
        # Another process may have made it while this one waited. IF NOT EXISTS would trust the
        # cached answer of before; reading the catalogue brings the cache up to date.
        cursor.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA])
        cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        cursor.execute(files("cudaops.rag").joinpath("schema.sql").read_bytes())
        cursor.execute(
            "INSERT INTO facts VALUES ('schema_version', %s) ON CONFLICT DO NOTHING",
            [str(SCHEMA_VERSION)],
        )


_Cut = tuple[Note, list[Chunk]]


class _Batch(NamedTuple):
    """Notes that are written in one transaction, cut and embedded."""

    notes: list[Note]
    chunks: list[list[Chunk]]
    """Of each note."""
    vectors: list[list[float]]
    """Of all chunks, in order."""


def _embedded_ahead(cut: Sequence[_Cut], embedder: Embedder) -> Iterator[_Batch]:
    """Batches of `BATCH_CHUNKS`; the next one is embedded while the caller writes one."""

    def embedded(batch: list[_Cut]) -> _Batch:
        return _Batch(
            [note for note, _ in batch],
            [chunks for _, chunks in batch],
            _vectors(embedder, [(note.subject, each) for note, chunks in batch for each in chunks]),
        )

    with ThreadPoolExecutor(max_workers=1) as ahead:
        ready: Future[_Batch] | None = None
        for batch in _batches(cut):
            submitted = ahead.submit(embedded, batch)
            if ready is not None:
                yield ready.result()
            ready = submitted
        if ready is not None:
            yield ready.result()


def _batches(cut: Sequence[_Cut]) -> Iterator[list[_Cut]]:
    batch: list[_Cut] = []
    size = 0
    for note, chunks in cut:
        batch.append((note, chunks))
        size += len(chunks)
        if size >= BATCH_CHUNKS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _vectors(embedder: Embedder, chunks: Sequence[tuple[str, Chunk]]) -> list[list[float]]:
    """Of chunks with what their note is about; half of it what people ask, where that is known."""
    vectors = embedder.embed_passages(
        [f"{subject}. {c.heading}.\n{c.body}" for subject, c in chunks]
    )
    asked = [i for i, (_, chunk) in enumerate(chunks) if chunk.asked]
    of_asked = embedder.embed_passages([chunks[i][1].asked for i in asked])
    for i, vector in zip(asked, of_asked, strict=True):
        vectors[i] = [(x + y) / 2 for x, y in zip(vectors[i], vector, strict=True)]
    return vectors


def _write(cursor: psycopg.Cursor[Any], table: sql.Identifier, batch: _Batch) -> int:
    """Write notes, chunks and vectors in place of what the notes were; the number of vectors."""
    _lock(cursor)
    written = [note.id for note in batch.notes]
    _delete(cursor, written)
    cursor.executemany(
        "INSERT INTO notes (id, origin, kind, title, subtypes, tags, sources, body, sha256,"
        " source, weight) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            (
                note.id, note.origin, note.kind, note.title, list(note.subtypes), list(note.tags),
                list(note.sources), note.body, note.sha256, note.source, note.weight,
            )
            for note in batch.notes
        ],
    )  # fmt: skip
    cursor.execute(
        "SELECT nextval(pg_get_serial_sequence('chunks', 'id')) FROM generate_series(1, %s)",
        [len(batch.vectors)],
    )
    ids = [each for (each,) in cursor.fetchall()]
    free = iter(ids)
    with cursor.copy(
        "COPY chunks (id, note, position, heading, body, asked, subject) FROM STDIN"
    ) as copy:
        for note, chunks in zip(batch.notes, batch.chunks, strict=True):
            for position, chunk in enumerate(chunks):
                copy.write_row((next(free), note.id, position, *chunk, note.subject))
    _copy_vectors(cursor, table, ids, batch.vectors)
    _count(cursor, written, 1)
    return len(ids)


def _delete(cursor: psycopg.Cursor[Any], notes: Sequence[str]) -> None:
    _count(cursor, notes, -1)
    cursor.execute("DELETE FROM notes WHERE id = ANY(%s)", [list(notes)])


def _copy_vectors(
    cursor: psycopg.Cursor[Any],
    table: sql.Identifier,
    chunks: Sequence[int],
    vectors: Sequence[Sequence[float]],
) -> None:
    statement = sql.SQL("COPY {} (chunk, vector) FROM STDIN WITH (FORMAT BINARY)").format(table)
    with cursor.copy(statement) as copy:
        copy.set_types(["int8", "vector"])
        for chunk, vector in zip(chunks, vectors, strict=True):
            copy.write_row((chunk, Vector(list(vector))))


def _count(cursor: psycopg.Cursor[Any], notes: Sequence[str], sign: int) -> None:
    """Add these notes' passages and their words to the counts, or take them away."""
    cursor.execute(
        "INSERT INTO facts SELECT name, %s * n FROM (SELECT count(*) AS chunks,"
        " count(*) FILTER (WHERE kind <> 'document') AS house"
        " FROM chunks c JOIN notes ON notes.id = c.note WHERE c.note = ANY(%s)) counted,"
        " LATERAL (VALUES ('chunks', counted.chunks), ('house', counted.house)) v (name, n)"
        " ON CONFLICT (name) DO UPDATE SET value = facts.value::bigint + excluded.value::bigint",
        [sign, list(notes)],
    )
    cursor.execute(
        "INSERT INTO words SELECT word, %s * count(*),"
        " %s * count(*) FILTER (WHERE kind <> 'document')"
        " FROM chunks c JOIN notes ON notes.id = c.note, unnest(tsvector_to_array(terms)) word"
        " WHERE c.note = ANY(%s) GROUP BY word ON CONFLICT (word) DO UPDATE"
        " SET chunks = words.chunks + excluded.chunks, house = words.house + excluded.house",
        [sign, sign, list(notes)],
    )


def _settle(cursor: psycopg.Cursor[Any], table: sql.Identifier) -> None:
    """After many new rows: what an autovacuum would do some minutes later.

    A search reads the pending list of a GIN index from end to end; without statistics the planner
    takes the tables for empty.
    """
    cursor.execute("SELECT gin_clean_pending_list('chunks_terms')")
    cursor.execute(sql.SQL("ANALYZE notes, chunks, words, {}").format(table))


def _rows(cursor: psycopg.Cursor[Any], table: sql.Identifier) -> int:
    cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(table))
    row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def _index_name(table: sql.Identifier) -> sql.Identifier:
    return sql.Identifier(f"{table.as_string()[1:-1]}_nearest")


def _index_vectors(cursor: psycopg.Cursor[Any], table: sql.Identifier, dimension: int) -> None:
    """An HNSW index on half-precision vectors, once there are many."""
    if _rows(cursor, table) < INDEXED_FROM:
        return
    cursor.execute("SELECT set_config('maintenance_work_mem', '512MB', true)")
    cursor.execute(
        sql.SQL(
            "CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw"
            " ((vector::halfvec({})) halfvec_cosine_ops)"
        ).format(_index_name(table), table, sql.Literal(dimension))
    )


def _embed_missing(cursor: psycopg.Cursor[Any], table: sql.Identifier, embedder: Embedder) -> int:
    """Embed the chunks that have no vector of this model; what the note is about goes along."""
    cursor.execute(
        sql.SQL(
            "SELECT c.id, c.subject, c.heading, c.body, c.asked FROM chunks c"
            " WHERE NOT EXISTS (SELECT FROM {} e WHERE e.chunk = c.id) ORDER BY c.id"
        ).format(table)
    )
    missing = cursor.fetchall()
    vectors = _vectors(embedder, [(subject, Chunk(*rest)) for _, subject, *rest in missing])
    _copy_vectors(cursor, table, [chunk for chunk, *_ in missing], vectors)
    return len(missing)
