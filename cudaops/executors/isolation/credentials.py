"""The account of a child: one of its own where this process may switch accounts."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 0, 1, 2
CAP_SETGID, CAP_SETUID, CAP_SETPCAP = 6, 7, 8
"""Source: linux/capability.h."""
_NEEDED = (CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID, CAP_SETPCAP)
FIRST_UID = 0x7000_0000
"""Beyond every account and every range that useradd, systemd or a container hands out."""
_PER_PROCESS = 64
"""Children that one process may have at once, each with an account of its own."""
_COUNTER = itertools.count()
_COUNTED_S = 5.0


@functools.cache
def can_switch() -> bool:
    """Whether a child can be given an account of its own: root, with the capabilities, and a user
    namespace in which such an account exists."""
    if os.geteuid() != 0:
        return False
    mapped = any(
        first <= FIRST_UID and first + count >= FIRST_UID + (1 << 28)
        for first, _, count in _ranges("/proc/self/uid_map")
    )
    return mapped and all(_effective() >> number & 1 for number in _NEEDED)


def can_narrow() -> bool:
    """Whether such an account can do with CAP_DAC_READ_SEARCH: what it shall write to is handed
    over to it, and everything else that modes keep from others they keep from it."""
    return can_switch() and all(_effective() >> n & 1 for n in (CAP_CHOWN, CAP_DAC_READ_SEARCH))


def account(*, narrow: bool = False) -> dict[str, Any] | None:
    """What the launcher applies; None: it stays what it is, which is not root.

    An account of its own keeps CAP_DAC_OVERRIDE alone, so that Landlock and not the modes of files
    decide; `narrow`, where that `can_narrow`, CAP_DAC_READ_SEARCH alone, which opens no socket.
    Where no account can be had, root drops every capability.
    """
    if can_switch():
        uid = FIRST_UID + (os.getpid() % (1 << 22)) * _PER_PROCESS + next(_COUNTER) % _PER_PROCESS
        return _account(uid, 1 << (CAP_DAC_READ_SEARCH if narrow else CAP_DAC_OVERRIDE))
    if os.geteuid() == 0 and _effective() >> CAP_SETPCAP & 1:
        return _account(None, 0)
    return None


def hand_over(places: Sequence[Path], uid: int) -> None:
    """Give files and folders of ours to an account; one that has another name besides stays.

    Raises OSError where the file system does not do that.
    """
    for path, found in _below(places):
        if found.st_uid == os.geteuid() and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
            os.lchown(path, uid, -1)


def take_back(places: Sequence[Path], uid: int) -> None:
    """Make what an account owns below `places` ours, once none of its processes is left: the next
    child that goes by the number shall own nothing. What is not to be had stays."""
    for path, found in _below(places):
        if found.st_uid == uid:
            with contextlib.suppress(OSError):
                os.lchown(path, os.geteuid(), os.getegid())


def _below(places: Sequence[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """`places` and everything in them, without following links there."""
    for place in places:
        left = [place.resolve()]
        while left:
            path = left.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = path.lstat()
                yield path, found
                if stat.S_ISDIR(found.st_mode):
                    left += path.iterdir()


def tasks_now() -> int:
    """Processes and threads of this account, to which a limit on a child's comes on top."""
    return _tasks_of(os.geteuid(), int(time.monotonic() / _COUNTED_S))


@functools.lru_cache(maxsize=4)
def _tasks_of(uid: int, _moment: int) -> int:
    count = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid:
                text = Path(entry.path, "stat").read_text("utf-8", "replace")
                count += int(text.rpartition(")")[2].split()[17])
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return count


def _account(uid: int | None, capabilities: int) -> dict[str, Any]:
    return {"uid": uid, "capabilities": capabilities, "last_capability": _last_capability()}


@functools.cache
def _last_capability() -> int:
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text("utf-8"))


@functools.cache
def _effective() -> int:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _ranges(path: str) -> list[tuple[int, int, int]]:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []
    return [(int(a), int(b), int(c)) for a, b, c in (line.split() for line in lines)]
