"""The cache of compiled things, shared by every process of an account.

An entry is a folder named by its content: a digest of the tool with its version, its flags, and
every text that goes into it. Runtime objects, precompiled headers, units, whole programs, cubins,
PTX and preprocessed texts are entries alike:

    <cache>/unit-5f0c.../   sources and what was made of them
                .lock       held by the process that makes it; free again when that dies
                entry.json  what is known of it, with size and CRC-32 of every file; written last

A folder without `entry.json` is unfinished, one whose files are not what it says is damaged: either
is made anew. The cache keeps to a size by dropping what was unused for longest (`sweep`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cudaops.errors import SandboxUnavailable

NOTE = "entry.json"
LOCK = ".lock"
TEMPORARY = "tmp"
"""Compilers put their intermediate files here, so that a killed one leaves nothing elsewhere."""
FORMAT = 3
"""Part of every key: raised when a note is written in another way."""

IN_USE_S = 3600.0
"""What was used within this time may be in use by another run and stays, whatever the size."""
SWEEP_EVERY_S = 600.0
"""Looking at all of a full cache takes some tenths of a second: not at every start."""
_SWEPT = ".swept"

SPACE_REMEDY = "free some disk space, or point CUDAOPS_CACHE and TMPDIR at a larger disk"
_PLACE_REMEDY = "choose another folder with CUDAOPS_CACHE"

_log = logging.getLogger(__name__)
_checked: set[tuple[str, int, int, int]] = set()
"""Path, inode, size and time of change of files whose CRC-32 this process has verified."""

Facts = dict[str, Any]
Failure = TypeVar("Failure")


class CacheSlot(NamedTuple):
    """A place in a cache. Sources are compiled where they stay: line tables name the folder."""

    key: str
    folder: Path

    def facts(self) -> Facts | None:
        """What was noted of a finished entry whose files are whole; None where there is none."""
        found = _read(self.folder)
        if not isinstance(found, dict):
            return None
        used(self.folder)
        return found


class CacheEntry(NamedTuple):
    """A finished entry."""

    facts: Facts
    cached: bool
    """Whether it was there already."""
    seconds: float


class CacheUsage(NamedTuple):
    """What a cache holds."""

    entries: int
    size_bytes: int


def entry_of(cache: Path, kind: str, *content: object) -> CacheSlot:
    """The entry for this content: everything that changes what is made. `kind` is a word."""
    key = hashlib.sha256(repr((FORMAT, kind, *content)).encode()).hexdigest()[:24]
    return CacheSlot(key, cache / f"{kind}-{key}")


def make_once(
    entry: CacheSlot, files: Mapping[str, str], make: Callable[[Path], Facts | Failure]
) -> CacheEntry | Failure:
    """The entry finished: found, or made now by one process while others wait for it.

    `make` gets the folder, with `files` and an empty folder `TEMPORARY` in it and nothing else. It
    returns the facts to note; anything else is a failure, which is handed on and not kept.

    Raises SandboxUnavailable where there is no space or no permission, and what `make` raises.
    """
    started = time.monotonic()
    if (facts := entry.facts()) is not None:
        return CacheEntry(facts, True, time.monotonic() - started)
    with locked(entry.folder):
        found = _read(entry.folder)
        if isinstance(found, dict):
            return CacheEntry(found, True, time.monotonic() - started)
        if found is not None:
            _log.warning("the cache entry %s is damaged (%s) and rebuilt", entry.folder, found)
        try:
            _empty(entry.folder)
            (entry.folder / TEMPORARY).mkdir()
            write_texts(entry.folder, files)
            made = make(entry.folder)
            if not isinstance(made, dict):
                _empty(entry.folder)
                return made
            _finish(entry.folder, made)
        except OSError as problem:
            raise _unwritable(problem, entry.folder) from problem
        finally:
            shutil.rmtree(entry.folder / TEMPORARY, ignore_errors=True)
    return CacheEntry(made, False, time.monotonic() - started)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time holds `folder`, which is made. Raises SandboxUnavailable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    except OSError as problem:
        raise _unwritable(problem, folder) from problem


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place at the end: readers see the old content
    or the new, never a part, and where writing fails nothing stays of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def used(folder: Path) -> None:
    """Note that an entry is being used. One that has gone is no error here."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def usage(cache: Path) -> CacheUsage:
    """Count what is there. A cache that does not exist yet is empty."""
    sizes = [size for _, size, _ in _entries(cache)]
    return CacheUsage(len(sizes), sum(sizes))


