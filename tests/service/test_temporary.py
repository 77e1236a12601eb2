"""What a killed process left in its temporary folder is removed; of one that lives nothing is."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cudaops.service.job_folder import remove_left

TAKES = """
import sys, tempfile
from pathlib import Path
from cudaops.service.job_folder import remove_own, take_own
take_own()
left = Path(tempfile.mkdtemp())
(left / "shut").mkdir(mode=0)
print(left.parent, flush=True)
sys.stdin.read()
remove_own()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test's processes, this one included."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(place: Path) -> None:
    folders, processes = [], []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", TAKES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
        processes.append(process)
    assert all(folder.parent == place for folder in folders)
    (place / "somebody-elses").mkdir()
    killed, living = processes
    killed.kill()
    killed.communicate()
    remove_left()
    assert sorted(place.iterdir()) == sorted([folders[1], place / "somebody-elses"])
    assert (folders[1].stat().st_mode & 0o777) == 0o711
    living.communicate()
    assert living.returncode == 0
    assert list(place.iterdir()) == [place / "somebody-elses"]
    remove_left()
    assert (place / "somebody-elses").is_dir()
