"""What a checker looks at: each launch of a plan alone, and which of its blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Misbehaved, Unit
from cudaops.domain.rewrite import BufferValue, ResolvedLaunch, ResolvedPlan, Value
from cudaops.domain.workload import Allocation, PointerArgument, Workload
from cudaops.executors.base import InputSet
from cudaops.executors.cuda.protocol import Buffer, Reply, RunReply, RunTask
from cudaops.executors.cuda.session import expected

SAMPLE_THREADS = 16 * 1024
"""Threads of a launch that are looked at; a smaller launch is looked at whole. That is 64 blocks of
256: 27 that stand at corners, edges and in the middle, which are looked at however large they are,
and 37 drawn. A fault that one block in ten has is missed by those 37 once in fifty times."""

Launch = Callable[[RunTask, float], Reply | Misbehaved]
"""Does a task in a runner."""


class Subject(NamedTuple):
    """A plan on one workload, as the executor ran it."""

    unit: Unit
    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet
    task: RunTask
    """The same, as the runner was told."""
    launch: Launch
    folder: Path
    timeout_s: float


class Single(NamedTuple):
    """One launch alone, with the memory that the launches before it left."""

    number: int
    workload: Workload
    plan: ResolvedPlan
    inputs: InputSet


def single_launches(subject: Subject) -> Iterator[Single | Misbehaved]:
    """Every launch of the plan in order. A launch that fails on the way ends the sequence.

    Of a plan with several, scratch buffers become allocations of the workload, so that what an
    earlier launch wrote to them stands there. Earlier launches run whole, on the GPU.
    """
    if len(subject.plan.launches) == 1:
        yield Single(0, subject.workload, subject.plan, subject.inputs)
        return
    numbers = _scratch_numbers(subject)
    workload = _with_scratch(subject, numbers)
    for number, launch in enumerate(subject.plan.launches):
        alone = subject.plan.model_copy(
            update={"launches": (_without_scratch(launch, numbers),), "scratch_bytes": {}}
        )
        if number == 0:
            fills = dict.fromkeys(numbers.values(), subject.inputs.scratch_poison)
            poison = {**subject.inputs.poison, **fills}
            yield Single(0, workload, alone, subject.inputs.model_copy(update={"poison": poison}))
            continue
        state = _state_before(number, subject, numbers)
        if isinstance(state, Misbehaved):
            yield state
            return
        contents, variables = state
        held = tuple(
            g.model_copy(update={"before": variables.get(g.name, g.before)})
            for g in workload.globals
        )
        yield Single(
            number,
            workload.model_copy(update={"globals": held}),
            alone,
            InputSet(contents=contents, scratch_poison=subject.inputs.scratch_poison),
        )


def sampled_blocks(grid: Dim3, threads_a_block: int, seed: int) -> tuple[int, ...] | None:
    """Linear indices in ascending order; None for all.

    First, middle and last along every axis in every combination, then others drawn with `seed`
    until `SAMPLE_THREADS` are reached. The same arguments give the same blocks.
    """
    marks = [sorted({0, n // 2, n - 1}) for n in (grid.x, grid.y, grid.z)]
    chosen = {(z * grid.y + y) * grid.x + x for x, y, z in itertools.product(*marks)}
    room = max(SAMPLE_THREADS // max(threads_a_block, 1), len(chosen))
    if grid.volume <= room:
        return None
    draw = random.Random(f"{seed} {grid}")
    while len(chosen) < room:
        chosen.add(draw.randrange(grid.volume))
    return tuple(sorted(chosen))


def _state_before(
    number: int, subject: Subject, numbers: dict[str, int]
) -> tuple[dict[int, str], dict[str, str]] | Misbehaved:
    """Files with the contents of allocations and variables after the launches before this one."""
    folder = subject.folder.absolute() / f"before{number}"
    folder.mkdir(parents=True, exist_ok=True)
    task, side = subject.task, subject.task.side
    buffers = task.buffers + tuple(
        Buffer(index=numbers[s.name], size_bytes=s.size_bytes, fill=s.fill) for s in side.scratch
    )
    launches = tuple(
        one.model_copy(update={"values": _values(one.values, numbers)})
        for one in side.launches[:number]
    )
    prefix = task.model_copy(
        update={
            "side": side.model_copy(update={"launches": launches, "scratch": ()}),
            "buffers": buffers,
            "dumps": {b.index: str(folder / f"{b.index}.bin") for b in buffers},
            "global_dumps": {
                g.name: str(folder / f"global{n}.bin") for n, g in enumerate(side.globals)
            },
        }
    )
    reply = expected(subject.launch(prefix, subject.timeout_s), RunReply)
    if isinstance(reply, Misbehaved):
        return reply
    return dict(prefix.dumps), dict(prefix.global_dumps)


def _scratch_numbers(subject: Subject) -> dict[str, int]:
    first = max((a.index for a in subject.workload.allocations), default=-1) + 1
    return {name: first + n for n, name in enumerate(subject.plan.scratch_bytes)}


def _with_scratch(subject: Subject, numbers: dict[str, int]) -> Workload:
    sizes = subject.plan.scratch_bytes
    allocations = tuple(
        Allocation(
            index=number, size_bytes=sizes[name], element="opaque", role="out", before="", after=""
        )
        for name, number in numbers.items()
    )
    named = tuple(
        PointerArgument(name=name, element="opaque", allocation=number)
        for name, number in numbers.items()
    )
    workload = subject.workload
    return workload.model_copy(
        update={
            "allocations": workload.allocations + allocations,
            "arguments": workload.arguments + named,
        }
    )


def _without_scratch(launch: ResolvedLaunch, numbers: dict[str, int]) -> ResolvedLaunch:
    return launch.model_copy(update={"values": _values(launch.values, numbers)})


def _values(values: tuple[Value, ...], numbers: dict[str, int]) -> tuple[Value, ...]:
    return tuple(
        BufferValue(allocation=numbers[v.scratch], offset_bytes=v.offset_bytes)
        if isinstance(v, BufferValue) and v.scratch is not None
        else v
        for v in values
    )
