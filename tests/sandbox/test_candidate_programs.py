"""Whole programs as people write them, taken over as rewrites: those of `tests/data/verify`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.graph.verify_files import read_candidate
from cudaops.program.hygiene import check_source
from cudaops.program.parse import load_program
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.gates.gate_bench import compiled

PROGRAMS = Path(__file__).parents[1] / "data" / "verify"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    return opened("rows.cu", "row_sums", tmp_path_factory.mktemp("rows"), kernels)


def opened(program: str, kernel: str, folder: Path, kernels: Path) -> Workbench:
    return open_workbench(
        load_program(PROGRAMS / program),
        kernel,
        (),
        CpuExecutor("A10", kernels),
        Policy(min_speedup=0.001, seed=5),
        folder,
        sm_arch="sm_86",
        timeout_s=60.0,
    )


def directives(rewrite: Rewrite) -> list[str]:
    """Without their mark, and without shared memory that is 0; `SCALE` is 0.5f as a word."""
    lines = rewrite.source.splitlines()
    found = [ln[4:].replace(" smem=0", "") for ln in lines if ln.startswith("// @")]
    return [ln.replace("4539628424389460032", "SCALE") for ln in found]


TAKEN = {
    "rows_two_steps.cu": [
        "scratch scratch0 bytes=8192",
        "launch part_sums<64> grid=(512,4,1) block=(64,1,1) args=(x, scratch0, columns)",
        "launch join_sums grid=(2,1,1) block=(256,1,1) args=(scratch0, sums, scale, rows, 4)",
        "requires rows == 512",
        "requires columns == 256",
    ],
    "rows_cleared.cu": [
        "scratch scratch0 bytes=2048",
        "launch fill_memory grid=(8,1,1) block=(256,1,1) args=(scratch0, 0, 2048)",
        "launch add_rows grid=(512,1,1) block=(64,1,1) args=(x, scratch0, columns)",
        "launch scale_rows grid=(8,1,1) block=(64,1,1) args=(scratch0, sums, scale, rows)",
        "requires rows == 512",
        "requires columns == 256",
    ],
    "rows_struct.cu": [
        "launch rows_by_warp_entry grid=(512,1,1) block=(32,1,1) args=(x, sums, SCALE, columns)",
        "requires rows == 512",
        "requires columns == 256",
        "requires scale == 0.5",
    ],
}
"""Several kernels with scratch memory and a template; memory that host code clears; a kernel with C
linkage in a local header that takes a structure of the host's and reads the values as float4."""


@pytest.mark.parametrize("name", TAKEN)
def test_the_plan_is_what_the_program_launches(bench: Workbench, name: str) -> None:
    rewrite = read_candidate(bench, PROGRAMS / name)
    assert directives(rewrite) == TAKEN[name]
    assert check_source(rewrite.source) == ()
    for gone in ("main", "total", "iostream", "cudaMalloc", "say"):
        assert gone not in rewrite.source
    compiled(bench, rewrite)


def test_a_function_that_both_programs_have_gets_a_name_of_its_own(bench: Workbench) -> None:
    """`weight(Shape, int)` would be found in the author's program as well, by its argument."""
    source = read_candidate(bench, PROGRAMS / "rows_struct.cu").source
    assert "weight_2(shape, 4 * q)" in source
    assert "struct Shape" not in source
    assert "__device__ void __launch_bounds__" not in source
    assert "__global__ void __launch_bounds__(32) rows_by_warp_entry" in source


@pytest.mark.parametrize("name", TAKEN)
def test_it_passes_every_gate(bench: Workbench, name: str) -> None:
    evaluation = evaluate(bench, read_candidate(bench, PROGRAMS / name), 0.001)
    failed = [g.summary for g in evaluation.gates if not g.passed]
    assert not failed
    assert evaluation.judged(bench.policy).outcome == "provisional"


