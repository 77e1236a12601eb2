"""`from cudaops import optimize`: sync, async, in a running loop, cancelled, and wrong."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import cudaops
from cudaops import Event, InputError, RunRecord, api
from tests.reports.records import provisional

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "data" / "programs"
GEMM = PROGRAMS / "gemm_header.cu"
SMALL = ("64", "64", "64")


def test_every_name_is_there_and_the_documents_name_it() -> None:
    assert cudaops.__all__ == api.__all__ == sorted(api.__all__, key=str)
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    for name in cudaops.__all__:
        assert getattr(cudaops, name) is getattr(api, name)
        assert name in text
    assert set(cudaops.__all__) <= set(dir(cudaops))
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        getattr(cudaops, "optimise")  # noqa: B009  mypy knows that it is not there


def test_the_asynchronous_twin_has_the_same_signature() -> None:
    assert inspect.signature(cudaops.optimize_async) == inspect.signature(cudaops.optimize)
    assert cudaops.optimize_async.__name__ == "optimize_async"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_iterations": 0}, "optimize: max_iterations: Input should be greater than"),
        ({"kernle": "k"}, "optimize: kernle: Unexpected keyword argument"),
        ({"executor": "gpu"}, "optimize: executor: Input should be 'auto', 'cpu'"),
        ({"argv": "512 512"}, "optimize: argv: Input should be a valid tuple"),
        ({"arch": "86"}, "arch '86': an nvcc target looks like sm_86"),
        ({"optimizer": "recipes", "model": "openai:x"}, "recipes ask no model"),
        ({"source": "__global__ void k() {}\n"}, "source is a path, not CUDA text"),
        ({"source": "nowhere.cu"}, "nowhere.cu: no such file"),
        ({"out": str(ROOT / "tests")}, "tests is not empty; name a new folder"),
    ],
)
def test_what_is_wrong_is_one_line(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as refused:
        cudaops.optimize(**{"source": GEMM, **given})  # type: ignore[call-arg]
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_fault_of_ours_is_not_the_callers() -> None:
    @api._checked
    def broken() -> None:
        Event.model_validate({})

    with pytest.raises(ValueError, match="validation errors for Event"):
        broken()


def test_a_record_is_shown_as_its_report() -> None:
    shown = cudaops.show(provisional())
    assert shown.startswith("# ")
    assert shown._repr_markdown_() == str(shown)


def test_resuming_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no run that finished its intake"):
        cudaops.resume(tmp_path)


def test_it_works_in_a_running_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[Event] = []

    async def cell() -> cudaops.ProfileSummary:
        return cudaops.profile(GEMM, argv=SMALL, on_event=told.append)

    summary = asyncio.run(cell())
    assert summary.metrics_parsed > 0
    assert [(e.stage, e.kind) for e in told][-1] == ("profiler", "finished")


@pytest.mark.timeout(900)
def test_a_cancelled_run_leaves_no_child_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = _programs()  # those of other tests in this process: fork servers

    async def main() -> RunRecord:
        loop, profiling = asyncio.get_running_loop(), asyncio.Event()
        ticks = 0

        def listen(event: Event) -> None:
            if (event.stage, event.kind) == ("profiler", "started"):
                loop.call_soon_threadsafe(profiling.set)

        task = asyncio.create_task(
            cudaops.optimize_async(
                GEMM, argv=SMALL, optimizer="recipes", max_iterations=1, out=folder, on_event=listen
            )
        )
        while not profiling.is_set() and not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 1  # the loop was free meanwhile
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not _programs() - before
        assert not (folder / "run.json").exists()
        return await cudaops.resume_async(folder)

    record = asyncio.run(main())
    assert record.outcome in ("provisional", "nothing_found")
    assert len(record.attempts) == 1
    assert (folder / "run.json").exists()


def _programs() -> set[psutil.Process]:
    """What this process has started and has not ended, the database apart."""
    children = psutil.Process().children(recursive=True)
    return {c for c in children if c.is_running() and not c.name().startswith("postgres")}


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_the_documents_examples_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    example = (ROOT / "examples" / "naive_matmul.cu").read_text("utf-8")
    small = example.replace("int N = 1024;", "int N = 256;")
    assert small != example
    nothing_to_do = (PROGRAMS / "vector_add.cu").read_text("utf-8")
    outcomes = {"provisional": small, "nothing_found": nothing_to_do}
    for block, (outcome, program) in zip(blocks, outcomes.items(), strict=True):
        (tmp_path / "kernel.cu").write_text(program)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{outcome} "), done.stdout
