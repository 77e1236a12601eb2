"""The checks of `doctor`: which needs which, running them within bounds, and showing them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cudaops.cuda.driver_texts import DriverAnswer, Gpu, NvidiaSmiFailure
from cudaops.doctor.machine import Machine, ProbeRunner
from cudaops.domain.base import Record
from cudaops.domain.options import ExecutorName
from cudaops.errors import CudaOpsError, EnvironmentFailure, PrerequisiteError
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.protocol import MeasureReply, Side
from cudaops.reports.quantities import one_line
from cudaops.settings import Settings

Status = Literal["ok", "missing", "failed", "skipped"]


class Rung(Record):
    """One thing a machine can or cannot do."""

    name: str
    needed: bool
    """True: `cudaops run` cannot work without it. False: it works, with less."""
    needed_by: tuple[ExecutorName, ...] = ()
    """Executors that cannot work without it."""
    status: Status
    """`missing`: not there. `failed`: there, and it does not work, or not as it should. `skipped`:
    not tried, because a rung below it is not ok."""
    detail: str
    remedy: str | None = None
    """What to type or change; None where nothing needs to be."""
    blocked_by: tuple[str, ...] = ()
    """Of a skipped rung: the rungs to mend first."""
    seconds: float = 0.0


class Examination(Record):
    """All rungs of this machine."""

    cudaops_version: str
    ready: bool
    """Whether everything that `cudaops run` needs is there, on the cpu executor."""
    executors: tuple[ExecutorName, ...] = ()
    """Executors that have everything they need."""
    rungs: tuple[Rung, ...]


class CheckOutcome(NamedTuple):
    """What one check found."""

    status: Status
    detail: str
    remedy: str | None = None


def ok(detail: str) -> CheckOutcome:
    """It works."""
    return CheckOutcome("ok", detail)


def missing(detail: str, remedy: str | None = None) -> CheckOutcome:
    """It is not there."""
    return CheckOutcome("missing", detail, remedy)


def failed(detail: str, remedy: str | None = None) -> CheckOutcome:
    """It is there, and it does not work, or not as it should."""
    return CheckOutcome("failed", detail, remedy)


END_S = 8.0
"""A runner that is idle ends at once; one whose GPU hangs is left to the kernel."""
DEFAULT_ARCH = "sm_86"
"""Compiled for where no GPU says otherwise."""


class CudaDevice(NamedTuple):
    """A GPU as CUDA numbers and sees it."""

    name: str
    uuid: str
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int

    @property
    def sm_arch(self) -> str:
        """nvcc's target."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


@dataclass
class CheckContext:
    """What the checks work with, and what lower ones found for those above."""

    machine: Machine
    settings: Settings
    folder: Path
    """Scratch, removed at the end."""
    driver_cuda: tuple[int, int] | None = None
    """Newest CUDA the driver speaks."""
    devices: tuple[CudaDevice, ...] = ()
    smi: DriverAnswer | None = None
    """What nvidia-smi said; None where it is not there or gave no row."""
    smi_failure: NvidiaSmiFailure | None = None
    nvcc: Path | None = None
    release: tuple[int, int] | None = None
    """Of the toolkit nvcc belongs to."""
    build_arch: str = DEFAULT_ARCH
    """What was built for: the GPU's, unless nvcc does not know it."""
    program: Path | None = None
    """The doctor's CUDA program, built by nvcc."""
    program_s: float | None = None
    """How long a plain run of it took."""
    module: Module | None = None
    """The doctor's kernel alone."""
    runner: ProbeRunner | None = None
    side: Side | None = None
    """The kernel, ready to be launched."""
    measured: MeasureReply | None = None
    ncu: Path | None = None
    ncu_version: tuple[int, int] | None = None
    ncu_is_old: bool = False
    """It came with a CUDA older than the driver's."""
    report: Path | None = None
    """What ncu wrote of the doctor's program."""
    is_vgpu: bool = False
    permission_remedy: str | None = None
    """What opens the counters to this process; None where nothing needs to."""

    @property
    def device(self) -> CudaDevice:
        """The one cudaops uses: CUDA's first."""
        return self.devices[0]

    @property
    def sm_arch(self) -> str:
        """Of the GPU, else the default."""
        return self.device.sm_arch if self.devices else DEFAULT_ARCH

    @property
    def gpu(self) -> Gpu | None:
        """nvidia-smi's row of that GPU."""
        if self.smi is None or not self.devices:
            return None
        same = [gpu for gpu in self.smi.gpus if gpu.uuid == self.device.uuid]
        return next(iter(same or (self.smi.gpus if len(self.smi.gpus) == 1 else ())), None)


T = TypeVar("T")
Check = Callable[[CheckContext], CheckOutcome]


class PlannedCheck(NamedTuple):
    """One rung before it was tried."""

    name: str
    check: Check
    needed_by: tuple[ExecutorName, ...] = ()
    stands_on: tuple[str, ...] = ()
    """Rungs that must be ok for this one to be tried."""
    bound_s: float = 10.0
    """Given up after this long."""


