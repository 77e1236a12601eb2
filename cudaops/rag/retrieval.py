"""Hybrid search: nearest vectors and matching words, joined by reciprocal rank fusion."""

from __future__ import annotations

import math
from typing import NamedTuple

from pgvector import Vector
from psycopg import sql

from cudaops.domain.run import Citation
from cudaops.rag.embedding import Embedder
from cudaops.rag.store import Store

RANK_CONSTANT = 60
"""k of reciprocal rank fusion, 1 / (k + rank). Source: Cormack, Clarke, Buettcher, SIGIR 2009."""

CANDIDATES = 80
"""Chunks that each of the two searches contributes."""

CHUNKS_PER_NOTE = 2
"""At most this many passages of one note among the results, so that others are heard too."""

QUERY_CHARACTERS = 2000
"""The rest of a longer query is ignored."""

BOTTLENECK_BOOST = 3 / RANK_CONSTANT
"""For the page on the subtype asked for: above any sum of two first ranks (2 / 61)."""

RELATED_BOOST = 0.25 / RANK_CONSTANT
"""For another note that names the subtype: worth some fifteen places in one of the rankings."""


class Hit(NamedTuple):
    """A citation and what kind of note it comes from."""

    citation: Citation
    about_subtype: bool
    """True for the page on the subtype asked for."""


_SEARCH = """
WITH q AS (
    SELECT replace(plainto_tsquery('english', %(query)s)::text, ' & ', ' | ')::tsquery AS query
), nearest AS (
    {nearest}
), matching AS (
    SELECT c.id AS chunk,
           row_number() OVER (ORDER BY ts_rank(c.terms, q.query) DESC, c.note, c.position) AS place
    FROM chunks c, q WHERE c.terms @@ q.query
    ORDER BY place LIMIT %(candidates)s
), scored AS (
    SELECT n.id, n.title, n.sources, c.heading, c.body, c.position,
           n.kind = 'bottleneck' AND %(subtype)s = ANY(n.subtypes) AS about,
           coalesce(1.0 / (%(k)s + nearest.place), 0) + coalesce(1.0 / (%(k)s + matching.place), 0)
           + CASE WHEN NOT %(subtype)s = ANY(n.subtypes) THEN 0
                  WHEN n.kind = 'bottleneck' THEN %(bottleneck)s ELSE %(related)s END AS score
    FROM chunks c JOIN notes n ON n.id = c.note
    LEFT JOIN nearest ON nearest.chunk = c.id LEFT JOIN matching ON matching.chunk = c.id
    WHERE nearest.chunk IS NOT NULL OR matching.chunk IS NOT NULL
       OR (n.kind = 'bottleneck' AND %(subtype)s = ANY(n.subtypes))
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY score DESC, position) AS of_note
    FROM scored
)
SELECT id, title, heading, body, array_to_string(sources, '; '), score::float8, about
FROM numbered WHERE of_note <= %(per_note)s
ORDER BY score DESC, id, position LIMIT %(limit)s
"""

_NEAREST = """
    SELECT e.chunk,
           row_number() OVER (ORDER BY e.vector <=> %(vector)s, c.note, c.position) AS place
    FROM {table} e JOIN chunks c ON c.id = e.chunk
    ORDER BY place LIMIT %(candidates)s
"""

_NO_VECTORS = "SELECT NULL::bigint AS chunk, NULL::bigint AS place WHERE false"


def search(
    store: Store, embedder: Embedder, query: str, k: int = 5, subtype: str | None = None
) -> list[Citation]:
    """The `k` passages nearest to `query`, best first; the same for the same corpus every time.

    The page on `subtype` comes first. Empty where the corpus is empty.

    Raises KnowledgeUnavailable, or ModelUnavailable where the query cannot be embedded.
    """
    return [hit.citation for hit in find(store, embedder, query, k, subtype)]


def find(store: Store, embedder: Embedder, query: str, k: int, subtype: str | None) -> list[Hit]:
    """As `search`, with what a reranker must know."""
    query = clean(query)
    vector = embedder.embed_query(query)
    table = store.vector_table(embedder)
    # The cosine distance to a zero vector is not a number: words alone decide then.
    usable = table is not None and math.fsum(x * x for x in vector) > 0
    nearest = sql.SQL(_NEAREST).format(table=table) if usable else sql.SQL(_NO_VECTORS)
    parameters = {
        "query": query,
        "vector": Vector(vector),
        "subtype": clean(subtype or ""),
        "k": RANK_CONSTANT,
        "candidates": CANDIDATES,
        "per_note": CHUNKS_PER_NOTE,
        "bottleneck": BOTTLENECK_BOOST,
        "related": RELATED_BOOST,
        "limit": max(0, k),
    }
    with store.transaction() as cursor:
        cursor.execute(sql.SQL(_SEARCH).format(nearest=nearest), parameters)
        rows = cursor.fetchall()
    return [
        Hit(
            Citation(
                note=note, title=title, heading=heading, text=text, source=source, score=score
            ),
            about,
        )
        for note, title, heading, text, source, score, about in rows
    ]


def clean(query: str) -> str:
    """What PostgreSQL can take as text: no NUL, no lone surrogate, bounded."""
    return query[:QUERY_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode()
