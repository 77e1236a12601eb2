"""Nsight Compute and compute-sanitizer, made to look at the doctor's own program; and who may read
the GPU's performance counters here, by what the driver and the kernel say.

Source of the latter: NVIDIA, Development Tools Solutions, ERR_NVGPUCTRPERM: an administrator or
CAP_SYS_ADMIN; since R565 CAP_PERFMON too; everybody where the kernel module was loaded so.
"""

from __future__ import annotations

import csv
import io
import re

from cudaops.cuda.driver_texts import (
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    capability,
    profiling_for_admins_only,
    profiling_freed_by,
)
from cudaops.cuda.ncu_problem import REMEDIES, NcuProblem, classify_ncu_failure, problem
from cudaops.cuda.sanitizer_report import parse_report
from cudaops.doctor.gpu import in_wsl
from cudaops.doctor.ladder import CheckContext, CheckOutcome, PlannedCheck, failed, missing, ok
from cudaops.doctor.toolkit import fitting_ncu
from cudaops.errors import CudaOpsError, SandboxUnavailable
from cudaops.executors.process import Finished

VERSION_TIMEOUT_S = 5.0
NCU_TIMEOUT_S = 25.0
"""One launch with one counter takes 2 to 4 s, the first of all a few more."""
REPORT = "probe.ncu-rep"
METRIC = "sm__cycles_elapsed.max"
"""Every chip has it, in one pass. Source: `ncu --query-metrics`, Kernel Profiling Guide."""

INSTALL_NCU = (
    "sudo apt-get install nsight-compute, from NVIDIA's CUDA repository (some 400 MB; it is in no"
    " wheel, and cloud images with nvcc often lack it), then put its folder on PATH"
)
EXEC_REFUSED = (
    "sudo setcap -r NCU for the ncu that was found: with a capability on the file that the"
    " container may not have, nothing can start it; then start the container with --cap-add"
    " SYS_ADMIN, or profile on a virtual machine"
)


def ncu(site: CheckContext) -> CheckOutcome:
    """Find ncu and let it tell its version."""
    path = site.machine.find("ncu")
    if path is None:
        return missing("Nsight Compute was not found; profiles are modelled", INSTALL_NCU)
    try:
        done = site.machine.run([str(path), "--version"], timeout_s=VERSION_TIMEOUT_S)
    except SandboxUnavailable as error:
        done = Finished(126, "", error.problem, 0.0)
    found = re.search(r"Version (\d{4})\.(\d+)\.(\d+)", done.stdout)
    if re.search(r"[Oo]peration not permitted", done.stderr):
        return failed(f"{path} may not be started: {done.stderr.strip()}", EXEC_REFUSED)
    if done.exit_code != 0 or found is None:
        said = (done.stdout + done.stderr).strip() or f"exit code {done.exit_code}"
        return failed(f"{path} --version: {said}", INSTALL_NCU)
    site.ncu, site.ncu_version = path, (int(found[1]), int(found[2]))
    return ok(f"{path}, {found[0].lower()}")


def ncu_version(site: CheckContext) -> CheckOutcome:
    """Whether this ncu knows this GPU and takes this driver."""
    assert site.ncu_version is not None
    assert site.driver_cuda is not None
    fits = fitting_ncu(site.ncu_version, site.device.capability, site.driver_cuda)
    site.ncu_is_old = fits.older
    return fits.finding