def climb(steps: Sequence[PlannedCheck], machine: Machine, settings: Settings) -> Iterator[Rung]:
    """Try the steps in order; those above one that is not ok are not tried."""
    done: dict[str, Rung] = {}
    with tempfile.TemporaryDirectory(prefix="cudaops-doctor", ignore_cleanup_errors=True) as name:
        site = CheckContext(machine, settings, Path(name))
        try:
            for step in steps:
                done[step.name] = rung = _try(step, site, done)
                yield rung
        finally:
            if site.runner is not None:
                with contextlib.suppress(TimeoutError):
                    _within(END_S, site.runner.close)


def _try(step: PlannedCheck, site: CheckContext, done: dict[str, Rung]) -> Rung:
    below = [done[name] for name in step.stands_on if done[name].status != "ok"]
    roots = tuple(
        dict.fromkeys(root for rung in below for root in (rung.blocked_by or (rung.name,)))
    )
    started = time.monotonic()
    if roots:
        found = CheckOutcome("skipped", f"not tried: needs {' and '.join(roots)}")
    else:
        found = _found(step, site)
    return Rung(
        name=step.name,
        needed="cpu" in step.needed_by,
        needed_by=step.needed_by,
        status=found.status,
        detail=found.detail,
        remedy=found.remedy,
        blocked_by=roots,
        seconds=round(time.monotonic() - started, 3),
    )


def _found(step: PlannedCheck, site: CheckContext) -> CheckOutcome:
    try:
        return _within(step.bound_s, lambda: step.check(site))
    except TimeoutError:
        return failed(
            f"gave no answer within {step.bound_s:g} s",
            "try again when the machine is idle; if it persists, the probe hangs",
        )
    except PrerequisiteError as error:
        return missing(error.problem, error.remedy)
    except EnvironmentFailure as error:
        return failed(error.problem, error.remedy)
    except (CudaOpsError, OSError) as error:
        return failed(str(error))
    except Exception as error:  # noqa: BLE001  one check's fault must not hide the other rungs
        return failed(
            f"this check is at fault: {type(error).__name__}: {error}",
            "report it as a bug of cudaops, with this line and the output of --json",
        )


def _within(seconds: float, check: Callable[[], T]) -> T:
    """What the check returns or raises. Raises TimeoutError; the check is then left to itself."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(check())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            future.set_exception(error)

    threading.Thread(target=work, name="doctor", daemon=True).start()
    return future.result(timeout=seconds)


STYLES = {"ok": "green", "missing": "yellow", "failed": "red", "skipped": "dim"}


def table(examination: Examination) -> RenderableType:
    """One row a rung; those that were not tried for the same reason share one."""
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in range(3):
        rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for row in _table_rows(examination.rungs):
        rows.add_row(*row)
    return Group(rows, Text(""), *_verdict(examination))


def _table_rows(rungs: tuple[Rung, ...]) -> Iterator[tuple[Text, Text, Text, Text]]:
    for rung in rungs:
        if not rung.blocked_by:
            yield _table_row(rung)
            continue
        together = [other for other in rungs if other.blocked_by == rung.blocked_by]
        if together[0] is rung:
            yield _skipped(together)


def _skipped(together: list[Rung]) -> tuple[Text, Text, Text, Text]:
    names = ", ".join(rung.name for rung in together)
    several = len(together) > 1
    return (
        Text("skipped", style=STYLES["skipped"]),
        Text(f"{len(together)} checks" if several else names, style="dim"),
        Text(""),
        Text(f"{together[0].detail}{f': {names}' if several else ''}", style="dim"),
    )


def _table_row(rung: Rung) -> tuple[Text, Text, Text, Text]:
    style = "bold red" if rung.needed and rung.status != "ok" else STYLES[rung.status]
    detail = Text(one_line(rung.detail))
    if rung.remedy:
        detail.append(f"\n{one_line(rung.remedy)}", style="cyan")
    return Text(rung.status, style=style), Text(rung.name), Text(_kind(rung), style="dim"), detail


def _kind(rung: Rung) -> str:
    if rung.needed:
        return "needed"
    return f"for {', '.join(rung.needed_by)}" if rung.needed_by else "optional"


def _verdict(examination: Examination) -> Iterator[Text]:
    if not examination.ready:
        yield Text("Not ready: fix the required checks that failed.", style="bold red")
        return
    yield Text("Ready: python -m cudaops run FILE.cu works here.", style="bold green")
    if "cuda" in examination.executors:
        yield Text("--executor cuda works here: times are measured.", style="bold green")
        return
    broken = [
        rung.name
        for rung in examination.rungs
        if "cuda" in rung.needed_by and rung.status in ("missing", "failed")
    ]
    yield Text(f"--executor cuda does not work here: {', '.join(broken)}.", style="yellow")
