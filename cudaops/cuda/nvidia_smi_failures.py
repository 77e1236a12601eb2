"""The ways nvidia-smi says that there is no GPU to talk to, each with its cause and its remedy.

Wordings: messages of nvidia-smi as quoted in NVIDIA's developer forums, the GPU Operator's and the
Container Toolkit's troubleshooting pages; exit codes: NVML API reference, `nvmlReturn_t`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from cudaops.errors import EnvironmentFailure

Kind = Literal[
    "driver_not_loaded", "version_mismatch", "no_devices", "gpu_lost", "access_lost", "blocked",
    "no_library", "no_permission", "power_cables", "reset_required", "unreadable",
]  # fmt: skip


class NvidiaSmiFailure(EnvironmentFailure):
    """nvidia-smi gave no facts about a GPU, or not about all of them."""

    def __init__(self, kind: Kind, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.kind: Kind = kind

    @classmethod
    def unreadable(cls, text: str, exit_code: int) -> NvidiaSmiFailure:
        """Output that is neither a row nor a known message."""
        said = " ".join(text.split())[:200] or "nothing"
        return cls(
            "unreadable",
            f"nvidia-smi (exit code {exit_code}) printed what cannot be read: {said}",
            "run nvidia-smi by hand: if it works there, report this text as a bug of cudaops",
        )


class _Known(NamedTuple):
    kind: Kind
    said: str
    """Pattern in the output."""
    exit_code: int | None
    problem: str
    remedy: str


_KNOWN: tuple[_Known, ...] = (
    _Known(
        "version_mismatch", r"Driver/library version mismatch", 18,
        "the loaded kernel module and the driver's libraries are of different versions",
        "reboot: the driver was updated while its old module stayed loaded (in a container: restart"
        " the container, its libraries come from the host)",
    ),
    _Known(
        "driver_not_loaded", r"couldn't communicate with the NVIDIA driver|Driver Not Loaded", 9,
        "the NVIDIA kernel driver is not loaded",
        "sudo modprobe nvidia; where that fails, install the headers of the running kernel"
        " (sudo apt-get install linux-headers-$(uname -r)) and reinstall the driver; with Secure"
        " Boot its module must be signed",
    ),
    _Known(
        "blocked", r"GPU access blocked by the operating system", 17,
        "the operating system keeps this process from the GPU",
        "in WSL: `wsl --shutdown` in PowerShell and open it again; in a container: start it with"
        " --gpus all",
    ),
    _Known(
        "no_library", r"couldn't find libnvidia-ml\.so", 12,
        "nvidia-smi finds no libnvidia-ml.so, the driver's own library",
        "in a container: start it with --gpus all (Container Toolkit); else put the folder that"
        " holds it into /etc/ld.so.conf.d and run sudo ldconfig (on Colab: /usr/lib64-nvidia)",
    ),
    _Known(
        "reset_required", r"GPU requires reset", 16,
        "a GPU says that it must be reset before anything runs on it",
        "reboot, or have the administrator run sudo nvidia-smi -r when nobody uses the GPU;"
        " `sudo dmesg | grep -i xid` says what happened",
    ),
    _Known(
        "gpu_lost", r"GPU is lost|Unable to determine the device handle|fallen off the bus", 15,
        "a GPU does not answer any more",
        "reboot, with the power off for half a minute where a warm one does not help;"
        " `sudo dmesg | grep -i xid` says why (79: fallen off the bus: slot, cable, power, heat)",
    ),
    _Known(
        "access_lost", r"Failed to initialize NVML: Unknown Error", None,
        "this container has lost its access to the GPU",
        "restart the container; it happens when systemd reloads its units on the host, unless the"
        " device nodes are given by name: docker run --gpus all --device /dev/nvidia0 --device"
        " /dev/nvidiactl --device /dev/nvidia-uvm",
    ),
    _Known(
        "no_permission", r"Failed to initialize NVML: (Insufficient Permissions|No Permission)", 4,
        "this account may not open the GPU",
        "`ls -l /dev/nvidia*` names the group that may: sudo usermod -aG THAT_GROUP $USER, then log"
        " in again",
    ),
    _Known(
        "power_cables", r"external power", 8,
        "a GPU's power cables are not attached",
        "switch the machine off and attach them",
    ),
    _Known(
        "no_devices", r"No devices were found", None,
        "the driver is loaded and has taken no GPU",
        "`lspci | grep -i nvidia` says whether one is on the bus, `sudo dmesg | grep -i nvrm` why"
        " the driver refused it: too old for this GPU, or needs the open kernel modules",
    ),
)  # fmt: skip


def failure_in(text: str, exit_code: int = 0) -> NvidiaSmiFailure | None:
    """The failure that this output tells, by its words first and by the exit code else.

    `exit_code` 0 leaves the words alone to decide.
    """
    for known in _KNOWN:
        if re.search(known.said, text, flags=re.IGNORECASE):
            return NvidiaSmiFailure(known.kind, _detailed(known, text), known.remedy)
    for known in _KNOWN:
        if exit_code and exit_code == known.exit_code:
            return NvidiaSmiFailure(known.kind, _detailed(known, text), known.remedy)
    return None


def _detailed(known: _Known, text: str) -> str:
    """The problem with the version or the GPU that the message names."""
    version = re.search(r"NVML library version: (\d[\d.]*)", text)
    handle = re.search(r"device handle for (GPU\s?[\w:.]*(?: [\w:.]+\.\d)?)", text)
    if version and known.kind == "version_mismatch":
        return f"{known.problem} (libraries: {version[1]})"
    if handle and known.kind == "gpu_lost":
        return f"{known.problem} ({handle[1].strip(' :')})"
    return known.problem
