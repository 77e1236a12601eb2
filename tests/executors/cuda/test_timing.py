"""How the runner takes times, on a driver whose clock is scripted."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.executors.cuda.protocol import (
    FaultReply,
    MeasureReply,
    MeasureTask,
    RefusedReply,
    Task,
    TimingPolicy,
)
from cudaops.executors.cuda.runner.driver import DriverError
from cudaops.executors.cuda.runner.server import perform
from cudaops.executors.cuda.runner.timing import calm, measure, noise_pct
from cudaops.executors.cuda.runner.tracing import KernelTime
from tests.executors.cuda.gpu_tasks import (
    INPUT,
    QUICK,
    buffers,
    measure_task,
    planned,
    run_task,
    side,
)
from tests.executors.cuda.scripted_gpu import L2_BYTES, ScriptedGpu, kernel


@pytest.fixture
def gpu() -> ScriptedGpu:
    return ScriptedGpu()


def timed(gpu: ScriptedGpu, task: MeasureTask, **more: Any) -> MeasureReply:
    return measure(gpu, task, clock=gpu.clock, **more)


def fault(gpu: ScriptedGpu, task: Task) -> FaultReply:
    reply = perform(gpu, task)
    assert isinstance(reply, FaultReply), reply
    return reply


def refused(gpu: ScriptedGpu, task: Task) -> RefusedReply:
    reply = perform(gpu, task)
    assert isinstance(reply, RefusedReply), reply
    return reply


def inside(gpu: ScriptedGpu) -> list[list[tuple[Any, ...]]]:
    """What stands between the two events of each pair in the driver's log."""
    spans: list[list[tuple[Any, ...]]] = []
    current: list[tuple[Any, ...]] | None = None
    for entry in gpu.log:
        if entry == ("event",):
            if current is None:
                current = []
            else:
                spans.append(current)
                current = None
        elif current is not None:
            current.append(entry)
    return spans


def before_timed(gpu: ScriptedGpu) -> list[list[tuple[Any, ...]]]:
    """What was done since the pair before, for each pair that encloses a launch."""
    spans: list[list[tuple[Any, ...]]] = []
    since: list[tuple[Any, ...]] = []
    current: list[tuple[Any, ...]] | None = None
    for entry in gpu.log:
        if entry != ("event",):
            (since if current is None else current).append(entry)
        elif current is None:
            current = []
        else:
            if any(e[0] == "launch" for e in current):
                spans.append(since)
            since, current = [], None
    return spans


class Tracer:
    """Sees every launch of the scripted GPU with its duration."""

    def __init__(self, gpu: ScriptedGpu) -> None:
        self.gpu = gpu

    def record(self, work: Any) -> tuple[KernelTime, ...]:
        start = len(self.gpu.log)
        work()
        seen = [e[1] for e in self.gpu.log[start:] if e[0] == "launch"]
        took = {name: us(0) for name, us in self.gpu.durations.items()}
        return tuple(KernelTime(name, took.get(name, 10.0)) for name in seen)