def sweep(
    cache: Path,
    limit_bytes: int,
    in_use_s: float = IN_USE_S,
    every_s: float = SWEEP_EVERY_S,
) -> tuple[str, ...]:
    """Remove the entries unused for longest until the rest fits; names of what was removed.

    Does nothing within `every_s` of the last time, whichever process that was. Two may sweep at
    once: what the other has removed already is simply gone.
    """
    mark = cache / _SWEPT
    with contextlib.suppress(OSError):
        if time.time() - mark.stat().st_mtime < every_s:
            return ()
    with contextlib.suppress(OSError):
        if cache.is_dir():
            mark.touch()
    entries = sorted(_entries(cache))
    total = sum(size for _, size, _ in entries)
    newest = time.time() - in_use_s
    removed = []
    for last_used, size, folder in entries:
        if total <= limit_bytes or last_used > newest:
            break
        shutil.rmtree(folder, ignore_errors=True)
        total -= size
        removed.append(folder.name)
    return tuple(removed)


def raise_for_space(problem: OSError, what: str) -> None:
    """Turn a full disk or quota into SandboxUnavailable; do nothing for any other OSError."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        raise SandboxUnavailable(f"no space left while {what}", SPACE_REMEDY) from problem


def raise_if_full(stderr: str, folder: Path) -> None:
    """The same for a tool that says so."""
    if "No space left on device" in stderr:
        raise SandboxUnavailable(f"no space left while compiling in {folder.parent}", SPACE_REMEDY)


def _unwritable(problem: OSError, folder: Path) -> SandboxUnavailable:
    raise_for_space(problem, f"writing to {folder}")
    return SandboxUnavailable(f"cannot write to {folder}: {problem.strerror}", _PLACE_REMEDY)


def _read(folder: Path) -> Facts | str | None:
    """The facts; what is wrong with the entry; or None where it is not finished."""
    try:
        note = json.loads((folder / NOTE).read_bytes())
        facts, files = note["facts"], note["files"]
        if not isinstance(facts, dict):
            return f"{NOTE} cannot be read"
        for name, (size, crc) in files.items():
            if (wrong := _difference(folder / name, size, crc)) is not None:
                return f"{name} {wrong}"
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{NOTE} cannot be read"
    return facts


def _difference(path: Path, size: int, crc: int) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return "is not there"
    if found.st_size != size:
        return f"has {found.st_size} of {size} bytes"
    if (seen := _version(path, found)) not in _checked:
        if zlib.crc32(path.read_bytes()) != crc:
            return "has other contents than were written"
        _checked.add(seen)
    return None


def _version(path: Path, found: os.stat_result) -> tuple[str, int, int, int]:
    """What a file that was verified is known by."""
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns


def _finish(folder: Path, facts: Facts) -> None:
    """Take over what a compiler's own account made, and note it: from now on it is finished."""
    shutil.rmtree(folder / TEMPORARY, ignore_errors=True)
    files = {}
    for path in sorted(_files(folder)):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise SandboxUnavailable(f"{path} is not a regular file", "report this program")
        if found.st_uid != os.geteuid():
            os.chown(path, os.geteuid(), os.getegid())
        files[path.relative_to(folder).as_posix()] = (found.st_size, zlib.crc32(path.read_bytes()))
        _checked.add(_version(path, found))  # just read: not again when it is used
    with replacing(folder / NOTE) as part:
        part.write_text(json.dumps({"facts": facts, "files": files}), encoding="utf-8")


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if not (path.is_dir() and not path.is_symlink()) and path.name != LOCK:
            yield path


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def write_texts(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text at its path below `folder`, line ends as they are."""
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="")


def _entries(cache: Path) -> list[tuple[float, int, Path]]:
    """Last use, bytes and folder of each entry; what a killed process left is one as well."""
    found = []
    with contextlib.suppress(OSError):
        for one in os.scandir(cache):
            with contextlib.suppress(OSError):
                if one.is_dir(follow_symlinks=False):
                    found.append((one.stat().st_mtime, _size(one.path), Path(one.path)))
    return found


def _size(folder: str) -> int:
    total = 0
    for one in os.scandir(folder):
        with contextlib.suppress(OSError):
            if one.is_dir(follow_symlinks=False):
                total += _size(one.path)
            else:
                total += one.stat(follow_symlinks=False).st_size
    return total
