"""benchmarks/mutation_score.py: faults that are put into a kernel, and what the judge says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from tests.recipes.bench import Arguments
from tests.transformations.bench import Case

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KERNEL = """
__device__ float weight(float x) {
    return fabsf(x) + 0.5f;
}
__global__ void k(const float* x, float* y, int n) {
    __shared__ float t[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    t[threadIdx.x] = i < n ? weight(x[i]) : 0.0f;
    __syncthreads();
    double sum = 0;
    for (int j = 0; j < 32; ++j) sum += t[j];
    if (i < n && sum > 1.0) atomicAdd(&y[i], fmaxf((float)sum, x[i]));
}
"""
EXPECTED = {
    "sibling": "return (x) + 0.5f;",
    "barrier": ";",
    "atomic": "if (i < n && sum > 1.0) *(&y[i]) += fmaxf((float)sum, x[i]);",
    "narrowed": "float sum = 0;",
    "logic": "if (i < n || sum > 1.0) atomicAdd(&y[i], fmaxf((float)sum, x[i]));",
    "min and max": "if (i < n && sum > 1.0) atomicAdd(&y[i], fminf((float)sum, x[i]));",
    "guard": "if (false) atomicAdd(&y[i], fmaxf((float)sum, x[i]));",
    "loop": "for (int j = 0; j < 32; j += 2) sum += t[j];",
    "comparison": "for (int j = 0; j <= 32; ++j) sum += t[j];",
    "arithmetic": "int i = blockIdx.x / 32 + threadIdx.x;",
    "index": "t[i] = i < n ? weight_fast(x[threadIdx.x]) : 0.0f;",
    "axis": "int i = blockIdx.x * 32 + threadIdx.y;",
}


def loaded(name: str) -> ModuleType:
    """A module of the folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_operator_finds_its_place_and_the_seed_decides(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 60).astype(np.float32)
    given: Arguments = {"x": x, "y": x * 0, "n": 60}
    executor = CpuExecutor("A10", tmp_path)
    draft = Case(executor, tmp_path, KERNEL, given, grid=(2,), block=(32,), callee="k").draft
    made = loaded("mutants")
    found = list(made.mutants(made.whole_copy(draft), "1"))
    for operator, line in EXPECTED.items():
        assert line in [m.after for m in found if m.operator == operator], operator
    assert len({m.text for m in found}) == len(found)
    again = made.mutants(made.whole_copy(draft), "1")
    assert list(islice(again, 20)) == found[:20]
    assert list(islice(made.mutants(made.whole_copy(draft), "2"), 20)) != found[:20]


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_two_programs_pass_as_they_are_and_not_with_faults(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, BENCHMARKS / "mutation_score.py", "--only", "saxpy/saxpy", "dot/dot",
            "--kernels", "2", "--mutants", "10", "--out", tmp_path, "--program-seconds", "600",
        ],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "mutation.json").read_text())
    assert found["aa"] == {"asked": 2, "refused": [], "authors_fault": []}
    assert found["all"]["mutants"] == 10
    assert found["all"]["refused"] >= 5
    rows = [json.loads(line) for line in (tmp_path / "mutation.jsonl").read_text().splitlines()]
    texts = [row["sha256"] for row in rows if row["kind"] == "mutant"]
    assert len(set(texts)) == len(texts) >= 10
    assert all(row["gate"] for row in rows if row.get("verdict") == "refused")
