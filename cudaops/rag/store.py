"""Notes, words and vectors in PostgreSQL with pgvector. The only place that writes to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector
from psycopg import sql

from cudaops.errors import KnowledgeUnavailable
from cudaops.rag.embedding import Embedder
from cudaops.rag.notes import Note
from cudaops.rag.server import CONNECT_TIMEOUT_S, Database, first_line

SCHEMA = "cudaops_knowledge"

SCHEMA_VERSION = 2
"""Raised with every change of schema.sql; `_upgrade` brings an older one up to it."""

INDEXED_FROM = 10_000
"""Vectors of a model from which on they get an HNSW index; below, exact search is as fast."""

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
    """`builtin`, or the absolute path that was added."""
    kind: str
    """`notes`, `documents` or a project: `flashinfer`."""
    weight: float
    """Factor of its scores."""
    notes: int
    passages: int


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

    def sync(self, origin: str, notes: Sequence[Note], embedder: Embedder) -> Synced:
        """Make `notes` all that `origin` has, and every chunk of every origin embedded.

        What did not change is neither written nor embedded again. Safe to call from several
        processes at once.

        Raises KnowledgeUnavailable or ModelUnavailable; then nothing has changed.
        """
        dimension = embedder.dimension
        with self.transaction() as cursor:
            _lock(cursor)
            cursor.execute("SELECT id, sha256 FROM notes WHERE origin = %s", [origin])
            known = dict(cursor.fetchall())
            changed = [note for note in notes if known.get(note.id) != note.sha256]
            gone = sorted(set(known) - {note.id for note in notes})
            written = [note.id for note in changed]
            _count_words(cursor, gone + written, -1)
            cursor.execute("DELETE FROM notes WHERE id = ANY(%s)", [gone + written])
            for note in changed:
                _insert(cursor, note)
            _count_words(cursor, written, 1)
            table = _vector_table(cursor, embedder.model_id, dimension)
            embedded = _embed_missing(cursor, table, embedder)
            _index_vectors(cursor, table, dimension)
        return Synced(len(notes) - len(changed), len(changed), len(gone), embedded)

    def sources(self) -> list[Source]:
        """All of them, by origin."""
        with self.transaction() as cursor:
            cursor.execute(
                "SELECT n.origin, n.source, n.weight, count(DISTINCT n.id), count(c.id)"
                " FROM notes n LEFT JOIN chunks c ON c.note = n.id"
                " GROUP BY n.origin, n.source, n.weight ORDER BY n.origin"
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
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(table))
        row = cursor.fetchone()
        return 0 if row is None else int(row[0])

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
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [WRITE_LOCK])


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Extension, schema and search path; a few catalogue look-ups where all is there."""
    if _extension_schema(connection) is None:
        _create_extension(connection)
    connection.execute(
        "SELECT set_config('search_path', %s, false)",
        [f'{SCHEMA}, "{_extension_schema(connection)}"'],
    )
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.facts"]).fetchone()
    if not (row and row[0]):
        _create_schema(connection)
    row = connection.execute("SELECT value FROM facts WHERE name = 'schema_version'").fetchone()
    found = int(row[0]) if row else 0
    if found == 1:
        _upgrade(connection)
    elif found != SCHEMA_VERSION:
        raise KnowledgeUnavailable(
            f"the knowledge base has schema version {found}, this cudaops knows {SCHEMA_VERSION}",
            f"use the cudaops that wrote it, or drop the schema {SCHEMA}: notes are ingested again",
        )
    register_vector(connection)


def _upgrade(connection: psycopg.Connection[Any]) -> None:
    """Version 1 to 2: what can be made again is dropped, users' documents stay."""
    with connection.transaction(), connection.cursor() as cursor:
        _lock(cursor)
        row = cursor.execute("SELECT value FROM facts WHERE name = 'schema_version'").fetchone()
        if row and row[0] != "1":
            return  # another process was faster
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
        _count_words(cursor, [each for (each,) in cursor.fetchall()], 1)
        cursor.execute("DELETE FROM facts WHERE name LIKE 'builtin/%'")
        cursor.execute(
            "UPDATE facts SET value = %s WHERE name = 'schema_version'", [str(SCHEMA_VERSION)]
        )


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


def _insert(cursor: psycopg.Cursor[Any], note: Note) -> None:
    cursor.execute(
        "INSERT INTO notes (id, origin, kind, title, subtypes, tags, sources, body, sha256,"
        " source, weight) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            note.id, note.origin, note.kind, note.title, list(note.subtypes), list(note.tags),
            list(note.sources), note.body, note.sha256, note.source, note.weight,
        ],
    )  # fmt: skip
    cursor.executemany(
        "INSERT INTO chunks (note, position, heading, body, subject) VALUES (%s, %s, %s, %s, %s)",
        [
            (note.id, position, chunk.heading, chunk.body, note.subject)
            for position, chunk in enumerate(note.chunks())
        ],
    )


def _count_words(cursor: psycopg.Cursor[Any], notes: Sequence[str], sign: int) -> None:
    """Add the words of these notes' passages to the counts, or take them away."""
    cursor.execute(
        "INSERT INTO words SELECT word, %s * count(*)"
        " FROM chunks, unnest(tsvector_to_array(terms)) word WHERE note = ANY(%s) GROUP BY word"
        " ON CONFLICT (word) DO UPDATE SET chunks = words.chunks + excluded.chunks",
        [sign, list(notes)],
    )


def _index_vectors(cursor: psycopg.Cursor[Any], table: sql.Identifier, dimension: int) -> None:
    """An HNSW index on half-precision vectors, once there are many."""
    cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(table))
    row = cursor.fetchone()
    if row is None or row[0] < INDEXED_FROM:
        return
    cursor.execute("SELECT set_config('maintenance_work_mem', '512MB', true)")
    cursor.execute(
        sql.SQL(
            "CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw"
            " ((vector::halfvec({})) halfvec_cosine_ops)"
        ).format(
            sql.Identifier(f"{table.as_string()[1:-1]}_nearest"), table, sql.Literal(dimension)
        )
    )


def _embed_missing(cursor: psycopg.Cursor[Any], table: sql.Identifier, embedder: Embedder) -> int:
    """Embed the chunks that have no vector of this model; what the note is about goes along."""
    cursor.execute(
        sql.SQL(
            "SELECT c.id, c.subject, c.heading, c.body FROM chunks c JOIN notes n ON n.id = c.note"
            " WHERE NOT EXISTS (SELECT FROM {} e WHERE e.chunk = c.id) ORDER BY c.id"
        ).format(table)
    )
    missing = cursor.fetchall()
    vectors = embedder.embed_passages(
        [f"{subject}. {heading}.\n{body}" for _, subject, heading, body in missing]
    )
    with cursor.copy(sql.SQL("COPY {} (chunk, vector) FROM STDIN").format(table)) as copy:
        for (chunk, *_), vector in zip(missing, vectors, strict=True):
            copy.write_row((chunk, Vector(vector)))
    return len(missing)
