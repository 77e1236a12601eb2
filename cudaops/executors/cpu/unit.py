"""One run of a unit in a child process: memory before, the launches, what comes out.

A series is several runs in one child: what a kernel keeps in its own variables stays between them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Misbehaved, Ran, Unit
from cudaops.domain.rewrite import BufferValue, ResolvedLaunch, ResolvedPlan, Value
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    Allocation,
    DeviceMemory,
    Element,
    GlobalState,
    Workload,
)
from cudaops.executors.arrays import write_widened
from cudaops.executors.base import InputSet, Trial, Tried
from cudaops.executors.cpu.build import BASELINE_ENTRY, own_variables, shared_guards
from cudaops.executors.cpu.report import (
    CheckerReport,
    ReportNames,
    bad_report,
    find_fault,
    find_warnings,
    read_report,
)
from cudaops.executors.fields import write_widened_fields
from cudaops.executors.isolation.phases import Confinement, limits_of
from cudaops.executors.process import run_bounded
from cudaops.executors.untrusted_files import (
    UntrustedFileError,
    discard,
    untrusted_size,
    write_fresh,
)
from cudaops.program.clusters import authors_cluster
from cudaops.program.cooperative import author_waits, step_waits
from cudaops.storage import raise_for_space

WIDENED_BY: dict[Element, int] = {"f32": 2, "f16": 4, "bf16": 4}
"""Bytes of a double per byte of the element it stands for."""
WIDE_DOUBLE_BY = 2
"""Bytes of a `long double` per byte of a double, on x86-64 and aarch64."""
ALIGNMENT = 256
"""Of every allocation. Source: CUDA C++ Programming Guide, device memory accesses."""
_WIDE_SHARED = 4
"""A widened kernel may need this many times its shared memory (all of it half)."""


def widened_by(unit: Unit, element: Element) -> int:
    """Times that a buffer is larger in this unit."""
    if not unit.widened:
        return 1
    if element == "f64" and unit.wide_doubles:
        return WIDE_DOUBLE_BY
    return WIDENED_BY.get(element, 1)


def bytes_in(unit: Unit, memory: DeviceMemory, size_bytes: int) -> int:
    """What so many bytes of it, from its start on, take in this unit."""
    stride, wide_stride = memory.structure_bytes, memory.wide_structure_bytes
    if unit.widened and stride is not None and wide_stride is not None:
        return size_bytes // stride * wide_stride + size_bytes % stride
    return size_bytes * widened_by(unit, memory.element)


class UnitTask(NamedTuple):
    """A run, whatever it is for."""

    unit: Unit
    executable: Path
    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet
    folder: Path
    timeout_s: float
    workers: int
    env: dict[str, str]
    dynamic_limit: int
    """Most bytes of dynamic shared memory a launch may ask for."""
    blocks: tuple[int, ...] | None = None
    """Linear indices of the only blocks to run; None runs all."""
    launch: int = -1
    """Index in the plan of the launch that `blocks` restricts: those before run whole, those after
    not at all. -1 restricts every launch."""
    wanted: Collection[int] | None = None
    """Allocations whose contents are written afterwards; None: all."""
    more: tuple[InputSet, ...] = ()
    """Inputs of the further runs of a series, in the same child."""

    @property
    def variables(self) -> tuple[GlobalState, ...]:
        """Those that are set before the launches and dumped after them."""
        return variables_in(self.unit, self.workload)


class Outcome(NamedTuple):
    """A child that came to its end."""

    ran: Ran
    report: CheckerReport


class _Ended(NamedTuple):
    """A child that is gone, whatever it did."""

    report: CheckerReport
    seconds: float
    fault: Misbehaved | None


def run_task(task: UnitTask) -> Outcome | Misbehaved:
    """Write the specification, run the child, read its report."""
    folder = task.folder.absolute()
    _make_folders(folder)
    ended = _run_child(task, [*_head(task), *_launch(task, task.inputs, folder)])
    if ended.fault is not None:
        return ended.fault
    if (wrong := _wrong_output(task, folder, "")) is not None:
        return wrong
    warnings = find_warnings(ended.report, task.executable, names_of(task))
    ran = _ran(task, folder, ended.seconds, warnings)
    if unfollowed := ended.report.all("unfollowed"):
        reason = " ".join(unfollowed[0])[:200]
        text = f"races on global memory were looked for in part of the run: {reason}"
        ran = ran.model_copy(update={"checked": text})
    return Outcome(ran, ended.report)


def run_series(task: UnitTask) -> tuple[Ran, ...] | Misbehaved:
    """The plan once for `task.inputs` and for each of `task.more`, in this order, in one child.

    Outputs land in `launch_00`, `launch_01`, ... of the task's folder. The inputs are such as
    `check_series` allows.
    """
    runs = (task.inputs, *task.more)
    folders = [launch_folder(task.folder.absolute(), number) for number in range(len(runs))]
    _make_folders(task.folder.absolute(), *folders)
    lines = _head(task)
    for inputs, folder in zip(runs, folders, strict=True):
        lines.append(f"place {inputs.shift_bytes}")
        lines += _launch(task, inputs, folder, keep_scratch=inputs.keep_scratch)
    ended = _run_child(task, lines)
    if ended.fault is not None:
        begun = min(len(ended.report.all("began")), len(runs))
        return in_launch(ended.fault, begun, len(runs)) if begun else ended.fault
    for number, folder in enumerate(folders):
        if (wrong := _wrong_output(task, task.folder.absolute(), f"{folder.name}/")) is not None:
            return in_launch(wrong, number + 1, len(runs))
    each_s = ended.seconds / len(runs)
    return tuple(_ran(task, folder, each_s, ()) for folder in folders)


def run_trials(task: UnitTask, trials: Sequence[Trial], limit_s: float) -> tuple[Tried, ...]:
    """Launches of a series with arguments and sizes of their own. One that ends its child ends no
    other: the next child goes on behind it."""
    folder = task.folder.absolute()
    folders = [launch_folder(folder, number) for number in range(len(trials))]
    _make_folders(folder, *folders)
    until = time.monotonic() + task.timeout_s
    found: list[Tried] = []
    while len(found) < len(trials):
        left_s = until - time.monotonic()
        if left_s <= 0:
            text = f"was not reached within {task.timeout_s:g} s"
            rest = [Misbehaved(what="timeout", message=text)] * (len(trials) - len(found))
            return (*found, *(Tried(one) for one in rest))
        found += _tried(task._replace(timeout_s=left_s), trials, folders, len(found), limit_s)
    return tuple(found)


def _tried(
    task: UnitTask, trials: Sequence[Trial], folders: Sequence[Path], first: int, limit_s: float
) -> list[Tried]:
    """Those from `first` on that one child came to."""
    own = " ".join(f"{at}:{size}" for at, size in own_variables(task.executable))
    if own:
        task = task._replace(env={**task.env, "CUDAOPS_OWN": own})
    lines = [*_head(task), f"limit {limit_s:g}"]
    for trial, folder in zip(trials[first:], folders[first:], strict=True):
        lines.append(f"place {trial.inputs.shift_bytes}")
        lines += _launch(_of(task, trial), trial.inputs, folder)
    ended = _run_child(task, lines)
    parts = _by_launch(ended.report)
    if ended.fault is not None and not parts:
        return [Tried(ended.fault)]
    found = []
    for number, part in enumerate(parts[: len(trials) - first], first):
        one, folder = _of(task, trials[number]), folders[number]
        last = number - first == len(parts) - 1
        fault = ended.fault if last else None
        fault = fault or _wrong_output(one, folder.parent, f"{folder.name}/")
        warnings = () if fault else find_warnings(part, task.executable, names_of(one))
        outcome = fault or _ran(one, folder, 0.0, warnings)
        counted = [int(line[0]) for line in part.all("accesses")]
        reached = {int(line[0]): int(line[1]) for line in part.all("reached")}
        left, over = (bool(part.all(verb)) for verb in ("kept", "overflow"))
        found.append(Tried(outcome, counted[0] if counted else None, reached, left, over))
    return found


def _of(task: UnitTask, trial: Trial) -> UnitTask:
    return task._replace(workload=trial.workload, plan=trial.plan, inputs=trial.inputs)


def _by_launch(report: CheckerReport) -> list[CheckerReport]:
    """A series' report, cut where a launch began."""
    parts: list[list[tuple[str, ...]]] = []
    for line in report.lines:
        if line[0] == "began":
            parts.append([])
        elif parts:
            parts[-1].append(line)
    return [CheckerReport(tuple(part)) for part in parts]


