"""The driver and the GPU: opened, listed, asked; and what else goes on there and would spoil a
measurement. Reported, never changed.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cudaops.cuda import driver_texts
from cudaops.cuda.driver_texts import Gpu, NvidiaSmiFailure
from cudaops.doctor.ladder import (
    CheckContext,
    CheckOutcome,
    CudaDevice,
    PlannedCheck,
    failed,
    missing,
    ok,
)
from cudaops.doctor.machine import libcuda_command
from cudaops.doctor.toolkit import dotted
from cudaops.errors import PrerequisiteError

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
        "the toolkit's stub of libcuda.so.1 shadows the driver's",
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
        "reboot; remove a cuda-compat folder from LD_LIBRARY_PATH",
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


def driver(site: CheckContext) -> CheckOutcome:
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
    text = f"speaks CUDA {dotted(version)}"
    if site.smi is None:
        why = refused.problem if refused else "no nvidia-smi here"
        return ok(f"libcuda {text}; {why}, so clocks and processes are unknown")
    return ok(f"{site.smi.gpus[0].driver_version or 'version unknown'}, {text}")


def gpu(site: CheckContext) -> CheckOutcome:
    """The GPUs as CUDA numbers them; cudaops uses the first."""
    if not site.devices:
        problem, remedy = CAUSES["CUDA_ERROR_NO_DEVICE"]
        return missing(problem, remedy)
    listed = [
        f"{d.name}, compute capability {dotted(d.capability)}, {d.sm_count} SMs,"
        f" {d.memory_bytes / 2**30:.0f} GiB"
        for d in site.devices
    ]
    if len(listed) == 1:
        return ok(listed[0])
    chosen = f"; the first of {len(listed)} is used (CUDA_VISIBLE_DEVICES chooses another)"
    return ok(listed[0] + chosen)


def _ask_nvidia_smi(site: CheckContext, program: str) -> NvidiaSmiFailure | None:
    """Fill `site.smi`, leaving out the fields that this driver does not know. The failure of a GPU
    that did not answer where others did is for the rung `gpu health`."""
    fields = driver_texts.GPU_QUERY
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


def _ask_libcuda(site: CheckContext) -> dict[str, Any]:
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


def _refusal(site: CheckContext, error: str) -> CheckOutcome:
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


def _no_driver(site: CheckContext, has_smi: bool) -> CheckOutcome:
    if has_smi:
        return failed(
            "nvidia-smi is installed, libcuda.so.1 is not found",
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


NO_SMI = "install nvidia-smi (Ubuntu: nvidia-utils-580-server; in a container: --gpus all)"
SOON_S = 5.0


def clocks(site: CheckContext) -> CheckOutcome:
    """SM clock, what holds it down, persistence mode."""
    gpu = _row(site)
    parts = []
    if gpu.sm_clock_mhz is not None:
        most = f" of {gpu.max_sm_clock_mhz}" if gpu.max_sm_clock_mhz else ""
        parts.append(f"SM clock {gpu.sm_clock_mhz}{most} MHz")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c} °C")
    reasons = gpu.clock_reasons
    if reasons is not None:
        named = ", ".join(driver_texts.clock_reasons(reasons))
        parts.append(f"throttle reasons: {named}" if named else "no throttle reason")
    if gpu.persistence is False:
        parts.append("persistence mode off (the first call of each program waits for the driver)")
    text = "; ".join(parts) or "nvidia-smi tells no clock of this GPU"
    if reasons is not None and reasons & driver_texts.SLOWING_REASONS:
        return failed(
            f"{text}: the GPU is slowed down and its times are not its own",
            "let it cool, check fans, power cables and supply; `nvidia-smi -q -d PERFORMANCE` shows"
            " when it is over",
        )
    return ok(text)


def processes(site: CheckContext) -> CheckOutcome:
    """Others that hold a CUDA context on the GPU, and how busy it is."""
    gpu = _row(site)
    program = str(site.machine.find("nvidia-smi"))
    done = site.machine.run(driver_texts.apps_command(program), timeout_s=SMI_TIMEOUT_S)
    apps = [app for app in driver_texts.parse_apps(done.stdout) if app.gpu_uuid == gpu.uuid]
    if apps:
        listed = ", ".join(
            f"{app.pid} {app.name.rsplit('/', 1)[-1]}"
            + (f" ({app.used_mib} MiB)" if app.used_mib is not None else "")
            for app in apps[:5]
        )
        more = f" and {len(apps) - 5} more" if len(apps) > 5 else ""
        return failed(
            f"{len(apps)} other process(es) on this GPU: {listed}{more}; times will be noisy",
            "end them, or choose another GPU with CUDA_VISIBLE_DEVICES",
        )
    if gpu.utilization_pct:
        return failed(
            f"nothing is listed on this GPU, but it is {gpu.utilization_pct} % busy: a process"
            " outside of this container, or a display",
            "end it, or choose another GPU with CUDA_VISIBLE_DEVICES; else expect noisy times",
        )
    return ok("no other process holds a context on this GPU")


def mig(site: CheckContext) -> CheckOutcome:
    """Whether the GPU is cut into slices."""
    if _row(site).mig:
        return failed(
            "MIG is on: cudaops works on one slice, whose peaks are not the device's, and ncu may"
            " refuse what slices share",
            "name the slice with CUDA_VISIBLE_DEVICES=MIG-... (`nvidia-smi -L` lists them); for the"
            " whole GPU the administrator turns it off: sudo nvidia-smi -mig 0 (ends all work on"
            " it)",
        )
    return ok("off" if _row(site).mig is False else "this GPU has none")


def health(site: CheckContext) -> CheckOutcome:
    """GPUs that do not answer, ECC counters, rows waiting for repair, errors in the kernel log."""
    gpu = _row(site)
    wrong = []
    lost = site.smi.failure if site.smi else None
    if lost is not None:
        wrong.append(lost.problem)
    if gpu.uncorrected_errors:
        wrong.append(f"{gpu.uncorrected_errors} uncorrected memory errors since the driver started")
    if gpu.remap_failed:
        wrong.append("a memory row could not be repaired")
    elif gpu.remap_pending:
        wrong.append("a memory row waits for repair")
    log = _kernel_log(site)
    xids = [x for x in driver_texts.parse_xids(log or "") if x.is_of(gpu.bus_id or "")]
    faults = sorted({x.code for x in xids if x.hardware})
    if faults:
        wrong.append(f"hardware errors in the kernel's log: Xid {', '.join(map(str, faults))}")
    if wrong:
        remedy = "reboot (or sudo nvidia-smi -r while the GPU is idle), then try again"
        if lost is not None:
            remedy = lost.remedy
        elif gpu.remap_failed:
            remedy = "the GPU must be replaced: its results may be wrong"
        return failed("; ".join(wrong), remedy)
    known = "none counted" if gpu.uncorrected_errors is not None else "this GPU counts none"
    others = sorted({x.code for x in xids} - set(faults))
    noted = f"; programs have faulted on it before (Xid {', '.join(map(str, others))})"
    return ok(
        known
        + (noted if others else "")
        + ("" if log is not None else "; the kernel's log may not be read here")
    )


def compute_mode(site: CheckContext) -> CheckOutcome:
    """Whether several processes may use the GPU: cudaops holds one runner for each of its jobs."""
    mode = site.gpu.compute_mode if site.gpu else None
    if mode in ("Prohibited", "Exclusive_Process", "Exclusive_Thread"):
        what = "no process" if mode == "Prohibited" else "only one process at a time"
        return failed(
            f"compute mode {mode}: {what} may open this GPU, cudaops needs several",
            "have the administrator run sudo nvidia-smi -c DEFAULT",
        )
    return ok(mode or "unknown")


def virtualisation(site: CheckContext) -> CheckOutcome:
    """A whole GPU, one passed through, or a slice; Linux itself, or WSL."""
    gpu = _row(site)
    program = str(site.machine.find("nvidia-smi"))
    page = site.machine.run([program, "-q"], timeout_s=SMI_TIMEOUT_S).stdout
    told = driver_texts.parse_virtualisation(page)
    mine = next((v for v in told if gpu.bus_id and v.bus_id.lower() == gpu.bus_id.lower()), None)
    if (mine and mine.is_vgpu) or driver_texts.is_vgpu_name(gpu.name):
        licence = f", {mine.license}" if mine and mine.license else ""
        site.is_vgpu = True
        return failed(
            f"{gpu.name} is a vGPU{licence}: the hypervisor keeps its counters, other guests share"
            " its time",
            "rent a whole GPU (passthrough or bare metal) to profile and to measure; the rest of"
            " cudaops works here",
        )
    if in_wsl(site):
        return ok("WSL 2: counters are freed in Windows, in the NVIDIA Control Panel")
    if mine is None or mine.mode is None:
        return ok("no virtualisation reported")
    return ok({"None": "none", "Pass-Through": "passthrough"}.get(mine.mode, mine.mode))


def in_wsl(site: CheckContext) -> bool:
    """Whether this Linux runs inside Windows."""
    return any("microsoft" in text.lower() for _, text in site.machine.read("/proc/version"))


def _row(site: CheckContext) -> Gpu:
    """nvidia-smi's facts of the GPU in use. Raises PrerequisiteError where it gave none."""
    if site.gpu is None and site.smi_failure is not None:
        raise site.smi_failure
    if site.gpu is None:
        what = "has no row for the GPU that CUDA uses" if site.smi else "is not here"
        raise PrerequisiteError(f"nvidia-smi {what}: its state is unknown", NO_SMI)
    return site.gpu


def _kernel_log(site: CheckContext) -> str | None:
    program = site.machine.find("dmesg")
    if program is None:
        return None
    done = site.machine.run([str(program)], timeout_s=SOON_S)
    return done.stdout if done.exit_code == 0 else None


STEPS = (
    PlannedCheck("driver", driver, ("cuda",), bound_s=25.0),
    PlannedCheck("gpu", gpu, ("cuda",), ("driver",)),
    PlannedCheck("compute mode", compute_mode, ("cuda",), ("gpu",)),
    PlannedCheck("virtualisation", virtualisation, (), ("gpu",)),
    PlannedCheck("mig", mig, (), ("gpu",)),
    PlannedCheck("clocks", clocks, (), ("gpu",)),
    PlannedCheck("gpu processes", processes, (), ("gpu",)),
    PlannedCheck("gpu health", health, (), ("gpu",)),
)
