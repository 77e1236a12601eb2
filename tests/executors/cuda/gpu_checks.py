"""A plan ready to be checked, its runner replaced by the `cpu` executor: it really runs.

And the double of compute-sanitizer with what runs under it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudaops.domain.execution import Compiled, Misbehaved, Ran, Unit
from cudaops.domain.program import Program
from cudaops.domain.rewrite import ResolvedLaunch, ResolvedPlan
from cudaops.domain.workload import Allocation, Workload
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.unit import captured_inputs
from cudaops.executors.cuda.checking import CheckedPlan
from cudaops.executors.cuda.protocol import (
    Buffer,
    Launchable,
    PlannedLaunch,
    Reply,
    RunReply,
    RunTask,
    Side,
    TaskScratch,
)
from cudaops.executors.cuda.sanitizer import Sanitizer, TaskCommand
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite, resolve
from tests.recipes.bench import Arguments, workload_of

EXPLOITS = Path(__file__).parents[2] / "exploits"
LOGS = Path(__file__).parents[2] / "data" / "sanitizer"
RAN = RunReply(launch_us=(1.0,)).model_dump_json()
_RUNNER = """import json, pathlib, sys
task = json.loads(pathlib.Path(sys.argv[1]).read_text())
assert task["op"] == "run" and task["guards"] is False and task["dumps"] == {}, task
if sys.argv[3]:
    pathlib.Path(sys.argv[2]).write_text(sys.argv[3])
sys.exit(int(sys.argv[4]))
"""


class Product(NamedTuple):
    """The program that every file in `tests/exploits` rewrites, and a launch of it."""

    program: Program
    workload: Workload


def product(folder: Path, n: int) -> Product:
    """C = A B over n x n signed unit normals, as if captured."""
    draw = np.random.default_rng(7)
    a, b = (draw.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    blocks = (n + 15) // 16
    buffers: Arguments = {"A": a, "B": b, "C": np.zeros((n, n), np.float32), "N": n}
    workload = workload_of(folder / f"mm{n}", "mm", (blocks, blocks), (16, 16), buffers)
    return Product(load_program(EXPLOITS / "mm.cu"), workload)


def subject(
    executor: CpuExecutor, case: Product, source: str, folder: Path, timeout_s: float = 60.0
) -> CheckedPlan:
    """A rewrite of it, as the `cuda` executor hands it to the checker."""
    rewrite = make_rewrite(source, proposer="test", title="test", why="test")
    program, workload = case
    unit = Unit(program=program, kernel="mm", callee="mm", rewrite=rewrite)
    plan = resolve(rewrite, program.kernel("mm"), workload)
    launches = tuple(
        PlannedLaunch(
            kernel=Launchable(
                entry=launch.step,
                symbol=f"_Z4{rewrite.plan.launches[launch.step].kernel}PKfS0_Pfi",
                shown=rewrite.plan.launches[launch.step].kernel,
                parameter_types=(),
            ),
            grid=launch.grid,
            block=launch.block,
            dynamic_smem_bytes=launch.dynamic_smem_bytes,
            values=launch.values,
        )
        for launch in plan.launches
    )
    scratch = tuple(
        TaskScratch(name=n, size_bytes=s, fill=0xA5) for n, s in plan.scratch_bytes.items()
    )
    inputs = captured_inputs(workload)
    task = RunTask(
        side=Side(module="none", launches=launches, scratch=scratch),
        buffers=tuple(
            Buffer(index=a.index, size_bytes=a.size_bytes, file=inputs.contents[a.index])
            for a in workload.allocations
        ),
        dumps={},
    )
    runner = Runner(executor, unit, workload, folder)
    return CheckedPlan(unit, workload, plan, inputs, task, runner, folder, timeout_s)


class Runner:
    """Does a run task with the `cpu` executor and keeps what it was asked."""

    def __init__(self, executor: CpuExecutor, unit: Unit, workload: Workload, folder: Path) -> None:
        self._executor, self._unit, self._workload = executor, unit, workload
        self._folder = folder
        self.asked: list[RunTask] = []

    def __call__(self, task: RunTask, timeout_s: float) -> Reply | Misbehaved:
        self.asked.append(task)
        compiled = self._executor.compile(self._unit)
        assert isinstance(compiled, Compiled), compiled
        allocations = tuple(
            Allocation(
                index=b.index, size_bytes=b.size_bytes, element="opaque", role="inout",
                before="", after="",
            )
            for b in task.buffers
        )  # fmt: skip
        plan = ResolvedPlan(
            launches=tuple(
                ResolvedLaunch(
                    step=one.kernel.entry, grid=one.grid, block=one.block,
                    dynamic_smem_bytes=one.dynamic_smem_bytes, values=one.values,
                )
                for one in task.side.launches
            ),
            scratch_bytes={s.name: s.size_bytes for s in task.side.scratch},
        )  # fmt: skip
        inputs = InputSet(
            contents={b.index: b.file for b in task.buffers if b.file is not None},
            poison={b.index: b.fill for b in task.buffers if b.fill is not None},
        )
        workload = self._workload.model_copy(update={"allocations": allocations})
        ran = self._executor.run(
            compiled, workload, plan, inputs, self._folder / "gpu", timeout_s=timeout_s
        )
        if not isinstance(ran, Ran):
            return ran
        for index, target in task.dumps.items():
            shutil.copyfile(ran.outputs[index], target)
        return RunReply(launch_us=(1.0,) * len(task.side.launches))


def no_command(task: Path, reply: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    """For checkers without a sanitizer."""
    raise AssertionError("nothing is to be run")


def under(
    environment: Mapping[str, str] | None = None, *, reply: str = RAN, exit_code: int = 0
) -> TaskCommand:
    """Command of a runner with a fixed reply; the environment tells the double what to find."""

    def command(task: Path, answer: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        inner = [sys.executable, "-c", _RUNNER, str(task), str(answer), reply, str(exit_code)]
        return inner, environment or {}

    return command


def logs(**tools: str) -> dict[str, str]:
    """Environment that gives each tool a log of `tests/data/sanitizer`."""
    return {f"DOUBLE_LOG_{tool}": str(LOGS / f"{name}.log") for tool, name in tools.items()}


def make_double(folder: Path) -> Sanitizer:
    """The double as an installed program."""
    program = folder / "compute-sanitizer"
    shutil.copyfile(Path(__file__).with_name("sanitizer_double.py"), program)
    program.chmod(0o755)
    return Sanitizer(program)
