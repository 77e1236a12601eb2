"""Every way a GPU can be missing, mute or busy: the cause is named, and what to type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.doctor.gpu import STEPS
from cudaops.doctor.ladder import Rung
from tests.doctor.machines import (
    H200_CUDA,
    H200_ROW,
    QUERY_PAGE,
    UUID,
    OtherMachine,
    climbed,
    ended,
    settings,
)

STATE = [step.name for step in STEPS if "gpu" in step.stands_on]


def rung(machine: OtherMachine, tmp_path: Path, name: str) -> Rung:
    return climbed(machine, settings(tmp_path), name)[name]


def test_a_healthy_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    found = climbed(OtherMachine(), settings(tmp_path), "gpu", *STATE)
    assert {r.name: r.status for r in found.values()} == dict.fromkeys(found, "ok")
    assert "580.159.04, speaks CUDA 13.0" in found["driver"].detail
    assert "NVIDIA H200, compute capability 9.0, 132 SMs, 140 GiB" in found["gpu"].detail
    assert "SM clock 345 of 1980 MHz; 29 °C; throttle reasons: idle" in found["clocks"].detail


# What nvidia-smi prints in these states, as quoted in NVIDIA's forums and the Container Toolkit's
# and GPU Operator's troubleshooting pages; exit codes of nvmlReturn_t.
FAILURES = [
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        9,
        "kernel driver is not loaded",
        "sudo modprobe nvidia",
    ),
    (
        "Failed to initialize NVML: Driver/library version mismatch: NVML library version: 570.133",
        18,
        "(libraries: 570.133)",
        "reboot",
    ),
    ("No devices were found\n", 6, "has taken no GPU", "lspci | grep -i nvidia"),
    (
        "Unable to determine the device handle for GPU0000:25:00.0: GPU is lost.\n",
        15,
        "does not answer any more (GPU0000:25:00.0)",
        "reboot",
    ),
    ("Failed to initialize NVML: Unknown Error\n", 255, "lost its access", "restart the container"),
    (
        "Failed to initialize NVML: GPU access blocked by the operating system\n",
        17,
        "keeps this process from the GPU",
        "wsl --shutdown",
    ),
    (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n",
        12,
        "finds no libnvidia-ml.so",
        "/usr/lib64-nvidia",
    ),
    ("Failed to initialize NVML: Insufficient Permissions\n", 4, "may not open", "usermod -aG"),
    ("", 8, "power cables are not attached", "switch the machine off"),
    ("!%$\n", 3, "cannot be read: !%$", "report this text"),
]


@pytest.mark.parametrize(("text", "code", "cause", "remedy"), FAILURES)
def test_what_nvidia_smi_fails_with(
    text: str, code: int, cause: str, remedy: str, tmp_path: Path
) -> None:
    broken = ended(json.dumps({"error": "CUDA_ERROR_UNKNOWN", "version": 0, "devices": []}))
    machine = OtherMachine().says(nvidia_smi=ended(text, code=code), libcuda=broken)
    found = climbed(machine, settings(tmp_path), "gpu", *STATE)
    assert found["driver"].status == "failed"
    assert cause in found["driver"].detail
    assert remedy in (found["driver"].remedy or "")
    assert {found[name].status for name in STATE} == {"skipped"}
    assert {found[name].detail for name in STATE} == {"not tried: needs driver"}


def test_one_gpu_of_several_that_is_lost(tmp_path: Path) -> None:
    """nvidia-smi ends with 0 then, and says so on either stream."""
    said = "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error\n"
    machine = OtherMachine().says(nvidia_smi=ended(said + H200_ROW))
    found = climbed(machine, settings(tmp_path), "gpu health")
    assert found["driver"].status == "ok"
    assert found["gpu health"].status == "failed"
    assert "(GPU3: 0000:04:00.0)" in found["gpu health"].detail
    assert "grep -i xid" in (found["gpu health"].remedy or "")


def test_a_gpu_that_asks_for_a_reset(tmp_path: Path) -> None:
    asks = H200_ROW.replace(" 29, 0,", " [GPU requires reset], [GPU requires reset],")
    found = rung(OtherMachine().says(nvidia_smi=ended(asks)), tmp_path, "gpu health")
    assert "must be reset" in found.detail
    assert "nvidia-smi -r" in (found.remedy or "")


def test_cuda_works_and_nvidia_smi_does_not(tmp_path: Path) -> None:
    """A container without the `utility` capability: nothing but the state of the GPU is lost."""
    said = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n"
    machine = OtherMachine().says(nvidia_smi=ended(said, code=12))
    found = climbed(machine, settings(tmp_path), "launch", "clocks")
    assert found["launch"].status == "ok"
    assert "finds no libnvidia-ml.so" in found["driver"].detail
    assert found["clocks"].status == "failed"
    assert "--gpus all" in (found["clocks"].remedy or "")


def test_nvidia_smi_that_hangs(tmp_path: Path) -> None:
    hanging = ended()._replace(timed_out=True, exit_code=-9)
    machine = OtherMachine().says(nvidia_smi=hanging, libcuda=hanging)
    found = rung(machine, tmp_path, "driver")
    assert "cuInit hangs: nvidia-smi gave no answer" in found.detail
    assert "a GPU or its driver hangs" in found.detail
    assert "reboot" in (found.remedy or "")


def test_no_gpu_at_all(tmp_path: Path) -> None:
    gone = json.dumps({"missing": "libcuda.so.1: cannot open shared object file"})
    machine = OtherMachine(programs=()).says(libcuda=ended(gone))
    found = rung(machine, tmp_path, "driver")
    assert (found.status, found.needed, found.needed_by) == ("missing", False, ("cuda",))
    assert "no NVIDIA GPU and no driver here" in found.detail
    machine.files["/sys/bus/pci/devices/0000:01:00.0/vendor"] = "0x10de\n"
    found = rung(machine, tmp_path, "driver")
    assert "has no driver" in found.detail
    assert "apt-get install nvidia-driver" in (found.remedy or "")


def test_a_container_without_the_compute_libraries(tmp_path: Path) -> None:
    gone = json.dumps({"missing": "libcuda.so.1: cannot open shared object file"})
    found = rung(OtherMachine().says(libcuda=ended(gone)), tmp_path, "driver")
    assert "nvidia-smi is installed, libcuda.so.1 is not found" in found.detail
    assert "NVIDIA_DRIVER_CAPABILITIES" in (found.remedy or "")


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        ("CUDA_ERROR_NO_DEVICE", "no GPU is visible", "--gpus all"),
        ("CUDA_ERROR_STUB_LIBRARY", "the toolkit's stub", "LD_LIBRARY_PATH"),
        ("CUDA_ERROR_DEVICE_NOT_LICENSED", "no licence", "gridd.conf"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "NVSwitch", "nvidia-fabricmanager"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "different versions", "cuda-compat"),
        ("CUDA_ERROR_UNKNOWN", "cannot start", "nvidia_uvm"),
        ("error 12345", "cannot start", "dmesg"),
    ],
)
def test_what_cuinit_fails_with(error: str, cause: str, remedy: str, tmp_path: Path) -> None:
    said = ended(json.dumps({"error": error, "version": 13000, "devices": []}))
    found = rung(OtherMachine().says(libcuda=said), tmp_path, "driver")
    assert found.status == "failed"
    assert error in found.detail
    assert cause in found.detail
    assert remedy in (found.remedy or "")


def test_a_hidden_gpu(tmp_path: Path) -> None:
    said = ended(json.dumps({"error": "CUDA_ERROR_NO_DEVICE", "version": 13000, "devices": []}))
    machine = OtherMachine(variables={"CUDA_VISIBLE_DEVICES": "7"}).says(libcuda=said)
    found = rung(machine, tmp_path, "driver")
    assert "CUDA_VISIBLE_DEVICES=7 hides the 1 GPU(s)" in found.detail
    assert "nvidia-smi -L" in (found.remedy or "")


def test_a_driver_that_crashes_whoever_opens_it(tmp_path: Path) -> None:
    machine = OtherMachine().says(libcuda=ended(code=-11))
    assert "cuInit crashes with SIGSEGV" in rung(machine, tmp_path, "driver").detail
    machine.says(libcuda=ended("Segmentation fault"))
    assert "opening libcuda failed: Segmentation" in rung(machine, tmp_path, "driver").detail


def test_a_driver_that_does_not_know_a_field(tmp_path: Path) -> None:
    """Drivers before R535 name one field otherwise; they refuse the whole query."""
    machine = OtherMachine()
    refusal = ended('Field "clocks_event_reasons.active" is not a valid field to query.\n', code=2)
    old = {
        r"query-gpu=.*clocks_event_reasons": refusal,
        r"query-gpu=.*clocks_throttle_reasons": ended(H200_ROW),
    }
    machine.answers = {**old, **machine.answers}
    found = climbed(machine, settings(tmp_path), "clocks")
    assert found["clocks"].status == "ok"
    assert "throttle reasons: idle" in found["clocks"].detail
    assert sum("--query-gpu" in line for line in machine.commands) == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "cause", "remedy"),
    [
        (
            "compute mode",
            "Default",
            "Exclusive_Process",
            "only one process at a time",
            "-c DEFAULT",
        ),
        ("compute mode", "Default", "Prohibited", "no process may open", "-c DEFAULT"),
        ("mig", "Default, Disabled", "Default, Enabled", "MIG is on", "CUDA_VISIBLE_DEVICES=MIG-"),
        (
            "clocks",
            "0x0000000000000001",
            "0x0000000000000048",
            "throttle reasons: hardware slowdown, thermal slowdown: the GPU is slowed down",
            "let it cool",
        ),
        (
            "gpu health",
            "Disabled, 0, No",
            "Disabled, 3, No",
            "3 uncorrected memory errors",
            "reboot",
        ),
        ("gpu health", "No, No", "Yes, No", "waits for repair", "reboot"),
        ("gpu health", "No, No", "No, Yes", "could not be repaired", "must be replaced"),
        ("gpu processes", "29, 0,", "29, 97,", "97 % busy", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_state_that_spoils_measurements(
    name: str, old: str, new: str, cause: str, remedy: str, tmp_path: Path
) -> None:
    assert old in H200_ROW
    machine = OtherMachine().says(nvidia_smi=ended(H200_ROW.replace(old, new)))
    found = rung(machine, tmp_path, name)
    assert found.status == "failed"
    assert cause in found.detail
    assert remedy in (found.remedy or "")


def test_other_processes_on_the_gpu(tmp_path: Path) -> None:
    apps = f"{UUID}, 4711, 61234, /usr/bin/python3\nGPU-99999999-aaaa, 1, 2, other\n"
    found = rung(OtherMachine().says(apps=ended(apps)), tmp_path, "gpu processes")
    assert "1 other process(es) on this GPU: 4711 python3 (61234 MiB)" in found.detail
    assert "end them" in (found.remedy or "")


def test_hardware_errors_in_the_kernels_log(tmp_path: Path) -> None:
    log = (
        "[  10.0] NVRM: Xid (PCI:0000:19:00): 31, pid=79749, name=exe, Ch 0000000a, MMU Fault\n"
        "[  11.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    found = rung(OtherMachine().says(dmesg=ended(log)), tmp_path, "gpu health")
    assert found.status == "ok"
    assert "programs have faulted on it before (Xid 31)" in found.detail
    worse = log + "[  12.0] NVRM: Xid (PCI:0000:19:00): 48, pid=9, DBE (double bit error)\n"
    found = rung(OtherMachine().says(dmesg=ended(worse)), tmp_path, "gpu health")
    assert found.status == "failed"
    assert "Xid 48" in found.detail
    refused = ended(stderr="dmesg: read kernel buffer failed: Operation not permitted", code=1)
    found = rung(OtherMachine().says(dmesg=refused), tmp_path, "gpu health")
    assert "may not be read here" in found.detail


def test_a_vgpu_is_told_by_its_mode_or_its_name(tmp_path: Path) -> None:
    """Trap 2 of the source write-up."""
    page = QUERY_PAGE.replace(": None", ": VGPU")
    page += "        License Status                    : Unlicensed (Unrestricted)\n"
    found = rung(OtherMachine().says(query=ended(page)), tmp_path, "virtualisation")
    assert found.status == "failed"
    assert "is a vGPU, Unlicensed (Unrestricted)" in found.detail
    assert "whole GPU" in (found.remedy or "")
    named = OtherMachine().says(
        nvidia_smi=ended(H200_ROW.replace("NVIDIA H200", "NVIDIA A16-4Q")), query=ended("")
    )
    assert "NVIDIA A16-4Q is a vGPU" in rung(named, tmp_path, "virtualisation").detail


def test_a_gpu_passed_through_is_whole(tmp_path: Path) -> None:
    page = QUERY_PAGE.replace(": None", ": Pass-Through")
    found = rung(OtherMachine().says(query=ended(page)), tmp_path, "virtualisation")
    assert (found.status, found.detail) == ("ok", "passthrough")


def test_wsl_is_named(tmp_path: Path) -> None:
    machine = OtherMachine()
    machine.files["/proc/version"] = "Linux version 5.15.153.1-microsoft-standard-WSL2\n"
    assert "WSL 2" in rung(machine, tmp_path, "virtualisation").detail


def test_a_gpu_whose_state_nobody_tells(tmp_path: Path) -> None:
    machine = OtherMachine(programs=("nvcc",))
    found = climbed(machine, settings(tmp_path), *STATE)
    assert found["driver"].status == "ok"
    assert "no nvidia-smi here" in found["driver"].detail
    assert found["clocks"].status == "missing"
    assert found["compute mode"].status == "ok"


def test_the_row_is_that_of_cudas_first_gpu(tmp_path: Path) -> None:
    """CUDA numbers the fastest first, nvidia-smi by the bus."""
    other = H200_ROW.replace(UUID, "GPU-00000000-1111-2222-3333-444444444444")
    rows = other.replace("345", "210") + H200_ROW.replace("0,", "1,", 1)
    found = rung(OtherMachine().says(nvidia_smi=ended(rows)), tmp_path, "clocks")
    assert "SM clock 345" in found.detail
    two = {**H200_CUDA, "devices": [*H200_CUDA["devices"]] * 2}  # type: ignore[misc]
    machine = OtherMachine().says(libcuda=ended(json.dumps(two)), nvidia_smi=ended(rows))
    assert "the first of 2 is used" in rung(machine, tmp_path, "gpu").detail


def test_nothing_is_changed(tmp_path: Path) -> None:
    """No clock, mode, reset or limit is set: only these options are ever given to nvidia-smi."""
    machine = OtherMachine()
    climbed(machine, settings(tmp_path), *STATE)
    options = {line.split()[1].split("=")[0] for line in machine.commands if "nvidia-smi" in line}
    assert options == {"--query-gpu", "--query-compute-apps", "-q"}
