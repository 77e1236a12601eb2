"""Device memory of one task: allocations between guard bands, their contents, their copies."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple

from cudaops.executors.cuda.runner.driver import NO_ROOM, Driver, DriverError, Refusal

GUARD_BYTES = 4096
"""On each side of an allocation. A multiple of 256, so that what lies between stays aligned."""
GUARD_WORD = bytes.fromhex("a9c3f5ff")
"""Not a number as binary16, bfloat16 (upper half), binary32 and binary64, and no small integer."""
GUARD = GUARD_WORD * (GUARD_BYTES // len(GUARD_WORD))
ALIGNMENT = 256
"""Of what the driver gives. Source: CUDA C++ Programming Guide, device memory accesses."""
PIECES, PIECE_BYTES = 6, 4096
"""Places of a copy that are held against its file after a task, beside its two ends."""
CHUNK_BYTES = 8 * 1024**2
"""Moved between host and device at a time: what was moved last still is in a processor's cache when
it is written or compared. All goes through the same memory of the host: fresh pages for every chunk
would cost as much as the copy."""


class Region(NamedTuple):
    """An allocation as kernels see it, without its guards."""

    address: int
    size_bytes: int
    shown: str
    """As messages name it: `allocation b`."""
    base: int
    """First byte of the guard before it."""
    guarded: bool


class Content(NamedTuple):
    """What stands somewhere before a launch: a file, or one byte throughout."""

    file: Path | None = None
    fill: int = 0


class Memory:
    """Everything that one task allocates; gives it all back at the end.

    Raises Refusal where a file is not what the task says, DriverError as the driver does.
    """

    _chunk: ClassVar[bytearray] = bytearray()
    """What goes between host and device passes through it."""

    def __init__(self, driver: Driver, shift_bytes: int = 0) -> None:
        """Allocations begin `shift_bytes`, a multiple of 256, behind what the driver gives."""
        self._driver = driver
        self._shift = shift_bytes
        self._bases: list[int] = []
        self._guarded: list[Region] = []
        self.size_bytes = 0
        """Of everything that is allocated."""
        self.without_copy: list[str] = []
        """What is restored from the host because the device had no room for a copy of it."""

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back(failed=kind is not None)

    def give_back(self, *, failed: bool = False) -> None:
        """Free everything. After a failure what cannot be freed is the ended context's."""
        bases, self._bases = self._bases[::-1], []
        self._guarded.clear()
        self.size_bytes = 0
        for base in bases:
            with contextlib.suppress(*((DriverError,) if failed else ())):
                self._driver.free(base)

    def take(self, shown: str, size_bytes: int, *, guards: bool) -> Region:
        """Allocate. `guards`: with a band on each side that is checked by `broken_guard`."""
        band = GUARD_BYTES if guards else 0
        taken = max(1, size_bytes + 2 * band + self._shift)
        allocated = self._driver.allocate(taken)
        self._bases.append(allocated)
        self.size_bytes += taken
        base = allocated + self._shift
        region = Region(base + band, size_bytes, shown, base, guards)
        if guards:
            self._driver.write(base, GUARD)
            self._driver.write(region.address + size_bytes, GUARD)
            self._guarded.append(region)
        return region

    def fill_in(self, address: int, size_bytes: int, content: Content) -> None:
        """Let the content stand there, from the host."""
        if content.file is None:
            if size_bytes:
                self._driver.fill(address, content.fill, size_bytes)
            return
        for offset, data in _chunks(content.file, size_bytes, self._host(size_bytes)):
            self._driver.write(address + offset, data)

    def save(self, address: int, size_bytes: int, path: Path) -> None:
        """Write what stands there to a file."""
        with path.open("wb", buffering=0) as file:
            for _, data in self.read(address, size_bytes):
                while data:
                    data = data[file.write(data) :]

    def holds(self, address: int, size_bytes: int, path: Path) -> bool:
        """Whether the file's contents stand there, byte for byte."""
        meant = bytearray(min(CHUNK_BYTES, size_bytes))
        parts = _chunks(path, size_bytes, memoryview(meant))
        for (_, part), (_, found) in zip(parts, self.read(address, size_bytes), strict=True):
            # A bytearray is compared as a whole, a view an element at a time.
            if (meant if len(part) == len(meant) else bytearray(part)) != found:
                return False
        return True

    def read(self, address: int, size_bytes: int) -> Iterator[tuple[int, memoryview]]:
        """What stands there, a chunk at a time with its offset; good until the next one."""
        host = self._host(size_bytes)
        for offset in range(0, size_bytes, CHUNK_BYTES):
            step = min(CHUNK_BYTES, size_bytes - offset)
            self._driver.read_into(address + offset, host[:step])
            yield offset, host[:step]

    @classmethod
    def _host(cls, size_bytes: int) -> memoryview:
        """Memory of the host for a chunk."""
        if len(cls._chunk) < min(CHUNK_BYTES, size_bytes):
            cls._chunk = bytearray(min(CHUNK_BYTES, size_bytes))
        return memoryview(cls._chunk)

    def broken_guard(self) -> str | None:
        """One line about the first guard band that was written to; None where all are whole."""
        for region in self._guarded:
            size = f"{region.shown} (size {region.size_bytes} bytes)"
            before = _first_difference(self._driver.read(region.base, GUARD_BYTES))
            if before is not None:
                far = GUARD_BYTES - before
                return f"a byte {far} bytes before the start of {size} was overwritten"
            end = region.address + region.size_bytes
            after = _first_difference(self._driver.read(end, GUARD_BYTES))
            if after is not None:
                return f"a byte {after} bytes past the end of {size} was overwritten"
        return None


