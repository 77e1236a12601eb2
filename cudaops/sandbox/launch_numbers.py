"""The numbers of a launch (arguments, fields of structures that are passed, geometry), and the
launch with others."""

from __future__ import annotations

from collections.abc import Mapping

from cudaops.domain.execution import LaunchNumbers
from cudaops.domain.workload import Argument, OpaqueArgument, ScalarArgument, Workload
from cudaops.executors.fields import replaced
from cudaops.sandbox.shapes import with_scalars


def number_of(workload: Workload, name: str) -> int | float:
    """An argument's value, or that of a field of a structure that is passed. Raises KeyError."""
    for argument in workload.arguments:
        if isinstance(argument, ScalarArgument) and argument.name == name:
            return argument.value
        if isinstance(argument, OpaqueArgument):
            for one in argument.fields:
                if f"{argument.name}.{one.path}" == name:
                    return one.value(bytes.fromhex(argument.raw_hex))
    raise KeyError(name)


def with_numbers(workload: Workload, values: Mapping[str, int | float]) -> Workload:
    """The launch with other numbers in the place of these arguments and fields."""
    workload = with_scalars(workload, values)
    arguments: list[Argument] = []
    for argument in workload.arguments:
        if isinstance(argument, OpaqueArgument):
            raw = argument.raw_hex
            for one in argument.fields:
                if f"{argument.name}.{one.path}" in values:
                    raw = replaced(raw, one, values[f"{argument.name}.{one.path}"])
            argument = argument.model_copy(update={"raw_hex": raw})
        arguments.append(argument)
    return workload.model_copy(update={"arguments": tuple(arguments)})


def as_launched(workload: Workload, launch: LaunchNumbers) -> Workload:
    """The launch with the geometry and numbers of another one of the program."""
    update = {
        "grid": launch.grid, "block": launch.block, "dynamic_smem_bytes": launch.dynamic_smem_bytes,
    }  # fmt: skip
    return with_scalars(workload, launch.numbers).model_copy(update=update)


def are_steps(values: set[int | float]) -> bool:
    """Whether they are several different powers of two."""
    whole = {int(v) for v in values if v > 0}
    return len(whole) > 2 and all(v & (v - 1) == 0 for v in whole)


def remembering(workload: Workload) -> Workload:
    """The same with every buffer that is written read as well."""
    allocations = tuple(
        a.model_copy(update={"role": "inout"}) if a.role == "out" else a
        for a in workload.allocations
    )
    return workload.model_copy(update={"allocations": allocations})
