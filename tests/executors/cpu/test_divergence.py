"""Threads that do unequal work: a warp goes on until its longest lane is done, a block until its
longest warp is, a launch until its longest block is. And what else one thread has to wait for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cpu.profile_cases import Case, profiled

Made = Callable[..., Case]
TURNS = """
    __global__ void turns(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      int most = WHICH ? n : 1;
      double z = i, w = 0.5;
      for (int k = 0; k < most; ++k) { w = z * w + 0.25; z = w * z + 0.125; }
      b[i] = z;
    }
"""


def cycles(executor: CpuExecutor, made: Case) -> float:
    """Without what a launch takes."""
    device = DEVICES[executor.device]
    own_us = profiled(executor, made).duration_us - device.launch_us
    return own_us * device.sm_clock_mhz


@pytest.mark.parametrize("which", ["i % 32 == 5", "threadIdx.x / 32 == 3", "blockIdx.x == 0"])
def test_the_longest_thread_decides(which: str, executor: CpuExecutor, case: Made) -> None:
    """Its arithmetic touches no memory: a lane of each warp, a warp of each block, one block."""

    def of(condition: str) -> float:
        source = TURNS.replace("WHICH", condition)
        return cycles(executor, case(source, (64,), (256,), 1 << 14, {"n": 2000}, None, ("a", "b")))

    everywhere, nowhere = of("n > 0"), of("n < 0")
    assert everywhere > 10 * nowhere
    assert of(which) == pytest.approx(everywhere, rel=0.25)


def test_lanes_that_end_at_different_turns(executor: CpuExecutor, case: Made) -> None:
    def of(turns: str) -> float:
        source = TURNS.replace("WHICH ? n : 1", turns)
        return cycles(
            executor, case(source, (512,), (256,), 1 << 17, {"n": 640}, None, ("a", "b"))
        )  # fmt: skip

    assert of("(i % 32 + 1) * n / 32") == pytest.approx(of("n"), rel=0.15)


ONE_THREAD = """
    __global__ void one_thread(const float* a, float* b, int n) {
      __shared__ float x[512], y[512];
      x[threadIdx.x] = a[threadIdx.x];
      __syncthreads();
      if (threadIdx.x == 0)
        for (int i = 0; i < n; ++i)
          INTO[i] = x[i + n] * 0.5f;
      __syncthreads();
      b[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x];
    }
"""


def test_loads_from_shared_memory_wait_for_stores_there(
    executor: CpuExecutor, case: Made
) -> None:  # fmt: skip
    """What is stored may be what is loaded next; in another array it is not."""

    def of(array: str) -> float:
        source = ONE_THREAD.replace("INTO", array)
        return cycles(executor, case(source, (1,), (512,), 512, {"n": 255}, None, ("a", "b")))

    same, other = of("x"), of("y")
    assert same > 255 * 29
    assert same > 1.5 * other


TABLE = """
    __constant__ int table[1024];
    __global__ void looks_up(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x, at = PLACE;
      for (int k = 0; k < n; ++k) at = (table[at % 1024] + at * 5 + 1) % 1024;
      b[i] = at;
    }
"""


def test_words_of_constant_memory_come_one_after_another(
    executor: CpuExecutor, case: Made
) -> None:  # fmt: skip
    def of(place: str) -> float:
        source = TABLE.replace("PLACE", place)
        return cycles(
            executor, case(source, (132,), (1024,), 1 << 18, {"n": 200}, None, ("a", "b"))
        )

    assert of("i") > 2 * of("blockIdx.x")


CHOSEN = """
    __global__ void chosen(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float sum = 0.0f;
      if (ASKED) sum = a[i + n];
      b[i] = sum;
    }
"""


def test_a_load_waits_for_what_decides_it(executor: CpuExecutor, case: Made) -> None:
    """Also where all threads go that way."""

    def of(asked: str) -> float:
        source = CHOSEN.replace("ASKED", asked)
        return cycles(executor, case(source, (1,), (32,), 1 << 12, {"n": 2048}, None, ("a", "b")))

    assert of("a[i] >= 0.0f") > of("i >= 0") + 400
