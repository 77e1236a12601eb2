"""Memory: one Markdown file for each kernel and class of device, which a person may edit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.memory import KernelKey, MemoryEntry, Pattern
from cudaops.errors import InputError
from cudaops.memory.compaction import KEPT, compacted, is_long
from cudaops.memory.document import (
    NOTES,
    Document,
    in_section,
    new_document,
    read_document,
    read_key,
    renamed,
    with_entry,
)
from cudaops.memory.files import WAIT_S, replace_whole, unusable, writing
from cudaops.memory.lines import avoided_line
from cudaops.memory.patterns import aggregate
from cudaops.memory.records import Avoided, KernelMemory

_NAMED = re.compile(r"(?P<name>.*)-(?P<structure>[0-9a-f]{16})-(?P<device_class>\w+)")


class Remembered(NamedTuple):
    """One memory file."""

    path: Path
    key: KernelKey
    document: Document

    @property
    def memory(self) -> KernelMemory:
        """What it says."""
        return self.document.memory(self.key)


class Memory:
    """What runs learnt, in `folder`/kernels. Every read sees the files as they are by then.

    Raises EnvironmentFailure where a file or the folder cannot be read or written. A folder that
    is not there is an empty memory; only writing makes it.
    """

    def __init__(self, folder: Path, *, wait_s: float = WAIT_S) -> None:
        self.folder = folder
        self._kernels = folder / "kernels"
        self._wait_s = wait_s

    def kernels(self) -> tuple[Remembered, ...]:
        """Every kernel that something is known of, by file name."""
        return tuple(self._files())

    def recall(self, key: KernelKey) -> KernelMemory:
        """What is known of this kernel on this class of device; its name decides nothing."""
        found = [r.memory for r in self._files(key)]
        return KernelMemory(
            key=key,
            entries=tuple(e for memory in found for e in memory.entries),
            avoided=tuple(a for memory in found for a in memory.avoided),
            notes="\n\n".join(memory.notes for memory in found if memory.notes),
        )

    def record(self, key: KernelKey, entry: MemoryEntry) -> None:
        """Keep one result, compacting where the file got long. What stands there already,
        whatever its date, is not written twice: a resumed run may record again."""
        with writing(self._kernels, self._wait_s):
            there = next(self._files(key), None)
            path = there.path if there else self._path(key)
            document = there.document if there else new_document(key)
            if any(e.model_copy(update={"date": entry.date}) == entry for e in document.entries):
                return
            document = with_entry(renamed(document, key.name), entry)
            replace_whole(path, (compacted(document) if is_long(document) else document).data)

    def compact(self, key: KernelKey, keep: int = KEPT) -> None:
        """Settle all but the newest `keep` entries, however many there are."""
        self._rewrite(key, lambda document: compacted(document, keep))

    def note(self, key: KernelKey, text: str) -> None:
        """Put the user's words into a kernel's file. Raises InputError where they would be taken
        for something else."""

        def noted(document: Document) -> Document:
            after = in_section(document, NOTES, text.splitlines())
            known = (document.entries, document.avoided)
            if not text.strip() or (after.entries, after.avoided) != known:
                raise InputError("a note needs words, and must not look like an entry")
            return after

        self._rewrite(key, noted)

    def replace(self, path: Path, before: bytes, after: bytes) -> None:
        """Put a user's edit of `before` in place; what runs added since is kept behind it.

        Raises InputError where somebody else changed the notes since; the edit is then kept in a
        file beside, which the message names.
        """
        with writing(self._kernels, self._wait_s):
            now = path.read_bytes() if path.exists() else b""
            merged = _merged(before, now, after)
            if merged is None:
                kept = path.with_suffix(".edited")
                replace_whole(kept, after)
                raise InputError(f"{path.name} was changed by somebody else; your text is {kept}")
            replace_whole(path, merged.data)

    def patterns(
        self, subtype: str | None = None, device_class: str | None = None
    ) -> tuple[Pattern, ...]:
        """What families of strategies brought, over all kernels; most promising first."""
        return aggregate((r.memory for r in self._files()), subtype, device_class)

    def forget(self, key: KernelKey | None = None) -> int:
        """Remove the files of this kernel, of all kernels without a key; returns how many.

        The user's notes in them go as well.
        """
        if not self._kernels.is_dir():
            return 0
        with writing(self._kernels, self._wait_s):
            paths = [r.path for r in self._files(key)]
            for path in paths:
                path.unlink(missing_ok=True)
        return len(paths)

    def forget_entry(self, key: KernelKey, source_id: str) -> int:
        """Remove every result of one rewrite; returns how many lines named it."""
        removed = 0

        def without(document: Document) -> Document:
            nonlocal removed
            rows, removed = [], 0
            for line in document.lines:
                left = _left_of(line.content, source_id)
                removed += left is not line.content
                if left is line.content:
                    rows.append(line.raw)
                elif isinstance(left, Avoided):
                    rows.append(avoided_line(left).encode() + b"\n")
            return read_document(b"".join(rows))

        self._rewrite(key, without)
        return removed

    def _rewrite(self, key: KernelKey, change: Callable[[Document], Document]) -> None:
        if not self._kernels.is_dir():
            return
        with writing(self._kernels, self._wait_s):
            for remembered in self._files(key):
                after = change(remembered.document)
                if after.data != remembered.document.data:
                    replace_whole(remembered.path, after.data)

    def _files(self, wanted: KernelKey | None = None) -> Iterator[Remembered]:
        """Files of the kernel `wanted`; all where none is."""
        try:
            # Not glob: it takes a folder that may not be read for an empty one.
            paths = sorted(self._kernels.iterdir()) if self._kernels.exists() else []
            for path in paths:
                if path.suffix != ".md" or path.name.startswith(".") or not path.is_file():
                    continue
                try:
                    data = path.read_bytes()
                except FileNotFoundError:  # forgotten meanwhile
                    continue
                key = read_key(data) or _key_by_name(path)
                if key is not None and (wanted is None or _same(key, wanted)):
                    yield Remembered(path, key, read_document(data))
        except OSError as problem:
            raise unusable(self._kernels, problem) from problem

    def _path(self, key: KernelKey) -> Path:
        """A new file's place. Its name is for people; the front matter decides."""
        name = re.sub(r"\W", "_", key.name, flags=re.ASCII)[:60]
        rest = (re.sub(r"\W", "_", part)[:40] for part in (key.structure, key.device_class))
        return self._kernels / f"{'-'.join([name, *rest])}.md"


