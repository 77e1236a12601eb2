"""events.jsonl survives a kill in the middle of a line and goes on counting."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.run import Event
from cudaops.graph.events import EventLog, read_events


def test_events_are_on_disk_before_the_listener_hears_of_them(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    seen: list[int] = []

    def listener(event: Event) -> None:
        seen.append(len(path.read_text().splitlines()))

    log = EventLog(path, listener)
    log.emit("profiler", "profiler", "started", "a")
    log.emit("profiler", "profiler", "finished", "b", {"seconds": 1.0})
    assert seen == [1, 2]
    assert [(e.seq, e.kind) for e in read_events(path)] == [(0, "started"), (1, "finished")]


def test_a_resumed_run_continues_a_file_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path, lambda _: None).emit("intake", "intake", "started", "a")
    with path.open("a") as stream:
        stream.write('{"seq": 1, "time": "20')
    EventLog(path, lambda _: None).emit("intake", "intake", "finished", "b")
    events = read_events(path)
    assert [e.message for e in events] == ["a", "b"]
    assert [e.seq for e in events] == [0, 2]
