"""Two builds of a unit for the model: one that traces memory, one whose IL says how often code ran.
 Both are compiled alike and at the same time: nothing vectorised, loops with known trip counts
unrolled as nvcc does, vector types left whole. Everything is kept by content, so a unit that was
looked at once costs nothing again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cudaops.domain.execution import Compiled, CompileFailed, Misbehaved, Unit
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.report import bad_report
from cudaops.executors.cpu.source import MAIN, unit_source
from cudaops.executors.cpu.toolchain import (
    COMPILE_TIMEOUT_S,
    compile_command,
    compiling,
    precompiled_header,
)
from cudaops.executors.process import run_bounded
from cudaops.executors.untrusted_files import NotLeft, copy_left, temporary_folder
from cudaops.storage import (
    LOCK,
    NOTE,
    Facts,
    entry_of,
    make_once,
    raise_for_space,
    raise_if_full,
)
from cudaops.timemodel.gimple import Function, parse
from cudaops.timemodel.sampling import BadTrace, Trace, read_trace

if TYPE_CHECKING:
    from cudaops.executors.cpu.executor import CpuExecutor

MODEL_FLAGS = (
    "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-ffp-contract=off", "-fno-ivopts",
    "-funroll-loops", "-fno-peel-loops", "-fno-tree-sra", "-fno-tree-loop-distribute-patterns",
    "--param", "max-completely-peeled-insns=8000", "--param", "max-completely-peel-times=64",
    "--param", "max-unroll-times=1", "-fno-web", "-fno-rename-registers",
    "-fno-schedule-insns2", "-fno-gcse",
)  # fmt: skip
"""The last two lines only save compile time behind the IL that is read."""
_BASE = "counted"
_MOST_COUNTERS = 64 << 20
"""Bytes; a unit of 2,000 functions has 1 MB of them."""


class Sample(NamedTuple):
    """What the sampled blocks of one launch did."""

    trace: Trace
    functions: tuple[Function, ...]
    """Functions of the unit that ran, with the counts of all sampled blocks together."""


def sample(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: Sequence[int], timeout_s: float,
) -> Sample | Misbehaved:  # fmt: skip
    """Run `blocks` (linear indices) of a one-launch plan twice: for memory and for counts.

    Raises:
        SandboxUnavailable: g++ takes the unit for one of the two purposes and not for the other.
    """
    try:
        executor.cache.mkdir(parents=True, exist_ok=True)
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
            trace, functions = traced.result(), counted.result()
    except OSError as problem:
        raise_for_space(problem, f"sampling in {executor.cache}")
        raise
    if isinstance(trace, Misbehaved):
        return trace
    if isinstance(functions, Misbehaved):
        return functions
    return Sample(trace, functions)


def _traced(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: Sequence[int], folder: Path, timeout_s: float,
) -> Trace | Misbehaved:  # fmt: skip
    built = _built(executor.build_instrumented(unit, MODEL_FLAGS))
    report = executor.run_instrumented(built, workload, plan, blocks, folder, timeout_s)
    if isinstance(report, Misbehaved):
        return report
    files = [f.path for f in unit.program.files]
    try:
        return read_trace(report, Path(built.folder) / "unit", files)
    except (BadTrace, NotLeft) as wrong:
        return bad_report(f"trace: {wrong}")


def _counted(
    executor: CpuExecutor, unit: Unit, workload: Workload, plan: ResolvedPlan,
    blocks: Sequence[int], folder: Path, timeout_s: float,
) -> tuple[Function, ...] | Misbehaved:  # fmt: skip
    flags = (*MODEL_FLAGS, "-fprofile-arcs")
    built = _built(executor.build_counted(unit, flags, ("-lgcov", "--coverage")))
    counters = folder / "counters"
    ran = executor.run_counted(
        built, workload, plan, blocks, folder, timeout_s, {"GCOV_PREFIX": str(counters)}
    )
    if isinstance(ran, Misbehaved):
        return ran
    found = next(counters.rglob("*.gcda"), None)
    if found is None:
        raise SandboxUnavailable(
            "the counted build wrote no counters", "check that gcov's library is whole"
        )
    name = found.relative_to(folder).as_posix()
    try:
        copy_left(folder, name, kept := folder.with_name(f"{folder.name}.gcda"), 0, _MOST_COUNTERS)
    except NotLeft as wrong:
        return bad_report(f"counters: {wrong}")
    text = _dump(executor, unit, Path(built.folder), kept)
    return tuple(f for f in parse(text) if any(b.count for b in f.blocks.values()))


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
    entry = entry_of(executor.cache, "il", sources.name, hashlib.sha256(counted).hexdigest())

    def make(folder: Path) -> Facts:
        skipped = shutil.ignore_patterns("*.o", "unit", NOTE, LOCK)
        shutil.copytree(sources, folder, ignore=skipped, dirs_exist_ok=True)
        (folder / f"{_BASE}.gcda").write_bytes(counted)
        return {"il": _dump_in(executor, unit, folder)}

    name = make_once(entry, {}, make).facts["il"]
    return (entry.folder / str(name)).read_text("utf-8", errors="replace")


def _dump_in(executor: CpuExecutor, unit: Unit, work: Path) -> str:
    """Name of the file with the IL of the sources and counters in this folder."""
    header = precompiled_header(executor.cache, "plain", unit_source(unit).includes)
    prelude = [str(header)] if header else ["cudaops/cuda.h", "cudaops/entry.h"]
    extra = [
        *MODEL_FLAGS,
        "-fbranch-probabilities",
        "-fdump-tree-optimized-lineno",
        "-S",
        "-dumpbase",
        _BASE,
    ]
    extra += [f"-ffile-prefix-map={work}=.", *(word for p in prelude for word in ("-include", p))]
    command = compile_command("plain", MAIN, "/dev/null", extra)
    confine = compiling(work, [header.parent] if header else [])
    done = run_bounded(command, cwd=work, timeout_s=COMPILE_TIMEOUT_S, confine=confine)
    dumps = sorted(work.glob(f"{_BASE}.*.optimized"))
    if done.exit_code != 0 or not dumps:
        raise_if_full(done.stderr, work)
        first = (done.stderr.strip() or "no message").splitlines()[0]
        raise SandboxUnavailable(
            f"g++ wrote no IL for the time model: {first}", "use g++ 11 or newer"
        )
    return dumps[0].name
