"""Device memory of the stand-in GPU: host memory under addresses of its own.

Every allocation is a file in memory (memfd) that the child of a launch opens through `/proc`: no
copy of it is made on this side, and it is gone with the runner however that ends.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import NamedTuple

from cudaops.executors.cuda.runner.driver import DriverError

MEMORY_AT = 0x3000_0000_0000
VARIABLES_AT = 0x3800_0000_0000
"""First addresses. Linux maps nothing there, so that one nobody translated faults."""
ALIGNMENT = 256
"""Source: CUDA C++ Programming Guide, device memory accesses: at least 256 bytes."""
FRESH = 0xCD
"""Byte in new memory: nobody may rely on zeros."""
_CHUNK = 1 << 20


class MemoryFile:
    """Bytes that another process can open by name.

    Setting every byte of it is only noted, until somebody needs to see it: the L2 is written over
    before each sample, and nobody ever reads that.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        self.size = size_bytes
        self._filled: int | None = None
        """Byte that all of it holds, whatever stands in the file."""
        self.fd = os.memfd_create("cudaops-standin")
        try:
            if size_bytes:
                os.posix_fallocate(self.fd, 0, size_bytes)
        except OSError:
            os.close(self.fd)
            raise

    @property
    def path(self) -> str:
        """Where a child of this process opens it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put bytes at an offset."""
        left = memoryview(data).cast("B")
        if len(left) < self.size:
            self._settle()
        self._filled = None
        while left:
            done = os.pwrite(self.fd, left, offset)
            left, offset = left[done:], offset + done

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Bytes at an offset; what a child cut off is absent."""
        if self._filled is not None:
            return bytes([self._filled]) * size_bytes
        parts = []
        while size_bytes > 0 and (part := os.pread(self.fd, size_bytes, offset)):
            parts.append(part)
            size_bytes, offset = size_bytes - len(part), offset + len(part)
        return b"".join(parts)

    def fill(self, offset: int, byte: int, size_bytes: int) -> None:
        """Set every byte of a range."""
        if (offset, size_bytes) == (0, self.size):
            self._filled = byte
            return
        block = bytes([byte]) * min(_CHUNK, size_bytes)
        for start in range(0, size_bytes, _CHUNK):
            self.write(offset + start, memoryview(block)[: size_bytes - start])

    def take(self, offset: int, other: MemoryFile, start: int, size_bytes: int) -> None:
        """Copy a range of another file, or of this one where the two do not overlap."""
        for done in range(0, size_bytes, _CHUNK):
            self.write(offset + done, other.read(start + done, min(_CHUNK, size_bytes - done)))

    def contents(self) -> str:
        """How a unit's specification says what stands here."""
        return f"file {self.path}" if self._filled is None else f"fill {self._filled}"

    def written(self) -> None:
        """A child wrote all of it."""
        self._filled = None

    def _settle(self) -> None:
        byte, self._filled = self._filled, None
        if byte is not None:
            block = memoryview(bytes([byte]) * min(_CHUNK, self.size))
            for start in range(0, self.size, _CHUNK):
                self.write(start, block[: self.size - start])

    def empty(self) -> None:
        """Cut it to nothing."""
        os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """Give the memory back. It may be closed already."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Allocation(NamedTuple):
    """A range of device addresses."""

    begin: int
    size: int
    file: MemoryFile


class Memory:
    """The allocations that are live, by address. Raises DriverError as the driver's calls do."""

    def __init__(self, first_address: int, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._next = first_address
        self._begins: list[int] = []
        self._live: dict[int, Allocation] = {}

    @property
    def free_bytes(self) -> int:
        """What can still be allocated: of the device's memory, and of this machine's."""
        host = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(0, min(self._limit - self._used, host))

    def allocate(self, size_bytes: int) -> int:
        """A range of its own; no address is ever handed out twice."""
        if size_bytes <= 0:
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "allocate", f"{size_bytes} bytes")
        if size_bytes > self._limit - self._used:
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "allocate", f"{size_bytes} bytes")
        try:
            file = MemoryFile(size_bytes)
        except OSError as problem:
            text = f"{size_bytes} bytes: {problem.strerror}"
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "allocate", text) from problem
        file.fill(0, FRESH, size_bytes)
        begin = self._next
        # A gap, so that one past the end is never the next one's start.
        self._next = (begin + size_bytes) // ALIGNMENT * ALIGNMENT + 2 * ALIGNMENT
        self._begins.append(begin)
        self._live[begin] = Allocation(begin, size_bytes, file)
        self._used += size_bytes
        return begin

    def free(self, address: int) -> None:
        """Give a range back by its first address."""
        gone = self._live.pop(address, None)
        if gone is None:
            text = f"0x{address:x} is no allocation's start"
            raise DriverError("CUDA_ERROR_INVALID_VALUE", "free", text)
        self._begins.remove(address)
        self._used -= gone.size
        gone.file.close()

    def around(self, address: int) -> Allocation | None:
        """The allocation that an address is in, one past its end included."""
        at = bisect_right(self._begins, address) - 1
        if at < 0:
            return None
        found = self._live[self._begins[at]]
        return found if address <= found.begin + found.size else None

    def span(self, call: str, address: int, size_bytes: int) -> tuple[MemoryFile, int]:
        """The file and offset of a range that must lie in one allocation."""
        found = self.around(address)
        if found is None or size_bytes < 0 or address + size_bytes > found.begin + found.size:
            text = f"{size_bytes} bytes at 0x{address:x} do not lie in one allocation"
            raise DriverError("CUDA_ERROR_INVALID_VALUE", call, text)
        return found.file, address - found.begin

    def close(self) -> None:
        """Free everything."""
        for address in list(self._live):
            self.free(address)
