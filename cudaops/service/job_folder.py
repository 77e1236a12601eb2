"""The folder of one job on a worker: the program that was sent, and where it is worked on.

    ID/program/      the sources, and where the program runs
    ID/candidate/    the rewrite to judge, where the main file would be among a copy of the headers
    ID/ID/           the run folder

What leaves it names no place of this machine.
"""

from __future__ import annotations

import fcntl
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import cudaops
from cudaops.errors import InputError
from cudaops.executors.untrusted_files import remove
from cudaops.program.given import check_includes
from cudaops.service.records import JobRequest, ProgramRequest
from cudaops.service.temporary import PREFIX
from cudaops.settings import Settings

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


class Task(NamedTuple):
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
            raise InputError(f"files: {name} lies below what is a file itself") from None
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
