"""Inline PTX at the gates: as every compiler sees it, and only where its user allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.evaluate import evaluate
from cudaops.gates.hygiene import hygiene_gate
from cudaops.gates.preprocessed import preprocessed_gate
from cudaops.sandbox.workbench import Workbench
from tests.gates.gate_bench import MM, bench_of, product

ADDED = 'asm("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(0.0f));'


@pytest.fixture(scope="module")
def bench(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder: Path = tmp_path_factory.mktemp("bench")
    return bench_of(cpu_executor, MM, folder, Policy(min_speedup=0.001, seed=11, allow_ptx=True))


def test_it_passes_where_it_is_allowed(bench: Workbench) -> None:
    gates = evaluate(bench, product(inside=ADDED), 0.001).gates
    assert all(gate.passed for gate in gates), [g.line for g in gates]
    assert gates[0].summary.endswith("allowed PTX only")


def test_it_is_refused_where_nobody_allowed_it() -> None:
    gate = hygiene_gate(product(inside=ADDED), Policy())
    assert not gate.passed
    assert "inline assembly" in gate.summary


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found")
def test_what_a_header_of_the_authors_makes_of_it_is_seen(bench: Workbench) -> None:
    """The text alone does not tell what a name in an operand stands for; nvcc's view does."""
    above = '#define OTHER sum), "f"(1.0f'
    assert not hygiene_gate(product(above, ADDED.replace("0.0f", "OTHER")), bench.policy).passed
    parts = 'asm("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(CALL(0.0f)));'
    gate = preprocessed_gate(bench, product("#define CALL(x) (x)", parts)).gate
    assert gate.passed, gate.summary
