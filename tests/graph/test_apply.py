"""`cudaops apply --check` on projects as their authors build them, and what a kill leaves."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from cudaops.cli import app
from cudaops.cli.runs import load_record
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError
from cudaops.executors.base import close_executor
from cudaops.graph.apply import ApplyTarget, open_target, put_in, take_out
from cudaops.graph.folder import taken_home, write_best
from cudaops.graph.resolve_options import place, run_options
from cudaops.graph.services import make_executor, open_bench, with_found_device
from cudaops.program.plans import make_rewrite
from cudaops.reports import json as run_json
from cudaops.settings import load_settings
from tests.reports.records import provisional
from tests.standin.platform import STANDIN

PROJECTS = Path(__file__).parents[1] / "data" / "projects"

BLUR = """
// @launch blur_row grid=(ceil_div(width, 64), height) block=(64) args=(in, out, width, height)
__global__ void blur_row(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float sum = 0.0f;
    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -RADIUS; dx <= RADIUS; dx++)
            sum += in[clamp(y + dy, 0, height - 1) * width + clamp(x + dx, 0, width - 1)];
    out[y * width + x] = sum / ((2 * RADIUS + 1) * (2 * RADIUS + 1));
}
"""
NORMALISE = """
// @launch norm grid=(ceil_div(rows, 32)) block=(32) args=(in, out, rows, columns)
__global__ void norm(const float* in, float* out, int rows, int columns) {
    int row = blockIdx.x * 32 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int c = 0; c < columns; c++) sum += in[row * columns + c] * in[row * columns + c];
    float by = rsqrtf(sum / columns + EPS);
    for (int c = 0; c < columns; c++) out[row * columns + c] = in[row * columns + c] * by;
}
"""
SUM = """
// @launch sum_far grid=(ceil_div(rows, 32)) block=(32) args=(in, out, rows, columns)
__global__ void sum_far(const float* in, float* out, int rows, int columns) {
    int row = blockIdx.x * 32 + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < columns; c++) sum += in[row * columns + c];
    out[row] = sum;
}
"""
SINGLE = """#include <cstdio>
#include <cuda_runtime.h>
// Stra\xdfe: no UTF-8, and lines end as on Windows.
__global__ void twice(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i];
}
int main() {
    const int n = 1 << 16;
    static float host[n];
    for (int i = 0; i < n; i++) host[i] = i % 97 / 8.0f;
    float *in, *out;
    cudaMalloc(&in, sizeof host);
    cudaMalloc(&out, sizeof host);
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    twice<<<n / 256, 256>>>(in, out, n);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : host) sum += v;
    printf("sum %.3f\\n", sum);
}
""".replace("\n", "\r\n")
TWICE = """
// @launch doubled grid=(ceil_div(n, 128)) block=(128) args=(in, out, n)
__global__ void doubled(const float* in, float* out, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) out[i] = in[i] + in[i];
}
"""
SLOW = TWICE.replace(
    "    if (i < n) out[i] = in[i] + in[i];",
    "    if (i >= n) return;\n"
    "    for (int k = 0; k < 4000; k++) out[i] = in[(i + k) % n];\n"
    "    out[i] = in[i] + in[i];",
)


class Made(NamedTuple):
    """A run folder as a run leaves it, around a rewrite that no gate has seen."""

    project: Path
    run: Path
    before: dict[str, bytes]

    @property
    def target(self) -> ApplyTarget:
        return open_target(self.run, load_record(self.run))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def run_with(options: RunOptions, source: str) -> Path:
    """Captured as a run captures it, with a rewrite written by hand in its folder."""
    executor = make_executor(options, load_settings())
    try:
        bench = open_bench(with_found_device(options, executor), executor)
        rewrite = bench.served_alone(make_rewrite(source, "user", "by hand", "for a test"))
        spliced = bench.spliced(rewrite)
        bench.save()
    finally:
        close_executor(executor)
    folder = Path(options.out)
    write_best(folder, spliced, taken_home(bench.program, spliced).patch)
    record = provisional(options.out).model_copy(update={"options": options})
    (folder / "run.json").write_text(run_json.dumps(record), "utf-8")
    return folder


def made(tmp_path: Path, name: str, file: str, source: str, **asked: object) -> Made:
    project = Path(shutil.copytree(PROJECTS / name, tmp_path / name))
    options = run_options(
        project / file, tmp_path / "run", place("cpu", None, None), working_folder=str(project),
        timeout_seconds=60.0, **asked,
    )  # fmt: skip
    before = contents(project)
    return Made(project, run_with(options, source), before)


def filters(tmp_path: Path, source: str = BLUR) -> Made:
    return made(
        tmp_path, "filters", "src/blur.cu", source, build_command="make", run_command="./app",
        argv=("70", "50"),
    )  # fmt: skip


def apply(run: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["apply", str(run), *words], catch_exceptions=False)
    return done.exit_code, done.stdout


def record_of(run: Path) -> dict[str, object]:
    return dict(json.loads((run / "apply-check.json").read_text("utf-8")))


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


@pytest.mark.parametrize(
    "project",
    [
        pytest.param(filters, id="make"),
        pytest.param(
            lambda folder: made(
                folder, "rust", "cuda/rows.cu", SUM, build_command="cargo build",
                run_command="target/debug/rows", argv=("70", "130"),
            ),
            id="cargo",
            marks=needs("cargo", "rustc"),
        ),
    ],
)  # fmt: skip
def test_a_rewrite_that_holds_is_kept(project: Callable[[Path], Made], tmp_path: Path) -> None:
    one = project(tmp_path)
    code, said = apply(one.run, "--check")
    assert code == 0, said
    assert said.splitlines()[-1].startswith("kept: it builds; "), said
    assert "printed number" in said
    assert "match" in said
    changed = {k for k, v in contents(one.project).items() if one.before.get(k) != v}
    assert {str(one.project / name) for name in changed} == set(record_of(one.run)["files"])  # type: ignore[call-overload]
    found = record_of(one.run)
    assert (found["code"], found["times_decide"]) == ("kept", False)
    for side in ("before", "after"):
        assert len(found[side]["seconds"]) == 3  # type: ignore[index]
    assert "emulated times decide nothing" in said
    assert apply(one.run, "--revert")[0] == 0
    assert contents(one.project) == one.before


@needs("cmake", "ninja")
def test_cmake_and_a_header_with_the_kernel(tmp_path: Path) -> None:
    one = made(
        tmp_path, "rows", "kernels/include/kern/rows.cuh", NORMALISE,
        build_command="cmake -S . -B out -G Ninja && cmake --build out", run_command="out/bench",
        argv=("33", "70"),
    )  # fmt: skip
    code, said = apply(one.run, "--check")
    assert code == 0, said
    assert record_of(one.run)["build"] == "cmake -S . -B out -G Ninja && cmake --build out"
    apply(one.run, "--revert")
    assert contents(one.project) == one.before


def test_one_that_prints_something_else_is_taken_out(tmp_path: Path) -> None:
    one = filters(
        tmp_path, BLUR.replace("out[y * width + x] = sum", "out[y * width + x] = 2 * sum")
    )
    code, said = apply(one.run, "--check")
    assert (code, record_of(one.run)["code"]) == (1, "differs")
    assert "taken out: prints " in said, said
    assert contents(one.project) == one.before
    with pytest.raises(InputError, match="is already as it was"):
        apply(one.run, "--revert")


def test_one_that_does_not_build_is_taken_out(tmp_path: Path) -> None:
    one = filters(tmp_path)
    best = next(p for p in one.run.rglob("blur.cu") if "best" in p.parts)
    best.write_text(best.read_text("utf-8") + "\nint broken = undeclared_name;\n", "utf-8")
    code, said = apply(one.run, "--check")
    assert (code, record_of(one.run)["code"]) == (1, "build_failed")
    assert "taken out: " in said
    assert "undeclared_name" in said
    assert contents(one.project) == one.before


def test_what_does_not_run_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    one = filters(tmp_path)
    (one.project / "src" / "main.cpp").write_text("int main() { return missing; }\n", "utf-8")
    before = contents(one.project)
    with pytest.raises(InputError, match=r"the program fails without the rewrite: .*missing"):
        apply(one.run, "--check")
    assert contents(one.project) == before
    with pytest.raises(InputError, match="give one of them"):
        apply(one.run, "--check", "--revert")


def test_a_kill_in_the_check_leaves_what_revert_takes_out(tmp_path: Path) -> None:
    one = filters(tmp_path)
    kernel = one.project / "src" / "blur.cu"
    command = [sys.executable, "-m", "cudaops", "apply", str(one.run), "--check"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 120
        while kernel.read_bytes() == one.before["src/blur.cu"] and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
    assert kernel.read_bytes() != one.before["src/blur.cu"]
    assert apply(one.run, "--revert") == (0, f"as it was: {kernel}\n")
    assert contents(one.project) == one.before


@pytest.fixture
def single(tmp_path: Path) -> Path:
    source = tmp_path / "own" / "twice.cu"
    source.parent.mkdir()
    source.write_bytes(SINGLE.encode("latin-1"))
    return source


def over_and_over(target: ApplyTarget) -> None:
    while True:
        put_in(target)
        take_out(target)


def test_kills_at_any_moment_lose_no_byte(single: Path, tmp_path: Path) -> None:
    options = run_options(single, tmp_path / "run", place("cpu", None, None))
    one = Made(single.parent, run_with(options, TWICE), contents(single.parent))
    random, starting = Random(7), multiprocessing.get_context("fork")
    halves = 0
    for _ in range(60):
        child = starting.Process(target=over_and_over, args=(one.target,))
        child.start()
        time.sleep(0.005 + random.random() / 50)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if contents(one.project) != one.before:
            halves += 1
            # Killed before the first file changed, or behind the last: a part of one may lie there.
            with contextlib.suppress(InputError):
                take_out(one.target)
        assert contents(one.project) == one.before
    assert halves > 0


def test_an_edit_since_is_nobodys_to_lose(single: Path, tmp_path: Path) -> None:
    options = run_options(single, tmp_path / "run", place("cpu", None, None))
    target = Made(single.parent, run_with(options, TWICE), {}).target
    put_in(target)
    edited = single.read_bytes() + b"// mine\r\n"
    single.write_bytes(edited)
    with pytest.raises(InputError, match="was changed since apply; nothing was changed"):
        take_out(target)
    assert single.read_bytes() == edited


@pytest.fixture
def standin() -> Iterator[None]:
    before = os.environ.get("CUDAOPS_GPU_DRIVER")
    os.environ["CUDAOPS_GPU_DRIVER"] = STANDIN
    yield
    os.environ.pop("CUDAOPS_GPU_DRIVER")
    if before is not None:
        os.environ["CUDAOPS_GPU_DRIVER"] = before


@pytest.mark.nvcc
@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize(("source", "code"), [(SLOW, "slower"), (TWICE, "kept")])
def test_where_times_are_taken_they_decide(
    single: Path, tmp_path: Path, source: str, code: str
) -> None:
    options = run_options(single, tmp_path / "run", place("cuda", None, None), timeout_seconds=60.0)
    before = contents(single.parent)
    run = run_with(options, source)
    done, said = apply(run, "--check", "--executor", "cuda")
    found = record_of(run)
    assert (found["code"], found["times_decide"], done) == (code, True, code == "slower"), said
    assert len(found["after"]["seconds"]) == 11  # type: ignore[index]
    if code == "slower":
        assert "taken out: the program is slower: " in said
        assert found["ratio_low"] > 1  # type: ignore[operator]
        assert contents(single.parent) == before
    else:
        assert "the program is " in said
        assert contents(single.parent) != before
