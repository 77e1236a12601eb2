"""All that can be said of a rewrite before it is tuned or judged, on its default tune values.

Text, plan, both compilers, `@requires` on every workload, registers and spills by ptxas, outputs on
the smallest workload, and a first time with what limits it. A look, for whoever writes: only
`evaluate` decides, on every workload, on secret inputs and by times taken side by side.
"""

from __future__ import annotations

import re
from typing import Literal

from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.base import Record, SourceLocation
from cudaops.domain.execution import (
    Compiled,
    CompileFailed,
    KernelResources,
    Measurement,
)
from cudaops.domain.judgement import fine_us
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Say
from cudaops.domain.workload import Workload
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.resources import ask_nvcc
from cudaops.gates.evaluate import Evaluating
from cudaops.sandbox.workbench import Workbench

Stage = Literal["text", "build", "requires", "results", "time"]
"""`text`: directives and words of the source. `build`: plan, compilers, what they made of it.
`requires`: whether it applies to what is timed. `results`: outputs on one workload. `time`: it was
timed."""


_MOST_TIMES, _WORTH_A_TIME = 3, 0.1
"""Workloads that are timed, and the share of the kernel's time from which on one is."""


class Precheck(Record):
    """How far a rewrite came, and what was seen on the way."""

    ok: bool
    """Builds everywhere, applies to the hottest workload, and is right on the smallest one."""
    stage: Stage
    """Where it ended."""
    message: str
    """The first problem; where there is none, that it builds, applies and is right, and where."""
    location: SourceLocation | None = None
    """Of a compiler's error; `candidate.cu` is the rewrite's own text."""
    log: str = ""
    """Compiler output, bounded to 16 KiB."""
    kernels: tuple[str, ...] = ()
    """A line a kernel of the plan: registers, spills and shared memory as ptxas says; or one line
    that says why nobody does."""
    applies: tuple[str, ...] = ()
    """A line a workload: its launches, or which `@requires` keeps the author's kernel there."""
    results: str = ""
    """How the outputs on the smallest workload compare; empty where it did not run."""
    time: str = ""
    """First time beside the author's, and what limits it; empty where none was taken."""


def precheck(bench: Workbench, rewrite: Rewrite, say: Say = lambda line: None) -> Precheck:
    """Look at a rewrite. Raises InputError where the author's own kernel cannot be run or timed."""
    looking = Evaluating(bench, rewrite, say)
    compiled = looking.build()
    last = looking.gates[-1]
    if compiled is None:
        failed = looking.failure if isinstance(looking.failure, CompileFailed) else None
        problem = failed.message if failed else f"{last.name}: {last.summary}"
        return Precheck(
            ok=False,
            stage="text" if last.name in ("hygiene", "preprocessed") else "build",
            message=problem + _unroll_hint(rewrite, problem),
            location=failed.location if failed else None,
            log=failed.log if failed else "",
        )
    found = Precheck(
        ok=False,
        stage="requires",
        message="; ".join(dict.fromkeys(one.compiler for one in compiled)),
        kernels=kernel_lines(bench, compiled[0]),
        applies=tuple(
            _applies(bench, rewrite, workload) for workload in bench.workloads_of(rewrite)
        ),
    )
    hottest = bench.workloads[0]
    if not bench.plan(hottest, rewrite).applicable:
        text = f"the original kernel runs instead on the timed launches: {found.applies[0]}"
        return found.model_copy(update={"message": text})
    if not looking.right_on_captured(compiled, smallest=True):
        told = looking.gates[-1].line
        return found.model_copy(update={"stage": "results", "message": told, "results": told})
    results = looking.gates[-1].summary
    time = _time(bench, rewrite, hottest)
    message = (
        f"built by {found.message}, applies to the timed launches, correct on the smallest workload"
    )
    return found.model_copy(
        update={"ok": True, "stage": "time", "message": message, "results": results, "time": time}
    )


