"""A small program with its oracle, and a candidate through the correctness gates alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cudaops.domain.execution import Compiled
from cudaops.domain.judgement import Gate, Policy
from cudaops.executors.base import Executor
from cudaops.gates.correctness import Subject, Verifier
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.oracle import Oracle
from cudaops.sandbox.workbench import Workbench, open_workbench

TIMEOUT_S = 120.0

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void f(const ELEMENT* a, ELEMENT* b, int n) {
BASELINE
}
int main() {
    const int n = 1000;
    ELEMENT h[n], *a, *b;
    for (int i = 0; i < n; ++i) h[i] = 1 + i % 7;
    cudaMalloc(&a, sizeof h);
    cudaMalloc(&b, OUTPUTS * sizeof(ELEMENT));
    cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
    f<<<8, 128>>>(a, b, n);
    cudaMemcpy(h, b, OUTPUTS * sizeof(ELEMENT), cudaMemcpyDeviceToHost);
    printf("%f\\n", (double)h[0]);
    return 0;
}
"""

EACH = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) b[i] = BODY;"
SUM = """    if (blockIdx.x || threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i];
    b[0] = sum;"""


def opened(
    executor: Executor, folder: Path, baseline: str, *, element: str = "float", outputs: int = 1000
) -> Workbench:
    """A bench over one kernel `f(a, b, n)` with this body."""
    folder.mkdir(parents=True, exist_ok=True)
    text = PROGRAM.replace("BASELINE", baseline).replace("ELEMENT", element)
    (folder / "f.cu").write_text(text.replace("OUTPUTS", str(outputs)))
    return opened_program(executor, folder / "f.cu", folder / "run")


def opened_program(executor: Executor, source: Path, folder: Path) -> Workbench:
    """A bench over the program of this file."""
    return open_workbench(
        load_program(source),
        None,
        (),
        executor,
        Policy(seed=5),
        folder,
        sm_arch="sm_86",
        timeout_s=TIMEOUT_S,
    )


def oracle(bench: Workbench) -> Oracle:
    """That of the only workload."""
    return bench.oracle(bench.workloads[0])


def verified(bench: Workbench, source: str, *, unsteady: bool = False) -> list[Gate]:
    """The correctness gates up to the first that fails; `unsteady`: the author's kernel may be run
    again, to see how far it is from itself."""
    rewrite = make_rewrite(source, "test", "test", "test")
    workload = bench.workloads[0]
    compiled = bench.executor.compile(bench.unit(workload, rewrite))
    assert isinstance(compiled, Compiled), compiled
    folder = bench.folder / "work" / f"verify-{rewrite.id}"
    verifier = Verifier(bench.executor, bench.policy, folder, TIMEOUT_S)
    author = partial(bench.run_author, workload) if unsteady else None
    checked = partial(bench.run_author, workload, check="full")
    subject = Subject(compiled, bench.plan(workload, rewrite), oracle(bench), author, checked)
    return list(verifier.gates([subject]))
