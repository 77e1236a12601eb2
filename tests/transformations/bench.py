"""A kernel before and after transformations, both run on `cpu` under the full checker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cudaops.domain.execution import Compiled, Ran, Unit
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.expressions import parse
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.parse import parse_files
from cudaops.program.plans import baseline_plan, resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import Setting, Transformation
from cudaops.transformations.draft import Draft, Subject
from tests.recipes.bench import Arguments, Array, workload_of


class Case:
    """One kernel with one launch of it."""

    def __init__(
        self,
        executor: CpuExecutor,
        folder: Path,
        source: str,
        arguments: Arguments,
        *,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        callee: str = "",
        smem: int = 0,
    ) -> None:
        """`arguments`: by the kernel's parameters; arrays are buffers, in order. The kernel is the
        first of the source, or the one that `callee` names. `smem`: dynamic, in bytes."""
        self._executor, self._folder, self._arguments = executor, folder, arguments
        text = source + "\nint main() { return 0; }\n"
        self.program: Program = parse_files("main", (SourceFile(path="main.cu", text=text),))
        name = callee.partition("<")[0] or self.program.kernels[0].name
        self.kernel = self.program.kernel(name)
        self.workload: Workload = workload_of(
            folder / "workload", callee or name, grid, block, arguments
        ).model_copy(update={"dynamic_smem_bytes": smem})
        self.subject = Subject(self.program, self.kernel, (self.workload,))
        self.draft = Draft.of(self.subject)
        self._habits: set[str] = set()

    def outputs(self, rewrite: Rewrite | None) -> dict[str, Array]:
        """Every array after the author's kernel, or a rewrite, ran; every access checked. What the
        author's kernel does in no order with one result (`Misbehaved.habit`) a rewrite may too."""
        unit = Unit(
            program=self.program, kernel=self.kernel.name, callee=self.workload.callee,
            rewrite=rewrite,
        )  # fmt: skip
        compiled = self._executor.compile(unit)
        assert isinstance(compiled, Compiled), (compiled, rewrite and rewrite.source)
        plan = baseline_plan(self.workload)
        if rewrite is not None:
            plan = resolve(rewrite, self.kernel, self.workload)
            assert plan.applicable, plan.unmet
        contents = {
            a.index: str(Path(self.workload.folder) / a.before) for a in self.workload.allocations
        }
        folder = self._folder / ("run" if rewrite is None else rewrite.id)
        ran = self._executor.run(
            compiled, self.workload, plan, InputSet(contents=contents), folder, check="full"
        )
        assert isinstance(ran, Ran), (ran, rewrite and rewrite.source)
        habits = {w.habit for w in ran.warnings}
        if rewrite is None:
            self._habits = habits
        assert "" not in habits, (ran.warnings, rewrite and rewrite.source)
        assert habits <= self._habits, (ran.warnings, rewrite and rewrite.source)
        arrays = [(n, a) for n, a in self._arguments.items() if isinstance(a, np.ndarray)]
        return {
            name: np.fromfile(ran.outputs[i], dtype=array.dtype).reshape(array.shape)
            for i, (name, array) in enumerate(arrays)
        }

    def same(self, draft: Draft, *, tolerance: float = 0.0) -> None:
        """Assert that a draft computes what the author's kernel does: to the bit, or as far apart
        as a relative `tolerance` where sums may be reordered."""
        expected, found = self.outputs(None), self.outputs(draft.rewrite())
        for name, array in expected.items():
            if tolerance and array.dtype.kind == "f":
                scale = np.abs(array).max() if array.size else 0.0
                np.testing.assert_allclose(
                    found[name], array, rtol=tolerance, atol=tolerance * scale, err_msg=name
                )
            else:
                np.testing.assert_array_equal(found[name], array, err_msg=name)

    def applied(self, one: Transformation, setting: Setting | None = None) -> Draft:
        """With the first setting that it offers, or this one."""
        if setting is None:
            offered = one.settings(self.draft)
            assert offered, f"{one.name} offers nothing"
            setting = offered[0]
        return one.apply(self.draft, setting)


def expression(text: str) -> LaunchExpression:
    """What a directive would mean by it."""
    return parse(text).root


def expressions(*texts: str) -> tuple[LaunchExpression, ...]:
    """Each as `expression` reads it."""
    return tuple(map(expression, texts))


def every_setting(one: Transformation, case: Case) -> Mapping[str, Draft]:
    """All drafts that it offers, by their settings as text; at least one."""
    found = {str(dict(x)): one.apply(case.draft, x) for x in one.settings(case.draft)}
    assert found, f"{one.name} offers nothing"
    return found


def drafts(one: Transformation, case: Case) -> Iterator[Draft]:
    """With every setting that applies."""
    try:
        settings = one.settings(case.draft)
    except NotUnderstood:
        return
    for setting in settings:
        with contextlib.suppress(NotUnderstood):
            yield one.apply(case.draft, setting)
