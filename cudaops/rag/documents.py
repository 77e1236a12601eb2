"""What a user adds: files, folders and archives, read as notes. Nothing of it is ever run.

Everything becomes Markdown with a section a heading, a function or a class, so that all is cut and
cited alike.
"""

from __future__ import annotations

import ast
import hashlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cudaops.errors import InputError
from cudaops.rag.kernel_words import words_of
from cudaops.rag.notes import DECLARATIONS, NO_PROJECT, SOURCE_WEIGHTS, Note, parse_note
from cudaops.rag.pdf import MAX_PDF_BYTES, pdf_text

CODE = frozenset({".cu", ".cuh", ".h", ".hpp", ".c", ".cc", ".cpp", ".inl"})

SUFFIXES = CODE | {".md", ".txt", ".rst", ".html", ".htm", ".py", ".pdf"}

ARCHIVES = (".zip", ".whl", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")

MAX_FILE_BYTES = 2**20
"""A larger file is data or generated code, not a document."""

MAX_FILES = 20_000

MAX_TOTAL_BYTES = 200 * 2**20
"""Of all documents of one source, unpacked."""

MAX_UNPACKED_BYTES = 2 * 2**30
"""Of a tar archive, with what is passed over: its entries are unpacked to find the next."""

MAX_MEMBERS = 200_000
"""Entries of an archive; with more it is refused unread."""

KNOWN_NAMES = {name: name for name in SOURCE_WEIGHTS if name not in NO_PROJECT} | {
    "torch": "pytorch",
    "cub": "cccl",
    "thrust": "cccl",
}
"""Words of a folder's or archive's name, to the source that they tell."""

_LICENCE = re.compile(r"(?i)(?:^|/)(?:(?:licen[cs]e|copying)(?:\.(?:txt|md|rst))?|METADATA)$")

_NAMED = re.compile(r"(?m)^(?:License-Expression|License):[ \t]*(\S.*)$")
"""In a wheel's METADATA."""

_KNOWN_LICENCES = (
    ("Apache-2.0", r"Apache License,?\s+Version 2\.0"),
    ("MIT", r"Permission is hereby granted, free of charge"),
    ("BSD-3-Clause", r"Neither the name"),
    ("BSD-2-Clause", r"Redistributions in binary form"),
    ("GPL", r"GNU GENERAL PUBLIC LICENSE"),
)
"""SPDX name, and a phrase of the text that tells it; the first that fits."""


class Documents(NamedTuple):
    """What was read."""

    origin: str
    """The absolute path."""
    notes: list[Note]
    skipped: tuple[str, ...]
    """`path: why`, of everything of a kind that could have been read, and was not."""
    licence: str = ""
    """SPDX name where a licence file or a wheel's metadata tells it."""


class _File(NamedTuple):
    name: str
    """Relative to what was added, with `/`."""
    size: int
    read: Callable[[], bytes]


def read_documents(
    path: Path, source: str | None = None, *, only: Sequence[str] = (), origin: str | None = None
) -> Documents:
    """Read a user's file, folder (to any depth) or archive.

    Ids are `NAME-HASH/RELATIVE/PATH`, where the hash is of the origin: two folders of one name do
    not collide, and the same folder added again replaces itself. `source` is a key of
    SOURCE_WEIGHTS; None: told by the name of the nearest folder, else of `path`. `only`: globs of
    relative paths, `*` within a folder, `**` across; none: everything. `origin`: what it is known
    by, the absolute path where None. In folders and archives a bad file is skipped.

    Raises InputError: nothing there, no document in it, too many or too large, an archive that is
    broken or names paths outside of itself, a single file that is not text.
    """
    root = path.expanduser().resolve()
    if not root.exists():
        raise InputError(f"{path} does not exist: give a document, a folder or an archive of them")
    if source is not None and source not in SOURCE_WEIGHTS:
        raise InputError(f"source must be one of {', '.join(SOURCE_WEIGHTS)}, not {source!r}")
    name = root.name if origin is None else origin.rsplit(":", 1)[-1]
    origin = origin or str(root)
    prefix = f"{name}-{hashlib.sha256(origin.encode('utf-8', 'replace')).hexdigest()[:6]}"
    single = root.is_file() and not root.name.endswith(ARCHIVES)
    found = sorted(_files(root, _globs(only)), key=lambda file: file.name)
    files = [file for file in found if single or not _LICENCE.search(file.name)]
    licence = "" if single else _licence([file for file in found if file not in files])
    _bounded(path, files, only)
    notes: list[Note] = []
    skipped: list[str] = []
    for file in files:
        try:
            note = _note(file, origin, f"{prefix}/{file.name}", source or _source(file, name))
        except InputError as error:
            if single:
                raise
            skipped.append(str(error))
            continue
        if note.sources == (file.name,) and not single:
            where = f"{root.name}, {file.name}"
            note = note._replace(sources=(f"{where} ({licence})" if licence else where,))
        notes.append(note)
    if not any(note.body.strip() for note in notes):
        why = f" ({skipped[0]})" if skipped else ""
        raise InputError(f"{path} holds no text: every document in it is empty{why}")
    return Documents(origin, notes, tuple(skipped), licence)


def _bounded(path: Path, files: Sequence[_File], only: Sequence[str]) -> None:
    """Raise InputError for nothing and for too much."""
    part = "take less with --only" if only else "add a part of it with --only"
    if not files:
        among = f" under {' '.join(only)}" if only else ""
        raise InputError(f"{path} holds no document{among}: {' '.join(sorted(SUFFIXES))}")
    if len(files) > MAX_FILES:
        raise InputError(f"{path} holds {len(files)} documents, more than {MAX_FILES}: {part}")
    total = sum(file.size for file in files)
    if total > MAX_TOTAL_BYTES:
        raise InputError(
            f"{path} holds {total >> 20} MiB, more than {MAX_TOTAL_BYTES >> 20}: {part}"
        )


def _globs(only: Sequence[str]) -> re.Pattern[str] | None:
    """Of relative paths that match any of the globs; None for all."""
    each = (
        re.escape(glob).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        for glob in only
    )
    return re.compile("|".join(f"(?:{one})" for one in each)) if only else None


def _licence(files: Sequence[_File]) -> str:
    """What the outermost of the licence files says; empty where it is none that is known."""
    for file in sorted(files, key=lambda each: each.name.count("/")):
        try:
            text = file.read()[:MAX_FILE_BYTES].decode("utf-8", "replace")
        except InputError:
            continue
        named = _NAMED.search(text) if file.name.endswith("METADATA") else None
        if named:
            return named[1].strip()[:60]
        for name, phrase in _KNOWN_LICENCES:
            if re.search(phrase, text):
                return name
    return ""


def _source(file: _File, name: str) -> str:
    """By the nearest folder that tells it, else by the name of all: projects bundle others."""
    for folder in (*reversed(PurePosixPath(file.name).parts[:-1]), name):
        words = re.split(r"[^a-z]+", folder.lower())
        known = next((KNOWN_NAMES[word] for word in words if word in KNOWN_NAMES), None)
        if known:
            return known
    return "documents"


def _wanted(name: str, only: re.Pattern[str] | None) -> bool:
    """Whether a relative path is a document that is asked for, or a licence."""
    if _LICENCE.search(name):
        return True
    return PurePosixPath(name).suffix in SUFFIXES and (only is None or bool(only.fullmatch(name)))


def _most_bytes(name: str) -> int:
    return MAX_PDF_BYTES if name.endswith(".pdf") else MAX_FILE_BYTES


def _files(root: Path, only: re.Pattern[str] | None) -> Iterator[_File]:
    """Documents of a folder or archive and their licences, or the one file; links and hidden
    folders left out."""
    if root.is_dir():
        for file in _of_folder(root):
            name = file.relative_to(root).as_posix()
            if _wanted(name, only):
                yield _File(name, file.stat().st_size, _limited_read(file))
    elif root.name.endswith(ARCHIVES):
        try:
            yield from (
                _of_zip(root, only) if root.suffix in (".zip", ".whl") else _of_tar(root, only)
            )
        except _BROKEN as error:
            raise InputError(f"{root} is no archive that can be read: {error}") from error
    elif root.suffix not in SUFFIXES:
        raise InputError(
            f"{root} is not a document: {' '.join(sorted(SUFFIXES))} files and "
            f"{' '.join(ARCHIVES)} archives can be added"
        )
    else:
        yield _File(root.name, root.stat().st_size, _limited_read(root))


_BROKEN = (
    OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, ValueError, RuntimeError, zlib.error,
    lzma.LZMAError,
)  # fmt: skip
"""What a damaged or encrypted archive makes the standard library raise."""


def _limited_read(file: Path) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with file.open("rb") as opened:
                return opened.read(_most_bytes(file.name) + 1)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error

    return read


def _of_folder(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.is_symlink() or entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _of_folder(entry)
        elif entry.is_file():
            yield entry


def _inside(name: str, archive: Path, only: re.Pattern[str] | None) -> bool:
    """Whether an entry is wanted. Raises InputError for one that would leave the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise InputError(f"{archive} is refused: its entry {name!r} leads out of it")
    hidden = any(part.startswith(".") and part != "." for part in path.parts)
    return not hidden and _wanted(name, only)


def _of_zip(archive: Path, only: re.Pattern[str] | None) -> Iterator[_File]:
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        if len(entries) > MAX_MEMBERS:
            raise InputError(f"{archive} is refused: it has {len(entries)} entries")
        left = MAX_TOTAL_BYTES
        for entry in entries:
            if not _inside(entry.filename, archive, only) or entry.is_dir():
                continue
            with opened.open(entry) as stream:
                data = stream.read(_most_bytes(entry.filename) + 1)
            left -= len(data)
            if left < 0:
                raise InputError(f"{archive} is refused: over {MAX_TOTAL_BYTES >> 20} MiB unpacked")
            yield _File(entry.filename, len(data), lambda data=data: data)  # type: ignore[misc]


def _of_tar(archive: Path, only: re.Pattern[str] | None) -> Iterator[_File]:
    """A stream: what the entries say of their size is not believed, the bytes unpacked count."""
    left, wanted_left = MAX_UNPACKED_BYTES, MAX_TOTAL_BYTES
    with tarfile.open(archive, "r|*") as opened:
        for number, entry in enumerate(opened):
            if number >= MAX_MEMBERS:
                raise InputError(f"{archive} is refused: it has over {MAX_MEMBERS} entries")
            left -= entry.size
            if left < 0:
                raise InputError(
                    f"{archive} is refused: over {MAX_UNPACKED_BYTES >> 20} MiB unpacked"
                )
            stream = opened.extractfile(entry) if entry.isreg() else None
            if not _inside(entry.name, archive, only) or stream is None:
                continue
            data = stream.read(_most_bytes(entry.name) + 1)
            wanted_left -= len(data)
            if wanted_left < 0:
                raise InputError(f"{archive} is refused: over {MAX_TOTAL_BYTES >> 20} MiB unpacked")
            yield _File(entry.name, len(data), lambda data=data: data)  # type: ignore[misc]


def _note(file: _File, origin: str, note_id: str, source: str) -> Note:
    data = file.read()
    most = _most_bytes(file.name)
    if len(data) > most:
        raise InputError(f"{file.name} is larger than {most >> 10} KiB: split it or leave it out")
    if file.name.endswith(".pdf"):
        text = pdf_text(file.name, data)
        return Note(note_id, origin, "document", file.name, (), (), (file.name,), text, source)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.name} is not UTF-8 text (byte {error.start}): convert it first"
        ) from error
    if "\0" in text:
        raise InputError(f"{file.name} is not text: it holds a zero byte")
    suffix = PurePosixPath(file.name).suffix
    if suffix == ".md":
        note = parse_note(text, origin=origin, name=file.name, otherwise_id=note_id)
        return note._replace(source=source)
    if suffix in CODE:
        text = _fenced(_functions(text), "cuda")
    elif suffix == ".py":
        text = _fenced(_definitions(text), "python")
    elif suffix in (".html", ".htm"):
        text = _html(text)
    elif suffix == ".rst":
        text = re.sub(r"(?m)^(\S.*)\n([=\-~^\"'*+#])\2{2,}\s*$", r"## \1", text)
    return Note(note_id, origin, "document", file.name, (), (), (file.name,), text, source)


def _fenced(parts: list[tuple[str, str]], language: str) -> str:
    """Sections of code; a fence within it would end ours."""
    said = [(head or DECLARATIONS, body.strip().replace("```", "'''")) for head, body in parts]
    return "\n\n".join(f"## {head}\n```{language}\n{body}\n```" for head, body in said if body)


def _definitions(text: str) -> list[tuple[str, str]]:
    """Functions and classes of a module, each with the comment above it; else the whole text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [("", text)]
    lines = text.splitlines(keepends=True)
    parts: list[tuple[str, str]] = []
    done = 0
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        start = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
        while start > done and lines[start - 1].startswith("#"):
            start -= 1
        parts += [
            ("", "".join(lines[done:start])),
            (node.name, "".join(lines[start : node.end_lineno])),
        ]
        done = node.end_lineno or start
    return [*parts, ("", "".join(lines[done:]))]


_CPP = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"?"""
    r"""|'(?:\\.|[^'\\\n])'|(?m:^[ \t]*\#(?:\\\n|[^\n])*)|[{};]""",
    re.DOTALL,
)

_SCOPE = re.compile(r"\b(?:namespace|extern|struct|class|union|enum)\b[^()]*$")

_CALLED = re.compile(r"(~?\w+|operator\s*\S+?)\s*\(")

_NO_NAME = frozenset({
    "__launch_bounds__", "__attribute__", "__declspec", "alignas", "decltype", "if", "for", "while",
    "switch", "requires", "noexcept", "defined", "constexpr", "sizeof", "static_assert",
    "not", "and", "or", "return", "catch", "alignof", "typeid", "enable_if_t",
})  # fmt: skip


def _functions(text: str) -> list[tuple[str, str]]:
    """Definitions of functions and kernels with the comment above them, and what stands between."""
    parts: list[tuple[str, str]] = []
    done = start = 0
    depth = 0
    head = ""
    at = 0
    for found in _CPP.finditer(text):
        token = found.group()
        if depth == 0:
            head += text[at : found.start()] if token[0] in "{};" else ""
            if token == "{" and "(" in head and not _SCOPE.search(head):
                depth = 1
            elif token[0] in "{};" or token[0] == "#":
                head, start = "", found.end()
            else:
                head += text[at : found.start()]
        elif token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                parts += [("", text[done:start]), (_name(head), text[start : found.end()])]
                done = start = found.end()
                head = ""
        at = found.end()
    return [*parts, ("", text[done:])]


def _name(head: str) -> str:
    """Of a macro's name and a function's, the function's; a statement of a macro has none."""
    names = [name for name in _CALLED.findall(head) if name not in _NO_NAME]
    name = next((each for each in names if not each.isupper()), names[0] if names else "")
    kind = "kernel" if "__global__" in head else "function"
    if kind == "function" and re.search(r"__device__|[A-Z]_DEVICE\b", head):
        kind = "device function"
    parts = words_of(name)
    spoken = f" ({' '.join(parts)})" if len(parts) > 1 else ""
    return f"{kind} {name or 'without a name'}{spoken}"


class _Page(HTMLParser):
    """Text of a page as Markdown: headings, paragraphs and code; no scripts, no menus."""

    SILENT = frozenset({"script", "style", "nav", "header", "footer", "svg", "noscript"})
    BLOCKS = frozenset({"p", "div", "li", "tr", "section", "article", "br", "table", "ul", "ol"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a block."""
        if tag in self.SILENT:
            self._silent += 1
        elif re.fullmatch(r"h[1-6]", tag):
            self.out.append("\n\n## ")
        elif tag == "pre":
            self.out.append("\n\n```\n")
        elif tag in self.BLOCKS:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Close it."""
        if tag in self.SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag == "pre":
            self.out.append("\n```\n\n")
        elif tag in self.BLOCKS or re.fullmatch(r"h[1-6]", tag):
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        """Text."""
        if not self._silent:
            self.out.append(data)


def _html(text: str) -> str:
    page = _Page()
    page.feed(text)
    page.close()
    return re.sub(r"\n[ \t]*\n\s*\n+", "\n\n", "".join(page.out)).strip() + "\n"
