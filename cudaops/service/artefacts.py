"""What a job leaves for its owner: the run's own files, bounded, without this machine's paths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.service.job_folder import Scrub
from cudaops.service.records import Artefact

MAX_FILE_BYTES = 8 * 2**20
MAX_ALL_BYTES = 64 * 2**20
"""A run of the example leaves 0.4 MB; these leave room for programs of 5 MB and 50 iterations."""

FIRST = ("run.json", "report.md", "report.html", "best.cu", "best.patch", "certificate.json")
"""Taken before the rest, should the whole be too much."""
LEFT = ("state", "work", "workloads")
"""Folders of which nothing is taken: checkpoints, what can be made again, captured buffers."""
OURS = (".json", ".jsonl", ".md", ".html")
"""What cudaops writes and may name a folder of this machine in. Sources and patches are the
author's text, and pass as they are."""
AS_SIGNED = "certificate.json"
"""Names no folder; its signature covers every byte."""
MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".html": "text/html",
    ".md": "text/markdown",
    ".patch": "text/x-diff",
}
"""By suffix; anything else is a text."""


class Collected(NamedTuple):
    """Files with their contents, and what was left out, in words."""

    files: list[tuple[Artefact, bytes]]
    left_out: list[str]


def collect(run: Path, scrub: Scrub) -> Collected:
    """The artefacts in a run folder, which need not be there or whole."""
    found = Collected([], [])
    total = 0
    for path in _candidates(run):
        name = path.relative_to(run).as_posix()
        size = path.stat().st_size
        if size > MAX_FILE_BYTES or total + size > MAX_ALL_BYTES:
            found.left_out.append(f"{name} ({size} bytes) is left out of the artefacts: too large")
            continue
        content = path.read_bytes()
        if path.suffix in OURS and name != AS_SIGNED:
            content = scrub(content.decode("utf-8", "replace")).encode()
        total += len(content)
        artefact = Artefact(
            name=name,
            media_type=MEDIA_TYPES.get(path.suffix, "text/plain"),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        found.files.append((artefact, content))
    return found


def _candidates(run: Path) -> Iterator[Path]:
    """Regular files that are artefacts; a link leads who knows where and is none."""
    if not run.is_dir():
        return
    first = [run / name for name in FIRST]
    # Headers of a rewritten program stand beside best.cu, also in folders of its own.
    rest = sorted(path for path in run.iterdir() if path not in first)
    top = [path for path in rest if not path.is_dir() or path.is_symlink()]
    taken = [path for path in rest if path not in top and path.name not in LEFT]
    below = [path for folder in taken for path in sorted(folder.rglob("*"))]
    for path in [*first, *top, *below]:
        whole = path.suffix != ".part" and not path.name.startswith(".")
        if whole and path.is_file() and not path.is_symlink():
            yield path
