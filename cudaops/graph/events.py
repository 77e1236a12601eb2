"""events.jsonl: one line an event, written before the next thing happens."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudaops.domain.run import AgentName, Event

OnEvent = Callable[[Event], None]


def utc_now() -> str:
    """ISO 8601 with milliseconds, UTC."""
    return (
        datetime.datetime.now(datetime.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


class EventLog:
    """Appends events to a file and hands each to a listener. A resumed run continues the file."""

    def __init__(self, path: Path, on_event: OnEvent) -> None:
        self._path = path
        self._on_event = on_event
        self._lock = threading.RLock()  # a listener may emit
        self._seq = _count_lines(path)

    def emit(
        self,
        stage: str,
        agent: AgentName,
        kind: str,
        message: str,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Write one event and flush it to the file."""
        with self._lock:
            event = Event.model_validate(
                {
                    "seq": self._seq,
                    "time": utc_now(),
                    "stage": stage,
                    "agent": agent,
                    "kind": kind,
                    "message": message,
                    "data": data or {},
                }
            )
            self._seq += 1
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(event.model_dump_json() + "\n")
            self._on_event(event)


def _count_lines(path: Path) -> int:
    """Whole lines in the file; a line that a kill cut short is ended, so that the next is whole."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("ab") as stream:
            stream.write(b"\n")
    return len(data.splitlines())


def read_events(path: Path) -> list[Event]:
    """All whole events of a file; a line that a kill cut short is left out."""
    events = []
    for line in path.read_text("utf-8").splitlines():
        try:
            events.append(Event.model_validate_json(line))
        except ValueError:
            continue
    return events
