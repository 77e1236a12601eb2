"""Kernels that are right when run and checked but not when timed, on the stand-in.

Each of them gives the right result on fresh memory in a fresh process, which is what most checkers
look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cudaops.domain.execution import Compiled, Ran
from cudaops.domain.judgement import Comparison, Gate, Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Allocation, Role
from cudaops.executors.base import InputSet
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.gates.timed_outputs import timed_outputs_gate
from cudaops.program.plans import baseline_plan, make_rewrite, resolve
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.timed_references import timed_references
from tests.executors.cases import Case, before, compiled, ran, run, vector_case
from tests.standin.platform import STANDIN

pytestmark = [pytest.mark.nvcc]

TWICE = "__global__ void twice(const float* a, float* b, int n) {\n"
TWICE += "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) b[i] = 2 * a[i];\n}\n"
BINS = "__global__ void bins(const float* a, float* b, int n) {\n"
BINS += "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
BINS += "  if (i < n) atomicAdd(&b[i % 8], a[i]);\n}\n"
FAST = """
// @launch fast grid=(1) block=(1024) args=(a, b, n{MORE})
{STATE}
__global__ void fast(const float* a, float* b, int n{PARAMETER}) {{
  int i = threadIdx.x;
  {BODY}
}}
"""
GOES_ON = "if (i < n) b[i] = 2 * a[i];"
COUNTS = "int now = calls; __syncthreads(); if (i == 0) calls = now + 1;"
COUNTS += f"if (now < 3) {{{GOES_ON}}}"
REPLAYS = "int known = have; __syncthreads(); if (i == 0) have = 1;"
REPLAYS += "if (!known && i < n) kept[i] = 2 * a[i]; if (i < n) b[i] = kept[i];"
FINDS = "bool done = b[n - 1] == last; __syncthreads(); if (done) return;"
FINDS += f"{GOES_ON} if (i == n - 1) last = b[i];"
SLY = {
    "counts its calls": ("__device__ int calls;", COUNTS),
    "replays its last result": ("__device__ float kept[1024]; __device__ int have;", REPLAYS),
    "finds its own result": ("__device__ float last = -1;", FINDS),
}
IN_SCRATCH = (
    "bool done = tmp[0] == 17.0f; __syncthreads(); if (done) return;"
    f"{GOES_ON} if (i == 0) tmp[0] = 17.0f;"
)


def rewrite_of(state: str, body: str, *, scratch: bool = False) -> Rewrite:
    more, parameter = (", tmp", ", float* tmp") if scratch else ("", "")
    text = FAST.format(STATE=state, BODY=body, MORE=more, PARAMETER=parameter)
    if scratch:
        text = "// @scratch tmp bytes=256\n" + text.lstrip("\n")
    return make_rewrite(text, proposer="test", title="test", why="test")


class Bench(NamedTuple):
    """A captured kernel with references made by its own launches."""

    executor: CudaExecutor
    case: Case
    oracle: Oracle

    def compared(self, rewrite: Rewrite, folder: Path, *, thorough: bool = False) -> Comparison:
        workload = self.case.workload
        baseline, candidate = compiled(self.executor, self.case), self.compiled(rewrite)
        pair = self.executor.measure_pair(
            baseline,
            candidate,
            workload,
            resolve(rewrite, self.case.program.kernel(workload.kernel), workload),
            alternatives=[r.inputs for r in timed_references(self.oracle)[1:]],
            folder=folder,
            thorough=thorough,
        )
        assert isinstance(pair, tuple), pair
        return Comparison(workload=workload.id, weight=1.0, baseline=pair[0], candidate=pair[1])

    def compiled(self, rewrite: Rewrite) -> Compiled:
        return compiled(self.executor, self.case, rewrite)

    def gate(self, comparison: Comparison) -> Gate:
        return timed_outputs_gate([self.oracle], [comparison], Policy())


@pytest.fixture(scope="module")
def executor(kernels: Path) -> Iterator[CudaExecutor]:
    executor = CudaExecutor(None, kernels, driver=STANDIN)
    yield executor
    executor.close()


def opened(executor: CudaExecutor, folder: Path, kernel: str, launch: str, role: Role) -> Bench:
    """`b` has the role; the other inputs are signed random numbers."""
    case = vector_case(executor, folder, kernel, launch)
    allocations = tuple(
        a if a.role == "in" else a.model_copy(update={"role": role})
        for a in case.workload.allocations
    )
    workload = case.workload.model_copy(update={"allocations": allocations})
    written = [a.index for a in allocations if a.role != "in"]
    poison = dict.fromkeys(written, 0x5A) if role == "out" else {}
    contents = {a.index: other_contents(a, folder) for a in allocations}
    inputs = InputSet(contents=contents, poison=poison)
    made = ran(
        executor.run(
            compiled(executor, case), workload, baseline_plan(workload), inputs, folder / "other"
        )
    )
    files = Path(workload.folder)
    captured = {a.index: str(files / a.after) for a in allocations}
    why = "not made for this test"
    first = Reference("captured", before(case), captured, None, why)
    other = Reference("signed", inputs, made.outputs, None, why)
    return Bench(executor, case, Oracle(workload, first, (other,), first))


def other_contents(allocation: Allocation, folder: Path) -> str:
    path = folder / f"other{allocation.index}.bin"
    generator = np.random.default_rng(allocation.index)
    generator.standard_normal(allocation.size_bytes // 4).astype(np.float32).tofile(path)
    return str(path)


@pytest.fixture(scope="module")
def twice(executor: CudaExecutor, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("twice")
    return opened(executor, folder, TWICE, "twice<<<4, 256>>>(a, b, n)", "out")


@pytest.fixture(scope="module")
def bins(executor: CudaExecutor, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bins")
    return opened(executor, folder, BINS, "bins<<<4, 256>>>(a, b, n)", "inout")


def right_when_run(bench: Bench, rewrite: Rewrite) -> bool:
    """What a checker that runs it once would say."""
    outcome = run(bench.executor, bench.case, rewrite)
    assert isinstance(outcome, Ran), outcome
    (written,) = (a.index for a in bench.oracle.workload.allocations if a.role != "in")
    found = Path(outcome.outputs[written]).read_bytes()
    return found == Path(bench.oracle.captured.outputs[written]).read_bytes()


def test_an_honest_candidate_passes_with_everything_looked_at(twice: Bench, tmp_path: Path) -> None:
    comparison = twice.compared(rewrite_of("", GOES_ON), tmp_path / "seen")
    gate = twice.gate(comparison)
    assert gate.passed, gate.line
    for side in (comparison.baseline, comparison.candidate):
        timing = side.timing
        assert timing is not None
        assert timing.outputs_looked_at == timing.outputs_taken >= 80 + 8
        captured, other = timing.timed_outputs
        assert (captured.inputs, other.inputs) == (0, 1)
        assert captured.cold == captured.warm == tuple(range(40))
        assert other.apart >= 8
    assert gate.numbers["looked_at_candidate_w0"] == gate.numbers["taken_candidate_w0"]
    assert "all right" in gate.summary


@pytest.mark.parametrize("name", SLY)
def test_what_is_right_when_run_and_wrong_when_timed(
    twice: Bench, tmp_path: Path, name: str
) -> None:
    rewrite = rewrite_of(*SLY[name])
    assert right_when_run(twice, rewrite)
    gate = twice.gate(twice.compared(rewrite, tmp_path / "seen"))
    assert not gate.passed
    assert not gate.quarantined
    assert gate.summary.startswith("the candidate on w0 was wrong while it was timed")
    assert "launches between them, signed inputs" in gate.summary


def test_what_remembers_in_scratch_memory(twice: Bench, tmp_path: Path) -> None:
    rewrite = rewrite_of("", IN_SCRATCH, scratch=True)
    gate = twice.gate(twice.compared(rewrite, tmp_path / "seen"))
    assert not gate.passed
    assert "the candidate on w0 was wrong while it was timed" in gate.summary


def test_atomics_on_what_stood_there_pass(bins: Bench, tmp_path: Path) -> None:
    """Sums in another order, two at a time, on a buffer that is read too."""
    body = "if (2 * i < n) { atomicAdd(&b[2 * i % 8], a[2 * i]);"
    body += "if (2 * i + 1 < n) atomicAdd(&b[(2 * i + 1) % 8], a[2 * i + 1]); }"
    comparison = bins.compared(rewrite_of("", body), tmp_path / "seen")
    gate = bins.gate(comparison)
    assert gate.passed, gate.line


def test_what_is_left_open_is_taken_with_four_times_the_samples(
    twice: Bench, tmp_path: Path
) -> None:
    usual = twice.compared(rewrite_of("", GOES_ON), tmp_path / "usual")
    more = twice.compared(rewrite_of("", GOES_ON), tmp_path / "more", thorough=True)
    assert len(more.candidate.samples_us) == 4 * len(usual.candidate.samples_us) == 160
    assert twice.gate(more).passed


def test_without_a_folder_nobody_looked_and_the_gate_says_so(twice: Bench) -> None:
    workload = twice.case.workload
    rewrite = rewrite_of("", GOES_ON)
    pair = twice.executor.measure_pair(
        compiled(twice.executor, twice.case),
        twice.compiled(rewrite),
        workload,
        resolve(rewrite, twice.case.program.kernel(workload.kernel), workload),
    )
    assert isinstance(pair, tuple)
    comparison = Comparison(workload="w0", weight=1.0, baseline=pair[0], candidate=pair[1])
    gate = twice.gate(comparison)
    assert not gate.passed
    assert "the results of its timed launches were not checked" in gate.summary


def test_a_module_has_every_variable_that_lasts(twice: Bench) -> None:
    """What a rewrite adds is put back before each sample too; shared memory is no such variable."""
    state = "__device__ int calls; __constant__ float by = 2; static __device__ float last;"
    body = "__shared__ float tile[4]; static __device__ int inner; if (i == 0) {"
    body += '++inner; ++calls; last = tile[0] = by; printf("%f", tile[0]); }'
    module = twice.executor.module(twice.compiled(rewrite_of(state, body + GOES_ON)))
    names = {name.rpartition("::")[2] for name in module.variables}
    assert names == {"calls", "by", "last", "inner"}
