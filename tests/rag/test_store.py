"""The store on a real PostgreSQL with pgvector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from cudaops.errors import KnowledgeUnavailable, ModelUnavailable
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.house import house_notes
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.notes import Note, builtin_notes
from cudaops.rag.server import Database, open_database
from cudaops.rag.store import BATCH_CHUNKS, SCHEMA, Store, Synced


def note(name: str, body: str) -> Note:
    return Note(name, "builtin", "technique", name.title(), ("fma_pipe",), (), ("a guide",), body)


class CountingEmbedder(WordLlamaEmbedder):
    """Keeps what it was asked to embed."""

    def __init__(self, model_id: str = "counting", dimension: int = 256) -> None:
        super().__init__()
        self.model_id = model_id
        self.dimension = dimension
        self.asked: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [vector[: self.dimension] for vector in super().embed_passages(texts)]


class BrokenEmbedder(CountingEmbedder):
    """A model that is away."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        raise ModelUnavailable("away", "bring it back")


ONE, TWO = note("one", "First text."), note("two", "Second text.\n\n## Part\nMore.")


def count(store: Store, statement: str) -> int:
    with store.transaction() as cursor:
        row = cursor.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def test_ingest_is_idempotent(store: Store) -> None:
    embedder = CountingEmbedder()
    assert store.sync("builtin", [ONE, TWO], embedder) == Synced(0, 2, 0, 3)
    assert store.sync("builtin", [ONE, TWO], embedder) == Synced(2, 0, 0, 0)
    assert len(embedder.asked) == 3
    assert count(store, "SELECT count(*) FROM chunks") == 3


def test_only_a_changed_note_is_embedded_again(store: Store) -> None:
    embedder = CountingEmbedder()
    store.sync("builtin", [ONE, TWO], embedder)
    embedder.asked.clear()
    changed = note("one", "First text, changed.")
    assert store.sync("builtin", [changed, TWO], embedder) == Synced(1, 1, 0, 1)
    assert embedder.asked == ["One fma pipe. One.\nFirst text, changed."]


def test_a_vanished_note_goes_with_its_chunks_and_vectors(store: Store) -> None:
    embedder = CountingEmbedder()
    store.sync("builtin", [ONE, TWO], embedder)
    assert store.sync("builtin", [ONE], embedder).removed == 1
    assert count(store, "SELECT count(*) FROM notes") == 1
    assert count(store, "SELECT count(*) FROM embeddings_1") == 1


def test_origins_do_not_touch_each_other(store: Store) -> None:
    embedder = CountingEmbedder()
    store.sync("builtin", [ONE], embedder)
    store.sync("/a/folder", [TWO._replace(id="x/two", origin="/a/folder")], embedder)
    store.sync("/a/folder", [], embedder)
    assert count(store, "SELECT count(*) FROM notes WHERE origin = 'builtin'") == 1
    assert count(store, "SELECT count(*) FROM notes") == 1


def test_models_never_mix(store: Store) -> None:
    wide, narrow = CountingEmbedder("wide", 256), CountingEmbedder("narrow", 64)
    store.sync("builtin", [ONE, TWO], wide)
    assert store.sync("builtin", [ONE, TWO], narrow) == Synced(2, 0, 0, 3)
    assert count(store, "SELECT vector_dims(vector) FROM embeddings_1 LIMIT 1") == 256
    assert count(store, "SELECT vector_dims(vector) FROM embeddings_2 LIMIT 1") == 64
    with pytest.raises(KnowledgeUnavailable, match="another length"):
        store.sync("builtin", [ONE], CountingEmbedder("wide", 64))


def test_a_failing_model_leaves_everything_as_it_was(store: Store) -> None:
    store.sync("builtin", [ONE], CountingEmbedder())
    with pytest.raises(ModelUnavailable):
        store.sync("builtin", [TWO], BrokenEmbedder())
    assert count(store, "SELECT count(*) FROM notes WHERE id = 'one'") == 1
    assert count(store, "SELECT count(*) FROM notes") == 1


def test_hostile_text_is_only_text(store: Store) -> None:
    evil = note(
        "x'); DROP TABLE notes; --", "'; DROP SCHEMA cudaops_knowledge CASCADE; -- %s {} \\"
    )
    store.sync("builtin", [evil], CountingEmbedder())
    assert count(store, "SELECT count(*) FROM notes") == 1


