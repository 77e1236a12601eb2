"""Who may read the GPU's performance counters here, by what the driver and the kernel say.

Source: NVIDIA, Development Tools Solutions, ERR_NVGPUCTRPERM: an administrator or CAP_SYS_ADMIN;
since R565 CAP_PERFMON too; everybody where the kernel module was loaded so.
"""

from __future__ import annotations

from cudaops.cuda.driver_texts import (
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    capability,
    profiling_for_admins_only,
    profiling_freed_by,
)
from cudaops.doctor.ladder import Site
from cudaops.doctor.records import Finding, failed, ok

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


def permission(site: Site) -> Finding:
    """What stands between this process and the counters, if anything does."""
    found = _permission(site)
    site.permission_remedy = found.remedy
    return found


def _permission(site: Site) -> Finding:
    params = "".join(text for _, text in site.machine.read(PARAMS))
    status = "".join(text for _, text in site.machine.read(STATUS))
    restricted = profiling_for_admins_only(params)
    if restricted is False:
        return ok("everybody may read counters (RmProfilingAdminOnly: 0)")
    enough = _enough(site, status)
    if enough is not None:
        return ok(f"this process may read counters ({enough})")
    if restricted is None:
        return ok("the driver does not say who may read counters; ncu tries")
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


def _enough(site: Site, status: str) -> str | None:
    """The capability that opens the counters to this process; None: it has none."""
    if capability(status, CAP_SYS_ADMIN):
        return "CAP_SYS_ADMIN"
    branch = (site.gpu.driver_version or "").split(".")[0] if site.gpu else ""
    new = branch.isdecimal() and int(branch) >= PERFMON_SINCE
    return "CAP_PERFMON" if new and capability(status, CAP_PERFMON) else None
