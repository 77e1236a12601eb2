"""A program that no pattern covers, through the real graph: transformations sought and judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.run import RunRecord
from cudaops.transformations.base import REROUNDING
from tests.graph.test_main_job import run

ROW_SUMS = """
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__global__ void row_sums(const float* a, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < columns; ++k) sum += a[row * columns + k];  // along the row
    y[row] = sum;
}
int main() {
    int rows = 200, columns = 2000;
    float *a, *y, *h = (float*)malloc(rows * columns * 4);
    for (int i = 0; i < rows * columns; ++i) h[i] = (i % 17) * 0.25f;
    cudaMalloc(&a, rows * columns * 4);
    cudaMalloc(&y, rows * 4);
    cudaMemcpy(a, h, rows * columns * 4, cudaMemcpyHostToDevice);
    row_sums<<<(rows + 63) / 64, 64>>>(a, y, rows, columns);
    cudaMemcpy(h, y, rows * 4, cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < rows; ++i) s += h[i];
    printf("%.3f\\n", s);
}
"""
LAUNCH_BOUND = ROW_SUMS.replace("rows = 200, columns = 2000", "rows = 32, columns = 1")

NAMED = ROW_SUMS.replace(
    "__global__", "__device__ float of(float v) { return 9.0f * v; }\nnamespace ops {\n"
    "__device__ float of(float v) { return 0.5f * v; }\ntemplate <typename T>\n__global__", 1,
).replace("const float* a, float* y", "const T* a, T* y").replace(
    "a[row * columns + k]", "of(a[row * columns + k])"
).replace("int main", "}\nint main").replace("row_sums<<<", "ops::row_sums<<<")  # fmt: skip


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    folder = tmp_path_factory.mktemp("sums")
    source = folder / "sums.cu"
    source.write_text(ROW_SUMS)
    return run(source, folder / "run", max_iterations=2, max_trials=3), folder / "run"


def test_a_sequence_of_transformations_passes_every_gate(summed: tuple[RunRecord, Path]) -> None:
    record, folder = summed
    assert record.outcome == "provisional", record.reason
    assert record.verify.speedup is not None
    assert record.verify.speedup > 2
    best = (folder / "best.cu").read_text()
    assert "__shfl_xor_sync" in best
    assert "// @requires" in (folder / "iterations" / "01" / "candidate.cu").read_text()


def test_the_record_says_what_was_tried_and_by_whom(summed: tuple[RunRecord, Path]) -> None:
    record, folder = summed
    (attempt, *_) = record.attempts
    assert attempt.family in ("reduction", "split_work")
    trials = json.loads((folder / "iterations" / "01" / "trials.json").read_text())
    assert len(trials) == attempt.configurations_tried
    assert any(t["title"].startswith("cooperate (lanes 32)") for t in trials)


STRICT = ROW_SUMS.replace("(i % 17) * 0.25f", "(i % 17) * 0.1f").replace(
    "int main() {", "int main() {\n    float sums[200] = {};"
).replace(
    "    cudaMalloc(&a", "    for (int i = 0; i < rows * columns; ++i) sums[i / columns] += h[i];\n"
    "    cudaMalloc(&a", 1,
).replace(
    '    printf("%.3f\\n", s);',
    '    for (int i = 0; i < rows; ++i) if (h[i] != sums[i]) { printf("FAIL\\n"); break; }\n'
    '    printf("%.3f\\n", s);',
)  # fmt: skip


def test_after_a_refusal_for_rounding_comes_what_rounds_as_the_author_does(tmp_path: Path) -> None:
    """The program's own check allows no other order of a sum."""
    source = tmp_path / "strict.cu"
    source.write_text(STRICT)
    record = run(
        source, tmp_path / "run", max_iterations=2, max_trials=3, policy=Policy(min_speedup=1.02)
    )
    assert "whole_program" in record.attempts[0].judgement.reason
    assert record.outcome == "provisional", record.reason
    assert not REROUNDING.intersection(record.attempts[1].title.split(", "))


def test_nothing_to_gain_is_said(tmp_path: Path) -> None:
    source = tmp_path / "one.cu"
    source.write_text(LAUNCH_BOUND)
    record = run(source, tmp_path / "run", max_iterations=2, max_trials=2)
    assert record.outcome == "nothing_found"
    assert "transformations" in record.reason, record.reason
    assert record.attempts == ()


def test_a_template_in_a_namespace_is_rewritten(tmp_path: Path) -> None:
    source = tmp_path / "named.cu"
    source.write_text(NAMED)
    record = run(source, tmp_path / "run", max_iterations=1, max_trials=2)
    assert record.outcome == "provisional", record.reason
    best = (tmp_path / "run" / "best.cu").read_text()
    assert "using ::ops::of;" in best
    assert "sum += of(a[row * columns + k]);" in best