def test_pointers_in_the_place_of_a_structure(tmp_path: Path, kernels: Path) -> None:
    """The author hands over a structure, the other program what stands in it."""
    of_structure = opened("rows_struct.cu", "rows_by_warp", tmp_path, kernels)
    rewrite = read_candidate(of_structure, PROGRAMS / "rows.cu")
    assert directives(rewrite)[0] == (
        "launch row_sums_entry grid=(4,1,1) block=(128,1,1) args=(task.scale, 512, columns, task)"
    )
    assert "row_sums((const float*)((char*)of_task.values + 0)" in rewrite.source
    assert "requires task.quads == 64" in directives(rewrite)
    evaluation = evaluate(of_structure, rewrite, 0.001)
    assert not [g.summary for g in evaluation.gates if not g.passed]


REFUSED = {
    "rows_table.cu": "parameter `weights` of `weighted_rows` reads 1024 bytes that host code "
    "filled, and `row_sums` is given no such memory",
    "rows_constant.cu": "`factors` is filled by host code (cudaMemcpyToSymbol)",
    "rows_padded.cu": "parameter `x` of `padded_rows` has 526336 bytes, where `row_sums` has "
    "524288",
    "rows_fused.cu": "none of its new kernels (`sum_of_all`) writes what `row_sums` writes, `sums` "
    "(2048 bytes)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_over_is_named_in_one_line(bench: Workbench, name: str) -> None:
    with pytest.raises(InputError, match=re.escape(REFUSED[name])) as refused:
        read_candidate(bench, PROGRAMS / name)
    assert str(refused.value).startswith(f"{name}: ")
    assert "\n" not in str(refused.value)


def changed(tmp_path: Path, name: str, *edits: tuple[str, str]) -> Path:
    """A program of `tests/data/verify` beside its header, with this text in it."""
    (tmp_path / "rows_task.cuh").write_text((PROGRAMS / "rows_task.cuh").read_text())
    text = (PROGRAMS / name).read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_authors_kernel_with_another_block(bench: Workbench, tmp_path: Path) -> None:
    other = changed(tmp_path, "rows.cu", ("(rows + 127) / 128, 128", "(rows + 63) / 64, 64"))
    (launch,) = directives(read_candidate(bench, other))
    grid, given = "gridDim.x * 2,gridDim.y,gridDim.z", "args=(x, sums, scale, rows, columns)"
    assert launch == f"launch row_sums grid=({grid}) block=(64,1,1) {given}"


def test_host_code_that_decides_is_held_to_what_was_seen(bench: Workbench, tmp_path: Path) -> None:
    call = "<<<(rows + 127) / 128, 128>>>"
    text = (PROGRAMS / "rows.cu").read_text()
    line = next(ln for ln in text.splitlines() if call in ln)
    decides = line.replace(call, "<<<(rows + 63) / 64, 64>>>")
    other = changed(
        tmp_path, "rows.cu", (line, f"    if (rows % 64 == 0) {{ {decides} }} else {{ {line} }}")
    )
    launch, *held = directives(read_candidate(bench, other))
    assert launch.startswith("launch row_sums grid=(8,1,1) block=(64,1,1) ")
    assert held == ["requires rows == 512", "requires columns == 256"]


FILLS = "h[i] = (float)(i * 7 % 23) - 11.0f;"


def test_inputs_that_host_code_makes_ready_otherwise(bench: Workbench, tmp_path: Path) -> None:
    other = changed(tmp_path, "rows_cleared.cu", (FILLS, "h[i] = (float)(i % 5);"))
    with pytest.raises(InputError, match="`x` of `add_rows` holds other bytes than `x` of"):
        read_candidate(bench, other)


def test_inputs_that_are_drawn_anew_in_each_run(tmp_path: Path, kernels: Path) -> None:
    draws = (FILLS, "h[i] = (float)(drawn() % 23);")
    declared = (
        "    std::vector<float> h(",
        "    std::random_device drawn;\n    std::vector<float> h(",
    )
    include = ("#include <vector>", "#include <random>\n#include <vector>")
    author = changed(tmp_path, "rows.cu", draws, declared, include)
    candidate = changed(tmp_path, "rows_cleared.cu", draws, declared, include)
    bench = opened(str(author), "row_sums", tmp_path / "run", kernels)
    given = "args=(x, scratch0, columns)"
    assert directives(read_candidate(bench, candidate))[2].endswith(given)


def test_a_wrong_result_is_refused_as_one(bench: Workbench, tmp_path: Path) -> None:
    """One part of each row is left out when they are joined."""
    wrong = changed(
        tmp_path, "rows_two_steps.cu", ("for (int p = 0; p < parts", "for (int p = 1; p < parts")
    )
    evaluation = evaluate(bench, read_candidate(bench, wrong), 0.001)
    assert evaluation.gates[-1].name == "correctness_captured"
    assert "sums" in evaluation.gates[-1].summary


def test_memory_that_is_set_to_what_nobody_knows(bench: Workbench, tmp_path: Path) -> None:
    edit = ("cudaMemset(d_raw, 0,", "cudaMemset(d_raw, argc - 1,")
    unknown = changed(tmp_path, "rows_cleared.cu", edit)
    with pytest.raises(InputError, match="cudaMemset fills `d_raw` with `argc - 1`"):
        read_candidate(bench, unknown)


def test_nothing_in_the_place_of_the_kernel(bench: Workbench, tmp_path: Path) -> None:
    edit = ("    row_sums<<<(rows", "    if (rows < 0) row_sums<<<(rows")
    idle = changed(tmp_path, "rows.cu", edit)
    with pytest.raises(InputError, match="launches nothing instead of `row_sums`"):
        read_candidate(bench, idle)


TEMPLATED = """
template <int W>
__global__ void rows_by_width(Task task, int columns) {
    float sum = 0.0f;
    const float* row = (const float*)task.values + blockIdx.x * columns;
    for (int c = 0; c < columns; ++c) sum += weight(Shape{0, columns}, c) * row[c];
    task.sums[blockIdx.x] = task.scale * sum;
}"""


def templated(tmp_path: Path, name: str = "rows_by_width") -> Path:
    include = '#include "rows_task.cuh"'
    return changed(
        tmp_path,
        "rows_struct.cu",
        (include, include + TEMPLATED.replace("rows_by_width", name)),
        ("rows_by_warp<<<rows, 32>>>", f"{name}<4><<<rows, 1>>>"),
    )


def test_a_structure_for_a_template(bench: Workbench, tmp_path: Path) -> None:
    rewrite = read_candidate(bench, templated(tmp_path))
    launch = "launch rows_by_width_entry<4> grid=(512,1,1) block=(1,1,1)"
    assert directives(rewrite)[0].startswith(launch)
    assert "template <int W = 4>\n__global__ void rows_by_width_entry(" in rewrite.source
    compiled(bench, rewrite)


FUNCTOR = """
struct Plain { __device__ float operator()(float v) const { return v; } };
template <int W, typename F>
__global__ void __launch_bounds__(W) rows_with(
    const float* x, float* sums, float scale, int rows, int columns, F f) {
    int row = blockIdx.x * W + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    const float* mine = x + row * columns;
    for (int c = 0; c < columns; ++c) sum += f(weight(Shape{rows, columns}, c) * mine[c]);
    sums[row] = scale * sum;
}

__global__ void total("""


def test_a_functor_for_a_template(bench: Workbench, tmp_path: Path) -> None:
    functor = changed(
        tmp_path,
        "rows.cu",
        ("\n__global__ void total(", FUNCTOR),
        ("row_sums<<<(rows + 127) / 128, 128>>>(", "rows_with<64><<<(rows + 63) / 64, 64>>>("),
        ("0.5f, rows, columns);", "0.5f, rows, columns, Plain{});"),
    )
    rewrite = read_candidate(bench, functor)
    assert directives(rewrite)[0].startswith("launch rows_with_entry<64> ")
    assert directives(rewrite)[0].split(" args")[1].startswith("=(x, sums, scale, rows, columns, ")
    compiled(bench, rewrite)
