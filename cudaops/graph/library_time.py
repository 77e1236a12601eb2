"""The library that does a kernel's job, timed where the run timed its rewrite."""

from __future__ import annotations

from cudaops.domain.execution import ProgramRan
from cudaops.domain.performance_limit import Library
from cudaops.domain.program import SourceFile
from cudaops.domain.run import RunRecord
from cudaops.errors import CudaOpsError
from cudaops.executors.cuda.toolchain import nvcc_for
from cudaops.program.parse import parse_files
from cudaops.program.syntax import NotUnderstood
from cudaops.recipes.library_calls import (
    SAYS,
    TOLERANCE,
    library_call,
    library_program,
)
from cudaops.sandbox.workbench import Workbench


def with_library_time(record: RunRecord, bench: Workbench) -> RunRecord:
    """The record with its library's time on the GPU, or why there is none. Decides nothing."""
    if record.library is None or bench.executor.name != "cuda":
        return record
    try:
        found = _timed(record.library, record, bench)
    except (NotUnderstood, CudaOpsError) as problem:
        found = record.library.model_copy(update={"not_timed": f"{problem}"})
    return record.model_copy(update={"library": found})


def _timed(library: Library, record: RunRecord, bench: Workbench) -> Library:
    workload = bench.workloads[0]
    call = library_call(bench.program, bench.kernel, bench.workloads, workload)
    timing = record.verify.timing
    regime = workload.l2_regime if timing is None else timing.regime
    text = library_program(call, cold=regime == "cold")
    program = parse_files("library", (SourceFile(path="library.cu", text=text),))
    if nvcc_for(program) is None:
        raise NotUnderstood(f"<{call.header}> is not installed beside nvcc")
    folder = bench.folder / workload.folder
    held = [workload.allocations[index] for index in call.buffers]
    files = [*(one.before for one in held), held[-1].after]
    ran = bench.executor.run_program(
        program, tuple(str(folder / name) for name in files), bench.timeout_s
    )
    if not isinstance(ran, ProgramRan):
        raise NotUnderstood(ran.placed)
    said = SAYS.search(ran.stdout)
    if said is None or ran.exit_code != 0:
        lines = ran.stderr.strip().splitlines() or [f"it ends with exit code {ran.exit_code}"]
        raise NotUnderstood(lines[-1])
    time_us, difference = map(float, said.groups())
    allowed = TOLERANCE.get(held[-1].element, 1e-4)
    if held[-1].element not in ("f32", "f64"):
        allowed = 0.0
    if not difference <= allowed:
        raise NotUnderstood(
            f"its result differs from the kernel's, relative L2 error {difference:.1e}, allowed "
            f"{allowed:.0e}"
        )
    return library.model_copy(
        update={"time_ms": time_us / 1000, "l2_regime": regime, "difference": difference}
    )
