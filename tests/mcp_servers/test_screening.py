"""`screen_rewrite`: a first look that keeps wrong kernels from leading a search."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError

from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import Screened, evaluate
from cudaops.mcp_servers import sandbox
from cudaops.mcp_servers.sessions import Session
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench

EXPLOITS = Path(__file__).parents[1] / "exploits"
SCREENED = ["hygiene", "preprocessed", "compile", "object", "checker", "correctness_captured"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    return open_workbench(
        load_program(EXPLOITS / "mm.cu"),
        None,
        (),
        CpuExecutor("A10", kernels),
        Policy(min_speedup=0.001, seed=11),
        tmp_path_factory.mktemp("bench"),
        sm_arch="sm_86",
        timeout_s=60.0,
    )


def screened(bench: Workbench, source: str, **more: Any) -> Screened:
    async def talk() -> Any:
        async with Client(sandbox.build_server(Session(bench=bench))) as client:
            arguments = {"source": source, **more}
            return (await client.call_tool("screen_rewrite", arguments)).structured_content

    return Screened.model_validate(asyncio.run(talk()))


def source(name: str) -> str:
    return (EXPLOITS / f"{name}.cu").read_text("utf-8")


def test_an_honest_kernel_has_a_time_and_evaluates_gates_in_their_order(bench: Workbench) -> None:
    found = screened(bench, source("honest/shared_tiles"))
    assert found.failure is None
    assert found.time_us is not None
    assert [g.name for g in found.gates] == SCREENED
    assert all(g.passed for g in found.gates)
    rewrite = make_rewrite(source("honest/shared_tiles"), proposer="t", title="t", why="w")
    evaluation = evaluate(bench, rewrite, 0.001)
    assert [g.name for g in evaluation.gates][:6] == SCREENED
    assert evaluation.comparisons[0].candidate.median_us == pytest.approx(found.time_us)
    assert evaluation.comparisons[0].baseline.median_us == pytest.approx(found.baseline_us)


def test_it_is_no_judgement(bench: Workbench) -> None:
    """Nothing that it looks at is remembered as an evaluation, or counted as a decision."""
    before = dict(bench.evaluated)
    screened(bench, source("honest/two_accumulators"))
    assert bench.evaluated == before


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("host_code", "hygiene"),
        ("does_not_compile", "compile"),
        ("reads_out_of_bounds", "checker"),
        ("samples_the_sum", "correctness_captured"),
    ],
)
def test_what_is_wrong_has_no_time(bench: Workbench, name: str, gate: str) -> None:
    found = screened(bench, source(name))
    assert found.time_us is None
    assert found.gates[-1].name == gate
    assert found.failure == found.gates[-1].line


def test_tune_values_are_taken(bench: Workbench) -> None:
    text = source("honest/template_with_a_tune_name")
    times = {screened(bench, text, tuned={"TILE": value}).time_us for value in (8, 16)}
    assert None not in times
    assert len(times) == 2
    with pytest.raises(ToolError, match="not a @tune name"):
        screened(bench, text, tuned={"OTHER": 8})
