"""Launches that fail, lie or cannot be timed; and the same rungs over the stand-in GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.doctor.ladder import Rung
from cudaops.doctor.machine import ProbeRunner, ThisMachine
from cudaops.domain.execution import Misbehaved
from cudaops.errors import PrerequisiteError, SandboxUnavailable
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Platform
from cudaops.executors.cuda.protocol import MeasureTask, ProbeTask, RunTask, Task
from cudaops.executors.cuda.session import RunnerSession
from tests.doctor.machines import OtherMachine, OtherRunner, climbed, ended, settings
from tests.standin.platform import DRIVER, StandInPlatform

NAMES = ("runner", "launch", "program", "events", "cupti")


def rung(machine: OtherMachine, tmp_path: Path, name: str) -> Rung:
    return climbed(machine, settings(tmp_path), name)[name]


def test_all_of_it_works(tmp_path: Path) -> None:
    found = climbed(OtherMachine(), settings(tmp_path), *NAMES)
    assert {found[name].status for name in NAMES} == {"ok"}
    assert "65536 results of a kernel, all right" in found["launch"].detail
    assert "cold 3.20 µs, warm 3.20 µs; by the host's clock 3.20 µs" in found["events"].detail
    assert "8 activity records" in found["cupti"].detail


def test_wall_time_hides_the_kernel(tmp_path: Path) -> None:
    """Trap 9 of the source write-up: both are measured, and shown beside each other."""
    machine = OtherMachine().says(probe=ended("twice\n")._replace(seconds=0.217))
    found = climbed(machine, settings(tmp_path), "program", "events")
    assert "3.20 µs" in found["events"].detail
    assert "the program's 0.22 s on the wall would hide it" in found["events"].detail


def test_wrong_results(tmp_path: Path) -> None:
    found = rung(OtherMachine(replies=OtherRunner(wrong=3)), tmp_path, "launch")
    assert found.status == "failed"
    assert "3 of 65536 results are wrong" in found.detail
    assert "reboot" in (found.remedy or "")


def test_a_context_that_cannot_be_made(tmp_path: Path) -> None:
    def full(task: Task) -> None:
        raise SandboxUnavailable("cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY", "look at `nvidia-smi`")

    found = climbed(OtherMachine(replies=OtherRunner(instead=full)), settings(tmp_path), *NAMES)
    assert "the GPU's memory is full" in found["runner"].detail
    assert "CUDA_VISIBLE_DEVICES" in (found["runner"].remedy or "")
    assert {found[name].blocked_by for name in NAMES[1:]} == {("runner",)}


def test_a_runner_without_its_package(tmp_path: Path) -> None:
    def absent(task: Task) -> None:
        raise PrerequisiteError("cuda-bindings is missing", "pip install 'cudaops[cuda]'")

    found = rung(OtherMachine(replies=OtherRunner(instead=absent)), tmp_path, "runner")
    assert (found.status, found.remedy) == ("missing", "pip install 'cudaops[cuda]'")


@pytest.mark.parametrize("kind", [ProbeTask, RunTask, MeasureTask])
def test_an_answer_that_is_none(kind: type[Task], tmp_path: Path) -> None:
    """A crash or a hang of the runner is a value, whichever task it comes to."""

    def crashed(task: Task) -> Misbehaved | None:
        gone = Misbehaved(what="crash", message="the runner was ended by SIGSEGV")
        return gone if isinstance(task, kind) else None

    machine = OtherMachine(replies=OtherRunner(instead=crashed))
    found = climbed(machine, settings(tmp_path), "runner", "launch", "events")
    (broken,) = (r for r in found.values() if r.status == "failed")
    assert "ended by SIGSEGV" in broken.detail
    assert "dmesg" in (broken.remedy or "")


def test_events_that_stand_still(tmp_path: Path) -> None:
    found = rung(OtherMachine(replies=OtherRunner(us=0.0)), tmp_path, "events")
    assert "no time above zero" in found.detail


def test_cupti_that_is_not_there(tmp_path: Path) -> None:
    note = "no kernel durations by CUPTI: it is not loaded"
    machine = OtherMachine(replies=OtherRunner(cupti_us=(), notices=(note,)))
    found = rung(machine, tmp_path, "cupti")
    assert (found.status, found.needed_by) == ("missing", ())
    assert note in found.detail
    assert "cudaops[cuda]" in (found.remedy or "")


@pytest.mark.parametrize(
    ("said", "cause", "remedy"),
    [
        (
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime",
            "the driver is too old",
            "update the driver",
        ),
        ("element 0 is 0", "element 0 is 0", "dmesg"),
    ],
)
def test_a_program_that_fails(said: str, cause: str, remedy: str, tmp_path: Path) -> None:
    found = rung(OtherMachine().says(probe=ended(stderr=said, code=3)), tmp_path, "program")
    assert found.status == "failed"
    assert cause in found.detail
    assert remedy in (found.remedy or "")


class StandInMachine(OtherMachine):
    """The H200 above, with this machine's compilers and the stand-in GPU behind the runner."""

    def platform(self, cache: Path, sm_arch: str) -> Platform:
        return StandInPlatform(cache, GpuBuilder(cache / "gpu", sm_arch))

    def runner(self) -> ProbeRunner:
        return RunnerSession(DRIVER)


@pytest.mark.nvcc
def test_a_kernel_goes_all_the_way_through_a_real_runner(tmp_path: Path) -> None:
    found = climbed(StandInMachine(), settings(tmp_path), "events")
    assert found["kernel build"].detail.startswith("nvcc ")
    assert found["launch"].detail == "65536 results of a kernel, all right"
    assert found["events"].status == "ok", found["events"]


@pytest.mark.nvcc
def test_the_real_runner_of_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """Where there is a GPU, the same rung is ok."""

    class Unlike(OtherMachine):
        def runner(self) -> ProbeRunner:
            return ThisMachine().runner()

    found = rung(Unlike(), tmp_path, "runner")
    assert found.status in ("ok", "missing")
    assert found.status == "ok" or found.remedy
