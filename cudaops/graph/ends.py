"""Whether the kernel that a run stands on is at an end, from what the run knows of it."""

from __future__ import annotations

import asyncio

from cudaops.cuda.devices import device
from cudaops.cuda.ends import as_short_as_a_launch, at_roofline, load_latency_us
from cudaops.domain.ends import End
from cudaops.domain.execution import MEASURED
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.program import syntax as s
from cudaops.program.front_end import kernel_form
from cudaops.program.syntax import NotUnderstood
from cudaops.sandbox.workbench import Workbench


async def end_of(
    bench: Workbench, incumbent: Rewrite | None, profile: Profile, verdict: Verdict
) -> End | None:
    """Of the author's kernel, or of a rewrite, as profiled on the most expensive workload; None
    where there may be something to gain, or nobody can tell."""
    if not (bench.models_time or bench.executor.time_source in MEASURED):
        return None
    if incumbent is None:
        found = await asyncio.to_thread(_launch_bound, bench, profile)
        if found is not None:
            return found
    workload = bench.workloads[0]
    buffers = sum(a.size_bytes for a in workload.allocations)
    where = device(bench.executor.device)
    return at_roofline(profile, verdict, where, buffers, warm=workload.l2_regime == "warm")


def _launch_bound(bench: Workbench, profile: Profile) -> End | None:
    """By the author's time on the most expensive workload, and that of an empty kernel."""
    workload = bench.workloads[0]
    try:
        measured = bench.baseline_time(workload)
    except InputError:
        return None  # the run says so where it needs the time
    where = device(bench.executor.device)
    launch_us = measured.timing.gap_us if measured.timing else None
    if bench.models_time:
        launch_us = where.launch_us
    if launch_us is None:
        return None
    captured = bench.captured.timed.captured
    counts = next((c for c in captured.counts if c.kernel == captured.kernel), None)
    return as_short_as_a_launch(
        profile,
        measured.events_us,
        launch_us,
        load_latency_us(profile, where, warm=workload.l2_regime == "warm"),
        bench.policy.min_speedup,
        counts.launches if counts else workload.launches,
        measured.provenance,
    )


def atomic_order(bench: Workbench, verdict: Verdict) -> End | None:
    """Where contended atomics limit the author's kernel, and what it makes of their results depends
    on their order. For after a search that found nothing."""
    if verdict.subtype != "atomic_contention":
        return None
    try:
        form = kernel_form(bench.program, bench.kernel, bench.callee)
    except NotUnderstood:
        return None
    count = sum(_results_used(f) for f in (form.kernel, *form.functions))
    if not count:
        return None
    which = "the result of an atomic operation" if count == 1 else f"results of {count} atomics"
    return End(
        kind="atomic_order",
        says=(
            f"{verdict.summary.rstrip('.')}; {bench.kernel.qualified_name} uses {which}, which "
            "says in what order threads came: with fewer or other atomics they would come in "
            "another, and the results would not be the author's"
        ),
        numbers={"atomics_whose_results_are_used": float(count)},
    )


def _results_used(function: s.Function) -> int:
    alone = {id(x.value) for x in s.below(function.body) if isinstance(x, s.Evaluate)}
    return sum(
        isinstance(x, s.Call) and x.function.startswith("atomic") and id(x) not in alone
        for x in s.below(function.body)
    )
