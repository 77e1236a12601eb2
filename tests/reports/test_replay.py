"""A recorded run is shown in the order and at the pace in which it happened; nothing that stands in
it acts on a terminal, and what cannot be read is said."""

from __future__ import annotations

import io
import json
import re
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from cudaops.domain.run import Event
from cudaops.errors import InputError
from cudaops.reports.recording import RunRecording, read_recording
from cudaops.reports.replay import ReplayStep, json_line, of_iteration, paced, show, steps_of
from cudaops.reports.terminal import Progress
from tests.lanes import examples
from tests.reports import recordings

ASKED = ["model_call", "tool_result", "model_call"]


def shown(recording: RunRecording, *, prompts: bool = False, width: int = 100) -> str:
    """Everything as a terminal without colours would have it."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    show(recording, steps_of(recording), console, prompts=prompts)
    return stream.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunRecording:
    return read_recording(recordings.write(tmp_path_factory.mktemp("runs") / "run"))


def test_steps_are_in_order_and_a_kill_takes_no_time(finished: RunRecording) -> None:
    steps = steps_of(finished)
    kinds = [step.kind for step in steps if step.kind != "event"]
    assert kinds == ["run", *ASKED, "iteration", "iteration", "patch", "end"]
    timed = [step.seconds for step in steps if step.seconds is not None]
    assert timed == sorted(timed)
    # 21 s until the kill, 11 s after the resumption: the two days between do not count.
    assert timed[-1] == 32.0
    planner = next(step for step in steps if step.kind == "model_call")
    assert planner.seconds == 12.5, "a call stands where its answer came"
    before = steps[steps.index(planner) - 1]
    assert "writing and tuning" in str(before.content)


def test_each_candidate_stands_after_its_judgement(finished: RunRecording) -> None:
    steps = steps_of(finished)
    for number in (1, 2):
        judged = next(s for s in steps if s.kind == "iteration" and s.iteration == number)
        assert f"iteration {number}:" in str(steps[steps.index(judged) - 1].content)
    with pytest.raises(InputError, match="--iteration 3: not in this recording, which has 1, 2"):
        of_iteration(steps, 3)
    second = of_iteration(steps, 2)
    assert [s.kind for s in second] == ["run", *["event"] * 3, "iteration", "event", "patch"]
    assert "best so far" in str(second[5].content), "what was kept belongs to its candidate"


def test_everything_of_a_candidate_is_shown(finished: RunRecording) -> None:
    text = flat(shown(finished))
    for wanted in (
        "Candidate 1: rejected", "Candidate 2: provisional", "Limited by L1 load throughput",
        "family tiling", f"llm:{recordings.MODEL}",
        "candidate_rel_l2 1.200e-07", "speedup: 1.01 < 1.2", "larger tiles help",
        "What it changes", "-slow();", "PROVISIONAL", "Language model",
        "13,624 tokens in (5,900 cached), 1,302 out, $0.006, 14.2 s", "$0.40 in",
        "Recipes proposed instead: --max-cost 0.01 is spent", "no price known",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "+   fast();" in shown(finished)
    lines = [json.loads(json_line(step, prompts=False)) for step in steps_of(finished)]
    second = [line for line in lines if line["kind"] == "iteration"][1]
    assert second["verdict"].startswith("Limited by L1 load throughput")
    assert second["why"].startswith("each operand is loaded once a tile")
    assert [trial["time_us"] for trial in second["trials"]] == [240.0, 223.0, None]
    assert second["trials"][2]["failure"] == "too much shared memory"
    assert second["attempt"]["tuned"] == {"BM": 128}


def test_events_are_printed_as_the_run_printed_them(finished: RunRecording) -> None:
    stream = io.StringIO()
    live = Progress(Console(file=stream, width=100, highlight=False))
    for step in steps_of(finished):
        if isinstance(step.content, Event):
            live(step.content)
    printed = [line[11:] for line in stream.getvalue().splitlines()]
    assert len(printed) == len(finished.events)
    replayed = iter(line[11:] for line in shown(finished).splitlines())
    assert all(line in replayed for line in printed), "every line is there, in its order"


def test_prompts_are_sizes_unless_asked_for(finished: RunRecording) -> None:
    text = flat(shown(finished))
    assert "coder (01) asks nvidia/" in text
    assert "2 requests; 429, asked again" in text
    called = len('read_note {"note": "l1-load-throughput"}')
    sizes = f"system {len(recordings.SYSTEM)}, human {len(recordings.HUMAN)}"
    assert f"asked, in characters: {sizes} answered:" in text
    assert f"asked, in characters: {sizes}, ai {called}, tool {len(recordings.NOTE)}" in text
    assert "You write CUDA kernels." not in text
    assert "line 8" in text
    assert "line 9" not in text
    assert "12 more lines: --prompts shows them" in text
    whole = flat(shown(finished, prompts=True))
    assert "You write CUDA kernels." in whole
    assert "line 19" in whole
    assert "read_note (01) tells the model 51 characters Tile through shared memory." in whole
    lines = [json.loads(json_line(s, prompts=False)) for s in steps_of(finished)]
    messages = next(line["messages"] for line in lines if line["kind"] == "model_call")
    assert messages[0] == {"role": "system", "characters": 23}


def test_pace_is_the_recorded_one_divided_by_speed(finished: RunRecording) -> None:
    waits: list[float] = []
    steps = steps_of(finished)
    assert list(paced(steps, 2.0, waits.append)) == steps
    assert sum(waits) == pytest.approx(16.0)
    waits.clear()
    assert len(list(paced(of_iteration(steps, 2), 1.0, waits.append))) == 7
    assert sum(waits) == pytest.approx(5.0), "the way to the second candidate alone"
    assert list(paced(steps, None, waits.append)) == steps
    far = [ReplayStep("event", 0.0, 1, None), ReplayStep("event", 1e12, 1, None)]  # type: ignore[arg-type]
    waits.clear()
    list(paced(far, 1e-300, waits.append))
    assert waits == [3600.0], "a clock that was set forward stops nobody"


def test_json_is_one_ascii_object_a_step(finished: RunRecording) -> None:
    for step in steps_of(finished):
        line = json_line(step, prompts=True)
        assert re.fullmatch(r"[ -~]+", line)
        assert json.loads(line)["kind"] == step.kind
    end = json.loads(json_line(steps_of(finished)[-1], prompts=False))
    assert end["finished"] is True
    assert end["outcome"] == "provisional"
    assert end["verify"]["speedup"] == 5.561
    assert end["model"]["calls"] == 2


def test_a_killed_run_is_shown_as_far_as_it_got(tmp_path: Path) -> None:
    recording = read_recording(recordings.write(tmp_path / "run", finished=False))
    text = flat(shown(recording))
    assert "The recording ends here: the run was killed, or is still under way." in text
    assert "sandbox was at it: compiling, verifying and timing it." in text
    assert "times modelled for A10" in text
    steps = steps_of(recording)
    assert [s.kind for s in steps if s.kind != "event"] == ["run", *ASKED, "end"]
    assert json.loads(json_line(steps[-1], prompts=False))["under_way"] == "sandbox"


def test_the_last_line_cut_at_every_byte(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run", finished=False)
    path = folder / "events.jsonl"
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(start, len(whole) + 1):
        path.write_bytes(whole[:end])
        recording = read_recording(folder)
        complete = end >= len(whole) - 1
        assert len(recording.events) == (8 if complete else 7)
        cut = [] if complete or end == start else ["events.jsonl, line 8: cut short"]
        assert [damage.text for damage in recording.damage] == cut
        assert steps_of(recording)[-1].kind == "end"


def test_a_damaged_line_is_skipped_and_said(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"seq": 2, "agent": "\xff\x1b[31m"}\n'
    lines[3] = b"[" * 100_000 + b"\n"
    path.write_bytes(b"".join(lines) + b"\n")
    (folder / "iterations" / "01" / "trials.json").write_text('{"a": 1}')
    (folder / "iterations" / "02" / "attempt.json").write_text("{")
    calls = folder / "state" / "calls"
    (calls / "0001-planner.json").write_text("[1]")
    (calls / "0003-coder.json").write_text('{"call": {}}')
    (calls / ".0004-coder.json.tmp").write_text("{")
    recording = read_recording(folder)
    assert len(recording.events) == len(lines) - 2
    assert {damage.file for damage in recording.damage} == {
        "events.jsonl", "iterations/01/trials.json", "iterations/02/attempt.json",
        "state/calls/0001-planner.json", "state/calls/0003-coder.json",
        "state/calls/.0004-coder.json.tmp",
    }  # fmt: skip
    text = shown(recording)
    assert "not readable: events.jsonl, line 3:" in text
    assert "Candidate 2: provisional" in text, "run.json has the attempt as well"


def test_a_record_of_another_version_is_left_out(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    (folder / "run.json").write_text('{"run_id": 1}')
    recording = read_recording(folder)
    assert recording.record is None
    assert "run.json" in recording.damage[0].text
    assert "Candidate 1: rejected" in shown(recording)


def test_a_folder_without_a_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run to replay: no run\.json, no event$"):
        read_recording(tmp_path)
    (tmp_path / "events.jsonl").write_text("{\n")
    with pytest.raises(InputError, match=r"no event \(events.jsonl, line 1: "):
        read_recording(tmp_path)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u200b\x00\x7f[red]\r\b"


def test_no_recorded_text_acts_on_a_terminal(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    keep = {"kind", "time", "stage", "agent", "outcome", "source", "time_source", "started", "role"}
    keep |= {"name", "bottleneck_class", "bound", "executor", "optimizer", "comparison", "unit"}
    keep |= {"strategy", "ncu_clock_control", "correctness", "warm_ups"}

    def poisoned(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {k: poisoned(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [poisoned(inner, key) for inner in value]
        known = key in keep or "policy" in key or not isinstance(value, str)
        return value if known else f"{value}{HOSTILE}"

    for path in folder.rglob("*.json"):
        path.write_text(json.dumps(poisoned(json.loads(path.read_text()))))
    lines = (folder / "events.jsonl").read_text().splitlines()
    told = [json.dumps(poisoned(json.loads(line))) for line in lines]
    (folder / "events.jsonl").write_text("\n".join(told) + "\n")
    (folder / "best.patch").write_text(recordings.PATCH + HOSTILE)
    recording = read_recording(folder)
    assert recording.record is not None
    assert len(recording.events) == len(lines)
    assert len(recording.calls) == 3
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="truecolor", width=100)
    show(recording, steps_of(recording), console, prompts=True)
    for step in steps_of(recording):
        assert re.fullmatch(r"[ -~]+", json_line(step, prompts=True))
    own = r"\r(?=\x1b\[(?:1A|2K))|\x1b\[(?:[\d;]*m|\?25[lh]|1A|2K)"  # rich's colours and spinner
    text = re.sub(own, "", stream.getvalue())
    assert "owned" in text
    assert {c for c in text if c != "\n" and unicodedata.category(c).startswith("C")} == set()
    assert "[red]" in text


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_no_damage_stops_a_replay(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    shutil.rmtree(folder, ignore_errors=True)
    recordings.write(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    begin = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 40))
    path.write_bytes(whole[:begin] + data.draw(st.binary(max_size=20)) + whole[begin + length :])
    recording = read_recording(folder)
    assert shown(recording)
    assert all(json_line(step, prompts=True) for step in steps_of(recording))
