"""Problems with a reference in Python for the tests, and what opens them without a whole run."""

from __future__ import annotations

import textwrap
from pathlib import Path

from cudaops.domain.judgement import Policy
from cudaops.domain.program import ReferenceProblem
from cudaops.domain.run import RunOptions
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.graph.services import open_bench
from cudaops.problem.reference import FIRST_SEED, Drawer, ReferenceDraw, find_interpreter
from cudaops.sandbox.workbench import Workbench

SCALE = """
import numpy as np

def inputs(rng):
    return {"x": rng.standard_normal(200).astype(np.float32), "n": 200, "by": 2.5}

def reference(x, n, by):
    return x * np.float32(by)
"""
SCALE_CU = """\
// @launch scale grid=(ceil_div(n, 32)) block=(32) args=(x, out, n, by)
__global__ void scale(const float* x, float* out, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * by;
}
"""


def written(folder: Path, script: str, source: str = SCALE_CU) -> tuple[Path, Path]:
    """`p.py` and `k.cu` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "p.py", folder / "k.cu"
    for path, text in zip(paths, (script, source), strict=True):
        path.write_text(textwrap.dedent(text), "utf-8")
    return paths


def options_of(folder: Path, script: str, source: str = SCALE_CU) -> RunOptions:
    """Of a run of this problem on the processor, its secret seed fixed."""
    reference, kernels = written(folder / "problem", script, source)
    return RunOptions(
        source=str(reference),
        kernel_source=str(kernels),
        out=str(folder / "run"),
        working_folder=str(folder),
        timeout_seconds=30.0,
        policy=Policy(seed=7),
    )


def bench_of(folder: Path, cache: Path, script: str, source: str = SCALE_CU) -> Workbench:
    """The open problem, its author's kernels compared with the reference."""
    options = options_of(folder, script, source)
    executor = CpuExecutor("A10", cache, workers=2, program_folder=options.program_folder)
    return open_bench(options, executor)


def drawn(folder: Path, script: str, *seeds: int) -> tuple[ReferenceDraw, ...]:
    """Draws of a problem."""
    path, _ = written(folder / "problem", script)
    drawer = Drawer(path, find_interpreter(None), 30.0)
    return drawer.draw(seeds or (FIRST_SEED,), folder / "draws")


def problem_of(folder: Path, script: str) -> ReferenceProblem:
    """What a first draw says of it."""
    return drawn(folder, script)[0].problem
