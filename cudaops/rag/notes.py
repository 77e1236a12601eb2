"""Notes: texts with front matter, cut into chunks small enough to embed and to quote.

They come from the built-in corpus, and from the documents that a user adds.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from cudaops.errors import InputError

CHUNK_CHARACTERS = 1400
"""Length a chunk aims at: about 350 tokens, inside the 512 that small embedding models read."""

CHUNK_LIMIT = 2800
"""No chunk is longer; a paragraph beyond it is cut at a line."""

CHUNKING = 4
"""Raised when cutting or the embedded text changes, so that stored notes are cut again."""

KINDS = ("bottleneck", "technique", "reference", "document")

REMEDY, REASON, COST = "What relieves it", "Why it happens", "What it costs, and when not to"

DECLARATIONS = "declarations"
"""Heading of what stands between the functions of a source file."""

SECTIONS_NOT_TO_ACT_ON = frozenset(
    {
        DECLARATIONS, "How to recognise it", REASON, "How to check that it worked", COST,
        "When to use it", "What to watch", "What to expect", "Limits",
    }
)  # fmt: skip
"""Headings under which stands something else than what to do."""

SOURCE_WEIGHTS = {
    "notes": 1.0, "house": 0.8, "documents": 1.0, "flashinfer": 1.0, "vllm": 1.0, "sglang": 1.0,
    "cutlass": 0.95, "cccl": 0.95, "triton": 0.95, "pytorch": 0.9, "lmdeploy": 0.85,
}  # fmt: skip
"""Factor of a passage's score, by where it comes from: production kernels first. `house`: what is
made of our tables and pages, beside the notes that were written to answer."""


NO_PROJECT = ("notes", "house", "documents")
"""Sources whose passages answer; a project's show how something is done."""


class Chunk(NamedTuple):
    """A passage of a note."""

    heading: str
    """Heading it stands under; the title before the first."""
    body: str
    asked: str = ""
    """What people ask that it answers, in their words: found by, never shown."""


