"""A kernel launched for real, by the trusted runner, and timed in every way that a verdict uses."""

from __future__ import annotations

from array import array

from cudaops.doctor.ladder import CheckContext, CheckOutcome, PlannedCheck, failed, missing, ok
from cudaops.doctor.toolkit import KERNEL
from cudaops.domain.base import Dim3
from cudaops.domain.execution import Misbehaved
from cudaops.domain.rewrite import BufferValue, NumberValue
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.protocol import (
    Buffer,
    MeasureReply,
    MeasureTask,
    PlannedLaunch,
    ProbeReply,
    ProbeTask,
    Reply,
    RunReply,
    RunTask,
    Side,
    Task,
    TimingPolicy,
)
from cudaops.reports.quantities import one_line

ELEMENTS = 1 << 16
THREADS = 256
TASK_TIMEOUT_S = 12.0
"""Making the first context on a machine with eight GPUs takes some seconds."""
FEW = TimingPolicy(warmups=2, samples=8, redone_blocks=0, max_seconds=3.0)

CAUSES = {
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "the GPU's memory is full",
        (
            "end the processes that hold it (nvidia-smi lists them), or choose another GPU with"
            " CUDA_VISIBLE_DEVICES"
        ),
    ),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (
        "another process has exclusive use of this GPU",
        "wait for it, or have the administrator run sudo nvidia-smi -c DEFAULT",
    ),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "the GPU's memory has an error that cannot be corrected",
        "reboot, or sudo nvidia-smi -r while the GPU is idle",
    ),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the kernel was built for another architecture",
        "report it as a bug of cudaops, with the output of --json",
    ),
    "CUDA_ERROR_SYSTEM_NOT_READY": (
        "the fabric of the GPUs is not up",
        "sudo systemctl start nvidia-fabricmanager",
    ),
    "CUDA_ERROR_MPS_CONNECTION_FAILED": (
        "the CUDA MPS server does not answer",
        "start it again, or stop it: echo quit | nvidia-cuda-mps-control",
    ),
}
"""A driver's error in a launch that should work, what it means and what helps. Source: CUDA Driver
API, CUresult."""
UNKNOWN = "`sudo dmesg | grep -i xid` may say more; reboot where a plain CUDA program fails too"


def runner(site: CheckContext) -> CheckOutcome:
    """Start a runner; it allocates, copies there and back, and compares."""
    site.runner = site.machine.runner()
    reply = _ask(site, ProbeTask(), "the runner cannot use the GPU")
    if not isinstance(reply, ProbeReply):
        return _unexpected(reply)
    facts = reply.facts
    version = f", driver {facts.driver_version}" if facts.driver_version else ", no NVML"
    return ok(f"holds {facts.name}{version}, {reply.free_bytes / 2**30:.1f} GiB free")


