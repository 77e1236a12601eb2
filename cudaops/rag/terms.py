"""What a question asks for: its words and identifiers, each with how rare it is among passages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql

MATCHING_ROWS = 300
"""Rows whose words are compared. The rarest words of a question decide which rows these are."""

LOOSE_ROWS = 400
"""Rows that are read to find those in which the words of an identifier follow each other."""

QUERY_WORDS = 24
"""Words of a question that count, rarest first."""

IDENTIFIERS = 6
"""Identifiers of several words that count as one besides."""

NAME_WORDS = 4
"""A question of no more words is read as a name too: `stall wait`."""

_ASKING = """
anybody anyone approach average avoid bad behave best better big call cause caused change
correct correctly deal dealing decrease difference different does doing done easy effect
efficient else even exactly example expected explain explanation fast faster fix get give go
good happen help higher idea implement improve increase instead issue just kind know large less
like long look lot lower main make makes mean means more most much ncu need needed new number
one optimise optimize own people place possible problem properly put question quick really
reason reduce rid right see several slow slower slowest small somebody someone sometimes strange
take takes thing total try trying two understand use used useful using versus vs want way well
work works worth wrong
"""

ASKING = frozenset(_ASKING.split())
"""Words that ask, and do not say about what. The notes seldom use them, so by their rarity they
would weigh more than a subject."""

SHORT = {
    "cta": "block", "ctas": "blocks", "smem": "shared memory", "gmem": "global memory",
    "lmem": "local memory", "regs": "registers", "sms": "multiprocessors", "sgemm": "gemm",
    "dgemm": "gemm", "hgemm": "gemm", "dsmem": "distributed shared memory", "tmem": "tensor memory",
    "aos": "array of structures", "soa": "structure of arrays", "hbm": "DRAM", "gddr": "DRAM",
    "vram": "DRAM", "bw": "bandwidth", "idx": "index", "ptr": "pointer", "prng": "random numbers",
    "lut": "lookup table", "ldg": "global load", "lds": "shared load", "rf": "register file",
}  # fmt: skip
"""What the notes call something that is often abbreviated."""

_WORDS: LiteralString = """
SELECT t.token, q.lexeme, coalesce(w.{of}, 0),
    coalesce((SELECT value::bigint FROM facts WHERE name = {name}), 0)
