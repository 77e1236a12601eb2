"""events.jsonl survives a kill in the middle of a line and goes on counting; what `data` holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from cudaops.domain.judgement import Gate
from cudaops.domain.run import Event, TriedConfiguration
from cudaops.graph.events import EventLog, provenance, read_events, stage_data
from cudaops.graph.state import State


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


def test_progress_is_an_event_with_its_line_and_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    say = EventLog(path, lambda _: None).announcing("explore", "optimizer", "branch 3: ", title="t")
    say(TriedConfiguration(values={"BM": 64, "BN": -1}, time_us=199.44, provenance=" (modelled)"))
    say(Gate(name="checker", passed=False, summary="a: tried b: 3 us"))
    say(Gate(name="checker", passed=False, quarantined=True, summary="x"))
    say(Gate(name="repeat", passed=True, summary="x"))
    say("it does not compile: x.cu:1:1: `passed: ` is not declared")
    told = [(event.message, event.data) for event in read_events(path)]
    assert told == [
        (
            "branch 3: tried BM=64, BN=-1: 199.4 us (modelled)",
            {"values": {"BM": 64, "BN": -1}, "time_us": 199.4, "title": "t"},
        ),
        (
            "branch 3: checker FAILED: a: tried b: 3 us",
            {"gate": "checker", "outcome": "failed", "title": "t"},
        ),
        (
            "branch 3: checker QUARANTINED: x",
            {"gate": "checker", "outcome": "quarantined", "title": "t"},
        ),
        (
            "branch 3: repeat passed: x",
            {"gate": "repeat", "outcome": "passed", "title": "t"},
        ),
        ("branch 3: it does not compile: x.cu:1:1: `passed: ` is not declared", {}),
    ]


def test_a_modelled_number_says_so_and_a_measured_one_needs_no_words() -> None:
    assert provenance("modelled", "A10") == "modelled for A10"
    assert provenance("cuda_event", "A10") == ""


def test_a_stage_that_found_nothing_says_nothing() -> None:
    nothing = {"proposal": None, "reason": "no further recipe applies"}
    assert stage_data("optimizer", cast(State, nothing)) == {}
    assert stage_data("research", {}) == {}
    json.dumps(stage_data("supervisor", {"decision": "profile"}))