def _same(one: KernelKey, other: KernelKey) -> bool:
    return (one.structure, one.device_class) == (other.structure, other.device_class)


def _key_by_name(path: Path) -> KernelKey | None:
    """The key of a file whose front matter was damaged, from the name that it was given."""
    named = _NAMED.fullmatch(path.stem)
    return KernelKey(**named.groupdict()) if named else None


def _left_of(content: MemoryEntry | Avoided | None, source_id: str) -> MemoryEntry | Avoided | None:
    """What is left of a line's content without this rewrite: itself where it is of another."""
    if isinstance(content, MemoryEntry):
        return None if content.source_id == source_id else content
    if isinstance(content, Avoided) and source_id in content.source_ids:
        left = tuple(i for i in content.source_ids if i != source_id)
        return content.model_copy(update={"source_ids": left}) if left else None
    return content


def _merged(before: bytes, now: bytes, after: bytes) -> Document | None:
    """The edit with the entries that came since; None where the notes changed as well."""
    edited = read_document(after)
    if now == before:
        return edited
    old, new = read_document(before), read_document(now)
    if _words(new) != _words(old):
        return None
    for entry in new.entries:
        if entry not in old.entries:
            edited = with_entry(edited, entry)
    return edited


def _words(document: Document) -> list[str]:
    """The notes without empty lines, which an entry's coming may add."""
    return [line for line in document.notes.splitlines() if line.strip()]