FROM unnest(%s::text[]) t (token), LATERAL unnest(to_tsvector('english', t.token)) q
LEFT JOIN words w ON w.word = q.lexeme
"""

_HOUSE: LiteralString = """(
    SELECT c.terms FROM notes n JOIN chunks c ON c.note = n.id WHERE n.kind <> 'document' OFFSET 0
) c"""
"""OFFSET 0: the index would bring all rows that have the words, whosever they are."""

_IDENTIFIERS: LiteralString = """
SELECT p.words::text, p.loose::text, (
    SELECT count(*) FROM (
        SELECT c.terms FROM {passages} WHERE c.terms @@ p.loose LIMIT {loose_limit}
    ) few WHERE few.terms @@ p.words
) FROM (
    SELECT DISTINCT words, regexp_replace(words::text, '<[^>]+>', '&', 'g')::tsquery AS loose
    FROM unnest(%s::text[]) t, phraseto_tsquery('english', t) words
) p WHERE numnode(p.words) > 1
"""
"""An index finds the rows that have all words; each must be read to see whether they follow each
other: only so many are."""


class Terms(NamedTuple):
    """Words of a question as tsqueries, and how rare they are."""

    words: list[str]
    idf: list[float]
    total: float
    """Rarity of all words together, also of those that no passage has."""
    rare: str
    """The rarest words, joined by OR: few rows have them."""
    loose: str
    """The same, an identifier being all of its words in any order: what an index finds."""
    every: str
    """All words, joined by OR."""


def read_terms(cursor: psycopg.Cursor[Any], query: str, *, house: bool = False) -> Terms:
    """The terms of a question. An identifier (`cp.async`, `__launch_bounds__`) is one besides.

    A word that no passage has is the rarest of all: it lowers what the others cover. `house`: how
    rare words are in our own notes, where `shared` is common and `why` is not; what a user adds
    would change that, code most of all.
    """
    tokens = _tokens(query)
    saying = [token for token in tokens if token.lower() not in ASKING]
    counts, passages = _counted(cursor, saying or tokens, house)
    known = {_quoted(word): n for word, n in counts.items() if n}
    idf = {word: math.log(1 + passages / (0.5 + n)) for word, n in counts.items()}
    weights = {_quoted(word): idf[word] for word in counts}
    loose: dict[str, str] = {}
    for phrase, loose[phrase], n in _identifiers(cursor, query, house):
        known[phrase], weights[phrase] = n, math.log(1 + passages / (0.5 + n))
    rare = _rare(known)
    return Terms(
        words=list(known),
        idf=[weights[word] for word in known],
        total=math.fsum(weights.values()) or 1.0,
        rare=" | ".join(rare),
        loose=" | ".join(loose.get(word, word) for word in rare),
        every=" | ".join(known),
    )


def _counted(
    cursor: psycopg.Cursor[Any], tokens: Sequence[str], house: bool
) -> tuple[dict[str, int], int]:
    """Passages that have each word, rarest first, and all passages.

    A token that no passage has is read as its parts: `cudaAccessPropertyPersisting`, `48KB`.
    """
    parts = {token: part for token in tokens if len(part := _parts(token)) > 1}
    every = dict.fromkeys([*tokens, *(each for part in parts.values() for each in part)])
    of = "house" if house else "chunks"
    statement = sql.SQL(_WORDS).format(of=sql.Identifier(of), name=sql.Literal(of))
    cursor.execute(statement, [list(every)], prepare=True)
    found: list[tuple[str, str, int, int]] = cursor.fetchall()
    unknown = {token for token, _, n, _ in found if not n}
    wanted = set(tokens).difference(unknown & parts.keys())
    wanted.update(each for token in unknown & parts.keys() for each in parts[token])
    found = [row for row in found if row[0] in wanted]
    counts = {word: n for _, word, n, _ in found if n or not word.isdigit()}
    rarest = sorted(counts, key=lambda word: (counts[word], word))[:QUERY_WORDS]
    return {word: counts[word] for word in rarest}, found[0][3] if found else 0


def _identifiers(
    cursor: psycopg.Cursor[Any], query: str, house: bool
) -> list[tuple[str, str, int]]:
    """Identifiers of several words as phrases, as words, and with the passages that have them."""
    found = re.findall(r"\w+(?:[.:_]+\w+)+", query)[:IDENTIFIERS]
    if len(_tokens(query)) <= NAME_WORDS:
        found.append(query)
    texts = [re.sub(r"[\W_]+", " ", each) for each in found]
    if not texts:
        return []
    statement = sql.SQL(_IDENTIFIERS).format(
        loose_limit=sql.Literal(LOOSE_ROWS), passages=sql.SQL(_HOUSE if house else "chunks c")
    )
    cursor.execute(statement, [texts], prepare=True)
    return [row for row in cursor.fetchall() if row[2]]


def _tokens(query: str) -> list[str]:
    """As `plain` and PostgreSQL's parser cut a text, abbreviations in full."""
    found = re.findall(r"[^\W_]+", query)
    return [word for each in found for word in SHORT.get(each.lower(), each).split()]


def _parts(token: str) -> list[str]:
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", token)


def _rare(counts: dict[str, int]) -> list[str]:
    """The rarest words whose passages are not too many together; one at least."""
    kept: list[str] = []
    rows = 0
    for word, n in sorted(counts.items(), key=lambda item: item[1]):
        if kept and rows + n > MATCHING_ROWS:
            break
        kept.append(word)
        rows += n
    return kept


def _quoted(word: str) -> str:
    """A lexeme as a tsquery."""
    return "'{}'".format(word.replace("\\", "\\\\").replace("'", "''"))
