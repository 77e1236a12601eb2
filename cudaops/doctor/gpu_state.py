"""What else goes on at the GPU and would spoil a measurement. Reported, never changed."""

from __future__ import annotations

from cudaops.cuda import driver_texts
from cudaops.cuda.driver_texts import Gpu
from cudaops.doctor.gpu import SMI_TIMEOUT_S
from cudaops.doctor.ladder import Site, Step
from cudaops.doctor.records import Finding, failed, ok
from cudaops.errors import PrerequisiteError

NO_SMI = "install nvidia-smi (Ubuntu: nvidia-utils-580-server; in a container: --gpus all)"
SOON_S = 5.0


def clocks(site: Site) -> Finding:
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
        parts.append(f"held by: {named}" if named else "held by nothing")
    if gpu.persistence is False:
        parts.append("persistence mode off (the first call of each program waits for the driver)")
    text = "; ".join(parts) or "nvidia-smi tells no clock of this GPU"
    if reasons is not None and reasons & driver_texts.SLOWING:
        return failed(
            f"{text}: the GPU is slowed down and its times are not its own",
            "let it cool, check fans, power cables and supply; `nvidia-smi -q -d PERFORMANCE` shows"
            " when it is over",
        )
    return ok(text)


def processes(site: Site) -> Finding:
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
            f"nothing is listed on this GPU, yet it is {gpu.utilization_pct} % busy: somebody"
            " outside of this container, or a display",
            "end it, or choose another GPU with CUDA_VISIBLE_DEVICES; else expect noisy times",
        )
    return ok("no other process holds a context on this GPU")


def mig(site: Site) -> Finding:
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


def health(site: Site) -> Finding:
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
        remedy = "reboot (or sudo nvidia-smi -r when nobody uses the GPU), then try again"
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


def compute_mode(site: Site) -> Finding:
    """Whether several processes may use the GPU: cudaops holds one runner for each of its jobs."""
    mode = site.gpu.compute_mode if site.gpu else None
    if mode in ("Prohibited", "Exclusive_Process", "Exclusive_Thread"):
        what = "no process" if mode == "Prohibited" else "only one process at a time"
        return failed(
            f"compute mode {mode}: {what} may open this GPU, cudaops needs several",
            "have the administrator run sudo nvidia-smi -c DEFAULT",
        )
    return ok(mode or "not told")


def virtualisation(site: Site) -> Finding:
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
        return ok("nothing said of any")
    return ok({"None": "none", "Pass-Through": "passed through whole"}.get(mine.mode, mine.mode))


def in_wsl(site: Site) -> bool:
    """Whether this Linux runs inside Windows."""
    return any("microsoft" in text.lower() for _, text in site.machine.read("/proc/version"))


def _row(site: Site) -> Gpu:
    """nvidia-smi's facts of the GPU in use. Raises PrerequisiteError where it gave none."""
    if site.gpu is None and site.smi_failure is not None:
        raise site.smi_failure
    if site.gpu is None:
        what = "has no row for the GPU that CUDA uses" if site.smi else "is not here"
        raise PrerequisiteError(f"nvidia-smi {what}: nothing is known of its state", NO_SMI)
    return site.gpu


def _kernel_log(site: Site) -> str | None:
    program = site.machine.find("dmesg")
    if program is None:
        return None
    done = site.machine.run([str(program)], timeout_s=SOON_S)
    return done.stdout if done.exit_code == 0 else None


STEPS = (
    Step("compute mode", compute_mode, ("cuda",), ("gpu",)),
    Step("virtualisation", virtualisation, (), ("gpu",)),
    Step("mig", mig, (), ("gpu",)),
    Step("clocks", clocks, (), ("gpu",)),
    Step("gpu processes", processes, (), ("gpu",)),
    Step("gpu health", health, (), ("gpu",)),
)
