"""Modelled time and metrics of a plan: sampled blocks run here, time played for a named device.

`docs/model.md` says how it works and how far from measured times it is.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cudaops.cuda.devices import device as device_named
from cudaops.cuda.ncu_problem import compiled_metrics
from cudaops.cuda.nvcc_line import folders_outside, preprocessor_words
from cudaops.domain.base import Dim3
from cudaops.domain.execution import Compiled, CompileFailed, Measurement, Misbehaved, Unit
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import ResolvedLaunch, ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.build import BASELINE_ENTRY, MAIN, NOT_FINISHED, unit_source
from cudaops.executors.cpu.report import bad_report, locate
from cudaops.executors.cpu.resources import ask_nvcc
from cudaops.executors.cpu.toolchain import (
    COMPILE_TIMEOUT_S,
    compile_command,
    compiling,
    precompiled_header,
)
from cudaops.executors.cpu.unit import launched_cluster
from cudaops.executors.process import run_bounded
from cudaops.executors.untrusted_files import (
    UntrustedFileError,
    copy_untrusted,
    read_untrusted,
    temporary_folder,
)
from cudaops.storage import LOCK, NOTE, Facts, entry_of, make_once, raise_for_space, raise_if_full
from cudaops.timemodel.divergence import Divergence, divergence
from cudaops.timemodel.gimple import GimpleFunction, parse, type_names
from cudaops.timemodel.idle_blocks import to_look_at, working_share
from cudaops.timemodel.launch import LaunchModel, LaunchSample, hot_lines, model_launch
from cudaops.timemodel.loops import with_gcc_pragmas
from cudaops.timemodel.phases import loops_of_blocks
from cudaops.timemodel.timing import modelled_metrics
from cudaops.timemodel.trace import (
    MANY_STRATA,
    MOST_TRACE_BYTES,
    STRATA,
    UNEVEN_STRATA,
    BadTrace,
    SampledBlocks,
    Trace,
    read_trace,
    sampled_blocks,
    working_blocks,
)

if TYPE_CHECKING:
    from cudaops.executors.cpu.executor import CpuExecutor

SEED = 2
"""Of the random blocks in the sample."""

KEPT = 64
"""Samples kept in memory: the same launch modelled for another device costs no run."""

_kept: OrderedDict[tuple[object, ...], LaunchSample] = OrderedDict()
_lock = threading.Lock()


def measure(
    executor: CpuExecutor, compiled: Compiled, workload: Workload, plan: ResolvedPlan, *,
    timeout_s: float = 120.0,
) -> Measurement | Misbehaved:  # fmt: skip
    """Modelled time of all launches of the plan together, in the workload's L2 regime, by the clock
    that judges on a GPU: from the first kernel's start.

    One sample: the model is deterministic.
    """
    models = _all(executor, compiled.unit, workload, plan, timeout_s)
    if isinstance(models, Misbehaved):
        return models
    unseen_us = device_named(executor.device).before_start_us
    low_us, high_us = (
        sum(model.interval_us[end] for model in models) - unseen_us for end in (0, 1)
    )
    return Measurement(
        source="modelled",
        device=executor.device,
        samples_us=(sum(model.duration_us for model in models) - unseen_us,),
        sampled_us=(low_us, high_us) if low_us < high_us else None,
        workload=workload.id,
        profile=_profile(executor, workload, models),
    )


def profile(
    executor: CpuExecutor, compiled: Compiled, workload: Workload, plan: ResolvedPlan, *,
    timeout_s: float = 120.0,
) -> Profile | Misbehaved:  # fmt: skip
    """Modelled metrics of the launch of the plan that takes longest."""
    models = _all(executor, compiled.unit, workload, plan, timeout_s)
    return models if isinstance(models, Misbehaved) else _profile(executor, workload, models)


def _profile(executor: CpuExecutor, workload: Workload, models: list[LaunchModel]) -> Profile:
    top = max(models, key=lambda model: model.duration_us)
    notes = top.notes
    if len(models) > 1:
        total = sum(model.duration_us for model in models)
        notes = (
            f"the longest of {len(models)} launches, which take {total:.1f} us together",
            *notes,
        )
    metrics = modelled_metrics(top.modelled)
    if top.resources is not None:
        metrics |= compiled_metrics(top.resources, metrics, device_named(executor.device))
    return Profile(
        kernel=top.kernel,
        device=executor.device,
        workload=workload.id,
        source="modelled",
        duration_us=top.duration_us,
        metrics=metrics,
        hot_lines=hot_lines(top),
        notes=notes,
    )


def _all(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan, timeout_s: float
) -> list[LaunchModel] | Misbehaved:
    models: list[LaunchModel] = []
    rewritten = unit.rewrite is not None and plan.applicable
    asking = ThreadPoolExecutor(max_workers=1)
    try:
        asked = asking.submit(copy_context().run, ask_nvcc, executor.cache, executor.device, unit)
        for position, launch in enumerate(plan.launches):
            taken = _sampled(executor, unit, workload, plan, position, timeout_s)
            if isinstance(taken, Misbehaved):
                return taken
            sizes = {a.index: a.size_bytes for a in workload.allocations}
            sizes |= {-2 - n: size for n, size in enumerate(plan.scratch_bytes.values())}
            answer = asked.result()
            model = model_launch(
                taken,
                unit,
                _kernel(unit, plan, launch),
                launch,
                sizes,
                device_named(executor.device),
                bounded=_has_launch_bounds(unit, plan),
                rewritten=rewritten,
                resources=answer.by_entry.get(launch.step if rewritten else BASELINE_ENTRY),
                asked=answer.who,
                cold=workload.l2_regime == "cold" and position == 0,
            )
            if isinstance(model, Misbehaved):
                return model
            models.append(model)
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
    return models


def _sampled(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan, position: int,
    timeout_s: float,
) -> LaunchSample | Misbehaved:  # fmt: skip
    """The sample of one launch, kept by everything it depends on: what the launches before it
    leave in memory decides what it does."""
    rewrite = unit.rewrite.id if unit.rewrite else ""
    before = plan.model_copy(update={"launches": plan.launches[: position + 1]})
    key = (
        unit.program.sha256, unit.callee, rewrite, workload.folder, workload.id,
        before.model_dump_json(),
    )  # fmt: skip
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    taken = sample(executor, unit, workload, before, timeout_s)
    if not isinstance(taken, Misbehaved):
        with _lock:
            _kept[key] = taken
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
    return taken


def _kernel(unit: Unit, plan: ResolvedPlan, launch: ResolvedLaunch) -> str:
    """The launched expression: a step of the rewrite, or the baseline."""
    if unit.rewrite is not None and plan.applicable:
        return unit.rewrite.plan.launches[launch.step].kernel
    return unit.callee


def _has_launch_bounds(unit: Unit, plan: ResolvedPlan) -> bool:
    if unit.rewrite is not None and plan.applicable:
        return re.search(r"__launch_bounds__", unit.rewrite.source) is not None
    return unit.program.kernel(unit.kernel).launch_bounds is not None


MODEL_FLAGS = (
    "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-ffp-contract=off", "-fno-ivopts",
    "-funroll-loops", "-fno-peel-loops", "-fno-tree-sra", "-fno-tree-loop-distribute-patterns",
    "-fno-store-merging",
    "--param", "profile-func-internal-id=1",
    "--param", "max-completely-peeled-insns=8000", "--param", "max-completely-peel-times=64",
    "--param", "max-unroll-times=1", "-fno-web", "-fno-rename-registers",
    "-fno-schedule-insns2", "-fno-gcse",
    "-include", "cudaops/whole_kernels.h",
)  # fmt: skip
"""Behind our own headers. Web to gcse only save compile time behind the IL that is read."""
UNROLLED_LESS = ("--param", "max-completely-peeled-insns=200")
"""Of a unit that g++ does not finish otherwise: 200 is GCC's own default (GCC manual, "Optimize
Options"), at which loops over loops of a few dozen instructions stay."""
COUNTED_AS_WRITTEN = ("-fdisable-tree-cunrolli", "-fdisable-tree-cunroll")
"""Counters are placed before loops are unrolled: they count the same without, and a tile of many
results takes an eighth of the time to compile."""
COUNTING = (
    "-lgcov", "--coverage", "-Wl,-u,__gcov_reset", "-Wl,-u,__gcov_dump",
    "-Wl,--wrap=__gcov_init",
)  # fmt: skip
"""The runner resets the counters before the launch that is sampled, and reads them (`lanes.cpp`)
each time that another thread takes its turn."""
_BASE = "counted"
_MOST_COUNTERS = 64 << 20
"""Bytes; a unit of 2,000 functions has 1 MB of them."""


