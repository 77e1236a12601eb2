"""What a search's runner leaves on the device from trial to trial, and when it lets go of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudaops.errors import SandboxUnavailable
from cudaops.executors.cuda.protocol import (
    FaultReply,
    MeasureReply,
    MeasureTask,
    ProbeReply,
    ReleaseTask,
    RunReply,
)
from cudaops.executors.cuda.runner.device_state import KEPT_SHARE, LEFT_SHARE, StateCache
from cudaops.executors.cuda.runner.memory import GUARD_BYTES
from cudaops.executors.cuda.runner.server import perform
from cudaops.executors.cuda.runner.timing import measure
from cudaops.executors.cuda.session import RunnerSession
from cudaops.executors.cuda.tasks import SEARCH
from tests.executors.cuda.gpu_tasks import COUNT, INPUT, measure_task, run_task
from tests.executors.cuda.scripted_gpu import FACTS, ScriptedGpu, kernel

SIZE = 4 * COUNT


class WatchedGpu(ScriptedGpu):
    """Knows what was written from the host, by its size."""

    def __init__(self, **kernels: Any) -> None:
        super().__init__(**kernels)
        self.written: list[int] = []

    def write(self, address: int, data: bytes | memoryview) -> None:
        self.written.append(len(data))
        super().write(address, data)

    def contents(self) -> int:
        """How often a buffer's contents came from the host."""
        return self.written.count(SIZE)


@pytest.fixture
def gpu() -> WatchedGpu:
    return WatchedGpu()


def trial(folder: Path, symbol: str = "scale") -> MeasureTask:
    """A search's task over contents that are written once a folder."""
    contents = folder / "contents"
    if not contents.exists():
        contents.mkdir(parents=True)
        INPUT.tofile(contents / "a.bin")
        np.full(COUNT, 7, dtype=np.float32).tofile(contents / "b.bin")
    task = measure_task(folder, symbol, policy=SEARCH, regimes=("warm",), keep=True)
    update = {"fill": None, "file": str(contents / "b.bin")}
    a, b = task.buffers
    a = a.model_copy(update={"file": str(contents / "a.bin")})
    return task.model_copy(update={"buffers": (a, b.model_copy(update=update))})


def timed(gpu: ScriptedGpu, kept: StateCache, task: MeasureTask) -> MeasureReply:
    reply = measure(gpu, task, clock=gpu.clock, kept=kept)
    assert isinstance(reply, MeasureReply)
    return reply


