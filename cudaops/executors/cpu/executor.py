"""The `cpu` executor: the author's source compiled by g++ against our model of CUDA's execution."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from cudaops.cuda.devices import device as device_named
from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    Compiled,
    CompileFailed,
    InLockstep,
    Measurement,
    Misbehaved,
    ProgramOutcome,
    Ran,
    TimeSource,
    Unit,
    UnorderedAccess,
)
from cudaops.domain.instructions import KernelInstructions
from cudaops.domain.judgement import IsolationLevel
from cudaops.domain.options import ExecutorName, WarmUps
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import PrerequisiteError
from cudaops.executors.base import Branches, Check, InputSet, Rounding, Trial, Tried
from cudaops.executors.cpu.build import Built, as_compiled, build_unit, project_tools
from cudaops.executors.cpu.coverage import branches
from cudaops.executors.cpu.order import (
    Order,
    captured_again,
    is_independent_of_thread_order,
    order_in_lockstep,
    order_of,
    orders_of,
)
from cudaops.executors.cpu.program import ProgramRunner, lockstep_env
from cudaops.executors.cpu.report import find_unordered
from cudaops.executors.cpu.toolchain import AS_WRITTEN_FLAGS, Build, find_toolchain
from cudaops.executors.cpu.unit import (
    UnitTask,
    captured_inputs,
    check_series,
    names_of,
    run_series,
    run_task,
    run_trials,
)
from cudaops.executors.cuda.toolchain import find_nvcc, nvcc_version
from cudaops.executors.isolation.level import level_of, lowest
from cudaops.executors.project.tree import open_project
from cudaops.program.plans import baseline_plan

TRACE_REPORT = "trace.json"


class CpuExecutor:
    """Implements `Executor` on this machine's processor."""

    name: ExecutorName = "cpu"
    time_source: TimeSource = "modelled"

    def __init__(
        self,
        device: str,
        cache_folder: Path,
        workers: int | None = None,
        program_folder: Path | None = None,
    ) -> None:
        """`program_folder`: where whole programs run and find their files; default: here.

        Raises InputError: unknown device.
        """
        known = device_named(device)
        self.device = known.name
        self.program_folder = program_folder
        self.cache = cache_folder.absolute()
        self.workers = workers or len(os.sched_getaffinity(0))
        self.shared_optin = known.shared_bytes_per_block_optin

    @property
    def isolation(self) -> IsolationLevel:
        """Of compilers, kernels and whole programs."""
        return lowest(level_of("compile"), level_of("kernel"), level_of("program"))

    @property
    def processor(self) -> CpuExecutor:
        """See `Executor.processor`."""
        return self

    def check_available(self) -> None:
        """Raise PrerequisiteError, with the command that installs what is missing."""
        find_toolchain()
        for tool in ("addr2line", "nm"):
            if shutil.which(tool) is None:
                raise PrerequisiteError(
                    f"{tool} is not installed", "install binutils: `apt-get install binutils`"
                )

    def open_project(
        self,
        folder: Path,
        source: Path | None,
        command: str,
        executable: str | None,
        *,
        compiles: bool = True,
    ) -> Program:
        """See `Executor.open_project`: compiled by g++ with cudaops' own headers and runtime."""
        tools = project_tools(self.cache)
        tools = tools if compiles else tools.noting_only()
        return open_project(self.cache, folder, source, command, executable, tools)

    def capture(
        self,
        program: Program,
        kernel: str | None,
        argv: tuple[str, ...],
        folder: Path,
        timeout_s: float,
        *,
        whole: bool = True,
        whole_s: float = 0.0,
        launch_s: float = 0.0,
        warm_ups: WarmUps = "auto",
    ) -> CaptureOutcome:
        """See `Executor.capture`."""
        return self._program(program, argv, timeout_s).capture(
            kernel,
            folder,
            whole=whole,
            whole_s=whole_s,
            launch_s=launch_s,
            warm_ups=warm_ups,
        )

    def as_reference(
        self,
        program: Program,
        kernel: str | None,
        found: Captured | Misbehaved,
        argv: tuple[str, ...],
        folder: Path,
        timeout_s: float,
        *,
        warm_ups: WarmUps = "auto",
    ) -> CaptureOutcome:
        """See `Executor.as_reference`. A kernel whose result the order of lanes decides is captured
        again in lockstep."""
        captured: CaptureOutcome = found
        if isinstance(found, Misbehaved) and found.what == "exit_code":
            why = self._program(program, argv, timeout_s).why_wrong()
            if isinstance(why, Misbehaved):
                return why.model_copy(update={"message": f"{why.message}; {found.message}"})
            right = self._program(program, argv, timeout_s, why)
            captured = right.capture(kernel, folder, warm_ups=warm_ups) if why else found
        if not isinstance(captured, Captured) or not captured.workloads:
            return found
        order = order_of(self, program, captured, folder, timeout_s)
        if order.lockstep is None:
            return captured.model_copy(update=order.fields)
        together = self._program(program, argv, timeout_s, order.lockstep)
        capture = partial(together.capture, warm_ups=warm_ups)
        again = captured_again(capture, captured, folder)
        if not isinstance(again, Captured):
            reason = f"in lockstep the program does not run to its end: {again.placed}"
            return captured.model_copy(update={**order.fields, "undecided": reason})
        settled = order_in_lockstep(self, program, again, order, folder, timeout_s)
        return again.model_copy(update=settled.fields)

    def run_program(
        self,
        program: Program,
        argv: tuple[str, ...],
        timeout_s: float,
        *,
        lockstep: InLockstep | None = None,
        output: Path | None = None,
        until_pause: bool = False,
        clock_rate: float = 1.0,
    ) -> ProgramOutcome:
        """See `Executor.run_program`."""
        return self._program(program, argv, timeout_s, lockstep).run(output, clock_rate)

    def prepare(self, program: Program) -> None:
        """Nothing: every core is at work on the kernels already."""

    def compile(self, unit: Unit, *, draft: bool = False) -> Compiled | CompileFailed:
        """See `Executor.compile`. 0.2 to 0.6 s; the first also builds the runtime. A draft is what
        the model of time samples; what runs it builds what it needs."""
        if draft:
            from cudaops.executors.cpu.profile import build_traced

            sampled = build_traced(self, unit)
            if isinstance(sampled, Compiled):
                return sampled
        return self._compiled(unit, build_unit(self.cache, unit))

    def run(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: InputSet,
        folder: Path,
        *,
        check: Check = "none",
        wanted: Collection[int] | None = None,
        timeout_s: float = 60.0,
        blocks: Sequence[int] | None = None,
    ) -> Ran | Misbehaved:
        """See `Executor.run`. `blocks` (linear indices) restricts the run to these blocks.

        A memory fault of an unchecked run is looked at again with the checker, which names the
        access and its line.
        """
        given = compiled.unit, workload, plan, inputs, folder
        outcome = self._run(*given, check, timeout_s, blocks, wanted)
        if (
            isinstance(outcome, Misbehaved)
            and check == "none"
            and outcome.what in ("out_of_bounds", "guard_overwritten")
        ):
            named = self._run(*given, "memory", timeout_s, blocks, wanted)
            if isinstance(named, Misbehaved) and named.what == "out_of_bounds":
                return named
        return outcome

    def run_series(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: Sequence[InputSet],
        folder: Path,
        *,
        timeout_s: float = 60.0,
    ) -> tuple[Ran, ...] | Misbehaved:
        """See `Executor.run_series`. One child process."""
        check_series(inputs)
        first, *more = inputs
        task = self._task(compiled.unit, "none", workload, plan, first, folder, timeout_s, None)
        return task if isinstance(task, Misbehaved) else run_series(task._replace(more=tuple(more)))

    def run_trials(
        self,
        compiled: Compiled,
        trials: Sequence[Trial],
        folder: Path,
        *,
        check: Check = "none",
        last_first: bool = False,
        rounding: Rounding = "nearest",
        most_accesses: int | None = None,
        limit_s: float = 2.0,
        timeout_s: float = 60.0,
    ) -> tuple[Tried, ...]:
        """See `Executor.run_trials`. One child, and one more for each that ends it."""
        if not trials:
            return ()
        first, unit = trials[0], compiled.unit
        given = first.workload, first.plan, first.inputs, folder, timeout_s, None
        task = self._task(unit, check, *given)
        if isinstance(task, Misbehaved):
            return tuple(Tried(task) for _ in trials)
        if last_first:
            task = task._replace(env={**task.env, "CUDAOPS_ORDER": orders_of(unit)})
        if rounding != "nearest":
            task = task._replace(env={**task.env, "CUDAOPS_ROUNDING": rounding})
        if most_accesses is not None:
            task = task._replace(env={**task.env, "CUDAOPS_MOST_ACCESSES": str(most_accesses)})
        return run_trials(task, trials, limit_s)

    def branches(
        self,
        compiled: Compiled,
        trials: Sequence[Trial],
        counted: Callable[[str, int], bool],
        folder: Path,
        timeout_s: float = 60.0,
    ) -> Branches | None:
        """See `Executor.branches`; `coverage` counts them."""
        return branches(self, compiled, trials, counted, folder, timeout_s)

    def run_built(
        self,
        built: Compiled,
        trials: Sequence[Trial],
        folder: Path,
        env: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """Trials in a build of its own, on one worker, for what it writes by itself."""
        first = trials[0]
        task = UnitTask(
            built.unit, Path(built.folder) / "unit", first.workload, first.plan, first.inputs,
            folder, timeout_s, 1, dict(env), self.shared_optin, wanted=(),
        )  # fmt: skip
        run_trials(task, trials, timeout_s)

    def measure(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        timeout_s: float = 120.0,
    ) -> Measurement | Misbehaved:
        """Modelled time of the plan: see `profile.measure`."""
        from cudaops.executors.cpu import profile

        return profile.measure(self, compiled, workload, plan, timeout_s=timeout_s)

    def measure_pair(
        self,
        baseline: Compiled,
        candidate: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        ranked: bool = False,
        thorough: bool = False,
        alternatives: Sequence[InputSet] = (),
        folder: Path | None = None,
        timeout_s: float = 120.0,
    ) -> tuple[Measurement, Measurement] | Misbehaved:
        """One after the other: modelled times do not drift.

        Nothing is timed, so there is no result of a timed launch: the launches whose accesses are
        counted are those of the correctness gates' own build, and decide nothing but the model.
        """
        first = self.measure(baseline, workload, baseline_plan(workload), timeout_s=timeout_s)
        if isinstance(first, Misbehaved):
            return first
        second = self.measure(candidate, workload, plan, timeout_s=timeout_s)
        return second if isinstance(second, Misbehaved) else (first, second)

    def profile(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        every_metric: bool = False,
        timeout_s: float = 120.0,
    ) -> Profile | Misbehaved:
        """Modelled metrics of the plan's dominant launch: see `profile.profile`."""
        from cudaops.executors.cpu import profile

        return profile.profile(self, compiled, workload, plan, timeout_s=timeout_s)

    def instructions(self, compiled: Compiled) -> tuple[KernelInstructions, ...] | str:
        """See `Executor.instructions`. What runs here are those of a processor."""
        return "nothing was built for a GPU"

    def tools(self) -> Mapping[str, str]:
        """The compilers; nvcc where it is there, which the time model asks for registers."""
        tools = {"g++": find_toolchain().version}
        if (nvcc := find_nvcc()) is not None:
            with contextlib.suppress(PrerequisiteError):  # one that does not work is not asked
                tools["nvcc"] = nvcc_version(nvcc)
        return tools

    def build_instrumented(
        self, unit: Unit, compile_extra: Sequence[str] = ()
    ) -> Compiled | CompileFailed:
        """The unit with every access going to `cudaops/trace.h`."""
        return self._compiled(unit, build_unit(self.cache, unit, "traced", compile_extra))

    def run_instrumented(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        blocks: Sequence[int],
        folder: Path,
        timeout_s: float,
        launch: int = 0,
        neighbours: Sequence[int] = (),
    ) -> Path | Misbehaved:
        """Trace these blocks of one launch of the plan on the captured inputs; the report's path.

        Launches before it run whole and untraced, launches after it not at all. `neighbours` are
        further blocks of which only what they touch is kept.
        """
        target = folder.absolute() / TRACE_REPORT
        env = {
            "CUDAOPS_TRACE_REPORT": str(target),
            "CUDAOPS_TRACE_UNCOUNTED": " ".join(str(b) for b in neighbours),
            "CUDAOPS_TRACE_CONSTANT": " ".join(
                v.qualified_name
                for v in compiled.unit.program.global_variables
                if v.space == "constant"
            ),
        }
        traced = (*blocks, *neighbours)
        outcome = self.run_counted(compiled, workload, plan, traced, folder, timeout_s, env, launch)
        return outcome if isinstance(outcome, Misbehaved) else target

    def build_counted(
        self, unit: Unit, compile_extra: Sequence[str], link_extra: Sequence[str] = ()
    ) -> Compiled | CompileFailed:
        """The plain unit with further g++ flags, such as `-fprofile-arcs`, in its key."""
        return self._compiled(
            unit, build_unit(self.cache, unit, "plain", compile_extra, link_extra)
        )

    def run_counted(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        blocks: Sequence[int],
        folder: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        launch: int = 0,
    ) -> Ran | Misbehaved:
        """Run only these blocks of one launch, on one worker, on the captured inputs."""
        # What comes before is run whole, as far as its results are wanted.
        limited = {} if workload.is_judged else {"CUDAOPS_EARLIER_SECONDS": f"{timeout_s / 4:g}"}
        limited["CUDAOPS_LETS_BEYOND"] = "1"  # the gates see to what is out of bounds
        outcome = run_task(
            UnitTask(
                compiled.unit,
                Path(compiled.folder) / "unit",
                workload,
                plan,
                captured_inputs(workload),
                folder,
                timeout_s,
                1,
                {**(env or {}), **limited},
                self.shared_optin,
                tuple(blocks),
                launch,
            )
        )
        return outcome if isinstance(outcome, Misbehaved) else outcome.ran

    def run_ordered(
        self,
        unit: Unit,
        workload: Workload,
        folder: Path,
        timeout_s: float,
        order: Order,
        inputs: InputSet | None,
    ) -> Ran | Misbehaved:
        """The baseline in another order; `inputs` None: on the captured ones. With `all`, a block
        that waits for one of a lower index may wait until the run times out."""
        plan = baseline_plan(workload)
        inputs = inputs or captured_inputs(workload)
        task = self._task(unit, "none", workload, plan, inputs, folder, timeout_s, None)
        if isinstance(task, Misbehaved):
            return task
        outcome = run_task(task._replace(env={**task.env, "CUDAOPS_ORDER": order}))
        return outcome if isinstance(outcome, Misbehaved) else outcome.ran

    def is_independent_of_thread_order(
        self,
        unit: Unit,
        workload: Workload,
        inputs: InputSet,
        outputs: Mapping[int, str],
        folder: Path,
        timeout_s: float,
    ) -> bool:
        """See `Executor.is_independent_of_thread_order`."""
        return is_independent_of_thread_order(
            self, unit, workload, inputs, outputs, folder, timeout_s
        )

    def find_unordered(
        self,
        unit: Unit,
        workload: Workload,
        folder: Path,
        timeout_s: float,
        blocks: Sequence[int] | None,
        changed: Sequence[int],
    ) -> tuple[UnorderedAccess, ...]:
        """Unordered accesses of the baseline on the captured inputs; of global
        memory in the allocations `changed`. Empty where the checker cannot run it."""
        plan, inputs = baseline_plan(workload), captured_inputs(workload)
        task = self._task(unit, "full", workload, plan, inputs, folder, timeout_s, blocks)
        built = build_unit(self.cache, unit, "checked", AS_WRITTEN_FLAGS)
        if isinstance(task, Misbehaved) or isinstance(built, CompileFailed):
            return ()
        env = {"CUDAOPS_CHECK": "order", "CUDAOPS_CHANGED": " ".join(str(n) for n in changed)}
        outcome = run_task(task._replace(executable=built.executable, env=env, workers=1))
        if isinstance(outcome, Misbehaved):
            return ()
        return find_unordered(outcome.report, built.executable, names_of(task))

    def _program(
        self,
        program: Program,
        argv: tuple[str, ...],
        timeout_s: float,
        lockstep: InLockstep | None = None,
    ) -> ProgramRunner:
        where = self.program_folder or Path.cwd()
        return ProgramRunner(
            program, argv, self.cache, self.workers, self.shared_optin, where, timeout_s, lockstep
        )

    def _compiled(self, unit: Unit, built: Built | CompileFailed) -> Compiled | CompileFailed:
        return built if isinstance(built, CompileFailed) else as_compiled(built, unit)

    def _run(
        self,
        unit: Unit,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: InputSet,
        folder: Path,
        check: Check,
        timeout_s: float,
        blocks: Sequence[int] | None,
        wanted: Collection[int] | None,
    ) -> Ran | Misbehaved:
        task = self._task(unit, check, workload, plan, inputs, folder, timeout_s, blocks)
        if isinstance(task, Misbehaved):
            return task
        outcome = run_task(task._replace(wanted=wanted))
        return outcome if isinstance(outcome, Misbehaved) else outcome.ran

    def _task(
        self,
        unit: Unit,
        check: Check,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: InputSet,
        folder: Path,
        timeout_s: float,
        blocks: Sequence[int] | None,
    ) -> UnitTask | Misbehaved:
        build: Build = "plain" if check == "none" else "checked"
        env: dict[str, str] = {"CUDAOPS_CHECK": check}
        if check == "full":
            changed = (str(a.index) for a in workload.allocations if a.role != "in")
            env["CUDAOPS_CHANGED"] = " ".join(changed) or "none"
        authors = unit.rewrite is None or not plan.applicable
        if check == "none" and unit.lockstep is not None and authors:
            build, env = "lockstep", lockstep_env(unit.lockstep)
        built = build_unit(self.cache, unit, build)
        if isinstance(built, CompileFailed):
            return Misbehaved(
                what="crash",
                message=f"does not compile for checking: {built.message}",
                log=built.log,
            )
        return UnitTask(
            unit=unit,
            executable=built.executable,
            workload=workload,
            plan=plan,
            inputs=inputs,
            folder=folder,
            timeout_s=timeout_s,
            workers=self.workers,
            env=env,
            dynamic_limit=self.shared_optin - built.static_shared,
            blocks=None if blocks is None else tuple(blocks),
        )
