"""Pointers that stand in memory: what they lead to is captured, and they are moved to where it lies
whenever the launch is run again."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Ran
from cudaops.domain.judgement import Policy
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.unit import captured_inputs
from cudaops.executors.cuda.protocol import Buffer
from cudaops.executors.cuda.runner.driver import Driver
from cudaops.executors.cuda.runner.memory import Region, TaskMemory
from cudaops.executors.cuda.runner.replay import moved
from cudaops.gates.evaluate import evaluate
from cudaops.program.plans import baseline_plan, make_rewrite
from cudaops.sandbox.workbench import open_workbench
from tests.executors.cases import Case, compiled, program
from tests.executors.cuda.gpu_programs import StandInPrograms, on_gpu

KERNELS = """
struct Node { float value; int key; Node* next; };
__global__ void rows(float* const* table, float* out, int n, int w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= w) return;
  float s = 0;
  for (int r = 0; r < n; ++r) s += table[r][i];
  out[i] = s;
}
__global__ void chain(const Node* at, float* out) {
  float s = 0;
  for (; at; at = at->next) s += at->value * at->key;
  *out = s;
}
__global__ void turned(float** table) {
  float* kept = table[0];
  table[0] = table[1];
  table[1] = kept + 1;
  table[0][0] = 5;
}
__device__ float* held;
__global__ void through(float* out) { out[threadIdx.x] = held[threadIdx.x] * 2; }
"""
MAIN = """
  const int w = 100, n = 3;
  float *row[n], **table, *out, h[w];
  for (int r = 0; r < n; ++r) {
    for (int i = 0; i < w; ++i) h[i] = r * 10 + i % 7;
    cudaMalloc(&row[r], w * sizeof(float));
    cudaMemcpy(row[r], h, sizeof h, cudaMemcpyHostToDevice);
  }
  cudaMalloc(&table, sizeof row);
  cudaMemcpy(table, row, sizeof row, cudaMemcpyHostToDevice);
  cudaMalloc(&out, w * sizeof(float));
  Node* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    Node one{i + 0.5f, i + 1, first};
    cudaMalloc(&first, sizeof one);
    cudaMemcpy(first, &one, sizeof one, cudaMemcpyHostToDevice);
  }
  cudaMemcpyToSymbol(held, &row[2], sizeof row[2]);
  LAUNCH;
  cudaDeviceSynchronize();
