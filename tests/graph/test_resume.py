"""kill -9 in the middle of a stage, then resume: it finishes, and no finished stage runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.graph.events import read_events
from cudaops.graph.finishing import NOT_ENDED
from cudaops.graph.run import resume
from cudaops.settings import load_settings

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"


def kill_in(stage: str, folder: Path, nth: int = 1) -> None:
    """Start a run in a process of its own and kill it when the stage has started so many times."""
    command = [
        sys.executable,
        "-m",
        "cudaops",
        "run",
        str(PROGRAMS / "gemm_header.cu"),
        "--max-iterations",
        "2",
        "--max-trials",
        "3",
        "--out",
        str(folder),
    ]
    process = subprocess.Popen(
        [*command, "--", "512", "512", "512"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    events = folder / "events.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        seen = read_events(events) if events.exists() else []
        if sum(e.stage == stage and e.kind == "started" for e in seen) >= nth:
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("stage", [pytest.param("optimizer", marks=pytest.mark.deep), "sandbox"])
def test_resume_after_a_kill(tmp_path: Path, stage: str) -> None:
    folder = tmp_path / "run"
    kill_in(stage, folder)
    assert not (folder / "run.json").exists()
    before = Counter(e.stage for e in read_events(folder / "events.jsonl") if e.kind == "finished")
    record = resume(folder, lambda _: None, load_settings())
    assert record.outcome == "provisional", record.reason
    assert RunRecord.model_validate_json((folder / "run.json").read_text()) == record

    events = read_events(folder / "events.jsonl")
    notice = next(i for i, e in enumerate(events) if e.message == "resumed")
    assert events[notice + 1].stage == stage, (
        "the first stage after resuming is the one that was killed"
    )
    assert before["intake"] == 1
    finished = Counter(e.stage for e in events if e.kind == "finished")
    started = Counter(e.stage for e in events if e.kind == "started")
    assert finished["intake"] == started["intake"] == 1
    assert started[stage] == finished[stage] + 1
    for other in set(finished) - {stage}:
        assert started[other] == finished[other], other


@pytest.mark.deep
def test_what_was_accepted_is_there_whatever_ends_the_run(tmp_path: Path) -> None:
    """Killed when it looks for more: record and best.cu are those of the results so far, and a run
    that is resumed writes its own, and the certificate."""
    folder = tmp_path / "run"
    kill_in("optimizer", folder, nth=2)
    so_far = RunRecord.model_validate_json((folder / "run.json").read_text())
    assert (so_far.outcome, so_far.ended) == ("provisional", False)
    assert so_far.notices[-1] == NOT_ENDED
    assert so_far.best is not None
    assert not (folder / "certificate.json").exists()
    assert "best.cu" in (folder / "report.md").read_text()
    record = resume(folder, lambda _: None, load_settings())
    assert (record.ended, record.verify.speedup) >= (True, so_far.verify.speedup)
    assert NOT_ENDED not in record.notices
    assert (folder / "certificate.json").exists()


def test_a_folder_without_a_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="finished its intake"):
        resume(tmp_path, lambda _: None, load_settings())
