"""A kernel, one of its rewrites and numpy arrays: runs the rewrite under the full checker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Compiled, Misbehaved, Ran, Unit
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import (
    Allocation,
    Argument,
    Element,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.plans import resolve
from cudaops.recipes.registry import Recipe

Array = npt.NDArray[Any]
Arguments = Mapping[str, Array | int | float]

_ELEMENTS: Mapping[str, Element] = {
    "float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "uint64": "u64",
    "int16": "i16", "uint8": "u8",
}  # fmt: skip


def workload_of(
    folder: Path,
    callee: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    arguments: Arguments,
) -> Workload:
    """A launch with these contents, as if captured; arrays are buffers, numbers scalars."""
    folder.mkdir(parents=True, exist_ok=True)
    given: list[Argument] = []
    allocations: list[Allocation] = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            index = len(allocations)
            (folder / f"{index}.before").write_bytes(value.tobytes())
            element = _ELEMENTS[value.dtype.name]
            given.append(PointerArgument(name=name, element=element, allocation=index))
            allocations.append(
                Allocation(
                    index=index, size_bytes=value.nbytes, element=element, role="inout",
                    before=f"{index}.before", after=f"{index}.before",
                )
            )  # fmt: skip
        else:
            kind: Element = "i32" if isinstance(value, int) else "f32"
            given.append(ScalarArgument(name=name, element=kind, value=value))
    return Workload(
        id="w0", kernel=callee.split("<")[0], callee=callee, site=0,
        grid=Dim3(**dict(zip("xyz", grid, strict=False))),
        block=Dim3(**dict(zip("xyz", block, strict=False))),
        arguments=tuple(given), allocations=tuple(allocations), folder=str(folder),
    )  # fmt: skip


class Bench:
    """Proposes with one recipe and runs what comes out."""

    def __init__(self, executor: CpuExecutor, folder: Path, program: Program, name: str) -> None:
        self._executor, self._folder = executor, folder
        self.program, self.kernel = program, program.kernel(name)

    def outputs(
        self,
        recipe: Recipe,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Arguments,
        tuned: Mapping[str, int] | None = None,
        callee: str | None = None,
    ) -> dict[str, Array]:
        """Buffers by parameter name after the recipe's rewrite ran, every access checked."""
        callee = callee or self.kernel.name
        workload = workload_of(self._folder / "workload", callee, grid, block, arguments)
        (rewrite,) = recipe.propose(self.program, self.kernel, (workload,), None)
        rewrite = rewrite.tuned_with(dict(tuned or {}))
        assert recipe.refusal(rewrite) is None
        outcome = self.run(rewrite, workload)
        assert isinstance(outcome, Ran), outcome
        assert outcome.warnings == ()
        arrays = [(n, a) for n, a in arguments.items() if isinstance(a, np.ndarray)]
        return {
            name: np.fromfile(outcome.outputs[i], dtype=array.dtype).reshape(array.shape)
            for i, (name, array) in enumerate(arrays)
        }

    def run(self, rewrite: Rewrite, workload: Workload) -> Ran | Misbehaved:
        """What the rewrite does on this workload, every access checked."""
        unit = Unit(
            program=self.program, kernel=self.kernel.name, callee=workload.callee, rewrite=rewrite
        )
        compiled = self._executor.compile(unit)
        assert isinstance(compiled, Compiled), compiled
        plan = resolve(rewrite, self.kernel, workload)
        assert plan.applicable, plan.unmet
        contents = {a.index: str(Path(workload.folder) / a.before) for a in workload.allocations}
        return self._executor.run(
            compiled,
            workload,
            plan,
            InputSet(contents=contents),
            self._folder / "run",
            check="full",
        )
