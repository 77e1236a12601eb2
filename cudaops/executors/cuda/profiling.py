"""A profile of one launch: by ncu, or from what is left where ncu cannot read counters."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import NamedTuple

from cudaops.cuda import metrics as ncu
from cudaops.cuda.ncu_problem import NcuCause, NcuProblem, fallback_profile, problem
from cudaops.domain.execution import (
    MEASURED,
    Compiled,
    CompileFailed,
    Measurement,
    Misbehaved,
)
from cudaops.domain.profile import Metric, Profile
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.gpu_lock import gpu_turn
from cudaops.executors.cuda.host import GpuHost
from cudaops.executors.cuda.ncu import CacheControl, NcuProfiler
from cudaops.executors.cuda.ncu_sets import MOST_S, LaunchCost, Sections, affordable, profile_s
from cudaops.executors.cuda.platform import NVIDIA
from cudaops.executors.cuda.protocol import Buffer, FaultReply, ProfileTask, RunReply, RunTask, Side
from cudaops.executors.cuda.session import RunnerSession, expected
from cudaops.program.candidate import FILE as CANDIDATE

LASTING: frozenset[NcuCause] = frozenset(
    ("missing", "permission", "wsl", "vgpu", "mig", "driver_too_old", "chip_unknown", "library")
)
"""Causes that the next launch will meet as well: ncu is not tried again."""

COUNTED_ON = "A10"
"""Device for which operations and bytes are counted where time is not modelled for the GPU."""


COUNTS: frozenset[str] = frozenset((
    ncu.DURATION, ncu.SMSP_CYCLES_ELAPSED, ncu.INST_EXECUTED,
    ncu.DRAM_READ_BYTES, ncu.DRAM_WRITE_BYTES, ncu.PIPE_TENSOR,
    ncu.FFMA, ncu.FADD, ncu.FMUL, ncu.DFMA, ncu.DADD, ncu.DMUL,
    ncu.HFMA, ncu.HADD, ncu.HMUL,
))  # fmt: skip
"""What does not depend on the device it was counted for, and what a roofline needs."""
FLOPS: frozenset[str] = frozenset((
    ncu.FFMA, ncu.FADD, ncu.FMUL, ncu.DFMA, ncu.DADD, ncu.DMUL, ncu.HFMA, ncu.HADD, ncu.HMUL,
))  # fmt: skip
"""Of these what the hardware counts only by patched code, which is too slow for a long launch."""

WITH_OPERATIONS: frozenset[Sections] = frozenset(("deciding", "full"))
MOST_DISTURBED = 4.0
"""A launch beside others' takes so many times as long at most. Chosen: as many runs as share a GPU
well (benchmarks/gpu_transformations.sh) take its time in slices."""
MOST_LOADED_AGAIN_BYTES = 1 << 30
"""Buffers that are loaded once more for a second look at a launch's time. Chosen: half a second."""


def _caches(*, warm: bool) -> CacheControl:
    return "none" if warm else "all"


class ProfiledPlan(NamedTuple):
    """A plan as sent to the runner, and its folder."""

    compiled: Compiled
    workload: Workload
    plan: ResolvedPlan
    side: Side
    buffers: tuple[Buffer, ...]
    session: RunnerSession
    timeout_s: float


