"""The stand-in GPU through the runner that a GPU has: tasks, faults, times, judgements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Measurement, Misbehaved, Unit
from cudaops.domain.judge import judge
from cudaops.domain.judgement import Comparison, Gate, GateName, Policy
from cudaops.domain.program import Program
from cudaops.domain.rewrite import BufferValue, NumberValue
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.protocol import (
    Buffer,
    MeasureReply,
    MeasureTask,
    PlannedLaunch,
    RunReply,
    RunTask,
    Side,
    TimingPolicy,
)
from cudaops.executors.cuda.runner.server import perform
from cudaops.executors.cuda.session import RunnerSession
from cudaops.program.plans import make_rewrite
from tests.executors.cases import program
from tests.standin.clock import KernelTimes, Script
from tests.standin.driver import StandInDriver
from tests.standin.platform import DRIVER, StandInPlatform

pytestmark = [pytest.mark.nvcc]

KERNELS = """
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int calls;
__global__ void scale(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = by * a[i];
}
__global__ void weigh(float* b) {
  b[threadIdx.x] *= weights[threadIdx.x & 3];
  atomicAdd(&calls, 1);
}
"""
REWRITE = """
// @launch scaled grid=(ceil_div(n, 128)) block=(128) args=(a, b, n, by)
__device__ int runs;
__global__ void scaled(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  BODY
}
"""
COUNT = 1000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Program:
    main = "scale<<<1, 1>>>(nullptr, nullptr, 0, 0); weigh<<<1, 1>>>(nullptr);"
    return program(tmp_path_factory.mktemp("source"), KERNELS, main)


@pytest.fixture
def built(kernels: Path) -> Iterator[StandInPlatform]:
    """With cubins by nvcc, as they are on a GPU."""
    builder = GpuBuilder(kernels, "sm_86")
    yield StandInPlatform(kernels, builder)
    builder.close()


class Task(NamedTuple):
    """What a runner is asked about `scale`, or a rewrite of it, over 1000 floats."""

    platform: StandInPlatform
    source: Program
    folder: Path

    def side(self, body: str | None = None) -> Side:
        text = None if body is None else REWRITE.replace("BODY", body)
        rewrite = None if text is None else make_rewrite(text, "test", "test", "test")
        unit = Unit(program=self.source, kernel="scale", callee="scale", rewrite=rewrite)
        module = self.platform.unit(unit, draft=False)
        assert isinstance(module, Module), module
        launch = PlannedLaunch(
            kernel=module.launchable(BASELINE_ENTRY if rewrite is None else 0),
            grid=Dim3(x=8),
            block=Dim3(x=128),
            dynamic_smem_bytes=0,
            values=(
                BufferValue(allocation=0),
                BufferValue(allocation=1),
                NumberValue(value=COUNT),
                NumberValue(value=3.0),
            ),
        )
        return Side(module=str(module.image), launches=(launch,))

    def buffers(self) -> tuple[Buffer, ...]:
        np.arange(COUNT, dtype="f4").tofile(self.folder / "a.bin")
        size = 4 * COUNT
        return (
            Buffer(index=0, size_bytes=size, file=str(self.folder / "a.bin"), name="a"),
            Buffer(index=1, size_bytes=size, fill=0xA5, name="b"),
        )

    def run(self, body: str | None = None) -> RunTask:
        dumps = {1: str(self.folder / "b.bin")}
        return RunTask(side=self.side(body), buffers=self.buffers(), dumps=dumps)


@pytest.fixture
def task(built: StandInPlatform, source: Program, tmp_path: Path) -> Task:
    return Task(built, source, tmp_path)


@pytest.fixture(scope="module")
def session() -> Iterator[RunnerSession]:
    with RunnerSession(DRIVER) as made:
        yield made


class TestThroughARunner:
    """The runner's process, its protocol and nvcc's cubins are those of a GPU."""

    def test_a_module_is_the_cubins_but_for_its_image(self, task: Task) -> None:
        unit = Unit(program=task.source, kernel="weigh", callee="weigh")
        module = task.platform.unit(unit, draft=False)
        assert isinstance(module, Module), module
        (kernel,) = module.launchables
        assert (kernel.symbol, kernel.parameter_types) == ("_Z5weighPf", ("float*",))
        assert module.resources[0].registers > 0
        assert module.compiler.startswith("nvcc ")
        assert module.variables.keys() == {"weights", "calls"}

    def test_nvcc_has_the_say_on_what_compiles(self, task: Task) -> None:
        text = REWRITE.replace("BODY", "b[i] = undeclared_name;")
        rewrite = make_rewrite(text, "test", "test", "test")
        unit = Unit(program=task.source, kernel="scale", callee="scale", rewrite=rewrite)
        outcome = task.platform.unit(unit, draft=False)
        assert isinstance(outcome, CompileFailed)
        assert "undeclared_name" in outcome.message
        assert "stand-in" not in outcome.message

    def test_a_plan_runs(self, session: RunnerSession, task: Task) -> None:
        assert isinstance(session.request(task.run(), 60.0), RunReply)
        found = np.fromfile(task.folder / "b.bin", "f4")
        np.testing.assert_array_equal(found, 3 * np.arange(COUNT))

    @pytest.mark.parametrize(
        ("body", "what", "said"),
        [
            ("b[i] = a[i < n ? i : 0];", "guard_overwritten", "0 bytes past the end of"),
            ("if (i == 0) b[1 << 16] = 1;", "out_of_bounds", "CUDA_ERROR_ILLEGAL_ADDRESS"),
            ("if (i == 3) __trap();", "crash", "CUDA_ERROR_LAUNCH_FAILED"),
        ],
    )
    def test_misbehaviour_costs_one_runner_at_most(
        self, session: RunnerSession, task: Task, body: str, what: str, said: str
    ) -> None:
        outcome = session.request(task.run(body), 60.0)
        assert isinstance(outcome, Misbehaved), outcome
        assert outcome.what == what
        assert said in outcome.message
        assert isinstance(session.request(task.run(), 60.0), RunReply)

    def test_a_kernel_that_never_ends_is_stopped(self, session: RunnerSession, task: Task) -> None:
        endless = task.run("volatile int go = 1; while (go) b[0] = i;")
        outcome = session.request(endless, 1.0)
        assert isinstance(outcome, Misbehaved), outcome
        assert outcome.what == "timeout"
        assert isinstance(session.request(task.run(), 60.0), RunReply)

    def measured(self, task: Task, script: dict[str, object], *bodies: str | None) -> MeasureReply:
        (task.folder / "times.json").write_text(json.dumps(script))
        environment = {"CUDAOPS_STANDIN_TIMES": str(task.folder / "times.json")}
        sides = tuple(task.side(body) for body in bodies)
        # Spinning up takes as many launches as the machine's speed allows.
        policy = TimingPolicy(spin_up_ms=0.0, slope_ms=40.0)
        asked = MeasureTask(sides=sides, buffers=task.buffers(), policy=policy)
        with RunnerSession(DRIVER, environment=environment) as session:
            reply = session.request(asked, 60.0)
        assert isinstance(reply, MeasureReply), reply
        return reply

    def test_scripted_times_come_through(self, task: Task) -> None:
        kernels = {"scale": {"us": 800.0, "cold_us": 900.0}, "scaled": 400.0}
        script: dict[str, object] = {"kernels": kernels, "execute": False, "sm_clock_mhz": [1200]}
        reply = self.measured(task, script, None, "b[i] = a[i];")
        for times, expected in zip(reply.regimes, ((900.0, 400.0), (800.0, 400.0)), strict=True):
            for side, us in zip(times.sides, expected, strict=True):
                assert side.samples_us == pytest.approx([us] * len(side.samples_us))
            assert times.event_overhead_us == 0.0
            assert {block.sm_clock_mhz for block in times.blocks} == {1200.0}
        for side, us in zip(reply.regimes[1].sides, (800.0, 400.0), strict=True):
            assert side.slope_us == pytest.approx(us, rel=0.3)

    def test_drift_falls_on_both_sides_alike(self, task: Task) -> None:
        script: dict[str, object] = {
            "kernels": {"*": {"us": 50.0, "noise_pct": 0.5}},
            "execute": False,
            "drift_pct": 20.0,
            "drift_launches": 200,
        }
        times = self.measured(task, script, None, None).regimes[0]
        first, second = (np.array(side.samples_us) for side in times.sides)
        assert np.median(first[-8:]) > 1.04 * np.median(first[:8])
        assert abs(np.median(np.log(first / second))) < 0.003

    def test_noisy_blocks_are_taken_again(self, task: Task) -> None:
        script: dict[str, object] = {
            "kernels": {"*": 50.0},
            "execute": False,
            "noisy": [{"first": 0, "last": 10_000, "noise_pct": 30.0}],
        }
        times = self.measured(task, script, None, None).regimes[0]
        assert any(block.redone for block in times.blocks)


NOISY = [{"first": 40, "last": 90, "noise_pct": 15.0}]


@pytest.mark.parametrize(
    "disturbance",
    [
        {},
        pytest.param({"drift_pct": 5.0, "drift_launches": 100}, marks=pytest.mark.deep),
        {"drift_pct": 5.0, "drift_launches": 100, "noisy": NOISY},
    ],
    ids=["quiet", "drift", "drift and a burst of noise"],
)
def test_a_kernel_is_not_faster_than_itself(task: Task, disturbance: dict[str, object]) -> None:
    """200 judgements of a kernel against its copy at the lowest bar: at most 1 % accepted."""
    side, buffers = task.side(), task.buffers()
    policy = TimingPolicy(spin_up_ms=0.0, slope_ms=0.1, warmups=1)
    asked = MeasureTask(sides=(side, side), buffers=buffers, regimes=("cold",), policy=policy)
    gates = [Gate(name=name, passed=True, summary="") for name in get_args(GateName)]
    gates = [gate for gate in gates if gate.name != "speedup"]
    accepted = 0
    for seed in range(200):
        kernels = {"*": KernelTimes(us=100.0, noise_pct=1.0)}
        script = Script.model_validate({"kernels": kernels, "execute": False, **disturbance})
        (task.folder / "times.json").write_text(
            script.model_copy(update={"seed": seed}).model_dump_json()
        )
        environment = {"CUDAOPS_STANDIN_TIMES": str(task.folder / "times.json")}
        reply = perform(StandInDriver(environment=environment), asked)
        assert isinstance(reply, MeasureReply), reply
        baseline, candidate = (
            Measurement(source="cuda_event", device="A10", samples_us=s.samples_us, workload="w0")
            for s in reply.regimes[0].sides
        )
        comparison = Comparison(workload="w0", weight=1.0, baseline=baseline, candidate=candidate)
        outcome = judge(gates, [comparison], Policy(min_speedup=1.0)).outcome
        accepted += outcome == "accepted"
    assert accepted <= 2
