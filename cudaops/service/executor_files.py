"""A worker's copies of contents: from the database to files that executors read, and back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from cudaops.domain.workload import Workload
from cudaops.sandbox.isolation.removing import remove
from cudaops.sandbox.wire_files import sha256_of, swap_workload
from cudaops.service.blobs import Blobs
from cudaops.service.temporary import new_held, remove_unheld

MAX_BYTES = 8 << 30
"""Of all copies. The least recently used go first."""


class GoneContents(Exception):
    """The database has them no more: their owner has to send them again."""


class LocalFiles:
    """Contents by hash; workloads as executors know them beside them."""

    def __init__(self, blobs: Blobs, parent: Path, max_bytes: int = MAX_BYTES) -> None:
        """In a new folder below `parent`, until `remove`. What dead workers left there goes."""
        parent.mkdir(parents=True, exist_ok=True)
        for other in parent.iterdir():
            remove_unheld(other)
        folder, self._held = new_held(parent, "worker-")
        folder.chmod(0o755)
        self._folder = folder
        self._blobs = blobs
        self._contents = folder / "blobs"
        self._workloads = folder / "workloads"
        self._calls = folder / "calls"
        for made in (self._contents, self._workloads, self._calls):
            made.mkdir()
        self._max_bytes = max_bytes
        self._used: dict[str, tuple[float, int]] = {}
        self._holders: dict[str, int] = defaultdict(int)
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def remove(self) -> None:
        """Remove everything; nothing may be asked afterwards."""
        remove(self._folder)
        os.close(self._held)

    def call_folder(self, id: str) -> Path:
        """A new folder for one call."""
        folder = self._calls / id
        folder.mkdir()
        return folder

    def leave(self, id: str, references: set[str]) -> None:
        """The call has ended: its folder goes, its contents may go."""
        remove(self._calls / id)
        for reference in references:
            self._holders[reference] -= 1
        if sum(size for _, size in self._used.values()) > self._max_bytes:
            self._prune()

    async def fetch(self, owner: str, reference: str) -> Path:
        """The file with these contents, held until `leave`. Raises GoneContents."""
        self._holders[reference] += 1
        path = self._contents / reference
        async with self._locks[reference]:
            if not path.is_file():
                try:
                    await self._download(owner, reference, path)
                except BaseException:
                    self._holders[reference] -= 1
                    raise
        self._used[reference] = (time.monotonic(), path.stat().st_size)
        return path

    def workload(self, workload: Workload) -> Workload:
        """The workload in a folder of its own, whose files were fetched before.

        An executor may remember what it found for a workload by its folder, so each has one.
        """
        key = hashlib.sha256(workload.model_dump_json().encode()).hexdigest()[:24]
        folder = self._workloads / key
        folder.mkdir(exist_ok=True)

        def link(reference: str) -> str:
            with contextlib.suppress(FileExistsError):
                os.link(self._contents / reference, folder / reference)
            return reference

        return swap_workload(workload, link, str(folder))

    async def keep(self, owner: str, path: Path) -> str:
        """Store what a call made, for its owner; the reference. It will be read again soon."""
        reference = await asyncio.to_thread(sha256_of, path)
        if await self._blobs.missing(owner, [reference]):
            with path.open("rb") as file:
                await self._blobs.put(owner, reference, file)
        with contextlib.suppress(FileExistsError):
            os.link(path, self._contents / reference)
        self._used[reference] = (time.monotonic(), path.stat().st_size)
        return reference

    async def _download(self, owner: str, reference: str, path: Path) -> None:
        stored = await self._blobs.find(owner, reference)
        if stored is None:
            raise GoneContents
        total = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self._calls, delete=False) as file:
            try:
                async for piece in self._blobs.read(owner, stored):
                    total.update(piece)
                    await asyncio.to_thread(file.write, piece)
                if total.hexdigest() != reference:
                    raise GoneContents
                file.close()
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink()
                raise

    def _prune(self) -> None:
        """Down to three quarters, so that it is not done for every call."""
        total = sum(size for _, size in self._used.values())
        for reference, (_, size) in sorted(self._used.items(), key=lambda item: item[1]):
            if total <= self._max_bytes * 3 // 4:
                break
            if self._holders[reference] > 0:
                continue
            (self._contents / reference).unlink(missing_ok=True)
            for linked in self._workloads.glob(f"*/{reference}"):
                linked.unlink()
            del self._used[reference]
            self._locks.pop(reference, None)
            total -= size
