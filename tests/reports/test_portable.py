"""A recording to give away names no folder of the machine it was made on, holds no key, and is
replayed like the run itself; the one in examples/ is such a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.models.journal import CallEntry, Journal
from cudaops.reports.recording import (
    KEYS,
    REMOVED,
    Portable,
    RecordedTool,
    RunRecording,
    portable,
    read_recording,
)
from cudaops.reports.replay import steps_of
from tests.reports import recordings

RECORDED = Path(__file__).parents[2] / "examples" / "recorded"
LARGEST = 200_000
"""Bytes of a recording in the repository: every clone carries it."""


def made(
    recording: RunRecording, *, prompts: bool = False, secrets: tuple[str, ...] = ()
) -> Portable:
    return portable(recording, prompts=prompts, home="/home/dev", secrets=secrets)


def written(files: dict[str, str], folder: Path) -> RunRecording:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return read_recording(folder)


def moved(recording: RunRecording, message: str, **options: str) -> RunRecording:
    """The recording with other options and another first message."""
    assert recording.record is not None
    asked = recording.record.options.model_copy(update=options)
    record = recording.record.model_copy(update={"options": asked})
    first = recording.events[0].model_copy(update={"message": message})
    events = (first, *recording.events[1:])
    return recording._replace(record=record, options=asked, events=events)


def test_a_copy_is_replayed_like_the_run(tmp_path: Path) -> None:
    recording = read_recording(recordings.write(tmp_path / "run"))
    copy = written(made(recording).files, tmp_path / "copy")
    assert copy.damage == ()
    assert [s[:3] for s in steps_of(copy)] == [s[:3] for s in steps_of(recording)]
    assert copy.iterations == recording.iterations
    assert copy.events == recording.events
    again = made(copy)
    assert again.files == made(recording).files, "a copy of a copy is the same"


def test_prompts_stay_at_home_unless_asked_for(tmp_path: Path) -> None:
    recording = read_recording(recordings.write(tmp_path / "run"))
    without = made(recording).files
    assert not any(
        text in "".join(without.values())
        for text in (recordings.SYSTEM, "Then through registers", "__global__ void k()")
    )
    with_prompts = made(recording, prompts=True).files
    assert recordings.SYSTEM in with_prompts["state/calls/0001-planner.json"]
    assert "Then through registers" in with_prompts["state/calls/0002-tool.json"]
    for files in (without, with_prompts):
        entry = CallEntry.model_validate_json(files["state/calls/0003-coder.json"])
        assert entry.answer == recordings.ANSWER
        copy = written(files, tmp_path / str(len(files["state/calls/0001-planner.json"])))
        journal = Journal(copy.folder / "state" / "calls")
        assert (len(journal.calls), journal.damaged) == (2, ()), "a journal still"
        assert copy.damage == ()
        told = copy.calls[1]
        assert isinstance(told, RecordedTool)
        assert told.characters == len(recordings.NOTE)
    said = json.loads(without["state/calls/0001-planner.json"])["messages"]
    assert said[0] == {"role": "system", "withheld_characters": len(recordings.SYSTEM)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/w/proj/runs/k/1/work/x/candidate.cu:3: error", "work/x/candidate.cu:3: error"),
        ("in /w/proj/src/k.cu", "in src/k.cu"),
        ("in /w/proj, then", "in ., then"),
        ("'/w/proj'", "'.'"),
        ("/home/dev/.cache/cudaops/a", "~/.cache/cudaops/a"),
        ("/w/project/a and x/w/proj/a", "/w/project/a and x/w/proj/a"),
        ("/usr/include/c++/12/cmath:4", "/usr/include/c++/12/cmath:4"),
    ],
)
def test_folders_of_the_machine_become_relative(tmp_path: Path, before: str, after: str) -> None:
    recording = moved(
        read_recording(recordings.write(tmp_path / "run")),
        before,
        source="/w/proj/src/k.cu",
        working_folder="/w/proj",
        out="/w/proj/runs/k/1",
    )
    copy = written(made(recording).files, tmp_path / "copy")
    assert copy.events[0].message == after
    assert copy.record is not None
    where = copy.record.options
    assert (where.source, where.working_folder, where.out) == ("src/k.cu", ".", ".")


def test_keys_are_removed_and_other_paths_said(tmp_path: Path) -> None:
    key = "nvapi-" + "a1B2-c3_D4" * 4
    recording = moved(
        read_recording(recordings.write(tmp_path / "run")),
        f"sent {key} and hunter2hunter2; see /tmp/cudaops-crash-1.txt",
    )
    copy = made(recording, secrets=("hunter2hunter2", ""))
    assert copy.keys_removed == 2
    assert f"sent {REMOVED} and {REMOVED}; see" in copy.files["events.jsonl"]
    assert "/tmp/cudaops-crash-1.txt" in copy.paths_left


def test_an_unfinished_run_is_portable_too(tmp_path: Path) -> None:
    recording = read_recording(recordings.write(tmp_path / "run", finished=False))
    copy = written(made(recording).files, tmp_path / "copy")
    assert copy.record is None
    assert copy.options is not None
    assert steps_of(copy)[-1].kind == "end"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dialogues/histogram256", "examples/recorded/programs/histogram256.cu"),
        ("dialogues/invert8", "examples/recorded/programs/invert8.cu"),
    ],
)
def test_the_examples_are_whole_small_and_tell_of_no_machine(name: str, source: str) -> None:
    files = [path for path in (RECORDED / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    recording = read_recording(RECORDED / name)
    assert recording.damage == ()
    assert recording.record is not None
    assert recording.iterations
    assert recording.patch
    for path in files:
        text = path.read_text("utf-8")
        assert KEYS.search(text) is None, path
    assert made(recording).paths_left == ()
    options = recording.record.options
    assert (options.source, options.working_folder, options.out) == (source, ".", ".")
    assert recording.record.outcome in ("accepted", "provisional")
