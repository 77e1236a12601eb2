"""What the servers share: the program that is open, what was judged of it, and where runs are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from cudaops.domain.judgement import Judgement
from cudaops.errors import InputError
from cudaops.mcp_servers.sources import ProgramTexts, write_texts
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.workbench import Workbench

OpenProgram = Callable[[Path, str | None, tuple[str, ...]], Workbench]
"""Path of a `.cu`, name of the kernel or None, arguments for the program."""

NOTHING_OPEN = (
    "no program is open: call open_program first, with the path of a .cu file, or with its text: "
    'open_program(source="#include <cstdio>\\n__global__ void ...")'
)
NO_PATHS = (
    "this server opens no path: call open_program with the program's text in `source`, and its "
    'quoted headers in `files`: open_program(source="...", files={"tile.cuh": "..."})'
)


class Decision(NamedTuple):
    """One rewrite as it was judged."""

    evaluation: Evaluation
    judgement: Judgement


class Opened(NamedTuple):
    """An open program and what was judged of it: together, or a decision on one program could be
    taken for one on the next."""

    bench: Workbench
    decided: dict[str, Decision]
    """By the rewrite's id."""


class Seat(Protocol):
    """Gives the session of whoever calls a tool."""

    def current(self) -> Session:
        """The caller's session, made where there is none. Raises InputError where there is no room
        for another."""


class Session:
    """One open program. The servers that one host talks to share it, so that what one profiles is
    what the other judges."""

    def __init__(
        self,
        open_program: OpenProgram | None = None,
        bench: Workbench | None = None,
        *,
        folder: Path | None = None,
        runs: Path | None = None,
        paths: bool = True,
        on_close: Callable[[], None] | None = None,
        closed_before: str | None = None,
    ) -> None:
        """
        Args:
            folder: Where programs that come as texts are written; None: they cannot.
            runs: Folder with the runs that may be read; None: none.
            paths: Whether a path of this machine may be opened.
            on_close: Clears up.
            closed_before: Why the same caller's last session is gone.
        """
        self._open_program = open_program
        self._open = None if bench is None else Opened(bench, {})
        self.folder = folder
        self._on_close = on_close
        self._closed_before = closed_before
        self._lock = threading.Lock()
        self._opened = 0
        self.runs = runs
        self.paths = paths

    def current(self) -> Session:
        """Itself: whoever calls has this session."""
        return self

    @property
    def opened(self) -> Opened:
        """The open program. Raises InputError where none is open yet."""
        found = self._open
        if found is None:
            before = "" if self._closed_before is None else f"{self._closed_before}; "
            raise InputError(f"{before}{NOTHING_OPEN}")
        return found

    @property
    def bench(self) -> Workbench:
        """Its workbench. Raises as `opened` does."""
        return self.opened.bench

    def open(self, path: Path, kernel: str | None, argv: tuple[str, ...]) -> Opened:
        """Open a program in place of the present one, which nothing here holds any more then: its
        bench lives as long as calls that began on it.

        Raises InputError with a line that says what to change where it cannot be opened, and
        EnvironmentFailure.
        """
        if not self.paths:
            raise InputError(NO_PATHS)
        return self._opened_at(path, kernel, argv)

    def open_text(self, texts: ProgramTexts, kernel: str | None, argv: tuple[str, ...]) -> Opened:
        """The same for a program that comes as texts; nothing else of this machine is read."""
        return self._opened_at(self.written(texts), kernel, argv)

    def written(self, texts: ProgramTexts) -> Path:
        """The main file of the texts, in a folder of their own below the session's.

        Raises InputError where one of them points outside.
        """
        if self.folder is None:
            raise InputError("this server takes no text of a program; give `path` of a .cu file")
        with self._lock:
            self._opened += 1
            folder = self.folder / f"source-{self._opened}"
        return write_texts(folder, texts)

    def close(self) -> None:
        """Remove what is kept for it, the open program too. Twice is fine."""
        self._open = None
        if self._on_close is not None:
            self._on_close()

    def _opened_at(self, path: Path, kernel: str | None, argv: tuple[str, ...]) -> Opened:
        if self._open_program is None:
            raise InputError("this server was started for one program and cannot open another")
        with self._lock:
            self._open = Opened(self._open_program(path, kernel, argv), {})
            return self._open
