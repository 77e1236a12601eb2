"""A program's working folder as the program sees it: what it needs of the author's, and no more.

Small files are copied and may be changed; larger ones are links to the author's, which the phase's
rules let it read only. What it writes lands in the view and goes with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudaops.executors.isolation.places import is_everybodys
from cudaops.executors.untrusted_files import remove
from cudaops.storage import raise_for_space

MOST_ENTRIES = 2_000
"""Files and folders; a link and its rule take 0.1 ms each."""
COPIED_BYTES = 256 * 1024
"""Files up to this size are copied."""
MOST_COPIED_BYTES = 32 * 1024 * 1024
"""Copied in all; what comes after is linked, whatever its size."""
COPIERS = 8
"""Threads: a copy waits for the file system, not for a core. 2,000 files took one thread 1.3 s
beside an H200 (2026-11-30)."""
RUN_RECORD = "run.json"
"""A folder with this file is one of our own runs."""
HINT = (
    "it ran in a private view of its folder: hidden files, `runs` folders, what lies elsewhere "
    "without being named by an argument and, on `cpu`, programs to start are not there"
)
_MISSING = ("no such file", "cannot open", "can't open", "could not open", "failed to open",
            "unable to open", "not found", "permission denied", "does not exist")  # fmt: skip


class ProgramView:
    """One view, for one run of the program. Use as a context manager."""

    def __init__(
        self,
        folder: Path,
        argv: Sequence[str],
        hidden: Iterable[Path] = (),
        texts: Iterable[str] = (),
    ) -> None:
        """`folder` is the author's. Files that `argv` names are there too, absolute ones where
        they are and relative ones at the same place seen from the working folder, and those that
        the program's `texts` name above the folder (`named_above`). `hidden` are folders of ours
        (the cache, the runs).

        Raises SandboxUnavailable where there is no space for it.
        """
        self._source = _plain(folder)
        self._hidden = [_plain(p) for p in hidden]
        self._argv = (*argv, *named_above(texts, folder))
        self._entries = 0
        self._copied = 0
        self._copies: list[tuple[Path, Path]] = []
        self._seen: set[Path] = set()
        self.reads: list[Path] = []
        """Of the author's own files: those that are linked."""
        self.left_out: list[str] = []
        """Names that are not there, as the author knows them; hidden ones are not listed."""
        self.root = Path(tempfile.mkdtemp(prefix="cudaops-view-"))
        self._base = self._source
        self.folder = self.root

    def __enter__(self) -> ProgramView:
        try:
            self._make()
        except OSError as problem:
            self.close()
            raise_for_space(problem, f"making a view of {self._source}")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it with everything that was written there."""
        remove(self.root)

    def _make(self) -> None:
        named = [self._place(word) for word in self._argv if word and "\0" not in word]
        above = [p for p in named if p is not None and not p.is_relative_to(self._source)]
        for path in above:
            while not path.is_relative_to(self._base):
                self._base = self._base.parent
        self.folder = self.root / self._source.relative_to(self._base)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in above:
            target = self.root / path.relative_to(self._base)
            if self._put(path, target):
                self._fill(path, target)
        self._fill(self._source, self.folder)
        with ThreadPoolExecutor(COPIERS) as pool:
            list(pool.map(_copy, self._copies))

    def _place(self, word: str) -> Path | None:
        """Where a file lies that an argument (or what is behind its `=`) names relatively;
        an absolute one is allowed where it is."""
        word = word.rpartition("=")[2] if word.startswith("-") else word
        path = _plain(self._source / word)
        if not path.exists() or self._is_hidden(path):
            return None
        if self._source.is_relative_to(path) or is_everybodys(path):
            return None
        if Path(word).is_absolute():
            self.reads.append(path)
            return None
        return path

    def _fill(self, source: Path, target: Path) -> None:
        """Folder by folder, so that what lies deep is what is left out."""
        left = [(source, target)]
        while left:
            source, target = left.pop(0)
            if source.resolve() in self._seen:
                continue
            self._seen.add(source.resolve())
            try:
                found = sorted(os.scandir(source), key=lambda entry: entry.name)
            except OSError:
                self._leave_out(source)
                continue
            for entry in found:
                path = Path(entry.path)
                if self._entries >= MOST_ENTRIES:
                    self._leave_out(path)
                elif not self._is_hidden(path) and self._put(path, target / entry.name):
                    left.append((path, target / entry.name))

    def _put(self, path: Path, target: Path) -> bool:
        """Copy, link or make it. Whether it is a folder, which is still to be filled."""
        if target.exists() and not path.is_dir():
            return False
        self._entries += 1
        if path.is_dir():
            if path.name == "runs" or is_run_folder(path):
                return False
            target.mkdir(parents=True, exist_ok=True)
            return True
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                return False
            if size <= COPIED_BYTES and self._copied + size <= MOST_COPIED_BYTES:
                self._copied += size
                self._copies.append((path, target))
            else:
                original = path.resolve()
                target.symlink_to(original)
                self.reads.append(original)
        return False

    def _is_hidden(self, path: Path) -> bool:
        """Whether its name, or of a link any name on the way to what it means, begins with a dot;
        and whether it is a folder of ours."""
        if path.name.startswith(".") or any(path.is_relative_to(p) for p in self._hidden):
            return True
        if not path.is_symlink():
            return False
        real = path.resolve()
        apart = real.relative_to(self._source) if real.is_relative_to(self._source) else real
        ours = any(real.is_relative_to(p.resolve()) for p in self._hidden)
        return ours or any(part.startswith(".") for part in apart.parts)

    def _leave_out(self, path: Path) -> None:
        self.left_out.append(os.path.relpath(path, self._source))


def is_run_folder(folder: Path) -> bool:
    """Whether a run of ours wrote there, or is at it."""
    begun = (folder / "events.jsonl").is_file()
    begun = begun and any((folder / name).is_dir() for name in ("state", "workloads"))
    return begun or (folder / RUN_RECORD).exists()


def _copy(one: tuple[Path, Path]) -> None:
    # Others may be at work in the folder: what is gone by now was never there.
    with contextlib.suppress(PermissionError, FileNotFoundError):
        shutil.copy(*one)


def _plain(path: Path) -> Path:
    """Absolute and without `..`, links as they are: what a person means by it."""
    return Path(os.path.normpath(path.absolute()))


_ABOVE = re.compile(r'"((?:\./)*\.\./[^"\\\n]{1,400})"')
"""A string of a program's text that names a place above its folder."""


