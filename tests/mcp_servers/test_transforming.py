"""The search over transformations behind the MCP tool: what it finds, what it says it took."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.judgement import Policy
from cudaops.domain.run import Progress, line_of
from cudaops.executors.base import Executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.mcp_servers.transforming import PARTS, TRIAL_S, Planned, Trying, alike, search
from cudaops.sandbox.workbench import open_workbench
from cudaops.transformations.search import Limits, Timed
from tests.executors.cases import VECTOR_MAIN, program
from tests.gates.gate_bench import rewrite_of
from tests.standin.platform import STANDIN

KERNEL = """
__global__ void scale(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] / 3.0f + pow(a[i], 2);
}
"""
ENDLESS = """
// @launch scale_endless grid=(4) block=(256) args=(a, b, n)
__global__ void scale_endless(const float* a, float* b, int n) {
  volatile int turns = n;
  while (turns > 0) turns = n;
}
"""
LAUNCH = "scale<<<4, 256>>>(a, b, n)"


def executor(name: str, kernels: Path) -> Executor:
    if name == "cpu":
        return CpuExecutor("A10", kernels)
    return CudaExecutor(None, kernels, driver=STANDIN, sm_arch="sm_86")


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_says_what_it_took(name: str, tmp_path: Path, kernels: Path) -> None:
    parsed = program(tmp_path / "p", KERNEL, VECTOR_MAIN.replace("LAUNCH", LAUNCH))
    on = executor(name, kernels)
    bench = open_workbench(
        parsed, None, (), on, Policy(seed=3), tmp_path / "bench", sm_arch="sm_86", timeout_s=60.0
    )
    said: list[Progress] = []
    started = time.monotonic()
    try:
        found = search(bench, None, Limits(6, time.monotonic() + 120), "", said.append)
    finally:
        if isinstance(on, CudaExecutor):
            on.close()
    whole = time.monotonic() - started
    cost = found.cost
    assert 0 < len(found.tried) <= cost.trials
    assert 0 < cost.seconds <= whole
    assert tuple(cost.parts) == PARTS
    assert all(0 <= spent <= cost.seconds for spent in cost.parts.values())
    assert min(cost.parts[part] for part in ("writing drafts", "building", "measuring")) > 0
    assert line_of(said[-1]) == cost.line
    assert cost.line.startswith(f"{cost.trials} trials in {cost.seconds:.1f} s (")
    assert list(found.summary.found) == [x.rewrite.source_id for x in found.found]


def test_launches_that_differ_in_their_data_alone_are_timed_once(
    tmp_path: Path, cpu_executor: CpuExecutor
) -> None:
    parsed = program(tmp_path / "p", KERNEL, VECTOR_MAIN.replace("LAUNCH", LAUNCH))
    bench = open_workbench(
        parsed, None, (), cpu_executor, Policy(seed=3), tmp_path / "bench", sm_arch="sm_86",
        timeout_s=60.0,
    )  # fmt: skip
    (captured,) = bench.timed
    plan = bench.plan(captured, None)
    one, other = (Planned(captured, plan, launches) for launches in (5.0, 2.0))
    wider = Planned(captured.model_copy(update={"grid": Dim3(x=8)}), plan, 3.0)
    assert alike([one, other, wider]) == [one._replace(launches=7.0), wider]
    not_served = other._replace(plan=plan.model_copy(update={"applicable": False}))
    assert alike([one, not_served]) == [one, not_served]


def test_a_draft_that_does_not_end_is_stopped_long_before_the_run_would_be(
    tmp_path: Path, kernels: Path
) -> None:
    parsed = program(tmp_path / "p", KERNEL, VECTOR_MAIN.replace("LAUNCH", LAUNCH))
    with closing(CudaExecutor(None, kernels, driver=STANDIN, sm_arch="sm_86")) as on:
        bench = open_workbench(
            parsed, None, (), on, Policy(seed=3), tmp_path / "bench", sm_arch="sm_86",
            timeout_s=300.0,
        )  # fmt: skip
        with Trying(bench, print) as trying:
            assert trying.time(None).time_us
            started = time.monotonic()
            stopped = trying.time(rewrite_of(ENDLESS))
            assert stopped == Timed(None, f"did not end within {TRIAL_S:g} s and was stopped")
            assert TRIAL_S <= time.monotonic() - started < 10 * TRIAL_S
            assert trying.time(None).time_us
