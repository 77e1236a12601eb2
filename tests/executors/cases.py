"""One captured launch and what tests do with it: compile, run, read the outputs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudaops.domain.execution import Captured, Compiled, Misbehaved, Ran, Unit
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.executors.base import Check, Executor, InputSet
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan, resolve

ELEMENTS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "u32": np.uint32}


def program(folder: Path, kernels: str, main: str, name: str = "k.cu") -> Program:
    """A program whose first kernel line is line 3."""
    head = "#include <cstdio>\n#include <cuda_runtime.h>\n"
    body = f"int main(int argc, char** argv) {{\n{textwrap.dedent(main)}\n  return 0;\n}}\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(head + textwrap.dedent(kernels).lstrip("\n") + body)
    return load_program(folder / name)


VECTOR_MAIN = """
  const int n = 1000;
  float *a, *b;
  cudaMalloc(&a, n * sizeof(float));
  cudaMalloc(&b, n * sizeof(float));
  float h[n];
  for (int i = 0; i < n; ++i) h[i] = 0.5f * i;
  cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemset(b, 0, sizeof h);
  LAUNCH;
  cudaMemcpy(h, b, sizeof h, cudaMemcpyDeviceToHost);
  printf("%f\\n", h[10]);
"""


class Case(NamedTuple):
    """A program that was captured."""

    program: Program
    workload: Workload
    folder: Path


def vector_case(executor: Executor, folder: Path, kernels: str, launch: str) -> Case:
    """Capture a kernel over 1000 floats `a`, `b`."""
    parsed = program(folder, kernels, VECTOR_MAIN.replace("LAUNCH", launch))
    return captured_case(executor, parsed, folder)


def captured_case(executor: Executor, parsed: Program, folder: Path) -> Case:
    outcome = executor.capture(parsed, None, (), folder / "capture", 60.0)
    assert isinstance(outcome, Captured), outcome
    return Case(parsed, outcome.workloads[0], folder)


def compiled(
    executor: Executor, case: Case, rewrite: Rewrite | None = None, *, widened: bool = False
) -> Compiled:
    unit = Unit(
        program=case.program,
        kernel=case.workload.kernel,
        callee=case.workload.callee,
        rewrite=rewrite,
        widened=widened,
    )
    outcome = executor.compile(unit)
    assert isinstance(outcome, Compiled), outcome
    return outcome


def before(case: Case) -> InputSet:
    folder = Path(case.workload.folder)
    return InputSet(contents={a.index: str(folder / a.before) for a in case.workload.allocations})


def run(
    executor: Executor,
    case: Case,
    rewrite: Rewrite | None = None,
    *,
    check: Check = "none",
    inputs: InputSet | None = None,
    timeout_s: float = 60.0,
) -> Ran | Misbehaved:
    plan = baseline_plan(case.workload)
    if rewrite is not None:
        plan = resolve(rewrite, case.program.kernel(case.workload.kernel), case.workload)
    unit = compiled(executor, case, rewrite)
    target = case.folder / f"run-{check}"
    return executor.run(
        unit, case.workload, plan, inputs or before(case), target, check=check, timeout_s=timeout_s
    )


def array(path: str | Path, element: str = "f32") -> np.ndarray[Any, Any]:
    return np.fromfile(path, dtype=ELEMENTS[element])


def ran(outcome: Ran | Misbehaved) -> Ran:
    assert isinstance(outcome, Ran), outcome
    return outcome


def went_wrong(outcome: object) -> Misbehaved:
    assert isinstance(outcome, Misbehaved), outcome
    return outcome
