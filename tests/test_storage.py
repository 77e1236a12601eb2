"""The cache of compiled things: one maker at a time, nothing damaged handed out, a bounded size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudaops.domain.execution import Compiled, Unit
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.storage import LOCK, NOTE, TEMPORARY, Facts, entry_of, make_once, sweep, usage, used

PROGRAMS = Path(__file__).parent / "data" / "programs"

MAKER = """
import sys, time
from pathlib import Path
from cudaops.storage import entry_of, make_once
cache, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
def make(folder):
    with log.open("a") as file:
        file.write("making\\n")
    (folder / "half").write_text("x")
    time.sleep(seconds)
    (folder / "out").write_text("made")
    return {"n": 1}
made = make_once(entry_of(cache, "thing", "content"), {"in.txt": "text"}, make)
print(made.facts, made.cached, (entry_of(cache, "thing", "content").folder / "out").read_text())
"""


def maker(cache: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKER, str(cache), str(cache.parent / "log"), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def making(cache: Path) -> list[str]:
    log = cache.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def thing(folder: Path) -> Facts:
    (folder / "out").write_text("made")
    return {"n": 1}


def never(folder: Path) -> Facts:
    raise AssertionError("it is there already")


def test_a_thing_is_made_once_and_found_again(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, "thing", "content")
    first = make_once(entry, {"deep/in.txt": "text"}, thing)
    assert (first.facts, first.cached) == ({"n": 1}, False)
    assert (entry.folder / "deep" / "in.txt").read_text() == "text"
    assert not (entry.folder / TEMPORARY).exists()
    again = make_once(entry, {}, never)
    assert (again.facts, again.cached) == ({"n": 1}, True)
    assert entry_of(tmp_path, "thing", "other").folder != entry.folder
    assert entry_of(tmp_path, "other", "content").folder != entry.folder


def test_a_failure_is_handed_on_and_not_kept(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, "thing", "content")
    assert make_once(entry, {"in.txt": "text"}, lambda folder: "no") == "no"
    assert [p.name for p in entry.folder.iterdir()] == [LOCK]
    assert not make_once(entry, {}, thing).cached


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    both = [maker(cache, 0.5), maker(cache, 0.5)]
    told = sorted(process.communicate(timeout=60)[0] for process in both)
    assert told == ["{'n': 1} False made\n", "{'n': 1} True made\n"]
    assert making(cache) == ["making"]


def test_another_takes_over_from_one_killed_in_the_middle(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = maker(cache, 60.0)
    deadline = time.monotonic() + 30
    while not list(cache.glob("*/half")) and time.monotonic() < deadline:
        time.sleep(0.01)
    second = maker(cache, 0.0)  # waits for the first
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=30)
    assert second.communicate(timeout=60)[0] == "{'n': 1} False made\n"
    assert making(cache) == ["making", "making"]


@pytest.mark.parametrize(
    ("name", "contents", "says"),
    [
        ("out", "ma", "out has 2 of 4 bytes"),
        ("out", "fade", "out has other contents than were written"),
        ("out", None, "out is not there"),
        ("in.txt", "", "in.txt has 0 of 4 bytes"),
        (NOTE, '{"facts": {"n"', "entry.json cannot be read"),
        (NOTE, "[]", "entry.json cannot be read"),
    ],
)
def test_a_damaged_entry_is_made_anew_and_said_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, contents: str | None, says: str
) -> None:
    entry = entry_of(tmp_path, "thing", "content")
    make_once(entry, {"in.txt": "text"}, thing)
    if contents is None:
        (entry.folder / name).unlink()
    else:
        (entry.folder / name).write_text(contents)
        os.utime(entry.folder / name, ns=(1, 1))
    made = make_once(entry, {"in.txt": "text"}, thing)
    assert (made.facts, made.cached) == ({"n": 1}, False)
    assert (entry.folder / "out").read_text() == "made"
    (line,) = caplog.messages
    assert says in line
    assert "\n" not in line
    assert make_once(entry, {}, never).cached


def test_a_unit_with_a_truncated_executable_is_compiled_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same for real: by g++, found by the executor that runs it."""
    executor = CpuExecutor("A10", tmp_path)
    program = load_program(PROGRAMS / "vector_add.cu")
    unit = Unit(program=program, kernel="add", callee="add", rewrite=None, widened=False)
    first = executor.compile(unit)
    assert isinstance(first, Compiled)
    executable = Path(first.folder) / "unit"
    whole = executable.read_bytes()
    executable.write_bytes(whole[:1000])
    again = executor.compile(unit)
    assert isinstance(again, Compiled)
    assert not again.cached
    assert executable.stat().st_size == len(whole)
    assert "has 1000 of" in caplog.text


def test_what_a_tool_leaves_is_a_plain_file_of_ours(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, "thing", "content")

    def link(folder: Path) -> Facts:
        (folder / "out").symlink_to("/etc/passwd")
        return {}

    with pytest.raises(SandboxUnavailable, match="not a regular file"):
        make_once(entry, {}, link)
    assert entry.facts() is None


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SandboxUnavailable, match=r"cannot write to .*CUDAOPS_CACHE"):
        make_once(entry_of(tmp_path / "cache", "thing", "content"), {}, thing)


@pytest.mark.bubblewrap
def test_a_full_disk_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    """A real run whose cache is a file system of 3 MB; nothing of what did not fit is believed."""
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {
        **os.environ,
        "CUDAOPS_CACHE": str(tmp_path / "other"),
        "CUDAOPS_BUILDS": str(cache),
    }
    full = ["bwrap", "--dev-bind", "/", "/", "--size", "3000000", "--tmpfs", str(cache)]
    command = [*full, sys.executable, "-m", "cudaops", "run", str(PROGRAMS / "vector_add.cu")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
    )
    assert done.returncode == 3, done.stderr
    problem, remedy = done.stderr.strip().splitlines()[-2:]
    assert "no space left" in problem
    assert "free some disk space" in remedy


def entry(cache: Path, name: str, size: int, age_s: float) -> Path:
    folder = cache / name
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "unit").write_bytes(b"x" * size)
    then = time.time() - age_s
    os.utime(folder, (then, then))
    return folder


def test_what_was_unused_for_longest_goes_until_the_rest_fits(tmp_path: Path) -> None:
    entry(tmp_path, "oldest", 400, 9000)
    entry(tmp_path, "older", 400, 8000)
    entry(tmp_path, "old", 400, 7000)
    assert usage(tmp_path) == (3, 1200)
    assert sweep(tmp_path, 900, every_s=0) == ("oldest",)
    assert usage(tmp_path) == (2, 800)
    assert sweep(tmp_path, 900, every_s=0) == ()


def test_what_was_just_used_stays_whatever_its_size(tmp_path: Path) -> None:
    first = entry(tmp_path, "first", 400, 9000)
    entry(tmp_path, "second", 400, 8000)
    used(first)
    assert sweep(tmp_path, 0, every_s=0) == ("second",)
    assert first.is_dir()


def test_a_cache_is_not_looked_through_at_every_start(tmp_path: Path) -> None:
    assert sweep(tmp_path, 0) == ()
    entry(tmp_path, "old", 400, 9000)
    assert sweep(tmp_path, 0) == ()
    assert sweep(tmp_path, 0, every_s=0) == ("old",)


def test_no_cache_yet_and_entries_that_went_away_are_no_errors(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none", 0) == ()
    assert usage(tmp_path / "none") == (0, 0)
    used(tmp_path / "gone")
