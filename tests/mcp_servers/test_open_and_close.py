"""What a program that was opened leaves behind: no runner, no buffers, and of runs what is read."""

from __future__ import annotations

import asyncio
import atexit
import gc
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from cudaops.certify.envelope import open_envelope
from cudaops.domain.judgement import Policy
from cudaops.domain.options import KernelOptions
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.base import close_executor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.graph.hosted import Hosting
from cudaops.graph.resolve_options import place
from cudaops.mcp_servers.sessions import Session
from cudaops.settings import load_settings
from tests.mcp_servers.serving import MM, TILES, hosting, server_of, text_of_run
from tests.processes import runners
from tests.standin.platform import STANDIN

pytestmark = [pytest.mark.nvcc]

OTHER = MM.replace("mm", "nn")
BROKEN = MM.replace("mm<<<", "gone<<<")


@pytest.fixture(autouse=True)
def by_counting_alone() -> Iterator[None]:
    """What goes with its last user must not wait for the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def buffers(folder: Path) -> list[Path]:
    """Captured contents, and what was made of them."""
    return [p for p in folder.rglob("*") if p.is_file() and {"workloads", "work"} & set(p.parts)]


def on_stand_in(runs: Path) -> Hosting:
    """Programs run on the stand-in of a GPU."""
    settings = load_settings().model_copy(update={"runs": runs, "gpu_driver": STANDIN})
    return Hosting(
        settings=settings,
        where=place("cuda", None, None),
        policy=Policy(min_speedup=0.5, seed=7),
        timeout_s=60.0,
        strangers=True,
    )


def seats(host: Hosting) -> list[Session]:
    return [host.session(), host.strangers_session(None)]


async def call(client: Client[Any], tool: str, **arguments: Any) -> dict[str, Any]:
    return dict((await client.call_tool(tool, arguments)).structured_content or {})


def folder_of(session: Session) -> Path:
    return session.bench.folder


@pytest.mark.parametrize("seat", [0, 1], ids=["user", "stranger"])
def test_of_a_replaced_program_no_runner_and_no_buffer_stays(seat: int, tmp_path: Path) -> None:
    others = runners()
    host = on_stand_in(tmp_path / "runs")
    session = seats(host)[seat]

    async def talk(server: FastMCP) -> None:
        async with Client(server) as client:
            await call(client, "open_program", source=MM)
            await call(client, "compile_rewrite", source=TILES)
            with pytest.raises(ToolError):
                await call(client, "accept_rewrite", rewrite_id="unknown")
            first, folder = runners() - others, folder_of(session)
            assert first
            assert buffers(folder)
            with pytest.raises(ToolError):
                await call(client, "open_program", source=BROKEN)
            assert runners() - others == first, "one that does not open takes no other's place"
            assert folder_of(session) == folder
            await call(client, "open_program", source=OTHER)
            second = runners() - others
            assert second
            assert not first & second
            assert not folder.exists()

    asyncio.run(talk(server_of("all", session, host)))
    last = folder_of(session)
    session.close()
    session.close()
    assert runners() == others
    assert not last.exists()
    assert not list(tmp_path.rglob("*.bin"))
    with pytest.raises(InputError, match="no program is open"):
        _ = session.bench


@pytest.mark.deep
def test_optimising_leaves_no_runner_and_no_buffer(tmp_path: Path) -> None:
    others = runners()
    host = on_stand_in(tmp_path / "runs")
    session = host.strangers_session(None)

    async def talk(server: FastMCP) -> None:
        async with Client(server) as client:
            told = await call(client, "optimize_kernel", source=MM, max_iterations=1)
            assert runners() == others
            assert session.runs is not None
            assert not buffers(session.runs)
            text = await text_of_run(partial(call, client), told["run_id"], "record")
            assert RunRecord.model_validate_json(text).run_id == told["run_id"]
            with pytest.raises(ToolError):
                await call(client, "optimize_kernel", source=BROKEN)
            assert runners() == others

    asyncio.run(talk(server_of("all", session, host)))
    session.close()


@pytest.mark.parametrize("seat", [0, 1], ids=["user", "stranger"])
def test_an_accepted_run_stays_readable(seat: int, tmp_path: Path) -> None:
    host = hosting(tmp_path / "runs", strangers=True)
    session = seats(host)[seat]

    async def talk(server: FastMCP) -> Path:
        async with Client(server) as client:
            await call(client, "open_program", source=MM)
            judged = await call(client, "judge_rewrite", source=TILES)
            kept = await call(client, "accept_rewrite", rewrite_id=judged["rewrite_id"])
            folder = folder_of(session)
            await call(client, "open_program", source=OTHER)
            text = await text_of_run(partial(call, client), kept["run_id"], "certificate")
            assert open_envelope(text.encode(), "certificate.json")
            assert not (folder / "work").exists()
            return folder

    folder = asyncio.run(talk(server_of("all", session, host)))
    assert (folder / "workloads").exists() == (seat == 0), "the user may confirm it on a GPU"
    session.close()
    assert (folder / "run.json").exists() == (seat == 0)


def test_a_call_at_work_ends_on_the_program_it_began_on(tmp_path: Path) -> None:
    others = runners()
    host = on_stand_in(tmp_path / "runs")
    session = host.session()
    program = tmp_path / "mm.cu"
    program.write_text(MM)
    session.open(program, KernelOptions())
    first, folder = runners() - others, folder_of(session)
    began, replaced = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        bench = session.bench
        began.set()
        assert replaced.wait(240)
        assert bench.baseline_time(bench.workloads[0]).source == "standin"
        bench.oracle(bench.workloads[0])
        done.append(bench.callee)

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(60)
    program.write_text(OTHER)
    session.open(program, KernelOptions())
    assert folder.is_dir()
    assert first <= runners()
    replaced.set()
    thread.join(240)
    assert done == ["mm"]
    assert not folder.exists()
    assert not first & runners()
    session.close()
    assert runners() == others


def test_a_session_that_ends_while_it_opens_keeps_nothing(tmp_path: Path) -> None:
    others = runners()
    host = on_stand_in(tmp_path / "runs")
    session = host.strangers_session(None)
    assert session.folder is not None
    session.close()
    program = tmp_path / "mm.cu"
    program.write_text(MM)
    session.paths = True
    with pytest.raises(InputError, match="the session ended"):
        session.open(program, KernelOptions())
    assert runners() == others
    assert not session.folder.exists()


def test_a_closed_executor_starts_nothing_and_is_forgotten(tmp_path: Path) -> None:
    others, registered = runners(), atexit._ncallbacks()
    executor = CudaExecutor(None, tmp_path / "kernels", driver=STANDIN)
    executor.check_available()
    assert runners() - others
    close_executor(executor)
    close_executor(executor)
    assert runners() == others
    assert atexit._ncallbacks() <= registered + 1, "NVRTC's alone"
    with pytest.raises(SandboxUnavailable, match="open it again"):
        executor.host.session("author")
    executor.host._start(executor.host._new_session())
    assert runners() == others


def test_a_gpu_that_is_not_taken_keeps_no_runner(tmp_path: Path) -> None:
    others = runners()
    executor = CudaExecutor("no such device", tmp_path / "kernels", driver=STANDIN)
    with pytest.raises((InputError, KeyError)):
        executor.check_available()
    assert runners() == others


def test_a_program_is_opened_for_another_device_than_the_server_was_started_for(
    tmp_path: Path,
) -> None:
    host = hosting(tmp_path / "runs", strangers=False)
    session = host.session()

    async def talk(server: FastMCP) -> tuple[dict[str, Any], dict[str, Any]]:
        async with Client(server) as client:
            first = await call(client, "open_program", source=MM)
            other = await call(
                client, "open_program", source=MM, device="H200", argument_lines=["judged: 1", "2"]
            )
            with pytest.raises(ToolError, match="forwards no jobs"):
                await call(client, "open_program", source=MM, executor="remote")
            return first, other

    first, other = asyncio.run(talk(server_of("all", session, host)))
    session.close()
    assert (first["executor"], other["executor"]) == ("cpu", "cpu")
    assert first["device"] != "H200"
    assert other["device"] == "H200"
    assert first["bar"] != other["bar"]  # another device, another time
    assert any("`./program 1` (judged)" in line for line in other["judging"])
    assert any("a launch takes 1.75 us" in line for line in other["judging"])
    assert len(str(other)) < 6000
