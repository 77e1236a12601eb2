"""Search: matching words and nearest vectors, one score, and an order that a reader can act on.

Each side brings a bounded number of passages, so that no query ranks the whole corpus. Words count
by how rare they are; how much of the question a passage covers is also what decides whether it is
an answer at all.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, LiteralString, NamedTuple

import psycopg
from pgvector import Vector
from psycopg import sql

from cudaops.domain.run import Citation
from cudaops.rag.embedding import Embedder, WordLlamaEmbedder
from cudaops.rag.notes import COST, NO_PROJECT, REASON, REMEDY, SECTIONS_NOT_TO_ACT_ON
from cudaops.rag.store import Store
from cudaops.rag.terms import LOOSE_ROWS, MATCHING_ROWS, read_terms

NEAREST = 40
"""Passages that the vectors contribute: as many as pgvector's `hnsw.ef_search` lets it find."""

MATCHING = 60
"""Passages that the words contribute, best first."""

QUERY_CHARACTERS = 2000
"""The rest of a longer query is ignored."""

PASSAGES_PER_NOTE = 3
"""At most this many passages of one note among the results, so that others are heard too."""

ACTIONS = 2
"""Passages on what to do that follow a verdict's own remedy, before why and what it costs."""

ON_DEVICE = ("kernel ", "device function ")
"""Headings of code that runs on a GPU."""

NEARLY = 0.9
"""Of the best score: for a verdict, code on the device that reaches it comes before what launches
it."""

SHOWN_EVERY = 3
"""One of so many passages is a project's code, where there are both."""

ALONE = 0.5
"""Share of a question that a project's code must cover where nothing else answers: half of it."""

SUBTYPE_BOOST = 0.15
"""Added to a note that names the verdict's subtype. Scores run from 0 to 1."""

PAGE_BOOST = 0.05
"""Added to a page on what limits kernels: who names a limit wants its page first."""


class Weights(NamedTuple):
    """Shares of the two rankings in the score. A ranking without a share finds nothing either."""

    words: float = 0.65
    vectors: float = 0.35
    floor: bool = True
    """False: whatever is best is found."""


DEFAULT_WEIGHTS = Weights()


class Passage(NamedTuple):
    """A section that may be cited, and what its place depends on."""

    chunk: int
    note: str
    kind: str
    """Of the note: `bottleneck`, `technique`, `reference` or `document`."""
    heading: str
    position: int
    score: float = 0.0
    near: float = 1.0
    """How near it is to the question, the floor being 1."""
    covered: float = 1.0
    """Share of the question's words that it has, by their rarity."""
    shows: bool = False
    """Whether it is a project's: it shows how something is done, and was not written to answer."""

    @property
    def to_act_on(self) -> bool:
        """Whether the section says what to do."""
        return self.heading not in SECTIONS_NOT_TO_ACT_ON

    @property
    def on_device(self) -> bool:
        """Whether it is code that runs on a GPU."""
        return self.heading.startswith(ON_DEVICE)


WORD_FLOOR = 0.29
"""Share of a question, its words counted by rarity, that a passage must cover to be an answer."""

FLOOR, FLOOR_WORDS = 0.3, 0.6
"""With the static vectors: least weighted sum of that share (0.6) and the cosine (0.4). Calibrated
on the questions of benchmarks/knowledge_questions.toml that are not held back. The cosines of
another model have another scale: with it, words alone decide."""

FOLLOWING = 0.7
"""Of the floor: how near a passage must be that follows one which reaches it."""

HALF_RANK = 0.1
"""ts_rank of a word at which it counts half: saturation, as in BM25."""

_SEARCH: LiteralString = """
WITH matching AS (
    SELECT chunk FROM ({matching}) found ORDER BY {covered} DESC, chunk LIMIT {matching_limit}
), nearest AS (
    {nearest}
), near AS (
    SELECT chunk FROM matching UNION SELECT chunk FROM nearest
), candidates AS (
    SELECT chunk FROM near {pages}
)
SELECT found.chunk, n.id, n.kind, n.source, n.weight, %(subtype)s = ANY(n.subtypes),
    found.heading, found.position, ({ranked}) / %(total)s::float8, ({covered}) / %(total)s::float8,
    {cosine}
FROM (
    SELECT c.id AS chunk, c.note, c.heading, c.position, {terms} AS terms
    FROM candidates JOIN chunks c ON c.id = candidates.chunk OFFSET 0
) found JOIN notes n ON n.id = found.note {join}
"""

