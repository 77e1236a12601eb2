"""The gates on text and device code where a rewrite may use libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.execution import Unit
from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.evaluate import evaluate
from cudaops.gates.object import look_at_device_code
from cudaops.gates.preprocessed import preprocessed_gate
from cudaops.program.parse import load_program
from cudaops.sandbox.workbench import Workbench
from tests.gates.gate_bench import EXPLOITS, MM, bench_of, product, rewrite_of

REDUCE = """// @launch fast grid=(rows) block=(128) args=(x, out, columns)
#include <cub/block/block_reduce.cuh>
#include <HEADER>
__global__ void fast(const float* x, float* out, int columns) {
    using Reduce = cub::BlockReduce<float, 128>;
    __shared__ typename Reduce::TempStorage storage;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 128) sum += x[blockIdx.x * columns + c];
    float all = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = all EXTRA;
}
"""


def reduce(header: str = "cuda/std/array", extra: str = "") -> Rewrite:
    return rewrite_of(REDUCE.replace("HEADER", header).replace("EXTRA", extra))


@pytest.fixture(scope="module")
def bench(cpu_executor: CpuExecutor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    policy = Policy(min_speedup=0.001, seed=11, allow_libraries=True)
    return bench_of(cpu_executor, MM, tmp_path_factory.mktemp("bench"), policy)


def test_the_processor_has_cubs_collectives(bench: Workbench) -> None:
    _, preprocessed, *_ = evaluate(bench, product("#include <cub/cub.cuh>\n"), 0.001).gates
    assert (preprocessed.passed, preprocessed.quarantined) == (True, False), preprocessed.summary


def test_the_processor_has_no_other_libraries_and_says_so(bench: Workbench) -> None:
    evaluation = evaluate(bench, product("#include <cuda/std/array>\n"), 0.001)
    hygiene, preprocessed = evaluation.gates
    assert hygiene.passed
    assert (preprocessed.passed, preprocessed.quarantined) == (False, False)
    assert "<cuda/std/array> is for nvcc" in preprocessed.summary
    assert preprocessed.summary.startswith("needs --executor cuda")


def test_by_default_the_first_gate_refuses_them(
    cpu_executor: CpuExecutor, tmp_path: Path, bench: Workbench
) -> None:
    strict = Workbench(
        bench.program, bench.captured, cpu_executor, Policy(min_speedup=0.001), tmp_path,
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    (gate,) = evaluate(strict, product("#include <cub/cub.cuh>\n"), 0.001).gates
    assert (gate.name, gate.passed) == ("hygiene", False)


def test_a_library_that_g_plus_plus_alone_has_seen_is_quarantined(
    cpu_executor: CpuExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g++ finds a header of that name, here the author's own; and there is no nvcc."""
    header = tmp_path / "cuda" / "std" / "array"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once\n")
    author = tmp_path / "mm.cu"
    author.write_text('#include "cuda/std/array"\n' + MM.read_text())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if find_nvcc() is not None:
        pytest.skip("nvcc is found elsewhere than on PATH")
    bench = bench_of(cpu_executor, author, tmp_path / "bench")
    gate = preprocessed_gate(bench, product('#include "cuda/std/array"\n')).gate
    assert (gate.passed, gate.quarantined) == (False, True), gate.summary
    assert "without nvcc the library's code is not inspected" in gate.summary
    assert preprocessed_gate(bench, product()).gate.passed


@pytest.mark.nvcc
def test_what_a_library_hides_is_seen_in_the_ptx(tmp_path: Path) -> None:
    program = load_program(EXPLOITS / "sum" / "sum.cu")

    def unit(rewrite: Rewrite | None) -> Unit:
        return Unit(
            program=program, kernel="row_sum", callee="row_sum", rewrite=rewrite, widened=False
        )

    def look(rewrite: Rewrite) -> tuple[str, ...]:
        found = look_at_device_code(unit(rewrite), unit(None), "sm_86", tmp_path, None)
        assert found.findings.refused == ()
        return found.findings.suspicious

    assert look(reduce()) == ()
    now = " + 0 * cuda::std::chrono::system_clock::now().time_since_epoch().count()"
    assert "reads a clock" in look(reduce("cuda/std/chrono", now))[0]
