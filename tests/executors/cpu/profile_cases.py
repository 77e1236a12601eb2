"""Kernels and single launches of them, made without running a program, and their models."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.base import Dim3
from cudaops.domain.execution import (
    Compiled,
    Measurement,
    Unit,
)
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import ResolvedPlan, Rewrite
from cudaops.domain.workload import Allocation, Argument, PointerArgument, ScalarArgument, Workload
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan, resolve


class Case(NamedTuple):
    """A kernel and one launch of it, made without running a program."""

    unit: Unit
    workload: Workload


def made_case(
    folder: Path, source: str | Path, grid: tuple[int, ...], block: tuple[int, ...], floats: int,
    scalars: dict[str, int], callee: str | None = None,
    buffers: tuple[str, ...] = ("a", "b", "c"),
) -> Case:  # fmt: skip
    """A case: source, launch geometry, floats a buffer, and its scalar arguments."""
    path = source if isinstance(source, Path) else folder / "k.cu"
    if not isinstance(source, Path):
        launched = re.findall(r"__global__ void (\w+)", source)[0]
        given = ", ".join([*("nullptr" for _ in buffers), *(str(v) for v in scalars.values())])
        main = f"int main() {{ {launched}<<<1, 1>>>({given}); }}\n"
        path.write_text("#include <cuda_runtime.h>\n" + textwrap.dedent(source).lstrip("\n") + main)
    program = load_program(path)
    kernel = program.kernels[0]
    rng = np.random.default_rng(7)
    allocations, arguments = [], list[Argument]()
    for index, name in enumerate(buffers):
        rng.random(floats, dtype=np.float32).tofile(folder / f"{name}.bin")
        allocations.append(
            Allocation(index=index, size_bytes=4 * floats, element="f32", role="inout",
                       before=f"{name}.bin", after=f"{name}.bin")
        )  # fmt: skip
        arguments.append(PointerArgument(name=name, element="f32", allocation=index))
    arguments += [ScalarArgument(name=n, element="i32", value=v) for n, v in scalars.items()]
    named = zip(kernel.parameters, arguments, strict=True)
    workload = Workload(
        id="w0", kernel=kernel.name, callee=callee or kernel.name, site=0,
        grid=Dim3(**dict(zip("xyz", grid, strict=False))),
        block=Dim3(**dict(zip("xyz", block, strict=False))),
        arguments=tuple(a.model_copy(update={"name": p.name}) for p, a in named),
        allocations=tuple(allocations), folder=str(folder),
    )  # fmt: skip
    return Case(Unit(program=program, kernel=kernel.name, callee=callee or kernel.name), workload)


def measured(executor: CpuExecutor, made: Case, rewrite: Rewrite | None = None) -> Measurement:
    unit = made.unit.model_copy(update={"rewrite": rewrite})
    compiled = executor.compile(unit)
    assert isinstance(compiled, Compiled), compiled
    outcome = executor.measure(compiled, made.workload, plan_of(made, rewrite))
    assert isinstance(outcome, Measurement), outcome
    return outcome


def plan_of(made: Case, rewrite: Rewrite | None) -> ResolvedPlan:
    if rewrite is None:
        return baseline_plan(made.workload)
    return resolve(rewrite, made.unit.program.kernel(made.unit.kernel), made.workload)


def profiled(executor: CpuExecutor, made: Case) -> Profile:
    outcome = measured(executor, made).profile
    assert outcome is not None
    return outcome