def sample(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan, timeout_s: float
) -> LaunchSample | Misbehaved:
    """Run some blocks of the plan's last launch twice, each time after all of the launches before
    it: for memory and for counts. More where they differ; where some do nothing, those that do are
    looked for among more.

    Raises:
        SandboxUnavailable: g++ takes the unit for one of the two purposes and not for the other.
    """
    try:
        executor.cache.mkdir(parents=True, exist_ok=True)
        return _sample(executor, unit, workload, plan, timeout_s)
    except OSError as problem:
        raise_for_space(problem, f"sampling in {executor.cache}")
        raise


def _sample(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan, timeout_s: float
) -> LaunchSample | Misbehaved:
    grid = plan.launches[-1].grid
    cluster = launched_cluster(unit, plan, plan.launches[-1])
    few = sampled_blocks(grid, SEED, cluster=cluster)
    taken = _taken(executor, unit, workload, plan, few, timeout_s)
    if isinstance(taken, Misbehaved):
        return taken
    if not taken.trace.has_idle:
        early = any(map(_may_leave_early, taken.functions))
        if not taken.trace.is_uneven and (taken.divergence.is_even or not early):
            return taken
        more = sampled_blocks(grid, SEED, UNEVEN_STRATA, cluster)
        return _taken(executor, unit, workload, plan, more, timeout_s)
    found = _working(executor, unit, workload, plan, cluster, timeout_s)
    if isinstance(found, Misbehaved):
        return found
    if not found.blocks:
        return taken
    for most in (STRATA, UNEVEN_STRATA):
        blocks = working_blocks(grid, found.blocks, cluster, most)
        taken = _taken(executor, unit, workload, plan, blocks, timeout_s)
        if isinstance(taken, Misbehaved):
            return taken
        if not taken.trace.is_uneven or len(found.blocks) <= most:
            break
    return taken._replace(working_share=found.share)


