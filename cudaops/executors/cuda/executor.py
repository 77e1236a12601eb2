"""The `cuda` executor: cubins launched on this machine's GPU by a trusted runner process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

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
)
from cudaops.domain.instructions import KernelInstructions
from cudaops.domain.judgement import IsolationLevel
from cudaops.domain.options import ClockControl, ExecutorName, WarmUps
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import SandboxUnavailable
from cudaops.executors.base import Branches, Check, Executor, InputSet, Rounding, Trial, Tried
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.unit import captured_inputs, check_series, launch_folder
from cudaops.executors.cuda.build import IMAGE, project_tools
from cudaops.executors.cuda.checking import CheckedPlan
from cudaops.executors.cuda.host import GpuHost
from cudaops.executors.cuda.platform import NVIDIA, Module
from cudaops.executors.cuda.profiling import ProfiledPlan, Profiler
from cudaops.executors.cuda.program import GpuProgram
from cudaops.executors.cuda.protocol import (
    MeasureReply,
    MeasureTask,
    RunReply,
    RunTask,
    SeriesTask,
    Side,
    TimingPolicy,
)
from cudaops.executors.cuda.sass import instructions_of
from cudaops.executors.cuda.session import RunnerSession, expected, settle_gpu_level
from cudaops.executors.cuda.tasks import (
    SEARCH,
    THOROUGH,
    buffers_of,
    dumps_of,
    may_repeat,
    measurements,
    outputs_of,
    series_launch,
    side_of,
    timed_inputs,
    watch_of,
)
from cudaops.executors.isolation.level import level_of, lowest
from cudaops.executors.project.tree import open_project
from cudaops.executors.stopping import in_background
from cudaops.program.plans import baseline_plan

MOST_AHEAD = 4
"""Kernels of a program that are built while it runs: each takes a core for some seconds."""


class CudaExecutor:
    """Implements `Executor` on a GPU, or on a double of its driver."""

    name: ExecutorName = "cuda"

    def __init__(
        self,
        device: str | None,
        cache_folder: Path,
        *,
        driver: str = NVIDIA,
        sm_arch: str | None = None,
        program_folder: Path | None = None,
        clock_control: ClockControl = "none",
        capture_bytes: int | None = None,
    ) -> None:
        """`device` and `sm_arch` None: those of the GPU that is there. `driver`: see `platform`.
        `capture_bytes`: contents of one kernel's launches that are kept; None: twice what the GPU's
        memory holds, before and after.

        Raises InputError where the driver's platform cannot be imported.
        """
        self.host = GpuHost(device, cache_folder.absolute(), driver, sm_arch, clock_control)
        self.program_folder = program_folder
        self._capture_bytes = capture_bytes
        self._profiler = Profiler(self.host)
        self._modules: dict[str, Module] = {}
        self._instructions: dict[str, tuple[KernelInstructions, ...] | str] = {}
        self._lock = threading.Lock()

    @property
    def cache(self) -> Path:
        """See `Executor.cache`."""
        return self.host.cache

    @property
    def device(self) -> str:
        """Name of the GPU in `cudaops.cuda.devices`."""
        return self.host.device.name

    @property
    def sm_arch(self) -> str:
        """What nvcc builds for."""
        return self.host.platform.sm_arch

    @property
    def time_source(self) -> TimeSource:
        """Times of what is no GPU say so and accept nothing."""
        return "cuda_event" if self.host.facts.real else "standin"

    @property
    def isolation(self) -> IsolationLevel:
        """Of compilers and whole programs. Runners are ours, and what is untrusted runs on the GPU
        alone there."""
        if self.host.program_phase == "gpu":
            return lowest(level_of("compile"), settle_gpu_level(self.host.driver))
        return lowest(level_of("compile"), level_of("program"), "S1")

    @property
    def processor(self) -> Executor:
        """See `Executor.processor`."""
        return self.host.processor

    def check_available(self) -> None:
        """Raise PrerequisiteError, with what to install or mend."""
        try:
            self.host.check_available()
        except BaseException:
            self._profiler.close()
            raise

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
        """See `Executor.capture`. A program is always executed whole."""
        if self.host.facts.real:  # all this is needed later, and now nothing is timed yet
            in_background(lambda: settle_gpu_level(self.host.driver))
            self.prepare(program)
            self.host.start_ahead()
            self._build_ahead(program, kernel)
        return self._program(program, argv, timeout_s).capture(kernel, folder, warm_ups)

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
        """See `Executor.as_reference`. The hardware's order of threads is the reference."""
        return found

    def open_project(
        self,
        folder: Path,
        source: Path | None,
        command: str,
        executable: str | None,
        *,
        compiles: bool = True,
    ) -> Program:
        """See `Executor.open_project`: compiled by nvcc for this GPU alone."""
        tools = project_tools(self.cache, self.sm_arch, recorded=False)
        tools = tools if compiles else tools.noting_only()
        return open_project(self.cache, folder, source, command, executable, tools)

    def _build_ahead(self, program: Program, kernel: str | None) -> None:
        """The author's kernels while the program is built and runs. Which instance of a template is
        launched only the run tells, and so does which of many kernels takes the time."""
        known = {k.name: k for k in program.kernels if not k.template_parameters}
        named = None if kernel is None else {k.name for k in program.kernels_named(kernel)}
        wanted = [k for k in known.values() if named is None or k.name in named]
        for one in wanted if len(wanted) <= MOST_AHEAD else ():
            unit = Unit(program=program, kernel=one.name, callee=one.qualified_name)
            in_background(partial(self.host.platform.unit, unit, draft=False))

    def is_independent_of_thread_order(
        self,
        unit: Unit,
        workload: Workload,
        inputs: InputSet,
        outputs: Mapping[int, str],
        folder: Path,
        timeout_s: float,
    ) -> bool:
        """See `Executor.is_independent_of_thread_order`, on the processor."""
        return self.host.processor.is_independent_of_thread_order(
            unit, workload, inputs, outputs, folder, timeout_s
        )

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
        """See `Executor.run_program`. The hardware's order is that of the lanes."""
        return self._program(program, argv, timeout_s).run(output, until_pause=until_pause)

    def prepare(self, program: Program) -> None:
        """Build in the background: nvcc needs no GPU."""
        in_background(lambda: self.host.platform.program(program, recorded=False))

    def compile(self, unit: Unit, *, draft: bool = False) -> Compiled | CompileFailed:
        """See `Executor.compile`. NVRTC for a draft, nvcc for all else; `long double` is the
        processor's, and so is what runs of it."""
        if unit.wide_doubles:
            return self.host.processor.compile(unit)
        module = self.host.platform.unit(unit, draft=draft)
        if isinstance(module, CompileFailed):
            return module
        with self._lock:
            self._modules[module.key] = module
        return Compiled(
            key=module.key,
            folder=str(module.folder),
            unit=unit,
            command=module.command,
            compiler=module.compiler,
            seconds=module.seconds,
            cached=module.cached,
            log=module.log,
            resources=module.resources,
            draft=module.compiler.startswith("NVRTC"),
        )

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
    ) -> Ran | Misbehaved:
        """See `Executor.run`. A fault is looked at again with a checker, which names its line; not
        a draft's, which nobody mends."""
        if compiled.unit.wide_doubles:
            return self.host.processor.run(
                compiled, workload, plan, inputs, folder, check=check, wanted=wanted,
                timeout_s=timeout_s,
            )  # fmt: skip
        side = self._side(compiled, workload, plan, folder, inputs.scratch_poison)
        target = dumps_of(workload, side, folder)
        task = RunTask(
            side=side,
            buffers=buffers_of(workload, inputs, widened=compiled.unit.widened),
            dumps=target.buffers,
            global_dumps=target.variables,
        )
        session = self._session(compiled)
        subject = CheckedPlan(
            compiled.unit,
            workload,
            plan,
            inputs,
            task,
            session.request,
            folder / "check",
            timeout_s,
        )
        asked = task if wanted is None else task.model_copy(
            update={"dumps": {index: task.dumps[index] for index in wanted}}
        )  # fmt: skip
        reply = expected(session.request(asked, timeout_s), RunReply)
        if isinstance(reply, Misbehaved):
            return reply if compiled.draft else self.host.checker.named(subject, reply)
        ran = Ran(
            outputs=outputs_of(asked, reply),
            global_outputs=dict(task.global_dumps),
            seconds=sum(reply.launch_us) * 1e-6,
        )
        if check == "none":
            return ran
        found = self.host.checker.check(subject, check)
        if found.fault is not None:
            return found.fault
        return ran.model_copy(
            update={
                "warnings": found.warnings,
                "unchecked": found.unchecked,
                "checked": found.summary,
            }
        )

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
        """See `Executor.run_series`. A rewrite's series has a runner process of its own: what is
        run or timed afterwards meets another."""
        check_series(inputs)
        side = self._side(compiled, workload, plan, folder)
        launches = tuple(
            series_launch(workload, one, side, launch_folder(folder, number), compiled.unit.widened)
            for number, one in enumerate(inputs)
        )
        rewrite = compiled.unit.rewrite
        session = self.host.session("author" if rewrite is None else f"series {rewrite.id}")
        task = SeriesTask(side=side, launches=launches)
        reply = expected(session.request(task, timeout_s), RunReply)
        if isinstance(reply, Misbehaved):
            return reply
        each = len(reply.launch_us) // len(launches)
        return tuple(
            Ran(
                outputs=outputs_of(one, reply, n),
                global_outputs=dict(one.global_dumps),
                seconds=sum(reply.launch_us[n * each : (n + 1) * each]) * 1e-6,
            )
            for n, one in enumerate(launches)
        )

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
        """See `Executor.run_trials`. The hardware's order and rounding are the only ones there
        are."""
        until, found = time.monotonic() + timeout_s, []
        for number, one in enumerate(trials):
            left_s = max(1.0, until - time.monotonic())
            where = launch_folder(folder, number)
            ran = self.run(
                compiled, one.workload, one.plan, one.inputs, where, check=check, timeout_s=left_s
            )
            found.append(Tried(ran))
        return tuple(found)

    def branches(
        self,
        compiled: Compiled,
        trials: Sequence[Trial],
        counted: Callable[[str, int], bool],
        folder: Path,
        timeout_s: float = 60.0,
    ) -> Branches | None:
        """See `Executor.branches`. A processor counts them."""
        return None

    def measure(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        timeout_s: float = 120.0,
    ) -> Measurement | Misbehaved:
        """See `Executor.measure`. In the program's own regime alone; as many samples as settle
        their median, `SEARCH.samples` at most."""
        inputs = captured_inputs(workload)
        task = MeasureTask(
            sides=(self._side(compiled, workload, plan, self.host.scratch_folder),),
            buffers=buffers_of(workload, inputs, widened=compiled.unit.widened),
            regimes=(workload.l2_regime,),
            policy=SEARCH,
            repeats=may_repeat(compiled.unit, workload),
            keep=True,
        )
        times = self._measured(self.host.session("search"), task, workload, timeout_s)
        if isinstance(times, Misbehaved):
            return times
        self._profiler.timed(compiled, workload, times[0])
        return times[0]

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
        """See `Executor.measure_pair`. Interleaved; cold and warm, the program's own regime first,
        or in that alone where they are only ranked."""
        scratch = self.host.scratch_folder
        inputs = timed_inputs(workload, alternatives)
        own = workload.l2_regime
        task = MeasureTask(
            regimes=(own,) if ranked else (own, "warm" if own == "cold" else "cold"),
            policy=SEARCH if ranked else THOROUGH if thorough else TimingPolicy(),
            sides=(
                self._side(baseline, workload, baseline_plan(workload), scratch),
                self._side(candidate, workload, plan, scratch),
            ),
            buffers=buffers_of(workload, inputs, widened=False),
            watch=watch_of(workload, alternatives, folder),
            repeats=may_repeat(baseline.unit, workload),
        )
        times = self._measured(self._session(candidate), task, workload, timeout_s)
        if isinstance(times, Misbehaved):
            return times
        self._profiler.timed(baseline, workload, times[0])
        self._profiler.timed(candidate, workload, times[1])
        return times[0], times[1]

    def profile(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        every_metric: bool = False,
        timeout_s: float = 120.0,
    ) -> Profile | Misbehaved:
        """See `Executor.profile`. By ncu; a rung lower where ncu cannot read counters."""
        self.host.make_room()
        launched = ProfiledPlan(
            compiled,
            workload,
            plan,
            self._side(compiled, workload, plan, self.host.scratch_folder),
            buffers_of(workload, captured_inputs(workload), widened=compiled.unit.widened),
            self._session(compiled),
            timeout_s,
        )
        return self._profiler.profile(
            launched,
            lambda: self.measure(compiled, workload, plan, timeout_s=timeout_s),
            "full" if every_metric else "deciding",
        )

    def instructions(self, compiled: Compiled) -> tuple[KernelInstructions, ...] | str:
        """See `Executor.instructions`. Of the cubin that was judged, by nvdisasm."""
        known = self._instructions.get(compiled.key)
        if known is None:
            known = self._instructions[compiled.key] = self._disassembled(compiled)
        return known

    def _disassembled(self, compiled: Compiled) -> tuple[KernelInstructions, ...] | str:
        module = self.module(compiled)
        if not module.resources:
            return "it is not known what its kernels take"
        rewritten = compiled.unit.rewrite is not None
        own = [
            (one, taken)
            for one, taken in zip(module.launchables, module.resources, strict=True)
            if (one.entry != BASELINE_ENTRY) == rewritten
        ]
        image = module.folder / IMAGE
        return instructions_of(image, [one for one, _ in own], [taken for _, taken in own])

    def tools(self) -> Mapping[str, str]:
        """The compilers, the driver, and the profiler and checkers that are there."""
        return self.host.tools

    def profile_soon(self, *, warm: bool) -> None:
        """Start ncu while the GPU and the program are opened: most of a profile is its start.
        `warm`: whether the launch will be one on a warm L2; where it is not, ncu starts again."""
        if any(Path("/dev").glob("nvidia[0-9]*")):
            self._profiler.begin(warm=warm, at_once=True)

    def close(self) -> None:
        """End every runner."""
        self._profiler.close()
        self.host.close()

    def module(self, compiled: Compiled) -> Module:
        """What was built, built again where another process compiled it."""
        with self._lock:
            known = self._modules.get(compiled.key)
        if known is not None:
            return known
        module = self.host.platform.unit(compiled.unit, draft=compiled.draft)
        if isinstance(module, CompileFailed):
            raise SandboxUnavailable(
                f"a cached compilation cannot be repeated: {module.placed}",
                "delete the cache folder and run again",
            )
        with self._lock:
            self._modules[compiled.key] = module
        return module

    def _side(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        folder: Path,
        scratch_fill: int = 0xA5,
    ) -> Side:
        return side_of(self.module(compiled), compiled.unit, workload, plan, folder, scratch_fill)

    def _session(self, compiled: Compiled) -> RunnerSession:
        """What may be accepted is run in a runner of its own, and so is the author's kernel. A
        draft is no more than a hint and is run where it was timed: to start a runner takes longer
        than most trials."""
        if compiled.draft:
            return self.host.session("search")
        rewrite = compiled.unit.rewrite
        return self.host.session("author" if rewrite is None else f"candidate {rewrite.id}")

    def _measured(
        self, session: RunnerSession, task: MeasureTask, workload: Workload, timeout_s: float
    ) -> tuple[Measurement, ...] | Misbehaved:
        reply = expected(session.request(task, timeout_s), MeasureReply)
        if isinstance(reply, Misbehaved):
            return reply
        return measurements(reply, workload, self.device, self.time_source)

    def _program(self, program: Program, argv: tuple[str, ...], timeout_s: float) -> GpuProgram:
        self.host.make_room()
        where = self.program_folder or Path.cwd()
        most = self._capture_bytes or 2 * self.host.facts.memory_bytes
        return GpuProgram(self.host.platform, program, argv, where, timeout_s, most)
