"""What `evaluate` makes of a rewrite that does not apply. Exploits and honest kernels through every
gate: `tests/exploits/test_suite.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Judgement, Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.captures import CapturedRun, CapturedRuns
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench, open_workbench

EXPLOITS = Path(__file__).parents[1] / "exploits"

ANY_SPEED = Policy(min_speedup=0.001, seed=11)
"""A bar that stops nothing, so that the gate under test has to."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    folder = tmp_path_factory.mktemp("bench")
    executor = CpuExecutor("A10", kernels)
    return open_workbench(
        load_program(EXPLOITS / "mm.cu"),
        None,
        (),
        executor,
        ANY_SPEED,
        folder,
        sm_arch="sm_86",
        timeout_s=20.0,
    )


def judged(bench: Workbench, source: str) -> Judgement:
    rewrite = make_rewrite(source, proposer="test", title="test", why="test")
    evaluation = evaluate(bench, rewrite, ANY_SPEED.min_speedup)
    return evaluation.judged(ANY_SPEED)


def test_a_rewrite_that_does_not_apply_is_no_faster(bench: Workbench) -> None:
    source = (EXPLOITS / "honest" / "the_same_kernel.cu").read_text()
    judgement = judged(bench, "// @requires N == 65\n" + source)
    assert judgement.speedup == pytest.approx(1.0)


def test_of_a_program_that_was_stopped_nothing_is_accepted(bench: Workbench) -> None:
    (run,) = bench.captured.runs
    cut_short = run.captured.model_copy(update={"stopped": True})
    captured = CapturedRuns(runs=(CapturedRun(run=run.run, captured=cut_short),))
    stopped = Workbench(
        bench.program, captured, bench.executor,
        ANY_SPEED, bench.folder, sm_arch="sm_86", timeout_s=20.0,
    )  # fmt: skip
    source = (EXPLOITS / "honest" / "the_same_kernel.cu").read_text()
    rewrite = make_rewrite(source, proposer="test", title="test", why="test")
    (gate,) = whole_program_gates(stopped, rewrite)
    assert not gate.passed
    assert gate.quarantined
    assert "stopped after 20 s" in gate.summary
    assert stopped.limits == (gate.summary,)
