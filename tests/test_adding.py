"""The pages `docs/adding-a-*.md`, followed word by word in a copy of the package.

A page's fenced code says what is done with it: `python PATH` is a new file, `diff` changes files
that are there (a hunk begins with `@@`; what it takes away must stand in the file once), `sh` is
run (`sh exits 1` where it ends so), and a `text` block behind it holds lines that it must print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("adding-a*.md"))
KINDS = ("transformation", "metric", "device", "gate", "executor")
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".pytest_cache")


class Block(NamedTuple):
    """One fenced block: language, what stands behind it, and text."""

    language: str
    more: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    fence = r"^```(\w+) ?(.*)\n((?:.*\n)*?)^```$"
    for found in re.findall(fence, page.read_text("utf-8"), flags=re.MULTILINE):
        yield Block(*found)


def patched(root: Path, diff: str) -> None:
    """Apply a diff: each hunk's old lines are replaced where they stand, which is once."""
    for part in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        path = root / name.strip()
        text = path.read_text("utf-8")
        for hunk in re.split(r"^@@.*\n", rest, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(old) == 1, f"{name} has this {text.count(old)} times:\n{old}"
            text = text.replace(old, new)
        path.write_text(text, "utf-8")


def ran(root: Path, command: str, ending: str) -> str:
    """What the command prints, with the copy's package and this interpreter as `python`."""
    python = root / "bin" / "python"
    if not python.exists():
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=root,
        env={
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == int(ending.removeprefix("exits ") or 0), done.stdout
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, its tests and documents, to be changed."""
    root = tmp_path / "copy"
    for name in ("cudaops", "tests", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=NOT_COPIED)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, root / name)
    (root / "examples").symlink_to(ROOT / "examples")
    return root


def test_there_is_a_page_for_each() -> None:
    assert {page.stem.rsplit("-", 1)[-1] for page in PAGES} == set(KINDS)
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [page.name for page in PAGES if f"docs/{page.name}" not in guide] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_following_the_page_works(page: Path, copy: Path) -> None:
    output, checked = "", 0
    for block in blocks(page):
        if block.language == "python" and block.more:
            path = copy / block.more
            assert not path.exists(), f"{block.more} is there already"
            path.write_text(block.text, "utf-8")
        elif block.language == "diff":
            patched(copy, block.text)
        elif block.language == "sh":
            output = ran(copy, block.text, block.more)
        elif block.language == "text":
            missing = [line for line in block.text.splitlines() if line.strip() not in output]
            assert not missing, f"{missing} not in:\n{output}"
            checked += 1
    assert checked
