"""Folders of builds by content: built once, by one process at a time, whoever asks."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu_cache import used
from cudaops.sandbox.executors.cpu_toolchain import locked
from cudaops.sandbox.process import raise_for_space

FACTS = "build.json"
"""Written last: a folder without it is not finished."""
TEMPORARY = "tmp"
"""Compilers put their intermediate files here, so that a killed one leaves nothing elsewhere."""

FACTS_FORMAT = 2
"""Counts up when more is noted of a build, so that older notes are not taken for whole. 2: the
rewrite's own device variables."""


class Entry(NamedTuple):
    """A folder of the cache. Sources are compiled where they stay: line tables name the folder."""

    key: str
    folder: Path

    def facts(self) -> dict[str, Any] | None:
        """What was noted of a finished build; None where there is none."""
        try:
            found = json.loads((self.folder / FACTS).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        used(self.folder)
        return found if isinstance(found, dict) else None

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Note what was built. From now on every process sees a finished build."""
        shutil.rmtree(self.folder / TEMPORARY, ignore_errors=True)
        part = self.folder / f"{FACTS}.part"
        part.write_text(json.dumps(facts), encoding="utf-8")
        part.replace(self.folder / FACTS)


def entry_of(cache: Path, *content: object) -> Entry:
    """The folder for this content: everything that changes what is built."""
    key = hashlib.sha256(repr((FACTS_FORMAT, *content)).encode()).hexdigest()[:24]
    return Entry(key, cache / key)


@contextmanager
def building(entry: Entry, files: Mapping[str, str]) -> Iterator[None]:
    """Hold the folder alone, with these files in it and a temporary folder.

    Raises SandboxUnavailable where there is no space or no permission.
    """
    with locked(entry.folder):
        try:
            (entry.folder / TEMPORARY).mkdir(exist_ok=True)
            for path, text in files.items():
                target = entry.folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
            yield
        except OSError as problem:
            raise_for_space(problem, f"compiling in {entry.folder.parent}")
            raise SandboxUnavailable(
                f"cannot write to {entry.folder}: {problem.strerror}",
                "choose another cache folder",
            ) from problem
        finally:
            shutil.rmtree(entry.folder / TEMPORARY, ignore_errors=True)
