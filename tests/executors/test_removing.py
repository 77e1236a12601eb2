"""What untrusted code left is removed whole, and nothing beside it is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cudaops.executors.untrusted_files import remove


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_any_modes_go_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept")
    folder = tmp_path / "left"
    shut = folder / "a" / "shut"
    shut.mkdir(parents=True)
    (shut / "file").write_text("x")
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    shut.chmod(0)
    (folder / "a").chmod(0)
    remove(folder)
    assert not folder.exists()
    assert (outside / "kept").read_text() == "kept"
    assert mode(outside) == 0o755


def test_what_is_gone_changes_nothing_of_its_parent(tmp_path: Path) -> None:
    """A second remover at the same time must not close everybody's temporary folder."""
    parent = tmp_path / "everybodys"
    parent.mkdir()
    parent.chmod(0o1777)
    remove(parent / "gone")
    assert mode(parent) == 0o1777


def test_deeper_than_python_recurses_and_paths_are_long(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    remove(folder)
    assert not folder.exists()