def _unroll_hint(rewrite: Rewrite, message: str) -> str:
    """What to do about a macro in a pragma, tune names among them: nvcc, unlike g++, expands none
    there."""
    unknown = re.search(r'identifier "(\w+)" is undefined', message)
    if unknown is None:
        return ""
    if not re.search(rf"#\s*pragma\s+unroll\s*\(?\s*{unknown[1]}\b", rewrite.source):
        return ""
    return (
        f": nvcc expands no macro in `#pragma unroll`, and `{unknown[1]}` is one; write "
        f"`constexpr int STEPS = {unknown[1]};` outside of the kernel and `#pragma unroll STEPS`"
    )


def kernel_lines(bench: Workbench, compiled: Compiled) -> tuple[str, ...]:
    """What ptxas says each kernel takes of an SM, a line each; else one line that says why not."""
    if compiled.resources:
        return tuple(resource_line(one) for one in compiled.resources)
    answer = ask_nvcc(bench.executor.cache, bench.executor.device, compiled.unit)
    if not answer.by_entry:
        return (f"registers and spills are not known: {answer.who}",)
    taken = sorted(
        (entry, one) for entry, one in answer.by_entry.items() if entry != BASELINE_ENTRY
    )
    return tuple(dict.fromkeys(resource_line(one) for _, one in taken))


def resource_line(taken: KernelResources) -> str:
    """`k_fast: 40 registers a thread, no spills, 4,096 bytes of shared memory a block (sm_90)`."""
    spilled = taken.spill_store_bytes + taken.spill_load_bytes
    spills = f"{spilled} bytes of spills" if spilled else "no spills"
    stack = f", {taken.stack_bytes} bytes of local memory" if taken.stack_bytes else ""
    return (
        f"{taken.kernel}: {taken.registers} registers/thread, {spills}{stack}, "
        f"{taken.static_smem_bytes:,} bytes of static shared memory per block ({taken.sm_arch})"
    )


def _applies(bench: Workbench, rewrite: Rewrite, workload: Workload) -> str:
    plan = bench.plan(workload, rewrite)
    if plan.unmet is not None:
        return f"{workload.id}: no, {plan.unmet} does not hold{_values(plan.unmet, workload)}"
    steps = rewrite.plan.launches
    launches = [f"{steps[x.step].kernel} grid {x.grid}, block {x.block}" for x in plan.launches]
    return f"{workload.id}: yes, {'; '.join(launches)}"


def _values(condition: str, workload: Workload) -> str:
    """` (n = 1023)`: of the scalars that a condition names."""
    names = set(re.findall(r"[A-Za-z_]\w*", condition))
    told = [
        f"{a.name} = {a.value:.9g}"
        for a in workload.arguments
        if a.kind == "scalar" and a.name in names
    ]
    return f" ({', '.join(told)})" if told else ""


def _time(bench: Workbench, rewrite: Rewrite, hottest: Workload) -> str:
    """First times on what is timed and dear, of every instance that the rewrite serves."""
    first = bench.measure(rewrite, hottest)
    if not isinstance(first, Measurement):
        return f"not timed: {first.placed}"
    told = [_beside_authors(bench, first, hottest, first.provenance_of_time)]
    others = [
        w for w in bench.workloads_of(rewrite)
        if w.id != hottest.id and w.is_timed and w.time_share >= _WORTH_A_TIME
        and bench.plan(w, rewrite).applicable
    ]  # fmt: skip
    for workload in others[: _MOST_TIMES - 1]:
        measured = bench.measure(rewrite, workload)
        if not isinstance(measured, Measurement):
            return f"not timed: {measured.placed}"
        told.append(_beside_authors(bench, measured, workload))
    if values := ", ".join(f"{name}={value}" for name, value in rewrite.values().items()):
        told.append(f"with {values}")
    profile = first.profile if bench.models_time else bench.profile(rewrite)
    if not isinstance(profile, Profile):
        return "; ".join(told)
    return f"{'; '.join(told)}. {diagnose(profile, device(profile.device)).summary}"


def _beside_authors(
    bench: Workbench, measured: Measurement, workload: Workload, provenance: str = ""
) -> str:
    author = fine_us(bench.baseline_time(workload).median_us)
    time = fine_us(measured.median_us)
    return f"{time} on {workload.id}{provenance}, the author's kernel {author}"
