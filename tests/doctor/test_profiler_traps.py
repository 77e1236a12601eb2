"""Profilers that may not, cannot or do not count: the cause, and what to type.

ncu's wordings are those quoted in NVIDIA's documentation, forums and issue trackers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.doctor.ladder import Rung
from cudaops.errors import SandboxUnavailable
from cudaops.executors.process import Finished
from tests.doctor.machines import (
    DOCKER_CAPS,
    H200_ROW,
    NCU_PAGE,
    NCU_VERSION,
    QUERY_PAGE,
    USER_CAPS,
    OtherMachine,
    climbed,
    ended,
    settings,
)

NO_PERMISSION = ended(
    "==PROF== Connected to process 4711 (/tmp/probe)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
    " Performance Counters on the target device 0.\n",
    code=1,
)


def rung(machine: OtherMachine, tmp_path: Path, name: str) -> Rung:
    return climbed(machine, settings(tmp_path), name)[name]


def climb_to_counters(machine: OtherMachine, tmp_path: Path) -> dict[str, Rung]:
    names = ("virtualisation", "profiling permission", "ncu version", "counters")
    return climbed(machine, settings(tmp_path), *names)


def test_a_counter_is_read(tmp_path: Path) -> None:
    machine = OtherMachine()
    found = climb_to_counters(machine, tmp_path)
    assert found["counters"].detail == "sm__cycles_elapsed.max is 3,412 on a real launch"
    assert "CAP_SYS_ADMIN" in found["profiling permission"].detail
    (line,) = (line for line in machine.commands if "--metrics" in line)
    assert "--clock-control none" in line


def test_ncu_is_not_there(tmp_path: Path) -> None:
    """Trap 3 of the source write-up: images with nvcc and without ncu."""
    programs = tuple(p for p in OtherMachine().programs if p != "ncu")
    found = climb_to_counters(OtherMachine(programs=programs), tmp_path)
    assert found["ncu"].status == "missing"
    assert "apt-get install nsight-compute" in (found["ncu"].remedy or "")
    assert found["counters"].detail == "not tried: needs ncu"


def test_a_container_that_may_not_have_the_capability(tmp_path: Path) -> None:
    """Trap 1: no CAP_SYS_ADMIN in the bounding set of a container cloud's pod."""
    machine = OtherMachine().says(ncu=NO_PERMISSION)
    machine.files["/proc/self/status"] = DOCKER_CAPS
    found = climb_to_counters(machine, tmp_path)
    for name in ("profiling permission", "counters"):
        assert found[name].status == "failed"
        assert "--cap-add SYS_ADMIN" in (found[name].remedy or "")
        assert "virtual machine" in (found[name].remedy or "")
    assert "can never be one" in found["profiling permission"].detail
    assert "the run continues with CUPTI times" in found["counters"].detail


class Setcapped(OtherMachine):
    """An ncu with a file capability that the container may not have: it cannot be started."""

    def run(self, command, *, timeout_s, folder=None) -> Finished:  # type: ignore[no-untyped-def]
        if "--version" in command and "ncu" in command[0]:
            problem = f"cannot start {command[0]}: Operation not permitted"
            raise SandboxUnavailable(problem, "free memory or processes")
        return super().run(command, timeout_s=timeout_s, folder=folder)


def test_an_ncu_that_setcap_made_unusable(tmp_path: Path) -> None:
    """Trap 1's other half: started directly, and through NVIDIA's shell script."""
    script = ended(stderr="/usr/bin/ncu: line 12: ncu: Operation not permitted\n", code=126)
    for machine in (Setcapped(), OtherMachine().says(ncu_version=script)):
        found = rung(machine, tmp_path, "ncu")
        assert "may not be started" in found.detail
        assert "setcap -r" in (found.remedy or "")


def test_a_vgpu_hides_its_counters(tmp_path: Path) -> None:
    """Trap 2: whatever ncu says there, the hypervisor is the cause."""
    page = QUERY_PAGE.replace(": None", ": VGPU")
    for said in (NO_PERMISSION, ended(code=0)):
        machine = OtherMachine().says(query=ended(page), ncu=said, ncu_import=ended("nothing"))
        found = climb_to_counters(machine, tmp_path)["counters"]
        assert "this is a vGPU" in found.detail
        assert "whole GPU" in (found.remedy or "")


