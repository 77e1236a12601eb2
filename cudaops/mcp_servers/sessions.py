"""Sessions: the program that is open, what was judged of it, and where runs are.

One for the host that a server runs for, or one for each that talks to it over HTTP: bounded, and
cleared when idle. Programs that come as texts are written below its folder, and read nothing
else.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_access_token, get_context
from pydantic import Field

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Judgement
from cudaops.domain.options import KernelOptions
from cudaops.errors import InputError
from cudaops.program.given import check_includes
from cudaops.sandbox.workbench import Workbench

OpenProgram = Callable[[Path, KernelOptions], Workbench]
"""Path of a `.cu`, name of the kernel or None, arguments for the program."""

NOTHING_OPEN = (
    "no program is open: call open_program first, with the path of a .cu file, or with its text: "
    'open_program(source="#include <cstdio>\\n__global__ void ...")'
)
NO_PATHS = (
    "this server opens no path: call open_program with the program's text in `source`, and its "
    'quoted headers in `files`: open_program(source="...", files={"tile.cuh": "..."})'
)


class JudgedRewrite(NamedTuple):
    """One rewrite as it was judged."""

    evaluation: Evaluation
    judgement: Judgement


class OpenBench(NamedTuple):
    """An open program and what was judged of it: together, or a decision on one program could be
    taken for one on the next."""

    bench: Workbench
    decided: dict[str, JudgedRewrite]
    """By the rewrite's id."""


class SessionProvider(Protocol):
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
        self._open = None if bench is None else OpenBench(bench, {})
        self.folder = folder
        self._on_close = on_close
        self._closed_before = closed_before
        self._lock = threading.Lock()
        self._texts_written = 0
        self.runs = runs
        self.paths = paths

    def current(self) -> Session:
        """Itself: whoever calls has this session."""
        return self

    @property
    def open_bench(self) -> OpenBench:
        """The open program. Raises InputError where none is open yet."""
        found = self._open
        if found is None:
            before = "" if self._closed_before is None else f"{self._closed_before}; "
            raise InputError(f"{before}{NOTHING_OPEN}")
        return found

    @property
    def bench(self) -> Workbench:
        """Its workbench. Raises as `open_bench` does."""
        return self.open_bench.bench

    def open(self, path: Path, options: KernelOptions) -> OpenBench:
        """Open a program in place of the present one, which nothing here holds any more then: its
        bench lives as long as calls that began on it.

        Raises InputError with a line that says what to change where it cannot be opened, and
        EnvironmentFailure.
        """
        if not self.paths:
            raise InputError(NO_PATHS)
        return self._open_at(path, options)

    def open_text(self, texts: ProgramTexts, options: KernelOptions) -> OpenBench:
        """The same for a program that comes as texts; nothing else of this machine is read."""
        return self._open_at(self.written(texts), options)

    def written(self, texts: ProgramTexts) -> Path:
        """The main file of the texts, in a folder of their own below the session's.

        Raises InputError where one of them points outside.
        """
        if self.folder is None:
            raise InputError("this server accepts no program text; give `path` of a .cu file")
        with self._lock:
            self._texts_written += 1
            folder = self.folder / f"source-{self._texts_written}"
        return write_texts(folder, texts)

    def close(self) -> None:
        """Remove what is kept for it, the open program too. Twice is fine."""
        self._open = None
        if self._on_close is not None:
            self._on_close()

    def _open_at(self, path: Path, options: KernelOptions) -> OpenBench:
        if self._open_program is None:
            raise InputError("this server was started for one program and cannot open another")
        with self._lock:
            self._open = OpenBench(self._open_program(path, options), {})
            return self._open


MOST_SESSIONS = 8
"""Programs open at once. Chosen: one keeps up to some 150 MB of captured buffers on disk, and on a
GPU a few runners with a context each; both go when another is opened in its place."""
IDLE_S = 3600.0
"""A session that nobody used for an hour is closed."""
SWEEP_S = 30.0
"""How often is looked for such sessions, and for those whose host has said good-bye."""

Key = tuple[str, str]
"""Whose token, and the MCP session's id."""


@dataclass
class _Held:
    """A session and when it was last used."""

    session: Session
    used_at: float


