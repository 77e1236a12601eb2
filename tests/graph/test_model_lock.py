"""A run folder has one process at a time, and a run resumed without its model says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.graph.folder import alone
from tests.graph.test_model_money import killed_at, record_of, resumed_in, source
from tests.nim import Nim

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


@pytest.mark.deep
def test_resumed_without_its_key_a_run_says_so_and_keeps_its_accounts(source: Path) -> None:
    with Nim() as nim:
        environment = killed_at(nim, 2, source, "--min-speedup", "100")
        for name in ("NVIDIA_API_KEY", "NVIDIA_BASE_URL"):
            del environment[name]
        resumed = resumed_in(environment, source)
        assert len(nim.chats) == 2
    assert resumed.returncode == 1, resumed.stderr
    assert resumed.stderr.count("NVIDIA_API_KEY") == 1
    record = record_of(source)
    assert any("recipes propose" in notice for notice in record.notices)
    assert record.model is not None
    assert (record.model.calls, record.model.cost_usd) == (1, 6.0)
    assert record.model.fell_back is not None
