"""`cudaops run` and `confirm` with `--executor remote`, the service killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.remote_service import RemoteService, wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"

pytestmark = [pytest.mark.timeout(1800)]


def command(service: RemoteService, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cudaops", *arguments],
        cwd=folder,
        env={**os.environ, "CUDAOPS_SERVER": service.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.deep
def test_a_run_outlasts_a_killed_service_and_is_confirmed_there(
    remote_service: RemoteService, tmp_path: Path
) -> None:
    text = EXAMPLE.read_text().replace("const int N = 1024;", "const int N = 512;")
    (tmp_path / "matmul.cu").write_text(text)
    earlier = len(remote_service.calls())

    def calls() -> list[tuple[str, str, int, str]]:
        return remote_service.calls()[earlier:]

    where = ("--executor", "remote", "--device", "A10", "--max-iterations", "1")
    running = command(remote_service, tmp_path, "run", "matmul.cu", *where, "--out", "out")
    wait_for(lambda: len(calls()) > 8 or running.poll() is not None)
    remote_service.kill("worker")
    remote_service.kill("api")
    remote_service.start_api()
    remote_service.start_worker()
    said, _ = running.communicate(timeout=800)
    assert running.returncode == 0, said
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["outcome"], record["executor"]) == ("provisional", "remote")
    assert (record["time_source"], record["device"]) == ("modelled", "A10")
    assert record["options"]["remote"] == "cpu"
    assert record["seconds_by_tool"]["service"] > 0
    made = calls()
    assert {status for _, status, _, _ in made} == {"ended"}
    assert {problem for _, _, _, problem in made} == {None}
    # Only what the killed worker was at work on was begun again.
    assert sum(attempts - 1 for _, _, attempts, _ in made) <= 2
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert "image_sha256" in json.dumps(certificate)
    confirming = command(remote_service, tmp_path, "confirm", "out", "--executor", "remote")
    said, _ = confirming.communicate(timeout=800)
    assert confirming.returncode == 0, said
    assert "holds: provisional" in said
