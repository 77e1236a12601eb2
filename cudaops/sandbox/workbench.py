"""Workbench: one program's kernel with its workloads and oracle, ready to judge rewrites."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.execution import Compiled, CompileFailed, Measurement, Misbehaved, Ran, Unit
from cudaops.domain.judgement import Comparison, Policy
from cudaops.domain.options import ProgramRun, WarmUps
from cudaops.domain.profile import Profile
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import ResolvedPlan, Rewrite
from cudaops.domain.run import AccessSummary, ValueSummary
from cudaops.domain.search import TransformationSearch
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.executors.arrays import HAS_WIDE_DOUBLE
from cudaops.executors.base import Check, Executor, InputSet
from cudaops.executors.capture.recording import PAUSE_SHARE
from cudaops.executors.stopping import Ahead, Once, in_background
from cudaops.executors.untrusted_files import remove
from cudaops.problem.reference import ReferenceDraw, draws_of
from cudaops.program.analysis.summary import summarise
from cudaops.program.hygiene_ptx import authors_ptx
from cudaops.program.plans import baseline_plan, resolve
from cudaops.program.seen_launches import requiring, seen_launches
from cudaops.program.serving import serves
from cudaops.program.splice import is_dependent, splice
from cudaops.sandbox.bench_state import (
    TREE,
    BenchState,
    read_judged,
    read_state,
    write_judged,
    write_state,
)
from cudaops.sandbox.captures import CapturedRun, CapturedRuns, ProgramCapture
from cudaops.sandbox.inputs import holds_doubles
from cudaops.sandbox.oracle import (
    Baseline,
    Oracle,
    OracleBuilder,
    ReferenceBudget,
)
from cudaops.sandbox.preloaded import preloaded
from cudaops.sandbox.program_runs import ProgramRuns, runs_ahead
from cudaops.sandbox.roles import confirm_reproduces, refine_roles
from cudaops.sandbox.timed_references import timed_references
from cudaops.sandbox.values import value_summaries

MOST_LINES = 8
"""Places that one line of a report names."""

_REMEDY = "Put a barrier between the two, or ask a GPU, whose order counts: --executor cuda"


class BaselineTime(NamedTuple):
    """The author's kernel on one workload."""

    workload: Workload
    time: Measurement
    share: float
    """Of the author's time over all timed launches (`Workbench.shares`), 0-1."""


