"""What is said of a rewrite before it is tuned or judged: the slips that cost iterations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.domain.options import ProgramRun
from cudaops.gates.precheck import Precheck, precheck
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.services import make_executor
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench, open_workbench
from cudaops.settings import load_settings

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
__global__ void squares(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4096;
    float *x, *y, *h = (float*)malloc(n * sizeof(float));
    for (int i = 0; i < n; i++) h[i] = 0.25f * (i % 17);
    cudaMalloc(&x, n * sizeof(float)); cudaMalloc(&y, n * sizeof(float));
    cudaMemcpy(x, h, n * sizeof(float), cudaMemcpyHostToDevice);
    squares<<<(n + 127) / 128, 128>>>(x, y, n);
    cudaMemcpy(h, y, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", h[n - 1]);
}
"""
HEAD = "// @launch fast grid=(ceil_div(n, {per})) block=(128) args=(x, y, n)\n"
KERNEL = """__global__ void fast(const float* x, float* y, int n) {
    int i = (blockIdx.x * 128 + threadIdx.x) * 4;
    UNROLL
    for (int k = 0; k < 4; k++) if (i + k < n) y[i + k] = VALUE;
}
"""


def written(
    value: str = "x[i + k] * x[i + k]", unroll: str = "", head: str = HEAD.format(per="512")
) -> str:
    return head + KERNEL.replace("VALUE", value).replace("UNROLL", unroll)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Two runs of the program, of which the second is the smaller one and odd."""
    folder = tmp_path_factory.mktemp("squares")
    source = folder / "squares.cu"
    source.write_text(PROGRAM, "utf-8")
    options = run_options(source, folder / "run", target("A10", None), timeout_seconds=60.0)
    return open_workbench(
        load_program(source), None,
        (ProgramRun(argv=("4096",)), ProgramRun(argv=("1001",))),
        make_executor(options, load_settings()), options.policy, folder / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


@pytest.fixture
def look(bench: Workbench) -> Callable[[str], Precheck]:
    return lambda source: precheck(bench, make_rewrite(source, "user", "fast", ""))


def test_all_that_is_seen_of_a_good_one(look: Callable[[str], Precheck]) -> None:
    found = look(written())
    assert (found.ok, found.stage) == (True, "time"), found
    (kernel,) = found.kernels
    assert kernel.startswith("fast: ")
    assert "registers a thread, no spills, 0 bytes of static shared memory" in kernel
    assert found.message.endswith("applies to the timed launches, correct on the smallest workload")
    assert found.applies[0] == "w0: yes, fast grid (8,1,1), block (128,1,1)"
    assert "w1: yes, fast grid (2,1,1), block (128,1,1)" in found.applies
    assert "y" in found.results
    assert "modelled for A10" in found.time
    assert "the author's kernel" in found.time
    assert "Limited by" in found.time or "No " in found.time or "limit" in found.time.lower()


@pytest.mark.parametrize(
    ("source", "stage", "said"),
    [
        (written(value="x[i + k] * y2"), "build", "y2"),
        (written(unroll="#pragma unroll DEPTH"), "build", "constexpr int STEPS = DEPTH;"),
        (written(head=HEAD.format(per="ROWS")), "build", "ROWS"),
        (written(head=HEAD.format(per="(n - n)")), "build", "launch plan"),
        (written(head="// @requires x % 16 == 0\n" + HEAD.format(per="512")), "build", "pointer"),
        (written(head="// @requires n % 32 == 1\n" + HEAD.format(per="512")), "requires",
         "w0: no, n % 32 == 1 does not hold (n = 4096)"),
        (written(value="x[i + k] + x[i + k]"), "results", "correctness_captured"),
        (written(head=HEAD.format(per="1024")), "results", "correctness_captured"),
        (written(value="x[i + k + 1] * x[i + k]"), "results", "checker"),
    ],
)  # fmt: skip
def test_each_slip_is_said_with_its_reason(
    look: Callable[[str], Precheck], source: str, stage: str, said: str
) -> None:
    found = look(source)
    assert (found.ok, found.stage) == (False, stage), found
    assert said in found.message, found.message


def test_a_condition_of_one_run_alone_is_no_slip(look: Callable[[str], Precheck]) -> None:
    found = look(written(head="// @requires n % 4 == 0\n" + HEAD.format(per="512")))
    assert found.ok, found
    assert any("n % 4 == 0 does not hold (n = 1001)" in line for line in found.applies)
