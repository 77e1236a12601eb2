"""ncu around a runner, from the command line to a profile or to why there is none.

ncu is ncu_double.py beside this file, which runs the command it is given and has the words and the
recorded report of the real one; the runner is a program that answers as a runner does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import DERIVED, SPECIAL
from cudaops.cuda.ncu_problem import NcuProblem
from cudaops.cuda.rule import Rule
from cudaops.cuda.rules import RULES
from cudaops.domain.base import Dim3
from cudaops.domain.profile import Profile
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.cuda.ncu import (
    NcuOutcome,
    NcuProfiler,
    Profiled,
    TargetCommand,
    find_ncu,
    find_nvdisasm,
    find_reader,
    ncu_version,
)
from cudaops.executors.cuda.ncu_sets import COUNTERS, DECIDING, LEFT_OUT
from cudaops.executors.cuda.protocol import (
    REPLY,
    FaultReply,
    Launchable,
    PlannedLaunch,
    ProfileReply,
    ProfileTask,
    RefusedReply,
    Reply,
    Side,
)
from cudaops.program.plans import baseline_plan
from tests.executors.cases import compiled, vector_case
from tests.executors.cuda import ncu_double
from tests.standin.platform import STANDIN

NAIVE = Path(__file__).parents[2] / "data" / "calibration" / "naive_matmul.cu"
SYMBOL = "_Z12naive_matmulPKfS0_Pfi"
TWICE = """
    __global__ void twice(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) b[i] = 2.0f * a[i];
    }
"""
ANSWERED = ProfileReply(launch_us=(416.0,))


UNDECIDED = ("PM Sampling", "GPU and Memory Workload Distribution", "NUMA")


def read_by(rule: Rule) -> set[str]:
    """Metrics that a rule's conditions read, by themselves or by what is derived from them."""
    facts = [c.fact for c in (*rule.conditions, *rule.unless)] + [fact for fact, _ in rule.also]
    inputs = {name for fact in facts for name in (DERIVED[fact].inputs if fact in DERIVED else [])}
    return (inputs | {f for f in facts if f not in DERIVED}) - set(SPECIAL)


def task(module: str = "none.cubin") -> ProfileTask:
    kernel = Launchable(
        entry=0, symbol=SYMBOL, shown="naive_matmul",
        parameter_types=("float const*", "float const*", "float*", "int"),
    )  # fmt: skip
    launch = PlannedLaunch(
        kernel=kernel, grid=Dim3(x=64, y=64), block=Dim3(x=16, y=16), dynamic_smem_bytes=0,
        values=(),
    )  # fmt: skip
    return ProfileTask(side=Side(module=module, launches=(launch,)), buffers=(), launch=0)


