"""The parent's side of a runner, over real processes whose driver is scripted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Misbehaved
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.cuda.gpu_lock import gpu_lock, lock_path
from cudaops.executors.cuda.protocol import (
    REPLY,
    TASK,
    FaultReply,
    MeasureReply,
    ProbeReply,
    ProbeTask,
    RefusedReply,
    Reply,
    RunReply,
    Task,
)
from cudaops.executors.cuda.session import RunnerSession, task_command
from cudaops.executors.cuda.turns import GivenTurn
from cudaops.executors.process import run_bounded
from tests.executors.cuda.gpu_tasks import INPUT, QUICK, measure_task, run_task
from tests.executors.cuda.scripted_gpu import BROKEN

ROOT = str(Path(__file__).resolve().parents[3])
SCRIPTED = "tests.executors.cuda.scripted_gpu:ScriptedGpu"
BREAKABLE = "tests.executors.cuda.scripted_gpu:BreakableGpu"
PATHS = {"PYTHONPATH": ROOT}


@pytest.fixture(autouse=True)
def _locks_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def session() -> Iterator[RunnerSession]:
    with RunnerSession(SCRIPTED, environment=PATHS) as opened:
        yield opened


def wrong(outcome: Reply | Misbehaved) -> Misbehaved:
    assert isinstance(outcome, Misbehaved), outcome
    return outcome


def works(session: RunnerSession, folder: Path) -> None:
    """A plain task runs, on whatever runner there is now."""
    assert isinstance(session.request(run_task(folder, "scale"), 20.0), RunReply)
    np.testing.assert_array_equal(np.fromfile(folder / "b.out", np.float32), 3 * INPUT)


def test_a_session_starts_when_it_is_needed_and_serves_many_tasks(
    session: RunnerSession, tmp_path: Path
) -> None:
    assert session.facts.name == "Scripted"
    first = session.facts.uuid
    works(session, tmp_path)
    works(session, tmp_path)
    assert isinstance(session.request(ProbeTask(), 10.0), ProbeReply)
    assert session.facts.uuid == first
    session.close()
    works(session, tmp_path)


def test_a_measurement_comes_back_without_cupti_where_there_is_no_driver(
    session: RunnerSession, tmp_path: Path
) -> None:
    reply = session.request(measure_task(tmp_path, "scale", "other"), 60.0)
    assert isinstance(reply, MeasureReply)
    assert [r.regime for r in reply.regimes] == ["cold", "warm"]
    assert all(len(s.samples_us) == 8 for r in reply.regimes for s in r.sides)


def test_a_tracer_that_takes_the_runner_down_is_not_the_kernels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunnerSession, "_tracer_fails", False)
    policy = QUICK.model_copy(update={"cupti_launches": 2})
    environment = {**PATHS, BROKEN: str(tmp_path / "marker")}
    with RunnerSession(SCRIPTED, environment=environment) as session:
        reply = session.request(measure_task(tmp_path, "fragile", policy=policy), 60.0)
        assert isinstance(reply, MeasureReply), reply
        assert any("the runner ended meanwhile" in n for n in reply.notices)
        always = measure_task(tmp_path, "segfault", policy=policy)
        assert wrong(session.request(always, 60.0)).what == "crash"


@pytest.mark.parametrize(
    ("symbol", "what", "said"),
    [
        ("segfault", "crash", "signal SIGSEGV"),
        ("illegal", "out_of_bounds", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("trap", "crash", "CUDA_ERROR_LAUNCH_FAILED"),
        ("before", "guard_overwritten", "before the start of allocation b"),
        ("flood", "output_flood", "printed more"),
    ],
)
def test_misbehaviour_costs_a_runner_at_most(
    session: RunnerSession, tmp_path: Path, symbol: str, what: str, said: str
) -> None:
    works(session, tmp_path)
    found = wrong(session.request(run_task(tmp_path, symbol), 30.0))
    assert found.what == what
    assert said in found.message
    works(session, tmp_path)


def test_a_kernel_that_never_ends_is_stopped(session: RunnerSession, tmp_path: Path) -> None:
    works(session, tmp_path)
    started = time.monotonic()
    found = wrong(session.request(run_task(tmp_path, "hang"), 0.5))
    assert (found.what, time.monotonic() - started < 5) == ("timeout", True)
    assert "within 0.5 s" in found.message
    works(session, tmp_path)


def test_what_kernels_print_is_kept_for_the_log(session: RunnerSession, tmp_path: Path) -> None:
    session.request(run_task(tmp_path, "prints"), 20.0)
    assert "hello from the kernel" in session.log
    found = wrong(session.request(run_task(tmp_path, "prints", "before"), 20.0))
    assert "hello from the kernel" in found.log


def test_garbage_on_the_pipe_is_no_reply(session: RunnerSession, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="I passed"):
        session.request(run_task(tmp_path, "garbage"), 20.0)
    works(session, tmp_path)


def test_a_fault_of_ours_is_not_the_kernels(session: RunnerSession, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"exit code 1.*a fault of ours"):
        session.request(run_task(tmp_path, "bug"), 20.0)
    works(session, tmp_path)


def test_a_refusal_carries_its_remedy(session: RunnerSession, tmp_path: Path) -> None:
    task = run_task(tmp_path, "scale")
    (tmp_path / "a.bin").unlink()
    with pytest.raises(SandboxUnavailable) as caught:
        session.request(task, 20.0)
    assert "a.bin" in caught.value.problem
    assert "capture the workload again" in caught.value.remedy
    works(session, tmp_path)


def test_a_gpu_that_does_not_come_back_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    with RunnerSession(BREAKABLE, environment={**PATHS, BROKEN: str(broken)}) as session:
        works(session, tmp_path)
        broken.touch()
        works(session, tmp_path)  # nothing has happened yet that would be a reason to look
        wrong(session.request(run_task(tmp_path, "trap"), 20.0))
        with pytest.raises(SandboxUnavailable) as caught:
            session.request(run_task(tmp_path, "scale"), 20.0)
        assert "does not work since" in caught.value.problem
        assert "nvidia-smi" in caught.value.remedy
        broken.unlink()
        works(session, tmp_path)


def test_without_a_gpu_the_remedy_says_what_to_install(tmp_path: Path) -> None:
    with (
        RunnerSession("nvidia", environment={"CUDA_VISIBLE_DEVICES": ""}) as session,
        pytest.raises(PrerequisiteError) as caught,
    ):
        session.request(run_task(tmp_path, "scale"), 20.0)
    assert caught.value.remedy


def test_a_driver_that_cannot_be_imported_is_infrastructure() -> None:
    with (
        RunnerSession("no.such.module:Driver") as session,
        pytest.raises(SandboxUnavailable, match="No module named 'no'"),
    ):
        assert session.facts


def test_threads_take_turns(session: RunnerSession, tmp_path: Path) -> None:
    outcomes: list[object] = []

    def ask(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.append(session.request(run_task(folder, "scale"), 20.0))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(o) for o in outcomes] == [RunReply] * 4


def test_nothing_else_runs_while_something_is_timed(tmp_path: Path) -> None:
    with RunnerSession(SCRIPTED, environment=PATHS, lock_wait_s=0.2) as session:
        uuid = session.facts.uuid
        with gpu_lock(uuid, alone=False):
            works(session, tmp_path)
            with pytest.raises(SandboxUnavailable, match="busy"):
                session.request(measure_task(tmp_path, "scale"), 20.0)
        with gpu_lock(uuid, alone=True), pytest.raises(SandboxUnavailable, match="busy"):
            session.request(run_task(tmp_path, "scale"), 20.0)
        works(session, tmp_path)
    assert lock_path(uuid).exists()


def test_a_time_that_only_ranks_is_not_kept_waiting(tmp_path: Path) -> None:
    with RunnerSession(SCRIPTED, environment=PATHS, lock_wait_s=1.0) as session:
        uuid, task = session.facts.uuid, measure_task(tmp_path, "scale")
        hint = task.model_copy(
            update={"policy": task.policy.model_copy(update={"settled_pct": 1.0})}
        )
        with gpu_lock(uuid, alone=False):
            assert isinstance(session.request(hint, 20.0), MeasureReply)
        with gpu_lock(uuid, alone=True), pytest.raises(SandboxUnavailable, match="busy"):
            session.request(hint, 20.0)


BESIDE = """
import sys, time
from cudaops.executors.cuda.gpu_lock import gpu_lock
print("ready", flush=True)
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    with gpu_lock(sys.argv[1], alone=False):
        time.sleep(0.05)