class Workbench:
    """Everything a candidate is compiled, run, timed and compared with.

    Lives in a run folder: `state/` holds what a resumed run needs, `work/` what can be made again.
    """

    def __init__(
        self,
        program: Program,
        captured: CapturedRuns,
        executor: Executor,
        policy: Policy,
        folder: Path,
        *,
        sm_arch: str,
        timeout_s: float,
    ) -> None:
        self.program = program
        self.captured = captured
        self.executor = executor
        self.authors_ptx = authors_ptx(program)
        """What a rewrite may hold as it is, whatever the instructions."""
        allow_ptx = policy.allow_ptx or bool(self.authors_ptx.spellings)
        self.policy = policy.model_copy(update={"allow_ptx": allow_ptx})
        """What is asked of a rewrite, which may hold inline PTX where the author's code does."""
        self.folder = folder
        self.sm_arch = sm_arch
        self.timeout_s = timeout_s
        self.kernel: Kernel = program.kernel(captured.timed.captured.kernel)
        self.seed = policy.seed if policy.seed is not None else secrets.randbits(62)
        """Seed of the perturbed inputs; secret until the run is over."""
        self._baseline_times: dict[str, Measurement] = {}
        self._lock = threading.RLock()
        self.once = Once()
        """What candidates are compared with: references, drawn inputs (`gates.domain`), the
        oracle's sensitivity (`gates.qualification`), anchors (`graph.certificate`)."""
        self.ahead = Ahead()  # what every candidate will need
        self.program_runs = ProgramRuns(executor, program, timeout_s, models_time=self.models_time)
        self.evaluated: dict[tuple[str, float], Evaluation] = {}
        """By rewrite and bar: what was found out already."""
        self.searched: dict[tuple[str, ...], TransformationSearch] = {}
        """By the rewrite that a search over transformations began with, empty for the author's, and
        the transformations that were offered."""
        self._draws: tuple[ReferenceDraw, ...] | None = None
        self.qualification_told = False

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Those of the instance that is rewritten: first what is timed, most expensive first."""
        return tuple(w for w in self.captured.workloads if w.callee == self.callee)

    @property
    def judged(self) -> tuple[Workload, ...]:
        """Those on which a rewrite is compared with the author's kernel."""
        return tuple(w for w in self.workloads if w.is_judged)

    @property
    def timed(self) -> tuple[Workload, ...]:
        """Those on which a rewrite is timed, most expensive first."""
        return tuple(w for w in self.workloads if w.is_timed)

    def workloads_of(self, rewrite: Rewrite | None) -> tuple[Workload, ...]:
        """What a rewrite is judged and timed on: of every instance that it serves
        (`program.serving`), most expensive first."""
        if rewrite is None:
            return self.workloads
        known: dict[str, bool] = {}
        for workload in self.captured.workloads:
            if workload.callee not in known:
                known[workload.callee] = serves(rewrite, self.kernel, self.callee, workload.callee)
        return tuple(w for w in self.captured.workloads if known[w.callee])

    def judged_of(self, rewrite: Rewrite) -> tuple[Workload, ...]:
        """Those on which it is compared with the author's kernel."""
        return tuple(w for w in self.workloads_of(rewrite) if w.is_judged)

    @property
    def callee(self) -> str:
        """The instance that is rewritten: that of the most expensive workload."""
        return self.captured.workloads[0].callee

    @property
    def models_time(self) -> bool:
        """Whether times are computed rather than taken: the same every time, and beside nothing."""
        return self.executor.time_source == "modelled"

    def spliced(self, rewrite: Rewrite) -> Program:
        """The author's program with the rewrite in it. Raises InputError where it cannot be."""
        served = {w.callee: w for w in reversed(self.workloads_of(rewrite))}
        written = {self._written(w): None for w in reversed(served.values())}
        return splice(self.program, self.kernel.name, rewrite, *written)

    def runnable(self, rewrite: Rewrite) -> Program:
        """The same, to be run whole: of an application with the library of the rewrite. Raises
        InputError where it cannot be."""
        spliced = self.spliced(rewrite)
        if self.program.application is None:
            return spliced
        if self.executor.name != "cuda":
            raise InputError(
                "the program launches its kernels by CUDA's driver API, and runs on a GPU alone"
            )
        return preloaded(
            self.program, self.workloads_of(rewrite), rewrite, spliced, self.executor.cache,
            self.sm_arch,
        )  # fmt: skip

    def prepare(self, rewrite: Rewrite) -> None:
        """Begin to build what `runnable` gives, where that saves time."""
        if self.program.application is None:
            self.executor.prepare(self.spliced(rewrite))
        else:
            in_background(lambda: self.runnable(rewrite))

    def _written(self, workload: Workload) -> str:
        """The instance that a launch names."""
        site = next((s for s in self.program.launches if s.index == workload.site), None)
        # As its author spells it (`k<kThreads>`) where template arguments are written; an instance
        # that is deduced, or named in a template (`k<T>`), is only known as the capture spelled it.
        named = (
            site is not None and site.template_arguments and not is_dependent(self.program, site)
        )
        return site.callee if site is not None and named else workload.callee

    def save(self) -> None:
        """Write what a resumed run needs under `state/`: of a project its tree as well."""
        write_state(self.folder, BenchState(self.program, self.captured, self.seed))
        if self.program.build is not None:
            kept = self.folder / TREE
            if not kept.is_file():
                shutil.copy(self.program.build.snapshot, kept)

    @classmethod
    def load(
        cls,
        folder: Path,
        executor: Executor,
        policy: Policy,
        *,
        sm_arch: str,
        timeout_s: float,
    ) -> Workbench:
        """Open the workbench of an earlier run. Raises InputError where its state is not there."""
        program, captured, seed = read_state(folder)
        policy = policy.model_copy(update={"seed": seed})
        return cls(
            program,
            captured,
            executor,
            policy,
            folder,
            sm_arch=sm_arch,
            timeout_s=timeout_s,
        )

    def unit(self, workload: Workload, rewrite: Rewrite | None, *, widened: bool = False) -> Unit:
        """What to compile for this workload."""
        return Unit(
            program=self.program,
            kernel=self.kernel.name,
            callee=workload.callee,
            rewrite=rewrite,
            widened=widened,
            wide_doubles=widened and HAS_WIDE_DOUBLE and holds_doubles(workload),
            lockstep=self.captured.lockstep,
        )

    def compile(self, rewrite: Rewrite | None) -> Compiled | CompileFailed:
        """For the most expensive workload."""
        return self.executor.compile(self.unit(self.workloads[0], rewrite))

    def plan(self, workload: Workload, rewrite: Rewrite | None) -> ResolvedPlan:
        """The launches on this workload; the baseline's where the rewrite does not apply.

        Raises PlanError where an expression of the rewrite's plan cannot be evaluated.
        """
        return (
            baseline_plan(workload) if rewrite is None else resolve(rewrite, self.kernel, workload)
        )

    def measure(
        self, rewrite: Rewrite | None, workload: Workload, *, draft: bool = False
    ) -> Measurement | Misbehaved | CompileFailed:
        """Time of a rewrite, or of the baseline, on one workload; `draft` for a search."""
        compiled = self.executor.compile(self.unit(workload, rewrite), draft=draft)
        if isinstance(compiled, CompileFailed):
            return compiled
        return self.executor.measure(
            compiled, workload, self.plan(workload, rewrite), timeout_s=self.timeout_s
        )

    def baseline_time(self, workload: Workload) -> Measurement:
        """The baseline's time, taken once a workload. Raises InputError where it misbehaves."""
        with self._lock:
            if workload.id not in self._baseline_times:
                measured = self.measure(None, workload)
                if not isinstance(measured, Measurement):
                    raise InputError(
                        f"the author's kernel {workload.callee} cannot be timed: {measured.placed}"
                    )
                self._baseline_times[workload.id] = measured
            return self._baseline_times[workload.id]

    def baseline_times(self) -> tuple[BaselineTime, ...]:
        """The author's kernel on what is timed, most expensive first. Raises InputError where it
        misbehaves."""
        times = {w.id: self.baseline_time(w) for w in self.timed}
        shares = self.shares({name: time.median_us for name, time in times.items()})
        return tuple(BaselineTime(w, times[w.id], shares[w.id]) for w in self.timed)

    @cached_property
    def timed_launches(self) -> tuple[tuple[Workload, float], ...]:
        """What is timed, with how many launches it stands for: the program's, and where several
        runs are timed as many as give each its part."""
        if len({w.run for w in self.timed}) == 1:
            return tuple((w, float(w.launches)) for w in self.timed)
        return tuple((b.workload, b.share / b.time.median_us) for b in self.baseline_times())

    def shares(self, baseline_us: Mapping[str, float]) -> dict[str, float]:
        """Share of the author's time that each of these workloads stands for, together 1.

        By time: launches times the time of one, over all of its run of the program; of several
        runs each has the part that the user gave it.

        Args:
            baseline_us: The author's time of one launch, by workload.
        """
        timed = [w for w in self.captured.workloads if w.id in baseline_us]
        whole: dict[int, float] = {}
        for w in timed:
            whole[w.run] = whole.get(w.run, 0.0) + w.launches * baseline_us[w.id]
        weights = {run: self.captured.runs[run].run.weight for run in whole}
        parts = {run: weight / sum(weights.values()) for run, weight in weights.items()}
        return {w.id: parts[w.run] * w.launches * baseline_us[w.id] / whole[w.run] for w in timed}

    def compare(
        self,
        rewrite: Rewrite,
        *,
        ranked: bool = False,
        thorough: bool = False,
        watched: Path | None = None,
    ) -> tuple[Comparison, ...] | Misbehaved | CompileFailed:
        """Baseline and rewrite timed on every timed workload, side by side where time is measured.

        `ranked`, `thorough`: see `Executor.measure_pair`. `watched`: takes what launches write.
        """
        pairs = {}
        for workload in self.workloads_of(rewrite):
            if not workload.is_timed:
                continue
            pair = self._pair(rewrite, workload, watched, ranked=ranked, thorough=thorough)
            if isinstance(pair, Misbehaved | CompileFailed):
                return pair
            pairs[workload.id] = pair
        shares = self.shares({name: pair[0].median_us for name, pair in pairs.items()})
        return tuple(
            Comparison(workload=name, weight=shares[name], baseline=before, candidate=after)
            for name, (before, after) in pairs.items()
        )

    def _pair(
        self,
        rewrite: Rewrite,
        workload: Workload,
        watched: Path | None,
        *,
        ranked: bool,
        thorough: bool,
    ) -> tuple[Measurement, Measurement] | Misbehaved | CompileFailed:
        """A modelled baseline never varies; a measured one is timed again beside the candidate."""
        if self.models_time:
            candidate = self.measure(rewrite, workload)
            if not isinstance(candidate, Measurement):
                return candidate
            return self.baseline_time(workload), candidate
        baseline = self.compiled_baseline(workload)
        compiled = self.executor.compile(self.unit(workload, rewrite))
        if isinstance(compiled, CompileFailed):
            return compiled
        others = () if watched is None else timed_references(self.oracle(workload))[1:]
        return self.executor.measure_pair(
            baseline,
            compiled,
            workload,
            self.plan(workload, rewrite),
            ranked=ranked,
            thorough=thorough,
            alternatives=[one.inputs for one in others],
            folder=None if watched is None else watched / workload.id,
            timeout_s=self.timeout_s,
        )

    def put_to_decision(self) -> int:
        """Count one more candidate whose fresh measurement decides; how many there were before."""
        with self._lock:
            before = read_judged(self.folder)
            write_judged(self.folder, before + 1)
            return before

    def profile(
        self, rewrite: Rewrite | None, *, every_metric: bool = False
    ) -> Profile | Misbehaved | CompileFailed:
        """Metrics on the most expensive workload; `every_metric`: see `Executor.profile`."""
        workload = self.workloads[0]
        compiled = self.executor.compile(self.unit(workload, rewrite))
        if isinstance(compiled, CompileFailed):
            return compiled
        plan = self.plan(workload, rewrite)
        return self.executor.profile(
            compiled, workload, plan, every_metric=every_metric, timeout_s=self.timeout_s
        )

    def profile_ahead(self, rewrite: Rewrite) -> None:
        """Begin what `profile` gives, where it is measured: most of that time is ncu's own."""
        if not self.models_time:
            in_background(lambda: self.profile(rewrite))

    def run_programs_ahead(self, rewrite: Rewrite | None = None) -> None:
        """Begin the author's runs that will be asked for, and those of a rewrite where the GPU has
        room for both. Where time is modelled there is nothing to run."""
        if rewrite is None:
            self.program_runs.ahead(one for one in self.captured.runs if one.is_judged)
        elif not self.models_time and (wanted := self._runs_ahead()):
            in_background(
                lambda: self.program_runs.rewritten_ahead(
                    rewrite.id, self.runnable(rewrite), wanted
                )
            )

    def finish_programs(self, rewrite: Rewrite) -> None:
        """Wait for what was begun of programs that may still launch: nothing may run beside what is
        timed. What goes wrong with them is said by the gate that needs them."""
        for one in self._runs_ahead():
            if not one.captured.paused:
                with suppress(InputError):
                    self.program_runs.rewritten(rewrite.id, self.runnable(rewrite), one)

    def _runs_ahead(self) -> list[CapturedRun]:
        size_bytes = max(w.size_bytes for w in self.workloads)
        return [r for r in self.captured.runs if r.is_judged and runs_ahead(r, size_bytes)]

    @property
    def limits(self) -> tuple[str, ...]:
        """What is not seen of the program, a line each: in its text, and of its run."""
        run = (self.stopped, self.paused, self.order, self.cut, *self.captured.notices)
        return (*self.program.limits, *(limit for limit in run if limit))

    @property
    def stopped(self) -> str:
        """What it means that a judged run was not captured to its end; empty where all were."""
        judged = [one.captured for one in self.captured.runs if one.is_judged]
        stopped = [captured.seconds for captured in judged if captured.stopped]
        if not stopped:
            return ""
        return (
            f"the program was stopped after {max(stopped):.0f} s: its launches until then stand "
            "for it, and no rewrite is accepted before the whole program was run; --timeout "
            "raises the limit"
        )

    @property
    def paused(self) -> str:
        """What it means that a judged run was captured until it paused; empty where none was."""
        if not any(one.captured.paused for one in self.captured.runs if one.is_judged):
            return ""
        return (
            f"the program was captured until it had launched nothing for {PAUSE_SHARE:.0%} of its "
            f"{self.timeout_s:g} s: a rewrite serves launches like those until then, others are "
            "the author's kernel's; --timeout raises both"
        )

    def served_alone(self, rewrite: Rewrite) -> Rewrite:
        """The rewrite, for no other launches than those seen where the program was not captured to
        its end (`paused`)."""
        if not self.paused:
            return rewrite
        return requiring(rewrite, seen_launches(self.judged_of(rewrite)))

    @property
    def order(self) -> str:
        """What it means that the order of threads decides the author's results; empty where it does
        not."""
        captured = self.captured
        if captured.undecided:
            return f"no rewrite of {self.kernel.name} can be judged here: {captured.undecided}"
        if captured.lockstep is None:
            return ""
        reads = list(dict.fromkeys(str(one.read) for one in captured.unordered if one.read))
        shown = ", ".join(reads[:MOST_LINES]) + (", ..." if len(reads) > MOST_LINES else "")
        return (
            f"lanes of a warp read what others wrote without __syncwarp ({shown}): "
            "the references were made with the lanes in lockstep"
        )

    @property
    def cut(self) -> str:
        """What it means that timed runs were not executed whole; empty where they were."""
        kernels = {k for one in self.captured.runs for k in one.captured.cut}
        if not kernels:
            return ""
        return (
            f"not all of {', '.join(sorted(kernels))} was executed in a run of which only times "
            "count: they are modelled from sampled blocks, and what depends on results may differ"
        )

    @cached_property
    def accesses(self) -> tuple[AccessSummary, ...]:
        """What the author's kernel does with memory, as its text says."""
        return summarise(self.program, self.kernel, self.workloads)

    @cached_property
    def values(self) -> tuple[ValueSummary, ...]:
        """Contents of the buffers of its launches."""
        return tuple(one for workload in self.workloads for one in value_summaries(workload))

    @property
    def draws(self) -> tuple[ReferenceDraw, ...]:
        """Inputs of a problem as its reference draws them, with what it makes of them: those of the
        run and secret ones. Made on first use. Raises InputError: see `draws_of`."""
        with self._lock:
            if self._draws is None:
                assert self.program.problem is not None, "applies to Python references only"
                self._draws = draws_of(
                    self.program.problem,
                    self.seed,
                    self.folder / "work" / "draws",
                    self.timeout_s,
                    (self.executor.cache, self.folder),
                )
            return self._draws

    @property
    def has_oracles(self) -> bool:
        """Whether the references of every judged workload were made already."""
        return all(self.once.has(("oracle", w.id)) for w in self.judged)

    def oracle(self, workload: Workload, say: Callable[[str], None] = lambda line: None) -> Oracle:
        """References of one judged workload, made on first use and kept for every candidate. `say`
        hears what is being made."""
        return self.once.get(("oracle", workload.id), lambda: self._build_oracle(workload, say))

    def _build_oracle(self, workload: Workload, say: Callable[[str], None]) -> Oracle:
        if self.captured.undecided:
            raise InputError(f"{self.order}. {_REMEDY}")
        folder = self.folder / "work" / "oracle" / workload.id
        plain = self.compiled_baseline(workload)
        workload = refine_roles(self.executor, plain, workload, folder, self.timeout_s)
        if all(a.role != "out" for a in workload.allocations):
            confirm_reproduces(self.executor, plain, workload, folder / "confirm", self.timeout_s)
        baseline = self.baseline(workload)
        parts = (baseline, workload, self.policy, folder, self.timeout_s)
        same = (w for w in self.captured.workloads if w.is_judged and w.callee == workload.callee)
        shapes = [w.shape for w in takewhile(lambda one: one.id != workload.id, same)]
        budget: ReferenceBudget = "reduced" if shapes else "full"
        budget = "minimal" if workload.shape in shapes else budget
        return OracleBuilder(self.executor, *parts).build(self.seed, say, budget)

    def baseline(self, workload: Workload) -> Baseline:
        """The author's kernel with the widest build that compiles: floats at least have one where
        `long double` does not."""
        plain = self.compiled_baseline(workload)
        unit = self.unit(workload, None, widened=True)
        widened = self.executor.compile(unit)
        if isinstance(widened, Compiled):
            return Baseline(plain, widened, None)
        problem = f"the widened baseline does not compile: {widened.message}"
        if unit.wide_doubles:
            widened = self.executor.compile(unit.model_copy(update={"wide_doubles": False}))
        return Baseline(plain, widened if isinstance(widened, Compiled) else None, problem)

    def compiled_baseline(self, workload: Workload) -> Compiled:
        """The author's kernel. Raises InputError where it does not compile on its own."""
        compiled = self.executor.compile(self.unit(workload, None))
        if isinstance(compiled, CompileFailed):
            what = f"the kernel {workload.callee} does not compile on its own"
            raise InputError(f"{what}: {compiled.message}")
        return compiled

    def run_author(
        self, workload: Workload, inputs: InputSet, folder: Path, check: Check = "none"
    ) -> Ran | Misbehaved:
        """The author's kernel once more on these inputs."""
        compiled, plan = self.compiled_baseline(workload), baseline_plan(workload)
        return self.executor.run(
            compiled, workload, plan, inputs, folder, check=check, timeout_s=self.timeout_s
        )

    def discard(self, name: str) -> None:
        """Remove a folder under `work/`; what is there can be made again."""
        remove(self.folder / "work" / name)


def open_workbench(
    program: Program,
    kernel: str | None,
    runs: tuple[ProgramRun, ...],
    executor: Executor,
    policy: Policy,
    folder: Path,
    *,
    sm_arch: str,
    timeout_s: float,
    odd_sizes: bool = False,
    warm_ups: WarmUps = "auto",
    judged: bool = True,
) -> Workbench:
    """Capture the program's launches and make a workbench of them: see `ProgramCapture.capture`.

    `runs` empty: one, without arguments. `judged`: whether rewrites will be. Raises InputError
    where there is nothing to optimise.
    """
    workloads = folder / "workloads"
    capturing = ProgramCapture(executor, program, workloads, timeout_s, warm_ups, judged=judged)
    captured = capturing.capture(kernel, runs or (ProgramRun(),), odd_sizes=odd_sizes)
    bench = Workbench(
        program, captured, executor, policy, folder, sm_arch=sm_arch, timeout_s=timeout_s
    )
    bench.save()
    return bench
