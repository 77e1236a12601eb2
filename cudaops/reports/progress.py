"""Progress, live or replayed: one line an event, who is at work and what was found, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from cudaops.domain.run import Event
from cudaops.reports.quantities import one_line

_STYLES = {"finished": "", "progress": "dim", "started": "dim", "notice": "yellow", "failed": "red"}
_AGENT_WIDTH = 10
_MOST_CHARACTERS = 200
"""Of a message; events.jsonl has the rest."""


class Progress:
    """Prints events to a console. On a terminal a spinner stands for the agent at work; elsewhere
    every event is a plain line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without the spinner, while a person is asked."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def __call__(self, event: Event, seconds: float | None = None) -> None:
        """Show one event. `seconds`: since the run began; None: since this began to show it."""
        if event.kind == "started" and self._status is not None:
            self._status.update(Text(f"{event.agent}: {one_line(event.message, 120)}"))
            return
        elapsed = time.monotonic() - self._began if seconds is None else seconds
        message = one_line(event.message, _MOST_CHARACTERS)
        line = stamped(elapsed, event.agent, message, _STYLES[event.kind])
        self._console.print(line, soft_wrap=True)


def stamped(seconds: float, who: str, line: str, style: str) -> Text:
    """One line of progress: when, who, what."""
    return Text.assemble(
        (f"{seconds:7.1f} s  ", "dim"), (f"{who:<{_AGENT_WIDTH}}  ", "cyan"), (line, style)
    )
