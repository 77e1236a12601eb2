"""Neither hygiene gate has anything to say of honest rewrites; and the cubin of the GPU path.

The `cuda` executor works over the stand-in GPU: what is looked at is nvcc's and real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.base import Executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.gates.object import object_gate
from cudaops.gates.preprocessed import preprocessed_gate
from cudaops.recipes.registry import propose
from cudaops.sandbox.workbench import Workbench
from tests.exploits.cases import DEVICE, Case, load_case
from tests.gates.gate_bench import EXPLOITS, MM, bench_of, compiled, product, rewrite_of
from tests.standin.platform import STANDIN

CASES = [load_case(p) for p in sorted(EXPLOITS.rglob("honest/*.cu"))]
HONEST = [case for case in CASES if case.device == DEVICE]
RECIPE_PROGRAMS = [MM, EXPLOITS / "transpose" / "transpose.cu", EXPLOITS / "saxpy" / "saxpy.cu"]

BenchFor = Callable[[Path], Workbench]

pytestmark = [pytest.mark.nvcc]


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def executor(request: pytest.FixtureRequest, kernels: Path) -> Iterator[Executor]:
    if request.param == "cpu":
        yield CpuExecutor("A10", kernels)
        return
    over_stand_in = CudaExecutor(None, kernels, driver=STANDIN, sm_arch="sm_86")
    yield over_stand_in
    over_stand_in.close()


@pytest.fixture(scope="module")
def bench_for(executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> BenchFor:
    """One workbench a program."""
    made: dict[Path, Workbench] = {}

    def find(program: Path) -> Workbench:
        if program not in made:
            policy = Policy(min_speedup=0.001, seed=11, allow_ptx=True)
            folder = tmp_path_factory.mktemp(program.stem)
            made[program] = bench_of(executor, program, folder, policy)
        return made[program]

    return find


def check_clean(bench: Workbench, rewrite: Rewrite) -> None:
    preprocessed = preprocessed_gate(bench, rewrite)
    assert preprocessed.gate.passed, preprocessed.gate.summary
    found = object_gate(bench, rewrite, compiled(bench, rewrite))
    assert found.passed, found.summary


@pytest.mark.parametrize("executor", ["cuda"], indirect=True)  # `make exploits` has them on `cpu`
@pytest.mark.parametrize("case", HONEST, ids=lambda c: c.name)
@pytest.mark.deep
def test_honest_rewrites_are_clean(bench_for: BenchFor, case: Case) -> None:
    check_clean(bench_for(case.baseline), rewrite_of(case.source))


@pytest.mark.parametrize("program", RECIPE_PROGRAMS, ids=lambda p: p.stem)
def test_what_recipes_write_is_clean(bench_for: BenchFor, program: Path) -> None:
    bench = bench_for(program)
    rewrites = propose(bench.program, bench.kernel, bench.workloads, None)
    assert rewrites
    for rewrite in rewrites:
        check_clean(bench, rewrite)


def test_state_is_quarantined(bench_for: BenchFor) -> None:
    bench, rewrite = bench_for(MM), product("__device__ int count;\n", "atomicAdd(&count, 1);")
    found = object_gate(bench, rewrite, compiled(bench, rewrite))
    assert (found.passed, found.quarantined) == (False, True), found.summary
    assert "`count`" in found.summary


@pytest.mark.parametrize("executor", ["cuda"], indirect=True)
def test_a_cubin_of_another_text_is_refused(bench_for: BenchFor) -> None:
    bench = bench_for(MM)
    spare = "__device__ int count;\n__global__ void spare(int* p) { *p = atomicAdd(&count, 1); }\n"
    honest, other = compiled(bench, product()), compiled(bench, product(spare))
    swapped = honest.model_copy(update={"folder": other.folder})
    found = object_gate(bench, product(), swapped)
    assert (found.passed, found.quarantined) == (False, False)
    assert "is a kernel that its PTX has not" in found.summary
    assert found.numbers["nv_global_bytes"] > 0


@pytest.mark.parametrize("executor", ["cuda"], indirect=True)
def test_headers_that_no_processor_has_are_nvccs_alone(bench_for: BenchFor) -> None:
    found = preprocessed_gate(bench_for(MM), product("#include <cuda/std/cstdint>\n")).gate
    assert found.passed, found.summary
    assert found.summary.endswith("as preprocessed by nvcc")