def check_series(inputs: Sequence[InputSet]) -> None:
    """Raise ValueError where `Executor.run_series` cannot run on these."""
    if not inputs:
        raise ValueError("a series needs at least one input set")
    if any(one.shift_bytes < 0 or one.shift_bytes % ALIGNMENT for one in inputs):
        raise ValueError(f"a shift must be a multiple of {ALIGNMENT} bytes")
    standing: int | None = None
    for one in inputs:
        if one.keep_scratch and one.shift_bytes != standing:
            raise ValueError("keep_scratch needs a launch before at the same shift_bytes")
        standing = one.shift_bytes


def launch_folder(folder: Path, number: int) -> Path:
    """Where the outputs of one launch of a series land; counted from 0."""
    return folder / f"launch_{number:02d}"


def in_launch(fault: Misbehaved, number: int, count: int) -> Misbehaved:
    """The same fault with the launch of a series that it happened in, counted from 1."""
    text = f"in launch {number} of {count}: {fault.message}"
    return fault.model_copy(update={"message": text})


def _make_folders(*folders: Path) -> None:
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise_for_space(problem, f"writing to {folders[0]}")
        raise


def _run_child(task: UnitTask, specification: Sequence[str]) -> _Ended:
    folder = task.folder.absolute()
    report_path = folder / "report.tsv"
    try:
        discard(report_path)
        write_fresh(folder / "spec.txt", "\n".join(specification) + "\n")
    except OSError as problem:
        raise_for_space(problem, f"writing to {folder}")
        raise
    env = {
        "CUDAOPS_REPORT": str(report_path),
        "CUDAOPS_WORKERS": str(task.workers),
        "CUDAOPS_SHARED_GUARDS": " ".join(str(at) for at in shared_guards(task.executable)),
        **task.env,
    }
    command = [str(task.executable), str(folder / "spec.txt")]
    usual = limits_of("kernel")
    entries = usual.disk_entries + len(specification)  # it is asked for a file a line at most
    limits = usual._replace(disk_entries=entries)
    confine = Confinement("kernel", _read_by(specification), (folder,), limits=limits)
    done = run_bounded(
        command, cwd=folder, timeout_s=task.timeout_s, env=env, tool="kernels", confine=confine
    )
    report = read_report(report_path)
    fault = find_fault(report, done, task.executable, names_of(task), task.timeout_s)
    if fault is None and (done.exit_code != 0 or not report.all("ok")):
        text = f"the kernel ended its process with exit code {done.exit_code}"
        fault = Misbehaved(what="exit_code", message=text, log=done.stderr[-4096:])
    return _Ended(report, done.seconds, fault)