"""


def test_those_that_wait_to_be_ranked_have_the_gpu_in_one_turn(tmp_path: Path) -> None:
    """Somebody else stands in line behind the first of them, and has it after the last."""
    with RunnerSession(SCRIPTED, environment=PATHS) as session:
        task = measure_task(tmp_path, "scale")
        hint = task.model_copy(
            update={
                "policy": QUICK.model_copy(update={"settled_pct": 1.0, "spin_up_ms": 50.0}),
                "sides": task.sides[:1],
            }
        )
        assert isinstance(session.request(hint, 20.0), MeasureReply)
        uuid, ended = session.facts.uuid, []

        def ranked() -> None:
            assert isinstance(session.request(hint, 20.0), MeasureReply)
            ended.append(time.monotonic())

        def other() -> None:
            with gpu_lock(uuid, alone=True):
                taken.append(time.monotonic())

        taken: list[float] = []
        threads = [threading.Thread(target=ranked) for _ in range(4)]
        behind = threading.Thread(target=other)
        with gpu_lock(uuid, alone=True):
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            behind.start()  # in line behind the first of them, before the others are
            time.sleep(0.1)
            assert not ended
        for thread in (*threads, behind):
            thread.join()
        assert len(ended) == 4
        assert max(ended) - 0.02 < taken[0]
        session.request(run_task(tmp_path, "scale"), 20.0)
        with gpu_lock(uuid, alone=True, wait_s=1.0):
            pass


def test_who_wants_the_gpu_alone_is_not_kept_out_by_those_who_share_it() -> None:
    """Three processes that come again at once: without a line there is never a moment for it."""
    uuid = f"GPU-line-{os.getpid()}"
    command = [sys.executable, "-c", BESIDE, uuid, "20"]
    others = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **PATHS})
        for _ in range(3)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline()
        for _ in range(5):
            with gpu_lock(uuid, alone=True, wait_s=10.0):
                pass
        assert all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.communicate()
        for path in (lock_path(uuid), lock_path(uuid).with_suffix(".line")):
            path.unlink(missing_ok=True)


def test_processes_with_temporary_folders_of_their_own_share_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lock_path("GPU-1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert lock_path("GPU-1") == before


def test_a_runner_ends_with_its_parent(tmp_path: Path) -> None:
    """Even while its kernel never ends and its parent was killed."""
    task = tmp_path / "task.json"
    task.write_bytes(TASK.dump_json(run_task(tmp_path, "hang")))
    parent = f"""
        import os, threading, time
        from cudaops.executors.cuda.protocol import TASK
        from cudaops.executors.cuda.session import RunnerSession
        session = RunnerSession({SCRIPTED!r}, environment={PATHS!r})
        session.facts
        task = TASK.validate_json(open({str(task)!r}, "rb").read())
        threading.Thread(target=session.request, args=(task, 60.0), daemon=True).start()
        time.sleep(0.5)
        print(session._runner._child.pid, flush=True)
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(parent)],
        env={**os.environ, "PYTHONPATH": ROOT, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=30,
        check=True,
    )  # fmt: skip
    status = Path(f"/proc/{int(done.stdout)}/stat")
    deadline = time.monotonic() + 10
    while _lives(status):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(status: Path) -> bool:
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _once(driver: str, task: Task, folder: Path) -> tuple[int, Reply]:
    (folder / "task.json").write_bytes(TASK.dump_json(task))
    argv, env = task_command(driver, folder / "task.json", folder / "reply.json", environment=PATHS)
    done = run_bounded(argv, cwd=folder, timeout_s=30.0, env=env)
    return done.exit_code, REPLY.validate_json((folder / "reply.json").read_bytes())


