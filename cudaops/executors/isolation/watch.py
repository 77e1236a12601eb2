"""Resources that a child and its descendants use, sampled while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from cudaops.executors.isolation.phases import GIB, PhaseLimits

LOOK_S = 0.2
"""Between looks."""
DISK = "put "
"""How a line begins that is about disk."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * _PAGE


class Size(NamedTuple):
    """Contents of some folders."""

    bytes: int
    entries: int


class Watch:
    """Looks every `LOOK_S` seconds at most, and less often where a look takes long."""

    def __init__(self, pid: int, limits: PhaseLimits, folders: Sequence[Path]) -> None:
        """`pid` is the launcher's; `folders` are those the child may write to."""
        self._pid = pid
        self._limits = limits
        self._folders = [p for p in folders if p.is_dir()]
        self._before = size_of(self._folders, 2 * limits.disk_entries)
        self._next = time.monotonic() + LOOK_S

    def exceeded(self) -> str:
        """Which limit was passed, in one line; empty where none was or it is not time to look."""
        now = time.monotonic()
        if now < self._next:
            return ""
        found = self._memory() or self._disk()
        took = time.monotonic() - now
        self._next = time.monotonic() + max(LOOK_S, 10 * took)
        return found

    def _memory(self) -> str:
        most = int(self._limits.share_of_memory * MEMORY_BYTES)
        # No child has more than is in use at all, which is one file to read and not one a process.
        in_use = MEMORY_BYTES - psutil.virtual_memory().available
        if in_use > most and resident_bytes(self._pid) > most:
            return f"used more than {most / GIB:.1f} GiB of memory and was stopped"
        return ""

    def _disk(self) -> str:
        most = self._limits.disk_entries
        now = size_of(self._folders, self._before.entries + most + 1)
        if now.entries - self._before.entries > most:
            return f"{DISK}more than {most} files on disk and was stopped"
        if now.bytes - self._before.bytes > self._limits.disk_bytes:
            bound = self._limits.disk_bytes / GIB
            return f"{DISK}more than {bound:g} GiB on disk and was stopped"
        return ""


def resident_bytes(pid: int) -> int:
    """Of a process and everything below it; 0 where it is gone."""
    parents: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for name in (entry.name for entry in os.scandir("/proc")):
        if not name.isdigit():
            continue
        try:
            words = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2]
        except OSError:
            continue  # it ended meanwhile
        fields = words.split()
        parents.setdefault(int(fields[1]), []).append(int(name))
        pages[int(name)] = int(fields[21])
    total, left = 0, [pid]
    while left:
        one = left.pop()
        total += pages.get(one, 0)
        left += parents.get(one, ())
    return total * _PAGE


def size_of(folders: Sequence[Path], most_entries: int) -> Size:
    """Bytes on disk and entries below some folders; counting ends at `most_entries`."""
    total = entries = 0
    left = [str(p) for p in folders]
    while left and entries < most_entries:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > most_entries:
                        break
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        except OSError:
            continue  # it went while we looked
    return Size(total, entries)
