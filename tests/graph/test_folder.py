"""Run folder: what a wrong input leaves behind (nothing), and files that are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.program import Program, SourceFile
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.graph.folder import MIN_FREE_BYTES, check_space, run_folder, write_best, write_whole


def stop_with_wrong_input(folder: Path) -> None:
    with run_folder(folder):
        (folder / "state").mkdir()
        raise InputError("no kernel")


def test_wrong_input_leaves_no_folder_behind(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "kernel" / "20260101T000000Z"
    with pytest.raises(InputError):
        stop_with_wrong_input(folder)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_there_before_stay(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with pytest.raises(InputError):
        stop_with_wrong_input(runs / "kernel" / "now")
    assert list(tmp_path.iterdir()) == [runs]
    assert list(runs.iterdir()) == []


def test_runs_of_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "runs" / "kernel" / "earlier"
    other.mkdir(parents=True)
    folder = tmp_path / "runs" / "kernel" / "now"
    with pytest.raises(InputError):
        stop_with_wrong_input(folder)
    assert other.is_dir()
    assert not folder.exists()


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="free some space"):
        check_space(tmp_path / "runs" / "x", lambda _: MIN_FREE_BYTES - 1)
    check_space(tmp_path / "runs" / "x", lambda _: MIN_FREE_BYTES)


def test_an_unwritable_place_is_an_environment_failure(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(SandboxUnavailable, match="--out"), run_folder(blocker / "run"):
        pass


def test_best_keeps_headers_beside_the_main_file(tmp_path: Path) -> None:
    files = (SourceFile(path="main.cu", text="M"), SourceFile(path="lib/k.cuh", text="K"))
    program = Program(root_name="main", main_path="main.cu", files=files)
    assert write_best(tmp_path, program, "patch") == tmp_path / "best.cu"
    assert (tmp_path / "best.cu").read_text() == "M"
    assert (tmp_path / "lib" / "k.cuh").read_text() == "K"
    assert (tmp_path / "best.patch").read_text() == "patch"


def test_best_of_a_program_with_headers_above_it_keeps_its_layout(tmp_path: Path) -> None:
    files = (SourceFile(path="src/main.cu", text="M"), SourceFile(path="include/k.cuh", text="K"))
    program = Program(root_name="main", main_path="src/main.cu", files=files)
    assert write_best(tmp_path, program, "") == tmp_path / "best" / "src" / "main.cu"
    assert (tmp_path / "best" / "include" / "k.cuh").read_text() == "K"
    assert (tmp_path / "best.cu").read_text() == "M"


@pytest.mark.parametrize(
    "name", ["best.cu", "best.patch", "run.json", "state/options.json", "best.patch/x.h", "k.cu"]
)
def test_a_programs_file_is_never_taken_for_one_of_the_runs(tmp_path: Path, name: str) -> None:
    files = (SourceFile(path="main.cu", text="M"), SourceFile(path=name, text="H"))
    program = Program(root_name="main", main_path="main.cu", files=files)
    assert write_best(tmp_path, program, "patch") == tmp_path / "best" / "main.cu"
    assert (tmp_path / "best" / name).read_text() == "H"
    assert (tmp_path / "best.cu").read_text() == "M"
    assert (tmp_path / "best.patch").read_text() == "patch"
    assert {path.name for path in tmp_path.iterdir()} == {"best", "best.cu", "best.patch"}


def test_line_ends_are_kept(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "a\r\nb\n")
    assert (tmp_path / "x").read_bytes() == b"a\r\nb\n"