def runner(answer: Reply | None, exit_code: int = 0, path: str | None = None) -> TargetCommand:
    """A runner that answers so, or ends without a word; it needs `path` as its PYTHONPATH."""

    def command(asked: Path, reply: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        text = None if answer is None else REPLY.dump_json(answer).decode()
        program = (
            "import pathlib, sys\n"
            f"assert {path!r} is None or {path!r} in sys.path\n"
            f"assert pathlib.Path({str(asked)!r}).read_text().startswith('{{')\n"
            f"text = {text!r}\n"
            f"if text is not None: pathlib.Path({str(reply)!r}).write_text(text)\n"
            f"sys.exit({exit_code})\n"
        )
        needed = {} if path is None else {"PYTHONPATH": path}
        return [sys.executable, "-c", program], {"SEEN": "1", **needed}

    return command


def profiled(
    tmp_path: Path,
    mode: str = "",
    answer: Reply | None = ANSWERED,
    exit_code: int = 0,
    **options: object,
) -> NcuOutcome:
    ncu = ncu_double.install(tmp_path / "bin", mode)
    chosen: dict[str, object] = {"timeout_s": 30.0, **options}
    return NcuProfiler(ncu).profile_task(
        task(), runner(answer, exit_code), tmp_path / "100% run", device="H200", workload="w0",
        **chosen,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_profile_with_everything_ncu_has(tmp_path: Path) -> None:
    found = profiled(tmp_path)
    assert isinstance(found, Profiled)
    profile = found.profile
    assert (profile.kernel, profile.device, profile.workload) == ("naive_matmul", "H200", "w0")
    assert profile.source == "measured"
    assert profile.get(ncu.L1_THROUGHPUT) == pytest.approx(96.5, abs=0.01)
    assert len(profile.metrics) > 2200
    assert {rule.name for rule in profile.nvidia_rules} >= {"SOLBottleneck", "CPIStall"}
    assert len(profile.hot_lines) == 3
    assert found.report.is_file()
    assert found.seconds > 0


def test_the_command_is_what_ncu_is_asked(tmp_path: Path) -> None:
    assert isinstance(profiled(tmp_path, clock_control="base", cache_control="none"), Profiled)
    assert isinstance(profiled(tmp_path), Profiled)
    full, plain = (tmp_path / "bin" / "calls").read_text("utf-8").splitlines()
    assert full.startswith("--set full --import-source yes --profile-from-start off ")
    assert "--clock-control base --cache-control none --target-processes all -f -o " in full
    assert full.endswith("100%% run/profile")
    assert "--clock-control none --cache-control all" in plain


def test_what_decides_is_collected_without_the_rest(tmp_path: Path) -> None:
    found = profiled(tmp_path, sections="deciding")
    assert isinstance(found, Profiled)
    assert LEFT_OUT["deciding"] in found.profile.notes
    (call,) = (tmp_path / "bin" / "calls").read_text("utf-8").splitlines()
    assert "--set" not in call
    assert "--cache-control all" in call
    assert [s for s in DECIDING if f"--section {s} " not in call] == []
    assert "PmSampling" not in call


def test_an_ncu_that_lacks_a_metric_is_asked_for_everything(tmp_path: Path) -> None:
    found = profiled(tmp_path, "older", sections="deciding")
    assert isinstance(found, Profiled)
    assert LEFT_OUT["deciding"] not in found.profile.notes
    assert "--set full" in (tmp_path / "bin" / "calls").read_text("utf-8").splitlines()[-1]


def test_every_rule_has_what_it_reads_of_what_decides() -> None:
    """Sections and their metrics as the recorded report defines them; tables by their counters."""
    defined = (ncu_double.RECORDED / f"{ncu_double.KERNEL}.ncu-rep").read_bytes()
    asked = set(COUNTERS)
    assert all(section.encode() in defined for section in DECIDING)
    details = {row.name for row in ncu.DETAILS_ROWS if row.section not in UNDECIDED}
    stalls = {row.name for row in ncu.COUNTER_ROWS if row.section == "Warp stalls"}
    compiler = {row.name for row in ncu.COUNTER_ROWS if row.section == "Compiler"}
    assert {n for rule in RULES for n in read_by(rule)} <= asked | details | stalls | compiler


def test_only_the_runner_sees_our_python_path(tmp_path: Path) -> None:
    ncu = ncu_double.install(tmp_path / "bin")
    lines = ncu.read_text("utf-8").splitlines()
    lines.insert(1, "import os\nassert 'PYTHONPATH' not in os.environ")
    ncu.write_text("\n".join(lines), encoding="utf-8")
    found = NcuProfiler(ncu).profile_task(
        task(), runner(ANSWERED, path="/somewhere/else"), tmp_path / "out", device="H200"
    )
    assert isinstance(found, Profiled)


def test_the_reader_beside_ncu_is_found(tmp_path: Path) -> None:
    own = tmp_path / "nsight-compute-2025.3.1" / "extras" / "python"
    own.mkdir(parents=True)
    (own / "ncu_report.py").touch()
    in_toolkit = ncu_double.install(tmp_path / "bin")
    by_itself = ncu_double.install(own.parents[1])
    assert find_reader(in_toolkit) == find_reader(by_itself) == own


@pytest.mark.parametrize("mode", ["permission", "busy", "driver_too_old", "chip_unknown"])
def test_why_ncu_could_not(tmp_path: Path, mode: str) -> None:
    found = profiled(tmp_path, mode)
    assert isinstance(found, NcuProblem)
    assert found.cause == mode
    assert found.remedy


def test_a_lock_of_another_account_is_gone_around(tmp_path: Path) -> None:
    assert isinstance(profiled(tmp_path, "lock"), Profiled)
    assert len((tmp_path / "bin" / "calls").read_text("utf-8").splitlines()) == 2


def test_nothing_launched_in_the_range(tmp_path: Path) -> None:
    found = profiled(tmp_path, "no_kernel")
    assert isinstance(found, NcuProblem)
    assert found.cause == "no_kernel"


def test_ncu_that_does_not_end(tmp_path: Path) -> None:
    found = profiled(tmp_path, "hang", timeout_s=1.0)
    assert isinstance(found, NcuProblem)
    assert found.cause == "timeout"
    assert "1 s" in found.text


def test_a_kernel_that_misbehaves_is_the_kernels_fault(tmp_path: Path) -> None:
    fault = FaultReply(what="out_of_bounds", message="k reads beyond A", sticky=True)
    assert profiled(tmp_path, answer=fault, exit_code=1) == fault


def test_a_runner_that_dies_without_a_word(tmp_path: Path) -> None:
    found = profiled(tmp_path, answer=None, exit_code=11)
    assert isinstance(found, NcuProblem)
    assert (found.cause, found.text) == ("target", "The application returned an error code (11).")


def test_a_runner_that_refuses_is_our_problem(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no such file"):
        profiled(tmp_path, answer=RefusedReply(problem="no such file", remedy="run again"))


def test_a_report_the_wheel_cannot_read_goes_through_ncu(tmp_path: Path) -> None:
    found = profiled(tmp_path, "newer")
    assert isinstance(found, Profiled)
    profile = found.profile
    assert profile.get(ncu.L1_THROUGHPUT) == 96.501384  # the raw page's digits
    assert len(profile.nvidia_rules) == 10  # the details page's rules
    assert profile.hot_lines == ()
    assert any(note.startswith("no hot lines: ") for note in profile.notes)


def test_a_report_nobody_can_read(tmp_path: Path) -> None:
    found = profiled(tmp_path, "broken")
    assert isinstance(found, NcuProblem)
    assert found.cause == "no_values"


def test_no_ncu(tmp_path: Path) -> None:
    found = NcuProfiler(tmp_path / "ncu").profile_task(
        task(), runner(ANSWERED), tmp_path, device="H200"
    )
    assert isinstance(found, NcuProblem)
    assert found.cause == "missing"


def test_the_double_says_its_version_as_ncu_does(tmp_path: Path) -> None:
    ncu = ncu_double.install(tmp_path)
    assert ncu_version(ncu, tmp_path) == "2025.3.1.0"


def test_ncu_is_found_on_path_and_under_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    on_path = ncu_double.install(tmp_path / "bin")
    assert find_ncu() == on_path
    on_path.unlink()
    in_toolkit = ncu_double.install(tmp_path / "cuda" / "bin")
    assert find_ncu() == in_toolkit


@pytest.mark.nvcc
def test_lines_come_from_the_modules_own_table(tmp_path: Path) -> None:
    """The recorded report tells no lines; the same kernel compiled anew with -lineinfo does."""
    if find_nvdisasm() is None:
        pytest.skip("nvdisasm not found")
    cubin = tmp_path / "naive.cubin"
    nvcc = shutil.which("nvcc") or "nvcc"
    built = [nvcc, "-O3", "-arch=sm_90", "-lineinfo", "-cubin", "-o", str(cubin), str(NAIVE)]
    subprocess.run(built, check=True, timeout=60)
    found = NcuProfiler(ncu_double.install(tmp_path / "bin")).profile_task(
        task(str(cubin)), runner(ANSWERED), tmp_path / "out", device="H200",
        sources={"src/naive_matmul.cu": NAIVE.read_text("utf-8")},
    )  # fmt: skip
    assert isinstance(found, Profiled)
    hot = found.profile.hot_lines[0]
    assert str(hot.location) == "src/naive_matmul.cu:11"
    assert "acc +=" in hot.text
    assert hot.share_pct > 95
    assert hot.note == "global load, 2.0 sectors/request, 42 % of its stalls lg throttle"


SLOW = """
    __global__ void twice(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      float x = a[i];
      for (int r = 0; r < ROUNDS; ++r) x = x * 0.999f + 1.0f;
      b[i] = x;
    }
"""
"""About 0.3 us a thread for 100 rounds on the stand-in."""


def profile_of(source: str, tmp_path: Path, kernels: Path) -> Profile:
    """Executor, build, task, runner and range are real; the report is the recorded one."""
    executor = CudaExecutor(None, kernels, driver=STANDIN)
    try:
        case = vector_case(executor, tmp_path / "case", source, "twice<<<8, 128>>>(a, b, n)")
        found = executor.profile(
            compiled(executor, case), case.workload, baseline_plan(case.workload)
        )
    finally:
        executor.close()
    assert isinstance(found, Profile)
    return found


def slow_profile(tmp_path: Path, kernels: Path, rounds: int) -> tuple[Profile, list[str]]:
    """Of so long a launch around the real runner, and what ncu was called with."""
    ncu_double.install(tmp_path / "bin")
    found = profile_of(SLOW.replace("ROUNDS", str(rounds)), tmp_path, kernels)
    calls = tmp_path / "bin" / "calls"
    return found, calls.read_text("utf-8").splitlines() if calls.is_file() else []


@pytest.mark.nvcc
def test_a_long_launch_gets_a_small_set_and_the_models_operations(
    tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found, calls = slow_profile(tmp_path, kernels, 150_000)
    (call,) = calls
    assert "SpeedOfLight" in call
    assert "SourceCounters" not in call
    assert "smsp__sass" not in call
    assert found.source == "mixed"
    assert found.metrics[ncu.FFMA].source == "modelled"
    assert found.metrics[ncu.L1_THROUGHPUT].source == "ncu"
    assert any("would not have ended within" in note for note in found.notes)


@pytest.mark.nvcc
def test_of_a_launch_that_is_too_long_only_the_model_is_asked(
    tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found, calls = slow_profile(tmp_path, kernels, 3_000_000)
    assert calls == []
    assert "not even a few passes over it end within" in found.notes[0]
    assert found.metrics[ncu.FFMA].source == "modelled"


@pytest.mark.nvcc
@pytest.mark.parametrize("mode", ["", "permission"])
def test_around_the_real_runner_on_its_stand_in(
    tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    ncu_double.install(tmp_path / "bin", mode)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = profile_of(TWICE, tmp_path, kernels)
    options = (tmp_path / "bin" / "calls").read_text("utf-8")
    assert "--profile-from-start off" in options
    if mode:
        assert "ERR_NVGPUCTRPERM" in found.notes[0]
        assert found.metrics[ncu.REGISTERS].source == "ptxas"
        assert not any("registers/thread, estimated" in note for note in found.notes)
    else:
        assert (found.source, found.kernel) == ("measured", "naive_matmul")


WAITING = """
import sys, time
from pathlib import Path
from cudaops.executors.cuda.turns import in_turn
task, reply, first = map(Path, (sys.argv[1], sys.argv[2], sys.argv[5]))
with in_turn(first):
    (first / "looked").touch()
while not task.exists():
    time.sleep(0.01)
with in_turn(task.parent):
    reply.write_text(sys.argv[3])
"""


def waiting(asked: Path, reply: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    """A runner that is begun without its task, as `runner --first` is."""
    text = REPLY.dump_json(ANSWERED).decode()
    command = [sys.executable, "-c", WAITING, str(asked), str(reply), text]
    return command, {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def test_an_ncu_that_was_begun_takes_the_next_task(tmp_path: Path) -> None:
    profiler, seen = NcuProfiler(ncu_double.install(tmp_path / "bin")), list[str]()

    def turn(name: str) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def held() -> Iterator[None]:
            seen.append(name)
            yield

        return held

    begun = tmp_path / "begun"
    profiler.begin(waiting, begun, alone=turn("alone"), beside=turn("beside"), at_once=True)
    until = time.monotonic() + 30
    while not (begun / "first" / "looked").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert seen == ["beside"]
    found = profiler.profile_task(
        task(), runner(None, 1), tmp_path / "own", device="H200", sections="deciding"
    )
    assert isinstance(found, Profiled)
    assert found.report == begun / "profile.ncu-rep"
    assert seen == ["beside", "alone"]
    again = profiler.profile_task(
        task(), runner(ANSWERED), tmp_path / "own", device="H200", sections="deciding"
    )
    assert isinstance(again, Profiled)
    assert again.report == tmp_path / "own" / "profile.ncu-rep"


def test_an_ncu_that_was_begun_ends_without_a_task(tmp_path: Path) -> None:
    profiler = NcuProfiler(ncu_double.install(tmp_path / "bin"))
    profiler.begin(waiting, tmp_path / "begun")
    profiler.close()
    assert not (tmp_path / "begun" / "first" / "looked").exists()


def test_one_that_was_begun_and_failed_is_started_again(tmp_path: Path) -> None:
    profiler = NcuProfiler(ncu_double.install(tmp_path / "bin"))
    profiler.begin(runner(None, 1), tmp_path / "begun")
    found = profiler.profile_task(
        task(), runner(ANSWERED), tmp_path / "own", device="H200", sections="deciding"
    )
    assert isinstance(found, Profiled)
    assert found.report == tmp_path / "own" / "profile.ncu-rep"