class Restorable:
    """Memory that is given back its contents before every sample, from the device itself."""

    def __init__(
        self,
        driver: Driver,
        memory: Memory,
        address: int,
        size_bytes: int,
        shown: str,
        content: Content | None,
        *,
        guards: bool = False,
    ) -> None:
        """`content` None: what stands there now is what it is given back. `guards`: around the
        copy."""
        self._driver = driver
        self._memory = memory
        self._shown = shown
        self._address = address
        self._size_bytes = size_bytes
        self._content = content
        self._copy: int | None = None
        if size_bytes == 0 or (content is not None and content.file is None):
            return
        if content is not None:
            memory.fill_in(address, size_bytes, content)
        try:
            self._copy = memory.take(f"copy of {shown}", size_bytes, guards=guards).address
        except DriverError as problem:
            if content is None or problem.name != NO_ROOM:
                raise
            memory.without_copy.append(shown)
        else:
            driver.copy(self._copy, address, size_bytes)

    @property
    def is_given(self) -> bool:
        """Whether the contents come from a file: the program's own, and no filling of ours."""
        return self._content is not None and self._content.file is not None

    def restore(self) -> None:
        """Let the contents stand there again, in the order of the stream."""
        if self._copy is not None:
            self._driver.copy(self._address, self._copy, self._size_bytes)
        elif self._content is not None:
            self._memory.fill_in(self._address, self._size_bytes, self._content)

    def spoilt(self) -> str | None:
        """One line where the copy is not what its file says, seen at some places of it that are
        drawn anew every time; None where it is, or there is none."""
        if self._copy is None or self._content is None or self._content.file is None:
            return None
        last = max(0, self._size_bytes - PIECE_BYTES)
        with self._content.file.open("rb") as file:
            for at in (0, last, *(random.randint(0, last) for _ in range(PIECES))):
                file.seek(at)
                meant = file.read(min(PIECE_BYTES, self._size_bytes))
                found = self._driver.read(self._copy + at, len(meant))
                if found != meant:
                    byte = at + next(i for i, x in enumerate(meant) if x != found[i])
                    return f"byte {byte} of what {self._shown} is restored from was overwritten"
        return None


def _chunks(path: Path, size_bytes: int, host: memoryview) -> Iterator[tuple[int, memoryview]]:
    """A file's contents, a chunk at a time with its offset, each in `host`."""
    remedy = "capture the workload again; if it happens again, report it"
    try:
        with path.open("rb", buffering=0) as file:
            if (found := path.stat().st_size) != size_bytes:
                raise Refusal(f"{path} has {found} bytes instead of {size_bytes}", remedy)
            for offset in range(0, size_bytes, CHUNK_BYTES):
                part = host[: min(CHUNK_BYTES, size_bytes - offset)]
                done = 0
                while done < len(part):
                    if not (step := file.readinto(part[done:])):
                        raise Refusal(f"{path} was cut short while it was read", remedy)
                    done += step
                yield offset, part
    except OSError as problem:
        raise Refusal(f"cannot read {path}: {problem.strerror}", remedy) from problem


def _first_difference(band: bytes) -> int | None:
    if band == GUARD:
        return None
    return next(
        i for i, (found, meant) in enumerate(zip(band, GUARD, strict=True)) if found != meant
    )