class TestMeasure:
    def test_sides_alternate_in_blocks_and_pair_by_position(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.durations = {"scale": lambda n: 20.0 + 0.01 * n, "other": lambda n: 10.0 + 0.01 * n}
        reply = timed(gpu, measure_task(tmp_path, "scale", "other", regimes=("cold",)))
        order = [s[0][1] for s in inside(gpu) if s and s[0][0] == "launch"][-16:]
        a, b = "scale", "other"
        assert order == [a, b, b, a, a, b, b, a, b, a, a, b, b, a, a, b]
        times = reply.regimes[0]
        for one in times.sides:
            assert list(one.samples_us) == sorted(one.samples_us)
            assert len(one.samples_us) == 8
        slow, quick = (np.array(s.samples_us) for s in times.sides)
        np.testing.assert_allclose(slow - quick, 10.0)
        assert [s.redone for s in times.blocks] == [False, False]
        assert times.blocks[0].sm_clock_mhz == 1500.0
        assert times.event_overhead_us == pytest.approx(1.5)

    def test_before_a_cold_sample_all_is_restored_and_twice_the_l2_is_written(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        timed(gpu, measure_task(tmp_path, "scale", "other", regimes=("cold",)))
        for done in before_timed(gpu)[-16:]:
            kinds = [entry[0] for entry in done]
            assert kinds[0] == "reset"
            assert kinds.count("copy") == 1  # a, from its copy
            assert [e[2] for e in done if e[0] == "fill"] == [400, 64, 2 * L2_BYTES]
            assert done[-1][0] == "fill"

    def test_before_a_warm_sample_the_same_launch_runs_and_its_traces_go(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        timed(gpu, measure_task(tmp_path, "scale", "other", regimes=("warm",)))
        spans = inside(gpu)
        timed_spans = [s for s in spans if any(e[0] == "launch" for e in s)][-16:]
        for done, enclosed in zip(before_timed(gpu)[-16:], timed_spans, strict=True):
            launch = next(i for i, e in enumerate(done) if e[0] == "launch")
            assert done[launch] == enclosed[0]
            assert [e[2] for e in done[:launch] if e[0] == "fill"] == [2 * L2_BYTES, 400, 64]
            assert [e[0] for e in done[:launch]].count("copy") == 1
            assert [e[2] for e in done[launch + 1 :]] == [400, 64]  # b and the scratch buffer

    def test_a_launch_that_destroys_its_input_or_counts_itself_changes_nothing(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        seen: list[tuple[float, bytes]] = []

        def body(g: ScriptedGpu, given: list[int]) -> None:
            variable = g.memory[g.variables["calls"]]
            seen.append((float(g.floats(given[0], 100).sum()), bytes(variable)))
            g.floats(given[0], 100)[:] = 0
            variable[0] += 1

        gpu.kernels["sly"] = kernel(body)
        sly = side(tmp_path, planned("sly"), module="variable calls 05000000", variables=("calls",))
        task = measure_task(tmp_path, "scale", regimes=("cold",))
        timed(gpu, task.model_copy(update={"sides": (task.sides[0], sly)}))
        # To warm up, to see how long it takes, samples, and one to find the host's time.
        assert len(seen) == 1 + 1 + 8 + 1
        assert set(seen) == {(float(INPUT.sum()), b"\x05\0\0\0")}

    def test_noisy_blocks_are_taken_again_and_shown(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        def duration(number: int) -> float:
            return 10.0 + (30.0 * (number % 2) if number < 8 else 0.0)

        gpu.durations = {"scale": duration}
        reply = timed(gpu, measure_task(tmp_path, "scale", "other", regimes=("cold",)))
        blocks = reply.regimes[0].blocks
        assert [b.redone for b in blocks][-2:] == [False, False]
        assert blocks[0].redone
        assert blocks[0].noise_pct > 5
        assert all(s == pytest.approx(11.5) for s in reply.regimes[0].sides[0].samples_us)

    def test_noise_that_does_not_go_stays_visible(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        gpu.durations = {"scale": lambda n: 10.0 + 30.0 * (n % 2)}
        policy = QUICK.model_copy(update={"redone_blocks": 3})
        reply = timed(gpu, measure_task(tmp_path, "scale", regimes=("cold",), policy=policy))
        blocks = reply.regimes[0].blocks
        assert [b.redone for b in blocks] == [True, True, True, False, False]
        assert all(b.noise_pct > 5 for b in blocks)
        assert len(reply.regimes[0].sides[0].samples_us) == 8

    def test_time_that_runs_out_is_said_and_every_regime_has_a_block(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.durations = {"scale": lambda _: 90_000.0}
        policy = QUICK.model_copy(update={"max_seconds": 0.72})
        reply = timed(gpu, measure_task(tmp_path, "scale", policy=policy))
        assert [len(r.sides[0].samples_us) for r in reply.regimes] == [4, 4]
        assert sum("samples instead of 8" in n for n in reply.notices) == 2

    def test_of_a_slow_launch_few_samples_do_and_the_wanted_regime_has_most(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.durations = {"scale": lambda _: 500_000.0, "other": lambda _: 5.0}
        task = measure_task(
            tmp_path,
            "scale",
            "other",
            regimes=("warm", "cold"),
            policy=TimingPolicy(spin_up_ms=0, cupti_launches=0),
        )
        reply = timed(gpu, task)
        assert [len(r.sides[0].samples_us) for r in reply.regimes] == [12, 4]
        assert [s.samples_us[0] for s in reply.regimes[0].sides] == [500_001.5, 6.5]
        assert all(s.launches_a_sample == 1 for r in reply.regimes for s in r.sides)
        assert not any("samples instead of" in n for n in reply.notices)
        # One to warm up, 16 samples, and three for the host's clock: 20, and what is queued ahead.
        assert reply.seconds < 0.5 * 23

    def test_a_slow_launch_is_ranked_by_one_sample(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        gpu.durations = {"scale": lambda _: 500_000.0}
        policy = QUICK.model_copy(update={"settled_pct": 1.0})
        reply = timed(gpu, measure_task(tmp_path, "scale", regimes=("warm",), policy=policy))
        assert reply.regimes[0].sides[0].samples_us == (500_001.5,)

    def test_short_launches_are_repeated_as_often_on_both_sides(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.durations = {"scale": lambda _: 5.0, "other": lambda _: 2.0}
        policy = QUICK.model_copy(update={"min_sample_us": 20.0})
        reply = timed(gpu, measure_task(tmp_path, "scale", "other", policy=policy))
        cold, warm = reply.regimes
        assert [s.launches_a_sample for s in cold.sides] == [1, 1]
        assert [s.launches_a_sample for s in warm.sides] == [10, 10]
        assert warm.sides[0].samples_us[0] == pytest.approx(5.0 + 1.5 / 10)
        assert warm.sides[1].samples_us[0] == pytest.approx(2.0 + 1.5 / 10)

    def test_a_launch_that_finds_its_work_done_is_not_repeated(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        """It leaves a word in memory and returns at once where it finds it."""

        def memo(g: ScriptedGpu, given: list[int]) -> None:
            word = g.floats(given[1], 1)
            g.durations["memo"] = (lambda _: 1.0) if word[0] == 42 else (lambda _: 12.0)
            word[0] = 42

        gpu.kernels["memo"] = kernel(memo)
        policy = QUICK.model_copy(update={"min_sample_us": 20.0})
        reply = timed(gpu, measure_task(tmp_path, "scale", "memo", policy=policy))
        warm = reply.regimes[1]
        assert [s.launches_a_sample for s in warm.sides] == [1, 1]
        assert warm.sides[1].samples_us[0] == pytest.approx(13.5)
        assert any("memo<1> takes 1.0 us on its own results" in n for n in reply.notices)
        assert warm.sides[1].slope_us == pytest.approx(12.0)

    def test_a_launch_that_is_quicker_on_its_own_results_has_the_slope_of_a_sample(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        """Within what counts as the same work, but not within what the clocks gate allows."""

        def sorting(g: ScriptedGpu, given: list[int]) -> None:
            word = g.floats(given[1], 1)
            g.durations["sorting"] = (lambda _: 35.0) if word[0] == 42 else (lambda _: 50.0)
            word[0] = 42

        gpu.kernels["sorting"] = kernel(sorting)
        reply = timed(gpu, measure_task(tmp_path, "sorting"))
        warm = reply.regimes[1].sides[0]
        assert reply.notices[:-1] == ()
        assert warm.samples_us[0] == pytest.approx(51.5)
        assert warm.slope_us == pytest.approx(50.0)

    @pytest.mark.parametrize(("launch_us", "ahead"), [(0.0, 32), (1.0, 77), (100.0, 256)])
    def test_a_slow_host_gets_more_of_a_start(
        self, launch_us: float, ahead: int, tmp_path: Path
    ) -> None:
        """1.5 times 128 launches, in fills of 2.5 us as the events see them; 32 to 256."""

        class SlowHost(ScriptedGpu):
            queueing_us = 0.0

            def launch(self, function: str, *given: Any) -> None:
                super().launch(function, *given)
                self.queueing_us += launch_us

            def clock(self) -> float:
                return (self.host_at_us + self.queueing_us) * 1e-6

        gpu = SlowHost()
        timed(gpu, measure_task(tmp_path, "scale"))
        longest = run = 0
        for entry in gpu.log:
            run = run + 1 if entry[0] == "fill" and entry[2] == 2 * L2_BYTES else 0
            longest = max(longest, run)
        assert longest == ahead

    def test_what_a_lost_context_cannot_unload_hides_nothing(self, tmp_path: Path) -> None:
        class Lost(ScriptedGpu):
            def synchronize(self) -> None:
                if self.counts.get("scale"):
                    raise DriverError("CUDA_ERROR_UNKNOWN", "synchronize", "the first")
                super().synchronize()

            def unload(self, module: str) -> None:
                raise DriverError("CUDA_ERROR_CONTEXT_IS_DESTROYED", "unload")

        for task in (measure_task(tmp_path, "scale"), run_task(tmp_path, "scale")):
            assert "the first" in refused(Lost(), task).problem

    def test_the_hosts_slope_is_a_launchs_time(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        gpu.durations = {"scale": lambda _: 40.0, "other": lambda _: 25.0}
        reply = timed(gpu, measure_task(tmp_path, "scale", "other"))
        cold, warm = reply.regimes
        assert [s.slope_us for s in warm.sides] == [pytest.approx(40.0), pytest.approx(25.0)]
        assert [s.slope_us for s in cold.sides] == [None, None]

    def test_a_slope_that_events_deny_is_visible(self, tmp_path: Path) -> None:
        """Work that is hidden from the events shows on the host's clock."""

        class Forged(ScriptedGpu):
            def launch(self, function: str, *given: Any) -> None:
                super().launch(function, *given)
                self.hidden_us += 100.0

            hidden_us = 0.0

            def clock(self) -> float:
                return (self.host_at_us + self.hidden_us) * 1e-6

        gpu = Forged()
        warm = timed(gpu, measure_task(tmp_path, "scale")).regimes[1].sides[0]
        assert statistics.median(warm.samples_us) == pytest.approx(11.5)
        assert warm.slope_us == pytest.approx(110.0)

    def test_faults_while_timing_name_the_side(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        found = fault(gpu, measure_task(tmp_path, "scale", "illegal"))
        assert (found.what, found.sticky) == ("out_of_bounds", True)
        assert found.message.startswith("illegal<1>")
        outside = fault(ScriptedGpu(), measure_task(tmp_path, "scale", "after"))
        assert (outside.what, outside.sticky) == ("guard_overwritten", False)
        assert outside.message.startswith("after<1>")

    def test_a_guard_that_falls_late_is_seen(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        def late(g: ScriptedGpu, given: list[int]) -> None:
            if g.counts["late"] > 9:
                g.write(given[1] - 1, b"\0")

        gpu.kernels["late"] = kernel(late)
        assert fault(gpu, measure_task(tmp_path, "late")).what == "guard_overwritten"

    def test_without_room_for_copies_the_host_restores(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        big = 1 << 20
        (tmp_path / "big.bin").write_bytes(bytes(big))
        task = measure_task(tmp_path, "scale", regimes=("cold",))
        wide = task.buffers[0].model_copy(
            update={"size_bytes": big, "file": str(tmp_path / "big.bin")}
        )
        gpu.room = big + 400_000
        reply = timed(gpu, task.model_copy(update={"buffers": (wide, task.buffers[1])}))
        assert any("restored from the host" in n and "allocation a" in n for n in reply.notices)

    def test_tracer_times_stand_beside(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        policy = QUICK.model_copy(update={"cupti_launches": 3})
        task = measure_task(tmp_path, "scale", "other", policy=policy)
        gpu.durations = {"scale": lambda _: 9.0, "other": lambda _: 4.0}
        reply = timed(gpu, task, activity=Tracer(gpu))
        for regime in reply.regimes:
            assert [s.cupti_us for s in regime.sides] == [(9.0,) * 3, (4.0,) * 3]
        assert reply.notices == ()

    def test_short_launches_are_timed_in_a_graph_beside_launches_of_nothing(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        gpu.gap_us, gpu.node_gap_us = 2.5, 1.0
        gpu.durations = {"scale": lambda _: 6.0, "other": lambda _: 4.0}
        policy = QUICK.model_copy(update={"min_sample_us": 20.0, "cupti_launches": 3})
        task = measure_task(tmp_path, "scale", "other", policy=policy)
        reply = timed(gpu, task, activity=Tracer(gpu))
        cold, warm = reply.regimes
        launches = warm.sides[0].launches_a_sample
        assert (cold.in_graph, warm.in_graph, launches > 10) == (False, True, True)
        assert ("graph", launches) in gpu.log
        assert warm.sides[0].samples_us[0] == pytest.approx(6.0 + 1.0 + 1.5 / launches)
        assert warm.gap_us == pytest.approx(1.0 + 1.5 / launches)
        assert cold.gap_us == pytest.approx(2.5 + 1.5)
        assert warm.sides[0].slope_us == pytest.approx(6.0 + 2.5)
        assert reply.host_gap_us == pytest.approx(2.5)
        for regime in reply.regimes:
            pairs = {tuple(s.kernel_us) for s in regime.sides}
            assert pairs == {(6.0,) * policy.samples, (4.0,) * policy.samples}

    def test_long_launches_are_timed_by_events(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        gpu.gap_us = 2.5
        gpu.durations = {"scale": lambda _: 900.0, "other": lambda _: 400.0}
        policy = QUICK.model_copy(update={"cupti_launches": 3})
        task = measure_task(tmp_path, "scale", "other", policy=policy)
        reply = timed(gpu, task, activity=Tracer(gpu))
        assert [s.kernel_us for r in reply.regimes for s in r.sides] == [()] * 4
        assert [len(s.cupti_us) for r in reply.regimes for s in r.sides] == [3] * 4

    def test_a_tracer_that_misses_a_kernel_costs_both_sides_a_pair(
        self, gpu: ScriptedGpu, tmp_path: Path
    ) -> None:
        class Forgetful(Tracer):
            calls = 0

            def record(self, work: Any) -> tuple[KernelTime, ...]:
                self.calls += 1
                seen = super().record(work)
                return seen[:-1] if self.calls == 5 else seen

        gpu.gap_us = 2.5
        task = measure_task(
            tmp_path, "scale", "other", policy=QUICK.model_copy(update={"cupti_launches": 3})
        )
        cold = timed(gpu, task, activity=Forgetful(gpu)).regimes[0]
        assert [len(s.kernel_us) for s in cold.sides] == [QUICK.samples - 1] * 2
        assert cold.sides[0].cupti_problem == ""

    def test_what_is_not_there_is_said(self, tmp_path: Path) -> None:
        class Blind(ScriptedGpu):
            def sm_clock_mhz(self) -> float | None:
                return None

        class Mute:
            def record(self, work: Any) -> tuple[KernelTime, ...]:
                work()
                return ()

        policy = QUICK.model_copy(update={"cupti_launches": 1})
        reply = timed(Blind(), measure_task(tmp_path, "scale", policy=policy), activity=Mute())
        assert any("NVML" in n for n in reply.notices)
        assert any("recorded 0 kernels instead of 1" in n for n in reply.notices)
        assert reply.regimes[0].sides[0].cupti_us == ()
        bare = timed(ScriptedGpu(), measure_task(tmp_path, "scale", policy=policy))
        assert any("CUPTI" in n for n in bare.notices)

    def test_a_task_without_sides_is_refused(self, gpu: ScriptedGpu, tmp_path: Path) -> None:
        assert (
            "nothing to time"
            in refused(gpu, MeasureTask(sides=(), buffers=buffers(tmp_path))).problem
        )


class SharedGpu(ScriptedGpu):
    """Another process has the GPU in turns with this one, whenever both want it."""

    own_us, others_us = 2000.0, 4000.0

    def __init__(self) -> None:
        super().__init__()
        self.gap_us = 1.5
        self.memory_us = 20.0
        self.left_us = 0.0
        self.seen_us = 0.0
        self.random = random.Random(5)

    def synchronize(self) -> None:
        """What this process had to do since it last waited, cut by the others' slices; then the
        host takes its time, and the others go on meanwhile."""
        work = self.now_us - self.seen_us
        if work > self.left_us:
            self.now_us += self.random.random() * self.others_us  # they are in the middle of one
            slices = int((work - self.left_us) // self.own_us)
            self.now_us += slices * self.others_us
            self.left_us = self.own_us - (work - self.left_us) % self.own_us
        else:
            self.left_us -= work
        super().synchronize()
        self.now_us += 20.0 * self.random.random()
        self.seen_us = self.now_us


class TestHostTimeOnASharedGpu:
    """The host's clock where others have the GPU most of the time."""

    def taken(self, folder: Path, gpu: ScriptedGpu, host_seconds: float) -> MeasureReply:
        gpu.durations = {"scale": lambda _: 6.0, "other": lambda _: 2.0}
        policy = QUICK.model_copy(update={"min_sample_us": 20.0, "host_seconds": host_seconds})
        return timed(gpu, measure_task(folder, "scale", "other", policy=policy))

    def test_the_smallest_of_many_samples_is_a_launchs_time(self, tmp_path: Path) -> None:
        reply = self.taken(tmp_path, SharedGpu(), 8.0)
        for found, us in zip(reply.regimes[1].sides, (6.0, 2.0), strict=True):
            assert found.slope_us == pytest.approx(us + 1.5, abs=0.6)
            assert found.slope_error_us is not None
            assert found.slope_error_us < 1.0
        assert reply.host_gap_us == pytest.approx(1.5, abs=0.6)

    def test_no_time_for_many_shows(self, tmp_path: Path) -> None:
        gpu = SharedGpu()
        gpu.memory_us = 40.0  # series as long as a slice
        reply = self.taken(tmp_path, gpu, 0.0)
        errors = [found.slope_error_us for found in reply.regimes[1].sides]
        assert max(error for error in errors if error is not None) > 2.0

    def test_hidden_work_stays_visible(self, tmp_path: Path) -> None:
        class Forged(SharedGpu):
            """`other` leaves 40 us behind that no event sees; a wait waits for it."""

            hidden_us = 0.0

            def launch(self, function: str, *given: Any) -> None:
                super().launch(function, *given)
                self.hidden_us += 40.0 if function == "other" else 0.0

            def elapsed_us(self, start: Any, end: Any) -> float:
                return float(end.at_us - start.at_us)

            def synchronize(self) -> None:
                self.now_us += self.hidden_us
                self.hidden_us = 0.0
                super().synchronize()

        warm = self.taken(tmp_path, Forged(), 8.0).regimes[1].sides
        assert statistics.median(warm[1].samples_us) < 10.0
        assert warm[1].slope_us is not None
        assert warm[1].slope_us > 30.0

    def test_a_quiet_gpu_is_asked_no_longer_than_it_must(self, tmp_path: Path) -> None:
        gpu = ScriptedGpu()
        gpu.gap_us = 1.5
        reply = self.taken(tmp_path, gpu, 8.0)
        errors = [found.slope_error_us for found in reply.regimes[1].sides]
        assert errors == [pytest.approx(0.0, abs=1e-6)] * 2
        assert reply.host_gap_error_us == pytest.approx(0.0, abs=1e-6)
        assert reply.seconds < 0.1


def test_the_default_policy_takes_forty_samples() -> None:
    assert TimingPolicy().samples == 40


@pytest.mark.parametrize(
    ("samples", "noise"),
    [([10.0] * 8, 0.0), ([8.0, 10.0, 10.0, 12.0], 5.0), ([1.0], 0.0), ([0.0, 0.0], 0.0)],
)
def test_noise_is_half_the_interquartile_share(samples: list[float], noise: float) -> None:
    assert noise_pct(samples) == pytest.approx(noise)


def test_a_rank_goes_by_the_blocks_that_nobody_disturbed() -> None:
    quiet, disturbed = [5.0, 5.1, 5.0], [5.1, 9.0, 9.2]
    assert calm([*disturbed, *quiet], 3) == quiet
    assert calm([*quiet, 5.1, 5.0, 5.1], 3) == [*quiet, 5.1, 5.0, 5.1]
    assert calm(disturbed, 3) == disturbed
    assert calm([], 3) == []