def _may_leave_early(function: GimpleFunction) -> bool:
    """Whether a loop that ran has several ends: how long a thread takes may then depend on its
    data, though it accesses as much memory as others."""
    for body in loops_of_blocks(function)[1].values():
        ends = [n for n in body if not body.issuperset(function.blocks[n].successors)]
        if len(ends) > 1:
            return True
    return False


class _Working(NamedTuple):
    """Blocks that do anything, and how many of the grid's do."""

    blocks: tuple[int, ...]
    share: float


def _working(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    cluster: Dim3 | None, timeout_s: float,
) -> _Working | Misbehaved:  # fmt: skip
    grid = plan.launches[-1].grid
    sample = sampled_blocks(grid, SEED, MANY_STRATA, cluster).counted
    whole = cluster is not None and cluster.volume > 1
    looked: dict[int, bool] = {}
    left = sample if whole else tuple(dict.fromkeys((0, *sample, grid.volume - 1)))
    while left:
        blocks = SampledBlocks(left, ())
        with temporary_folder("sample.", executor.cache) as folder:
            trace = _traced(executor, unit, workload, plan, blocks, folder / "t", timeout_s)
        if isinstance(trace, Misbehaved):
            return trace
        looked |= {block: block in trace.working for block in left}
        left = () if whole else to_look_at(looked)
    working = tuple(sorted(block for block, works in looked.items() if works))
    share = len(working) / len(looked) if whole else working_share(looked, sample)
    return _Working(working, share)


