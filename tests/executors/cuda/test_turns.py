"""A runner under another tool is alone on the GPU only for its launch."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from cudaops.errors import SandboxUnavailable
from cudaops.executors.cuda.gpu_lock import gpu_lock, lock_path
from cudaops.executors.cuda.turns import GivenTurn
from cudaops.executors.process import Finished, run_bounded

ROOT = str(Path(__file__).resolve().parents[3])
RUNNER = """
import sys, time
from pathlib import Path
from cudaops.executors.cuda.turns import in_turn
folder = Path(sys.argv[1])
with in_turn(folder):
    (folder / "inside").touch()
    time.sleep(0.2)
    (folder / "inside").unlink()
"""


def run(
    folder: Path, alone: Callable[[], AbstractContextManager[None]], timeout_s: float
) -> Finished:
    with GivenTurn(folder, alone) as turn:
        return run_bounded(
            [sys.executable, "-c", RUNNER, str(folder)],
            cwd=folder, timeout_s=timeout_s, env={"PYTHONPATH": ROOT}, uncounted_s=turn.waited_s,
        )  # fmt: skip


def test_the_gpu_is_taken_for_the_launch_alone_and_waiting_for_it_is_no_time(
    tmp_path: Path,
) -> None:
    uuid, seen = f"GPU-turn-{os.getpid()}", []

    @contextmanager
    def alone() -> Iterator[None]:
        seen.append((tmp_path / "ready").exists() and not (tmp_path / "inside").exists())
        with gpu_lock(uuid, alone=True):
            yield
        seen.append((tmp_path / "over").exists())

    def others() -> None:
        with gpu_lock(uuid, alone=False):
            begun.set()
            while not seen:
                time.sleep(0.01)
            time.sleep(4.0)

    begun = threading.Event()
    sharing = threading.Thread(target=others)
    sharing.start()
    begun.wait()
    try:
        done = run(tmp_path, alone, timeout_s=3.5)
        assert (done.exit_code, done.timed_out) == (0, False), done
        assert done.seconds > 4.0
        assert seen == [True, True]
    finally:
        sharing.join()
        for path in (lock_path(uuid), lock_path(uuid).with_suffix(".line")):
            path.unlink(missing_ok=True)


def test_a_gpu_that_is_not_to_be_had_ends_the_runner_and_is_said(tmp_path: Path) -> None:
    def alone() -> AbstractContextManager[None]:
        raise SandboxUnavailable("another cudaops process has kept it busy", "wait")

    with pytest.raises(SandboxUnavailable, match="kept it busy"):
        run(tmp_path, alone, timeout_s=20.0)
    assert (tmp_path / "no").exists()


def test_a_runner_that_never_asks_gets_no_turn(tmp_path: Path) -> None:
    with GivenTurn(tmp_path, nullcontext) as turn:
        assert turn.waited_s() == 0.0
    assert not (tmp_path / "go").exists()
