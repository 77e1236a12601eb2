"""The cache of builds keeps to a size: what was not used for longest goes first."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

CACHE_LIMIT_BYTES = 2 * 1024**3
"""A first run of the example leaves 97 MB, 28 MB of it for each precompiled header (g++ 12.2)."""

IN_USE_S = 3600.0
"""What was used within this time may be in use by another run and stays, whatever the size."""


def used(entry: Path) -> None:
    """Note that an entry of the cache is being used. An entry that has gone is no error here."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def prune(
    cache: Path, limit_bytes: int = CACHE_LIMIT_BYTES, in_use_s: float = IN_USE_S
) -> tuple[str, ...]:
    """Remove the entries unused for longest until the rest fits; names of what was removed.

    Folders that a killed build left behind are entries like any other. Two processes may prune at
    once: what the other has removed already is simply gone.
    """
    if not cache.is_dir():
        return ()
    entries = sorted(_entries(cache))
    total = sum(size for _, size, _ in entries)
    newest = time.time() - in_use_s
    removed = []
    for last_used, size, entry in entries:
        if total <= limit_bytes or last_used > newest:
            break
        shutil.rmtree(entry, ignore_errors=True)
        total -= size
        removed.append(entry.name)
    return tuple(removed)


def _entries(cache: Path) -> list[tuple[float, int, Path]]:
    """Last use, bytes and folder of each entry."""
    found = []
    for entry in cache.iterdir():
        with contextlib.suppress(OSError):
            if entry.is_dir() and not entry.is_symlink():
                size = sum(f.stat().st_size for f in entry.rglob("*") if f.is_file())
                found.append((entry.stat().st_mtime, size, entry))
    return found