def _read_by(specification: Sequence[str]) -> tuple[Path, ...]:
    """Files that the child is told to read."""
    return tuple(Path(line.split(" file ", 1)[1]) for line in specification if " file " in line)


def _wrong_output(task: UnitTask, folder: Path, within: str) -> Misbehaved | None:
    """The code under test ran in the process that wrote the outputs and may have put anything in
    their place; from here on others read them by name. `within` `folder`, with a slash."""
    sizes = {
        f"{within}out{a.index}.bin": bytes_in(task.unit, a, a.size_bytes) for a in _wanted(task)
    }
    try:
        for name, size in sizes.items():
            if (found := untrusted_size(folder, name)) != size:
                raise UntrustedFileError(name, f"holds {found} bytes instead of {size}")
        for number, variable in enumerate(task.variables):
            name = f"{within}{_global_file(number)}"
            size = bytes_in(task.unit, variable, variable.size_bytes)
            if (found := untrusted_size(folder, name)) != size:
                raise UntrustedFileError(name, f"holds {found} bytes instead of {size}")
    except UntrustedFileError as wrong:
        return bad_report(f"output {wrong}")
    return None


def _wanted(task: UnitTask) -> list[Allocation]:
    every = task.workload.allocations
    return [a for a in every if task.wanted is None or a.index in task.wanted]


