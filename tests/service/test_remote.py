"""`--executor remote`: whole jobs at a real service, by a real worker, and what is found here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from cudaops.cli.boundary import EXIT_ENVIRONMENT, EXIT_FOUND, EXIT_INPUT, EXIT_INTERRUPTED
from cudaops.domain.run import RunRecord
from tests.service.cutting_proxy import CuttingProxy
from tests.service.remote_service import RemoteService, wait_for
from tests.service.workers import COALESCED, ENDLESS, HEADERS, MATMUL

pytestmark = [pytest.mark.timeout(1200)]

ONE = ("--max-iterations", "1", "--max-trials", "3", "--seed", "7")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program whose header lies in another folder than its main file."""
    (tmp_path / "src").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "sizes.h").write_text(HEADERS["sizes.h"])
    text = MATMUL.replace('"sizes.h"', '"../include/sizes.h"')
    (tmp_path / "src" / "matmul.cu").write_text(text)
    return tmp_path / "src" / "matmul.cu"


def started(address: str | None, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, at work."""
    named = {} if address is None else {"CUDAOPS_SERVER": address}
    return subprocess.Popen(
        [sys.executable, "-m", "cudaops", *arguments],
        cwd=folder,
        env={**os.environ, **named},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(address: str | None, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code and what it printed."""
    command = started(address, folder, *arguments)
    out, err = command.communicate(timeout=900)
    return command.returncode, out, err


def files(folder: Path) -> set[str]:
    """Of a run, what a person looks at."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in ("state", "workloads")
    }


def test_the_folder_the_record_and_the_exit_code_of_a_local_run(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    ran = ("run", "src/matmul.cu", *ONE)
    here = done(None, tmp_path, *ran, "--executor", "cpu", "--out", "here")
    there = done(remote_service.address, tmp_path, *ran, "--executor", "remote", "--out", "there")
    assert (here[0], there[0]) == (EXIT_FOUND, EXIT_FOUND), there
    assert files(tmp_path / "there") == files(tmp_path / "here")
    for name in ("best.cu", "best.patch"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    local, remote = (
        RunRecord.model_validate_json((tmp_path / name / "run.json").read_text())
        for name in ("here", "there")
    )
    where = {"out": str(tmp_path / "there"), "use_memory": remote.options.use_memory}
    assert remote.options == local.options.model_copy(update=where)
    assert (remote.outcome, remote.executor, remote.device) == ("provisional", "cpu", "A10")
    assert remote.best == local.best
    assert "there/best.cu" in there[1]
    assert str(remote_service.folder) not in there[1] + (tmp_path / "there/report.md").read_text()


def test_progress_is_that_of_a_local_run(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    code, _, said = done(
        remote_service.address, tmp_path, "run", str(program), *ONE, "--executor", "remote",
        "--out", "out",
    )  # fmt: skip
    assert code == EXIT_FOUND, said
    events = [json.loads(line) for line in (tmp_path / "out/events.jsonl").read_text().splitlines()]
    lines = iter(said.splitlines())
    for event in events:
        told = f"{event['agent']:<10}  {event['message']}"[:80]
        assert any(told in line for line in lines), told
    id = remote_service.newest().id
    assert f"job {id} of {remote_service.address}" in said
    assert "certificate.json" in files(tmp_path / "out")
    checked, out, _ = done(None, tmp_path, "certify", "check", "out")
    assert checked == EXIT_FOUND, out
    code, out, _ = done(None, tmp_path, "report", "out", "--html")
    assert code == EXIT_FOUND


def test_a_rewrite_is_judged_and_a_kernel_profiled_there(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "by.cuh").write_text("// nothing\n")
    mine = program.read_text().replace("int row = blockIdx.x * blockDim.x + threadIdx.x;", "")
    mine = mine.replace(
        "int col = blockIdx.y * blockDim.y + threadIdx.y;",
        "int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;",
    )
    (tmp_path / "mine" / "m.cu").write_text('#include "by.cuh"\n' + mine)
    (tmp_path / "coalesced.cu").write_text(COALESCED)
    for out, candidate in (("whole", "mine/m.cu"), ("device", "coalesced.cu")):
        code, told, said = done(
            remote_service.address, tmp_path, "verify", str(program), candidate, "--json",
            "--executor", "remote", "--out", out,
        )  # fmt: skip
        assert code == EXIT_FOUND, said
        record = json.loads(told)
        assert record["outcome"] == "provisional"
        assert record["options"]["out"] == str(tmp_path / out)
        assert (tmp_path / out / "certificate.json").is_file()
    code, told, said = done(
        remote_service.address, tmp_path, "profile", str(program), "--executor", "remote", "--json"
    )
    assert code == EXIT_FOUND, said
    assert json.loads(told)["metrics_parsed"] > 5
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_cancels_the_job(remote_service: RemoteService, tmp_path: Path) -> None:
    (tmp_path / "endless.cu").write_text(ENDLESS)
    before = httpx.get(f"{remote_service.address}/jobs").json()
    command = started(
        remote_service.address, tmp_path, "run", "endless.cu", "--executor", "remote",
        "--timeout", "600", "--out", "out",
    )  # fmt: skip
    wait_for(lambda: len(httpx.get(f"{remote_service.address}/jobs").json()) > len(before))
    wait_for(lambda: remote_service.newest().status == "running")
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == EXIT_INTERRUPTED, said
    assert f"job {remote_service.newest().id} is cancelled" in said
    assert remote_service.wait_for_end().status == "cancelled"
    assert not (tmp_path / "out").exists()


def test_a_killed_client_resumes_what_went_on_without_it(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    ran = ("run", "src/matmul.cu", *ONE, "--executor", "remote", "--out", "out")
    command = started(remote_service.address, tmp_path, *ran)
    wait_for(lambda: (tmp_path / "out/state/remote.json").is_file() or command.poll() is not None)
    command.kill()
    command.communicate()
    code, _, said = done(remote_service.address, tmp_path, "resume", "out")
    assert code == EXIT_FOUND, said
    assert "reading matmul.cu" in said
    assert remote_service.newest().attempts == 1
    assert {"run.json", "best.cu", "certificate.json"} <= files(tmp_path / "out")


@pytest.mark.deep
def test_a_run_outlasts_a_killed_service(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    ran = ("run", "src/matmul.cu", *ONE, "--executor", "remote", "--out", "out")
    command = started(remote_service.address, tmp_path, *ran)
    wait_for(lambda: (tmp_path / "out/state/remote.json").is_file() or command.poll() is not None)
    remote_service.kill("worker")
    remote_service.kill("api")
    time.sleep(1.0)
    remote_service.start_api()
    remote_service.start_worker()
    _, said = command.communicate(timeout=900)
    assert command.returncode == EXIT_FOUND, said
    assert remote_service.newest().attempts <= 2


@pytest.mark.deep
def test_connections_that_are_cut_lose_and_repeat_nothing(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    proxy = CuttingProxy(remote_service.port, most_bytes=150_000)
    before = len(httpx.get(f"{remote_service.address}/jobs").json())
    try:
        ran = ("run", "src/matmul.cu", *ONE, "--executor", "remote", "--out", "out")
        code, _, said = done(f"http://127.0.0.1:{proxy.port}", tmp_path, *ran)
    finally:
        proxy.close()
    assert code == EXIT_FOUND, said
    assert proxy.cuts > 1
    assert len(httpx.get(f"{remote_service.address}/jobs").json()) == before + 1
    lines = (tmp_path / "out/events.jsonl").read_text().splitlines()
    messages = [json.loads(line)["message"] for line in lines]
    for message in set(messages):
        assert said.count(message[:60]) >= 1, message
    assert len([line for line in said.splitlines() if "reading matmul.cu" in line]) == 1


def test_what_is_wrong_with_the_program_is_said_as_here(
    remote_service: RemoteService, program: Path, tmp_path: Path
) -> None:
    program.write_text(program.read_text().replace("printf", "return 3; printf"))
    command = ("run", "src/matmul.cu", "--out", "out", "--executor")
    here = done(None, tmp_path, *command, "cpu")
    there = done(remote_service.address, tmp_path, *command, "remote")
    assert (here[0], there[0]) == (EXIT_INPUT, EXIT_INPUT)
    assert there[2].splitlines()[-1] == here[2].splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "m.cu", "--model", "scripted:x"), "--model names a model of this machine"),
        (("run", "m.cu", "--review"), "--review needs a terminal"),
        (("run", "m.cu", "--clock-control", "base"), "--clock-control is for the GPU"),
        (("run", "m.cu", "--timeout", "601"), "timeout_seconds"),
        (("run", "m.cu", "--", "/etc/passwd"), "outside of the program's folder"),
        (("run", "m m.cu"), "filename"),
        (("mcp", "sandbox"), "MCP's tools work on this machine"),
    ],
)
def test_what_a_service_does_not_do_is_said_before_anything_is_sent(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    for name in ("m.cu", "m m.cu"):
        (tmp_path / name).write_text(MATMUL.replace('#include "sizes.h"', "#define SIZE 32"))
    split = words.index("--") if "--" in words else len(words)
    command = (*words[:split], "--executor", "remote", *words[split:])
    code, _, err = done("http://127.0.0.1:9", tmp_path, *command)
    assert code == EXIT_INPUT
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_no_address_and_nobody_there(tmp_path: Path) -> None:
    (tmp_path / "m.cu").write_text(MATMUL.replace('#include "sizes.h"', "#define SIZE 32"))
    command = ("run", "m.cu", "--executor", "remote")
    code, _, err = done(None, tmp_path, *command)
    assert code == EXIT_INPUT
    assert "set CUDAOPS_SERVER to its address" in err
    code, _, err = done("http://127.0.0.1:9", tmp_path, *command)
    assert code == EXIT_ENVIRONMENT
    assert "does not answer correctly" in err
    assert "cudaops serve" in err
    assert not (tmp_path / "runs").exists()
