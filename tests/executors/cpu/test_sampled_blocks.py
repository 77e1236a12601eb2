"""Which blocks of a grid are run for its modelled time: those that work, and enough of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import DEVICES
from cudaops.domain.profile import Profile
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cpu.profile_cases import Case, profiled

UNEVEN = """
    __global__ void first_only(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      float sum = 0.0f;
      for (int k = 0; k < 1000; ++k) sum = sum * a[k] + a[i];
      b[i] = sum;
    }
"""


def test_the_only_block_with_work_is_found(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    def of(blocks: int) -> float:
        made = case(UNEVEN, (blocks,), (128,), 4096, {"n": 128}, None, ("a", "b"))
        return profiled(executor, made).duration_us

    assert of(48) == pytest.approx(of(1), rel=0.2)


@pytest.mark.parametrize("times", [1.5, 16, 256])
def test_blocks_without_work_are_no_part_of_the_mean(
    times: float, executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """A grid so many times as large as the data: of 256, all of forty at random do nothing. They
    are started, though."""

    def of(blocks: int) -> Profile:
        return profiled(executor, case(UNEVEN, (blocks,), (128,), 65536, {"n": 65536}, None,
                                       ("a", "b")))  # fmt: skip

    fitting, larger = of(512), of(int(times * 512))
    device = DEVICES[executor.device]
    of_its = microarchitecture(device.compute_capability)
    starting = (of_its.block_start + 4 * of_its.warp_start) * times * 512
    least_us = device.launch_us + device.cycles_to_us(starting / device.sm_count)
    assert larger.duration_us == pytest.approx(max(fitting.duration_us, least_us), rel=0.1)
    done, wanted = (one.get(ncu.FFMA) for one in (larger, fitting))
    assert done == pytest.approx(wanted, rel=0.05)
    assert larger.get(ncu.GRID_SIZE) == int(times * 512)
    assert "do not exit at once" in larger.notes[0]


ESCAPES = """
    __global__ void escapes(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
      float v = i / 262144.0f, z = 0.5f;
      for (k = 0; k < n; ++k) {
        if (z END) break;
        z = 3.9f * z * (1.0f - z) + v;
      }
      b[i] = z + k;
    }
"""


@pytest.mark.parametrize(("end", "blocks"), [("> 1.5f || z < -9", 20), ("!= z) k = k; if (0", 5)])
def test_more_blocks_where_loops_end_by_their_data(
    end: str, blocks: int, executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """As much memory is accessed by each."""
    source = ESCAPES.replace("END", end)
    made = case(source, (1024,), (256,), 1 << 18, {"n": 200}, None, ("a", "b"))
    assert f"from {blocks} of 1024 blocks" in profiled(executor, made).notes[0]
