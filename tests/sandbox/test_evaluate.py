"""Candidates that must not get through, and the gate that stops each; and honest ones that must."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cudaops.domain.judge import judge
from cudaops.domain.judgement import Judgement, Policy
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.evaluate import evaluate
from cudaops.sandbox.executors.cpu import CpuExecutor
from cudaops.sandbox.workbench import Workbench, open_workbench

EXPLOITS = Path(__file__).parents[1] / "exploits"
STOPPED = sorted(p for p in EXPLOITS.glob("*.cu") if p.name != "mm.cu")
HONEST = sorted((EXPLOITS / "honest").glob("*.cu"))

ANY_SPEED = Policy(min_speedup=0.001, seed=11)
"""A bar that stops nothing, so that the gate under test has to."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder = tmp_path_factory.mktemp("bench")
    executor = CpuExecutor("A10", Path(os.environ["CUDAOPS_CACHE"]) / "kernels")
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
    return judge(evaluation.gates, evaluation.comparisons, ANY_SPEED)


@pytest.mark.parametrize("path", HONEST, ids=lambda p: p.stem)
def test_honest_candidates_pass_every_gate(bench: Workbench, path: Path) -> None:
    judgement = judged(bench, path.read_text())
    assert judgement.outcome == "provisional", judgement.reason
    assert all(gate.passed for gate in judgement.gates)


@pytest.mark.parametrize("path", STOPPED, ids=lambda p: p.stem)
def test_candidates_that_are_stopped(bench: Workbench, path: Path) -> None:
    source = path.read_text()
    expected = re.search(r"^// stopped by: (\w+)$", source, re.MULTILINE)
    assert expected is not None, "say which gate must stop it"
    judgement = judged(bench, source)
    assert judgement.outcome == "rejected"
    failed = [g.name for g in judgement.gates if not g.passed]
    assert failed == [expected[1]], [g.line for g in judgement.gates]


def test_a_rewrite_that_does_not_apply_is_no_faster(bench: Workbench) -> None:
    source = (EXPLOITS / "honest" / "the_same_kernel.cu").read_text()
    judgement = judged(bench, "// @requires N == 65\n" + source)
    assert judgement.speedup == pytest.approx(1.0)