def test_a_runner_that_waits_for_its_task_lets_the_tool_see_a_kernel_first(tmp_path: Path) -> None:
    first, asked = tmp_path / "first", tmp_path / "task.json"
    first.mkdir()
    argv, env = task_command(SCRIPTED, asked, tmp_path / "reply.json", environment=PATHS)

    @contextmanager
    def turn() -> Iterator[None]:
        yield
        whole = tmp_path / "whole.json"
        whole.write_bytes(TASK.dump_json(run_task(tmp_path, "scale")))
        whole.rename(asked)  # the runner reads it as soon as it is there

    with GivenTurn(first, turn):
        done = run_bounded([*argv, "--first", str(first)], cwd=tmp_path, timeout_s=30.0, env=env)
    assert done.exit_code == 0, done.stderr
    reply = REPLY.validate_json((tmp_path / "reply.json").read_bytes())
    assert isinstance(reply, RunReply)


def test_one_task_from_a_file_for_tools_that_wrap_a_process(tmp_path: Path) -> None:
    code, reply = _once(SCRIPTED, run_task(tmp_path, "scale"), tmp_path)
    assert (code, type(reply)) == (0, RunReply)
    code, reply = _once(SCRIPTED, run_task(tmp_path, "illegal"), tmp_path)
    assert (code, type(reply)) == (0, FaultReply)
    task = run_task(tmp_path, "scale")
    (tmp_path / "a.bin").unlink()
    code, reply = _once(SCRIPTED, task, tmp_path)
    assert (code, type(reply)) == (3, RefusedReply)
