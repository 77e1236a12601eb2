"""Folders of processes that may be killed: a worker's temporary one, and one a job, with the
program it was sent, where that is worked on, and what is left of it for its owner.

A process holds a lock on its folder for as long as it lives. A folder that nobody holds is of a
dead one, in whatever container its number was. What is left for the owner is bounded and without
this machine's paths.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import cudaops
from cudaops.errors import InputError
from cudaops.executors.untrusted_files import remove
from cudaops.program.given import check_includes
from cudaops.service.records import Artefact, JobRequest, ProgramRequest
from cudaops.settings import Settings

# Folders of processes that may be killed, so that what these leave can be removed.

PREFIX = "cudaops-work-"


def take_own() -> None:
    """Have this process put its temporary files into a folder of its own: children's folders, views
    of programs, builds."""
    folder, _ = new_held(Path(tempfile.gettempdir()), PREFIX)
    folder.chmod(0o711)  # programs under other accounts pass through it to what is theirs
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def remove_own() -> None:
    """Remove the folder of `take_own`, as the last thing that this process does."""
    if Path(tempfile.gettempdir()).name.startswith(PREFIX):
        remove(Path(tempfile.gettempdir()))


def remove_left() -> None:
    """Remove the temporary folders of processes that are dead."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        remove_unheld(folder)


def new_held(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, held until the descriptor is closed or this process ends."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):  # taken for a dead one's before it was held
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, held
            os.close(held)


def remove_unheld(folder: Path) -> None:
    """Remove a folder that no living process holds; another one, or none there, is left alone."""
    with suppress(OSError):  # held, another account's, or gone already
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
        finally:
            os.close(held)


# The folder of one job on a worker: the program that was sent, and where it is worked on.

CANDIDATE = "candidate.cu"

TEMPORARY = re.compile(rf"(?:/[\w.+-]+)*/{PREFIX}\w+")
"""A process's folder for temporary files (temporary.py)."""

TAKE_OVER_S = 30.0
"""How long we wait for an earlier attempt at the same job on this machine to be gone."""


class FolderTaken(Exception):
    """An earlier attempt at the same job on this machine does not end."""


class JobFolder:
    """Paths of one job, and what is written there before it is worked on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = root / "program"
        self.run = root / root.name

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Make the folder and hold it against another process at the same job.

        Raises FolderTaken where that one does not go away.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + TAKE_OVER_S
        with (self.root / ".lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise FolderTaken from None
                time.sleep(0.05)
            yield

    def write(self, request: ProgramRequest) -> Path:
        """Write what was sent, in place of whatever was there; the main file.

        Raises InputError where names collide or an include leaves the folder.
        """
        files = {request.filename: request.source, **request.files}
        if request.filename in request.files:
            raise InputError(f"files: {request.filename} is the name of the main file already")
        _write(self.program, files)
        candidate: str | None = getattr(request, "candidate", None)
        if candidate is not None:
            name = self.candidate_file(request).relative_to(self.root / "candidate").as_posix()
            if name in request.files:
                raise InputError(f"files: {name} is what the candidate is called here")
            _write(self.root / "candidate", {name: candidate, **request.files})
        return self.program / request.filename

    def candidate_file(self, request: ProgramRequest) -> Path:
        """Where the rewrite to judge stands."""
        return self.root / "candidate" / PurePosixPath(request.filename).with_name(CANDIDATE)

    def empty_run(self) -> None:
        """Remove what an earlier attempt left in the run folder."""
        remove(self.run)

    def remove_idle(self) -> None:
        """Remove everything, unless a process is at it."""
        with suppress(OSError), (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove()

    def remove(self) -> None:
        """Remove everything."""
        remove(self.root)


class JobTask(NamedTuple):
    """One attempt at a job, as a job's process sees it."""

    request: JobRequest
    folder: JobFolder
    settings: Settings
    executors: tuple[str, ...]
    """What this worker runs on: `cpu`, `cuda`."""
    attempt: int


def _write(folder: Path, files: dict[str, str]) -> None:
    check_includes(files)
    remove(folder)
    folder.mkdir(parents=True)
    inside = folder.resolve()
    for name, text in files.items():
        # The records have checked the names; this is the second lock on the same door.
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise InputError(f"files: {name} is not a path below the program's folder")
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise InputError(f"files: {name} is below a path that is itself a file") from None
        if not path.parent.resolve().is_relative_to(inside) or path.is_dir():
            raise InputError(f"files: {name} is not a path below the program's folder")
        path.write_text(text, encoding="utf-8", newline="")


class Scrub:
    """Takes the names of this machine's folders out of texts that a client will see."""

    def __init__(self, folder: JobFolder, cache: Path, builds: Path) -> None:
        # Not `/tmp` or `/usr`: an author may name those, and a source comes back as it was.
        places = {
            str(folder.run): "run",
            str(folder.program): "program",
            str(folder.root): ".",
            str(folder.root.parent): "<service>",
            str(cache.absolute()): "<cache>",
            str(builds): "<cache>",
            str(Path(cudaops.__file__).parent): "<cudaops>",
            sys.prefix: "<python>",
        }
        resolved = {str(Path(place).resolve()): name for place, name in places.items()}
        known = {**resolved, **places}
        known = {place: name for place, name in known.items() if place.count("/") > 1}
        # Longest first: a folder before the one that holds it.
        self._places = sorted(known.items(), key=lambda entry: -len(entry[0]))

    def __call__(self, text: str) -> str:
        """The text with every such folder by its role: `run/best.cu`, `<cache>/...`."""
        text = TEMPORARY.sub("<tmp>", text)
        for place, name in self._places:
            if place in text:
                below = "" if name == "." else f"{name}/"
                text = text.replace(f"{place}/", below).replace(place, name)
        return text


# What a job leaves for its owner: the run's own files, bounded, without this machine's paths.

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
            found.left_out.append(f"{name} ({size} bytes) is not among the artefacts: too large")
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
