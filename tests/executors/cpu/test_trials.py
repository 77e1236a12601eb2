"""Many small launches in one process of the `cpu` executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudaops.domain.execution import Ran
from cudaops.executors.base import Trial
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.plans import baseline_plan
from tests.executors.cases import before, compiled, vector_case

HALVES = """
__global__ void halves(const float* a, float* b) {
  float sum = 0;
  for (int k = 0; k < 20000; ++k) sum += a[threadIdx.x] / 40000;
  b[threadIdx.x] = sum;
}
"""
"""Slow enough for somebody to look at what it writes meanwhile."""


def test_results_of_thousands_of_launches_may_stand_on_disk(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, HALVES, "halves<<<1, 32>>>(a, b);")
    trial = Trial(case.workload, baseline_plan(case.workload), before(case))
    tried = executor.run_trials(compiled(executor, case), [trial] * 4000, tmp_path / "many")
    assert [one.outcome for one in tried if not isinstance(one.outcome, Ran)] == []
    assert len(tried) == 4000
    last = tried[-1].outcome
    assert isinstance(last, Ran), last
    given = np.fromfile(trial.inputs.contents[0], np.float32)
    assert np.allclose(np.fromfile(last.outputs[1], np.float32)[:32], given[:32] / 2, rtol=1e-3)
