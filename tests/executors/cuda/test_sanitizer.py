"""compute-sanitizer around a runner, and its findings in the words of the `cpu` checker.

The tool is a double (`sanitizer_double.py`) that runs the program it is given and writes the logs
of `tests/data/sanitizer`; where the real one is installed, it is asked as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.cuda.sanitizer_report import parse_report
from cudaops.domain.execution import CheckerUnavailable
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.protocol import FaultReply, RefusedReply
from cudaops.executors.cuda.sanitizer import (
    STRAY,
    Extent,
    Sanitizer,
    SanitizerNames,
    SanitizerRun,
    TaskCommand,
    Tool,
    find_compute_sanitizer,
    misbehaviours,
    names_for,
)
from tests.executors.cuda.gpu_checks import (
    EXPLOITS,
    LOGS,
    logs,
    make_double,
    product,
    subject,
    under,
)

END = " with no barrier between them"
Look = Callable[..., SanitizerRun | CheckerUnavailable]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Sanitizer:
    return make_double(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def look(cpu_executor: CpuExecutor, double: Sanitizer, tmp_path: Path) -> Look:
    source = (EXPLOITS / "races_on_shared_memory.cu").read_text()
    one = subject(cpu_executor, product(tmp_path, 16), source, tmp_path)

    def look(
        command: TaskCommand,
        tool: Tool = "memcheck",
        timeout_s: float = 20.0,
        tool_itself: Sanitizer = double,
    ) -> SanitizerRun | CheckerUnavailable:
        names = names_for(one.task, {0: "A", 1: "B", 2: "C"}, ["mm.cu"])
        return tool_itself.look(tool, one.task, names, command, tmp_path / "100%d", timeout_s)

    return look


def looked(outcome: SanitizerRun | CheckerUnavailable) -> SanitizerRun:
    assert isinstance(outcome, SanitizerRun), outcome
    return outcome


def refused(outcome: SanitizerRun | CheckerUnavailable) -> CheckerUnavailable:
    assert isinstance(outcome, CheckerUnavailable), outcome
    return outcome


def test_its_version_and_options(double: Sanitizer) -> None:
    assert double.version == "2026.4.0.0"
    assert {"--tool", "--padding", "--racecheck-report"} <= double.options


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
def test_nothing_found(look: Look, tool: Tool) -> None:
    seen = looked(look(under(), tool))
    assert (seen.tool, seen.found) == (tool, ())


def test_an_access_in_the_checkers_words(look: Look) -> None:
    command = under(logs(memcheck="memcheck_past_the_end"), exit_code=1)
    (found,) = looked(look(command)).found
    assert found.block == (7, 0, 0)
    assert found.misbehaved.what == "out_of_bounds"
    assert found.misbehaved.message == (
        "fast: write of 4 bytes, 0 bytes past the end of an allocation of 4000 bytes, "
        "thread (104,0,0) of block (7,0,0)"
    )
    assert str(found.misbehaved.location) == "candidate.cu:5"


def test_an_allocation_is_named_where_its_size_is_its_own() -> None:
    report = parse_report((LOGS / "memcheck_past_the_end.log").read_text())
    names = SanitizerNames(("k.cu",), {}, (Extent("a", 8000), Extent("b", 4000)))
    (found,) = misbehaviours(report, names)
    said = "write of 4 bytes, 0 bytes past the end of allocation b (size 4000 bytes)"
    assert found.misbehaved.message.startswith(said)


@pytest.mark.parametrize(
    ("printed", "files", "place"),
    [
        ("tile.cuh", ("k.cu", "inc/tile.cuh"), "inc/tile.cuh:5"),
        ("tile.cuh", ("k.cu", "a/tile.cuh", "b/tile.cuh"), "None"),
        ("/build/w/b/tile.cuh", ("k.cu", "a/tile.cuh", "b/tile.cuh"), "b/tile.cuh:5"),
        ("C:\\w\\k.cu", ("k.cu",), "k.cu:5"),
        ("./k.cu", ("k.cu",), "k.cu:5"),
        ("/usr/include/cuda_fp16.hpp", ("k.cu",), "None"),
        ("cuda_fp16.hpp", ("k.cu",), "None"),
    ],
)
def test_a_file_that_could_be_another_is_not_named(
    printed: str, files: tuple[str, ...], place: str
) -> None:
    text = (LOGS / "memcheck_past_the_end.log").read_text().replace("candidate.cu", printed)
    for found in misbehaviours(parse_report(text), SanitizerNames(files, {}, ())):
        assert str(found.misbehaved.location) == place


def test_every_kind_in_words(look: Look) -> None:
    found = looked(look(under(logs(memcheck="memcheck_kinds")))).found
    said = {str(f.misbehaved.location): f.misbehaved for f in found}
    words = {line: m.message.removeprefix("fast: ").split(", thread")[0]
             for line, m in said.items()}  # fmt: skip
    assert words == {
        "candidate.cu:6": "read of 4 bytes, 32 bytes before the start of "
        "an allocation of 4000 bytes",
        "candidate.cu:9": "read of 16 bytes at the misaligned address 0x7f02d3a00f98",
        "candidate.cu:7": "write of 4 bytes outside of shared memory (address 0x440)",
        "candidate.cu:8": "read of 8 bytes outside of local memory (address 0xfffde8)",
        "candidate.cu:10": "atomic write of 4 bytes through a null pointer (address 0)",
        "candidate.cu:11": "read of 16 bytes, across the end of an allocation of 4000 bytes, "
        "8 bytes past it",
        "candidate.cu:12": "Trace/breakpoint trap",
        "None": "misuses device memory: double free",
    }
    assert said["candidate.cu:9"].what == "crash"
    assert found[0].misbehaved.what == "out_of_bounds"


def test_a_race_is_told_from_both_lines(look: Look) -> None:
    found = looked(look(under(logs(racecheck="racecheck")), "racecheck")).found
    said = [f.misbehaved for f in found]
    assert {m.what for m in said} == {"shared_race"}
    assert [(str(m.location), m.message.split(": ")[1]) for m in said] == [
        (place, f"{here} of shared memory that another thread {there} at {other}{END}")
        for place, here, there, other in (
            ("candidate.cu:6", "write", "reads", "candidate.cu:7"),
            ("candidate.cu:6", "write", "writes", "candidate.cu:6"),
            ("candidate.cu:7", "read", "writes", "candidate.cu:6"),
            ("candidate.cu:12", "read", "writes", "candidate.cu:13"),
            ("candidate.cu:13", "write", "reads", "candidate.cu:12"),
        )
    ]  # fmt: skip


def test_barriers_and_unwritten_memory(look: Look) -> None:
    command = under(logs(synccheck="synccheck", initcheck="initcheck"))
    barriers = [f.misbehaved for f in looked(look(command, "synccheck")).found]
    assert [(m.what, str(m.location)) for m in barriers] == [
        ("divergent_barrier", f"candidate.cu:{line}") for line in (6, 9, 15)
    ]
    assert "not all threads of block (3,0,0) reach this barrier" in barriers[0].message
    reads = [f.misbehaved for f in looked(look(command, "initcheck")).found]
    assert [(m.what, str(m.location)) for m in reads] == [
        ("uninitialised_read", f"candidate.cu:{line}") for line in (8, 9)
    ]
    assert "no thread of block (5,0,0) has written" in reads[0].message


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("device_not_supported", "WDDM"),
        ("not_tracked", "didn't track the launch"),
        ("no_process", "terminated before first instrumented API call"),
        ("unknown", "1 errors that cannot be read: Counted fabric operation"),
    ],
)
def test_what_proves_nothing(look: Look, log: str, problem: str) -> None:
    outcome = refused(look(under(logs(memcheck=log))))
    assert outcome.checker == "compute-sanitizer memcheck"
    assert problem in outcome.problem
    assert outcome.remedy in outcome.line


def test_a_clean_log_needs_the_runners_word(look: Look) -> None:
    assert "left no reply" in refused(look(under(reply=""))).problem
    fault = FaultReply(what="crash", message="out of memory").model_dump_json()
    assert "fails only under it: out of memory" in refused(look(under(reply=fault))).problem
    no_gpu = RefusedReply(problem="there is no GPU", remedy="run `nvidia-smi`").model_dump_json()
    command = under(logs(memcheck="never_started"), reply=no_gpu, exit_code=3)
    assert refused(look(command)).line.endswith("there is no GPU; run `nvidia-smi`")
    assert "exit code 3" in refused(look(under(exit_code=3))).problem
    assert "no summary" in refused(look(under({"DOUBLE_SILENT": "1"}))).problem


def test_an_old_version_is_not_asked_what_it_cannot_do(
    look: Look, double: Sanitizer, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\nDOUBLE_OLD=1 exec {double.program} "$@"\n')
    old.chmod(0o755)
    outcome = refused(look(under(), "initcheck", tool_itself=Sanitizer(old)))
    assert "has no option --initcheck-address-space" in outcome.problem
    assert outcome.remedy == "install a newer one"


def test_a_run_that_does_not_end_is_stopped_with_all_it_started(look: Look, tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = refused(look(under({"DOUBLE_HANGS": "1"}), "racecheck", timeout_s=1.5))
    assert time.monotonic() - started < 10
    assert "did not finish within 1.5 s" in outcome.problem
    (pid,) = tmp_path.rglob("racecheck.pid")
    for _ in range(50):
        if not carries_the_token(int(pid.read_text())):
            return
        time.sleep(0.1)
    pytest.fail("the stray is still there")


def carries_the_token(pid: int) -> bool:
    try:
        return STRAY.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_the_installed_one_says_why_it_cannot_look_here(look: Look) -> None:
    program = find_compute_sanitizer()
    if program is None:
        pytest.skip("compute-sanitizer is not installed")
    real = Sanitizer(program)
    assert real.version
    assert "--racecheck-report" in real.options
    assert "before first instrumented" in refused(look(under(), tool_itself=real)).problem


def test_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "compute-sanitizer" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_compute_sanitizer() == program
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.delenv("CUDA_HOME")
    assert find_compute_sanitizer() == program
