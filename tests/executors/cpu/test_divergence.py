"""Threads that do unequal work: a warp goes on until its longest lane is done, a block until its
longest warp is, a launch until its longest block is. And what else one thread has to wait for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.domain.execution import Measurement
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cpu.profile_cases import Case, measured, profiled

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


IN_A_ROW = """
    __global__ void in_a_row(const float* __restrict__ a, float* b, int n) {
      int i = threadIdx.x;
      float sum = 0.0f;
      #pragma unroll
      for (int k = 0; k < 8; ++k) sum += WORK;
      b[i] = sum;
    }
"""


def test_nothing_is_moved_past_a_call_that_branches(executor: CpuExecutor, case: Made) -> None:
    """The next load waits for a division, not for an exponential of as many instructions."""

    def of(work: str) -> float:
        source = IN_A_ROW.replace("WORK", work)
        return cycles(executor, case(source, (1,), (32,), 1 << 12, {"n": 256}, None, ("a", "b")))

    assert of("1.0f / a[i + k * n]") > of("expf(a[i + k * n])") + 5 * 200


WRITTEN_FIRST = """
    __global__ void written_first(const float* __restrict__ a, float* b, int n) {
      float sum = 0.0f;
      #pragma unroll 1
      for (int i = threadIdx.x; i < n; i += 128) {
        FIRST
        LATER
      }
      b[threadIdx.x] = sum;
    }
"""


def test_loads_written_first_are_sunk_behind_a_call_that_branches(
    executor: CpuExecutor, case: Made
) -> None:
    """In a loop's body nvcc (13.0.88, sm_90) makes the same code of both orders."""
    loads = [f"float v{k} = a[i + {32 * k}];" for k in range(4)]

    def of(work: str, first: bool) -> float:
        works = [work.replace("V", f"v{k}") for k in range(4)]
        pairs = [x for pair in zip(loads, works, strict=True) for x in pair]
        source = WRITTEN_FIRST.replace("FIRST", " ".join(loads if first else pairs))
        source = source.replace("LATER", " ".join(works) if first else "")
        return cycles(executor, case(source, (1,), (32,), 1 << 12, {"n": 2048}, None, ("a", "b")))

    chained = "sum = V / (sum + 1.0f);"
    assert of(chained, True) == pytest.approx(of(chained, False), rel=0.05)


def test_a_loop_is_unrolled_as_its_pragma_asks(executor: CpuExecutor, case: Made) -> None:
    source = """
        __global__ void loads(const float* __restrict__ a, float* b, int n) {
          float sum = 0.0f;
          ASKED
          for (int k = 0; k < TURNS; ++k) sum += a[threadIdx.x + k * 32];
          b[threadIdx.x] = sum;
        }
    """

    def of(asked: str, turns: str) -> float:
        text = source.replace("ASKED", asked).replace("TURNS", turns)
        return cycles(executor, case(text, (1,), (32,), 1 << 12, {"n": 64}, None, ("a", "b")))

    for turns in ("n", "64"):
        alone, four, plain = (
            of(asked, turns) for asked in ("#pragma unroll 1", "#pragma unroll 4", "")
        )
        assert alone > 2 * four > 3 * plain


UNEVEN = """
    __global__ void uneven(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      double z = i, w = 0.5;
      for (int k = 0; k < TURNS; ++k) { w = z * w + 0.25; z = w * z + 0.125; }
      b[i] = z;
    }
"""


def test_a_time_has_the_interval_of_its_sampled_blocks(executor: CpuExecutor, case: Made) -> None:
    def of(turns: str, blocks: int = 4096) -> Measurement:
        source = UNEVEN.replace("TURNS", turns)
        made = case(source, (blocks,), (32,), 32 * blocks, {"n": 100}, None, ("a", "b"))
        return measured(executor, made)

    assert of("n").sampled_us is None
    uneven = of("blockIdx.x % 7 * n")
    assert uneven.sampled_us is not None
    low_us, high_us = uneven.sampled_us
    assert low_us < 0.9 * uneven.median_us
    assert high_us > 1.1 * uneven.median_us
    assert f"{low_us:.1f} to {high_us:.1f} us by the sampled blocks" in uneven.provenance_of_time
