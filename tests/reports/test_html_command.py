"""`cudaops report RUN --html` as a user types it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[2] / "tests" / "data" / "recorded" / "naive_matmul"


def report(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudaops", "report", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_written_into_the_run_folder_or_where_it_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(RECORDED, folder)
    done = report(folder, "--html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"written: {folder / 'report.html'}\n"
    text = (folder / "report.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert str(tmp_path) not in text
    done = report(folder, "--html", "--out", "mine.html", cwd=tmp_path)
    assert done.stdout == "written: mine.html\n"
    assert (tmp_path / "mine.html").read_text("utf-8") == text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--out", "x.html"], 2, "give --html with it"),
        (["--html", "--json"], 2, "--json alone prints the record"),
        (["--html", "--out", "no/such/x.html"], 3, "name another file with --out"),
    ],
)
def test_what_does_not_go_is_said(
    tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    done = report(RECORDED, *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert done.stdout == ""
    assert says in done.stderr
