"""Device memory of one task: allocations between guard bands, their contents, their copies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple

from cudaops.executors.cuda.runner.driver import NO_ROOM, Driver, DriverError, TaskRefused

GUARD_BYTES = 4096
"""On each side of an allocation. A multiple of 256, so that what lies between stays aligned."""
GUARD_WORD = bytes.fromhex("a9c3f5ff")
"""Not a number as binary16, bfloat16 (upper half), binary32 and binary64, and no small integer."""
GUARD = GUARD_WORD * (GUARD_BYTES // len(GUARD_WORD))
ALIGNMENT = 256
"""Of what the driver gives. Source: CUDA C++ Programming Guide, device memory accesses."""
PIECES, PIECE_BYTES = 6, 4096
"""Places of a copy that are compared with its file after a task, beside its two ends."""
CHUNK_BYTES = 8 * 1024**2
"""Moved between host and device at a time: what was moved last still is in a processor's cache when
it is written or compared. All goes through the same memory of the host: fresh pages for every chunk
would cost as much as the copy."""
MOST_THREADS = 8
"""That read, write and compare files while a chunk is copied. Chosen: one processor copies memory
at a fraction of the pace at which a device reads what is page-locked."""
AHEAD = 2
"""Chunks beside those that threads are at: one that is copied, one that is ready."""
_LIBC = ctypes.CDLL(None)
_AGAIN = "capture the workload again; if it happens again, report it"


class Region(NamedTuple):
    """An allocation as kernels see it, without its guards."""

    address: int
    size_bytes: int
    shown: str
    """As messages name it: `allocation b`."""
    base: int
    """First byte of the guard before it."""


class Content(NamedTuple):
    """Memory contents before a launch: a file, or one byte throughout."""

    file: Path | None = None
    fill: int = 0


class TaskMemory:
    """Everything that one task allocates; gives it all back at the end.

    Raises TaskRefused where a file is not what the task says, DriverError as the driver does.
    """

    _small: ClassVar[bytearray] = bytearray()
    """What goes between host and device in one chunk passes through it."""

    def __init__(self, driver: Driver, shift_bytes: int = 0) -> None:
        """Allocations begin `shift_bytes`, a multiple of 256, behind what the driver gives."""
        self._driver = driver
        self._shift = shift_bytes
        self._bases: list[int] = []
        self._guarded: list[Region] = []
        self._files: dict[tuple[object, ...], int] = {}
        self.size_bytes = 0
        """Of everything that is allocated."""
        self.without_copy: list[str] = []
        """What is restored from the host because the device had no room for a copy of it."""

    def __enter__(self) -> TaskMemory:
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
        files, self._files = self._files, {}
        for descriptor in files.values():
            os.close(descriptor)
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
        region = Region(base + band, size_bytes, shown, base)
        if guards:
            self._driver.write(base, GUARD)
            self._driver.write(region.address + size_bytes, GUARD)
            self._guarded.append(region)
        return region

    def file_for(self, file: Path, addresses: tuple[int, ...], made: Callable[[], bytes]) -> str:
        """A file in memory that holds what is made of this one for these addresses, until all is
        given back."""
        seen = file.stat()
        key = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, addresses)
        if key not in self._files:
            content = made()
            self._files[key] = descriptor = os.memfd_create("moved")
            with open(descriptor, "wb", closefd=False) as written:
                written.write(content)
        return f"/proc/self/fd/{self._files[key]}"

    def fill_in(self, address: int, size_bytes: int, content: Content) -> None:
        """Put the content there, from the host."""
        if content.file is None:
            if size_bytes:
                self._driver.fill(address, content.fill, size_bytes)
            return
        with _opened(content.file, size_bytes) as file, self._passage(size_bytes) as passage:
            for offset, chunk in passage.filled(size_bytes, file.read):
                self._driver.write(address + offset, chunk)

    def save(self, address: int, size_bytes: int, path: Path) -> None:
        """Write what is there to a file."""
        with path.open("wb", buffering=0) as file, self._passage(size_bytes) as passage:

            def put(offset: int, chunk: memoryview) -> None:
                while chunk:
                    done = os.pwrite(file.fileno(), chunk, offset)
                    offset, chunk = offset + done, chunk[done:]

            for offset, chunk in passage.emptied(size_bytes, put):
                self._driver.read_into(address + offset, chunk)

    def holds(self, address: int, size_bytes: int, path: Path) -> bool:
        """Whether the file's contents are there, byte for byte."""
        own = threading.local()
        different = threading.Event()
        with _opened(path, size_bytes) as file, self._passage(size_bytes) as passage:

            def look(offset: int, found: memoryview) -> None:
                if not hasattr(own, "meant"):
                    own.meant = memoryview(bytearray(min(CHUNK_BYTES, size_bytes)))
                meant = own.meant[: len(found)]
                file.read(offset, meant)
                if not _equal(meant, found):
                    different.set()

            for offset, chunk in passage.emptied(size_bytes, look):
                if different.is_set():
                    break
                self._driver.read_into(address + offset, chunk)
        return not different.is_set()

    def read(self, address: int, size_bytes: int) -> Iterator[tuple[int, memoryview]]:
        """What is there, a chunk at a time with its offset; good until the next one."""
        with self._passage(size_bytes, chunks=1) as passage:
            host = passage.slots[0]
            for offset, step in _spans(size_bytes):
                self._driver.read_into(address + offset, host[:step])
                yield offset, host[:step]

    def _passage(self, size_bytes: int, chunks: int | None = None) -> StagingMemory:
        """What so many bytes go through between host and device, at most `chunks` at a time."""
        if size_bytes > CHUNK_BYTES:
            return StagingMemory.wide(self._driver, chunks or len(_spans(size_bytes)))
        if len(TaskMemory._small) < size_bytes:
            TaskMemory._small = bytearray(size_bytes)
        return StagingMemory([memoryview(TaskMemory._small)])

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


