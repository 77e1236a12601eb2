"""Bounded child processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudaops.errors import PrerequisiteError
from cudaops.executors.process import child_environment, run_bounded


def test_output_exit_code_and_time_come_back(tmp_path: Path) -> None:
    done = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 7"], cwd=tmp_path, timeout_s=10)
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 7)
    assert not done.timed_out
    assert 0 < done.seconds < 10


def test_a_child_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "sleep 30 & echo $! ; wait"
    started = time.monotonic()
    done = run_bounded(["sh", "-c", script], cwd=tmp_path, timeout_s=0.5)
    assert done.timed_out
    assert time.monotonic() - started < 5
    assert _gone(int(done.stdout))


def _gone(pid: int) -> bool:
    """Whether a process ended, or is about to be collected by whoever inherited it."""
    for _ in range(100):
        status = Path(f"/proc/{pid}/stat")
        if not status.is_file() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_bounded(["sh", "-c", "sleep 30 & echo gone"], cwd=tmp_path, timeout_s=20)
    assert done.stdout == "gone\n"
    assert time.monotonic() - started < 5


def test_a_flood_is_cut_off(tmp_path: Path) -> None:
    done = run_bounded(["yes"], cwd=tmp_path, timeout_s=30, max_output_bytes=100_000)
    assert done.flooded
    assert len(done.stdout) == 100_000


def test_undecodable_output_is_replaced(tmp_path: Path) -> None:
    done = run_bounded(["printf", r"a\377b"], cwd=tmp_path, timeout_s=10)
    assert done.stdout == "a�b"


def test_the_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    env = child_environment({"CUDAOPS_CHECK": "full"})
    assert "SOME_TOKEN" not in env
    assert env["CUDAOPS_CHECK"] == "full"
    assert "PATH" in env


def test_a_missing_program_is_a_prerequisite(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no-such-program"):
        run_bounded(["no-such-program"], cwd=tmp_path, timeout_s=5)
