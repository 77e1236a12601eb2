"""Several runs of the author's program behind one job: roles, weights, sizes, and real sizes that
no processor executes whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.execution import Measurement
from cudaops.domain.judgement import Judgement, Policy
from cudaops.domain.options import KernelOptions, ProgramRun, WarmUps, program_run
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.evaluate import evaluate
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.bench_state import read_state
from cudaops.sandbox.captures import odd_sizes
from cudaops.sandbox.workbench import Workbench, open_workbench

PROGRAMS = Path(__file__).parents[1] / "data" / "sizes"
BAR = Policy(min_speedup=1.05, seed=3)


def opened(
    folder: Path,
    kernels: Path,
    *lines: str,
    program: str = "rows.cu",
    odd: bool = False,
    warm_ups: WarmUps = "auto",
    timeout_s: float = 60.0,
) -> Workbench:
    return open_workbench(
        load_program(PROGRAMS / program),
        None,
        tuple(program_run(line) for line in lines),
        CpuExecutor("H200", kernels),
        BAR,
        folder,
        sm_arch="sm_90",
        timeout_s=timeout_s,
        odd_sizes=odd,
        warm_ups=warm_ups,
    )


def rewrite(name: str) -> Rewrite:
    return make_rewrite((PROGRAMS / name).read_text(), proposer="test", title=name, why="test")


def judged(bench: Workbench, name: str, bar: float = BAR.min_speedup) -> Judgement:
    policy = BAR.model_copy(update={"min_speedup": bar})
    return evaluate(bench, rewrite(name), bar).judged(policy)


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("64 'two words'", ProgramRun(argv=("64", "two words"))),
        ("judged: 37", ProgramRun(argv=("37",), role="judged", weight=0.0)),
        ("timed*2.5: --n=4096", ProgramRun(argv=("--n=4096",), role="timed", weight=2.5)),
        ("both:", ProgramRun()),
        ("timed", ProgramRun(argv=("timed",))),
    ],
)
def test_what_a_line_says(line: str, run: ProgramRun) -> None:
    assert program_run(line) == run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"argument_lines": ["5"], "argv": ["6"]}, "not both"),
        ({"argument_lines": ["judged: 5"]}, "let one be timed"),
        ({"argument_lines": ["timed: 5", "timed: 6"]}, "let one be judged"),
        ({"argument_lines": ["timed*0: 5", "6"]}, "above 0"),
        ({"argument_lines": ["'x"]}, "No closing quotation"),
    ],
)
def test_lines_that_make_no_job(options: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KernelOptions.model_validate(options)


def test_odd_sizes_are_primes_below() -> None:
    assert list(odd_sizes(("1024", "--n=64", "3", "-f"))) == [
        ("1021", "--n=61", "3", "-f"),
        ("1021", "--n=64", "3", "-f"),
        ("1024", "--n=61", "3", "-f"),
    ]
    assert not list(odd_sizes(("a.txt", "15", "0x40")))


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    folder = tmp_path_factory.mktemp("sizes")
    return opened(folder, kernels, "256 64 4", "judged: 100 64 1", "both*3: 512 64 4")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Workbench:
    folder = tmp_path_factory.mktemp("real")
    return opened(folder, kernels, "judged: 50 40 2", "timed: 16384 1024 1000")


class TestSeveralSizes:
    def test_each_run_has_its_workloads(self, sizes: Workbench) -> None:
        assert [(w.id, w.run, w.role, w.time_share) for w in sizes.workloads] == [
            ("w0", 2, "both", 0.75), ("w1", 0, "both", 0.25), ("w2", 1, "judged", 0.0),
        ]  # fmt: skip
        assert [w.id for w in sizes.timed] == ["w0", "w1"]
        assert [w.id for w in sizes.judged] == ["w0", "w1", "w2"]
        assert [Path(w.folder).name for w in sizes.workloads] == ["w0", "w1", "w2"]
        assert {p.name for p in (sizes.folder / "workloads").iterdir()} == {"w0", "w1", "w2"}

    def test_shares_are_by_time_and_as_the_user_weighs_runs(self, sizes: Workbench) -> None:
        shares = {b.workload.id: b.share for b in sizes.baseline_times()}
        assert shares == pytest.approx({"w0": 0.75, "w1": 0.25})
        assert sizes.shares({"w1": 3.0}) == {"w1": 1.0}
        standing = {w.id: count for w, count in sizes.timed_launches}
        us = {w.id: sizes.baseline_time(w).median_us for w in sizes.timed}
        parts = [standing[w] * us[w] for w in ("w0", "w1")]
        assert parts[0] / parts[1] == pytest.approx(3)

    def test_a_resumed_sizes_has_the_same(self, sizes: Workbench) -> None:
        assert read_state(sizes.folder).captured == sizes.captured

    def test_an_honest_rewrite_is_judged_on_all(self, sizes: Workbench) -> None:
        judgement = judged(sizes, "a_warp_a_row.cu")
        assert judgement.outcome == "provisional"
        gate = judgement.gate("whole_program")
        assert gate is not None
        assert gate.summary.startswith("3 runs: ")


def test_what_is_right_for_one_size_is_refused_on_another(tmp_path: Path, kernels: Path) -> None:
    alone = opened(tmp_path / "alone", kernels, "256 64 4")
    assert judged(alone, "small_only.cu", bar=0.001).gates[-1].name == "correctness_domain"
    both = opened(tmp_path / "both", kernels, "256 64 4", "judged: 100 80 1")
    judgement = judged(both, "small_only.cu", bar=0.001)
    assert judgement.outcome == "rejected"
    assert judgement.gates[-1].name == "correctness_captured"


def test_odd_sizes_of_the_program(tmp_path: Path, kernels: Path) -> None:
    bench = opened(tmp_path, kernels, "256 64 4", odd=True)
    assert [one.run.argv for one in bench.captured.runs] == [("256", "64", "4"), ("251", "61", "4")]
    assert bench.captured.runs[1].run.role == "judged"
    assert any("251 61 4" in line for line in bench.limits)


class TestRealSize:
    def test_each_workload_has_its_part(self, real: Workbench) -> None:
        (timed,), (judged_on,) = real.timed, real.judged
        assert (timed.grid.x, timed.is_judged) == (128, False)
        assert (judged_on.grid.x, judged_on.is_timed) == (1, False)

    def test_a_rewrite_of_a_tiny_kernel_is_timed_at_real_size(self, real: Workbench) -> None:
        small = opened(real.folder / "small", real.executor.cache, "50 40 2")
        first, second = (b.baseline_time(b.timed[0]).median_us for b in (small, real))
        assert second > 20 * first
        fast = real.measure(rewrite("a_warp_a_row.cu"), real.timed[0])
        assert isinstance(fast, Measurement)
        assert second > 1.5 * fast.median_us

    def test_it_is_judged_on_the_small_one(self, real: Workbench) -> None:
        judgement = judged(real, "a_warp_a_row.cu")
        assert judgement.outcome == "provisional"
        gate = judgement.gate("correctness_captured")
        assert gate is not None
        assert gate.passed


def test_what_no_processor_executes_whole(tmp_path: Path, kernels: Path) -> None:
    """1.7 * 10^12 steps a launch. What the program then says of its results, by its exit code too,
    comes of what was left out."""
    bench = opened(
        tmp_path, kernels, "judged: 1000 10", "timed: 16777216 100000",
        program="logistic.cu", timeout_s=8,
    )  # fmt: skip
    captured = bench.captured.timed.captured
    assert captured.cut == ("logistic",)
    assert captured.workloads[0].launches == 3
    assert any("not all of logistic was executed" in line for line in bench.limits)
    (small,), (large,) = bench.judged, bench.timed
    assert bench.baseline_time(large).median_us > 1e4 * bench.baseline_time(small).median_us


INSTANCES = """
#include <cstdio>
#include <cstdlib>
template <int K> __global__ void powers(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int k = 1; k < K; ++k) x[i] *= x[i];
}
int main(int argc, char** argv) {
    int n = 64, k = atoi(argv[1]);
    float* x;
    cudaMallocManaged(&x, n * sizeof(float));
    for (int i = 0; i < n; ++i) x[i] = 1.0f + i / 64.0f;
    if (k == 2) powers<2><<<1, 64>>>(x, n);
    if (k == 3) powers<3><<<1, 64>>>(x, n);
    cudaDeviceSynchronize();
    printf("%f\\n", x[63]);
    return 0;
}
"""


def test_every_instance_of_a_run_has_a_workload(tmp_path: Path, kernels: Path) -> None:
    """However little time it takes there: in another run it may be what matters."""
    program = tmp_path / "powers.cu"
    both = "if (k == 3) { powers<2><<<1, 1>>>(x, 1); powers<3><<<1, 64>>>(x, n); }"
    once = "if (k == 3) powers<3><<<1, 64>>>(x, n);"
    assert once in INSTANCES
    program.write_text(
        INSTANCES.replace(once, both).replace("x[i] *= x[i]", "x[i] = sinf(x[i] + K * n)")
    )
    bench = opened(tmp_path, kernels, "judged: 3", "timed: 2", program=str(program))
    assert {w.callee for w in bench.captured.workloads} == {"powers<2>", "powers<3>"}
    assert [w.callee for w in bench.judged] == ["powers<2>"]


def test_what_is_timed_is_judged_in_the_same_instance(tmp_path: Path, kernels: Path) -> None:
    program = tmp_path / "powers.cu"
    program.write_text(INSTANCES)
    said = "powers<3>, which no judged run launches .they launch powers<2>.; give one that does"
    with pytest.raises(InputError, match=said):
        opened(tmp_path, kernels, "judged: 2", "timed: 3", program=str(program))


class TestWarmUps:
    def test_launches_outside_of_what_is_timed_do_not_count(
        self, tmp_path: Path, kernels: Path
    ) -> None:
        bench = opened(tmp_path, kernels, "256 64 2")
        (counts,) = (c for c in bench.captured.timed.captured.counts if c.kernel == "row_sums")
        assert (counts.launches, counts.warm_ups) == (5, 3)
        assert [(w.grid.x, w.launches) for w in bench.workloads] == [(2, 2)]

    def test_the_user_may_count_them(self, tmp_path: Path, kernels: Path) -> None:
        bench = opened(tmp_path, kernels, "256 64 2", warm_ups="count")
        (counts,) = (c for c in bench.captured.timed.captured.counts if c.kernel == "row_sums")
        assert (counts.launches, counts.warm_ups) == (5, 0)


NESTED = """
#include <chrono>
#include <cstdio>
__global__ void fill(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 1.0f;
}
__global__ void step(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = x[i];
  for (int k = 0; k < 5000; ++k) s = s * 0.5f + 1.0f;
  x[i] = s;
}
int main() {
  using clock = std::chrono::high_resolution_clock;
  float *x, first;
  cudaMalloc(&x, 4096 * 4);
  auto start = clock::now();
  fill<<<16, 256>>>(x, 4096);
  auto begin = clock::now();
  for (int i = 0; i < STEPS; ++i) step<<<16, 256>>>(x, 4096);
  auto end = clock::now();
  cudaMemcpy(&first, x, 4, cudaMemcpyDeviceToHost);
  auto stop = clock::now();
  printf("%g %d\\n", first, (end - begin) <= (stop - start));
}
"""


@pytest.mark.parametrize(("steps", "kernel"), [("30", "step"), ("3", "fill")])
def test_a_timer_around_another_does_not_hide_what_takes_the_time(
    tmp_path: Path, kernels: Path, steps: str, kernel: str
) -> None:
    """A few launches outside of what is timed are still setup or warm-ups, however long."""
    source = tmp_path / "nested.cu"
    source.write_text(NESTED.replace("STEPS", steps))
    bench = opened(tmp_path / "run", kernels, program=str(source))
    assert bench.kernel.name == kernel


def test_a_kernel_that_no_launch_names_is_passed_over(tmp_path: Path, kernels: Path) -> None:
    bench = opened(tmp_path, kernels, "", program="by_pointer.cu")
    assert bench.kernel.name == "light"
    (notice,) = bench.captured.notices
    assert notice.startswith("heavy takes more time, and no launch names it")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("<cusparse.h>", "the `cpu` executor is without cusparse.h, nvcc has it"),
        ("<thrust/shuffle.h>", "the `cpu` executor is without thrust/shuffle.h"),
        ('"mine.h"', ""),
        ("<boost/any.hpp>", ""),
    ],
)
def test_where_a_header_is_that_is_not_there(
    tmp_path: Path, kernels: Path, header: str, said: str
) -> None:
    source = tmp_path / "k.cu"
    kernel = "__global__ void k(int* p) { *p = 1; }"
    source.write_text(f"#include {header}\n{kernel}\nint main() {{ k<<<1, 1>>>(nullptr); }}\n")
    executor = CpuExecutor("H200", kernels)
    with pytest.raises(InputError) as refused:
        open_workbench(
            load_program(source), None, (), executor, BAR, tmp_path / "run",
            sm_arch="sm_90", timeout_s=60.0,
        )  # fmt: skip
    assert "No such file" in str(refused.value)
    assert said in str(refused.value)
    assert ("cpu" in str(refused.value)) == bool(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvrtcVersion", "the `cpu` executor is without nvrtcVersion, nvcc has it"),
        ("GOMP_parallel", 'link it, --nvcc "-Xcompiler -fopenmp"'),
        ("mine", 'is built with --build "nvcc FILE.cu OTHER.cpp -o app" --run ./app'),
    ],
)
def test_where_a_function_is_that_is_not_linked(
    tmp_path: Path, kernels: Path, name: str, said: str
) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        f'extern "C" int {name}(int*, int*);\n__global__ void k(int* p) {{ *p = 1; }}\n'
        f"int main() {{ k<<<1, 1>>>(nullptr); return {name}(0, 0); }}\n"
    )
    with pytest.raises(InputError) as refused:
        open_workbench(
            load_program(source), None, (), CpuExecutor("H200", kernels), BAR, tmp_path / "run",
            sm_arch="sm_90", timeout_s=60.0,
        )  # fmt: skip
    assert f"undefined reference to `{name}'" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cub::BlockLoad<int, 32, 1>", "the `cpu` executor is without cub::BlockLoad, nvcc has it"),
        ("cub::BlockLode<int, 32, 1>", "nvcc: k.cu:3"),
    ],
)
def test_which_executor_knows_a_name_of_a_library(
    tmp_path: Path, kernels: Path, name: str, said: str
) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        "#include <cub/cub.cuh>\n__global__ void k(int* p) {\n"
        f"  typedef {name} Load;\n  int x[1];\n  Load().Load(p, x);\n  *p = x[0];\n}}\n"
        "int main() { k<<<1, 32>>>(nullptr); }\n"
    )
    with pytest.raises(InputError) as refused:
        open_workbench(
            load_program(source), None, (), CpuExecutor("H200", kernels), BAR, tmp_path / "run",
            sm_arch="sm_90", timeout_s=60.0,
        )  # fmt: skip
    assert said in str(refused.value)
    assert "bug of cudaops" not in str(refused.value)
