"""Workbenches for tests of a single gate, and rewrites of their kernel in one line."""

from __future__ import annotations

from pathlib import Path

from cudaops.domain.execution import Compiled
from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.base import Executor
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench

EXPLOITS = Path(__file__).parents[1] / "exploits"
MM = EXPLOITS / "mm.cu"
LAUNCH = (
    "// @launch fast grid=(ceil_div(N, 16), ceil_div(N, 16)) block=(16, 16) args=(A, B, C, N)\n"
)
KERNEL = """__global__ void fast(const float* A, const float* B, float* C, int N) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= N || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
    INSIDE
    C[row * N + col] = sum;
}
"""


def bench_of(
    executor: Executor, program: Path, folder: Path, policy: Policy | None = None
) -> Workbench:
    """A workbench with the program's launches captured."""
    return open_workbench(
        load_program(program),
        None,
        (),
        executor,
        policy or Policy(min_speedup=0.001, seed=11),
        folder,
        sm_arch="sm_86",
        timeout_s=120.0,
    )


def rewrite_of(source: str) -> Rewrite:
    """A rewrite of this text."""
    return make_rewrite(source, proposer="test", title="test", why="test")


def product(above: str = "", inside: str = "") -> Rewrite:
    """A rewrite of `mm` in mm.cu, with more at file scope and in the kernel."""
    return rewrite_of(LAUNCH + above + "\n" + KERNEL.replace("INSIDE", inside))


def compiled(bench: Workbench, rewrite: Rewrite) -> Compiled:
    """The rewrite as the executor compiles it; it must compile."""
    outcome = bench.compile(rewrite)
    assert isinstance(outcome, Compiled), outcome
    return outcome