class TestContents:
    def test_come_from_the_host_once(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        timed(gpu, kept, trial(tmp_path))
        assert (gpu.contents(), kept.size_bytes > 0) == (2, True)
        before = set(gpu.memory)
        timed(gpu, kept, trial(tmp_path))
        assert gpu.contents() == 2
        assert set(gpu.memory) == before, "what was the side's own is gone"
        kept.drop()
        assert not gpu.memory

    def test_are_what_was_captured_before_every_launch(self, tmp_path: Path) -> None:
        seen: list[tuple[bool, bool]] = []

        def spoils(gpu: ScriptedGpu, given: list[int]) -> None:
            a, b = (gpu.floats(x, COUNT) for x in given[:2])
            seen.append((bool(np.array_equal(a, INPUT)), bool(np.all(b == 7))))
            b[:] = 0

        gpu = WatchedGpu(spoils=kernel(spoils))
        gpu.durations = {"spoils": lambda _: 100.0}  # long enough not to be repeated in a sample
        kept = StateCache(gpu)
        for _ in range(3):
            timed(gpu, kept, trial(tmp_path, "spoils"))
        assert len(seen) > 30
        assert set(seen) == {(True, True)}
        assert gpu.contents() == 2

    def test_of_a_file_that_changed_come_anew(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        timed(gpu, kept, trial(tmp_path))
        task = trial(tmp_path)
        (INPUT + 1).tofile(tmp_path / "contents" / "a.bin")
        timed(gpu, kept, task)
        assert gpu.contents() == 4

    def test_are_not_kept_where_nobody_asks(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        timed(gpu, kept, trial(tmp_path).model_copy(update={"keep": False}))
        assert not gpu.memory
        perform(gpu, trial(tmp_path))
        assert not gpu.memory, "a runner that does one task"


class TestRoom:
    def test_a_share_of_the_device_at_most_and_the_oldest_goes(
        self, gpu: WatchedGpu, tmp_path: Path
    ) -> None:
        kept = StateCache(gpu)
        for number in range(60):
            timed(gpu, kept, trial(tmp_path / str(number)))
            assert kept.size_bytes <= KEPT_SHARE * FACTS.memory_bytes
        count = gpu.contents()
        timed(gpu, kept, trial(tmp_path / "59"))
        assert gpu.contents() == count
        timed(gpu, kept, trial(tmp_path / "0"))
        assert gpu.contents() == count + 2

    def test_what_is_larger_than_the_share_does_not_stay(
        self, gpu: WatchedGpu, tmp_path: Path
    ) -> None:
        gpu.facts = FACTS.model_copy(update={"memory_bytes": 1 << 17})
        kept = StateCache(gpu)
        timed(gpu, kept, trial(tmp_path))
        assert (kept.size_bytes, gpu.memory) == (0, {})

    def test_nothing_stays_where_others_left_little(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        gpu.room = int(LEFT_SHARE * FACTS.memory_bytes)
        timed(gpu, kept, trial(tmp_path))
        assert (kept.size_bytes, gpu.memory) == (0, {})

    def test_another_task_that_needs_it_gets_it(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        perform(gpu, trial(tmp_path / "one"), None, kept)
        gpu.room = kept.size_bytes + 4 * GUARD_BYTES
        reply = perform(gpu, run_task(tmp_path, "scale"), None, kept)
        assert isinstance(reply, RunReply), reply
        assert (kept.size_bytes, gpu.memory) == (0, {})

    def test_another_workload_that_needs_it_gets_it(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        perform(gpu, trial(tmp_path / "one"), None, kept)
        gpu.room = int(1.5 * kept.size_bytes)
        reply = perform(gpu, trial(tmp_path / "two"), None, kept)
        assert isinstance(reply, MeasureReply), reply
        assert not reply.notices, "it has copies"

    def test_is_given_back_when_asked_for(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        kept = StateCache(gpu)
        perform(gpu, trial(tmp_path), None, kept)
        assert isinstance(perform(gpu, ReleaseTask(), None, kept), ProbeReply)
        assert not gpu.memory


class TestFaults:
    @pytest.mark.parametrize(
        ("symbol", "what"),
        [("before", "guard_overwritten"), ("after", "guard_overwritten"), ("trap", "crash")],
    )
    def test_nothing_stays(self, gpu: WatchedGpu, tmp_path: Path, symbol: str, what: str) -> None:
        kept = StateCache(gpu)
        perform(gpu, trial(tmp_path / "one"), None, kept)
        perform(gpu, trial(tmp_path / "two"), None, kept)
        reply = perform(gpu, trial(tmp_path / "two", symbol), None, kept)
        assert isinstance(reply, FaultReply)
        assert reply.what == what
        assert kept.size_bytes == 0
        if not reply.sticky:
            assert not gpu.memory
            perform(gpu, trial(tmp_path / "two"), None, kept)
            assert gpu.contents() == 6, "brought anew"

    def test_a_kernel_that_reaches_what_is_kept_is_found(self, tmp_path: Path) -> None:
        copies: list[int] = []

        def reaches(gpu: ScriptedGpu, given: list[int]) -> None:
            if not copies:
                here = bytes(INPUT.tobytes())
                copies.extend(
                    base + GUARD_BYTES
                    for base, place in gpu.memory.items()
                    if place[GUARD_BYTES : GUARD_BYTES + SIZE] == here
                    and base + GUARD_BYTES != given[0]
                )
            gpu.write(copies[0] + 8, b"\xff")

        gpu = WatchedGpu(reaches=kernel(reaches))
        kept = StateCache(gpu)
        reply = perform(gpu, trial(tmp_path, "reaches"), None, kept)
        assert isinstance(reply, FaultReply)
        assert reply.message == (
            "reaches<1>: byte 8 of what allocation a is restored from was overwritten"
        )
        assert (kept.size_bytes, gpu.memory) == (0, {})


class TestRanking:
    def test_samples_end_when_their_median_is_known(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        steady = timed(gpu, StateCache(gpu), trial(tmp_path)).regimes[0].sides[0]
        assert len(steady.samples_us) == SEARCH.samples_a_block
        noisy = WatchedGpu()
        noisy.durations = {"scale": lambda n: 100.0 + 20.0 * (n % 7)}
        task = trial(tmp_path)
        wild = timed(noisy, StateCache(noisy), task).regimes[0]
        assert len(wild.blocks) * SEARCH.samples_a_block == SEARCH.samples
        assert 0 < len(wild.sides[0].samples_us) <= SEARCH.samples  # of calm blocks alone

    def test_of_a_lasting_launch_two_are_taken(self, gpu: WatchedGpu, tmp_path: Path) -> None:
        gpu.durations = {"scale": lambda _: 50_000.0}
        times = timed(gpu, StateCache(gpu), trial(tmp_path)).regimes[0].sides[0]
        assert list(times.samples_us) == pytest.approx([50_001.5] * 2)
        assert gpu.counts["scale"] == 4  # to warm up, to know how long it takes, and these

    def test_nothing_is_taken_that_only_a_judge_looks_at(
        self, gpu: WatchedGpu, tmp_path: Path
    ) -> None:
        gpu.gap_us = 1.0
        times = timed(gpu, StateCache(gpu), trial(tmp_path)).regimes[0]
        assert (times.gap_us, times.sides[0].slope_us) == (None, None)


class TestSession:
    @pytest.fixture
    def session(self) -> Iterator[RunnerSession]:
        root = str(Path(__file__).resolve().parents[3])
        driver = "tests.executors.cuda.scripted_gpu:ScriptedGpu"
        with RunnerSession(driver, environment={"PYTHONPATH": root}) as opened:
            yield opened

    def test_gives_back_once_what_its_runner_keeps(
        self, session: RunnerSession, tmp_path: Path
    ) -> None:
        assert not session.release(), "nothing was started"
        assert isinstance(session.request(trial(tmp_path), 60.0), MeasureReply)
        assert session.release()
        assert not session.release()
        assert isinstance(session.request(trial(tmp_path), 60.0), MeasureReply)
        assert session.release()

    def test_asks_others_for_room_before_it_gives_up(self, tmp_path: Path) -> None:
        asked: list[bool] = []

        def make_room() -> bool:
            asked.append(True)
            return len(asked) == 1

        root = str(Path(__file__).resolve().parents[3])
        driver = "tests.executors.cuda.scripted_gpu:ScriptedGpu"
        task = run_task(tmp_path, "scale")
        large = task.buffers[1].model_copy(update={"size_bytes": 2 * FACTS.memory_bytes})
        task = task.model_copy(update={"buffers": (task.buffers[0], large)})
        with (
            RunnerSession(driver, environment={"PYTHONPATH": root}, make_room=make_room) as session,
            pytest.raises(SandboxUnavailable, match="not enough free memory"),
        ):
            session.request(task, 60.0)
        assert len(asked) == 2
