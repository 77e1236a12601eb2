"""What the runner sees of the results of timed launches, on a driver whose clock is scripted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.executors.cuda.protocol import (
    Buffer,
    MeasureReply,
    MeasureTask,
    OutputWatch,
    RefusedReply,
    SideOutputs,
    TimedResult,
    TimingPolicy,
)
from cudaops.executors.cuda.runner.driver import KernelFault
from cudaops.executors.cuda.runner.memory import Region, TaskMemory
from cudaops.executors.cuda.runner.server import perform
from cudaops.executors.cuda.runner.timing import measure
from cudaops.executors.cuda.runner.watching import LARGE_BYTES, LEAST_APART, Watcher
from tests.executors.cuda.gpu_tasks import COUNT, INPUT, QUICK, measure_task, planned, side
from tests.executors.cuda.scripted_gpu import ScriptedGpu, kernel

OTHER = np.linspace(-1.0, 1.0, COUNT, dtype=np.float32)
MANY = QUICK.model_copy(update={"samples": 40, "samples_a_block": 8})


def watched(folder: Path, *symbols: str, **more: Any) -> MeasureTask:
    """Kernels against each other with a watch that has one other set of inputs."""
    task = measure_task(folder, *symbols, **{"policy": MANY, **more})
    OTHER.tofile(folder / "other.bin")
    other = (
        task.buffers[0].model_copy(update={"file": str(folder / "other.bin")}),
        task.buffers[1].model_copy(update={"fill": 0x5A}),
    )
    watch = OutputWatch(folder=str(folder / "seen"), seed=7, alternatives=(other,))
    return task.model_copy(update={"watch": watch})


def timed(gpu: ScriptedGpu, task: MeasureTask) -> MeasureReply:
    return measure(gpu, task, clock=gpu.clock)


def floats(result: TimedResult) -> Any:
    return np.fromfile(result.files[1], np.float32)


def right(result: TimedResult) -> bool:
    meant = 3 * (OTHER if result.inputs else INPUT)
    return bool(np.array_equal(floats(result), meant.astype(np.float32)))


def on_captured(outputs: SideOutputs) -> list[TimedResult]:
    return [r for r in outputs.results if r.inputs == 0]


@pytest.fixture
def gpu() -> ScriptedGpu:
    return ScriptedGpu()


def test_every_sample_of_an_honest_kernel_is_seen_and_right(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    reply = timed(gpu, watched(tmp_path, "scale", "other"))
    assert len(reply.outputs) == 2
    for number, outputs in enumerate(reply.outputs):
        captured, other = outputs.results  # one distinct result on either inputs
        assert (captured.inputs, other.inputs) == (0, 1)
        assert captured.cold == captured.warm == tuple(range(40))
        assert right(captured)
        assert right(other)
        apart = [len(r.sides[number].apart_us) for r in reply.regimes]
        assert other.apart == sum(apart)
        assert min(apart) >= LEAST_APART
        assert outputs.looked_at == outputs.taken == 80 + sum(apart)
        assert outputs.not_kept == 0


def test_looking_is_no_part_of_a_sample(gpu: ScriptedGpu, tmp_path: Path) -> None:
    with_watch = timed(gpu, watched(tmp_path, "scale", "other"))
    without = timed(ScriptedGpu(), measure_task(tmp_path, "scale", "other", policy=MANY))
    for one, other in zip(with_watch.regimes, without.regimes, strict=True):
        for seen, unseen in zip(one.sides, other.sides, strict=True):
            assert seen.samples_us == pytest.approx(unseen.samples_us)
    assert without.outputs == ()


def test_both_sides_are_launched_on_other_inputs_alike(gpu: ScriptedGpu, tmp_path: Path) -> None:
    gpu.durations = {"scale": lambda _: 20.0, "other": lambda _: 12.0}
    reply = timed(gpu, watched(tmp_path, "scale", "other"))
    for times in reply.regimes:
        slow, quick = times.sides
        assert len(slow.apart_us) == len(quick.apart_us)
        assert set(np.round(slow.apart_us, 3)) == {21.5}
        assert set(np.round(quick.apart_us, 3)) == {13.5}


def test_one_that_goes_wrong_after_some_launches_is_seen_where_it_does(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    """What it counts in is restored by nobody: memory beyond all allocations."""
    calls = 0

    def late(g: ScriptedGpu, given: list[int]) -> None:
        nonlocal calls
        calls += 1
        g.floats(given[1], COUNT)[:] = (3 if calls < 65 else 2) * g.floats(given[0], COUNT)

    gpu.kernels["late"] = kernel(late)
    reply = timed(gpu, watched(tmp_path, "scale", "late"))
    baseline, candidate = reply.outputs
    assert all(map(right, baseline.results))
    early, wrong = on_captured(candidate)
    assert right(early)
    assert not right(wrong)
    assert early.cold[0] == 0
    assert set(wrong.cold) == set(range(40)) - set(early.cold)
    assert wrong.warm == tuple(range(40))


def replays(g: ScriptedGpu, given: list[int]) -> None:
    """Gives its first result again and again, from a variable of its own."""
    state, b = g.memory[g.variables["kept"]], g.floats(given[1], COUNT)
    if not any(state):
        b[:] = 3 * g.floats(given[0], COUNT)
        state[:] = b.tobytes()
    b[:] = np.frombuffer(state, np.float32)


def counts(g: ScriptedGpu, given: list[int]) -> None:
    """Right for two launches."""
    state = g.memory[g.variables["kept"]]
    if state[0] < 2:
        state[0] += 1
        g.floats(given[1], COUNT)[:] = 3 * g.floats(given[0], COUNT)


def finds_it_done(g: ScriptedGpu, given: list[int]) -> None:
    """Leaves what does not look like fresh memory."""
    b = g.floats(given[1], COUNT)
    if bytes(b[-1:].tobytes()) in (b"\xcd" * 4, b"\x5a" * 4):
        b[:] = 3 * g.floats(given[0], COUNT)


@pytest.mark.parametrize("body", [replays, counts, finds_it_done])
def test_what_is_right_on_restored_memory_alone_is_wrong_apart(
    gpu: ScriptedGpu, tmp_path: Path, body: Callable[[ScriptedGpu, list[int]], None]
) -> None:
    gpu.kernels["sly"] = kernel(body)
    module = f"variable kept {'00' * 4 * COUNT}"
    sly = side(tmp_path, planned("sly"), module=module, variables=("kept",))
    task = watched(tmp_path, "scale")
    reply = timed(gpu, task.model_copy(update={"sides": (task.sides[0], sly)}))
    baseline, candidate = reply.outputs
    assert all(map(right, baseline.results))
    assert all(map(right, on_captured(candidate)))
    others = [r for r in candidate.results if r.inputs == 1]
    assert any(map(right, others))  # with everything put back it cannot know
    assert not all(map(right, others))


def test_many_distinct_results_are_kept_by_chance(gpu: ScriptedGpu, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)

    def noisy(g: ScriptedGpu, given: list[int]) -> None:
        noise = 1 + 1e-6 * generator.standard_normal(COUNT)
        g.floats(given[1], COUNT)[:] = 3 * g.floats(given[0], COUNT) * noise

    gpu.kernels["noisy"] = kernel(noisy)
    outputs = timed(gpu, watched(tmp_path, "scale", "noisy")).outputs[1]
    captured = on_captured(outputs)
    assert len(captured) == 8
    kept = [
        (regime, n) for r in captured for regime in ("cold", "warm") for n in getattr(r, regime)
    ]
    assert len(kept) == len(set(kept)) == 8
    assert max(n for _, n in kept) >= 8  # not the first eight
    assert outputs.looked_at == outputs.taken
    assert outputs.not_kept + sum(r.cold + r.warm != () or r.apart for r in outputs.results) == (
        outputs.looked_at
    )
    for result in captured:
        np.testing.assert_allclose(floats(result), 3 * INPUT, rtol=1e-4)


def accumulates(g: ScriptedGpu, given: list[int]) -> None:
    g.floats(given[1], COUNT)[:] += 3 * g.floats(given[0], COUNT)


def chained(folder: Path, gpu: ScriptedGpu, written: Buffer | None = None) -> MeasureReply:
    """A launch of 2 us, repeated ten times a warm sample."""
    gpu.kernels["adds"] = kernel(accumulates)
    gpu.durations = {"adds": lambda _: 2.0, "scale": lambda _: 2.0}
    policy = MANY.model_copy(update={"min_sample_us": 20.0})
    task = watched(folder, "scale" if written is None else "adds", policy=policy)
    if written is not None:
        assert task.watch is not None
        ((read, _),) = task.watch.alternatives
        watch = task.watch.model_copy(update={"alternatives": ((read, written),)})
        buffers = (task.buffers[0], written)
        task = task.model_copy(update={"buffers": buffers, "watch": watch})
    reply = timed(gpu, task)
    assert reply.regimes[1].sides[0].launches_a_sample == 10
    return reply


def test_the_end_of_a_chain_of_launches_is_seen(gpu: ScriptedGpu, tmp_path: Path) -> None:
    (outputs,) = chained(tmp_path, gpu).outputs
    assert on_captured(outputs)[0].warm == tuple(range(40))
    assert all(map(right, outputs.results))


def test_one_that_works_on_its_results_is_seen_in_single_launches(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    """After ten launches nobody can say what would be right: launches apart are of both inputs."""
    np.zeros(COUNT, np.float32).tofile(tmp_path / "b.bin")
    b = Buffer(index=1, size_bytes=4 * COUNT, file=str(tmp_path / "b.bin"), name="b")
    (outputs,) = chained(tmp_path, gpu, b).outputs
    captured, other = outputs.results
    assert captured.cold == tuple(range(40))
    assert captured.warm == ()
    assert captured.apart >= 1
    assert other.apart >= LEAST_APART
    assert right(captured)
    assert right(other)


def test_one_side_that_gains_by_being_repeated_is_not(gpu: ScriptedGpu, tmp_path: Path) -> None:
    """Within half the time of a first launch, which alone would still be taken for a repetition."""

    def quicker(g: ScriptedGpu, given: list[int]) -> None:
        word = g.floats(given[1], 1)
        g.durations["quicker"] = (lambda _: 6.0) if word[0] == 42 else (lambda _: 10.0)
        word[0] = 42

    gpu.kernels["quicker"] = kernel(quicker)
    policy = QUICK.model_copy(update={"min_sample_us": 20.0})
    reply = timed(gpu, measure_task(tmp_path, "scale", "quicker", policy=policy))
    warm = reply.regimes[1]
    assert [s.launches_a_sample for s in warm.sides] == [1, 1]
    assert warm.sides[1].samples_us[0] == pytest.approx(11.5)
    assert any("one side gains more than the other" in n for n in reply.notices)


def test_one_pair_of_a_block_is_looked_at_where_results_are_large(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    def looks(size_bytes: int, seed: int) -> frozenset[int]:
        region = Region(0, size_bytes, "b", 0)
        watch = OutputWatch(folder=str(tmp_path / "large"), seed=seed)
        return Watcher(gpu, TaskMemory(gpu), watch, {1: region}, 2).looks(8)

    assert looks(LARGE_BYTES, 1) == frozenset(range(8))
    drawn = [looks(LARGE_BYTES + 1, seed) for seed in range(100)]
    assert {len(one) for one in drawn} == {1}
    assert frozenset.union(*drawn) == frozenset(range(8))


def test_another_seed_looks_elsewhere(tmp_path: Path) -> None:
    def apart(seed: int) -> list[Any]:
        gpu = ScriptedGpu()
        task = watched(tmp_path, "scale")
        assert task.watch is not None
        watch = task.watch.model_copy(update={"seed": seed})
        timed(gpu, task.model_copy(update={"watch": watch}))
        return [entry for entry in gpu.log if entry[0] != "unload"]

    assert apart(1) == apart(1)
    assert apart(1) != apart(2)


def test_inputs_that_fit_no_buffer_and_folders_that_cannot_be_are_refused(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    task = watched(tmp_path, "scale")
    assert task.watch is not None
    short = task.buffers[0].model_copy(update={"size_bytes": 4})
    wrong = task.watch.model_copy(update={"alternatives": ((short,),)})
    reply = perform(gpu, task.model_copy(update={"watch": wrong}))
    assert isinstance(reply, RefusedReply)
    assert "fits no allocation" in reply.problem
    nowhere = task.watch.model_copy(update={"folder": str(tmp_path / "a.bin" / "seen")})
    reply = perform(ScriptedGpu(), task.model_copy(update={"watch": nowhere}))
    assert isinstance(reply, RefusedReply)
    assert "cannot write the outputs" in reply.problem


def test_a_launch_of_seconds_is_taken_as_seldom_as_an_interval_needs(
    gpu: ScriptedGpu, tmp_path: Path
) -> None:
    gpu.durations = {"scale": lambda _: 8e6, "other": lambda _: 5.0}
    policy = TimingPolicy(spin_up_ms=0, cupti_launches=0, max_seconds=1e3)
    task = watched(tmp_path, "scale", "other", regimes=("warm", "cold"), policy=policy)
    reply = timed(gpu, task)
    assert [len(r.sides[0].samples_us) for r in reply.regimes] == [10, 2]
    apart = [len(r.sides[0].apart_us) for r in reply.regimes]
    assert min(apart) >= 1
    # One to warm up, 12 samples, three for the host's clock; apart two at most, with one before.
    assert reply.seconds < 8 * (16 + 2 * sum(apart) + 1)


def _append(gpu: ScriptedGpu, given: list[int]) -> None:
    """Leaves its buffer where it begins behind what another launch appended."""
    count = gpu.floats(given[1], 1)
    count += 1.0
    if count > 1.0:
        gpu.pending = "CUDA_ERROR_ILLEGAL_ADDRESS"


@pytest.mark.parametrize("repeats", [True, False])
def test_a_launch_runs_on_what_another_left_only_where_it_may(
    repeats: bool, tmp_path: Path
) -> None:
    gpu = ScriptedGpu(appends=kernel(_append))
    counter = tmp_path / "count.bin"
    counter.write_bytes(bytes(4 * COUNT))
    task = watched(tmp_path, "appends", "appends")
    assert task.watch is not None
    given = {"file": str(counter), "fill": None}
    buffers = (task.buffers[0], task.buffers[1].model_copy(update=given))
    others = tuple((a, b.model_copy(update=given)) for a, b in task.watch.alternatives)
    watch = task.watch.model_copy(update={"alternatives": others})
    task = task.model_copy(update={"buffers": buffers, "watch": watch, "repeats": repeats})
    if repeats:
        with pytest.raises(KernelFault):
            timed(gpu, task)
    else:
        assert len(timed(gpu, task).outputs) == 2