def counters(site: CheckContext) -> CheckOutcome:
    """Let ncu read one counter of one real launch. The clocks are left alone."""
    assert site.ncu is not None
    options = ["--clock-control", "none", "--metrics", METRIC, "--launch-count", "1"]
    command = [str(site.ncu), *options, "-f", "-o", REPORT.removesuffix(".ncu-rep")]
    command.append(str(site.program))
    done = site.machine.run(command, timeout_s=NCU_TIMEOUT_S, folder=site.folder)
    if done.timed_out:
        return _no_counters(site, problem("timeout", f"no end within {NCU_TIMEOUT_S:g} s"))
    said = done.stdout + done.stderr
    why = classify_ncu_failure(said)
    if why is not None or done.exit_code != 0:
        return _no_counters(site, why or problem("unknown", said or f"exit {done.exit_code}"))
    page = [str(site.ncu), "--import", REPORT, "--csv", "--page", "raw"]
    printed = site.machine.run(page, timeout_s=NCU_TIMEOUT_S, folder=site.folder).stdout
    value = _value(printed)
    if not re.fullmatch(r"[0-9][0-9,]*(\.[0-9]+)?", value) or not re.search("[1-9]", value):
        return _no_counters(site, problem("no_values", f"{METRIC} is {value or 'not there'}"))
    site.report = site.folder / REPORT
    return ok(f"{METRIC} is {value} on a real launch")


def ncu_report(site: CheckContext) -> CheckOutcome:
    """Read that report with NVIDIA's own package."""
    from cudaops.executors.cuda.ncu_rep import read_report

    assert site.report is not None
    try:
        launches = read_report(site.report)
    except CudaOpsError as error:
        remedy = getattr(error, "remedy", "python -m pip install --upgrade 'cudaops[ncu]'")
        return failed(f"the report of this ncu cannot be read: {error}", remedy)
    return ok(f"ncu-report read {len(launches)} launch of this ncu's report")


def ncu_package(site: CheckContext) -> CheckOutcome:
    """Load NVIDIA's reader of reports and let it refuse what is none."""
    from cudaops.errors import InputError
    from cudaops.executors.cuda.ncu_rep import read_report

    path = site.folder / "none.ncu-rep"
    path.write_bytes(b"not a report")
    try:
        read_report(path)
    except InputError:
        return ok("ncu-report loads, and rejects an invalid file")
    return failed("ncu-report takes any file for a report", "python -m pip install -U ncu-report")


def sanitizer(site: CheckContext) -> CheckOutcome:
    """Let compute-sanitizer find an access that was planted out of bounds."""
    path = site.machine.find("compute-sanitizer")
    if path is None:
        return missing(
            "compute-sanitizer was not found: the cpu executor checks memory instead",
            "python -m pip install nvidia-cuda-sanitizer-api",
        )
    command = [str(path), "--tool", "memcheck", str(site.program), "outside"]
    done = site.machine.run(command, timeout_s=NCU_TIMEOUT_S, folder=site.folder)
    found = [f for f in parse_report(done.stdout + done.stderr).findings if f.kind == "access"]
    if found:
        return ok(f"{path} found the planted access: {found[0].text}")
    said = _last_lines(done)
    return failed(
        f"{path} did not find an access that was planted out of bounds: {said}",
        "use the compute-sanitizer of a toolkit that knows this GPU and driver:"
        " python -m pip install -U nvidia-cuda-sanitizer-api",
    )


def _no_counters(site: CheckContext, why: NcuProblem) -> CheckOutcome:
    """The cause that fits this machine: ncu says the same of several."""
    detail = f"ncu reads no counter here ({why.cause.replace('_', ' ')}): {why.text}"
    fallback = "; the run continues with CUPTI times, ptxas and the time model"
    hidden = why.cause in ("permission", "no_values", "busy", "unknown")
    if site.is_vgpu and hidden:
        return failed(f"{detail}: this is a vGPU{fallback}", REMEDIES["vgpu"])
    if why.cause == "permission" and in_wsl(site):
        return failed(f"{detail}: this is WSL{fallback}", REMEDIES["wsl"])
    if why.cause in ("permission", "no_values") and site.permission_remedy is not None:
        return failed(f"{detail}{fallback}", site.permission_remedy)
    if why.cause in ("driver_too_old", "chip_unknown", "library", "unknown") and site.ncu_is_old:
        return failed(
            f"{detail}: this ncu is older than the driver{fallback}",
            f"install one as new as the driver: {INSTALL_NCU}",
        )
    return failed(f"{detail}{fallback}", why.remedy)