class Note(NamedTuple):
    """One document of the knowledge base."""

    id: str
    origin: str
    """`builtin`, or the absolute path that a user added."""
    kind: str
    """`bottleneck`: the page on one verdict subtype; `technique`; `reference`: facts, a question a
    section; `document`: a user's."""
    title: str
    subtypes: tuple[str, ...]
    tags: tuple[str, ...]
    sources: tuple[str, ...]
    body: str
    """Without front matter."""
    source: str = "notes"
    """Key of SOURCE_WEIGHTS."""
    asked: Mapping[str, str] = {}
    """By heading, what people ask that the section answers; a question a line."""

    @property
    def weight(self) -> float:
        """Factor of its passages' scores."""
        return SOURCE_WEIGHTS[self.source]

    @property
    def sha256(self) -> str:
        """Changes with anything that is stored or embedded."""
        parts = [str(CHUNKING), *map(repr, self)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()

    @property
    def subject(self) -> str:
        """What the note is about, for the full-text search."""
        words = [self.title, *self.subtypes, *self.tags]
        return " ".join(words).replace("_", " ").replace("-", " ")

    def chunks(self) -> list[Chunk]:
        """The body in order, cut at headings, then at blank lines outside code."""
        return [
            Chunk(heading, piece, self.asked.get(heading, ""))
            for heading, section in _sections(self.title, self.body)
            for piece in _pieces(section)
        ]


def parse_note(text: str, *, origin: str, name: str, otherwise_id: str | None = None) -> Note:
    """A note from its text. `name` is the file's, for messages.

    With `otherwise_id` front matter is optional and never names the note: users' documents cannot
    take the place of built-in ones.

    Raises InputError naming the file where required front matter is missing or wrong.
    """
    fields, body = _front_matter(text, name)
    title = "".join(fields.get("title", ())) or _first_heading(body) or name
    if otherwise_id is None:
        missing = [key for key in ("id", "title", "kind", "sources") if not fields.get(key)]
        if missing:
            raise InputError(f"{name}: front matter lacks {', '.join(missing)}")
    kind = "".join(fields.get("kind", ("document",)))
    if kind not in KINDS:
        raise InputError(f"{name}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return Note(
        id=otherwise_id or fields["id"][0],
        origin=origin,
        kind="document" if otherwise_id else kind,
        title=title,
        subtypes=fields.get("subtypes", ()),
        tags=fields.get("tags", ()),
        sources=fields.get("sources", ()) or (name,),
        body=body.strip() + "\n",
    )


def _front_matter(text: str, name: str) -> tuple[dict[str, tuple[str, ...]], str]:
    """Fields between two `---` lines: `key: value`, `key: [a, b]` or `key:` and `- item` lines."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}, text
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return {}, text
    fields: dict[str, tuple[str, ...]] = {}
    key = ""
    for number, line in enumerate(lines[1:end], 2):
        item = re.match(r"\s*-\s+(.+)$", line)
        field = re.match(r"(\w+):\s*(.*)$", line)
        if item and key:
            fields[key] += (item.group(1).strip(),)
        elif field:
            key, value = field.group(1), field.group(2).strip()
            listed = (
                value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
            )
            fields[key] = tuple(part.strip() for part in listed if part.strip())
        elif line.strip():
            raise InputError(f"{name}:{number}: front matter must be `key: value` or `- item`")
    return fields, "\n".join(lines[end + 1 :])


def _first_heading(body: str) -> str | None:
    found = re.search(r"^#\s+(.+)$", body, re.MULTILINE)
    return found.group(1).strip() if found else None


def _sections(title: str, body: str) -> list[tuple[str, str]]:
    """Heading and text of every section; a `#` inside a code fence is no heading."""
    sections: list[tuple[str, list[str]]] = [(title, [])]
    fenced = False
    for line in body.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        found = None if fenced else re.match(r"#{1,6}\s+(.+?)\s*#*$", line)
        if found:
            sections.append((found.group(1), []))
        else:
            sections[-1][1].append(line)
    return [
        (heading, "\n".join(lines).strip())
        for heading, lines in sections
        if "\n".join(lines).strip()
    ]


def _pieces(section: str) -> list[str]:
    """Paragraphs joined up to CHUNK_CHARACTERS; none beyond CHUNK_LIMIT."""
    pieces: list[str] = []
    for paragraph in _paragraphs(section):
        for part in _bounded(paragraph):
            if pieces and len(pieces[-1]) + len(part) + 2 <= CHUNK_CHARACTERS:
                pieces[-1] += "\n\n" + part
            else:
                pieces.append(part)
    return pieces


def _paragraphs(section: str) -> list[str]:
    paragraphs: list[list[str]] = [[]]
    fenced = False
    for line in section.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if line.strip() or fenced:
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    return ["\n".join(lines) for lines in paragraphs if lines]


def _bounded(paragraph: str) -> list[str]:
    if len(paragraph) <= CHUNK_LIMIT:
        return [paragraph]
    parts = [""]
    for line in paragraph.splitlines(keepends=True):
        for start in range(0, len(line), CHUNK_LIMIT):
            piece = line[start : start + CHUNK_LIMIT]
            if len(parts[-1]) + len(piece) > CHUNK_LIMIT:
                parts.append("")
            parts[-1] += piece
    return [part.rstrip("\n") for part in parts if part.strip()]


BUILTIN = "builtin"


def builtin_notes() -> list[Note]:
    """The notes that travel with cudaops, by id. Raises InputError for a malformed one."""
    corpus = files("cudaops.rag").joinpath("corpus")
    pages = sorted((p for p in corpus.iterdir() if p.name.endswith(".md")), key=lambda p: p.name)
    notes = [parse_note(p.read_text("utf-8"), origin=BUILTIN, name=p.name) for p in pages]
    asked = tomllib.loads(corpus.joinpath("asked.toml").read_text("utf-8"))
    return [note._replace(asked=asked.get(note.id, {})) for note in notes]


def digest(notes: list[Note]) -> str:
    """Changes when any of the notes does."""
    return hashlib.sha256("".join(note.sha256 for note in notes).encode()).hexdigest()
