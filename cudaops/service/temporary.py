"""Folders of processes that may be killed, so that what these leave can be removed.

A process holds a lock on its folder for as long as it lives. A folder that nobody holds is of a
dead one, in whatever container its number was.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from cudaops.executors.untrusted_files import remove

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
