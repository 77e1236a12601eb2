"""The cache keeps to its size and never takes what a run may be using."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cudaops.sandbox.executors.cpu_cache import prune, used


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
    assert prune(tmp_path, limit_bytes=900, in_use_s=3600) == ("oldest",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old", "older"]
    assert prune(tmp_path, limit_bytes=900, in_use_s=3600) == ()


def test_what_was_just_used_stays_whatever_its_size(tmp_path: Path) -> None:
    first = entry(tmp_path, "first", 400, 9000)
    entry(tmp_path, "second", 400, 8000)
    used(first)
    assert prune(tmp_path, limit_bytes=0, in_use_s=3600) == ("second",)
    assert first.is_dir()


def test_no_cache_yet_and_entries_that_went_away_are_no_errors(tmp_path: Path) -> None:
    assert prune(tmp_path / "none") == ()
    used(tmp_path / "gone")