def _ran(task: UnitTask, folder: Path, seconds: float, warnings: tuple[Misbehaved, ...]) -> Ran:
    written = sorted(a.index for a in _wanted(task))
    return Ran(
        outputs={i: str(folder / f"out{i}.bin") for i in written},
        global_outputs={
            g.name: str(folder / _global_file(n)) for n, g in enumerate(task.variables)
        },
        seconds=seconds,
        warnings=warnings,
    )


def captured_inputs(workload: Workload) -> InputSet:
    """The contents that stood before the captured launch."""
    folder = Path(workload.folder).absolute()
    return InputSet(contents={a.index: str(folder / a.before) for a in workload.allocations})


def names_of(task: UnitTask) -> ReportNames:
    """What the author calls the things that a message of the runtime numbers."""
    program = task.unit.program
    parameters = {k.name: tuple(p.name for p in k.parameters) for k in program.kernels}
    parameters[task.unit.callee] = parameters.get(task.unit.kernel, ())
    allocations: dict[int, str] = {}
    for pointer in task.workload.pointers():
        allocations.setdefault(pointer.allocation, pointer.name)
    for number, name in enumerate(task.plan.scratch_bytes):
        allocations[-2 - number] = name
    launched: set[tuple[str, ...]] = set()
    for launch in task.plan.launches:
        if task.unit.rewrite is not None and task.plan.applicable:
            step = task.unit.rewrite.plan.launches[launch.step]
            parameters[step.kernel] = step.args
            launched.add(step.args)
    if len(launched) == 1:  # a guard is found overwritten after the kernel, when none is named
        parameters[""] = launched.pop()
    sizes = {
        a.index: ELEMENT_BYTES[a.element] * widened_by(task.unit, a.element)
        for a in task.workload.allocations
    }
    return ReportNames(tuple(f.path for f in program.files), parameters, allocations, sizes)


def _head(task: UnitTask) -> list[str]:
    """What holds for every launch of the child."""
    lines = [f"shared {task.dynamic_limit * (_WIDE_SHARED if task.unit.widened else 1)}"]
    if task.blocks is not None:
        lines.append(f"blocks {task.launch} " + " ".join(str(b) for b in sorted(set(task.blocks))))
    return lines


def _launch(
    task: UnitTask, inputs: InputSet, folder: Path, *, keep_scratch: bool = False
) -> list[str]:
    """Memory before, the plan's launches, and what is written to `folder` afterwards."""
    wide = task.unit.widened
    lines = [_allocation(task.unit, inputs, a) for a in task.workload.allocations]
    how = "keep" if keep_scratch else f"fill {inputs.scratch_poison}"
    for name, size in task.plan.scratch_bytes.items():
        lines.append(f"scratch {name} {size * (2 if wide else 1)} {how}")
    lines += [_global(task, g, folder, n) for n, g in enumerate(task.variables)]
    lines += [
        f"was {a.index} {a.address} {a.size_bytes} {widened_by(task.unit, a.element)} "
        f"{int(a.holds_pointers)}"
        for a in task.workload.allocations
        if a.address is not None
    ]
    lines += _launches(task)
    lines += [f"dump {a.index} {folder / f'out{a.index}.bin'}" for a in _wanted(task)]
    lines += [f"gdump {g.name} {folder / _global_file(n)}" for n, g in enumerate(task.variables)]
    return lines