_PAGES: LiteralString = """UNION
    SELECT s.id FROM near JOIN chunks c ON c.id = near.chunk JOIN notes n ON n.id = c.note
    JOIN chunks s ON s.note = n.id WHERE n.kind IN ('bottleneck', 'technique')
    UNION
    SELECT c.id FROM chunks c JOIN notes n ON n.id = c.note
    WHERE n.subtypes <> '{{}}' AND %(subtype)s = ANY(n.subtypes) AND {which}
"""
"""The other sections of a page or a technique that is near, and what names the verdict."""

_TERMS = sql.SQL("c.terms || ''::tsvector")
"""Decompressed once, and not again for each word."""

_MATCHING: LiteralString = """
    SELECT chunk, terms FROM (
        SELECT c.id AS chunk, {terms} AS terms FROM chunks c
        WHERE c.terms @@ %(loose)s::tsquery AND {among} LIMIT {loose_limit}
    ) loose WHERE terms @@ %(rare)s::tsquery LIMIT {rows}
"""

_MATCHING_OF_HOUSE: LiteralString = """
    SELECT chunk, terms FROM (
        SELECT c.id AS chunk, {terms} AS terms FROM notes n JOIN chunks c ON c.note = n.id
        WHERE n.kind <> 'document' OFFSET 0
    ) house WHERE terms @@ %(every)s::tsquery LIMIT {rows}
"""
"""OFFSET 0: the index would bring all rows that have any of the words, whosever they are."""

_COVERED: LiteralString = "CASE WHEN found.terms @@ {word} THEN {idf} ELSE 0 END"

_RANKED: LiteralString = """CASE WHEN found.terms @@ {word} THEN {idf} - {idf} * {half}
    / (ts_rank(%(parts)s::real[], found.terms, {word}) + {half}) ELSE 0 END"""

_NEAREST: LiteralString = """
    SELECT found.chunk FROM (
        SELECT e.chunk FROM {table} e ORDER BY {distance} LIMIT {nearest}
    ) found JOIN chunks c ON c.id = found.chunk JOIN notes n ON n.id = c.note WHERE {which}
"""

_NEAREST_OF_PART: LiteralString = """
    SELECT e.chunk FROM notes n JOIN chunks c ON c.note = n.id JOIN {table} e ON e.chunk = c.id
    WHERE {which} ORDER BY ({distance}) + 0, e.chunk LIMIT {nearest}
"""
"""Of a part that has its rows by itself: the index would bring others' first."""

_NO_VECTORS = "SELECT NULL::bigint AS chunk WHERE false"

_TEXTS = """
SELECT c.id, n.title, c.body, array_to_string(n.sources, '; ')
FROM chunks c JOIN notes n ON n.id = c.note WHERE c.id = ANY(%s)
"""

_PAGE = """
SELECT c.id, n.id, c.heading
FROM chunks c JOIN notes n ON n.id = c.note
WHERE n.kind = 'bottleneck' AND %s = ANY(n.subtypes) ORDER BY n.id, c.position
"""

HOUSE: LiteralString = "n.kind <> 'document'"
OTHERS: LiteralString = "n.kind = 'document'"
OF_KIND: LiteralString = "n.source = %(kind)s"

_AMONG: dict[LiteralString, LiteralString] = {
    OTHERS: "NOT EXISTS (SELECT FROM notes n WHERE n.id = c.note AND n.kind <> 'document')",
    OF_KIND: "EXISTS (SELECT FROM notes n WHERE n.id = c.note AND n.source = %(kind)s)",
}
"""The same of a passage `c`."""

Order = Callable[[Sequence[str]], Sequence[int]]
"""Of texts, best first, what a reranker thinks of them: their indices."""

RERANKED = 4
"""A reranker orders this many times the passages asked for."""


