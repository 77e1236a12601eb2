"""The open program's oracle, asked once what it is able to see."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import Misbehaved, Ran
from cudaops.domain.judgement import Qualification
from cudaops.executors.base import InputSet
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.verification.operands import Rerun
from cudaops.sandbox.verification.qualification import qualify
from cudaops.sandbox.verification.reference import Oracle
from cudaops.sandbox.workbench import Workbench

MOST_THREADS = 2**18
"""A launch of more threads is not run again on rounded inputs where a processor runs it: one of
2^20 with a loop of 1024 takes 2 s on two cores (examples/naive_matmul.cu, EPYC, 2026-11-20). The
errors are then noise of the size that rounded inputs give, which the record says."""


def qualification_of(bench: Workbench) -> Qualification:
    """Wrong results on purpose, held against the references of every workload; kept on the bench.

    Raises InputError where the author's kernel does not run.
    """
    if bench.qualification is None:
        oracles = [bench.oracle(workload) for workload in bench.workloads]
        folder = bench.folder / "work" / "qualification"
        threads = min(w.grid.volume * w.block.volume for w in bench.workloads)
        # A processor gives the same result every time; a GPU's atomics may not.
        on_gpu = not bench.models_time
        rerun: Rerun | None = Rerun(folder, lambda *asked: _again(bench, *asked), again=on_gpu)
        if not on_gpu and threads > MOST_THREADS:
            rerun = None
        bench.qualification = qualify(oracles, bench.policy, rerun)
        bench.discard(folder.name)
    return bench.qualification


def _again(bench: Workbench, oracle: Oracle, inputs: InputSet, folder: Path) -> Ran | Misbehaved:
    workload = oracle.workload
    return bench.executor.run(
        bench.compiled_baseline(workload),
        workload,
        baseline_plan(workload),
        inputs,
        folder,
        timeout_s=bench.timeout_s,
    )
