"""Recordings of launches as a recorder would give them, for tests of what is derived from them."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Captured, LaunchCount, RecordedLaunch, RecordedMemory
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.workload import (
    Allocation,
    Argument,
    Element,
    OpaqueArgument,
    PointerArgument,
    PointerField,
    ScalarArgument,
    Workload,
)
from cudaops.program.derived_plan import RecordedProgram
from cudaops.program.parse import parse_files

Memory = tuple[int, str, str]
"""Bytes, and what stands there before and after."""


def parse(text: str) -> Program:
    """A program of one file."""
    return parse_files("main", (SourceFile(path="main.cu", text=text),))


def pointer(name: str, memory: int, offset_bytes: int = 0, element: Element = "f32") -> Argument:
    """A pointer into the launch's memory."""
    return PointerArgument(name=name, element=element, allocation=memory, offset_bytes=offset_bytes)


def number(name: str, value: int | float) -> Argument:
    """An int, or a float for a value that is one."""
    element: Element = "f32" if isinstance(value, float) else "i32"
    return ScalarArgument(name=name, element=element, value=value)


def structure(name: str, raw_hex: str, **fields: tuple[int, int]) -> Argument:
    """A structure; of each pointer in it the byte at which it stands, and the memory."""
    pointers = tuple(
        PointerField(path=f"{name}.{field}", at_bytes=at, is_const=False, element="f32",
                     allocation=memory)
        for field, (at, memory) in fields.items()
    )  # fmt: skip
    return OpaqueArgument(name=name, raw_hex=raw_hex, pointers=pointers)


def launch(
    kernel: str,
    arguments: Sequence[Argument],
    memory: Sequence[Memory] = (),
    *,
    site: int = 0,
    grid: int = 4,
    block: int = 128,
    smem: int = 0,
    read_only: Sequence[str] = (),
    callee: str = "",
    problem: str = "",
) -> RecordedLaunch:
    """One recorded launch. `read_only`: parameters that are pointers to const."""
    return RecordedLaunch(
        kernel=kernel,
        callee=callee or kernel,
        site=site,
        grid=Dim3(x=grid),
        block=Dim3(x=block),
        dynamic_smem_bytes=smem,
        arguments=tuple(arguments),
        read_only=tuple(a.name in read_only for a in arguments),
        memory=tuple(RecordedMemory(size_bytes=s, before=b, after=a) for s, b, a in memory),
        launches=1,
        problem=problem,
    )


def side(program: Program, *launches: RecordedLaunch) -> RecordedProgram:
    """A program with what a run of it showed."""
    counts = tuple(
        LaunchCount(kernel=name, launches=1, skipped=0, seconds=0.1)
        for name in dict.fromkeys(one.kernel for one in launches)
    )
    captured = Captured(
        kernel=launches[0].kernel if launches else "",
        workloads=(),
        counts=counts,
        stdout="",
        stderr="",
        exit_code=0,
        seconds=0.1,
        recorded=launches,
    )
    return RecordedProgram(program, captured)


def workload_of(one: RecordedLaunch, name: str = "w0") -> Workload:
    """The workload that a capture makes of a launch."""
    held: dict[int, list[tuple[Element, bool]]] = {}
    for argument, constant in zip(one.arguments, one.read_only, strict=True):
        if isinstance(argument, PointerArgument):
            held.setdefault(argument.allocation, []).append((argument.element, constant))
        elif isinstance(argument, OpaqueArgument):
            for field in argument.pointers:
                held.setdefault(field.allocation, []).append((field.element, field.is_const))
    allocations = tuple(
        Allocation(
            index=index,
            size_bytes=memory.size_bytes,
            element=held[index][0][0],
            role="in" if all(constant for _, constant in held[index]) else "inout",
            before=f"a{index}.before.bin",
            after=f"a{index}.after.bin",
        )
        for index, memory in enumerate(one.memory)
    )
    return Workload(
        id=name,
        kernel=one.kernel,
        callee=one.callee,
        site=one.site,
        grid=one.grid,
        block=one.block,
        dynamic_smem_bytes=one.dynamic_smem_bytes,
        arguments=one.arguments,
        allocations=allocations,
        folder=name,
    )
