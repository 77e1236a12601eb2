"""`cudaops replay` as a shell sees it: a folder is enough, without GPU, key, compiler, network."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudaops.domain.model_use import ModelCall
from tests.reports import recordings

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "tests" / "data" / "recorded" / "naive_matmul"
H200 = ROOT / "examples" / "recorded" / "h200_naive_matmul"


def replay(
    *arguments: str | Path, cwd: Path, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudaops", "replay", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_the_example_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLE, tmp_path / "elsewhere")
    before = sorted((p, p.stat().st_mtime_ns) for p in copy.rglob("*"))
    done = replay(copy, cwd=tmp_path, PATH="/nowhere", CUDAOPS_CACHE="/proc/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for wanted in (
        "examples/naive_matmul.cu, on cpu, times modelled for A10",
        "intake      reading naive_matmul.cu and running it once",
        "verify      iteration 1:",
        "Candidate 1: ",
        "+++ b/naive_matmul.cu",
        "speedup 7.37× (modelled for A10)",
    ):
        assert wanted in done.stdout, wanted
    assert sorted((p, p.stat().st_mtime_ns) for p in copy.rglob("*")) == before


def test_it_says_where_the_seconds_went(tmp_path: Path) -> None:
    done = replay(EXAMPLE, "--times", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((EXAMPLE / "run.json").read_text("utf-8"))
    stage, seconds = max(record["seconds_by_stage"].items(), key=lambda pair: pair[1])
    tool, worked = max(record["seconds_by_tool"].items(), key=lambda pair: pair[1])
    assert f"{seconds:.1f} s  {stage}\n" in done.stdout
    assert f"{worked:.1f} s  {tool}\n" in done.stdout
    gaps = [float(gap) for gap in re.findall(r"([0-9.]+) s after: ", done.stdout)]
    assert 0 < len(gaps) <= 12
    assert sum(gaps) <= record["loop_time_seconds"] + 1


def test_a_record_without_iterations_is_replayed_from_its_record(tmp_path: Path) -> None:
    done = replay(H200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "times measured on H200, CUDA events" in done.stdout
    assert "Candidate 2: rejected" in done.stdout
    assert "ACCEPTED" in done.stdout


def test_json_is_one_object_a_line(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    done = replay(folder, "--json", "--prompts", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [steps[0]["kind"], steps[-1]["kind"]] == ["run", "end"]
    calls = [step for step in steps if step["kind"] == "model_call"]
    assert [ModelCall.model_validate(call["call"]).role for call in calls] == ["planner", "coder"]
    assert calls[0]["messages"][0]["text"] == recordings.SYSTEM
    assert steps[-1]["model"]["fell_back"] == "--max-cost 0.01 is spent"


def test_one_iteration(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    done = replay(folder, "--iteration", "2", cwd=tmp_path)
    assert "Candidate 2" in done.stdout
    assert "Candidate 1" not in done.stdout
    assert "intake" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["empty"], "holds no run to replay: no run.json, no event"),
        (["yesterday"], "no run 'yesterday' under runs"),
        ([], "there is no run under runs"),
        (["run", "--iteration", "9"], "--iteration 9: not in this recording, which has 1, 2"),
        (["run", "--iteration", "0"], "iteration"),
        (["run", "--speed", "0"], "--speed must be above 0"),
        (["run", "--speed", "nan"], "--speed must be above 0"),
        (["run", "--export", "run"], "--export run is not empty; name a new folder"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "empty").mkdir()
    recordings.write(tmp_path / "run")
    done = replay(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_export_and_replay_of_the_copy(tmp_path: Path) -> None:
    folder = recordings.write(tmp_path / "run")
    key = "nvapi-" + "k" * 40
    path = folder / "events.jsonl"
    path.write_text(path.read_text().replace("proposes tiles", f"proposes {key} {tmp_path}/x"))
    record = folder / "run.json"
    here = f'"working_folder": "{tmp_path}"'
    record.write_text(record.read_text().replace('"working_folder": "."', here))
    done = replay(folder, "--export", "copy", cwd=tmp_path, NVIDIA_API_KEY="key-of-this-machine")
    assert done.returncode == 0, done.stderr
    assert re.match(r"copy: \d+ files, \d+ kB$", done.stdout)
    assert done.stderr.splitlines()[0] == "cudaops: 1 keys were in it and are removed"
    text = "".join(p.read_text() for p in (tmp_path / "copy").rglob("*") if p.is_file())
    assert key not in text
    assert str(tmp_path) not in text
    again = replay("copy", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "proposes [key removed] x" in again.stdout


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cudaops", "replay", str(EXAMPLE), "--speed", "0.001"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever starts the tests in the background has it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if "intake" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 130
    assert said in ("", "cudaops: interrupted\n")


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    command = f"{sys.executable} -m cudaops replay {EXAMPLE} | head -n 2"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.deep
def test_a_real_run_killed_and_resumed(tmp_path: Path) -> None:
    from tests.graph.test_resume import kill_in  # the whole graph: for this test alone

    folder = tmp_path / "run"
    kill_in("sandbox", folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    killed = replay(copy, cwd=tmp_path)
    assert killed.returncode == 0, killed.stderr
    said = " ".join(killed.stdout.split())
    assert "sandbox was at it: compiling, verifying and timing it." in said
    resumed = subprocess.run(
        [sys.executable, "-m", "cudaops", "resume", str(folder), "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    record = json.loads(resumed.stdout)
    started = time.monotonic()
    done = replay(folder, "--json", cwd=tmp_path)
    assert time.monotonic() - started < record["loop_time_seconds"], "without --speed nothing waits"
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    judged = [step for step in steps if step["kind"] == "iteration"]
    assert [step["attempt"] for step in judged] == record["attempts"]
    assert judged[0]["trials"]
    assert judged[0]["why"]
    assert judged[0]["verdict"].startswith(record["profile"]["verdict"])
    assert next(step for step in steps if step["kind"] == "patch")["text"].startswith("--- a/")
    assert steps[-1]["outcome"] == record["outcome"]
