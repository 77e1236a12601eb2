"""Variables by which a kernel tells others something: a counter that host code or another kernel
reads. They are results as buffers are, under indices below zero."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cudaops.domain.execution import Ran
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import Allocation, DeviceMemory, Workload
from cudaops.executors.compare import same_contents
from cudaops.program.lexing import without_comments


def shared_variables(
    program: Program, kernel: Kernel, workload: Workload
) -> tuple[Allocation, ...]:
    """Those that the kernel may write and that something else reads, as buffers."""
    constant = {v.qualified_name for v in program.global_variables if v.space == "constant"}
    return tuple(
        Allocation(
            index=-1 - n,
            role="inout",
            name=state.name,
            **{name: getattr(state, name) for name in DeviceMemory.model_fields},
        )
        for n, state in enumerate(workload.globals)
        if state.is_used
        and state.name not in constant
        and _is_read_elsewhere(program, kernel, state.name.rpartition("::")[2])
    )


def changed_variables(
    program: Program, kernel: Kernel, workload: Workload
) -> tuple[Allocation, ...]:
    """Those of them that the captured launch changes."""
    folder = Path(workload.folder)
    return tuple(
        v
        for v in shared_variables(program, kernel, workload)
        if not same_contents(str(folder / v.before), str(folder / v.after))
    )


def with_variables(ran: Ran, variables: Sequence[Allocation]) -> Ran:
    """The run with what it left in these variables among its outputs."""
    left = ran.global_outputs
    found = {v.index: left[v.name] for v in variables if v.name in left}
    return ran.model_copy(update={"outputs": {**ran.outputs, **found}}) if found else ran


def _is_read_elsewhere(program: Program, kernel: Kernel, name: str) -> bool:
    """Whether the text outside of the kernel names the variable more often than to declare it and
    to set it before a launch."""
    mentions = sets = 0
    for file in program.files:
        raw = file.text.encode()
        if file.path == kernel.file:
            raw = raw[: kernel.start_byte] + raw[kernel.end_byte :]
        text = without_comments(raw.decode())
        mentions += len(re.findall(rf"\b{name}\b", text))
        sets += len(re.findall(rf"\bcudaMemcpyToSymbol(?:Async)?\s*\(\s*{name}\b", text))
    return mentions - sets > 1


def same_variables(
    variables: Sequence[Allocation], first: Ran, second: Ran
) -> tuple[Allocation, ...]:
    """Those that two orders of the threads leave the same."""
    return tuple(
        v
        for v in variables
        if v.index in first.outputs
        and v.index in second.outputs
        and same_contents(first.outputs[v.index], second.outputs[v.index])
    )
