"""Landlock: rights as numbers, and the rule set a child is given.

Source of every constant: linux/landlock.h; which version of the interface (ABI) knows what: the
kernel's documentation, userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << n for n in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = (1 << n for n in range(6, 12))
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << n for n in range(12, 16))
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1, 2

_ALL_BY_ABI = {1: MAKE_SYM * 2 - 1, 2: REFER * 2 - 1, 3: TRUNCATE * 2 - 1, 5: IOCTL_DEV * 2 - 1}
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
NET_ABI, SCOPE_ABI = 4, 6

READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
WRITE = READ | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR
"""No links, pipes, sockets or devices: what a child leaves is read and removed by its parent."""
DEVICE = READ | WRITE_FILE | IOCTL_DEV


class PathRule(NamedTuple):
    """What may be done with a file, or with everything under a folder."""

    path: Path
    access: int
    needed: bool = False
    """A path that is not there is an error; others are left out."""


@functools.cache
def abi() -> int:
    """Version of the interface; 0 where the kernel has none or it is switched off."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    version = call(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(version))


def handled(version: int) -> int:
    """Every right over files that this version can refuse."""
    return max(bits for since, bits in _ALL_BY_ABI.items() if since <= version)


def rule_set(
    version: int, rules: Sequence[PathRule] | None, ports: Sequence[int] = ()
) -> dict[str, Any] | None:
    """What the launcher applies. Everything no rule names is refused; `rules` None leaves files
    alone, and then there is nothing to apply before `NET_ABI`.

    `ports`: TCP ports that may be bound and connected to, where the version knows of them.
    """
    if rules is None and version < NET_ABI:
        return None
    every = handled(version) if rules is not None else 0
    attributes = struct.pack("=Q", every)
    if version >= NET_ABI:
        attributes += struct.pack("=Q", BIND_TCP | CONNECT_TCP)
    if version >= SCOPE_ABI:
        attributes += struct.pack("=Q", SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL)
    joined: dict[str, tuple[int, bool]] = {}
    for rule in rules or ():
        known, needed = joined.get(str(rule.path), (0, False))
        joined[str(rule.path)] = (known | rule.access & every, needed or rule.needed)
    return {
        "ruleset": attributes,
        "paths": [(p, bits, bits & _OF_FILES, needed) for p, (bits, needed) in joined.items()],
        "ports": [(p, BIND_TCP | CONNECT_TCP) for p in ports] if version >= NET_ABI else [],
    }