def named_above(texts: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Relative paths above `folder` that a program's texts name, as arguments might, as far as they
    lie in the same checkout of a repository (a folder with `.git`; none at or above the home)."""
    folder = _plain(folder)
    root = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)
    if root is None or Path.home().is_relative_to(root):
        return ()
    named = dict.fromkeys(name for text in texts for name in _ABOVE.findall(text))
    return tuple(name for name in named if _plain(folder / name).is_relative_to(root))


def told_of_files(unopened: Iterable[tuple[str, ...]], folder: Path) -> str:
    """What to tell of a file that a program could not open, and what to do; empty where there is
    none. `unopened`: mode and path, as the recorder reports them; `folder`: the author's."""
    for mode, name in (line[:2] for line in unopened if len(line) >= 2):
        path, name = _plain(folder / name), name[:200]
        if "r" not in mode:
            if not path.parent.is_dir():
                return f"it could not write {name}: there is no folder {Path(name).parent}"
            return f"it could not write {name}: a program may write below its own folder only"
        if path.exists():
            return f"it could not open {name}: {HINT}; add {name} to its arguments (--args)"
        return f"it could not open {name}: no such file, seen from {folder}"
    return ""


def hint_for(text: str) -> str:
    """What to tell of the view where a program's last words may be about a missing file."""
    return HINT if any(words in text.lower() for words in _MISSING) else ""
