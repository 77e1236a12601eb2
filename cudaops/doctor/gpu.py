"""The driver and the GPU: opened, listed, asked; never changed."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cudaops.cuda import driver_texts
from cudaops.cuda.driver_texts import NvidiaSmiFailure
from cudaops.doctor.ladder import CudaDevice, Site, Step
from cudaops.doctor.machine import libcuda_command
from cudaops.doctor.records import Finding, failed, missing, ok
from cudaops.doctor.versions import shown

SMI_TIMEOUT_S = 6.0
"""Without persistence mode the driver wakes the GPU up first, which takes some seconds."""

INSTALL_DRIVER = (
    "install the NVIDIA driver (Ubuntu: sudo apt-get install nvidia-driver-580-server) and reboot;"
    " in a container: start it with --gpus all"
)

CAUSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "CUDA_ERROR_NO_DEVICE": (
        "no GPU is visible to CUDA",
        ("start the container with --gpus all, or give the job a GPU; `ls /dev/nvidia*` shows what"
        " is there"),
    ),
    "CUDA_ERROR_STUB_LIBRARY": (
        "a stub of libcuda.so.1 from the toolkit stands before the driver's own",
        "take the folder named `stubs` out of LD_LIBRARY_PATH",
    ),
    "CUDA_ERROR_DEVICE_NOT_LICENSED": (
        "the vGPU has no licence",
        ("set the licence server in /etc/nvidia/gridd.conf and restart nvidia-gridd, or ask the"
        " provider; counters cannot be read on a vGPU in any case"),
    ),
    "CUDA_ERROR_OPERATING_SYSTEM": (
        "the operating system refuses the device nodes",
        "check `ls -l /dev/nvidia*`; in a container: start it with --gpus all",
    ),
    "CUDA_ERROR_SYSTEM_NOT_READY": (
        "the GPUs are joined by NVSwitch and their fabric is not up",
        "sudo systemctl start nvidia-fabricmanager, of the same version as the driver",
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "libcuda and the kernel driver are of different versions",
        "reboot; where a cuda-compat folder is in LD_LIBRARY_PATH, take it out",
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "a cuda-compat libcuda is used, which works on data centre GPUs alone",
        "take the cuda-compat folder out of LD_LIBRARY_PATH, or update the driver instead",
    ),
    "CUDA_ERROR_UNKNOWN": (
        "the driver cannot start",
        ("sudo modprobe nvidia_uvm (after a suspend sudo rmmod nvidia_uvm first); where it fails,"
        " `sudo dmesg | grep -i nvrm` says why"),
    ),
})  # fmt: skip
"""What cuInit returns, what it means here and what helps. Source: CUDA Driver API, CUresult."""


def driver(site: Site) -> Finding:
    """Open libcuda and ask nvidia-smi: the kernel's driver and the libraries both answer."""
    program = site.machine.find("nvidia-smi")
    refused = site.smi_failure = _ask_nvidia_smi(site, str(program)) if program else None
    answer = _ask_libcuda(site)
    if "missing" in answer:
        if refused is not None:
            return failed(refused.problem, refused.remedy)
        return _no_driver(site, program is not None)
    version = (answer["version"] // 1000, answer["version"] % 1000 // 10)
    if answer["error"]:
        if refused is not None:
            return failed(f"{answer['error']}: {refused.problem}", refused.remedy)
        return _refusal(site, answer["error"])
    site.driver_cuda = version
    site.devices = tuple(
        CudaDevice(d["name"], d["uuid"], tuple(d["capability"]), d["sm_count"], d["memory_bytes"])
        for d in answer["devices"]
    )
    text = f"speaks CUDA {shown(version)}"
    if site.smi is None:
        why = refused.problem if refused else "no nvidia-smi here"
        return ok(f"libcuda {text}; {why}, so clocks and processes are unknown")
    return ok(f"{site.smi.gpus[0].driver_version or 'version unknown'}, {text}")


def gpu(site: Site) -> Finding:
    """The GPUs as CUDA numbers them; cudaops uses the first."""
    if not site.devices:
        problem, remedy = CAUSES["CUDA_ERROR_NO_DEVICE"]
        return missing(problem, remedy)
    listed = [
        f"{d.name}, compute capability {shown(d.capability)}, {d.sm_count} SMs,"
        f" {d.memory_bytes / 2**30:.0f} GiB"
        for d in site.devices
    ]
    if len(listed) == 1:
        return ok(listed[0])
    chosen = f"; the first of {len(listed)} is used (CUDA_VISIBLE_DEVICES chooses another)"
    return ok(listed[0] + chosen)


def _ask_nvidia_smi(site: Site, program: str) -> NvidiaSmiFailure | None:
    """Fill `site.smi`, leaving out the fields that this driver does not know. The failure of a GPU
    that did not answer where others did is for the rung `gpu health`."""
    fields = driver_texts.QUERY
    while True:
        command = driver_texts.gpu_command(program, fields)
        done = site.machine.run(command, timeout_s=SMI_TIMEOUT_S)
        if done.timed_out:
            return NvidiaSmiFailure(
                "gpu_lost",
                f"nvidia-smi gave no answer within {SMI_TIMEOUT_S:g} s: a GPU or its driver hangs",
                "reboot; `sudo dmesg | grep -i xid` says what happened",
            )
        fewer = driver_texts.without_invalid_field(done.stdout + done.stderr, fields)
        if fewer is None or len(fewer) < 2:
            break
        fields = fewer
    try:
        site.smi = driver_texts.parse_gpus(
            done.stdout, fields, stderr=done.stderr, exit_code=done.exit_code
        )
    except NvidiaSmiFailure as failure:
        return failure
    return None


def _ask_libcuda(site: Site) -> dict[str, Any]:
    """What `libcuda.py` prints; a driver that crashes or hangs whoever opens it is an error."""
    done = site.machine.run(libcuda_command(), timeout_s=SMI_TIMEOUT_S)
    if done.timed_out:
        return {"error": "cuInit hangs", "version": 0, "devices": []}
    if done.exit_code < 0:
        name = signal.Signals(-done.exit_code).name
        return {"error": f"cuInit crashes with {name}", "version": 0, "devices": []}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = (done.stdout + done.stderr).strip()[-200:]
        return {"error": f"opening libcuda failed: {said}", "version": 0, "devices": []}
    return answer


def _refusal(site: Site, error: str) -> Finding:
    visible = site.machine.variable("CUDA_VISIBLE_DEVICES")
    if error == "CUDA_ERROR_NO_DEVICE" and visible is not None and site.smi is not None:
        return failed(
            f"CUDA_VISIBLE_DEVICES={visible} hides the {len(site.smi.gpus)} GPU(s) of this machine",
            "unset CUDA_VISIBLE_DEVICES, or name a GPU that `nvidia-smi -L` lists",
        )
    problem, remedy = CAUSES.get(
        error, ("the driver cannot start", "reboot; `sudo dmesg | grep -i nvrm` says why")
    )
    return failed(f"{error}: {problem}", remedy)


def _no_driver(site: Site, has_smi: bool) -> Finding:
    if has_smi:
        return failed(
            "nvidia-smi is here, libcuda.so.1 is not",
            "in a container: add compute to NVIDIA_DRIVER_CAPABILITIES (or --gpus all); else put"
            " the driver's library folder into /etc/ld.so.conf.d and run sudo ldconfig",
        )
    if any(text.strip() == "0x10de" for _, text in site.machine.read(PCI_VENDORS)):
        return missing("an NVIDIA device is on the PCI bus and has no driver", INSTALL_DRIVER)
    return missing(
        "no NVIDIA GPU and no driver here: times are modelled and stay provisional",
        "for measured times run cudaops where a GPU is; in a container: start it with --gpus all",
    )


PCI_VENDORS = "/sys/bus/pci/devices/*/vendor"
"""NVIDIA is 0x10de. Source: PCI ID repository."""


STEPS = (
    Step("driver", driver, ("cuda",), bound_s=25.0),
    Step("gpu", gpu, ("cuda",), ("driver",)),
)