def _allocation(unit: Unit, inputs: InputSet, allocation: Allocation) -> str:
    head = f"alloc {allocation.index} {bytes_in(unit, allocation, allocation.size_bytes)} "
    if allocation.index in inputs.poison:
        return head + f"fill {inputs.poison[allocation.index]}"
    return head + f"file {Path(inputs.contents[allocation.index]).absolute()}"


def _global_file(number: int) -> str:
    return f"global{number}.bin"


def _global(task: UnitTask, state: GlobalState, folder: Path, number: int) -> str:
    before = contents_before(task.unit, task.workload, state, folder / f"wide{number}.bin")
    return f"global {state.name} file {before}"


def variables_in(unit: Unit, workload: Workload) -> tuple[GlobalState, ...]:
    """Variables whose contents are known as this unit has them: of a widened unit not those of
    another layout that the kernel does not name."""
    if not unit.widened:
        return workload.globals
    return tuple(g for g in workload.globals if g.can_widen(wide_doubles=unit.wide_doubles))


def contents_before(unit: Unit, workload: Workload, state: GlobalState, wide: Path) -> Path:
    """File with the contents of a variable before the launch; made at `wide` for a widened unit."""
    before = Path(workload.folder).absolute() / state.before
    if not unit.widened:
        return before
    has_fields = bool(state.fields) and state.can_widen(wide_doubles=unit.wide_doubles)
    if not has_fields and widened_by(unit, state.element) == 1:
        return before
    wide.parent.mkdir(parents=True, exist_ok=True)
    discard(wide)
    if has_fields:
        write_widened_fields(wide, before, state)
    else:
        write_widened(wide, before, state.element)
    return wide


def _launches(task: UnitTask) -> list[str]:
    baseline = task.unit.rewrite is None or not task.plan.applicable
    lines = []
    for launch in task.plan.launches:
        entry = BASELINE_ENTRY if baseline else launch.step
        g, b = launch.grid, launch.block
        smem = launch.dynamic_smem_bytes * (2 if task.unit.widened else 1)
        lines.append(f"launch {entry} {g.x} {g.y} {g.z} {b.x} {b.y} {b.z} {smem}")
        if waits_for_grid(task.unit, task.plan, launch):
            lines.append("together")
        elif (c := launched_cluster(task.unit, task.plan, launch)) is not None:
            lines.append(f"cluster {c.x} {c.y} {c.z}")
        lines += [f"value {_value(v, task)}" for v in launch.values]
    return lines


def launched_cluster(unit: Unit, plan: ResolvedPlan, launch: ResolvedLaunch) -> Dim3 | None:
    """The blocks that run together in a launch of a plan: the cluster of its kernel, or the grid
    where that waits for itself; None: each by itself. Raises InputError where the author's cluster
    is no number."""
    if waits_for_grid(unit, plan, launch):
        return launch.grid
    if unit.rewrite is not None and plan.applicable:
        return launch.cluster
    return authors_cluster(unit.program, unit.program.kernel(unit.kernel))


def waits_for_grid(unit: Unit, plan: ResolvedPlan, launch: ResolvedLaunch) -> bool:
    """Whether the kernel that a launch of a plan is of waits for its whole grid."""
    if unit.rewrite is not None and plan.applicable:
        return step_waits(unit.rewrite, launch.step)
    return author_waits(unit.program, unit.program.kernel(unit.kernel))


def _value(value: Value, task: UnitTask) -> str:
    if value.kind == "null":
        return "null"
    if value.kind == "raw":
        placed = (f" {p.at_bytes} {_buffer(p.to, task)}" for p in value.pointers)
        return f"raw {value.raw_hex}" + "".join(placed)
    if value.kind == "number":
        number = value.value
        return f"int {int(number)}" if isinstance(number, int) else f"float {number!r}"
    return _buffer(value, task)


def _buffer(value: BufferValue, task: UnitTask) -> str:
    if value.allocation is None:
        return f"scratch {value.scratch} {value.offset_bytes * (2 if task.unit.widened else 1)}"
    allocation = next(a for a in task.workload.allocations if a.index == value.allocation)
    return f"buffer {value.allocation} {bytes_in(task.unit, allocation, value.offset_bytes)}"