class StagingMemory:
    """Memory of the host for several chunks: threads read, write or compare some of them while one
    is copied to or from the device."""

    _locked: ClassVar[list[memoryview]] = []
    """Page-locked chunks that no passage has now."""

    def __init__(self, slots: list[memoryview], threads: int = 0) -> None:
        """`threads` 0: everything is done in turn, by who asks."""
        self.slots = slots
        self._pool = ThreadPoolExecutor(threads) if threads else None
        self._at: list[Future[None] | None] = [None] * len(slots)
        """What a thread still does with each of them."""

    @classmethod
    def wide(cls, driver: Driver, chunks: int) -> StagingMemory:
        """One of page-locked memory, for no more than so many chunks at a time."""
        threads = min(MOST_THREADS, len(os.sched_getaffinity(0)), chunks)
        slots = [
            cls._locked.pop() if cls._locked else driver.host_memory(CHUNK_BYTES)
            for _ in range(min(threads + AHEAD, chunks))
        ]
        return cls(slots, threads)

    def __enter__(self) -> StagingMemory:
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody is at any chunk any more: its memory may serve others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            StagingMemory._locked += self.slots
            self._pool = None

    def filled(
        self, size_bytes: int, fill: Callable[[int, memoryview], None]
    ) -> Iterator[tuple[int, memoryview]]:
        """Every chunk in order, after `fill` was given its offset and its memory."""
        spans = _spans(size_bytes)
        for number in range(min(len(self.slots), len(spans))):
            self._start(number, spans[number], fill)
        for number, (offset, step) in enumerate(spans):
            yield offset, self._free(number)[:step]
            if (later := number + len(self.slots)) < len(spans):
                self._start(later, spans[later], fill)

    def emptied(
        self, size_bytes: int, use: Callable[[int, memoryview], None]
    ) -> Iterator[tuple[int, memoryview]]:
        """Memory for every chunk in order; what the caller has put there is given to `use`."""
        for number, (offset, step) in enumerate(_spans(size_bytes)):
            yield offset, self._free(number)[:step]
            self._start(number, (offset, step), use)
        for number in range(len(self.slots)):
            self._free(number)

    def _start(
        self, number: int, span: tuple[int, int], work: Callable[[int, memoryview], None]
    ) -> None:
        place = number % len(self.slots)
        offset, step = span
        chunk = self.slots[place][:step]
        if self._pool is None:
            work(offset, chunk)
        else:
            self._at[place] = self._pool.submit(work, offset, chunk)

    def _free(self, number: int) -> memoryview:
        """The chunk's memory as soon as no thread is at it. Raises what went wrong there."""
        place = number % len(self.slots)
        waiting, self._at[place] = self._at[place], None
        if waiting is not None:
            waiting.result()
        return self.slots[place]


class Restorable:
    """Memory that is given back its contents before every sample, from the device itself."""

    def __init__(
        self,
        driver: Driver,
        memory: TaskMemory,
        address: int,
        size_bytes: int,
        shown: str,
        content: Content | None,
        *,
        guards: bool = False,
    ) -> None:
        """`content` None: what is there now is what it is given back. `guards`: around the
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
        """Put the contents there again, in the order of the stream."""
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


class _File(NamedTuple):
    """A file that is read by several threads."""

    descriptor: int
    path: Path

    def read(self, offset: int, into: memoryview) -> None:
        """Fill this memory from there on. Raises TaskRefused."""
        while into:
            try:
                done = os.preadv(self.descriptor, [into], offset)
            except OSError as problem:
                raise TaskRefused(
                    f"cannot read {self.path}: {problem.strerror}", _AGAIN
                ) from problem
            if not done:
                raise TaskRefused(f"{self.path} was cut short while it was read", _AGAIN)
            offset, into = offset + done, into[done:]


@contextlib.contextmanager
def _opened(path: Path, size_bytes: int) -> Iterator[_File]:
    """A file of this size. Raises TaskRefused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        raise TaskRefused(f"cannot read {path}: {problem.strerror}", _AGAIN) from problem
    try:
        if (found := os.fstat(descriptor).st_size) != size_bytes:
            raise TaskRefused(f"{path} has {found} bytes instead of {size_bytes}", _AGAIN)
        yield _File(descriptor, path)
    finally:
        os.close(descriptor)


def _spans(size_bytes: int) -> list[tuple[int, int]]:
    """Offset and length of every chunk."""
    return [
        (offset, min(CHUNK_BYTES, size_bytes - offset))
        for offset in range(0, size_bytes, CHUNK_BYTES)
    ]


def _equal(one: memoryview, other: memoryview) -> bool:
    """Whether the same bytes are in both, of one length. A view would be compared an element at a
    time, and with the interpreter's lock."""
    first, second = ((ctypes.c_char * len(v)).from_buffer(v) for v in (one, other))
    return bool(_LIBC.memcmp(first, second, ctypes.c_size_t(len(one))) == 0)


def _first_difference(band: bytes) -> int | None:
    if band == GUARD:
        return None
    return next(
        i for i, (found, meant) in enumerate(zip(band, GUARD, strict=True)) if found != meant
    )
