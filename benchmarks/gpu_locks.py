"""Who held which GPU's lock while a check ran: a sample of /proc/locks every 50 ms."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cudaops.executors.cuda.gpu_lock import LOCK_FOLDER

EVERY_S = 0.05


class Held(NamedTuple):
    """One lock of a GPU, held."""

    gpu: str
    """Last characters of its UUID."""
    alone: bool
    pid: int

    def __str__(self) -> str:
        return f"{self.gpu}:{'alone' if self.alone else 'shared'}:{self.pid}"


class LockWatch:
    """What was seen, and what follows from it."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, frozenset[Held]]] = []
        """Seconds since the start, and the locks held from then on."""

    def broken(self) -> int:
        """Samples in which somebody was alone on a GPU and another beside them on it."""
        return sum(
            any(a.alone and a.gpu == b.gpu and a.pid != b.pid for a in held for b in held)
            for _, held in self.seen
        )

    def alone_s(self, gpus: int) -> float:
        """Seconds in which `gpus` different GPUs or more were measured on, each by one alone."""
        total = 0.0
        for (begun, held), (ended, _) in zip(self.seen, self.seen[1:], strict=False):
            if len({each.gpu for each in held if each.alone}) >= gpus:
                total += ended - begun
        return total

    def write(self, path: Path) -> None:
        """A line at each change."""
        lines = [f"{at:.2f} {' '.join(sorted(map(str, held))) or '-'}\n" for at, held in self.seen]
        path.write_text("".join(lines), "utf-8")


@contextmanager
def watched() -> Iterator[LockWatch]:
    """Look at the locks during the block."""
    watch, over, started = LockWatch(), threading.Event(), time.monotonic()

    def look() -> None:
        while not over.wait(EVERY_S):
            held = _held()
            if not watch.seen or watch.seen[-1][1] != held:
                watch.seen.append((time.monotonic() - started, held))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _held() -> frozenset[Held]:
    gpus = {path.stat().st_ino: path.stem[-8:] for path in LOCK_FOLDER.glob("cudaops-GPU-*.lock")}
    found = set()
    for line in Path("/proc/locks").read_text("utf-8").splitlines():
        words = line.split()
        if "->" in words or words[1] != "FLOCK":  # `->`: waits for it
            continue
        inode = int(words[5].rpartition(":")[2])
        if inode in gpus:
            found.add(Held(gpus[inode], words[3] == "WRITE", int(words[4])))
    return frozenset(found)
