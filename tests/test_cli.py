"""The command line as a shell sees it: exit codes, one-line errors, where output goes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from cudaops.cli.runs import find_folder
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.reports import json as run_json
from cudaops.settings import load_settings
from tests.reports import records

EXAMPLES = Path(__file__).parents[1] / "examples"
NCU = Path(__file__).parent / "data" / "ncu"


def cudaops(
    *arguments: str | Path, cwd: Path, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudaops", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def save(record: RunRecord, folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(run_json.dumps(record), encoding="utf-8")
    return folder


def test_modules_in_the_programs_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("queue", "random", "pathlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger was imported')", "utf-8")
    told = cudaops("run", "nowhere.cu", cwd=tmp_path)
    assert told.returncode == 2
    assert "nowhere.cu: no such file" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nowhere.cu"], "nowhere.cu: no such file"),
        (["run", "full"], "full holds no .cu file; name the .cu file"),
        (["run"], "name the program: cudaops run FILE.cu"),
        (["run", "k.cu", "--device", "A11"], "unknown device 'A11', did you mean A10; known: "),
        (["run", "k.cu", "--arch", "86"], "arch '86': an nvcc target looks like sm_86"),
        (
            ["run", "k.cu", "--arch", "sm_90", "--device", "A10"],
            "does not run on A10, which is sm_86",
        ),
        (["run", "k.cu", "--max-iterations", "0"], "max-iterations"),
        (["run", "k.cu", "--min-speedup", "fast"], "min-speedup"),
        (["run", "k.cu", "--executor", "gpu"], "executor"),
        (["run", "k.cu", "--out", "full"], "out full is not empty; name a new folder"),
        (["run", "k.cu", "--colour"], "--colour"),
        (["profile", "nowhere.cu"], "nowhere.cu: no such file"),
        (["verify", "k.cu", "nowhere.cu"], "nowhere.cu: no such file"),
        (["resume", "latest"], "there is no run under runs"),
        (["resume", "full"], "has no run"),
        (["report", "yesterday"], "no run 'yesterday' under runs"),
        (["report", "full"], "holds no run.json: the run has not finished; cudaops resume"),
        (["knowledge", "add", "nowhere.md"], "nowhere.md: no such file or folder"),
        (["optimise", "k.cu"], "optimise"),
        (["mcp", "everything"], "everything"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = cudaops(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("cudaops: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_settings_come_from_the_working_folder_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "CUDAOPS_RUNS=mine\nNVIDIA_API_KEY=secret\nDATABASE_URL=\nOTHER=1\n"
    )
    (tmp_path / "inner").mkdir()
    settings = load_settings(tmp_path)
    assert settings.runs == Path("mine")
    assert settings.nvidia_api_key is not None
    assert settings.database_url is None
    assert "secret" not in repr(settings)
    assert load_settings(tmp_path / "inner").runs == Path("runs"), (
        ".env is not searched for upwards"
    )
    done = cudaops("report", "x", cwd=tmp_path, CUDAOPS_RUNS="theirs")
    assert "under theirs" in done.stderr


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"CUDAOPS_RUNS=\xff\xfe\n")
    done = cudaops("report", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert ".env cannot be read" in done.stderr


def test_report_prints_and_writes(tmp_path: Path) -> None:
    folder = save(records.provisional(), tmp_path / "runs" / "naive_matmul" / "20261120T080000Z")
    done = cudaops("report", "latest", cwd=tmp_path, NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert "5.56× (modelled for A10)" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Files in runs/naive_matmul/20261120T080000Z" in done.stdout
    assert (folder / "report.md").read_text("utf-8").startswith("# naive")
    as_json = cudaops("report", folder, "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout)["verify"]["speedup"] == 5.561


def test_report_into_a_closed_pipe_says_nothing(tmp_path: Path) -> None:
    save(records.provisional(), tmp_path / "runs" / "k" / "20261120T080000Z")
    command = f"{sys.executable} -m cudaops report latest | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""


def test_report_of_a_broken_record(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    done = cudaops("report", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a run record: run_id: Field required" in done.stderr


def test_an_unwritable_place_is_exit_3_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file, not a folder")
    done = cudaops("run", EXAMPLES / "naive_matmul.cu", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("         ")


def test_a_fault_of_ours_is_told_without_a_traceback(tmp_path: Path) -> None:
    folder = save(records.provisional(), tmp_path / "run")
    (folder / "report.md").mkdir()
    done = cudaops("report", folder, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "bug of cudaops: IsADirectoryError" in done.stderr
    (crash,) = tmp_path.glob("cudaops-crash-*.txt")
    assert "Traceback" in crash.read_text()


def test_version_and_help(tmp_path: Path) -> None:
    assert cudaops("--version", cwd=tmp_path).stdout == "cudaops 0.1.0\n"
    text = cudaops("--help", cwd=tmp_path).stdout
    for command in ("run", "resume", "profile", "verify", "report", "doctor", "knowledge", "mcp"):
        assert command in text
    assert "Exit codes" in text
    assert "--min-speedup" in cudaops("run", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("form", ["details.csv", "raw.csv", "ncu-rep"])
def test_profile_of_what_ncu_measured(tmp_path: Path, form: str) -> None:
    done = cudaops("profile", "--from", NCU / f"h200_naive_matmul_1024.{form}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "87 metrics" in done.stdout
    assert "Limited by L1 load throughput: L1/TEX is at 9" in done.stdout
    assert "DRAM at 0.42 %" in done.stdout
    assert "96.5 %  >= 80 %  measured on H200, ncu" in done.stdout
    assert "modelled" not in done.stdout


@pytest.mark.parametrize("form", ["details.csv", "raw.csv"])
def test_another_capture_gets_another_verdict(tmp_path: Path, form: str) -> None:
    done = cudaops("profile", NCU / f"h200_regtiled_matmul_1024.{form}", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert summary["metrics_parsed"] == 87
    assert summary["subtype"] == "occupancy_grid"
    assert summary["baseline"]["device"] == "H200"


def test_profile_of_a_report_that_does_not_hold_what_was_asked(tmp_path: Path) -> None:
    details = NCU / "h200_naive_matmul_1024.details.csv"
    other = cudaops("profile", details, "--kernel", "gemm", cwd=tmp_path)
    assert "there is no launch of 'gemm'" in other.stderr
    assert "it has naive_matmul" in other.stderr
    unknown = tmp_path / "unknown.csv"
    unknown.write_text(details.read_text("utf-8").replace('"9.0"', '"7.0"'), encoding="utf-8")
    unnamed = cudaops("profile", unknown, cwd=tmp_path)
    assert unnamed.returncode == 2
    assert "--device NAME" in unnamed.stderr
    assert cudaops("profile", unknown, "--device", "H200", cwd=tmp_path).returncode == 0
    assert "not both" in cudaops("profile", "k.cu", "--from", details, cwd=tmp_path).stderr
    assert "--from" in cudaops("profile", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.csv", "a,b\n1,2\n", "ncu --import REPORT --csv --page details"),
        ("x.ncu-rep", "binary", "contains no profiled launch"),
    ],
)
def test_profile_of_something_ncu_did_not_write(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_text(text)
    done = cudaops("profile", name, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_find_folder(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    older = save(records.provisional(), runs / "a" / "20261119T000000Z")
    newer = save(records.nothing_found(), runs / "b" / "20261120T000000Z")
    (runs / "a" / "20261120T000000Z").mkdir()
    assert find_folder("latest", runs) == newer
    assert find_folder("20261119T000000Z", runs) == older
    assert find_folder("a/20261120T000000Z", runs) == runs / "a" / "20261120T000000Z"
    assert find_folder(str(older / "run.json"), runs) == older
    with pytest.raises(
        InputError, match=r"names several runs: a/20261120T000000Z, b/20261120T000000Z"
    ):
        find_folder("20261120T000000Z", runs)


def test_knowledge_add_search_status(tmp_path: Path) -> None:
    note = tmp_path / "zebra.md"
    note.write_text("# Zebra stripes\n\nA zebra stride makes bank conflicts of a peculiar kind.\n")
    added = cudaops("knowledge", "add", note, cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    assert "1 written" in added.stdout
    found = cudaops("knowledge", "search", "zebra stride bank conflicts", "--json", cwd=tmp_path)
    assert any("zebra" in citation["text"] for citation in json.loads(found.stdout))
    assert "wordllama/l2_supercat_256, not reranked" in found.stderr
    plain = cudaops("knowledge", "search", "zebra stride", "--limit", "2", cwd=tmp_path)
    assert "Zebra stripes" in plain.stdout
    foreign = cudaops("knowledge", "search", "How do I bake bread with rye flour?", cwd=tmp_path)
    assert foreign.returncode == 0, foreign.stderr
    assert foreign.stdout.startswith("no passage is relevant")
    status = json.loads(cudaops("knowledge", "status", "--json", cwd=tmp_path).stdout)
    assert status["notes"] > 10
    assert status["embedded"] == status["chunks"]
    assert str(note) in status["origins"]


def test_knowledge_without_its_database_is_exit_3_with_a_remedy(tmp_path: Path) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:9/none"
    done = cudaops("knowledge", "status", cwd=tmp_path, DATABASE_URL=url)
    assert done.returncode == 3
    assert "DATABASE_URL" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_mcp_offers_all_tools_on_stdio(tmp_path: Path) -> None:
    async def ask() -> set[str]:
        command = StdioTransport(
            sys.executable, ["-m", "cudaops", "mcp", "all"], cwd=str(tmp_path), env=dict(os.environ)
        )
        async with Client(command) as client:
            return {tool.name for tool in await client.list_tools()}

    assert {"profile_kernel", "search_knowledge", "open_program", "judge_rewrite"} <= asyncio.run(
        ask()
    )


def test_doctor_names_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    done = cudaops("doctor", "--json", cwd=tmp_path, NVIDIA_API_KEY="nvapi-hunter2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hunter2" not in done.stdout
    examination = json.loads(done.stdout)
    assert examination["ready"]
    rungs = {rung["name"]: rung for rung in examination["rungs"]}
    assert rungs["g++"]["status"] == "ok"
    assert rungs["nim key"]["status"] == "ok"

    crippled = cudaops("doctor", cwd=tmp_path, PATH=str(tmp_path), CUDAOPS_CACHE="/proc/cudaops")
    assert crippled.returncode == 3
    assert "apt-get install g++" in crippled.stdout
    assert "set CUDAOPS_CACHE" in crippled.stdout
    assert "Not ready" in crippled.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_says_how_to_go_on(number: int, tmp_path: Path) -> None:
    program = tmp_path / "naive_matmul.cu"
    text = (EXAMPLES / "naive_matmul.cu").read_text("utf-8")
    program.write_text(text.replace("const int N = 1024", "const int N = 256"))
    command = [sys.executable, "-m", "cudaops", "run", str(program)]
    command += ["--max-iterations", "1", "--max-trials", "2"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever starts the tests in the background has it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN
        ),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "  profiler  " in line:
                break
        process.send_signal(number)
        said = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    hint = re.search(r"continue with: python -m cudaops resume (\S+)$", said, flags=re.MULTILINE)
    assert hint, said
    if number != signal.SIGINT:
        return
    resumed = cudaops("resume", hint.group(1), "--json", cwd=tmp_path, timeout=280)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["outcome"] == "provisional"
