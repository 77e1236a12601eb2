"""A program's private view of its working folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudaops.executors.isolation import view as views
from cudaops.executors.isolation.view import HINT, ProgramView, hint_for, named_above, told_of_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project" / "work"
    (made / "data").mkdir(parents=True)
    (made / "small.txt").write_text("small", encoding="utf-8")
    (made / "data" / "large.bin").write_bytes(b"x" * (views.COPIED_BYTES + 1))
    (made / ".env").write_text("KEY=1", encoding="utf-8")
    (made / "runs" / "r1").mkdir(parents=True)
    (made / "elsewhere" / "r2").mkdir(parents=True)
    (made / "elsewhere" / "r2" / "run.json").write_text("{}", encoding="utf-8")
    (made / "cache").mkdir()
    (tmp_path / "project" / "shared.txt").write_text("shared", encoding="utf-8")
    return made


def names(view: ProgramView) -> set[str]:
    return {str(p.relative_to(view.root)) for p in view.root.rglob("*")}


def test_what_is_there_and_what_is_not(folder: Path) -> None:
    with ProgramView(folder, (), (folder / "cache",)) as view:
        assert names(view) == {"data", "data/large.bin", "elsewhere", "small.txt"}
        assert view.reads == [folder / "data" / "large.bin"]
        assert not view.left_out
        (view.folder / "small.txt").write_text("changed", encoding="utf-8")
        (view.folder / "new.txt").write_text("new", encoding="utf-8")
    assert not view.root.exists()
    assert (folder / "small.txt").read_text("utf-8") == "small"
    assert not (folder / "new.txt").exists()


def test_a_run_that_is_under_way_is_not_there(folder: Path) -> None:
    (folder / "out" / "workloads").mkdir(parents=True)
    (folder / "out" / "events.jsonl").write_text("", "utf-8")
    with ProgramView(folder, ()) as view:
        assert "out" not in {Path(name).parts[0] for name in names(view)}


def test_what_arguments_name(folder: Path, tmp_path: Path) -> None:
    absolute = tmp_path / "absolute.bin"
    absolute.write_bytes(b"1")
    argv = ("../shared.txt", f"--input={absolute}", "512", ".env", "../work/.env", "/", "..")
    with ProgramView(folder, argv) as view:
        assert view.folder == view.root / "work"
        assert (view.folder / ".." / "shared.txt").read_text("utf-8") == "shared"
        assert absolute in view.reads
        assert not any(p.name == ".env" for p in (*view.root.rglob("*"), *view.reads))
        assert Path("/") not in view.reads


def test_a_link_out_of_the_folder_stays_honest(folder: Path, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("key", encoding="utf-8")
    (folder / "key").symlink_to(tmp_path / ".ssh" / "id")
    (folder / "env").symlink_to(folder / ".env")
    (folder / "round").symlink_to(folder)
    (folder / "good").symlink_to(tmp_path / "project" / "shared.txt")
    os.mkfifo(folder / "pipe")
    with ProgramView(folder, ()) as view:
        assert (view.folder / "good").read_text("utf-8") == "shared"
        for name in ("key", "env", "pipe"):
            assert not (view.folder / name).exists()
        assert not list((view.folder / "round").iterdir())


def test_it_is_bounded_and_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    many = folder / "a_many"
    many.mkdir()
    for number in range(views.MOST_ENTRIES):
        (many / f"{number:05d}").touch()
    with ProgramView(folder, ()) as view:
        assert (view.folder / "small.txt").is_file()
        assert len(names(view)) <= views.MOST_ENTRIES
        assert f"a_many/{views.MOST_ENTRIES - 1:05d}" in view.left_out


def test_the_hint() -> None:
    assert hint_for("cannot open ../data/in.bin") == HINT
    assert not hint_for("the answer is wrong")


def test_a_text_names_what_lies_above_it_in_its_checkout(tmp_path: Path) -> None:
    """`../data/in.txt` in a string of the program's is there, as where an argument names it; what
    lies outside of the checkout, or where there is none, is not."""
    source, data = tmp_path / "kept" / "src", tmp_path / "kept" / "data"
    for folder in (source, data):
        folder.mkdir(parents=True)
    (data / "in.txt").write_text("1 2 3")
    (tmp_path / "secret.txt").write_text("no")
    texts = ['open("../data/in.txt"); open("../../secret.txt"); /* ../data/in.txt */']
    assert named_above(texts, source) == ()
    (tmp_path / "kept" / ".git").mkdir()
    assert named_above(texts, source) == ("../data/in.txt",)
    with ProgramView(source, named_above(texts, source)) as view:
        assert (view.folder / "../data/in.txt").read_text() == "1 2 3"


def test_a_home_folder_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "in.txt").write_text("1")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert named_above(['"../in.txt"'], tmp_path / "home") == ()


def test_of_a_file_that_was_not_opened_the_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "in.txt").write_text("1")
    told = told_of_files([("r", "in.txt")], tmp_path / "src")
    assert told.startswith("it could not open in.txt: no such file")
    told = told_of_files([("rb", "../in.txt")], tmp_path / "src")
    assert told.startswith(f"it could not open ../in.txt: {HINT}")
    assert told.endswith("add ../in.txt to its arguments (--args)")
    told = told_of_files([("w", "out/x.bmp")], tmp_path / "src")
    assert told == "it could not write out/x.bmp: there is no folder out"
    assert told_of_files([], tmp_path) == ""
