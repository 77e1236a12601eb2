"""Documents into the knowledge base: the built-in corpus and what a user adds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from cudaops.errors import InputError
from cudaops.rag.notes import Note, parse_note

BUILTIN = "builtin"

SUFFIXES = frozenset({".md", ".txt", ".cu", ".cuh"})

MAX_FILE_BYTES = 2**20
"""A larger file is data or generated code, not a document."""

MAX_FILES = 2000

MAX_TOTAL_BYTES = 20 * 2**20
"""Some 15,000 chunks: exact search stays fast below 20,000."""


def builtin_notes() -> list[Note]:
    """The notes that travel with cudaops, by id. Raises InputError for a malformed one."""
    corpus = files("cudaops.rag").joinpath("corpus")
    pages = sorted((p for p in corpus.iterdir() if p.name.endswith(".md")), key=lambda p: p.name)
    return [parse_note(p.read_text("utf-8"), origin=BUILTIN, name=p.name) for p in pages]


def digest(notes: list[Note]) -> str:
    """Changes when any of the notes does."""
    return hashlib.sha256("".join(note.sha256 for note in notes).encode()).hexdigest()


def read_documents(path: Path) -> tuple[str, list[Note]]:
    """The origin and the notes of a user's file or folder (searched to any depth).

    Ids are `NAME-HASH/RELATIVE/PATH`, where the hash is of the absolute path: two folders of one
    name do not collide, and the same folder added again replaces itself.

    Raises InputError: nothing there, no document in it, too many or too large, or not text.
    """
    root = path.expanduser().resolve()
    if not root.exists():
        raise InputError(f"{path} does not exist: give a file or folder of .md, .txt or .cu files")
    if root.is_file() and root.suffix not in SUFFIXES:
        raise InputError(f"{path} is not a document: .md, .txt, .cu and .cuh files can be added")
    found = [root] if root.is_file() else sorted(_documents(root))
    if not found:
        raise InputError(f"{path} holds no .md, .txt, .cu or .cuh file")
    if len(found) > MAX_FILES:
        raise InputError(
            f"{path} holds {len(found)} documents, more than {MAX_FILES}: add a part of it"
        )
    total = sum(file.stat().st_size for file in found)
    if total > MAX_TOTAL_BYTES:
        raise InputError(
            f"{path} holds {total >> 20} MiB, more than {MAX_TOTAL_BYTES >> 20}: add a part of it"
        )
    origin = str(root)
    prefix = f"{root.name}-{hashlib.sha256(origin.encode('utf-8', 'replace')).hexdigest()[:6]}"
    notes = [_document(file, root, origin, prefix) for file in found]
    if not any(note.body.strip() for note in notes):
        raise InputError(f"{path} holds no text: every document in it is empty")
    return origin, notes


def _documents(root: Path) -> Iterator[Path]:
    """Regular files under `root`; links are not followed, hidden folders not entered."""
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        raise InputError(f"{root} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.is_symlink() or entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _documents(entry)
        elif entry.is_file() and entry.suffix in SUFFIXES:
            yield entry


def _document(file: Path, root: Path, origin: str, prefix: str) -> Note:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            f"{file} is larger than {MAX_FILE_BYTES >> 10} KiB: split it or leave it out"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not UTF-8 text (byte {error.start}): convert it first"
        ) from error
    if "\0" in text:
        raise InputError(f"{file} is not text: it holds a zero byte")
    relative = file.name if root.is_file() else file.relative_to(root).as_posix()
    note_id = f"{prefix}/{relative}"
    if file.suffix == ".md":
        return parse_note(text, origin=origin, name=relative, otherwise_id=note_id)
    return Note(note_id, origin, "document", relative, (), (), (relative,), text)
