"""Judges one rewrite on `cpu` and prints its gates as JSON: for tests that break a tool of it.

python -m tests.gates.judged_with_tools REWRITE.cu FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cudaops.errors import EnvironmentFailure
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from tests.exploits.cases import load_case
from tests.gates.gate_bench import bench_of, rewrite_of


def main(path: Path, folder: Path) -> None:
    case = load_case(path)
    executor = CpuExecutor("A10", folder / "kernels")
    bench = bench_of(executor, case.baseline, folder / "bench")
    try:
        evaluation = evaluate(bench, rewrite_of(case.source), case.bar)
    except EnvironmentFailure as problem:
        sys.stdout.write(json.dumps({"broken": f"{problem.problem}; {problem.remedy}"}))
        return
    judgement = evaluation.judged(bench.policy)
    gates = [[g.name, g.passed, g.summary] for g in judgement.gates]
    sys.stdout.write(json.dumps({"outcome": judgement.outcome, "gates": gates}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
