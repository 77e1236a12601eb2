"""What a tracer saw of a plan: its kernels in their number, or why they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudaops.executors.cuda.protocol import MeasureReply
from cudaops.executors.cuda.runner.timing import measure
from cudaops.executors.cuda.runner.tracing import KernelTime, seen_kernels
from tests.executors.cuda.gpu_tasks import QUICK, measure_task
from tests.executors.cuda.scripted_gpu import ScriptedGpu


def sample(*symbols: str) -> tuple[KernelTime, ...]:
    return tuple(KernelTime(s, 5.0) for s in symbols)


def test_the_plans_own_kernels() -> None:
    seen = seen_kernels([sample("a", "b", "a", "b")] * 4, ["a", "b"], 2)
    assert (seen.durations_us, seen.foreign, seen.problem()) == ((10.0,) * 4, frozenset(), "")


def test_a_kernel_beside_the_plans() -> None:
    seen = seen_kernels([sample("a"), sample("a", "hidden")], ["a"], 1)
    assert seen.problem() == "it recorded hidden too, which the plan does not launch"
    assert seen.problem({"hidden"}) == ""  # the other side has it too: it is the bench's


def test_names_that_are_all_spelled_otherwise_are_counted() -> None:
    seen = seen_kernels([sample("a(float*)")] * 4, ["_Z1aPf"], 1)
    assert (len(seen.durations_us), seen.problem()) == (4, "")


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([sample()] * 4, "it recorded 0 kernels instead of 2"),
        ([sample("a", "b", "b")] * 4, "it recorded 3 kernels instead of 2"),
        ([sample("a", "a")] * 4, "it recorded other kernels of the plan than were launched"),
        ([sample("a", "b")] * 2 + [sample("a")] * 2, ""),
        ([sample("a", "b")] + [sample("a")] * 3, "it recorded 1 kernels instead of 2"),
    ],
)
def test_another_number_of_kernels(samples: list[tuple[KernelTime, ...]], said: str) -> None:
    """One record that a flush did not give yet is nobody's fault; most of them are."""
    assert seen_kernels(samples, ["a", "b"], 1).problem() == said


class Tracer:
    """Sees what the log of the driver says, and what `more` adds to it."""

    def __init__(self, gpu: ScriptedGpu, more: Callable[[list[str]], list[str]]) -> None:
        self.gpu, self.more = gpu, more

    def record(self, work: Any) -> tuple[KernelTime, ...]:
        start = len(self.gpu.log)
        work()
        seen = [e[1] for e in self.gpu.log[start:] if e[0] == "launch"]
        return sample(*self.more(seen))


def traced(folder: Path, more: Callable[[list[str]], list[str]]) -> MeasureReply:
    gpu = ScriptedGpu()
    policy = QUICK.model_copy(update={"cupti_launches": 4})
    task = measure_task(folder, "scale", "other", policy=policy)
    return measure(gpu, task, clock=gpu.clock, activity=Tracer(gpu, more))


def test_a_side_with_another_kernel_has_no_durations_and_the_reason(tmp_path: Path) -> None:
    reply = traced(tmp_path, lambda seen: [*seen, "hidden"] if "other" in seen else seen)
    for times in reply.regimes:
        baseline, candidate = times.sides
        assert (baseline.cupti_us, baseline.cupti_problem) == ((5.0,) * 4, "")
        assert candidate.cupti_us == ()
        assert candidate.cupti_problem.startswith("it recorded hidden too")
    assert any("no durations by CUPTI of other<1>" in n for n in reply.notices)


def test_what_both_sides_have_is_the_benchs_own(tmp_path: Path) -> None:
    reply = traced(tmp_path, lambda seen: [*seen, "memset"])
    for times in reply.regimes:
        assert all(len(side.cupti_us) == 4 for side in times.sides)
    assert reply.notices == ()
