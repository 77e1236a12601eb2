"""The lanes themselves: who runs when, what is said of skips, and whose turn it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes

ROOT = Path(__file__).parents[1]

CONFTEST = """
from tests import lanes
def pytest_addoption(parser): lanes.add_options(parser)
def pytest_configure(config):
    config.addinivalue_line("markers", "deep: d")
    config.addinivalue_line("markers", "essential: e")
    lanes.configure(config)
def pytest_collection_modifyitems(config, items): lanes.choose(config, items)
"""
TESTS = """
import pytest
from hypothesis import given, strategies as st
def test_quick(): pass
@pytest.mark.deep
class TestDeep:
    def test_more(self): pass
    @pytest.mark.essential
    def test_essential(self): pass
@given(st.integers())
def test_property(n): pass
@pytest.mark.skip(reason="no NVIDIA GPU: none")
def test_gpu(): pass
"""
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
HOLE = "@pytest.mark.skip(reason='bwrap not found on PATH')\ndef test_hole(): pass\n"


def ran(folder: Path, *options: str, more: str = "") -> subprocess.CompletedProcess[str]:
    """pytest over a folder of its own with these lanes."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS + more)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **ALONE},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("lane", "passed"),
    [
        ("fast", {"quick", "essential", "property"}),
        ("test", {"quick", "essential", "property"}),
        ("deep", {"more", "property"}),
        ("all", {"quick", "essential", "property", "more"}),
    ],
)
def test_a_lane_runs_what_it_says(tmp_path: Path, lane: str, passed: set[str]) -> None:
    done = ran(tmp_path, "--lane", lane)
    lines = [line.split() for line in done.stdout.splitlines() if " PASSED" in line]
    assert {line[0].rpartition("::test_")[2] for line in lines} == passed, done.stdout


def test_a_missing_gpu_is_excused_and_nothing_else(tmp_path: Path) -> None:
    left_out = tmp_path / "left out"
    options = ("--no-holes", f"--left-out={left_out}")
    assert ran(tmp_path, *options).returncode == 0
    assert left_out.read_text().split(maxsplit=1) == ["1", "no NVIDIA GPU: none\n"]
    done = ran(tmp_path, *options, more=HOLE)
    assert done.returncode == 1
    assert "1 tests were left out for no missing GPU" in done.stdout
    assert "apt-get install bubblewrap" in done.stdout
    assert ran(tmp_path, more=HOLE).returncode == 0, "make test says it, and goes on"


def test_durations_are_renewed_test_by_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "DURATIONS", tmp_path / "durations.json")
    lanes.write_durations({"a.py::one": 3.14, "a.py::two": 9.0, "b.py::one": 0.01}, whole=True)
    lanes.write_durations({"a.py::two": 0.01, "c.py::one": 1.0}, whole=False)
    assert lanes.read_durations() == {"a.py": {"one": 3.14}, "c.py": {"one": 1.0}}
    assert json.loads(lanes.DURATIONS.read_text())["c.py"]["one"] == 1.0


FIXTURES = """
import time, pytest
@pytest.fixture(scope="session")
def inner(): time.sleep(0.3)
@pytest.fixture(scope="module")
def run(request):
    request.getfixturevalue("inner")
    time.sleep(0.2)
def test_of_run(run): pass
def test_of_run_too(run): pass
"""


def test_a_fixture_that_tests_share_is_no_tests_own(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "lanes.py", tmp_path / "lanes.py")
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("from tests ", ""))
    (tmp_path / "test_it.py").write_text(FIXTURES)

    def outcome(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        environment = {**os.environ, **ALONE}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        ).stdout

    assert "2 passed" in outcome("--record", "-p", "xdist", "-n", "1")
    durations = json.loads((tmp_path / "durations.json").read_text())
    assert list(durations) == ["test_it.py"]
    assert set(durations["test_it.py"]) == {"[inner]", "[run]"}
    assert 0.2 <= durations["test_it.py"]["[run]"] < 0.3 <= durations["test_it.py"]["[inner]"]
    assert "2 deselected" in outcome("--lane=fast")


def git(folder: Path, *words: str, date: str) -> None:
    who = {f"GIT_{x}_{y}": "a@b" for x in ("AUTHOR", "COMMITTER") for y in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **who, **dates}
    subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True)


def test_a_submission_that_moves_the_turn_has_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "whose-turn", tmp_path / ".ci")

    def turn() -> int:
        command = [str(tmp_path / ".ci" / "whose-turn")]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    git(tmp_path, "init", "-q", date="2026-11-22T10:00:00Z")
    for number in (13, 14):
        (tmp_path / ".ci" / "turn").write_text(f"{number}\n")
        git(tmp_path, "add", "-A", date="2026-11-22T10:00:00Z")
        git(tmp_path, "commit", "-qm", f"turn {number}", date=f"2026-11-22T{number}:00:00Z")
        git(tmp_path, "commit", "-qm", "more", "--allow-empty", date=f"2026-11-22T{number}:50:00Z")
        assert turn() == number
    git(tmp_path, "commit", "-qm", "later", "--allow-empty", date="2026-11-23T10:00:00Z")
    head = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert turn() == int(head.stdout, 16), "forgotten: by the commit's name"


SLOW = """
import time, pytest
@pytest.fixture(scope="module")
def run(): time.sleep(0.2)
@pytest.mark.parametrize("n", range(12))
def test_slow(n): pass
@pytest.mark.essential
def test_needed(): pass
def test_of_run(run): pass
def test_of_run_too(run): pass
"""


def test_every_slow_test_has_one_turn_and_what_shares_a_fixture_goes_together(
    tmp_path: Path,
) -> None:
    text = (ROOT / "tests" / "lanes.py").read_text()
    (tmp_path / "lanes.py").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("from tests ", ""))
    (tmp_path / "test_it.py").write_text(SLOW)
    slow = {f"test_slow[{n}]": 3.0 for n in range(12)}
    known = {**slow, "test_needed": 5.0, "[run]": 9.0}
    (tmp_path / "durations.json").write_text(json.dumps({"test_it.py": known}))
    turns: list[set[str]] = []
    for turn in range(lanes.SHARES):
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--lane=test"]
        done = subprocess.run(
            [*command, f"--turn={turn + 8}"], cwd=tmp_path, env={**os.environ, **ALONE},
            capture_output=True, text=True,
        )  # fmt: skip
        lines = [line.split()[0] for line in done.stdout.splitlines() if " PASSED" in line]
        turns.append({line.partition("::")[2] for line in lines})
        assert "test_needed" in turns[-1]
        assert ("test_of_run" in turns[-1]) == ("test_of_run_too" in turns[-1])
    for name in (*slow, "test_of_run"):
        assert sum(name in found for found in turns) == 1, name