def search(
    store: Store,
    embedder: Embedder,
    query: str,
    k: int = 5,
    subtype: str | None = None,
    *,
    kernel: str = "",
    kind: str | None = None,
    weights: Weights = DEFAULT_WEIGHTS,
    order: Order | None = None,
) -> list[Citation]:
    """The `k` passages that answer `query` best; the same for the same corpus every time.

    With `subtype`, in this order: what relieves it, up to `ACTIONS` further passages on what to do
    (one of them a user's, where there is one), why it happens, what it costs, then the rest by
    score. `kernel`: words on what the kernel at work does; by these a user's sources are looked up
    then, for what limits a kernel says nothing of which kernels are like it. `kind`: of the
    sources, alone. Empty where nothing is near enough. `order` reranks what was found by score.

    Raises KnowledgeUnavailable, or ModelUnavailable where the query cannot be embedded.
    """
    if k <= 0:
        return []
    query, subtype, kernel = clean(query), clean(subtype or ""), clean(kernel)
    table = store.vector_table(embedder)
    with store.transaction() as cursor:
        vectors = {query: embedder.embed_query(query)}

        def look_for(words: str, which: LiteralString, about: str = "") -> _Look:
            vector = vectors[words] if words in vectors else embedder.embed_query(words)
            # The cosine distance to a zero vector is not a number: words alone decide then.
            usable = weights.vectors > 0 and math.fsum(x * x for x in vector) > 0
            near = table if usable else None
            return _Look(
                cursor, words, which, about, weights, vector, near, embedder, clean(kind or "")
            )

        if kind is not None:
            look = look_for(query, OF_KIND)
            return look.citations(_spread(look.reranked(look.found(), k, order), k))
        look = look_for(query, HOUSE, subtype)
        page = look.page() if subtype else []
        own = {each.chunk for each in page}
        house = [each for each in look.found() if each.chunk not in own]
        others: list[Passage] = []
        if look.there_are_others():
            others = look_for(kernel if page and kernel else query, OTHERS).found()
        if page:
            others = [each for each in others if each.to_act_on]
            best = max((each.score for each in others), default=0.0)
            others.sort(key=lambda each: not (each.on_device and each.score >= NEARLY * best))
            found = _arranged(page, look.reranked(house, k, order), look.reranked(others, k, order))
        else:
            answered = any(not each.shows for each in (*house, *others))
            others = [each for each in others if answered or each.covered >= ALONE]
            both = sorted([*house, *others], key=lambda each: -each.score)
            found = _shown_between(_spread(look.reranked(both, k, order), len(both)))
        return look.citations(found[:k])


def _shown_between(passages: Sequence[Passage]) -> list[Passage]:
    """In their order, but of those that answer and those that show how it is done every third one
    shows: among 50,000 passages of code some have the words of any question."""
    answers = [each for each in passages if not each.shows]
    shows = [each for each in passages if each.shows]
    mixed: list[Passage] = []
    while answers and shows:
        mixed += [*answers[: SHOWN_EVERY - 1], shows.pop(0)]
        del answers[: SHOWN_EVERY - 1]
    return [*mixed, *answers, *shows]


def _arranged(
    page: Sequence[Passage], house: Sequence[Passage], others: Sequence[Passage]
) -> list[Passage]:
    """Remedy, further actions, why, cost, then what is left; each note at most a few times."""

    def part(heading: str) -> list[Passage]:
        return [each for each in page if each.heading == heading]

    remedy = part(REMEDY)
    actions = _spread([each for each in house if each.to_act_on], ACTIONS, of_note=1)
    if others:
        actions = [*actions[: ACTIONS - 1], others[0]]
    spare = len(actions) - max(0, ACTIONS + 1 - len(remedy))
    first = [*remedy, *actions[max(0, spare) :], *part(REASON)[:1], *part(COST)[:1]]
    left = [each for each in (*house, *others) if each not in first]
    left.sort(key=lambda each: -each.score)
    return [*first, *_spread(left, len(left)), *(each for each in page if each not in first)]


def _spread(passages: Sequence[Passage], k: int, of_note: int = PASSAGES_PER_NOTE) -> list[Passage]:
    """The first `k` with no note more often than `of_note` times."""
    kept: list[Passage] = []
    of: Counter[str] = Counter()
    for each in passages:
        if len(kept) == k:
            break
        if of[each.note] < of_note:
            of[each.note] += 1
            kept.append(each)
    return kept


