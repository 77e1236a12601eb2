"""What breaks between the remote executor and its service: nothing is lost, nothing runs twice."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from cudaops.cli.boundary import EXIT_ENVIRONMENT
from cudaops.domain.execution import Misbehaved
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.program.plans import baseline_plan, resolve
from cudaops.sandbox.executors.remote import RemoteExecutor
from tests.sandbox.cases import Case, array, before, compiled, ran, run, vector_case
from tests.sandbox.conformance import SCALE, SCALE_LAUNCH, rewrite
from tests.service.cutting_proxy import CuttingProxy
from tests.service.remote_service import RemoteService, wait_for
from tests.service.workers import removable_programs

ENDLESS = "while (*(const volatile float*)a == 0.0f) b[0] = i;"


@pytest.fixture
def executor(remote_service: RemoteService, cache: Path) -> Iterator[RemoteExecutor]:
    made = remote_service.executor(cache / "remote")
    yield made
    made.close()


def endless(executor: RemoteExecutor, case: Case, limit_s: float) -> Callable[[], Misbehaved]:
    """Begin a run that takes `limit_s`; what gives its outcome."""
    bad = rewrite(ENDLESS)
    unit = compiled(executor, case, bad)
    plan = resolve(bad, case.program.kernel("scale"), case.workload)
    outcomes: list[object] = []

    def work() -> None:
        folder = case.folder / "endless"
        outcomes.append(
            executor.run(unit, case.workload, plan, before(case), folder, timeout_s=limit_s)
        )

    thread = threading.Thread(target=work)
    thread.start()

    def outcome() -> Misbehaved:
        thread.join(600)
        assert len(outcomes) == 1
        assert isinstance(outcomes[0], Misbehaved)
        return outcomes[0]

    return outcome


def runs_now(service: RemoteService) -> bool:
    return any(method == "run" and status == "running" for method, status, *_ in service.calls())


@pytest.mark.deep
def test_connections_that_are_cut_lose_and_repeat_nothing(
    remote_service: RemoteService, tmp_path: Path
) -> None:
    proxy = CuttingProxy(remote_service.port)
    address = f"http://127.0.0.1:{proxy.port}"
    executor = RemoteExecutor(address, None, tmp_path / "remote", device="A10")
    earlier = len(remote_service.calls())
    try:
        # The first contact is short of patience, so that a wrong address is said soon.
        wait_for(lambda: _reached(executor))
        case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
        for number in range(8):
            values = np.arange(1000, dtype=np.float32) * (number + 1)
            values.tofile(tmp_path / f"{number}.bin")
            inputs = before(case).model_copy(
                update={"contents": {0: str(tmp_path / f"{number}.bin")}, "poison": {1: 0xCD}}
            )
            outcome = ran(run(executor, case, inputs=inputs))
            np.testing.assert_array_equal(array(outcome.outputs[1]), np.float32(3) * values)
    finally:
        executor.close()
        proxy.close()
    assert proxy.cuts > 5
    made = remote_service.calls()[earlier:]
    assert [method for method, *_ in made].count("run") == 8
    assert {(status, attempts) for _, status, attempts, _ in made} == {("ended", 1)}


def _reached(executor: RemoteExecutor) -> bool:
    try:
        executor.check_available()
    except SandboxUnavailable:
        return False
    return True


@pytest.mark.deep
def test_a_worker_that_breaks_leaves_its_call_to_others(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    """Its compiler is removed while it runs."""
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    programs = removable_programs(tmp_path / "bin")
    remote_service.kill("worker")
    path = f"{Path(sys.executable).parent}:{programs}"
    broken = remote_service.start_worker({"PATH": path})
    wait_for(lambda: broken.pid in workers_of(remote_service))
    (programs / "g++").unlink()
    earlier = len(remote_service.calls())
    with ThreadPoolExecutor(1) as pool:
        compiling = pool.submit(compiled, executor, case, rewrite("b[i] = a[i] + 20261122.0f;"))
        assert broken.wait(600) == EXIT_ENVIRONMENT
        remote_service.kill("worker")  # it has ended
        remote_service.start_worker()
        compiling.result(600)
    (made,) = remote_service.calls()[earlier:]
    assert made[:3] == ("compile", "ended", 2)


def workers_of(service: RemoteService) -> set[int]:
    """Processes that take jobs now, by the names that they give themselves."""
    with psycopg.connect(service.conninfo) as connection:
        rows = connection.execute("SELECT name FROM cudaops_service.workers").fetchall()
    return {int(name.rpartition("-")[2]) for (name,) in rows}


def test_a_service_that_is_killed_in_the_middle_of_a_call(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    earlier = len(remote_service.calls())
    outcome = endless(executor, case, 4.0)
    wait_for(lambda: runs_now(remote_service))
    remote_service.kill("api")
    remote_service.start_api()
    assert outcome().what == "timeout"
    made = [call for call in remote_service.calls()[earlier:] if call[0] == "run"]
    assert [(status, attempts) for _, status, attempts, _ in made] == [("ended", 1)]


def test_a_worker_that_is_killed_in_the_middle_of_a_call(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    """Another one takes the call up when the lease has run out; it ends once."""
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    earlier = len(remote_service.calls())
    outcome = endless(executor, case, 4.0)
    wait_for(lambda: runs_now(remote_service))
    remote_service.kill("worker")
    remote_service.start_worker()
    assert outcome().what == "timeout"
    made = [call for call in remote_service.calls()[earlier:] if call[0] == "run"]
    assert [(status, attempts) for _, status, attempts, _ in made] == [("ended", 2)]


@pytest.mark.deep
def test_a_host_that_is_killed_in_the_middle_of_a_call(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    """Its worker starts another one and does the call once more."""
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    earlier = len(remote_service.calls())
    outcome = endless(executor, case, 4.0)
    wait_for(lambda: runs_now(remote_service))
    remote_service.kill_host()
    assert outcome().what == "timeout"
    made = [call for call in remote_service.calls()[earlier:] if call[0] == "run"]
    assert [(status, attempts) for _, status, attempts, _ in made] == [("ended", 2)]


def test_contents_that_the_database_lost_are_sent_again(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    """As after a crash of its server, which empties tables that are not logged."""
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    with psycopg.connect(remote_service.conninfo) as connection:
        connection.execute("TRUNCATE cudaops_service.blobs CASCADE")
    outcome = ran(run(executor, case))
    np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))


def test_contents_go_over_the_line_once(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    unit, plan = compiled(executor, case), baseline_plan(case.workload)
    sent, received = executor.transport.sent_bytes, executor.transport.received_bytes
    for number in range(3):
        folder = tmp_path / str(number)
        outcome = ran(executor.run(unit, case.workload, plan, before(case), folder))
        np.testing.assert_array_equal(array(outcome.outputs[1]), 1.5 * np.arange(1000))
    assert executor.transport.sent_bytes == sent
    assert executor.transport.received_bytes == received, "outputs equal what was captured"


def test_nobody_there_is_said_soon_and_with_a_remedy(tmp_path: Path) -> None:
    executor = RemoteExecutor("http://127.0.0.1:9", None, tmp_path, patience_s=0.2)
    with pytest.raises(SandboxUnavailable, match=r"gives no good answer.*cudaops doctor"):
        executor.check_available()
    executor.close()


def test_an_argument_that_names_a_file_is_refused(executor: RemoteExecutor, tmp_path: Path) -> None:
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    (tmp_path / "data.bin").write_bytes(b"data")
    executor.program_folder = tmp_path
    for argv in (("data.bin",), ("--in=data.bin",), ("/etc/hostname",), ("../secret",)):
        with pytest.raises(InputError, match="names a file"):
            executor.run_program(case.program, argv, 10.0)


def test_a_kernel_that_is_not_launched_is_an_input_error_here_too(
    executor: RemoteExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    with pytest.raises(InputError, match="other"):
        executor.capture(case.program, "other", (), tmp_path / "again", 30.0)


def test_nothing_of_the_services_machine_comes_back(
    remote_service: RemoteService, executor: RemoteExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    compiled(executor, case)
    run(executor, case, rewrite("b[i] = a[i < n ? i : 0];"), check="memory")
    with psycopg.connect(remote_service.conninfo) as connection:
        rows = connection.execute("SELECT reply::text FROM cudaops_service.calls").fetchall()
    said = "".join(row[0] or "" for row in rows)
    for place in (remote_service.folder, remote_service.cache, Path(httpx.__file__).parent):
        assert str(place) not in said
