"""Programs that go on for long after their last launch are captured until then (stand-in GPU)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.program.seen_launches import requiring, seen_launches
from cudaops.sandbox.program_runs import runs_ahead
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.standin.platform import STANDIN

TIMEOUT_S = 6.0
"""The pause is 0.9 s."""
PROGRAM = """
#include <cstdio>
#include <unistd.h>
__global__ void scale(float* x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
int main() {
  float *x, first[2] = {3.0f, 4.0f};
  cudaMalloc(&x, 4096);
  cudaMemcpy(x, first, 8, cudaMemcpyHostToDevice);
  scale<<<2, 64>>>(x, 100, 2.0f);
  scale<<<4, 64>>>(x, 200, 0.5f);
  cudaMemcpy(first, x, 8, cudaMemcpyDeviceToHost);
  printf("first %g %g\\n", first[0], first[1]);
  usleep(SLEEP * 1000);
  scale<<<1, 64>>>(x, 2, 5.0f);
  cudaMemcpy(first, x, 8, cudaMemcpyDeviceToHost);
  printf("last %g %g\\n", first[0], first[1]);
  cudaFree(x);
}
"""
REWRITE = """
__global__ void scale_fast(float* x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = CHANGE;
}
// @launch scale_fast grid=(gridDim.x) block=(blockDim.x) args=(x, n, by)
"""

pytestmark = [pytest.mark.nvcc]


@pytest.fixture(scope="module")
def executor(kernels: Path) -> Iterator[CudaExecutor]:
    executor = CudaExecutor(None, kernels, driver=STANDIN)
    yield executor
    executor.close()


def opened(executor: CudaExecutor, tmp_path: Path, sleep_ms: int) -> Workbench:
    source = tmp_path / "scale.cu"
    source.write_text(PROGRAM.replace("SLEEP", str(sleep_ms)))
    return open_workbench(
        load_program(source),
        None,
        (),
        executor,
        Policy(min_speedup=0.001, seed=3),
        tmp_path / "run",
        sm_arch=executor.sm_arch,
        timeout_s=TIMEOUT_S,
    )


def rewritten(change: str = "x[i] * by") -> Rewrite:
    return make_rewrite(REWRITE.replace("CHANGE", change), proposer="test", title="t", why="w")


def judged(bench: Workbench, rewrite: Rewrite) -> Gate:
    (gate,) = whole_program_gates(bench, rewrite)
    return gate


def test_conditions_hold_for_the_launches_seen_and_for_no_others(
    executor: CudaExecutor, tmp_path: Path
) -> None:
    bench = opened(executor, tmp_path, sleep_ms=0)
    assert not bench.paused
    assert bench.served_alone(rewritten()) == rewritten()
    seen = bench.judged[0]
    first, second = (
        seen.model_copy(
            update={
                "grid": Dim3(x=blocks),
                "arguments": tuple(
                    a.model_copy(update={"value": size}) if a.name == "n" else a
                    for a in seen.arguments
                ),
            }
        )
        for blocks, size in ((2, 100), (4, 200))
    )
    assert tuple(map(str, seen_launches((first,)))) == (
        "gridDim.x == 2", "gridDim.y == 1", "gridDim.z == 1",
        "blockDim.x == 64", "blockDim.y == 1", "blockDim.z == 1", "smem == 0", "n == 100",
    )  # fmt: skip
    both = seen_launches((first, second, first))
    texts = tuple(map(str, both))
    assert texts[-1] == "(gridDim.x == 2 && n == 100) || (gridDim.x == 4 && n == 200)"
    assert "blockDim.x == 64" in texts
    once = requiring(rewritten(), both)
    assert once.plan.requires == texts
    assert requiring(once, both) == once


@pytest.mark.parametrize(
    ("sleep_ms", "says"),
    [
        (2000, "4 printed numbers match, largest relative difference 0.0e+00 (tolerance 1e-03)"),
        (30000, ", until it launches no more: the whole of it takes over 6 s"),
    ],
    ids=["ends in time", "does not end in time"],
)
def test_a_rewrite_serves_the_launches_until_the_pause(
    executor: CudaExecutor, tmp_path: Path, sleep_ms: int, says: str
) -> None:
    bench = opened(executor, tmp_path, sleep_ms)
    assert "launched nothing for 15%" in bench.paused
    assert bench.paused in bench.limits
    assert {w.grid.x for w in bench.judged} <= {2, 4}  # those that take most of the time
    serves_others = judged(bench, rewritten())
    assert serves_others.quarantined
    assert "// @requires gridDim.y == 1" in serves_others.summary
    alone = bench.served_alone(rewritten())
    right = judged(bench, alone)
    assert right.passed, right.summary
    assert right.summary.endswith(says)
    wrong = judged(bench, bench.served_alone(rewritten("x[i] * by + 1")))
    assert not wrong.passed
    assert not wrong.quarantined
    assert bench.program_runs.author(bench.captured.timed).paused == (sleep_ms == 30000)


def test_a_program_is_run_ahead_where_it_leaves_the_gpu_room(
    executor: CudaExecutor, tmp_path: Path
) -> None:
    (run,) = opened(executor, tmp_path, 0).captured.runs

    def ahead(size_bytes: int, *, paused: bool = False) -> bool:
        captured = run.captured.model_copy(update={"paused": paused})
        return runs_ahead(run.model_copy(update={"captured": captured}), size_bytes)

    assert ahead(1 << 20)
    assert not ahead(8 << 30)
    assert ahead(8 << 30, paused=True)