"""
LAUNCHES = {
    "rows": "rows<<<1, 128>>>(table, out, n, w)",
    "chain": "chain<<<1, 1>>>(first, out)",
    "turned": "turned<<<1, 1>>>(table)",
    "through": "through<<<1, 64>>>(out)",
}
LEAD = {
    "rows": {"table": ("opaque", "in"), "out": ("f32", "inout"), "table[0]": ("f32", "inout"),
             "table[1]": ("f32", "inout"), "table[2]": ("f32", "inout")},
    "chain": {"at": ("opaque", "in"), "out": ("f32", "inout")},
    "turned": {"table": ("opaque", "inout"), "table[0]": ("f32", "inout"),
               "table[1]": ("f32", "inout"), "table[2]": ("f32", "inout")},
}  # fmt: skip


def parsed(folder: Path, kernel: str) -> Program:
    return program(folder, KERNELS, MAIN.replace("LAUNCH", LAUNCHES[kernel]))


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_a_launch_runs_again_at_other_addresses(
    cpu_executor: CpuExecutor, tmp_path: Path, kernel: str
) -> None:
    source = parsed(tmp_path, kernel)
    outcome = cpu_executor.capture(source, kernel, (), tmp_path / "captured", 60.0)
    assert isinstance(outcome, Captured), outcome
    (workload,) = outcome.workloads
    named = {p.name: workload.allocations[p.allocation] for p in workload.pointers()}
    for name, expected in LEAD.get(kernel, {}).items():
        assert (named[name].element, named[name].role) == expected, name
    built = compiled(cpu_executor, Case(source, workload, tmp_path))
    inputs = captured_inputs(workload)
    for shift in (0, 512):
        moved_by = InputSet(contents=inputs.contents, shift_bytes=shift)
        (ran,) = _series(cpu_executor, built, workload, moved_by, tmp_path / f"{shift}")
        for a in workload.allocations:
            after = (Path(workload.folder) / a.after).read_bytes()
            assert Path(ran.outputs[a.index]).read_bytes() == after, a.name


def _series(
    executor: CpuExecutor, built: object, workload: object, inputs: InputSet, folder: Path
) -> tuple[Ran, ...]:
    ran = executor.run_series(built, workload, baseline_plan(workload), (inputs,), folder)  # type: ignore[arg-type]
    assert isinstance(ran, tuple), ran
    return ran


@pytest.mark.parametrize("kernel", ["rows", "chain"])
def test_the_gpu_recorder_sees_the_same(
    cpu_executor: CpuExecutor, tmp_path: Path, kernel: str
) -> None:
    source = parsed(tmp_path, kernel)
    outcome = on_gpu(StandInPrograms(cpu_executor.cache), source).capture(kernel, tmp_path / "c")
    assert isinstance(outcome, Captured), outcome
    (workload,) = outcome.workloads
    assert sum(a.holds_pointers for a in workload.allocations) == (4 if kernel == "chain" else 1)
    named = {p.name: workload.allocations[p.allocation] for p in workload.pointers()}
    for name, expected in LEAD[kernel].items():
        assert (named[name].element, named[name].role) == expected, name


def test_addresses_in_a_file_are_those_of_the_device(tmp_path: Path) -> None:
    words = np.array([0x10000, 0x10008, 0x10040, 0x20000, 7, 0xFFFF], dtype=np.uint64)
    words.tofile(tmp_path / "table")
    (tmp_path / "row").write_bytes(bytes(64))
    table, row = (
        Buffer(index=0, size_bytes=48, file=str(tmp_path / "table"), address=0x20000,
               holds_pointers=True),
        Buffer(index=1, size_bytes=128, file=str(tmp_path / "row"), address=0x10000, widened_by=2),
    )  # fmt: skip
    regions = {i: Region(at, 1, "", at) for i, at in enumerate((0x500000, 0x700000))}
    memory = TaskMemory(cast(Driver, None))
    given, same = moved(memory, (table, row), regions)
    found = np.fromfile(str(given.file), dtype=np.uint64)
    assert found.tolist() == [0x700000, 0x700010, 0x700080, 0x500000, 7, 0xFFFF]
    assert same is row
    memory.give_back()
    assert not Path(str(given.file)).exists()


REWRITE = """
// @launch summed grid=(ceil_div(w, 32)) block=(32) args=(table, out, n, w)
__global__ void summed(float* const* table, float* out, int n, int w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= w) return;
  float s = 0;
  for (int r = 0; r < n; ++r) s += table[ROW][i];
  out[i] = s;
}
"""


@pytest.mark.parametrize(("row", "right"), [("r", True), ("0", False)])
def test_a_rewrite_is_judged_on_other_contents_of_what_they_lead_to(
    kernels: Path, tmp_path: Path, row: str, right: bool
) -> None:
    policy = Policy(min_speedup=0.001, seed=11)
    bench = open_workbench(
        parsed(tmp_path, "rows"), None, (), CpuExecutor("A10", kernels), policy, tmp_path / "bench",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip
    rewrite = make_rewrite(REWRITE.replace("ROW", row), "test", "test", "test")
    judged = evaluate(bench, rewrite, policy.min_speedup)
    assert all(gate.passed for gate in judged.gates) == right, judged.gates[-1].summary
    if right:
        domain = next(g for g in judged.gates if g.name == "correctness_domain")
        assert "table as captured" in domain.summary


MADE = """
__global__ void make(int** p, int n) {
  int i = threadIdx.x;
  p[i] = (int*)malloc(4);
  *p[i] = i;
}
"""
USED = """
  int** p;
  cudaMalloc(&p, 32 * sizeof(int*));
  cudaMemset(p, 0, 32 * sizeof(int*));
  make<<<1, 32>>>(p, 32);
  cudaDeviceSynchronize();
"""


def test_what_a_kernel_makes_is_refused_by_its_name(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="parameter p points to pointers to what a kernel made"):
        cpu_executor.capture(program(tmp_path, MADE, USED), None, (), tmp_path / "c", 60.0)
