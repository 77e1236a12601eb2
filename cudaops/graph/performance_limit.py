"""Whether the run's kernel is at its performance limit, from what the run knows of it."""

from __future__ import annotations

import asyncio

from cudaops.cuda.devices import device
from cudaops.cuda.performance_limits import as_short_as_a_launch, at_roofline, load_latency_us
from cudaops.domain.execution import MEASURED
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.program import syntax as s
from cudaops.program.front_end import kernel_form
from cudaops.program.syntax import NotUnderstood
from cudaops.sandbox.workbench import Workbench


async def end_of(
    bench: Workbench, incumbent: Rewrite | None, profile: Profile, verdict: Verdict
) -> PerformanceLimit | None:
    """Of the author's kernel, or of a rewrite, as profiled on the most expensive workload; None
    where there may be something to gain, or nobody can tell."""
    if not (bench.models_time or bench.executor.time_source in MEASURED):
        return None
    if incumbent is None:
        found = await asyncio.to_thread(_launch_bound, bench, profile)
        if found is not None:
            return found
    workload = bench.workloads[0]
    buffers = workload.size_bytes
    where = device(bench.executor.device)
    return at_roofline(profile, verdict, where, buffers, warm=workload.l2_regime == "warm")


def _launch_bound(bench: Workbench, profile: Profile) -> PerformanceLimit | None:
    """By the author's time on the most expensive workload, and that of an empty kernel."""
    workload = bench.workloads[0]
    try:
        measured = bench.baseline_time(workload)
    except InputError:
        return None  # the run says so where it needs the time
    where = device(bench.executor.device)
    launch_us = measured.timing.gap_us if measured.timing else None
    if bench.models_time:
        launch_us = where.launch_us - where.before_start_us
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


def atomic_order(bench: Workbench, verdict: Verdict) -> PerformanceLimit | None:
    """Where contended atomics limit the author's kernel, and what it writes depends on the order in
    which they were made. For after a search that came to its end and found nothing."""
    if verdict.subtype != "atomic_contention":
        return None
    try:
        form = kernel_form(bench.program, bench.kernel, bench.callee)
    except NotUnderstood:
        return None
    if not any(writes_by_order(f.body) for f in (form.kernel, *form.functions)):
        return None
    return PerformanceLimit(
        kind="atomic_order",
        says=(
            f"{verdict.summary.rstrip('.')}; what {bench.kernel.qualified_name} writes holds the "
            "order in which its atomics were made, and with fewer or other ones that is another: "
            "whether it would do for the program, nothing here can tell"
        ),
        numbers={e.metric: e.value for e in verdict.evidence},
    )


def writes_by_order(body: tuple[s.Statement, ...]) -> bool:
    """Whether the result of an atomic operation reaches memory, as a value or in an index, or the
    function's caller. A result that is only compared, as by the last block to finish, does not."""
    held: set[str] = set()

    def holds(node: object) -> bool:
        return any(
            (isinstance(x, s.Call) and x.function.startswith("atomic"))
            or (isinstance(x, s.Name) and x.text in held)
            for x in s.below(node)
        )

    size = -1
    while size != len(held):
        size = len(held)
        for x in s.below(body):
            match x:
                case s.Declare(name=name, value=value) if value is not None and holds(value):
                    held.add(name)
                case s.Assign(s.Name(name), _, value) if holds(value):
                    held.add(name)
                case s.Assign(target, _, value) if holds(target) or holds(value):
                    return True
                case s.Give(value) if holds(value):
                    return True
    return False
