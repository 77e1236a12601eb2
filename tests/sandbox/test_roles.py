"""Whether a captured launch says again what it said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.errors import InputError
from cudaops.executors.arrays import read_array, write_array
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.sandbox.roles import confirm_reproduces
from tests.gates.verification_bench import EACH, TIMEOUT_S, opened


def test_another_order_of_the_same_elements_is_the_same_result(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """As an atomic counter gives places on a GPU, each time to other threads."""
    bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] + i"))
    workload = bench.workloads[0]
    written = next(a for a in workload.allocations if a.role != "in")
    after = Path(workload.folder) / written.after
    values = read_array(after, written.element)
    baseline = bench.compiled_baseline(workload)

    def confirm(folder: str) -> None:
        confirm_reproduces(cpu_executor, baseline, workload, tmp_path / folder, TIMEOUT_S)

    write_array(after, np.roll(values, 17), written.element)
    confirm("rolled")
    write_array(after, np.where(np.arange(values.size) == 40, 0, values), written.element)
    with pytest.raises(InputError, match="gives another result when run again"):
        confirm("changed")


def test_a_kernel_that_differs_from_run_to_run_is_called_that(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    bench = opened(cpu_executor, tmp_path, EACH.replace("BODY", "a[i] + (float)clock64()"))
    workload = bench.workloads[0]
    baseline = bench.compiled_baseline(workload)
    with pytest.raises(InputError, match="gives another result each time it runs: `b` differs"):
        confirm_reproduces(cpu_executor, baseline, workload, tmp_path / "confirm", TIMEOUT_S)
