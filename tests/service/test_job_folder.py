"""What of a job lies on a worker's disk, and what of it leaves the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cudaops
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.program.given import check_arguments, check_includes
from cudaops.service.job_folder import MAX_FILE_BYTES, JobFolder, JobTask, Scrub, collect
from cudaops.service.job_process import descendants, kill_tree
from cudaops.service.perform import perform
from cudaops.service.records import OptimizeRequest, VerifyRequest
from cudaops.settings import load_settings
from tests.service.workers import HEADERS, MATMUL

RECORDED = Path(__file__).parents[2] / "tests" / "data" / "recorded" / "naive_matmul" / "run.json"


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "service" / "0f0e")


def test_files_are_written_where_the_program_expects_them(folder: JobFolder) -> None:
    request = VerifyRequest(
        source=MATMUL, filename="m.cu", files={**HEADERS, "a/b/c.cuh": "x\r\n"}, candidate="y"
    )
    for _ in range(2):  # a second attempt finds what the first has left
        assert folder.write(request) == folder.program / "m.cu"
        assert (folder.program / "a" / "b" / "c.cuh").read_bytes() == b"x\r\n"
        candidate = folder.candidate_file(request)
        assert candidate.read_text() == "y"
        assert (candidate.parent / "sizes.h").read_text() == HEADERS["sizes.h"]


def test_a_main_file_may_lie_below_another_folder(folder: JobFolder) -> None:
    request = VerifyRequest(
        source='#include "../include/x.h"\n', filename="src/m.cu", files={"include/x.h": "x"},
        candidate="y",
    )  # fmt: skip
    assert folder.write(request) == folder.program / "src" / "m.cu"
    assert folder.candidate_file(request) == folder.root / "candidate" / "src" / "candidate.cu"
    assert (folder.root / "candidate" / "include" / "x.h").read_text() == "x"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"m.cu": '#include "../up.h"'}, "leaves the folder"),
        ({"a/m.cuh": '#include "../../up.h"'}, "leaves the folder"),
        ({"m.cu": '#  include "a/../../up.h" // far'}, "leaves the folder"),
        ({"m.cu": '#include "/etc/passwd"'}, "leaves the folder"),
        ({"m.cu": '#include "a/../b.h"', "a/m.cuh": '#include "../m.cu"'}, None),
    ],
)
def test_includes_stay_among_what_was_sent(files: dict[str, str], said: str | None) -> None:
    if said is None:
        check_includes(files)
        return
    with pytest.raises(InputError, match=said):
        check_includes(files)


@pytest.mark.parametrize(
    "word",
    [
        "/etc/passwd",
        "--in=/etc/passwd",
        "in=/etc/passwd",
        "../jobs",
        "--in=a/../../b",
        "/x=1",
        "../x_=y",
        "a=/b=c",
    ],
)
def test_arguments_name_no_file_of_this_machine(word: str) -> None:
    """Isolation lets a program read what its arguments name."""
    with pytest.raises(InputError, match="outside of the program's folder"):
        check_arguments(("512", word))
    check_arguments(("512", "--in=data.bin", "a/b.bin", "-x", "1/2", ""))


def test_no_folder_of_this_machine_leaves_it(folder: JobFolder, tmp_path: Path) -> None:
    scrub = Scrub(folder, tmp_path / "cache", tmp_path / "builds")
    package = Path(cudaops.__file__).parent
    text = (
        f"{folder.program}/m.cu:3: {folder.run}/best.cu {folder.run} {folder.root}/x"
        f" {folder.root.parent}/other {tmp_path}/cache/kernels {package}/include /tmp/mine"
        " /var/tmp/cudaops-work-a1_b/cudaops-child-x/a.s"
    )
    assert scrub(text) == (
        "program/m.cu:3: run/best.cu run x <service>/other <cache>/kernels <cudaops>/include"
        " /tmp/mine <tmp>/cudaops-child-x/a.s"
    )


def test_artefacts_are_bounded_and_no_links(folder: JobFolder, tmp_path: Path) -> None:
    run = folder.run
    (run / "iterations" / "01").mkdir(parents=True)
    (run / "state").mkdir()
    (run / "run.json").write_text(json.dumps({"out": str(run)}))
    (run / "best.cu").write_text(f"// {run}")
    (run / "certificate.json").write_text(f"{run}")
    (run / "iterations" / "01" / "candidate.cu").write_text("x")
    (run / "state" / "checkpoints.sqlite").write_text("ours")
    (run / "iterations" / "01" / "attempt.json.part").write_text("half")
    (run / "link.cu").symlink_to("/etc/passwd")
    (run / "large.md").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    found = collect(run, Scrub(folder, tmp_path, tmp_path / "builds"))
    assert {kept.name: content for kept, content in found.files} == {
        "run.json": b'{"out": "run"}',
        "best.cu": f"// {run}".encode(),
        "certificate.json": str(run).encode(),
        "iterations/01/candidate.cu": b"x",
    }
    assert [kept.media_type for kept, _ in found.files][:2] == ["application/json", "text/plain"]
    assert len(found.left_out) == 1
    assert "large.md" in found.left_out[0]
    assert collect(tmp_path / "none", Scrub(folder, tmp_path, tmp_path / "builds")).files == []


def test_a_run_that_had_finished_is_not_run_again(folder: JobFolder) -> None:
    folder.run.mkdir(parents=True)
    (folder.run / "run.json").write_text(RECORDED.read_text("utf-8"))
    task = JobTask(OptimizeRequest(source="no program"), folder, load_settings(), ("cpu",), 2)
    record = perform(task, lambda _event: None)
    assert isinstance(record, RunRecord)
    assert record == RunRecord.model_validate_json(RECORDED.read_text("utf-8"))


def test_a_tree_is_killed_whatever_sessions_it_made() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "from cudaops.service.job_process import adopt_orphans\n"
        "adopt_orphans()\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "# A parent that is gone: its child is adopted.\n"
        "subprocess.run(['sh', '-c', 'sleep 600 & exit 0'], start_new_session=True)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == b"up\n"
        below = descendants(root.pid)
        assert len(below) == 2
        kill_tree(root.pid)
        root.wait(60)
    assert not set(below) & set(descendants(1))
