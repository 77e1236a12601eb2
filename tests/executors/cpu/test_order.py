"""Kernels whose result the order of lanes, warps or blocks decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Misbehaved, ProgramRan
from cudaops.domain.program import Program
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.sandbox.captures import captured_of_author
from tests.executors.cases import VECTOR_MAIN, array, program

LAUNCH = "k<<<8, 128>>>(a, b, n)"
EXPECTED = 0.5 * np.arange(1024, dtype=np.float32)
EXPECTED[1000:] = 0


def captured(executor: CpuExecutor, folder: Path, kernels: str, launch: str = LAUNCH) -> Captured:
    parsed = program(folder, kernels, VECTOR_MAIN.replace("LAUNCH", launch))
    return reference(executor, parsed, folder)


def reference(executor: CpuExecutor, parsed: Program, folder: Path) -> Captured:
    outcome = captured_of_author(executor, parsed, None, (), folder / "capture", 60.0)
    assert isinstance(outcome, Captured), outcome
    return outcome


def result(outcome: Captured) -> np.ndarray:
    """What the captured launch left in `b`."""
    workload = outcome.workloads[0]
    return array(Path(workload.folder) / workload.allocations[1].after)


REDUCTION = """
__global__ void k(const float* a, float* b, int n) {
  __shared__ QUALIFIER float s[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = i < n ? a[i] : 0.0f;
  __syncthreads();
  if (t < 64) s[t] += s[t + 64];
  __syncthreads();
  if (t < 32) {
    s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8];
    s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
  }
  if (t == 0) b[blockIdx.x] = s[0];
}
"""


@pytest.mark.parametrize("qualifier", ["volatile", ""])
def test_the_last_warp_of_an_old_reduction_runs_in_lockstep(
    cpu_executor: CpuExecutor, tmp_path: Path, qualifier: str
) -> None:
    outcome = captured(cpu_executor, tmp_path, REDUCTION.replace("QUALIFIER", qualifier))
    assert outcome.lockstep is not None
    assert outcome.lockstep.memory == "shared"
    assert outcome.undecided == ""
    assert {one.scope for one in outcome.unordered} == {"warp"}
    assert {str(one.read) for one in outcome.unordered} >= {"k.cu:11", "k.cu:12"}
    np.testing.assert_allclose(result(outcome)[:8], EXPECTED.reshape(8, 128).sum(1), rtol=1e-5)


@pytest.mark.parametrize("right", [True, False])
def test_a_program_that_finds_itself_wrong_is_captured_in_lockstep(
    cpu_executor: CpuExecutor, tmp_path: Path, right: bool
) -> None:
    """Where it is wrong in lockstep too, its own word stays."""
    main = VECTOR_MAIN.replace("LAUNCH", LAUNCH)
    main += f"if (h[1] != {12256.0 if right else 1.0}f) return 3;"
    parsed = program(tmp_path, REDUCTION.replace("QUALIFIER", "volatile"), main)
    outcome = captured_of_author(cpu_executor, parsed, None, (), tmp_path / "capture", 60.0)
    if right:
        assert isinstance(outcome, Captured), outcome
        assert outcome.lockstep is not None
        assert outcome.undecided == ""
    else:
        assert isinstance(outcome, Misbehaved)
        assert "exits with code 3" in outcome.message


def test_a_program_that_finds_itself_wrong_is_told_of_an_access_outside(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    main = VECTOR_MAIN.replace("LAUNCH", LAUNCH) + "return 3;"
    kernels = REDUCTION.replace("s[t] = i < n", "s[t + 140] = i < n").replace("QUALIFIER", "")
    parsed = program(tmp_path, kernels, main)
    outcome = captured_of_author(cpu_executor, parsed, None, (), tmp_path / "capture", 60.0)
    assert isinstance(outcome, Misbehaved)
    assert outcome.what == "out_of_bounds"
    assert outcome.message.startswith("k: write of 4 bytes, ")
    assert "exits with code 3" in outcome.message


def test_a_program_that_is_no_reference_is_not_asked(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """A candidate's whole program: nobody is judged by its results."""
    kernels = REDUCTION.replace("QUALIFIER", "")
    parsed = program(tmp_path, kernels, VECTOR_MAIN.replace("LAUNCH", LAUNCH))
    outcome = cpu_executor.capture(parsed, None, (), tmp_path / "capture", 60.0)
    assert isinstance(outcome, Captured)
    assert (outcome.lockstep, outcome.unordered, outcome.undecided) == (None, (), "")


BRANCHES = """
__device__ __noinline__ float other(volatile float* s, int t) { return s[t]; }
__global__ void k(const float* a, float* b, int n) {
  __shared__ volatile float s[128];
  int t = threadIdx.x, lane = t % 32, first = t - lane, i = blockIdx.x * 128 + t;
  s[t] = i < n ? a[i] : 0.0f;
  if (lane < 16) s[t] += other(s, t + 16); else s[t] = -s[t];
  for (int step = 0; step < lane; ++step) s[t] += 1.0f;
  if (i < n) b[i] = s[first + (lane + 1) % 32];
}
"""


