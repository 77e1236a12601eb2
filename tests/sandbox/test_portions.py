"""Many launches in several processes are those of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cudaops.domain.execution import Misbehaved, Ran
from cudaops.executors.base import Trial, Tried
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.portions import PORTION, QUIET_S, Telling, in_portions
from tests.gates.verification_bench import EACH, opened, oracle


def test_results_in_their_order_and_those_that_are_not_reached(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "2 * a[i]"))
    workload, compiled = bench.workloads[0], bench.compiled_baseline(bench.workloads[0])
    given = oracle(bench).captured.inputs
    trials = []
    for n in range(PORTION + 5):
        path = tmp_path / f"in_{n}.bin"
        np.full(1000, n, np.float32).tofile(path)
        inputs = given.model_copy(update={"contents": {**given.contents, 0: str(path)}})
        trials.append(Trial(workload, baseline_plan(workload), inputs))
    heard: list[int] = []

    def run(portion: Sequence[Trial], folder: Path, left_s: float) -> Sequence[Tried]:
        return cpu_executor.run_trials(compiled, portion, folder, timeout_s=left_s)

    found = in_portions(trials, tmp_path / "ran", 60.0, run, heard.append)
    assert heard == [PORTION, 5]
    for n, tried in enumerate(found):
        assert isinstance(tried.outcome, Ran)
        assert (np.fromfile(tried.outcome.outputs[1], np.float32) == 2 * n).all()
    late = in_portions(trials, tmp_path / "late", 0.0, run, heard.append)
    assert {type(tried.outcome) for tried in late} == {Misbehaved}
    assert len(late) == len(trials)
    assert heard == [PORTION, 5]


def test_nothing_is_said_of_what_is_quick() -> None:
    said: list[object] = []
    telling = Telling(said.append)
    for _ in range(1000):
        telling("here")
    assert not said
    telling._last -= QUIET_S
    telling("there")
    telling("there still")
    assert said == ["there"]
