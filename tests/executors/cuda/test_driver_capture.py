"""Programs that launch by CUDA's driver API, recorded over the double of libcuda.so.1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.workload import OpaqueArgument, PointerArgument, ScalarArgument
from tests.executors.cuda.driver_programs import Here, here

pytestmark = [pytest.mark.nvcc]
__all__ = ["here"]


def test_a_kernel_with_c_linkage_is_recorded_with_what_it_found_and_left(
    here: Here, tmp_path: Path
) -> None:
    found = here.captured(tmp_path / "out", "smooth", "40", "24")
    (one,) = found.workloads
    assert (one.callee, one.grid.x, one.grid.y, one.block.x, one.launches) == ("smooth", 1, 5, 32, 3)
    source, target, rows, columns = one.arguments
    assert isinstance(source, PointerArgument) and isinstance(target, PointerArgument)
    assert (source.element, target.element) == ("f32", "f32")
    assert [a.value for a in (rows, columns) if isinstance(a, ScalarArgument)] == [40, 24]
    read, written = one.allocations
    assert (read.role, written.role) == ("in", "inout")
    values = np.fromfile(Path(one.folder) / read.before, np.float32)
    assert values[1] == np.float32(7919 % 1000) / np.float32(1000)
    smooth = np.fromfile(Path(one.folder) / written.after, np.float32)
    assert smooth.size == 40 * 24 and 0 < smooth.mean() < 1
    assert [(c.kernel, c.launches) for c in found.counts if c.seconds > 0] != []
    assert "sum " in found.stdout
