"""Contents between this machine and a service: each goes over the line once, known by its hash."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.remote_transport import Transport
from cudaops.sandbox.wire import MAX_REFERENCES, Missing, Question
from cudaops.sandbox.wire_files import sha256_of
from cudaops.storage import raise_for_space

SETTLED_NS = 100_000_000
"""A file younger than this may be written again without a new time (file systems count in steps
of up to 10 ms): what it was seen to hold is looked at again."""


class _Known(NamedTuple):
    """A file whose contents were read."""

    path: Path
    state: _State
    reference: str
    settled: bool


class _State(NamedTuple):
    """What tells whether a file is still what it was."""

    size: int
    mtime_ns: int
    inode: int


class RemoteFiles:
    """What the service has, and what lies here under which hash. Threads may use it at once."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._by_path: dict[Path, _Known] = {}
        self._by_reference: dict[str, _Known] = {}
        self._there: set[str] = set()
        self._lock = threading.Lock()

    def reference(self, path: Path) -> str:
        """SHA-256 of a file's contents, computed once for a file that stays as it is."""
        state = _state(path)
        with self._lock:
            known = self._by_path.get(path)
        if known is not None and known.settled and known.state == state:
            return known.reference
        reference = sha256_of(path)
        self._remember(path, state, reference)
        return reference

    def send(self, contents: Mapping[str, Path | bytes]) -> None:
        """Make sure that the service has these. Raises what `Transport.ask` raises."""
        unsure = [reference for reference in contents if reference not in self._there]
        for start in range(0, len(unsure), MAX_REFERENCES):
            some = unsure[start : start + MAX_REFERENCES]
            for reference in self._missing(some):
                what, path = contents[reference], f"/executor/blobs/{reference}"
                if isinstance(what, Path):
                    self._transport.upload(path, what)
                else:
                    self._transport.upload_bytes(path, what)
            self._there.update(some)

    def forget(self, references: Iterable[str]) -> None:
        """The service may have lost them."""
        self._there.difference_update(references)

    def fetch(self, reference: str, target: Path) -> str:
        """Put contents into the file `target`, which appears whole; its path.

        What lies here already is copied. Raises NotThere and what else `Transport.ask` raises.
        """
        part = target.with_name(f".{target.name}.{uuid4().hex}")
        try:
            if not self._copied(reference, part):
                self._download(reference, part)
            part.replace(target)
        except OSError as problem:
            raise_for_space(problem, f"writing to {target.parent}")
            raise
        finally:
            part.unlink(missing_ok=True)
        self._there.add(reference)
        self._remember(target, _state(target), reference)
        return str(target)

    def _missing(self, references: list[str]) -> tuple[str, ...]:
        question = Question(sha256=tuple(references)).model_dump_json()
        path = "/executor/blobs/missing"
        return self._transport.ask_record(Missing, "POST", path, json=question).missing

    def _copied(self, reference: str, part: Path) -> bool:
        with self._lock:
            known = self._by_reference.get(reference)
        try:
            if known is None or _state(known.path) != known.state:
                return False
            shutil.copyfile(known.path, part)
        except FileNotFoundError:
            return False
        return known.settled or sha256_of(part) == reference

    def _download(self, reference: str, part: Path) -> None:
        for _ in range(2):
            part.unlink(missing_ok=True)
            part.touch()
            self._transport.download(f"/executor/blobs/{reference}", part)
            if sha256_of(part) == reference:
                return
        raise SandboxUnavailable(
            f"contents from {self._transport.server} arrive damaged",
            "look at what stands between this machine and the service, and run again",
        )

    def _remember(self, path: Path, state: _State, reference: str) -> None:
        known = _Known(path, state, reference, time.time_ns() - state.mtime_ns > SETTLED_NS)
        with self._lock:
            self._by_path[path] = self._by_reference[reference] = known


def _state(path: Path) -> _State:
    found = path.stat()
    return _State(found.st_size, found.st_mtime_ns, found.st_ino)