def test_lanes_meet_again_behind_branches_and_loops(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    outcome = captured(cpu_executor, tmp_path, BRANCHES)
    assert outcome.lockstep is not None
    values = EXPECTED.reshape(-1, 32)
    halves = np.concatenate([values[:, :16] + values[:, 16:], -values[:, 16:]], axis=1)
    stepped = halves + np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(result(outcome), np.roll(stepped, -1, axis=1).ravel()[:1000])


LOCK = """
__global__ void k(const float* a, float* b, int n) {
  __shared__ volatile float s[128];
  __shared__ int lock;
  __shared__ float sum;
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  if (t == 0) lock = 0, sum = 0.0f;
  s[t] = i < n ? t : 0.0f;
  __syncthreads();
  float next = s[t ^ 1];
  s[t] = 2.0f * next;
  for (bool done = false; !done;) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      *(volatile float*)&sum += s[t];
      __threadfence_block();
      atomicExch(&lock, 0);
      done = true;
    }
  }
  __syncthreads();
  if (t == 0) b[blockIdx.x] = sum;
}
"""


def test_a_lane_that_holds_a_lock_goes_on_in_lockstep(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    outcome = captured(cpu_executor, tmp_path, LOCK)
    assert outcome.lockstep is not None
    np.testing.assert_array_equal(result(outcome)[:8], [127.0 * 128.0] * 7 + [103.0 * 104.0])


GLOBAL = """
__global__ void k(const float* a, float* b, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n) return;
  b[i] = a[i];
  b[i] = b[i ^ 1] + 1.0f;
}
"""


def test_global_memory_is_followed_too(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    outcome = captured(cpu_executor, tmp_path, GLOBAL)
    assert outcome.lockstep is not None
    assert outcome.lockstep.memory == "all"
    swapped = EXPECTED[:1000].reshape(-1, 2)[:, ::-1].ravel() + 1.0
    np.testing.assert_array_equal(result(outcome), swapped)


BETWEEN = {
    "block": """
__global__ void k(const float* a, float* b, int n) {
  __shared__ float s[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = 0.0f;
  __syncthreads();
  s[t] = i < n ? a[i] : 0.0f;
  if (i < n) b[i] = s[127 - t];
}
""",
    "grid": """
__global__ void k(const float* a, float* b, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) b[i] = a[i] + b[(i + 512) % n];
}
""",
}


@pytest.mark.parametrize("scope", BETWEEN)
def test_where_warps_or_blocks_race_there_is_no_reference(
    cpu_executor: CpuExecutor, tmp_path: Path, scope: str
) -> None:
    outcome = captured(cpu_executor, tmp_path, BETWEEN[scope])
    assert outcome.lockstep is None
    assert scope in {one.scope for one in outcome.unordered}
    line = {"block": "k.cu:9", "grid": "k.cu:5"}[scope]
    assert f"{line} reads" in outcome.undecided


ORDERED = {
    "shuffles": "float v = i < n ? a[i] : 0.0f; v += __shfl_xor_sync(~0u, v, 1); "
    "if (i < n) b[i] = v;",
    "syncwarp": "__shared__ float s[128]; s[t] = i < n ? a[i] : 0.0f; __syncwarp(); "
    "if (i < n) b[i] = s[t ^ 1];",
    "atomic slots": "__shared__ int next; if (t == 0) next = 0; __syncthreads(); "
    "if (i < n) b[blockIdx.x * 128 + atomicAdd(&next, 1)] = a[i];",
    "atomic sums": "if (i < n) atomicAdd(&b[i % 3], a[i]);",
    "the same value": "__shared__ float flag; flag = 0.0f; __syncthreads(); "
    "if (t > 3) flag = 1.0f; __syncthreads(); if (i < n) b[i] = flag;",
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_in_order_or_atomic_is_left_as_it_is(
    cpu_executor: CpuExecutor, tmp_path: Path, name: str
) -> None:
    head = "__global__ void k(const float* a, float* b, int n) {\n"
    head += "  int t = threadIdx.x, i = blockIdx.x * 128 + t;\n  "
    outcome = captured(cpu_executor, tmp_path, head + ORDERED[name] + "\n}\n")
    assert (outcome.lockstep, outcome.unordered, outcome.undecided) == (None, (), "")


def test_program_and_unit_run_as_they_were_captured(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    kernels = REDUCTION.replace("QUALIFIER", "")
    parsed = program(tmp_path, kernels, VECTOR_MAIN.replace("LAUNCH", LAUNCH))
    outcome = reference(cpu_executor, parsed, tmp_path)
    ran = cpu_executor.run_program(parsed, (), 60.0, lockstep=outcome.lockstep)
    assert isinstance(ran, ProgramRan)
    assert ran.stdout == outcome.stdout
    plain = cpu_executor.run_program(parsed, (), 60.0)
    assert isinstance(plain, ProgramRan)