def test_the_option_is_set_and_not_in_force(tmp_path: Path) -> None:
    """Trap 4: the flag works after a reboot."""
    machine = OtherMachine().says(ncu=NO_PERMISSION)
    machine.files["/proc/self/status"] = USER_CAPS
    machine.files["/etc/modprobe.d/nvidia-profiling.conf"] = (
        "# for ncu\noptions nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    )
    found = climb_to_counters(machine, tmp_path)
    detail = found["profiling permission"].detail
    assert "/etc/modprobe.d/nvidia-profiling.conf frees the counters" in detail
    assert (found["counters"].remedy or "").startswith("reboot: the option is read when")


def test_a_user_who_is_no_administrator(tmp_path: Path) -> None:
    machine = OtherMachine().says(ncu=NO_PERMISSION)
    machine.files["/proc/self/status"] = USER_CAPS
    found = climb_to_counters(machine, tmp_path)["counters"]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (found.remedy or "")
    assert "then reboot" in (found.remedy or "")


def test_who_else_may_read(tmp_path: Path) -> None:
    free = OtherMachine()
    free.files["/proc/driver/nvidia/params"] = "RmProfilingAdminOnly: 0\n"
    free.files["/proc/self/status"] = USER_CAPS
    assert "everybody" in rung(free, tmp_path, "profiling permission").detail
    perfmon = OtherMachine()
    perfmon.files["/proc/self/status"] = "CapEff:\t0000004000000000\nCapBnd:\t0\n"
    assert "CAP_PERFMON" in rung(perfmon, tmp_path, "profiling permission").detail
    perfmon.says(nvidia_smi=ended(H200_ROW.replace("580.159.04", "550.54.15")))
    assert rung(perfmon, tmp_path, "profiling permission").status == "failed"
    silent = OtherMachine(files={})
    assert "ncu tries" in rung(silent, tmp_path, "profiling permission").detail


def test_wsl_frees_its_counters_in_windows(tmp_path: Path) -> None:
    machine = OtherMachine(files={"/proc/version": "Linux 5.15-microsoft-standard-WSL2"})
    found = climb_to_counters(machine.says(ncu=NO_PERMISSION), tmp_path)["counters"]
    assert "this is WSL" in found.detail
    assert "NVIDIA Control Panel" in (found.remedy or "")


@pytest.mark.parametrize("value", ["nan", "n/a", "", "0", "(!) nan", "-1"])
def test_counters_that_are_no_numbers(value: str, tmp_path: Path) -> None:
    page = ended(NCU_PAGE.replace("3,412", value))
    found = climb_to_counters(OtherMachine().says(ncu_import=page), tmp_path)["counters"]
    assert found.status == "failed"
    assert "(no values)" in found.detail
    assert "dcgmi profile --pause" in (found.remedy or "")


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    said = ended(stderr="==ERROR== Could not open file")
    found = climb_to_counters(OtherMachine().says(ncu_import=said), tmp_path)["counters"]
    assert "is not there" in found.detail


@pytest.mark.parametrize(
    ("said", "cause", "remedy"),
    [
        ("Profiling failed because a driver resource was unavailable.", "busy", "dcgmi profile"),
        ("No kernels were profiled.", "no kernel", "without ncu"),
        ("something new", "unknown", "by hand"),
    ],
)
def test_what_else_ncu_fails_with(said: str, cause: str, remedy: str, tmp_path: Path) -> None:
    machine = OtherMachine().says(ncu=ended(f"==ERROR== {said}\n", code=1))
    found = climb_to_counters(machine, tmp_path)["counters"]
    assert f"({cause})" in found.detail
    assert remedy in (found.remedy or "")


def test_an_ncu_older_than_the_driver(tmp_path: Path) -> None:
    said = "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
    old = NCU_VERSION.replace("2025.3.1.0", "2023.1.0.0")
    machine = OtherMachine().says(ncu_version=ended(old), ncu=ended(said, code=1))
    found = climb_to_counters(machine, tmp_path)
    assert "older than the driver's CUDA 13.0" in found["ncu version"].detail
    assert "this ncu is older than the driver" in found["counters"].detail
    assert "as new as the driver" in (found["counters"].remedy or "")
    newer = OtherMachine().says(ncu=ended(said, code=1))
    assert "older" not in climb_to_counters(newer, tmp_path)["counters"].detail


def test_an_ncu_that_hangs(tmp_path: Path) -> None:
    hanging = ended()._replace(timed_out=True, exit_code=-9)
    found = climb_to_counters(OtherMachine().says(ncu=hanging), tmp_path)["counters"]
    assert "no end within" in found.detail


def test_the_planted_access(tmp_path: Path) -> None:
    found = rung(OtherMachine(), tmp_path, "compute-sanitizer")
    assert found.status == "ok"
    assert "Invalid __global__ read of size 4 bytes" in found.detail
    blind = "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n"
    found = rung(OtherMachine().says(sanitizer=ended(blind, code=1)), tmp_path, "compute-sanitizer")
    assert found.status == "failed"
    assert "Device not supported" in found.detail
    programs = tuple(p for p in OtherMachine().programs if p != "compute-sanitizer")
    found = rung(OtherMachine(programs=programs), tmp_path, "compute-sanitizer")
    assert "the cpu executor checks memory instead" in found.detail
    assert "nvidia-cuda-sanitizer-api" in (found.remedy or "")


def test_ncus_package_is_tried(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    assert rung(OtherMachine(), tmp_path, "ncu-report").status == "ok"
    found = rung(OtherMachine(), tmp_path, "ncu report")
    assert found.status == "failed"
    assert "cannot be read" in found.detail