def _lifted(passages: Sequence[Passage]) -> list[Passage]:
    """By score, none where none reaches the floor; of a page or a technique that is near, what to
    do is as near as its best section.

    Someone who describes a symptom in the page's words wants its remedy.
    """
    if not any(each.near >= 1 for each in passages):
        return []
    best: dict[str, float] = {}
    for each in passages:
        if each.near >= FOLLOWING:
            best[each.note] = max(best.get(each.note, 0.0), each.score)
    lifted = [
        each._replace(score=best[each.note] + LIFT, near=1.0)
        if each.heading in LIFTED and each.note in best and each.kind != "document"
        else each
        for each in passages
    ]
    return sorted(
        (each for each in lifted if each.near >= FOLLOWING),
        key=lambda each: (-each.score, each.note, each.position),
    )


LIFTED = frozenset({REMEDY, "How it works"})

LIFT = 0.001


class _Look:
    """One question in one transaction."""

    def __init__(
        self,
        cursor: psycopg.Cursor[Any],
        query: str,
        which: LiteralString,
        subtype: str,
        weights: Weights,
        vector: list[float],
        table: sql.Identifier | None,
        embedder: Embedder,
        kind: str,
    ) -> None:
        self._cursor = cursor
        self._which, self._subtype, self._weights = which, subtype, weights
        terms = read_terms(cursor, query if weights.words else "", house=which == HOUSE)
        # A plan is kept for each number of words; a word that is NULL costs next to nothing.
        self._slots = -(-len(terms.words) // SLOTS) * SLOTS or SLOTS
        free = [None] * (self._slots - len(terms.words))
        self._parameters: dict[str, object] = {
            "rare": terms.rare, "loose": terms.loose, "every": terms.every, "total": terms.total,
            "parts": PART_WEIGHTS, "vector": Vector(vector), "subtype": subtype, "kind": kind,
            **{f"word{i}": word for i, word in enumerate([*terms.words, *free])},
            **{f"idf{i}": idf for i, idf in enumerate([*terms.idf, *free])},
        }  # fmt: skip
        self._table, self._dimension = table, len(vector)
        self._calibrated = table is not None and isinstance(embedder, WordLlamaEmbedder)

    def page(self) -> list[Passage]:
        """The sections of the page on the subtype."""
        self._cursor.execute(_PAGE, [self._subtype])
        rows = self._cursor.fetchall()
        return [
            Passage(chunk, note, "bottleneck", heading, position, 1.0)
            for position, (chunk, note, heading) in enumerate(rows)
        ]

    def there_are_others(self) -> bool:
        """Whether a user added anything."""
        self._cursor.execute("SELECT EXISTS (SELECT FROM notes n WHERE n.kind = 'document')")
        row = self._cursor.fetchone()
        return bool(row and row[0])

    def found(self) -> list[Passage]:
        """Passages that are near enough, best first."""
        statement, names = _statement(
            self._which, self._slots, self._table and self._table.as_string(), self._dimension
        )
        # A raw cursor: to look for hundreds of placeholders takes longer than to send them.
        with psycopg.RawCursor(self._cursor.connection) as cursor:
            cursor.execute(statement, [self._parameters[name] for name in names], prepare=True)
            return _lifted([self._scored(*row) for row in cursor.fetchall()])

    def _scored(
        self,
        chunk: int,
        note: str,
        kind: str,
        source: str,
        weight: float,
        on_subtype: bool,
        heading: str,
        position: int,
        words: float,
        covered: float,
        cosine: float,
    ) -> Passage:
        score = self._weights.words * words + self._weights.vectors * float(cosine)
        score += SUBTYPE_BOOST if on_subtype else PAGE_BOOST if kind == "bottleneck" else 0.0
        # A verdict is a question that the house has an answer to.
        known = bool(self._subtype) and kind != "document"
        near = 1.0 if known else self._near(covered, float(cosine))
        shows = source not in NO_PROJECT
        return Passage(chunk, note, kind, heading, position, weight * score, near, covered, shows)

    def _near(self, covered: float, cosine: float) -> float:
        if not self._weights.floor:
            return 1.0
        if self._calibrated:
            return (FLOOR_WORDS * covered + (1 - FLOOR_WORDS) * cosine) / FLOOR
        return covered / WORD_FLOOR

    def reranked(
        self, passages: Sequence[Passage], k: int, order: Order | None
    ) -> Sequence[Passage]:
        """In a reranker's order, where there is one."""
        first, rest = passages[: RERANKED * k], passages[RERANKED * k :]
        if order is None or not first:
            return passages
        texts = [citation.text for citation in self.citations(first)]
        return [*(first[i] for i in order(texts)), *rest]

    def citations(self, passages: Sequence[Passage]) -> list[Citation]:
        """Their texts."""
        self._cursor.execute(_TEXTS, [[each.chunk for each in passages]])
        texts = {chunk: rest for chunk, *rest in self._cursor.fetchall()}
        return [
            Citation(
                note=each.note, title=title, heading=each.heading, text=body, source=source,
                score=each.score,
            )
            for each in passages
            for title, body, source in [texts[each.chunk]]
        ]  # fmt: skip


@lru_cache(maxsize=64)
def _statement(
    which: LiteralString, slots: int, table_name: str | None, dimension: int
) -> tuple[bytes, list[str]]:
    """The search of some notes for up to `slots` words; without a table by words alone.

    With `$1` for the first of the names of its parameters.
    """

    def summed(term: LiteralString) -> sql.Composable:
        return sql.SQL(" + ").join(
            sql.SQL(term).format(
                word=sql.SQL("%(word{})s::tsquery").format(sql.Literal(i)),
                idf=sql.SQL("%(idf{})s::float8").format(sql.Literal(i)),
                half=sql.Literal(HALF_RANK),
            )
            for i in range(slots)
        )

    # Of an index's order; where few rows are compared, to convert them costs more than the rest.
    distance = sql.SQL("e.vector::halfvec({0}) <=> %(vector)s::vector::halfvec({0})").format(
        sql.Literal(dimension)
    )
    exact = sql.SQL("e.vector <=> %(vector)s::vector")
    house = which == HOUSE  # few of many: neither index would find them
    nearest: sql.Composable = sql.SQL(_NO_VECTORS)
    cosine: sql.Composable = sql.SQL("0.0")
    join: sql.Composable = sql.SQL("")
    if table_name is not None:
        table = sql.Identifier(table_name.strip('"'))
        part = house or which == OF_KIND
        nearest = sql.SQL(_NEAREST_OF_PART if part else _NEAREST).format(
            table=table,
            which=sql.SQL(which),
            distance=exact if part else distance,
            nearest=sql.Literal(NEAREST),
        )
        cosine = sql.SQL("coalesce(nullif(1 - ({}), 'NaN'), 0)").format(exact)
        join = sql.SQL("LEFT JOIN {} e ON e.chunk = found.chunk").format(table)
    matching = sql.SQL(_MATCHING_OF_HOUSE if house else _MATCHING).format(
        terms=_TERMS,
        rows=sql.Literal(MATCHING_ROWS),
        loose_limit=sql.Literal(LOOSE_ROWS),
        among=sql.SQL(_AMONG.get(which, HOUSE)),
    )
    search = sql.SQL(_SEARCH).format(
        matching=matching,
        matching_limit=sql.Literal(MATCHING),
        nearest=nearest,
        covered=summed(_COVERED),
        ranked=summed(_RANKED),
        terms=_TERMS,
        pages=sql.SQL("" if which == OTHERS else _PAGES).format(which=sql.SQL(which)),
        cosine=cosine,
        join=join,
    )
    named = search.as_string()
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", named)))
    numbered = re.sub(r"%\((\w+)\)s", lambda name: f"${names.index(name[1]) + 1}", named)
    return numbered.encode(), names


SLOTS = 8
"""Words of a statement are a multiple of this, so that few statements are planned."""

PART_WEIGHTS = [0.2, 0.8, 0.6, 1.0]
"""ts_rank's weights of a word in the body, in what people ask, in the note's title or tags, in the
heading."""


def clean(query: str) -> str:
    """What PostgreSQL can take as text: no NUL, no lone surrogate, bounded."""
    return query[:QUERY_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode()
