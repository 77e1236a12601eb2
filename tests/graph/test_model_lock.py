"""A run folder has one process at a time, and a run resumed without its model says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.graph.folder import alone
from cudaops.graph.services import open_knowledge
from cudaops.settings import load_settings
from tests.graph.test_model_money import answer, command, source
from tests.nim import Asked, Nim, Reply

__all__ = ["source"]


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    code = (
        "import sys; from pathlib import Path; from cudaops.graph.folder import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="another process"), alone(tmp_path):
        pass
    other.communicate()
    with alone(tmp_path):
        pass


@pytest.mark.slow
def test_resumed_without_its_key_a_run_says_so_and_keeps_its_accounts(source: Path) -> None:
    with Nim() as nim:
        reached, killed = threading.Event(), threading.Event()

        def stall(asked: Asked) -> Reply:
            if len(nim.chats) == 2:
                reached.set()
                killed.wait(60)
            return answer(asked)

        nim.answer_with(stall)
        words, environment = command(source, nim, "--max-iterations", "1", "--min-speedup", "100")
        process = subprocess.Popen(
            words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        assert reached.wait(120)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed.set()
        for name in ("NVIDIA_API_KEY", "NVIDIA_BASE_URL"):
            del environment[name]
        folder = source.parent / "run"
        resumed = subprocess.run(
            [sys.executable, "-m", "cudaops", "resume", str(folder)],
            env=environment, capture_output=True, text=True, timeout=250,
        )  # fmt: skip
        assert len(nim.chats) == 2
    assert resumed.returncode == 1, resumed.stderr
    open_knowledge(load_settings()).close()
    assert resumed.stderr.count("NVIDIA_API_KEY") == 1
    record = RunRecord.model_validate_json((folder / "run.json").read_text("utf-8"))
    assert any("recipes propose" in notice for notice in record.notices)
    assert record.model is not None
    assert (record.model.calls, record.model.cost_usd) == (1, 6.0)
    assert record.model.fell_back is not None