class SessionPool:
    """Sessions by MCP session. The least recently used one that is not at work makes room."""

    def __init__(
        self,
        new_session: Callable[[str | None], Session],
        *,
        most: int = MOST_SESSIONS,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`new_session` makes an empty one, and is told why the caller's last one is gone."""
        self._new = new_session
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._held: dict[Key, _Held] = {}
        self._calls: Counter[Key] = Counter()
        self._closed: dict[Key, str] = {}
        self._gone: deque[Key] = deque()
        self._lock = threading.RLock()

    def current(self) -> Session:
        """The session of the request that is being answered."""
        return self._hold(self._key()).session

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While a tool is called: the caller's session, where there is one, is not closed."""
        key = self._key()
        with self._lock:
            self._calls[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[key] -= 1
                if not self._calls[key]:
                    del self._calls[key]
                if key in self._held:
                    self._held[key].used_at = self._clock()

    @property
    def size(self) -> int:
        """Sessions that are open."""
        return len(self._held)

    def sweep(self) -> None:
        """Close what is idle, or whose host has gone."""
        with self._lock:
            over = self._over()
        _close(over)

    def close(self) -> None:
        """Close every session."""
        with self._lock:
            over = [self._take(key, "the server has ended") for key in list(self._held)]
        _close(over)

    @asynccontextmanager
    async def lifespan(self, _: FastMCP) -> AsyncIterator[None]:
        """Sweeps while the server runs, and closes everything with it."""

        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP_S)
                await asyncio.to_thread(self.sweep)

        sweeping = asyncio.create_task(sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            self.close()

    def _hold(self, key: Key) -> _Held:
        over: list[Session | None] = []
        with self._lock:
            held = self._held.get(key)
            if held is None:
                over = [*self._over(), self._make_room()]
                held = _Held(self._new(self._closed.pop(key, None)), self._clock())
                self._held[key] = held
                with suppress(RuntimeError):
                    weakref.finalize(get_context().session, self._gone.append, key)
            held.used_at = self._clock()
        _close(over)
        return held

    def _over(self) -> list[Session | None]:
        """Take out what is idle, or whose host has gone."""
        over = []
        while self._gone:
            over.append(self._take(self._gone.popleft(), "its host has disconnected"))
        now, minutes = self._clock(), round(self._idle_s / 60)
        for key, held in list(self._held.items()):
            if key not in self._calls and now - held.used_at > self._idle_s:
                why = f"your program was closed after {minutes} idle minutes"
                over.append(self._take(key, why))
        return over

    def _make_room(self) -> Session | None:
        """Take out the one that was used least lately, where there is no room for another."""
        if len(self._held) < self._most:
            return None
        idle = [key for key in self._held if key not in self._calls]
        if not idle:
            raise InputError(
                f"{self._most} other hosts use this server, which is its limit: "
                "call again in a minute"
            )
        oldest = min(idle, key=lambda key: self._held[key].used_at)
        return self._take(oldest, "your program was closed to make room for another host's")

    def _take(self, key: Key, why: str) -> Session | None:
        """Out of what is held; whoever holds the lock closes it after."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._closed[key] = why
        while len(self._closed) > 100 * self._most:
            self._closed.pop(next(iter(self._closed)))
        return held.session

    @staticmethod
    def _key() -> Key:
        token = get_access_token()
        return (token.client_id if token else "anyone", get_context().session_id)


def _close(sessions: list[Session | None]) -> None:
    """Folders and runners take a moment to go: not while others wait for the pool."""
    for session in sessions:
        if session is not None:
            session.close()


MAX_TEXT_CHARS = 400_000
"""Longest text, in characters; the service takes as much."""
MAX_FILES = 64
"""Most local headers of one program; the service takes as many."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")

SourceProgram = Annotated[
    str | None,
    Field(
        max_length=MAX_TEXT_CHARS,
        description="Text of a whole CUDA program with a main(), instead of `path`.",
    ),
]
FileName = Annotated[
    str, Field(max_length=100, description="File name of `source`; names results.")
]
HeaderTexts = Annotated[
    dict[str, str],
    Field(
        max_length=MAX_FILES,
        description="The quoted headers of `source`: relative path to text, `tile.cuh`.",
    ),
]


class ProgramTexts(NamedTuple):
    """A program without a file."""

    source: str
    filename: str = "program.cu"
    files: Mapping[str, str] = {}


def write_texts(folder: Path, texts: ProgramTexts) -> Path:
    """Write the program below `folder`, which is made; path of its main file.

    Raises InputError where a name or a quoted include leads anywhere else.
    """
    _check_name(texts.filename)
    if "/" in texts.filename or not texts.filename.endswith((".cu", ".cuh")):
        raise InputError(f"filename {texts.filename!r}: name a .cu file without a folder, `mm.cu`")
    every = {texts.filename: texts.source, **texts.files}
    if sum(len(text) for text in every.values()) > MAX_TEXT_CHARS:
        raise InputError(
            f"`source` and `files` are longer than {MAX_TEXT_CHARS:,} characters together; remove "
            "what the kernel does not need"
        )
    for name in every:
        _check_name(name)
    check_includes(every)
    for name, text in every.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return folder / texts.filename


def _check_name(name: str) -> None:
    if len(name) > 300 or not all(_PART.fullmatch(part) for part in name.split("/")):
        raise InputError(
            f"{name[:80]!r} cannot be a file's name here: letters, digits and `_.+-`, relative, "
            "no part beginning with a dot, `include/tile.cuh`"
        )
