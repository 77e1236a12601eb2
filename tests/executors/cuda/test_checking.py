"""What `check=` means on a GPU: the policy over the `cpu` checker and compute-sanitizer.

No GPU is needed: launches that the checker asks a runner for are done by the `cpu` executor
(`gpu_checks.py`), and compute-sanitizer is a double (`sanitizer_double.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Misbehaved
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.checking import (
    SAMPLE_THREADS,
    CheckedPlan,
    CheckReport,
    CpuCheck,
    GpuChecker,
    Single,
    _blocks,
    filled_shared,
    sampled_blocks,
    single_launches,
)
from cudaops.executors.cuda.runner.server import perform
from cudaops.executors.cuda.sanitizer import Sanitizer
from cudaops.program.clusters import closed
from tests.executors.cuda.gpu_checks import (
    EXPLOITS,
    Product,
    Runner,
    logs,
    make_double,
    no_command,
    product,
    subject,
    under,
)
from tests.executors.cuda.gpu_tasks import run_task
from tests.executors.cuda.scripted_gpu import ScriptedGpu, kernel
from tests.lanes import mostly_deep

HONEST = sorted((EXPLOITS / "honest").glob("*.cu"))
HEAD = """// @launch fast grid=(ceil_div(N, 16), ceil_div(N, 16)) block=(16, 16) args=(A, B, C, N)
__global__ void fast(const float* A, const float* B, float* C, int N) {
  int i = blockIdx.y * gridDim.x + blockIdx.x, t = threadIdx.y * 16 + threadIdx.x;
"""
BODY = {
    "race": "__shared__ float s[256]; s[t] = A[t]; C[i * 256 + t] = s[t ^ 64];",
    "barrier": "if (t < 100) __syncthreads(); C[i * 256 + t] = 1;",
    "unwritten": "__shared__ float s[256]; if (t < 128) s[t] = 1; __syncthreads();"
    " C[i * 256 + t] = s[t];",
    "past the end": "C[i * 256 + t + 1] = 1;",
    "one block races": "__shared__ float s[256]; if (i != {block} || t < 64) s[t] = A[t];"
    " else s[t ^ 64] = A[t]; C[i * 256 + t] = s[t];",
    "one block strays": "C[i == {block} ? N * N + t : i * 256 + t] = 1;",
}


def body(name: str, block: int = 0) -> str:
    return HEAD + "  " + BODY[name].replace("{block}", str(block)) + "\n}\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Product:
    """256 blocks of 256 threads: four times what is looked at."""
    return product(tmp_path_factory.mktemp("small"), 256)


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Sanitizer:
    return make_double(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def checker(cpu_executor: CpuExecutor) -> GpuChecker:
    return GpuChecker(cpu_executor, None, no_command)


def fault_of(checked: CheckReport) -> Misbehaved:
    assert checked.fault is not None, checked
    return checked.fault


class TestSample:
    """Which blocks are looked at."""

    def test_a_small_launch_is_looked_at_whole(self) -> None:
        assert sampled_blocks(Dim3(x=8, y=8), 256, 0) is None
        assert sampled_blocks(Dim3(x=SAMPLE_THREADS), 1, 0) is None

    def test_a_large_one_in_part(self) -> None:
        grid = Dim3(x=64, y=32, z=4)
        chosen = sampled_blocks(grid, 256, 5)
        assert chosen is not None
        assert len(chosen) * 256 == SAMPLE_THREADS
        assert chosen == tuple(sorted(set(chosen))) == sampled_blocks(grid, 256, 5)
        assert chosen != sampled_blocks(grid, 256, 6)
        assert {0, 63, 31 * 64, grid.volume - 1, (2 * 32 + 16) * 64 + 32} <= set(chosen)
        assert max(chosen) < grid.volume

    def test_corners_and_edges_are_in_it_however_large_the_blocks(self) -> None:
        chosen = sampled_blocks(Dim3(x=100, y=100, z=100), 1024, 0)
        assert chosen is not None
        assert len(chosen) == 27
        assert {b % 100 for b in chosen} == {b // 10000 for b in chosen} == {0, 50, 99}

    def test_of_clusters_whole_ones(
        self, cpu_executor: CpuExecutor, small: Product, tmp_path: Path
    ) -> None:
        source = body("race").replace("void fast", "void __cluster_dims__(4, 2) fast")
        one = subject(cpu_executor, small, source, tmp_path)
        (single,) = single_launches(one)
        assert isinstance(single, Single)
        chosen = _blocks(one.unit, single, CpuCheck("full", 1.0, True, 0, (5, 2, 0)))
        assert chosen is not None
        assert sorted(closed(chosen, Dim3(x=16, y=16), Dim3(x=4, y=2))) == list(chosen)
        assert {36, 37, 38, 39, 52, 53, 54, 55} <= set(chosen)
        assert len(chosen) * 256 < 5 * SAMPLE_THREADS


class TestOnTheProcessor:
    """Without a sanitizer."""

    @pytest.mark.parametrize(
        ("name", "what", "line"),
        [
            ("race", "shared_race", 4),
            ("barrier", "divergent_barrier", 4),
            ("unwritten", "uninitialised_read", 4),
        ],
    )
    def test_what_a_sample_finds(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path,
        name: str, what: str, line: int,
    ) -> None:  # fmt: skip
        checked = checker.check(subject(cpu_executor, small, body(name), tmp_path), "full")
        assert checked.fault is None
        assert what in {w.what for w in checked.warnings}
        assert {str(w.location) for w in checked.warnings} == {f"candidate.cu:{line}"}
        assert "64 of 256 blocks of fast" in checked.summary

    def test_memory_is_checked_in_every_block(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        sampled = sampled_blocks(Dim3(x=16, y=16), 256, 0)
        assert sampled is not None
        missed = next(b for b in range(256) if b not in sampled)
        stray = subject(cpu_executor, small, body("one block strays", missed), tmp_path)
        fault = fault_of(checker.check(stray, "memory"))
        assert fault.what == "out_of_bounds"
        assert "write of 4 bytes, 0 bytes past the end of allocation C" in fault.message
        assert str(fault.location) == "candidate.cu:4"

    def test_a_sample_misses_what_only_another_block_does(
        self, cpu_executor: CpuExecutor, small: Product, tmp_path: Path
    ) -> None:
        """The limit of sampling, and why the seed is secret."""
        sampled = sampled_blocks(Dim3(x=16, y=16), 256, 1)
        assert sampled is not None
        missed = next(b for b in range(256) if b not in sampled)
        found = {}
        for block in (missed, sampled[3]):
            one = subject(cpu_executor, small, body("one block races", block), tmp_path)
            found[block] = GpuChecker(cpu_executor, None, no_command, seed=1).check(one, "full")
        assert not found[missed].found
        assert "shared_race" in {w.what for w in found[sampled[3]].warnings}

    def test_launches_are_checked_in_turn_on_what_those_before_wrote(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        source = """// @scratch where bytes=4*N
// @launch fill grid=(1) block=(N) args=(where, N)
// @launch use grid=(N, 4) block=(N) args=(where, C, N)
__global__ void fill(int* where, int N) { where[threadIdx.x] = N - 1 - threadIdx.x; }
__global__ void use(const int* where, float* C, int N) {
  if (threadIdx.x % 64 == 0 && blockIdx.y == 0)
    C[N * N - 4 * (blockIdx.x + 1) + where[threadIdx.x] / 64] = 1.0f;
}
"""
        good = subject(cpu_executor, small, source, tmp_path)
        checked = checker.check(good, "full")
        assert not checked.found
        assert not checked.unchecked
        assert "all 1 blocks of fill, 64 of 1024 blocks of use" in checked.summary
        assert isinstance(good.launch, Runner)
        assert [len(t.side.launches) for t in good.launch.asked] == [1, 1]
        bad = subject(
            cpu_executor, small, source.replace("N - 1 - threadIdx", "N + threadIdx"), tmp_path
        )
        fault = fault_of(checker.check(bad, "full"))
        assert str(fault.location) == "candidate.cu:7"
        assert "past the end of allocation C" in fault.message

    def test_a_race_in_the_second_launch(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        source = """// @scratch half bytes=4*N
// @launch fill grid=(1) block=(N) args=(half, N)
// @launch use grid=(N) block=(N) args=(half, C, N)
__global__ void fill(float* half, int N) { half[threadIdx.x] = threadIdx.x; }
__global__ void use(const float* half, float* C, int N) {
  __shared__ float s[256];
  s[threadIdx.x] = half[threadIdx.x];
  C[blockIdx.x * N + threadIdx.x] = s[threadIdx.x ^ 32];
}
"""
        checked = checker.check(subject(cpu_executor, small, source, tmp_path), "full")
        assert {str(w.location) for w in checked.warnings} == {"candidate.cu:7", "candidate.cu:8"}
        assert all(w.message.startswith("use: ") for w in checked.warnings)

    def test_what_runs_on_no_processor_is_not_called_checked(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        source = HEAD + '  asm volatile("bar.sync 1, 64;");\n  C[i * 256 + t] = 1;\n}\n'
        checked = checker.check(subject(cpu_executor, small, source, tmp_path), "full")
        assert not checked.found
        assert {u.checker for u in checked.unchecked} == {
            "compute-sanitizer memcheck", "compute-sanitizer racecheck",
            "compute-sanitizer synccheck", "compute-sanitizer initcheck",
            "cpu checker (memory)", "cpu checker (full)",
        }  # fmt: skip
        assert all("nvidia-cuda-sanitizer-api" in u.line for u in checked.unchecked[:1])

    def test_too_slow_there_is_not_the_candidates_fault(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        source = HEAD + "  volatile int go = 1;\n  while (go) C[i * 256 + t] = 1;\n}\n"
        slow = subject(cpu_executor, small, source, tmp_path, timeout_s=1.5)
        checked = checker.check(slow, "memory")
        assert not checked.found
        assert any("did not finish within 1.5 s" in u.problem for u in checked.unchecked)

    @pytest.mark.parametrize("what", ["crash", "guard_overwritten"])
    def test_a_fault_of_the_gpu_gets_its_line(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path,
        what: str,
    ) -> None:  # fmt: skip
        last = body("one block strays", 255)
        fault = Misbehaved.model_validate({"what": what, "message": "an illegal address"})
        named = checker.named(subject(cpu_executor, small, last, tmp_path), fault)
        assert (named.what, str(named.location)) == ("out_of_bounds", "candidate.cu:4")

    def test_a_fault_that_nobody_can_explain_stays_as_it_is(
        self, cpu_executor: CpuExecutor, checker: GpuChecker, small: Product, tmp_path: Path
    ) -> None:
        good = subject(cpu_executor, small, HEAD + "C[i * 256 + t] = 1;\n}\n", tmp_path)
        for what in ("crash", "timeout"):
            fault = Misbehaved.model_validate({"what": what, "message": "as it was"})
            assert checker.named(good, fault) is fault


class TestBoth:
    """Who is asked for what."""

    def test_memcheck_looks_at_the_whole_plan_and_the_processor_at_races(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        checker = GpuChecker(cpu_executor, double, under(), cpu_first_s=0)
        race = subject(cpu_executor, small, body("race"), tmp_path)
        assert "memcheck over the whole plan" in checker.check(race, "memory").summary
        checked = checker.check(race, "full")
        assert "shared_race" in {w.what for w in checked.warnings}
        assert not checked.unchecked

    def test_a_small_launch_is_looked_at_whole_on_the_processor(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        checker = GpuChecker(cpu_executor, double, under())
        good = subject(cpu_executor, small, body("race"), tmp_path)
        assert "all 256 blocks" in checker.check(good, "memory").summary

    def test_what_is_too_large_for_the_processor_once_goes_to_memcheck_from_then_on(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        checker = GpuChecker(cpu_executor, double, under(), cpu_first_s=0.001)
        source = HEAD + "  for (int k = 0; k < 1000000; ++k) C[i * 256 + t] = k;\n}\n"
        good = subject(cpu_executor, small, source, tmp_path)
        assert "memcheck over the whole plan" in checker.check(good, "memory").summary
        asked = good.folder / "cpu-memory0"
        assert asked.is_dir()
        other = good._replace(folder=tmp_path / "again")
        assert "memcheck over the whole plan" in checker.check(other, "memory").summary
        assert not (other.folder / "cpu-memory0").exists()

    def test_what_memcheck_cannot_name_the_processor_names(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        log = tmp_path / "found.log"
        log.write_text(
            f"""========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at _Z4fastPKfS0_Pfi+0x130 in candidate.cu:4
=========     by thread (0,0,0) in block (15,15,0)
=========     Address 0x{0x7F0000000000 + 262144:x} is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 262,144 bytes
=========
========= ERROR SUMMARY: 1 error
"""
        )
        checker = GpuChecker(
            cpu_executor, double, under({"DOUBLE_LOG_memcheck": str(log)}), cpu_first_s=0
        )
        stray = subject(cpu_executor, small, body("one block strays", 255), tmp_path)
        fault = fault_of(checker.check(stray, "full"))
        assert "allocation C (size 262144 bytes)" in fault.message
        assert str(fault.location) == "candidate.cu:4"

    def test_inline_ptx_goes_to_the_three_tools(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        source = HEAD + '  asm volatile("bar.sync 1, 64;");\n  C[i * 256 + t] = 1;\n}\n'
        ptx = subject(cpu_executor, small, source, tmp_path)
        clean = GpuChecker(cpu_executor, double, under()).check(ptx, "full")
        assert not clean.found
        assert not clean.unchecked
        assert all(tool in clean.summary for tool in ("racecheck", "synccheck", "initcheck"))
        racing = GpuChecker(cpu_executor, double, under(logs(racecheck="racecheck")))
        assert {w.what for w in racing.check(ptx, "full").warnings} == {"shared_race"}
        stuck = GpuChecker(cpu_executor, double, under(logs(synccheck="no_process")))
        assert [u.checker for u in stuck.check(ptx, "full").unchecked] == [
            "cpu checker (full)", "compute-sanitizer synccheck",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("body", "found", "said"),
        [
            ("scale", [], "the same results"),
            ("reads_shared", ["uninitialised_read"], "in place of initcheck"),
            ("drifts", [], "results differ by themselves from run to run"),
        ],
    )
    def test_an_initcheck_that_sees_no_shared_memory(
        self, cpu_executor: CpuExecutor, small: Product, tmp_path: Path,
        body: str, found: list[str], said: str,
    ) -> None:  # fmt: skip
        gpu = ScriptedGpu(reads_shared=kernel(_reads_shared), drifts=kernel(_drifts))
        checked = filled_shared(on_scripted(gpu, body, cpu_executor, small, tmp_path), "it is old")
        assert [w.what for w in checked.warnings] == found
        assert said in checked.summary
        assert not checked.unchecked
        assert [e[1] for e in gpu.log if e[0] == "fill_shared"] == [0, 0, 0xFF]

    def test_shared_memory_that_cannot_be_filled(
        self, cpu_executor: CpuExecutor, small: Product, tmp_path: Path
    ) -> None:
        gpu = ScriptedGpu()
        gpu.fills_shared = False
        checked = filled_shared(on_scripted(gpu, "scale", cpu_executor, small, tmp_path), "old")
        assert [u.checker for u in checked.unchecked] == ["compute-sanitizer initcheck"]

    def test_a_sanitizer_that_cannot_work_is_stood_in_for(
        self, cpu_executor: CpuExecutor, small: Product, double: Sanitizer, tmp_path: Path,
    ) -> None:  # fmt: skip
        checker = GpuChecker(cpu_executor, double, under(logs(memcheck="never_started")))
        stray = subject(cpu_executor, small, body("past the end"), tmp_path)
        assert str(fault_of(checker.check(stray, "full")).location) == "candidate.cu:4"


def on_scripted(
    gpu: ScriptedGpu, symbol: str, cpu: CpuExecutor, case: Product, folder: Path
) -> CheckedPlan:
    """A subject whose plan runs on the scripted GPU."""
    scripted = folder / "scripted"
    scripted.mkdir()
    plain = subject(cpu, case, HEAD + "  C[i * 256 + t] = 1;\n}\n", folder)
    task = run_task(scripted, symbol)
    return plain._replace(task=task, launch=lambda one, _: perform(gpu, one))


def _reads_shared(gpu: ScriptedGpu, given: list[int]) -> None:
    gpu.floats(given[1], given[2])[:] = float(gpu.shared_byte)


def _drifts(gpu: ScriptedGpu, given: list[int]) -> None:
    gpu.floats(given[1], given[2])[:] = float(len(gpu.log))


@pytest.mark.parametrize("path", mostly_deep(HONEST, 5), ids=lambda p: p.stem)
def test_honest_candidates_are_clean_at_512(
    cpu_executor: CpuExecutor, checker: GpuChecker, tmp_path: Path, path: Path
) -> None:
    """Sixteen times what is looked at, as the exploits' 64; the runner's part is on the processor
    here and takes eight times as long at 1024."""
    case = subject(cpu_executor, product(tmp_path, 512), path.read_text(), tmp_path, 240.0)
    checked = checker.check(case, "full")
    assert not checked.found, checked
    assert not checked.unchecked


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("races_on_shared_memory", "shared_race"),
        ("reads_out_of_bounds", "out_of_bounds"),
        ("writes_out_of_bounds", "out_of_bounds"),
    ],
)
@pytest.mark.deep
def test_exploits_are_found_at_1024(
    cpu_executor: CpuExecutor, checker: GpuChecker, tmp_path: Path, name: str, what: str
) -> None:
    source = (EXPLOITS / f"{name}.cu").read_text()
    case = subject(cpu_executor, product(tmp_path, 1024), source, tmp_path, 240.0)
    checked = checker.check(case, "full")
    found = [checked.fault] if checked.fault else list(checked.warnings)
    assert found
    assert {f.what for f in found} == {what}
    assert all(f.location is not None and f.location.file == "candidate.cu" for f in found)