def launch(site: CheckContext) -> CheckOutcome:
    """Launch the kernel on known numbers and compare every one of the results."""
    assert site.module is not None
    given = site.folder / "given.bin"
    given.write_bytes(array("f", range(ELEMENTS)).tobytes())
    planned = PlannedLaunch(
        kernel=site.module.launchable(BASELINE_ENTRY),
        grid=Dim3(x=ELEMENTS // THREADS),
        block=Dim3(x=THREADS),
        dynamic_smem_bytes=0,
        values=(BufferValue(allocation=0), NumberValue(value=ELEMENTS)),
    )
    site.side = Side(module=str(site.module.image), launches=(planned,))
    taken = site.folder / "taken.bin"
    task = RunTask(side=site.side, buffers=_buffers(site), dumps={0: str(taken)})
    reply = _ask(site, task, "a launch failed")
    if not isinstance(reply, RunReply):
        return _unexpected(reply)
    results = array("f", taken.read_bytes())
    wrong = sum(value != 2.0 * index for index, value in enumerate(results))
    if wrong or len(results) != ELEMENTS:
        return failed(
            f"{wrong} of {ELEMENTS} results are wrong: this GPU computes wrong results",
            "reboot and try again; if it stays so, the GPU or its memory is broken",
        )
    return ok(f"{ELEMENTS} results of a kernel, all right")


def program(site: CheckContext) -> CheckOutcome:
    """Run a whole program that nvcc linked, as the author's would run."""
    done = site.machine.run([str(site.program)], timeout_s=TASK_TIMEOUT_S, folder=site.folder)
    said = one_line(done.stderr or done.stdout) or f"exit code {done.exit_code}"
    if done.exit_code == 0 and done.stdout.strip() == KERNEL:
        site.program_s = done.seconds
        return ok(f"a program of nvcc's ran right, {done.seconds:.2f} s by the clock on the wall")
    if "cudaErrorInsufficientDriver" in said:
        remedy = "update the driver, or put an older CUDA toolkit first on PATH"
        return failed(f"the driver is too old for what nvcc links: {said}", remedy)
    return failed(f"a program by nvcc fails, though a kernel alone may not: {said}", UNKNOWN)


def events(site: CheckContext) -> CheckOutcome:
    """Time the kernel with CUDA events: the clock of a verdict."""
    assert site.side is not None
    task = MeasureTask(sides=(site.side,), buffers=_buffers(site), policy=FEW)
    reply = _ask(site, task, "the kernel could not be timed")
    if not isinstance(reply, MeasureReply):
        return _unexpected(reply)
    site.measured = reply
    by_regime = {one.regime: one.sides[0] for one in reply.regimes}
    samples = [us for side in by_regime.values() for us in side.samples_us]
    if not samples or min(samples) <= 0.0:
        return failed(
            "CUDA events give no time above zero", "update the driver; on WSL update Windows too"
        )
    times = ", ".join(
        f"{regime} {sorted(side.samples_us)[len(side.samples_us) // 2]:.2f} µs"
        for regime, side in by_regime.items()
        if side.samples_us
    )
    slopes = [side.slope_us for side in by_regime.values() if side.slope_us is not None]
    beside = f"; by the host's clock {slopes[0]:.2f} µs" if slopes else ""
    wall = (
        f"; the program's {site.program_s:.2f} s on the wall would hide it"
        if site.program_s is not None
        else ""
    )
    return ok(f"the kernel takes {times}{beside}{wall}")


def cupti(site: CheckContext) -> CheckOutcome:
    """Whether the same launches came with CUPTI's own times."""
    assert site.measured is not None
    times = [us for one in site.measured.regimes for us in one.sides[0].cupti_us]
    if times and min(times) > 0.0:
        return ok(f"{len(times)} activity records, {sorted(times)[len(times) // 2]:.2f} µs")
    said = "; ".join(note for note in site.measured.notices if "cupti" in note.lower())
    remedy = "python -m pip install 'cudaops[cuda]'; only one tool may use CUPTI at a time"
    detail = said or "no activity record came with the launches"
    return missing(f"{detail}: events are cross-checked by the host's clock alone", remedy)


def _buffers(site: CheckContext) -> tuple[Buffer, ...]:
    return (Buffer(index=0, size_bytes=4 * ELEMENTS, file=str(site.folder / "given.bin")),)


def _ask(site: CheckContext, task: Task, what: str) -> Reply | CheckOutcome:
    """The runner's reply, or why there is none, with what helps."""
    assert site.runner is not None
    try:
        reply = site.runner.request(task, TASK_TIMEOUT_S)
    except SandboxUnavailable as error:
        known = _cause(error.problem)
        if known is None:
            return failed(f"{what}: {error.problem}", error.remedy)
        return failed(f"{what}: {known[0]} ({error.problem})", known[1])
    if isinstance(reply, Misbehaved):
        known = _cause(reply.message)
        why = f"{known[0]} ({reply.message})" if known else reply.message
        return failed(f"{what}: {why}", known[1] if known else UNKNOWN)
    return reply


def _cause(text: str) -> tuple[str, str] | None:
    return next((cause for error, cause in CAUSES.items() if error in text), None)


def _unexpected(reply: Reply | CheckOutcome) -> CheckOutcome:
    if isinstance(reply, CheckOutcome):
        return reply
    return failed(f"the runner answered {reply.kind}", "report it as a bug of cudaops")


STEPS = (
    # A machine with eight GPUs and no persistence takes half a minute to open the first.
    PlannedCheck("runner", runner, ("cuda",), ("gpu", "compute mode"), bound_s=60.0),
    PlannedCheck("launch", launch, ("cuda",), ("runner", "toolkit", "kernel build"), bound_s=30.0),
    PlannedCheck("program", program, ("cuda",), ("runner", "toolkit"), bound_s=20.0),
    PlannedCheck("events", events, ("cuda",), ("launch",), bound_s=30.0),
    PlannedCheck("cupti", cupti, (), ("events",)),
)