def _value(page: str) -> str:
    """The metric's cell in the last row of a raw page; empty where there is none."""
    start = page.find('"ID"')
    rows = list(csv.reader(io.StringIO(page[start:]))) if start >= 0 else []
    if len(rows) < 3 or METRIC not in rows[0]:
        return ""
    column = rows[0].index(METRIC)
    return rows[-1][column].strip() if column < len(rows[-1]) else ""


def _last_lines(done: Finished) -> str:
    if done.timed_out:
        return "it did not end in time"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return " ".join(lines[-3:]) or f"exit code {done.exit_code}"


PARAMS = "/proc/driver/nvidia/params"
STATUS = "/proc/self/status"
OPTIONS = "/etc/modprobe.d/*.conf"

PERFMON_SINCE = 565
"""Driver branch that takes CAP_PERFMON for enough."""

FREE_THEM = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' |"
    " sudo tee /etc/modprobe.d/nvidia-profiling.conf && sudo update-initramfs -u, then reboot;"
    " or run cudaops as root"
)
REBOOT = (
    "reboot: the option is read when the module is loaded, and the running driver is in use (where"
    " a reboot does not help: sudo update-initramfs -u, then reboot again)"
)
CONTAINER = (
    "start the container with --cap-add SYS_ADMIN; a provider that does not allow it (RunPod's"
    " Community pods and most container clouds) cannot profile: take a virtual machine with the"
    " whole GPU. setcap on ncu does not help and makes it refuse to start"
)


def permission(site: CheckContext) -> CheckOutcome:
    """What is between this process and the counters, if anything does."""
    found = _permission(site)
    site.permission_remedy = found.remedy
    return found


def _permission(site: CheckContext) -> CheckOutcome:
    params = "".join(text for _, text in site.machine.read(PARAMS))
    status = "".join(text for _, text in site.machine.read(STATUS))
    restricted = profiling_for_admins_only(params)
    if restricted is False:
        return ok("everybody may read counters (RmProfilingAdminOnly: 0)")
    enough = _enough(site, status)
    if enough is not None:
        return ok(f"this process may read counters ({enough})")
    if restricted is None:
        return ok("the driver does not report the permission for counters; ncu tries")
    freed = profiling_freed_by(site.machine.read(OPTIONS))
    if freed is not None:
        return failed(f"{freed} frees the counters, the running driver still keeps them", REBOOT)
    if capability(status, CAP_SYS_ADMIN, "CapBnd") is False:
        return failed(
            "counters are for administrators, and this container can never be one: CAP_SYS_ADMIN"
            " is not in its bounding set",
            CONTAINER,
        )
    return failed("counters are for administrators (RmProfilingAdminOnly: 1)", FREE_THEM)


def _enough(site: CheckContext, status: str) -> str | None:
    """The capability that opens the counters to this process; None: it has none."""
    if capability(status, CAP_SYS_ADMIN):
        return "CAP_SYS_ADMIN"
    branch = (site.gpu.driver_version or "").split(".")[0] if site.gpu else ""
    new = branch.isdecimal() and int(branch) >= PERFMON_SINCE
    return "CAP_PERFMON" if new and capability(status, CAP_PERFMON) else None


STEPS = (
    PlannedCheck("ncu", ncu),
    PlannedCheck("ncu-report", ncu_package),
    PlannedCheck("profiling permission", permission, (), ("driver",)),
    PlannedCheck("ncu version", ncu_version, (), ("ncu", "gpu")),
    PlannedCheck("counters", counters, (), ("ncu", "program"), bound_s=60.0),
    PlannedCheck("ncu report", ncu_report, (), ("ncu-report", "counters")),
    PlannedCheck("compute-sanitizer", sanitizer, (), ("program",), bound_s=30.0),
)
