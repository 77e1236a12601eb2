"""The main job on kernels that a program launches by CUDA's driver API: the GPU is the stand-in,
and the program meets a double of libcuda.so.1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate
from cudaops.domain.run import RunOptions
from cudaops.executors.base import close_executor
from cudaops.graph.resolve_options import place, run_options
from cudaops.graph.services import make_executor, open_bench, with_found_device
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.whole_program import whole_program_gates
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import load_settings
from tests.executors.cuda import ncu_double
from tests.executors.cuda.driver_programs import APP, KERNELS, copy_of_project
from tests.standin.platform import STANDIN

pytestmark = [pytest.mark.nvcc]
ANY = r"""
#include <string>
extern "C" void any_kernel(const char* symbol, void** v, const unsigned* grid,
                           const unsigned* block) {
    if (std::string(symbol).find("smooth") != std::string::npos) smooth(v, grid, block);
}
"""
"""A rewrite does what the author's kernel does: it takes the same parameters."""
ROWS = """
// @launch smooth_rows grid=(ceil_div(columns, 64), rows) block=(64) args=(in, out, rows, columns)
__global__ void smooth_rows(const float* in, float* out, int rows, int columns) {
    int column = blockIdx.x * 64 + threadIdx.x, row = blockIdx.y;
    if (column >= columns) return;
    float sum = 0.0f;
    for (int dy = -3; dy <= 3; ++dy)
        for (int dx = -3; dx <= 3; ++dx) {
            int y = min(max(row + dy, 0), rows - 1), x = min(max(column + dx, 0), columns - 1);
            sum += in[y * columns + x];
        }
    out[row * columns + column] = sum / 49.0f;
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("application")
    ncu_double.install(folder / "bin")
    (folder / "project").mkdir()
    project = copy_of_project(folder / "project", ANY)
    before = dict(os.environ)
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    os.environ["CUDAOPS_GPU_DRIVER"] = STANDIN
    os.environ["CUDA_DOUBLE_KERNELS"] = str(project / KERNELS)
    os.environ["CUDA_DOUBLE_CAPABILITY"] = "86"  # the stand-in's
    yield project
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def bench(project: Path) -> Iterator[Workbench]:
    options = options_of(project, "run", f"./{APP}", "40", "24")
    executor = make_executor(options, load_settings())
    yield open_bench(with_found_device(options, executor), executor)
    close_executor(executor)


def options_of(project: Path, out: str, command: str, *argv: str) -> RunOptions:
    return run_options(
        project / "kernel.cu",
        project.parent / out,
        place("cuda", None, None),
        working_folder=str(project),
        run_command=command,
        argv=argv,
        kernel="smooth",
        timeout_seconds=60.0,
    )


def gates_of(bench: Workbench, source: str) -> list[Gate]:
    rewrite = bench.served_alone(make_rewrite(source, "user", "rows", "for a test"))
    return list(whole_program_gates(bench, rewrite))


def test_the_application_is_run_with_the_rewrite_loaded_into_it(bench: Workbench) -> None:
    (gate,) = gates_of(bench, ROWS)
    assert gate.passed, gate.summary
    assert "3 launches by the rewrite, 0 by the author's kernel" in gate.summary


def test_what_it_prints_decides(bench: Workbench) -> None:
    (gate,) = gates_of(bench, ROWS.replace("smooth_rows", "wrong"))
    assert not gate.passed
    assert "launches by the rewrite" in gate.summary


def test_a_rewrite_that_is_never_launched_says_nothing(bench: Workbench) -> None:
    (gate,) = gates_of(bench, ROWS.replace("// @launch", "// @requires rows % 41 == 0\n// @launch"))
    assert not gate.passed
    assert gate.summary.startswith(
        "the program never launched the rewrite (3 launches by its own: @requires rows % 41 == 0"
    )


def test_a_rewrite_is_run_as_far_as_the_author_who_pauses(project: Path) -> None:
    words = ("40", "24", "smooth", "smooth", "print", "rest")
    options = options_of(project, "paused", f"./{APP}", *words)
    options = options.model_copy(update={"timeout_seconds": 10.0})
    executor = make_executor(options, load_settings())
    try:
        bench = open_bench(with_found_device(options, executor), executor)
        (gate,) = gates_of(bench, ROWS)
    finally:
        close_executor(executor)
    assert gate.passed, gate.summary
    assert "2 launches by the rewrite, 0 by" in gate.summary
    assert "until it launches no more" in gate.summary


def test_the_file_keeps_its_kernel_and_has_the_rewrite_beside_it(bench: Workbench) -> None:
    before = bench.program.main.text
    text = bench.spliced(make_rewrite(ROWS, "user", "rows", "for a test")).main.text
    begin, block, end = text.partition("// ---- cudaops: rows")
    assert begin + end.partition("// ---- cudaops: end\n")[2] == before
    assert block
    assert "namespace cudaops_smooth {" in end
    assert "<<<" not in text