def _taken(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: SampledBlocks, timeout_s: float,
) -> LaunchSample | Misbehaved:  # fmt: skip
    with (
        temporary_folder("sample.", executor.cache) as folder,
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        traced = pool.submit(
            copy_context().run, _traced,
            executor, unit, workload, plan, blocks, folder / "t", timeout_s,
        )  # fmt: skip
        counted = pool.submit(
            copy_context().run, _counted,
            executor, unit, workload, plan, blocks, folder / "c", timeout_s,
        )  # fmt: skip
        trace, done = traced.result(), counted.result()
    if isinstance(trace, Misbehaved):
        return trace
    if isinstance(done, Misbehaved):
        return done
    return LaunchSample(trace, done.functions, divergence=done.divergence)


def _traced(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: SampledBlocks, folder: Path, timeout_s: float,
) -> Trace | Misbehaved:  # fmt: skip
    built = _built(build_traced(executor, unit))
    last = len(plan.launches) - 1
    report = executor.run_instrumented(
        built, workload, plan, blocks.counted, folder, timeout_s, last, blocks.neighbours
    )
    if isinstance(report, Misbehaved):
        return report
    executable = Path(built.folder) / "unit"
    files = [f.path for f in unit.program.files]
    try:
        left = read_untrusted(report.parent, report.name, MOST_TRACE_BYTES)
        return read_trace(left, lambda addresses: locate(executable, addresses, files))
    except (BadTrace, UntrustedFileError) as wrong:
        return bad_report(f"trace: {wrong}")


def build_traced(executor: CpuExecutor, unit: Unit) -> Compiled | CompileFailed:
    """The unit whose accesses are sampled."""
    return _unrolled(unit, lambda flags: executor.build_instrumented(unit, flags))


def _unrolled(
    unit: Unit, build: Callable[[tuple[str, ...]], Compiled | CompileFailed]
) -> Compiled | CompileFailed:
    """With loops unrolled as nvcc unrolls them, or less where g++ does not get through."""
    built = build(_flags_of(unit))
    if isinstance(built, CompileFailed) and built.message.startswith(NOT_FINISHED):
        with _lock:
            _unrolled_less.add(_text_of(unit))
        built = build(_flags_of(unit))
    return built


_unrolled_less: set[tuple[str, str, str]] = set()
"""Units that g++ did not finish: what is compiled of them next unrolls less too."""


def _text_of(unit: Unit) -> tuple[str, str, str]:
    return unit.program.sha256, unit.callee, unit.rewrite.id if unit.rewrite else ""


def _flags_of(unit: Unit) -> tuple[str, ...]:
    return (*MODEL_FLAGS, *(UNROLLED_LESS if _text_of(unit) in _unrolled_less else ()))


class _Counted(NamedTuple):
    """What the counting build says of the sampled blocks."""

    functions: tuple[GimpleFunction, ...]
    divergence: Divergence


def _counted(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: SampledBlocks, folder: Path, timeout_s: float,
) -> _Counted | Misbehaved:  # fmt: skip
    counted = (*COUNTED_AS_WRITTEN, "-fprofile-arcs")
    built = _built(
        _unrolled(unit, lambda flags: executor.build_counted(unit, (*flags, *counted), COUNTING))
    )
    prefix = folder / "counters"
    env = {"GCOV_PREFIX": str(prefix), "CUDAOPS_LANES": "1"}
    last = len(plan.launches) - 1
    ran = executor.run_counted(
        built, workload, plan, blocks.counted, folder, timeout_s, env, last
    )  # fmt: skip
    if isinstance(ran, Misbehaved):
        return ran
    if not any(prefix.rglob("*.gcda")):
        raise SandboxUnavailable(
            "the counted build wrote no counters", "check that gcov's library is complete"
        )
    texts = [f.text for f in unit.program.files]
    names = type_names([*texts, unit.rewrite.source] if unit.rewrite else texts)
    try:
        threads, lanes, longest = (
            _functions(executor, unit, names, Path(built.folder), folder, name)
            for name in (prefix.name, *LONGEST)
        )
        steps = _steps_of_blocks(folder)
    except UntrustedFileError as wrong:
        return bad_report(f"counters: {wrong}")
    return _Counted(threads, divergence(threads, lanes, longest, steps))


LONGEST = ("counters.lanes", "counters.warps")
"""Folders of counters as if the longest lane of each warp, and of each block, had run alone; there
where these do more than the mean: `lanes.cpp`."""
_MOST_STEPS_BYTES = 1 << 20


def _functions(
    executor: CpuExecutor, unit: Unit, names: Mapping[str, str], sources: Path, folder: Path,
    name: str,
) -> tuple[GimpleFunction, ...]:  # fmt: skip
    """Those that ran, by the counters in this folder of the run's; none where there are none.
    `names`: as `type_names` finds them. Raises UntrustedFileError."""
    found = next((folder / name).rglob("*.gcda"), None)
    if found is None:
        return ()
    kept = folder.with_name(f"{folder.name}.{name}.gcda")
    copy_untrusted(folder, found.relative_to(folder).as_posix(), kept, 0, _MOST_COUNTERS)
    text = _dump(executor, unit, sources, kept)
    return tuple(f for f in parse(text, names) if any(b.count for b in f.blocks.values()))


def _steps_of_blocks(folder: Path) -> tuple[tuple[float, ...], ...]:
    """As `divergence` takes them; none where they were not told. Raises UntrustedFileError."""
    name = "counters.blocks"
    if not (folder / name).is_file():
        return ()
    text = read_untrusted(folder, name, _MOST_STEPS_BYTES).decode("utf-8", "replace")
    lines = re.findall(r"^\d{1,18} (\d{1,18}) (\d{1,18})$", text, re.MULTILINE)
    return tuple((float(together), float(longest)) for together, longest in lines)


def _built(outcome: Compiled | CompileFailed) -> Compiled:
    if isinstance(outcome, CompileFailed):
        raise SandboxUnavailable(
            f"g++ does not compile the unit for the time model: {outcome.message}",
            "use g++ 12, or report this program",
        )
    return outcome


def _dump(executor: CpuExecutor, unit: Unit, sources: Path, counters: Path) -> str:
    """The unit compiled again with its counters at hand, up to the last IL g++ prints. The same
    counters of the same build give the same text."""
    counted = counters.read_bytes()
    texts = {name: with_gcc_pragmas(text) for name, text in unit_source(unit).files.items()}
    read = [sources.name, hashlib.sha256(counted).hexdigest(), sorted(texts.items())]
    entry = entry_of(executor.cache, "il", read)

    def make(folder: Path) -> Facts:
        skipped = shutil.ignore_patterns("*.o", "unit", NOTE, LOCK)
        shutil.copytree(sources, folder, ignore=skipped, dirs_exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        (folder / f"{_BASE}.gcda").write_bytes(counted)
        return {"il": _dump_in(executor, unit, folder)}

    name = make_once(entry, {}, make).facts["il"]
    return (entry.folder / str(name)).read_text("utf-8", errors="replace")


def _dump_in(executor: CpuExecutor, unit: Unit, work: Path) -> str:
    """Name of the file with the IL of the sources and counters in this folder."""
    header = precompiled_header(executor.cache, "plain", unit_source(unit).includes)
    prelude = [str(header)] if header else ["cudaops/cuda.h", "cudaops/entry.h"]
    options = unit.program.code_options
    extra = [
        f"-ffile-prefix-map={work}=.",
        *(word for p in prelude for word in ("-include", p)),
        *preprocessor_words(options),
        *_flags_of(unit),
        "-fbranch-probabilities",
        "-fdump-tree-optimized-lineno",
        "-g0",  # places are in the dump all the same
        "-S",
        "-dumpbase",
        _BASE,
    ]
    command = compile_command("plain", MAIN, "/dev/null", extra)
    reads = [*folders_outside(options), *([header.parent] if header else [])]
    confine = compiling(work, reads)
    done = run_bounded(command, cwd=work, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    dumps = sorted(work.glob(f"{_BASE}.*.optimized"))
    if done.exit_code != 0 or not dumps:
        raise_if_full(done.stderr, work)
        first = (done.stderr.strip() or "no message").splitlines()[0]
        raise SandboxUnavailable(
            f"g++ wrote no IL for the time model: {first}", "use g++ 11 or newer"
        )
    return dumps[0].name