class Profiler:
    """Of one GPU. Keeps what it measured, so that nothing is profiled twice."""

    def __init__(self, host: GpuHost) -> None:
        self._host = host
        self._ncu = NcuProfiler()
        self._kept: dict[tuple[str, str], Profile] = {}
        self._whole: set[tuple[str, str]] = set()
        """What was profiled with everything that can be had of it."""
        self._making: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
        self._lasting: NcuProblem | None = None
        self._numbers = itertools.count()
        self._times_us: dict[tuple[str, str], float] = {}
        """Of launches that have been measured, so that none is needed to know how long it takes."""

    def begin(self, *, warm: bool, at_once: bool) -> None:
        """Start ncu for the next profile, which finds it ready where its launch is one on a `warm`
        L2 or not, as said here. `at_once`: see `NcuProfiler.begin`."""
        host = self._host
        if self._lasting is not None or host.driver != NVIDIA:
            return
        self._ncu.begin(
            host.task_command,
            host.scratch_folder / f"ncu-begun-{next(self._numbers)}",
            clock_control=host.clock_control,
            cache_control=_caches(warm=warm),
            alone=lambda: gpu_turn(host.facts, alone=True),
            beside=lambda: gpu_turn(host.facts, alone=False),
            at_once=at_once,
        )

    def close(self) -> None:
        """End what was begun."""
        self._ncu.close()

    def timed(self, compiled: Compiled, workload: Workload, measured: Measurement) -> None:
        """Note what a plan took whose launch may be profiled next."""
        self._times_us[compiled.key, workload.folder] = measured.median_us

    def profile(
        self,
        launched: ProfiledPlan,
        time: Callable[[], Measurement | Misbehaved],
        sections: Sections = "deciding",
    ) -> Profile | Misbehaved:
        """Metrics of the dominant launch; `time` takes its time where ncu cannot. Who asks for what
        is being profiled waits for it."""
        place = (launched.compiled.key, launched.workload.folder)
        with self._making[place]:
            return self._profiled(place, launched, time, sections)

    def _profiled(
        self,
        place: tuple[str, str],
        launched: ProfiledPlan,
        time: Callable[[], Measurement | Misbehaved],
        sections: Sections,
    ) -> Profile | Misbehaved:
        known = self._kept.get(place)
        if known is not None and (sections == "deciding" or place in self._whole):
            return known
        dominant = self._known_dominant(launched) or _dominant(launched)
        if isinstance(dominant, Misbehaved):
            return dominant
        dominant, chosen = self._fitting(launched, dominant, sections)
        if known is not None and chosen != "full":
            return known
        found = self._measured(launched, dominant, chosen)
        if known is not None and not isinstance(found, Profile):
            return known  # what decided is there
        if isinstance(found, NcuProblem):
            found = self._without_ncu(launched, dominant, time, found)
        if isinstance(found, Profile):
            self._kept[place] = found
            if sections == "full":
                self._whole.add(place)
        return found

    def _known_dominant(self, launched: ProfiledPlan) -> _Dominant | None:
        """Of one launch whose time is known, or does not matter since ncu will not be asked."""
        if len(launched.plan.launches) > 1:
            return None
        us = self._times_us.get((launched.compiled.key, launched.workload.folder))
        if us is None and self._lasting is not None:
            us = 0.0
        return None if us is None else _Dominant(0, us)

    def _fitting(
        self, launched: ProfiledPlan, dominant: _Dominant, wanted: Sections
    ) -> tuple[_Dominant, Sections | None]:
        """As much of what is wanted as ends in time, by the shorter of two launches where the first
        is too long for it all: others may have used the GPU."""
        launch = self._launch(launched, dominant)
        chosen = affordable(wanted, launch)
        undisturbed = launch._replace(seconds=launch.seconds / MOST_DISTURBED)
        may_fit = chosen != wanted and affordable(wanted, undisturbed) != chosen
        if not may_fit or launch.size_bytes > MOST_LOADED_AGAIN_BYTES:
            return dominant, chosen
        again = _dominant(launched)
        if isinstance(again, Misbehaved):
            return dominant, chosen
        dominant = min(dominant, again, key=lambda one: one.us)
        return dominant, affordable(wanted, self._launch(launched, dominant))

    def _launch(self, launched: ProfiledPlan, dominant: _Dominant) -> LaunchCost:
        size_bytes = sum(b.size_bytes for b in launched.buffers)
        return LaunchCost(dominant.us * 1e-6, size_bytes, self._host.facts.memory_bytes)

    def _measured(
        self, launched: ProfiledPlan, dominant: _Dominant, sections: Sections | None
    ) -> Profile | NcuProblem | Misbehaved:
        """By ncu; with a small set of metrics, operations as the model counts them meanwhile. Where
        it counts none, or might of another launch, nothing would be known of the floor: then what
        decides is collected for as long as it may take."""
        if self._lasting is not None:
            return self._lasting
        launch = self._launch(launched, dominant)
        why = f"a launch takes {launch.seconds:.2g} s"
        if sections is None:
            text = f"{why}, and not even a few passes over it end within {MOST_S:g} s"
            return problem("too_long", text)
        if sections in WITH_OPERATIONS:
            return self._by_ncu(launched, dominant.number, sections)
        in_time = profile_s("deciding", launch) <= launched.timeout_s
        if len(launched.plan.launches) > 1:
            if in_time:
                return self._by_ncu(launched, dominant.number, "deciding")
            return problem("too_long", f"{why}, one of several launches that ncu would profile")
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(copy_context().run, self._operations, launched)
            found = self._by_ncu(launched, dominant.number, sections)
            counts = counting.result()
        if not isinstance(found, Profile):
            return found
        if not counts and in_time:
            return self._by_ncu(launched, dominant.number, "deciding")
        notes = [*found.notes, f"{why}, and more passes would not have ended within {MOST_S:g} s"]
        notes += ["operations are those that the model counts"] if counts else []
        return found.model_copy(
            update={
                "metrics": {**counts, **found.metrics},
                "source": "mixed" if counts else found.source,
                "notes": tuple(notes),
            }
        )

    def _operations(self, launched: ProfiledPlan) -> dict[str, Metric]:
        """Of a plan of one launch, as the model counts them."""
        return {n: m for n, m in self._modelled(launched).metrics.items() if n in FLOPS}

    def _by_ncu(
        self, launched: ProfiledPlan, number: int, sections: Sections
    ) -> Profile | NcuProblem | Misbehaved:
        host = self._host
        task = ProfileTask(side=launched.side, buffers=launched.buffers, launch=number)
        what = f"{launched.compiled.key} {launched.workload.folder}"
        name = hashlib.sha256(what.encode()).hexdigest()[:12]
        warm = launched.workload.l2_regime == "warm"
        outcome = self._ncu.profile_task(
            task,
            host.task_command,
            host.scratch_folder / f"ncu-{name}",
            device=host.device.name,
            workload=launched.workload.id,
            clock_control=host.clock_control,
            cache_control=_caches(warm=warm),
            sections=sections,
            sources=_sources(launched.compiled),
            timeout_s=launched.timeout_s,
            alone=partial(gpu_turn, host.facts, alone=True),
        )
        if isinstance(outcome, FaultReply):
            return Misbehaved(what=outcome.what, message=outcome.message)
        if isinstance(outcome, NcuProblem):
            self._lasting = outcome if outcome.cause in LASTING else None
            return outcome
        self.begin(warm=warm, at_once=False)
        return outcome.profile

    def _without_ncu(
        self,
        launched: ProfiledPlan,
        dominant: _Dominant,
        time: Callable[[], Measurement | Misbehaved],
        why: NcuProblem,
    ) -> Profile | Misbehaved:
        """A rung lower: the model's counts, ptxas's registers, the time that was measured.

        A plan of several launches has one time for all, which says nothing of one of them. A launch
        that is too long for ncu is not timed again and again either.
        """
        alone = len(launched.plan.launches) == 1
        times_us: tuple[float, ...] = ()
        cupti_us: tuple[float, ...] = ()
        if why.cause == "too_long":
            times_us = (dominant.us,) if alone and self._host.facts.real else ()
        else:
            timed = time()
            if isinstance(timed, Misbehaved):
                return timed
            if alone and timed.source in MEASURED:
                times_us = timed.samples_us
                cupti_us = timed.timing.cupti_us if timed.timing is not None else ()
        return fallback_profile(
            self._modelled(launched),
            launched.compiled.resources,
            self._host.device,
            times_us=times_us,
            cupti_us=cupti_us,
            why=f"{why.text} ({why.remedy})",
        )

    def _modelled(self, launched: ProfiledPlan) -> Profile:
        row = self._host.device
        try:
            found = self._on_cpu(launched, row.name)
            if found is not None:
                return found
            note = "the kernel cannot run on the CPU, or not in time: no counts"
        except InputError as error:
            found = self._on_cpu(launched, COUNTED_ON)
            if found is not None:
                counts = {
                    n: m for n, m in found.metrics.items() if n in COUNTS or m.source == "launch"
                }
                note = f"{error}; operations and bytes are counted for the {COUNTED_ON}"
                return found.model_copy(
                    update={"device": row.name, "metrics": counts, "notes": (note,)}
                )
            note = str(error)
        return Profile(
            kernel=launched.side.launches[0].kernel.shown,
            device=row.name,
            workload=launched.workload.id,
            source="modelled",
            duration_us=0.0,
            metrics={},
            notes=(note,),
        )

    def _on_cpu(self, launched: ProfiledPlan, device: str) -> Profile | None:
        """What the model says for this device; None where the kernel does not run there.

        Raises InputError where time is not modelled for it.
        """
        cpu = CpuExecutor(device, self._host.cache)
        compiled = cpu.compile(launched.compiled.unit)
        if isinstance(compiled, CompileFailed):
            return None
        # The author's kernel for as long as ncu may take: a launch of a third of a second on an
        # H100 was executed for two minutes before anything was tried. A candidate's floor needs it.
        is_author = launched.compiled.unit.rewrite is None
        found = cpu.profile(
            compiled,
            launched.workload,
            launched.plan,
            timeout_s=min(MOST_S, launched.timeout_s) if is_author else launched.timeout_s,
        )
        return None if isinstance(found, Misbehaved) else found


class _Dominant(NamedTuple):
    """The launch of a plan that takes most time."""

    number: int
    """Its index."""
    us: float
    """Of one launch, for orientation: others may use the GPU meanwhile."""


def _dominant(launched: ProfiledPlan) -> _Dominant | Misbehaved:
    task = RunTask(side=launched.side, buffers=launched.buffers, dumps={})
    reply = expected(launched.session.request(task, launched.timeout_s), RunReply)
    if isinstance(reply, Misbehaved):
        return reply
    number = max(range(len(reply.launch_us)), key=reply.launch_us.__getitem__)
    return _Dominant(number, reply.launch_us[number])


def _sources(compiled: Compiled) -> dict[str, str]:
    """Text by file name, the rewrite's own under the name that compilers give it."""
    texts = {f.path: f.text for f in compiled.unit.program.files}
    if compiled.unit.rewrite is not None:
        texts[CANDIDATE] = compiled.unit.rewrite.source
    return texts