INGEST = """
import sys
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.embedding import WordLlamaEmbedder
k = Knowledge.open(database_url=sys.argv[1], data_folder=None, embedder=WordLlamaEmbedder())
s = k.status()
print(s.notes, s.chunks, s.embedded)
k.close()
"""


def test_two_processes_ingest_into_an_empty_database_at_once(database_url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", INGEST, database_url]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert said[0][1] == said[0][2] != "0"


ADD = """
import sys
from pathlib import Path
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.embedding import WordLlamaEmbedder
k = Knowledge.open(database_url=sys.argv[1], data_folder=None, embedder=WordLlamaEmbedder())
print(k.add(Path(sys.argv[2])).written)
k.close()
"""

CONTENT = """
SELECT n.id, n.sha256, c.position, c.heading, c.body, e.vector::text
FROM notes n LEFT JOIN chunks c ON c.note = n.id LEFT JOIN embeddings_1 e ON e.chunk = c.id
ORDER BY n.id, c.position
"""


def content(url: str) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """All passages with their vectors, and the counts of words and passages."""
    path = f"-c search_path={SCHEMA},public"
    with psycopg.connect(url, autocommit=True, options=path) as connection:
        counts = connection.execute(
            "SELECT word, chunks FROM words WHERE chunks <> 0 UNION ALL"
            " SELECT '', value::integer FROM facts WHERE name = 'chunks' ORDER BY 1"
        )
        return connection.execute(CONTENT).fetchall(), dict(counts.fetchall())


def test_an_ingest_that_is_killed_anywhere_is_continued(
    database_url: str, tmp_path: Path, embedder: WordLlamaEmbedder
) -> None:
    for i in range(3 * BATCH_CHUNKS // 20):
        parts = (f"## Part {j}\nZebra {i * j} of word{i} and lane {j}.\n" for j in range(20))
        (tmp_path / f"{i:04d}.md").write_text("\n".join(parts))
    command = [sys.executable, "-W", "ignore", "-c", ADD, database_url, str(tmp_path)]
    knowledge = Knowledge.open(database_url=database_url, data_folder=None, embedder=embedder)
    knowledge.search("x")
    before = len(builtin_notes()) + len(house_notes())
    whole = before + 3 * BATCH_CHUNKS // 20
    kept = []
    for least in (0, 1, BATCH_CHUNKS // 20 + 1, 2 * BATCH_CHUNKS // 20 + 1):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = monotonic() + 60
        while monotonic() < deadline and knowledge.status().notes < before + least:
            sleep(0.01)
        process.kill()
        process.wait()
        rows, counts = content(database_url)
        kept.append(len({row[0] for row in rows}))
        assert len(rows) == len({(row[0], row[2]) for row in rows}) == counts[""]
        assert all(row[5] for row in rows)
    assert kept == sorted(kept)
    assert kept[1] < whole
    written = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    assert int(written) == whole - kept[-1]
    killed = content(database_url)
    knowledge.remove(str(tmp_path))
    assert knowledge.add(tmp_path).written == 3 * BATCH_CHUNKS // 20
    knowledge.close()
    assert content(database_url) == killed


def test_a_lost_connection_is_made_again(store: Store, database_url: str) -> None:
    store.sync("builtin", [ONE], CountingEmbedder())
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    with pytest.raises(KnowledgeUnavailable):
        count(store, "SELECT count(*) FROM notes")
    assert count(store, "SELECT count(*) FROM notes") == 1


def test_the_schema_of_another_version_is_refused(store: Store, database_url: str) -> None:
    store.remember("schema_version", "99")
    with pytest.raises(KnowledgeUnavailable, match="schema version 99") as caught:
        Store(Database(database_url))
    assert SCHEMA in caught.value.remedy


SCHEMA_1 = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA cudaops_knowledge;
SET search_path = cudaops_knowledge, public;
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE notes (
    id text PRIMARY KEY, origin text NOT NULL, kind text NOT NULL, title text NOT NULL,
    subtypes text[] NOT NULL, tags text[] NOT NULL, sources text[] NOT NULL, body text NOT NULL,
    sha256 text NOT NULL
);
CREATE INDEX notes_origin ON notes (origin);
CREATE TABLE chunks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    note text NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    position integer NOT NULL, heading text NOT NULL, body text NOT NULL, subject text NOT NULL,
    terms tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english', subject), 'A')
        || setweight(to_tsvector('english', heading), 'B')
        || setweight(to_tsvector('english', body), 'D')
    ) STORED,
    UNIQUE (note, position)
);
CREATE INDEX chunks_terms ON chunks USING gin (terms);
CREATE TABLE models (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
    dimension integer NOT NULL
);
INSERT INTO facts VALUES ('schema_version', '1'), ('builtin/wordllama/l2_supercat_256', 'old');
INSERT INTO models (name, dimension) VALUES ('wordllama/l2_supercat_256', 256);
CREATE TABLE embeddings_1 (
    chunk bigint PRIMARY KEY REFERENCES chunks (id) ON DELETE CASCADE, vector vector(256) NOT NULL
);
INSERT INTO notes VALUES
    ('mine/a.txt', '/mine', 'document', 'a.txt', '{}', '{}', '{a.txt}', 'zebra stripes', 'x');
INSERT INTO chunks (note, position, heading, body, subject)
    VALUES ('mine/a.txt', 0, 'a.txt', 'zebra stripes', 'a.txt');
"""


def test_a_knowledge_base_of_schema_version_1_is_brought_up_to_date(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(SCHEMA_1)
    for _ in range(2):
        knowledge = Knowledge.open(
            database_url=database_url, data_folder=None, embedder=WordLlamaEmbedder()
        )
        assert knowledge.search("zebra", 1)[0].note == "mine/a.txt"
        assert knowledge.status().embedded == knowledge.status().chunks > 200
        knowledge.close()


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_a_knowledge_base_of_schema_version_2_to_4_is_brought_up_to_date(
    store: Store, database_url: str, version: str
) -> None:
    store.sync("builtin", [ONE, TWO], CountingEmbedder())
    with store.transaction() as cursor:
        cursor.execute("SELECT * FROM words ORDER BY word")
        counted = cursor.fetchall()
        cursor.execute("UPDATE facts SET value = %s WHERE name = 'schema_version'", [version])
        cursor.execute("DELETE FROM facts WHERE name = 'house'")
        cursor.execute("ALTER TABLE words DROP COLUMN house")
        cursor.execute("DELETE FROM facts WHERE name = 'chunks'")
        cursor.execute("DROP INDEX notes_of_house, notes_on_subtypes")
        cursor.execute("ALTER TABLE chunks DROP COLUMN terms, DROP COLUMN asked")
    Store(Database(database_url)).close()
    assert (store.fact("chunks"), store.fact("house")) == ("3", "3")
    with store.transaction() as cursor:
        cursor.execute("SELECT * FROM words ORDER BY word")
        assert cursor.fetchall() == counted
    assert count(store, "SELECT (to_regclass('notes_of_house') IS NOT NULL)::integer") == 1


def test_words_are_counted_as_passages_come_and_go(store: Store) -> None:
    counts = "SELECT coalesce(sum(chunks), 0) FROM words"
    store.sync("builtin", [ONE, TWO], CountingEmbedder())
    store.sync("builtin", [note("one", "First text, changed."), TWO], CountingEmbedder())
    assert count(store, counts) == count(
        store, "SELECT sum(cardinality(tsvector_to_array(terms))) FROM chunks"
    )
    store.sync("builtin", [], CountingEmbedder())
    assert count(store, counts) == 0


def test_a_role_that_may_not_create_the_extension(server: object, database_url: str) -> None:
    role = "cudaops_test_reader"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'reader'")
    try:
        limited = psycopg.conninfo.make_conninfo(database_url, user=role, password="reader")
        with pytest.raises(KnowledgeUnavailable, match="no vector extension") as caught:
            Store(Database(limited))
        assert "CREATE EXTENSION vector" in caught.value.remedy
    finally:
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@127.0.0.1:1/none",
        "postgresql://user:secret@no-such-host.invalid/none",
        "this is no url",
        "mysql://host/db",
    ],
)
def test_a_refused_database_url_is_said_within_seconds(url: str) -> None:
    started = monotonic()
    with pytest.raises(KnowledgeUnavailable, match="cannot be reached") as caught:
        open_database(url)
    assert monotonic() - started < 8
    assert "DATABASE_URL" in caught.value.remedy
    assert "secret" not in str(caught.value)
